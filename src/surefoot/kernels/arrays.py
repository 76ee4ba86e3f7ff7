"""The few array functions that NumPy and torch spell differently, so that what judges a solution is written once.

Everything else (arithmetic, `@`, `.sum(axis=...)`, slices) is the same for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsymv
from scipy.special import entr, logsumexp, softmax

from surefoot._validation import FloatArray
from surefoot.problem.losses import log_loss_matrix, probabilities
from surefoot.problem.sets import DecisionSet

# Rows of a large matrix that are worked on at once: few enough to stay in the cache.
_SCALED_ROWS = 64


class NumpyArrays:
    """Arrays of this process."""

    entries = 1 << 18  # of a chunk of rows that is worked on at once
    exp = staticmethod(np.exp)
    log = staticmethod(np.log)
    multiply = staticmethod(np.multiply)
    entr = staticmethod(entr)
    log_loss = staticmethod(log_loss_matrix)
    probabilities = staticmethod(probabilities)

    @staticmethod
    def fused(distances: Any) -> Any:
        """Kernels that need no matrix beside the distances, or None where there are none for them."""
        return None

    @staticmethod
    def send(array: Any) -> Any:
        """A NumPy array in this kind of memory."""
        return array

    @staticmethod
    def fetch(array: Any) -> FloatArray:
        """Back to NumPy."""
        return np.asarray(array)

    @staticmethod
    def zeros(shape: tuple[int, ...]) -> FloatArray:
        return np.zeros(shape)

    @staticmethod
    def largest(array: FloatArray, axis: int | tuple[int, ...]) -> FloatArray:
        return np.asarray(array.max(axis=axis))

    @staticmethod
    def hstack(left: FloatArray, right: FloatArray) -> FloatArray:
        return np.hstack([left, right])

    @staticmethod
    def tall_product(left: FloatArray, right: FloatArray) -> FloatArray:
        """(a, b) of matrices (N, a) and (N, b)."""
        return np.asarray(left.T @ right)

    @staticmethod
    def symmetric_product(lower: FloatArray, vector: FloatArray) -> FloatArray:
        """Of a symmetric matrix, of which the lower triangle is read, and a vector."""
        return np.asarray(dsymv(1.0, lower.T, vector, lower=0))  # its transpose is in Fortran order: no copy

    @staticmethod
    def scaled(lower: FloatArray, scale: FloatArray) -> FloatArray:
        """The lower triangle of a matrix (m, m), rows and columns multiplied by scale (m,)."""
        found = np.zeros_like(lower)
        for start in range(0, len(scale), _SCALED_ROWS):
            rows = slice(start, start + _SCALED_ROWS)
            part = found[rows, : rows.stop]
            np.multiply(lower[rows, : rows.stop], scale[: rows.stop], out=part)
            part *= scale[rows, None]
        return found

    @staticmethod
    def copy(array: FloatArray) -> FloatArray:
        return array.copy()

    @staticmethod
    def softmax(array: FloatArray) -> FloatArray:
        """Over the second axis."""
        return np.asarray(softmax(array, axis=1))

    @staticmethod
    def log_total(array: FloatArray) -> FloatArray:
        """Log-sum-exp over all axes but the first, which are kept."""
        return np.asarray(logsumexp(array, axis=(1, 2), keepdims=True))

    @staticmethod
    def sum_by_class(array: FloatArray, ds: DecisionSet) -> FloatArray:
        """(B, n) -> (B, C)."""
        return np.add.reduceat(array, ds.class_offsets[:-1], axis=1)

    @staticmethod
    def least_by_class(array: FloatArray, ds: DecisionSet) -> FloatArray:
        return np.minimum.reduceat(array, ds.class_offsets[:-1], axis=1)

    @staticmethod
    def largest_by_class(array: FloatArray, ds: DecisionSet) -> FloatArray:
        return np.maximum.reduceat(array, ds.class_offsets[:-1], axis=1)

    @staticmethod
    def slots(ds: DecisionSet) -> NDArray[np.intp]:
        """(n,) the column of each anchor's class."""
        return ds.anchor_slots


_NUMPY = NumpyArrays()


def arrays_of(array: Any) -> Any:
    """The functions for arrays of this kind."""
    if isinstance(array, np.ndarray):
        return _NUMPY
    from surefoot.kernels.torch_arrays import TorchArrays

    return TorchArrays(array.device)
