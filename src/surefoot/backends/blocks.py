"""A robust problem whose distances are computed block by block while the rows are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray
from surefoot.backends.block_rows import Anchors, BlockedRows, BlockStore
from surefoot.backends.compute import Compute
from surefoot.backends.sources import BlocksOfRows, RowSource, StackedRows, block_edges, rows_per_block, sample_rows
from surefoot.costs.metrics import FeatureMetric, Precomputed
from surefoot.dual.adversary import NearestPlanLabels, RuleMixture
from surefoot.dual.block import Block, DualProblem
from surefoot.dual.bounds import AnchorRepair
from surefoot.dual.models import (
    AnyClassifier,
    Coordinates,
    DualPoint,
    FixedLosses,
    LinearModel,
    Model,
    standard_coordinates,
)
from surefoot.dual.objective import Evaluation, SmoothedDual
from surefoot.dual.row_store import RowStore
from surefoot.problem.distances import DistanceRows, row_chunks
from surefoot.problem.robust import InMemoryProblem, Objective, OnRound, RobustProblem, replace_unlabeled
from surefoot.problem.rows import LabeledData
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.direction import StallError
from surefoot.solvers.joint_objective import JointPoint
from surefoot.solvers.minimal_radius import MinimalRadius
from surefoot.solvers.newton import DEFAULT_OPTIONS, NewtonOptions, PathPoint, PathState, centre, follow_path
from surefoot.solvers.search.best_bounds import BestBounds, JointState, SetAtRadius
from surefoot.solvers.search.endings import COARSE_ROWS, LARGEST_SHARE, start_from_potentials
from surefoot.solvers.search.search import Search
from surefoot.solvers.search.solution import Solution, solve, solver_threads
from surefoot.solvers.transport import TransportSolution, pairs_pay, transport_by_pairs

# A robust problem over blocks: labeled rows, a source of unlabeled rows, and the sums over them.

# The relative gap between the bounds on the minimal radius.
TRANSPORT_TOL = 1e-5
# The path begins on samples with this many rows per anchor, coarsest first. At the second number, a smoothing in units
# of the loss, the solver switches to the next sample.
_LEVELS = ((60, 2e-2), (1000, 4e-3))
# The potentials of a sample with m rows per anchor have an error of about this share of a typical distance, over √m.
# The minimal radius of more rows continues at the smoothing of this size.
_HANDOVER = 0.03
# The attributes of a BlockedProblem that do not depend on the labels.
_OF_ROWS = ("rows", "row_weights", "used", "samples", "sweeps")


@dataclass(frozen=True, eq=False)
class BlockedProblem(RobustProblem):
    """Labeled rows, a source of unlabeled rows, and the way to sum over both.

    data : the labeled rows only; decision_set : anchors, label intervals and costs, without rows.
    levels : sweeps over random rows, the smallest first, on which the path begins, and finally over all rows, labeled
    first. Each has the smoothing at which the solver switches to the next.
    """

    data: LabeledData
    decision_set: DecisionSet
    source: RowSource | None
    how: Compute
    executor: Any = None

    # A solve over blocks ends at a positive smoothing, not at a vertex. Smaller gaps require the rows in memory.
    finest: ClassVar[float] = 1e-5

    @classmethod
    def from_labeled_set(
        cls,
        data: LabeledData,
        decision_set: DecisionSet,
        source: RowSource | None,
        how: Compute,
        executor: Any = None,
    ) -> BlockedProblem:
        """Build the problem. decision_set : the set of the labeled rows only."""
        if isinstance(data.metric, Precomputed) or decision_set.anchor_rows is None:
            raise ParameterError(
                "metric",
                "must be computable for rows in blocks",
                "precomputed distances",
                "Pass a metric or a function.",
            )
        n = len(decision_set.anchor_weights)
        bare = replace(decision_set, distances=np.empty((0, n)), row_weights=np.empty(0))
        return cls(data, bare, source, how, executor)

    @cached_property
    def rows(self) -> StackedRows:
        return StackedRows(self.data.counted_rows, self.source)

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    @cached_property
    def row_weights(self) -> FloatArray:
        counted = self.data.counted_weights
        weights = np.concatenate([counted, np.ones(self.n_rows - len(counted))])
        return weights / weights.sum()

    @property
    def row_blocks(self) -> Iterable[FloatArray]:
        return BlocksOfRows(self.rows)

    @cached_property
    def used(self) -> NDArray[np.uint64]:
        return self.sweeps[-1].fingerprints()

    @cached_property
    def samples(self) -> list[tuple[FloatArray, float]]:
        """Random rows, few enough to save passes over all rows, smallest sample first, each with its last smoothing.

        The smoothing is in units of the loss.
        """
        rng, found = np.random.default_rng(0), []
        for per_anchor, tau in _LEVELS:
            size = max(per_anchor * len(self.decision_set.anchor_weights), COARSE_ROWS)
            if self.source is not None and size <= LARGEST_SHARE * self.n_rows:
                found.append((sample_rows(self.source, size, rng)[0], tau))
        return found

    @cached_property
    def sweeps(self) -> list[BlockStore]:
        return self._sweeps(None)

    def _sweeps(self, losses_at: Any) -> list[BlockStore]:
        """Return sweeps over each sample, and finally over all rows, with losses if they are fixed."""
        make = self.how.sweep_maker(losses_at, self.executor)
        anchors = Anchors(self.anchors, self.data.metric)
        counted = self.data.counted_weights
        total = counted.sum() + self.n_rows - len(counted)
        found = [make(StackedRows(rows, None), np.empty(0), 1.0 / len(rows), anchors) for rows, _ in self.samples]
        return [*found, make(self.rows, counted / total, 1.0 / total, anchors)]

    @cached_property
    def transports(self) -> list[SoftTransport] | list[PlannedTransport]:
        """The plain transport of each sample, then of all rows."""
        planned = self._planned_transport()
        if planned is not None:
            return [planned]
        found: list[SoftTransport] = []
        start, typical = None, None
        with solver_threads(None):
            for at, sweep in enumerate(self.sweeps):
                tol = TRANSPORT_TOL if at == len(self.sweeps) - 1 else max(TRANSPORT_TOL, 1e-3)
                one = solve_soft_transport(
                    sweep,
                    self.decision_set,
                    tol=tol,
                    start=start,
                    typical_distance=typical,
                    options=DEFAULT_OPTIONS,
                )
                typical = one.typical_distance
                off = _HANDOVER * typical * np.sqrt(len(self.decision_set.anchor_weights) / sweep.n_rows)
                start = replace(one.path, tau=max(one.path.tau, off))
                found.append(one)
        return found

    def _planned_transport(self) -> PlannedTransport | None:
        """Return transport with its plan if there are few rows per anchor; None otherwise, and on other devices.

        Rows stored on workers are read once into this process, so that every source gives the same result.
        """
        if self.how.device != "cpu" or self.samples or not pairs_pay((self.rows.n_rows, len(self.anchors))):
            return None
        rows, sweep = self.rows, self.sweeps[-1]
        if getattr(self.source, "sweep", None) is not None:
            rows = StackedRows(rows.read(0, rows.n_rows), None)
        kept = sweep if isinstance(sweep, BlockedRows) else None
        distances = StreamedDistances(rows, self.anchors, self.data.metric, kept)
        with solver_threads(None):
            return PlannedTransport.from_distances(distances, self.row_weights, self.decision_set.anchor_weights)

    @cached_property
    def minimal(self) -> MinimalRadius:
        return MinimalRadius.from_transport(self.decision_set, self.transports[-1])

    def linear(self, l2: float, fit_intercept: bool, *, standardized: bool = False) -> BlockedObjective:
        with solver_threads(None):
            coordinates = standard_coordinates(self.sweeps[-1], 0.0 if standardized else l2, fit_intercept)
        penalty = coordinates.penalty(l2, standardized=standardized)
        model = LinearModel(np.empty((0, len(penalty))), penalty, self.decision_set.n_classes)
        return BlockedObjective(self, [sweep.in_coordinates(coordinates) for sweep in self.sweeps], model, coordinates)

    def fixed(self, losses: Any, scale: float | None = None) -> BlockedObjective:
        """Return the problem with fixed losses, a function of rows. scale : the size of the losses."""
        with solver_threads(None):
            sweeps = self._sweeps(losses)
        return BlockedObjective(
            self, sweeps, FixedLosses(np.empty((0, self.decision_set.n_classes)), scale or 1.0), None
        )

    def any_classifier(self, costs: FloatArray | None = None) -> BlockedObjective:
        return BlockedObjective(self, self.sweeps, AnyClassifier.with_costs(self.decision_set.n_classes, costs), None)

    def with_label_shares(self, shares: FloatArray) -> BlockedProblem:
        found = replace(self, decision_set=self.decision_set.with_label_shares(shares))
        # do not read attributes again that do not depend on label weights
        found.__dict__.update({name: self.__dict__[name] for name in _OF_ROWS if name in self.__dict__})
        return found

    def sample(self, most: int, seed: int) -> InMemoryProblem:
        rows = self.data.rows[:0]
        if self.source is not None:
            rows = sample_rows(self.source, most, np.random.default_rng(seed))[0]
        return replace_unlabeled(self, rows)


@dataclass(frozen=True, eq=False)
class BlockedObjective(Objective):
    """A model over blocks: `sweeps` over each sample, and finally over all rows."""

    problem: BlockedProblem
    sweeps: list[BlockStore]
    model: Model
    coordinates: Coordinates | None

    @property
    def sweep(self) -> BlockStore:  # type: ignore[override]
        return self.sweeps[-1]

    def solve(
        self,
        members: Sequence[SetAtRadius],
        *,
        tol: float,
        warm_start: JointState | None = None,
        options: NewtonOptions = DEFAULT_OPTIONS,
        on_round: OnRound | None = None,
        stop_below: float = -np.inf,
    ) -> Solution:
        with solver_threads(None):
            return solve(
                self.sweep,
                self.model,
                members,
                tol=tol,
                typical=self._typical(-1),
                quick=self._quick,
                warm_start=warm_start,
                options=options,
                on_round=on_round,
                stop_below=stop_below,
            )

    def _typical(self, level: int) -> float:
        return self.problem.transports[level].typical_distance or float(self.problem.decision_set.label_cost.max())

    def _quick(self, whole: Search) -> JointState | None:
        """Follow the path over one sample after another, each down to its last smoothing."""
        path: JointState | None = None
        for level, (_, tau) in enumerate(self.problem.samples):
            search = self._at_level(whole, level)
            path = search.descend(path or _from_potentials(search) or search.cold(), tau * whole.scale)
            path = replace(path, smoothing_gap=np.inf, stalled=False, steps=0)
        return path or _from_potentials(whole)

    def _at_level(self, whole: Search, level: int) -> Search:
        """Return the search over a sample. The sets keep their excess over the minimal radius."""
        members = []
        for member in whole.members:
            minimal = MinimalRadius.from_transport(member.decision_set, self.problem.transports[level])
            excess = member.decision_set.radius - member.minimal.value
            members.append(SetAtRadius(member.decision_set.with_radius(minimal.value + excess), minimal))
        judge = BestBounds(self.sweeps[level], self.model, members)
        return Search(judge, self._typical(level), whole.tol, whole.options, whole.on_round)


def _from_potentials(search: Search) -> JointState | None:
    """Start from the potentials of the minimal radius, unless that radius is zero."""
    starts = []
    for member in search.members:
        transport = member.minimal.transport
        if transport.cost <= 0:
            return None
        starts.append(
            start_from_potentials(member.opened, search.judge.model, transport.potentials, transport.cost, search.scale)
        )
    return PathState(JointPoint(tuple(one.point for one in starts)), starts[0].tau)


# Plain transport over blocks: a semi-discrete dual with a bound on each side, without a transport plan.

# The rounds of Newton's method after which the current potentials are accepted.
_MAX_ROUNDS = 12
# The smoothing at which the path begins, in units of the typical distance. At a larger smoothing, all anchors are
# nearly equivalent for all rows.
_FIRST_TAU = 0.05


@dataclass(frozen=True, eq=False)
class SoftTransport:
    """Transport between rows and anchors as a function of a row: softmax at potentials (n,), then repaired.

    cost, lower : both bounds of W_d; typical_distance : between a row and its anchors; path : the end of the path, from
    which a problem with more rows may continue.
    """

    cost: float
    lower: float
    potentials: FloatArray
    tau: float
    repair: AnchorRepair
    typical_distance: float
    path: PathPoint

    def adversary(self, ds: DecisionSet, relabel: FloatArray, cost: float) -> RuleMixture:
        """Return the labels of the transport, with the share relabel (K, K), [k, c], of anchor class c changed to k."""
        classes = (ds.anchor_labels[:, None] == np.arange(ds.n_classes)).astype(float)
        rule = NearestPlanLabels(self.potentials, self.tau, self.repair, classes, relabel)
        return RuleMixture(((1.0, rule, None),), cost)


@dataclass(frozen=True)
class PlannedTransport(TransportSolution):
    """Transport between rows and anchors with the plan, and the mean distance between rows and anchors."""

    typical_distance: float

    @classmethod
    def from_distances(cls, distances: DistanceRows, rows: FloatArray, anchors: FloatArray) -> PlannedTransport | None:
        """Solve exactly if there are few rows per anchor. Return None if there are more, or if the solver failed."""
        found = transport_by_pairs(distances, rows, anchors)
        if found is None:
            return None
        typical = sum(float(rows[part] @ (chunk @ anchors)) for part, chunk in distances.chunks())
        return cls(found.cost, found.lower, found.plan, found.potentials, typical)


def solve_soft_transport(
    sweep: RowStore,
    ds: DecisionSet,
    *,
    tol: float,
    start: PathPoint | None = None,
    typical_distance: float | None = None,
    options: NewtonOptions,
) -> SoftTransport:
    """Compute W_d with bounds that differ by at most tol times W_d, or by the rounding error of float64.

    The path of a sample may be the start, and its typical distance is then used for all rows. The method is smoothed
    Newton in the n potentials alone. The last steps are in float64. The lower bound is the dual at the potentials. The
    upper bound is the softmax plan with its anchor marginal repaired.
    """
    plain = DualProblem.plain_transport(ds)
    n = len(ds.anchor_weights)
    zero = DualPoint(np.zeros((0, 0)), 1.0, np.zeros(1), np.zeros(n))
    scale = typical_distance
    if scale is None:  # the cost of the plan that ignores the positions of rows
        blind = AnchorRepair.blind(plain.decision_set)
        scale = float(sweep.total(plain, Block.plan_cost, zero, 1.0, blind).sums[0][0])
    path = start if start is not None else PathPoint(zero, tau=_FIRST_TAU * scale or 1.0)
    dual = SmoothedDual(plain.decision_set, plain.model, sweep, alpha_free=False, exact=True)
    early = dual
    if sweep.is_narrow:
        early = SmoothedDual(plain.decision_set, plain.model, sweep, alpha_free=False, exact=False)
    target = 0.3 * tol * scale
    for _ in range(_MAX_ROUNDS):
        path = follow_path(early, path, max(target, 1e-12), options)
        if path.stalled and early is not dual:
            path, early = follow_path(dual, replace(path, stalled=False), max(target, 1e-12), options), dual
        if early is not dual:
            path = _polish(early, path, tol, scale, options)
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
    """Centre until repairing the plan's anchor marginal costs far less than tol, in units of scale."""
    allowed = max(0.02 * tol * scale, 0.15 * (tol * scale - path.smoothing_gap))

    def centred(_point: DualPoint, here: Evaluation, decrement: float) -> bool:
        return max(0.5 * decrement, scale * float(np.abs(here.gradient[dual.layout.beta]).sum())) <= allowed

    try:
        point, _, used = centre(dual, path.point, path.tau, replace(options, round_steps=30), centred=centred)
    except StallError:
        return path
    return replace(path, point=point, steps=path.steps + used)


@dataclass(frozen=True, eq=False)
class StreamedDistances:
    """Distances of the rows of a source to anchors (n, d), with at most one chunk in memory at a time.

    sweep : over the same rows. Distances kept by the sweep are not computed again.
    """

    source: StackedRows
    anchors: FloatArray
    metric: FeatureMetric
    sweep: BlockedRows | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.n_rows, len(self.anchors)

    def chunks(self) -> Iterator[tuple[slice, FloatArray]]:
        N, n = self.shape
        for start, stop in block_edges(N, rows_per_block(N) if self.sweep is None else self.sweep.block_rows):
            block = self.source.read(start, stop)
            kept = None if self.sweep is None else self.sweep.kept_distances(block, start)
            for part in row_chunks(len(block), n):
                found = self.metric.distances(block[part], self.anchors) if kept is None else kept[part]
                yield slice(start + part.start, start + part.stop), found

    def distances_at(self, rows: NDArray[np.intp]) -> FloatArray:
        wanted, back = np.unique(rows, return_inverse=True)
        return self.metric.distances(self.source.take(wanted), self.anchors)[back]
