"""`surefoot label`, killed at every call that changes a file: every acknowledged answer is there afterwards.

An answer is acknowledged when the next question is put. The child process is forked, so that a kill costs a fraction of
a second; it labels random rows only, and so starts no threads of compiled code.
"""

from __future__ import annotations

import csv
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.pools import make_pool
from surefoot.cli import run
from surefoot.pool.table.beside import asked_path

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ANSWERS = ["yes", "no", "skip", "yes", "undo", "no"]
COMMAND = ["label", "pool.csv", "--label", "churn", "--classes", "yes,no", "--random-first", "1000"]
# All that `label` does to files goes through these.
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


def label_until_killed(at: int, half: bool) -> tuple[int, bool]:
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
            os._exit(run(COMMAND))
        finally:
            os._exit(99)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        notes = pipe.read()
    status = os.waitpid(child, 0)[1]
    assert status in {0, signal.SIGKILL}
    return (notes[-1] if notes else 0), status == signal.SIGKILL


def labels() -> list[str]:
    with Path("pool.csv").open(newline="") as file:
        return [row["churn"] for row in csv.DictReader(file)]


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
    asked_path("pool.csv").unlink(missing_ok=True)


def check_kills(points: range, states: list[list[str]]) -> int:
    """Kill at each point; how many points there were before the process came to its end."""
    for at in points:
        for half in (False, True):
            fresh()
            acknowledged, killed = label_until_killed(at, half)
            # the answer that was being written may be there or not; those before it are
            assert labels() in states[acknowledged : acknowledged + 2], f"killed at call {at}, half {half}"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("sys.stdin", io.StringIO("no\n"))
                before = labels()
                assert run(COMMAND) == 0, f"no resumption after a kill at call {at}, half {half}"
            changed = [(old, new) for old, new in zip(before, labels(), strict=True) if old != new]
            assert changed == [("", "no")]
            assert {path.name for path in Path().iterdir()} == {
                "pool.csv",
                "pool.csv.asked.jsonl",
                "pool.csv.surefoot.toml",
            }
            if not killed:
                return at
    return points.stop


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_no_acknowledged_answer_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.chdir(tmp_path)
    states = history()
    assert len({tuple(state) for state in states}) > 3
    assert check_kills(range(2, 500, step), states) > 40
