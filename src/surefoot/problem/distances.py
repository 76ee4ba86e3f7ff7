"""Distances (N, n) of rows to anchors that need not all be held at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.problem.sets import row_chunks


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
