"""Search for both bounds of one robust problem: follow paths of the smoothed dual, certify, repair, go on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

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
from surefoot.dual.models import FixedLosses, Model
from surefoot.dual.objective import DualPoint, Evaluation, SmoothedDual
from surefoot.dual.smallest_loss import LowerBound, lower_bound
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal import MinimalRadius
from surefoot.solvers.newton import NewtonOptions, PathPoint, StallError, centre, follow_path
from surefoot.solvers.starts import coarsen, start_from_potentials
from surefoot.solvers.vertex import (
    NearTriples,
    Triples,
    nearest_feasible,
    slack_of_nearest,
    solve_restricted,
    triples_within,
    with_violated,
)

# Near the minimal radius the set is widened by this share of the ground cost per unit of relative smoothing.
ROOM = 2e-2
# Newton steps for each α tried at the minimal radius, unless the problem is small.
_STEPS_AT_MINIMUM = 200
# Triples beyond one per row in the two linear programs tried at fixed losses: share of N, at least per anchor, at most.
_VERTEX_SIZES = ((0.3, 10, 4000), (0.4, 20, 6000))
# Programs over triples, each with those that the last one lacked, before the path goes on.
_MOST_ADDITIONS, _MOST_ADDED = 6, 2000
# Problems of at most so many distances are solved to rounding at their last τ.
_SMALL = 100_000


@dataclass
class Search:
    """The bounds found so far for one problem.

    Follow a path, certify, go on with a smaller τ until the gap is within tol. Upper and lower bound may come from
    different points: every certified bound holds for the problem itself.
    """

    decision_set: DecisionSet
    model: Model
    minimal: MinimalRadius
    tol: float
    scale: float
    options: NewtonOptions
    executor: ThreadPoolExecutor | None
    on_round: Callable[[PathPoint], None] | None
    upper: tuple[float, PathPoint] | None = None
    lower: tuple[LowerBound, Adversary] | None = None
    visited: list[PathPoint] = field(default_factory=list)

    @property
    def gap(self) -> float:
        return self.upper[0] - self.lower[0].value if self.upper and self.lower else np.inf

    @property
    def ground(self) -> float:
        """Size of ground costs: radii are measured in it."""
        return self.minimal.value or mean_distance(self.decision_set)

    @property
    def open_radius(self) -> float:
        """The radius, or where that is the minimal one, one larger by rounding error: the set then has an interior."""
        return opened_radius(self.decision_set, self.minimal.value, share=0.4)

    def dual(self) -> SmoothedDual:
        """The smoothed problem, given room to move while τ is large."""
        return SmoothedDual(
            self.decision_set.with_radius(self.open_radius),
            self.model,
            minimal_radius=self.minimal.value,
            potentials=(self.minimal.anchor_potentials, self.minimal.label_potentials),
            room=ROOM * self.ground / self.scale,
            executor=self.executor,
        )

    def learn_from_minimal_radius(self) -> None:
        """Solve the problem at the minimal radius: its adversary is to be retreated to, and at that radius the answer.

        There α is fixed, so high that no loss pays for leaving the cheapest plans: with losses of size `scale`, a plan
        dearer by δ would have to gain αδ. How high is enough depends on ties among plans, so several are tried.
        """
        options = self.options
        if self.decision_set.distances.size > _SMALL:
            options = replace(options, max_steps=min(_STEPS_AT_MINIMUM, options.max_steps))
        at_minimum = Search(
            self.decision_set.with_radius(self.minimal.value),
            self.model,
            self.minimal,
            self.tol,
            self.scale,
            options,
            self.executor,
            self.on_round,
        )
        for share in (1e4, 3e5, 1e7):
            at_minimum.follow(*at_minimum.with_fixed_alpha(share * self.scale / self.ground))
            if at_minimum.gap <= self.tol:
                break
        if at_minimum.upper is not None and at_minimum.lower is not None:
            self._consider_upper(at_minimum.upper[1])
            tried = self.lower
            self.lower = at_minimum.lower
            if self.upper is not None and tried is not None:
                self._certify(self.upper[1])  # again, now with a better adversary to retreat to
                self.lower = max(tried, self.lower, key=lambda found: found[0].value)

    def with_fixed_alpha(self, alpha: float) -> tuple[SmoothedDual, PathPoint]:
        """The smoothed problem at this α, and its start from the potentials of the minimal radius."""
        ds, minimal = self.decision_set, self.minimal
        dual = SmoothedDual(ds, self.model, alpha_free=False, executor=self.executor)
        lam, beta = dual.layout.reference_potentials(minimal.anchor_potentials, minimal.label_potentials)
        point = DualPoint(np.zeros(self.model.shape), alpha, alpha * lam, alpha * beta)
        return dual, PathPoint(point, self.scale)

    def follow(self, dual: SmoothedDual, path: PathPoint) -> None:
        """Follow the path of one smoothed problem until the certified gap is within tol or it can go no further."""
        target = self.tol
        while True:
            path = follow_path(dual, path, target, self.options, self._visit, finished=self.finish_at_vertex)
            if self.gap <= self.tol:
                return
            path = polish(dual, path, self.tol, self.scale, self.options, mean_distance(dual.set))
            self._certify(path)
            ended = path.stalled or path.steps >= self.options.max_steps or path.tau <= self.options.smallest_tau
            if self.gap <= self.tol:
                self._refine(dual, path)
            if self.gap <= self.tol or ended:
                return
            target = 0.3 * min(target, path.smoothing_gap)
            path = replace(path, tau=self.options.decrease * path.tau)

    def _refine(self, dual: SmoothedDual, path: PathPoint) -> None:
        """Go on to rounding at the last τ, on small problems: the order of rows and steps then leaves no trace."""
        if dual.set.distances.size > _SMALL:
            return
        options = replace(self.options, round_steps=12)
        try:
            point, _, used = centre(
                dual, path.point, path.tau, options, centred=lambda _p, _e, decrement: decrement < 1e-18
            )
        except StallError:
            return  # no decrease left to find: the point is as good as float64 allows
        exact = replace(path, point=point, steps=path.steps + used)
        self._certify(exact)
        if self.gap <= self.tol:
            self.upper = (dual_value(self.decision_set, self.model, point), exact)

    def quick_start(self, dual: SmoothedDual) -> PathPoint | None:
        """Follow the early part of the path over few rows, or where those are no fewer, leave it out.

        None where the potentials of the minimal radius say nothing, or the path over few rows failed.
        """
        rng, transport = np.random.default_rng(0), self.minimal.transport
        coarse = coarsen(dual.set, self.model, transport, self.scale, rng)
        if coarse is None:
            if transport.cost <= 0:
                return None
            return start_from_potentials(dual.set, self.model, transport.potentials, transport.cost, self.scale)
        small = SmoothedDual(coarse.decision_set, coarse.model, executor=self.executor)
        path = follow_path(small, coarse.start, 0.0, self.options, self._visit, final_tau=0.02 * self.scale)
        self.visited.clear()
        return None if path.stalled or np.isinf(path.smoothing_gap) else replace(path, smoothing_gap=np.inf)

    def finish_at_vertex(self, path: PathPoint) -> bool:
        """At fixed losses the problem is a linear program: try one over the triples that can matter at this τ.

        Few triples make a small program, but they must hold an optimal vertex: their slack is to be some τ wide.
        """
        if not isinstance(self.model, FixedLosses) or self.decision_set.radius < self.open_radius:
            return False
        N, n = self.decision_set.distances.shape
        few, more = (N + int(np.clip(share * N, per_anchor * n, most)) for share, per_anchor, most in _VERTEX_SIZES)
        estimate = slack_of_nearest(self.decision_set, self.model.matrix, path.point, [few, more])
        if estimate[0] < 0.8 * path.tau and estimate[1] < 6.0 * path.tau:
            return False
        near = NearTriples.of(self.decision_set, self.model.matrix, path.point, more)
        for count, width in ((few, 1.0), (more, 8.0)):
            triples = near.within(near.slack(count))
            if near.slack(count) >= width * path.tau and triples.may_hold_a_plan():
                self._try_vertex(path, triples)
                break
        return self.gap <= self.tol

    def finish_by_linear_program(self) -> None:
        """Where Newton stalls: at fixed losses the problem is a linear program; so is the repair of an adversary."""
        if self.upper is None:
            return
        ds, path = self.decision_set, self.upper[1]
        losses = self.model.losses(path.point.theta, slice(None))
        wanted = soft_adversary(ds, self.model, path.point, path.tau).label_proba
        open_set = ds.with_radius(self.open_radius)
        whole = isinstance(self.model, FixedLosses) and losses.shape[1] * ds.distances.size <= _SMALL
        for share in (1e-3, 1e-2, 1e-1, *([np.inf] if whole else [])):
            slack = share * self.scale
            if isinstance(self.model, FixedLosses):
                triples = triples_within(open_set, losses, path.point, slack)
                if triples is not None:
                    self._try_vertex(path, triples)
            else:
                repaired = nearest_feasible(ds, losses, path.point, slack, wanted, self.open_radius)
                if repaired is not None:
                    self._consider_lower(Adversary(*repaired), path.point.theta)
            if self.gap <= self.tol:
                return

    def _try_vertex(self, path: PathPoint, triples: Triples) -> None:
        """Solve the program over these triples; add those that its prices show to be missing, a few times."""
        losses = self.model.losses(path.point.theta, slice(None))
        wanted: Triples | None = triples
        for _ in range(_MOST_ADDITIONS):
            solved = None if wanted is None else solve_restricted(losses, wanted)
            if wanted is None or solved is None:
                return
            self._consider_upper(replace(path, point=replace(solved.point, theta=path.point.theta)))
            self._consider_lower(Adversary(solved.label_proba, solved.transport_cost), path.point.theta)
            if self.gap <= self.tol:
                return
            wanted = with_violated(losses, wanted, solved.point, 1e-9 * self.scale)
            if wanted is not None and len(wanted.rows) - len(triples.rows) > _MOST_ADDED:
                return  # the prices are far off: a smaller τ will know better

    def _visit(self, state: PathPoint) -> None:
        self.visited.append(state)
        if self.on_round is not None:
            self.on_round(state)

    def _certify(self, path: PathPoint) -> None:
        self._consider_upper(path)
        self._consider_lower(soft_adversary(self.decision_set, self.model, path.point, path.tau), path.point.theta)

    def _consider_upper(self, path: PathPoint) -> None:
        risk = dual_value(self.decision_set, self.model, path.point)
        if self.upper is None or risk < self.upper[0]:
            self.upper = (risk, path)

    def _consider_lower(self, wanted: Adversary, theta: FloatArray) -> None:
        # the best adversary so far is a better place to retreat to than the cheapest one, when it is as cheap
        retreat = self.minimal.adversary
        least, allowed = self.minimal.value, allowance(self.decision_set, self.minimal.value)
        if self.lower is not None and self.lower[1].transport_cost <= least + allowed:
            retreat = self.lower[1]
        adversary = feasible_adversary(self.decision_set, wanted, retreat)
        lower = lower_bound(self.decision_set, self.model, adversary, theta)
        if self.lower is None or lower.value > self.lower[0].value:
            self.lower = (lower, adversary)

    def checkpoint(self, largest_tau: float) -> PathPoint:
        """An early point of the path, smooth enough to start a nearby problem from."""
        if self.upper is None:
            raise RuntimeError("no point was certified: follow a path first")
        # a vertex is no place to start Newton's method from: its α may be 0
        smooth = next((state for state in self.visited if state.tau <= largest_tau), [self.upper[1], *self.visited][-1])
        return replace(smooth, steps=0, smoothing_gap=np.inf, stalled=False)


def loss_scale(model: Model) -> float:
    """Size of the losses: τ and α are measured in it."""
    return max(float(np.ptp(model.matrix)), 1e-12) if isinstance(model, FixedLosses) else 1.0


def mean_distance(ds: DecisionSet) -> float:
    """Mean feature distance between rows and anchors, or the label cost where all rows coincide."""
    return float(ds.row_weights @ ds.distances @ ds.anchor_weights) or float(ds.label_cost.max())


def polish(
    dual: SmoothedDual, path: PathPoint, tol: float, scale: float, options: NewtonOptions, typical: float
) -> PathPoint:
    """Centre until what is left to repair in the plan's marginals costs the lower bound far less than tol.

    `scale` and `typical` are the sizes of losses and distances.
    """
    at = dual.layout

    def centred(point: DualPoint, here: Evaluation, decrement: float) -> bool:
        price = point.alpha if at.alpha_free else scale / typical
        off = here.gradient[at.beta]
        anchors = price * (np.abs(off).sum() * typical + np.abs(np.add.reduceat(off, starts)).sum() * label_cost)
        labels = np.abs(here.gradient[at.lam]).sum() * (price * label_cost + 4.0 * scale)
        model = 10.0 * np.square(here.gradient[at.theta]).sum() / scale
        return max(0.5 * decrement, anchors, labels, model) <= allowed

    label_cost, starts = float(dual.set.label_cost.max()), dual.set.class_offsets[:-1]
    allowed = max(0.02 * tol, 0.15 * (tol - path.smoothing_gap))
    try:
        point, _, used = centre(dual, path.point, path.tau, replace(options, round_steps=30), centred=centred)
    except StallError:
        return path
    return replace(path, point=point, steps=path.steps + used)
