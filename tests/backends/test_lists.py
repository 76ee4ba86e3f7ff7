"""Blocks keep short lists of anchors: sums over them agree with sums over all anchors, wherever the point goes."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from surefoot.backends.block_rows import Anchors, BlockedRows
from surefoot.backends.sources import StackedRows
from surefoot.costs import Euclidean
from surefoot.dual.models import Coordinates, DualPoint, LinearModel
from surefoot.dual.objective import Evaluation, SmoothedDual
from surefoot.problem.sets import DecisionSet, build_decision_set

N, n, d, K = 6000, 80, 4, 3
MEMORY = 8 * N * n


class Pool:
    """A decision set, its model in coordinates as given, and a point."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        y = np.concatenate([np.arange(n) % K, rng.integers(K, size=N - n)])
        X = rng.normal(size=(N, d)) + y[:, None]
        prior = np.column_stack([np.full(K, 0.5 / K), np.full(K, 1.5 / K)])
        ds = build_decision_set(X[:n], y[:n], K, X_unlabeled=X[n:], label_prior=prior).with_radius(3.0)
        assert ds.anchor_rows is not None
        self.rows, self.held, self.anchors = X, ds, X[ds.anchor_rows]
        self.bare = replace(ds, distances=np.empty((0, n)), row_weights=np.empty(0))
        self.model = LinearModel(np.empty((0, d + 1)), np.zeros(d + 1), K)
        self.point = DualPoint(rng.normal(size=(K - 1, d + 1)), 20.0, 0.1 * rng.normal(size=K), 6 * rng.normal(size=n))

    def sweep(self, keep_bytes: int = MEMORY, executor: Executor | None = None) -> BlockedRows:
        source, coordinates = StackedRows(self.rows, None), Coordinates.as_given(d, True)
        anchors, weights = Anchors(self.anchors, Euclidean()), np.empty(0)
        return BlockedRows(source, weights, 1.0 / N, anchors, None, executor, keep_bytes, 1600, coordinates)

    def dual(self, sweep: BlockedRows, ds: DecisionSet | None = None) -> SmoothedDual:
        return SmoothedDual(self.bare if ds is None else ds, self.model, sweep, exact=True)


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool()


def agree(found: Evaluation, known: Evaluation) -> None:
    assert found.value == pytest.approx(known.value, rel=1e-12)
    np.testing.assert_allclose(found.gradient, known.gradient, rtol=0, atol=1e-11 * np.abs(known.gradient).max())
    if known.hessian is not None:
        atol = 1e-11 * np.abs(known.hessian).max()
        np.testing.assert_allclose(np.tril(found.hessian), np.tril(known.hessian), rtol=0, atol=atol)


@pytest.mark.parametrize("share", [1.0, 0.5, 1e-6])
@pytest.mark.parametrize("far", [0.0, 0.3, 30.0])
def test_lists_give_the_sums_over_all_anchors(pool: Pool, share: float, far: float) -> None:
    sweep = pool.sweep(int(share * MEMORY))
    dual, tau = pool.dual(sweep), 0.02
    for _ in range(2):  # the first sums of a set make no list
        dual.evaluate(pool.point, tau, second_order=True)
    lists = [keeper.last for keeper in sweep.lists.keepers.values()]
    assert len(lists) == 4
    assert all(one is None for one in lists) if share < 1e-3 else all(one is not None for one in lists)
    moved = replace(pool.point, beta=pool.point.beta + far * np.random.default_rng(1).normal(size=n))
    for second_order in (False, True):
        known = pool.dual(pool.sweep(0)).evaluate(moved, tau, second_order=second_order)
        agree(dual.evaluate(moved, tau, second_order=second_order), known)


def test_a_limit_never_hides_a_smaller_value(pool: Pool) -> None:
    dual = pool.dual(pool.sweep())
    for _ in range(2):
        dual.evaluate(pool.point, 0.02, second_order=True)
    far = replace(pool.point, beta=pool.point.beta + 5.0 * np.random.default_rng(0).normal(size=n))
    exact = pool.dual(pool.sweep(0)).evaluate(far, 0.02, second_order=False).value
    for limit in (exact - 10.0, exact - 1e-6, exact + 1e-6, exact + 10.0):
        found = dual.evaluate(far, 0.02, second_order=False, limit=limit).value
        if exact <= limit:
            assert found == pytest.approx(exact, rel=1e-12)
        else:
            assert limit < found <= exact + 1e-12


def test_sets_in_turn_have_no_lists(pool: Pool) -> None:
    sweep = pool.sweep()
    duals = [pool.dual(sweep, pool.bare.with_radius(radius)) for radius in (3.0, 4.0)]
    for _ in range(2):
        for dual in duals:
            dual.evaluate(pool.point, 0.02, second_order=True)
    assert not sweep.lists.keepers


def test_threads_give_the_same_bits(pool: Pool) -> None:
    with ThreadPoolExecutor(3) as executor:
        duals = [pool.dual(pool.sweep()), pool.dual(pool.sweep(executor=executor))]
        for tau in (0.05, 0.02, 0.01):
            one, two = (dual.evaluate(pool.point, tau, second_order=True) for dual in duals)
            assert one.value == two.value
            assert np.array_equal(one.gradient, two.gradient)
            assert np.array_equal(one.hessian, two.hessian)
