"""Bounds on precision, recall, F1 and cost: brute force on tiny pools, simulated coverage, the price, bad input."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, hypergeom
from sklearn.metrics import confusion_matrix, f1_score, precision_score, recall_score

import surefoot as sf
from surefoot._errors import ParameterError
from surefoot.bounds.engine import Draw
from surefoot.bounds.metrics import (
    METRICS,
    MetricEngine,
    MetricGoal,
    Stratum,
    allocate,
    hypergeometric_pmf,
    joint_lower,
    labels_for_metric,
    one_class_metric,
    split_bounds,
)
from surefoot.bounds.size import least_planned

SCORES: dict[str, Any] = {"precision": precision_score, "recall": recall_score, "f1": f1_score}

MEANS = [("precision", None), ("recall", None), ("f1", None), ("cost", [[0, 1, 2], [4, 0, 1], [1, 1, 0.5]])]


class TestBruteForce:
    """Every truth and every outcome of pools of at most 12 rows."""

    @pytest.mark.parametrize("level", [0.63, 0.9])
    @pytest.mark.parametrize(
        ("inside", "outside"), [((5, 2), (6, 3)), ((4, 4), (7, 2)), ((6, 3), (0, 0)), ((0, 0), (5, 2))]
    )
    @pytest.mark.parametrize("name", ["recall", "f1"])
    def test_the_joint_bound(self, name: str, inside: tuple[int, int], outside: tuple[int, int], level: float) -> None:
        (NP, nP), (NR, nR) = inside, outside
        value = one_class_metric(name, NP)
        split = split_bounds(value, Stratum(NP, nP), Stratum(NR, nR), level)
        bounds = np.empty_like(split)
        outcomes = list(product(range(nP + 1), range(nR + 1)))
        truths = list(product(range(NP + 1), range(NR + 1)))

        def chance(x: int, y: int, a: int, b: int) -> float:
            first = hypergeom.pmf(x, NP, a, nP) if nP else float(x == 0)
            return float(first * (hypergeom.pmf(y, NR, b, nR) if nR else float(y == 0)))

        for x, y in outcomes:
            bounds[x, y] = joint_lower(value, Stratum(NP, nP), Stratum(NR, nR), x, y, level)
            # Buehler's bound, by definition, over the truths that can give this outcome
            kept = [
                float(value(a, b))
                for a, b in truths
                if x <= a <= NP - nP + x and y <= b <= NR - nR + y
                and sum(chance(i, j, a, b) for i, j in outcomes if split[i, j] >= split[x, y] - 1e-12) > 1 - level
            ]  # fmt: skip
            assert bounds[x, y] == pytest.approx(min(kept), abs=1e-12)
            assert bounds[x, y] >= split[x, y] - 1e-12
        for a, b in truths:
            missed = sum(chance(x, y, a, b) for x, y in outcomes if bounds[x, y] > float(value(a, b)) + 1e-12)
            assert missed <= 1 - level + 1e-9

    @pytest.mark.parametrize(
        ("metric", "cost"), [*[(m, None) for m in SCORES], ("cost", [[0, 1, 2], [4, 0, 1], [1, 1, 0.5]])]
    )
    @pytest.mark.parametrize("predicted", [[*"aaaabbbcc"], [*"aaaabb", "", "", ""]])
    def test_means_over_the_classes_and_costs(self, predicted: list[str], metric: str, cost: Any) -> None:
        """All samples of a pool of nine rows in three strata, for several truths; rows may have no prediction."""
        classes, level = ["a", "b", "c"], 0.6
        goal = MetricGoal.from_arguments({metric: None}, None, cost, classes, predicted)
        engine = MetricEngine(predicted, {}, goal, level=level, seed=0, plan=6)
        strata = [[row for row in range(9) if predicted[row] == name] for name in (*classes, "")][: len(engine.strata)]
        sizes = [part.sampled for part in engine.strata]
        samples = list(product(*(combinations(s, n) for s, n in zip(strata, sizes, strict=True))))
        for truth in ("aaaabbbcc", "aabbbbcca", "ccccccccc", "abcabcabc", "bbbbccccc"):
            true = score(metric, truth, predicted, classes, cost)
            missed = 0
            for sample in samples:
                engine.draws = [Draw(row, 1.0) for part in sample for row in part]
                engine._settled = {draw.row: truth[draw.row] for draw in engine.draws}
                engine._bound = None
                bound = engine.metric_bound()
                missed += bound < true - 1e-12 if metric == "cost" else bound > true + 1e-12
            assert missed <= (1 - level) * len(samples)

    def test_probabilities(self) -> None:
        for N, n in ((7, 3), (40, 11), (5, 5), (4, 0)):
            found = hypergeometric_pmf(np.arange(n + 1), N, np.arange(N + 1), n)
            expected = hypergeom.pmf(np.arange(n + 1)[None, :], N, np.arange(N + 1)[:, None], n)
            assert found == pytest.approx(np.nan_to_num(expected, nan=1.0), abs=1e-12)


def score(metric: str, truth: Any, predicted: Any, classes: list[Any], cost: Any, positive: Any = None) -> float:
    """The metric by scikit-learn; 1 for a class that there is nothing of, as the bound has it."""
    truth, predicted = list(truth), list(predicted)
    if metric == "cost":
        counts = confusion_matrix(truth, predicted, labels=[*classes, ""])[:-1]
        return float((counts * np.column_stack([cost, np.max(cost, axis=1)])).sum() / len(truth))
    names = classes if positive is None else [positive]
    values = []
    for name in names:
        found = SCORES[metric]([t == name for t in truth], [p == name for p in predicted], zero_division=1.0)
        values.append(found)
    return float(np.mean(values))


def pools() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Truth and predictions: usual, without an error, all positives missed, a class that is never predicted, a class
    that no row has, and rows without a prediction."""
    rng = np.random.default_rng(0)
    truth = np.where(rng.random(300) < 0.2, "a", np.where(rng.random(300) < 0.5, "b", "c"))
    usual = np.where(rng.random(300) < 0.15, rng.permutation(truth), truth)
    return {
        "usual": (truth, usual),
        "right": (truth, truth.copy()),
        "missed": (truth, np.where((truth == "a") & (np.arange(300) % 10 > 0), "b", truth)),
        "empty": (truth, np.where(usual == "c", "b", usual)),
        "absent": (np.where(truth == "a", "b", truth), usual),
        "none": (truth, np.where(usual == "c", "", usual)),
    }


def misses(metric: str, pool: str, positive: str | None, runs: int, level: float = 0.8) -> int:
    """Runs in which the bound is on the wrong side of the truth."""
    truth, predicted = pools()[pool]
    cost = np.array([[0, 1, 1], [5, 0, 1], [5, 2, 0]]) if metric == "cost" else None
    true = score(metric, truth, predicted, ["a", "b", "c"], cost, positive)
    missed = 0
    for seed in range(runs):
        audit = sf.Audit(
            predictions=predicted, classes=["a", "b", "c"], target={metric: None}, positive=positive, cost_matrix=cost,
            n_labels=60, level=level, random_state=seed,
        )  # fmt: skip
        bound = audit.run(lambda row: str(truth[row])).bound().value
        missed += bound < true - 1e-9 if metric == "cost" else bound > true + 1e-9
    return missed


CASES = [
    *product(["precision", "recall", "f1"], ["usual", "missed"], ["a"]), ("recall", "right", "a"),
    ("f1", "usual", None), ("recall", "empty", None), ("cost", "usual", None),
    ("precision", "absent", "a"), ("recall", "absent", "a"), ("f1", "absent", "a"), ("recall", "none", None),
    ("f1", "none", None), ("cost", "none", None),
]  # fmt: skip


@pytest.mark.parametrize(("metric", "pool", "positive"), CASES)
def test_the_bound_holds(metric: str, pool: str, positive: str | None) -> None:
    assert misses(metric, pool, positive, 25) <= binom.isf(1e-6, 25, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "pool", "positive"), CASES)
def test_the_bound_holds_in_many_runs(metric: str, pool: str, positive: str | None) -> None:
    assert misses(metric, pool, positive, 1000) <= binom.isf(1e-6, 1000, 0.2)


class TestAudit:
    def audit(self, **options: Any) -> sf.Audit:
        predicted = pools()["usual"][1]
        chosen = {"target": {"recall": 0.5}, "positive": "a", "n_labels": 80, "random_state": 0, **options}
        return sf.Audit(predictions=predicted, **chosen)

    def test_labels_come_in_any_order_and_a_journal_is_resumed(self, tmp_path: Path) -> None:
        truth = pools()["usual"][0]
        first = self.audit(journal=tmp_path / "a.jsonl")
        for row in reversed(first.next_rows(30)):
            first.record(row, str(truth[row]))
        first.close()
        again = self.audit(journal=tmp_path / "a.jsonl", random_state=None)
        assert again.n_labels == 30
        again.run(lambda row: str(truth[row]))
        whole = self.audit().run(lambda row: str(truth[row]))
        assert again.labels == whole.labels
        assert again.bound().value == whole.bound().value
        assert whole.proved == (whole.bound().value >= 0.5)
        assert whole.done
        again.close()
        with pytest.raises(ValueError, match="goal"):
            self.audit(journal=tmp_path / "a.jsonl", target={"f1": 0.5})

    def test_missing_and_skipped_labels_only_lower_the_bound(self) -> None:
        truth = pools()["usual"][0]
        whole = self.audit().run(lambda row: str(truth[row])).bound().value
        skipped = self.audit().run(lambda row: None if row % 7 == 0 else str(truth[row])).bound().value
        part = self.audit().run(lambda row: str(truth[row]), max_labels=50)
        assert skipped < whole
        assert part.bound().value < whole
        assert not part.proved

    def test_known_labels_count_as_they_are(self) -> None:
        truth, predicted = pools()["usual"]
        known = np.where(np.arange(300) < 290, truth, None)
        audit = self.audit(y=known, n_labels=10).run(lambda row: str(truth[row]))
        assert audit.bound().value == pytest.approx(score("recall", truth, predicted, [], None, "a"))
        estimates = audit.bound().estimates
        assert estimates["f1"] == pytest.approx(score("f1", truth, predicted, [], None, "a"))

    def test_the_other_metrics_are_estimates(self) -> None:
        truth, predicted = pools()["usual"]
        found = [self.audit(random_state=seed).run(lambda row: str(truth[row])).bound().estimates for seed in range(40)]
        for name in SCORES:
            values = np.array([one[name] for one in found])
            true = score(name, truth, predicted, [], None, "a")
            assert abs(values.mean() - true) < 4 * values.std() / np.sqrt(40) + 0.02

    def test_statement_and_title(self) -> None:
        bound = self.audit().run(lambda row: str(pools()["usual"][0][row])).bound()
        assert "the recall of 'a' is at least" in bound.statement
        assert "estimates" in repr(bound)
        assert repr(self.audit()) == "Audit(recall, 0 labels of 80)"

    @pytest.mark.parametrize(
        ("options", "parameter"),
        [
            ({"target": {"accuracy": 0.5}}, "target"),
            ({"target": {"recall": 0.5, "f1": 0.5}}, "target"),
            ({"target": 0.9}, "target"),
            ({"target": {"recall": 1.5}}, "target"),
            ({"target": {"recall": float("nan")}}, "target"),
            ({"positive": "z"}, "positive"),
            ({"n_labels": None}, "n_labels"),
            ({"n_labels": 0}, "n_labels"),
            ({"scores": np.r_[np.nan, np.ones(299)]}, "scores"),
            ({"classes": ["a", "b"]}, "predictions"),
            ({"rule": "anytime"}, "rule"),
            ({"target_error": 0.1}, "target_error"),
            ({"cost_matrix": np.eye(3)}, "cost_matrix"),
            ({"target": {"cost": 1.0}, "positive": None}, "cost_matrix"),
            ({"target": {"cost": 1.0}, "positive": None, "cost_matrix": np.eye(2)}, "cost_matrix"),
            ({"target": {"cost": 1.0}, "positive": None, "cost_matrix": -np.eye(3)}, "cost_matrix"),
            ({"target": None}, "target"),
        ],
    )
    def test_bad_input(self, options: dict[str, Any], parameter: str) -> None:
        with pytest.raises(ParameterError) as error:
            self.audit(**options)
        assert error.value.parameter == parameter

    def test_what_needs_a_uniform_sample_is_refused(self, tmp_path: Path) -> None:
        audit = self.audit().run(lambda row: "a")
        for call in (
            audit.anytime_bound,
            audit.finish,
            lambda: audit.compare({"b": ["a"] * 300}),
            lambda: audit.save(tmp_path / "a.json"),
        ):
            with pytest.raises(ParameterError) as error:
                call()
            assert error.value.parameter == "target"


class TestSize:
    def test_the_price_of_missing_at_most_five(self) -> None:
        """At most 5 missed among 9,000: without a hit in 2,868 labels, six would be seen with probability 0.9."""
        assert least_planned(0, 6, 9000, 0.9) == 2868
        assert pytest.approx(0.1, abs=1e-3) == (1 - 2868 / 9000) ** 6

    @pytest.mark.parametrize("metric", ["precision", "recall", "f1"])
    def test_the_least_number_of_labels(self, metric: str) -> None:
        """Without an error the bound is at the target with n labels and below it with n − 1."""
        n = sf.audit_size(0.8, 0.0, 400, metric=metric, n_positive=60).n_labels
        assert n is not None
        value = one_class_metric(metric, 60)

        def proves(labels: int) -> bool:
            k, m = (labels, 0) if metric == "precision" else allocate(value, labels, 60, 340, 0.9)
            if metric == "precision":
                return float(value(60 - sf_upper(0, k, 60, 0.9), 0)) >= 0.8
            return bool(split_bounds(value, Stratum(60, k), Stratum(340, m), 0.9)[k, 0] >= 0.8)

        assert proves(n)
        assert not proves(n - 1)

    def test_errors_that_are_expected_cost_labels(self) -> None:
        sizes = [labels_for_metric("recall", 0.7, e, 400, 60, 0.9, 0.8) for e in (0.0, 0.05, 0.1)]
        assert sizes == sorted(sizes)
        assert labels_for_metric("recall", 0.95, 0.2, 400, 60, 0.9, 0.8) is None
        assert "not enough" in repr(sf.audit_size(0.95, 0.2, 400, metric="recall", n_positive=60))

    @pytest.mark.parametrize(
        ("options", "parameter"),
        [
            ({"metric": "auc"}, "metric"),
            ({"metric": "recall"}, "n_positive"),
            ({"metric": "f1", "n_positive": 6000}, "n_positive"),
        ],
    )
    def test_bad_input(self, options: dict[str, Any], parameter: str) -> None:
        with pytest.raises(ParameterError) as error:
            sf.audit_size(**options)
        assert error.value.parameter == parameter


def sf_upper(errors: int, n: int, N: int, level: float) -> int:
    """The largest number of errors that gives so few with probability above 1 − level, by trying all."""
    return max(M for M in range(N + 1) if hypergeom.cdf(errors, N, M, n) > 1 - level)


class TestComparison:
    @pytest.mark.parametrize("n_labels", [None, 80])
    def test_all_bounds_hold_together(self, n_labels: int | None) -> None:
        rng = np.random.default_rng(0)
        truth = rng.integers(0, 2, 300)
        predictions = {
            name: np.where(rng.random(300) < e, 1 - truth, truth) for name, e in (("x", 0.1), ("y", 0.3), ("z", 0.12))
        }
        errors = {name: float(np.mean(values != truth)) for name, values in predictions.items()}
        missed = decided = 0
        for seed in range(60):
            audit = sf.Audit(predictions=predictions["x"], n_labels=n_labels, level=0.8, random_state=seed)
            audit.run(lambda row: int(truth[row]), max_labels=80)
            found = audit.compare({name: predictions[name] for name in "yz"}, name="x")
            held = all(errors[name] <= value + 1e-12 for name, value in found.errors.items())
            for (a, b), (low, high) in found.differences.items():
                held &= low - 1e-12 <= errors[a] - errors[b] <= high + 1e-12
            missed += not held
            decided += found.differences["x", "y"][1] < 0
        assert missed <= binom.isf(1e-6, 60, 0.2)
        assert decided > (30 if n_labels else 5)

    def test_all_labels_leave_no_doubt(self) -> None:
        truth = np.arange(40) % 2
        first, second = np.where(np.arange(40) < 4, 1 - truth, truth), np.where(np.arange(40) < 10, 1 - truth, truth)
        audit = sf.Audit(predictions=first, n_labels=40, random_state=0).run(lambda row: int(truth[row]))
        found = audit.compare({"second": second}, name="first")
        assert dict(found.errors) == {"first": 0.1, "second": 0.25}
        assert found.differences["first", "second"] == pytest.approx((-0.15, -0.15))
        assert found.best == "first"
        assert "lowest" in repr(found)

    def test_skipped_rows_count_against_both(self) -> None:
        truth = np.arange(40) % 2
        audit = sf.Audit(predictions=truth, n_labels=40, random_state=0)
        audit.run(lambda row: None if row < 10 else int(truth[row]))
        found = audit.compare({"other": 1 - truth})
        assert found.errors["audited"] == 0.25
        assert found.differences["audited", "other"] == pytest.approx((-1.0, -0.5))

    def test_bad_input(self) -> None:
        audit = sf.Audit(predictions=[0, 1] * 10, random_state=0)
        for others in ({}, {"audited": [0, 1] * 10}, {"b": [0, 1]}):
            with pytest.raises(ParameterError) as error:
                audit.compare(others)
            assert error.value.parameter == "others"


def test_every_metric_is_tested() -> None:
    assert {case[0] for case in CASES} == set(METRICS)
