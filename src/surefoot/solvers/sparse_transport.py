"""Transport over few pairs of rows and anchors: the network simplex, with more pairs until none is missing.

An optimal plan uses fewer than N + n pairs. The simplex is given near ones only; its potentials then tell of every
other pair whether it would lower the cost. Nothing as large as the distances is held beside them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_array

from surefoot._types import FloatArray
from surefoot.problem.distances import DistanceRows
from surefoot.solvers.network_simplex import network_simplex

# Nearest anchors of each row, and rows of each anchor in units of N / n, to begin with; pairs added per row and round.
_NEAREST_ANCHORS, _NEAREST_ROWS, _ADDED = 6, 2, 12
# Rounds after which it gives up: each but the last few brings the bounds much closer.
_MOST_ROUNDS = 60
# The bounds agree where they differ by no more than this share of the cost; pairs that gain less than this share of
# the largest distance are not missing.
_AGREE, _ROUNDING = 1e-12, 1e-15


def transport_over_pairs(
    distances: DistanceRows, rows: FloatArray, anchors: FloatArray, max_steps: int
) -> tuple[csr_array, FloatArray] | None:
    """Plan (N, n) and potentials (n,), exact to rounding; None where the simplex takes more pivots than `max_steps`.

    All rows and anchors must have weight.
    """
    emd, (N, n) = network_simplex(), distances.shape
    anchors = anchors * (rows.sum() / anchors.sum())
    pairs, largest = _first_pairs(distances, rows, anchors)
    # the simplex' tolerances are absolute, so the largest distance must be near 1; powers of two lose no digits
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
    """Numbers j·n + i of near pairs and of those of some plan, in order, and the largest distance."""
    from surefoot.kernels.nearest import nearest_rows

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
    """Numbers of the pairs of the plan that fills one anchor after the other: with them there is a plan."""
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
    """Of each row the anchors (N, count) of least d_ji + b_i, and these values."""
    from surefoot.kernels.nearest import nearest_anchors

    N = distances.shape[0]
    anchors, values = np.zeros((N, count), dtype=np.int64), np.full((N, count), np.inf)
    for part, chunk in distances.chunks():
        nearest_anchors(chunk, potentials, anchors[part], values[part])
    return anchors, values


def _lengths(distances: DistanceRows, row: NDArray[np.int64], anchor: NDArray[np.int64]) -> FloatArray:
    """Distances of pairs, in the order of their rows."""
    found = np.empty(len(row))
    for part, chunk in distances.chunks():
        inside = slice(*np.searchsorted(row, [part.start, part.stop]))
        found[inside] = chunk[row[inside] - part.start, anchor[inside]]
    return found
