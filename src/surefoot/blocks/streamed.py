"""Distances computed from rows as they are read: what needs few passes over them, and some rows again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.blocks.sources import StackedRows, block_edges, rows_per_block
from surefoot.blocks.sweep import LocalSweep
from surefoot.costs import FeatureMetric
from surefoot.problem.sets import row_chunks


@dataclass(frozen=True, eq=False)
class StreamedDistances:
    """Distances of the rows of a source to anchors (n, d), never more than a chunk of them at a time.

    sweep : over the same rows; the distances that it keeps are not computed again.
    """

    source: StackedRows
    anchors: FloatArray
    metric: FeatureMetric
    sweep: LocalSweep | None = None

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

    def at(self, rows: NDArray[np.intp]) -> FloatArray:
        wanted, back = np.unique(rows, return_inverse=True)
        return self.metric.distances(self.source.take(wanted), self.anchors)[back]
