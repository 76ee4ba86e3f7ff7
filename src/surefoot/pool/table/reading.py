"""Read tables from CSV, TSV, Excel and Parquet files. Cells keep their written form."""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._errors import FileError, first_line, import_extra
from surefoot._printing import cut
from surefoot.pool.table.cells import TableError

# The text of a table's file: its encoding, and the positions of its records and cells.

MARK = "\ufeff"  # the byte order mark, decoded
AUTO = "auto"  # detect the encoding
# Number of bytes searched for UTF-16 without a mark. In UTF-16, at least this share of every other byte is zero.
_LOOKED_AT, _MOSTLY_ZERO = 1 << 16, 0.6
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_UTF8_LETTER = re.compile(rb"[\xc3-\xf4][\x80-\xbf]")
_WIDE = {"utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)}


def codec_of(encoding: str, content: bytes) -> str:
    """Return a codec that reads a byte order mark as a character, and writes a mark only if the file had one.

    A mark of UTF-16 or UTF-32 cannot occur in UTF-8. It determines the encoding even if UTF-8 was requested.
    """
    name = codecs.lookup(recognised(content) if encoding == AUTO else encoding).name
    if name in {"utf-8", "utf-8-sig"}:
        # the mark of UTF-32 begins with the mark of UTF-16
        name = next((wide for wide in ("utf-32", "utf-16") if content.startswith(_WIDE[wide])), name)
    if name in _WIDE:
        little, big = _WIDE[name]
        native = "le" if sys.byteorder == "little" else "be"
        return f"{name}-{'le' if content.startswith(little) else 'be' if content.startswith(big) else native}"
    return "utf-8" if name == "utf-8-sig" else name


def recognised(content: bytes) -> str:
    """Detect the encoding of a text: UTF-8 if valid, UTF-16 by its zero bytes, otherwise Windows-1252 or Latin-1.

    A text that contains valid UTF-8 letters or control characters is a damaged file, not Latin-1.
    """
    try:
        content.decode()
    except UnicodeDecodeError:
        pass
    else:
        if b"\0" not in content[:_LOOKED_AT]:
            return "utf-8"
    start = content[: _LOOKED_AT // 2 * 2]
    if not content.startswith(_WIDE["utf-16"]):
        for name, zeros, letters in (("utf-16-le", start[1::2], start[::2]), ("utf-16-be", start[::2], start[1::2])):
            if zeros.count(0) > _MOSTLY_ZERO * len(zeros) and letters.count(0) < len(letters) / 10:
                return name
    if _CONTROLS.search(content) or _UTF8_LETTER.search(content):
        return "utf-8"
    try:
        content.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


@contextmanager
def cells_of_any_length() -> Iterator[None]:
    """Lift the limit of 131,072 characters per cell in Python's csv module."""
    before = csv.field_size_limit(sys.maxsize if sys.maxsize < 2**31 else 2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


class TextRecords:
    """The records of a text table, as spans of its text. Blank lines are not records. The header is the first record.

    n_above : number of records above the header, such as a title, which are skipped.

    Cells follow the rules of Python's csv module and Arrow. A cell is quoted if it begins with a quote. A quote inside
    is doubled. Lines end at a line feed, a carriage return, or both.
    """

    def __init__(self, text: str, delimiter: str, n_above: int = 0) -> None:
        self.text = text
        self.delimiter = delimiter
        self.n_above = n_above
        start = len(MARK) if text.startswith(MARK) else 0
        starts, ends = [], []
        self._line_ends = start + np.cumsum([len(line) for line in io.StringIO(text[start:], newline="")])
        with cells_of_any_length():
            records = csv.reader(io.StringIO(text[start:], newline=""), delimiter=delimiter)
            for record in records:
                end = int(self._line_ends[records.line_num - 1])
                if record:
                    starts.append(start)
                    ends.append(end)
                start = end
        self._starts = np.array(starts[n_above:], dtype=np.int64)
        self._ends = np.array(ends[n_above:], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._starts)

    def record(self, at: int) -> str:
        """Return the text of a record, without its line end."""
        text = self.text[self._starts[at] : self._ends[at]]
        return text[:-2] if text.endswith("\r\n") else text[:-1] if text.endswith(("\n", "\r")) else text

    def cells(self, at: int) -> list[str]:
        return split_record(self.record(at), self.delimiter)

    def column(self, column: int) -> list[str]:
        """Return the cells of one column, without the header."""
        with cells_of_any_length():
            records = csv.reader(io.StringIO(self.text.removeprefix(MARK), newline=""), delimiter=self.delimiter)
            filled = [record[column] if column < len(record) else "" for record in records if record]
        return filled[1 + self.n_above :]

    def with_cell(self, at: int, column: int, value: str) -> str:
        """Return the record with a new value in one cell. All other characters stay the same."""
        record = self.record(at)
        start = 0
        for _ in range(column):
            start = _cell_end(record, start, self.delimiter) + 1
        return record[:start] + quoted(value, self.delimiter) + record[_cell_end(record, start, self.delimiter) :]

    def text_with(self, records: Mapping[int, str]) -> str:
        """Return the text with some records replaced."""
        parts, done = [], 0
        for at in sorted(records):
            start = int(self._starts[at])
            parts += [self.text[done:start], records[at]]
            done = start + len(self.record(at))
        return "".join([*parts, self.text[done:]])

    def unclosed(self) -> int | None:
        """Return the line, from 1, of the record with an unclosed quote, which contains all that follows, or None."""
        if not len(self):
            return None
        lines = io.StringIO(self.text[self._starts[-1] : self._ends[-1]], newline="")
        asked_for_more = False

        def to_the_end() -> Iterator[str]:
            nonlocal asked_for_more
            yield from lines
            asked_for_more = True

        try:
            with cells_of_any_length():
                list(csv.reader(to_the_end(), delimiter=self.delimiter, strict=True))
        except csv.Error:
            if asked_for_more:  # the only error is the end of the text
                return 1 + int((self._line_ends <= self._starts[-1]).sum())
        return None


def split_record(record: str, delimiter: str) -> list[str]:
    """Return the cells of one record."""
    with cells_of_any_length():
        return next(csv.reader(io.StringIO(record, newline=""), delimiter=delimiter), [])


def _cell_end(record: str, start: int, delimiter: str) -> int:
    """Return the end of the cell that begins at `start`: the next delimiter, or the end of the record."""
    at = start
    if record.startswith('"', start):
        at += 1
        while (at := record.find('"', at)) >= 0:
            if not record.startswith('""', at):
                break
            at += 2
        if at < 0:
            return len(record)
    end = record.find(delimiter, at)
    return len(record) if end < 0 else end


def quoted(value: str, delimiter: str) -> str:
    """Format a cell, with quotes if necessary."""
    if any(mark in value for mark in (delimiter, '"', "\n", "\r")):
        return '"' + value.replace('"', '""') + '"'
    return value


WRITABLE = (".csv", ".tsv", ".parquet")
WORKBOOK = ".xlsx"
SUFFIXES = (*WRITABLE, WORKBOOK)
# Texts of empty cells. "None" and "?" are not included, because they may be a class or a category.
EMPTY = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL")
# Arrow counts the bytes of a block in 32 bits.
_LARGEST_BLOCK = 2**31 - 1
# Most records above a header, and the fewest cells of a title record whose other cells are blank.
_MOST_TITLES, _FEWEST_BLANK = 5, 3
_NUMBER = re.compile(r"^\s*[-+]?[\d.,]+\s*$")
_DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


@dataclass(frozen=True)
class Format:
    """The format of a table.

    delimiter : None to detect it. By default it is a comma, or a tab for .tsv. If this gives only one column, it is the
        most frequent mark in the header.
    encoding : of text files; "auto" to detect it with `recognised`.
    missing : texts that mean a missing value, in addition to `EMPTY`.
    """

    delimiter: str | None = None
    encoding: str = AUTO
    missing: tuple[str, ...] = ()

    def for_file(self, path: Path) -> Format:
        """Return this format with the delimiter for a file."""
        given = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        if given is not None and (len(given) != 1 or not given.isascii() or given in '"\r\n'):
            raise FileError(
                f"--delimiter must be one ASCII character, not a quote or a line end, or 'tab'; got {given!r}. Pass "
                "';', say."
            )
        return replace(self, delimiter=given or ("\t" if path.suffix.lower() == ".tsv" else ","))

    @property
    def empty(self) -> list[str]:
        return [*EMPTY, *self.missing]


PLAIN = Format()


def read_table(path: str | os.PathLike[str], how: Format = PLAIN, *, content: bytes | None = None) -> Any:
    """Return a data frame with one row per record. Cells of text files are texts, missing cells are None.

    Every record must have the same number of cells as the header. This function does not guess types:
    `surefoot.pool.table.columns` decides from whole columns which of them are numeric. `content` is the content of the
    file if it was read before.
    """
    import_extra("pandas", "cli", "reading tables")
    file = Path(path)
    raw = read_content(file) if content is None else content
    if is_parquet(file):
        frame = _read_parquet(file, raw)
    else:
        settled = written_as(file, raw, how)
        frame = _read_text(file, text_of(file, raw), settled)
    if len(frame) == 0:
        raise TableError(f"{path} has a header and no rows. Pass a table with rows.")
    return frame


def written_as(file: Path, content: bytes, how: Format) -> Format:
    """Return the format of a file, with its delimiter and encoding."""
    settled = how.for_file(file)
    if is_parquet(file):
        return settled
    if is_workbook(file):
        return replace(settled, delimiter=",", encoding="utf-8")
    if how.encoding == AUTO:
        settled = replace(settled, encoding=recognised(content))
    if how.delimiter is None:
        names = _heading(file, content, settled).names
        mark, count = _other_mark(names[0], settled) if len(names) == 1 else ("", 0)
        if count:
            return replace(settled, delimiter=mark)
        if len(names) == 1:  # the first line may be a title above a header with another delimiter
            others = [replace(settled, delimiter=mark) for mark in _DELIMITERS]
            return max([settled, *others], key=lambda one: len(_heading(file, content, one).names))
    return settled


def is_parquet(file: Path) -> bool:
    """Return True for a Parquet file, by the file name."""
    return file.suffix.lower() == ".parquet"


def is_text(file: Path) -> bool:
    """Return True for a CSV or TSV file, by the file name."""
    return not (is_parquet(file) or is_workbook(file))


def is_workbook(file: Path) -> bool:
    """Return True for an Excel workbook, by the file name."""
    return file.suffix.lower() == WORKBOOK


def text_of(file: Path, content: bytes) -> bytes:
    """Return the content of a text file, or the first sheet of a workbook as CSV, to read both by the same rules."""
    return _first_sheet(str(file), content).text if is_workbook(file) else content


def sheets_of(file: Path, content: bytes) -> list[str]:
    """Return the names of a workbook's visible sheets with cells, the sheet to read first; empty for other files."""
    return list(_first_sheet(str(file), content).names) if is_workbook(file) else []


@dataclass(frozen=True)
class _Sheet:
    """A sheet of a workbook as CSV in UTF-8, and the names of all sheets with cells, its own first."""

    text: bytes
    names: tuple[str, ...]


@lru_cache(maxsize=1)  # a command reads its table several times, and reading a workbook is slow
def _first_sheet(file: str, content: bytes) -> _Sheet:
    openpyxl = import_extra("openpyxl", "xlsx", "reading .xlsx tables")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about styles and extensions, which contain no cells
            book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
            sheets = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
            found = {sheet.title: _filled(sheet.iter_rows(values_only=True)) for sheet in sheets}
    except Exception as error:
        raise FileError(
            f"{file} could not be read as a workbook ({type(error).__name__}: {cut(first_line(error), 200)}). Save it "
            "again as .xlsx, or as .csv."
        ) from error
    names = tuple(name for name, rows in found.items() if rows)
    if not names:
        raise TableError(f"{file} must have a visible sheet with cells; it has none. Pass another file.")
    text = io.StringIO()
    csv.writer(text).writerows(found[names[0]])
    return _Sheet(text.getvalue().encode(), names)


def _filled(rows: Iterable[Sequence[Any]]) -> list[list[str]]:
    """Return the rows of a sheet as texts, without trailing blank rows and columns. A title row is one cell."""
    cells = [[_written(cell) for cell in row] for row in rows]
    ends = [max((at + 1 for at, cell in enumerate(row) if cell.strip()), default=0) for row in cells]
    width = max(ends, default=0)
    first = next((at for at, end in enumerate(ends) if end > 1), 0)
    whole = [(row + [""] * width)[:width] if at >= first else row[:end]
             for at, (row, end) in enumerate(zip(cells, ends, strict=True))]  # fmt: skip
    return [row for row, end in zip(whole, ends, strict=True) if end]


def _written(cell: Any) -> str:
    """Format a workbook cell as in a text file: dates in ISO 8601, durations in seconds."""
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() else cell.isoformat(sep=" ")
    return "" if cell is None else repr(cell.total_seconds()) if isinstance(cell, timedelta) else str(cell)


def read_content(path: str | os.PathLike[str]) -> bytes:
    """Read all bytes of a table's file. Raise an error if the file changes while it is read."""
    file = Path(path)
    if file.suffix.lower() not in SUFFIXES:
        raise FileError(f"{file} must be a table that ends in one of {', '.join(SUFFIXES)}. Rename or convert it.")
    if file.is_dir():
        raise FileError(f"{file} must be a file; it is a folder. Pass the name of a file in it.")
    if file.exists() and not file.is_file():  # its content may be endless, and the file is read more than once
        raise FileError(f"{file} must be a plain file; it is a device, a pipe or a socket. Save the table as a file.")
    try:
        with file.open("rb") as opened:
            before = os.fstat(opened.fileno())
            content = opened.read()
            after = os.fstat(opened.fileno())
    except OSError as error:
        raise FileError(f"{file} could not be read: {error.strerror or error}. Check the path.") from error
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise FileError(f"{file} was changed by another program while it was read. Run the command again.")
    if not content:
        raise FileError(f"{file} must hold a table; it is empty (0 bytes). Pass another file.")
    return content


def read_names(path: Path, how: Format = PLAIN) -> list[str]:
    """Return the column names of a table in the format of its file name."""
    if is_parquet(path):
        return [str(name) for name in _parquet(path, read_content(path), lambda pq, data: pq.read_schema(data).names)]
    content = read_content(path)
    return read_header(path, text_of(path, content), written_as(path, content, how)).names


def check_label_column(path: Path, label: str, how: Format) -> None:
    """Raise an error unless a table has the label column and another column. Only the header is read."""
    names = read_names(path, how)
    if label not in names:
        raise TableError(
            f"{path} has no column {label!r} for the labels{near(label, names)}. Its columns are {listed(names)}. Pass "
            f"one of them as --label, or add an empty column {label!r} for new labels."
        )
    if len(names) < 2:
        raise TableError(f"{path} must have columns besides the label {label!r}; it has none. Pass a table with some.")


def near(name: str, names: list[str]) -> str:
    """Return a question that suggests a similar name, or an empty text."""
    folded = {known.casefold(): known for known in names}
    found = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f" (did you mean {folded[found[0]]!r}?)" if found else ""


def listed(names: list[str], most: int = 8) -> str:
    """Return quoted names, separated by commas."""
    shown = ", ".join(repr(cut(name)) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _read_parquet(file: Path, content: bytes) -> Any:
    frame = _parquet(file, content, lambda pq, data: pq.read_table(data).to_pandas())
    _check_names([str(name) for name in frame.columns], file)
    frame.columns = [str(name) for name in frame.columns]
    return frame.reset_index(drop=True)


def _parquet(file: Path, content: bytes, read: Callable[[Any, Any], Any]) -> Any:
    """Return the result of a function of `pyarrow.parquet` and the content of a Parquet file."""
    pa = import_extra("pyarrow", "cli", "reading tables")
    pq = import_extra("pyarrow.parquet", "cli", "reading tables")
    try:
        return read(pq, pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{file} could not be read as Parquet: {first_line(error)}. Write it again.") from error


def _read_text(file: Path, content: bytes, how: Format) -> Any:
    pa = import_extra("pyarrow", "cli", "reading tables")
    header = read_header(file, content, how)
    names = header.names
    data = as_utf8(file, content, how)
    try:
        table = _parse(data, how, names, header.n_lines)
    except pa.ArrowInvalid as error:
        try:
            data.decode()
        except UnicodeDecodeError:
            raise _not_text(file, content, how) from error
        _check_quotes(file, data, how)
        raise TableError(
            f"{file}: every row must have as many cells as the header, {len(names)}; {first_line(error)}. Quote cells "
            "that hold the delimiter, or pass --delimiter."
        ) from error
    last = (table.column(-1)[-1].as_py() or "") if len(table) else ""
    runs_on = ("\n" in last or "\r" in last) and not data[-64:].rstrip().endswith(b'"')
    if runs_on or data.count(b'"') % 2:
        _check_quotes(file, data, how)
    return table.to_pandas()


def _parse(data: bytes, how: Format, names: list[str], lines: int) -> Any:
    """Parse UTF-8 into an Arrow table of texts. A record longer than the parser's block requires a larger block."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    block = 1 << 20
    while True:
        try:
            return arrow_csv.read_csv(
                pa.BufferReader(data),
                read_options=arrow_csv.ReadOptions(column_names=names, skip_rows=lines, block_size=block),
                parse_options=arrow_csv.ParseOptions(delimiter=how.delimiter, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=how.empty,
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            if block > min(len(data), _LARGEST_BLOCK - 1):
                raise  # a row longer than a block is not the cause
            block = min(16 * block, _LARGEST_BLOCK)


def as_utf8(file: Path, content: bytes, how: Format) -> bytes:
    """Return the content of a text file in UTF-8."""
    codec = codec_of(how.encoding, content)
    if codec == "utf-8":
        return content
    try:
        return content.decode(codec).encode()
    except UnicodeError as error:
        raise _not_text(file, content, how) from error


@dataclass(frozen=True)
class Header:
    """The column names, the line where they end, and the number of records above them, such as a title."""

    names: list[str]
    n_lines: int
    n_above: int


def read_header(file: Path, content: bytes, how: Format) -> Header:
    """Return the header of a text table, with one unique name per column.

    Blanks and line breaks in a name count as one blank, unless this makes two names equal.
    """
    found = _heading(file, content, how)
    filled = [name if name.strip() else f"column {number}" for number, name in enumerate(found.names, start=1)]
    plain = [" ".join(name.split()) for name in filled]
    counts = Counter(plain)
    names = [short if counts[short] == 1 else name for short, name in zip(plain, filled, strict=True)]
    if len(names) == 1:
        _check_delimiter(file, found.names[0], how)
    _check_names(names, file)
    return replace(found, names=names)


def _n_above(records: list[list[str]]) -> int:
    """Return the number of title records above the header. At least two records with more cells must follow."""
    for at in range(1, len(records) - 1):
        head, width = records[at], len(records[at])
        words = [cell for cell in head if cell.strip()]
        is_head = len(words) > 1 and len(records[at + 1]) == width and not any(map(_NUMBER.match, words))
        if is_head and all(_is_title(record, width) for record in records[:at]):
            return at
    return 0


def _is_title(record: list[str], width: int) -> bool:
    """Return True if a record above one with `width` cells is a title: few cells, or only the first cell filled."""
    if len(record) < width:
        return len(record) <= max(width // 2, 1)
    return len(record) >= _FEWEST_BLANK and bool(record[0].strip()) and not any(cell.strip() for cell in record[1:])


def _heading(file: Path, content: bytes, how: Format) -> Header:
    """Return the header as written."""
    try:
        text = io.TextIOWrapper(io.BytesIO(content), encoding=codec_of(how.encoding, content), newline="")
        if text.read(1) != MARK:
            text.seek(0)
        with cells_of_any_length():
            records = csv.reader(text, delimiter=how.delimiter or ",")
            first, ends = [], []
            for record in records:
                if record:
                    first.append(record)
                    ends.append(records.line_num)
                if len(first) == _MOST_TITLES + 2:
                    break
    except UnicodeError as error:
        raise _not_text(file, content, how) from error
    except LookupError as error:
        raise FileError(
            f"--encoding must name a text encoding; got {how.encoding!r}. Pass a name such as latin-1."
        ) from error
    except csv.Error as error:
        raise TableError(f"{file} could not be read as a table: {error}. Pass a text file.") from error
    if not first:
        raise TableError(f"{file} must begin with a header; it holds blank lines only. Pass another file.")
    at = 0 if len(first[0]) == 1 and _other_mark(first[0][0], how)[1] else _n_above(first)
    return Header(first[at], ends[at], at)


def _check_quotes(file: Path, data: bytes, how: Format) -> None:
    """Raise an error if a quote is never closed, which makes all following rows one cell."""
    try:
        line = TextRecords(data.decode(), how.delimiter or ",").unclosed()
    except (UnicodeError, csv.Error):
        return  # the caller reports the error
    if line is not None:
        raise TableError(
            f"{file}: every quote must be closed; one in the record that begins in line {line} is not, so that all "
            "that follows is one cell. Close it, or write two quotes for one that is part of a cell."
        )


def _check_delimiter(file: Path, header: str, how: Format) -> None:
    """Raise an error if the only column contains another delimiter."""
    mark, count = _other_mark(header, how)
    if count:
        name = shown_delimiter(mark)
        used = _DELIMITERS.get(how.delimiter or ",", repr(how.delimiter))
        raise TableError(
            f"{file} has one column when cells end at {used}; its "
            f"header holds {_DELIMITERS[mark]} {count} time{'s' * (count > 1)}. Pass --delimiter {name}."
        )


def _other_mark(header: str, how: Format) -> tuple[str, int]:
    """Return the most frequent other delimiter in a header, and its count."""
    others = Counter({mark: header.count(mark) for mark in _DELIMITERS if mark != how.delimiter})
    return others.most_common(1)[0]


def shown_delimiter(mark: str) -> str:
    """Return a delimiter as a user would type it."""
    return {"\t": "tab"}.get(mark, f"'{mark}'")


def _check_names(names: list[str], file: Path) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise TableError(f"{file}: column names must differ; got {', '.join(twice[:5])} more than once. Rename them.")


def _not_text(file: Path, content: bytes, how: Format) -> FileError:
    how = replace(how, encoding="utf-8") if how.encoding == AUTO else how
    try:
        content.decode(codec_of(how.encoding, content))
        where = "somewhere"
    except UnicodeDecodeError as error:
        where = f"byte {error.start} (0x{content[error.start]:02x}, line {content[: error.start].count(10) + 1})"
    except UnicodeError:
        where = "its content"
    return FileError(
        f"{file} must be text in {how.encoding}; {where} is not. Save it as UTF-8, or pass --encoding latin-1, say."
    )
