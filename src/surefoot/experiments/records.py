"""Records of finished tasks: an append-only file of JSON lines, each on the disk before the next task is counted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from surefoot.experiments.protocol import Row, Task


@dataclass(frozen=True)
class Record:
    """One finished task: its rows, the seconds it took, and those of the processor."""

    task: Task
    seconds: float
    cpu_seconds: float
    rows: list[Row]


class Records:
    """The file `records.jsonl` of an output folder.

    A process that is killed while it writes leaves at most one torn line, at the end: its task counts as not done, and
    the line is cut off when the file is opened for writing. Reading never changes the file, so that it can be read
    while a run goes on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[Task, Record]:
        """All whole lines by their task, the last one where a task was done twice."""
        found = {}
        for number, line in enumerate(self._whole_lines(), start=1):
            try:
                entry = json.loads(line)
                task = Task(**entry["task"])
                found[task] = Record(task, float(entry["seconds"]), float(entry["cpu_seconds"]), entry["rows"])
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"each line of records must be a finished task; got {line[:60]!r} in line {number} of {self.path}. "
                    "Remove the line: its task is then done again."
                ) from error
        return found

    @contextmanager
    def writer(self) -> Iterator[_Writer]:
        """Append to the file, which no other process may do at the same time."""
        with self.path.open("a+b") as file:
            _lock(file, self.path)
            self._cut_torn_line(file)
            yield _Writer(file)

    def _whole_lines(self) -> list[bytes]:
        if not self.path.exists():
            return []
        whole, _, _ = self.path.read_bytes().rpartition(b"\n")
        return whole.split(b"\n") if whole else []

    def _cut_torn_line(self, file: IO[bytes]) -> None:
        content = self.path.read_bytes()
        whole, newline, _ = content.rpartition(b"\n")
        if len(whole) + len(newline) < len(content):
            file.truncate(len(whole) + len(newline))


class _Writer:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def append(self, record: Record) -> None:
        """Write a record and wait until the disk has it."""
        entry: dict[str, Any] = {
            "task": record.task.as_dict(),
            "seconds": round(record.seconds, 3),
            "cpu_seconds": round(record.cpu_seconds, 3),
            "rows": record.rows,
        }
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _lock(file: IO[bytes], path: Path) -> None:
    """Refuse a second writer; the system lifts the lock when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # not on Windows: there two runs into one folder are not noticed
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ValueError(
            f"only one run may write to a folder; another one is writing to {path.parent}. Wait for it, or pass "
            "another out."
        ) from error
