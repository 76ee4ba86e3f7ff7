"""What the columns of a table are learned from as: numbers, dates, categories, texts; or left out with a reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from surefoot.pool.table.cells import (
    POINT,
    THOUSANDS,
    as_numbers,
    as_text,
    as_texts,
    check_finite,
    check_plain,
    mixed,
    shown_cell,
    table_commas,
)
from surefoot.pool.table.cells import number_style as style_of
from surefoot.pool.table.dates import ISO, STORED, as_days, date_format
from surefoot.pool.table.errors import TableError
from surefoot.pool.table.kinds import counts_rows, identifies, is_free_text
from surefoot.pool.table.reading import listed
from surefoot.pool.table.texts import common_words

# From this many on, rare categories are taken together.
SHOWN_CATEGORIES = 30
# A column of which this share are numbers was meant to be one: the rest count as missing.
_MEANT_AS_NUMBERS = 0.5
# Fewer numbers than this among texts are names that look like numbers.
_WORTH_A_NOTE = 0.01


@dataclass(frozen=True)
class Columns:
    """What a table's columns are used for.

    numbers, categories, texts : names of the columns to learn from; dates : name -> format.
    styles : name -> how its numbers are written, where that is not 1234.5.
    left_out : column -> why; asked for, or of no use.
    notes : what the user should know of the others.
    """

    numbers: list[str]
    categories: list[str]
    dates: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    styles: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def used(self) -> list[str]:
        return [*self.numbers, *self.dates, *self.categories, *self.texts]

    @property
    def counts(self) -> str:
        """How many of each kind, in words."""
        kinds = {"numbers": self.numbers, "dates": self.dates, "categories": self.categories, "text": self.texts}
        return ", ".join(f"{len(names)} of {kind}" for kind, names in kinds.items() if names)

    def stored(self) -> dict[str, Any]:
        """What a model must keep to read another table alike, as plain data."""
        kept = asdict(self)
        return {name: kept[name] for name in ("numbers", "categories", "dates", "texts", "styles")}

    def read(self, frame: Any) -> Any:
        """The used columns of a table: numbers, dates in days, and texts; missing values are NaN.

        Cells of a column of numbers or dates that are none count as missing, unless most of its cells are.
        """
        import pandas as pd

        missing = [name for name in self.used if name not in frame.columns]
        if missing:
            raise TableError(
                f"the table must have the columns that the model was fitted to; {listed(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing. It has {listed(list(frame.columns))}."
            )
        return pd.DataFrame({name: self._read_one(name, frame[name]) for name in self.used}, index=frame.index)

    def unread(self, frame: Any) -> list[str]:
        """A sentence for each column of numbers or dates with cells that are none."""
        notes = []
        for name in [*self.numbers, *self.dates]:
            wrong = np.isnan(np.asarray(self._read_one(name, frame[name]), dtype=np.float64)) & frame[name].notna()
            if wrong.any():
                notes.append(_about_unread(name, frame[name], wrong.to_numpy(), self.dates.get(name)))
        return notes

    def _read_one(self, name: str, column: Any) -> Any:
        check_plain(name, column)
        if name in self.dates:
            days = as_days(column, self.dates[name])
            if np.isnan(days).sum() - column.isna().sum() > (1 - _MEANT_AS_NUMBERS) * column.notna().sum():
                raise TableError(
                    f"column {name!r} must hold dates such as the table of the fit had ({self.dates[name]}); got "
                    f"{shown_cell(column.dropna().iloc[0])}. Write them alike, or fit again."
                )
            return days
        if name in self.numbers:
            values, wrong = as_numbers(column, self.styles.get(name, POINT))
            if wrong.sum() > (1 - _MEANT_AS_NUMBERS) * column.notna().sum():
                raise mixed(name, column, wrong)
            check_finite(name, values)
            return values
        return as_texts(column)


@dataclass
class _Sorting:
    """The columns sorted so far, and what is wrong with others; `commas` are decimal or separate thousands."""

    strict: bool
    commas: str = THOUSANDS
    numbers: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    dates: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    styles: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    useless: dict[str, str] = field(default_factory=dict)
    many: dict[str, int] = field(default_factory=dict)

    def reject(self, name: str, why: str) -> None:
        (self.useless if self.strict else self.left_out)[name] = why

    def check(self) -> None:
        """Refuse useless columns, all at once, and a table without any other."""
        if self.useless:
            reasons = "; ".join(f"{name!r} {why}" for name, why in self.useless.items())
            one = len(self.useless) == 1
            raise TableError(
                f"nothing can be learned from {'this column' if one else 'these columns'}: {reasons}. "
                f"Leave {'it' if one else 'them'} out with --drop '{','.join(self.useless)}', or all such columns by "
                "leaving out --strict."
            )
        if not (self.numbers or self.categories or self.dates or self.texts):
            why = "; ".join(f"{name!r} {why}" for name, why in self.left_out.items() if why != AS_ASKED)
            raise TableError(
                "the table must have a column to learn from besides the label; it has none"
                f"{f': {why}' if why else ''}. Add features."
            )

    def columns(self) -> Columns:
        useless = [name for name, why in self.left_out.items() if why != AS_ASKED]
        notes = [f"left out: {'; '.join(f'{name!r} {self.left_out[name]}' for name in useless)}."] if useless else []
        if self.many:
            shown = ", ".join(f"{name!r} ({n})" for name, n in self.many.items())
            notes.append(f"all but the {SHOWN_CATEGORIES - 1} most frequent categories count as one in {shown}.")
        if self.texts:
            notes.append(f"read by its words, as free text: {listed(self.texts)} (--categories or --drop changes it).")
        return Columns(
            self.numbers,
            self.categories,
            self.dates,
            self.texts,
            self.styles,
            self.left_out,
            [*notes, *self.notes],
        )


AS_ASKED = "as asked"


def sort_columns(
    frame: Any,
    *,
    drop: Iterable[str] = (),
    categories: Iterable[str] = (),
    texts: Iterable[str] = (),
    strict: bool = False,
) -> Columns:
    """Decide for each column of a frame (without its label) what it is.

    Numbers, dates: most cells are; others count as missing, with a note. Free text: many words, mostly different.
    Categories: all other texts. A column that nothing can be learned from (empty, of one value, of identifiers) is left
    out with a note, or, with strict, is an error that names all of them; so are mixed columns then.
    """
    named, asked, prose = list(drop), list(categories), list(texts)
    unknown = [name for name in [*named, *asked, *prose] if name not in frame.columns]
    if unknown:
        raise TableError(
            f"there is no column {listed(unknown)}. The columns are {listed(list(frame.columns))}. Correct the name."
        )
    free = [name for name in frame.columns if name not in (*named, *asked, *prose)]
    found = _Sorting(strict, table_commas(frame, free), left_out=dict.fromkeys(named, AS_ASKED))
    for name in frame.columns:
        if name not in found.left_out:
            _sort_one(found, name, frame[name], "category" if name in asked else "text" if name in prose else None)
    found.check()
    return found.columns()


def _sort_one(found: _Sorting, name: str, column: Any, asked: str | None) -> None:
    check_plain(name, column)
    n_values, n_cells = int(column.nunique()), int(column.notna().sum())
    if n_values == 0:
        found.reject(name, "is empty")
    elif n_values == 1 and n_cells == len(column):
        found.reject(name, f"has one value only, {shown_cell(column.iloc[0])}")
    elif asked == "category":
        _add_category(found, name, n_values)
    elif asked == "text":
        _add_text(found, name, column)
    elif not _sort_dates(found, name, column) and not _sort_numbers(found, name, column):
        _sort_texts(found, name, column)


def _sort_dates(found: _Sorting, name: str, column: Any) -> bool:
    known = date_format(column)
    if known is None:
        return False
    how, other = known
    days = as_days(column, how)
    wrong = np.isnan(days) & column.notna().to_numpy()
    found.dates[name] = how
    if wrong.any():
        if found.strict:
            raise mixed(name, column, wrong)
        found.notes.append(_about_unread(name, column, wrong, how))
    doubt = f", though {other} would fit as well" if other else ""
    shown = {ISO: "YYYY-MM-DD", STORED: "dates"}.get(how, how)
    found.notes.append(f"{name!r} holds dates or times (read as {shown}{doubt}).")
    return True


def _sort_numbers(found: _Sorting, name: str, column: Any) -> bool:
    style = style_of(column, found.commas)
    values, wrong = as_numbers(column, style)
    n_wrong = int(wrong.sum())
    if n_wrong > (1 - _MEANT_AS_NUMBERS) * int(column.notna().sum()):
        return False
    if n_wrong and found.strict:
        raise mixed(name, column, wrong)
    check_finite(name, values)
    if counts_rows(name, values):
        found.reject(name, "numbers the rows")
        return True
    if len(np.unique(values[np.isfinite(values)])) == 1 and not np.isnan(values).any():
        found.reject(name, f"has one value only, {shown_cell(column.iloc[0])}")
        return True
    found.numbers.append(name)
    if n_wrong:
        found.notes.append(_about_unread(name, column, wrong, None))
    if style != POINT:
        found.styles[name] = style
        example = as_text(column[column.astype(str).str.contains(r"[.,%€£$]")].iloc[0])
        read = as_text(float(as_numbers(column[column == example], style)[0][0])) if (column == example).any() else ""
        found.notes.append(f"{name!r} writes its numbers as {example!r}, read as {read}.")
    return True


def _sort_texts(found: _Sorting, name: str, column: Any) -> None:
    import pandas as pd

    texts = pd.Series(as_texts(column)).dropna()
    if is_free_text(texts):
        found.texts.append(name)
        return
    if identifies(name, texts):
        found.reject(name, f"names the rows ({texts.nunique()} different texts in {len(texts)})")
        return
    values, wrong = as_numbers(column, style_of(column, found.commas))
    share = np.isfinite(values).sum() / len(texts)
    if share > 0 and found.strict:
        raise mixed(name, column, wrong)
    if share >= _WORTH_A_NOTE:
        found.notes.append(
            f"{name!r} holds texts and numbers ({share:.0%}); most are texts, so that all count as such."
        )
    _add_category(found, name, int(texts.nunique()))


def _add_text(found: _Sorting, name: str, column: Any) -> None:
    import pandas as pd

    texts = pd.Series(as_texts(column)).dropna()
    if common_words(texts.tolist()) < 2:
        raise TableError(
            f"--text must name columns in which words occur more than once; in {name!r} hardly any does. Leave it out."
        )
    found.texts.append(name)


def _add_category(found: _Sorting, name: str, n_values: int) -> None:
    found.categories.append(name)
    if n_values > SHOWN_CATEGORIES:
        found.many[name] = n_values


def _about_unread(name: str, column: Any, wrong: Any, how: str | None) -> str:
    rows = np.flatnonzero(wrong)
    kind = "numbers" if how is None else "dates"
    more = f" and {len(rows) - 1} more cells" if len(rows) > 1 else ""
    return (
        f"{name!r} holds {kind}, but row {rows[0] + 1} holds {shown_cell(column.iloc[rows[0]])}: it{more} "
        f"count{'s' * (len(rows) == 1)} as missing."
    )
