"""A terminal at the store of a table: it claims rows, stores answers, and writes the table when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import FileError
from surefoot.pool.labeling import events as e
from surefoot.pool.labeling.book import OPEN, Book, check_known
from surefoot.pool.labeling.events import Event
from surefoot.pool.store import Store
from surefoot.pool.store_labels import open_store, picked_mask, write_table
from surefoot.pool.table import Table, TableError
from surefoot.pool.table.editing import label_writer

TERMINAL = "(terminal)"
# Seconds after which a row that somebody was asked for, without an answer, may be asked for again.
_LEASE = 600.0


class Sitting:
    """What one terminal does to the labels of a table, and sees of what other processes do.

    table : with the labels of the store; they follow the answers, in place.
    n_picks : how many rows anybody has been asked for; news : whether other processes have changed labels.
    """

    def __init__(self, store: Store, table: Table, content: bytes, read: Callable[[bytes], Table]) -> None:
        self.store, self._content, self._read = store, content, read
        self._found = table
        self.table = replace(table, labels=np.full(len(table.labels), None, dtype=object))
        self.book = Book(len(table.labels), table.classes)
        self.person = store.take_seat(TERMINAL)
        self.n_picks, self.news = 0, False
        self._dirty = True
        self._last_pick: int | None = None
        self._last = 0
        self.catch_up()

    def catch_up(self) -> None:
        """Take what other processes have written."""
        new = self.store.events(self._last)
        check_known(new, self.book.classes)
        self.news |= self._apply(new)

    @property
    def n_waiting(self) -> int:
        """How many labels the table lacks."""
        pairs = zip(self.table.labels, self._found.labels, strict=True)
        return sum(label not in (None, there) for label, there in pairs)

    def claim(self, row: int, purpose: str) -> bool:
        """Record, before the question is put, that a row is asked for; False if another process was faster."""
        with self.store.together():
            self.catch_up()
            if not self.is_free(row):
                return False
            self._write(Event(e.PICK, row, self.person.id, purpose=purpose))
        return True

    def answer(self, row: int, label: str | None) -> None:
        """Store the label of a row; None for a skip."""
        with self.store.together():
            self.catch_up()
            why = self.book.row(row).purpose or e.LEARN
            self._write(Event(e.SKIP if label is None else e.LABEL, row, self.person.id, label, why))

    def take_back(self, row: int) -> None:
        """Open a row again, in the hands of this terminal."""
        with self.store.together():
            self.catch_up()
            state, person = self.book.row(row), self.person.id
            settled = [] if state.settled is None else [Event(e.SETTLE, row, person)]
            again = Event(e.PICK, row, person, "again", state.purpose or e.LEARN)
            self._write(*settled, Event(e.UNDO, row, person), again)

    def is_free(self, row: int) -> bool:
        """Whether a row is open, and in nobody else's hands."""
        if self.book.row(row).state != OPEN:
            return False
        holder = self.book.holders.get(row, self.person.id)
        return holder == self.person.id or time.time() - self.book.held[holder][row].time > _LEASE

    @property
    def done(self) -> list[int]:
        """Rows that this terminal has answered, oldest first."""
        return self.book.done.get(self.person.id, [])

    def pending(self) -> int | None:
        """The row that this terminal was asked for last, if it is still open: the question stands."""
        return self._last_pick if self._last_pick is not None and self.is_free(self._last_pick) else None

    def picked(self) -> NDArray[np.bool_]:
        """(N,) rows that a model picked."""
        return picked_mask(self.book, self.book.n_rows)

    def check_counted(self, labels: Mapping[int, Any]) -> None:
        """Refuse labels that were changed after an audit had counted them."""
        for row, label in labels.items():
            if label is not None and self.table.labels[row] != label:
                raise TableError(
                    f"row {row + 1} was labeled {label!r} when an audit counted it, and is {self.table.labels[row]!r} "
                    "now: what was counted cannot be changed. Restore the label."
                )

    def write_table(self) -> int:
        """Write all labels of the store into the table; how many cells changed."""
        self._dirty = False
        try:
            return write_table(self.store, self._found, self._content, self._read)
        except (FileError, TableError) as error:
            raise type(error)(
                f"{error} All answers are in {self.store.path.name}: surefoot export --in-place writes them later."
            ) from error

    def close(self) -> None:
        """Write the table where that was not done, and let another terminal take this one's place."""
        try:
            if self._dirty:
                self.write_table()
        finally:
            self.store.leave(self.person.name)

    def _write(self, *events: Event) -> None:
        self._dirty = True
        self._apply(self.store.append(events))

    def _apply(self, events: list[Event]) -> bool:
        changed = False
        for event in events:
            self._last = event.id
            self.book.apply(event)
            if event.row < 0:
                continue
            label = self.book.labels.get(event.row)
            changed |= self.table.labels[event.row] != label
            self.table.labels[event.row] = label
            if event.kind == e.PICK:
                self.n_picks += 1
                if event.person == self.person.id:
                    self._last_pick = event.row
        return changed


@contextmanager
def sitting_at(table: Table, content: bytes, read: Callable[[bytes], Table]) -> Iterator[Sitting]:
    """A sitting at a table, whose labels are written into the table however it ends.

    content : of the table's file; read : reads the table from it.
    """
    label_writer(table, content)  # a table that cannot be written to is refused before the first question
    with open_store(table) as store:
        sitting = Sitting(store, table, content, read)
        try:
            yield sitting
        finally:
            sitting.close()
