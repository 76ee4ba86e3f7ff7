"""Labels written back into the table they belong to; every other byte of a text file stays."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from surefoot._errors import import_extra
from surefoot._files import write_bytes
from surefoot.pool.table.cells import as_text
from surefoot.pool.table.errors import TableError
from surefoot.pool.table.pool import Table, as_class
from surefoot.pool.table.reading import is_parquet, read_header
from surefoot.pool.table.text_file import TextRecords, codec_of, split_record


class LabelWriter(ABC):
    """The label column of a table's file. A label is on the disk when `write` returns, or the file is as before.

    content : the bytes of the file that the table was read from. Labels go to its rows only while the file holds them.
    """

    def __init__(self, table: Table, content: bytes) -> None:
        self.table = table
        self.path: Path = table.path
        self._content = content

    def write(self, row: int, label: str | None) -> None:
        """Fill the label of a row (from 0), or empty it."""
        self.write_all({row: label})

    def write_all(self, labels: Mapping[int, str | None]) -> None:
        """Fill or empty the labels of several rows: all of them are on the disk afterwards, or none."""
        try:
            found = self.path.read_bytes()
        except OSError:
            found = None
        if found != self._content:
            raise TableError(
                f"{self.path} was changed by another program while rows were being labeled: the answer was not "
                "written. Start again; all earlier answers are in the file, unless that program took them out."
            )
        content, keep = self._edited(labels)
        write_bytes(self.path, content)
        self._content = content
        keep()

    def bytes_with(self, labels: Mapping[int, str | None]) -> bytes:
        """The bytes of the file as it would be with other labels; nothing is written."""
        return self._edited(labels)[0]

    @abstractmethod
    def _edited(self, labels: Mapping[int, str | None]) -> tuple[bytes, Callable[[], None]]:
        """The bytes of the file with other labels, and what to do once they are written."""


class TextWriter(LabelWriter):
    """CSV and TSV: the cell is written anew, all others as they are."""

    def __init__(self, table: Table, content: bytes) -> None:
        super().__init__(table, content)
        how = table.how.for_file(self.path)
        self._codec = codec_of(how.encoding, content)
        text = content.decode(self._codec)
        if text.encode(self._codec) != content:
            raise TableError(
                f"{self.path} cannot be written back as it is in {how.encoding}: other rows would change. Save it as "
                "UTF-8 first."
            )
        self._records = TextRecords(text, how.delimiter or ",")
        names, _ = read_header(self.path, content, how)
        self._column = names.index(table.label)
        self._check_classes()
        self._check_records()

    def _check_classes(self) -> None:
        for name in self.table.classes:
            try:
                name.encode(self._codec)
            except UnicodeEncodeError as error:
                raise TableError(
                    f"each class must be text in {self._codec}, as {self.path} is; {name!r} is not. Save the table as "
                    "UTF-8, or rename the class."
                ) from error

    def _check_records(self) -> None:
        """The records found here must be those that the table was read as, by their number and their labels."""
        line = self._records.unclosed()
        empty = set(self.table.how.empty)
        here = [None if text in empty else text for text in self._records.column(self._column)]
        cells = self.table.cells[self.table.label]
        there = [value if known else None for value, known in zip(cells, cells.notna(), strict=True)]
        if line is not None or here != there:
            where = "" if line is None else f" A quote in the record that begins in line {line} is never closed."
            raise TableError(
                f"{self.path} is read in two ways, {len(here)} or {len(there)} rows with other labels: nothing can be "
                f"written to it safely.{where} Save it anew with another program."
            )

    def _edited(self, labels: Mapping[int, str | None]) -> tuple[bytes, Callable[[], None]]:
        # the header is the first record
        new = self._records.replaced({row + 1: self._record(row + 1, label or "") for row, label in labels.items()})

        def keep() -> None:
            self._records = new

        return new.text.encode(self._codec), keep

    def _record(self, at: int, label: str) -> str:
        """A record with another label."""
        new = self._records.with_cell(at, self._column, label)
        expected = self._records.cells(at)
        expected[self._column] = label
        if split_record(new, self._records.delimiter) != expected:
            raise TableError(
                f"row {at} of {self.path} cannot be changed without harm to its other cells: the answer was not "
                "written. Save the table anew with another program."
            )
        return new


class ParquetWriter(LabelWriter):
    """Parquet: the label column is replaced, in its own type; an empty one may become a column of texts."""

    def __init__(self, table: Table, content: bytes) -> None:
        pa = import_extra("pyarrow", "cli", "reading tables")
        pq = import_extra("pyarrow.parquet", "cli", "reading tables")
        super().__init__(table, content)
        self._arrow = pq.read_table(pa.BufferReader(content))
        self._at = self._arrow.column_names.index(table.label)
        self._field = self._arrow.schema.field(self._at)
        unfit = [name for name in table.classes if not self._holds(name)]
        if unfit and table.labeled.any():
            raise TableError(
                f"column {table.label!r} of {self.path} is of type {self._field.type}, which cannot hold the class "
                f"{unfit[0]!r}. Name classes that it can hold, or save the column as texts."
            )
        if unfit:
            self._field = self._field.with_type(pa.string())
            empty = pa.nulls(len(self._arrow), pa.string())
            self._arrow = self._arrow.set_column(self._at, self._field, empty)

    def _edited(self, labels: Mapping[int, str | None]) -> tuple[bytes, Callable[[], None]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        column, chunks, at = self._arrow.column(self._at), [], 0
        for row in sorted(labels):
            chunks += [*column.slice(at, row - at).chunks, self._typed(labels[row])]
            at = row + 1
        whole = pa.chunked_array([*chunks, *column.slice(at).chunks], column.type)
        if pa.types.is_dictionary(self._field.type):
            whole = whole.unify_dictionaries()
        new = self._arrow.set_column(self._at, self._field, whole.combine_chunks())
        buffer = io.BytesIO()
        pq.write_table(new, buffer)

        def keep() -> None:
            self._arrow = new

        return buffer.getvalue(), keep

    def _typed(self, label: str | None) -> Any:
        """An array of one label in the type of the column."""
        import pyarrow as pa

        kind = self._field.type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        value = pa.array([label], pa.string()).cast(plain)
        return value.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else value

    def _holds(self, label: str) -> bool:
        """Whether the column's type can hold a class, so that it is read back as that class."""
        import pyarrow as pa

        try:
            stored = self._typed(label)[0].as_py()
        except (pa.ArrowException, ValueError):
            return False
        return stored is not None and label in (as_text(stored), as_class(as_text(stored)))


def label_writer(table: Table, content: bytes) -> LabelWriter:
    """The writer for a table that was read from these bytes."""
    return ParquetWriter(table, content) if is_parquet(table.path) else TextWriter(table, content)
