"""Plain transport of N rows to n anchors: the network simplex, and smoothed Newton with a small simplex.

    OPENBLAS_NUM_THREADS=1 python benchmarks/transport.py

Gaussian rows in 20 dimensions, of which the first n are the anchors. Both methods are exact, and the last column
compares their costs. Up to 10,000 rows the table also has POT's `emd2_lazy`, which computes distances when needed and
stores only N + n numbers. A second table has rows on a grid of 216 points, with and without moving equal rows as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import ot
from common import Array, Row, markdown_table, timed
from scipy.spatial.distance import cdist

from surefoot.solvers import transport

GAUSSIAN = ((2000, 20), (10_000, 30), (10_000, 100), (30_000, 100), (100_000, 20), (100_000, 100))
GRID, MOST_LAZY, MOST_AS_THEY_ARE = (2000, 10_000, 40_000, 200_000), 10_000, 40_000


def solve(distances: Array) -> float:
    N, n = distances.shape
    return transport.solve_transport(distances, np.full(N, 1 / N), np.full(n, 1 / n)).cost


def solve_lazily(rows: Array, anchors: Array) -> float:
    return float(ot.emd2_lazy(rows, anchors, metric="euclidean", numItermax=10**7, return_matrix=False))


def gaussian() -> Iterator[Row]:
    known = transport._SIMPLEX_ENTRIES, transport._SIMPLEX_ROWS
    for N, n in GAUSSIAN:
        rows = np.random.default_rng(0).normal(size=(N, 20))
        distances, found = cdist(rows, rows[:n]), []
        for most in (1 << 60, 0):
            transport._SIMPLEX_ENTRIES, transport._SIMPLEX_ROWS = most, 0
            solve(distances[:500])  # compiles
            found.append(timed(partial(solve, distances), 1))
        (simplex, newton), costs = (one.best for one in found), [one.result for one in found]
        row: Row = {"N": N, "n": n, "simplex, s": simplex, "Newton and simplex, s": newton, "ratio": simplex / newton}
        if N <= MOST_LAZY:
            lazy = timed(partial(solve_lazily, rows, rows[:n]), 1)
            row |= {"emd2_lazy, s": lazy.best}
            costs.append(lazy.result)
        yield row | {"costs differ by": f"{np.ptp(costs):.0e}"}
    transport._SIMPLEX_ENTRIES, transport._SIMPLEX_ROWS = known


def on_a_grid(n: int = 50) -> Iterator[Row]:
    for N in GRID:
        rows = np.random.default_rng(0).integers(0, 6, size=(N, 3)) / 5
        distances = cdist(rows, rows[:n])
        transport._MERGE_ENTRIES = 0
        merged = timed(partial(solve, distances), 1)
        row: Row = {"N, on 216 points": N, "n": n, "coinciding rows as one, s": merged.best}
        if N <= MOST_AS_THEY_ARE:
            transport._MERGE_ENTRIES = 1 << 60
            whole = timed(partial(solve, distances), 1)
            row |= {"as they are, s": whole.best, "ratio": whole.best / merged.best}
            row |= {"costs differ by": f"{abs(whole.result - merged.result):.0e}"}
        yield row


if __name__ == "__main__":
    print(markdown_table(list(gaussian())))
    print(f"\n{markdown_table(list(on_a_grid()))}")
