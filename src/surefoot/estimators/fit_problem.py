"""Everything a fit of the robust linear classifier needs except the radius."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from surefoot._errors import CodedWarning, ParameterError, see, warn_caller
from surefoot._validation import (
    FitProgress,
    FloatArray,
    check_n_jobs,
    check_positive_integer,
    check_positive_scalar,
    check_unit_scalar,
)
from surefoot.backends.compute import Compute
from surefoot.certificates.calibration import AUTO, PREDICTIVE, CalibratedRadius, RadiusEstimate, resolve_radius
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.certification import ClassifierLoss, certify_groups
from surefoot.certificates.fresh import LinearLosses, LossFunction
from surefoot.certificates.groups import RowGroups
from surefoot.certificates.radius import largest_confident_radius
from surefoot.costs.learned import feature_spread
from surefoot.dual.models import Coordinates, LinearModel, Model
from surefoot.estimators.base import problem_of_fit, warn_about
from surefoot.problem.losses import LOG_LOSS, probabilities
from surefoot.problem.placement import rows_as_passed
from surefoot.problem.robust import InMemoryObjective, InMemoryProblem, Objective, RobustProblem
from surefoot.problem.rows import choose_ground_cost
from surefoot.solvers.newton import NewtonOptions
from surefoot.solvers.search.best_bounds import JointState, SetAtRadius
from surefoot.solvers.search.solution import Solution

# radius="predictive": label shares predicted for all rows, and the minimal radius plus a small excess.

# Excess in units of the label cost: this fraction of the rows may change their labels.
EXCESS = 0.001
# Inverse strength of the ridge penalty, scikit-learn's C: the mean loss is weighted by C·n against ½‖θ‖².
RIDGE = 0.5
# The same for a metric on unscaled features. This is scikit-learn's default.
RIDGE_AS_GIVEN = 1.0
# If the optimum predicts the same for every row, the excess shrinks by this factor, at most this many times.
_FALL, _MOST_FALLS = 0.25, 4
# Probabilities that differ by less than this count as equal.
_LITTLE = 0.02
_FOLDS, _C = 5, 0.3
# Maximum number of rows to predict the class shares on.
_MOST_SEEN = 10_000


def predicted_shares(problem: RobustProblem, coordinates: Coordinates | None = None) -> FloatArray:
    """Predict the (K,) class shares over all rows by a ridge logistic regression on the labels.

    The class shares of the labeled rows have a random error, and at a small radius the labels of all rows must have
    these shares. The features of the labeled rows show how large the error is. The result lies within the label
    intervals.
    """
    data, ds = problem.data, problem.decision_set
    given = ds.label_frequencies
    if len(ds.present) < 2:
        return given
    rule = data.rule
    if rule is not None:
        spread = rule.spread
    else:
        spread = feature_spread(data.rows, data.weights) if coordinates is None else coordinates.scale
    per_unit = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    weights = ds.anchor_weights / (ds.anchor_weights**2).sum()  # their sum is the effective number of labels
    model = LogisticRegression(C=_C, max_iter=1000)
    model.fit(problem.anchors * per_unit, ds.anchor_labels, sample_weight=weights)
    rows, row_weights = some_rows(problem)
    shares = np.zeros(ds.n_classes)
    shares[ds.present] = row_weights @ model.predict_proba(rows * per_unit) / row_weights.sum()
    return within(shares, ds.intervals)


def some_rows(problem: RobustProblem) -> tuple[FloatArray, FloatArray]:
    """Return rows of the feature marginal and their weights: all rows, or a weighted sample of a large marginal."""
    rule = problem.data.rule
    if rule is None:
        held = problem.sample(_MOST_SEEN, 0)
        return held.data.everything, held.row_weights
    first = rule.n_labeled if problem.data.target else 0
    return rule.seen[first:], rule.seen_weights[first:]


def within(shares: FloatArray, intervals: FloatArray) -> FloatArray:
    """Return (K,) shares shifted by one amount and clipped to the intervals (K, 2) such that they sum to 1."""
    lo, hi = intervals.T

    def total(shift: float) -> float:
        return float(np.clip(shares + shift, lo, hi).sum()) - 1.0

    if total(-1.0) >= 0 or total(1.0) <= 0:  # the intervals allow only one result, up to rounding
        return lo if total(-1.0) >= 0 else hi
    return np.clip(shares + brentq(total, -1.0, 1.0), lo, hi)


def answers_alike(rows: FloatArray, coef: FloatArray, intercept: FloatArray) -> bool:
    """Return True if a linear classifier predicts one class for every row, or nearly the same probabilities."""
    scores = rows @ coef.T + intercept
    proba = probabilities(scores.ravel() if scores.shape[1] == 1 else scores)
    return len(np.unique(proba.argmax(axis=1))) < 2 or bool(np.ptp(proba, axis=0).max() < _LITTLE)


def beats_a_constant(
    rows: FloatArray, codes: NDArray[np.intp], weights: FloatArray, spread: FloatArray | None = None
) -> bool:
    """Return True if cross-validated log loss prefers a ridge logistic regression to the label frequencies.

    spread : (d,) divisor of each feature, by default its standard deviation over these rows.
    """
    kept = weights > 0
    rows, codes, weights = rows[kept], codes[kept], weights[kept]
    counts = np.bincount(codes)
    folds = min(_FOLDS, int(counts[counts > 0].min()))
    if np.count_nonzero(counts) < 2 or folds < 2:
        return False
    spread = feature_spread(rows, weights) if spread is None else spread
    unit = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    split = StratifiedKFold(folds, shuffle=True, random_state=0)
    proba = _held_out(LogisticRegression(C=_C), unit, codes, split)
    constant = _held_out(LogisticRegression(C=1e-12), unit, codes, split)
    at = np.searchsorted(np.flatnonzero(counts), codes)
    gain = np.log(proba[np.arange(len(codes)), at]) - np.log(constant[np.arange(len(codes)), at])
    return bool(weights @ gain > 0)


def _held_out(model: Any, X: FloatArray, codes: NDArray[np.intp], split: StratifiedKFold) -> FloatArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found: FloatArray = cross_val_predict(model, X, codes, cv=split, method="predict_proba")
    return found


# For rows in blocks, radius="auto" evaluates the confidence on a sample of this size, to this gap.
AUTO_ROWS, AUTO_TOL = 10_000, 1e-3


@dataclass(frozen=True)
class FitSettings:
    """Validated parameters of one fit."""

    tol: float
    l2: float | None
    fit_intercept: bool
    confidence: float
    max_iter: int
    n_jobs: int | None

    @classmethod
    def from_estimator(cls, estimator: Any) -> FitSettings:
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
    """Coefficients (1, d) or (K, d), intercepts, certificate, Newton steps and penalty."""

    coef: FloatArray
    intercept: FloatArray
    certificate: Certificate
    steps: int
    l2: float

    def store(self, estimator: Any) -> None:
        """Set the fitted attributes of an estimator, except classes_ and the feature names."""
        estimator.coef_, estimator.intercept_ = self.coef, self.intercept
        estimator.certificate_, estimator.worst_case_ = self.certificate, self.certificate.worst_case
        estimator.radius_, estimator.n_iter_ = self.certificate.radius, max(1, self.steps)
        estimator.metric_, estimator.label_cost_ = self.certificate.metric, self.certificate.label_cost
        estimator.l2_ = self.l2


def _not_in_memory(what: Any) -> ParameterError:
    return ParameterError(
        "groups",
        "must be None unless all rows are in memory",
        what,
        "Pass unlabeled rows in memory, and $compute=None.",
    )


def as_robust_as_possible(
    problem: InMemoryProblem, model: Model, confidence: float, tol: float, against: Callable[..., Solution]
) -> Solution:
    """Learn at the largest radius with a median confidence of at least `confidence`. Warn if there is none.

    against : function that solves for a list of sets, given `warm_start` and `tol`.
    """
    search = largest_confident_radius(
        problem.decision_set, model, problem.minimal, confidence=confidence, tol=tol,
        solve=lambda ds, _model, *, tol, minimal, warm_start: against(
            [SetAtRadius(ds, minimal)], warm_start=warm_start, tol=tol
        ),
    )  # fmt: skip
    if not search.confident:
        warn_caller(
            CodedWarning(
                "low_confidence",
                f"even at radius {search.radius:.6g}, close to the minimal radius {problem.minimal.value:.6g}, "
                f"the median confidence is below {confidence}. This radius is used.",
                "Label more rows, or lower $confidence." + see("radius"),
                radius=search.radius,
                minimal_radius=problem.minimal.value,
                confidence=confidence,
            )
        )
    return search.solution


def with_problem(game: Objective, problem: RobustProblem) -> Objective:
    """Return the same model against the adversary of another problem with the same rows."""
    return replace(cast("Any", game), problem=problem)


def _ridge(problem: RobustProblem) -> tuple[float, bool]:
    """Return the predictive penalty, and whether it applies to standardized features.

    The penalty is 1/n on features in the units of a learned metric, the same strength as in scikit-learn's
    LogisticRegression.
    """
    per_label = float((problem.decision_set.anchor_weights**2).sum())
    unit = None if problem.data.rule is None else problem.data.rule.unit
    return (per_label / RIDGE, True) if unit is None else (per_label * unit**2 / RIDGE_AS_GIVEN, False)


def _l2_of(estimator: Any) -> float | None:
    """Return the penalty, given or set by "auto". None means the predictive penalty on standardized features."""
    if not _is_auto(estimator.l2):
        return check_positive_scalar(estimator.l2, "l2", allow_zero=True)
    return None if _predicts(estimator) else 0.0


def _predicts(estimator: Any) -> bool:
    return isinstance(estimator.radius, str) and estimator.radius == PREDICTIVE


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def label_prior_of(estimator: Any) -> Any:
    """Return the label prior as given. "auto" with the predictive radius means no prior.

    Intervals from y assume that labels are a random sample. With random labels, they do not change the result at a
    radius this small. With labels that were not sampled at random, they mislead.
    """
    return None if _predicts(estimator) and _is_auto(estimator.label_prior) else estimator.label_prior


@dataclass(frozen=True, eq=False)
class FitProblem:
    """The robust problem of a fit, and its linear model against the adversary.

    groups : groups of the rows, if the fit minimizes the largest loss over groups.
    """

    settings: FitSettings
    problem: RobustProblem
    game: Objective
    progress: FitProgress
    l2: float = 0.0
    groups: RowGroups | None = None

    @classmethod
    def from_arguments(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        X_unlabeled: Any,
        progress: FitProgress,
        *,
        X_target: Any = None,
        groups: Any = None,
        compute: Compute | None = None,
        memory_only: bool = False,
        merge: bool = False,
    ) -> Self:
        """Validate the arguments of fit. Set classes_ and the feature names of the estimator.

        merge : as for `robust_problem`.
        """
        settings = FitSettings.from_estimator(estimator)
        if groups is not None and compute is not None:
            raise _not_in_memory(compute)
        asked = resolve_radius(estimator.radius, auto=True)
        from_data = asked == PREDICTIVE or isinstance(asked, CalibratedRadius)
        label_cost, metric = choose_ground_cost(estimator.label_cost, estimator.metric, from_data=from_data)
        problem = problem_of_fit(
            estimator, X, y, sample_weight, X_unlabeled, X_target, label_prior=label_prior_of(estimator),
            label_cost=label_cost, metric=metric, tol=settings.tol, n_jobs=settings.n_jobs, compute=compute,
            memory_only=memory_only or groups is not None, merge=merge and groups is None,
        )  # fmt: skip
        found = cls.over(problem, settings, progress)
        if groups is None:
            return found
        if not isinstance(problem, InMemoryProblem):
            raise _not_in_memory("rows outside of memory")
        parts = rows_as_passed(problem, X, X_unlabeled, X_target)
        return replace(found, groups=RowGroups.from_arguments(groups, problem, parts))

    @classmethod
    def over(cls, problem: RobustProblem, settings: FitSettings, progress: FitProgress) -> Self:
        """Return the fit over rows that are already validated and placed."""
        l2, standardized = _ridge(problem) if settings.l2 is None else (settings.l2, False)
        game = problem.linear(l2, settings.fit_intercept, standardized=standardized)
        return cls(settings, problem, game, progress, l2)

    def solve(self, radius: float | str | CalibratedRadius) -> FittedModel:
        """Learn at a given radius, at the radius that a rule finds, or at an estimated radius."""
        if isinstance(radius, CalibratedRadius):
            self.problem.warn_if_picked()
            return self.at_estimate(self.problem.calibrate(radius))
        if radius in (AUTO, PREDICTIVE):
            found = self._auto() if radius == AUTO else self._to_predict()
            return replace(found, certificate=replace(found.certificate, guaranteed=False))
        return self.fitted(self.at_radius(float(radius)))

    def at_radius(self, radius: float, *, warm_start: JointState | None = None, tol: float | None = None) -> Solution:
        """Learn at a radius and return both bounds."""
        return self.against(self.problem.at_radius(radius), warm_start=warm_start, tol=tol)

    def against(
        self, members: list[SetAtRadius], *, warm_start: JointState | None = None, tol: float | None = None
    ) -> Solution:
        """Learn against one decision set, or against a union of decision sets, each with every group of rows."""
        asked = self.settings
        if self.groups is not None and len(self.groups.names) > 1:
            members = [replace(one, within=within) for one in members for within in self.groups.factors]
        return self.game.solve(
            members,
            tol=tol or asked.tol,
            warm_start=warm_start,
            options=asked.options,
            on_round=self.progress.round,
        )

    def warn_about(self, found: Certificate) -> None:
        """Warn if a fit did not reach its tolerance or has no finite optimum."""
        warn_about(found.status, found.gap, self.settings.tol)

    def fitted(self, solution: Solution, estimate: RadiusEstimate | None = None) -> FittedModel:
        """Return the coefficients of a solution, and their certificate."""
        coef, intercept = self.game.coefficients(solution.theta)
        certificate = self.game.certificate(
            [solution],
            LOG_LOSS,
            tol=self.settings.tol,
            estimate=estimate,
            losses_at=LinearLosses(coef, intercept),
        )
        if self.groups is not None:
            certificate = self._by_group(certificate, solution, LinearLosses(coef, intercept), estimate)
        return FittedModel(coef, intercept, certificate, solution.n_steps, self.l2)

    def _by_group(
        self, certificate: Certificate, solution: Solution, losses_at: LossFunction, estimate: RadiusEstimate | None
    ) -> Certificate:
        """Certify each group. The risk of the fit is the largest risk of a group."""
        if self.groups is None:
            return certificate
        parts = solution.parts[:: len(self.groups.names)]  # one part per set
        members = [SetAtRadius(part.decision_set, part.minimal) for part in parts]
        losses = np.vstack([losses_at(part) for part in self.problem.row_blocks])
        judged = ClassifierLoss(LOG_LOSS, None, None)
        each = certify_groups(self.problem, self.groups, losses, None, judged, members, None, estimate)
        worst = max(each.values(), key=lambda one: one.risk)
        return replace(
            certificate, risk=worst.risk, lower=min(certificate.lower, worst.risk), groups=each,
            worst_case=worst.worst_case, row_bound=None,
        )  # fmt: skip

    def at_estimate(self, estimate: RadiusEstimate) -> FittedModel:
        """Learn against the sets of an estimated radius: one set, or a union if there are label intervals."""
        return self.fitted(self.against(self.problem.tied(estimate.excess)), estimate)

    def _to_predict(self) -> FittedModel:
        """Learn at the predictive radius, with the label shares predicted for all rows."""
        problem = self.problem.with_label_shares(predicted_shares(self.problem, self.game.coordinates))
        balanced = replace(self, problem=problem, game=with_problem(self.game, problem))
        return balanced.fitted(balanced._at_predictive_radius())

    def _at_predictive_radius(self) -> Solution:
        """Learn at the predictive radius, or at a smaller one if the prediction is constant and a better one exists."""
        problem, coefficients = self.problem, self.game.coefficients
        excess = EXCESS * float(problem.decision_set.label_cost.max())
        solution = self.at_radius(problem.minimal.value + excess)
        rows = some_rows(problem)[0]
        if not answers_alike(rows, *coefficients(solution.theta)):
            return solution
        data = problem.data
        as_given = data.rule is not None and data.rule.unit is not None
        if not beats_a_constant(data.rows, data.codes, data.weights, data.rule.spread if as_given else None):
            return solution
        for _ in range(_MOST_FALLS):
            excess *= _FALL
            smaller = self.at_radius(problem.minimal.value + excess)
            if not answers_alike(rows, *coefficients(smaller.theta)):
                return smaller
        return solution

    def _auto(self) -> FittedModel:
        asked, problem = self.settings, self.problem
        if not isinstance(problem, InMemoryProblem):
            return self.fitted(
                self.at_radius(problem.minimal.value + self.sampled(AUTO_ROWS, 0, AUTO_TOL).auto_excess())
            )
        return self.fitted(as_robust_as_possible(problem, self.linear_model, asked.confidence, asked.tol, self.against))

    def sampled(self, most: int, seed: int, tol: float) -> Self:
        """Return the same fit over a sample of at most `most` unlabeled rows, in memory."""
        settings = replace(self.settings, tol=max(tol, self.settings.tol))
        return self.over(self.problem.sample(most, seed), settings, self.progress)

    def auto_excess(self) -> float:
        """Return the excess radius that the as-robust-as-possible rule finds."""
        found = self._auto().certificate
        return max(found.radius - found.minimal_radius, 0.0)

    @property
    def linear_model(self) -> LinearModel:
        if not isinstance(self.game, InMemoryObjective):
            raise TypeError("only a model over rows in memory gives access to its rows")
        return self.game.linear_model
