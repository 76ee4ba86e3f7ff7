"""Several processes at one store: terminals and a server label the same table at the same time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from generators import make_pool
from serve.rooms import Client, make_room
from surefoot.pool.store import Store, store_path
from surefoot.pool.store_labels import waiting_labels
from surefoot.pool.table import read_labeled_table

COMMAND = [sys.executable, "-m", "surefoot.cli", "label", "pool.csv", "--label", "churn", "--classes", "yes,no"]


def terminal(folder: Path, *more: str) -> subprocess.Popen[str]:
    """A terminal that asks for rows at random, and so fits nothing."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([*COMMAND, "--random-first", "1000", *more], cwd=folder, text=True, **pipes)


def until_asked(process: subprocess.Popen[str]) -> tuple[int, str]:
    """What a terminal prints up to its next question; the row that it asks for."""
    said = ""
    while not said.endswith("quit > "):
        letter = process.stdout.read(1)
        assert letter, said
        said += letter
    return int(re.findall(r"^Row (\d+)", said, re.MULTILINE)[-1]) - 1, said


def answer(process: subprocess.Popen[str], label: str) -> None:
    process.stdin.write(f"{label}\n")
    process.stdin.flush()


def test_terminals_and_a_server_label_one_table(tmp_path: Path) -> None:
    make_pool(n_rows=120, n_labels=0).assign(churn=None).to_csv(tmp_path / "pool.csv", index=False)
    room = make_room(tmp_path)
    ada = Client(room)
    terminals = [terminal(tmp_path) for _ in range(2)]
    given: dict[int, str] = {}
    rows = [until_asked(one)[0] for one in terminals]
    for turn in range(4):
        held = {card["row"] for card in ada.rows()}
        assert len({*rows, *held}) == 5  # nobody is asked for a row that another has
        for place, one in enumerate(terminals):
            given[rows[place]] = ["yes", "no"][(turn + place) % 2]
            answer(one, given[rows[place]])
            rows[place] = until_asked(one)[0]
            assert rows[place] not in given
        row = ada.rows()[0]["row"]
        assert row not in given
        given[row] = "yes"
        assert ada.post("answer", row=row, label="yes").json()["standing"]["labels"] == len(given)
    killed, *others = terminals
    answer(killed, "no")
    given[rows[0]] = "no"
    open_row, _ = until_asked(killed)  # acknowledged
    killed.kill()
    killed.wait()
    assert pd.read_csv(tmp_path / "pool.csv")["churn"].notna().sum() == 0
    for one in others:
        answer(one, "quit")
        assert one.wait(60) == 0
        assert pd.read_csv(tmp_path / "pool.csv")["churn"].dropna().to_dict() == given  # of all processes
    again = terminal(tmp_path)
    assert until_asked(again)[0] in {open_row, *rows}  # a question that was open is put again
    again.send_signal(signal.SIGTERM)
    assert again.wait(60) == 130
    answers = [event for event in room.desk.store.events() if event.kind == "label"]
    assert {event.row: event.value for event in answers} == given
    assert max(Counter(event.row for event in answers).values()) == 1
    room.desk.store.close()


def test_many_answers_at_once_are_all_kept(tmp_path: Path) -> None:
    """Three terminals that never wait for each other, opened at the same moment, where there is no store yet."""
    make_pool(n_rows=120, n_labels=0).assign(churn=None).to_csv(tmp_path / "pool.csv", index=False)
    terminals = [terminal(tmp_path, "--json") for _ in range(3)]
    for one in terminals:
        one.stdin.write("yes\nskip\nno\nundo\nyes\n" * 5)
        one.stdin.close()
    for one in terminals:
        said = one.stdout.read()
        assert one.wait(120) == 0, said
    table = read_labeled_table(tmp_path / "pool.csv", "churn", classes=["no", "yes"])
    with Store(store_path(tmp_path / "pool.csv")) as store:
        events = store.events()
    assert Counter(event.kind for event in events)["label"] == 3 * 15
    assert (int(table.labeled.sum()), waiting_labels(table)) == (3 * 10, 0)
    owner: dict[int, int] = {}
    answered: set[int] = set()
    for event in events:
        if event.kind == "pick":
            assert owner.setdefault(event.row, event.person) == event.person  # nobody is asked for a row of another
        elif event.kind in {"label", "skip"}:
            answered.add(event.row)
        elif event.kind == "undo" and event.row in answered:
            answered.remove(event.row)
        elif event.kind == "undo":  # a terminal that ends gives back the row that it showed
            del owner[event.row]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_one_audit_has_one_terminal(tmp_path: Path) -> None:
    make_pool(n_labels=30).to_csv(tmp_path / "pool.csv", index=False)
    fit = ["fit", "pool.csv", "--label", "churn", "--no-report", "--no-worst-case", "--radius", "auto"]
    subprocess.run([*COMMAND[:3], *fit], cwd=tmp_path, check=True, capture_output=True)
    audit = [*COMMAND[:3], "audit", "pool.csv", "--model", "pool.skops", "--labels", "5"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    first = subprocess.Popen(audit, cwd=tmp_path, text=True, **pipes)
    row, _ = until_asked(first)
    second = subprocess.run(audit, cwd=tmp_path, text=True, input="", capture_output=True, check=False)
    assert second.returncode == 2
    assert f"process {first.pid} has it open" in " ".join(second.stderr.split())
    first.kill()
    first.wait()
    third = subprocess.Popen(audit, cwd=tmp_path, text=True, **pipes)
    assert until_asked(third)[0] == row
    third.send_signal(signal.SIGTERM)
    assert third.wait(60) == 130
