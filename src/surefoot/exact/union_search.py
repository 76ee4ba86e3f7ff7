"""The search behind `solve_union`: one path for all sets at once, and both bounds of the union along it.

Sets that turn out not to matter are left behind as τ falls; the upper bound asks all of them, and one that matters
after all is taken in again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from surefoot._types import FloatArray
from surefoot.dual.bounds import (
    Adversary,
    allowance,
    dual_value,
    feasible_adversary,
    opened_radius,
    soft_adversary,
)
from surefoot.dual.models import FixedLosses, LinearModel
from surefoot.dual.objective import DualPoint, SmoothedDual
from surefoot.dual.smallest_loss import LowerBound, lower_bound
from surefoot.exact.search import ROOM, mean_distance
from surefoot.exact.solution import solve_certified
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal import MinimalRadius
from surefoot.solvers.newton import NewtonOptions, PathPoint, PathState, StallError, centre_objective, follow
from surefoot.solvers.starts import coarsen, cold_start
from surefoot.solvers.union_objective import UnionDual, UnionEvaluation, UnionPoint
from surefoot.solvers.vertex import nearest_feasible

# At the minimal radius itself α is fixed at these multiples of 1 / ground cost, one after the other, as for one set.
_STEEP = (1e4, 3e5, 1e7)
# There the path ends at this share of tol, if not before.
_SMOOTH_ENOUGH = 0.1
# The early part of the path runs over few rows down to this τ, as for one set.
_COARSE_TAU = 0.02
# Which sets matter is asked each time that τ has fallen to this share; those do not whose dual value is below the
# largest by this multiple of the smoothing gap. One that matters after all rejoins at a τ of at least the last number.
_STAGE, _FAR, _REJOIN_TAU = 0.3, 3.0, 3e-3
# Adversaries of smaller weight are left out of the mixture.
_LEAST_WEIGHT = 1e-7
# Problems of at most so many distances are solved to rounding at their last τ, as for one set.
_SMALL = 100_000

UnionState = PathState[UnionPoint]


@dataclass(frozen=True)
class Member:
    """One decision set of a union, with its minimal radius."""

    decision_set: DecisionSet
    minimal: MinimalRadius

    @cached_property
    def mean_distance(self) -> float:
        """Mean feature distance between rows and anchors, or the label cost where all rows coincide."""
        return mean_distance(self.decision_set)

    @property
    def ground(self) -> float:
        """Size of ground costs: radii are measured in it."""
        return self.minimal.value or self.mean_distance

    @property
    def opened(self) -> DecisionSet:
        """The set, or where its radius is the minimal one, one larger by rounding error: it then has an interior."""
        return self.decision_set.with_radius(opened_radius(self.decision_set, self.minimal.value, share=0.4))

    @property
    def closed(self) -> bool:
        """Whether the radius is the minimal one, to rounding."""
        return self.decision_set.radius < self.opened.radius

    def dual(self, model: LinearModel, executor: Executor | None, *, alpha_free: bool) -> SmoothedDual:
        """The smoothed problem, given room to move while τ is large; without it where α is fixed."""
        if not alpha_free:
            return SmoothedDual(self.decision_set, model, alpha_free=False, executor=executor)
        return SmoothedDual(
            self.opened,
            model,
            minimal_radius=self.minimal.value,
            potentials=(self.minimal.anchor_potentials, self.minimal.label_potentials),
            room=ROOM * self.ground,
            executor=executor,
        )

    def start(self, model: LinearModel) -> DualPoint:
        """Where the path of this set starts, at τ = 1."""
        return cold_start(self.decision_set, model, 1.0, self.mean_distance).point

    def steep_start(self, model: LinearModel, steepness: float) -> DualPoint:
        """The same with α fixed so high that no loss pays for leaving the cheapest plans."""
        layout = self.dual(model, None, alpha_free=False).layout
        lam, beta = layout.reference_potentials(self.minimal.anchor_potentials, self.minimal.label_potentials)
        alpha = steepness / self.ground
        return DualPoint(np.zeros(model.shape), alpha, alpha * lam, alpha * beta)

    def repair_costs(self, dual: SmoothedDual, point: DualPoint, gradient: FloatArray) -> tuple[float, float]:
        """About what it costs the adversary to make its anchor marginal, and its label probabilities, exact."""
        ds, at = dual.set, dual.layout
        price = point.alpha if at.alpha_free else 1.0 / self.mean_distance
        off, label_cost = gradient[at.beta], float(ds.label_cost.max())
        across = np.abs(np.add.reduceat(off, ds.class_offsets[:-1])).sum()
        anchors = price * (np.abs(off).sum() * self.mean_distance + across * label_cost)
        return float(anchors), float(np.abs(gradient[at.lam]).sum() * (price * label_cost + 4.0))


@dataclass(frozen=True)
class Upper:
    """The largest of the dual values at the points (S) of all sets, which share one θ; weights (S,) and τ there."""

    risk: float
    points: list[DualPoint]
    weights: FloatArray
    tau: float


@dataclass(frozen=True)
class Mixture:
    """A lower bound for the union: the smallest loss under a mixture of adversaries (S), by weights (S,)."""

    bound: LowerBound
    weights: FloatArray
    adversaries: list[Adversary]
    mixture: Adversary


@dataclass
class UnionSearch:
    """The bounds found so far.

    Every lower bound holds for the union, whichever sets take part in its mixture. `points` (S) are the latest dual
    points: that of a set left behind stays where it was left.
    """

    members: list[Member]
    model: LinearModel
    tol: float
    options: NewtonOptions
    executor: Executor | None
    on_round: Callable[[PathPoint], None] | None
    upper: Upper | None = None
    lower: Mixture | None = None
    points: list[DualPoint] = field(default_factory=list)
    fixed: bool = False  # whether α is fixed where the radius is the minimal one
    n_steps: int = 0

    @property
    def gap(self) -> float:
        return self.upper.risk - self.lower.bound.value if self.upper and self.lower else np.inf

    def learn(self) -> tuple[Upper, Mixture]:
        """Solve to a gap ≤ tol, or as far as float64 and the options go."""
        if any(member.closed for member in self.members):
            self._learn_at_minimal_radius()
        if self.gap > self.tol:
            quick, cold = self._coarse_start(), self._start([member.start(self.model) for member in self.members])
            self._follow(cold if quick is None else quick, leave_behind=True)
            if self.gap > self.tol:
                self._follow(cold, leave_behind=False)
            if self.gap > self.tol:
                self._repair_by_linear_program()
        if self.upper is None or self.lower is None:
            raise RuntimeError("no point was certified")
        return self.upper, self.lower

    def _learn_at_minimal_radius(self) -> None:
        """Fix α of the sets that have no interior; how high is enough depends on ties, so several are tried."""
        self.fixed = True
        for steepness in _STEEP:
            starts = [
                one.steep_start(self.model, steepness) if one.closed else one.start(self.model) for one in self.members
            ]
            self._follow(self._start(starts), leave_behind=False)
            if self.gap > self.tol:
                self._repair_by_linear_program()
            if self.gap <= self.tol:
                break
        self.fixed = False

    def _start(self, points: list[DualPoint]) -> UnionState:
        return PathState(UnionPoint(tuple(points)), 1.0)

    def _coarse_start(self) -> UnionState | None:
        """Follow the early part of the path over few rows, the same for all sets; None where that does not pay."""
        coarse = []
        for member in self.members:
            rng = np.random.default_rng(0)  # the same for each: the sets must keep the same rows
            found = coarsen(member.opened, self.model, member.minimal.transport, 1.0, rng)
            if found is None:
                return None
            coarse.append(found)
        dual = UnionDual([SmoothedDual(one.decision_set, one.model, executor=self.executor) for one in coarse])
        start = PathState(UnionPoint(tuple(one.start.point for one in coarse)), coarse[0].start.tau)
        path = follow(dual, start, 0.0, self.options, self._visit, final_tau=_COARSE_TAU)
        return None if path.stalled or np.isinf(path.smoothing_gap) else replace(path, smoothing_gap=np.inf)

    def _follow(self, path: UnionState, *, leave_behind: bool) -> None:
        """Follow the path of all sets until the certified gap is within tol or it can go no further."""
        inside, target = list(range(len(self.members))), self.tol
        self.points = list(path.point.parts)
        while True:
            dual = self._dual(inside)
            final_tau = _STAGE * path.tau if leave_behind else 0.0
            path = follow(dual, path, target, self.options, self._visit, final_tau)
            ended = path.stalled or path.steps >= self.options.max_steps or path.tau <= self.options.smallest_tau
            # with α fixed and high a smaller τ adds rounding errors only: what is left is to repair the adversaries
            ended = ended or (self.fixed and path.smoothing_gap <= _SMOOTH_ENOUGH * self.tol)
            if path.smoothing_gap <= target or ended:
                path = self._polish(dual, inside, path)
                missed = self._certify(dual, inside, path)
                if self.gap <= self.tol:
                    path = self._refine(dual, inside, path)
                if self.gap <= self.tol or (ended and not missed):
                    break
                if missed:
                    inside, leave_behind = sorted([*inside, *missed]), False
                    path = self._rejoin(inside, path)
                    continue
                target = 0.3 * min(target, path.smoothing_gap)
            elif leave_behind:
                inside, path = self._leave_behind(dual, inside, path)
            path = replace(path, tau=self.options.decrease * path.tau)
        self.n_steps += path.steps

    def _dual(self, inside: list[int]) -> UnionDual:
        chosen = [self.members[s] for s in inside]
        return UnionDual(
            [one.dual(self.model, self.executor, alpha_free=not (self.fixed and one.closed)) for one in chosen]
        )

    def _leave_behind(self, dual: UnionDual, inside: list[int], path: UnionState) -> tuple[list[int], UnionState]:
        """Drop the sets whose dual value lies below the largest by far more than a smaller τ could change."""
        here = dual.evaluate(path.point, path.tau, second_order=False)
        values = np.array([part.value for part in here.parts])
        near = values >= values.max() - _FAR * path.smoothing_gap
        for s, part in zip(inside, path.point.parts, strict=True):
            self.points[s] = part
        kept = [s for s, keep in zip(inside, near, strict=True) if keep]
        return kept, replace(path, point=UnionPoint(tuple(self.points[s] for s in kept)))

    def _rejoin(self, inside: list[int], path: UnionState) -> UnionState:
        """Start again from the points at hand, at a τ where the sets now taken in can still change much."""
        point = UnionPoint.with_theta(path.point.theta, [self.points[s] for s in inside])
        return PathState(point, max(path.tau, _REJOIN_TAU), path.steps)

    def _certify(self, dual: UnionDual, inside: list[int], path: UnionState) -> list[int]:
        """Improve both bounds; return the sets left behind over which this classifier is worse than the lower bound."""
        for s, part in zip(inside, path.point.parts, strict=True):
            self.points[s] = part
        theta, weights = path.point.theta, np.zeros(len(self.members))
        weights[inside] = dual.evaluate(path.point, path.tau, second_order=False).weights
        least = self._consider_mixture(self._soft_adversaries(weights, self.points, path.tau), weights, theta)
        points = [replace(point, theta=theta) for point in self.points]
        risks = [
            dual_value(one.decision_set, self.model, point) for one, point in zip(self.members, points, strict=True)
        ]
        allowed = max(least + self.tol, *(risks[s] for s in inside))
        for s in range(len(self.members)):
            if risks[s] > allowed:
                risks[s], points[s] = self._worst_case(s, theta)
        self.points = points
        if self.upper is None or max(risks) < self.upper.risk:
            self.upper = Upper(max(risks), points, weights, path.tau)
        return [s for s, risk in enumerate(risks) if risk > allowed]

    def _worst_case(self, s: int, theta: FloatArray) -> tuple[float, DualPoint]:
        """The risk of a classifier over one set, penalty included, and the dual point that proves it."""
        member, losses = self.members[s], FixedLosses(self.model.losses(theta, slice(None)))
        found = solve_certified(
            member.decision_set, losses, tol=0.25 * self.tol, minimal=member.minimal, options=self.options
        )
        return found.risk + self.model.penalty_value(theta), replace(found.path.point, theta=theta)

    def _soft_adversaries(self, weights: FloatArray, points: list[DualPoint], tau: float) -> dict[int, Adversary]:
        """Adversaries of the soft plans, those of little weight left out."""
        chosen = np.flatnonzero(weights >= _LEAST_WEIGHT).tolist()
        return {s: soft_adversary(self.members[s].decision_set, self.model, points[s], tau) for s in chosen}

    def _consider_mixture(self, wanted: dict[int, Adversary], weights: FloatArray, theta: FloatArray) -> float:
        """Mix the adversaries wanted, after each was moved into its set; the best lower bound so far."""
        adversaries = [member.minimal.adversary for member in self.members]
        labels, cost, shares = np.zeros_like(adversaries[0].label_proba), 0.0, np.zeros(len(weights))
        total = sum(weights[s] for s in wanted)
        for s, one in wanted.items():
            adversaries[s], shares[s] = self._feasible(s, one), weights[s] / total
            labels += shares[s] * adversaries[s].label_proba
            cost += shares[s] * adversaries[s].transport_cost
        mixture = Adversary(labels, cost)
        bound = lower_bound(self.members[0].decision_set, self.model, mixture, theta)
        if self.lower is None or bound.value > self.lower.bound.value:
            self.lower = Mixture(bound, shares, adversaries, mixture)
        return self.lower.bound.value

    def _feasible(self, s: int, wanted: Adversary) -> Adversary:
        ds, minimal = self.members[s].decision_set, self.members[s].minimal
        # the best adversary so far is a better place to retreat to than the cheapest one, when it is as cheap
        retreat = minimal.adversary
        most = minimal.value + allowance(ds, minimal.value)
        if self.lower is not None and self.lower.adversaries[s].transport_cost <= most:
            retreat = self.lower.adversaries[s]
        return feasible_adversary(ds, wanted, retreat)

    def _repair_by_linear_program(self) -> None:
        """Where Newton stalls: move the labels of each soft plan no further than it takes to be feasible."""
        if self.upper is None:
            return
        points, weights, theta = self.upper.points, self.upper.weights, self.upper.points[0].theta
        losses = self.model.losses(theta, slice(None))
        soft = self._soft_adversaries(weights, points, self.upper.tau)
        for slack in (1e-3, 1e-2, 1e-1):
            repaired = dict(soft)
            for s, one in soft.items():
                opened = self.members[s].opened
                found = nearest_feasible(opened, losses, points[s], slack, one.label_proba, opened.radius)
                repaired[s] = one if found is None else Adversary(*found)
            self._consider_mixture(repaired, weights, theta)
            if self.gap <= self.tol:
                return

    def _visit(self, state: UnionState) -> None:
        if self.on_round is not None:
            self.on_round(PathState(state.point.parts[0], state.tau, state.steps, state.smoothing_gap))

    def _polish(self, dual: UnionDual, inside: list[int], path: UnionState) -> UnionState:
        """Centre until what is left to repair in the plans' marginals costs the lower bound far less than tol."""
        allowed = max(0.02 * self.tol, 0.15 * (self.tol - path.smoothing_gap))
        members = [self.members[s] for s in inside]

        def centred(point: UnionPoint, here: UnionEvaluation, decrement: float) -> bool:
            parts = zip(members, dual.duals, point.parts, here.parts, strict=True)
            repairs = np.array([one.repair_costs(its, part, local.gradient) for one, its, part, local in parts])
            model = 10.0 * np.square(here.gradient[: point.theta.size]).sum()
            return max(0.5 * decrement, *(here.weights @ repairs), model) <= allowed

        options = replace(self.options, round_steps=30)
        try:
            point, _, used = centre_objective(dual, path.point, path.tau, options, centred=centred)
        except StallError:
            return path
        return replace(path, point=point, steps=path.steps + used)

    def _refine(self, dual: UnionDual, inside: list[int], path: UnionState) -> UnionState:
        """Go on to rounding at the last τ, on small problems: the order of rows and steps then leaves no trace."""
        if self.members[0].decision_set.distances.size > _SMALL:
            return path
        options = replace(self.options, round_steps=12)
        try:
            point, _, used = centre_objective(
                dual, path.point, path.tau, options, centred=lambda _p, _e, decrement: decrement < 1e-18
            )
        except StallError:
            return path  # no decrease left to find: the point is as good as float64 allows
        exact = replace(path, point=point, steps=path.steps + used)
        before, self.upper = self.upper, None
        self._certify(dual, inside, exact)
        if self.gap > self.tol:
            self.upper = before
        return exact
