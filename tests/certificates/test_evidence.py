"""Evidence: what is saved is verified, a forged claim is noticed, and what is accepted is true by brute force."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import surefoot as sf
from forgery import all_forgeries, mended
from generators import just_above, sample
from refusals import refuses
from surefoot.bounds.engine import AuditEngine
from surefoot.certificates.verify import read_evidence, schema

LOSSES = ["zero_one", "log_loss", "cost"]


@cache
def problem(K: int = 2, n: int = 14, M: int = 20) -> tuple[Any, ...]:
    X, y, U = sample(seed=K, n=n, M=M, K=K)
    return RandomForestClassifier(10, random_state=0).fit(X, y), X, y, U


def certificate(K: int, loss: str, radius: Any, **keywords: Any) -> tuple[sf.Certificate, Any, Any, Any, Any]:
    clf, X, y, U = problem(K)
    matrix = np.arange(K * K).reshape(K, K).astype(float) if loss == "cost" else loss
    chosen = just_above(X, y, U, **keywords) if radius is None else radius
    return sf.certify(clf, X, y, X_unlabeled=U, radius=chosen, loss=matrix, **keywords), clf, X, y, U


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("radius", [None, "calibrated"])
def test_what_is_saved_is_verified(tmp_path: Path, K: int, loss: str, radius: Any) -> None:
    found, clf, X, y, U = certificate(K, loss, radius)
    assert found.save(tmp_path / "c.json", X, y, X_unlabeled=U) == [tmp_path / "c.json"]
    result = sf.verify(tmp_path / "c.json", X, y, X_unlabeled=U, classifier=clf)
    assert result.ok, result
    claimed = json.loads((tmp_path / "c.json").read_text())["claims"][0]["value"]
    assert found.risk <= claimed <= found.risk + 1e-6 or claimed == 1.0


@pytest.mark.parametrize("metric", ["manhattan", "chebyshev", sf.costs.Mahalanobis(np.diag([2.0, 1.0])), "learned"])
def test_every_metric_of_numbers_is_verified(tmp_path: Path, metric: Any) -> None:
    clf, X, y, U = problem()
    found = sf.certify(clf, X, y, X_unlabeled=U, radius="calibrated", loss="zero_one", metric=metric)
    found.save(tmp_path / "c.json", X, y, X_unlabeled=U)
    assert sf.verify(tmp_path / "c.json", X, y, X_unlabeled=U, classifier=clf).ok


def test_evidence_says_that_the_metric_was_learned(tmp_path: Path) -> None:
    found, clf, X, y, U = certificate(2, "zero_one", "calibrated")
    found.save(tmp_path / "c.json", X, y, X_unlabeled=U)
    claim = read_evidence(tmp_path / "c.json")["claims"][0]
    assert claim["set"]["metric"]["learned"]
    np.testing.assert_array_equal(claim["set"]["metric"]["weights"], found.metric.weights)
    assert claim["kind"] == "conditional"
    assert any("metric learned from the same labels" in text and "measured" in text for text in claim["assumptions"])
    result = sf.verify(tmp_path / "c.json", X, y, X_unlabeled=U, classifier=clf)
    assert result.ok
    fixed = "that the metric was fixed before the labels were seen"
    assert fixed not in result.not_verified
    given = sf.certify(clf, X, y, X_unlabeled=U, radius="calibrated", loss="zero_one", metric=found.metric)
    given.save(tmp_path / "g.json", X, y, X_unlabeled=U)
    assert not read_evidence(tmp_path / "g.json")["claims"][0]["set"]["metric"]["learned"]
    assert fixed in sf.verify(tmp_path / "g.json", X, y, X_unlabeled=U, classifier=clf).not_verified


@pytest.mark.parametrize("settings", [{}, {"radius": "auto"}, {"radius": "calibrated"}, {"l2": 0.1, "radius": "auto"}])
def test_a_fit_is_verified(tmp_path: Path, settings: dict[str, Any]) -> None:
    _, X, y, U = problem(n=20, M=60)
    clf = sf.RobustLogisticRegression(**settings).fit(X, y, X_unlabeled=U)
    clf.certificate_.save(tmp_path / "c.json", X, y, X_unlabeled=U)
    result = sf.verify(tmp_path / "c.json", X, y, X_unlabeled=U, classifier=clf)
    assert result.ok, result
    kind = read_evidence(tmp_path / "c.json")["claims"][0]["kind"]
    assert kind == ("conditional" if settings.get("radius") == "calibrated" else "none")


def test_weights_and_copies_of_rows_are_kept(tmp_path: Path) -> None:
    clf, X, y, U = problem()
    rows, labels = np.vstack([X, X[:3]]), np.append(y, y[:3])
    weights = np.arange(1.0, len(rows) + 1)
    weights[4] = 0.0
    found = sf.certify(clf, rows, labels, X_unlabeled=U, radius=2.0, loss="zero_one", sample_weight=weights)
    found.save(tmp_path / "c.json", rows, labels, X_unlabeled=U)
    assert sf.verify(tmp_path / "c.json", rows, labels, X_unlabeled=U, classifier=clf).ok
    saved = read_evidence(tmp_path / "c.json")["claims"][0]["set"]["labeled_weights"]
    assert np.allclose(np.array(saved)[3:-3], (weights / weights.sum())[3:-3])  # the others share with their copies


def test_rows_of_another_population(tmp_path: Path) -> None:
    clf, X, y, U = problem()
    found = sf.certify(clf, X, y, X_target=U, radius=3.0, loss="zero_one")
    found.save(tmp_path / "c.json", X, y, X_target=U)
    assert sf.verify(tmp_path / "c.json", X, y, X_target=U, classifier=clf).ok
    assert not sf.verify(tmp_path / "c.json", X, y, X_unlabeled=U, classifier=clf).ok


def test_large_arrays_stand_in_a_second_file(tmp_path: Path) -> None:
    clf, X, y, U = problem(M=800)
    found = sf.certify(clf, X, y, X_unlabeled=U, radius=2.0, loss="log_loss")
    written = found.save(tmp_path / "c.json", X, y, X_unlabeled=U)
    assert written == [tmp_path / "c.json", tmp_path / "c.npz"]
    assert sf.verify(tmp_path / "c.json", X, y, X_unlabeled=U, classifier=clf).ok
    with np.load(tmp_path / "c.npz") as arrays:
        changed = {name: arrays[name] for name in arrays.files}
    changed["a0"] = changed["a0"] * 0.5
    np.savez_compressed(tmp_path / "c.npz", **changed)
    result = sf.verify(tmp_path / "c.json", X, y, X_unlabeled=U, classifier=clf)
    assert not result.ok
    assert "c.npz" in result.mismatches[0]


def test_equal_rows_are_kept_as_they_are(tmp_path: Path) -> None:
    clf, X, y, U = problem()
    many = np.vstack([U[:15]] * 80)  # enough that certify solves over the distinct ones
    found = sf.certify(clf, X, y, X_unlabeled=many, radius=2.0, loss="zero_one")
    found.save(tmp_path / "c.json", X, y, X_unlabeled=many)
    assert sf.verify(tmp_path / "c.json", X, y, X_unlabeled=many, classifier=clf).ok
    assert not sf.verify(tmp_path / "c.json", X, y, X_unlabeled=many[1:], classifier=clf).ok


def test_other_rows_labels_and_classifiers_are_noticed(tmp_path: Path) -> None:
    found, _, X, y, U = certificate(2, "zero_one", None)
    found.save(tmp_path / "c.json", X, y, X_unlabeled=U)
    cell, label = X.copy(), y.copy()
    cell[0, 0] += 1e-9
    label[3] = 1 - label[3]
    other = KNeighborsClassifier(1).fit(X, 1 - y)
    assert len(sf.verify(tmp_path / "c.json", cell, y, X_unlabeled=U).mismatches) == 1
    assert len(sf.verify(tmp_path / "c.json", X, label, X_unlabeled=U).mismatches) == 1
    assert len(sf.verify(tmp_path / "c.json", X, y, X_unlabeled=U, classifier=other).mismatches) == 1


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    clf, X, y, U = problem()
    found = sf.certify(clf, X, y, X_unlabeled=U, radius=2.0)
    ball = sf.WassersteinLogisticRegression().fit(X, y).certificate_
    matrix = sf.certify(None, X, y, X_unlabeled=U, radius=2.0, losses=np.ones((len(X) + len(U), 2)))
    own = sf.certify(clf, X, y, X_unlabeled=U, radius=2.0, metric=lambda a, b: abs(a - b).sum())
    to = tmp_path / "c.json"
    with refuses("certificate"):
        ball.save(to, X, y)
    with refuses("losses"):
        matrix.save(to, X, y, X_unlabeled=U)
    with refuses("metric"):
        own.save(to, X, y, X_unlabeled=U)
    with refuses("X"):
        found.save(to, X, y, X_unlabeled=U[:-1])
    with refuses("X"):
        found.save(to, X, 1 - y, X_unlabeled=U)
    with refuses("path"):
        found.save(tmp_path / "c.txt", X, y, X_unlabeled=U)
    assert not list(tmp_path.iterdir())


# Brute force: the worst case of a claim by a linear program over all plans.


def distances_of(metric: dict[str, Any], rows: Any, X: Any) -> Any:
    """Distances (N, n) in the metric of a claim, by SciPy."""
    if metric["name"] != "weighted":
        return cdist(rows, X, {"manhattan": "cityblock"}.get(metric["name"], metric["name"]))
    weights, directions = np.array(metric["weights"]), metric["directions"]
    scaled = [part * weights for part in (rows, X)]
    if directions is not None:
        scaled = [np.hstack([a, b @ np.array(directions)]) for a, b in zip(scaled, (rows, X), strict=True)]
    return cdist(*scaled)


def true_worst_case(claim: dict[str, Any], X: Any, y: Any, rows: Any) -> float:
    """The largest expected loss over the set that a claim describes, by HiGHS over plans (row, label, labeled row)."""
    chosen, losses = claim["set"], np.array(claim["proof"]["losses"], dtype=float)
    (N, K), n, radius = losses.shape, len(X), chosen["radius"]
    kappa = np.array(chosen["label_cost"], dtype=float)
    cost = kappa * (1 - np.eye(K)) if kappa.ndim == 0 else kappa
    d = distances_of(chosen["metric"], rows, X)
    sets = [(cost, radius["value"])]
    if chosen["tied"]:
        groups = [g for size in range(1, K) for g in combinations(range(K), size)]
        inside = [np.isin(np.arange(K), g).astype(float) for g in groups]
        budget = radius["features"] + radius["excess"]
        sets = [(np.maximum(cost + kappa * (i[None, :] - i[:, None]), 0.0), budget) for i in inside]
    w = np.full(n, 1 / n) if chosen["labeled_weights"] is None else np.array(chosen["labeled_weights"])
    lo, hi = np.array(chosen["label_intervals"]).T
    to_row, to_anchor = np.kron(np.eye(N), np.ones(K * n)), np.kron(np.ones(N * K), np.eye(n))
    to_label = np.kron(np.ones(N), np.kron(np.eye(K), np.ones(n)))
    best = -np.inf
    for c, r in sets:
        prices = (d[:, None, :] + c[:, y][None]).ravel()
        done = linprog(
            -np.repeat(losses.ravel(), n),
            A_ub=np.vstack([to_label, -to_label, prices]),
            b_ub=np.concatenate([hi, -lo, [r]]) + 1e-9,
            A_eq=np.vstack([to_row, to_anchor]),
            b_eq=np.concatenate([np.full(N, 1 / N), w]),
        )
        best = max(best, -done.fun) if done.status == 0 else best
    return best


# Forgery: every field of a file is changed, one at a time (tests/forgery.py).


def run_forgeries(
    file: Path, check: Callable[[], Any], harmless: Callable[[tuple[Any, ...], dict[str, Any]], bool]
) -> tuple[int, int]:
    """How many forgeries there were, and how many were accepted, all of them harmless; without mending none is."""
    content, validator = json.loads(file.read_text()), jsonschema.Draft202012Validator(schema())
    tried = accepted = 0
    for path, other in all_forgeries(content):
        tried += 1
        file.write_text(json.dumps(other))
        if path[0] in ("format", "version"):
            with pytest.raises(ValueError, match=r"of surefoot|version"):
                check()
            continue
        assert not check().ok, path
        if path == ("sha256",) or {"statement", "assumptions", "void_if"} & set(path):
            continue  # mended, it would be what it was
        whole = mended(other)
        file.write_text(json.dumps(whole))
        if not validator.is_valid(whole):
            assert not check().ok, path
        elif check().ok:
            accepted += 1
            assert harmless(path, whole), (path, whole)
    file.write_text(json.dumps(content))
    assert check().ok
    print(f"{tried} forgeries, {tried - accepted} noticed, {accepted} harmless")  # noqa: T201 - the counts in docs/evidence.md
    return tried, accepted


# Fields that a change may leave verified: what is not part of a claim, or where a change makes the claim weaker or is
# still proved, which brute force decides.
NOTES = {"versions", "seed", "model"}


@pytest.mark.parametrize(
    ("loss", "radius"),
    [
        ("zero_one", None),
        pytest.param("log_loss", None, marks=pytest.mark.slow),
        pytest.param("zero_one", "calibrated", marks=pytest.mark.slow),
        pytest.param("log_loss", "calibrated", marks=pytest.mark.slow),
    ],
)
def test_no_forged_certificate_is_accepted_unless_it_is_true(tmp_path: Path, loss: str, radius: Any) -> None:
    X, y, U = sample(seed=5, n=6, M=4)
    clf = LogisticRegression().fit(X, y)
    chosen = just_above(X, y, U, excess=0.15) if radius is None else radius
    found = sf.certify(clf, X, y, X_unlabeled=U, radius=chosen, loss=loss)
    file, rows = tmp_path / "c.json", np.vstack([X, U])
    found.save(file, X, y, X_unlabeled=U)
    before = read_evidence(file)["claims"][0]
    assert abs(true_worst_case(before, X, y, rows) - before["value"]) <= 1e-5

    def harmless(path: tuple[Any, ...], content: dict[str, Any]) -> bool:
        claim = content["claims"][0]
        # the name of another loss than these two says nothing of how it is computed
        if path[0] in NOTES or (path[-1] == "metric" and claim["metric"] not in ("zero_one", "log_loss")):
            return True
        same = {name: claim[name] == before[name] for name in ("kind", "confidence", "metric", "predictions", "type")}
        radius = {name: claim["set"]["radius"][name] for name in ("rule", "level", "splits")}
        return (
            all(same.values())
            and true_worst_case(claim, X, y, rows) <= claim["value"] + 1e-7
            and claim["set"]["radius"]["n_labels"] in (before["set"]["radius"]["n_labels"], 0, 1, 3)
            and (radius["level"] == before["set"]["radius"]["level"] or path[-1] == "level")
            and (radius["rule"] == before["set"]["radius"]["rule"])
        )

    tried, accepted = run_forgeries(file, lambda: sf.verify(file, X, y, X_unlabeled=U, classifier=clf), harmless)
    assert tried > 200
    assert accepted < tried / 2


AUDITS = [
    {"target_error": 0.2},
    {"n_labels": 30},
    {"sampling": "weighted", "target_error": 0.2},
    {"n_labels": 25, "known": True},
]


def audited(tmp_path: Path, known: bool = False, **settings: Any) -> tuple[sf.Audit, Any, Any, Any, Path]:
    X, y, _ = sample(seed=11, n=160, M=1)
    clf = LogisticRegression().fit(X[:40], y[:40])
    pool, truth = X[40:], y[40:]
    labels = np.full(len(truth), np.nan)
    labels[:6] = truth[:6]
    audit = sf.Audit(clf, pool, labels if known else None, random_state=4, **settings)
    audit.run(lambda row: None if row == 77 else int(truth[row]), 40)
    audit.save(tmp_path / "a.json")
    return audit, clf, pool, truth, tmp_path / "a.json"


@pytest.mark.parametrize("settings", AUDITS, ids=str)
def test_an_audit_is_verified(tmp_path: Path, settings: dict[str, Any]) -> None:
    audit, clf, pool, truth, file = audited(tmp_path, **settings)
    result = sf.verify(file, pool, truth, classifier=clf)
    assert result.ok, result
    bound = audit.bound() if audit.rule == "planned" else audit.anytime_bound()
    assert read_evidence(file)["claims"][0]["value"] == bound.value


@pytest.mark.parametrize(
    "settings",
    [AUDITS[1], *[pytest.param(one, marks=pytest.mark.slow) for one in (AUDITS[0], *AUDITS[2:])]],
    ids=str,
)
def test_no_forged_audit_is_accepted_unless_it_is_weaker(tmp_path: Path, settings: dict[str, Any]) -> None:
    _, clf, pool, truth, file = audited(tmp_path, **settings)
    before = read_evidence(file)["claims"][0]

    def harmless(path: tuple[Any, ...], content: dict[str, Any]) -> bool:
        """An audit with these fields would have said the same, or more, by the engine."""
        claim = content["claims"][0]
        proof = claim["proof"]
        names, known = proof["labels"], dict(map(tuple, proof["known"]))
        how = {"plan": proof["plan"] if proof["rule"] == "planned" else None, "belief": proof["belief"]}
        belief = None if how["belief"] is None else np.array(how["belief"])
        engine = AuditEngine(
            [names[code] for code in proof["codes"]], known, level=claim["confidence"], seed=proof["seed"],
            plan=how["plan"], belief=belief, uniform_fraction=proof["uniform_fraction"],
        )  # fmt: skip
        for row, label in proof["draws"]:
            assert engine.next_draw().row == row
            engine.settle(row, label)
        told = {row: label for row, label in [*proof["known"], *proof["draws"]] if label is not None}
        right = all(label == truth[row] for row, label in told.items())
        upper = engine.anytime_upper if how["plan"] is None else engine.planned_upper(how["plan"])
        return right and upper <= claim["value"] + 1e-12 and claim["kind"] == before["kind"]

    tried, _ = run_forgeries(file, lambda: sf.verify(file, pool, truth, classifier=clf), harmless)
    assert tried > 150


def test_a_changed_label_and_a_row_that_was_not_drawn_are_noticed(tmp_path: Path) -> None:
    audit, clf, pool, truth, file = audited(tmp_path, n_labels=30)
    content = json.loads(file.read_text())
    proof = content["claims"][0]["proof"]
    wrong = next(k for k, (row, label) in enumerate(proof["draws"]) if label != clf.predict(pool[[row]])[0])
    proof["draws"][wrong][1] = int(clf.predict(pool[[proof["draws"][wrong][0]]])[0])
    proof["n_errors"] -= 1
    file.write_text(json.dumps(mended(content)))
    assert any("other labels" in text for text in sf.verify(file, pool, truth, classifier=clf).mismatches)
    audit.save(file)
    content = json.loads(file.read_text())
    proof = content["claims"][0]["proof"]
    proof["draws"][0][0] = next(row for row in range(len(pool)) if row not in audit.labels)
    file.write_text(json.dumps(mended(content)))
    assert any("seed" in text for text in sf.verify(file, pool, classifier=clf).mismatches)


@pytest.mark.parametrize(("N", "n", "errors"), [(40, 12, 0), (40, 12, 3), (60, 20, 2), (25, 25, 4)])
def test_bounds_of_audits_are_those_of_the_engine(N: int, n: int, errors: int) -> None:
    from surefoot.bounds.betting import PoolErrors
    from surefoot.certificates.verify import anytime_bound, exact_bound
    from surefoot.priors.clopper_pearson import hypergeometric_upper

    wrong = [k % (n // max(errors, 1)) == 0 and errors > 0 for k in range(n)]
    engine = PoolErrors(N, 0.9)
    for one in wrong:
        engine.add(one)
    assert anytime_bound(wrong, N, 0.9) == engine.upper
    assert exact_bound(sum(wrong), n, N, 0.9) == hypergeometric_upper(sum(wrong), n, N, 0.9)


def test_the_checks_share_nothing_with_the_solver() -> None:
    from test_imports import SRC, internal_imports, module_files

    known = module_files(SRC)
    used = internal_imports("surefoot.certificates.verify", known["surefoot.certificates.verify"], set(known))
    allowed = {"_errors", "_printing", "_validation", "costs.metrics", "problem.rows"}
    assert used <= {f"surefoot.{name}" for name in allowed}


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
