"""The end of a path by an interior-point method, where one set is learned against and its rows are held in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from surefoot.dual.bounds import soft_plan
from surefoot.dual.models import LinearModel
from surefoot.dual.sweep import HeldRows
from surefoot.exact.judge import JointState, Judge
from surefoot.solvers.interior import InteriorPoint, InteriorState
from surefoot.solvers.joint_objective import JointPoint

# It takes over at this τ, in units of the loss; at this one where a round took more steps than so many: Newton crawls.
_TAU, _EARLY_TAU, _MANY_STEPS = 4e-3, 2e-2, 15
# Where it led nowhere it is tried again once τ has fallen to this share.
_AGAIN = 0.1
# It works on the whole plan at once: problems of more distances are left to the path.
_MOST_DISTANCES = 400_000
_MOST_STEPS = 60
# Bounds are asked for where the method's own gap, and the mass it has yet to place, are this share of tol; and again.
_SURE, _SURER = 0.2, 0.1
# On small problems it goes on to this gap, where neither the order of rows nor the start leaves a trace.
_EXACT = 1e-8


@dataclass
class InteriorEnd:
    """When a path may end inside, and what it takes.

    at : the next τ at which it is tried, early : where Newton crawls; due : whether it is time to; taken : its steps.
    """

    judge: Judge
    tol: float
    at: float
    early: float
    steps: int = 0  # of the path when it was last asked
    due: bool = False
    taken: int = 0

    @classmethod
    def of(cls, judge: Judge, tol: float) -> InteriorEnd:
        return cls(judge, tol, _TAU * judge.model.scale, _EARLY_TAU * judge.model.scale)

    def wanted(self, path: JointState) -> bool:
        """Whether to try now: asked after each round of a path."""
        used, self.steps = path.steps - self.steps, path.steps
        crawls = used > _MANY_STEPS and path.tau <= self.early
        self.due = (path.tau <= self.at or crawls) and self._fits()
        return self.due

    def _fits(self) -> bool:
        judge = self.judge
        if not isinstance(judge.model, LinearModel) or not isinstance(judge.sweep, HeldRows):
            return False
        if len(judge.members) > 1 or judge.members[0].closed:
            return False
        return judge.sweep.distances.size <= _MOST_DISTANCES

    def run(self, path: JointState, *, exact: bool) -> bool:
        """Whether it brought the certified gap within tol, from a point of a path; exact : then go on to `_EXACT`."""
        judge, member, sweep, model = self.judge, self.judge.members[0], self.judge.sweep, self.judge.model
        if not isinstance(model, LinearModel) or not isinstance(sweep, HeldRows):
            raise TypeError("only a linear model over rows in memory is learned inside")
        self.at = self.early = _AGAIN * path.tau
        kept = np.flatnonzero(sweep.weights > 0)  # a row without weight has no centre
        ds = replace(member.opened, distances=sweep.distances[kept], row_weights=sweep.weights[kept])
        method = InteriorPoint(ds, model.over(sweep).restricted(kept))
        sure, last, done = _SURE * self.tol, None, False
        for state in method.steps(method.start(path.point.parts[0], path.tau, path.smoothing_gap), _MOST_STEPS):
            self.taken += 1
            last = state
            if state.left <= (_EXACT if done else sure):
                self._certify(method, state, path)
                done = judge.gap <= self.tol
                if done and (not exact or state.left <= _EXACT):
                    return True
                sure = min(sure, _SURER * state.left)
        if done and last is not None:
            found, judge.upper = judge.upper, None  # the last point, not one that is better by chance
            self._certify(method, last, path)
            if judge.gap > self.tol:
                judge.upper = found
        return done

    def _certify(self, method: InteriorPoint, state: InteriorState, path: JointState) -> None:
        """Improve both bounds."""
        judge, sweep = self.judge, self.judge.sweep
        if not isinstance(sweep, HeldRows):
            raise TypeError("plans are held where rows are")
        point, one = state.point(method.problem), np.ones(1)
        joint, share = state.plan(method.problem)
        without = sweep.weights <= 0
        if without.any():  # rows that the method does not know answer as the softmax does
            losses = judge.model.over(sweep).losses(point.theta, slice(None))
            soft = soft_plan(judge.problems[0].decision_set, sweep.distances, losses, point, path.tau)
            soft[0][~without], soft[1][~without] = joint, share
            joint, share = soft
        wanted = sweep.plan_adversary(judge.problems[0], joint, share)
        judge.consider_mixture({0: wanted}, one, point.theta)
        judge.consider_points([point], [judge.risk(0, point)], one, replace(path, point=JointPoint((point,))))
