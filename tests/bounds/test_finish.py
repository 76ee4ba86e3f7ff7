"""Finishing a table: the guarantee by enumeration and by simulation, ties, what is missing, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations, product
from math import comb

import numpy as np
import pytest
from scipy.stats import binom

import surefoot as sf
from refusals import Refused, refuses
from surefoot.bounds.betting import PoolErrors
from surefoot.bounds.finish import RankedSample

LEVEL, MAX_ERROR = 0.8, 0.05


def largest_set(scores: np.ndarray, drawn: tuple[int, ...], wrong: np.ndarray, c: int) -> set[int]:
    """The definition: all thresholds one by one, and the bound by counting samples."""
    N, m = len(scores), len(drawn)
    found: set[int] = set()
    for u in [*sorted(set(scores)), np.inf]:
        x = sum(bool(wrong[row]) for row in drawn if scores[row] >= u)
        possible = [
            W
            for W in range(x, N - (m - x) + 1)
            if sum(comb(W, k) * comb(N - W, m - k) for k in range(x + 1)) / comb(N, m) > 1 - LEVEL
        ]
        if max(possible) - x <= c:
            return {row for row in range(N) if scores[row] >= u} - set(drawn)
    return found


class TestEnumeration:
    """Every sample of every small pool with every pattern of errors."""

    @pytest.mark.parametrize("scores", [[6, 5, 4, 3, 2, 1], [3, 3, 2, 2, 2, 1], [1] * 6], ids=str)
    def test_planned(self, scores: list[int]) -> None:
        given, rows, worst = np.array(scores, dtype=float), np.arange(6), 0.0
        for m, c in product((2, 4), (0, 1, 2)):
            samples = list(combinations(range(6), m))
            for pattern in product([False, True], repeat=6):
                wrong, missed = np.array(pattern), 0
                for drawn in samples:
                    chosen = np.array(drawn)
                    found = RankedSample(given, rows, chosen, wrong[chosen], LEVEL, anytime=False).model_rows(c)
                    missed += wrong[found].sum() > c
                    if sum(pattern) in (2, 5):  # some of them
                        assert set(found.tolist()) == largest_set(given, drawn, wrong, c)
                worst = max(worst, missed / len(samples))
        assert 0.05 < worst <= 1 - LEVEL + 1e-12

    @pytest.mark.parametrize("n_wrong", range(13))
    def test_twelve_rows_with_the_errors_anywhere(self, n_wrong: int) -> None:
        rng = np.random.default_rng(n_wrong)
        scores = rng.integers(0, 6, 12).astype(float)
        wrong = np.zeros(12, dtype=bool)
        wrong[np.argsort(-scores)[:n_wrong] if n_wrong % 2 else rng.permutation(12)[:n_wrong]] = True
        samples = list(combinations(range(12), 5))
        missed = 0
        for drawn in samples:
            chosen = np.array(drawn)
            found = RankedSample(scores, np.arange(12), chosen, wrong[chosen], LEVEL, anytime=False).model_rows(2)
            missed += wrong[found].sum() > 2
        assert missed / len(samples) <= 1 - LEVEL + 1e-12

    @pytest.mark.parametrize("scores", [[5, 4, 3, 2, 1], [2, 2, 2, 1, 1]], ids=str)
    def test_at_any_time(self, scores: list[int]) -> None:
        """One who stops at the worst moment of every order of the draws misses no more often."""
        given, rows = np.array(scores, dtype=float), np.arange(5)
        for pattern, c in product(product([False, True], repeat=5), (1, 2)):
            wrong, missed = np.array(pattern), 0
            orders = list(permutations(range(5)))
            for order in orders:
                drawn = np.array(order)
                plans = (
                    RankedSample(given, rows, drawn[:m], wrong[drawn[:m]], LEVEL, anytime=True).model_rows(c)
                    for m in range(1, 6)
                )
                missed += any(wrong[found].sum() > c for found in plans)
            assert missed / len(orders) <= 1 - LEVEL + 1e-12


def test_the_anytime_threshold_is_that_of_the_anytime_bound() -> None:
    """Against the bound of an audit of each set of rows, one by one."""
    rng = np.random.default_rng(0)
    N, m, c = 80, 30, 8
    for _ in range(20):
        scores = rng.integers(0, 9, N).astype(float)
        drawn, wrong = rng.permutation(N)[:m], rng.random(m) < 0.12
        found = RankedSample(scores, np.arange(N), drawn, wrong, LEVEL, anytime=True)
        passed = []
        for u in sorted(set(scores)):
            pool = PoolErrors(N, LEVEL)
            for row, bad in zip(drawn, wrong, strict=True):
                pool.add(bool(bad) and scores[row] >= u)
            if pool.upper <= c:
                passed.append(u)
        expected = np.flatnonzero(scores >= min(passed)) if passed else np.empty(0, dtype=int)
        assert set(found.model_rows(c)) == set(expected) - set(drawn)


def uncertain(rng: np.random.Generator, N: int) -> tuple[np.ndarray, np.ndarray]:
    """As of an ordinary classifier: errors where it is unsure."""
    scores = rng.beta(2, 1, N)
    return scores, rng.random(N) > 0.5 + scores / 2


def surest_wrong(rng: np.random.Generator, N: int) -> tuple[np.ndarray, np.ndarray]:
    """All errors among the surest rows, a few more than allowed."""
    scores = rng.random(N)
    wrong = np.zeros(N, dtype=bool)
    wrong[np.argsort(-scores)[: int(0.07 * N)]] = True
    return scores, wrong


def no_errors(rng: np.random.Generator, N: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.random(N), np.zeros(N, dtype=bool)


def ties(rng: np.random.Generator, N: int) -> tuple[np.ndarray, np.ndarray]:
    """Three scores, errors in each."""
    scores = rng.integers(0, 3, N).astype(float)
    return scores, rng.random(N) < np.array([0.3, 0.06, 0.04])[scores.astype(int)]


def one_score(rng: np.random.Generator, N: int) -> tuple[np.ndarray, np.ndarray]:
    """A score that says nothing, and just more errors than allowed."""
    wrong = np.zeros(N, dtype=bool)
    wrong[rng.permutation(N)[: int(MAX_ERROR * N) + 8]] = True
    return np.ones(N), wrong


POOLS = [uncertain, surest_wrong, no_errors, ties, one_score]
Pool = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def miss_rate(make: Pool, runs: int, N: int, n: int, *, planned: bool) -> float:
    """How often the finished table has more wrong labels than any of the plans says.

    The predictions are all of one class, so that the other one is never predicted. One who peeks makes a plan after
    every fifth label and keeps the worst one.
    """
    scores, wrong = make(np.random.default_rng(5), N)
    missed = 0
    for seed in range(runs):
        audit = sf.Audit(
            predictions=np.zeros(N, dtype=int),
            scores=scores,
            classes=[0, 1],
            level=LEVEL,
            n_labels=n if planned else None,
            random_state=seed,
        )
        looks = [n] if planned else range(5, n + 1, 5)
        plans = [audit.run(lambda row: int(wrong[row]), max_labels=k).finish(MAX_ERROR) for k in looks]
        assert all(plan.n_model + len(plan.rows) + k == N for plan, k in zip(plans, looks, strict=True))
        missed += any(wrong[plan.model_rows].sum() > plan.n_wrong for plan in plans)
    return missed / runs


def most_misses(runs: int) -> float:
    """The share of misses that a guarantee that holds exceeds with a probability of one in a million."""
    return float(binom.isf(1e-6, runs, 1 - LEVEL)) / runs


@pytest.mark.parametrize("make", POOLS)
def test_the_guarantee_holds(make: Pool) -> None:
    assert miss_rate(make, 150, 200, 40, planned=True) <= most_misses(150)
    assert miss_rate(make, 40, 200, 40, planned=False) <= most_misses(40)


@pytest.mark.slow
@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("make", POOLS)
def test_the_guarantee_holds_in_a_thousand_runs(make: Pool, planned: bool) -> None:
    assert miss_rate(make, 1000, 150, 40, planned=planned) <= most_misses(1000)


def test_the_simulation_can_tell() -> None:
    """A bound of half the level misses more often than allowed."""
    scores, wrong = surest_wrong(np.random.default_rng(5), 200)
    rows, missed = np.arange(200), 0
    for seed in range(300):
        drawn = np.random.default_rng(seed).permutation(200)[:40]
        found = RankedSample(scores, rows, drawn, wrong[drawn], 0.4, anytime=False).model_rows(10)
        missed += wrong[found].sum() > 10
    assert missed / 300 > most_misses(300)


class TestPlan:
    N = 400
    scores, wrong = uncertain(np.random.default_rng(1), N)

    def audit(self, **options: object) -> sf.Audit:
        given = {"predictions": np.zeros(self.N, dtype=int), "scores": self.scores, "random_state": 0, **options}
        return sf.Audit(**given)  # type: ignore[arg-type]

    def answer(self, row: int) -> int:
        return int(self.wrong[row])

    def test_it_says_who_labels_what(self) -> None:
        audit = self.audit(n_labels=80).run(self.answer)
        plan = audit.finish(0.05)
        everyone = [*plan.rows, *plan.model_rows, *audit.labels]
        assert sorted(everyone) == list(range(self.N))
        sampled = list(audit.labels)
        assert self.scores[plan.model_rows].min() > self.scores[plan.rows].max()
        assert np.all(np.diff(self.scores[plan.rows]) >= 0)  # the least sure one first
        assert not set(plan.rows) & set(sampled)
        assert plan.n_wrong <= 20
        assert plan.bound == plan.n_wrong / self.N
        assert f"{plan.n_model} rows" in plan.statement
        assert f"{len(plan.rows)} more rows" in plan.statement
        assert str(len(plan.rows)) in repr(plan)

    def test_the_curve_falls_and_goes_through_the_plan(self) -> None:
        plan = self.audit(n_labels=80).run(self.answer).finish(0.05)
        curve = plan.curve([0.001, 0.02, 0.05, 0.1, 0.3, 1.0])
        rows = list(curve.values())
        assert rows == sorted(rows, reverse=True)
        assert curve[0.05] == len(plan.rows)
        assert rows[0] == self.N - 80
        assert rows[-1] == 0
        for share in (0.02, 0.1):
            assert curve[share] == len(self.audit(n_labels=80).run(self.answer).finish(share).rows)

    def test_no_error_seen_says_more_than_was_asked_for(self) -> None:
        audit = self.audit(n_labels=100).run(lambda _: 0)
        plan = audit.finish(0.2)
        assert len(plan.rows) == 0
        assert plan.n_model == 300
        assert plan.bound == audit.bound().value < 0.2

    def test_labels_still_to_come_count_as_errors_and_are_to_be_made(self) -> None:
        audit = self.audit(n_labels=80).run(self.answer, max_labels=60)
        before, missing = audit.finish(0.05), audit.next_rows(100)
        assert len(missing) == 20
        assert set(missing) <= set(before.rows)
        assert len(audit.run(self.answer).finish(0.05).rows) <= len(before.rows)

    def test_known_labels_are_right_and_not_the_models(self) -> None:
        known = np.where(np.arange(self.N) < 100, self.wrong.astype(float), np.nan)
        audit = self.audit(y=known, n_labels=80).run(self.answer)
        plan = audit.finish(0.05)
        assert min([*plan.rows, *plan.model_rows]) >= 100
        assert len(plan.rows) + plan.n_model == self.N - 180
        assert plan.n_wrong <= 20  # of all 400 labels

    def test_a_skipped_row_stays_without_a_label(self) -> None:
        audit = self.audit(n_labels=80)
        row = audit.next()
        assert row is not None
        audit.skip(row)
        plan = audit.run(self.answer).finish(0.05)
        assert row not in [*plan.rows, *plan.model_rows]

    def test_scores_of_a_classifier_are_its_largest_probabilities(self) -> None:
        class Judged:
            classes_ = np.array([0, 1])

            def predict(self, X: np.ndarray) -> np.ndarray:
                return np.zeros(len(X), dtype=int)

            def predict_proba(self, X: np.ndarray) -> np.ndarray:
                return np.column_stack([X[:, 0], 1 - X[:, 0]])

        X = (0.5 + self.scores / 2)[:, None]
        found = sf.Audit(Judged(), X, n_labels=80, random_state=0).run(self.answer)
        plan = found.finish(0.05)
        same = self.audit(scores=X[:, 0], n_labels=80).run(self.answer).finish(0.05)
        assert plan.rows.tolist() == same.rows.tolist()
        assert plan.bound == same.bound

    @pytest.mark.parametrize(
        ("options", "labels", "max_error", "match"),
        [
            ({}, 20, 0, ("max_error", 0)),
            ({}, 20, 1.5, ("max_error", 1.5)),
            ({}, 20, float("nan"), "max_error"),
            ({}, 0, 0.05, ("n_labels", 0)),
            ({"scores": None}, 20, 0.05, "scores"),
            ({"sampling": "weighted"}, 20, 0.05, "sampling"),
        ],
    )
    def test_refusals(self, options: dict[str, object], labels: int, max_error: float, match: Refused) -> None:
        audit = self.audit(**options).run(self.answer, max_labels=labels)
        with refuses(match):
            audit.finish(max_error)
        assert audit.n_labels == labels  # nothing is lost
