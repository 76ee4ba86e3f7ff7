"""`surefoot label` on a pool that has a store: the same store, from the terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.pool.labeling import events as e
from surefoot.pool.labeling.book import SKIPPED
from surefoot.pool.labeling.desk import Desk, Settings
from surefoot.pool.labeling.events import Event
from surefoot.pool.labeling.open_store import open_desk
from surefoot.pool.labeling.proof import Goal
from surefoot.pool.table import Table, TableError

TERMINAL = "terminal"


class StoreWriter:
    """Labels go to the store; the table's file stays as it is until `surefoot export`."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._person = desk, desk.store.person(TERMINAL)

    def write(self, row: int, label: str | None) -> None:
        """Store the label of a row, or take it back."""
        if label is None:
            self._desk.take_back(self._person, row)
        else:
            self._desk.answer(self._person, row, label, ahead=0)


class StoreAsked:
    """Which rows were asked for, and skipped: as `AskedRows`, in the store."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._person = desk, desk.store.person(TERMINAL)
        self.order = [
            event.row for event in desk.book.events if event.kind == e.PICK and event.person == self._person.id
        ]

    @property
    def skipped(self) -> set[int]:
        return {row for row, state in self._desk.book.rows.items() if state.state == SKIPPED}

    def ask(self, row: int, *, random: bool) -> None:
        """Record, before the question is put, that a row is asked for."""
        self._desk.hand_out(Event(e.PICK, row, self._person.id, purpose=e.RANDOM if random else e.LEARN))
        self.order.append(row)

    def skip(self, row: int) -> None:
        """Record that a row cannot be labeled."""
        self._desk.answer(self._person, row, None, ahead=0)

    def unskip(self, row: int) -> None:
        """Take a skip back."""
        self._desk.take_back(self._person, row)

    def pending(self, labeled: NDArray[np.bool_]) -> int | None:
        """The row that was asked for last, if it has neither label nor skip."""
        last = self.order[-1] if self.order else None
        return None if last is None or labeled[last] or last in self.skipped else last

    def picked(self, n_rows: int) -> NDArray[np.bool_]:
        """(N,) rows that a strategy picked."""
        mask = np.zeros(n_rows, dtype=bool)
        mask[sorted(self._desk.book.picked())] = True
        return mask


def stored_sitting(table: Table, *, proving: bool = False) -> tuple[Table, Any, Any]:
    """The table with the labels of its store, and where answers go: used as `LabelWriter` and `AskedRows` are."""
    if proving:
        raise TableError(
            f"{table.path.name} has a store of surefoot serve, whose audits go on there; --target-error would begin "
            "others. Run surefoot serve, or leave the option out."
        )
    desk = open_desk(table, Settings(Goal()))
    labels = np.full(len(table.labels), None, dtype=object)
    for row, label in desk.book.labels.items():
        labels[row] = label
    return replace(table, labels=labels), StoreWriter(desk), StoreAsked(desk)
