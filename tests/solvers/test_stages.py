"""The ladder of a search says which of its stages ran, and each of them can be the one that answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

import surefoot as sf
from reference.inner import inner_reference
from surefoot.dual.models import FixedLosses, LinearModel, Model
from surefoot.dual.row_store import InMemoryRows
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.joint_objective import JointPoint
from surefoot.solvers.minimal_radius import MinimalRadius, solve_minimal_radius
from surefoot.solvers.newton import NewtonOptions
from surefoot.solvers.search import endings as interior_end
from surefoot.solvers.search import endings as polishing
from surefoot.solvers.search import search as search_module
from surefoot.solvers.search.best_bounds import JointState, SetAtRadius
from surefoot.solvers.search.search import AT_MINIMUM, COLD, INSIDE, PROGRAM, QUICK, VERTEX, WARM, Search
from surefoot.solvers.search.solution import Solution, quick_start_in_memory, solve, solve_certified, typical_distance

Array = NDArray[np.float64]


class Problem:
    """A small problem at a radius beyond the minimal one by `excess`."""

    def __init__(self, excess: float, *, N: int = 60, n: int = 8, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        y = np.concatenate([np.arange(n) % 2, rng.integers(2, size=N - n)])
        X = rng.normal(size=(N, 2)) + 1.5 * y[:, None]
        ds = build_decision_set(X[:n], y[:n], 2, X_unlabeled=X[n:], label_prior=[0.5, 0.5])
        self.minimal: MinimalRadius = solve_minimal_radius(ds)
        self.ds: DecisionSet = ds.with_radius(self.minimal.value + excess)
        self.linear = LinearModel(np.column_stack([X, np.ones(N)]), np.zeros(3), 2)
        self.fixed = FixedLosses(rng.random((N, 2)))

    def solve(self, model: Model, quick: Any = quick_start_in_memory, **keywords: Any) -> Solution:
        rows = InMemoryRows.from_decision_set(self.ds, model)
        keywords = {"tol": 1e-5, "typical": typical_distance(rows, self.ds), "quick": quick, **keywords}
        return solve(rows, model, [SetAtRadius(self.ds, self.minimal)], **keywords)


def names(solution: Solution) -> list[str]:
    return [stage.name for stage in solution.stages]


def test_ordinarily_there_is_one_path_that_ends_inside_or_at_a_vertex() -> None:
    problem = Problem(0.05)
    learned, judged = problem.solve(problem.linear), problem.solve(problem.fixed)
    assert names(learned) == [QUICK, INSIDE]
    assert learned.stages[-1].improved
    assert learned.gap <= 1e-8
    assert names(judged) == [QUICK, VERTEX]
    assert judged.stages[-1].improved
    assert judged.gap <= 1e-10


def test_a_warm_start_is_a_stage_of_its_own() -> None:
    problem = Problem(0.05)
    first = problem.solve(problem.linear)
    assert first.checkpoint is not None
    again = problem.solve(problem.linear, warm_start=first.checkpoint)
    assert names(again) == [WARM, INSIDE]
    assert again.risk == pytest.approx(first.risk, abs=1e-5)


def test_at_the_minimal_radius_alpha_is_fixed_first_and_leaves_no_checkpoint() -> None:
    problem = Problem(0.0)
    found = problem.solve(problem.linear, tol=1e-4)
    assert names(found)[0] == AT_MINIMUM
    assert found.gap <= 1e-4
    if names(found) == [AT_MINIMUM]:
        assert found.checkpoint is None  # at an α so high no other problem should start


def test_a_start_that_leads_nowhere_is_followed_by_one_from_zero() -> None:
    problem = Problem(0.05)

    def nowhere(search: Search) -> JointState:
        cold = search.cold()
        steep = replace(cold.point.parts[0], alpha=1e14, beta=1e14 * np.arange(8.0))
        return replace(cold, point=JointPoint((steep,)), tau=1e-11)

    found = problem.solve(problem.linear, nowhere)
    assert names(found)[:2] == [QUICK, COLD]
    assert found.status == "optimal"
    assert found.risk == pytest.approx(problem.solve(problem.linear).risk, abs=2e-5)


def test_without_a_quick_start_the_path_from_zero_is_the_ordinary_one() -> None:
    problem = Problem(0.05)
    assert names(problem.solve(problem.linear, lambda _search: None)) == [QUICK, INSIDE]


def test_where_no_step_leads_on_from_inside_the_path_goes_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(0.05)
    inside = problem.solve(problem.linear)
    monkeypatch.setattr(interior_end, "_MOST_INTERIOR_STEPS", 1)
    found = problem.solve(problem.linear)
    assert names(found) == [QUICK]
    assert found.gap <= 1e-5
    assert found.lower - 1e-12 <= inside.risk <= found.risk + 1e-12


def test_a_linear_program_ends_what_newton_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(0.05)
    short = NewtonOptions(max_steps=1, round_steps=1)
    monkeypatch.setattr(search_module, "try_vertex", lambda *_: None)  # as where the path stays too far from one
    found = problem.solve(problem.fixed, options=short)
    assert names(found)[-1] == PROGRAM
    assert found.stages[-1].improved
    assert found.gap <= 1e-9
    monkeypatch.undo()
    assert found.risk == pytest.approx(problem.solve(problem.fixed).risk, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_where_no_stage_ends_the_search_the_risk_is_at_most_the_mean_largest_loss(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    problem = Problem(1e-4, seed=seed)
    monkeypatch.setattr(search_module, "try_vertex", lambda *_: None)
    monkeypatch.setattr(Search, "_by_linear_program", lambda _: None)
    found = problem.solve(problem.fixed, quick=lambda _: None, options=NewtonOptions(max_steps=1, round_steps=1))
    losses = problem.fixed.matrix
    assert found.status == "stopped"
    assert losses.min() <= found.lower <= found.risk <= problem.ds.row_weights @ losses.max(axis=1) + 1e-12


def test_where_polishing_runs_out_of_steps_a_program_places_the_mass_that_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Problem(0.05, N=200, n=20)
    exact = problem.solve(problem.linear)
    monkeypatch.setattr(interior_end, "MOST_ENTRIES", 0)
    monkeypatch.setattr(polishing, "_MOST_POLISHING_STEPS", 0)
    found = problem.solve(problem.linear, tol=1e-4)
    assert names(found) == [QUICK, PROGRAM]
    assert found.gap <= 1e-4
    assert found.lower - 1e-9 <= exact.risk <= found.risk + 1e-9
    monkeypatch.setattr(search_module, "_FEW_TO_REPAIR", 0)
    assert names(problem.solve(problem.linear, tol=1e-4)) != [QUICK, PROGRAM]


def test_in_learning_a_linear_program_repairs_the_adversary() -> None:
    problem = Problem(1e-3, N=120, seed=3)
    short = NewtonOptions(max_steps=40)
    found = problem.solve(problem.linear, options=short, tol=1e-9)
    assert PROGRAM in names(found)
    exact = problem.solve(problem.linear, tol=1e-7)
    assert found.lower <= exact.risk + 1e-12
    assert found.risk >= exact.lower - 1e-12


def test_a_certificate_knows_its_stages_and_prints_them_where_they_are_not_the_ordinary_ones() -> None:
    rng = np.random.default_rng(0)
    X, y, U = rng.normal(size=(12, 2)), np.arange(12) % 2, rng.normal(size=(60, 2))
    clf = sf.RobustLogisticRegression(radius=0.8, label_prior=[0.5, 0.5]).fit(X, y, X_unlabeled=U)
    assert clf.certificate_.stages == (QUICK,)  # a constant answer, told early
    assert "stages" not in repr(clf.certificate_)
    judged = sf.certify(clf, X, y, X_unlabeled=U, radius=0.8, label_prior=[0.5, 0.5])
    assert judged.stages == (QUICK, VERTEX)
    assert "stages" not in repr(judged)
    stopped = replace(clf.certificate_, stages=(QUICK, COLD, PROGRAM))
    assert "path, then path from zero, then linear program" in repr(stopped)


@pytest.mark.parametrize("prior", [[0.5, 0.5], [[0.3, 0.7], [0.3, 0.7]], [0.8, 0.2]])
@pytest.mark.parametrize("seed", range(6))
def test_at_the_minimal_radius_fixed_losses_are_a_linear_program_over_the_cheapest_plans(
    prior: list[Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    N, n = 40, 7
    X, y = rng.integers(0, 4, size=(N, 2)).astype(float), np.arange(N) % 2  # ties: many cheapest plans
    ds = build_decision_set(X[:n], y[:n], 2, X_unlabeled=X[n:], label_prior=prior)
    minimal, losses = solve_minimal_radius(ds), 3.0 * rng.random((N, 2))
    closed = ds.with_radius(minimal.value)
    found = solve_certified(closed, FixedLosses(losses), tol=1e-6, minimal=minimal)
    assert names(found) == [AT_MINIMUM]
    assert found.n_steps == 0
    assert found.gap <= 1e-6
    # a linear program needs room for its own tolerance, and the worst case is concave in the radius
    room = 1e-6 * minimal.value
    known = inner_reference(
        losses, ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals,
        minimal.value + room,
    )["value"]  # fmt: skip
    assert known - 1e3 * room <= found.risk <= known + 1e-6


@pytest.mark.parametrize("K", [2, 4])
def test_equal_rows_have_a_minimal_radius_of_zero_and_a_certificate(K: int) -> None:
    y = np.arange(13) % K
    losses = np.random.default_rng(0).random((20, K))
    found = sf.certify(
        None, np.zeros((13, 2)), y, X_unlabeled=np.zeros((7, 2)), radius=0.0, label_prior=None, losses=losses
    )
    assert found.minimal_radius == 0.0
    # every row has the labels of the labeled ones, wherever the adversary puts them: the dearest rows of each
    solved = linprog(
        -losses.ravel(),
        A_eq=np.vstack([np.kron(np.eye(20), np.ones(K)), np.kron(np.ones(20), np.eye(K))]),
        b_eq=np.concatenate([np.full(20, 1 / 20), np.bincount(y) / 13]),
    )
    assert found.risk == pytest.approx(-solved.fun, abs=1e-6)
    assert found.gap <= 1e-6


def test_a_set_that_is_good_enough_is_not_solved_to_the_end() -> None:
    problem = Problem(0.05)
    solved = problem.solve(problem.fixed)
    rough = problem.solve(problem.fixed, stop_below=solved.risk + 0.2)
    assert solved.risk <= rough.risk <= solved.risk + 0.2
    assert rough.lower <= solved.lower + 1e-9
    assert names(rough) == [QUICK]  # no vertex was asked for
    assert rough.gap > 1e-5
    assert problem.solve(problem.fixed, stop_below=solved.risk - 0.2).gap <= 1e-5


@pytest.mark.parametrize("K", [2, 3, 4])
def test_a_classifier_that_hedges_still_says_what_it_would_choose(K: int) -> None:
    rng = np.random.default_rng(K)
    y = np.arange(90) % K
    X = rng.normal(size=(90, 2)) + 2.0 * np.column_stack([y, -y])
    clf = sf.RobustLogisticRegression(radius=50.0, label_prior=None)
    clf.fit(X[:30], y[:30], X_unlabeled=X[30:])
    found = clf.certificate_
    assert found.risk == pytest.approx(np.log(K), abs=1e-4)  # any labels may come: no answer is better than none
    assert found.status == "optimal"
    assert np.abs(clf.predict_proba(X) - 1 / K).max() < 1e-2
