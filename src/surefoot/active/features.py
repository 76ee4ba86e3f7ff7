"""The feature side of a problem: distances, and the plan that the adversary starts from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from surefoot._types import FloatArray
from surefoot.blocks.learning import NEAREST_TOL
from surefoot.blocks.problem import BlockProblem
from surefoot.blocks.sources import StackedRows
from surefoot.blocks.streamed import StreamedDistances
from surefoot.problem.distances import DistanceRows, HeldDistances
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.transport import TransportSolution, cross_over, solve_transport


class Features(Protocol):
    """Distances of rows to anchors, and an optimal plan between them."""

    @property
    def distances(self) -> DistanceRows: ...
    @property
    def transport(self) -> TransportSolution: ...


@dataclass(frozen=True, eq=False)
class FeaturesInMemory:
    """Those of a decision set that holds all distances."""

    decision_set: DecisionSet

    @cached_property
    def distances(self) -> HeldDistances:
        return HeldDistances(self.decision_set.distances)

    @cached_property
    def transport(self) -> TransportSolution:
        ds = self.decision_set
        return solve_transport(ds.distances, ds.row_weights, ds.anchor_weights)


@dataclass(frozen=True, eq=False)
class FeaturesInBlocks:
    """Rows (N,) of a source, with the weights of all of them: potentials come from sums over blocks."""

    problem: BlockProblem
    row_weights: FloatArray

    @cached_property
    def distances(self) -> StreamedDistances:
        header = self.problem.header
        return StreamedDistances(
            StackedRows(self.problem.data.rows, self.problem.source), header.anchors, header.metric
        )

    @cached_property
    def transport(self) -> TransportSolution:
        potentials = self.problem.nearest(NEAREST_TOL).plan.potentials
        return cross_over(self.distances, self.row_weights, self.problem.decision_set.anchor_weights, potentials)
