"""Linear systems whose matrix has few entries: at a small τ few anchors share a row, and Newton's system is sparse.

But for some rows, those of θ, α and λ, which may be full: they are eliminated last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.sparse import csc_array
from scipy.sparse.linalg import splu

from surefoot._types import FloatArray

# Entries per row up to which a sparse factor is faster, full columns left out: those with entries in this share of the
# rows, of which there may be this share.
_MOST_PER_ROW, _FULL, _MOST_FULL = 4.0, 0.03, 0.1
# Entries of a matrix with a unit diagonal that are as good as zero.
_ZERO = 1e-16
# Rows that are looked at together.
_ROWS = 128


def sparse_solver(matrix: FloatArray) -> Callable[[FloatArray], FloatArray] | None:
    """What solves matrix · x = right, from the lower triangle of a matrix with few entries; None where it has more.

    The matrix (m, m) has a unit diagonal. Raises LinAlgError where it is not positive definite.
    """
    m = len(matrix)
    row, column, value = _entries(matrix, max(m - _ROWS, 0))  # the last rows have twice as many as others
    if not _is_sparse(column, min(_ROWS, m), 2.5 * _MOST_PER_ROW):
        return None
    row, column, value = _entries(matrix, 0)
    if not _is_sparse(column, m, _MOST_PER_ROW):
        return None
    on = np.arange(m)
    places = np.concatenate([row, column, on]), np.concatenate([column, row, on])
    whole = csc_array((np.concatenate([value, value, matrix.diagonal()]), places), shape=(m, m))
    try:
        factor = splu(whole, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError as error:  # a pivot is zero
        raise LinAlgError("not positive definite") from error
    if not np.array_equal(factor.perm_r, factor.perm_c):
        return None
    if factor.U.diagonal().min() <= 0:
        raise LinAlgError("not positive definite")
    return cast("Callable[[FloatArray], FloatArray]", factor.solve)


def _is_sparse(column: NDArray[np.intp], rows: int, most: float) -> bool:
    """Whether, of the columns of the entries of so many rows, at most so many per row are not full."""
    counts = np.bincount(column, minlength=1)
    full = counts > max(_FULL * rows, 4)
    few = counts[~full].sum() <= most * rows
    return bool(few and full.sum() <= _MOST_FULL * max(len(counts), rows))


def _entries(matrix: FloatArray, first: int) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
    """Row, column and value of the entries below the diagonal, from a row on."""
    rows, columns, values = [], [], []
    for start in range(first, len(matrix), _ROWS):
        stop = min(start + _ROWS, len(matrix))
        part = matrix[start:stop, :stop]
        row, column = np.nonzero(np.abs(part) > _ZERO)
        below = column < row + start
        rows.append(row[below] + start)
        columns.append(column[below])
        values.append(part[row[below], column[below]])
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(values)
