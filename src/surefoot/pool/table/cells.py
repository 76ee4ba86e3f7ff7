"""Parse cells: numbers and dates in the styles of several countries, and texts."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, product
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import FileError
from surefoot._printing import cut

__all__ = ["FileError", "TableError"]


# Errors that a user can make with files. Each error names the rule, the value found and the fix.


class TableError(ValueError):
    """A table that surefoot cannot use."""


# Number styles: 1234.5, 1.234,5 or 1,234.5
POINT, COMMA, THOUSANDS = "point", "comma", "thousands"
_SIGNS = r"^\s*[$€£]?\s*([+-]?)\s*[$€£]?\s*"
_POWER = r"([eE][+-]?\d{1,3})?\s*[%€£$]?\s*$"
_STYLED = {
    COMMA: re.compile(_SIGNS + r"([1-9]\d{0,2}(?:[.\s\u202f\xa0']\d{3})+|\d+)(?:,(\d+))?" + _POWER),
    THOUSANDS: re.compile(_SIGNS + r"([1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.(\d+))?" + _POWER),
}
# A column determines the meaning of commas if this share of its first cells are numbers.
_MOSTLY, _LOOKED_AT = 0.9, 10_000
_NO_DIGIT = re.compile(r"\D")
STORED = "stored"  # the Parquet file declares the column as dates
ISO = "ISO8601"
_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_DAYS = (
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%m-%d-%Y",
    "%d-%m-%Y",
    "%m/%d/%y",
    "%d/%m/%y",
    "%d.%m.%y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%b %d %Y",
    "%b %d, %Y",
    "%d %B %Y",
    "%B %d, %Y",
    "%b %Y",
    "%B %Y",
    "%a %b %d %Y",
    "%a, %d %b %Y",
)
_ISO_LIKE = re.compile(r"^\d{4}-\d{2}(-\d{2}([T ]\d{2}(:?\d{2}(:?\d{2}([.,]\d+)?)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?)?$")
_MARKS, _MARKS_AND_POINT = re.compile(r"[,%€£$]"), re.compile(r"[.,%€£$]")
# Each of these takes linear time, even for a cell of a million characters.
_DIGIT, _MARK = re.compile(r"\d"), re.compile(r"[-/.: ,]")
_PLAIN_NUMBER = re.compile(r"^[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?$")
FORMATS = (*[day + time for day, time in product(_DAYS, _TIMES)], *[time.strip() for time in _TIMES if time])
# Share of the filled cells that must be dates, and number of distinct cells to look at.
_SHARE, _DATES_LOOKED_AT = 0.9, 200
_DAY = 86_400.0
# Number of quantiles used to find the rank of a number in its column.
_QUANTILES = 1001


def check_plain(name: str, column: Any) -> None:
    """Raise an error for a column of lists or structures, which Parquet may contain."""
    if is_nested(column):
        raise TableError(
            f"column {name!r} holds lists or structures; a cell must be a number or a text. Give each of their values "
            f"a column of its own, or pass --drop '{name}'."
        )


def is_nested(column: Any) -> bool:
    """Return True if the cells of a column are lists or structures."""
    if column.dtype != object:
        return False
    for cell in column:
        if isinstance(cell, dict | list | tuple | set | np.ndarray):
            return True
        if isinstance(cell, str):
            break
    return False


def row_keys(features: Any) -> NDArray[np.uint64]:
    """Return a key (N,) per row that depends on its cells, not on the type in which numbers are stored."""
    import pandas as pd

    def plain(column: Any) -> Any:
        if column.dtype.kind in "iuf":
            return column.to_numpy(dtype=np.float64, na_value=np.nan)
        cells = column.to_numpy(dtype=object)
        if is_nested(column):
            cells = [repr(cell.tolist() if isinstance(cell, np.ndarray) else cell) for cell in cells]
        return pd.Series(cells, dtype=object)

    frame = pd.DataFrame({name: plain(features[name]) for name in features.columns})
    return pd.util.hash_pandas_object(frame, index=False).to_numpy()


def as_numbers(column: Any, style: str = POINT) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Read numbers (N,), NaN for other cells, and mark the cells that are neither empty nor a number."""
    import pandas as pd

    empty = column.isna().to_numpy()
    if column.dtype.kind == "b" or (column.dtype == object and any(isinstance(value, bool) for value in column)):
        return np.full(len(column), np.nan), ~empty  # true and false are names, not numbers
    if column.dtype.kind == "m":
        return column.dt.total_seconds().to_numpy(dtype=np.float64), np.zeros(len(column), dtype=bool)
    if column.dtype.kind in "iuf":
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return values, np.zeros(len(values), dtype=bool)
    texts = column if style == POINT else column.map(lambda cell: _pointed(cell, style), na_action="ignore")
    values = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return values, np.isnan(values) & ~empty


def number_style(column: Any, commas: str = THOUSANDS) -> str:
    """Return the number style of a text column: the style that reads most cells, plain numbers first.

    If three digits follow every comma, commas separate thousands. If a comma has other digits after it, or a leading 0
    before it, all commas are decimal. `commas` is the meaning of commas in other columns of the table. If it is
    decimal, commas here are decimal and points before three digits separate thousands, unless another style reads more
    cells.
    """
    if column.dtype != object and column.dtype.kind not in "OUT":
        return POINT
    filled, decimal = column.dropna(), commas == COMMA
    marks = _MARKS_AND_POINT if decimal else _MARKS
    if not any(isinstance(cell, str) and marks.search(cell) for cell in filled.to_numpy(dtype=object)):
        return POINT
    styles = (COMMA, POINT, THOUSANDS) if decimal else (POINT, THOUSANDS, COMMA)
    readable = {style: int((~as_numbers(filled, style)[1]).sum()) for style in styles}
    return max(readable, key=lambda style: readable[style])


def table_commas(frame: Any, names: Iterable[str]) -> str:
    """Return the meaning of commas in a table: decimal if a column allows no other reading, else thousands."""
    for name in names:
        column = frame[name].iloc[:_LOOKED_AT]
        if number_style(column) == COMMA and (~as_numbers(column, COMMA)[1]).mean() > _MOSTLY:
            return COMMA
    return THOUSANDS


def _pointed(cell: Any, style: str) -> Any:
    """Return a number of this style in Python's notation. With decimal commas, other cells are not numbers."""
    found = _STYLED[style].match(cell) if isinstance(cell, str) else None
    if found is None:
        return "" if style == COMMA else cell
    sign, whole, part, power = found.groups()
    return f"{sign}{_NO_DIGIT.sub('', whole)}.{part or 0}{power or ''}"


def date_format(column: Any) -> tuple[str, str | None] | None:
    """Return the format of a date column and another format that fits equally well; None for other columns."""
    if column.dtype.kind == "M" or getattr(column.dtype, "tz", None) is not None:
        return STORED, None
    if column.dtype.kind in "iufbmc":
        return _compact(column)
    filled = column.dropna().to_numpy(dtype=object)
    sample = list(islice(_unique(str(cell).strip() for cell in filled), _DATES_LOOKED_AT))
    if not sample or median(map(len, sample)) > 40:
        return None
    # no date format matches a number without two marks between its parts
    numbers = _share(sample, _PLAIN_NUMBER.match)
    if numbers > 1.0 - _SHARE or _share(sample, lambda cell: _DIGIT.search(cell) and _MARK.search(cell)) < _SHARE:
        return None
    if _share(sample, _ISO_LIKE.match) >= _SHARE:
        return ISO, None
    return _written_format([str(cell).strip() for cell in filled], sample)


def _written_format(cells: list[str], sample: list[str]) -> tuple[str, str | None] | None:
    """Like `date_format`, for texts not in ISO 8601."""
    shares = {how: _share_read(sample, how) for how in FORMATS}
    best = max(shares, key=lambda how: shares[how])
    read = _share_read(cells, best)
    if shares[best] < _SHARE or read < _SHARE:
        return None
    # the same format with day and month swapped
    twin = best.replace("%m", "%?").replace("%d", "%m").replace("%?", "%d")
    return best, twin if twin != best and twin in shares and _share_read(cells, twin) == read else None


def _unique(cells: Iterable[str]) -> Iterator[str]:
    """Yield each distinct cell once."""
    seen: set[str] = set()
    for cell in cells:
        if cell not in seen:
            seen.add(cell)
            yield cell


def _share(cells: list[str], fits: Callable[[str], object]) -> float:
    return sum(fits(cell) is not None for cell in cells) / len(cells)


def _share_read(cells: list[str], how: str) -> float:
    import pandas as pd

    return float(np.isfinite(as_days(pd.Series(cells, dtype=object), how)).mean())


def _compact(column: Any) -> tuple[str, str | None] | None:
    """Return the format of integers such as 20240131 if all are dates."""
    values = column.dropna()
    if column.dtype.kind not in "iuf" or not len(values) or not values.between(19000101, 21001231).all():
        return None
    return ("%Y%m%d", None) if np.isfinite(as_days(values, "%Y%m%d")).all() else None


def as_days(column: Any, how: str) -> NDArray[np.float64]:
    """Read days since 1970, NaN for other cells. A time without a day is a fraction of a day."""
    import pandas as pd

    if how == STORED:
        moments = pd.to_datetime(column, errors="coerce", utc=True)
    elif how == "%Y%m%d":
        texts = pd.to_numeric(column, errors="coerce").astype("Int64").astype("string")
        moments = pd.to_datetime(texts, errors="coerce", format=how, utc=True)
    else:
        texts = column.map(lambda cell: str(cell).strip(), na_action="ignore")
        moments = pd.to_datetime(texts, errors="coerce", format=how, utc=True)
    seconds = (moments - pd.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64)
    days = seconds / _DAY
    return days % 1.0 if how.startswith(("%H", "%I")) else days


def as_texts(column: Any) -> NDArray[Any]:
    """Read stripped texts (N,), NaN for missing cells. Integers have no decimal point."""
    texts = np.full(len(column), np.nan, dtype=object)
    filled = column.notna().to_numpy()
    texts[filled] = [as_text(value) for value in column[filled]]
    return texts


def as_text(value: Any) -> str:
    """Return a cell as a user would type it, in Unicode form NFC."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return unicodedata.normalize("NFC", str(value).strip())


def shown_cell(value: Any) -> str:
    """Quote a cell for a message, and cut long cells."""
    return repr(cut(as_text(value)))


def check_finite(name: str, values: NDArray[np.float64]) -> None:
    """Raise an error if a column contains infinite numbers."""
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise TableError(
            f"column {name!r} must hold finite numbers; got {values[infinite[0]]} in row {infinite[0] + 1}"
            f"{f' and {len(infinite) - 1} more' if len(infinite) > 1 else ''}. Empty the cell if the value is unknown, "
            f"or pass --drop '{name}'."
        )


def mixed(name: str, column: Any, wrong: NDArray[np.bool_]) -> TableError:
    """Return the error for a numeric column with texts in some cells."""
    rows = np.flatnonzero(wrong)
    text = as_text(column.iloc[rows[0]])
    return TableError(
        f"column {name!r} mixes numbers and texts: row {rows[0] + 1} holds {shown_cell(text)}"
        f"{f', and {len(rows) - 1} more rows hold texts' if len(rows) > 1 else ''}. Correct the cells, pass --missing "
        f"'{cut(text)}' if it means that the value is unknown, or --categories '{name}' if all are names."
    )


def quantiles(column: Any) -> list[float] | None:
    """Return quantiles of a numeric column as a list for fast lookup, or None for other columns."""
    if column.dtype.kind in "mMb":
        return None
    numbers, wrong = as_numbers(column)
    known = numbers[np.isfinite(numbers)]
    if wrong.any() or len(known) < 2 or known.min() == known.max():
        return None
    return np.quantile(known, np.linspace(0.0, 1.0, _QUANTILES), method="inverted_cdf").tolist()


def share_below(grid: list[float], value: float) -> float:
    """Return the share of the column below a value, counting equal cells as half. grid : quantiles of the column."""
    return (bisect_left(grid, value) + bisect_right(grid, value)) / 2 / len(grid)
