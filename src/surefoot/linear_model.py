"""Scikit-learn estimators: glue between arrays and the solvers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from surefoot._callbacks import CallbackSupportMixin, FitProgress, with_callbacks
from surefoot._validation import FloatArray, check_positive_scalar
from surefoot.certificate import Certificate, WorstCase
from surefoot.costs import Chebyshev, Euclidean, FeatureMetric, Mahalanobis, Manhattan, resolve_metric
from surefoot.losses import LOG_LOSS, log_loss_matrix, probabilities
from surefoot.priors import LabelPrior
from surefoot.design_matrix import StandardizedRows
from surefoot.radius import as_robust_as_possible, encode_labels
from surefoot.sets import build_decision_set
from surefoot.solvers.ball import BallSolution, ball_worst_case, solve_ball
from surefoot.solvers.newton import NewtonOptions
from surefoot.unlabeled import Unlabeled, warn_if_cut_by_folds, warn_if_scaled_apart
from surefoot.minimal import check_radius, solve_minimal_radius
from surefoot.worst_case import CertifiedSolution, solve_certified


class _LinearClassifier(ClassifierMixin, CallbackSupportMixin, BaseEstimator):
    """Prediction with coef_ and intercept_: one row of coefficients for two classes, K rows for K ≥ 3."""

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Scores: (N,) of the second class for two classes, (N, K) else."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        scores = X @ self.coef_.T + self.intercept_
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable class of each row."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Class probabilities (N, K), columns as in classes_."""
        return probabilities(self.decision_function(X))

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Logarithms of the class probabilities (N, K)."""
        return -log_loss_matrix(self.decision_function(X))


class RobustLogisticRegression(_LinearClassifier):
    """Logistic regression that minimises the worst expected log loss over a decision set.

    min_θ  max_μ  E_μ[ℓ_θ(x, y)]

    where μ ranges over all distributions whose feature marginal is that of all rows given, labeled and unlabeled, whose
    label probabilities lie in given intervals, and whose transport distance to the labeled rows is at most the radius, with
    ground cost d(x, x') + κ·1[y ≠ y'] (paper, eq. worst-case-dual).

    Parameters
    ----------
    radius : float or "auto", default="auto"
        Radius of the decision set. "auto": the largest at which the median confidence over all rows is at least
        `confidence` (the paper's as-robust-as-possible rule).
    label_prior : "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="clopper-pearson"
        Label probabilities: 95 % intervals from y, exact, intervals, or unconstrained. Classes in sorted order.
    label_cost : float or array (K, K), default=1.0
        κ, or the cost [k, c] of turning label c of a labeled row into k.
    metric : str, FeatureMetric or callable, default="euclidean"
        d: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function of two rows.
    tol : float, default=1e-4
        Certified gap to reach; a ConvergenceWarning says so when it is not reached.
    classes : array (K,) or None, default=None
        All classes, where the labels seen so far may miss some.
    l2 : float, default=0.0
        Weight of ½‖θ‖², added to the worst expected loss; the intercept is free.
    fit_intercept : bool, default=True
    confidence : float, default=0.7
        Threshold of radius="auto".
    max_iter : int, default=600
        Bound on the Newton steps of one solve.
    n_jobs : int or None, default=None
        Threads over groups of rows. The result does not depend on it.

    Attributes
    ----------
    coef_ : array (1, d), or (K, d) for K ≥ 3 classes; intercept_ : array (1,) or (K,)
    certificate_ : Certificate
        Both bounds on the worst expected loss.
    worst_case_ : WorstCase
        The distribution behind the lower bound.
    radius_ : float
    classes_ : array (K,)
    n_iter_ : int, Newton steps of the last solve.

    Examples
    --------
    >>> import surefoot as sf
    >>> clf = sf.RobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5])
    >>> clf.fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9], [1.1]]).certificate_.status
    'optimal'
    """

    def __init__(
        self,
        radius: float | str = "auto",
        label_prior: LabelPrior | ArrayLike | str | None = "clopper-pearson",
        label_cost: ArrayLike = 1.0,
        metric: FeatureMetric | str | Callable[..., float] = "euclidean",
        tol: float = 1e-4,
        classes: ArrayLike | None = None,
        *,
        l2: float = 0.0,
        fit_intercept: bool = True,
        confidence: float = 0.7,
        max_iter: int = 600,
        n_jobs: int | None = None,
    ) -> None:
        self.radius = radius
        self.label_prior = label_prior
        self.label_cost = label_cost
        self.metric = metric
        self.tol = tol
        self.classes = classes
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.confidence = confidence
        self.max_iter = max_iter
        self.n_jobs = n_jobs

    @with_callbacks
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, X_unlabeled: ArrayLike | None = None
    ) -> RobustLogisticRegression:
        """Fit to labeled rows X (n, d), y (n,) and unlabeled rows X_unlabeled (M, d).

        A weight of sample_weight (n,) counts that labeled row so many times, among the labeled rows and in the feature
        marginal, where each unlabeled row counts once.
        """
        radius = _check_radius_parameter(self.radius)
        tol, l2 = check_positive_scalar(self.tol, "tol"), check_positive_scalar(self.l2, "l2", allow_zero=True)
        rows, codes, weights, U = _check_rows(self, X, y, sample_weight, X_unlabeled, self.classes)
        ds = build_decision_set(
            rows,
            codes,
            len(self.classes_),
            X_unlabeled=U,
            sample_weight=weights,
            radius=np.inf if radius is None else radius,
            label_prior=self.label_prior,
            label_cost=self.label_cost,
            metric=self.metric,
        )
        minimal = solve_minimal_radius(ds)
        check_radius(ds, minimal)
        everything = rows if U is None else np.vstack([rows, U])
        standardized = StandardizedRows.of(everything, ds.row_weights, len(self.classes_), l2, self.fit_intercept)
        progress = FitProgress(self)

        def solve(*args: Any, **keywords: Any) -> CertifiedSolution:
            options = NewtonOptions(max_steps=self.max_iter)
            return solve_certified(*args, options=options, n_jobs=self.n_jobs, on_round=progress.round, **keywords)

        if radius is None:
            search = as_robust_as_possible(
                ds, standardized.model, minimal, confidence=self.confidence, tol=tol, solve=solve
            )
            solution = search.solution
            _warn_if_not_confident(search.confident, self.confidence, minimal.value)
        else:
            solution = solve(ds, standardized.model, tol=tol, minimal=minimal)
        self._keep(solution, standardized, tol)
        progress.done()
        return self

    def _keep(self, solution: CertifiedSolution, standardized: StandardizedRows, tol: float) -> None:
        self.coef_, self.intercept_ = standardized.coefficients(solution.theta)
        self.radius_ = solution.decision_set.radius
        self.n_iter_ = max(1, solution.path.steps)
        self.certificate_ = solution.certificate(LOG_LOSS)
        self.worst_case_ = WorstCase(
            solution.adversary.label_proba, solution.decision_set.row_weights, solution.adversary.transport_cost
        )
        _warn_about(solution.status, solution.gap, tol)


class WassersteinLogisticRegression(_LinearClassifier):
    """Binary logistic regression robust to a Wasserstein ball alone (Shafieezadeh-Abadeh, Esfahani and Kuhn, 2015).

    min_θ  max_{μ : W_c(μ, P̂_l) ≤ radius}  E_μ[log(1 + exp(−y(⟨θ, x⟩ + b)))]

    Features may move anywhere: this is the paper's baseline, without unlabeled rows.

    Parameters
    ----------
    radius : float, default=0.1
        Any radius ≥ 0; at 0 plain logistic regression.
    label_cost : float, default=1.0
        κ > 0; infinity forbids label flips.
    metric : "euclidean", "manhattan", "chebyshev" or a Mahalanobis metric, default="euclidean"
    tol : float, default=1e-8
        Certified gap to reach.
    fit_intercept : bool, default=True
    max_iter : int, default=200

    Attributes
    ----------
    coef_ : array (1, d); intercept_ : array (1,); classes_ : array (2,); radius_ : float; n_iter_ : int
    certificate_ : Certificate
    solution_ : BallSolution, with the dual point behind the lower bound.
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
        """Fit to labeled rows X (n, d), y (n,) of two classes."""
        progress = FitProgress(self)
        radius = check_positive_scalar(self.radius, "radius", allow_zero=True)
        tol = check_positive_scalar(self.tol, "tol")
        rows, codes, weights, _ = _check_rows(self, X, y, sample_weight, None, None)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass; got "
                f"{len(self.classes_)} classes. Pass two, or use RobustLogisticRegression."
            )
        norm, back = _dual_norm(self.metric)
        self._rows, self._signs, self._weights = back.forward(rows), 2.0 * codes - 1.0, weights
        solution = solve_ball(
            self._rows,
            self._signs,
            weights=weights,
            radius=radius,
            label_cost=self.label_cost,
            norm=norm,
            fit_intercept=self.fit_intercept,
            tol=tol,
            max_iter=self.max_iter,
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
            solution.risk, solution.lower, radius, 0.0, np.array([[0.0, 1.0], [0.0, 1.0]]), LOG_LOSS, status
        )
        _warn_about(status, solution.gap, tol)

    def worst_case_risk(self, radii: ArrayLike) -> FloatArray:
        """Exact worst expected loss of the fitted classifier over balls of other radii (m,) around its labeled rows."""
        check_is_fitted(self)
        norm, _ = _dual_norm(self.metric)
        return ball_worst_case(
            self._rows,
            self._signs,
            self.solution_.coef,
            self.solution_.intercept,
            weights=self._weights,
            radii=radii,
            label_cost=self.label_cost,
            norm=norm,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@dataclass(frozen=True)
class _FeatureMap:
    """Linear map of the features after which a Mahalanobis metric is Euclidean; the identity for the other metrics."""

    metric: Mahalanobis | None = None

    def forward(self, X: FloatArray) -> FloatArray:
        return X if self.metric is None else self.metric.transform(X)

    def coefficients(self, coef: FloatArray) -> FloatArray:
        return coef if self.metric is None else self.metric.transform(np.eye(len(coef))) @ coef


def _dual_norm(metric: FeatureMetric | str) -> tuple[str, _FeatureMap]:
    """Norm on θ that belongs to a feature metric, and the map that makes it so."""
    resolved = resolve_metric(metric)
    if isinstance(resolved, Mahalanobis):
        return "l2", _FeatureMap(resolved)
    for kind, norm in ((Euclidean, "l2"), (Manhattan, "linf"), (Chebyshev, "l1")):
        if isinstance(resolved, kind):
            return norm, _FeatureMap()
    raise ValueError(
        "the ball alone needs a metric with a known dual norm: 'euclidean', 'manhattan', 'chebyshev' or Mahalanobis; "
        f"got {metric!r}. Use RobustLogisticRegression for other metrics."
    )


def _check_radius_parameter(radius: Any) -> float | None:
    """A radius ≥ 0, or None for "auto"."""
    if isinstance(radius, str):
        if radius == "auto":
            return None
        if radius == "calibrated":
            raise NotImplementedError('radius="calibrated" is not available yet: pass "auto" or a number')
        raise ValueError(f'radius must be a number at least 0 or "auto"; got {radius!r}. Pass one of these.')
    return check_positive_scalar(radius, "radius", allow_zero=True)


def _check_rows(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    X_unlabeled: ArrayLike | Unlabeled | None,
    classes: ArrayLike | None,
) -> tuple[FloatArray, np.ndarray, FloatArray, FloatArray | None]:
    """Validated labeled rows, class codes, weights and unlabeled rows; sets classes_ and the feature names."""
    X, y = validate_data(estimator, X, y, dtype=np.float64)
    check_classification_targets(y)
    estimator.classes_, codes = encode_labels(y, classes)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must have a positive entry; got only zeros. Pass a weight for some labeled row.")
    if X_unlabeled is None:
        return X, codes, weights, None
    wrapped = isinstance(X_unlabeled, Unlabeled)
    U = validate_data(
        estimator, X_unlabeled.rows if wrapped else X_unlabeled, reset=False, dtype=np.float64, ensure_min_samples=0
    )
    if not wrapped:
        warn_if_cut_by_folds(len(X), len(U))
    warn_if_scaled_apart(X, U)
    return X, codes, weights, U


def _warn_about(status: str, gap: float, tol: float) -> None:
    if gap > tol:
        warnings.warn(
            f"the certified gap is {gap:.2e}, above tol={tol:.2e}; both bounds of certificate_ hold all the same. Raise "
            "max_iter or tol, or the radius where it is close to the minimal one.",
            ConvergenceWarning,
            stacklevel=4,
        )
    if status == "separable":
        warnings.warn(
            "the worst case is linearly separable: no finite coefficients attain the minimum, so they grow as tol shrinks. "
            "The certificate holds for the coefficients returned. Set l2 > 0 or raise the radius for a finite optimum.",
            ConvergenceWarning,
            stacklevel=4,
        )


def _warn_if_not_confident(confident: bool, threshold: float, radius: float) -> None:
    if not confident:
        warnings.warn(
            f"even at the minimal radius {radius:.6g} the median confidence is below confidence={threshold}: the minimal "
            "radius is used. Label more rows, or lower confidence.",
            UserWarning,
            stacklevel=4,
        )
