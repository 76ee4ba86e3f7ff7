"""Search for both bounds of a robust problem: follow paths of the smoothed dual, certify, repair, and continue.

One loop serves one decision set, a union of sets, rows in memory and rows in blocks. As τ falls, inactive sets of a
union are dropped. The upper bound checks all sets. If a dropped set turns out to be active, it is added again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.dual.models import AnyClassifier, DualPoint, LinearModel
from surefoot.dual.objective import SmoothedDual
from surefoot.solvers.direction import StallError
from surefoot.solvers.joint_objective import JointDual, JointEvaluation, JointPoint
from surefoot.solvers.newton import NewtonOptions, PathState, centre_objective, follow
from surefoot.solvers.search.best_bounds import BestBounds, JointState, SetAtRadius, with_theta
from surefoot.solvers.search.endings import (
    AT_MINIMUM,
    COLD,
    INSIDE,
    PROGRAM,
    QUICK,
    VERTEX,
    WARM,
    InteriorEnd,
    SearchLog,
    Stage,
    StopRule,
    cold_start,
    polish,
)
from surefoot.solvers.search.linear_programs import (
    repair_by_linear_program,
    try_vertex,
    vertex_at_minimal_radius,
    vertices_within,
)

# If no classifier beats a constant classifier, which gives every label the same probability, the worst case is log K.
# If F_τ suggests a constant classifier, bounds are computed early, and again each time τ has fallen to this share.
_ASK_AGAIN = 0.2
# The early bounds are skipped if smoothing costs more than this multiple of log K. F_τ is then large in any case.
_TOO_SMOOTH = 0.05
# A set needs no hedge if some classifier beats a constant classifier over this set by this multiple of tol.
_BETTER = 0.6
# Near the minimal radius the set is widened by this share of the ground cost per unit of relative smoothing.
ROOM = 2e-2
# At the minimal radius, α is fixed at these multiples of loss / ground cost, one after another, because the sufficient
# value depends on ties among plans. The last number limits the Newton steps at each value, unless the problem is small.
_STEEP, _STEPS_AT_MINIMUM = (1e4, 3e5, 1e7), 200
# At the minimal radius, the path of a union ends at this share of tol. A smaller τ would only add rounding errors.
_SMOOTH_ENOUGH = 0.1
# A set is inactive if its dual value is below the largest by more than this multiple of the smoothing gap. Inactive
# sets are dropped each time τ has fallen to the second number's share, and once they are the third number's share of
# all sets. A dropped set rejoins at a τ of at least the last number.
_FAR, _STAGE, _MANY, _REJOIN_TAU = 2.0, 0.3, 0.25, 3e-3
# If polishing runs out of steps, a linear program over this share of the loss repairs the adversary. The second number
# limits the distances, summed over all sets.
_REPAIR_SHARE, _FEW_TO_REPAIR = 1e-2, 2_000_000
# Learning over all classifiers ends at a smoothing gap of this multiple of tol (half of it for costs), because the
# bounds are much closer than the smoothing gap. The ridge of a step is at least the second number's share of tol.
_RESPONSE_GAP, _RESPONSE_RIDGE = 8.0, 1e-3
# Problems with at most this many distances are solved to rounding at their last τ, unless tol is at least this large.
SMALL, _ROUGH_TOL = 100_000, 2e-3


@dataclass
class Search:
    """A search in progress.

    typical : the size of a distance; scale : the size of the losses.
    points : (S) the latest dual point of each set. `tau_when_left` : the τ at which a set was dropped.
    fixed_alpha : True if α is fixed, at the minimal radius.
    tau_of_constant : the τ at which a constant classifier was last tried.
    interior : the interior-point end of the current path.
    """

    judge: BestBounds
    typical: float
    tol: float
    options: NewtonOptions
    on_round: Callable[[JointState], None] | None = None
    stop: StopRule = field(default_factory=StopRule)
    points: list[DualPoint] = field(default_factory=list)
    tau_when_left: dict[int, float] = field(default_factory=dict)
    fixed_alpha: bool = False
    tau_of_constant: float = np.inf
    log: SearchLog = field(default_factory=SearchLog)
    interior: InteriorEnd = field(init=False)

    @property
    def members(self) -> list[SetAtRadius]:
        return self.judge.members

    @property
    def gap(self) -> float:
        return self.judge.gap

    @property
    def ended(self) -> bool:
        """True if neither bound needs to improve."""
        return self.gap <= self.tol or self.stop.reached

    @property
    def scale(self) -> float:
        return self.judge.model.scale

    @property
    def fixed_losses(self) -> bool:
        """True if no classifier is learned, so that the problem is a linear program."""
        return not (self.judge.model.learns or self.judge.model.responds)

    @property
    def exact(self) -> bool:
        """True if the result should not depend on the order of rows: small problems, up to rounding."""
        return self.n_distances <= SMALL and self.tol < _ROUGH_TOL

    @property
    def _gap_factor(self) -> float:
        """The smoothing gap at which bounds are first computed, in units of tol."""
        model = self.judge.model
        if not isinstance(model, AnyClassifier):
            return 1.0
        return _RESPONSE_GAP if model.game is None else 0.5 * _RESPONSE_GAP

    @property
    def n_distances(self) -> int:
        return self.judge.sweep.n_rows * len(self.members[0].decision_set.anchor_weights)

    def run(self, start: JointState | None, quick: Callable[[Search], JointState | None]) -> None:
        """Run the stages in order until the gap is within tol, from `start` or from the start that `quick` returns."""
        if any(member.closed for member in self.members):
            self._stage(AT_MINIMUM, self._at_minimal_radius)
        if not self.ended and start is None and len(self.members) > 2 and self.judge.model.learns:
            self._hedge_against_one_set(quick)
        if self.ended:
            return
        begun = start if start is not None else quick(self)
        if begun is not None:
            self._stage(QUICK if start is None else WARM, lambda: self.follow(begun, leave_behind=True))
        if not self.ended:
            self._stage(QUICK if begun is None else COLD, lambda: self.follow(self.cold(), leave_behind=begun is None))
        if not self.ended:
            self._stage(PROGRAM, self._by_linear_program)

    def _stage(self, name: str, work: Callable[[], None]) -> None:
        before, at = (self.judge.upper, self.judge.lower), len(self.log.stages)
        work()
        inner = self.log.stages[at:]  # a vertex that ended this stage
        improved = before[0] is not self.judge.upper or before[1] is not self.judge.lower
        self.log.stages[at:] = [Stage(name, self.gap, improved and not inner), *inner]

    def cold(self) -> JointState:
        """Return the start of a path at θ = 0."""
        model = self.judge.model
        starts = [cold_start(one.decision_set, model, self.scale, self.typical) for one in self.members]
        return PathState(JointPoint(tuple(one.point for one in starts)), self.scale)

    def dual(self, member: SetAtRadius, *, exact: bool = True) -> SmoothedDual:
        """Return the smoothed problem of one set. Either its radius is wider while τ is large, or α is fixed."""
        model, sweep, minimal = member.model(self.judge.model), self.judge.sweep, member.minimal
        if self.fixed_alpha and member.closed:
            return SmoothedDual(member.decision_set, model, sweep, alpha_free=False, exact=exact)
        return SmoothedDual(
            member.opened,
            model,
            sweep,
            minimal_radius=minimal.value,
            potentials=(minimal.anchor_potentials, minimal.label_potentials),
            room=ROOM * self.ground(member) / self.scale,
            exact=exact,
        )

    def ground(self, member: SetAtRadius) -> float:
        """Return the size of ground costs, the unit of radii."""
        return member.minimal.value or self.typical

    def _joint(self, inside: list[int], *, exact: bool) -> JointDual:
        return JointDual([self.dual(self.members[s], exact=exact) for s in inside])

    def _at_minimal_radius(self) -> None:
        """Solve a linear program over the cheapest plans for fixed losses; else fix α of the sets without interior.

        α is so large that no loss justifies leaving the cheapest plans. With losses of size `scale`, a plan that costs
        δ more would have to gain αδ.
        """
        if self.fixed_losses and len(self.members) == 1:
            vertex_at_minimal_radius(self.judge, self.cold(), self.tol)
            if self.gap <= self.tol:
                return
        self.fixed_alpha, options = True, self.options
        if self.n_distances > SMALL and len(self.members) == 1:
            self.options = replace(options, max_steps=min(_STEPS_AT_MINIMUM, options.max_steps))
        for steepness in _STEEP:
            points = [self._steep_start(one, steepness) for one in self.members]
            self.follow(PathState(JointPoint(tuple(points)), self.scale), leave_behind=False)
            if self.gap <= self.tol:
                break
        self.fixed_alpha, self.options = False, options
        self.log.visited.clear()  # an α this large is a poor start for other problems

    def _steep_start(self, member: SetAtRadius, steepness: float) -> DualPoint:
        model, minimal = self.judge.model, member.minimal
        if not member.closed:
            return cold_start(member.decision_set, model, self.scale, self.typical).point
        alpha = steepness * self.scale / self.ground(member)
        lam, beta = self.dual(member).layout.reference_potentials(minimal.anchor_potentials, minimal.label_potentials)
        return DualPoint(np.zeros(model.shape), alpha, alpha * lam, alpha * beta)

    def _by_linear_program(self) -> None:
        """If Newton stalls, use a linear program to solve the problem for fixed losses, or to repair an adversary."""
        if self.judge.model.responds:
            return
        shares = (1e-3, 1e-2, 1e-1)
        for share in shares if self.judge.model.learns or self.n_distances > SMALL else (*shares, np.inf):
            if self.judge.model.learns:
                repair_by_linear_program(self.judge, share * self.scale)
            else:
                vertices_within(self.judge, share * self.scale, self.tol)
            if self.gap <= self.tol:
                return

    def descend(self, start: JointState, final_tau: float) -> JointState:
        """Follow the early part of the path, down to a smoothing at which a larger problem continues."""
        joint = self._joint(list(range(len(self.members))), exact=False)
        path = follow(joint, start, 0.0, self.options, self._visit, final_tau)
        self.log.visited.clear()
        return path

    def follow(self, path: JointState, *, leave_behind: bool) -> None:
        """Follow the path of all sets until the certified gap is within tol or the path cannot continue."""
        inside, target = list(range(len(self.members))), self.tol * self._gap_factor
        leave_behind = leave_behind and len(inside) > 1
        begun = path.tau
        self.points = list(path.point.parts)
        self.interior = InteriorEnd.from_bounds(self.judge, self.tol)
        while True:
            joint = self._joint(inside, exact=False)
            final_tau = (_STAGE if path.tau < begun else 1.0) * path.tau if leave_behind else 0.0
            finished = partial(self._finished, joint, leave_behind)
            path = follow(joint, path, target, self.options, self._visit, final_tau, finished)
            if self.gap <= self.tol or self._ends_inside(path):
                break
            if self.stop.reached or self.tau_of_constant == path.tau:
                path = self._ask_early(inside, path)
                if self.ended:
                    break
            ended = path.stalled or path.steps >= self.options.max_steps or path.tau <= self.options.smallest_tau
            ended = ended or (len(inside) > 1 and self.fixed_alpha and path.smoothing_gap <= _SMOOTH_ENOUGH * self.tol)
            if path.smoothing_gap <= target or ended:
                joint = self._joint(inside, exact=True)
                path, uncentred = self._polish(joint, path)
                missed = self._certify(joint, inside, path)
                if self.gap <= self.tol:
                    path = self._refine(joint, inside, path)
                elif uncentred and not missed:
                    self._repair()
                if self.gap <= self.tol or (ended and not missed):
                    break
                if missed:
                    inside, leave_behind = sorted([*inside, *missed]), False
                    path = self._rejoin(inside, path)
                    continue
                target = 0.3 * min(target, path.smoothing_gap)
            elif leave_behind:
                inside, path = self._leave_behind(joint, inside, path)
            path = replace(path, tau=self.options.decrease * path.tau)
        self.log.n_steps += path.steps + self.interior.taken

    def _finished(self, joint: JointDual, leave_behind: bool, path: JointState) -> bool:
        """Return True if a path may end before its smoothing is small enough. Called after each round."""
        inside = not self.fixed_alpha and self.interior.wanted(path)
        if self._is_decided(path) or inside or self._vertex(path) or self._looks_constant(joint, path):
            return True
        return leave_behind and (~self._near(joint, path)).mean() >= _MANY

    def _looks_constant(self, joint: JointDual, path: JointState) -> bool:
        """Return True if F_τ indicates that a constant classifier may be optimal."""
        log_k = np.log(self.members[0].decision_set.n_classes)
        if not self.judge.model.learns or self.fixed_alpha or path.tau > _ASK_AGAIN * self.tau_of_constant:
            return False
        if path.smoothing_gap > _TOO_SMOOTH * log_k:
            return False
        value = joint.evaluate(path.point, path.tau, second_order=False).value
        self.tau_of_constant = 0.0 if value < log_k else path.tau  # F_τ falls with τ, so it stays below log K
        return bool(value >= log_k)

    def _hedge_against_one_set(self, quick: Callable[[Search], JointState | None]) -> None:
        """Solve the problem of the set with the largest excess alone.

        If no classifier beats a constant classifier over this set, none does over the union. If some classifier does,
        the path shows this early.
        """
        members, judge = self.members, self.judge
        s = int(np.argmax([one.decision_set.radius - one.minimal.value for one in members]))
        if members[s].closed:
            return
        constant = float(np.log(members[s].decision_set.n_classes)) - _BETTER * self.tol
        alone = BestBounds(judge.sweep, judge.model, [members[s]])
        inner = Search(alone, self.typical, self.tol, self.options, self.on_round, StopRule(constant))
        begun = quick(inner)
        inner.follow(inner.cold() if begun is None else begun, leave_behind=False)
        self.log.n_steps += inner.log.n_steps
        upper, lower = alone.upper, alone.lower
        if upper is None or lower is None or lower.bound.value < constant:
            return
        adversary, theta = lower.adversaries[0], upper.path.point.theta
        shares = judge.sweep.label_shares(judge.problems[s], adversary)
        judge.consider_mixture({s: (adversary, shares)}, np.eye(len(members))[s], theta)
        at = self.cold()
        judge.consider_hedge(theta, self.tol, replace(at, point=JointPoint.with_theta(theta, list(at.point.parts))))
        self.log.ended_by(QUICK, judge.gap)

    def _ends_inside(self, path: JointState) -> bool:
        """Try to end by the interior-point method, if it is due."""
        if self.stop.reached or not self.interior.due:
            return False
        found = self.interior.run(path, exact=self.exact)
        if found:
            self.log.ended_by(INSIDE, self.gap)
        return found

    def _is_decided(self, path: JointState) -> bool:
        """Return True if the single set is known to satisfy the stop rule."""
        if self.stop == StopRule() or len(self.members) > 1:
            return False
        return self.stop.update(self.judge.risk(0, path.point.parts[0])[0], path.smoothing_gap)

    def _ask_early(self, inside: list[int], path: JointState) -> JointState:
        """Compute both bounds at a large τ."""
        joint = self._joint(inside, exact=True)
        if not self.stop.reached:
            path, _ = self._polish(joint, path)
        self._certify(joint, inside, path)
        if not self.stop.reached:
            self.judge.consider_hedge(path.point.theta, self.tol, path)
        return path

    def _vertex(self, path: JointState) -> bool:
        """Try to end at a vertex, for fixed losses and a single set."""
        if not self.fixed_losses or len(self.members) > 1 or self.members[0].closed:
            return False
        try_vertex(self.judge, path, self.tol)
        if self.gap <= self.tol:
            self.log.ended_by(VERTEX, self.gap)
        return self.gap <= self.tol

    def _leave_behind(self, joint: JointDual, inside: list[int], path: JointState) -> tuple[list[int], JointState]:
        """Drop the sets whose dual value is below the largest by far more than a smaller τ could change."""
        near = self._near(joint, path)
        for s, part in zip(inside, path.point.parts, strict=True):
            self.points[s], self.tau_when_left[s] = part, path.tau
        kept = [s for s, keep in zip(inside, near, strict=True) if keep]
        return kept, replace(path, point=JointPoint(tuple(self.points[s] for s in kept)))

    @staticmethod
    def _near(joint: JointDual, path: JointState) -> NDArray[np.bool_]:
        """Return a mask of the active sets, whose dual values are close to the largest."""
        here = joint.evaluate(path.point, path.tau, second_order=False)
        values = np.array([part.value for part in here.parts])
        near: NDArray[np.bool_] = values >= values.max() - _FAR * path.smoothing_gap
        return near

    def _rejoin(self, inside: list[int], path: JointState) -> JointState:
        """Restart from the current points, at a τ large enough for the rejoining sets to change."""
        point = JointPoint.with_theta(path.point.theta, [self.points[s] for s in inside])
        return PathState(point, max(path.tau, _REJOIN_TAU), path.steps)

    def _certify(self, joint: JointDual, inside: list[int], path: JointState) -> list[int]:
        """Improve both bounds. Return the dropped sets over which this classifier is worse than the lower bound."""
        judge, theta = self.judge, path.point.theta
        for s, part in zip(inside, path.point.parts, strict=True):
            self.points[s] = part
        weights = np.ones(1)
        if len(self.members) > 1:
            weights = np.zeros(len(self.members))
            weights[inside] = joint.evaluate(path.point, path.tau, second_order=False).weights
        least = judge.consider_mixture(judge.soft_adversaries(weights, self.points, path.tau), weights, theta)
        points = with_theta(theta, self.points)
        found = [judge.risk(s, point) for s, point in enumerate(points)]
        allowed = max(least + self.tol, *(found[s][0] for s in inside))
        for s in range(len(self.members)):
            if found[s][0] > allowed:
                found[s], points[s] = self._worst_case(s, theta, allowed)
        self.points = points
        judge.consider_points(points, found, weights, path)
        return [s for s, (risk, _) in enumerate(found) if risk > allowed]

    def _worst_case(self, s: int, theta: FloatArray, allowed: float) -> tuple[tuple[float, float], DualPoint]:
        """Return the risk of a classifier over one set with penalty, the smallest Φ, and the dual point as proof.

        The risk is only as exact as necessary to decide whether it is at most `allowed`.
        """
        model = self.judge.problems[s].model
        if not isinstance(model, LinearModel):
            raise TypeError("only learning against a union of sets drops sets")
        sweep, frozen = self.judge.sweep.at_coefficients(model, theta)
        penalty = model.penalty_value(theta)
        inner = Search(
            BestBounds(sweep, frozen, [self.members[s]]),
            self.typical,
            0.25 * self.tol,
            fixed_loss_options(self.options),
            stop=StopRule(allowed - penalty, allowed - penalty),
        )
        start = None
        if s in self.tau_when_left:
            known = replace(self.points[s], theta=np.zeros((0, 0)))
            start = PathState(JointPoint((known,)), self.tau_when_left[s])
        inner.run(start, Search.cold)
        upper = inner.judge.upper
        if upper is None:
            raise RuntimeError("no point was certified")
        return (upper.risk + penalty, upper.floors[0]), replace(upper.points[0], theta=theta)

    def _visit(self, state: JointState) -> None:
        if len(state.point.parts) == len(self.members):
            self.log.visited.append(state)
        if self.on_round is not None:
            self.on_round(state)

    def _polish(self, joint: JointDual, path: JointState) -> tuple[JointState, bool]:
        return polish(joint, path, self.options, tol=self.tol, scale=self.scale, typical=self.typical)

    def _repair(self) -> None:
        """Repair the adversary by a linear program, on small problems. A smaller τ would not move the missing mass."""
        if self.judge.model.learns and self.n_distances * len(self.members) <= _FEW_TO_REPAIR:
            repair_by_linear_program(self.judge, _REPAIR_SHARE * self.scale)
            if self.gap <= self.tol:
                self.log.ended_by(PROGRAM, self.gap)

    def _refine(self, joint: JointDual, inside: list[int], path: JointState) -> JointState:
        """On small problems, solve to rounding at the last τ, so that the order of rows and of steps has no effect."""
        if not self.exact:
            return path
        options, before = replace(self.options, round_steps=12), np.inf

        def no_smaller(_point: JointPoint, _here: JointEvaluation, decrement: float) -> bool:
            nonlocal before
            last, before = before, decrement
            return decrement < 1e-18 or decrement > 0.1 * last

        try:
            point, _, used = centre_objective(joint, path.point, path.tau, options, centred=no_smaller)
        except StallError:
            return path  # F_τ cannot decrease further in float64
        exact = replace(path, point=point, steps=path.steps + used)
        found, self.judge.upper = self.judge.upper, None
        self._certify(joint, inside, exact)
        if self.gap > self.tol:
            self.judge.upper = found
        return exact

    def checkpoints(self) -> tuple[JointState, ...]:
        """Return an early and the last point of the path, to start nearby problems; empty if there was no path.

        The early point is smooth enough to start a nearby problem. The last point starts a very near problem.
        """
        if not self.log.visited:
            return ()
        largest_tau = 0.02 * self.scale
        smooth = next((state for state in self.log.visited if state.tau <= largest_tau), self.log.visited[-1])
        return tuple(
            replace(state, steps=0, smoothing_gap=np.inf, stalled=False) for state in (smooth, self.log.visited[-1])
        )


def response_options(options: NewtonOptions, tol: float) -> NewtonOptions:
    """Return options for learning over all classifiers, where anchors that share no row can move together freely."""
    return replace(options, smallest_ridge=max(_RESPONSE_RIDGE * min(tol, 1e-4), options.smallest_ridge))


def fixed_loss_options(options: NewtonOptions) -> NewtonOptions:
    """Return options for fixed losses. A linear program ends the path, so the path is not followed closely."""
    return replace(options, decrease=options.decrease**2)
