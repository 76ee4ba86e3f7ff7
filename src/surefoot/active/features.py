"""The feature side of a problem: distances, and the plan that the adversary starts from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from surefoot.blocks.problem import BlockProblem
from surefoot.blocks.streamed import StreamedDistances
from surefoot.problem.distances import DistanceRows, HeldDistances
from surefoot.problem.geometry import kept_transport
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
        found: TransportSolution = kept_transport(ds.distances, ds.row_weights, ds.anchor_weights, solve_transport)
        return found


@dataclass(frozen=True, eq=False)
class FeaturesInBlocks:
    """Those of a problem over blocks: potentials come from sums over them, the plan from a small simplex."""

    problem: BlockProblem

    @cached_property
    def distances(self) -> StreamedDistances:
        return StreamedDistances(self.problem.rows, self.problem.anchors, self.problem.data.metric)

    @cached_property
    def transport(self) -> TransportSolution:
        potentials, weights = self.problem.minimal.transport.potentials, self.problem.decision_set.anchor_weights
        return cross_over(self.distances, self.problem.row_weights, weights, potentials)
