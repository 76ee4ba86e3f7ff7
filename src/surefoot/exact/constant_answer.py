"""Where no classifier is better than one that gives every label the same probability: the worst case is log K.

With few labels and many classes that is common, and can be told early.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from surefoot.exact.judge import JointState, Judge, Member
from surefoot.solvers.joint_objective import JointDual, JointPoint

# Where F_τ is that of a constant answer, bounds are asked early, again each time that τ has fallen to this share.
_ASK_AGAIN = 0.2
# Not where smoothing costs more than this multiple of log K: F_τ is then large in any case.
_TOO_SMOOTH = 0.05
# A set for which some classifier is better than a constant one by this multiple of tol is none to hedge against.
_BETTER = 0.6


class SearchInProgress(Protocol):
    """What is asked of a `Search`."""

    judge: Judge
    tol: float
    fixed: bool
    asked_at: float
    n_steps: int

    @property
    def members(self) -> list[Member]: ...
    def alone(self, s: int, enough: float) -> Any:
        """A search over one of the sets."""

    def cold(self) -> JointState: ...
    def report_path(self) -> None: ...


def looks_constant(search: SearchInProgress, joint: JointDual, path: JointState) -> bool:
    """Whether a classifier that answers the same everywhere may be the best, as far as F_τ can tell."""
    if not search.judge.model.learns or search.fixed or path.tau > _ASK_AGAIN * search.asked_at:
        return False
    if path.smoothing_gap > _TOO_SMOOTH * np.log(search.members[0].decision_set.n_classes):
        return False
    value = joint.evaluate(path.point, path.tau, second_order=False).value
    if value < np.log(search.members[0].decision_set.n_classes):
        search.asked_at = 0.0  # F_τ falls with τ: it need not be asked again
        return False
    search.asked_at = path.tau
    return True


def hedge_against_one_set(search: SearchInProgress, quick: Callable[[Any], JointState | None]) -> None:
    """Whether one set, that with most room, leaves no better classifier than a constant one: then no union does.

    Where it leaves one, that shows early on its path.
    """
    members, judge = search.members, search.judge
    s = int(np.argmax([one.decision_set.radius - one.minimal.value for one in members]))
    if members[s].closed:
        return
    constant = float(np.log(members[s].decision_set.n_classes)) - _BETTER * search.tol
    inner = search.alone(s, enough=constant)
    begun = quick(inner)
    inner.follow(inner.cold() if begun is None else begun, leave_behind=False)
    search.n_steps += inner.n_steps
    upper, lower = inner.judge.upper, inner.judge.lower
    if upper is None or lower is None or lower.bound.value < constant:
        return
    adversary, theta = lower.adversaries[0], upper.path.point.theta
    shares = judge.sweep.label_shares(judge.problems[s], adversary)
    judge.consider_mixture({s: (adversary, shares)}, np.eye(len(members))[s], theta)
    at = search.cold()
    judge.consider_hedge(theta, search.tol, replace(at, point=JointPoint.with_theta(theta, list(at.point.parts))))
    search.report_path()
