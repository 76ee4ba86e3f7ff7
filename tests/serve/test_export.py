"""What exports and imports must not do: lose a label, overwrite a file, or fail on what others wrote."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from generators import make_pool
from serve.rooms import make_room, write_pool
from serve.services import store_of
from serve.test_exchange import answered
from surefoot.cli import run
from surefoot.pool.database import Event
from surefoot.pool.table import read_labeled_table


def test_labels_of_the_table_that_the_store_does_not_know_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels typed into the table since the store was made: an export must not take them out."""
    monkeypatch.chdir(tmp_path)
    rows, before = answered(tmp_path)
    lines = before.decode().splitlines(keepends=True)
    mine = next(row for row in range(60) if row not in rows)
    lines[mine + 1] = lines[mine + 1].rstrip("\n") + "yes\n"
    lines[rows[2] + 1] = lines[rows[2] + 1].rstrip("\n") + "no\n"  # skipped on the page
    Path("pool.csv").write_text("".join(lines))
    expected = {mine: "yes", rows[0]: "yes", rows[1]: "no", rows[2]: "no"}
    for out in ("out.csv", "out.parquet"):
        assert run(["export", "pool.csv", "--label", "churn", "--out", out]) == 0
    assert read_labels("out.csv") == expected
    frame = pd.read_parquet("out.parquet")
    assert frame["churn"].dropna().to_dict() == expected
    assert run(["export", "pool.csv", "--label", "churn", "--in-place"]) == 0
    assert read_labels("pool.csv") == expected


def test_a_label_that_was_taken_back_leaves_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows, before = answered(tmp_path)
    assert run(["export", "pool.csv", "--label", "churn", "--in-place"]) == 0
    room = make_room(tmp_path)
    ada = room.desk.store.person("ada")
    assert [room.desk.undo(ada), room.desk.undo(ada)] == [rows[2], rows[1]]
    room.desk.store.close()
    assert run(["export", "pool.csv", "--label", "churn", "--in-place"]) == 0
    assert read_labels("pool.csv") == {rows[0]: "yes"}
    assert len(Path("pool.csv").read_bytes()) == len(before) + len("yes")


def test_labels_that_wait_in_the_store_are_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever goes on with `fit` is told what the table lacks, and the command that writes it."""
    monkeypatch.chdir(tmp_path)
    make_pool().to_csv("pool.csv", index=False)
    radius = ["radius", "pool.csv", "--label", "churn"]
    assert run(radius) == 0
    assert "of the store" not in capsys.readouterr().err
    table = read_labeled_table("pool.csv", "churn")
    with store_of(table) as store:
        ada = store.person("ada")
        open_rows = np.flatnonzero(~table.labeled)
        store.append([Event("label", int(row), ada.id, "yes", "random") for row in open_rows[:2]])
    export = "surefoot export pool.csv --label churn --in-place"
    for command in (radius, ["query", *radius[1:], "-n", "1"]):
        assert run(command) == 0
        told = " ".join(capsys.readouterr().err.split())
        assert f"2 stored labels are not in the table. To write them there: {export}" in told
    assert run(export.split()[1:]) == 0
    capsys.readouterr()
    assert run(radius) == 0
    assert "of the store" not in capsys.readouterr().err
    assert pd.read_csv("pool.csv")["churn"].notna().sum() == 32
    # which labels were picked is in the store: without it, no estimate is made
    Path("pool.csv.surefoot.db").write_bytes(b"no database at all, but long enough to be read as one" * 99)
    assert run(radius) == 2
    assert "Restore the file, or move it away" in " ".join(capsys.readouterr().err.split())


def read_labels(path: str) -> dict[int, str]:
    return pd.read_csv(path)["churn"].dropna().to_dict()


def test_a_new_table_has_every_other_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that read as missing, quotes that need not be there, another delimiter, a byte order mark."""
    monkeypatch.chdir(tmp_path)
    lines = ["\ufeffcountry\tage\ty", '"NA"\t1\tno', "NaN\t2.50\tyes", *[f"DE\t{n}\t" for n in range(20)]]
    Path("t.tsv").write_text("\r\n".join(lines), encoding="utf-8")
    store_of(read_labeled_table("t.tsv", "y")).close()
    assert run(["export", "t.tsv", "--label", "y"]) == 0
    assert Path("t.labeled.tsv").read_bytes() == Path("t.tsv").read_bytes()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--out", "x.csv", "--answers", "x.csv"], "must be two files"),
        (["--out", "hard.csv"], "must not overwrite a file that is read"),
        (["--answers", "pool.csv"], "must not overwrite a file that is read"),
        (["--answers", "x.txt"], "must end in .csv or .parquet"),
    ],
)
def test_exports_overwrite_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answered(tmp_path)
    Path("hard.csv").hardlink_to("pool.csv")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")}
    assert run(["export", "pool.csv", "--label", "churn", *more, "--force"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")} == before


ODD = [1, "x", [1], {"a": 1}, 1.5, True, [None], "\ud800", "\x00", -1, [[]], {"choices": 5}, {"choices": [["yes"]]}]
ODD += ["0001-01-01T00:00:00", "9999-12-31T23:59:59-05:00", {"email": "\ud800\x1b[2J"}, {"email": ["a"]}]


def test_odd_tasks_are_refused_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any part of a task replaced by what does not belong there; the good task beside it is taken."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
    write_pool(tmp_path)
    table = read_labeled_table("pool.csv", "churn", classes=["no", "yes"])
    result = [{"from_name": "label", "to_name": "cell0", "type": "choices", "value": {"choices": ["yes"]}}]

    def task(row: int) -> dict:
        cells = {name: table.cells[name].iloc[row] for name in ("age", "income", "story")}
        data = {name: None if pd.isna(value) else value for name, value in cells.items()}
        annotation = {"id": row, "completed_by": 7, "created_at": "2026-01-02T03:04:05Z", "result": result}
        return {"id": row, "data": data, "annotations": [annotation]}

    places = [("data",), ("id",), ("annotations",), ("annotations", 0)]
    places += [("annotations", 0, name) for name in ("id", "completed_by", "created_at", "result", "was_cancelled")]
    places += [("annotations", 0, "result", 0), ("annotations", 0, "result", 0, "value")]
    places += [("annotations", 0, "result", 0, "value", "choices")]
    tasks = []
    for place in places:
        for odd in ODD:
            forged = json.loads(json.dumps(task(1)))
            at = forged
            for step in place[:-1]:
                at = at[step]
            at[place[-1]] = odd
            tasks.append(forged)
    Path("tasks.json").write_text(json.dumps([*tasks, task(2)]))
    assert run(["import", "pool.csv", "tasks.json", "--label", "churn", "--classes", "no,yes"]) == 0
    assert "\x1b" not in capsys.readouterr().err
    book = make_room(tmp_path).desk.book
    assert book.labels == {1: "yes", 2: "yes"}
    assert run(["export", "pool.csv", "--label", "churn", "--out", "o.json", "--answers", "a.csv"]) == 0


@pytest.mark.parametrize("damage", ["middle", "about"])
def test_a_damaged_store_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answered(tmp_path)
    store = tmp_path / "pool.csv.surefoot.db"
    if damage == "about":
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("UPDATE about SET value = '{' WHERE key = 'label'")
    else:
        content = bytearray(store.read_bytes())
        content[4096:] = bytes(len(content) - 4096)
        store.write_bytes(content)
    assert run(["export", "pool.csv", "--label", "churn"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "pool.csv.surefoot.db" in message.replace(" ", "")
    assert "Restore the file" in message
