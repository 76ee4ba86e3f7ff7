"""A fixed classifier judged at each radius."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._validation import check_positive_scalar
from surefoot.blocks.compute import Compute
from surefoot.blocks.placement import check_problem
from surefoot.certification import ClassifierLoss, known_classes
from surefoot.costs import FeatureMetric
from surefoot.estimators.ball import ball_risk_of
from surefoot.exact.judge import JointState
from surefoot.exact.solution import Solution
from surefoot.losses import LOG_LOSS
from surefoot.path.along import ball_scale, bound_along, grid_of, warn_about_largest_gap
from surefoot.path.curve import RadiusCurve
from surefoot.priors import LabelPrior
from surefoot.unlabeled import Unlabeled


def judged_curve(  # noqa: PLR0913 - one keyword per part of the problem
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None,
    radii: ArrayLike | None,
    n_radii: int,
    sample_weight: ArrayLike | None,
    ball: bool,
    label_prior: LabelPrior | ArrayLike | str | None = "auto",
    loss: str | ArrayLike = LOG_LOSS,
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classes: ArrayLike | None = None,
    losses: ArrayLike | None = None,
    clip: float = 1e-12,
    tol: float = 1e-6,
    n_jobs: int | None = None,
    compute: Compute | None = None,
) -> RadiusCurve:
    """Worst expected loss of a fixed classifier at each radius, to a gap of tol; else as `certify`."""
    radii = None if radii is None else grid_of(radii, n_radii, 0.0, 1.0)
    tol = check_positive_scalar(tol, "tol")
    if ball:
        if not isinstance(loss, str) or loss != LOG_LOSS or losses is not None:
            raise ParameterError("loss", f"must be {LOG_LOSS!r} for the ball alone", "another", "Pass ball=False.")
        grid = grid_of(radii, n_radii, 0.0, 1.0 if radii is not None else ball_scale(label_cost, X))
        risk = ball_risk_of(classifier, X, y, grid, sample_weight=sample_weight, label_cost=label_cost, metric=metric)
        return RadiusCurve(grid, 0.0, risk, risk.copy(), ball=True)
    problem = check_problem(
        X,
        y,
        X_unlabeled=X_unlabeled,
        sample_weight=sample_weight,
        classes=known_classes(classifier, y, classes),
        metric=metric,
        label_prior=label_prior,
        label_cost=label_cost,
        compute=compute,
        n_jobs=n_jobs,
        tol=tol,
        memory_only=losses is not None,
    )
    judged = ClassifierLoss.of(classifier, problem.data.classes, loss, clip, own=losses is not None)
    game = judged.game(problem, X, X_unlabeled, losses)
    grid = grid_of(radii, n_radii, problem.minimal.value, float(problem.decision_set.label_cost.max()))

    def solve(radius: float, *, warm_start: JointState | None) -> Solution:
        return game.solve(problem.at(radius), tol=tol, warm_start=warm_start)

    bounds = bound_along(grid, solve, tol)
    warn_about_largest_gap((bound.upper - bound.lower for bound in bounds), tol)
    risk, lower = np.array([[bound.upper, bound.lower] for bound in bounds]).T
    return RadiusCurve(grid, problem.minimal.value, risk, lower, judged.name)
