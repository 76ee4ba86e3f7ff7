"""Which rows were asked for, and why: rows that a strategy picked are no random sample, and estimates must know."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._files import LineLog, append_event, cannot_write, read_events
from surefoot.pool.table.beside import asked_path
from surefoot.pool.table.cells import is_nested
from surefoot.pool.table.errors import FileError, TableError
from surefoot.pool.table.pool import Table

_KIND, _VERSION = "surefoot.asked", 2
_ASK, _SKIP, _UNSKIP = "ask", "skip", "unskip"


class AskedRows:
    """A journal beside the table: rows drawn at random, rows picked by a strategy, rows skipped.

    order : rows asked for, oldest first; skipped : rows that cannot be labeled.

    Rows are known by what their cells hold, so that others may be added, removed or moved between two sittings. The
    labels themselves are in the table alone. A row counts as picked if it was asked for by a strategy, whoever filled
    in its label. Opening the journal writes nothing.
    """

    def __init__(self, table: Table) -> None:
        self.path = asked_path(table.path)
        self._table = table
        self._log = LineLog(self.path)
        self._picked: set[int] = set()
        self.skipped: set[int] = set()
        self.order: list[int] = []
        events = read_events(self._log)
        self._columns = self._check_header(events[0]) if events else [str(name) for name in table.features.columns]
        self._is_new = not events
        self._hashes = row_hashes(table.features[self._columns])
        lost = [number for number, event in enumerate(events[1:], start=2) if not self._replay(event, number)]
        if lost:
            more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            raise TableError(
                f"{self.path} records which rows of {table.path.name} were picked, and the rows have changed since: "
                f"that of line {lost[0]}{more} cannot be found. Restore the cells; or remove such lines if the rows "
                "are gone. Otherwise their labels would count as random ones."
            )

    def ask(self, row: int, *, random: bool) -> None:
        """Record, before the question is put, that a row is asked for."""
        self._append(_ASK, row, random=random)

    def skip(self, row: int) -> None:
        """Record that a row cannot be labeled: it is not asked for again."""
        self._append(_SKIP, row)

    def unskip(self, row: int) -> None:
        """Take a skip back."""
        self._append(_UNSKIP, row)

    def pending(self, labeled: NDArray[np.bool_]) -> int | None:
        """The row that was asked for last, if it has neither label nor skip: the question still stands."""
        last = self.order[-1] if self.order else None
        return None if last is None or labeled[last] or last in self.skipped else last

    def picked(self, n_rows: int) -> NDArray[np.bool_]:
        """(N,) rows that a strategy picked."""
        mask = np.zeros(n_rows, dtype=bool)
        mask[sorted(self._picked)] = True
        return mask

    def _append(self, kind: str, row: int, **more: Any) -> None:
        twins = np.flatnonzero(self._hashes == self._hashes[row])
        event = {kind: int(row), "key": f"{self._hashes[row]:016x}", "twin": int((twins < row).sum()), **more}
        try:
            if self._is_new:
                append_event(self._log, {"journal": _KIND, "version": _VERSION, "columns": self._columns})
                self._is_new = False
            append_event(self._log, event)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._take(kind, row, event.get("random", False))

    def _take(self, kind: str, row: int, random: Any) -> None:
        if kind == _ASK:
            self.order.append(row)
            if not random:
                self._picked.add(row)
        elif kind == _SKIP:
            self.skipped.add(row)
        else:
            self.skipped.discard(row)

    def _replay(self, event: dict[str, Any], number: int) -> bool:
        """Take over an event; False if a row that was picked is not to be found."""
        kind = next((name for name in (_ASK, _SKIP, _UNSKIP) if name in event), None)
        try:
            if kind is None:
                raise ValueError("it is no event")
            row = self._find(int(event[kind]), int(event["key"], 16), int(event["twin"]))
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(
                f"each line of {self.path} must be a row that was asked for or skipped; line {number} is {event} "
                f"({type(error).__name__}). Remove the line, or restore the file."
            ) from error
        random = event.get("random", False)
        if row is not None:
            self._take(str(kind), row, random)
        return row is not None or kind != _ASK or bool(random)

    def _find(self, row: int, key: int, twin: int) -> int | None:
        """Where the row of an event is now: where it was, or else where its cells are."""
        if 0 <= row < len(self._hashes) and int(self._hashes[row]) == key:
            return row
        rows = np.flatnonzero(self._hashes == np.uint64(key % 2**64))
        return int(rows[min(max(twin, 0), len(rows) - 1)]) if len(rows) else None

    def _check_header(self, header: dict[str, Any]) -> list[str]:
        columns = header.get("columns")
        if (header.get("journal"), header.get("version")) != (_KIND, _VERSION) or not isinstance(columns, list):
            raise FileError(
                f"{self.path} must be a journal of surefoot label, in version {_VERSION}; it begins with {header}. "
                "Move it away; all labels then count as random ones."
            )
        absent = [name for name in columns if name not in self._table.features.columns]
        if absent:
            raise TableError(
                f"{self.path} records which rows of {self._table.path.name} were picked, and the rows have changed "
                f"since: the column {absent[0]!r} is gone. Restore it, or move that file away: all labels then count "
                "as random ones."
            )
        return columns


def picked_rows(table: Table) -> NDArray[np.bool_]:
    """(N,) rows of a table that a strategy picked; none where there is no journal."""
    if not asked_path(table.path).exists():
        return np.zeros(len(table.labels), dtype=bool)
    return AskedRows(table).picked(len(table.labels))


def row_hashes(features: Any) -> NDArray[np.uint64]:
    """(N,) a number per row that changes with its cells, not with the way in which numbers are stored."""
    import pandas as pd

    def plain(column: Any) -> Any:
        if column.dtype.kind in "iuf":
            return column.to_numpy(dtype=np.float64, na_value=np.nan)
        cells = column.to_numpy(dtype=object)
        if is_nested(column):
            cells = [repr(cell.tolist() if isinstance(cell, np.ndarray) else cell) for cell in cells]
        return pd.Series(cells, dtype=object)

    frame = pd.DataFrame({name: plain(features[name]) for name in features.columns})
    return pd.util.hash_pandas_object(frame, index=False).to_numpy()
