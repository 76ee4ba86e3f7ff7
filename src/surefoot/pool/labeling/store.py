"""The store beside a pool: SQLite with a write-ahead log; what it has acknowledged is on the disk.

`pool.csv.surefoot.db` holds the events of labeling in the order in which they happened, the people, and the frozen
classifiers that audits judge. All that a page shows follows from the events.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from surefoot._errors import FileError
from surefoot._files import sync_folder
from surefoot._printing import cut
from surefoot.pool.labeling.events import Event

VERSION = 1
_APPLICATION = 0x73664C62  # "sfLb": in the file's head, so that no other database is taken for ours
_BUSY_MS = 10_000
_LONGEST_NAME = 60
_TABLES = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE people (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE COLLATE NOCASE, token TEXT UNIQUE, created REAL NOT NULL) STRICT;
CREATE TABLE sessions (
    secret TEXT PRIMARY KEY, person INTEGER NOT NULL REFERENCES people(id), created REAL NOT NULL) STRICT;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, person INTEGER NOT NULL, row INTEGER NOT NULL,
    kind TEXT NOT NULL, value TEXT, purpose TEXT, probability REAL, audit INTEGER, key TEXT UNIQUE) STRICT;
CREATE TABLE frozen (
    audit INTEGER PRIMARY KEY, predictions BLOB NOT NULL, known BLOB NOT NULL, model BLOB) STRICT;
"""


# Number of the audit, predictions, known rows, model.
FrozenBlobs = tuple[int, bytes, bytes, bytes | None]


class NotSavedError(FileError):
    """An answer could not be written; nothing of it is in the store."""


@dataclass(frozen=True)
class Person:
    """Someone who labels."""

    id: int
    name: str


def hashed(secret: str) -> str:
    """What is stored of a token: who reads the file cannot sign in with it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_name(name: str) -> None:
    """Refuse a name that no person may have: a bracket begins those of the table and of programs."""
    if not 0 < len(name) <= _LONGEST_NAME or name.startswith("(") or not name.isprintable():
        raise ValueError(f"A name has 1 to {_LONGEST_NAME} characters, all visible, and does not begin with a bracket.")


class Store:
    """Events, people and frozen classifiers of one pool. One process writes events; others may add people.

    Parameters
    ----------
    path : of the file, made if there is none.
    about : what the store belongs to: label, classes, rows, fingerprint, seed. An existing one of another pool is
        refused.
    """

    def __init__(self, path: Path, about: dict[str, Any] | None = None) -> None:
        self.path = path
        self._lock = threading.RLock()
        if not path.exists() and about is None:
            raise FileError(f"{path} must be there; it is not. Start surefoot serve on the pool first.")
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
            self._open(about or {})
        except sqlite3.Error as error:
            raise FileError(_words(path, error, "opened")) from error

    def _open(self, about: dict[str, Any]) -> None:
        run = self._connection.execute
        application, version = (int(run(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version"))
        begun = application == version == 0 and not run("SELECT 1 FROM sqlite_master").fetchone()  # killed at its birth
        if not begun and (application, version) != (_APPLICATION, VERSION):
            raise FileError(
                f"{self.path} must be a store of surefoot in version {VERSION}; it is another file, or of version "
                f"{version}. Move it away, or use the surefoot that made it."
            )
        mode = run("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise FileError(
                f"{self.path} must lie on a disk where SQLite can keep a write-ahead log; here the mode is {mode!r}. "
                "Copy the pool to a local disk."
            )
        run("PRAGMA synchronous=FULL")
        run("PRAGMA foreign_keys=ON")
        if begun:
            self._create(about)
        try:
            self.about: dict[str, Any] = {key: json.loads(value) for key, value in run("SELECT key, value FROM about")}
        except ValueError as error:
            raise FileError(f"{self.path} must say in JSON what it belongs to; {error}. Restore the file.") from error
        self._check(about)

    def _create(self, about: dict[str, Any]) -> None:
        """All tables in one transaction: a kill leaves either no store or a whole one."""
        with self._transaction("created") as run:
            for statement in _TABLES.split(";"):
                if statement.strip():
                    run(statement)
            for key, value in about.items():
                run("INSERT INTO about VALUES (?, ?)", (key, json.dumps(value)))
            run(f"PRAGMA application_id={_APPLICATION}")
            run(f"PRAGMA user_version={VERSION}")
        sync_folder(self.path.parent)

    def _check(self, about: dict[str, Any]) -> None:
        for key, value in about.items():
            if key in self.about and self.about[key] != value and key != "seed":
                raise FileError(
                    f"{self.path} must belong to this pool; its {key} is {_short(self.about[key])}, that of the pool "
                    f"{_short(value)}. Restore the pool as it was, or move the store away (surefoot export first)."
                )

    def remember(self, key: str, value: Any) -> None:
        """Keep a value beside what the store belongs to."""
        if self.about.get(key) != value:
            with self._transaction("written to") as run:
                run(
                    "INSERT INTO about VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
                    (key, json.dumps(value)),
                )
            self.about[key] = value

    def close(self) -> None:
        """No more writes; what was written is on the disk already."""
        with self._lock:
            self._connection.close()

    def events(self) -> list[Event]:
        """All events, oldest first."""
        found = self._read(
            "SELECT kind, row, person, value, purpose, probability, audit, key, id, time FROM events ORDER BY id"
        )
        return [Event(*fields) for fields in found]

    def append(
        self, events: Sequence[Event], frozen: tuple[int, bytes, bytes, bytes | None] | None = None
    ) -> list[Event]:
        """Write events, all or none, and wait until the disk has them; as they are in the store."""
        now = time.time()
        placed = []
        with self._transaction("written to") as run:
            if frozen is not None:
                run("INSERT INTO frozen VALUES (?, ?, ?, ?)", frozen)
            for event in events:
                timed = event if event.time else replace(event, time=now)
                cursor = run(
                    "INSERT INTO events (time, person, row, kind, value, purpose, probability, audit, key) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    timed.values(),
                )
                placed.append(timed.placed(int(cursor.lastrowid or 0), timed.time))
        return placed

    @contextmanager
    def together(self) -> Iterator[None]:
        """Several writes as one, with one wait for the disk: all of them are there afterwards, or none."""
        with self._transaction("written to"):
            yield

    def frozen(self, audit: int) -> tuple[bytes, bytes, bytes | None]:
        """Predictions, known rows and model of the classifier of an audit."""
        found = self._read("SELECT predictions, known, model FROM frozen WHERE audit = ?", audit)
        if not found:
            raise FileError(f"{self.path} must hold the classifier of audit {audit}; it does not. Restore the file.")
        predictions, known, model = found[0]
        return predictions, known, model

    def people(self) -> list[Person]:
        """Everyone, in the order in which they came."""
        return [Person(*fields) for fields in self._read("SELECT id, name FROM people ORDER BY id")]

    def person(self, name: str) -> Person:
        """The person of this name, taken in if new."""
        with self._transaction("written to") as run:
            run("INSERT INTO people (name, created) VALUES (?, ?) ON CONFLICT(name) DO NOTHING", (name, time.time()))
            return Person(*run("SELECT id, name FROM people WHERE name = ?", (name,)).fetchone())

    def invite(self, name: str) -> str:
        """A new token of 128 bits for a person; an older one no longer works. Only its hash is kept."""
        token = secrets.token_urlsafe(16)
        person = self.person(name)
        with self._transaction("written to") as run:
            run("UPDATE people SET token = ? WHERE id = ?", (hashed(token), person.id))
            run("DELETE FROM sessions WHERE person = ?", (person.id,))
        return token

    def invited(self, token: str) -> Person | None:
        """Whose token this is."""
        return self._one("SELECT id, name FROM people WHERE token = ?", hashed(token))

    def sign_in(self, person: Person) -> str:
        """The secret of a new session."""
        secret = secrets.token_urlsafe(32)
        with self._transaction("written to") as run:
            run("INSERT INTO sessions VALUES (?, ?, ?)", (hashed(secret), person.id, time.time()))
        return secret

    def sign_out(self, secret: str) -> None:
        """End a session."""
        with self._transaction("written to") as run:
            run("DELETE FROM sessions WHERE secret = ?", (hashed(secret),))

    def signed_in(self, secret: str) -> Person | None:
        """Whose session this is."""
        return self._one(
            "SELECT people.id, name FROM sessions JOIN people ON people.id = person WHERE secret = ?", hashed(secret)
        )

    def _one(self, query: str, value: str) -> Person | None:
        found = self._read(query, value)
        return Person(*found[0]) if found else None

    def _read(self, query: str, *values: Any) -> list[Any]:
        """All lines that a question gives."""
        with self._lock:
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise FileError(_words(self.path, error, "read")) from error

    @contextmanager
    def _transaction(self, what: str) -> Iterator[Any]:
        with self._lock:
            run = self._connection.execute
            if self._connection.in_transaction:  # part of a larger one
                yield run
                return
            try:
                run("BEGIN IMMEDIATE")
                yield run
                run("COMMIT")
            except sqlite3.Error as error:
                self._roll_back()
                raise NotSavedError(_words(self.path, error, what)) from error
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _words(path: Path, error: sqlite3.Error, what: str) -> str:
    reason = str(error)
    fix = "Check the disk"
    if "full" in reason or "disk I/O" in reason:
        reason, fix = f"the disk is full or fails ({reason})", "Make room on it"
    elif "readonly" in reason or "unable to open" in reason:
        reason, fix = f"the folder or the file is read-only ({reason})", "Allow writing to it"
    elif "locked" in reason:
        reason, fix = "another process writes to it", "End that process"
    elif "not a database" in reason or "malformed" in reason:
        fix = "Restore the file, or move it away"
    return f"{path} could not be {what}: {reason}. Nothing was changed. {fix}, and try again."


def _short(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False))
