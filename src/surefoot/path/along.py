"""Both bounds at each radius of a grid, by as few solves as that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._convergence import warn_about_gap
from surefoot._errors import ParameterError
from surefoot._types import FloatArray
from surefoot._validation import check_finite_array, check_positive_integer
from surefoot.dual.adversary import meet
from surefoot.exact.solution import Solution


@dataclass(frozen=True)
class RadiusBound:
    """Bounds of the worst case at one radius; the upper one is that of `solution`, solved at this radius or another."""

    upper: float
    lower: float
    solution: Solution


def bound_along(grid: FloatArray, solve: Callable[..., Solution], tol: float) -> list[RadiusBound]:
    """Bounds at each radius of an increasing grid to a gap of tol, by as few solves as that takes.

    The worst case is concave in the radius: a dual point solved for at one radius bounds it from above at all others,
    by a line of slope α, and between two radii it lies above the chord of their lower bounds. So a radius is only
    solved for where line and chord are more than tol apart: the ends first, then halves of what is left, each started
    from the nearest solution.
    """
    solved: dict[int, Solution] = {}

    def at(i: int) -> RadiusBound:
        best = min(solved.values(), key=lambda s: s.risk + s.point.alpha * (grid[i] - s.decision_set.radius))
        upper = best.risk + best.point.alpha * (grid[i] - best.decision_set.radius)
        known = sorted(solved)
        lower = float(np.interp(grid[i], grid[known], [solved[k].lower for k in known]))
        return RadiusBound(upper, meet(upper, lower), best)

    def settle(i: int) -> None:
        nearest = min(solved, key=lambda k: abs(k - i), default=None)
        solved[i] = solve(float(grid[i]), warm_start=None if nearest is None else solved[nearest].checkpoint)

    def between(a: int, b: int) -> None:
        if b - a < 2 or all(at(i).upper - at(i).lower <= tol for i in range(a + 1, b)):
            return
        middle = (a + b) // 2
        settle(middle)
        between(a, middle)
        between(middle, b)

    settle(0)
    if len(grid) > 1:
        settle(len(grid) - 1)
        between(0, len(grid) - 1)
    return [at(i) for i in range(len(grid))]


def grid_of(radii: ArrayLike | None, n_radii: int, minimal: float, kappa: float) -> FloatArray:
    """Radii as they were given, checked; or so many, a thousandth of the label cost to all of it beyond the minimal."""
    if radii is None:
        return minimal + kappa * np.geomspace(1e-3, 1.0, check_positive_integer(n_radii, "n_radii"))
    grid = np.atleast_1d(check_finite_array(radii, "radii"))
    if grid.ndim != 1 or len(grid) == 0 or (grid < 0).any() or (np.diff(grid) <= 0).any():
        raise ParameterError(
            "radii",
            "must be non-negative and increasing",
            np.array2string(grid, threshold=8),
            "Pass np.sort(radii), each radius once.",
        )
    return grid


def ball_scale(label_cost: Any, X: ArrayLike) -> float:
    """The label cost; without label flips the spread of the features is the only scale of the ball."""
    if np.isfinite(label_cost):
        return float(label_cost)
    return float(np.linalg.norm(np.asarray(X, dtype=np.float64).std(axis=0))) or 1.0


def warn_about_largest_gap(gaps: Iterable[float], tol: float) -> None:
    """Say that a curve is less exact than it was asked to be."""
    warn_about_gap(max(gaps), tol, "Raise $max_iter or $tol, or leave out $radii close to the minimal one.")
