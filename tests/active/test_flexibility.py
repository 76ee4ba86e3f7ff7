"""Label flexibility and robust scores: equal to the linear program, and obeying the laws they must."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot as sf
import surefoot.active as al
from generators import FlexibilityProblem, draw_flexibility
from refusals import Refused, refuses
from surefoot.active import flexibility
from surefoot.active.flexibility import DEFAULT_MARGIN, LabelFlexibility

MARGINS = [0.0, 0.1, 0.4, 1.0, 1.6, 2.0]


def assert_equals_program(problem: FlexibilityProblem, excess: float, *, rows: int = 3, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    impact = rng.uniform(0.0, 3.0, size=(len(problem.U), problem.K))
    scores = problem.flexibility(excess).least_expectation(impact)
    for row in rng.choice(len(problem.U), size=min(rows, len(problem.U)), replace=False):
        assert scores[row] == pytest.approx(problem.reference(row, impact[row], excess), abs=1e-6)


@pytest.mark.parametrize("seed", range(50))
def test_scores_equal_the_linear_program(seed: int) -> None:
    # 2 and 3 classes, strong and weak prior, N from 20 to 100, margins from 0 to 2κ/N
    rng = np.random.default_rng(seed)
    problem = draw_flexibility(seed, 2 + seed % 2, ("strong", "weak")[seed // 2 % 2], N=int(rng.integers(20, 101)))
    assert_equals_program(problem, MARGINS[seed % 6] * problem.kappa * problem.unit)


@pytest.mark.parametrize("grid", [False, True], ids=["", "ties"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("prior", ["strong", "frequencies", "clopper-pearson", "none", "zero"])
@pytest.mark.parametrize("K", [2, 3, 5])
def test_so_do_those_of_other_label_costs_and_priors(K: int, prior: str, weighted: bool, grid: bool) -> None:
    problem = draw_flexibility(100 + K, K, prior, N=30, cost="matrix", weighted=weighted, grid=grid, missing=K == 3)
    for margin in (0.0, 0.2, 0.9):
        assert_equals_program(problem, margin * problem.kappa * problem.unit, rows=1)


@pytest.mark.parametrize(("K", "prior"), [(2, "strong"), (3, "weak"), (4, "none")])
def test_bounds_and_programs_agree(K: int, prior: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw_flexibility(7, K, prior, N=80)
    impact = np.random.default_rng(1).random((len(problem.U), K))
    for margin in (0.0, 0.05, 0.3):
        excess = margin * problem.kappa * problem.unit
        quick = problem.flexibility(excess).least_expectation(impact)
        with monkeypatch.context() as patch:
            patch.setattr(flexibility, "_AGREE", -1.0)  # no pair of bounds is close enough
            programs = problem.flexibility(excess).least_expectation(impact)
        np.testing.assert_allclose(quick, programs, atol=1e-8)


@given(seed=st.integers(0, 10_000), K=st.integers(2, 4), prior=st.sampled_from(["strong", "weak", "none"]))
@settings(max_examples=25, deadline=None)
def test_a_margin_of_two_label_costs_frees_every_row(seed: int, K: int, prior: str) -> None:
    problem = draw_flexibility(seed, K, prior, N=40)
    ds = problem.decision_set
    if (np.minimum(ds.label_frequencies, ds.intervals[:, 1]) < 2 * problem.unit).any():
        return  # a class too small to give up a row's mass, or to hold it
    # flipping the row costs at most κ/N, and flipping another one back at most κ/N
    found = problem.flexibility(2 * problem.kappa * problem.unit)
    impact = np.random.default_rng(seed).random((len(problem.U), K))
    np.testing.assert_array_equal(found.least_expectation(impact), impact.min(axis=1))
    np.testing.assert_array_equal(found.intervals[..., 0], 0.0)
    np.testing.assert_array_equal(found.intervals[..., 1], 1.0)


def test_two_label_costs_are_needed() -> None:
    # Two far clusters, one label each, frequencies as the prior: no mass changes cluster, so a flip is paid twice.
    X, y = np.array([[0.0], [1000.0]]), np.array([0, 1])
    U = np.repeat(X, 5, axis=0)
    for margin in (0.0, 0.25, 1.0, 1.9):
        found = al.label_flexibility(X, y, X_unlabeled=U, margin=margin / 12, label_prior=[0.5, 0.5])
        np.testing.assert_allclose(found.intervals[:5, 1], np.tile([0.0, margin / 2], (5, 1)), atol=1e-12)
        np.testing.assert_allclose(found.intervals[5:, 1], np.tile([1 - margin / 2, 1.0], (5, 1)), atol=1e-12)
        np.testing.assert_allclose(found.width, margin / 2, atol=1e-12)


def test_a_row_halfway_costs_nothing_to_move() -> None:
    X, y = np.array([[0.0], [2.0]]), np.array([0, 1])
    found = al.label_flexibility(X, y, X_unlabeled=[[1.0]], margin=0.0, label_prior=[0.5, 0.5])
    # it is split in halves, and no row can take its place for free
    np.testing.assert_allclose(found.intervals[0], [[0.5, 0.5], [0.5, 0.5]], atol=1e-12)
    free = al.label_flexibility(X, y, X_unlabeled=[[1.0], [1.0]], margin=0.0, label_prior=[0.5, 0.5])
    np.testing.assert_allclose(free.intervals[:, 0], [[0.0, 1.0], [0.0, 1.0]], atol=1e-12)


@given(seed=st.integers(0, 10_000), K=st.integers(2, 3), prior=st.sampled_from(["strong", "weak", "clopper-pearson"]))
@settings(max_examples=15, deadline=None)
def test_laws(seed: int, K: int, prior: str) -> None:
    problem = draw_flexibility(seed, K, prior, N=40)
    ends = problem.kappa * problem.unit * np.array([0.0, 0.1, 0.5, 1.2])
    found = [problem.flexibility(excess).intervals for excess in ends]
    for tight, loose in pairwise(found):  # a larger margin only widens the intervals
        assert np.all(loose[..., 0] <= tight[..., 0] + 1e-9)
        assert np.all(loose[..., 1] >= tight[..., 1] - 1e-9)
    assert np.all(found[0].sum(axis=1)[:, 0] <= 1 + 1e-9)
    assert np.all(found[0].sum(axis=1)[:, 1] >= 1 - 1e-9)
    order = np.random.default_rng(seed).permutation(len(problem.U))
    shuffled = FlexibilityProblem(problem.X, problem.y, problem.U[order], K, problem.keywords).flexibility(ends[2])
    np.testing.assert_allclose(shuffled.intervals, found[2][order], atol=1e-7)
    for scale in (1e-4, 1e4):
        kappa = scale * float(problem.keywords["label_cost"])  # type: ignore[arg-type]
        moved = FlexibilityProblem(
            scale * problem.X, problem.y, scale * problem.U, K, problem.keywords | {"label_cost": kappa}
        )
        np.testing.assert_allclose(moved.flexibility(scale * ends[2]).intervals, found[2], atol=1e-7)


def test_intervals_are_the_scores_of_indicators() -> None:
    problem = draw_flexibility(3, 3, "weak", N=40)
    found = problem.flexibility(0.2 * problem.kappa * problem.unit)
    for row in (0, 5, 11):
        for k in range(3):
            e = np.eye(3)[k]
            low, high = problem.reference(row, e, found.excess), -problem.reference(row, -e, found.excess)
            np.testing.assert_allclose(found.intervals[row, k], [low, high], atol=1e-6)
    np.testing.assert_allclose(found.width, (found.intervals[..., 1] - found.intervals[..., 0]).max(axis=1))


class TestRadius:
    """The paper's rules."""

    problem = draw_flexibility(5, 2, "strong", N=50)

    def find(self, **keywords: object) -> LabelFlexibility:
        p = self.problem
        return al.label_flexibility(p.X, p.y, X_unlabeled=p.U, **keywords)  # type: ignore[arg-type]

    def minimal(self, prior: object) -> float:
        p = self.problem
        return sf.minimal_radius(p.X, p.y, X_unlabeled=p.U, label_prior=prior)  # type: ignore[arg-type]

    def test_strong_prior(self) -> None:
        found = self.find(label_prior=[0.3, 0.7], margin=al.PAPER_MARGIN)
        assert found.minimal_radius == pytest.approx(self.minimal([0.3, 0.7]), abs=1e-12)
        assert found.radius == pytest.approx(self.minimal([0.3, 0.7]) + 1e-3, abs=1e-12)

    def test_weak_prior_takes_the_dearer_end(self) -> None:
        found = self.find(label_prior=[[0.2, 0.6], [0.4, 0.8]], margin=0.01)
        ends = [self.minimal([0.2, 0.8]), self.minimal([0.6, 0.4])]
        assert found.radius == pytest.approx(max(ends) + 0.01, abs=1e-9)
        assert found.minimal_radius == pytest.approx(self.minimal([[0.2, 0.6], [0.4, 0.8]]), abs=1e-12)
        tight = self.find(label_prior=[[0.2, 0.6], [0.4, 0.8]], margin=0.01, radius="minimal")
        assert tight.radius == pytest.approx(found.minimal_radius + 0.01, abs=1e-12)

    def test_no_prior_has_no_ends(self) -> None:
        assert self.find(label_prior=None, margin=0.01).radius == pytest.approx(self.minimal(None) + 0.01, abs=1e-12)

    def test_default_margin_is_in_units_of_the_label_cost_over_the_rows(self) -> None:
        found = self.find(label_prior=[0.3, 0.7], label_cost=0.5)
        assert found.excess == pytest.approx(DEFAULT_MARGIN * 0.5 / 50, rel=1e-12)

    def test_a_number(self) -> None:
        least = self.minimal([0.3, 0.7])
        found = self.find(label_prior=[0.3, 0.7], radius=least + 0.003)
        same = self.find(label_prior=[0.3, 0.7], margin=0.003)
        np.testing.assert_allclose(found.intervals, same.intervals, atol=1e-9)
        with pytest.raises(sf.InfeasibleRadiusError) as error:
            self.find(label_prior=[0.3, 0.7], radius=0.5 * least)
        assert error.value.minimal_radius == pytest.approx(least, abs=1e-12)


def test_candidates_are_rows_of_the_whole() -> None:
    problem = draw_flexibility(11, 3, "strong", N=60)
    impact = np.random.default_rng(0).random((len(problem.U), 3))
    chosen = np.array([17, 3, 30])
    keywords = {"X_unlabeled": problem.U, "label_prior": problem.keywords["label_prior"], "margin": 0.002}
    every = al.robust_model_change(impact, problem.X, problem.y, **keywords)  # type: ignore[arg-type]
    some = al.robust_model_change(impact[chosen], problem.X, problem.y, candidates=chosen, **keywords)  # type: ignore[arg-type]
    np.testing.assert_array_equal(some, every[chosen])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"margin": -1.0}, ("margin", 0)),
        ({"radius": "auto"}, ("radius", '"ends"', '"minimal"', "'auto'")),
        ({"X_unlabeled": [[np.nan, 0.0]]}, re.compile("NaN")),
        ({"X_unlabeled": [[1.0]]}, ("X_unlabeled", 2, 1)),
        ({"candidates": [99]}, ("candidates", 0, 4, 99)),
        ({"candidates": [1, 1]}, "candidates"),
        ({"candidates": [0.5]}, "candidates"),
        ({"impact": [[1.0, 2.0]]}, ("impact", "(5, 2)", "(1, 2)")),
        ({"impact": np.full((5, 2), np.inf)}, ("impact", "inf at index (0, 0)")),
        ({"y": [0, 0, 0]}, ("y", 2)),
    ],
)
def test_bad_input_is_refused(change: dict[str, object], message: Refused) -> None:
    given: dict[str, object] = {
        "impact": np.ones((5, 2)),
        "X": np.eye(3)[:, :2],
        "y": [0, 1, 0],
        "X_unlabeled": np.ones((5, 2)),
    }
    with refuses(message):
        al.robust_model_change(**(given | change))  # type: ignore[arg-type]


def test_one_class_of_labels_is_enough_where_the_classes_are_named() -> None:
    found = al.label_flexibility([[0.0]], [1], X_unlabeled=[[1.0], [2.0]], classes=[0, 1], label_prior=None, margin=0.0)
    np.testing.assert_allclose(found.intervals[:, 0], 0.0)
    assert found.classes.tolist() == [0, 1]


def test_no_unlabeled_rows() -> None:
    found = al.label_flexibility([[0.0], [1.0]], [0, 1], X_unlabeled=np.empty((0, 1)), label_prior=[0.5, 0.5])
    assert found.intervals.shape == (0, 2, 2)
    assert found.least_expectation(np.empty((0, 2))).shape == (0,)


def test_on_real_data_a_small_margin_raises_scores_above_the_least_impact(
    dataset_path: Callable[[str], Path],
) -> None:
    table = np.loadtxt(dataset_path("winequality/winequality-white.csv"), delimiter=";", skiprows=1)
    table = table[table[:, -1] != 6]
    X, y = table[:, :-1], (table[:, -1] >= 7).astype(int)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X /= np.abs(X).max()
    order = np.random.default_rng(0).permutation(len(X))
    X, y, n, N = X[order], y[order], 50, len(X)
    impact = np.random.default_rng(1).uniform(1.0, 2.0, size=(N - n, 2))

    def scores(margin: float) -> np.ndarray:
        p = np.bincount(y) / N
        return al.robust_model_change(impact, X[:n], y[:n], X_unlabeled=X[n:], margin=margin / N, label_prior=p)

    least = impact.min(axis=1)
    np.testing.assert_array_equal(scores(2.0), least)
    last = 0.0
    for margin in (1.0, DEFAULT_MARGIN, 0.03, 0.01, 0.0):  # of 2κ/N and less: the smaller, the more rows stand out
        found = scores(margin)
        assert np.all(found >= least - 1e-12)
        above = float(np.mean(found > least + 1e-3))
        assert above >= last
        last = above
    assert last > 0.1
    assert np.mean(scores(0.03) > least + 1e-3) > 0.05
