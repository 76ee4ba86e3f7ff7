"""The Wasserstein ball alone: our interior-point method and cvxpy with Clarabel, in one process."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from surefoot.solvers.ball import ball_worst_case, solve_ball

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from reference.ball import BallReference, ball_reference

Float = NDArray[np.float64]
Row = dict[str, Any]
TOL = 1e-6


def draw(n: int, d: int, seed: int = 0) -> tuple[Float, Float]:
    """Gaussian features and labels of a logistic model with an intercept."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    chance = 1 / (1 + np.exp(-(X @ rng.normal(size=d) * 2 / np.sqrt(d) + 0.5)))
    return X, np.where(rng.random(n) < chance, 1.0, -1.0)


def clock(work: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Median seconds of `repeat` calls, and the last result."""
    seconds, result = [], None
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return median(seconds), result


def conic(X: Float, y: Float, radius: float, norm: str) -> BallReference | None:
    """The result of the conic solver at Clarabel's default tolerances, or None if it raises."""
    import cvxpy as cp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ball_reference(X, y, radius=radius, norm=norm)
        except cp.error.SolverError:
            return None


def speed_row(n: int, d: int, radius: float, norm: str) -> Row:
    X, y = draw(n, d)
    solve_ball(X[:50], y[:50], radius=radius, norm=norm)  # imports and caches
    ours_seconds, ours = clock(lambda: solve_ball(X, y, radius=radius, norm=norm, tol=TOL), 3)
    theirs_seconds, theirs = clock(lambda: conic(X, y, radius, norm), 1)
    note = f"radius {radius:g}, {norm}, gap <= {TOL:g}, {ours.n_iter} iterations, status {ours.status}; Clarabel: "
    if theirs is None:
        note += "failed"
    else:
        at_point = ball_worst_case(X, y, theirs.coef, theirs.intercept, radii=radius, norm=norm)[0]
        note += f"{theirs.status}, its point is {at_point - ours.risk:+.1e} from ours"
    return {
        "work": f"ball, n={n}, d={d}, {norm}, radius {radius:g}",
        "ours_seconds": ours_seconds,
        "reference": "cvxpy + Clarabel",
        "reference_seconds": theirs_seconds,
        "ratio": theirs_seconds / ours_seconds,
        "gap": ours.gap,
        "note": note,
    }


def grid_row(n: int, d: int, radii: Float, norm: str) -> Row:
    """One row for a whole grid: seconds in total, and the radii at which each side fails to reach a gap of 1e-6."""
    X, y = draw(n, d, seed=1)
    ours_seconds, ours = clock(lambda: [solve_ball(X, y, radius=float(r), norm=norm, tol=TOL) for r in radii], 1)
    theirs_seconds, theirs = clock(lambda: [conic(X, y, float(r), norm) for r in radii], 1)
    failed = sum(not s.gap <= TOL for s in ours)
    theirs_failed = 0
    for r, s, t in zip(radii, ours, theirs, strict=True):
        good = t is not None and t.status == "optimal" and np.isfinite(t.coef).all()
        if not (good and ball_worst_case(X, y, t.coef, t.intercept, radii=r, norm=norm)[0] - s.lower <= 2 * TOL):
            theirs_failed += 1
    return {
        "work": f"ball, grid of {len(radii)} radii {radii[0]:g} to {radii[-1]:g}, n={n}, d={d}, {norm}",
        "ours_seconds": ours_seconds,
        "reference": "cvxpy + Clarabel",
        "reference_seconds": theirs_seconds,
        "ratio": theirs_seconds / ours_seconds,
        "gap": max(s.gap for s in ours),
        "note": f"failures: ours {failed} of {len(radii)}, Clarabel {theirs_failed} of {len(radii)}",
    }


def rows(quick: bool = False) -> list[Row]:
    """All rows; `quick` shrinks the problems to a smoke test."""
    n, d = (500, 20) if quick else (5000, 200)
    radii = np.logspace(-8, 3, 6 if quick else 40)
    with threadpool_limits(1, user_api="blas"):
        table = [speed_row(n, d, 0.01, "l2")]
        if not quick:
            table += [speed_row(n, d, 0.1, "l2"), speed_row(n, d, 0.01, "l1")]
        table.append(speed_row(100, 10, 0.01, "l2"))
        table += [grid_row(100, 10, radii, norm) for norm in (["l2"] if quick else ["l2", "linf", "l1"])]
    return table


if __name__ == "__main__":
    for row in rows(quick="--quick" in sys.argv):
        print(row)
