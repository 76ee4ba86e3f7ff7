"""Plain optimal transport between the feature marginal and the anchors: the feature part of the minimal radius."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ExtensionFileLoader
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_array

from surefoot._validation import FloatArray
from surefoot.dual.adversary import LabelTable
from surefoot.dual.models import DualPoint, NoLosses
from surefoot.dual.objective import SmoothedDual
from surefoot.problem.distances import DistanceRows, HeldDistances, row_chunks
from surefoot.problem.rows import fingerprints
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.newton import NewtonOptions, PathPoint, follow_path

# The network simplex of POT, without the array libraries that POT imports.

_BACKENDS = ("PYTORCH", "JAX", "TENSORFLOW", "CUPY")
_lock = Lock()


def network_simplex() -> Callable[..., Any]:
    """Return `ot.emd`, from POT itself if POT has been imported."""
    with _lock:
        return _emd()


@cache
def _emd() -> Callable[..., Any]:
    if "ot" in sys.modules:
        import ot

        return ot.emd
    with _without_backends():
        import ot

        emd = ot.emd
    for name in [name for name in list(sys.modules) if name == "ot" or name.startswith("ot.")]:
        # a compiled module cannot be loaded twice, so a later import of POT shares this one
        if not isinstance(getattr(sys.modules[name].__spec__, "loader", None), ExtensionFileLoader):
            del sys.modules[name]
    return emd


@contextmanager
def _without_backends() -> Iterator[None]:
    names = [f"POT_BACKEND_DISABLE_{backend}" for backend in _BACKENDS]
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# Rows at equal distances from all anchors are merged if at most half of the rows are distinct. Ties between few
# distinct points make the network simplex cycle.


@dataclass(frozen=True, eq=False)
class EqualRows:
    """Rows (N,) with their weights, grouped by equality into distinct rows (D,).

    member_of : (N,) the distinct row of each row; first : (D,) the first row of each group.
    """

    weights: FloatArray
    member_of: NDArray[np.intp]
    first: NDArray[np.intp]

    @classmethod
    def from_table(cls, table: FloatArray, weights: FloatArray) -> EqualRows | None:
        """Group the equal rows of a table (N, n). Return None if too few rows are equal."""
        parts = list(row_chunks(*table.shape))
        marks = np.concatenate([fingerprints(table[part]) for part in parts])
        _, first, member_of = np.unique(marks, return_index=True, return_inverse=True)
        if 2 * len(first) > len(marks):
            return None
        if any((table[part] != table[first[member_of[part]]]).any() for part in parts):
            return None  # two different rows have the same fingerprint by chance
        return cls(weights, member_of, first)

    @property
    def distinct_weights(self) -> FloatArray:
        """(D,) the total weight of each group of equal rows."""
        return np.asarray(np.bincount(self.member_of, self.weights, len(self.first)), dtype=np.float64)

    def spread(self, plan: csr_array) -> csr_array:
        """Return the plan (N, n) of all rows from the plan of the distinct rows (D, n).

        Equal rows fill the anchors of their group one after another, so few rows are split.
        """
        entries = np.diff(plan.indptr)
        alone = np.flatnonzero((entries[self.member_of] == 1) & (self.weights > 0))
        at, to = [alone], [plan.indices[plan.indptr[self.member_of[alone]]]]
        mass = [self.weights[alone]]
        order = np.argsort(self.member_of, kind="stable")
        ends = np.cumsum(np.bincount(self.member_of, minlength=len(self.first)))
        for d in np.flatnonzero(entries > 1):
            rows, cells = order[ends[d - 1] if d else 0 : ends[d]], slice(plan.indptr[d], plan.indptr[d + 1])
            row, cell, size = _north_west(self.weights[rows], plan.data[cells])
            at.append(rows[row])
            to.append(plan.indices[cells][cell])
            mass.append(size)
        shape = (len(self.member_of), plan.shape[1])
        return csr_array((np.concatenate(mass), (np.concatenate(at), np.concatenate(to))), shape=shape)


def _north_west(rows: FloatArray, columns: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
    """Return row, column and mass of the entries of a plan with these marginals. Rows fill the columns in turn."""
    below, right = np.cumsum(rows), np.cumsum(columns)
    right *= below[-1] / right[-1]
    right[-1] = below[-1]
    cuts = np.union1d(below, right)
    sizes = np.diff(cuts, prepend=0.0)
    cuts, sizes = cuts[sizes > 0], sizes[sizes > 0]
    middle = cuts - 0.5 * sizes
    return np.searchsorted(below, middle), np.searchsorted(right, middle), sizes


# Transport over few pairs of rows and anchors: the network simplex, which adds pairs until none is missing.

# Initial numbers of nearest anchors per row, and of nearest rows per anchor in units of N / n; pairs added per row in
# each round.
_NEAREST_ANCHORS, _NEAREST_ROWS, _ADDED = 6, 2, 12
# The method gives up after this many rounds. Each round except the last few brings the bounds much closer.
_MOST_ROUNDS = 60
# The bounds agree if they differ by at most this share of the cost. A pair counts as missing only if it gains more than
# this share of the largest distance.
_AGREE, _ROUNDING = 1e-12, 1e-15


def transport_over_pairs(
    distances: DistanceRows, rows: FloatArray, anchors: FloatArray, max_steps: int
) -> tuple[csr_array, FloatArray] | None:
    """Find a plan (N, n) and potentials (n,), exact to rounding. Return None if the simplex exceeds `max_steps` pivots.

    All rows and anchors must have positive weight.
    """
    emd, (N, n) = network_simplex(), distances.shape
    anchors = anchors * (rows.sum() / anchors.sum())
    pairs, largest = _first_pairs(distances, rows, anchors)
    # the simplex uses absolute tolerances, so the largest distance must be near 1; powers of two lose no digits
    exponent = int(np.frexp(largest)[1])
    for _ in range(_MOST_ROUNDS):
        row, anchor = pairs // n, pairs % n
        cost = np.ldexp(_lengths(distances, row, anchor), -exponent)
        plan, log = emd(rows, anchors, coo_matrix((cost, (row, anchor)), shape=(N, n)), numItermax=max_steps, log=True)
        if log["warning"] is not None:
            return None
        potentials = -np.ldexp(log["v"], exponent)
        near, reduced = _nearest(distances, potentials, min(_ADDED, n))
        lower = float(rows @ reduced[:, 0] - anchors @ potentials)
        spent = float(np.ldexp(log["cost"], exponent))
        missing = reduced < np.ldexp(log["u"], exponent)[:, None] - _ROUNDING * largest
        more = (np.arange(N)[:, None] * n + near)[missing]
        more = more[pairs[np.searchsorted(pairs, more).clip(max=len(pairs) - 1)] != more]
        if spent - lower <= _AGREE * spent or len(more) == 0:
            return csr_array(plan), potentials
        pairs = np.sort(np.concatenate([pairs, more]))
    return None


def _first_pairs(distances: DistanceRows, rows: FloatArray, anchors: FloatArray) -> tuple[NDArray[np.int64], float]:
    """Return sorted indices j·n + i of near pairs and of the pairs of a feasible plan, and the largest distance."""
    from surefoot.kernels.compiled import nearest_rows

    N, n = distances.shape
    count = min(N, -(-_NEAREST_ROWS * N // n))
    near, lengths = np.zeros((n, count), dtype=np.int64), np.full((n, count), np.inf)
    largest = 0.0
    for part, chunk in distances.chunks():
        nearest_rows(chunk, part.start, near, lengths)
        largest = max(largest, float(chunk.max()))
    of_rows, _ = _nearest(distances, np.zeros(n), min(_NEAREST_ANCHORS, n))
    by_row = (np.arange(N)[:, None] * n + of_rows).ravel()
    by_anchor = (near * n + np.arange(n)[:, None]).ravel()
    pairs = np.sort(np.concatenate([by_row, by_anchor, _pairs_of_a_plan(rows, anchors)]))
    return pairs[np.diff(pairs, prepend=-1) > 0], largest


def _pairs_of_a_plan(rows: FloatArray, anchors: FloatArray) -> NDArray[np.int64]:
    """Return the pairs of the plan that fills one anchor after another. They ensure that a plan exists."""
    row = anchor = 0
    left, room = float(rows[0]), float(anchors[0])
    found = []
    while True:
        found.append(row * len(anchors) + anchor)
        moved = min(left, room)
        left, room = left - moved, room - moved
        if left <= room and row + 1 < len(rows):
            row, left = row + 1, float(rows[row + 1])
        elif anchor + 1 < len(anchors):
            anchor, room = anchor + 1, float(anchors[anchor + 1])
        elif row + 1 < len(rows):
            row, left = row + 1, float(rows[row + 1])
        else:
            return np.array(found, dtype=np.int64)


def _nearest(distances: DistanceRows, potentials: FloatArray, count: int) -> tuple[NDArray[np.int64], FloatArray]:
    """Return, for each row, the anchors (N, count) of least d_ji + b_i, and these values."""
    from surefoot.kernels.compiled import nearest_anchors

    N = distances.shape[0]
    anchors, values = np.zeros((N, count), dtype=np.int64), np.full((N, count), np.inf)
    for part, chunk in distances.chunks():
        nearest_anchors(chunk, potentials, anchors[part], values[part])
    return anchors, values


def _lengths(distances: DistanceRows, row: NDArray[np.int64], anchor: NDArray[np.int64]) -> FloatArray:
    """Return the distances of pairs, in the order of their rows."""
    found = np.empty(len(row))
    for part, chunk in distances.chunks():
        inside = slice(*np.searchsorted(row, [part.start, part.stop]))
        found[inside] = chunk[row[inside] - part.start, anchor[inside]]
    return found


# With at most this many entries, or rows per anchor, the network simplex is faster without Newton's method.
_SIMPLEX_ENTRIES, _SIMPLEX_ROWS = 1_500_000, 30
# From this many entries on, with many rows per anchor, equal rows are merged.
_MERGE_ENTRIES = 100_000
# From this many entries on, the network simplex works on few pairs at a time.
_PAIRS_ENTRIES = 8_000_000
# Largest error of Newton's potentials due to smoothing, in units of the mean distance.
_SMOOTHING = 1e-4
# Pivots of the network simplex before it restarts with the rows in another order, and the number of attempts.
_FEWEST_STEPS, _ATTEMPTS = 300_000, 4


@dataclass(frozen=True)
class TransportSolution:
    """W_d between rows and anchors: a plan, the potentials that prove optimality, and both bounds.

    Attributes
    ----------
    cost : float, cost of the plan, an upper bound on W_d.
    lower : float, value of the dual at the potentials.
    plan : sparse (N, n), marginals row_weights and anchor_weights.
    potentials : (n,) b with W_d ≥ Σ_j m_j min_i (d_ji + b_i) − Σ_i w_i b_i.
    """

    cost: float
    lower: float
    plan: csr_array
    potentials: FloatArray

    def adversary(self, ds: DecisionSet, relabel: FloatArray, cost: float) -> LabelTable:
        """Return labels (N, K) of the plan, with the share relabel (K, K), [k, c], of class c changed to label k."""
        by_class = np.zeros((self.plan.shape[0], ds.n_classes))
        entries = self.plan.tocoo()
        np.add.at(by_class, (entries.row, ds.anchor_labels[entries.col]), entries.data)
        total = by_class.sum(axis=1, keepdims=True)
        by_class = np.where(total > 0, by_class / np.where(total > 0, total, 1.0), ds.label_frequencies)
        return LabelTable(by_class @ relabel.T, cost)


def solve_transport(distances: FloatArray, row_weights: FloatArray, anchor_weights: FloatArray) -> TransportSolution:
    """Solve transport (N, n) exactly. N may be much larger than n.

    Equal rows are moved as one. Large problems are solved by smoothed Newton in the n potentials alone. Each row with a
    clear best anchor is then fixed to that anchor, and the network simplex solves the rest. The result is a vertex,
    exact to rounding, at a fraction of the cost of the simplex alone.
    """
    N, n = distances.shape
    equal = (
        EqualRows.from_table(distances, row_weights)
        if distances.size > _MERGE_ENTRIES and N / n > _SIMPLEX_ROWS
        else None
    )
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
    """Return True if there are many (N, n) distances and few rows per anchor."""
    N, n = shape
    return N * n > _PAIRS_ENTRIES and N / n <= _SIMPLEX_ROWS


def transport_by_pairs(distances: DistanceRows, rows: FloatArray, anchors: FloatArray) -> TransportSolution | None:
    """Solve transport exactly with few pairs of rows and anchors at a time. Return None if slower or if it fails.

    This is faster for many pairs with few rows per anchor. All rows and anchors must have positive weight.
    """
    if not pairs_pay(distances.shape) or rows.min() <= 0 or anchors.min() <= 0:
        return None
    found = transport_over_pairs(distances, rows, anchors, _steps(distances.shape))
    return None if found is None else _with_bounds(distances, rows, anchors, *found)


def _steps(shape: tuple[int, ...]) -> int:
    return max(_FEWEST_STEPS, 300 * sum(shape))


def _simplex(distances: FloatArray, rows: FloatArray, anchors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute a plan (N, n) and potentials (n,) by the network simplex.

    On degenerate problems the simplex may cycle. Another order of the rows leads to different pivots.
    """
    emd = network_simplex()
    anchors = anchors * (rows.sum() / anchors.sum())
    # absolute tolerances require a largest distance near 1; powers of two lose no digits
    exponent = int(np.frexp(distances.max())[1])
    if 0 <= exponent <= 2:
        exponent = 0  # 1/2 to 4 is close enough to 1, and avoids a copy
    else:
        distances = np.ldexp(distances, -exponent)
    rng, back = np.random.default_rng(0), None  # back: the index of each row in the problem
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
    """Solve transport exactly from nearly optimal potentials (n,).

    Rows whose best anchor leads by the widest margins are fixed to that anchor, and the simplex solves the rest. More
    rows are then freed until the plan is optimal.
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
    """Return the anchor of least reduced cost of each row, and its lead over the second-best anchor."""
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
    plan, potentials = _simplex(np.ascontiguousarray(distances.distances_at(free)), rows[free], room)
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
