"""Which columns of a table can be learned from, and how: numbers, categories, or left out with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.tabular.errors import TableError

# More different texts than this in a column are no categories.
MOST_CATEGORIES = 1000
# From this many on, rare categories are taken together.
SHOWN_CATEGORIES = 30
# A column of which this share are numbers was meant to be one: the rest are mistakes.
_MEANT_AS_NUMBERS = 0.5
# A number so many standard deviations from the mean sets the scale of all distances.
_OUTLIER = 50.0
_ID_NAME = re.compile(r"^(id|uuid|guid|key|index|idx|row|rownum|row_?number|column 1)$|(_| |-)(id|uuid|key)$", re.I)


@dataclass(frozen=True)
class Columns:
    """What a table's columns are used for.

    numbers, categories : names of the columns to learn from.
    left_out : column -> why; asked for, or of no use.
    notes : what the user should know of the others.
    """

    numbers: list[str]
    categories: list[str]
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def used(self) -> list[str]:
        return [*self.numbers, *self.categories]

    def read(self, frame: Any) -> Any:
        """The used columns of a table, numbers as float64 and categories as texts, missing values NaN."""
        import pandas as pd

        missing = [name for name in self.used if name not in frame.columns]
        if missing:
            raise TableError(
                f"the table must have the columns that the model was fitted to; {_listed(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing. It has {_listed(list(frame.columns))}."
            )
        columns: dict[str, Any] = {}
        for name in self.used:
            check_plain(name, frame[name])
        for name in self.numbers:
            values, wrong = as_numbers(frame[name])
            if wrong.any():
                raise _mixed(name, frame[name], wrong)
            _check_finite(name, values)
            columns[name] = values
        for name in self.categories:
            columns[name] = as_texts(frame[name])
        return pd.DataFrame(columns, index=frame.index)


@dataclass
class _Sorting:
    """The columns sorted so far, and what is wrong with others."""

    drop_useless: bool
    numbers: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    useless: dict[str, str] = field(default_factory=dict)

    def reject(self, name: str, why: str) -> None:
        (self.left_out if self.drop_useless else self.useless)[name] = why


def sort_columns(
    frame: Any,
    *,
    drop: Iterable[str] = (),
    categories: Iterable[str] = (),
    drop_useless: bool = False,
) -> Columns:
    """Decide for each column of a frame (without its label) what it is.

    Numbers: all cells are numbers or empty. Categories: texts, at most MOST_CATEGORIES different ones. A column that
    nothing can be learned from (empty, of one value, of too many texts) is an error that names all of them, or is left
    out with drop_useless. Row numbers and identifiers are left out with a note.
    """
    named, asked = list(drop), list(categories)
    unknown = [name for name in [*named, *asked] if name not in frame.columns]
    if unknown:
        raise TableError(
            f"there is no column {_listed(unknown)}. The columns are {_listed(list(frame.columns))}. Correct the name."
        )
    found = _Sorting(drop_useless, left_out=dict.fromkeys(named, "as asked"))
    for name in frame.columns:
        if name not in found.left_out:
            _sort_one(found, name, frame[name], as_category=name in asked)
    if found.useless:
        reasons = "; ".join(f"{name!r} {why}" for name, why in found.useless.items())
        names = ",".join(found.useless)
        raise TableError(
            f"nothing can be learned from {'this column' if len(found.useless) == 1 else 'these columns'}: {reasons}. "
            f"Leave {'it' if len(found.useless) == 1 else 'them'} out with --drop '{names}', or all such columns with "
            "--drop-useless."
        )
    if not found.numbers and not found.categories:
        raise TableError("the table must have a column to learn from besides the label; it has none. Add features.")
    return Columns(found.numbers, found.categories, found.left_out, found.notes)


def _sort_one(found: _Sorting, name: str, column: Any, *, as_category: bool) -> None:
    check_plain(name, column)
    n_missing, n_values = int(column.isna().sum()), int(column.nunique())
    kind = column.dtype.kind
    if n_values == 0:
        found.reject(name, "is empty")
        return
    if kind in "mM":
        raise TableError(
            f"column {name!r} holds dates or times, which are neither numbers nor categories. Turn them into numbers, "
            f"such as days, or pass --drop '{name}'."
        )
    if n_values == 1 and n_missing == 0:
        found.reject(name, f"has one value only, {column.iloc[0]!r}")
        return
    values, wrong = as_numbers(column)
    n_wrong, n_cells = int(wrong.sum()), len(column) - n_missing
    if as_category or n_wrong > (1 - _MEANT_AS_NUMBERS) * n_cells:
        _sort_category(found, name, n_values, n_cells)
        return
    if n_wrong:
        raise _mixed(name, column, wrong)
    _check_finite(name, values)
    if _counts_rows(name, values, n_values):
        found.left_out[name] = "numbers the rows: it says nothing of other rows"
        found.notes.append(f"{name!r} looks like a row number or an identifier and is left out.")
        return
    found.numbers.append(name)
    spread = np.nanstd(values)
    farthest = np.nanmax(np.abs(values - np.nanmean(values))) / spread if spread > 0 else 0.0
    if farthest > _OUTLIER:
        found.notes.append(
            f"{name!r} has a value {farthest:.0f} standard deviations from its mean: all distances are measured "
            "against it. Is it a mistake?"
        )


def _sort_category(found: _Sorting, name: str, n_values: int, n_cells: int) -> None:
    if n_values == n_cells and _ID_NAME.search(name):
        found.left_out[name] = "is different in every row: it says nothing of other rows"
        found.notes.append(f"{name!r} looks like an identifier and is left out.")
    elif n_values > MOST_CATEGORIES:
        found.reject(name, f"has {n_values} different texts, more than the {MOST_CATEGORIES} that can be categories")
    elif n_values == n_cells and n_cells > SHOWN_CATEGORIES:
        found.reject(name, "has a different text in every row")
    else:
        found.categories.append(name)
        if n_values > SHOWN_CATEGORIES:
            found.notes.append(
                f"{name!r} has {n_values} categories: all but the {SHOWN_CATEGORIES - 1} most frequent count as one."
            )


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


def as_numbers(column: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers (N,), NaN where there is none, and which cells are neither empty nor a number."""
    import pandas as pd

    empty = column.isna().to_numpy()
    if column.dtype.kind == "b" or (column.dtype == object and any(isinstance(value, bool) for value in column)):
        return np.full(len(column), np.nan), ~empty  # true and false are names
    if column.dtype.kind in "iuf":
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return values, np.zeros(len(values), dtype=bool)
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return values, np.isnan(values) & ~empty


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


def _counts_rows(name: str, values: NDArray[np.float64], n_values: int) -> bool:
    """Whole numbers, a different one in each row: consecutive ones, or under the name of an identifier."""
    if n_values < len(values) or len(values) < 20 or np.isnan(values).any() or (values != np.round(values)).any():
        return False
    return bool((np.abs(np.diff(values)) == 1).all()) or _ID_NAME.search(name) is not None


def _check_finite(name: str, values: NDArray[np.float64]) -> None:
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise TableError(
            f"column {name!r} must hold finite numbers; got {values[infinite[0]]} in row {infinite[0] + 1}"
            f"{f' and {len(infinite) - 1} more' if len(infinite) > 1 else ''}. Empty the cell if the value is unknown, "
            f"or pass --drop '{name}'."
        )


def _mixed(name: str, column: Any, wrong: NDArray[np.bool_]) -> TableError:
    rows = np.flatnonzero(wrong)
    example = as_text(column.iloc[rows[0]])
    return TableError(
        f"column {name!r} mixes numbers and texts: row {rows[0] + 1} holds {example!r}"
        f"{f', and {len(rows) - 1} more rows hold texts' if len(rows) > 1 else ''}. Correct the cells, pass --missing "
        f"'{example}' if it means that the value is unknown, or --categories '{name}' if all are names."
    )


def _listed(names: list[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
