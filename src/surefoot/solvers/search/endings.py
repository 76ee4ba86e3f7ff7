"""Start and end a search: coarse starts, the interior-point end, polishing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from surefoot._validation import FloatArray
from surefoot.dual.bounds import soft_plan
from surefoot.dual.models import DualPoint, LinearModel, Model
from surefoot.dual.objective import SmoothedDual
from surefoot.dual.row_store import InMemoryRows
from surefoot.dual.row_sums import MANY_ANCHORS
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.direction import StallError
from surefoot.solvers.interior import InteriorPoint, InteriorState
from surefoot.solvers.joint_objective import JointDual, JointEvaluation, JointPoint
from surefoot.solvers.newton import NewtonOptions, PathPoint, centre_objective
from surefoot.solvers.search.best_bounds import BestBounds, JointState
from surefoot.solvers.search.linear_programs import MOST_ENTRIES
from surefoot.solvers.transport import TransportSolution

# The stages of a search, in order. A vertex or an interior point may end a path. Most searches follow one path.
AT_MINIMUM, WARM, QUICK, COLD = "minimal radius", "warm start", "path", "path from zero"
PROGRAM, VERTEX, INSIDE = "linear program", "vertex", "interior point"


@dataclass(frozen=True)
class Stage:
    """A stage of a search: its name, the certified gap after it, and True if it improved a bound."""

    name: str
    gap: float
    improved: bool


@dataclass
class StopRule:
    """Stop the search over one set early if its risk is at most `below`, or clearly larger than `above`."""

    below: float = -np.inf
    above: float = np.inf
    reached: bool = False

    def update(self, risk: float, smoothing_gap: float) -> bool:
        """Return True if an upper bound found at this smoothing gap satisfies the rule."""
        self.reached = risk <= self.below or risk - 1.5 * smoothing_gap > self.above
        return self.reached


@dataclass
class SearchLog:
    """A record of a search: the stages, the number of Newton steps, and the states visited on the latest paths."""

    stages: list[Stage] = field(default_factory=list)
    n_steps: int = 0
    visited: list[JointState] = field(default_factory=list)

    def ended_by(self, name: str, gap: float) -> None:
        """Record a stage that reached the target inside another stage."""
        self.stages.append(Stage(name, gap, True))


# An interior-point method may end the path when learning against one set with rows in memory.

# The method starts at this τ, in units of the loss. If a round took more than this many steps, Newton is slow, and the
# method starts at the second τ.
_TAU, _EARLY_TAU, _MANY_STEPS = 4e-3, 2e-2, 15
# If the method fails, it is tried again once τ has fallen to this share.
_AGAIN = 0.1
# The method gives up after this many steps.
_MOST_INTERIOR_STEPS = 60
# Bounds are computed once its own gap and unpaid mass are at most the first share of tol, and again at the second.
_SURE, _SURER = 0.2, 0.1
# On small problems the method continues to this gap, so that the order of rows and the start do not affect the result.
_EXACT = 1e-8


@dataclass
class InteriorEnd:
    """The interior-point end of a path: when to try it, and its state.

    at : the next τ at which the method is tried; early : the τ that applies if Newton takes many steps; due : True if
    the method should run now; taken : the steps it took.
    """

    judge: BestBounds
    tol: float
    at: float
    early: float
    steps: int = 0  # steps of the path at the last check
    due: bool = False
    taken: int = 0

    @classmethod
    def from_bounds(cls, judge: BestBounds, tol: float) -> InteriorEnd:
        return cls(judge, tol, _TAU * judge.model.scale, _EARLY_TAU * judge.model.scale)

    def wanted(self, path: JointState) -> bool:
        """Return True if the method should run now. Called after each round of a path."""
        used, self.steps = path.steps - self.steps, path.steps
        crawls = used > _MANY_STEPS and path.tau <= self.early
        self.due = (path.tau <= self.at or crawls) and self._fits()
        return self.due

    def _fits(self) -> bool:
        judge = self.judge
        if not isinstance(judge.model, LinearModel) or not isinstance(judge.sweep, InMemoryRows):
            return False
        if len(judge.members) > 1 or judge.members[0].closed or judge.members[0].within is not None:
            return False
        return judge.sweep.distances.size <= MOST_ENTRIES

    def run(self, path: JointState, *, exact: bool) -> bool:
        """Run the method. Return True if the certified gap is within tol. exact : continue to the gap `_EXACT`."""
        judge, member, sweep, model = self.judge, self.judge.members[0], self.judge.sweep, self.judge.model
        if not isinstance(model, LinearModel) or not isinstance(sweep, InMemoryRows):
            raise TypeError("the interior-point method requires a linear model over rows in memory")
        self.at = self.early = _AGAIN * path.tau
        kept = np.flatnonzero(sweep.weights > 0)  # a row without weight has no centre
        ds = replace(member.opened, distances=sweep.distances[kept], row_weights=sweep.weights[kept])
        method = InteriorPoint(ds, model.over(sweep).restricted(kept))
        sure, last, done = _SURE * self.tol, None, False
        for state in method.steps(
            method.start(path.point.parts[0], path.tau, path.smoothing_gap), _MOST_INTERIOR_STEPS
        ):
            self.taken += 1
            last = state
            if state.left <= (_EXACT if done else sure):
                self._certify(method, state, path)
                done = judge.gap <= self.tol
                if done and (not exact or state.left <= _EXACT):
                    return True
                sure = min(sure, _SURER * state.left)
        if done and last is not None:
            found, judge.upper = judge.upper, None  # keep the last point, not an earlier point that is better by chance
            self._certify(method, last, path)
            if judge.gap > self.tol:
                judge.upper = found
        return done

    def _certify(self, method: InteriorPoint, state: InteriorState, path: JointState) -> None:
        """Improve both bounds from a point of the method."""
        judge, sweep = self.judge, self.judge.sweep
        if not isinstance(sweep, InMemoryRows):
            raise TypeError("plans require rows in memory")
        point, one = state.point(method.problem), np.ones(1)
        joint, share = state.plan(method.problem)
        without = sweep.weights <= 0
        if without.any():  # the method omits these rows, so they get the labels of the softmax plan
            losses = judge.model.over(sweep).losses(point.theta, slice(None))
            soft = soft_plan(judge.problems[0].decision_set, sweep.distances, losses, point, path.tau)
            soft[0][~without], soft[1][~without] = joint, share
            joint, share = soft
        wanted = sweep.plan_adversary(judge.problems[0], joint, share)
        judge.consider_mixture({0: wanted}, one, point.theta)
        judge.consider_points([point], [judge.risk(0, point)], one, replace(path, point=JointPoint((point,))))


# Polishing that takes more than this many Newton steps has stalled.
_MOST_POLISHING_STEPS = 30


def polish(
    joint: JointDual, path: JointState, options: NewtonOptions, *, tol: float, scale: float, typical: float
) -> tuple[JointState, bool]:
    """Centre until repairing the marginals of the plans costs the lower bound far less than tol.

    Also returns True if polishing ran out of steps.
    """
    allowed = max(0.05 * tol, 0.3 * (tol - path.smoothing_gap))

    def centred(point: JointPoint, here: JointEvaluation, decrement: float) -> bool:
        parts = zip(joint.duals, point.parts, here.parts, strict=True)
        repairs = np.array([_repair_costs(dual, part, local.gradient, scale, typical) for dual, part, local in parts])
        model = 10.0 * np.square(here.gradient[: point.theta.size]).sum() / scale
        return max(0.5 * decrement, *(here.weights @ repairs), model) <= allowed

    try:
        point, _, used = centre_objective(
            joint, path.point, path.tau, replace(options, round_steps=_MOST_POLISHING_STEPS), centred=centred
        )
    except StallError:
        return path, False
    return replace(path, point=point, steps=path.steps + used), used >= _MOST_POLISHING_STEPS


def _repair_costs(
    dual: SmoothedDual, point: DualPoint, gradient: FloatArray, scale: float, typical: float
) -> tuple[float, float]:
    """Estimate the adversary's costs of making its anchor marginal and its label probabilities exact."""
    ds, at = dual.set, dual.layout
    price = point.alpha if at.alpha_free else scale / typical
    off, label_cost = gradient[at.beta], float(ds.label_cost.max())
    across = np.abs(np.add.reduceat(off, ds.class_offsets[:-1])).sum()
    anchors = price * (np.abs(off).sum() * typical + across * label_cost)
    return float(anchors), float(np.abs(gradient[at.lam]).sum() * (price * label_cost + 4.0 * scale))


# A coarse start has about this many rows, and between these numbers of rows per anchor. The last value is the minimum
# if there are many anchors.
COARSE_ROWS = 2000
_FEWEST_PER_ANCHOR, _MOST_PER_ANCHOR, _FEWEST_OF_MANY = 3, 60, 2
# A sample that contains more than this share of the rows saves no time.
LARGEST_SHARE = 0.4


@dataclass(frozen=True)
class CoarseProblem:
    """A decision set over a sample of the rows, the model, and a starting point."""

    decision_set: DecisionSet
    model: Model
    start: PathPoint


def coarsen(
    ds: DecisionSet,
    distances: FloatArray,
    model: Model,
    transport: TransportSolution,
    scale: float,
    rng: np.random.Generator,
    n_sets: int = 1,
) -> CoarseProblem | None:
    """Keep a few rows of each anchor of an optimal plan, with weights that preserve the mass of every anchor.

    The kept part of the plan still has zero reduced cost under the potentials, so it is optimal between the kept rows
    and the anchors. Its cost is the coarse minimal radius, and the excess over this radius can be kept exactly. Returns
    None if too few rows would be saved. `scale` is the size of the losses. With more sets, fewer rows are kept.
    """
    N, n = distances.shape
    fewest = _FEWEST_OF_MANY if n >= MANY_ANCHORS else _FEWEST_PER_ANCHOR
    per_anchor = int(np.clip(min(COARSE_ROWS / n_sets**0.5, LARGEST_SHARE * N) / n, fewest, _MOST_PER_ANCHOR))
    if per_anchor * n > LARGEST_SHARE * N or transport.cost <= 0:
        return None
    entries = transport.plan.tocoo()
    order = rng.permutation(len(entries.data))
    order = order[np.argsort(entries.col[order], kind="stable")]
    anchor = entries.col[order]
    rank = np.arange(len(order)) - np.searchsorted(anchor, anchor)
    kept = order[rank < per_anchor]
    row, col, mass = entries.row[kept], entries.col[kept], entries.data[kept]
    mass = mass * (ds.anchor_weights / np.bincount(col, weights=mass, minlength=n))[col]
    cost = float(mass @ distances[row, col])
    rows, inverse = np.unique(row, return_inverse=True)
    coarse = replace(
        ds,
        distances=np.ascontiguousarray(distances[rows]),
        row_weights=cast("FloatArray", np.bincount(inverse, weights=mass)),
        radius=ds.radius - transport.cost + cost,
    )
    return CoarseProblem(
        coarse, model.restricted(rows), start_from_potentials(ds, model, transport.potentials, transport.cost, scale)
    )


def cold_start(ds: DecisionSet, model: Model, scale: float, distance: float) -> PathPoint:
    """Return a start for every path: θ = 0, zero potentials, τ the size of the losses; `distance` : a typical one."""
    labels, anchors = np.zeros(ds.n_classes), np.zeros(len(ds.anchor_weights))
    return PathPoint(DualPoint(np.zeros(model.shape), scale / distance, labels, anchors), tau=scale)


def start_from_potentials(
    ds: DecisionSet, model: Model, potentials: FloatArray, cost: float, scale: float
) -> PathPoint:
    """Start from potentials (n,) of the minimal radius at smoothing τ = `scale` / 20; scale : the size of the losses.

    The potentials are scaled so that τ smooths over a twentieth of `cost`, the non-zero cost of the transport.
    """
    tau = 0.05 * scale
    alpha = 20.0 * tau / cost
    centred = potentials - ds.anchor_weights @ potentials
    return PathPoint(DualPoint(np.zeros(model.shape), alpha, np.zeros(ds.n_classes), alpha * centred), tau)
