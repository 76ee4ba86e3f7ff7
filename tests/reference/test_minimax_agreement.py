"""The minimax classifier against an independent convex program (cvxpy + Clarabel) over the plan itself."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from numpy.typing import NDArray

from reference.inner import PlanProgram
from reference.test_learning_agreement import PRIORS, Sample, draw
from surefoot.dual.bounds import best_response
from surefoot.dual.models import AnyClassifier, FixedLosses
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.search.solution import solve_certified

Array = NDArray[np.float64]


def largest_entropy(ds: DecisionSet) -> float:
    """The largest conditional entropy of a distribution in the set: the primal, in which no classifier occurs."""
    program = PlanProgram.build(
        ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals
    )
    (N, K, n), m = program.shape, ds.row_weights
    plan = cp.Variable(N * K * n, nonneg=True)
    joint = cp.sum(cp.reshape(plan, (N * K, n), order="C"), axis=1)
    constraints = [
        program.equalities @ plan == program.equal_to / N,
        program.costs @ plan <= ds.radius,
    ]
    if program.inequalities.shape[0]:
        constraints.append(program.inequalities @ plan <= program.at_most / N)
    entropy = -cp.sum(cp.rel_entr(joint, np.repeat(m, K)))
    problem = cp.Problem(cp.Maximize(entropy), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert problem.status == cp.OPTIMAL
    return float(problem.value)


def largest_bayes_risk(ds: DecisionSet, costs: Array) -> float:
    """The largest Bayes risk of a distribution in the set, for costs (K, K) of [label, prediction], by HiGHS."""
    program = PlanProgram.build(
        ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals
    )
    N, K, n = program.shape
    plan, risk = cp.Variable(N * K * n, nonneg=True), cp.Variable((N, 1))
    joint = cp.reshape(cp.sum(cp.reshape(plan, (N * K, n), order="C"), axis=1), (N, K), order="C")
    constraints = [
        program.equalities @ plan == program.equal_to / N,
        program.costs @ plan <= ds.radius,
        joint @ costs >= risk @ np.ones((1, K)),
    ]
    if program.inequalities.shape[0]:
        constraints.append(program.inequalities @ plan <= program.at_most / N)
    problem = cp.Problem(cp.Maximize(cp.sum(risk)), constraints)
    problem.solve(solver=cp.HIGHS)
    assert problem.status == cp.OPTIMAL
    return float(problem.value)


def small(K: int, prior: str, cost: str, *, weighted: bool) -> Sample:
    return draw(K, prior, cost, weighted=weighted, N=16, n=6, seed=3)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(("cost", "weighted", "excess"), [("scalar", False, 0.02), ("matrix", True, 0.1)])
def test_both_bounds_are_the_largest_conditional_entropy(
    K: int, prior: str, cost: str, weighted: bool, excess: float
) -> None:
    ds = small(K, prior, cost, weighted=weighted).decision_set(excess)
    solution = solve_certified(ds, AnyClassifier(K), tol=1e-5)
    expected = largest_entropy(ds)
    assert solution.status == "optimal"
    assert solution.lower - 1e-6 <= expected <= solution.risk + 1e-6
    # the classifier that is returned has this worst case, which the solver for fixed losses knows nothing of
    losses = best_response(AnyClassifier(K), ds, ds.distances, solution.point)
    np.testing.assert_allclose(np.exp(-losses).sum(axis=1), 1.0)
    judged = solve_certified(ds, FixedLosses(losses), tol=1e-7)
    assert judged.lower <= solution.risk + 1e-7
    assert judged.risk >= expected - 1e-6


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(("cost", "weighted", "excess"), [("scalar", False, 0.02), ("matrix", True, 0.1)])
@pytest.mark.parametrize("loss", ["zero_one", "costs"])
def test_both_bounds_are_the_largest_bayes_risk(
    K: int, prior: str, cost: str, weighted: bool, excess: float, loss: str
) -> None:
    ds = small(K, prior, cost, weighted=weighted).decision_set(excess)
    costs = np.random.default_rng(K).uniform(0.0, 3.0, size=(K, K)) if loss == "costs" else 1.0 - np.eye(K)
    model = AnyClassifier.with_costs(K, costs)
    solution = solve_certified(ds, model, tol=1e-4)
    expected = largest_bayes_risk(ds, costs)
    assert solution.status == "optimal"
    assert solution.lower - 1e-6 <= expected <= solution.risk + 1e-6
    judged = solve_certified(ds, FixedLosses(best_response(model, ds, ds.distances, solution.point)), tol=1e-7)
    assert judged.lower <= solution.risk + 1e-7
    assert judged.risk >= expected - 1e-6
