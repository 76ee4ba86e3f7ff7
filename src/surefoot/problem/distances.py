"""Distances (N, n) of rows to anchors that need not all be held at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.costs import FeatureMetric
from surefoot.problem.sets import row_chunks


class Distances(Protocol):
    """Distances (N, n) of which rows can be taken: a matrix, or one that is computed where it is asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, rows: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class MeasuredDistances:
    """Distances of rows (N, d) to anchors (n, d), computed for the rows that are asked for."""

    metric: FeatureMetric
    rows: FloatArray
    anchors: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.anchors)

    def __getitem__(self, rows: Any, /) -> FloatArray:
        return self.metric.distances(self.rows[rows], self.anchors)


class DistanceRows(Protocol):
    """Rows of distances, read in their order or looked up."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def chunks(self) -> Iterator[tuple[slice, FloatArray]]: ...
    def at(self, rows: NDArray[np.intp]) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class HeldDistances:
    """A matrix in memory."""

    matrix: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    def chunks(self) -> Iterator[tuple[slice, FloatArray]]:
        for rows in row_chunks(*self.shape):
            yield rows, self.matrix[rows]

    def at(self, rows: NDArray[np.intp]) -> FloatArray:
        return self.matrix[rows]
