"""The text of a table's file: how it is encoded, and where its records and cells lie."""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy

import numpy as np

MARK = "\ufeff"  # the byte order mark, decoded
_WIDE = {"utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)}


def codec_of(encoding: str, content: bytes) -> str:
    """A codec that reads a byte order mark as a character, and writes one only where one was read."""
    name = codecs.lookup(encoding).name
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
        """What the cells of a record hold."""
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
        first, last = cell_span(record, column, self.delimiter)
        return record[:first] + quoted(value, self.delimiter) + record[last:]

    def span(self, at: int) -> tuple[int, int]:
        """Where a record begins and ends, without the end of its line."""
        start = int(self._starts[at])
        return start, start + len(self.record(at))

    def replaced(self, records: Mapping[int, str]) -> TextRecords:
        """The same with other texts in the place of some records."""
        new = copy(self)
        longer = np.zeros(len(self), dtype=np.int64)
        parts, done = [], 0
        for at in sorted(records):
            start, end = self.span(at)
            longer[at] = len(records[at]) - (end - start)
            parts += [self.text[done:start], records[at]]
            done = end
        new.text = "".join([*parts, self.text[done:]])
        moved = np.cumsum(longer)
        new._starts, new._ends = self._starts + moved - longer, self._ends + moved
        return new

    def unclosed(self) -> int | None:
        """The line, from 1, in which a record begins whose quote is never closed: it swallows all that follows."""
        if not len(self):
            return None
        try:
            with cells_of_any_length():
                lines = io.StringIO(self.text[self._starts[-1] : self._ends[-1]], newline="")
                list(csv.reader(lines, delimiter=self.delimiter, strict=True))
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                return 1 + int((self._line_ends <= self._starts[-1]).sum())
        return None


def split_record(record: str, delimiter: str) -> list[str]:
    """What the cells of one record hold."""
    with cells_of_any_length():
        return next(csv.reader(io.StringIO(record, newline=""), delimiter=delimiter), [])


def cell_span(record: str, column: int, delimiter: str) -> tuple[int, int]:
    """Where the text of a cell, with its quotes, begins and ends in a record."""
    start = 0
    for _ in range(column):
        start = _cell_end(record, start, delimiter) + 1
    return start, _cell_end(record, start, delimiter)


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
