"""A model learned at each radius."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.metrics import accuracy_score, log_loss

from surefoot._callbacks import FitProgress
from surefoot._errors import ParameterError
from surefoot._types import FloatArray
from surefoot.estimators.ball import WassersteinLogisticRegression
from surefoot.estimators.fit_problem import FitProblem
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.losses import probabilities
from surefoot.path.along import ball_scale, bound_along, grid_of, warn_about_largest_gap
from surefoot.path.curve import RadiusCurve
from surefoot.radius import weighted_median
from surefoot.unlabeled import Unlabeled


def learned_curve(
    estimator: RobustLogisticRegression | WassersteinLogisticRegression,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None,
    radii: ArrayLike | None,
    n_radii: int,
    sample_weight: ArrayLike | None,
    X_test: ArrayLike | None,
    y_test: ArrayLike | None,
) -> RadiusCurve:
    """A model learned at each radius, by as few solves as the tolerance takes, each started from the nearest one.

    Each entry equals a single fit at its radius, to the tolerance of the estimator.
    """
    if not isinstance(estimator, RobustLogisticRegression | WassersteinLogisticRegression):
        raise ParameterError(
            "classifier",
            "must be a RobustLogisticRegression or a WassersteinLogisticRegression if refit=True",
            type(estimator).__name__,
            "Pass one of these, or refit=False.",
        )
    model = clone(estimator)
    if (X_test is None) != (y_test is None):
        raise ParameterError("X_test", "and y_test must be given together", "one of them", "Pass both, or neither.")
    if isinstance(model, WassersteinLogisticRegression):
        if X_unlabeled is not None:
            raise ParameterError(
                "X_unlabeled", "must be None for the ball alone, which takes no unlabeled rows", "rows", "Leave it out."
            )
        minimal = 0.0
        steps = _ball_steps(model, X, y, sample_weight, grid_of(radii, n_radii, 0.0, ball_scale(model.label_cost, X)))
        labeled = np.asarray(X, dtype=np.float64)
        rows: Iterable[FloatArray] = [labeled]
        weights = np.ones(len(labeled)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    else:
        model.radius = 0.0  # radii are numbers, and the ground cost and penalty those of fits at numbers
        problem = FitProblem.of(model, X, y, sample_weight, X_unlabeled, FitProgress(model), compute=model.compute)
        minimal = problem.problem.minimal.value
        grid = grid_of(radii, n_radii, minimal, float(problem.problem.decision_set.label_cost.max()))
        steps = _robust_steps(problem, grid)
        warn_about_largest_gap((step.risk - step.lower for step in steps), problem.settings.tol)
        rows, weights = problem.problem.row_blocks, problem.problem.row_weights
    return _as_path(model, steps, minimal, rows, weights, X_test, y_test)


@dataclass(frozen=True)
class _Step:
    """The model at one radius of a path, and both bounds there."""

    radius: float
    coef: FloatArray
    intercept: FloatArray
    risk: float
    lower: float
    status: str


def _robust_steps(problem: FitProblem, grid: FloatArray) -> list[_Step]:
    tol = problem.settings.tol
    steps = []
    for radius, bound in zip(grid, bound_along(grid, problem.at, tol), strict=True):
        best = bound.solution
        coef, intercept = problem.game.coefficients(best.theta)
        penalty = best.model.penalty_value(best.theta)
        status = best.status if bound.upper - bound.lower <= tol else "stopped"
        steps.append(_Step(radius, coef, intercept, bound.upper - penalty, bound.lower - penalty, status))
    return steps


def _ball_steps(
    model: WassersteinLogisticRegression,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    grid: FloatArray,
) -> list[_Step]:
    steps = []
    for radius in grid:
        found = model.set_params(radius=float(radius)).fit(X, y, sample_weight=sample_weight).certificate_
        steps.append(_Step(radius, model.coef_, model.intercept_, found.risk, found.lower, found.status))
    return steps


def _as_path(
    model: RobustLogisticRegression | WassersteinLogisticRegression,
    steps: list[_Step],
    minimal: float,
    rows: Iterable[FloatArray],
    weights: FloatArray,
    X_test: ArrayLike | None,
    y_test: ArrayLike | None,
) -> RadiusCurve:
    median, largest, score, likelihood = [], [], [], []
    for step in steps:
        top = np.concatenate([probabilities(part @ step.coef.T + step.intercept).max(axis=1) for part in rows])
        median.append(weighted_median(top, weights))
        largest.append(float(top[weights > 0].max()))
        if X_test is not None:
            model.coef_, model.intercept_ = step.coef, step.intercept
            score.append(accuracy_score(y_test, model.predict(X_test)))
            likelihood.append(np.exp(-log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)))
    return RadiusCurve(
        radii=np.array([step.radius for step in steps]),
        minimal_radius=minimal,
        risk=np.array([step.risk for step in steps]),
        lower=np.array([step.lower for step in steps]),
        ball=isinstance(model, WassersteinLogisticRegression),
        median_confidence=np.array(median),
        max_confidence=np.array(largest),
        coef=np.array([step.coef for step in steps]),
        intercept=np.array([step.intercept for step in steps]),
        status=[step.status for step in steps],
        test_score=np.array(score) if X_test is not None else None,
        test_likelihood=np.array(likelihood) if X_test is not None else None,
    )
