"""Array functions that have different names in NumPy and torch, so that code above this module is written once.

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

# The number of rows of a large matrix that are processed together. They fit into the cache.
_SCALED_ROWS = 64


class NumpyArrays:
    """Array functions for NumPy arrays."""

    entries = 1 << 18  # entries of a chunk of rows
    exp = staticmethod(np.exp)
    log = staticmethod(np.log)
    multiply = staticmethod(np.multiply)
    entr = staticmethod(entr)
    log_loss = staticmethod(log_loss_matrix)
    probabilities = staticmethod(probabilities)

    @staticmethod
    def fused(distances: Any) -> Any:
        """Return kernels that allocate only the distances as a matrix, or None if this memory has no such kernels."""
        return None

    @staticmethod
    def send(array: Any) -> Any:
        """Copy a NumPy array to this kind of memory."""
        return array

    @staticmethod
    def fetch(array: Any) -> FloatArray:
        """Convert an array back to NumPy."""
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
        """Return leftᵀ · right (a, b) of matrices (N, a) and (N, b)."""
        return np.asarray(left.T @ right)

    @staticmethod
    def symmetric_product(lower: FloatArray, vector: FloatArray) -> FloatArray:
        """Multiply a symmetric matrix, given by its lower triangle, by a vector."""
        return np.asarray(dsymv(1.0, lower.T, vector, lower=0))  # the transpose is in Fortran order, so no copy

    @staticmethod
    def scaled(lower: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the lower triangle of a matrix (m, m) with rows and columns multiplied by scale (m,)."""
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
        """Return the softmax over the second axis."""
        return np.asarray(softmax(array, axis=1))

    @staticmethod
    def log_total(array: FloatArray) -> FloatArray:
        """Return the log-sum-exp over all axes except the first. The reduced axes are kept."""
        return np.asarray(logsumexp(array, axis=(1, 2), keepdims=True))

    @staticmethod
    def sum_by_class(array: FloatArray, ds: DecisionSet) -> FloatArray:
        """Sum the columns of each class: (B, n) -> (B, C)."""
        return np.add.reduceat(array, ds.class_offsets[:-1], axis=1)

    @staticmethod
    def least_by_class(array: FloatArray, ds: DecisionSet) -> FloatArray:
        return np.minimum.reduceat(array, ds.class_offsets[:-1], axis=1)

    @staticmethod
    def largest_by_class(array: FloatArray, ds: DecisionSet) -> FloatArray:
        return np.maximum.reduceat(array, ds.class_offsets[:-1], axis=1)

    @staticmethod
    def slots(ds: DecisionSet) -> NDArray[np.intp]:
        """Return the position (n,) of each anchor's class among the classes present."""
        return ds.anchor_slots


_NUMPY = NumpyArrays()


def arrays_of(array: Any) -> Any:
    """Return the array functions for the type of an array."""
    if isinstance(array, np.ndarray):
        return _NUMPY
    from surefoot.kernels.torch_arrays import TorchArrays

    return TorchArrays(array.device)
