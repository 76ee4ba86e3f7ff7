"""Types of the columns of a table: numbers, dates, categories or texts. Other columns are ignored with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from surefoot.pool.notes import Code, Note
from surefoot.pool.table.cells import (
    COMMA,
    ISO,
    POINT,
    STORED,
    THOUSANDS,
    TableError,
    as_days,
    as_numbers,
    as_text,
    as_texts,
    check_finite,
    check_plain,
    date_format,
    mixed,
    shown_cell,
    table_commas,
)
from surefoot.pool.table.cells import number_style as style_of
from surefoot.pool.table.reading import listed

# With more categories than this, each is rare and its column of 0 and 1 is uninformative. Names are encoded instead.
MOST_CATEGORIES = 30
# Example of each number style.
_EXAMPLES = {POINT: "1234.5", COMMA: "1.234,5", THOUSANDS: "1,234.5"}
# Large integers are names if float64 keeps less than this share of them distinct.
_TOLD_APART = 0.95
# A column is numeric if at least this share are numbers. The other cells count as missing.
_MEANT_AS_NUMBERS = 0.5
# Below this share, numbers in a text column are treated as names without a note.
_WORTH_A_NOTE = 0.01
# Names of columns that only number the rows.
ROW_NUMBER = re.compile(r"^(index|idx|row|rownum|row_?number|rownames?|column 1|unnamed: ?\d+)$", re.I)
_ID_NAME = re.compile(
    ROW_NUMBER.pattern + r"|(_| |-|\.|^)(id|uuid|guid|key)([ _]?(str|num|no|nr))?$",
    re.I,
)
_CAMEL_ID = re.compile(r"(?<=[a-z])(Id|ID|Key|UUID)$")
_YEAR_NAME = re.compile(r"year|jahr|ann[eé]e|año|^yr", re.I)
# Fewest cells for which a column can be judged different in every row, or in nearly every row.
_FEWEST_CELLS = 20
_EVERY_ROW, _NEARLY = 1.0, 0.95
# Shares of distinct values. Codes with digits may repeat, so a smaller share suffices. Names must differ in most rows.
_CODES, _NAMES = 0.7, 0.9
# Free text has at least this many words on average, and at least this share of distinct texts.
_FEWEST_WORDS, _MOSTLY = 3.0, 0.5
# Training on words requires this many distinct texts, and this many words that occur in two of them.
_FEWEST_TEXTS, _FEWEST_COMMON = 30, 10


@dataclass(frozen=True)
class Columns:
    """How the columns of a table are used.

    numbers, categories, texts : names of the columns to train on; dates : name -> format.
    styles : name -> number style, if it is not 1234.5.
    left_out : column -> reason: dropped by the user, or useless.
    notes : notes about other properties of the columns.
    """

    numbers: list[str]
    categories: list[str]
    dates: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    styles: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, Note] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    @property
    def asked_out(self) -> list[str]:
        """Columns that the user dropped."""
        return [name for name, why in self.left_out.items() if why.code is Code.ASKED]

    @property
    def useless(self) -> dict[str, Note]:
        """Columns without information, with the reason."""
        return {name: why for name, why in self.left_out.items() if why.code is not Code.ASKED}

    @property
    def used(self) -> list[str]:
        return [*self.numbers, *self.dates, *self.categories, *self.texts]

    @property
    def counts(self) -> str:
        """The number of columns of each kind, as text."""
        kinds = {"numbers": self.numbers, "dates": self.dates, "categories": self.categories, "text": self.texts}
        return ", ".join(f"{len(names)} of {kind}" for kind, names in kinds.items() if names)

    def many_categories(self, values: Any) -> list[str]:
        """Return columns with more than `MOST_CATEGORIES` categories. values : the used columns, from `read`."""
        return [name for name in self.categories if values[name].nunique() > MOST_CATEGORIES]

    def stored(self) -> dict[str, Any]:
        """Return plain data for a model file, so that the model reads other tables in the same way."""
        return {name: getattr(self, name).copy() for name in ("numbers", "categories", "dates", "texts", "styles")}

    def read(self, frame: Any) -> Any:
        """Return the used columns of a table: numbers, dates in days, and texts. Missing values are NaN.

        Unreadable cells in a column of numbers or dates count as missing. Raise an error if most are unreadable.
        """
        import pandas as pd

        missing = [name for name in self.used if name not in frame.columns]
        if missing:
            raise TableError(
                f"the table must have the columns that the model was fitted to; {listed(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing. It has {listed(list(frame.columns))}."
            )
        return pd.DataFrame({name: self._read_one(name, frame[name]) for name in self.used}, index=frame.index)

    def unread(self, frame: Any) -> list[Note]:
        """Return a note for each column of numbers or dates with unreadable cells."""
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
                    f"column {name!r} must contain dates in the format of the training table ({self.dates[name]}); got "
                    f"{shown_cell(column.dropna().iloc[0])}. Write them alike, or fit again."
                )
            return days
        if name in self.numbers:
            values, wrong = as_numbers(column, self.styles.get(name, POINT))
            if wrong.sum() > (1 - _MEANT_AS_NUMBERS) * column.notna().sum():
                raise TableError(
                    f"column {name!r} must contain numbers in the format of the training table, such as "
                    f"{_EXAMPLES[self.styles.get(name, POINT)]}; row {np.flatnonzero(wrong)[0] + 1} holds "
                    f"{shown_cell(column[wrong].iloc[0])}. Write them alike, or fit again to a table written like this."
                )
            check_finite(name, values)
            return values
        return as_texts(column)


@dataclass
class _Sorting:
    """The typed columns, and problems with columns. `commas` are decimal or separate thousands."""

    strict: bool
    commas: str
    columns: Columns
    useless: dict[str, Note] = field(default_factory=dict)
    many: dict[str, int] = field(default_factory=dict)

    def reject(self, name: str, why: Note) -> None:
        (self.useless if self.strict else self.columns.left_out)[name] = why

    def check(self) -> None:
        """Raise one error that names all useless columns, or an error if there is no useful column."""
        if self.useless:
            reasons = "; ".join(f"{name!r} ({why})" for name, why in self.useless.items())
            raise TableError(
                f"--strict refuses useless columns: {reasons}. Pass --drop '{','.join(self.useless)}', or omit "
                "--strict to ignore them."
            )
        if not self.columns.used:
            why = "; ".join(f"{name!r} ({why})" for name, why in self.columns.useless.items())
            raise TableError(
                f"the table must have a useful column apart from the label{f', got {why}' if why else ''}. "
                "Add features."
            )

    def sorted(self) -> Columns:
        """Return the columns. Notes about several columns come first."""
        found, notes = self.columns, []
        if found.useless:
            notes.append(Note(Code.LEFT_OUT, reasons=found.useless))
        if self.many:
            notes.append(Note(Code.MANY_CATEGORIES, counts=self.many, most=MOST_CATEGORIES))
        if found.texts:
            notes.append(Note(Code.FREE_TEXT, names=listed(found.texts)))
        return replace(found, notes=[*notes, *found.notes])


def sort_columns(
    frame: Any,
    *,
    drop: Iterable[str] = (),
    categories: Iterable[str] = (),
    texts: Iterable[str] = (),
    strict: bool = False,
) -> Columns:
    """Choose the type of each column of a frame (without its label).

    Numbers and dates: most cells are. The other cells count as missing, with a note. Free text: many words, mostly
    different. Categories: all other texts. A column without information (empty, constant, or identifiers) is ignored
    with a note. With strict, useless and mixed columns raise an error.
    """
    named, asked, prose = list(drop), list(categories), list(texts)
    unknown = [name for name in [*named, *asked, *prose] if name not in frame.columns]
    if unknown:
        raise TableError(
            f"there is no column {listed(unknown)}. The columns are {listed(list(frame.columns))}. Correct the name."
        )
    free = [name for name in frame.columns if name not in (*named, *asked, *prose)]
    found = _Sorting(
        strict, table_commas(frame, free), Columns([], [], left_out=dict.fromkeys(named, Note(Code.ASKED)))
    )
    for name in frame.columns:
        if name not in found.columns.left_out:
            _sort_one(found, name, frame[name], "category" if name in asked else "text" if name in prose else None)
    found.check()
    return found.sorted()


def _sort_one(found: _Sorting, name: str, column: Any, asked: str | None) -> None:
    check_plain(name, column)
    n_values, n_cells = int(column.nunique()), int(column.notna().sum())
    if n_values == 0:
        found.reject(name, Note(Code.EMPTY))
    elif n_values == 1 and n_cells == len(column):
        found.reject(name, Note(Code.CONSTANT, value=shown_cell(column.iloc[0])))
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
    found.columns.dates[name] = how
    if wrong.any():
        if found.strict:
            raise mixed(name, column, wrong)
        found.columns.notes.append(_about_unread(name, column, wrong, how))
    shown = {ISO: "YYYY-MM-DD", STORED: "dates"}.get(how, how)
    found.columns.notes.append(Note(Code.DATES, name=name, read_as=shown, other=other))
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
    known = values[np.isfinite(values)]
    if (np.abs(known) >= 2.0**53).any() and len(np.unique(known)) < _TOLD_APART * column.nunique():
        return False
    if counts_rows(name, values):
        found.reject(name, Note(Code.NUMBERS_ROWS))
        return True
    if len(np.unique(known)) == 1 and not np.isnan(values).any():
        found.reject(name, Note(Code.CONSTANT, value=shown_cell(column.iloc[0])))
        return True
    found.columns.numbers.append(name)
    if n_wrong:
        found.columns.notes.append(_about_unread(name, column, wrong, None))
    if style != POINT:
        found.columns.styles[name] = style
        example = as_text(column[column.astype(str).str.contains(r"[.,%€£$]")].iloc[0])
        read = as_text(float(as_numbers(column[column == example], style)[0][0])) if (column == example).any() else ""
        found.columns.notes.append(Note(Code.NUMBER_STYLE, name=name, example=example, read=read))
    return True


def _sort_texts(found: _Sorting, name: str, column: Any) -> None:
    import pandas as pd

    texts = pd.Series(as_texts(column)).dropna()
    if is_free_text(texts):
        found.columns.texts.append(name)
        return
    if identifies(name, texts):
        found.reject(name, Note(Code.NAMES_ROWS, n_texts=texts.nunique(), n_rows=len(texts)))
        return
    values, wrong = as_numbers(column, style_of(column, found.commas))
    share = np.isfinite(values).sum() / len(texts)
    if share > 0 and found.strict:
        raise mixed(name, column, wrong)
    if share >= _WORTH_A_NOTE:
        found.columns.notes.append(Note(Code.TEXTS_AND_NUMBERS, name=name, share=share))
    _add_category(found, name, int(texts.nunique()))


def _add_text(found: _Sorting, name: str, column: Any) -> None:
    import pandas as pd

    texts = pd.Series(as_texts(column)).dropna()
    if common_words(texts.tolist()) < 2:
        raise TableError(
            f"--text must name columns in which words occur more than once; in {name!r} hardly any does. Leave it out."
        )
    found.columns.texts.append(name)


def _add_category(found: _Sorting, name: str, n_values: int) -> None:
    found.columns.categories.append(name)
    if n_values > MOST_CATEGORIES:
        found.many[name] = n_values


def _about_unread(name: str, column: Any, wrong: Any, how: str | None) -> Note:
    rows = np.flatnonzero(wrong)
    kind, cell = "numbers" if how is None else "dates", shown_cell(column.iloc[rows[0]])
    return Note(Code.UNREAD_CELLS, name=name, kind=kind, row=int(rows[0]) + 1, cell=cell, n_cells=len(rows))


def has_id_name(name: str) -> bool:
    """Return True if a column has a typical name of an identifier."""
    return bool(_ID_NAME.search(name) or _CAMEL_ID.search(name))


def counts_rows(name: str, values: NDArray[np.float64]) -> bool:
    """Return True if a numeric column numbers the rows.

    It must contain integers that nearly all differ, and either cover a range or have the name of an identifier.
    """
    known = values[np.isfinite(values)]
    if len(known) < _FEWEST_CELLS or (known != np.round(known)).any():
        return False
    n_values = len(np.unique(known))
    if has_id_name(name):
        return n_values >= _NEARLY * len(known)
    if n_values < len(values) or (_YEAR_NAME.search(name) and 1000 <= known.min() <= known.max() <= 3000):
        return False
    return bool(known.max() - known.min() + 1 <= n_values / _NEARLY)


def identifies(name: str, texts: Any) -> bool:
    """Return True if the texts of a column, without missing ones, identify single rows: ids, codes, names."""
    n_cells, n_values = len(texts), texts.nunique()
    if n_cells < _FEWEST_CELLS:
        return bool(n_values == n_cells and has_id_name(name))
    share = n_values / n_cells
    if has_id_name(name) and share >= _CODES:
        return True
    coded = texts.str.contains(r"\d").mean() > 0.5
    return bool(n_values > _FEWEST_TEXTS and share >= (_CODES if coded else _NAMES))


def is_free_text(texts: Any) -> bool:
    """Return True if the texts of a column, without missing ones, are long, mostly differ, and share some words."""
    n_values = texts.nunique()
    if n_values <= _FEWEST_TEXTS or n_values < _MOSTLY * len(texts):
        return False
    words = texts.str.findall(r"[^\W\d_]{2,}").str.len()
    if words.mean() < _FEWEST_WORDS:
        return False
    return common_words(texts.drop_duplicates().iloc[:5000].tolist()) >= _FEWEST_COMMON


def common_words(texts: list[str]) -> int:
    """Return the number of words that occur in at least two texts."""
    analyse = TfidfVectorizer(strip_accents="unicode").build_analyzer()
    seen: dict[str, int] = {}
    for text in texts:
        for word in set(analyse(text)):
            seen[word] = seen.get(word, 0) + 1
    return sum(count > 1 for count in seen.values())
