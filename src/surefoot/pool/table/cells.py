"""Cells as they are written: numbers in the styles of several countries, texts, and what is neither."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._printing import cut
from surefoot.pool.table.errors import TableError

# How numbers are written: 1234.5, 1.234,5 or 1,234.5
POINT, COMMA, THOUSANDS = "point", "comma", "thousands"
_SIGNS = r"^\s*[$€£]?\s*([+-]?)\s*[$€£]?\s*"
_STYLED = {
    COMMA: re.compile(_SIGNS + r"([1-9]\d{0,2}(?:[.\s\u202f\xa0']\d{3})+|\d+)(?:,(\d+))?\s*[%€£$]?\s*$"),
    THOUSANDS: re.compile(_SIGNS + r"([1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.(\d+))?\s*[%€£$]?\s*$"),
}
# A column tells how commas are meant if this share of its first cells are numbers.
_MOSTLY, _LOOKED_AT = 0.9, 10_000
_NO_DIGIT = re.compile(r"\D")


def check_plain(name: str, column: Any) -> None:
    """Refuse a column of lists or structures, as Parquet may hold them; all its cells are alike."""
    if is_nested(column):
        raise TableError(
            f"column {name!r} holds lists or structures; a cell must be a number or a text. Give each of their values "
            f"a column of its own, or pass --drop '{name}'."
        )


def is_nested(column: Any) -> bool:
    """Whether the cells of a column are lists or structures."""
    first = next(iter(column.dropna().iloc[:1]), None) if column.dtype == object else None
    return isinstance(first, dict | list | tuple | set | np.ndarray)


def as_numbers(column: Any, style: str = POINT) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers (N,), NaN where there is none, and which cells are neither empty nor a number."""
    import pandas as pd

    empty = column.isna().to_numpy()
    if column.dtype.kind == "b" or (column.dtype == object and any(isinstance(value, bool) for value in column)):
        return np.full(len(column), np.nan), ~empty  # true and false are names
    if column.dtype.kind == "m":
        return column.dt.total_seconds().to_numpy(dtype=np.float64), np.zeros(len(column), dtype=bool)
    if column.dtype.kind in "iuf":
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return values, np.zeros(len(values), dtype=bool)
    texts = column if style == POINT else column.map(lambda cell: _pointed(cell, style), na_action="ignore")
    values = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return values, np.isnan(values) & ~empty


def number_style(column: Any, commas: str = THOUSANDS) -> str:
    """How the numbers of a column of texts are written: the style that reads most cells, plain ones first.

    Commas that all stand before three digits separate thousands; one that does not, or follows a leading 0, makes all
    of them decimal. `commas` says what they are in other columns of the table: where they are decimal, they are here,
    and points before three digits separate thousands, unless another style reads more cells.
    """
    if column.dtype != object and column.dtype.kind not in "OUT":
        return POINT
    filled, decimal = column.dropna(), commas == COMMA
    marks = r"[.,%€£$]" if decimal else r"[,%€£$]"
    if not len(filled) or not isinstance(filled.iloc[0], str) or not filled.str.contains(marks).any():
        return POINT
    styles = (COMMA, POINT, THOUSANDS) if decimal else (POINT, THOUSANDS, COMMA)
    readable = {style: int((~as_numbers(filled, style)[1]).sum()) for style in styles}
    return max(readable, key=lambda style: readable[style])


def table_commas(frame: Any, names: Iterable[str]) -> str:
    """What commas are in the numbers of a table: decimal where those of a column can be nothing else."""
    for name in names:
        column = frame[name].iloc[:_LOOKED_AT]
        if number_style(column) == COMMA and (~as_numbers(column, COMMA)[1]).mean() > _MOSTLY:
            return COMMA
    return THOUSANDS


def _pointed(cell: Any, style: str) -> Any:
    """A number in a style, as Python writes it; where commas are decimal, nothing else is a number."""
    found = _STYLED[style].match(cell) if isinstance(cell, str) else None
    if found is None:
        return "" if style == COMMA else cell
    sign, whole, part = found.groups()
    return f"{sign}{_NO_DIGIT.sub('', whole)}.{part or 0}"


def as_texts(column: Any) -> NDArray[Any]:
    """Texts (N,) without white space around them, NaN where there is none; whole numbers without a decimal point."""
    texts = np.full(len(column), np.nan, dtype=object)
    filled = column.notna().to_numpy()
    texts[filled] = [as_text(value) for value in column[filled]]
    return texts


def as_text(value: Any) -> str:
    """A cell as it would be typed."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def shown_cell(value: Any) -> str:
    """A cell in a message, in quotes, and cut where it would fill the screen."""
    return repr(cut(as_text(value)))


def check_finite(name: str, values: NDArray[np.float64]) -> None:
    """Refuse infinite numbers."""
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise TableError(
            f"column {name!r} must hold finite numbers; got {values[infinite[0]]} in row {infinite[0] + 1}"
            f"{f' and {len(infinite) - 1} more' if len(infinite) > 1 else ''}. Empty the cell if the value is unknown, "
            f"or pass --drop '{name}'."
        )


def mixed(name: str, column: Any, wrong: NDArray[np.bool_]) -> TableError:
    """The error for a column of numbers in which some cells are texts."""
    rows = np.flatnonzero(wrong)
    text = as_text(column.iloc[rows[0]])
    return TableError(
        f"column {name!r} mixes numbers and texts: row {rows[0] + 1} holds {shown_cell(text)}"
        f"{f', and {len(rows) - 1} more rows hold texts' if len(rows) > 1 else ''}. Correct the cells, pass --missing "
        f"'{cut(text)}' if it means that the value is unknown, or --categories '{name}' if all are names."
    )
