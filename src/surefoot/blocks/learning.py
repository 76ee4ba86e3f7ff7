"""Learn a robust linear classifier, or certify any classifier, over rows in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from surefoot._types import FloatArray
from surefoot.blocks.coordinates import standardize
from surefoot.blocks.minimal import Nearest
from surefoot.blocks.problem import BlockProblem
from surefoot.blocks.search import BlockSolution
from surefoot.calibration import AUTO, Calibrated, RadiusEstimate, calibrate
from surefoot.certificates.certificate import Certificate, WorstCase
from surefoot.certificates.fresh import LinearLosses, LossFunction, Piece, RowBound
from surefoot.dual.design import StandardizedRows
from surefoot.dual.models import LinearModel
from surefoot.losses import LOG_LOSS
from surefoot.solvers.newton import PathPoint

# The bounds of the minimal radius are to be this close, relative to it.
NEAREST_TOL = 1e-5
# Up to so many rows a certificate knows the labels of the worst case, and which rows it has seen.
_FEW_ROWS = 1 << 24


@dataclass(frozen=True)
class Learned:
    """Coefficients (1, d) or (K, d), intercepts, their certificate, and the steps that it took."""

    coef: FloatArray
    intercept: FloatArray
    certificate: Certificate
    steps: int


def learn(
    problem: BlockProblem,
    radius: float | str | Calibrated,
    *,
    l2: float,
    fit_intercept: bool,
    tol: float,
    auto_excess: Callable[[], float],
    on_round: Callable[[PathPoint], None] | None = None,
) -> Learned:
    """A robust linear classifier at a radius, at an estimate, or with "auto" at an excess found elsewhere."""
    model = standardize(problem.sweep, l2, fit_intercept)
    levels = problem.nearest_by_level(NEAREST_TOL)
    if radius == AUTO:
        radius = levels[-1].upper + auto_excess()
    at, estimate = resolve(problem, radius, levels[-1])
    solution = problem.learn(at, levels, model, tol=tol, on_round=on_round)
    theta = solution.path.point.theta
    found = model[0]
    columns = StandardizedRows(_no_rows(problem, model[1]), found.mean, found.scale, found.basis, found.fit_intercept)
    coef, intercept = columns.coefficients(theta)
    certificate = make_certificate(
        problem, solution, LOG_LOSS, estimate=estimate, losses_at=LinearLosses(coef, intercept)
    )
    return Learned(coef, intercept, certificate, solution.path.steps)


def resolve(
    problem: BlockProblem, radius: float | str | Calibrated, nearest: Nearest
) -> tuple[float, RadiusEstimate | None]:
    """A radius as a number; estimates come with how they were made."""
    if isinstance(radius, Calibrated):
        ds = problem.decision_set
        if np.any(ds.intervals[:, 0] < ds.intervals[:, 1]):
            raise ValueError(
                'radius="calibrated" with label intervals makes a union of decision sets, which is solved in memory '
                "only; got rows in blocks. Pass exact label probabilities as label_prior, or a number as radius."
            )
        estimate = calibrate(problem.data, ds, nearest, radius)
        return estimate.radius, estimate
    return float(radius), None


def make_certificate(
    problem: BlockProblem,
    solution: BlockSolution,
    loss: str,
    *,
    estimate: RadiusEstimate | None,
    losses_at: LossFunction | None,
    largest_loss: float | None = None,
) -> Certificate:
    """The certificate of a solved problem. A penalty is subtracted from both bounds: they speak of the loss."""
    header, nearest, data = solution.header, solution.nearest, problem.data
    ds, point = header.decision_set, solution.path.point
    penalty = header.model.penalty_value(point.theta)
    bound = None
    if problem.sweep.n_rows <= _FEW_ROWS:
        piece = Piece(ds, replace(point, theta=np.zeros((0, 0))), solution.floor)
        used = problem.sweep.gather(header, "fingerprints")
        bound = RowBound(header.anchors, data.metric, (piece,), losses_at, largest_loss, used, loss, ds.radius)
    return Certificate(
        solution.risk - penalty,
        solution.lower - penalty,
        ds.radius,
        nearest.upper,
        ds.intervals.copy(),
        loss,
        solution.status,
        _worst_case(problem, solution),
        estimate,
        bound,
    )


def _worst_case(problem: BlockProblem, solution: BlockSolution) -> WorstCase | None:
    header, adversary = solution.header, solution.adversary
    if problem.sweep.n_rows <= _FEW_ROWS:
        q = problem.sweep.gather(header, "label_proba", adversary)
        return WorstCase(q, problem.sweep.gather(header, "row_weights"), adversary.transport_cost)
    return None


def _no_rows(problem: BlockProblem, penalty: FloatArray) -> LinearModel:
    return LinearModel(np.empty((0, len(penalty))), penalty, len(problem.data.classes))


def certify_losses(
    problem: BlockProblem,
    radius: float | str | Calibrated,
    *,
    loss: str,
    losses_at: LossFunction,
    largest_loss: float | None,
    tol: float,
    scale: float,
) -> Certificate:
    """Worst expected loss of a fixed classifier; `scale` is the size of its losses."""
    levels = problem.nearest_by_level(NEAREST_TOL)
    at, estimate = resolve(problem, radius, levels[-1])
    solution = problem.learn(at, levels, None, tol=tol, scale=scale)
    return make_certificate(problem, solution, loss, estimate=estimate, losses_at=losses_at, largest_loss=largest_loss)
