"""Where a problem is solved: at once in memory, or over blocks of rows. The number of distances decides.

It must not matter where the rows lie: an array, a memory map, Parquet files and a Dask collection give one certificate.
So few rows are read into memory wherever they lie, and many are read in blocks even where they lie in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot._types import FloatArray
from surefoot._validation import check_more_rows, check_positive_scalar, check_same_names, is_source
from surefoot.blocks.sources import ArrayRows, RowSource, as_source
from surefoot.calibration import Calibrated
from surefoot.costs import Precomputed
from surefoot.distributed import DaskRows
from surefoot.unlabeled import Unlabeled, unwrap

# Up to so many distances, 128 MiB, a problem is solved in memory: beyond, blocks are faster as well as smaller.
MOST_DISTANCES = 1 << 24
# Below this tolerance rows that lie in memory are solved there: a path over blocks ends at a smoothing, not a vertex.
FINEST_IN_BLOCKS = 1e-5


@dataclass(frozen=True, eq=False)
class Placed:
    """Unlabeled rows for a solve in memory, `rows`, or over blocks, `source`: one of the two, or neither."""

    rows: Any
    source: RowSource | None


def place(X_unlabeled: Any, X: Any, n: int, d: int, *, memory_only: bool = False, blocks_only: bool = False) -> Placed:
    """Unlabeled rows beside labeled ones X (n, d), where they are solved.

    memory_only : what is asked for is not to be had over blocks; rows that lie elsewhere are placed as ever, since many
        of them cannot come here.
    """
    bare, wrapped = unwrap(X_unlabeled)
    if bare is None:
        return Placed(None, None)
    if not _is_elsewhere(bare):
        few = not blocks_only and (memory_only or (n + _length(bare)) * n <= MOST_DISTANCES)
        return Placed(X_unlabeled, None) if few else Placed(None, _array_source(bare, X, d))
    source = _source_of(bare, X, d)
    if blocks_only or (n + source.n_rows) * n > MOST_DISTANCES:
        return Placed(None, source)
    rows = _named(source.read(0, source.n_rows), source, X)
    return Placed(Unlabeled(rows) if wrapped else rows, None)


def needs_memory(metric: Any, radius: Any = None, tol: float | None = None) -> bool:
    """Whether what is asked for is not to be had over blocks."""
    return (
        isinstance(metric, Precomputed)
        or isinstance(radius, Calibrated)
        or (tol is not None and check_positive_scalar(tol, "tol") < FINEST_IN_BLOCKS)
    )


def _is_elsewhere(rows: Any) -> bool:
    """Whether rows lie outside of this process's memory: sources, memory maps, Dask collections."""
    return is_source(rows) or isinstance(rows, np.memmap) or hasattr(rows, "__dask_graph__")


def _source_of(rows: Any, X: Any, n_features: int) -> RowSource:
    """A source for rows that lie elsewhere, with the columns of X."""
    source = as_source(DaskRows(rows) if hasattr(rows, "__dask_graph__") else rows, n_features)
    check_same_names(X, source, "X_unlabeled")
    return source


def _array_source(rows: Any, X: Any, n_features: int) -> ArrayRows:
    check_same_names(X, rows, "X_unlabeled")
    return ArrayRows(check_more_rows(rows, "X_unlabeled", n_features))


def _named(rows: FloatArray, source: RowSource, X: Any) -> Any:
    """Rows with their names, where X is a pandas frame and the source knows them."""
    columns = getattr(source, "columns", None)
    if columns is None or type(X).__module__.split(".")[0] != "pandas":
        return rows
    return type(X)(rows, columns=list(columns))


def _length(rows: Any) -> int:
    shape = np.shape(rows)
    return shape[0] if shape else 0
