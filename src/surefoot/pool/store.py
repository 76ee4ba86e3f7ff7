"""The store next to a table: the only file that surefoot keeps there.

`pool.csv.surefoot.db` holds the options of earlier commands, all labeling events in order, the annotators, the
predictions that audits judge, and the audits of the command line.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from surefoot._errors import FileError, LockedError, ParameterError
from surefoot._printing import cut
from surefoot.pool.database import Database, Event, NotSavedError

_LONGEST_NAME = 60
# Owner of the token of a connected Label Studio, and author of its annotations without a name.
LABEL_STUDIO = "Label Studio"
SESSION_SECONDS = 30 * 24 * 3600
# in_table: the label of each labeled row when the store last read or wrote the table.
# seats: names and tasks that only one process at a time may use.
# gone: rows with events that the table no longer contains; their numbers are negative.
_TABLES = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE options (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE people (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE COLLATE NOCASE, token TEXT UNIQUE, created REAL NOT NULL) STRICT;
CREATE TABLE sessions (
    secret TEXT PRIMARY KEY, person INTEGER NOT NULL REFERENCES people(id), created REAL NOT NULL) STRICT;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, person INTEGER NOT NULL, row INTEGER NOT NULL,
    kind TEXT NOT NULL, value TEXT, purpose TEXT, probability REAL, audit INTEGER, key TEXT UNIQUE) STRICT;
CREATE TABLE frozen (
    audit INTEGER PRIMARY KEY, predictions BLOB NOT NULL, known BLOB NOT NULL, model BLOB,
    scores BLOB) STRICT;
CREATE TABLE row_keys (id INTEGER PRIMARY KEY CHECK (id = 1), keys BLOB NOT NULL) STRICT;
CREATE TABLE gone (row INTEGER PRIMARY KEY, key TEXT NOT NULL) STRICT;
CREATE TABLE in_table (row INTEGER PRIMARY KEY, label TEXT NOT NULL) STRICT;
CREATE TABLE seats (name TEXT PRIMARY KEY, process INTEGER NOT NULL) STRICT;
CREATE TABLE logs (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, event TEXT NOT NULL) STRICT;
CREATE INDEX events_of_a_log ON logs (name, id)
"""
# Incremented when rows are renumbered. A process with the old numbers must not write.
_MOVES = "moves"
# Number of the last audit before the rows of the pool changed.
MOVED_AUDITS = "moved_audits"


class FrozenBlobs(NamedTuple):
    """The stored data of an audit: predictions, known rows, model and scores."""

    audit: int
    predictions: bytes
    known: bytes
    model: bytes | None = None
    scores: bytes | None = None


@dataclass(frozen=True)
class Person:
    """An annotator."""

    id: int
    name: str


def store_path(table: str | os.PathLike[str]) -> Path:
    """Return the path of the store of a table. If the path is a link, the store is next to the target file."""
    return Path(f"{Path(table).resolve()}.surefoot.db")


def files_of(table: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of a table and of its store. No output of a command may overwrite them."""
    store = store_path(table)
    return [Path(table), store, *(store.with_name(f"{store.name}{end}") for end in ("-wal", "-shm"))]


def hashed(secret: str) -> str:
    """Return the hash of a token. The stored hash cannot be used to sign in."""
    return hashlib.sha256(secret.encode()).hexdigest()


def clean_name(text: str, parameter: str = "name") -> str:
    """Return a valid annotator name. Names that begin with a bracket are reserved for the table and programs."""
    name = unicodedata.normalize("NFC", " ".join(text.split()))
    if not 0 < len(name) <= _LONGEST_NAME or name.startswith("(") or not name.isprintable():
        raise ParameterError(
            parameter,
            f"must have 1 to {_LONGEST_NAME} characters, all visible, and must not begin with a bracket",
            repr(name),
            "Pass another name.",
        )
    return name


class Store:
    """Options, events, annotators, frozen predictions and audits of one table. Several processes may use it at once.

    about : the header, with label, classes, seed and so on. With a header, a missing file is created, and a file with a
    different header is refused.
    """

    def __init__(self, path: Path, about: dict[str, Any] | None = None) -> None:
        self.path = path
        self._database = Database(path, _TABLES, create=about is not None)
        self._read, self._transaction = self._database.read, self._database.transaction
        try:
            self.read_about()
            self.claim(about or {})
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. All earlier writes are on disk."""
        self._database.close()

    def together(self) -> AbstractContextManager[Any]:
        """Combine several writes into one transaction. No other process can write during it."""
        return self._transaction()

    # The header

    def read_about(self) -> None:
        """Read the header of the store again."""
        found = self._read("SELECT key, value FROM about")
        try:
            self.about: dict[str, Any] = {key: json.loads(value) for key, value in found}
        except ValueError as error:
            raise FileError(f"{self.path} must have a valid header in JSON; {error}. Restore the file.") from error

    def claim(self, about: Mapping[str, Any]) -> None:
        """Add missing entries to the header, and raise an error for different entries."""
        for key, value in about.items():
            if key not in self.about:
                self.remember(key, value)
            elif self.about[key] != value and key not in ("seed", "classes"):
                raise FileError(
                    f"{self.path} must belong to this pool; its {key} is {_short(self.about[key])}, that of the pool "
                    f"{_short(value)}. Restore the pool as it was, or move the store away (surefoot export first)."
                )

    def remember(self, key: str, value: Any) -> None:
        """Store a value in the header."""
        if self.about.get(key) != value:
            with self._transaction() as run:
                run(
                    "INSERT INTO about VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
                    (key, json.dumps(value)),
                )
            self.about[key] = value

    # Options

    def options(self) -> dict[str, Any]:
        """Return the options kept for the table."""
        try:
            return {name: json.loads(value) for name, value in self._read("SELECT name, value FROM options")}
        except ValueError as error:
            raise FileError(f"{self.path} must hold options in JSON; {error}. Restore the file.") from error

    def keep_options(self, options: Mapping[str, Any]) -> None:
        """Replace the kept options."""
        with self._transaction() as run:
            run("DELETE FROM options")
            for name, value in options.items():
                run("INSERT INTO options VALUES (?, ?)", (name, json.dumps(value)))

    # Events

    def events(self, after: int = 0) -> list[Event]:
        """Return all events after this event number, oldest first."""
        found = self._read(
            "SELECT kind, row, person, value, purpose, probability, audit, key, id, time FROM events WHERE id > ? "
            "ORDER BY id",
            after,
        )
        return [Event(*fields) for fields in found]

    def append(self, events: Sequence[Event], frozen: FrozenBlobs | None = None) -> list[Event]:
        """Write events, all or none, and wait until they are on disk. Return them with their numbers and times."""
        now = time.time()
        placed = []
        with self._transaction() as run:
            self._check_moves()
            if frozen is not None:
                run("INSERT INTO frozen VALUES (?, ?, ?, ?, ?)", frozen)
            for event in events:
                timed = replace(event, time=event.time or now)
                cursor = run(
                    "INSERT INTO events (time, person, row, kind, value, purpose, probability, audit, key) "
                    "VALUES (:time, :person, :row, :kind, :value, :purpose, :probability, :audit, :key)",
                    vars(timed),
                )
                placed.append(replace(timed, id=int(cursor.lastrowid or 0)))
        return placed

    def frozen(self, audit: int) -> FrozenBlobs:
        """Return the predictions that an audit judges."""
        found = self._read("SELECT audit, predictions, known, model, scores FROM frozen WHERE audit = ?", audit)
        if not found:
            raise FileError(f"{self.path} must hold the classifier of audit {audit}; it does not. Restore the file.")
        return FrozenBlobs(*found[0])

    # Rows

    def row_keys(self) -> bytes | None:
        """Return the row keys of the table when the store last saw it, None if it never did."""
        found = self._read("SELECT keys FROM row_keys")
        return found[0][0] if found else None

    def gone(self) -> dict[int, int]:
        """Return number -> key of the rows that the table no longer contains."""
        return {row: int(key) for row, key in self._read("SELECT row, key FROM gone")}

    def in_table(self) -> dict[int, str]:
        """Return row -> label when the store last read or wrote the table."""
        return dict(self._read("SELECT row, label FROM in_table"))

    def note_table(self, labels: Mapping[int, str | None]) -> None:
        """Record labels that the table now contains."""
        with self._transaction() as run:
            for row, label in labels.items():
                run("DELETE FROM in_table WHERE row = ?", (row,))
                if label is not None:
                    run("INSERT INTO in_table VALUES (?, ?)", (row, label))

    def renumber(self, keys: bytes, rows: Mapping[int, int], gone: Mapping[int, int]) -> None:
        """Change row numbers in all tables of the store, after the rows of the table have changed.

        keys : of the current rows; rows : old -> new number, of all rows that change; gone : number -> key.
        """
        with self._transaction() as run:
            run("INSERT INTO row_keys VALUES (1, ?) ON CONFLICT(id) DO UPDATE SET keys = excluded.keys", (keys,))
            run("DELETE FROM gone")
            for row, key in gone.items():
                run("INSERT INTO gone VALUES (?, ?)", (row, str(key)))
            events = [(number, row) for number, row in self._read("SELECT id, row FROM events") if row in rows]
            for number, row in events:
                run("UPDATE events SET row = ? WHERE id = ?", (rows[row], number))
            labels = self.in_table()
            run("DELETE FROM in_table")
            for row, label in labels.items():
                run("INSERT INTO in_table VALUES (?, ?)", (rows.get(row, row), label))
            self.remember(_MOVES, self.about.get(_MOVES, 0) + 1)

    def _check_moves(self) -> None:
        """Raise an error if another process has renumbered the rows, because this process knows the old numbers."""
        found = self._read("SELECT value FROM about WHERE key = ?", _MOVES)
        if found and json.loads(found[0][0]) != self.about.get(_MOVES):
            raise NotSavedError(
                f"The rows of the table of {self.path} have changed, and another process has taken that over. Nothing "
                "was written. Start this command again."
            )

    # Audits of the command line

    def log(self, name: str) -> Log:
        """Open a log of this store. No other process can open it until it is closed."""
        self.hold(name)
        return Log(self, name)

    # Annotators

    def people(self) -> list[Person]:
        """Return all annotators in the order of registration."""
        return [Person(*fields) for fields in self._read("SELECT id, name FROM people ORDER BY id")]

    def person(self, name: str) -> Person:
        """Return the person with this name, and register a new name. Names are compared in Unicode form NFC."""
        name = unicodedata.normalize("NFC", name)
        with self._transaction() as run:
            run("INSERT INTO people (name, created) VALUES (?, ?) ON CONFLICT(name) DO NOTHING", (name, time.time()))
            return Person(*run("SELECT id, name FROM people WHERE name = ?", (name,)).fetchone())

    def take_seat(self, name: str) -> Person:
        """Return the person for the first of NAME, NAME 2, ... that no running process holds."""
        with self._transaction():
            number = next(k for k in count(1) if self._sit_down(_numbered(name, k)))
            return self.person(_numbered(name, number))

    def hold(self, name: str) -> None:
        """Reserve a task that only one process at a time may do, until `leave`."""
        with self._transaction() as run:
            if not self._sit_down(name):
                process = run("SELECT process FROM seats WHERE name = ?", (name,)).fetchone()[0]
                raise LockedError(
                    f"{name!r} of {self.path} can have one writer at a time, and process {process} has it open. Wait "
                    "for it to end, or end it."
                )

    def leave(self, name: str) -> None:
        """Release a seat for other processes."""
        with self._transaction() as run:
            run("DELETE FROM seats WHERE name = ? AND process = ?", (name, os.getpid()))

    def _sit_down(self, name: str) -> bool:
        with self._transaction() as run:
            found = run("SELECT process FROM seats WHERE name = ?", (name,)).fetchone()
            if found is not None and _is_alive(found[0]):
                return False
            run("INSERT OR REPLACE INTO seats VALUES (?, ?)", (name, os.getpid()))
            return True

    def invite(self, name: str) -> str:
        """Return a new 128-bit token for a person and invalidate the old one. Only the hash of the token is stored."""
        token = secrets.token_urlsafe(16)
        person = self.person(name)
        with self._transaction() as run:
            run("UPDATE people SET token = ? WHERE id = ?", (hashed(token), person.id))
            run("DELETE FROM sessions WHERE person = ?", (person.id,))
        return token

    def has_invitations(self) -> bool:
        """Return True if any annotator has an invitation link."""
        return bool(self._read("SELECT 1 FROM people WHERE token IS NOT NULL AND name != ? LIMIT 1", LABEL_STUDIO))

    def knows_label_studio(self) -> bool:
        """Return True if Label Studio has a token."""
        return bool(self._read("SELECT 1 FROM people WHERE token IS NOT NULL AND name = ?", LABEL_STUDIO))

    def invited(self, token: str) -> Person | None:
        """Return the person with this token, or None."""
        return self._one("SELECT id, name FROM people WHERE token = ?", hashed(token))

    def sign_in(self, person: Person) -> str:
        """Start a session and return its secret."""
        secret, now = secrets.token_urlsafe(32), time.time()
        with self._transaction() as run:
            run("DELETE FROM sessions WHERE abs(created - ?) >= ?", (now, SESSION_SECONDS))
            run("INSERT INTO sessions VALUES (?, ?, ?)", (hashed(secret), person.id, now))
        return secret

    def sign_out(self, secret: str) -> None:
        """End a session."""
        with self._transaction() as run:
            run("DELETE FROM sessions WHERE secret = ?", (hashed(secret),))

    def signed_in(self, secret: str) -> Person | None:
        """Return the person of a session, or None. Sessions that began long ago, or in the far future, have ended."""
        return self._one(
            "SELECT people.id, name FROM sessions JOIN people ON people.id = person WHERE secret = ? "
            "AND abs(sessions.created - ?) < ?",
            hashed(secret),
            time.time(),
            SESSION_SECONDS,
        )

    def _one(self, query: str, *values: Any) -> Person | None:
        found = self._read(query, *values)
        return Person(*found[0]) if found else None


class Log:
    """A named journal in a store. Its events are dictionaries. It can be the `journal` of an audit."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self.name = store, name

    def __str__(self) -> str:
        return f"{self.name!r} in {self._store.path}"

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> list[dict[str, Any]]:
        """Return all events, oldest first."""
        events = []
        for (text,) in self._store._read("SELECT event FROM logs WHERE name = ? ORDER BY id", self.name):
            try:
                event = json.loads(text)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                raise FileError(f"each event of {self} must be a JSON object; got {text[:60]!r}. Restore the file.")
            events.append(event)
        return events

    def append(self, event: dict[str, Any]) -> None:
        """Write an event and wait until it is on disk."""
        with self._store.together() as run:
            text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
            run("INSERT INTO logs (name, event) VALUES (?, ?)", (self.name, text))

    def close(self) -> None:
        """Close the log, so that another process can open it."""
        self._store.leave(self.name)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} {number}"


def _is_alive(process: int) -> bool:
    """Return True if a process runs on this machine. Always False on Windows, where the check would kill it."""
    if os.name != "posix":
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user
        return True
    return True


def _short(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False))
