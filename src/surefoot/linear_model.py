"""The robust linear classifier: glue between arrays and the solvers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from surefoot._callbacks import FitProgress, with_callbacks
from surefoot._errors import warn_caller
from surefoot._validation import (
    FloatArray,
    check_n_jobs,
    check_positive_integer,
    check_positive_scalar,
    check_unit_scalar,
)
from surefoot.bounds import Adversary
from surefoot.calibration import (
    AUTO,
    Calibrated,
    RadiusEstimate,
    calibrate,
    in_label_cost_of,
    resolve_radius,
    tied_sets,
)
from surefoot.certificate import Certificate
from surefoot.costs import FeatureMetric, resolve_metric
from surefoot.design_matrix import StandardizedRows
from surefoot.fresh import LinearLosses, Piece
from surefoot.labeled import LabeledData
from surefoot.linear_classifier import LinearClassifier, check_labeled, warn_about
from surefoot.losses import LOG_LOSS
from surefoot.minimal import MinimalRadius, check_radius, solve_minimal_radius
from surefoot.priors import LabelPrior
from surefoot.radius import as_robust_as_possible
from surefoot.sets import DecisionSet
from surefoot.solvers.newton import NewtonOptions, PathPoint
from surefoot.union import solve_union
from surefoot.unlabeled import Unlabeled, check_unlabeled
from surefoot.worst_case import CertifiedSolution, Found, solve_certified


class RobustLogisticRegression(LinearClassifier):
    """Logistic regression that minimises the worst expected log loss over a decision set.

    min_θ  max_μ  E_μ[ℓ_θ(x, y)]

    where μ ranges over all distributions whose feature marginal is that of all rows given, labeled and unlabeled, whose
    label probabilities lie in given intervals, and whose transport distance to the labeled rows is at most the radius,
    with ground cost d(x, x') + κ·1[y ≠ y'] (paper, eq. worst-case-dual).

    Parameters
    ----------
    radius : float, "auto", "calibrated" or Calibrated, default="auto"
        Radius of the decision set. "auto": the largest at which the median confidence over all rows is at least
        `confidence` (the paper's as-robust-as-possible rule), to 5 % of its excess over the minimal radius.
        "calibrated": estimated from half-splits of the labeled rows, see `calibrate_radius`.
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
        radius: float | str | Calibrated = "auto",
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
        progress = FitProgress(self)
        problem = FitProblem.of(self, X, y, sample_weight, X_unlabeled, progress)
        learned = problem.solve(resolve_radius(self.radius, auto=True))
        self.coef_, self.intercept_ = learned.coef, learned.intercept
        self.certificate_, self.worst_case_ = learned.certificate, learned.certificate.worst_case
        self.radius_, self.n_iter_ = learned.certificate.radius, max(1, learned.steps)
        warn_about(learned.certificate.status, learned.certificate.gap, problem.settings.tol)
        progress.done()
        return self


@dataclass(frozen=True)
class _Settings:
    """Checked parameters of one fit."""

    tol: float
    l2: float
    confidence: float
    max_iter: int
    n_jobs: int | None

    @classmethod
    def of(cls, estimator: RobustLogisticRegression) -> _Settings:
        return cls(
            check_positive_scalar(estimator.tol, "tol"),
            check_positive_scalar(estimator.l2, "l2", allow_zero=True),
            check_unit_scalar(estimator.confidence, "confidence"),
            check_positive_integer(estimator.max_iter, "max_iter"),
            check_n_jobs(estimator.n_jobs),
        )


@dataclass(frozen=True)
class Learned:
    """Coefficients (1, d) or (K, d), intercepts, their certificate, and the Newton steps that it took."""

    coef: FloatArray
    intercept: FloatArray
    certificate: Certificate
    steps: int


@dataclass(frozen=True, eq=False)
class FitProblem:
    """All that a fit is made of but the radius: solved at one, or along a path of them."""

    settings: _Settings
    data: LabeledData
    decision_set: DecisionSet
    minimal: MinimalRadius
    standardized: StandardizedRows
    progress: FitProgress

    @classmethod
    def of(
        cls,
        estimator: RobustLogisticRegression,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        X_unlabeled: ArrayLike | Unlabeled | None,
        progress: FitProgress,
    ) -> FitProblem:
        """Check the arguments of fit; sets classes_ and the feature names of the estimator."""
        settings = _Settings.of(estimator)
        rows, codes, weights = check_labeled(estimator, X, y, sample_weight, estimator.classes)
        U = None if X_unlabeled is None else check_unlabeled(estimator, rows, X_unlabeled)
        data = LabeledData(rows, codes, weights, U, estimator.classes_, resolve_metric(estimator.metric))
        ds = data.decision_set(estimator.label_prior, estimator.label_cost)
        minimal = solve_minimal_radius(ds)
        standardized = StandardizedRows.of(
            data.everything, ds.row_weights, len(data.classes), settings.l2, estimator.fit_intercept
        )
        return cls(settings, data, ds, minimal, standardized, progress)

    def solve(self, radius: float | str | Calibrated) -> Learned:
        """Learn at a radius, at the one that the as-robust-as-possible rule finds, or at an estimate."""
        if isinstance(radius, Calibrated):
            return self._calibrated(radius)
        if radius == AUTO:
            return self.learned(self._auto())
        return self.learned(self.at(float(radius)))

    def at(self, radius: float, *, warm_start: PathPoint | None = None) -> CertifiedSolution:
        ds = self.decision_set.with_radius(radius)
        check_radius(ds, self.minimal)
        return self._solve(
            ds, self.standardized.model, tol=self.settings.tol, minimal=self.minimal, warm_start=warm_start
        )

    def learned(self, solution: CertifiedSolution) -> Learned:
        return self._with_certificate(solution.found, solution.decision_set, solution.theta, solution.path.steps)

    def _with_certificate(
        self,
        found: Found,
        ds: DecisionSet,
        theta: FloatArray,
        steps: int,
        estimate: RadiusEstimate | None = None,
    ) -> Learned:
        coef, intercept = self.standardized.coefficients(theta)
        certificate = found.certificate(
            LOG_LOSS, self.data, ds, self.minimal, estimate=estimate, losses_at=LinearLosses(coef, intercept)
        )
        return Learned(coef, intercept, certificate, steps)

    def _solve(self, *args: Any, **keywords: Any) -> CertifiedSolution:
        options = NewtonOptions(max_steps=self.settings.max_iter)
        return solve_certified(
            *args, options=options, n_jobs=self.settings.n_jobs, on_round=self.progress.round, **keywords
        )

    def _auto(self) -> CertifiedSolution:
        asked = self.settings
        search = as_robust_as_possible(
            self.decision_set,
            self.standardized.model,
            self.minimal,
            confidence=asked.confidence,
            tol=asked.tol,
            solve=self._solve,
        )
        if not search.confident:
            warn_caller(
                f"even at the minimal radius {self.minimal.value:.6g} the median confidence is below "
                f"confidence={asked.confidence}: the minimal radius is used. Label more rows, or lower confidence.",
                UserWarning,
            )
        return search.solution

    def _calibrated(self, how: Calibrated) -> Learned:
        """Learn against the sets of an estimated radius: one, or with label intervals a union."""
        estimate = calibrate(self.data, self.decision_set, self.minimal, how)
        model, asked = self.standardized.model, self.settings
        union = solve_union(
            tied_sets(self.decision_set, self.minimal, estimate.excess),
            model,
            tol=asked.tol,
            options=NewtonOptions(max_steps=asked.max_iter),
            n_jobs=asked.n_jobs,
            on_round=self.progress.round,
        )
        penalty, losses = model.penalty_value(union.theta), model.losses(union.theta, slice(None))
        pieces = tuple(Piece.of(part.decision_set, losses, part.point) for part in union.parts)
        costs = [
            in_label_cost_of(self.decision_set, part.decision_set, part.adversary).transport_cost
            for part in union.parts
        ]
        mixture = Adversary(union.label_proba, float(union.weights @ costs))
        found = Found(union.risk - penalty, union.lower - penalty, union.status, pieces, mixture)
        return self._with_certificate(found, self.decision_set, union.theta, union.n_steps, estimate)
