"""A row as a card that is read at a glance: long texts as texts, numbers beside their place in the pool, pictures."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._printing import cell_text, visible
from surefoot.pool.table import Table
from surefoot.pool.table.cells import as_numbers
from surefoot.serve.html import Html, el, void

# A text from this length on, or with line breaks, stands by itself.
_LONG_TEXT = 60
_LONGEST_TEXT = 20_000
_QUANTILES = 1001
_PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
             ".webp": "image/webp", ".avif": "image/avif"}  # fmt: skip
# Cells of a column that are looked at to see whether it names pictures.
_LOOKED_AT = 25
# Cells that are read to see whether a column holds texts, and the share of them that must be long.
_READ, _TEXTS = 200, 0.1


class Cards:
    """Cards of the rows of a table.

    Parameters
    ----------
    table : Table
    values : data frame, the columns of numbers as numbers, where they were read before.
    """

    def __init__(self, table: Table, values: Any = None) -> None:
        self.table = table
        self.folder = table.path.resolve().parent
        self.names = [str(name) for name in table.cells.columns if name != table.label]
        self._cells = {name: table.cells[name] for name in self.names}
        self._grid = {
            name: grid for name in self.names if (grid := _quantiles(_read(name, self._cells, values))) is not None
        }
        self._values = {} if values is None else {name: values[name].to_numpy() for name in values.columns}
        self._terms = {name: el("dt", visible(name)) for name in self.names}
        self._summaries: dict[int, str] = {}
        self.pictures = [name for name in self.names if self._names_pictures(name)]
        # short cells of such a column stand as its long ones do, so that the eye finds them
        self._texts = {name for name in self.names if name not in self._grid and self._holds_texts(name)}

    def html(self, row: int) -> Html:
        """The card of a row."""
        shown = [self._picture(name, row) for name in self.pictures]
        facts = []
        for name in self.names:
            if name in self.pictures and self.picture(row, name) is not None:
                continue
            number = self._number(name, row)
            if number is not None:
                facts.append(self._quantity(name, number))
                continue
            value = self._cells[name].iloc[row]
            if is_long(value) or (name in self._texts and not _is_missing(value)):
                shown.append(el("section", el("h3", name), el("p", text_of(str(value))), class_="long"))
            else:
                facts.append(self._fact(name, value))
        if facts:
            shown.append(el("dl", *facts, class_="facts"))
        return el("div", *[part for part in shown if part], class_="cells")

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

    def _picture(self, name: str, row: int) -> Html:
        if self.picture(row, name) is None:
            return Html("")
        at = self.names.index(name)
        image = void("img", src=f"/picture/{row}/{at}", alt=f"{name} of row {row + 1}", loading="lazy")
        return el("figure", image, class_="picture")

    def _number(self, name: str, row: int) -> float | None:
        """The number in a cell; None where there is none."""
        if name not in self._grid:
            return None
        if name in self._values:
            number = float(self._values[name][row])
        else:
            cell = self._cells[name].iloc[row]
            number = float("nan") if _is_missing(cell) else float(cell)
        return None if number != number else number  # noqa: PLR0124 - NaN

    def _quantity(self, name: str, number: float) -> Html:
        """A number beside its place in the pool; by hand, since a card may have many."""
        share = quantile_of(self._grid[name], number)
        words = f"above {100 * share:.0f}\N{NO-BREAK SPACE}% of the pool"
        return Html(  # but for the name, which is escaped, there are numbers only
            f'<div class="fact">{self._terms[name]}<dd class="quantity" title="{words}">'
            f'<span class="number">{number:.5g}</span>'
            f'<svg viewBox="0 0 60 12" class="quantile" role="img" aria-label="{words}">'
            '<rect class="track" x="0" y="5" width="60" height="2" rx="1"/>'
            f'<rect class="mark" x="{54 * share:.1f}" y="1.5" width="6" height="9" rx="2"/></svg></dd></div>'
        )

    def _fact(self, name: str, value: Any) -> Html:
        shown = el("span", "missing", class_="missing") if _is_missing(value) else visible(str(value))
        return el("div", self._terms[name], el("dd", shown), class_="fact")


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


def quantile_of(grid: list[float], value: float) -> float:
    """Share of the pool below a value, half of those equal to it among them; grid : quantiles of the pool."""
    return (bisect_left(grid, value) + bisect_right(grid, value)) / 2 / len(grid)


def _read(name: str, cells: dict[str, Any], values: Any) -> Any:
    """A column as numbers where it was read as such, else its cells."""
    known = values is not None and name in values.columns and values[name].dtype.kind == "f"
    return values[name] if known else cells[name]


def _quantiles(column: Any) -> list[float] | None:
    """Quantiles of a column of numbers; None where it has none, or others. As a list: one number is looked up fast."""
    if column.dtype.kind in "mMb":
        return None
    numbers, wrong = as_numbers(column)
    known = numbers[np.isfinite(numbers)]
    if wrong.any() or len(known) < 2 or known.min() == known.max():
        return None
    return np.quantile(known, np.linspace(0.0, 1.0, _QUANTILES), method="inverted_cdf").tolist()


def _is_missing(value: Any) -> bool:
    return value is None or value != value or str(value) in ("<NA>", "NaT")  # noqa: PLR0124 - NaN
