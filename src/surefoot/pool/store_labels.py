"""The labels of a labeling page's store beside those of its table."""

from __future__ import annotations

from collections.abc import Mapping

from surefoot.pool.labeling.book import Book
from surefoot.pool.labeling.events import LABEL, SETTLE, SKIP
from surefoot.pool.labeling.store import Store
from surefoot.pool.table import Table
from surefoot.pool.table.beside import store_path


def labels_to_write(book: Book, table: Table) -> dict[int, str | None]:
    """The label of each row: that of the store where anybody answered for the row, else that of the table.

    Rows on which people disagree, and those that all skipped, are empty.
    """
    answered = {event.row for event in book.events if event.kind in (LABEL, SKIP, SETTLE)}
    return {row: book.labels.get(row) if row in answered else label for row, label in enumerate(table.labels)}


def waiting_labels(table: Table) -> int:
    """How many labels the store of a table holds that the table has not; 0 where it is of other rows or labels."""
    if not store_path(table.path).exists():
        return 0
    store = Store(store_path(table.path))
    try:
        if (store.about.get("label"), store.about.get("rows")) != (table.label, len(table.labels)):
            return 0
        book = Book(len(table.labels), table.classes)
        for event in store.events():
            book.apply(event)
    finally:
        store.close()
    return sum(label is not None for label in changed_labels(table, labels_to_write(book, table)).values())


def changed_labels(table: Table, labels: Mapping[int, str | None]) -> dict[int, str | None]:
    """Those of the labels that the table has otherwise."""
    return {row: label for row, label in labels.items() if label != table.labels[row]}
