"""A robust problem over blocks: labeled rows and a source of others, and who adds up over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import ParameterError
from surefoot._types import FloatArray
from surefoot.blocks.compute import Compute
from surefoot.blocks.minimal import PlannedTransport, SoftTransport, solve_soft_transport
from surefoot.blocks.sources import BlocksOfRows, RowSource, StackedRows, sample_rows
from surefoot.blocks.streamed import StreamedDistances
from surefoot.blocks.sweep import Anchors, BlockSweep, LocalSweep
from surefoot.costs import Precomputed
from surefoot.dual.design import Coordinates, standardize
from surefoot.dual.models import FixedLosses, LinearModel, Model
from surefoot.exact.judge import JointState, Judge, Member
from surefoot.exact.problem import Game, HeldProblem, OnRound, RobustProblem, replace_unlabeled
from surefoot.exact.search import Search
from surefoot.exact.solution import Solution, solve, solver_threads
from surefoot.problem.rows import LabeledData
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.joint_objective import JointPoint
from surefoot.solvers.minimal import MinimalRadius
from surefoot.solvers.newton import DEFAULT_OPTIONS, NewtonOptions, PathState
from surefoot.solvers.starts import start_from_potentials
from surefoot.solvers.transport import pairs_pay

# The bounds of the minimal radius are to be this close, relative to it.
TRANSPORT_TOL = 1e-5
# Rows per anchor of the samples on which the path begins, the coarsest first, and the smoothing, in units of the loss,
# at which each hands over to the next.
_LEVELS = ((60, 2e-2), (1000, 4e-3))
_FEWEST_ROWS = 2000
# Potentials of a sample with m rows per anchor are off by about this share of a typical distance, over √m: the minimal
# radius of more rows goes on at such a smoothing.
_HANDOVER = 0.03
# A sample that has more than this share of the rows saves nothing.
_LARGEST_SHARE = 0.4
# What a BlockProblem keeps of its rows, whatever their labels.
_OF_ROWS = ("rows", "row_weights", "used", "samples", "sweeps")


@dataclass(frozen=True, eq=False)
class BlockProblem(RobustProblem):
    """Labeled rows, a source of unlabeled ones, and how to sweep over all of them.

    data : labeled rows alone; decision_set : without rows: anchors, label intervals and costs.
    levels : sweeps over random rows, the smallest first, where the path begins, and last over all rows, the labeled
    ones first; each with the smoothing at which it hands over.
    """

    data: LabeledData
    decision_set: DecisionSet
    source: RowSource | None
    how: Compute
    executor: Any = None

    @classmethod
    def of(
        cls,
        data: LabeledData,
        decision_set: DecisionSet,
        source: RowSource | None,
        how: Compute,
        executor: Any = None,
    ) -> BlockProblem:
        """decision_set : that of the labeled rows alone."""
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
        """Random rows, few enough to save passes over all of them, the fewest first; and where each hands over.

        That is a smoothing, in units of the loss.
        """
        rng, found = np.random.default_rng(0), []
        for per_anchor, tau in _LEVELS:
            size = max(per_anchor * len(self.decision_set.anchor_weights), _FEWEST_ROWS)
            if self.source is not None and size <= _LARGEST_SHARE * self.n_rows:
                found.append((sample_rows(self.source, size, rng)[0], tau))
        return found

    @cached_property
    def sweeps(self) -> list[BlockSweep]:
        return self._sweeps(None)

    def _sweeps(self, losses_at: Any) -> list[BlockSweep]:
        """Over each sample, and last over all rows; with losses where these are fixed."""
        make = self.how.sweep_maker(losses_at, self.executor)
        anchors = Anchors(self.anchors, self.data.metric)
        counted = self.data.counted_weights
        total = counted.sum() + self.n_rows - len(counted)
        found = [make(StackedRows(rows, None), np.empty(0), 1.0 / len(rows), anchors) for rows, _ in self.samples]
        return [*found, make(self.rows, counted / total, 1.0 / total, anchors)]

    @cached_property
    def transports(self) -> list[SoftTransport] | list[PlannedTransport]:
        """Plain transport of each sample, then of all rows."""
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
        """With its plan, where there are few rows per anchor; a device keeps to what it does fast.

        Rows that lie with workers of their own are then read here once, so that the result is that of any source.
        """
        if self.how.device != "cpu" or self.samples or not pairs_pay((self.rows.n_rows, len(self.anchors))):
            return None
        rows, sweep = self.rows, self.sweeps[-1]
        if getattr(self.source, "sweep", None) is not None:
            rows = StackedRows(rows.read(0, rows.n_rows), None)
        kept = sweep if isinstance(sweep, LocalSweep) else None
        distances = StreamedDistances(rows, self.anchors, self.data.metric, kept)
        with solver_threads(None):
            return PlannedTransport.of(distances, self.row_weights, self.decision_set.anchor_weights)

    @cached_property
    def minimal(self) -> MinimalRadius:
        return MinimalRadius.of(self.decision_set, self.transports[-1])

    def linear(self, l2: float, fit_intercept: bool, *, standardized: bool = False) -> BlockGame:
        with solver_threads(None):
            coordinates = standardize(self.sweeps[-1], 0.0 if standardized else l2, fit_intercept)
        penalty = coordinates.penalty(l2, standardized=standardized)
        model = LinearModel(np.empty((0, len(penalty))), penalty, self.decision_set.n_classes)
        return BlockGame(self, [sweep.in_coordinates(coordinates) for sweep in self.sweeps], model, coordinates)

    def fixed(self, losses: Any, scale: float | None = None) -> BlockGame:
        """Losses : a function of rows; scale : the size of its losses."""
        with solver_threads(None):
            sweeps = self._sweeps(losses)
        return BlockGame(self, sweeps, FixedLosses(np.empty((0, self.decision_set.n_classes)), scale or 1.0), None)

    def with_label_shares(self, shares: FloatArray) -> BlockProblem:
        found = replace(self, decision_set=self.decision_set.with_label_shares(shares))
        # what does not depend on how much a label counts is not read again
        found.__dict__.update({name: self.__dict__[name] for name in _OF_ROWS if name in self.__dict__})
        return found

    def sample(self, most: int, seed: int) -> HeldProblem:
        rows = self.data.rows[:0]
        if self.source is not None:
            rows = sample_rows(self.source, most, np.random.default_rng(seed))[0]
        return replace_unlabeled(self, rows)


@dataclass(frozen=True, eq=False)
class BlockGame(Game):
    """A model over blocks: `sweeps` over each sample, and last over all rows."""

    problem: BlockProblem
    sweeps: list[BlockSweep]
    model: Model
    coordinates: Coordinates | None

    @property
    def sweep(self) -> BlockSweep:  # type: ignore[override]
        return self.sweeps[-1]

    def solve(
        self,
        members: Sequence[Member],
        *,
        tol: float,
        warm_start: JointState | None = None,
        options: NewtonOptions = DEFAULT_OPTIONS,
        on_round: OnRound | None = None,
        enough: float = -np.inf,
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
                enough=enough,
            )

    def _typical(self, level: int) -> float:
        return self.problem.transports[level].typical_distance or float(self.problem.decision_set.label_cost.max())

    def _quick(self, whole: Search) -> JointState | None:
        """Follow the path over one sample after another, down to the smoothing at which each hands over to the next."""
        path: JointState | None = None
        for level, (_, tau) in enumerate(self.problem.samples):
            search = self._at_level(whole, level)
            path = search.descend(path or _from_potentials(search) or search.cold(), tau * whole.scale)
            path = replace(path, smoothing_gap=np.inf, stalled=False, steps=0)
        return path or _from_potentials(whole)

    def _at_level(self, whole: Search, level: int) -> Search:
        """The search over a sample: the sets keep their excess over the minimal radius."""
        members = []
        for member in whole.members:
            minimal = MinimalRadius.of(member.decision_set, self.problem.transports[level])
            excess = member.decision_set.radius - member.minimal.value
            members.append(Member(member.decision_set.with_radius(minimal.value + excess), minimal))
        judge = Judge(self.sweeps[level], self.model, members)
        return Search(judge, self._typical(level), whole.tol, whole.options, whole.on_round)


def _from_potentials(search: Search) -> JointState | None:
    """A start from the potentials of the minimal radius, where that is not zero."""
    starts = []
    for member in search.members:
        transport = member.minimal.transport
        if transport.cost <= 0:
            return None
        starts.append(
            start_from_potentials(member.opened, search.judge.model, transport.potentials, transport.cost, search.scale)
        )
    return PathState(JointPoint(tuple(one.point for one in starts)), starts[0].tau)
