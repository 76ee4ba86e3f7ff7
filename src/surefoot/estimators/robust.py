"""The robust linear classifier: glue between arrays and the solvers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from surefoot._callbacks import FitProgress, with_callbacks
from surefoot._errors import warn_caller
from surefoot._types import FloatArray
from surefoot._validation import check_n_jobs, check_positive_integer, check_positive_scalar, check_unit_scalar
from surefoot.blocks.learning import Learned
from surefoot.blocks.newton import Newton
from surefoot.blocks.placement import Placed, needs_memory, place
from surefoot.calibration import (
    AUTO,
    Calibrated,
    RadiusEstimate,
    calibrate,
    in_label_cost_of,
    resolve_radius,
    tied_sets,
)
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.fresh import LinearLosses, Piece
from surefoot.costs import FeatureMetric, resolve_metric
from surefoot.dual.bounds import Adversary
from surefoot.dual.design import StandardizedRows
from surefoot.dual.models import FixedLosses, LinearModel
from surefoot.estimators.base import LinearClassifier, check_labeled, warn_about
from surefoot.estimators.in_blocks import fit_in_blocks
from surefoot.exact.solution import CertifiedSolution, Found, solve_certified
from surefoot.exact.union import solve_union
from surefoot.losses import LOG_LOSS
from surefoot.priors import LabelPrior
from surefoot.problem.rows import LabeledData
from surefoot.problem.sets import DecisionSet
from surefoot.radius import as_robust_as_possible
from surefoot.solvers.minimal import MinimalRadius, check_radius, solve_minimal_radius
from surefoot.solvers.newton import NewtonOptions, PathPoint
from surefoot.solvers.sgd import StochasticGradient, StochasticSolution, resolve_solver, run_algorithm1
from surefoot.unlabeled import Unlabeled, check_unlabeled


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
        Label probabilities: 95 % intervals from y, exact, intervals, or unconstrained. Classes in sorted order. Also
        "hypergeometric" and "assisted", see `surefoot.priors`.
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
    solver : "newton", "sgd", Newton or StochasticGradient, default="newton"
        "newton": exact, to the gap `tol`. A `Newton` says where it runs: in blocks of rows, on a GPU. "sgd": the
        paper's Algorithm 1, stochastic subgradients on the features as they are given; its settings are those of a
        `StochasticGradient`. The coefficients it ends with get the same certificate, from the exact solver, so that
        this costs more than "newton".

    Attributes
    ----------
    coef_ : array (1, d), or (K, d) for K ≥ 3 classes; intercept_ : array (1,) or (K,)
    certificate_ : Certificate
        Both bounds on the worst expected loss.
    worst_case_ : WorstCase
        The distribution behind the lower bound.
    radius_ : float
    classes_ : array (K,)
    n_iter_ : int, Newton steps of the last solve, or stochastic steps.

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
        solver: str | StochasticGradient | Newton = "newton",
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
        self.solver = solver

    @with_callbacks
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_unlabeled: Any = None,
    ) -> RobustLogisticRegression:
        """Fit to labeled rows X (n, d), y (n,) and unlabeled rows X_unlabeled (M, d), bare or in an `Unlabeled`.

        X_unlabeled may also be a memory map, `ParquetRows`, a Dask array or dataframe. Wherever the rows lie, more than
        2^24 distances are computed in blocks, and no more than a block of them need be held (see `Newton`).

        A weight of sample_weight (n,) counts that labeled row so many times, among the labeled rows and in the feature
        marginal, where each unlabeled row counts once.
        """
        progress = FitProgress(self)
        asked = resolve_radius(self.radius, auto=True)
        placed = self._place(X, y, sample_weight, X_unlabeled, asked)
        if placed.source is not None or isinstance(self.solver, Newton):
            learned = fit_in_blocks(self, asked, X, y, sample_weight, placed.source, progress.round)
            warn_about(learned.certificate.status, learned.certificate.gap, float(self.tol))
        else:
            problem = FitProblem.of(self, X, y, sample_weight, placed.rows, progress)
            learned = problem.solve(asked)
            problem.warn_about(learned.certificate)
        store(self, learned)
        progress.done()
        return self

    def _place(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, X_unlabeled: Any, radius: Any
    ) -> Placed:
        """Whether to solve in memory or over blocks."""
        if X_unlabeled is None:
            return Placed(None, None)
        n, d = check_labeled(self, X, y, sample_weight, self.classes)[0].shape
        memory_only = self.solver != "newton" or needs_memory(self.metric, radius, self.tol)
        return place(X_unlabeled, X, n, d, memory_only=memory_only, blocks_only=isinstance(self.solver, Newton))


def store(estimator: RobustLogisticRegression, learned: Learned) -> None:
    """Set the fitted attributes but classes_ and the feature names."""
    estimator.coef_, estimator.intercept_ = learned.coef, learned.intercept
    estimator.certificate_, estimator.worst_case_ = learned.certificate, learned.certificate.worst_case
    estimator.radius_, estimator.n_iter_ = learned.certificate.radius, max(1, learned.steps)


@dataclass(frozen=True)
class _Settings:
    """Checked parameters of one fit."""

    tol: float
    l2: float
    confidence: float
    max_iter: int
    n_jobs: int | None
    stochastic: StochasticGradient | None

    @classmethod
    def of(cls, estimator: RobustLogisticRegression) -> _Settings:
        return cls(
            check_positive_scalar(estimator.tol, "tol"),
            check_positive_scalar(estimator.l2, "l2", allow_zero=True),
            check_unit_scalar(estimator.confidence, "confidence"),
            check_positive_integer(estimator.max_iter, "max_iter"),
            check_n_jobs(estimator.n_jobs),
            None if isinstance(estimator.solver, Newton) else resolve_solver(estimator.solver),
        )


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
        coordinates = StandardizedRows.of if settings.stochastic is None else rows_as_given
        standardized = coordinates(
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

    def warn_about(self, found: Certificate) -> None:
        """Say so where a fit did not reach its tolerance, or has no finite optimum."""
        if self.settings.stochastic is None:
            warn_about(found.status, found.gap, self.settings.tol)
        elif found.gap > self.settings.tol:
            warn_caller(
                f"the certified gap of Algorithm 1 is {found.gap:.2e}, above tol={self.settings.tol:.2e}; both bounds "
                "of certificate_ hold all the same. Scale the features, raise n_steps, try other learning rates, raise "
                'tol, or pass solver="newton".',
                ConvergenceWarning,
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

    def _solve(self, ds: DecisionSet, model: LinearModel, **keywords: Any) -> CertifiedSolution:
        keywords |= {"options": NewtonOptions(max_steps=self.settings.max_iter), "n_jobs": self.settings.n_jobs}
        if self.settings.stochastic is None:
            return solve_certified(ds, model, on_round=self.progress.round, **keywords)
        keywords.pop("warm_start", None)  # Algorithm 1 starts from zeros
        found = run_algorithm1(
            ds, model, self.settings.stochastic, on_block=lambda steps, _value: self.progress.round(steps)
        )
        return self._certify(found, **keywords)

    def _certify(self, found: StochasticSolution, *, tol: float, **keywords: Any) -> CertifiedSolution:
        """Both bounds of the learning problem at the coefficients that Algorithm 1 ends with.

        Upper: their own worst case, by the inner problem. Lower: the exact solver's adversary, against whom no
        coefficients do better. So the gap is what Algorithm 1 leaves to be gained.
        """
        ds, model, theta = found.decision_set, found.model, found.point.theta
        fixed = FixedLosses(model.losses(theta, slice(None)))
        inner = solve_certified(ds, fixed, tol=0.1 * tol, **keywords)
        scaled = StandardizedRows.of(
            self.data.everything, ds.row_weights, ds.n_classes, self.settings.l2, self.standardized.fit_intercept
        )
        exact = solve_certified(ds, scaled.model, tol=0.5 * tol, **keywords)
        risk = inner.risk + model.penalty_value(theta)
        status = "stopped" if risk - exact.lower > tol else "separable" if exact.status == "separable" else "optimal"
        path = replace(inner.path, point=replace(inner.path.point, theta=theta), steps=int(found.steps[-1]))
        return CertifiedSolution(
            ds, model, path, exact.checkpoint, self.minimal, exact.adversary, risk, min(exact.lower, risk), status
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
        return self.at_estimate(calibrate(self.data, self.decision_set, self.minimal, how))

    def at_estimate(self, estimate: RadiusEstimate) -> Learned:
        """Learn against the sets of an estimated radius: one, or with label intervals a union."""
        model, asked = self.standardized.model, self.settings
        sets = tied_sets(self.decision_set, self.minimal, estimate.excess)
        if asked.stochastic is not None:
            return self._stochastic_calibrated(sets, estimate)
        union = solve_union(
            sets,
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

    def _stochastic_calibrated(
        self, sets: list[tuple[DecisionSet, MinimalRadius]], estimate: RadiusEstimate
    ) -> Learned:
        """Algorithm 1 at an estimated radius, where that means one decision set."""
        if len(sets) > 1:
            raise ValueError(
                'solver="sgd" learns against one decision set; a calibrated radius with label intervals makes a union '
                f"of {len(sets)}. Pass exact label probabilities as label_prior, a number as radius, or "
                'solver="newton".'
            )
        solution = self.at(estimate.radius)
        return self._with_certificate(
            solution.found, solution.decision_set, solution.theta, solution.path.steps, estimate
        )


def rows_as_given(
    rows: FloatArray, weights: FloatArray, n_classes: int, l2: float, fit_intercept: bool
) -> StandardizedRows:
    """The design matrix of Algorithm 1: rows (N, d) as they are, and the constant feature one."""
    d = rows.shape[1]
    penalty = np.append(np.full(d, l2), np.zeros(int(fit_intercept)))
    X = np.hstack([rows, np.ones((len(rows), int(fit_intercept)))])
    return StandardizedRows(LinearModel(X, penalty, n_classes), np.zeros(d), np.ones(d), None, fit_intercept)
