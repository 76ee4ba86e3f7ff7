"""All that a fit of the robust linear classifier is made of but its radius: solved at one, or along a path of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, cast

from numpy.typing import ArrayLike

from surefoot._callbacks import FitProgress
from surefoot._errors import CodedWarning, see, warn_caller
from surefoot._types import FloatArray
from surefoot._validation import check_n_jobs, check_positive_integer, check_positive_scalar, check_unit_scalar
from surefoot.blocks.compute import Compute
from surefoot.blocks.placement import check_compute, needs_memory, place, robust_problem
from surefoot.calibration import AUTO, PREDICTIVE, Calibrated, RadiusEstimate
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.fresh import LinearLosses
from surefoot.costs.labels import MEDIAN
from surefoot.costs.learned import LEARNED, resolve_metric
from surefoot.dual.models import LinearModel
from surefoot.estimators.base import check_labeled, warn_about
from surefoot.estimators.predictive import RIDGE, RIDGE_AS_GIVEN, fit_to_predict, predicted_shares
from surefoot.exact.judge import JointState, Member
from surefoot.exact.problem import Game, HeldGame, HeldProblem, RobustProblem
from surefoot.exact.solution import Solution
from surefoot.losses import LOG_LOSS
from surefoot.problem.rows import LabeledData
from surefoot.radius import largest_confident_radius
from surefoot.solvers.newton import NewtonOptions
from surefoot.unlabeled import check_unlabeled

# Over blocks radius="auto" looks at the confidence over a sample of so many rows, to so fine a gap.
_AUTO_ROWS, _AUTO_TOL = 10_000, 1e-3


@dataclass(frozen=True)
class FitSettings:
    """Checked parameters of one fit."""

    tol: float
    l2: float | None
    fit_intercept: bool
    confidence: float
    max_iter: int
    n_jobs: int | None

    @classmethod
    def of(cls, estimator: Any) -> FitSettings:
        return cls(
            check_positive_scalar(estimator.tol, "tol"),
            _l2_of(estimator),
            estimator.fit_intercept,
            check_unit_scalar(estimator.confidence, "confidence"),
            check_positive_integer(estimator.max_iter, "max_iter"),
            check_n_jobs(estimator.n_jobs),
        )

    @property
    def options(self) -> NewtonOptions:
        return NewtonOptions(max_steps=self.max_iter)


@dataclass(frozen=True)
class FittedModel:
    """Coefficients (1, d) or (K, d), intercepts, their certificate, its steps and the penalty."""

    coef: FloatArray
    intercept: FloatArray
    certificate: Certificate
    steps: int
    l2: float

    def store(self, estimator: Any) -> None:
        """Set the fitted attributes of an estimator but classes_ and the feature names."""
        estimator.coef_, estimator.intercept_ = self.coef, self.intercept
        estimator.certificate_, estimator.worst_case_ = self.certificate, self.certificate.worst_case
        estimator.radius_, estimator.n_iter_ = self.certificate.radius, max(1, self.steps)
        estimator.metric_, estimator.label_cost_ = self.certificate.metric, self.certificate.label_cost
        estimator.l2_ = self.l2


def with_problem(game: Game, problem: RobustProblem) -> Game:
    """The same model against the adversary of a problem with the same rows."""
    return replace(cast("Any", game), problem=problem)


def _ridge(problem: RobustProblem) -> tuple[float, bool]:
    """The penalty that predicts well, and whether it is one on standardised features.

    It is 1/n on features in the units in which a metric is learned, as much as scikit-learn's LogisticRegression has.
    """
    per_label = float((problem.decision_set.anchor_weights**2).sum())
    unit = None if problem.data.rule is None else problem.data.rule.unit
    return (per_label / RIDGE, True) if unit is None else (per_label * unit**2 / RIDGE_AS_GIVEN, False)


def _l2_of(estimator: Any) -> float | None:
    """The penalty as given, or that of "auto"; None stands for the one that predicts well, on standardised features."""
    if not _is_auto(estimator.l2):
        return check_positive_scalar(estimator.l2, "l2", allow_zero=True)
    return None if _predicts(estimator) else 0.0


def _predicts(estimator: Any) -> bool:
    return isinstance(estimator.radius, str) and estimator.radius == PREDICTIVE


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def ground_cost(estimator: Any) -> tuple[Any, Any]:
    """Label cost and metric as given; "auto": those that predict well, or with another radius the paper's."""
    predicts = _predicts(estimator)
    label_cost = (MEDIAN if predicts else 1.0) if _is_auto(estimator.label_cost) else estimator.label_cost
    metric = (LEARNED if predicts else "euclidean") if _is_auto(estimator.metric) else estimator.metric
    return label_cost, metric


@dataclass(frozen=True, eq=False)
class FitProblem:
    """The robust problem of a fit, and its linear model against the adversary."""

    settings: FitSettings
    problem: RobustProblem
    game: Game
    progress: FitProgress
    l2: float = 0.0

    @classmethod
    def of(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        X_unlabeled: Any,
        progress: FitProgress,
        *,
        X_target: Any = None,
        compute: Compute | None = None,
        memory_only: bool = False,
    ) -> Self:
        """Check the arguments of fit; sets classes_ and the feature names of the estimator."""
        settings = FitSettings.of(estimator)
        rows, codes, weights = check_labeled(estimator, X, y, sample_weight, estimator.classes)
        label_cost, metric = ground_cost(estimator)
        data = LabeledData(rows, codes, weights, None, estimator.classes_, resolve_metric(metric))
        in_blocks = check_compute(compute) is not None
        memory_only = memory_only or (not in_blocks and needs_memory(data.metric, settings.tol))
        placed = place(X_unlabeled, X, *rows.shape, X_target=X_target, memory_only=memory_only, blocks_only=in_blocks)
        if placed.rows is not None:
            placed = replace(placed, rows=check_unlabeled(estimator, rows, placed.rows, placed.name))
        problem = robust_problem(data, placed, estimator.label_prior, label_cost, compute, settings.n_jobs)
        return cls.over(problem, settings, progress)

    @classmethod
    def over(cls, problem: RobustProblem, settings: FitSettings, progress: FitProgress) -> Self:
        """A fit to rows that are checked and placed."""
        l2, standardized = _ridge(problem) if settings.l2 is None else (settings.l2, False)
        game = problem.linear(l2, settings.fit_intercept, standardized=standardized)
        return cls(settings, problem, game, progress, l2)

    def solve(self, radius: float | str | Calibrated) -> FittedModel:
        """Learn at a radius, at the one that a rule finds, or at an estimate."""
        if isinstance(radius, Calibrated):
            return self.at_estimate(self.problem.calibrate(radius))
        if radius in (AUTO, PREDICTIVE):
            found = self._auto() if radius == AUTO else self._to_predict()
            return replace(found, certificate=replace(found.certificate, promise=False))
        return self.fitted(self.at(float(radius)))

    def at(self, radius: float, *, warm_start: JointState | None = None, tol: float | None = None) -> Solution:
        """Both bounds at a radius."""
        return self.against(self.problem.at(radius), warm_start=warm_start, tol=tol)

    def against(
        self, members: list[Member], *, warm_start: JointState | None = None, tol: float | None = None
    ) -> Solution:
        """Learn against one decision set, or a union of them."""
        asked = self.settings
        return self.game.solve(
            members,
            tol=tol or asked.tol,
            warm_start=warm_start,
            options=asked.options,
            on_round=self.progress.round,
        )

    def warn_about(self, found: Certificate) -> None:
        """Say so where a fit did not reach its tolerance, or has no finite optimum."""
        warn_about(found.status, found.gap, self.settings.tol)

    def fitted(self, solution: Solution, estimate: RadiusEstimate | None = None) -> FittedModel:
        """The coefficients of a solution, and their certificate."""
        coef, intercept = self.game.coefficients(solution.theta)
        certificate = self.game.certificate(
            [solution],
            LOG_LOSS,
            tol=self.settings.tol,
            estimate=estimate,
            losses_at=LinearLosses(coef, intercept),
        )
        return FittedModel(coef, intercept, certificate, solution.n_steps, self.l2)

    def at_estimate(self, estimate: RadiusEstimate) -> FittedModel:
        """Learn against the sets of an estimated radius: one, or with label intervals a union."""
        return self.fitted(self.against(self.problem.tied(estimate.excess)), estimate)

    def _to_predict(self) -> FittedModel:
        """Learn at a radius that predicts well, where labels have the shares that they predict for all rows."""
        problem = self.problem.with_label_shares(predicted_shares(self.problem, self.game.coordinates))
        balanced = replace(self, problem=problem, game=with_problem(self.game, problem))
        return balanced.fitted(fit_to_predict(balanced))

    def _auto(self) -> FittedModel:
        asked, problem = self.settings, self.problem
        if not isinstance(problem, HeldProblem):
            return self.fitted(self.at(problem.minimal.value + self.sampled(_AUTO_ROWS, 0, _AUTO_TOL).auto_excess()))
        search = largest_confident_radius(
            problem.decision_set,
            self.linear_model,
            problem.minimal,
            confidence=asked.confidence,
            tol=asked.tol,
            solve=lambda ds, _model, *, tol, minimal, warm_start: self.against(
                [Member(ds, minimal)], warm_start=warm_start, tol=tol
            ),
        )
        if not search.confident:
            warn_caller(
                CodedWarning(
                    "low_confidence",
                    f"even at {search.radius:.6g}, next to the minimal radius {problem.minimal.value:.6g}, the median "
                    f"confidence is below {asked.confidence}: that radius is used.",
                    "Label more rows, or lower $confidence." + see("radius"),
                    radius=search.radius,
                    minimal_radius=problem.minimal.value,
                    confidence=asked.confidence,
                )
            )
        return self.fitted(search.solution)

    def sampled(self, most: int, seed: int, tol: float) -> Self:
        """The same fit over at most so many unlabeled rows, in memory."""
        settings = replace(self.settings, tol=max(tol, self.settings.tol))
        return self.over(self.problem.sample(most, seed), settings, self.progress)

    def auto_excess(self) -> float:
        """The excess radius that the as-robust-as-possible rule finds."""
        found = self._auto().certificate
        return max(found.radius - found.minimal_radius, 0.0)

    @property
    def linear_model(self) -> LinearModel:
        if not isinstance(self.game, HeldGame):
            raise TypeError("only a model over rows in memory knows its rows")
        return self.game.linear_model
