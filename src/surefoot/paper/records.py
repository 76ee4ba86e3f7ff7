"""Records of finished tasks: an append-only file of JSON lines, each on the disk before the next task is counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot._errors import FileError, LockedError, ParameterError
from surefoot._files import LineLog, sole_writer
from surefoot.paper.protocol import Row, Task


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
    the next record takes its place. Reading never changes the file, so that it can be read while a run goes on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log = LineLog(path)

    def read(self) -> dict[Task, Record]:
        """All whole lines by their task, the last one where a task was done twice."""
        found = {}
        for number, line in enumerate(self._log.lines(), start=1):
            try:
                entry = json.loads(line)
                task = Task(**entry["task"])
                found[task] = Record(task, float(entry["seconds"]), float(entry["cpu_seconds"]), entry["rows"])
            except (ValueError, KeyError, TypeError) as error:
                raise FileError(
                    f"each line of records must be a finished task; got {line[:60]!r} in line {number} of {self.path}. "
                    "Remove the line: its task is then done again."
                ) from error
        return found

    @contextmanager
    def writer(self) -> Iterator[_Writer]:
        """Append to the file, which no other process may do at the same time."""
        try:
            with sole_writer(self.path):
                yield _Writer(self._log)
        except LockedError as error:
            raise ParameterError(
                "out",
                f"must be a folder that no other run writes to; {error.holder} is writing to {self.path.parent}",
                None,
                "Wait for it, or pass another $out.",
            ) from error


@dataclass(frozen=True)
class _Writer:
    log: LineLog

    def append(self, record: Record) -> None:
        """Write a record and wait until the disk has it."""
        entry: dict[str, Any] = {
            "task": record.task.as_dict(),
            "seconds": round(record.seconds, 3),
            "cpu_seconds": round(record.cpu_seconds, 3),
            "rows": record.rows,
        }
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        self.log.append(line.encode())
