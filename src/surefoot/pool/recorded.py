"""Labels that a journal and a table both hold: brought together as a sitting begins; refused where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from surefoot.pool.table import TableError
from surefoot.pool.table.editing import LabelWriter


def write_missing(labels: NDArray[Any], recorded: Mapping[int, Any], writer: LabelWriter, journal: Path) -> None:
    """Write into the table what a journal holds and the table lacks, as after a kill between the two."""
    for row, label in recorded.items():
        if label is None:
            continue
        if labels[row] is None:
            writer.write(row, label)
            labels[row] = label
        elif labels[row] != label:
            raise TableError(
                f"row {row + 1} was labeled {label!r} when {journal.name} was written, and is {labels[row]!r} now: "
                "what was counted cannot be changed. Restore the label, or move that file away and begin anew."
            )
