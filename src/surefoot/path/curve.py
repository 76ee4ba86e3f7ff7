"""The worst case as a function of the radius: `radius_curve`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._printing import PrintedTable
from surefoot._types import FloatArray
from surefoot.losses import LOG_LOSS

if TYPE_CHECKING:
    from surefoot.plots import RadiusCurveDisplay

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
