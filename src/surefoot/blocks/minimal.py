"""The minimal radius over blocks: a semi-discrete dual, with a bound from each side in place of a transport plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from surefoot._types import FloatArray
from surefoot.blocks.block import Header, NearestPlan
from surefoot.blocks.objective import BlockDual
from surefoot.blocks.sweep import Sweep
from surefoot.dual.bounds import AnchorRepair, dual_constant
from surefoot.dual.objective import DualPoint
from surefoot.exact.search import polish
from surefoot.solvers.minimal import cheapest_relabeling
from surefoot.solvers.newton import NewtonOptions, PathPoint, follow_path

_MAX_ROUNDS = 12
# Where the path begins, in units of the typical distance: above it all rows are as near to all anchors.
_FIRST_TAU = 0.05


@dataclass(frozen=True)
class Nearest:
    """The distribution of the decision set that is nearest to the labeled rows, and both bounds on its distance.

    lower, upper : of the minimal radius; plan : behind the upper bound, as a function of a row; anchor_potentials (n,)
    and label_potentials (K,) : behind the lower one; typical_distance : of a row to its anchors.
    """

    lower: float
    upper: float
    plan: NearestPlan
    anchor_potentials: FloatArray
    label_potentials: FloatArray
    typical_distance: float
    path: PathPoint

    @property
    def value(self) -> float:
        """The minimal radius, from above: at this radius the set is known not to be empty."""
        return self.upper


def solve_nearest(
    sweep: Sweep,
    header: Header,
    *,
    tol: float,
    start: PathPoint | None = None,
    typical_distance: float | None = None,
    options: NewtonOptions,
) -> Nearest:
    """Minimal radius with bounds that differ by at most tol times its feature part, or as float64 allows.

    A sample's path may be the start, and its typical distance that of all. Smoothed Newton in the n potentials alone,
    in float64. Lower bound: the dual at the potentials. Upper: the softmax
    plan, its anchor marginal repaired, then relabeled as the intervals demand.
    """
    plain = header.without_labels()
    relabeling = cheapest_relabeling(header.decision_set)
    n = len(plain.anchors)
    scale = _typical_distance(sweep, plain) if typical_distance is None else typical_distance
    zero = DualPoint(np.zeros((0, 0)), 1.0, np.zeros(1), np.zeros(n))
    path = start if start is not None else PathPoint(zero, tau=_FIRST_TAU * scale or 1.0)
    dual, target = BlockDual(sweep, plain, exact=True, alpha_free=False), 0.3 * tol * scale
    for _ in range(_MAX_ROUNDS):
        path = follow_path(dual, path, max(target, 1e-12), options)
        path = polish(dual, path, tol * scale, scale, options, scale)
        lower, upper, repair = _both_bounds(sweep, plain, path)
        if upper - lower <= tol * max(upper, 1e-300) or path.stalled or path.steps >= options.max_steps:
            break
        target *= 0.3
        path = replace(path, tau=options.decrease * path.tau)
    ds = header.decision_set
    classes = (ds.anchor_labels[:, None] == np.arange(ds.n_classes)).astype(float)
    cost = upper + relabeling.cost
    return Nearest(
        lower + relabeling.cost,
        cost,
        NearestPlan(path.point.beta, path.tau, repair, classes, relabeling.share, cost),
        path.point.beta - relabeling.from_potentials[ds.anchor_labels],
        relabeling.to_potentials,
        scale,
        replace(path, smoothing_gap=np.inf, stalled=False, steps=0),
    )


def _both_bounds(sweep: Sweep, plain: Header, path: PathPoint) -> tuple[float, float, AnchorRepair]:
    ds = plain.decision_set
    rows = sweep.total(plain, "dual_rows", path.point).sums[0][0]
    lower = -float(rows) - dual_constant(ds, path.point)
    repair = AnchorRepair.of(ds, sweep.total(plain, "mass", path.point, path.tau).sums[0])
    upper = float(sweep.total(plain, "plan", path.point, path.tau, repair).sums[0][0])
    return max(lower, 0.0), upper, repair


def _typical_distance(sweep: Sweep, plain: Header) -> float:
    """Mean distance of rows and anchors: the cost of the plan that ignores where rows lie."""
    ds = plain.decision_set
    blind = AnchorRepair(
        np.zeros(len(ds.anchor_weights)), np.ones(1), ds.anchor_weights, np.zeros(len(ds.anchor_weights))
    )
    point = DualPoint(np.zeros((0, 0)), 0.0, np.zeros(1), np.zeros(len(ds.anchor_weights)))
    return float(sweep.total(plain, "plan", point, 1.0, blind).sums[0][0])
