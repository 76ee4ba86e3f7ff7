"""Logistic regression over a Wasserstein ball, the baseline of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from surefoot._errors import ParameterError
from surefoot._validation import (
    FitProgress,
    FloatArray,
    check_finite_array,
    check_labeled_rows,
    check_positive_integer,
    check_positive_scalar,
    check_weights,
    encode_labels,
    with_callbacks,
)
from surefoot.certificates.certificate import Certificate
from surefoot.costs.learned import resolve_metric
from surefoot.costs.metrics import Chebyshev, Euclidean, FeatureMetric, Mahalanobis, Manhattan
from surefoot.estimators.base import LinearClassifier, check_labeled, warn_about
from surefoot.problem.losses import LOG_LOSS
from surefoot.solvers.ball import BallSolution, ball_worst_case, solve_ball


class WassersteinLogisticRegression(LinearClassifier):
    """Minimize the worst expected log loss over a Wasserstein ball (Shafieezadeh-Abadeh, Esfahani and Kuhn, 2015).

        min_θ  max_{μ : W_c(μ, P̂_l) ≤ radius}  E_μ[log(1 + exp(−y(⟨θ, x⟩ + b)))]

    The classifier is binary. The adversary may move the features anywhere. This is the paper's baseline, which uses no
    unlabeled rows.

    Parameters
    ----------
    radius : float, default=0.1
        Radius of the ball, ≥ 0. A radius of 0 gives plain logistic regression.
    label_cost : float, default=1.0
        Cost κ > 0 of changing a label. Infinity forbids label changes.
    metric : "euclidean", "manhattan", "chebyshev" or a Mahalanobis metric, default="euclidean"
        Distance d between rows.
    tol : float, default=1e-8
        Certified gap to reach, absolute, in units of the loss. The default is smaller than in other estimators because
        the method converges quadratically, so the last digits cost one or two steps.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    max_iter : int, default=200
        Maximum number of Newton steps.

    Attributes
    ----------
    coef_ : array of shape (1, d)
        Coefficients in the units of the features passed.
    intercept_ : array of shape (1,)
        The intercept, zero if `fit_intercept=False`.
    certificate_ : Certificate
        Upper and lower bound on the worst expected loss.
    radius_ : float
        Radius of the ball.
    classes_ : array of shape (2,)
        Classes in sorted order.
    n_iter_ : int
        Number of Newton steps.
    solution_ : BallSolution
        The result of the solver, with the dual point that proves the lower bound.

    Examples
    --------
    >>> import surefoot as sf
    >>> ball = sf.WassersteinLogisticRegression(radius=0.1).fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
    >>> ball.certificate_.status
    'optimal'
    >>> bool(ball.worst_case_risk([0.2])[0] > ball.certificate_.risk)
    True
    """

    def __init__(
        self,
        radius: float = 0.1,
        label_cost: float = 1.0,
        metric: FeatureMetric | str = "euclidean",
        tol: float = 1e-8,
        *,
        fit_intercept: bool = True,
        max_iter: int = 200,
    ) -> None:
        self.radius = radius
        self.label_cost = label_cost
        self.metric = metric
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter

    @with_callbacks
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> WassersteinLogisticRegression:
        """Fit the classifier to labeled rows of two classes.

        Parameters
        ----------
        X : array of shape (n, d)
            Labeled rows.
        y : array of shape (n,)
            Their labels.
        sample_weight : array of shape (n,) or None, default=None
            Number of times each labeled row counts. None: once each.

        Returns
        -------
        WassersteinLogisticRegression
            The estimator itself, fitted.
        """
        progress = FitProgress(self)
        radius = check_positive_scalar(self.radius, "radius", allow_zero=True)
        tol, max_iter = check_positive_scalar(self.tol, "tol"), check_positive_integer(self.max_iter, "max_iter")
        label_cost = check_positive_scalar(self.label_cost, "label_cost", allow_infinity=True)
        rows, codes, weights = check_labeled(self, X, y, sample_weight, None)
        if len(self.classes_) > 2:
            raise ParameterError(
                "y",
                "must have two classes",
                len(self.classes_),
                "Only binary classification is supported. The type of the target is multiclass. Pass two classes, or "
                "use RobustLogisticRegression.",
            )
        norm, back = _dual_norm(self.metric)
        signs = np.where(codes == 1, 1.0, -1.0)
        self._ball = _FittedBall(back.forward(rows), signs, weights, label_cost, norm)
        solution = solve_ball(
            self._ball.rows,
            self._ball.signs,
            weights=weights,
            radius=radius,
            label_cost=label_cost,
            norm=norm,
            fit_intercept=self.fit_intercept,
            tol=tol,
            max_iter=max_iter,
        )
        self._keep(solution, back, radius, tol)
        progress.done()
        return self

    def _keep(self, solution: BallSolution, back: _FeatureMap, radius: float, tol: float) -> None:
        self.solution_ = solution
        self.coef_, self.intercept_ = back.coefficients(solution.coef)[None, :], np.array([solution.intercept])
        self.radius_, self.n_iter_ = radius, max(1, solution.n_iter)
        status = {"max_iter": "stopped"}.get(solution.status, solution.status)
        self.certificate_ = Certificate(
            solution.risk, solution.lower, radius, 0.0, np.array([[0.0, 1.0], [0.0, 1.0]]), LOG_LOSS, status,
            metric=resolve_metric(self.metric), label_cost=float(self.label_cost),
        )  # fmt: skip
        warn_about(status, solution.gap, tol)

    def worst_case_risk(self, radii: ArrayLike) -> FloatArray:
        """Compute the exact worst expected loss of the fitted classifier over balls of other radii.

        The balls are centered at the labeled rows of the fit and use its label cost and metric.

        Parameters
        ----------
        radii : array of shape (m,)
            Radii ≥ 0.

        Returns
        -------
        array of shape (m,)
            The worst expected log loss at each radius.
        """
        check_is_fitted(self)
        asked = check_finite_array(radii, "radii")
        if (asked < 0).any():
            raise ParameterError("radii", "must be at least 0", repr(float(asked.min())), "Pass non-negative numbers.")
        return self._ball.worst_case(self.solution_, asked)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@dataclass(frozen=True, eq=False)
class _FittedBall:
    """Data of the fit: mapped rows (n, d), labels ±1 (n,), weights (n,), label cost and the norm on θ."""

    rows: FloatArray
    signs: FloatArray
    weights: FloatArray
    label_cost: float
    norm: str

    def worst_case(self, solution: BallSolution, radii: FloatArray) -> FloatArray:
        return ball_worst_case(
            self.rows,
            self.signs,
            solution.coef,
            solution.intercept,
            weights=self.weights,
            radii=radii,
            label_cost=self.label_cost,
            norm=self.norm,
        )


def ball_risk_of(
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    radii: FloatArray,
    *,
    sample_weight: ArrayLike | None,
    label_cost: Any,
    metric: Any,
) -> FloatArray:
    """Return the exact worst expected log loss (m,) of a linear binary classifier over balls around labeled rows."""
    coef = getattr(classifier, "coef_", None)
    if coef is None or np.ndim(coef) != 2 or np.shape(coef)[0] != 1:
        raise ParameterError(
            "classifier",
            "must be linear, of two classes, with coef_ of shape (1, d) and intercept_, if ball=True",
            type(classifier).__name__,
            "Pass ball=False, or a linear classifier of two classes.",
        )
    rows, labels = check_labeled_rows(X, y)
    _, codes = encode_labels(labels, classifier.classes_)
    weights = check_weights(sample_weight, "sample_weight", len(rows))
    kappa = check_positive_scalar(label_cost, "label_cost", allow_infinity=True)
    norm, back = _dual_norm(metric)
    mapped = back.forward(rows)
    # the scores do not change: coefficients of the mapped rows satisfy coef = mapᵀ coef_mapped
    coefficients = back.inverse(np.asarray(coef, dtype=np.float64)[0])
    return ball_worst_case(
        mapped,
        np.where(codes == 1, 1.0, -1.0),
        coefficients,
        float(np.ravel(classifier.intercept_)[0]),
        weights=weights,
        radii=radii,
        label_cost=kappa,
        norm=norm,
    )


@dataclass(frozen=True)
class _FeatureMap:
    """Linear map of the features that makes a Mahalanobis metric Euclidean; the identity for other metrics."""

    metric: Mahalanobis | None = None

    def forward(self, X: FloatArray) -> FloatArray:
        # copy X, because the rows are stored and X belongs to the user
        return X.copy() if self.metric is None else self.metric.transform(X)

    def coefficients(self, coef: FloatArray) -> FloatArray:
        return coef if self.metric is None else self.metric.transform(np.eye(len(coef))) @ coef

    def inverse(self, coef: FloatArray) -> FloatArray:
        """Return the coefficients of the mapped rows that give the same scores as `coef` gives on the original rows."""
        if self.metric is None:
            return coef
        return np.asarray(np.linalg.solve(self.metric.transform(np.eye(len(coef))), coef), dtype=np.float64)


def _dual_norm(metric: FeatureMetric | str) -> tuple[str, _FeatureMap]:
    """Return the norm on θ that is dual to a feature metric, and the feature map that makes them dual."""
    resolved = resolve_metric(metric)
    if isinstance(resolved, Mahalanobis):
        return "l2", _FeatureMap(resolved)
    for kind, norm in ((Euclidean, "l2"), (Manhattan, "linf"), (Chebyshev, "l1")):
        if isinstance(resolved, kind):
            return norm, _FeatureMap()
    raise ParameterError(
        "metric",
        "must have a known dual norm: 'euclidean', 'manhattan', 'chebyshev' or Mahalanobis",
        repr(metric),
        "Use RobustLogisticRegression for other metrics.",
    )
