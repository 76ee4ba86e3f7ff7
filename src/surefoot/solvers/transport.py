"""Plain optimal transport between the feature marginal and the anchors: the feature part of the minimal radius."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from surefoot._types import FloatArray
from surefoot.dual.adversary import LabelTable
from surefoot.dual.models import NoLosses
from surefoot.dual.objective import SmoothedDual
from surefoot.dual.point import DualPoint
from surefoot.problem.distances import DistanceRows, HeldDistances
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.equal_rows import EqualRows
from surefoot.solvers.network_simplex import network_simplex
from surefoot.solvers.newton import NewtonOptions, PathPoint, follow_path
from surefoot.solvers.sparse_transport import transport_over_pairs

# Up to this many entries, or rows per anchor, the network simplex alone is faster than Newton and a small simplex.
_SIMPLEX_ENTRIES, _SIMPLEX_ROWS = 1_500_000, 30
# From this many entries on, with many rows per anchor, it is asked whether rows coincide.
_MERGE_ENTRIES = 100_000
# From this many entries on the network simplex is given few pairs at a time.
_PAIRS_ENTRIES = 8_000_000
# How far, in units of the mean distance, smoothing may leave Newton's potentials from optimal.
_SMOOTHING = 1e-4
# Pivots of the network simplex before it starts anew with the rows in another order, and how often it may.
_FEWEST_STEPS, _ATTEMPTS = 300_000, 4


@dataclass(frozen=True)
class TransportSolution:
    """W_d between rows and anchors: a plan, the potentials that prove it, and both bounds.

    Attributes
    ----------
    cost : float, cost of the plan, an upper bound of W_d.
    lower : float, value of the dual at the potentials.
    plan : sparse (N, n), marginals row_weights and anchor_weights.
    potentials : (n,) b with W_d ≥ Σ_j m_j min_i (d_ji + b_i) − Σ_i w_i b_i.
    """

    cost: float
    lower: float
    plan: csr_array
    potentials: FloatArray

    def adversary(self, ds: DecisionSet, relabel: FloatArray, cost: float) -> LabelTable:
        """Labels (N, K) of the plan, with the share relabel (K, K), [k, c], of class c turned into label k."""
        by_class = np.zeros((self.plan.shape[0], ds.n_classes))
        entries = self.plan.tocoo()
        np.add.at(by_class, (entries.row, ds.anchor_labels[entries.col]), entries.data)
        total = by_class.sum(axis=1, keepdims=True)
        by_class = np.where(total > 0, by_class / np.where(total > 0, total, 1.0), ds.label_frequencies)
        return LabelTable(by_class @ relabel.T, cost)


def solve_transport(distances: FloatArray, row_weights: FloatArray, anchor_weights: FloatArray) -> TransportSolution:
    """Exact transport (N, n) for N possibly much larger than n.

    Rows that coincide are moved as one. Large problems are solved by smoothed Newton in the n potentials alone; rows
    whose best anchor is clear are then fixed and the network simplex settles the rest, so the result is a vertex, exact
    to rounding, at a fraction of the cost.
    """
    N, n = distances.shape
    equal = EqualRows.of(distances, row_weights) if distances.size > _MERGE_ENTRIES and N / n > _SIMPLEX_ROWS else None
    if equal is not None:
        few = solve_transport(distances[equal.first], equal.distinct_weights, anchor_weights)
        plan = equal.spread(few.plan)
        return _with_bounds(HeldDistances(distances), row_weights, anchor_weights, plan, few.potentials)
    found = transport_by_pairs(HeldDistances(distances), row_weights, anchor_weights)
    if found is not None:
        return found
    if distances.size <= _SIMPLEX_ENTRIES or N / n <= _SIMPLEX_ROWS:
        plan, potentials = _simplex(distances, row_weights, anchor_weights)
        return _with_bounds(HeldDistances(distances), row_weights, anchor_weights, csr_array(plan), potentials)
    potentials = _smoothed_potentials(distances, row_weights, anchor_weights)
    return cross_over(HeldDistances(distances), row_weights, anchor_weights, potentials)


def pairs_pay(shape: tuple[int, ...]) -> bool:
    """Whether (N, n) distances are many, with few rows per anchor."""
    N, n = shape
    return N * n > _PAIRS_ENTRIES and N / n <= _SIMPLEX_ROWS


def transport_by_pairs(distances: DistanceRows, rows: FloatArray, anchors: FloatArray) -> TransportSolution | None:
    """Exact transport that holds few pairs of rows and anchors at a time; None where that does not pay, or failed.

    It pays where there are many pairs but few rows per anchor. All rows and anchors must have weight.
    """
    if not pairs_pay(distances.shape) or rows.min() <= 0 or anchors.min() <= 0:
        return None
    found = transport_over_pairs(distances, rows, anchors, _steps(distances.shape))
    return None if found is None else _with_bounds(distances, rows, anchors, *found)


def _steps(shape: tuple[int, ...]) -> int:
    return max(_FEWEST_STEPS, 300 * sum(shape))


def _simplex(distances: FloatArray, rows: FloatArray, anchors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Plan (N, n) and potentials (n,) by the network simplex.

    On degenerate problems it may go round in circles; in another order of the rows it takes other pivots.
    """
    emd = network_simplex()
    anchors = anchors * (rows.sum() / anchors.sum())
    # its tolerances are absolute, so the largest distance must be near 1; powers of two lose no digits
    exponent = int(np.frexp(distances.max())[1])
    if 0 <= exponent <= 2:
        exponent = 0  # 1/2 to 4 is near enough, and spares a copy
    else:
        distances = np.ldexp(distances, -exponent)
    rng, back = np.random.default_rng(0), None  # back: which row of the problem each row is
    steps = _steps(distances.shape)
    for attempt in range(_ATTEMPTS):
        if attempt > 0:
            shuffle = rng.permutation(len(rows))
            rows, distances, back = rows[shuffle], distances[shuffle], shuffle if back is None else back[shuffle]
        plan, log = emd(rows, anchors, distances, numItermax=steps, log=True)
        if log["warning"] is None:
            return plan if back is None else plan[np.argsort(back)], -np.ldexp(log["v"], exponent)
        steps *= 3
    raise RuntimeError(f"network simplex failed on a {distances.shape} problem: {log['warning']}")


def _smoothed_potentials(distances: FloatArray, rows: FloatArray, anchors: FloatArray) -> FloatArray:
    n = distances.shape[1]
    scale = float(distances.mean())
    plain = DecisionSet(
        distances=distances,
        row_weights=rows,
        anchor_weights=anchors,
        anchor_labels=np.zeros(n, dtype=np.intp),
        label_cost=np.zeros((1, 1)),
        intervals=np.ones((1, 2)),
        radius=0.0,
    )
    dual = SmoothedDual(plain, NoLosses(rows), alpha_free=False)
    start = PathPoint(DualPoint(np.zeros((0, 0)), 1.0, np.zeros(1), np.zeros(n)), tau=scale)
    options = NewtonOptions(max_steps=200)
    return follow_path(dual, start, _SMOOTHING * scale, options).point.beta


def cross_over(
    distances: DistanceRows, rows: FloatArray, anchors: FloatArray, potentials: FloatArray
) -> TransportSolution:
    """Exact transport from nearly optimal potentials (n,).

    Rows whose best anchor leads by the widest margins are fixed to it, the simplex settles the others, and more rows
    are set free until the plan is optimal.
    """
    best, lead = _leaders(distances, potentials)
    order = np.argsort(lead)
    open_rows = min(len(order), 4 * len(anchors))
    while True:
        free = order[:open_rows]
        fixed = order[open_rows:]
        room = anchors - np.bincount(best[fixed], weights=rows[fixed], minlength=len(anchors))
        if room.min() >= 0 or open_rows == len(order):
            solution = _fixed_and_free(distances, rows, anchors, best, fixed, free, np.maximum(room, 0.0))
            if solution.cost - solution.lower <= 1e-11 * max(solution.cost, 1e-300) or open_rows == len(order):
                return solution
        open_rows = min(2 * open_rows, len(order))


def _leaders(distances: DistanceRows, potentials: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
    """The anchor of least reduced cost of each row, and by how much it leads the second."""
    N, n = distances.shape
    best, lead = np.zeros(N, dtype=np.intp), np.full(N, np.inf)
    for rows, chunk in distances.chunks():
        reduced = chunk + potentials
        best[rows] = reduced.argmin(axis=1)
        if n > 1:
            two = np.partition(reduced, 1, axis=1)
            lead[rows] = two[:, 1] - two[:, 0]
    return best, lead


def _fixed_and_free(
    distances: DistanceRows,
    rows: FloatArray,
    anchors: FloatArray,
    best: NDArray[np.intp],
    fixed: NDArray[np.intp],
    free: NDArray[np.intp],
    room: FloatArray,
) -> TransportSolution:
    plan, potentials = _simplex(np.ascontiguousarray(distances.at(free)), rows[free], room)
    r, c = np.nonzero(plan)
    data = np.concatenate([plan[r, c], rows[fixed]])
    whole = csr_array(
        (data, (np.concatenate([free[r], fixed]), np.concatenate([c, best[fixed]]))), shape=distances.shape
    )
    return _with_bounds(distances, rows, anchors, whole, potentials)


def _with_bounds(
    distances: DistanceRows, rows: FloatArray, anchors: FloatArray, plan: csr_array, potentials: FloatArray
) -> TransportSolution:
    moved, nearest = np.empty(plan.nnz), np.empty(len(rows))
    for part, chunk in distances.chunks():
        ptr = plan.indptr[part.start : part.stop + 1]
        row = np.repeat(np.arange(len(chunk)), np.diff(ptr))
        moved[ptr[0] : ptr[-1]] = chunk[row, plan.indices[ptr[0] : ptr[-1]]]
        nearest[part] = (chunk + potentials).min(axis=1)
    lower = float(rows @ nearest - anchors @ potentials)
    return TransportSolution(float(plan.data @ moved), lower, plan, potentials)
