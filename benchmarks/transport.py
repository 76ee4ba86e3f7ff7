"""Plain transport of N rows to n anchors: the network simplex alone, beside smoothed Newton with a small simplex.

    OPENBLAS_NUM_THREADS=1 python benchmarks/transport.py

Gaussian rows in 20 dimensions, anchors the first n of them. Both are exact: the last column compares their costs. Up to
10,000 rows also POT's `emd2_lazy`, which computes distances as it needs them and so holds N + n numbers only. A second
table has rows on a grid of 216 points, as they are and with coinciding rows moved as one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import ot
from common import Array
from scipy.spatial.distance import cdist

from surefoot.solvers import transport

GAUSSIAN = ((2000, 20), (10_000, 30), (10_000, 100), (30_000, 100), (100_000, 20), (100_000, 100))
GRID = (2000, 10_000, 40_000, 200_000)
MOST_LAZY, MOST_AS_THEY_ARE = 10_000, 40_000


def timed(work: Callable[..., float], *given: Any) -> tuple[float, float]:
    start = time.perf_counter()
    cost = work(*given)
    return time.perf_counter() - start, cost


def solve(distances: Array) -> float:
    N, n = distances.shape
    return transport.solve_transport(distances, np.full(N, 1 / N), np.full(n, 1 / n)).cost


def solve_lazily(rows: Array, anchors: Array) -> float:
    found = ot.emd2_lazy(rows, anchors, metric="euclidean", numItermax=10**7, return_matrix=False)
    return float(found[0] if isinstance(found, tuple) else found)


def show(*cells: Any) -> None:
    print("|", " | ".join(f"{cell:.2f} s" if isinstance(cell, float) else str(cell) for cell in cells), "|", flush=True)


def gaussian() -> None:
    show("N", "n", "simplex", "Newton and simplex", "ratio", "emd2_lazy", "costs differ by")
    show(*["---"] * 7)
    known = transport._SIMPLEX_ENTRIES, transport._SIMPLEX_ROWS
    for N, n in GAUSSIAN:
        rows = np.random.default_rng(0).normal(size=(N, 20))
        distances, found = cdist(rows, rows[:n]), []
        for most in (1 << 60, 0):
            transport._SIMPLEX_ENTRIES, transport._SIMPLEX_ROWS = most, 0
            solve(distances[:500])  # compiles
            found.append(timed(solve, distances))
        lazy = [timed(solve_lazily, rows, rows[:n])] if N <= MOST_LAZY else []
        costs = [cost for _, cost in [*found, *lazy]]
        (simplex, _), (newton, _) = found
        show(N, n, simplex, newton, f"{simplex / newton:.1f}", lazy[0][0] if lazy else "–", f"{np.ptp(costs):.0e}")
    transport._SIMPLEX_ENTRIES, transport._SIMPLEX_ROWS = known


def on_a_grid(n: int = 50) -> None:
    print()
    show("N, on 216 points", "n", "as they are", "coinciding rows as one", "ratio", "costs differ by")
    show(*["---"] * 6)
    for N in GRID:
        rows = np.random.default_rng(0).integers(0, 6, size=(N, 3)) / 5
        distances = cdist(rows, rows[:n])
        transport._MERGE_ENTRIES = 0
        merged, cost = timed(solve, distances)
        if N > MOST_AS_THEY_ARE:
            show(N, n, "–", merged, "–", "–")
            continue
        transport._MERGE_ENTRIES = 1 << 60
        whole, first = timed(solve, distances)
        show(N, n, whole, merged, f"{whole / merged:.1f}", f"{abs(first - cost):.0e}")


if __name__ == "__main__":
    gaussian()
    on_a_grid()
