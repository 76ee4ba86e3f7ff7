"""Plain transport of N rows to n anchors: the network simplex alone, beside smoothed Newton with a small simplex.

    OPENBLAS_NUM_THREADS=1 python benchmarks/transport.py

Gaussian rows in 20 dimensions, anchors the first n of them. Both are exact: the last column compares their costs.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.spatial.distance import cdist

from surefoot.solvers import transport


def main() -> None:
    print("| N | n | simplex | Newton and simplex | ratio | costs differ by |\n|---|---|---|---|---|---|")
    for N, n in ((2000, 20), (10_000, 30), (10_000, 100), (30_000, 100), (100_000, 20), (100_000, 100)):
        rows = np.random.default_rng(0).normal(size=(N, 20))
        distances, found = cdist(rows, rows[:n]), []
        for most in (1 << 60, 0):
            transport._SIMPLEX_ENTRIES, transport._SIMPLEX_ROWS = most, 0
            transport.solve_transport(distances[:500], np.full(500, 1 / 500), np.full(n, 1 / n))  # compiles
            start = time.perf_counter()
            cost = transport.solve_transport(distances, np.full(N, 1 / N), np.full(n, 1 / n)).cost
            found.append((time.perf_counter() - start, cost))
        (simplex, first), (newton, second) = found
        print(f"| {N} | {n} | {simplex:.2f} s | {newton:.2f} s | {simplex / newton:.1f} | {abs(first - second):.0e} |")


if __name__ == "__main__":
    main()
