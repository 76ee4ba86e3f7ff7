"""Large symmetric matrices by tiles: products, Cholesky factors and linear systems. Only the lower triangle is read.

Products use NumPy, which releases the interpreter lock. SciPy's BLAS does not release it. Every thread computes a tile
in the same way, so the result does not depend on the number of threads, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, get_blas_funcs, get_lapack_funcs
from scipy.linalg.blas import dsymv
from scipy.sparse import csc_array
from scipy.sparse.linalg import splu

from surefoot._validation import FloatArray

# Sparse linear systems: at a small τ few anchors share a row, so the matrix of Newton's system has few entries.

# A sparse factor is faster up to this many entries per row, not counting full columns. A column is full if it has
# entries in the second number's share of the rows. At most the third number's share of the columns may be full.
_MOST_PER_ROW, _FULL, _MOST_FULL = 4.0, 0.03, 0.1
# In a matrix with a unit diagonal, entries below this count as zero.
_ZERO = 1e-16
# The number of rows that are examined together.
_SPARSE_ROWS = 128


def sparse_solver(matrix: FloatArray) -> Callable[[FloatArray], FloatArray] | None:
    """Return a solver of matrix · x = right for a lower triangle with few entries, or None if there are too many.

    The matrix (m, m) has a unit diagonal. Raises LinAlgError if the matrix is not positive definite.
    """
    m = len(matrix)
    row, column, value = _entries(matrix, max(m - _SPARSE_ROWS, 0))  # the last rows are about twice as full
    if not _is_sparse(column, min(_SPARSE_ROWS, m), 2.5 * _MOST_PER_ROW):
        return None
    row, column, value = _entries(matrix, 0)
    if not _is_sparse(column, m, _MOST_PER_ROW):
        return None
    on = np.arange(m)
    places = np.concatenate([row, column, on]), np.concatenate([column, row, on])
    whole = csc_array((np.concatenate([value, value, matrix.diagonal()]), places), shape=(m, m))
    try:
        factor = splu(whole, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError as error:  # raised if a pivot is zero
        raise LinAlgError("not positive definite") from error
    if not np.array_equal(factor.perm_r, factor.perm_c):
        return None
    if factor.U.diagonal().min() <= 0:
        raise LinAlgError("not positive definite")
    return cast("Callable[[FloatArray], FloatArray]", factor.solve)


def _is_sparse(column: NDArray[np.intp], rows: int, most: float) -> bool:
    """Return True if the columns that are not full have at most `most` entries per row."""
    counts = np.bincount(column, minlength=1)
    full = counts > max(_FULL * rows, 4)
    few = counts[~full].sum() <= most * rows
    return bool(few and full.sum() <= _MOST_FULL * max(len(counts), rows))


def _entries(matrix: FloatArray, first: int) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
    """Return row, column and value of the entries below the diagonal, starting at row `first`."""
    rows, columns, values = [], [], []
    for start in range(first, len(matrix), _SPARSE_ROWS):
        stop = min(start + _SPARSE_ROWS, len(matrix))
        part = matrix[start:stop, :stop]
        row, column = np.nonzero(np.abs(part) > _ZERO)
        below = column < row + start
        rows.append(row[below] + start)
        columns.append(column[below])
        values.append(part[row[below], column[below]])
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(values)


# The number of columns of a tile, and of rows per product in a factorisation.
_COLUMNS, _ROWS = 256, 768
# Matrices with at least this many rows are factored in float32, which takes half as long, if they are far from
# singular. Solutions are then refined to this residual, in at most this many steps.
_FEWEST_ROWS, _RESIDUAL, _MOST_STEPS = 640, 1e-11, 12

Solve = Callable[[FloatArray], FloatArray]


def least_factor(dtype: Any) -> float:
    """Return the size below which factors are set to 0. Products of subnormal numbers take 4 to 70 times as long."""
    return 1e-19 if dtype == np.float32 else 1e-150


def root_weights(weights: FloatArray, X: NDArray[Any]) -> NDArray[Any]:
    """Return √weight (B, 1) in the precision of X, for products of rows (B, p) with themselves; 0 if negative."""
    root = np.sqrt(np.maximum(weights, 0.0))
    root[root < least_factor(X.dtype)] = 0.0
    return np.asarray(root.astype(X.dtype)[:, None])


def add_gram(A: NDArray[Any], total: FloatArray) -> None:
    """Add AᵀA of A (B, n), in its precision, to the lower triangle of total (n, n). Diagonal tiles are complete."""
    n = A.shape[1]
    for start in range(0, n, _COLUMNS):
        stop = min(start + _COLUMNS, n)
        own = A[:, start:stop]
        total[start:stop, start:stop] += own.T @ own
        total[stop:, start:stop] += A[:, stop:].T @ own


def factorized(matrix: FloatArray, executor: Executor | None = None, *, tame: bool = False) -> Solve:
    """Return a solver of matrix · x = right (m,), by Cholesky from the lower triangle, which is overwritten.

    The matrix has a unit diagonal. tame : True if the matrix is expected to be far from singular. Raises LinAlgError,
    now or when the solver is called, if the matrix is not positive definite.
    """
    if len(matrix) < _FEWEST_ROWS:
        return _exact(matrix, executor)
    sparse = sparse_solver(matrix)
    if sparse is not None:
        return _Refined(matrix, sparse, executor)
    if tame:
        rough = np.zeros(matrix.shape, dtype=np.float32)
        for start in range(0, len(matrix), _COLUMNS):
            stop = start + _COLUMNS
            rough[start:stop, :stop] = matrix[start:stop, :stop]
        with suppress(LinAlgError):
            factorize(rough, executor)
            solve = _solve_by(rough)
            return _Refined(matrix, lambda right: solve(right.astype(np.float32)).astype(np.float64), executor)
    return _exact(matrix, executor)


def _exact(matrix: FloatArray, executor: Executor | None) -> Solve:
    factorize(matrix, executor)
    return _solve_by(matrix)


def _solve_by(factor: NDArray[Any]) -> Solve:
    # the lower triangle in C order is the upper triangle in Fortran order, so LAPACK makes no copy
    return lambda right: cast("FloatArray", cho_solve((factor.T, False), right, check_finite=False))


class _Refined:
    """Solve by conjugate gradients with a float32 factor, and by a float64 factor if that fails."""

    def __init__(self, matrix: FloatArray, rough: Solve, executor: Executor | None):
        self._matrix, self._rough, self._executor = matrix, rough, executor
        self._exact: Solve | None = None

    def __call__(self, right: FloatArray) -> FloatArray:
        found = None if self._exact is not None else self._refined(right)
        if found is not None:
            return found
        if self._exact is None:
            self._exact = _exact(self._matrix, self._executor)
        return self._exact(right)

    def _refined(self, right: FloatArray) -> FloatArray | None:
        """Solve to a small residual, or return None if this fails."""
        found, left, allowed = np.zeros_like(right), right.copy(), _RESIDUAL * float(np.linalg.norm(right))
        if not np.isfinite(allowed):
            return None
        along, before = np.zeros_like(right), np.inf
        for _ in range(_MOST_STEPS):
            if np.linalg.norm(left) <= allowed:
                return found
            size = float(np.abs(left).max())  # float32 cannot represent residuals this small
            towards = size * self._rough(left / size)
            now = float(left @ towards)
            along = towards + (now / before) * along
            turned = dsymv(1.0, self._matrix.T, along, lower=0)
            curvature = float(along @ turned)
            if not (now > 0 and curvature > 0):
                return None
            found += (now / curvature) * along
            left -= (now / curvature) * turned
            before = now
        return found if np.linalg.norm(left) <= allowed else None


def factorize(matrix: NDArray[Any], executor: Executor | None = None) -> None:
    """Overwrite the lower triangle of a symmetric matrix (m, m) in C order by its Cholesky factor L.

    The factor has the precision of the matrix. Raises LinAlgError if the matrix is not positive definite.
    """
    m, waiting = len(matrix), list[Future[None]]()
    for start, stop in pairwise([*range(0, m, _COLUMNS), m]):
        corner = _factor_tile(matrix, start, stop)
        for future in waiting:
            future.result()
        # factor the next tile of the diagonal while other threads update the remaining rows
        ahead = min(stop + _COLUMNS, m)
        others = [slice(a, b) for a, b in pairwise([*range(ahead, m, _ROWS), m])]
        if executor is not None:
            waiting = [executor.submit(_reduce_rows, matrix, corner, rows, start, stop) for rows in others]
        for rows in [slice(stop, ahead), *([] if executor is not None else others)]:
            _reduce_rows(matrix, corner, rows, start, stop)


def _factor_tile(matrix: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
    """Factor a tile on the diagonal, after all updates of the tile."""
    tile, left = matrix[start:stop, start:stop], matrix[start:stop, :start]
    (potrf,) = get_lapack_funcs(("potrf",), dtype=matrix.dtype)
    factor, failed = potrf(tile - left @ left.T, lower=1, clean=1)
    if failed:
        raise LinAlgError("not positive definite")
    tile[:] = factor
    return np.asarray(factor)


def _reduce_rows(matrix: NDArray[Any], corner: NDArray[Any], rows: slice, start: int, stop: int) -> None:
    """Update some rows below a tile of the diagonal with factor `corner`."""
    if rows.start == rows.stop:
        return
    (trsm,) = get_blas_funcs(("trsm",), dtype=matrix.dtype)
    found = matrix[rows, :start] @ matrix[start:stop, :start].T
    np.subtract(matrix[rows, start:stop], found, out=found)
    matrix[rows, start:stop] = trsm(1.0, corner, found.T, lower=1, overwrite_b=1).T
