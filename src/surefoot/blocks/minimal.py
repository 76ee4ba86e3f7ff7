"""Plain transport over blocks: a semi-discrete dual, with a bound from each side in place of a transport plan.

Where there are few rows per anchor the plan itself is found, over few pairs at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from surefoot._types import FloatArray
from surefoot.dual.adversary import NearestPlanLabels, RuleMixture
from surefoot.dual.block import Block, RowlessProblem
from surefoot.dual.bounds import AnchorRepair
from surefoot.dual.objective import Evaluation, SmoothedDual
from surefoot.dual.point import DualPoint
from surefoot.dual.sweep import Sweep
from surefoot.problem.distances import DistanceRows
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.direction import StallError
from surefoot.solvers.newton import NewtonOptions, PathPoint, centre, follow_path
from surefoot.solvers.transport import TransportSolution, transport_by_pairs

_MAX_ROUNDS = 12
# Where the path begins, in units of the typical distance: above it all rows are as near to all anchors.
_FIRST_TAU = 0.05


@dataclass(frozen=True, eq=False)
class SoftTransport:
    """Transport between rows and anchors as a function of a row: softmax at potentials (n,), then repaired.

    cost, lower : both bounds of W_d; typical_distance : of a row to its anchors; path : where more rows may go on.
    """

    cost: float
    lower: float
    potentials: FloatArray
    tau: float
    repair: AnchorRepair
    typical_distance: float
    path: PathPoint

    def adversary(self, ds: DecisionSet, relabel: FloatArray, cost: float) -> RuleMixture:
        """Its labels, with the share relabel (K, K), [k, c], of each anchor class c turned into label k."""
        classes = (ds.anchor_labels[:, None] == np.arange(ds.n_classes)).astype(float)
        rule = NearestPlanLabels(self.potentials, self.tau, self.repair, classes, relabel)
        return RuleMixture(((1.0, rule, None),), cost)


@dataclass(frozen=True)
class PlannedTransport(TransportSolution):
    """Transport between rows and anchors with its plan, and the mean distance between them."""

    typical_distance: float

    @classmethod
    def of(cls, distances: DistanceRows, rows: FloatArray, anchors: FloatArray) -> PlannedTransport | None:
        """Exact, where there are few rows per anchor; None where there are more, or it failed."""
        found = transport_by_pairs(distances, rows, anchors)
        if found is None:
            return None
        typical = sum(float(rows[part] @ (chunk @ anchors)) for part, chunk in distances.chunks())
        return cls(found.cost, found.lower, found.plan, found.potentials, typical)


def solve_soft_transport(
    sweep: Sweep,
    ds: DecisionSet,
    *,
    tol: float,
    start: PathPoint | None = None,
    typical_distance: float | None = None,
    options: NewtonOptions,
) -> SoftTransport:
    """W_d with bounds that differ by at most tol times its value, or as float64 allows.

    A sample's path may be the start, and its typical distance that of all. Smoothed Newton in the n potentials alone,
    in float64. Lower bound: the dual at the potentials. Upper: the softmax plan, its anchor marginal repaired.
    """
    plain = RowlessProblem.plain_transport(ds)
    n = len(ds.anchor_weights)
    zero = DualPoint(np.zeros((0, 0)), 1.0, np.zeros(1), np.zeros(n))
    scale = typical_distance
    if scale is None:  # the cost of the plan that ignores where rows lie
        blind = AnchorRepair.blind(plain.decision_set)
        scale = float(sweep.total(plain, Block.plan_cost, zero, 1.0, blind).sums[0][0])
    path = start if start is not None else PathPoint(zero, tau=_FIRST_TAU * scale or 1.0)
    dual = SmoothedDual(plain.decision_set, plain.model, sweep, alpha_free=False, exact=True)
    target = 0.3 * tol * scale
    for _ in range(_MAX_ROUNDS):
        path = follow_path(dual, path, max(target, 1e-12), options)
        path = _polish(dual, path, tol, scale, options)
        lower = max(-sweep.upper_bound(plain, path.point)[0], 0.0)
        repair = sweep.anchor_repair(plain, path.point, path.tau)
        upper = float(sweep.total(plain, Block.plan_cost, path.point, path.tau, repair).sums[0][0])
        if upper - lower <= tol * max(upper, 1e-300) or path.stalled or path.steps >= options.max_steps:
            break
        target *= 0.3
        path = replace(path, tau=options.decrease * path.tau)
    again = replace(path, smoothing_gap=np.inf, stalled=False, steps=0)
    return SoftTransport(upper, lower, path.point.beta, path.tau, repair, scale, again)


def _polish(dual: SmoothedDual, path: PathPoint, tol: float, scale: float, options: NewtonOptions) -> PathPoint:
    """Centre until what is left to repair in the plan's anchor marginal costs far less than tol, in units of scale."""
    allowed = max(0.02 * tol * scale, 0.15 * (tol * scale - path.smoothing_gap))

    def centred(_point: DualPoint, here: Evaluation, decrement: float) -> bool:
        return max(0.5 * decrement, scale * float(np.abs(here.gradient[dual.layout.beta]).sum())) <= allowed

    try:
        point, _, used = centre(dual, path.point, path.tau, replace(options, round_steps=30), centred=centred)
    except StallError:
        return path
    return replace(path, point=point, steps=path.steps + used)
