"""An SQLite file with a write-ahead log. When a transaction returns, its changes are on disk."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from surefoot._errors import FileError
from surefoot._files import cannot_write, sync_folder

# Events record everything that happens while a pool is labeled. A written event never changes.

# Kinds of events. The first five are actions of an annotator. The others follow from them or come from the server.
LABEL, SKIP, UNDO, FLAG, UNFLAG = "label", "skip", "undo", "flag", "unflag"
NOTE, SETTLE = "note", "settle"
PICK, FREEZE, CLOSE, FINISH, MEASURED = "pick", "freeze", "close", "finish", "measured"
COLUMN, TARGET = "column", "target"

# Purposes of a row that is handed out. Those in DRAWN mark random samples of the open rows.
LEARN, RANDOM, AUDIT, SECOND, GIVEN, IMPORTED = "learn", "random", "audit", "second", "given", "imported"
DRAWN = (RANDOM, AUDIT, GIVEN)

# The person and the row of an event without one.
NOBODY, NO_ROW = 0, -1


@dataclass(frozen=True)
class Event:
    """One event.

    kind : one of the kinds above; value : the label, the text of a note, or the server's result as JSON.
    purpose, probability, audit : why a row was sampled, with which probability, and for which audit.
    key : made by the page, so that a label sent twice counts once; id and time : set by the store.
    """

    kind: str
    row: int = NO_ROW
    person: int = NOBODY
    value: str | None = None
    purpose: str | None = None
    probability: float | None = None
    audit: int | None = None
    key: str | None = None
    id: int = 0
    time: float = 0.0


VERSION = 3
_APPLICATION = 0x73664C62  # "sfLb", in the file header, distinguishes our files from other databases
_BUSY_MS = 10_000


class NotSavedError(FileError):
    """A change could not be written. The file is unchanged."""


class Database:
    """One connection to a file, shared by all threads of a process. Several processes may each have one.

    tables : SQL that creates the tables of a new file.
    create : whether to create a missing file. Without `create`, the file can be read on a full disk.

    In a read-only folder, the file can be read but not changed.
    """

    def __init__(self, path: Path, tables: str, *, create: bool) -> None:
        self.path = path
        self._lock = threading.RLock()
        if not path.exists() and not create:
            raise FileError(f"{path} does not exist. Label rows with surefoot label or surefoot serve first.")
        wal = Path(f"{path}-wal")
        self._settled = not wal.exists() or not wal.stat().st_size  # the write-ahead log is missing or empty
        folder_ok = os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
        try:
            try:
                self._connect(tables, writable=folder_ok)
            except sqlite3.OperationalError:  # on a full disk SQLite cannot create its extra files
                if create or not folder_ok or not self._settled:
                    raise
                self._connect(tables, writable=False)
        except sqlite3.Error as error:
            raise FileError(error_message(path, error, "opened")) from error
        except OSError as error:
            raise cannot_write(path, error) from error

    def _connect(self, tables: str, *, writable: bool) -> None:
        self.writable = writable
        reading = "?immutable=1" if self._settled else "?mode=ro"
        address = f"file:{quote(str(self.path.absolute()))}{'' if writable else reading}"
        self._connection = sqlite3.connect(
            address, uri=True, check_same_thread=False, isolation_level=None, timeout=_BUSY_MS / 1000
        )
        try:
            self._open(tables)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, tables: str) -> None:
        run = self._connection.execute
        if self._is_new() and self.writable:
            self._make(tables)
        application, version = (int(run(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version"))
        if (application, version) != (_APPLICATION, VERSION):
            raise FileError(
                f"{self.path} must be a store of surefoot in version {VERSION}; it is another file, or of version "
                f"{version}. Move it away, or use the surefoot that made it."
            )
        if self.writable:
            run("PRAGMA synchronous=FULL")
            run("PRAGMA foreign_keys=ON")

    def _is_new(self) -> bool:
        """Return True if the file is empty: just created, or its creator was killed."""
        run = self._connection.execute
        marks = [run(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        return marks == [0, 0] and not run("SELECT 1 FROM sqlite_master").fetchone()

    def _make(self, tables: str) -> None:
        """Create all tables in one transaction, so that a kill leaves either an empty file or a complete one."""
        mode = self._connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise FileError(
                f"{self.path} must lie on a disk where SQLite can keep a write-ahead log; here the mode is {mode!r}. "
                "Copy the table to a local disk."
            )
        with self.transaction("created") as run:
            if self._is_new():  # no other process was faster
                for statement in filter(str.strip, tables.split(";")):
                    run(statement)
                run(f"PRAGMA application_id={_APPLICATION}")
                run(f"PRAGMA user_version={VERSION}")
        sync_folder(self.path.parent)

    def close(self) -> None:
        """Close the file. All earlier writes are on disk."""
        with self._lock:
            self._connection.close()

    def read(self, query: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""
        with self._lock:
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise FileError(error_message(self.path, error, "read")) from error

    @contextmanager
    def transaction(self, what: str = "written to") -> Iterator[Any]:
        """Combine several writes into one transaction. Afterwards either all are on disk, or none.

        No other process can write during a transaction. A nested transaction becomes part of the outer one.
        """
        with self._lock:
            run = self._connection.execute
            if self._connection.in_transaction:
                yield run
                return
            try:
                run("BEGIN IMMEDIATE")
                yield run
                run("COMMIT")
            except sqlite3.Error as error:
                self._roll_back()
                raise NotSavedError(error_message(self.path, error, what)) from error
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def error_message(path: Path, error: sqlite3.Error, what: str) -> str:
    """Return a message for the user about an SQLite error, with the fix."""
    reason, fix = str(error), "Check the disk"
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # the low byte is the kind; our own errors have no code
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            reason, fix = f"the disk is full or fails ({reason})", "Make room on it"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN:
            reason, fix = f"the folder or the file is read-only ({reason})", "Allow writing to it"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            reason, fix = "another process writes to it", "Wait for that process or end it"
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            fix = "Restore the file, or move it away"
    return f"{path} could not be {what}: {reason}. Nothing was changed. {fix}, and try again."
