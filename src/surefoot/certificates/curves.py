"""`RadiusCurve`: both bounds at each radius of a grid, from few solves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._printing import PrintedTable
from surefoot._validation import FloatArray, check_finite_array, check_positive_integer, warn_about_gap
from surefoot.dual.adversary import meet
from surefoot.problem.losses import LOG_LOSS
from surefoot.solvers.search.solution import Solution

if TYPE_CHECKING:
    from surefoot.plots import RadiusCurveDisplay


# The worst case as a function of the radius: `radius_curve`.

_OF_MODELS = ("median_confidence", "max_confidence", "status", "test_score", "test_likelihood")


@dataclass(frozen=True, eq=False, repr=False)
class RadiusCurve(PrintedTable):
    """Both bounds on the worst expected loss at m radii, of one classifier or of one learned at each.

    Attributes
    ----------
    radii : array of shape (m,)
        Radii, increasing.
    risk : array of shape (m,)
        Upper bounds on the worst expected loss.
    lower : array of shape (m,)
        Lower bounds; for a fixed classifier over the ball alone they equal `risk`.
    likelihood : array of shape (m,)
        Certified likelihoods, exp(−risk).
    minimal_radius : float
        The smallest radius at which the decision set is not empty; 0 for the ball alone.
    loss : str
        Name of the loss.
    ball : bool
        Whether the features were free to move.
    median_confidence : array of shape (m,) or None
        Median over all rows of the largest class probability. None for a fixed classifier, as are the fields below.
    max_confidence : array of shape (m,) or None
        Largest over all rows of the largest class probability.
    coef : array of shape (m, 1, d), or (m, K, d) for K ≥ 3 classes, or None
        Coefficients of the learned models.
    intercept : array of shape (m, 1), or (m, K), or None
        Their intercepts.
    status : list of m str, or None
        How the solver ended.
    test_score : array of shape (m,) or None
        Accuracy on the test rows, where given.
    test_likelihood : array of shape (m,) or None
        Likelihood exp(−log loss) on the test rows, where given.
    """

    radii: FloatArray
    minimal_radius: float
    risk: FloatArray
    lower: FloatArray
    loss: str = LOG_LOSS
    ball: bool = False
    median_confidence: FloatArray | None = None
    max_confidence: FloatArray | None = None
    coef: FloatArray | None = None
    intercept: FloatArray | None = None
    status: list[str] | None = None
    test_score: FloatArray | None = None
    test_likelihood: FloatArray | None = None

    @property
    def likelihood(self) -> FloatArray:
        """Certified likelihoods (m,), exp(−risk)."""
        return np.exp(-self.risk)

    def __len__(self) -> int:
        return len(self.radii)

    def plot(self, *, ax: Any = None) -> RadiusCurveDisplay:
        """Draw certified likelihood and confidence along the radius.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        plots.RadiusCurveDisplay
            The display, drawn.
        """
        from surefoot.plots import RadiusCurveDisplay

        return RadiusCurveDisplay.from_curve(self, ax=ax)

    def to_frame(self) -> Any:
        """The curve as a table.

        Returns
        -------
        pandas.DataFrame
            One row per radius, coefficients left out.
        """
        import pandas as pd

        return pd.DataFrame(self._columns())

    def _columns(self) -> dict[str, Any]:
        names = ["risk", "lower", *(["likelihood"] if self.loss == LOG_LOSS else [])]
        names += [name for name in _OF_MODELS if getattr(self, name) is not None]
        return {"radius": self.radii} | {name: getattr(self, name) for name in names}


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
