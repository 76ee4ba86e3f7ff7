"""The compiled parts against scipy, HiGHS and POT."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy.optimize import linprog

from generators import draw_flexibility
from surefoot.active.residual import FeaturesInMemory, ResidualGraph
from surefoot.kernels.forced_labels import all_pairs, append_row, minimise, reroute, restore


@pytest.mark.parametrize("density", [0.2, 1.0])
def test_all_pairs_are_shortest_paths(density: float) -> None:
    rng = np.random.default_rng(0)
    cost = np.where(rng.random((12, 12)) < density, rng.random((12, 12)), np.inf)
    expected = cost.copy()
    np.fill_diagonal(expected, 0.0)
    for _ in range(12):  # Bellman and Ford
        expected = np.minimum(expected, (expected[:, :, None] + expected[None]).min(axis=1))
    np.testing.assert_allclose(all_pairs(cost), expected, atol=1e-14)


@pytest.mark.parametrize("seed", range(20))
def test_simplex_with_rows_added_is_highs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, m, added = 8, 3, 4
    A, b = rng.normal(size=(m + added, q)), rng.uniform(0.5, 1.5, size=m + added)
    A[0] = rng.uniform(0.5, 1.0, size=q)  # bounded
    b[m:] -= 0.8  # rows that cut off the point found so far, some of them
    c = rng.normal(size=q)
    T, basis, z = (
        np.zeros((m + added, q + m + added + 1)),
        np.zeros(m + added, dtype=np.int64),
        np.zeros(q + m + added + 1),
    )
    T[:m, :q], T[:m, q : q + m], T[:m, -1], basis[:m], z[:q] = A[:m], np.eye(m), b[:m], q + np.arange(m), c
    assert minimise(T, z, basis, m, q + m)
    first = linprog(c, A_ub=A[:m], b_ub=b[:m], method="highs-ds")
    assert -z[-1] == pytest.approx(first.fun, abs=1e-9)
    feasible = True
    for r in range(m, m + added):
        T[r, :q], T[r, q + r], T[r, -1] = A[r], 1.0, b[r]
        append_row(T, basis, r, q + r)
        feasible = feasible and restore(T, z, basis, r + 1, q + r + 1)
    last = linprog(c, A_ub=A, b_ub=b, method="highs-ds")
    assert feasible == (last.status == 0)
    if feasible:
        assert -z[-1] == pytest.approx(last.fun, abs=1e-8)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_rerouting_is_transport_with_the_row_told_where_to_draw_from(seed: int, K: int, weighted: bool) -> None:
    problem = draw_flexibility(seed, K, "none", N=40, weighted=weighted)
    ds, rng = problem.decision_set, np.random.default_rng(seed)
    unit = problem.unit
    features = FeaturesInMemory(ds)
    transport, graph = features.transport, ResidualGraph.from_decision_set(ds, features, unit)
    slots, beta, raw, via = graph.arrays
    for j in rng.choice(np.arange(len(problem.X), 40), size=6, replace=False):
        a = rng.dirichlet(np.ones(K)) if j % 2 else np.eye(K)[rng.integers(K)]
        hold = np.zeros(len(slots))
        at = slice(graph.ptr[j], graph.ptr[j + 1])
        hold[graph.anchors[at]] = graph.amounts[at]
        entries, head = graph.parts
        copies = tuple(part.copy() for part in entries)
        slopes = np.empty((200, K))
        cost, found = reroute(
            ds.distances, j, slots, hold, a.copy(), beta.copy(), raw, via, copies, head.copy(), slopes
        )  # fmt: skip
        assert cost * unit + transport.cost == pytest.approx(_told(ds.distances, ds, j, a), abs=1e-9)
        if found:
            assert slopes[found - 1] @ a == pytest.approx(cost, abs=1e-9)
        for other in rng.dirichlet(np.ones(K), size=3):  # each slope bounds the cost of every composition
            exact = (_told(ds.distances, ds, j, other) - transport.cost) / unit
            assert np.all(slopes[:found] @ other <= exact + 1e-8)


def _told(distances: np.ndarray, ds: object, j: int, a: np.ndarray) -> float:
    """Transport by POT where row j is one row per class, each far from the anchors of the others."""
    labels, far = ds.anchor_labels, 1e3  # type: ignore[attr-defined]
    parts = np.where(labels == np.arange(len(a))[:, None], distances[j], far)
    masses = np.concatenate([np.delete(ds.row_weights, j), a * ds.row_weights[j]])  # type: ignore[attr-defined]
    costs = np.vstack([np.delete(distances, j, axis=0), parts])
    return float(ot.emd2(masses, ds.anchor_weights * masses.sum(), costs, numItermax=1_000_000))  # type: ignore[attr-defined]


def test_a_plan_has_all_its_mass_in_full_entries_and_parts() -> None:
    problem = draw_flexibility(2, 2, "none", N=50)
    ds = problem.decision_set
    graph = ResidualGraph.from_decision_set(ds, FeaturesInMemory(ds), problem.unit)
    (rows, amounts, following, count), head = graph.parts
    assert count[0] == len(rows) == np.sum(~graph.is_full)
    assert graph.amounts[graph.is_full].sum() + amounts.sum() == pytest.approx(50)
    walked = 0
    for e in head:
        while e >= 0:
            walked, e = walked + 1, following[e]  # noqa: PLW2901
    assert walked == len(rows)
