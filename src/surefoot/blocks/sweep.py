"""Sums over all blocks, in one fixed order, whoever computes the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from surefoot._types import FloatArray
from surefoot.blocks.block import Block, Header, RawBlock
from surefoot.blocks.sources import RowSource, block_edges

# Partial sums are added up in groups of this many, those again, and so on: a tree that a cluster can build too.
FAN_IN = 8


def tree_sum(parts: Iterable[Any]) -> Any:
    """Sum of parts by groups of FAN_IN, level by level; holds one part per level."""
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
    for left, _ in levels:  # what is left of each level, the finest first, each added to the next
        if left is None:
            continue
        if whole is not None:
            left.__iadd__(whole)
        whole = left
    if whole is None:
        raise ValueError("there are no rows: give at least one labeled row")
    return whole


class Sweep(Protocol):
    """Rows of one problem, in blocks, and who adds up over them."""

    @property
    def n_rows(self) -> int: ...

    def raw(self, name: str, *parameters: Any) -> Any:
        """Σ over blocks of the method `name` of `RawBlock`."""

    def total(self, header: Header, name: str, *parameters: Any) -> Any:
        """Σ over blocks of the method `name` of `Block`."""

    def gather(self, header: Header, name: str, *parameters: Any) -> Any:
        """The arrays that the method `name` of `Block` gives for each block, one after another."""


class SweepMaker(Protocol):
    """Makes the sweep over a source: the first rows have these weights, all others count `unit`."""

    def __call__(self, source: RowSource, weights: FloatArray, unit: float) -> Sweep: ...


@dataclass(frozen=True, eq=False)
class LocalSweep:
    """Blocks of one process, one after another or by threads.

    weights : (n,) of the labeled rows, which come first; all others count `unit`. losses_at : rows (start, stop) ->
    losses (B, K), where losses are fixed. `kept` holds distances, of as many blocks as `keep_bytes` allows.
    """

    source: RowSource
    weights: FloatArray
    unit: float
    losses_at: Callable[[int, int], FloatArray] | None
    executor: Executor | None
    keep_bytes: int
    block_rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kept", {})

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    def raw(self, name: str, *parameters: Any) -> Any:
        return self._sum(lambda start, stop: getattr(RawBlock(*self._rows(start, stop)), name)(*parameters))

    def total(self, header: Header, name: str, *parameters: Any) -> Any:
        return self._sum(lambda start, stop: getattr(self.block(header, start, stop), name)(*parameters))

    def gather(self, header: Header, name: str, *parameters: Any) -> Any:
        edges = block_edges(self.n_rows, self.block_rows)
        return np.concatenate([getattr(self.block(header, *edge), name)(*parameters) for edge in edges])

    def block(self, header: Header, start: int, stop: int) -> Block:
        rows, weights = self._rows(start, stop)
        fixed = header.coordinates is None and header.decision_set.n_classes > 1
        losses = self.losses_at(start, stop) if fixed and self.losses_at is not None else None
        return Block(header, rows, weights, losses, self._distances(header, rows, start))

    def _rows(self, start: int, stop: int) -> tuple[FloatArray, FloatArray]:
        weights = np.full(stop - start, self.unit)
        labeled = self.weights[start:stop]
        weights[: len(labeled)] = labeled
        return self.source.read(start, stop), weights

    def _distances(self, header: Header, rows: FloatArray, start: int) -> FloatArray | None:
        kept: dict[int, FloatArray] = self._kept  # type: ignore[attr-defined]
        if start not in kept and start + len(rows) <= self.keep_bytes // (8 * len(header.anchors)):
            kept[start] = header.metric.distances(rows, header.anchors)
        return kept.get(start)

    def _sum(self, work: Callable[[int, int], Any]) -> Any:
        edges = list(block_edges(self.n_rows, self.block_rows))
        if self.executor is None:
            return tree_sum(work(*edge) for edge in edges)
        return tree_sum(self._ahead(work, edges))

    def _ahead(self, work: Callable[[int, int], Any], edges: list[tuple[int, int]]) -> Iterator[Any]:
        """Results in order, with few blocks at a time in memory."""
        executor = self.executor
        if executor is None:
            raise ValueError("no executor: pass one, or sum without")
        ahead = 2 * getattr(executor, "_max_workers", 2)
        waiting = [executor.submit(work, *edge) for edge in edges[:ahead]]
        for at in range(len(edges)):
            part = waiting.pop(0).result()
            if at + ahead < len(edges):
                waiting.append(executor.submit(work, *edges[at + ahead]))
            yield part
