"""The journal of audits: every event is on the disk before it is acknowledged, and what was begun is not changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._files import LineLog, append_event, read_events
from surefoot._printing import cut
from surefoot._types import FloatArray

_VERSION = 1


class AuditJournal:
    """A first line that says what is audited, then one event per line.

    A process that is killed while it writes leaves at most one torn line at the end, whose event was not acknowledged:
    the next event takes its place.

    Parameters
    ----------
    path : path of the file, created with its first line if there is none.
    kind : str, what wrote it.
    about : dict
        What is audited, and how. An existing journal must say the same.
    free : keys of `about` that an existing journal decides, and whose value given is ignored.
    """

    def __init__(
        self, path: str | os.PathLike[str], kind: str, about: dict[str, Any], free: tuple[str, ...] = ()
    ) -> None:
        self.path = Path(path)
        self._log = LineLog(path)
        first = {"journal": kind, "version": _VERSION, **about}
        events = read_events(self._log)
        if events:
            _check_same(self.path, events[0], first, free)
        else:
            self.append(first)
        self.about: dict[str, Any] = events[0] if events else first
        self.events: list[dict[str, Any]] = events[1:]

    def append(self, event: dict[str, Any]) -> None:
        """Write an event and wait until the disk has it."""
        append_event(self._log, event)


def hash_rows(X: Any) -> str:
    """A hash of rows, of numbers or texts, and of their shape."""
    rows = np.asarray(X)
    digest = hashlib.sha256(repr(rows.shape).encode())
    if rows.dtype.kind in "fiub":
        digest.update(np.ascontiguousarray(rows, dtype="<f8").data)
    else:
        digest.update(repr(rows.tolist()).encode())
    return digest.hexdigest()[:32]


def hash_predictions(predicted: list[Any], belief: FloatArray | None) -> str:
    """A hash of what a classifier says of each row: it is this that an audit judges."""
    digest = hashlib.sha256(repr(predicted).encode())
    if belief is not None:
        digest.update(np.ascontiguousarray(belief, dtype="<f8").data)
    return digest.hexdigest()[:32]


def _check_same(path: Path, found: dict[str, Any], expected: dict[str, Any], free: tuple[str, ...]) -> None:
    if found.get("journal") != expected["journal"] or found.get("version") != _VERSION:
        raise ValueError(
            f"journal must be a file that was written by {expected['journal']}, in version {_VERSION}; {path} begins "
            f"with {cut(str(found), 80)}. Pass another path."
        )
    if found.get("predictions") != expected.get("predictions"):
        raise ValueError(
            f"the classifier must be the one that {path} audits, frozen before its labels were seen; this one predicts "
            "otherwise. A classifier trained on audited rows cannot be judged by them: pass the frozen one, or begin "
            "another audit with another journal."
        )
    for key, value in expected.items():
        if key not in free and found.get(key) != value:
            raise ValueError(
                f"{key} must be as it was when {path} was begun, {cut(repr(found.get(key)), 80)}; got "
                f"{cut(repr(value), 80)}. Pass "
                "the same, in the same order, or another path."
            )
