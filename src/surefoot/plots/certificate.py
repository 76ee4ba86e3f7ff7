"""The parts of a certificate, beside what was true."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._validation import check_labeled_rows, encode_labels
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.fresh import FreshCertificate
from surefoot.losses import LOG_LOSS, loss_matrix_from_proba
from surefoot.plots.axes import BLUE, GREEN, GREY, ORANGE, PINK, Display


class CertificateDisplay(Display):
    """A certificate as one bar: what the labeled rows show, what the adversary adds, what sampling may add.

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
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        CertificateDisplay
            The display, drawn.
        """
        return cls(certificate, training=training, fresh=fresh).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, fresh: FreshCertificate | None = None, ax: Any = None
    ) -> CertificateDisplay:
        """Draw the certificate of a fitted estimator, beside its mean loss on the labeled rows.

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
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        CertificateDisplay
            The display, drawn.
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
            Axes to draw on; by default those of a new figure.

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
