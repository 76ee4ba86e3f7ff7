"""Displays: a certificate, certified likelihood and confidence along the radius, and labels of the worst case."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._validation import check_finite_array, check_labeled_rows, encode_labels
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.fresh import FreshCertificate
from surefoot.estimators.curves import RadiusCurve, radius_curve
from surefoot.problem.losses import LOG_LOSS, loss_matrix_from_proba
from surefoot.problem.rows import Unlabeled, unwrap

# What every display shares: axes that are made when none are given, and colours.

# Okabe and Ito's colours, told apart by readers who do not see all hues
BLUE, ORANGE, GREEN, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"


class Display:
    """Axes that are made when none are given."""

    ax_: Any
    figure_: Any

    def _axes(self, ax: Any, size: tuple[float, float]) -> Any:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError('surefoot.plots needs matplotlib. Run: pip install "surefoot[plots]"') from error
        if ax is None:
            _, ax = plt.subplots(figsize=size, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


# The parts of a certificate, beside what was true.


class CertificateDisplay(Display):
    """A certificate as one bar: the loss on the labeled rows, the part of the adversary, and the sampling term.

    Parameters
    ----------
    certificate : Certificate
        The certificate to draw.
    training : float or None, default=None
        Mean loss on the labeled rows.
    fresh : FreshCertificate or None, default=None
        The same on fresh rows: its mean and sampling error are drawn as a second bar.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, once drawn.
    figure_ : matplotlib Figure
        Their figure.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import surefoot as sf
    >>> from surefoot.plots import CertificateDisplay
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.5], [0.9]]
    >>> clf = sf.RobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5]).fit(X, y, X_unlabeled=U)
    >>> display = CertificateDisplay.from_estimator(clf, X, y)
    >>> display.ax_.get_xlabel()
    'expected log_loss'
    """

    def __init__(
        self, certificate: Certificate, *, training: float | None = None, fresh: FreshCertificate | None = None
    ) -> None:
        self.certificate = certificate
        self.training = training
        self.fresh = fresh

    @classmethod
    def from_certificate(
        cls,
        certificate: Certificate,
        *,
        training: float | None = None,
        fresh: FreshCertificate | None = None,
        ax: Any = None,
    ) -> CertificateDisplay:
        """Draw a certificate that is already there.

        Parameters
        ----------
        certificate : Certificate
            The certificate to draw.
        training : float or None, default=None
            Mean loss on the labeled rows.
        fresh : FreshCertificate or None, default=None
            The same on fresh rows, drawn as a second bar.
        ax : matplotlib Axes or None, default=None
            Axes to plot on. None creates a new figure.

        Returns
        -------
        CertificateDisplay
            The plotted display.
        """
        return cls(certificate, training=training, fresh=fresh).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, fresh: FreshCertificate | None = None, ax: Any = None
    ) -> CertificateDisplay:
        """Draw the certificate of a fitted estimator, with its mean loss on the labeled rows.

        Parameters
        ----------
        estimator : fitted classifier with `certificate_`
            Whose certificate to draw.
        X : array of shape (n, d)
            Its labeled rows.
        y : array of shape (n,)
            Their labels.
        fresh : FreshCertificate or None, default=None
            The same on fresh rows, drawn as a second bar.
        ax : matplotlib Axes or None, default=None
            Axes to plot on. None creates a new figure.

        Returns
        -------
        CertificateDisplay
            The plotted display.
        """
        rows, labels = check_labeled_rows(X, y)
        codes = encode_labels(labels, estimator.classes_)[1]
        losses = loss_matrix_from_proba(estimator.predict_proba(rows), LOG_LOSS)
        training = float(losses[np.arange(len(codes)), codes].mean())
        return cls(estimator.certificate_, training=training, fresh=fresh).plot(ax=ax)

    def plot(self, ax: Any = None) -> CertificateDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to plot on. None creates a new figure.

        Returns
        -------
        CertificateDisplay
            The display itself.
        """
        certificate, fresh = self.certificate, self.fresh
        rows = 1 + (fresh is not None)
        ax = self._axes(ax, (7.0, 1.5 + 0.7 * rows))
        base = 0.0 if self.training is None else min(self.training, certificate.lower)
        parts = [("on the labeled rows", base, GREEN)] if base > 0 else []
        forced = "added by the adversary" if base > 0 else "forced by the adversary"
        parts += [(forced, certificate.lower - base, BLUE), ("gap", certificate.gap, ORANGE)]
        self._bar(ax, 0, parts, f"at most {certificate.risk:.4g}")
        names = ["rows of the fit"]
        if fresh is not None:
            names.append(f"{fresh.n_rows} fresh rows")
            bars = [
                ("dual value", fresh.mean, GREY),
                (f"sampling error, {fresh.level:.0%}", fresh.sampling_error, PINK),
            ]
            end = f"at most {fresh.risk:.4g}" if fresh.guarantee else "rows reused: no guarantee"
            self._bar(ax, 1, bars, end)
        ax.set_yticks(range(rows), names)
        ax.invert_yaxis()
        ax.margins(x=0.18)
        ax.set_xlim(left=min(0.0, 0.0 if fresh is None else fresh.mean))
        ax.set(xlabel=f"expected {certificate.loss}")
        ax.spines[["top", "right"]].set_visible(False)
        handles = {text: handle for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}
        ax.legend(
            handles.values(), handles.keys(), frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0),
            fontsize="small",
        )  # fmt: skip
        return self

    def _bar(self, ax: Any, row: int, parts: list[tuple[str, float, str]], end: str) -> None:
        left = 0.0
        for name, width, colour in parts:
            if not np.isfinite(width):
                ax.annotate(f"{name}: infinite", (left, row), xytext=(5, 0), textcoords="offset points", va="center")
                return
            ax.barh(row, width, left=left, height=0.55, color=colour, label=name)
            left += width
        ax.annotate(end, (left, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize="small")


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
            Its parameters are used, except the radius. The estimator is not changed.
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
            Axes to plot on. None creates a new figure.
        **keywords : Any
            Passed on to `plot`.

        Returns
        -------
        RadiusCurveDisplay
            The plotted display.
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
            Axes to plot on. None creates a new figure.
        **keywords : Any
            Passed on to `plot`.

        Returns
        -------
        RadiusCurveDisplay
            The plotted display.
        """
        return cls(curve, chosen=chosen).plot(ax=ax, **keywords)

    def plot(self, ax: Any = None, *, excess: bool = True, threshold: float | None = 0.7) -> RadiusCurveDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to plot on. None creates a new figure.
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


class WorstCaseDisplay(Display):
    """The adversary's label probabilities against the model's, row by row.

    Parameters
    ----------
    model_proba : array of shape (N,)
        The model's probability of one class at each row.
    adversary_proba : array of shape (N,)
        The adversary's probability of that class.
    n_labeled : int, default=0
        Rows at the front that are labeled.
    class_name : str, default="1"
        Name of the class.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes, once drawn.
    figure_ : matplotlib Figure
        Their figure.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import surefoot as sf
    >>> from surefoot.plots import WorstCaseDisplay
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.5], [0.9]]
    >>> clf = sf.RobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5]).fit(X, y, X_unlabeled=U)
    >>> display = WorstCaseDisplay.from_estimator(clf, X, X_unlabeled=U)
    >>> display.ax_.get_xlabel()
    "model's probability of '1'"
    """

    def __init__(
        self, model_proba: ArrayLike, adversary_proba: ArrayLike, *, n_labeled: int = 0, class_name: str = "1"
    ) -> None:
        self.model_proba = check_finite_array(model_proba, "model_proba", ndim=1)
        self.adversary_proba = check_finite_array(adversary_proba, "adversary_proba", ndim=1)
        if self.model_proba.shape != self.adversary_proba.shape:
            raise ParameterError(
                "model_proba",
                "and adversary_proba must have one entry per row each",
                f"shapes {self.model_proba.shape} and {self.adversary_proba.shape}",
                "Pass the same rows.",
            )
        self.n_labeled = n_labeled
        self.class_name = class_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        X_unlabeled: ArrayLike | Unlabeled | None = None,
        certificate: Certificate | None = None,
        label: Any = None,
        ax: Any = None,
        **keywords: Any,
    ) -> WorstCaseDisplay:
        """Compare a classifier's predict_proba with the adversary of its certificate, at the rows of the fit.

        Parameters
        ----------
        estimator : fitted classifier
            With `predict_proba`, and with `certificate_` where no certificate is given.
        X : array of shape (n, d)
            Labeled rows of the certificate.
        X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
            Its unlabeled rows.
        certificate : Certificate or None, default=None
            By default the estimator's own.
        label : a class or None, default=None
            The class shown; by default the last one.
        ax : matplotlib Axes or None, default=None
            Axes to plot on. None creates a new figure.
        **keywords : Any
            Passed on to `plot`.

        Returns
        -------
        WorstCaseDisplay
            The plotted display.
        """
        found = certificate if certificate is not None else getattr(estimator, "certificate_", None)
        if found is None or found.worst_case is None:
            raise ParameterError(
                "certificate",
                "must hold the adversary's labels",
                "none",
                "Pass certificate=certify(...), or a fitted RobustLogisticRegression.",
            )
        parts = [X] if X_unlabeled is None else [X, unwrap(X_unlabeled)[0]]
        proba = np.vstack([estimator.predict_proba(part) for part in parts])
        adversary = found.worst_case.label_proba
        if len(proba) != len(adversary):
            raise ParameterError(
                "X",
                f"and X_unlabeled must be the rows of the certificate, {len(adversary)} in all",
                len(proba),
                "Pass the same rows, in the same order.",
            )
        classes = np.asarray(estimator.classes_)
        column = len(classes) - 1 if label is None else int(encode_labels([label], classes)[1][0])
        display = cls(
            proba[:, column], adversary[:, column], n_labeled=len(np.asarray(X)), class_name=str(classes[column])
        )
        return display.plot(ax=ax, **keywords)

    def plot(self, ax: Any = None) -> WorstCaseDisplay:
        """Draw: rows on the diagonal keep the model's label, rows far from it are where the adversary disagrees.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to plot on. None creates a new figure.

        Returns
        -------
        WorstCaseDisplay
            The display itself.
        """
        ax, front = self._axes(ax, (5.0, 4.6)), slice(None, self.n_labeled)
        rest = slice(self.n_labeled, None)
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--", zorder=1)
        ax.scatter(
            self.model_proba[rest], self.adversary_proba[rest], s=14, color=BLUE, alpha=0.45, linewidths=0,
            label="unlabeled rows", zorder=2,
        )  # fmt: skip
        if self.n_labeled:
            ax.scatter(
                self.model_proba[front], self.adversary_proba[front], s=36, facecolors="none", edgecolors=ORANGE,
                linewidths=1.4, label="labeled rows", zorder=3,
            )  # fmt: skip
            ax.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1.0), fontsize="small")
        ax.set(
            xlabel=f"model's probability of {self.class_name!r}",
            ylabel=f"adversary's probability of {self.class_name!r}",
            xlim=(-0.03, 1.03),
            ylim=(-0.03, 1.03),
        )
        ax.set_aspect("equal")
        return self
