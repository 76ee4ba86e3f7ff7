"""Another population: the feature marginal is that of X_target alone, wherever its rows lie, and groups of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import surefoot as sf
from generators import SMALL_BLOCKS, BlockPool
from reference.inner import inner_reference, minimal_radius_reference
from refusals import Refused, refuses, warns
from surefoot.priors import ClopperPearson

KAPPA = 0.8
COST = KAPPA * (1.0 - np.eye(2))


def draw(seed: int = 0, n: int = 8, M: int = 24) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 2)) + y[:, None]
    return X, y, rng.normal([0.7, -0.3], size=(M, 2))


def losses_of(clf: Any, rows: Any) -> Any:
    return 1.0 - np.eye(2)[clf.predict(rows)]


def worst(losses: Any, X: Any, y: Any, T: Any, radius: float, intervals: Any = None) -> float:
    """By HiGHS, over the rows of T alone."""
    M, n = len(T), len(X)
    found = inner_reference(
        losses, cdist(T, X), np.full(M, 1 / M), np.full(n, 1 / n), y, COST, intervals, radius
    )  # fmt: skip
    return found["value"]


@pytest.mark.parametrize("seed", range(3))
def test_certify_over_the_target_rows_alone(seed: int) -> None:
    X, y, T = draw(seed)
    clf = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    least = minimal_radius_reference(
        cdist(T, X), np.full(len(T), 1 / len(T)), np.full(len(X), 1 / len(X)), y, COST, None
    )
    assert sf.minimal_radius(X, y, X_target=T, label_cost=KAPPA) == pytest.approx(least, abs=1e-9)
    options: dict[str, Any] = {"X_target": T, "radius": least + 0.1, "label_cost": KAPPA, "loss": "zero_one"}
    found = sf.certify(clf, X, y, **options)
    expected = worst(losses_of(clf, T), X, y, T, least + 0.1)
    assert found.risk == pytest.approx(expected, abs=2e-6)
    assert found.lower == pytest.approx(expected, abs=2e-6)
    # nothing is assumed of the label shares, unless a prior is named
    np.testing.assert_array_equal(found.label_intervals, [[0, 1], [0, 1]])
    assert found.worst_case.label_proba.shape == (len(T), 2)
    for prior in ("clopper-pearson", ClopperPearson()):
        named = sf.certify(clf, X, y, label_prior=prior, **options)
        bounds = ClopperPearson().intervals([4, 4])
        np.testing.assert_allclose(named.label_intervals, bounds)
        assert named.risk == pytest.approx(worst(losses_of(clf, T), X, y, T, least + 0.1, bounds), abs=2e-6)


def test_a_fit_learns_over_the_target_rows() -> None:
    X, y, T = draw()
    radius = sf.minimal_radius(X, y, X_target=T, label_cost=KAPPA) + 0.05
    clf = sf.RobustLogisticRegression(radius, label_cost=KAPPA, tol=1e-6).fit(X, y, X_target=T)
    certificate = clf.certificate_
    assert certificate.worst_case.label_proba.shape == (len(T), 2)
    again = sf.certify(clf, X, y, X_target=T, radius=radius, label_cost=KAPPA)
    assert again.risk == pytest.approx(certificate.risk, abs=1e-5)
    # no coefficients do better against the adversary found
    rng = np.random.default_rng(1)
    for _ in range(20):
        other = sf.RobustLogisticRegression(radius, label_cost=KAPPA).fit(X, y, X_target=T)
        other.coef_ = clf.coef_ + 0.2 * rng.normal(size=clf.coef_.shape)
        proba = other.predict_proba(T)
        loss = -np.sum(certificate.worst_case.label_proba * np.log(proba)) / len(T)
        assert loss >= certificate.lower - 1e-6


def test_a_calibrated_radius_says_that_it_is_of_another_population() -> None:
    X, y, T = draw(n=20)
    euclidean = {"metric": "euclidean", "label_cost": 1.0}
    here = sf.calibrate_radius(X, y, X_unlabeled=T, **euclidean)
    there = sf.calibrate_radius(X, y, X_target=T, **euclidean)
    np.testing.assert_array_equal(here.splits, there.splits)  # from the labeled rows alone
    assert there.minimal_radius == pytest.approx(sf.minimal_radius(X, y, X_target=T))
    assert there.other_population
    assert "another population" in there.meaning
    assert "another population" not in here.meaning


@pytest.mark.parametrize("where", ["array", "memmap", "parquet", "dask"])
def test_wherever_the_target_rows_lie(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = BlockPool.draw(n=8, M=400)
    clf = GaussianNB().fit(pool.X, pool.y)
    forms = {
        "array": lambda: pool.U,
        "memmap": lambda: pool.memmap(tmp_path),
        "parquet": lambda: pool.parquet(tmp_path),
        "dask": lambda: da.from_array(pool.U, chunks=(90, -1)),
    }
    radius = sf.minimal_radius(pool.X, pool.y, X_target=pool.U) + 0.02
    held = sf.certify(clf, pool.X, pool.y, X_target=pool.U, radius=radius, loss="zero_one", groups=by_sign)
    T = forms[where]()
    few = sf.certify(clf, pool.X, pool.y, X_target=T, radius=radius, loss="zero_one", groups=by_sign)
    assert few.risk == held.risk
    monkeypatch.setattr("surefoot.problem.placement.MOST_DISTANCES", 0)
    if where == "dask":
        from distributed import Client

        with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"):
            found = certify_in_blocks(pool, clf, T, radius)
    else:
        found = certify_in_blocks(pool, clf, T, radius)
    assert found.worst_case.label_proba.shape == (400, 2)
    assert found.risk == pytest.approx(held.risk, abs=2e-3)
    assert found.lower <= held.risk + 1e-6
    assert found.risk >= held.lower - 1e-6
    for name, one in held.groups.items():
        assert found.groups[name].risk >= one.lower - 1e-6
        assert found.groups[name].risk == pytest.approx(one.risk, abs=5e-3)


def certify_in_blocks(pool: BlockPool, clf: Any, T: Any, radius: float) -> sf.Certificate:
    return sf.certify(
        clf, pool.X, pool.y, X_target=T, radius=radius, loss="zero_one", tol=1e-3, compute=SMALL_BLOCKS, groups=by_sign
    )


def by_sign(rows: Any) -> Any:
    return np.where(np.asarray(rows)[:, 1] > 0, "above", "below")


def test_a_fit_in_blocks_is_that_in_memory() -> None:
    pool = BlockPool.draw(n=8, M=400)
    radius = sf.minimal_radius(pool.X, pool.y, X_target=pool.U) + 0.02
    held, blocks = (
        sf.RobustLogisticRegression(radius, compute=compute).fit(pool.X, pool.y, X_target=pool.U).certificate_
        for compute in (None, SMALL_BLOCKS)
    )
    assert blocks.risk == pytest.approx(held.risk, abs=3e-4)
    assert blocks.minimal_radius == pytest.approx(held.minimal_radius, rel=1e-4)


def group_reference(losses: Any, groups: Any, name: Any, X: Any, y: Any, rows: Any, radius: float) -> float:
    """E[ℓ | group] by HiGHS, over the plans themselves, not through a function of ours: one linear objective."""
    inside = groups == name
    return worst(np.where(inside[:, None], losses / inside.mean(), 0.0), X, y, rows, radius)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_groups_against_the_linear_program(seed: int, n_groups: int) -> None:
    X, y, T = draw(seed, n=6, M=15)
    clf = DecisionTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    groups = np.random.default_rng(seed).integers(n_groups, size=len(T))
    radius = sf.minimal_radius(X, y, X_target=T, label_cost=KAPPA) + 0.1
    found = sf.certify(
        clf, X, y, X_target=T, radius=radius, label_cost=KAPPA, loss="zero_one", groups=groups
    )  # fmt: skip
    assert set(found.groups) == set(groups.tolist())
    for name, one in found.groups.items():
        expected = group_reference(losses_of(clf, T), groups, name, X, y, T, radius)
        assert one.risk == pytest.approx(expected, abs=1e-5)
        assert one.lower == pytest.approx(expected, abs=1e-5)
    # the mean over all rows mixes the groups' means
    shares = {name: float(np.mean(groups == name)) for name in found.groups}
    assert found.risk <= sum(shares[name] * one.risk for name, one in found.groups.items()) + 1e-5
    assert max(one.risk for one in found.groups.values()) >= found.risk - 1e-5
    assert found.groups[found.worst_group].risk == max(one.risk for one in found.groups.values())


def test_groups_of_labeled_and_unlabeled_rows() -> None:
    X, y, U = draw(3)
    clf = DecisionTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    rows = np.vstack([X, U])
    groups = np.where(rows[:, 0] > 0.5, "right", "left")
    radius = sf.minimal_radius(X, y, X_unlabeled=U, label_cost=KAPPA) + 0.1
    options: dict[str, Any] = {
        "X_unlabeled": U, "radius": radius, "label_cost": KAPPA, "loss": "zero_one", "label_prior": None
    }  # fmt: skip
    found = sf.certify(clf, X, y, groups=groups, **options)
    again = sf.certify(
        clf, X, y, groups=lambda part: np.where(np.asarray(part)[:, 0] > 0.5, "right", "left"), **options
    )
    for name, one in found.groups.items():
        assert one.risk == pytest.approx(
            group_reference(losses_of(clf, rows), groups, name, X, y, rows, radius), abs=1e-5
        )
        assert again.groups[name].risk == one.risk
    assert "(the worst)" in repr(found)
    assert "group left" in found._repr_html_()
    bound = sf.error_bound(
        clf, X, y, X_unlabeled=U, method="transport", radius=radius, groups=groups,
        certify_options={"label_cost": KAPPA, "label_prior": None},
    )  # fmt: skip
    assert bound.value == found.groups[found.worst_group].risk
    assert bound.worst_group == found.worst_group
    assert sum(one.n_labels for one in bound.groups.values()) == len(y)
    assert "in every group" in bound.statement


def test_error_bound_of_another_population() -> None:
    X, y, T = draw(n=20)
    clf = GaussianNB().fit(X, y)
    found = sf.error_bound(clf, X, y, X_target=T)  # what one has decides: only this one speaks of X_target
    assert found.kind == "conditional"
    assert "X_target" in found.statement
    assert "no assumption about the label shares of X_target" in found.assumptions
    assert found.value == sf.certify(clf, X, y, X_target=T, radius="calibrated", loss="zero_one", clip=1e-3).risk
    named = sf.error_bound(clf, X, y, X_target=T, certify_options={"label_prior": "clopper-pearson"})
    assert any("of the other population" in text for text in named.assumptions)
    given_ones = sf.error_bound(clf, X, y, X_target=T, certify_options={"label_prior": [0.5, 0.5]})
    assert given_ones.value <= found.value + 1e-6
    table = sf.error_bounds(clf, X, y, X_target=T)
    assert (list(table.bounds), table.advice) == (["transport"], "transport")
    assert "another population" in table.left_out["crossfit"]
    grouped = sf.error_bound(clf, X, y, X_target=T, groups=by_sign(T))
    assert grouped.value >= found.value - 1e-5
    assert grouped.groups["above"].n_labels == 0  # labels of another population


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X_target": np.zeros((0, 2))}, ("X_target", "none")),
        ({"X_target": np.zeros((3, 3))}, ("X_target", 2, 3)),
        ({"X_target": pd.DataFrame(np.zeros((3, 2)), columns=["b", "a"])}, ("X_target", "['b', 'a']")),
        ({"groups": np.zeros(3)}, ("groups", 24, "(3,)")),
        ({"groups": [None, *range(23)]}, ("groups", 0)),
        ({"groups": np.zeros(24), "compute": SMALL_BLOCKS}, ("groups", "(24,)")),
        ({"label_prior": "assisted"}, ("X_unlabeled", "assisted")),
        ({"label_prior": "hypergeometric"}, ("X_unlabeled", "HypergeometricPrior")),
    ],
)
def test_bad_input(arguments: dict[str, Any], message: Refused) -> None:
    X, y, T = draw()
    frame = pd.DataFrame(X, columns=["a", "b"])
    clf = GaussianNB().fit(frame.to_numpy(), y)
    with refuses(message):
        sf.certify(clf, frame, y, **({"X_target": T, "radius": 2.0} | arguments))


@pytest.mark.parametrize("method", ["crossfit", "holdout", "anytime"])
def test_labels_of_one_population_do_not_judge_another(method: str) -> None:
    X, y, T = draw()
    with refuses("X_target", "X_target"):
        sf.error_bound(GaussianNB().fit(X, y), X, y, X_target=T, method=method)


def test_unlabeled_rows_beside_a_target_take_no_part() -> None:
    X, y, T = draw()
    with warns("unused_rows", sf.UnlabeledRowsWarning):
        both = sf.minimal_radius(X, y, X_unlabeled=T + 9.0, X_target=T)
    assert both == sf.minimal_radius(X, y, X_target=T)


def test_precomputed_distances_to_the_target() -> None:
    X, y, T = draw()
    metric = sf.costs.Precomputed(cdist(T, X))
    assert sf.minimal_radius(X, y, X_target=T, metric=metric) == pytest.approx(sf.minimal_radius(X, y, X_target=T))
    with refuses("radius"):
        sf.calibrate_radius(X, y, X_target=T, metric=metric)


def test_the_minimal_radius_is_plain_transport() -> None:
    """W_d between target and labeled rows, by scipy's own linear program over plans."""
    X, y, T = draw(5, n=4, M=6)
    d = cdist(T, X)
    rows, columns = np.kron(np.eye(6), np.ones(4)), np.kron(np.ones(6), np.eye(4))
    plan = linprog(d.ravel(), A_eq=np.vstack([rows, columns]), b_eq=[1 / 6] * 6 + [1 / 4] * 4)
    assert sf.minimal_radius(X, y, X_target=T) == pytest.approx(plan.fun)
