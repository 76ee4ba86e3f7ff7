"""Files to take along: the pool with its labels, and a long table of answers."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import numpy as np

from surefoot.pool.labeling import events as e
from surefoot.pool.labeling.book import Book
from surefoot.pool.labeling.store import Person
from surefoot.pool.table import Table
from surefoot.pool.table.reading import is_parquet

CSV, PARQUET = "csv", "parquet"
COLUMNS = (
    "row", "answer", "skipped", "person", "time", "purpose", "pick_probability", "audit", "stands", "settled",
    "flagged", "notes",
)  # fmt: skip


def labeled_table(table: Table, labels: dict[int, str]) -> Any:
    """The pool as a data frame, its label column filled with these labels and no others."""
    import pandas as pd

    column = np.full(len(table.labels), None, dtype=object)
    for row, label in labels.items():
        column[row] = label
    return table.cells.assign(**{table.label: pd.Series(column, index=table.cells.index, dtype="str")})


def answers_table(book: Book, people: list[Person]) -> Any:
    """One line per answer, oldest first.

    `stands` says whether the answer was neither changed nor taken back; `settled` is the label that counts for the row.
    """
    import pandas as pd

    names = {person.id: person.name for person in people}
    lines = []
    for event in book.events:
        if event.kind not in (e.LABEL, e.SKIP):
            continue
        state = book.row(event.row)
        lines.append(
            {
                "row": event.row + 1,
                "answer": event.value,
                "skipped": event.kind == e.SKIP,
                "person": names.get(event.person),
                "time": datetime.fromtimestamp(event.time, UTC).isoformat(timespec="milliseconds"),
                "purpose": event.purpose,
                "pick_probability": event.probability,
                "audit": event.audit,
                "stands": state.answers.get(event.person) is event,
                "settled": state.label,
                "flagged": bool(state.flags),
                "notes": " | ".join(str(note.value) for note in state.notes),
            }
        )
    frame = pd.DataFrame(lines, columns=COLUMNS)
    return frame.astype({"audit": "Int64", "pick_probability": "float64"})


def as_bytes(frame: Any, form: str, table: Table | None = None) -> bytes:
    """A data frame as CSV or Parquet; CSV in the manner of the table where one is given."""
    if form == PARQUET:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        return buffer.getvalue()
    delimiter, encoding = ",", "utf-8"
    if table is not None and not is_parquet(table.path):
        how = table.how.for_file(table.path)
        delimiter, encoding = how.delimiter or ",", how.encoding
    return bytes(frame.to_csv(index=False, sep=delimiter, lineterminator="\n").encode(encoding))
