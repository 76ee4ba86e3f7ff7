"""Distances computed from rows as they are read: what needs few passes over them, and some rows again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.blocks.sources import StackedRows, block_edges, rows_per_block
from surefoot.costs import FeatureMetric
from surefoot.problem.sets import row_chunks


@dataclass(frozen=True, eq=False)
class StreamedDistances:
    """Distances of the rows of a source to anchors (n, d), never more than a chunk of them at a time."""

    source: StackedRows
    anchors: FloatArray
    metric: FeatureMetric

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.n_rows, len(self.anchors)

    def chunks(self) -> Iterator[tuple[slice, FloatArray]]:
        N, n = self.shape
        for start, stop in block_edges(N, rows_per_block(N)):
            block = self.source.read(start, stop)
            for part in row_chunks(len(block), n):
                yield slice(start + part.start, start + part.stop), self.metric.distances(block[part], self.anchors)

    def at(self, rows: NDArray[np.intp]) -> FloatArray:
        wanted, back = np.unique(rows, return_inverse=True)
        return self.metric.distances(self.source.take(wanted), self.anchors)[back]
