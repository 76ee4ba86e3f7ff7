"""The journal of labels. Every event is stored before it is acknowledged, and the header never changes.

A journal is a log of JSON objects. The first object is the header, which describes the labeling or audit task. All
later objects are events. `JournalFile` stores the log in a file of JSON lines. Any object with the methods of
`EventLog` can replace it.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from surefoot._errors import FileError, ParameterError
from surefoot._files import LineLog, append_event, hold_file, read_events
from surefoot._printing import cut
from surefoot._validation import FloatArray
from surefoot.bounds._arguments import check_known_label

_VERSION = 1
_RESTORE = "Restore it from a copy, or start again with another journal."


class EventLog(Protocol):
    """Storage of a journal. `str(log)` names it in messages. An optional method `close` releases the exclusive lock."""

    def read(self) -> list[dict[str, Any]]:
        """Return all events, oldest first; an empty list for a new log."""
        ...

    def append(self, event: dict[str, Any]) -> None:
        """Store a JSON object and return when it is on disk."""
        ...


class JournalFile:
    """A log in a file of JSON lines. No other process can write to it while it is open.

    A process that is killed while writing leaves at most one incomplete line at the end. Its event was not
    acknowledged, and the next event replaces it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.close = weakref.finalize(self, os.close, hold_file(self.path))
        self._log = LineLog(path)

    def read(self) -> list[dict[str, Any]]:
        """Return the events in the file."""
        return read_events(self._log)

    def append(self, event: dict[str, Any]) -> None:
        """Write an event and wait until it is on disk."""
        append_event(self._log, event)

    def __str__(self) -> str:
        return str(self.path)


class Journal:
    """A header that describes the labeling or audit task, then events. If log is None, nothing is stored.

    kind : name of the writer.
    about : the header. An existing journal must have the same header.
    free : keys of `about` that an existing journal overrides.
    """

    def __init__(
        self,
        log: str | os.PathLike[str] | EventLog | None,
        kind: str,
        about: dict[str, Any],
        free: tuple[str, ...] = (),
    ) -> None:
        self._log: EventLog | None = JournalFile(log) if isinstance(log, str | os.PathLike) else log
        self._kind = kind
        header = {"journal": kind, "version": _VERSION, **about}
        try:
            found = [] if self._log is None else self._log.read()
            if found:
                self._check_header(found[0], header, free)
            else:
                self.append(header)
        except BaseException:
            self.close()
            raise
        self.about: dict[str, Any] = found[0] if found else header
        self._events = found[1:]

    def replay(self, apply: Callable[[dict[str, Any]], None]) -> None:
        """Apply the events that the journal contained when it was opened. An error names the damaged event."""
        for number, event in enumerate(self._events, start=2):
            try:
                apply(event)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                self.close()
                raise FileError(
                    f"journal {self._log} must contain events of {self._kind}; line {number} is "
                    f"{cut(str(event), 80)} ({type(error).__name__}: {error}). {_RESTORE}"
                ) from error

    def append(self, event: dict[str, Any]) -> None:
        """Store an event and return when it is on disk."""
        if self._log is not None:
            self._log.append(event)

    def close(self) -> None:
        """Release the lock."""
        close = getattr(self._log, "close", None)
        if close is not None:
            close()

    def _check_header(self, found: dict[str, Any], expected: dict[str, Any], free: tuple[str, ...]) -> None:
        if found.get("journal") != expected["journal"] or found.get("version") != _VERSION:
            raise ParameterError(
                "journal",
                f"must be a journal of {expected['journal']}, version {_VERSION}",
                f"{self._log}, which begins with {cut(str(found), 80)}",
                "Pass another $journal.",
            )
        if found.get("predictions") != expected.get("predictions"):
            raise ParameterError(
                "predictions",
                f"must be the predictions that {self._log} audits",
                "other predictions",
                "Pass the audited predictions, or start a new audit with another $journal. Labels that trained a "
                "classifier cannot audit it.",
            )
        for key, value in expected.items():
            if key not in free and found.get(key) != value:
                raise ParameterError(
                    key,
                    f"must be as in {self._log}, {cut(repr(found.get(key)), 80)}",
                    cut(repr(value), 80),
                    "Pass the same value in the same order, or another $journal.",
                )
        if "seed" not in expected:
            return
        seed = found.get("seed")
        if type(seed) is not int or seed < 0 or not _is_known(found.get("known"), expected["rows"]):
            raise FileError(
                f"journal {self._log} must begin with a seed and the known labels; line 1 is {cut(str(found), 80)}. "
                f"{_RESTORE}"
            )


def answer_event(row: int, label: Any, probability: float) -> dict[str, Any]:
    """Return a label as a journal event. The label of a skipped row is None."""
    return {"skip" if label is None else "label": [row, label], "p": probability}


def answer_of(event: dict[str, Any]) -> tuple[int, Any]:
    """Return the row and label of an audit event. The label of a skipped row is None."""
    if "skip" in event:
        row, _ = event["skip"]
        return row, None
    row, label = event["label"]
    return row, check_known_label(label, None)


def hash_rows(X: Any) -> str:
    """Hash rows of numbers or texts, and their shape."""
    rows = np.asarray(X)
    digest = hashlib.sha256(repr(rows.shape).encode())
    if rows.dtype.kind in "fiub":
        digest.update(np.ascontiguousarray(rows, dtype="<f8").data)
    else:
        digest.update(repr(rows.tolist()).encode())
    return digest.hexdigest()[:32]


def hash_predictions(predicted: list[Any], belief: FloatArray | None) -> str:
    """Hash the predictions and error probabilities of all rows, which identify an audit."""
    digest = hashlib.sha256(repr(predicted).encode())
    if belief is not None:
        digest.update(np.ascontiguousarray(belief, dtype="<f8").data)
    return digest.hexdigest()[:32]


def _is_known(pairs: Any, n_rows: int) -> bool:
    """Return True for a list of pairs of row and label."""
    return isinstance(pairs, list) and all(
        isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int and 0 <= pair[0] < n_rows for pair in pairs
    )
