"""Write labels back into their table. In a text file, all other bytes stay the same."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot._errors import import_extra
from surefoot._files import write_bytes
from surefoot.pool.table.cells import TableError, as_text
from surefoot.pool.table.pool import Table, as_class
from surefoot.pool.table.reading import TextRecords, codec_of, is_parquet, is_workbook, read_header, split_record


class LabelWriter(ABC):
    """The label column of a table's file.

    content : bytes of the file from which the table was read. Labels are written only if the file is unchanged.
    """

    def __init__(self, table: Table, content: bytes) -> None:
        self.table = table
        self.path: Path = table.path
        self._content = content

    def write(self, labels: Mapping[int, str | None]) -> None:
        """Fill or empty the labels of rows (from 0). Afterwards all labels are on disk, or none."""
        try:
            found = self.path.read_bytes()
        except OSError:
            found = None
        if found != self._content:
            raise TableError(
                f"{self.path} was changed by another program: no label was written. Run the command again; all answers "
                "are in the store."
            )
        write_bytes(self.path, self.bytes_with(labels))

    @abstractmethod
    def bytes_with(self, labels: Mapping[int, str | None]) -> bytes:
        """Return the bytes of the file with changed labels. Nothing is written."""


class TextWriter(LabelWriter):
    """Write labels to CSV and TSV. Only the label cells change."""

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
        header = read_header(self.path, content, how)
        self._records = TextRecords(text, how.delimiter or ",", header.n_above)
        self._column = header.names.index(table.label)
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
        """Raise an error if the records found here differ from the table in number or labels."""
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

    def bytes_with(self, labels: Mapping[int, str | None]) -> bytes:
        # record 0 is the header
        new = {row + 1: self._record(row + 1, label or "") for row, label in labels.items()}
        return self._records.text_with(new).encode(self._codec)

    def _record(self, at: int, label: str) -> str:
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
    """Write labels to Parquet. The label column keeps its type; an empty column may become a column of texts."""

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
            self._field = pa.field(self._field.name, pa.string())
            empty = pa.nulls(len(self._arrow), pa.string())
            self._arrow = _with_pandas_text(self._arrow.set_column(self._at, self._field, empty), table.label)

    def bytes_with(self, labels: Mapping[int, str | None]) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        column, chunks, at = self._arrow.column(self._at), [], 0
        for row in sorted(labels):
            chunks += [*column.slice(at, row - at).chunks, self._typed(labels[row])]
            at = row + 1
        whole = pa.chunked_array([*chunks, *column.slice(at).chunks], column.type)
        if pa.types.is_dictionary(self._field.type):
            whole = whole.unify_dictionaries()
        buffer = io.BytesIO()
        pq.write_table(self._arrow.set_column(self._at, self._field, whole.combine_chunks()), buffer)
        return buffer.getvalue()

    def _typed(self, label: str | None) -> Any:
        """Return an array of one label in the type of the column."""
        import pyarrow as pa

        kind = self._field.type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        value = pa.array([label], pa.string()).cast(plain)
        return value.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else value

    def _holds(self, label: str) -> bool:
        """Return True if the column's type can store a class and read it back unchanged."""
        import pyarrow as pa

        try:
            stored = self._typed(label)[0].as_py()
        except (pa.ArrowException, ValueError):
            return False
        return stored is not None and label in (as_text(stored), as_class(as_text(stored)))


def _with_pandas_text(arrow: Any, name: str) -> Any:
    """Return a table whose pandas metadata declare a column as text. With its old type, pandas could not read it."""
    metadata = dict(arrow.schema.metadata or {})
    if b"pandas" in metadata:
        about = json.loads(metadata[b"pandas"])
        for column in about["columns"]:
            if column.get("field_name") == name:
                column |= {"pandas_type": "unicode", "numpy_type": "object", "metadata": None}
        metadata[b"pandas"] = json.dumps(about).encode()
    return arrow.replace_schema_metadata(metadata)


def label_writer(table: Table, content: bytes) -> LabelWriter:
    """Return the writer for a table that was read from these bytes."""
    if is_workbook(table.path):  # saving a workbook would lose its charts and the values of its formulas
        raise TableError(
            f"labels must be written to a .csv, .tsv or .parquet table; {table.path.name} is a workbook. Save the "
            "sheet as .csv and label that file, or label the workbook with surefoot serve and write the labels to "
            "another file with surefoot export --out."
        )
    return ParquetWriter(table, content) if is_parquet(table.path) else TextWriter(table, content)
