"""Which rows were asked for, and why: rows that a strategy picked are no random sample, and estimates must know."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.active.journal import Journal
from surefoot.tabular.errors import TableError
from surefoot.tabular.pool import Table


class AskedRows:
    """A journal beside the table: rows drawn at random, rows picked by a strategy, rows skipped.

    order : rows asked for, oldest first; skipped : rows that cannot be labeled.

    The labels themselves are in the table alone. A row counts as picked if it was asked for by a strategy, whoever
    filled in its label.
    """

    def __init__(self, table: Table) -> None:
        self.path = asked_path(table.path)
        try:
            self._journal = Journal(self.path, row_hashes(table.features))
        except ValueError as error:
            raise TableError(
                f"{self.path} records which rows of {table.path.name} were picked, and the rows have changed since. "
                f"Restore them, or remove that file: all labels then count as random ones. ({error})"
            ) from error
        except OSError as error:
            raise TableError(f"{self.path} could not be written: {error.strerror or error}. Make room.") from error
        self._picked: set[int] = set()
        self.skipped: set[int] = set()
        self.order: list[int] = []
        for event in self._journal.events():
            self._take(event)

    def ask(self, row: int, *, random: bool) -> None:
        """Record, before the question is put, that a row is asked for."""
        self._append({"ask": [int(row)], "random": random})

    def skip(self, row: int) -> None:
        """Record that a row cannot be labeled: it is not asked for again."""
        self._append({"skip": [int(row)]})

    def unskip(self, row: int) -> None:
        """Take a skip back."""
        self._append({"unskip": [int(row)]})

    def pending(self, labeled: NDArray[np.bool_]) -> int | None:
        """The row that was asked for last, if it has neither label nor skip: the question still stands."""
        last = self.order[-1] if self.order else None
        return None if last is None or labeled[last] or last in self.skipped else last

    def picked(self, n_rows: int) -> NDArray[np.bool_]:
        """(N,) rows that a strategy picked."""
        mask = np.zeros(n_rows, dtype=bool)
        mask[sorted(self._picked)] = True
        return mask

    def _append(self, event: dict[str, Any]) -> None:
        try:
            self._journal.append(event)
        except OSError as error:
            raise TableError(f"{self.path} could not be written: {error.strerror or error}. Make room.") from error
        self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        self.order += event.get("ask", [])
        if "ask" in event and not event.get("random", False):
            self._picked.update(event["ask"])
        self.skipped.update(event.get("skip", []))
        self.skipped.difference_update(event.get("unskip", []))


def asked_path(path: str | os.PathLike[str]) -> Path:
    """The journal of a table, beside it."""
    return Path(f"{os.fspath(path)}.asked.jsonl")


def picked_rows(table: Table) -> NDArray[np.bool_]:
    """(N,) rows of a table that a strategy picked; none where there is no journal."""
    if not asked_path(table.path).exists():
        return np.zeros(len(table.labels), dtype=bool)
    return AskedRows(table).picked(len(table.labels))


def row_hashes(features: Any) -> FloatArray:
    """(N, 1) a number per row that changes with its cells."""
    import pandas as pd

    return pd.util.hash_pandas_object(features, index=False).to_numpy().astype(np.float64)[:, None]
