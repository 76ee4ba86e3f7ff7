"""Sums over all blocks, in the same fixed order on every backend."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.backends.sources import RowSource, block_edges
from surefoot.costs.metrics import FeatureMetric
from surefoot.dual.adversary import Adversary, LabelTable
from surefoot.dual.block import Block, DualProblem
from surefoot.dual.bounds import LogisticSums
from surefoot.dual.models import Coordinates, DualPoint, FeatureBlock, RowTotals
from surefoot.dual.row_store import RowStore, table_of
from surefoot.dual.row_sums import RowSums
from surefoot.dual.shortlist import PAIR_BYTES, BlockLists, ShortlistKeeper
from surefoot.problem.distances import MeasuredDistances
from surefoot.problem.rows import fingerprints

# Partial sums are added in groups of this many, and group sums again in groups. A cluster can build the same tree.
# tree.
FAN_IN = 8


def tree_sum(parts: Iterable[Any]) -> Any:
    """Sum parts by groups of FAN_IN, level by level. At most one part per level is in memory."""
    levels: list[tuple[Any, int]] = []
    for part in parts:
        level, added = 0, part
        while True:
            if level == len(levels):
                levels.append((None, 0))
            total, count = levels[level]
            if total is None:
                total = added
            else:
                total += added
            if count + 1 < FAN_IN:
                levels[level] = (total, count + 1)
                break
            levels[level] = (None, 0)  # a full group is a part of the next level
            level, added = level + 1, total
    whole = None
    for left, _ in levels:  # add each incomplete group to the next level, finest first
        if left is None:
            continue
        if whole is not None:
            left.__iadd__(whole)
        whole = left
    if whole is None:
        raise ValueError("there are no rows: give at least one labeled row")
    return whole


@dataclass(frozen=True, eq=False)
class Anchors:
    """The labeled rows (n, d), in the order of the decision set, and the metric for distances to these rows."""

    rows: FloatArray
    metric: FeatureMetric

    def distances_to(self, rows: FloatArray) -> FloatArray:
        """Return the distances (B, n) of rows to the anchors."""
        return self.metric.distances(rows, self.rows)


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows (B, d) of a source with weights (B,), starting at row `start`, with their distances and losses.

    distances : (B, n) if they are kept; losses : (B, K) of a fixed classifier, or a function that returns the losses.
    """

    rows: FloatArray
    weights: FloatArray
    start: int
    distances: FloatArray | None = None
    losses: Any = None

    def from_problem(
        self,
        problem: DualProblem,
        anchors: Anchors,
        coordinates: Coordinates | None,
        lists: ShortlistKeeper | None = None,
    ) -> Block:
        """Build the block of a problem."""
        distances: Any = self.distances
        if distances is None:
            distances = MeasuredDistances(anchors.metric, self.rows, anchors.rows)
        design = partial(_design, coordinates, self.rows)
        return Block(problem, distances, self.weights, design, self._losses, self.start, lists)

    def _losses(self) -> FloatArray:
        return self.losses() if callable(self.losses) else self.losses


def _design(coordinates: Coordinates | None, rows: FloatArray) -> FloatArray:
    if coordinates is None:
        raise ValueError("a linear model over blocks requires coordinates: call in_coordinates first")
    return np.asarray(coordinates.design(rows))


class BlockStore(RowStore):
    """Rows that are read in blocks."""

    @abstractmethod
    def features(self, work: Callable[..., RowTotals], *parameters: Any) -> RowTotals:
        """Return the sum over blocks of a method of `FeatureBlock`."""

    @abstractmethod
    def in_coordinates(self, coordinates: Coordinates) -> BlockStore:
        """Return the same rows, with a design matrix."""

    @abstractmethod
    def fingerprints(self) -> NDArray[np.uint64]:
        """Return a number per row (N,). Equal rows have equal numbers."""

    def sizes(self) -> RowTotals:
        return self.features(FeatureBlock.sizes)

    def means(self, size: FloatArray) -> RowTotals:
        return self.features(FeatureBlock.means, size)

    def second_moments(self, size: FloatArray, mean: FloatArray) -> RowTotals:
        return self.features(FeatureBlock.second_moments, size, mean)


class StoreMaker(Protocol):
    """Make the sweep over a source. The first rows have these weights, each other row has weight `unit`."""

    def __call__(self, source: RowSource, weights: FloatArray, unit: float, anchors: Anchors) -> BlockStore: ...


@dataclass(frozen=True, eq=False)
class BlockedRows(BlockStore):
    """Blocks processed in one process, one after another or by threads.

    weights : (n,) of the labeled rows, which come first; each other row has weight `unit`. losses_at : a function from
    rows (start, stop) to losses (B, K), for fixed losses. `kept` holds the distances of the blocks that fit into
    `keep_bytes`. `lists` holds near anchors, in up to a quarter of that size.
    """

    source: RowSource
    weights: FloatArray
    unit: float
    anchors: Anchors
    losses_at: Callable[[int, int], FloatArray] | None
    executor: Executor | None
    keep_bytes: int
    block_rows: int
    coordinates: Coordinates | None = None
    kept: dict[int, FloatArray] = field(default_factory=dict)
    lists: BlockLists = field(default_factory=BlockLists)

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return self.source.n_rows

    @property
    def threads(self) -> Executor | None:
        return self.executor

    def in_coordinates(self, coordinates: Coordinates) -> BlockedRows:
        return replace(self, coordinates=coordinates)

    def features(self, work: Callable[..., RowTotals], *parameters: Any) -> RowTotals:
        return self._sum(lambda start, stop: work(FeatureBlock(*self._rows(start, stop)), *parameters))

    def total(self, problem: DualProblem, work: Any, *parameters: Any, **named: Any) -> Any:
        return self._sum(lambda start, stop: work(self.block(problem, start, stop), *parameters, **named))

    def row_sums(
        self, problem: DualProblem, point: DualPoint, tau: float, *, second_order: bool, exact: bool
    ) -> RowSums:
        """Sum over short lists of anchors if they are faster."""
        self.lists.turn_to(problem.decision_set)
        return super().row_sums(problem, point, tau, second_order=second_order, exact=exact)

    def some_row_sums(self, problem: DualProblem, point: DualPoint, tau: float) -> tuple[RowSums, bool] | None:
        """Sum over the last short lists of anchors, if all blocks have a list."""
        if not self.lists.complete_for(problem.decision_set):
            return None
        sums = self.total(problem, Block.some_row_sums, point, tau)
        return sums, self.lists.missed == 0

    def gather(self, problem: DualProblem, work: Any, *parameters: Any, **named: Any) -> Any:
        parts = self._parts(lambda start, stop: work(self.block(problem, start, stop), *parameters, **named))
        return np.concatenate(list(parts))

    def _logistic(self, problem: DualProblem, adversary: Adversary) -> LogisticSums:
        """Compute labels (N, K) once, if they are much smaller than the distances."""
        if 8 * self.n_rows * problem.decision_set.n_classes <= self.keep_bytes // 8:
            adversary = LabelTable(table_of(self, problem, adversary), adversary.transport_cost)
        return super()._logistic(problem, adversary)

    def fingerprints(self) -> NDArray[np.uint64]:
        edges = block_edges(self.n_rows, self.block_rows)
        return np.concatenate([fingerprints(self.source.read(*edge)) for edge in edges])

    def block(self, problem: DualProblem, start: int, stop: int) -> Block:
        rows, weights = self._rows(start, stop)
        losses = None if self.losses_at is None else partial(self.losses_at, start, stop)
        held = RowBlock(rows, weights, start, self.kept_distances(rows, start), losses)
        most_pairs = self.keep_bytes / (4 * PAIR_BYTES) * (stop - start) / self.n_rows
        return held.from_problem(problem, self.anchors, self.coordinates, self.lists.of_block(start, most_pairs))

    def _rows(self, start: int, stop: int) -> tuple[FloatArray, FloatArray]:
        weights = np.full(stop - start, self.unit)
        labeled = self.weights[start:stop]
        weights[: len(labeled)] = labeled
        return self.source.read(start, stop), weights

    def kept_distances(self, rows: FloatArray, start: int) -> FloatArray | None:
        """Return the distances of the block that starts at a row, or None if they are not kept."""
        if start not in self.kept and start + len(rows) <= self.keep_bytes // (8 * len(self.anchors.rows)):
            self.kept[start] = self.anchors.distances_to(rows)
        return self.kept.get(start)

    def _sum(self, work: Callable[[int, int], Any]) -> Any:
        return tree_sum(self._parts(work))

    def _parts(self, work: Callable[[int, int], Any]) -> Iterator[Any]:
        """Yield the result of `work` for each block, in order."""
        edges = list(block_edges(self.n_rows, self.block_rows))
        if self.executor is None:
            return (work(*edge) for edge in edges)
        return _ahead(self.executor, work, edges)


def _ahead(executor: Executor, work: Callable[[int, int], Any], edges: list[tuple[int, int]]) -> Iterator[Any]:
    """Yield results in order, with few blocks in memory at a time."""
    ahead = 2 * getattr(executor, "_max_workers", 2)
    waiting = [executor.submit(work, *edge) for edge in edges[:ahead]]
    for at in range(len(edges)):
        part = waiting.pop(0).result()
        if at + ahead < len(edges):
            waiting.append(executor.submit(work, *edges[at + ahead]))
        yield part
