"""Certified likelihood and confidence along the radius."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from surefoot.path import RadiusCurve, radius_curve
from surefoot.plots.axes import BLUE, GREEN, GREY, ORANGE, PINK, Display
from surefoot.unlabeled import Unlabeled


class RadiusCurveDisplay(Display):
    """Certified likelihood and confidence along the radius.

    Parameters
    ----------
    curve : RadiusCurve
        The curve to draw.
    chosen : float or None, default=None
        A radius to mark.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, once drawn.
    figure_ : matplotlib Figure
        Their figure.
    lines_ : dict of str to matplotlib Line2D
        The lines by name.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import surefoot as sf
    >>> from surefoot.plots import RadiusCurveDisplay
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.5], [0.9]]
    >>> clf = sf.RobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5]).fit(X, y, X_unlabeled=U)
    >>> display = RadiusCurveDisplay.from_estimator(clf, X, y, X_unlabeled=U, radii=[0.3, 0.6])
    >>> display.ax_.get_xlabel()
    'radius beyond the minimal one, 0.14'
    """

    def __init__(self, curve: RadiusCurve, *, chosen: float | None = None) -> None:
        self.curve = curve
        self.chosen = chosen

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_unlabeled: ArrayLike | Unlabeled | None = None,
        radii: ArrayLike | None = None,
        X_test: ArrayLike | None = None,
        y_test: ArrayLike | None = None,
        ax: Any = None,
        **keywords: Any,
    ) -> RadiusCurveDisplay:
        """Compute `radius_curve` and draw it; the radius of a fitted estimator is marked.

        Parameters
        ----------
        estimator : RobustLogisticRegression or WassersteinLogisticRegression
            Its parameters are used, but for the radius; it is not changed.
        X : array of shape (n, d)
            Labeled rows.
        y : array of shape (n,)
            Their labels.
        X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
            Unlabeled rows.
        radii : array of shape (m,) or None, default=None
            Radii, increasing; by default those of `radius_curve`.
        X_test : array of shape (T, d) or None, default=None
            Rows on which each model is scored.
        y_test : array of shape (T,) or None, default=None
            Their labels.
        ax : matplotlib Axes or None, default=None
            Axes to draw on; by default those of a new figure.
        **keywords : Any
            Passed on to `plot`.

        Returns
        -------
        RadiusCurveDisplay
            The display, drawn.
        """
        curve = radius_curve(estimator, X, y, X_unlabeled=X_unlabeled, radii=radii, X_test=X_test, y_test=y_test)
        return cls(curve, chosen=getattr(estimator, "radius_", None)).plot(ax=ax, **keywords)

    @classmethod
    def from_curve(
        cls, curve: RadiusCurve, *, chosen: float | None = None, ax: Any = None, **keywords: Any
    ) -> RadiusCurveDisplay:
        """Draw a curve that is already there.

        Parameters
        ----------
        curve : RadiusCurve
            The curve to draw.
        chosen : float or None, default=None
            A radius to mark.
        ax : matplotlib Axes or None, default=None
            Axes to draw on; by default those of a new figure.
        **keywords : Any
            Passed on to `plot`.

        Returns
        -------
        RadiusCurveDisplay
            The display, drawn.
        """
        return cls(curve, chosen=chosen).plot(ax=ax, **keywords)

    def plot(self, ax: Any = None, *, excess: bool = True, threshold: float | None = 0.7) -> RadiusCurveDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; by default those of a new figure.
        excess : bool, default=True
            Whether the axis is the radius beyond the minimal one, on a log scale, or the radius itself.
        threshold : float or None, default=0.7
            A confidence to mark.

        Returns
        -------
        RadiusCurveDisplay
            The display itself.
        """
        ax, curve = self._axes(ax, (6.4, 4.2)), self.curve
        x = curve.radii - curve.minimal_radius if excess else curve.radii
        curves = [
            ("certified likelihood", curve.likelihood, BLUE, "-"),
            ("median confidence", curve.median_confidence, ORANGE, "--"),
            ("largest confidence", curve.max_confidence, PINK, ":"),
            ("test likelihood", curve.test_likelihood, GREEN, "-."),
        ]
        self.lines_ = {}
        for name, values, colour, style in curves:
            if values is not None:
                (self.lines_[name],) = ax.plot(x, values, style, color=colour, label=name, linewidth=2)
        if threshold is not None:
            ax.axhline(threshold, color=GREY, linewidth=0.8, linestyle=(0, (1, 3)))
        if self.chosen is not None:
            at = self.chosen - curve.minimal_radius if excess else self.chosen
            ax.axvline(at, color=GREY, linewidth=1.2)
            ax.annotate(
                "chosen", (at, 0.02), xycoords=("data", "axes fraction"), xytext=(4, 0), textcoords="offset points",
                color=GREY, fontsize="small",
            )  # fmt: skip
        if excess and (x > 0).all():
            ax.set_xscale("log")
        minimal = f"radius beyond the minimal one, {curve.minimal_radius:.4g}"
        ax.set(xlabel=minimal if excess else "radius", ylabel="likelihood, confidence", ylim=(None, 1.02))
        ax.legend(frameon=False)
        return self
