"""`surefoot label` and `export`, killed at every call that changes a file or its store: no acknowledged answer is lost
or doubled, and what is exported is there as a whole or not at all.

An answer is acknowledged when the next question is put. The child process is forked, so that a kill costs a fraction of
a second; it labels random rows only, and so starts no threads of compiled code.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from generators import make_pool
from serve.rooms import make_room
from surefoot.cli import run
from surefoot.pool.store import Store, store_path
from surefoot.pool.store_labels import stored_book
from surefoot.pool.table import read_labeled_table

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ANSWERS = ["yes", "no", "skip", "yes", "undo", "no"]
COMMAND = ["label", "pool.csv", "--label", "churn", "--classes", "yes,no", "--random-first", "1000"]
# All that `label` does to files goes through these, and through the statements of SQLite.
CALLS = [(os, "write"), (os, "fsync"), (os, "ftruncate"), (os, "open"), (os, "pwrite"), (os, "chmod")]
CALLS += [(Path, "write_bytes"), (Path, "replace"), (Path, "unlink"), (Path, "chmod")]


class Typing(io.StringIO):
    """Answers, each after a note, through a pipe, of how many were acknowledged."""

    def __init__(self, pipe: int) -> None:
        super().__init__()
        self.pipe, self.asked = pipe, 0
        self.note = os.write  # the real one

    def readline(self, *_: Any) -> str:
        self.note(self.pipe, bytes([self.asked]))
        self.asked += 1
        return ANSWERS[self.asked - 1] + "\n" if self.asked <= len(ANSWERS) else ""


def killing(at: int, half: bool) -> Callable[[Any], Any]:
    """Wraps calls so that the one numbered `at` is not made, or half made if it writes; and the process is killed."""
    made = [0]

    def wrap(call: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            made[0] += 1
            if made[0] == at:
                if half and isinstance(arguments[-1], bytes):
                    call(*arguments[:-1], arguments[-1][: len(arguments[-1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counted

    return wrap


def run_until_killed(command: list[str], at: int, half: bool) -> tuple[int, bool]:
    """How many answers were acknowledged, and whether the process was killed before it had ended."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sys.stdin = Typing(writable)
            sys.stdout = sys.stderr = io.StringIO()
            wrap = killing(at, half)
            for owner, name in CALLS:
                setattr(owner, name, wrap(getattr(owner, name)))
            connect, execute = sqlite3.connect, wrap(sqlite3.Connection.execute)
            killed = type("Killed", (sqlite3.Connection,), {"execute": execute})
            sqlite3.connect = lambda *arguments, **options: connect(*arguments, **options, factory=killed)
            os._exit(run(command))
        finally:
            os._exit(99)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        notes = pipe.read()
    status = os.waitpid(child, 0)[1]
    assert status in {0, signal.SIGKILL}
    return (notes[-1] if notes else 0), status == signal.SIGKILL


def in_table() -> list[str]:
    with Path("pool.csv").open(newline="") as file:
        return [row["churn"] for row in csv.DictReader(file)]


def labels() -> list[str]:
    """The labels of the table and its store together."""
    book = stored_book(read_labeled_table("pool.csv", "churn", classes=["no", "yes"]))
    return in_table() if book is None else [book.labels.get(row, "") for row in range(20)]


def history() -> list[list[str]]:
    """The labels after each answer of an uninterrupted run."""
    states = []
    for count in range(len(ANSWERS) + 1):
        fresh()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO("".join(f"{answer}\n" for answer in ANSWERS[:count])))
            assert run(COMMAND) == 0
        states.append(labels())
    return states


def fresh() -> None:
    make_pool(n_rows=20, n_labels=0).assign(churn=None).to_csv("pool.csv", index=False)
    for end in ("", "-wal", "-shm"):
        Path(f"pool.csv.surefoot.db{end}").unlink(missing_ok=True)


def check_kills(points: range, states: list[list[str]]) -> int:
    """Kill at each point; how many points there were before the process came to its end."""
    for at in points:
        for half in (False, True):
            fresh()
            acknowledged, killed = run_until_killed(COMMAND, at, half)
            assert in_table() in ([""] * 20, labels())  # all or nothing
            # the answer that was being written may be there or not; those before it are
            assert labels() in states[acknowledged : acknowledged + 2], f"killed at call {at}, half {half}"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("sys.stdin", io.StringIO("no\n"))
                before = labels()
                assert run(COMMAND) == 0, f"no resumption after a kill at call {at}, half {half}"
            changed = [(old, new) for old, new in zip(before, labels(), strict=True) if old != new]
            assert changed == [("", "no")]
            assert in_table() == labels()
            with Store(store_path("pool.csv")) as store:
                rows = Counter(event.row for event in store.events() if event.kind == "label")
                undone = Counter(event.row for event in store.events() if event.kind == "undo")
            assert all(rows[row] - undone[row] <= 1 for row in rows)
            assert {path.name for path in Path().iterdir()} == {"pool.csv", "pool.csv.surefoot.db"}
            if not killed:
                return at
    return points.stop


@pytest.mark.parametrize("step", [23, pytest.param(3, marks=pytest.mark.slow)])
def test_no_acknowledged_answer_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.chdir(tmp_path)
    states = history()
    assert len({tuple(state) for state in states}) > 3
    assert check_kills(range(2, 1000, step), states) > 80


EXPORTS = {
    "in place": (["--in-place"], "pool.csv"),
    "a new table": (["--out", "new.csv"], "new.csv"),
    "tasks": (["--out", "tasks.json"], "tasks.json"),
    "answers": (["--answers", "answers.csv"], "answers.csv"),
}


@pytest.mark.parametrize("step", [11, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", EXPORTS)
def test_an_export_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, step: int) -> None:
    options, name = EXPORTS[what]
    command = ["export", "pool.csv", "--label", "churn", *options]
    (tmp_path / "before").mkdir()
    desk = make_room(tmp_path / "before").desk
    ada = desk.store.person("ada")
    for label in ("yes", "no", "yes"):
        desk.answer(ada, desk.rows_for(ada)[0].row, label)
    known = dict(desk.book.labels)
    desk.store.close()
    states = []
    for at in (10**9, *range(1, 1000, step)):  # the first one is not killed
        folder = tmp_path / f"killed at {at}"
        shutil.copytree(tmp_path / "before", folder)
        monkeypatch.chdir(folder)
        before = {path.name for path in Path().iterdir()}
        old = Path(name).read_bytes() if Path(name).exists() else None
        _, killed = run_until_killed(command, at, half=at % 2 == 0)
        found = Path(name).read_bytes() if Path(name).exists() else None
        states.append(found)
        assert found in (old, states[0]), f"half written by a kill at call {at}"
        assert found != old or killed
        if found == old:
            assert run(command) == 0
        assert Path(name).read_bytes() == states[0]
        book = stored_book(read_labeled_table("pool.csv", "churn", classes=["no", "yes"]))
        assert book is not None
        assert dict(book.labels) == known
        assert {path.name for path in Path().iterdir()} <= before | {name}
        if not killed and at < 10**9:
            break
    assert not killed
    assert len(states) > 2
