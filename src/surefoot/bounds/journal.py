"""The journal of labels: every event is safe before it is acknowledged, and what was begun is not changed.

A journal is a log of JSON objects. The first one, the header, says what is labeled or audited; each further one is an
event. Where the log lies is a detail: `JournalFile` keeps it in a file of JSON lines, and any object with the methods
of `EventLog` will do.
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
_RESTORE = "Restore it from a copy, or begin anew with another journal."


class EventLog(Protocol):
    """Where a journal lies. `str(log)` names it in messages; `close`, if there is one, ends the exclusive use."""

    def read(self) -> list[dict[str, Any]]:
        """All that was appended, oldest first; none in a new log."""
        ...

    def append(self, event: dict[str, Any]) -> None:
        """Keep a JSON object; return when it is safe."""
        ...


class JournalFile:
    """A log in a file of JSON lines, to which no one else can write while it is open.

    A process that is killed while it writes leaves at most one torn line at the end, whose event was not acknowledged:
    the next event takes its place.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.close = weakref.finalize(self, os.close, hold_file(self.path))
        self._log = LineLog(path)

    def read(self) -> list[dict[str, Any]]:
        """The events in the file."""
        return read_events(self._log)

    def append(self, event: dict[str, Any]) -> None:
        """Write an event and wait until the disk has it."""
        append_event(self._log, event)

    def __str__(self) -> str:
        return str(self.path)


class Journal:
    """A header that says what is labeled or audited, then events; a log of None keeps nothing.

    kind : what writes it.
    about : the header. An existing journal must say the same.
    free : keys of `about` that an existing journal decides, and whose value given is ignored.
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
        """Apply the events that were there when the journal was opened; an error names the one that is damaged."""
        for number, event in enumerate(self._events, start=2):
            try:
                apply(event)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                self.close()
                raise FileError(
                    f"journal {self._log} must hold the events of {self._kind}; line {number} is {cut(str(event), 80)} "
                    f"({type(error).__name__}: {error}). {_RESTORE}"
                ) from error

    def append(self, event: dict[str, Any]) -> None:
        """Keep an event; return when it is safe."""
        if self._log is not None:
            self._log.append(event)

    def close(self) -> None:
        """Let others write."""
        close = getattr(self._log, "close", None)
        if close is not None:
            close()

    def _check_header(self, found: dict[str, Any], expected: dict[str, Any], free: tuple[str, ...]) -> None:
        if found.get("journal") != expected["journal"] or found.get("version") != _VERSION:
            raise ParameterError(
                "journal",
                f"must be one that {expected['journal']} wrote, in version {_VERSION}",
                f"{self._log}, which begins with {cut(str(found), 80)}",
                "Pass another $journal.",
            )
        if found.get("predictions") != expected.get("predictions"):
            raise ParameterError(
                "predictions",
                f"must be those that {self._log} audits, fixed before its labels were seen",
                "others",
                "A classifier trained on audited rows cannot be judged by them. Pass the ones that were audited, or "
                "begin another audit with another $journal.",
            )
        for key, value in expected.items():
            if key not in free and found.get(key) != value:
                raise ParameterError(
                    key,
                    f"must be as it was when {self._log} was begun, {cut(repr(found.get(key)), 80)}",
                    cut(repr(value), 80),
                    "Pass the same, in the same order, or another $journal.",
                )
        if "seed" not in expected:
            return
        seed = found.get("seed")
        if type(seed) is not int or seed < 0 or not _is_known(found.get("known"), expected["rows"]):
            raise FileError(
                f"journal {self._log} must begin with a seed and the labels known; line 1 is {cut(str(found), 80)}. "
                f"{_RESTORE}"
            )


def answer_event(row: int, label: Any, probability: float) -> dict[str, Any]:
    """An answer as a journal holds it; None: the row was skipped."""
    return {"skip" if label is None else "label": [row, label], "p": probability}


def answer_of(event: dict[str, Any]) -> tuple[int, Any]:
    """Row and label of an event of an audit; None where the row was skipped."""
    if "skip" in event:
        row, _ = event["skip"]
        return row, None
    row, label = event["label"]
    return row, check_known_label(label, None)


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


def _is_known(pairs: Any, n_rows: int) -> bool:
    """Whether this is a list of rows with labels."""
    return isinstance(pairs, list) and all(
        isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int and 0 <= pair[0] < n_rows for pair in pairs
    )
