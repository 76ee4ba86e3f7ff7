"""All that a fit of the robust linear classifier is made of but its radius: solved at one, or along a path of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from surefoot._callbacks import FitProgress
from surefoot._errors import see, warn_caller
from surefoot._types import FloatArray
from surefoot._validation import check_n_jobs, check_positive_integer, check_positive_scalar, check_unit_scalar
from surefoot.blocks.newton import Newton
from surefoot.blocks.placement import needs_memory, place, robust_problem
from surefoot.calibration import AUTO, PREDICTIVE, Calibrated, RadiusEstimate
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.fresh import LinearLosses
from surefoot.costs import LEARNED, MEDIAN, FeatureMetric, resolve_metric
from surefoot.dual.adversary import meet
from surefoot.dual.models import LinearModel
from surefoot.estimators.base import check_labeled, warn_about
from surefoot.estimators.predictive import RIDGE, RIDGE_AS_GIVEN, fit_to_predict, predicted_shares
from surefoot.exact.judge import JointState, Member
from surefoot.exact.problem import Game, HeldGame, HeldProblem, RobustProblem
from surefoot.exact.solution import Solution
from surefoot.losses import LOG_LOSS
from surefoot.problem.rows import LabeledData
from surefoot.radius import largest_confident_radius
from surefoot.solvers.minimal import check_radius
from surefoot.solvers.newton import NewtonOptions
from surefoot.solvers.sgd import StochasticGradient, StochasticSolution, resolve_solver, run_algorithm1
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
    stochastic: StochasticGradient | None

    @classmethod
    def of(cls, estimator: Any) -> FitSettings:
        return cls(
            check_positive_scalar(estimator.tol, "tol"),
            _l2_of(estimator),
            estimator.fit_intercept,
            check_unit_scalar(estimator.confidence, "confidence"),
            check_positive_integer(estimator.max_iter, "max_iter"),
            check_n_jobs(estimator.n_jobs),
            None if isinstance(estimator.solver, Newton) else resolve_solver(estimator.solver),
        )

    @property
    def options(self) -> NewtonOptions:
        return NewtonOptions(max_steps=self.max_iter)


@dataclass(frozen=True)
class FittedModel:
    """Coefficients (1, d) or (K, d), intercepts, their certificate, the steps that it took, and the ground cost."""

    coef: FloatArray
    intercept: FloatArray
    certificate: Certificate
    steps: int
    metric: FeatureMetric
    label_cost: float | FloatArray

    def store(self, estimator: Any) -> None:
        """Set the fitted attributes of an estimator but classes_ and the feature names."""
        estimator.coef_, estimator.intercept_ = self.coef, self.intercept
        estimator.certificate_, estimator.worst_case_ = self.certificate, self.certificate.worst_case
        estimator.radius_, estimator.n_iter_ = self.certificate.radius, max(1, self.steps)
        estimator.metric_, estimator.label_cost_ = self.metric, self.label_cost


def with_problem(game: Game, problem: RobustProblem) -> Game:
    """The same model against the adversary of a problem with the same rows."""
    return replace(cast("Any", game), problem=problem)


def _with_ridge(problem: RobustProblem, fit_intercept: bool) -> Game:
    """A linear model with the penalty that predicts well: 1/n, on features in the units in which a metric is learned.

    As much as scikit-learn's LogisticRegression has on them.
    """
    per_label = float((problem.decision_set.anchor_weights**2).sum())
    unit = None if problem.data.rule is None else problem.data.rule.unit
    if unit is None:
        return problem.linear(per_label / RIDGE, fit_intercept, standardized=True)
    return problem.linear(per_label * unit**2 / RIDGE_AS_GIVEN, fit_intercept)


def _l2_of(estimator: Any) -> float | None:
    """The penalty as asked for; None stands for the one that predicts well, on standardised features."""
    if estimator.l2 is not None:
        return check_positive_scalar(estimator.l2, "l2", allow_zero=True)
    exact = isinstance(estimator.solver, Newton) or (isinstance(estimator.solver, str) and estimator.solver == "newton")
    return None if exact and _predicts(estimator) else 0.0


def _predicts(estimator: Any) -> bool:
    return isinstance(estimator.radius, str) and estimator.radius == PREDICTIVE


def ground_cost(estimator: Any) -> tuple[Any, Any]:
    """Label cost and metric as asked for; else those that predict well, or with another radius the paper's."""
    predicts = _predicts(estimator)
    label_cost = (MEDIAN if predicts else 1.0) if estimator.label_cost is None else estimator.label_cost
    metric = (LEARNED if predicts else "euclidean") if estimator.metric is None else estimator.metric
    return label_cost, metric


@dataclass(frozen=True, eq=False)
class FitProblem:
    """The robust problem of a fit, and its linear model against the adversary."""

    settings: FitSettings
    problem: RobustProblem
    game: Game
    progress: FitProgress

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
    ) -> FitProblem:
        """Check the arguments of fit; sets classes_ and the feature names of the estimator."""
        settings = FitSettings.of(estimator)
        rows, codes, weights = check_labeled(estimator, X, y, sample_weight, estimator.classes)
        label_cost, metric = ground_cost(estimator)
        data = LabeledData(rows, codes, weights, None, estimator.classes_, resolve_metric(metric))
        in_blocks = isinstance(estimator.solver, Newton)
        memory_only = not in_blocks and (estimator.solver != "newton" or needs_memory(data.metric, settings.tol))
        placed = place(X_unlabeled, X, *rows.shape, X_target=X_target, memory_only=memory_only, blocks_only=in_blocks)
        if placed.rows is not None:
            placed = replace(placed, rows=check_unlabeled(estimator, rows, placed.rows, placed.name))
        if placed.in_blocks and settings.stochastic is not None:
            raise ValueError(
                f'rows in blocks need solver="newton" or Newton(...); got {estimator.solver!r}. Pass one of these, or '
                "rows in memory."
            )
        problem = robust_problem(data, placed, estimator.label_prior, label_cost, estimator.solver, settings.n_jobs)
        return cls.over(problem, settings, progress)

    @classmethod
    def over(cls, problem: RobustProblem, settings: FitSettings, progress: FitProgress) -> FitProblem:
        """A fit to rows that are checked and placed."""
        if settings.l2 is None:
            game = _with_ridge(problem, settings.fit_intercept)
        else:
            game = problem.linear(settings.l2, settings.fit_intercept, as_given=settings.stochastic is not None)
        return cls(settings, problem, game, progress)

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
        if asked.stochastic is not None:
            return self._by_algorithm1(members, tol or asked.tol)
        return self.game.solve(
            members,
            tol=tol or asked.tol,
            warm_start=warm_start,
            options=asked.options,
            on_round=self.progress.round,
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
        cost = self.problem.decision_set.label_cost
        kappa = float(cost.max())
        one_for_all = np.array_equal(cost, kappa * (1.0 - np.eye(len(cost))))
        return FittedModel(
            coef, intercept, certificate, solution.n_steps, self.problem.data.metric, kappa if one_for_all else cost
        )

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
                f"even at {search.radius:.6g}, next to the minimal radius {problem.minimal.value:.6g}, the median "
                f"confidence is below confidence={asked.confidence}: that radius is used. Label more rows, or lower "
                "confidence." + see("radius"),
                UserWarning,
            )
        return self.fitted(search.solution)

    def sampled(self, most: int, seed: int, tol: float) -> FitProblem:
        """The same fit over at most so many unlabeled rows, in memory."""
        settings = replace(self.settings, tol=max(tol, self.settings.tol))
        return FitProblem.over(self.problem.sample(most, seed), settings, self.progress)

    def auto_excess(self) -> float:
        """The excess radius that the as-robust-as-possible rule finds."""
        found = self._auto().certificate
        return max(found.radius - found.minimal_radius, 0.0)

    @property
    def linear_model(self) -> LinearModel:
        if not isinstance(self.game, HeldGame):
            raise TypeError("only a model over rows in memory knows its rows")
        return self.game.linear_model

    def _by_algorithm1(self, members: list[Member], tol: float) -> Solution:
        """Algorithm 1, and both bounds of the learning problem at the coefficients that it ends with.

        Upper: their own worst case, by the inner problem. Lower: the exact solver's adversary, against whom no
        coefficients do better. So the gap is what Algorithm 1 leaves to be gained.
        """
        asked, problem = self.settings, self.problem
        if len(members) > 1:
            raise ValueError(
                'solver="sgd" learns against one decision set; a calibrated radius with label intervals makes a union '
                f"of {len(members)}. Pass exact label probabilities as label_prior, a number as radius, or "
                'solver="newton".'
            )
        if asked.stochastic is None or not isinstance(problem, HeldProblem):
            raise TypeError("Algorithm 1 is for rows in memory")
        ds, model = members[0].decision_set, self.linear_model
        check_radius(ds, members[0].minimal)
        found: StochasticSolution = run_algorithm1(
            ds, model, asked.stochastic, on_block=lambda steps, _value: self.progress.round(steps)
        )
        theta = found.point.theta
        inner = problem.fixed(model.losses(theta, slice(None))).solve(members, tol=0.1 * tol, options=asked.options)
        exact = problem.linear(asked.l2 or 0.0, asked.fit_intercept).solve(
            members, tol=0.5 * tol, options=asked.options
        )
        risk = inner.risk + model.penalty_value(theta)
        status = "stopped" if risk - exact.lower > tol else "separable" if exact.status == "separable" else "optimal"
        part = replace(inner.parts[0], point=replace(inner.point, theta=theta), adversary=exact.adversary, risk=risk)
        return replace(
            exact,
            model=model,
            parts=(part,),
            risk=risk,
            lower=meet(risk, exact.lower),
            status=status,
            checkpoint=None,
            n_steps=int(found.steps[-1]),
        )
