"""A pool: a table with labels in some rows. A row with an empty cell in the label column is unlabeled."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from surefoot._validation import FloatArray
from surefoot.pool.notes import Code, Note
from surefoot.pool.table.cells import TableError, as_numbers, as_text, as_texts, check_plain
from surefoot.pool.table.cleaning import make_cleaner
from surefoot.pool.table.columns import ROW_NUMBER, Columns, sort_columns
from surefoot.pool.table.reading import (
    AUTO,
    PLAIN,
    Format,
    check_label_column,
    is_parquet,
    listed,
    read_content,
    read_header,
    read_table,
    sheets_of,
    shown_delimiter,
    text_of,
    written_as,
)

# A label column with more distinct numbers than this holds quantities. The same applies to texts if most differ.
_MOST_CLASSES = 20


@dataclass(frozen=True, eq=False)
class Table:
    """A pool before cleaning: its cells, and the label of each row or None."""

    path: Path
    how: Format
    label: str
    cells: Any
    labels: NDArray[Any]
    classes: list[str]
    notes: tuple[Note, ...] = ()

    @property
    def features(self) -> Any:
        return self.cells.drop(columns=[self.label])

    @property
    def labeled(self) -> NDArray[np.bool_]:
        """(N,) True for labeled rows."""
        return np.array([value is not None for value in self.labels], dtype=bool)


@dataclass(frozen=True, eq=False)
class Pool:
    """A pool ready for training.

    rows : (N, d) cleaned features; labels : (N,) texts or None; classes : sorted texts.
    columns : how the columns of the table are used; values : data frame of the used columns, before cleaning.
    cleaner : the fitted pipeline from the table to `rows`.
    """

    table: Table
    rows: FloatArray
    labels: NDArray[Any]
    classes: list[str]
    columns: Columns
    values: Any
    cleaner: Pipeline

    @property
    def labeled(self) -> NDArray[np.bool_]:
        """(N,) True for labeled rows."""
        return np.array([value is not None for value in self.labels], dtype=bool)

    @property
    def targets(self) -> NDArray[Any]:
        """(n,) labels in the form that a classifier requires."""
        return as_targets(self.labels[self.labeled], self.classes)

    @property
    def notes(self) -> list[Note]:
        return [*self.table.notes, *self.columns.notes]

    @property
    def identifier(self) -> str | None:
        """The column that names the rows, or None."""
        naming = (Code.NAMES_ROWS, Code.NUMBERS_ROWS)
        columns = [name for name, why in self.columns.left_out.items() if why.code in naming]
        return next((name for name in columns if not ROW_NUMBER.search(name)), None)

    @property
    def row_names(self) -> list[str]:
        """Row numbers, with the name of each row if the table has an identifying column."""
        name = self.identifier
        if name is None:
            return [f"row {row + 1}" for row in range(len(self.rows))]
        cells = self.table.cells[name].map(as_text, na_action="ignore")
        return [f"row {row + 1} ({name} {cell})" for row, cell in enumerate(cells)]

    @property
    def shown_cells(self) -> Any:
        """The used columns of the file. Numbers are parsed, dates are as written."""
        shown = self.values.copy()
        for name in self.columns.dates:
            shown[name] = self.table.cells[name].map(str, na_action="ignore")
        return shown

    def subset(self, keep: NDArray[np.intp]) -> Pool:
        """Return some of the rows, with the cleaning of all rows."""
        table = replace(self.table, cells=self.table.cells.iloc[keep], labels=self.table.labels[keep])
        values = self.values.iloc[keep]
        return replace(self, table=table, rows=self.rows[keep], labels=self.labels[keep], values=values)


def read_labeled_table(
    path: str | os.PathLike[str],
    label: str,
    *,
    how: Format = PLAIN,
    classes: Sequence[str] | None = None,
    content: bytes | None = None,
) -> Table:
    """Read a table and its labels.

    classes : all classes, including classes without labels; content : as in `read_table`.
    """
    file = Path(path)
    check_label_column(file, label, how)
    raw = read_content(file) if content is None else content
    asked, how = how, written_as(file, raw, how)
    cells = read_table(file, how, content=raw)
    check_plain(label, cells[label])
    labels = read_labels(cells[label])
    seen = in_order({value for value in labels if value is not None})
    _check_classes(path, label, seen, int(sum(value is not None for value in labels)))
    known = seen
    if classes is not None:
        known = in_order({as_class(name) for name in classes})
        unknown = in_order(set(seen) - set(known))
        if unknown:
            raise TableError(
                f"--classes must name every label in {label!r}; got {listed(known)} without {listed(unknown)}. Add "
                "them, or correct the labels."
            )
    notes = [*_about_reading(file, raw, asked, how), *_about_classes(known)]
    return Table(file, how, label, cells, labels, known, tuple(notes))


def read_labels(column: Any) -> NDArray[Any]:
    """Return (N,) labels as texts, None for empty cells. If all labels are numbers, 1, 1.0 and 01 are one label."""
    texts = as_texts(column)
    filled = np.flatnonzero(column.notna().to_numpy())
    labels = np.full(len(texts), None, dtype=object)
    values, wrong = as_numbers(column)
    inexact = _is_inexact(values)
    if inexact.any() and column.dtype.kind in "iuf":
        raise TableError(
            f"labels that are numbers must be below 2**53; got {column[inexact].iloc[0]} in row "
            f"{np.flatnonzero(inexact)[0] + 1}: beyond, two of them may count as one. Save the column as texts."
        )
    numbers = not wrong.any() and not inexact.any()
    for row in filled:
        labels[row] = as_text(float(values[row])) if numbers else texts[row]
    labels[[row for row in filled if labels[row] == ""]] = None
    return labels


def in_order(names: Iterable[str]) -> list[str]:
    """Sort classes, by their value if all are numbers."""
    texts = list(names)
    values = class_values(texts)
    return [text for _, text in sorted(zip(values, texts, strict=True))]


def class_values(names: Sequence[str]) -> list[Any]:
    """Return classes in the form that a classifier requires and sorts: numbers if all are numbers, else texts."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return list(names)
    if not np.isfinite(numbers).all() or _is_inexact(np.array(numbers)).any():
        return list(names)
    return [int(number) if number.is_integer() else number for number in numbers]


def as_targets(labels: Sequence[str] | NDArray[Any], classes: Sequence[str] | None = None) -> NDArray[Any]:
    """Return labels for a classifier: numbers if all classes (by default, all labels) are numbers, else texts."""
    value = dict(zip(classes, class_values(classes), strict=True)) if classes is not None else None
    values = class_values(list(labels)) if value is None else [value[label] for label in labels]
    texts = bool(values) and isinstance(values[0], str)
    return np.array(values, dtype=object) if texts or not values else np.array(values)


def as_class(text: str) -> str:
    """Return a class named by the user, in the form of `read_labels`."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise TableError(f"--classes must be text; {text!r} contains invalid bytes. Type the class again.")
    try:
        value = float(text)
    except ValueError:
        return as_text(text)
    return as_text(text if _is_inexact(np.array(value)) else value)


def _is_inexact(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return True for large numbers, where float64 does not distinguish neighboring integers."""
    return np.isfinite(values) & (np.abs(values) >= 2.0**53)


def clean(table: Table, columns: Columns | None = None, **options: Any) -> Pool:
    """Sort the columns (options as in `sort_columns`) and fit the cleaning to all rows, labeled and unlabeled."""
    chosen = sort_columns(table.features, **options) if columns is None else columns
    cells = chosen.read(table.cells)
    cleaner = make_cleaner(chosen, cells)
    rows = cleaner.fit_transform(cells)
    return Pool(table, np.ascontiguousarray(rows), table.labels, table.classes, chosen, cells, cleaner)


def clean_with(table: Table, cleaner: Pipeline, columns: Columns) -> Pool:
    """Clean a table with an already fitted cleaning and the column types of that fit."""
    cells = columns.read(table.cells)
    columns = replace(columns, left_out={}, notes=columns.unread(table.cells))
    rows = np.ascontiguousarray(cleaner.transform(cells))
    return Pool(table, rows, table.labels, table.classes, columns, cells, cleaner)


def check_learnable(table: Table) -> None:
    """Raise an error unless there are two classes, a labeled row and an unlabeled row."""
    n_labels, n_rows = int(table.labeled.sum()), len(table.labels)
    if n_labels == 0:
        raise TableError(
            f"some cells of {table.label!r} must be filled: those rows are the labeled ones; all {n_rows} are empty. "
            "Label a few rows, for example with surefoot label."
        )
    if len(table.classes) < 2:
        raise TableError(
            f"the labels in {table.label!r} must show two classes or more; all {n_labels} are {table.classes[0]!r}. "
            "Label a row of another class, or name all classes with --classes."
        )
    if n_labels == n_rows:
        raise TableError(
            f"some cells of {table.label!r} must be empty: those rows are the unlabeled ones; all {n_rows} are filled. "
            "Add rows without a label."
        )


def _check_classes(path: object, label: str, seen: list[str], n_labels: int) -> None:
    numeric = bool(seen) and not isinstance(class_values(seen)[0], str)
    if len(seen) > _MOST_CLASSES and (numeric or len(seen) > 0.5 * n_labels):
        if numeric:
            low, high = np.quantile([float(name) for name in seen], [1 / 3, 2 / 3])
            fix = (
                "group the numbers into classes in a new column, for example three classes of equal size (below "
                f"{low:.4g}, up to {high:.4g}, above)"
            )
        else:
            fix = "group the texts"
        raise TableError(
            f"column {label!r} of {path} must contain classes, got {len(seen)} different "
            f"{'numbers' if numeric else 'texts'} in {n_labels} cells. Pass another column as --label, or {fix}."
        )


def _about_reading(file: Path, content: bytes, asked: Format, how: Format) -> list[Note]:
    """Return notes about a detected delimiter, encoding, sheet or title."""
    if is_parquet(file):
        return []
    notes = []
    sheets = sheets_of(file, content)
    if len(sheets) > 1:
        notes.append(Note(Code.SHEET, file=file.name, sheet=sheets[0], others=sheets[1:]))
    if asked.delimiter is None and how.delimiter not in (None, asked.for_file(file).delimiter):
        notes.append(Note(Code.DELIMITER, file=file.name, delimiter=shown_delimiter(how.delimiter)))
    if asked.encoding == AUTO and how.encoding != "utf-8":
        notes.append(Note(Code.ENCODING, file=file.name, encoding=how.encoding))
    n_above = read_header(file, text_of(file, content), how).n_above
    if n_above:
        notes.append(Note(Code.TITLE, file=file.name, n_lines=n_above, s="s" * (n_above > 1)))
    return notes


def _about_classes(classes: list[str]) -> list[Note]:
    folded: dict[str, list[str]] = {}
    for name in classes:
        seen = "".join(letter for letter in name.casefold() if unicodedata.category(letter) != "Cf")  # zero-width
        folded.setdefault(" ".join(seen.split()), []).append(name)
    return [Note(Code.SIMILAR_CLASSES, names=listed(names)) for names in folded.values() if len(names) > 1]
