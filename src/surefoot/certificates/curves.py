"""`RadiusCurve`: both bounds at each radius of a grid, with few solves."""

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
    """Hold both bounds on the worst expected loss at m radii, of one classifier or of one learned at each radius.

    Attributes
    ----------
    radii : array of shape (m,)
        Increasing radii.
    risk : array of shape (m,)
        Upper bounds on the worst expected loss.
    lower : array of shape (m,)
        Lower bounds. For a fixed classifier over a Wasserstein ball they equal `risk`.
    likelihood : array of shape (m,)
        Certified likelihoods, exp(−risk).
    minimal_radius : float
        The smallest radius at which the decision set is not empty; 0 for a Wasserstein ball.
    loss : str
        Name of the loss.
    ball : bool
        Whether the set is a Wasserstein ball, in which features may move anywhere.
    median_confidence : array of shape (m,) or None
        Median over all rows of the largest class probability. This and the following fields are None for a fixed
        classifier.
    max_confidence : array of shape (m,) or None
        Maximum over all rows of the largest class probability.
    coef : array of shape (m, 1, d), or (m, K, d) for K ≥ 3 classes, or None
        Coefficients of the learned models.
    intercept : array of shape (m, 1), or (m, K), or None
        Intercepts of the learned models.
    status : list of m str, or None
        How the solver ended.
    test_score : array of shape (m,) or None
        Accuracy on the test rows; None without test rows.
    test_likelihood : array of shape (m,) or None
        Likelihood exp(−log loss) on the test rows; None without test rows.
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
        """Plot certified likelihood and confidence against the radius.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to plot on. None creates a new figure.

        Returns
        -------
        plots.RadiusCurveDisplay
            The plotted display.
        """
        from surefoot.plots import RadiusCurveDisplay

        return RadiusCurveDisplay.from_curve(self, ax=ax)

    def to_frame(self) -> Any:
        """Return the curve as a table.

        Returns
        -------
        pandas.DataFrame
            One row per radius, without coefficients.
        """
        import pandas as pd

        return pd.DataFrame(self._columns())

    def _columns(self) -> dict[str, Any]:
        names = ["risk", "lower", *(["likelihood"] if self.loss == LOG_LOSS else [])]
        names += [name for name in _OF_MODELS if getattr(self, name) is not None]
        return {"radius": self.radii} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class RadiusBound:
    """Bounds on the worst case at one radius. The upper bound is from `solution`, solved at this or another radius."""

    upper: float
    lower: float
    solution: Solution


def bound_along(grid: FloatArray, solve: Callable[..., Solution], tol: float) -> list[RadiusBound]:
    """Bound the worst case at each radius of an increasing grid to a gap of tol, with as few solves as possible.

    The worst case is concave in the radius. A dual point solved at one radius therefore bounds it from above at all
    other radii, by a line of slope α. Between two radii the worst case lies above the chord of their lower bounds. A
    radius is only solved if line and chord differ by more than tol: the ends first, then repeatedly the middle of what
    remains. Each solve starts from the nearest solution.
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
    """Validate the given radii, or return n_radii values from 1/1000 of the label cost to all of it above `minimal`."""
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
    """Return the label cost. Without label changes, return the spread of the features, the only scale of the ball."""
    if np.isfinite(label_cost):
        return float(label_cost)
    return float(np.linalg.norm(np.asarray(X, dtype=np.float64).std(axis=0))) or 1.0


def warn_about_largest_gap(gaps: Iterable[float], tol: float) -> None:
    """Warn if a curve did not reach its tolerance everywhere."""
    warn_about_gap(max(gaps), tol, "Raise $max_iter or $tol, or omit $radii close to the minimal radius.")
