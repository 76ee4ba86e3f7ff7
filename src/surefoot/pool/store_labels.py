"""Merge the labels of a table and of its store, and write them into the table in one step.

Both can change: users edit the table with other programs, and labels wait in the store until they are written. The
store records the labels of the table when it last saw it (`Store.in_table`), so it can tell both kinds of changes
apart. Rows may be added, removed and moved. They are identified by their cells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from surefoot.pool import database as e
from surefoot.pool.database import Event
from surefoot.pool.label_log import LabelLog
from surefoot.pool.store import MOVED_AUDITS, Store, store_path
from surefoot.pool.table import Table, TableError, read_content
from surefoot.pool.table.cells import row_keys
from surefoot.pool.table.editing import label_writer

# The author of labels in the table itself.
TABLE = "(in the table)"


def open_store(table: Table, content: bytes, read: Callable[[bytes], Table]) -> Store:
    """Open or create the store of a table, and take over the labels that the table has now.

    content, read : as for `with_labels`. If the rows of the table have changed since it was read, an error is raised.
    """
    store = Store(store_path(table.path), {"label": table.label})
    try:
        store.remember("classes", table.classes)
        with with_labels(store, table, content, read) as (_, now, _):
            if now is not table and not np.array_equal(row_keys(now.features), row_keys(table.features)):
                raise TableError(
                    f"the rows of {table.path.name} were changed by another program while the table was read. Run the "
                    "command again."
                )
    except BaseException:
        store.close()
        raise
    return store


@contextmanager
def with_labels(
    store: Store, table: Table, content: bytes, read: Callable[[bytes], Table]
) -> Iterator[tuple[LabelLog, Table, bytes]]:
    """Synchronize the store with the current file in one transaction. Yield the labels, the table, and its content.

    Another process may have written labels into the table since it was read. These labels do not count as new.

    content : bytes of the table's file; read : function that reads the file again if it has changed.
    """
    while True:
        found = read_content(table.path)
        if found != content:
            table, content = read(found), found
        with store.together():  # only one process at a time writes the table
            if read_content(table.path) != content:
                continue
            yield take_in(store, table), table, content
            return


def stored_classes(path: Path) -> list[str]:
    """Return the classes in the store of a table, empty if there is no store."""
    if not store_path(path).exists():
        return []
    with Store(store_path(path)) as store:
        return [str(name) for name in store.about.get("classes", [])]


def take_in(store: Store, table: Table) -> LabelLog:
    """Update the store with changes of the table since it last saw it: moved rows and typed labels."""
    with store.together():
        store.read_about()
        events = store.events()
        match = match_rows(store, table, events)
        if match.changed:
            check_audits(store, table, events)
            if "columns" not in store.about:
                store.remember("columns", [str(name) for name in table.features.columns])
            audits = [event.audit or 0 for event in events if event.kind == e.FREEZE]
            store.remember(MOVED_AUDITS, max(audits, default=0))
            store.renumber(match.stored_keys, match.rows, match.gone)
            events = store.events()
        book = _book(table, events)
        before = store.in_table()
        new = _typed(book, table, before, store.person(TABLE).id)
        if new:
            for event in store.append(new):
                book.apply(event)
        store.note_table(_differing(table, before))
    return book


def stored_book(table: Table) -> LabelLog | None:
    """Return the labels of a table and its store without writing; None without a store for this label column."""
    if not store_path(table.path).exists():
        return None
    with Store(store_path(table.path)) as store:
        if store.about.get("label") != table.label:
            return None
        events = store.events()
        rows = match_rows(store, table, events).rows
        before = {rows.get(row, row): label for row, label in store.in_table().items()}
        person = next((person.id for person in store.people() if person.name == TABLE), e.NOBODY)
    book = _book(table, [replace(event, row=rows.get(event.row, event.row)) for event in events])
    for event in _typed(book, table, before, person):
        book.apply(event)
    return book


def picked_rows(table: Table) -> NDArray[np.bool_]:
    """Return (N,) True for rows that a model picked. Their labels are not a random sample."""
    return picked_mask(stored_book(table), len(table.labels))


def picked_mask(book: LabelLog | None, n_rows: int) -> NDArray[np.bool_]:
    """Return (N,) True for the picked rows of a log."""
    mask = np.zeros(n_rows, dtype=bool)
    mask[sorted(book.picked() if book is not None else [])] = True
    return mask


def waiting_labels(table: Table) -> int:
    """Return the number of labels in the store that the table does not contain."""
    book = stored_book(table)
    changed = {} if book is None else changed_labels(table, labels_to_write(book, table))
    return sum(label is not None for label in changed.values())


def labels_to_write(book: LabelLog, table: Table) -> dict[int, str | None]:
    """Return the label of each row, from the store if anyone labeled or skipped the row, otherwise from the table.

    Skipped rows and rows with different labels are empty.
    """
    answered = {event.row for event in book.events if event.kind in (e.LABEL, e.SKIP, e.SETTLE)}
    return {row: book.labels.get(row) if row in answered else label for row, label in enumerate(table.labels)}


def changed_labels(table: Table, labels: Mapping[int, str | None]) -> dict[int, str | None]:
    """Return the labels that differ from the table."""
    return {row: label for row, label in labels.items() if label != table.labels[row]}


def write_table(store: Store, table: Table, content: bytes, read: Callable[[bytes], Table]) -> int:
    """Write the labels of a store into its table, all or none. Return the number of changed cells.

    A label in the table is removed only if it was undone, not if annotators disagree or skipped the row.

    content, read : as for `with_labels`.
    """
    with with_labels(store, table, content, read) as (book, now, found):
        unsettled = book.conflicts | book.skipped
        wanted = {row: label for row, label in labels_to_write(book, now).items() if row not in unsettled}
        changed = changed_labels(now, wanted)
        if changed:
            label_writer(now, found).write(changed)
            store.note_table(changed)
        return len(changed)


def _book(table: Table, events: list[Event], n_rows: int | None = None) -> LabelLog:
    book = LabelLog(n_rows or len(table.labels), table.classes)
    for event in events:
        book.apply(event)
    return book


def _differing(table: Table, before: Mapping[int, str]) -> dict[int, str | None]:
    """Return row -> label for rows whose label in the table differs from `before`."""
    return {row: label for row, label in enumerate(table.labels.tolist()) if label != before.get(row)}


def _typed(book: LabelLog, table: Table, before: Mapping[int, str], person: int) -> list[Event]:
    """Return events for the labels that users changed in the table since `before`.

    If a user overwrites a label that the store wrote, the new label counts. If a different label waits in the store,
    the row then has two different labels. Emptying a cell reopens the row if its label came from the table. A label
    given to surefoot stays, and is written again later.
    """
    events = []
    for row, label in _differing(table, before).items():
        state = book.row(row)
        if label == state.label:
            continue
        given = not state.answers.keys() - {person}
        if label is None:
            if given and state.answers:
                events.append(Event(e.UNDO, row, person))
        elif given or state.label != before.get(row):
            events.append(Event(e.LABEL, row, person, label, e.GIVEN))
        else:
            events.append(Event(e.SETTLE, row, person, label))
    return events


@dataclass(frozen=True, eq=False)
class RowMatch:
    """Where the rows of a store are in the table.

    keys : (N,) of the current rows; changed : whether they differ from those that the store last saw.
    rows : number in the store -> current number, for rows that moved; negative if the table no longer contains the row.
    gone : negative number -> key.
    """

    keys: NDArray[np.uint64]
    changed: bool
    rows: dict[int, int] = field(default_factory=dict)
    gone: dict[int, int] = field(default_factory=dict)

    @property
    def stored_keys(self) -> bytes:
        return self.keys.astype("<u8").tobytes()


def match_rows(store: Store, table: Table, events: list[Event]) -> RowMatch:
    """Find the rows of a store in its table. Raise an error if a row that a model picked cannot be found."""
    columns = store.about.get("columns")
    now = table.features
    if columns is not None:
        absent = [name for name in columns if name not in now.columns]
        if absent:
            raise TableError(
                f"{store.path} knows the rows of {table.path.name} by their cells, and the column {absent[0]!r} is "
                "gone. Restore it, or move that file away. All labels then count as random ones."
            )
        now = now[columns]
    keys, stored = row_keys(now), store.row_keys()
    if stored is None:
        return RowMatch(keys, changed=True)
    before = np.frombuffer(stored, dtype="<u8")
    if np.array_equal(before, keys):
        return RowMatch(keys, changed=False)
    known = {row: int(before[row]) for row in {*(event.row for event in events), *store.in_table()} if row >= 0}
    found = _places(known | store.gone(), before, keys)
    lost = sorted((row for row, place in found.items() if place is None), key=abs)
    _check_lost(store, table, events, len(before), [row for row in lost if row >= 0 and before[row] not in keys])
    gone = {-2 - number: (known | store.gone())[row] for number, row in enumerate(lost)}
    places = dict(zip(lost, gone, strict=True)) | {row: place for row, place in found.items() if place is not None}
    return RowMatch(keys, changed=True, rows={row: new for row, new in places.items() if row != new}, gone=gone)


def _places(known: dict[int, int], before: NDArray[np.uint64], now: NDArray[np.uint64]) -> dict[int, int | None]:
    """Return row of the store -> row of the table with the same cells, None if there is none left.

    Rows with equal cells keep their rank if their count is unchanged. Otherwise each keeps its number if possible.
    """
    by_key: dict[int, list[int]] = defaultdict(list)
    for row, key in sorted(known.items(), key=lambda pair: abs(pair[0])):
        by_key[key].append(row)
    order = np.argsort(now, kind="stable")
    ordered = now[order]
    found: dict[int, int | None] = {}
    for key, rows in by_key.items():
        first, last = np.searchsorted(ordered, np.uint64(key)), np.searchsorted(ordered, np.uint64(key), "right")
        free = order[first:last].tolist()
        old = rows if len(rows) == len(free) == 1 else np.flatnonzero(before == np.uint64(key)).tolist()
        if len(old) == len(free):
            here = {row: free[old.index(row)] for row in rows if row in old}
        else:
            here = {row: row for row in rows if row in free}
        left = [place for place in free if place not in here.values()]
        found |= here | {row: left.pop(0) if left else None for row in rows if row not in here}
    return found


def check_audits(store: Store, table: Table, events: list[Event]) -> None:
    """Raise an error if an audit is open, because it covers the rows with their numbers at its start."""
    frozen = sum(event.kind == e.FREEZE for event in events)
    if frozen > sum(event.kind == e.CLOSE for event in events):
        raise TableError(
            f"the rows of {table.path.name} have changed since audit {frozen} of {store.path.name} began, and an audit "
            "speaks of the rows as they were. Restore the rows. Or give the audit up: run surefoot export, then move "
            f"{store.path.name} away; labels that a model picked then count as random ones."
        )


def _check_lost(store: Store, table: Table, events: list[Event], n_rows: int, lost: list[int]) -> None:
    picked = sorted(_book(table, events, n_rows).picked() & set(lost))
    if picked:
        more = f" and {len(picked) - 1} more" if len(picked) > 1 else ""
        raise TableError(
            f"{store.path} knows which rows of {table.path.name} were picked by a model, and the rows have changed: "
            f"row {picked[0] + 1}{more}, as it was, cannot be found. Its label would count as a random one. Restore "
            "the cells, or move that file away if all labels may count as random ones."
        )
