"""Scikit-learn estimators: glue between arrays and the solvers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from surefoot._callbacks import CallbackSupportMixin, FitProgress, with_callbacks
from surefoot._errors import warn_caller
from surefoot._validation import (
    FloatArray,
    check_finite_array,
    check_n_jobs,
    check_positive_integer,
    check_positive_scalar,
    check_unit_scalar,
    check_weights,
    encode_labels,
)
from surefoot.certificate import Certificate, WorstCase
from surefoot.costs import Chebyshev, Euclidean, FeatureMetric, Mahalanobis, Manhattan, resolve_metric
from surefoot.design_matrix import StandardizedRows
from surefoot.dual import LinearModel
from surefoot.losses import LOG_LOSS, log_loss_matrix, probabilities
from surefoot.minimal import MinimalRadius, check_radius, solve_minimal_radius
from surefoot.priors import LabelPrior
from surefoot.radius import as_robust_as_possible
from surefoot.sets import DecisionSet, build_decision_set
from surefoot.solvers.ball import BallSolution, ball_worst_case, solve_ball
from surefoot.solvers.newton import NewtonOptions
from surefoot.unlabeled import Unlabeled, check_unlabeled
from surefoot.worst_case import CertifiedSolution, solve_certified


class _LinearClassifier(ClassifierMixin, CallbackSupportMixin, BaseEstimator):
    """Prediction with coef_ and intercept_: one row of coefficients for two classes, K rows for K ≥ 3."""

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Scores: (N,) of the second class for two classes, (N, K) else."""
        check_is_fitted(self)
        rows: FloatArray = validate_data(self, X, reset=False, dtype=np.float64)
        scores = rows @ self.coef_.T + self.intercept_
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
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
    label probabilities lie in given intervals, and whose transport distance to the labeled rows is at most the radius,
    with ground cost d(x, x') + κ·1[y ≠ y'] (paper, eq. worst-case-dual).

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
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_unlabeled: ArrayLike | Unlabeled | None = None,
    ) -> RobustLogisticRegression:
        """Fit to labeled rows X (n, d), y (n,) and unlabeled rows X_unlabeled (M, d), bare or in an `Unlabeled`.

        A weight of sample_weight (n,) counts that labeled row so many times, among the labeled rows and in the feature
        marginal, where each unlabeled row counts once.
        """
        asked = _Settings.of(self)
        rows, codes, weights = _check_labeled(self, X, y, sample_weight, self.classes)
        U = None if X_unlabeled is None else check_unlabeled(self, rows, X_unlabeled)
        ds = build_decision_set(
            rows,
            codes,
            len(self.classes_),
            X_unlabeled=U,
            sample_weight=weights,
            radius=np.inf if asked.radius is None else asked.radius,
            label_prior=self.label_prior,
            label_cost=self.label_cost,
            metric=self.metric,
        )
        minimal = solve_minimal_radius(ds)
        check_radius(ds, minimal)
        everything = rows if U is None else np.vstack([rows, U])
        standardized = StandardizedRows.of(everything, ds.row_weights, len(self.classes_), asked.l2, self.fit_intercept)
        progress = FitProgress(self)
        solution = _solve(ds, standardized.model, minimal, asked, progress)
        self._keep(solution, standardized, asked.tol)
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


@dataclass(frozen=True)
class _Settings:
    """Checked parameters of one fit; radius None stands for "auto"."""

    radius: float | None
    tol: float
    l2: float
    confidence: float
    max_iter: int
    n_jobs: int | None

    @classmethod
    def of(cls, estimator: RobustLogisticRegression) -> _Settings:
        return cls(
            _check_radius_parameter(estimator.radius),
            check_positive_scalar(estimator.tol, "tol"),
            check_positive_scalar(estimator.l2, "l2", allow_zero=True),
            check_unit_scalar(estimator.confidence, "confidence"),
            check_positive_integer(estimator.max_iter, "max_iter"),
            check_n_jobs(estimator.n_jobs),
        )


def _solve(
    ds: DecisionSet, model: LinearModel, minimal: MinimalRadius, asked: _Settings, progress: FitProgress
) -> CertifiedSolution:
    """Solve at the radius of the decision set, or at the one that the as-robust-as-possible rule finds."""
    options = NewtonOptions(max_steps=asked.max_iter)

    def solve(*args: Any, **keywords: Any) -> CertifiedSolution:
        return solve_certified(*args, options=options, n_jobs=asked.n_jobs, on_round=progress.round, **keywords)

    if asked.radius is not None:
        return solve(ds, model, tol=asked.tol, minimal=minimal)
    search = as_robust_as_possible(ds, model, minimal, confidence=asked.confidence, tol=asked.tol, solve=solve)
    if not search.confident:
        warn_caller(
            f"even at the minimal radius {minimal.value:.6g} the median confidence is below "
            f"confidence={asked.confidence}: the minimal radius is used. Label more rows, or lower confidence.",
            UserWarning,
        )
    return search.solution


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
        tol, max_iter = check_positive_scalar(self.tol, "tol"), check_positive_integer(self.max_iter, "max_iter")
        label_cost = check_positive_scalar(self.label_cost, "label_cost", allow_infinity=True)
        rows, codes, weights = _check_labeled(self, X, y, sample_weight, None)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass; got "
                f"{len(self.classes_)} classes. Pass two, or use RobustLogisticRegression."
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
            solution.risk, solution.lower, radius, 0.0, np.array([[0.0, 1.0], [0.0, 1.0]]), LOG_LOSS, status
        )
        _warn_about(status, solution.gap, tol)

    def worst_case_risk(self, radii: ArrayLike) -> FloatArray:
        """Exact worst expected loss of the fitted classifier over balls of other radii (m,) around its labeled rows.

        Label cost and metric are those of the fit.
        """
        check_is_fitted(self)
        asked = check_finite_array(radii, "radii")
        if (asked < 0).any():
            raise ValueError(f"radii must be at least 0; got {float(asked.min())!r}. Pass non-negative numbers.")
        return self._ball.worst_case(self.solution_, asked)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@dataclass(frozen=True, eq=False)
class _FittedBall:
    """What was fitted: mapped rows (n, d), labels ±1 (n,), weights (n,), label cost and the norm on θ."""

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


@dataclass(frozen=True)
class _FeatureMap:
    """Linear map of the features after which a Mahalanobis metric is Euclidean; the identity for the other metrics."""

    metric: Mahalanobis | None = None

    def forward(self, X: FloatArray) -> FloatArray:
        # a copy: the rows are kept, and X is the user's
        return X.copy() if self.metric is None else self.metric.transform(X)

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


def _check_labeled(
    estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, classes: ArrayLike | None
) -> tuple[FloatArray, NDArray[np.intp], FloatArray]:
    """Labeled rows, class codes and weights; sets classes_ and the feature names."""
    rows, labels = validate_data(estimator, X, y, dtype=np.float64)
    check_classification_targets(labels)
    estimator.classes_, codes = encode_labels(labels, classes)
    return rows, codes, check_weights(sample_weight, "sample_weight", len(rows))


def _warn_about(status: str, gap: float, tol: float) -> None:
    if gap > tol:
        warn_caller(
            f"the certified gap is {gap:.2e}, above tol={tol:.2e}; both bounds of certificate_ hold all the same. "
            "Raise max_iter or tol, or the radius where it is close to the minimal one.",
            ConvergenceWarning,
        )
    if status == "separable":
        warn_caller(
            "the worst case is linearly separable: no finite coefficients attain the minimum, so they grow as tol "
            "shrinks. The certificate holds for the coefficients returned. Set l2 > 0 or raise the radius for a finite "
            "optimum.",
            ConvergenceWarning,
        )
