"""Sums over short lists of anchors agree with sums over all of them, wherever α, β, θ and τ go."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.dual.models import DualPoint, FixedLosses, LinearModel, Model
from surefoot.dual.objective import SmoothedDual
from surefoot.dual.row_store import InMemoryRows
from surefoot.dual.row_sums import ListedAnchors, RowSums, WeightedRows
from surefoot.problem.sets import DecisionSet, build_decision_set

N, n, d = 1500, 60, 4


def problem(K: int = 3, seed: int = 0) -> tuple[DecisionSet, LinearModel]:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n) % K, rng.integers(K, size=N - n)])
    X = rng.normal(size=(N, d)) + y[:, None]
    prior = np.column_stack([np.full(K, 0.5 / K), np.full(K, 1.5 / K)])
    ds = build_decision_set(X[:n], y[:n], K, X_unlabeled=X[n:], label_prior=prior).with_radius(3.0)
    return ds, LinearModel(np.column_stack([X, np.ones(N)]), np.zeros(d + 1), K)


def point(ds: DecisionSet, model: Model, alpha: float, seed: int = 1) -> DualPoint:
    rng = np.random.default_rng(seed)
    beta = 0.3 * alpha * rng.normal(size=n)
    return DualPoint(rng.normal(size=model.shape), alpha, 0.1 * rng.normal(size=ds.n_classes), beta)


def agree(found: RowSums, known: RowSums, rtol: float = 1e-10) -> None:
    for name in vars(known):
        mine, theirs = getattr(found, name), getattr(known, name)
        if name == "beta_beta":  # one triangle counts
            mine, theirs = np.tril(mine), np.tril(theirs)
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol * max(np.abs(theirs).max(initial=0.0), 1e-3))


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("tau", [0.1, 0.02, 1e-3])
@pytest.mark.parametrize("fixed", [False, True])
def test_a_list_gives_the_sums_over_all_anchors(K: int, tau: float, fixed: bool) -> None:
    ds, linear = problem(K)
    model: Model = FixedLosses(np.random.default_rng(3).random((N, K))) if fixed else linear
    rows, at = WeightedRows(ds, ds.distances, ds.row_weights, model), point(ds, model, 20.0)
    short = rows.shortlist(at, tau)
    assert short is not None
    assert short.mean_length < 0.2 * n
    for second_order in (False, True):
        near = ListedAnchors(short)
        found = rows.sums(at, tau, second_order=second_order, near=near)
        assert near.failed == 0
        agree(found, rows.sums(at, tau, second_order=second_order))


@settings(deadline=None, max_examples=25)
@given(
    grown=st.floats(0.5, 3.0),
    moved=st.floats(0.0, 2.0),
    wild=st.integers(0, 5),
    turned=st.floats(0.0, 3.0),
    fallen=st.floats(0.05, 1.5),
    seed=st.integers(0, 100),
)
def test_where_a_point_has_moved_rows_ask_all_anchors(
    grown: float, moved: float, wild: int, turned: float, fallen: float, seed: int
) -> None:
    ds, model = problem()
    rows, at = WeightedRows(ds, ds.distances, ds.row_weights, model), point(ds, model, 20.0)
    short = rows.shortlist(at, 0.02)
    assert short is not None
    rng = np.random.default_rng(seed)
    beta = grown * at.beta + moved * rng.normal(size=n)
    beta[rng.choice(n, wild, replace=False)] += 20.0 * rng.normal(size=wild)
    there = replace(at, alpha=grown * at.alpha, beta=beta, theta=at.theta + turned * rng.normal(size=at.theta.shape))
    tau = 0.02 * fallen
    agree(rows.sums(there, tau, second_order=True, near=ListedAnchors(short)), rows.sums(there, tau, second_order=True))
    loose = ListedAnchors(short, loose=True)
    some = rows.sums(there, tau, second_order=False, near=loose)
    everything = rows.sums(there, tau, second_order=False)
    assert some.small[0] <= everything.small[0] + 1e-12  # fewer terms in every maximum
    if loose.failed == 0:
        agree(some, everything)


def test_threads_give_the_same_bits() -> None:
    ds, model = problem()
    at = point(ds, model, 20.0)
    alone = InMemoryRows.from_decision_set(ds, model)
    with ThreadPoolExecutor(3) as executor:
        together = InMemoryRows.from_decision_set(ds, model, executor)
        for tau in (0.02, 0.01):
            duals = [SmoothedDual(ds, model, sweep) for sweep in (alone, together)]
            one, two = (dual.evaluate(at, tau, second_order=True) for dual in duals)
            assert one.value == two.value
            assert np.array_equal(one.gradient, two.gradient)
            assert np.array_equal(one.hessian, two.hessian)
    assert alone.lists.last is not None


def test_a_limit_never_hides_a_smaller_value() -> None:
    ds, model = problem()
    at = point(ds, model, 20.0)
    dual = SmoothedDual(ds, model)
    dual.evaluate(at, 0.02, second_order=True)  # makes a list
    far = replace(at, beta=at.beta + 5.0 * np.random.default_rng(0).normal(size=n))
    exact = SmoothedDual(ds, model).evaluate(far, 0.02, second_order=False).value
    for limit in (exact - 10.0, exact - 1e-6, exact + 1e-6, exact + 10.0):
        found = dual.evaluate(far, 0.02, second_order=False, limit=limit).value
        if exact <= limit:
            assert found == pytest.approx(exact, rel=1e-12)
        else:
            assert limit < found <= exact + 1e-12


def test_small_problems_and_large_smoothings_have_no_list() -> None:
    ds, model = problem()
    at = point(ds, model, 0.01)
    held = InMemoryRows.from_decision_set(ds, model)
    SmoothedDual(ds, model, held).evaluate(at, 1.0, second_order=True)
    assert held.lists.last is None
    few = replace(ds, distances=ds.distances[:100], row_weights=np.full(100, 0.01))
    held = InMemoryRows.from_decision_set(few, model.restricted(np.arange(100)))
    SmoothedDual(few, model, held).evaluate(point(ds, model, 20.0), 1e-3, second_order=True)
    assert held.lists.last is None
