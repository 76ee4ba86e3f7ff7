"""An append-only journal of answers: every line is on the disk before the answer is acknowledged."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._types import FloatArray

_KIND = "surefoot.active"
_VERSION = 1


class Journal:
    """JSON lines: a header that names the pool, then one event per line.

    A process that is killed while it writes leaves at most one torn line at the end, whose event was not acknowledged:
    opening the journal cuts it off.

    Parameters
    ----------
    path : path of the file, created with its header if there is none.
    X : array of shape (N, d)
        The pool. A journal of another pool is refused.
    """

    def __init__(self, path: str | os.PathLike[str], X: FloatArray) -> None:
        self.path = Path(path)
        header = {"journal": _KIND, "version": _VERSION, "rows": len(X), "fingerprint": fingerprint(X)}
        lines = self._read()
        if lines:
            _check_header(self.path, lines[0], header)
        else:
            self.append(header)
            self._sync_folder()
        self._events = lines[1:]

    def events(self) -> Iterator[dict[str, Any]]:
        """The events that were there when the journal was opened, oldest first."""
        return iter(self._events)

    def append(self, event: dict[str, Any]) -> None:
        """Write an event and wait until the disk has it."""
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            written = os.write(file, line)
            if written < len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written to {self.path}: is the disk full?")
            os.fsync(file)
        finally:
            os.close(file)

    def _read(self) -> list[dict[str, Any]]:
        """All whole lines; a torn last one is cut off the file."""
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        whole, _, torn = content.rpartition(b"\n")
        if torn:
            with self.path.open("r+b") as file:
                file.truncate(len(content) - len(torn))
                os.fsync(file.fileno())
        lines = []
        for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
            try:
                lines.append(json.loads(line))
            except ValueError as error:
                raise ValueError(
                    f"each line of a journal must be JSON; got {line[:60]!r} in line {number} of {self.path}. Remove "
                    "the line, or restore the file."
                ) from error
        return lines

    def _sync_folder(self) -> None:
        """A new file's name is safe only when its folder is."""
        if os.name == "posix":
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def fingerprint(X: FloatArray) -> str:
    """A hash of rows X (N, d) and their shape."""
    digest = hashlib.sha256(repr(X.shape).encode())
    digest.update(np.ascontiguousarray(X, dtype="<f8").data)
    return digest.hexdigest()[:32]


def _check_header(path: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    if found.get("journal") != _KIND or found.get("version") != _VERSION:
        raise ValueError(
            f"journal must be a file that ActiveLearner wrote, in version {_VERSION}; {path} begins with {found}. Pass "
            "another path."
        )
    if found != expected:
        raise ValueError(
            f"journal must belong to these rows; {path} is of {found['rows']} rows with fingerprint "
            f"{found['fingerprint']}, got {expected['rows']} with {expected['fingerprint']}. Pass the rows as they "
            "were, in the same order, or another path."
        )
