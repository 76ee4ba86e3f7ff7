"""Losses of a classifier at all rows, computed once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surefoot._types import FloatArray
from surefoot.blocks.sources import RowSource, block_edges

# Above this many bytes losses lie in a temporary file, from which the system drops what is not in use.
_IN_MEMORY = 1 << 27


@dataclass(frozen=True, eq=False)
class StoredLosses:
    """Losses (N, K), in memory or in a temporary file."""

    matrix: FloatArray
    file: object | None

    @classmethod
    def of(cls, source: RowSource, losses_at: Callable[[FloatArray], FloatArray], block_rows: int) -> StoredLosses:
        """Ask for the losses of one block after another."""
        matrix, file = None, None
        for start, stop in block_edges(source.n_rows, block_rows):
            part = losses_at(source.read(start, stop))
            if matrix is None:
                shape = (source.n_rows, part.shape[1])
                if 8 * shape[0] * shape[1] <= _IN_MEMORY:
                    matrix = np.empty(shape)
                else:
                    file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the losses
                    matrix = np.memmap(file, dtype=np.float64, mode="w+", shape=shape)
            matrix[start:stop] = part
        if matrix is None:
            raise ValueError("there are no rows: give at least one labeled row")
        return cls(matrix, file)

    def __call__(self, start: int, stop: int) -> FloatArray:
        return np.asarray(self.matrix[start:stop])
