"""Opening the store of a pool: made on the first start, with what `surefoot label` has written until then."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.pool.labeling import events as e
from surefoot.pool.labeling.desk import Desk, Settings
from surefoot.pool.labeling.events import Event
from surefoot.pool.labeling.store import Store
from surefoot.pool.table import Table
from surefoot.pool.table.asked import AskedRows, row_hashes
from surefoot.pool.table.beside import asked_path, store_path

# Whose answers the labels in the table itself are.
TABLE = "(in the table)"


def stored_classes(pool: Path) -> list[str]:
    """Classes that the store of a pool knows; none where there is no store."""
    path = store_path(pool)
    if not path.exists():
        return []
    store = Store(path)
    try:
        return [str(name) for name in store.about.get("classes", [])]
    finally:
        store.close()


def open_desk(table: Table, settings: Settings) -> Desk:
    """The desk of a table; labels in the table that the store does not have are taken in."""
    store = open_store(table)
    desk = Desk(store, len(table.labels), table.classes, settings)
    _take_in(desk, table)
    return desk


def open_store(table: Table) -> Store:
    """The store of a table, made if there is none."""
    hashes = np.ascontiguousarray(row_hashes(table.features), dtype="<u8")
    about: dict[str, Any] = {
        "label": table.label,
        "rows": len(table.labels),
        "fingerprint": hashlib.sha256(hashes.tobytes()).hexdigest()[:32],
    }
    store = Store(store_path(table.path), about)
    store.remember("classes", table.classes)
    return store


def _take_in(desk: Desk, table: Table) -> None:
    """Labels of the table, and rows that were picked or skipped, where the store says nothing of the row yet."""
    person = desk.store.person(TABLE)
    asked = AskedRows(table) if asked_path(table.path).exists() else None
    picked = np.zeros(len(table.labels), dtype=bool) if asked is None else asked.picked(len(table.labels))
    events = []
    for row in np.flatnonzero(table.labeled).tolist():
        if desk.book.row(row).answers:
            continue
        purpose = e.LEARN if picked[row] else e.GIVEN
        events.append(
            Event(e.LABEL, row, person.id, table.labels[row], purpose, key=f"table-{row}-{table.labels[row]}")
        )
    skipped = sorted(asked.skipped) if asked is not None else []
    events += [
        Event(e.SKIP, row, person.id, purpose=e.LEARN if picked[row] else e.RANDOM, key=f"skip-{row}")
        for row in skipped
        if table.labels[row] is None and not desk.book.row(row).answers
    ]
    desk.take_in(events)
