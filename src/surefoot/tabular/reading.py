"""Tables from CSV, TSV and Parquet files, cell by cell as they are written there."""

from __future__ import annotations

import csv
import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from surefoot.tabular.errors import FileError, TableError

SUFFIXES = (".csv", ".tsv", ".parquet")
# Cells that stand for nothing. "None" and "?" are not among them: they may be a class or a category.
EMPTY = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL")
_DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


@dataclass(frozen=True)
class Format:
    """How a table is written.

    delimiter : None for that of the file's name: comma, or tab for .tsv.
    encoding : of text files.
    missing : texts that stand for a missing value, besides those of `EMPTY`.
    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ()

    def for_file(self, path: Path) -> Format:
        """The same with the delimiter settled."""
        given = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        if given is not None and len(given) != 1:
            raise FileError(f"a delimiter must be one character, or 'tab'; got {given!r}. Pass ';', say.")
        return replace(self, delimiter=given or ("\t" if path.suffix.lower() == ".tsv" else ","))

    @property
    def empty(self) -> list[str]:
        return [*EMPTY, *self.missing]


PLAIN = Format()


def read_table(path: str | os.PathLike[str], how: Format = PLAIN) -> Any:
    """A data frame with one row per record; cells of text files are texts, missing ones None.

    Every record must have as many cells as the header has names. Nothing is guessed: which columns hold numbers is
    decided by `surefoot.tabular.columns`, on whole columns.
    """
    file = Path(path)
    _check_file(file)
    frame = _read_parquet(file) if file.suffix.lower() == ".parquet" else _read_text(file, how.for_file(file))
    if len(frame) == 0:
        raise TableError(f"{path} must hold rows of data; it has a header and no rows. Pass a table with rows.")
    return frame


def _check_file(file: Path) -> None:
    if file.suffix.lower() not in SUFFIXES:
        raise FileError(f"{file} must be a table that ends in one of {', '.join(SUFFIXES)}. Rename or convert it.")
    if file.is_dir():
        raise FileError(f"{file} must be a file; it is a folder. Pass the name of a file in it.")
    try:
        with file.open("rb") as content:
            first = content.read(1)
    except OSError as error:
        raise FileError(f"{file} could not be read: {error.strerror or error}. Check the path.") from error
    if not first:
        raise FileError(f"{file} must hold a table; it is empty (0 bytes). Pass another file.")


def _read_parquet(file: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        frame = pq.read_table(file).to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{file} could not be read as Parquet: {_first_line(error)}. Write it again.") from error
    _check_names([str(name) for name in frame.columns], file)
    frame.columns = [str(name) for name in frame.columns]
    return frame.reset_index(drop=True)


def _read_text(file: Path, how: Format) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names, lines = read_header(file, how)
    try:
        table = arrow_csv.read_csv(
            file,
            read_options=arrow_csv.ReadOptions(column_names=names, skip_rows=lines, encoding=how.encoding),
            parse_options=arrow_csv.ParseOptions(delimiter=how.delimiter, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=how.empty,
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error) or "UTF-8" in str(error):
            raise _not_text(file, how) from error
        raise TableError(
            f"{file}: every row must have as many cells as the header, {len(names)}; {_first_line(error)}. Quote cells "
            "that hold the delimiter, or pass --delimiter."
        ) from error
    except UnicodeDecodeError as error:
        raise _not_text(file, how) from error
    return table.to_pandas()


def read_header(file: Path, how: Format) -> tuple[list[str], int]:
    """The names of the columns, one each and no two alike; and how many lines the header takes."""
    try:
        with file.open(encoding=_with_mark(how.encoding), newline="") as content:
            records = csv.reader(content, delimiter=how.delimiter or ",")
            names = next((record for record in records if record), [])
            lines = records.line_num
    except UnicodeDecodeError as error:
        raise _not_text(file, how) from error
    except LookupError as error:
        raise FileError(f"--encoding must name a text encoding; got {how.encoding!r}. Pass latin-1, say.") from error
    except csv.Error as error:
        raise TableError(f"{file} could not be read as a table: {error}. Is it a text file?") from error
    if not names:
        raise TableError(f"{file} must begin with a header; it holds blank lines only. Pass another file.")
    names = [name.strip() or f"column {number}" for number, name in enumerate(names, start=1)]
    if len(names) == 1:
        _check_delimiter(file, names[0], how)
    _check_names(names, file)
    return names, lines


def _check_delimiter(file: Path, header: str, how: Format) -> None:
    """One column only: the delimiter is wrong, or there is nothing to learn from."""
    others = Counter({mark: header.count(mark) for mark in _DELIMITERS if mark != how.delimiter})
    mark, count = others.most_common(1)[0]
    if count:
        name = {"\t": "tab"}.get(mark, f"'{mark}'")
        used = _DELIMITERS.get(how.delimiter or ",", repr(how.delimiter))
        raise TableError(
            f"{file} has one column when cells end at {used}; its "
            f"header holds {_DELIMITERS[mark]} {count} time{'s' * (count > 1)}. Pass --delimiter {name}."
        )


def _check_names(names: list[str], file: Path) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise TableError(f"{file}: column names must differ; got {', '.join(twice[:5])} more than once. Rename them.")


def _not_text(file: Path, how: Format) -> FileError:
    content = file.read_bytes()
    try:
        content.decode(how.encoding)
        where = "somewhere"
    except UnicodeDecodeError as error:
        where = f"byte {error.start} (0x{content[error.start]:02x}, line {content[: error.start].count(10) + 1})"
    return FileError(
        f"{file} must be text in {how.encoding}; {where} is not. Save it as UTF-8, or pass --encoding latin-1, say."
    )


def _with_mark(encoding: str) -> str:
    return "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0].strip().rstrip(".")
