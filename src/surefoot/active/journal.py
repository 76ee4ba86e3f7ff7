"""An append-only journal of answers: every line is on the disk before the answer is acknowledged."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._files import LineLog, append_event, read_events
from surefoot._types import FloatArray

_KIND = "surefoot.active"
_VERSION = 1


class Journal:
    """JSON lines: a header that names the pool, then one event per line.

    A process that is killed while it writes leaves at most one torn line at the end, whose event was not acknowledged:
    the next event takes its place.

    Parameters
    ----------
    path : path of the file, created with its header if there is none.
    X : array of shape (N, d)
        The pool. A journal of another pool is refused.
    """

    def __init__(self, path: str | os.PathLike[str], X: FloatArray) -> None:
        self.path = Path(path)
        self._log = LineLog(path)
        header = {"journal": _KIND, "version": _VERSION, "rows": len(X), "fingerprint": fingerprint(X)}
        events = read_events(self._log)
        if events:
            _check_header(self.path, events[0], header)
        else:
            self.append(header)
        self._events = events[1:]

    def events(self) -> Iterator[dict[str, Any]]:
        """The events that were there when the journal was opened, oldest first."""
        return iter(self._events)

    def append(self, event: dict[str, Any]) -> None:
        """Write an event and wait until the disk has it."""
        append_event(self._log, event)


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
            f"journal must belong to these rows; {path} is of {found.get('rows')} rows with fingerprint "
            f"{found.get('fingerprint')}, got {expected['rows']} with {expected['fingerprint']}. Pass the rows as they "
            "were, in the same order, or another path."
        )
