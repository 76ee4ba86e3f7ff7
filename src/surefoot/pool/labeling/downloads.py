"""Files to take along: the pool with its labels, and a long table of answers."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from surefoot.pool.labeling import events as e
from surefoot.pool.labeling.book import Book
from surefoot.pool.store import Person
from surefoot.pool.store_labels import changed_labels
from surefoot.pool.table import Table
from surefoot.pool.table.editing import label_writer

CSV, PARQUET = "csv", "parquet"
COLUMNS = (
    "row", "answer", "skipped", "person", "time", "purpose", "pick_probability", "audit", "stands", "settled",
    "flagged", "notes",
)  # fmt: skip
# A spreadsheet takes a text that begins so for a formula, some with the wide signs too. The apostrophe is among them
# so that whoever takes one away has the text as it was.
_LIKE_A_FORMULA = tuple("=+-@\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}"
                        "\N{FULLWIDTH COMMERCIAL AT}'")  # fmt: skip
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def labeled_file(table: Table, content: bytes, labels: Mapping[int, str | None], suffix: str) -> bytes:
    """A file of the pool with these labels; in the form of the pool's own file, `content`, every other byte stays."""
    if suffix == table.path.suffix.lower():
        return label_writer(table, content).bytes_with(changed_labels(table, labels))
    found = {row: label for row, label in labels.items() if label is not None}
    return as_bytes(labeled_table(table, found), suffix.removeprefix("."))


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


def as_bytes(frame: Any, form: str) -> bytes:
    """A data frame as Parquet, or as CSV in which a cell keeps its line ends."""
    if form == PARQUET:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        return buffer.getvalue()
    # only with both characters in the line's end are cells that hold either of them quoted
    return bytes(frame.to_csv(index=False, lineterminator="\r\n").encode())


def answers_file(book: Book, people: list[Person], form: str) -> bytes:
    """The table of answers as a file; in CSV no text that people typed reads as a formula."""
    frame = answers_table(book, people)
    return as_bytes(frame if form == PARQUET else frame.map(_as_text_alone), form)


def _as_text_alone(cell: Any) -> Any:
    typed = isinstance(cell, str) and cell.startswith(_LIKE_A_FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if typed else cell
