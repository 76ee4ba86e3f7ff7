"""Display of the rows with the labels that the adversary gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._validation import check_finite_array, encode_labels
from surefoot.certificates.certificate import Certificate
from surefoot.plots.certificate import BLUE, GREY, ORANGE, Display
from surefoot.problem.rows import Unlabeled, unwrap


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
