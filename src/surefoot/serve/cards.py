"""A row as a card that is read at a glance: long texts as texts, numbers beside their place in the pool, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from surefoot._printing import cell_text, visible
from surefoot._templates import render
from surefoot.pool.table import Table
from surefoot.pool.table.cells import quantiles, share_below

# A text from this length on, or with line breaks, stands by itself.
_LONG_TEXT = 60
_LONGEST_TEXT = 20_000
_PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
             ".webp": "image/webp", ".avif": "image/avif"}  # fmt: skip
# Cells of a column that are looked at to see whether it names pictures.
_LOOKED_AT = 25
# Cells that are read to see whether a column holds texts, and the share of them that must be long.
_READ, _TEXTS = 200, 0.1


class Fact(NamedTuple):
    """A short cell: its column and its value, None where it is missing.

    percent : of the pool that lies below a number; mark : where that is on a line of 54 pixels.
    """

    name: str
    value: str | None
    percent: str | None = None
    mark: str = ""


class Cards:
    """Cards of the rows of a table; values : data frame of its columns of numbers, where they were read before."""

    def __init__(self, table: Table, values: Any = None) -> None:
        self.table = table
        self.folder = table.path.resolve().parent
        self.names = [str(name) for name in table.cells.columns if name != table.label]
        self._cells = {name: table.cells[name] for name in self.names}
        columns = self._cells | ({} if values is None else {name: values[name] for name in values.columns})
        self._grid = {name: grid for name in self.names if (grid := quantiles(columns[name])) is not None}
        self._numbers = {name: columns[name].to_numpy() for name in self._grid}
        self._shown = {name: visible(name) for name in self.names}
        self._summaries: dict[int, str] = {}
        self.pictures = [name for name in self.names if self._names_pictures(name)]
        # short cells of such a column stand as its long ones do, so that the eye finds them
        self._texts = {name for name in self.names if name not in self._grid and self._holds_texts(name)}

    def html(self, row: int) -> str:
        """The card of a row."""
        pictured = [name for name in self.pictures if self.picture(row, name) is not None]
        pictures = [(f"/picture/{row}/{self.names.index(name)}", f"{name} of row {row + 1}") for name in pictured]
        texts, facts = [], []
        for name in self.names:
            if name in pictured:
                continue
            number = self._number(name, row)
            if number is not None:
                share = share_below(self._grid[name], number)
                facts.append(
                    Fact(
                        self._shown[name], f"{number:.5g}", f"{100 * share:.0f}\N{NO-BREAK SPACE}%", f"{54 * share:.1f}"
                    )
                )
                continue
            value = self._cells[name].iloc[row]
            missing = _is_missing(value)
            if is_long(value) or (name in self._texts and not missing):
                texts.append((name, text_of(str(value))))
            else:
                facts.append(Fact(self._shown[name], None if missing else visible(str(value))))
        return render("surefoot.serve", "card.html", pictures=pictures, texts=texts, facts=facts)

    def summary(self, row: int, longest: int = 140) -> str:
        """A row in one line."""
        if row not in self._summaries:
            parts = [f"{name}: {cell_text(self._cells[name].iloc[row], 60)}" for name in self.names[:6]]
            self._summaries[row] = " · ".join(parts)
        whole = self._summaries[row]
        return whole if len(whole) <= longest else whole[: longest - 1] + "…"

    def text(self, row: int) -> str:
        """All that a row says, to search in."""
        return " ".join(str(self._cells[name].iloc[row]) for name in self.names).casefold()

    def picture(self, row: int, name: str) -> Path | None:
        """The file of a picture: it must lie below the folder of the pool, whatever the cell says."""
        if name not in self._cells:
            return None
        value = self._cells[name].iloc[row]
        if not isinstance(value, str) or "\0" in value or Path(value).suffix.lower() not in _PICTURES:
            return None
        try:
            file = (self.folder / value).resolve()
            inside = file.is_relative_to(self.folder) and file.is_file()
        except OSError:  # a name that no system has, such as one of 5,000 characters
            return None
        return file if inside else None

    def _holds_texts(self, name: str) -> bool:
        cells = self._cells[name].iloc[:_READ].tolist()
        return sum(map(is_long, cells)) > _TEXTS * len(cells)

    def _names_pictures(self, name: str) -> bool:
        column = self._cells[name]
        rows = np.flatnonzero(column.notna().to_numpy())[:_LOOKED_AT]
        return bool(len(rows)) and all(self.picture(int(row), name) is not None for row in rows)

    def _number(self, name: str, row: int) -> float | None:
        """The number in a cell; None where there is none."""
        if name not in self._numbers or _is_missing(self._numbers[name][row]):
            return None
        return float(self._numbers[name][row])


def media_type(file: Path) -> str:
    """Of a picture."""
    return _PICTURES[file.suffix.lower()]


def is_long(value: Any) -> bool:
    """Whether a cell is read as a text."""
    return isinstance(value, str) and (len(value) > _LONG_TEXT or "\n" in value.strip())


def text_of(value: str) -> str:
    """A long text as it is shown, with its line breaks."""
    cut = value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + "…"
    return visible(cut.replace("\r\n", "\n").replace("\t", "    "), lines=True)


def _is_missing(value: Any) -> bool:
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))
