"""Learn a linear classifier against a union of decision sets over the same rows: min_θ max_s max_{μ ∈ set s} E_μ ℓ_θ.

The supremum of a linear function over a union is that over its convex hull, so a mixture of one adversary per set
attains it. Sets are taken in as they turn out to matter: solve over a few, find the worst case of the classifier over
each other set, take in the set where it is worst, until none is worse than the certified risk.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

import numpy as np

from surefoot._validation import FloatArray
from surefoot.bounds import (
    FEASIBILITY,
    Adversary,
    LowerBound,
    dual_value,
    feasible_adversary,
    lower_bound,
    soft_adversary,
)
from surefoot.dual import DualPoint, FixedLosses, LinearModel, SmoothedDual
from surefoot.minimal import MinimalRadius, check_radius
from surefoot.sets import DecisionSet
from surefoot.solvers.linear_program import nearest_feasible
from surefoot.solvers.newton import (
    DEFAULT_OPTIONS,
    NewtonOptions,
    PathPoint,
    PathState,
    StallError,
    centre_objective,
    follow,
)
from surefoot.solvers.union_dual import UnionDual, UnionEvaluation, UnionPoint
from surefoot.worst_case import solve_certified, solver_threads

# Near the minimal radius a set is widened by this share of the ground cost per unit of smoothing, as for one set.
_ROOM = 2e-2
# Share of tol that the sets taken in may use up: the others may exceed their lower bound by all of it.
_SHARE_INSIDE = 0.6
# The joint path starts from single ones at the first τ below this, or from this τ.
_START_TAU = 0.13
# Adversaries of smaller weight are left out of the mixture.
_LEAST_WEIGHT = 1e-7
# Problems of at most so many distances are solved to rounding at their last τ, as for one set.
_SMALL = 100_000

Problem = tuple[DecisionSet, MinimalRadius]
UnionState = PathState[UnionPoint]


@dataclass(frozen=True)
class UnionPart:
    """One set of a solved union: the dual point (with the common θ) that proves `risk`, and a feasible adversary."""

    decision_set: DecisionSet
    point: DualPoint
    adversary: Adversary
    risk: float


@dataclass(frozen=True)
class UnionSolution:
    """A classifier learned against a union of decision sets, with both bounds.

    parts : one per set, in the order given.
    weights : (S,) of the adversaries in the mixture; they sum to one, and are zero for sets that do not matter.
    label_proba : (N, K) labels of the mixture: Σ_s weights_s · (labels of the adversary of set s).
    risk, lower : bounds of min_θ max_s max_μ E_μ ℓ_θ + penalty; the first holds for this θ, the second for every θ.
    status : "optimal" (gap ≤ tol), "separable" (no finite θ attains the minimum; the bounds hold) or "stopped".
    n_steps : Newton steps of all paths that were followed to learn θ.
    """

    theta: FloatArray
    parts: tuple[UnionPart, ...]
    weights: FloatArray
    label_proba: FloatArray
    risk: float
    lower: float
    status: str
    n_steps: int

    @property
    def gap(self) -> float:
        return self.risk - self.lower

    @property
    def transport_cost(self) -> float:
        """Σ_s weights_s · (cost of the plan of adversary s): where all sets measure by one cost, a bound on W_c.

        Each plan is measured by the label cost of its own set, and mixing plans mixes their costs.
        """
        return float(self.weights @ [part.adversary.transport_cost for part in self.parts])


def solve_union(
    sets: list[Problem],
    model: LinearModel,
    *,
    tol: float = 1e-4,
    options: NewtonOptions = DEFAULT_OPTIONS,
    n_jobs: int | None = 1,
    on_round: Callable[[PathPoint], None] | None = None,
) -> UnionSolution:
    """Solve min_θ max_s max_{μ ∈ set s} E_μ ℓ_θ + penalty to a certified gap ≤ tol.

    sets : decision sets with the same rows, each with its minimal radius.
    """
    _check_sets(sets, model)
    with solver_threads(n_jobs) as executor:
        return _Union(sets, model, tol, options, n_jobs, executor, on_round).solve()


def _check_sets(sets: list[Problem], model: LinearModel) -> None:
    if not sets:
        raise ValueError("a union needs at least one decision set; got none. Pass a list of (set, minimal radius).")
    first = sets[0][0]
    if len(model.X) != len(first.row_weights):
        raise ValueError(
            f"the model must have one row per row of the sets; got {len(model.X)} and {len(first.row_weights)} rows. "
            "Build both from the same rows."
        )
    for position, (ds, minimal) in enumerate(sets):
        if not np.array_equal(ds.row_weights, first.row_weights) or ds.n_classes != first.n_classes:
            raise ValueError(
                f"all sets of a union must share their rows and classes; set {position} differs from set 0. Build "
                "them from one decision set."
            )
        check_radius(ds, minimal)


@dataclass
class _Inside:
    """The sets taken in so far, solved together."""

    members: list[int]
    risk: float
    lower: LowerBound
    parts: dict[int, UnionPart]
    weights: dict[int, float]

    @property
    def theta(self) -> FloatArray:
        return self.parts[self.members[0]].point.theta


@dataclass
class _Union:
    sets: list[Problem]
    model: LinearModel
    tol: float
    options: NewtonOptions
    n_jobs: int | None
    executor: Executor | None
    on_round: Callable[[PathPoint], None] | None
    n_steps: int = 0
    starts: dict[int, PathPoint] = field(default_factory=dict)

    def solve(self) -> UnionSolution:
        inside = self._alone(0)
        while True:
            outside = self._worst_cases_outside(inside)
            worst = max(outside, key=lambda s: outside[s].risk, default=None)
            if worst is None or outside[worst].risk <= max(inside.risk, inside.lower.value + self.tol):
                return self._solution(inside, outside)
            inside = self._together([*inside.members, worst])

    def _alone(self, s: int) -> _Inside:
        ds, minimal = self.sets[s]
        tol = self.tol if len(self.sets) == 1 else _SHARE_INSIDE * self.tol
        found = solve_certified(
            ds, self.model, tol=tol, minimal=minimal, options=self.options, n_jobs=self.n_jobs, on_round=self.on_round
        )
        self.n_steps += found.path.steps
        self.starts[s] = found.checkpoint
        part = UnionPart(ds, found.path.point, found.adversary, found.risk)
        return _Inside([s], found.risk, LowerBound(found.lower, found.status == "separable"), {s: part}, {s: 1.0})

    def _worst_cases_outside(self, inside: _Inside) -> dict[int, UnionPart]:
        """The worst case of the classifier over each set that was not taken in, up to the first that is too bad."""
        losses = FixedLosses(self.model.losses(inside.theta, slice(None)))
        penalty = self.model.penalty_value(inside.theta)
        found: dict[int, UnionPart] = {}
        for s, (ds, minimal) in enumerate(self.sets):
            if s in inside.parts:
                continue
            solved = solve_certified(
                ds, losses, tol=0.25 * self.tol, minimal=minimal, options=self.options, n_jobs=self.n_jobs
            )
            point = replace(solved.path.point, theta=inside.theta)
            self.starts[s] = replace(solved.checkpoint, point=replace(solved.checkpoint.point, theta=inside.theta))
            found[s] = UnionPart(ds, point, solved.adversary, solved.risk + penalty)
        return found

    def _together(self, members: list[int]) -> _Inside:
        joint = _Joint(
            [self.sets[s] for s in members],
            self.model,
            _SHARE_INSIDE * self.tol,
            self.options,
            self.executor,
            self.on_round,
        )
        starts = [self.starts[s] for s in members]
        point = UnionPoint.with_theta(starts[0].point.theta, [start.point for start in starts])
        joint.follow(PathState(point, max(start.tau for start in starts)))
        if joint.gap > joint.tol:
            joint.follow(joint.cold_start())
        if joint.gap > joint.tol:
            joint.repair_by_linear_program()
        self.n_steps += joint.n_steps
        (risk, state), (lower, weights, adversaries) = joint.bounds()
        parts = {}
        early = joint.checkpoint
        for s, start, point_s, adversary in zip(
            members, early.point.parts, state.point.parts, adversaries, strict=True
        ):
            self.starts[s] = PathState(start, early.tau)
            ds = self.sets[s][0]
            parts[s] = UnionPart(ds, point_s, adversary, dual_value(ds, self.model, point_s))
        return _Inside(members, risk, lower, parts, dict(zip(members, weights.tolist(), strict=True)))

    def _solution(self, inside: _Inside, outside: dict[int, UnionPart]) -> UnionSolution:
        every = inside.parts | outside
        parts = tuple(every[s] for s in range(len(self.sets)))
        weights = np.array([inside.weights.get(s, 0.0) for s in range(len(self.sets))])
        risk = max(part.risk for part in parts)
        lower = min(inside.lower.value, risk)  # they may cross by rounding only
        status = "stopped" if risk - lower > self.tol else "separable" if inside.lower.unbounded else "optimal"
        label_proba = _mixture(weights, [part.adversary for part in parts])
        return UnionSolution(inside.theta, parts, weights, label_proba, risk, lower, status, self.n_steps)


@dataclass
class _Joint:
    """The bounds found so far for a union of sets that all may matter, by Newton's method on all of them at once."""

    sets: list[Problem]
    model: LinearModel
    tol: float
    options: NewtonOptions
    executor: Executor | None
    on_round: Callable[[PathPoint], None] | None
    upper: tuple[float, UnionState] | None = None
    lower: tuple[LowerBound, FloatArray, list[Adversary]] | None = None
    n_steps: int = 0
    visited: list[UnionState] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dual = UnionDual([_smoothed_dual(*problem, self.model, self.executor) for problem in self.sets])

    @property
    def gap(self) -> float:
        return self.upper[0] - self.lower[0].value if self.upper and self.lower else np.inf

    def bounds(self) -> tuple[tuple[float, UnionState], tuple[LowerBound, FloatArray, list[Adversary]]]:
        if self.upper is None or self.lower is None:
            raise RuntimeError("no point was certified: follow a path first")
        return self.upper, self.lower

    @property
    def checkpoint(self) -> UnionState:
        """An early point of the path, to start a nearby problem from."""
        return next((state for state in self.visited if state.tau <= _START_TAU), self.bounds()[0][1])

    def cold_start(self) -> UnionState:
        points = []
        for ds, _ in self.sets:
            alpha = 1.0 / _mean_distance(ds)
            points.append(
                DualPoint(np.zeros(self.model.shape), alpha, np.zeros(ds.n_classes), np.zeros(len(ds.anchor_weights)))
            )
        return PathState(UnionPoint(tuple(points)), 1.0)

    def follow(self, path: UnionState) -> None:
        """Follow the path until the certified gap is within tol or it can go no further."""
        target = self.tol
        while True:
            path = follow(self.dual, path, target, self.options, self._visit)
            path = self._polish(path)
            self._certify(path)
            ended = path.stalled or path.steps >= self.options.max_steps or path.tau <= self.options.smallest_tau
            if self.gap <= self.tol:
                path = self._refine(path)
            if self.gap <= self.tol or ended:
                self.n_steps += path.steps
                return
            target = 0.3 * min(target, path.smoothing_gap)
            path = replace(path, tau=self.options.decrease * path.tau)

    def repair_by_linear_program(self) -> None:
        """Where Newton stalls: move the labels of each soft plan as little as can be until they are feasible."""
        _, state = self.bounds()[0]
        weights = self._weights(state)
        adversaries = []
        for (ds, minimal), part in zip(self.sets, state.point.parts, strict=True):
            losses = self.model.losses(part.theta, slice(None))
            wanted = soft_adversary(ds, self.model, part, state.tau)
            repaired = nearest_feasible(ds, losses, part, 1e-2, wanted.label_proba, _open_radius(ds, minimal))
            adversaries.append(Adversary(*repaired) if repaired is not None else wanted)
        self._consider_lower(adversaries, weights, state.point.theta)

    def _visit(self, state: UnionState) -> None:
        self.visited.append(state)
        if self.on_round is not None:
            self.on_round(PathState(state.point.parts[0], state.tau, state.steps, state.smoothing_gap, state.stalled))

    def _weights(self, state: UnionState) -> FloatArray:
        return self.dual.evaluate(state.point, state.tau, second_order=False).weights

    def _certify(self, state: UnionState) -> None:
        pairs = list(zip(self.sets, state.point.parts, strict=True))
        risk = max(dual_value(ds, self.model, part) for (ds, _), part in pairs)
        if self.upper is None or risk < self.upper[0]:
            self.upper = (risk, state)
        wanted = [soft_adversary(ds, self.model, part, state.tau) for (ds, _), part in pairs]
        self._consider_lower(wanted, self._weights(state), state.point.theta)

    def _consider_lower(self, wanted: list[Adversary], weights: FloatArray, theta: FloatArray) -> None:
        weights = np.where(weights < _LEAST_WEIGHT, 0.0, weights)
        weights /= weights.sum()
        pairs = zip(self.sets, wanted, strict=True)
        found = [feasible_adversary(ds, one, minimal.adversary) for (ds, minimal), one in pairs]
        mixture = Adversary(_mixture(weights, found), float(weights @ [one.transport_cost for one in found]))
        lower = lower_bound(self.sets[0][0], self.model, mixture, theta)
        if self.lower is None or lower.value > self.lower[0].value:
            self.lower = (lower, weights, found)

    def _polish(self, path: UnionState) -> UnionState:
        """Centre until what is left to repair in the plans' marginals costs the lower bound far less than tol."""
        allowed = max(0.02 * self.tol, 0.15 * (self.tol - path.smoothing_gap))

        def centred(point: UnionPoint, here: UnionEvaluation, decrement: float) -> bool:
            triples = zip(self.dual.duals, point.parts, here.parts, strict=True)
            repairs = np.array([_repair_costs(dual, part, local.gradient) for dual, part, local in triples])
            model = 10.0 * np.square(here.gradient[: point.theta.size]).sum()
            return max(0.5 * decrement, *(here.weights @ repairs), model) <= allowed

        try:
            point, _, used = centre_objective(
                self.dual, path.point, path.tau, replace(self.options, round_steps=30), centred=centred
            )
        except StallError:
            return path
        return replace(path, point=point, steps=path.steps + used)

    def _refine(self, path: UnionState) -> UnionState:
        """Go on to rounding at the last τ, on small problems: the order of rows and steps then leaves no trace."""
        if self.sets[0][0].distances.size > _SMALL:
            return path
        options = replace(self.options, round_steps=12)
        try:
            point, _, used = centre_objective(
                self.dual, path.point, path.tau, options, centred=lambda _p, _e, decrement: decrement < 1e-18
            )
        except StallError:
            return path  # no decrease left to find: the point is as good as float64 allows
        exact = replace(path, point=point, steps=path.steps + used)
        self.upper = None
        self._certify(exact)
        return exact


def _mixture(weights: FloatArray, adversaries: list[Adversary]) -> FloatArray:
    """(N, K) labels of the mixture of adversaries."""
    mixed = np.zeros_like(adversaries[0].label_proba)
    for weight, one in zip(weights, adversaries, strict=True):
        if weight > 0:
            mixed += weight * one.label_proba
    return mixed


def _repair_costs(dual: SmoothedDual, point: DualPoint, gradient: FloatArray) -> tuple[float, float]:
    """About what it costs a set's adversary to make its anchor marginal, and its label probabilities, exact."""
    ds, at = dual.set, dual.layout
    off, label_cost = gradient[at.beta], float(ds.label_cost.max())
    across = np.abs(np.add.reduceat(off, ds.class_offsets[:-1])).sum()
    anchors = point.alpha * (np.abs(off).sum() * _mean_distance(ds) + across * label_cost)
    return float(anchors), float(np.abs(gradient[at.lam]).sum() * (point.alpha * label_cost + 4.0))


def _smoothed_dual(
    ds: DecisionSet, minimal: MinimalRadius, model: LinearModel, executor: Executor | None
) -> SmoothedDual:
    return SmoothedDual(
        ds.with_radius(_open_radius(ds, minimal)),
        model,
        minimal_radius=minimal.value,
        potentials=(minimal.anchor_potentials, minimal.label_potentials),
        room=_ROOM * (minimal.value or _mean_distance(ds)),
        executor=executor,
    )


def _open_radius(ds: DecisionSet, minimal: MinimalRadius) -> float:
    """The radius, or where that is the minimal one, one larger by rounding error: the set then has an interior."""
    return max(ds.radius, minimal.value * (1.0 + 0.4 * FEASIBILITY))


def _mean_distance(ds: DecisionSet) -> float:
    """Mean feature distance between rows and anchors, or the label cost where all rows coincide."""
    return float(ds.row_weights @ ds.distances @ ds.anchor_weights) or float(ds.label_cost.max())
