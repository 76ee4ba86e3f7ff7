"""The interior-point method: steps solve the linearised conditions of optimality, its end is the conic program's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reference.learning import learn_reference
from surefoot.dual.bounds import dual_value
from surefoot.dual.models import DualPoint, LinearModel
from surefoot.kernels.compiled import centre_rows
from surefoot.problem.losses import probabilities
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.interior import Gradient, InteriorPoint, InteriorState, Multipliers, NewtonSystem
from surefoot.solvers.minimal_radius import solve_minimal_radius
from surefoot.solvers.search.solution import solve_certified

Array = NDArray[np.float64]
PRIORS: dict[str, Any] = {
    "exact": lambda K: np.full(K, 1.0 / K),
    "intervals": lambda K: np.column_stack([np.full(K, 0.6 / K), np.full(K, 1.5 / K)]),
    "one interval": lambda K: np.vstack([[0.2, 0.3], np.tile([0.0, 1.0], (K - 1, 1))]),
    "none": lambda K: None,
}


def problem(K: int, prior: str, *, N: int = 40, n: int = 9, seed: int = 0) -> tuple[DecisionSet, LinearModel]:
    """Rows of K classes, at a radius beyond the minimal one, and a model with a penalty."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n) % K, rng.integers(K, size=N - n)])
    X = rng.normal(size=(N, 2)) + 1.2 * y[:, None]
    cost = rng.uniform(0.5, 1.5, size=(K, K)) * (1.0 - np.eye(K))
    ds = build_decision_set(
        X[:n], y[:n], K, X_unlabeled=X[n:], label_prior=PRIORS[prior](K), label_cost=cost + cost.T
    )  # fmt: skip
    ds = ds.with_radius(solve_minimal_radius(ds).value + 0.1)
    return ds, LinearModel(np.column_stack([X, np.ones(N)]), np.array([1e-2, 1e-2, 0.0]), K)


def begun(ds: DecisionSet, model: LinearModel, seed: int = 1) -> tuple[InteriorPoint, InteriorState]:
    rng = np.random.default_rng(seed)
    beta = 0.1 * rng.normal(size=len(ds.anchor_weights))
    method = InteriorPoint(ds, model)
    lam = method.problem.lam(np.full(len(method.problem.free), 0.1))
    return method, method.start(DualPoint(0.3 * rng.normal(size=model.shape), 1.0, lam, beta), 0.3, 0.2)


@pytest.mark.parametrize("K", [2, 3, 4])
@pytest.mark.parametrize("prior", list(PRIORS))
def test_a_step_solves_the_linearised_conditions_of_optimality(K: int, prior: str) -> None:
    ds, model = problem(K, prior)
    method, state = begun(ds, model)
    at, slacks, m, mu = state.at, state.slacks, ds.row_weights, 0.01
    wanted = Multipliers(
        mu * m[:, None] / slacks.plan,
        mu * m[:, None, None] / slacks.labels,
        mu / at.alpha,
        method.problem.per_interval(mu, at.up),
        method.problem.per_interval(mu, at.down),
    )
    step, moved = NewtonSystem(method.problem, at, slacks).direction(wanted)
    there = at.moved(step, 1.0, 1.0)
    left = Gradient.at_slacks(
        method.problem, Multipliers(there.plan, there.labels, there.price, there.price_up, there.price_down)
    )
    labels = -left.scores.sum(axis=0)[method.problem.free]
    zeros = [left.u, left.psi, left.alpha, left.beta, left.up - labels]
    zeros.append(np.where(method.problem.is_interval, left.down + labels, 0.0))
    proba, eta = probabilities(model.scores(at.theta, slice(None))), model.scores(step.theta, slice(None))
    proba = proba + proba * (eta - (proba * eta).sum(axis=1, keepdims=True))
    zeros.append((m[:, None] * proba + left.scores)[:, 1:].T @ model.X + model.penalty_gradient(there.theta))
    products = at.plan * moved.plan + step.plan * slacks.plan + at.plan * slacks.plan
    zeros.append(products - mu * m[:, None])
    zeros.append(at.labels * moved.labels + (step.labels + at.labels) * slacks.labels - mu * m[:, None, None])
    for one in zeros:
        np.testing.assert_allclose(one, 0.0, atol=1e-9)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("prior", list(PRIORS))
def test_it_ends_at_the_optimum_of_the_conic_program(K: int, prior: str) -> None:
    ds, model = problem(K, prior)
    found = solve_certified(ds, model, tol=1e-3)
    method = InteriorPoint(ds, model)
    *_, last = method.steps(method.start(found.path.point.parts[0], 1e-2, 1e-2), 60)
    assert last.gap <= 1e-8
    # the reference's penalty is on centred coefficients, as the model's: without one for the intercept
    reference = learn_reference(
        ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost,
        ds.intervals if prior != "none" else None, ds.radius, model.X[:, :2], 1e-2, n_classes=K,
    )  # fmt: skip
    assert dual_value(ds, model, last.point(method.problem)) == pytest.approx(reference["value"], abs=2e-7)


def test_its_plan_has_the_marginals_and_its_labels_are_those_of_the_plan() -> None:
    ds, model = problem(3, "intervals")
    found = solve_certified(ds, model, tol=1e-3)
    method = InteriorPoint(ds, model)
    *_, last = method.steps(method.start(found.path.point.parts[0], 1e-2, 1e-2), 60)
    np.testing.assert_allclose(last.at.plan.sum(axis=0), ds.anchor_weights, atol=1e-8)
    np.testing.assert_allclose(last.at.plan.sum(axis=1), ds.row_weights, atol=1e-8)
    joint, share = last.plan(method.problem)
    np.testing.assert_allclose(joint.sum(axis=(1, 2)), 1.0)
    np.testing.assert_allclose(method.problem.gather(share), 1.0)


def test_a_method_that_does_not_get_on_gives_up() -> None:
    ds, model = problem(2, "exact")
    method, state = begun(ds, model)
    method._next = lambda state: InteriorState(state.at, state.slacks, 1.0, 1.0)  # type: ignore[method-assign]
    assert len(list(method.steps(state, 60))) < 10


def test_a_system_that_is_not_finite_ends_the_method() -> None:
    ds, model = problem(2, "exact")
    method, state = begun(ds, model)
    state.at.plan[:] = np.nan
    assert list(method.steps(state, 60)) == []


@pytest.mark.parametrize("value", [0.0, 1e-320, 1e-200, 1e200, 1e308, np.inf, np.nan])
@pytest.mark.parametrize("what", ["theta", "alpha", "lam", "beta", "gap"])
def test_a_start_out_of_range_ends_the_method_and_raises_nothing(what: str, value: float) -> None:
    ds, model = problem(2, "exact")
    point = DualPoint(np.zeros(model.shape), 1.0, np.zeros(2), np.zeros(len(ds.anchor_weights)))
    if what != "gap":
        off = np.array(getattr(point, what))
        off.flat[0] = value
        point = replace(point, **{what: off if off.ndim else float(off)})
    method = InteriorPoint(ds, model)
    states = list(method.steps(method.start(point, 0.3, value if what == "gap" else 0.2), 60))
    assert all(np.isfinite(state.left) for state in states)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 1.0])
def test_rows_are_centred_where_their_barrier_is_least(mu: float) -> None:
    ds, _ = problem(3, "exact")
    spent = 2.0 * ds.distances + np.linspace(0.0, 1.0, len(ds.anchor_weights))
    above = np.random.default_rng(0).normal(size=(len(spent), 3, 3))
    starts = ds.class_offsets[:-1]
    u = np.minimum.reduceat(spent, starts, axis=1) - mu
    psi = mu - (above + u[:, None, :]).min(axis=(1, 2))
    beta = np.linspace(0.0, 1.0, len(ds.anchor_weights))
    centre_rows(ds.distances, 2.0, beta, ds.class_offsets, above, mu, u, psi)
    plan = mu / (spent - np.repeat(u, np.diff(ds.class_offsets), axis=1))
    labels = mu / (psi[:, None, None] + above + u[:, None, :])
    assert plan.min() > 0
    assert labels.min() > 0
    np.testing.assert_allclose(labels.sum(axis=(1, 2)), 1.0, atol=1e-3)
    np.testing.assert_allclose(np.add.reduceat(plan, starts, axis=1), labels.sum(axis=1), atol=1e-3)
