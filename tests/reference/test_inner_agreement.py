"""The worst case of a fixed classifier against the plain linear program over all plans (HiGHS), to 1e-7."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import ot
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp

from reference.inner import inner_reference
from surefoot._errors import InfeasibleRadiusError
from surefoot.dual.adversary import LabelTable
from surefoot.dual.models import FixedLosses
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.search.solution import solve_certified, solve_minimal_radius

Array = NDArray[np.float64]
PRIORS = ["exact", "intervals", "clopper-pearson", "none"]


def log_losses(rng: np.random.Generator, N: int, K: int) -> Array:
    scores = 2.0 * rng.normal(size=(N, K))
    return logsumexp(scores, axis=1, keepdims=True) - scores


def zero_one_losses(rng: np.random.Generator, N: int, K: int) -> Array:
    return 1.0 - np.eye(K)[rng.integers(K, size=N)]


def any_losses(rng: np.random.Generator, N: int, K: int) -> Array:
    return rng.normal(size=(N, K)) + 3.0 * rng.exponential(size=(N, 1))


LOSSES = {"log_loss": log_losses, "zero_one": zero_one_losses, "any": any_losses}


def draw_set(
    K: int, prior: str, *, excess: float, matrix_cost: bool = False, weighted: bool = False, seed: int = 0
) -> DecisionSet:
    rng, N, n = np.random.default_rng(seed), 30, 8
    labels = np.concatenate([np.arange(n) % K, rng.integers(K, size=N - n)])
    X = 0.6 * rng.normal(size=(N, 2)) + 0.8 * np.eye(K, 2)[labels]
    p = np.bincount(labels, minlength=K) / N
    priors = {"exact": p, "intervals": np.column_stack([0.8 * p, np.minimum(1.2 * p, 1.0)]), "none": None}
    ds = build_decision_set(
        X[:n], labels[:n], K, X_unlabeled=X[n:], sample_weight=rng.uniform(0.2, 2.0, size=n) if weighted else None,
        label_prior=priors.get(prior, prior),
        label_cost=rng.uniform(0.4, 1.4, size=(K, K)) * (1 - np.eye(K)) if matrix_cost else 0.8,
    )  # fmt: skip
    return ds.with_radius(solve_minimal_radius(ds).value + excess)


def highs_value(losses: Array, ds: DecisionSet) -> float:
    return inner_reference(
        losses, ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals,
        ds.radius,
    )["value"]  # fmt: skip


def assert_feasible(adversary: LabelTable, ds: DecisionSet) -> None:
    """Rows are distributions, labels lie in their intervals, and POT finds a plan within the radius."""
    q = adversary.label_proba
    assert q.min() >= 0
    np.testing.assert_allclose(q.sum(axis=1), 1.0, atol=1e-12)
    p = ds.row_weights @ q
    assert np.all(p >= ds.intervals[:, 0] - 1e-9)
    assert np.all(p <= ds.intervals[:, 1] + 1e-9)
    costs = ds.distances[:, None, :] + ds.label_cost[:, ds.anchor_labels]
    mass = (ds.row_weights[:, None] * q).ravel()
    distance = ot.emd2(mass, ds.anchor_weights * mass.sum(), costs.reshape(len(mass), -1), numItermax=1_000_000)
    assert distance <= ds.radius * (1 + 1e-6)
    assert distance <= adversary.transport_cost * (1 + 1e-9)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "weights-and-matrix"])
def test_both_bounds_are_the_value_of_the_linear_program(plain: bool, K: int, prior: str, kind: str) -> None:
    ds = draw_set(K, prior, excess=0.08, matrix_cost=not plain, weighted=not plain, seed=K)
    make: Callable[[np.random.Generator, int, int], Array] = LOSSES[kind]
    losses = make(np.random.default_rng(5), len(ds.row_weights), K)
    solution = solve_certified(ds, FixedLosses(losses), tol=1e-8)
    value = highs_value(losses, ds)
    assert solution.risk == pytest.approx(value, abs=1e-7)
    assert solution.lower == pytest.approx(value, abs=1e-7)
    assert_feasible(solution.adversary, ds)
    # the lower bound is nothing but the loss of the adversary that is returned
    expected = ds.row_weights @ (solution.adversary.label_proba * losses).sum(axis=1)
    assert solution.lower == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("excess", [1e-3, 0.01, 1.0, 100.0])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_agreement_from_a_tight_radius_to_a_vast_one(K: int, prior: str, excess: float) -> None:
    ds = draw_set(K, prior, excess=excess, seed=20 + K)
    losses = log_losses(np.random.default_rng(6), len(ds.row_weights), K)
    solution = solve_certified(ds, FixedLosses(losses), tol=1e-8)
    value = highs_value(losses, ds)
    assert solution.risk == pytest.approx(value, abs=1e-7)
    assert solution.lower == pytest.approx(value, abs=1e-7)
    assert_feasible(solution.adversary, ds)


@pytest.mark.parametrize("prior", PRIORS)
def test_at_the_minimal_radius_both_bounds_enclose_the_linear_program(prior: str) -> None:
    ds = draw_set(2, prior, excess=0.0, seed=31)
    losses = log_losses(np.random.default_rng(7), len(ds.row_weights), 2)
    solution = solve_certified(ds, FixedLosses(losses), tol=1e-6)
    # the adversary may exceed the radius by a share of 1e-6, and no more: so much may its loss be off
    nearly = highs_value(losses, ds.with_radius(ds.radius * (1 + 1e-6)))
    exactly = highs_value(losses, ds.with_radius(ds.radius * (1 + 1e-12)))
    assert solution.risk >= exactly - 1e-7
    assert solution.lower <= nearly + 1e-7
    assert solution.gap <= 1e-6
    assert_feasible(solution.adversary, ds)


def test_losses_scale_and_shift_with_their_worst_case() -> None:
    ds = draw_set(3, "intervals", excess=0.1, seed=8)
    losses = log_losses(np.random.default_rng(9), len(ds.row_weights), 3)
    base = solve_certified(ds, FixedLosses(losses), tol=1e-8).risk
    for scale, shift in ((1e4, 0.0), (1e-4, 0.0), (1.0, 100.0), (1.0, -5.0)):
        tol = 1e-7 * max(scale, 1.0)
        moved = solve_certified(ds, FixedLosses(scale * losses + shift), tol=tol)
        assert moved.gap <= tol
        assert moved.risk == pytest.approx(scale * base + shift, abs=2e-7 * max(scale, 1.0))


def test_equal_losses_leave_the_adversary_nothing_to_gain() -> None:
    ds = draw_set(2, "clopper-pearson", excess=0.1, seed=9)
    solution = solve_certified(ds, FixedLosses(np.full((len(ds.row_weights), 2), 0.3)), tol=1e-8)
    assert solution.risk == pytest.approx(0.3, abs=1e-8)
    assert solution.lower == pytest.approx(0.3, abs=1e-8)


def test_a_radius_below_the_minimal_one_is_refused_before_any_iteration() -> None:
    ds = draw_set(2, "exact", excess=0.0, seed=10)
    losses = np.zeros((len(ds.row_weights), 2))
    with pytest.raises(InfeasibleRadiusError) as caught:
        solve_certified(ds.with_radius(0.9 * ds.radius), FixedLosses(losses), on_round=pytest.fail)
    assert caught.value.minimal_radius == pytest.approx(ds.radius, rel=1e-12)
    assert caught.value.radius == 0.9 * ds.radius
