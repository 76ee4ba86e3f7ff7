"""`radius_curve`: a model learned at each radius, or a fixed classifier judged at each."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot.estimators.ball import WassersteinLogisticRegression
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.path.curve import RadiusCurve
from surefoot.path.judged import judged_curve
from surefoot.path.learned import learned_curve
from surefoot.unlabeled import Unlabeled


def radius_curve(
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None = None,
    radii: ArrayLike | None = None,
    n_radii: int = 16,
    refit: bool | None = None,
    sample_weight: ArrayLike | None = None,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    ball: bool = False,
    **certify_options: Any,
) -> RadiusCurve:
    """Bound the worst expected loss along the radius: learn at each one, or judge a fixed classifier at each.

    The worst case is concave in the radius, so few radii are solved, each started from the nearest one.

    Parameters
    ----------
    classifier : RobustLogisticRegression, WassersteinLogisticRegression or fitted classifier, or None with `losses`
        The model to learn, with its parameters but for the radius (it is not changed), or a fitted classifier to judge.
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        Unlabeled rows; none to learn over the ball alone.
    radii : array of shape (m,) or None, default=None
        Radii, increasing. By default n_radii of them: the minimal radius plus κ·10^−3 … κ, evenly on a log scale. A
        label is flipped at the cost κ, so that at an excess of κ the adversary may choose all labels.
    n_radii : int, default=16
        How many radii, where none are given.
    refit : bool or None, default=None
        True learns a model at each radius, False judges the classifier as it is. None learns a RobustLogisticRegression
        or WassersteinLogisticRegression and judges any other classifier.
    sample_weight : array of shape (n,) or None, default=None
        How many times each labeled row counts; by default once.
    X_test : array of shape (T, d) or None, default=None
        Rows on which each learned model is scored.
    y_test : array of shape (T,) or None, default=None
        Their labels.
    ball : bool, default=False
        Judge over the Wasserstein ball alone: features may move anywhere and nothing is known of the labels. Only for
        the log loss of a linear classifier of two classes (`coef_`, `intercept_`), where it is exact; `X_unlabeled` and
        `label_prior` then play no part.
    **certify_options : Any
        To judge: `label_prior`, `loss`, `label_cost`, `metric`, `classes`, `losses`, `clip`, `n_jobs` and `compute` of
        `certify`, and `tol`, the gap to reach at every radius, 1e-6 by default.

    Returns
    -------
    RadiusCurve
        Radii, both bounds and likelihoods; of learned models their coefficients and confidence as well. Each entry
        equals a single fit or certificate at its radius, to the tolerance. Without a penalty the risk never falls.

    Examples
    --------
    >>> import surefoot as sf
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.5], [0.9]]
    >>> learned = sf.radius_curve(sf.RobustLogisticRegression(), X, y, X_unlabeled=U, radii=[0.3, 0.6])
    >>> fitted = sf.RobustLogisticRegression(radius=0.3).fit(X, y, X_unlabeled=U)
    >>> judged = sf.radius_curve(fitted, X, y, X_unlabeled=U, radii=[0.3, 0.6], refit=False)
    >>> bool(learned.risk[1] <= judged.risk[1])
    True
    """
    if refit is None:
        refit = isinstance(classifier, RobustLogisticRegression | WassersteinLogisticRegression)
    grid: dict[str, Any] = {"radii": radii, "n_radii": n_radii, "sample_weight": sample_weight}
    if not refit:
        if X_test is not None or y_test is not None:
            raise ParameterError(
                "X_test", "must be None with refit=False: it scores learned models", "rows", "Omit it."
            )
        return judged_curve(classifier, X, y, X_unlabeled=X_unlabeled, ball=ball, **grid, **certify_options)
    if ball or certify_options:
        options = [*certify_options, *(["ball"] if ball else [])]
        raise ParameterError(
            "refit",
            f"takes its settings from the {type(classifier).__name__}",
            ", ".join(options),
            "Set them on the classifier, or pass refit=False to judge it as it is.",
        )
    return learned_curve(classifier, X, y, X_unlabeled=X_unlabeled, X_test=X_test, y_test=y_test, **grid)
