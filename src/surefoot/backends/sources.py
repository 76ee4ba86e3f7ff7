"""Sources of rows: arrays, memory maps, Parquet files. All are read in the same blocks, whatever their chunks.

A block holds `rows_per_block` rows (the last block may hold fewer), counted from the first row. Sums over rows are
computed block by block and added in one fixed order. Therefore a result depends neither on the storage of the rows nor
on the backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, is_source

# The largest number of rows per block, and the smallest number if there would be too few blocks for several workers.
_MOST_ROWS, _FEWEST_ROWS, _BUSY_BLOCKS = 1 << 16, 1 << 12, 8
_GROUPS_KEPT = 2


class RowSource(Protocol):
    """Rows (n_rows, n_features) that can be read in parts."""

    @property
    def n_rows(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    def read(self, start: int, stop: int) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """Rows of an array or of a memory map. Only the requested rows of a memory map are in memory.

    is_checked : True if the rows are known to be finite numbers in float64, one row after another.
    """

    array: NDArray[Any]
    is_checked: bool = False

    @property
    def n_rows(self) -> int:
        return int(self.array.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.array.shape[1])

    def read(self, start: int, stop: int) -> FloatArray:
        rows = self.array[start:stop]
        return rows if self.is_checked else _checked(rows, range(start, stop))

    def take(self, chosen: NDArray[np.intp]) -> FloatArray:
        """Return the rows at ascending indices."""
        return self.array[chosen] if self.is_checked else _checked(self.array[chosen], chosen)


class ParquetRows:
    """Rows of a Parquet file, of a folder of files, or of a list of files, sorted by name.

    Parameters
    ----------
    path : str, Path or sequence of them
        The file, the folder, or the files.
    columns : sequence of str or None, default=None
        Features, in this order; by default all columns.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pd.DataFrame({"age": [30.0, 40.0], "id": [1, 2]}).to_parquet(Path(folder) / "rows.parquet")
    ...     rows = ParquetRows(folder, columns=["age"])
    ...     print(rows.n_rows, rows.read(0, 2).ravel())
    2 [30. 40.]
    """

    def __init__(self, path: str | Path | Sequence[str | Path], columns: Sequence[str] | None = None):
        self.files = _files(path)
        parquet = _parquet()
        metadata = [parquet.read_metadata(file) for file in self.files]
        names = list(metadata[0].schema.to_arrow_schema().names)
        self.columns = names if columns is None else list(columns)
        missing = [name for name in self.columns if name not in names]
        if missing:
            raise ParameterError(
                "columns",
                f"must be columns of {self.files[0].name}, which are {names}",
                missing,
                "Pass names of existing columns.",
            )
        counts = [(f, g, m.row_group(g).num_rows) for f, m in enumerate(metadata) for g in range(m.num_row_groups)]
        self._groups = [(f, g) for f, g, _ in counts]
        self._edges = np.concatenate([[0], np.cumsum([rows for _, _, rows in counts])]).astype(np.int64)
        self._read_last: dict[int, FloatArray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_read_last": {}}

    @property
    def n_rows(self) -> int:
        """Number of rows in all files."""
        return int(self._edges[-1])

    @property
    def n_features(self) -> int:
        """Number of columns that are read."""
        return len(self.columns)

    def read(self, start: int, stop: int) -> FloatArray:
        """Read some rows. Only their row groups are loaded.

        Parameters
        ----------
        start : int
            The first row.
        stop : int
            The row after the last one.

        Returns
        -------
        array of shape (stop − start, d)
            Rows as float64.
        """
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        last = int(np.searchsorted(self._edges, stop, side="left"))
        parts = []
        for at in range(first, last):
            lo, hi = max(start - self._edges[at], 0), min(stop, self._edges[at + 1]) - self._edges[at]
            parts.append(self._group(at)[lo:hi])
        return _checked(np.concatenate(parts) if parts else np.empty((0, self.n_features)), range(start, stop))

    def _group(self, at: int) -> FloatArray:
        """Read one row group as numbers. The last groups stay in memory, because a group may contain many blocks."""
        found = self._read_last.get(at)
        if found is None:
            file, group = self._groups[at]
            table = _parquet().ParquetFile(self.files[file]).read_row_group(group, columns=self.columns)
            found = np.column_stack([_numbers(table.column(name), name) for name in self.columns])
            kept = list(self._read_last.items())[-_GROUPS_KEPT + 1 :]
            self._read_last = dict([*kept, (at, found)])  # one assignment, so threads see the old or the new value
        return found

    def __repr__(self) -> str:
        return f"ParquetRows(<{len(self.files)} files, {self.n_rows} rows, {self.n_features} columns>)"


@dataclass(frozen=True)
class StackedRows:
    """All rows of a problem: the labeled rows, then the unlabeled rows."""

    first: FloatArray
    rest: RowSource | None

    @property
    def n_rows(self) -> int:
        return len(self.first) + (0 if self.rest is None else self.rest.n_rows)

    @property
    def n_features(self) -> int:
        return int(self.first.shape[1])

    def take(self, chosen: NDArray[np.intp]) -> FloatArray:
        """Return the rows at ascending indices."""
        n = len(self.first)
        here = int(np.searchsorted(chosen, n))
        if self.rest is None or here == len(chosen):
            return self.first[chosen]
        return np.concatenate([self.first[chosen[:here]], take_rows(self.rest, chosen[here:] - n)])

    def read(self, start: int, stop: int) -> FloatArray:
        n = len(self.first)
        parts = [self.first[start : min(stop, n)]] if start < n else []
        if stop > n and self.rest is not None:
            parts.append(self.rest.read(max(start - n, 0), stop - n))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass(frozen=True)
class BlocksOfRows:
    """The rows of a source, block by block. Each loop reads them again."""

    source: RowSource

    def __iter__(self) -> Iterator[FloatArray]:
        for edge in block_edges(self.source.n_rows, rows_per_block(self.source.n_rows)):
            yield self.source.read(*edge)


def rows_per_block(n_rows: int) -> int:
    """Return the number of rows per block. It depends only on the number of rows."""
    return min(_MOST_ROWS, max(_FEWEST_ROWS, -(-n_rows // _BUSY_BLOCKS)))


def block_edges(n_rows: int, block_rows: int) -> Iterator[tuple[int, int]]:
    """Yield the first row and the stop of each block."""
    for start in range(0, n_rows, block_rows):
        yield start, min(start + block_rows, n_rows)


def sample_rows(source: RowSource, size: int, rng: np.random.Generator) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return rows sampled without replacement, in their order, and their indices."""
    chosen = np.sort(rng.choice(source.n_rows, min(size, source.n_rows), replace=False))
    return take_rows(source, chosen), chosen


def take_rows(source: RowSource, chosen: NDArray[np.intp]) -> FloatArray:
    """Return the rows at ascending indices, in one pass, or by the source itself if it supports this."""
    take = getattr(source, "take", None)
    if take is not None:
        return take(chosen)
    parts = [np.empty((0, source.n_features))]
    for start, stop in block_edges(source.n_rows, rows_per_block(source.n_rows)):
        lo, hi = np.searchsorted(chosen, [start, stop])
        if hi > lo:
            parts.append(source.read(start, stop)[chosen[lo:hi] - start])
    return np.concatenate(parts)


def as_source(rows: Any, n_features: int, name: str = "X_unlabeled") -> RowSource:
    """Return a source unchanged, or wrap an array as a source. Memory maps stay on disk."""
    source: RowSource = rows if is_source(rows) else ArrayRows(np.asanyarray(rows))
    if isinstance(source, ArrayRows) and source.array.ndim != 2:
        raise ParameterError(name, "must have 2 dimensions", source.array.ndim, "Pass an array (M, d).")
    if source.n_features != n_features:
        raise ParameterError(
            name, f"must have the {n_features} features of X", source.n_features, "Pass the same columns."
        )
    return source


def _checked(rows: NDArray[Any], numbers: Sequence[int] | NDArray[np.intp]) -> FloatArray:
    """Return rows as float64. Missing and infinite numbers raise an error. numbers : row numbers in the source."""
    found = np.ascontiguousarray(rows, dtype=np.float64)  # another order in memory would change the last digit
    if not np.isfinite(found).all():
        first = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
        value = found[first][~np.isfinite(found[first])][0]
        raise ParameterError(
            "X_unlabeled", "must be finite", f"{value} in row {numbers[first]}", "Drop or fill the rows with NaN."
        )
    return found


def _numbers(column: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(column.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            "columns",
            "of a Parquet source must hold numbers",
            f"column {name!r} of {column.type}",
            "Pass columns= without it, or encode it first.",
        ) from error


def _files(path: str | Path | Sequence[str | Path]) -> list[Path]:
    if not isinstance(path, str | Path):
        return [Path(one) for one in path]
    whole = Path(path)
    files = sorted(whole.glob("**/*.parquet")) if whole.is_dir() else [whole]
    if not files or not all(file.exists() for file in files):
        raise ParameterError(
            "path", "must name Parquet files", f"{str(path)!r}, which contains none", "Check the path."
        )
    return files


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Parquet requires the package pyarrow: pip install "surefoot[dask]"') from error
    return pyarrow.parquet
