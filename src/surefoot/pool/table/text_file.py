"""The text of a table's file: how it is encoded, and where its records and cells lie."""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

MARK = "\ufeff"  # the byte order mark, decoded
_WIDE = {"utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)}


def codec_of(encoding: str, content: bytes) -> str:
    """A codec that reads a byte order mark as a character, and writes one only where one was read.

    A mark of UTF-16 or UTF-32 is never UTF-8: it tells the encoding where UTF-8 is expected.
    """
    name = codecs.lookup(encoding).name
    if name in {"utf-8", "utf-8-sig"}:
        # the mark of UTF-32 begins with that of UTF-16
        name = next((wide for wide in ("utf-32", "utf-16") if content.startswith(_WIDE[wide])), name)
    if name in _WIDE:
        little, big = _WIDE[name]
        native = "le" if sys.byteorder == "little" else "be"
        return f"{name}-{'le' if content.startswith(little) else 'be' if content.startswith(big) else native}"
    return "utf-8" if name == "utf-8-sig" else name


@contextmanager
def cells_of_any_length() -> Iterator[None]:
    """Lift the limit of 131,072 characters that Python's reader sets for a cell."""
    before = csv.field_size_limit(sys.maxsize if sys.maxsize < 2**31 else 2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


class TextRecords:
    """The records of a text table, each as a span of its text; blank lines are none, and the header is the first.

    Cells end as Python's csv module and Arrow have it: a cell is quoted if it begins with a quote; a quote inside is
    doubled; lines end at a line feed, a carriage return, or both.
    """

    def __init__(self, text: str, delimiter: str) -> None:
        self.text = text
        self.delimiter = delimiter
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
        self._starts, self._ends = np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._starts)

    def record(self, at: int) -> str:
        """The text of a record, without the end of its line."""
        text = self.text[self._starts[at] : self._ends[at]]
        return text[:-2] if text.endswith("\r\n") else text[:-1] if text.endswith(("\n", "\r")) else text

    def cells(self, at: int) -> list[str]:
        return split_record(self.record(at), self.delimiter)

    def column(self, column: int) -> list[str]:
        """The cells of one column, without the header."""
        with cells_of_any_length():
            records = csv.reader(io.StringIO(self.text.removeprefix(MARK), newline=""), delimiter=self.delimiter)
            filled = [record[column] if column < len(record) else "" for record in records if record]
        return filled[1:]

    def with_cell(self, at: int, column: int, value: str) -> str:
        """The record with another value in one cell; every other character stays."""
        record = self.record(at)
        start = 0
        for _ in range(column):
            start = _cell_end(record, start, self.delimiter) + 1
        return record[:start] + quoted(value, self.delimiter) + record[_cell_end(record, start, self.delimiter) :]

    def text_with(self, records: Mapping[int, str]) -> str:
        """The text with others in the place of some records."""
        parts, done = [], 0
        for at in sorted(records):
            start = int(self._starts[at])
            parts += [self.text[done:start], records[at]]
            done = start + len(self.record(at))
        return "".join([*parts, self.text[done:]])

    def unclosed(self) -> int | None:
        """The line, from 1, in which a record begins whose quote is never closed: it swallows all that follows."""
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
            if asked_for_more:  # the reader found nothing wrong but the end
                return 1 + int((self._line_ends <= self._starts[-1]).sum())
        return None


def split_record(record: str, delimiter: str) -> list[str]:
    """What the cells of one record hold."""
    with cells_of_any_length():
        return next(csv.reader(io.StringIO(record, newline=""), delimiter=delimiter), [])


def _cell_end(record: str, start: int, delimiter: str) -> int:
    """Where the cell that begins at `start` ends: at a delimiter, or with the record."""
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
    """A cell's text: in quotes where it must be."""
    if any(mark in value for mark in (delimiter, '"', "\n", "\r")):
        return '"' + value.replace('"', '""') + '"'
    return value
