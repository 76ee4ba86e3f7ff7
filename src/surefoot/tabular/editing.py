"""Labels written back into the table they belong to, one at a time; every other byte of a text file stays."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from surefoot._files import whole_file, write_bytes
from surefoot.tabular.errors import TableError
from surefoot.tabular.reading import Format


class LabelWriter(ABC):
    """The label column of a table's file. A label is on the disk when `write` returns, or the file is as before."""

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        self.label = label
        self._stamp = self._state()

    def write(self, row: int, label: str | None) -> None:
        """Fill the label of a row (from 0), or empty it."""
        if self._state() != self._stamp:
            raise TableError(
                f"{self.path} was changed by another program while rows were being labeled: the answer was not "
                "written. Start again; all earlier answers are in the file."
            )
        self._write(row, label)
        self._stamp = self._state()

    def _state(self) -> tuple[int, int]:
        found = self.path.stat()
        return found.st_mtime_ns, found.st_size

    @abstractmethod
    def _write(self, row: int, label: str | None) -> None: ...


class TextWriter(LabelWriter):
    """CSV and TSV: the line of the row is written anew, all others as they are."""

    def __init__(self, path: Path, label: str, how: Format) -> None:
        super().__init__(path, label)
        self._how = how.for_file(path)
        with path.open(encoding=how.encoding, newline="") as file:
            self._lines = list(file)
        spans = self._spans()
        header = [name.strip().lstrip("\ufeff") for name in self._cells(spans[0])]
        self._column = header.index(label)
        self._rows = spans[1:]

    def _spans(self) -> list[tuple[int, int]]:
        """First and last line, exclusive, of each record; blank lines are none."""
        spans, start = [], 0
        records = csv.reader(self._lines, delimiter=self._how.delimiter or ",")
        for record in records:
            if record:
                spans.append((start, records.line_num))
            start = records.line_num
        return spans

    def _cells(self, span: tuple[int, int]) -> list[str]:
        return next(csv.reader(self._lines[slice(*span)], delimiter=self._how.delimiter or ","))

    def _write(self, row: int, label: str | None) -> None:
        span = self._rows[row]
        old = self._lines[slice(*span)]
        cells = self._cells(span)
        cells[self._column] = label or ""
        last = old[-1]
        ending = last[len(last.rstrip("\r\n")) :]
        text = io.StringIO()
        csv.writer(text, delimiter=self._how.delimiter or ",", lineterminator=ending).writerow(cells)
        # a record keeps its number of lines, so that the spans stay true: the cells are the same but for the label
        new = [text.getvalue(), *[""] * (len(old) - 1)]
        self._lines[slice(*span)] = new
        try:
            write_bytes(self.path, "".join(self._lines).encode(self._how.encoding))
        except BaseException:
            self._lines[slice(*span)] = old
            raise


class ParquetWriter(LabelWriter):
    """Parquet: the label column is replaced, in its own type."""

    def __init__(self, path: Path, label: str) -> None:
        import pyarrow.parquet as pq

        super().__init__(path, label)
        self._table = pq.read_table(path)

    def _write(self, row: int, label: str | None) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        at = self._table.column_names.index(self.label)
        field = self._table.schema.field(at)
        values = self._table.column(at).to_pylist()
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        values[row] = None if label is None else _typed(label, kind)
        new = self._table.set_column(at, field, pa.array(values, type=kind).cast(field.type))
        with whole_file(self.path) as part:
            pq.write_table(new, part)
        self._table = new


def label_writer(path: Path, label: str, how: Format) -> LabelWriter:
    """The writer for a file, by the end of its name."""
    return ParquetWriter(path, label) if path.suffix.lower() == ".parquet" else TextWriter(path, label, how)


def _typed(label: str, kind: Any) -> Any:
    """A label in the type of a Parquet column."""
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return label.lower() in ("true", "1")
    if pa.types.is_integer(kind):
        return int(label)
    return float(label) if pa.types.is_floating(kind) else label
