"""Solve a robust problem over blocks: learning, or the inner problem at fixed losses, with both bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from surefoot._types import FloatArray
from surefoot.blocks.block import BlockAdversary, Header
from surefoot.blocks.minimal import Nearest
from surefoot.blocks.objective import BlockDual
from surefoot.blocks.sweep import Sweep
from surefoot.dual.bounds import AnchorRepair, dual_constant, label_repair, meet, retreat
from surefoot.dual.models import LinearModel
from surefoot.dual.objective import DualPoint
from surefoot.dual.smallest_loss import LowerBound, SmallestLoss
from surefoot.exact.search import ROOM, polish
from surefoot.solvers.newton import NewtonOptions, PathPoint, follow_path


@dataclass(frozen=True)
class BlockSolution:
    """A solved problem: both bounds, recomputed at the returned point, and the adversary as a function of a row.

    floor : the least Φ over the rows; status as in `CertifiedSolution`.
    """

    header: Header
    path: PathPoint
    nearest: Nearest
    adversary: BlockAdversary
    risk: float
    lower: float
    floor: float
    status: str

    @property
    def gap(self) -> float:
        return self.risk - self.lower


@dataclass
class BlockSearch:
    """The bounds found so far for one problem over blocks."""

    sweep: Sweep
    header: Header
    nearest: Nearest
    tol: float
    scale: float
    options: NewtonOptions
    on_round: Callable[[PathPoint], None] | None = None
    upper: tuple[float, float, PathPoint] | None = None
    lower: tuple[LowerBound, BlockAdversary] | None = None

    @property
    def gap(self) -> float:
        return self.upper[0] - self.lower[0].value if self.upper and self.lower else np.inf

    def dual(self, *, exact: bool = False) -> BlockDual:
        """The smoothed problem, given room to move while τ is large."""
        ground = self.nearest.upper or float(self.header.decision_set.label_cost.max())
        return BlockDual(
            self.sweep,
            self.header,
            exact=exact,
            minimal_radius=self.nearest.upper,
            potentials=(self.nearest.anchor_potentials, self.nearest.label_potentials),
            room=ROOM * ground / self.scale,
        )

    def descend(self, start: PathPoint, final_tau: float) -> PathPoint:
        """The early part of the path, to a smoothing from which a larger problem goes on."""
        path = follow_path(self.dual(), start, 0.0, self.options, self.on_round, final_tau=final_tau)
        return replace(path, smoothing_gap=np.inf, stalled=False, steps=0)

    def solve(self, start: PathPoint) -> BlockSolution:
        """Follow the path until the certified gap is within tol, or it can go no further."""
        dual, path, target = self.dual(), start, self.tol
        typical = self.nearest.typical_distance
        while True:
            path = follow_path(dual, path, target, self.options, self.on_round)
            path = polish(self.dual(exact=True), path, self.tol, self.scale, self.options, typical)
            self.certify(path)
            ended = path.stalled or path.steps >= self.options.max_steps or path.tau <= self.options.smallest_tau
            if self.gap <= self.tol or ended:
                return self.solution()
            target = 0.3 * min(target, path.smoothing_gap)
            path = replace(path, tau=self.options.decrease * path.tau)

    def certify(self, path: PathPoint) -> None:
        """Both bounds at a point; the best of each is kept."""
        risk, floor = self.upper_bound(path.point)
        if self.upper is None or risk < self.upper[0]:
            self.upper = (risk, floor, path)
        adversary = self.adversary(path.point, path.tau)
        lower = self.lower_bound(adversary, path.point.theta)
        if self.lower is None or lower.value > self.lower[0].value:
            self.lower = (lower, adversary)

    def upper_bound(self, point: DualPoint) -> tuple[float, float]:
        """The exact dual value, and the least Φ."""
        rows = self.sweep.total(self.header, "dual_rows", point)
        constant = dual_constant(self.header.decision_set, point) + self.header.model.penalty_value(point.theta)
        return constant + float(rows.sums[0][0]), -rows.largest[0]

    def adversary(self, point: DualPoint, tau: float) -> BlockAdversary:
        """The labels of the softmax plan, moved into the decision set."""
        ds = self.header.decision_set
        repair = AnchorRepair.of(ds, self.sweep.total(self.header, "mass", point, tau).sums[0])
        cost, labels = self.sweep.total(self.header, "plan", point, tau, repair).sums
        change, added = label_repair(ds, labels)
        whole = float(cost[0]) + added
        away = retreat(ds, whole, self.nearest.upper)
        return BlockAdversary(
            point, tau, change, away, self.nearest.plan, (1.0 - away) * whole + away * self.nearest.upper
        )

    def lower_bound(self, adversary: BlockAdversary, theta: FloatArray) -> LowerBound:
        """The smallest loss of the model under the adversary's labels."""
        model = self.header.model
        if not isinstance(model, LinearModel):
            return LowerBound(float(self.sweep.total(self.header, "expected_loss", adversary).sums[0][0]))
        sums = (
            lambda *at, name=name: self.sweep.total(self.header, "logistic", name, adversary, *at)
            for name in ("start", "local", "moved")
        )
        return SmallestLoss(model, *sums).bound(theta)

    def solution(self) -> BlockSolution:
        if self.upper is None or self.lower is None:
            raise RuntimeError("no point was certified: follow a path first")
        (risk, floor, path), (lower, adversary) = self.upper, self.lower
        status = "stopped" if self.gap > self.tol else "separable" if lower.unbounded else "optimal"
        value = meet(risk, lower.value)
        return BlockSolution(self.header, path, self.nearest, adversary, risk, value, floor, status)
