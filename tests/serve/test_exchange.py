"""Label Studio's files in and out, and what `surefoot export` writes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from serve.rooms import Client, make_room, write_pool
from surefoot.cli import run
from surefoot.serve.label_studio import config
from surefoot.tabular import read_labeled_table


def answered(folder: Path) -> tuple[list[int], bytes]:
    """A pool with two labels and a skip in its store; the rows, and the bytes of the table."""
    path = write_pool(folder)
    room = make_room(folder)
    ada, rows = Client(room), []
    for label in ("yes", "no", None):
        rows.append(ada.rows()[0]["row"])
        ada.post("answer", row=rows[-1], label=label)
    room.desk.store.close()
    return rows, path.read_bytes()


def test_export_writes_labels_answers_and_leaves_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows, before = answered(tmp_path)
    assert run(["export", "pool.csv", "--label", "churn", "--answers", "answers.parquet", "--out", "out.csv"]) == 0
    labels = pd.read_csv("out.csv")["churn"].dropna()
    assert labels.to_dict() == {rows[0]: "yes", rows[1]: "no"}
    assert len(pd.read_parquet("answers.parquet")) == 3
    assert Path("pool.csv").read_bytes() == before
    assert run(["export", "pool.csv", "--label", "churn", "--out", "out.csv"]) == 2  # it is there
    assert run(["export", "pool.csv", "--label", "churn", "--out", "pool.csv", "--force"]) == 2
    assert Path("pool.csv").read_bytes() == before


def test_export_in_place_changes_labels_and_no_other_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows, before = answered(tmp_path)
    assert run(["export", "pool.csv", "--label", "churn", "--in-place"]) == 0
    expected = before.decode().splitlines()
    for row, label in zip(rows, ("yes", "no"), strict=False):
        expected[row + 1] += label
    assert Path("pool.csv").read_text().splitlines() == expected


def test_tasks_go_to_label_studio_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows, _ = answered(tmp_path)
    assert run(["export", "pool.csv", "--label", "churn", "--out", "tasks.json"]) == 0
    tasks = json.loads(Path("tasks.json").read_text())
    assert [len(task["annotations"]) for task in tasks] == [int(row in rows) for row in range(60)]
    assert tasks[rows[0]]["annotations"][0]["result"][0]["value"] == {"choices": ["yes"]}
    assert tasks[rows[2]]["annotations"][0]["was_cancelled"] is True
    # someone labels two more there, one of ours otherwise, and one with a class that is none
    others = [row for row in range(60) if row not in rows][:3]
    for number, (row, label) in enumerate([(others[0], "yes"), (others[1], "no"), (rows[0], "no"), (others[2], "??")]):
        result = [{"from_name": "label", "to_name": "cell0", "type": "choices", "value": {"choices": [label]}}]
        new = {"id": 900 + number, "completed_by": 7, "created_at": "2026-01-02T03:04:05Z", "result": result}
        tasks[row]["annotations"].append(new)
    tasks = [task | {"id": 5000 + task["id"]} for task in reversed(tasks)]  # other numbers, another order
    Path("back.json").write_text(json.dumps([*tasks, {"id": 1, "data": {"age": "no such row"}}]))
    for _ in range(2):  # the second time nothing is new
        assert run(["import", "pool.csv", "back.json", "--label", "churn"]) == 0
    book = make_room(tmp_path).desk.book
    assert (book.labels[others[0]], book.labels[others[1]], book.conflicts) == ("yes", "no", {rows[0]})
    assert others[2] not in book.labels
    assert sum(event.kind == "label" and event.value in ("yes", "no") for event in book.events) == 7
    assert book.row(others[0]).picked  # whoever chose it, it is no random sample
    assert next(iter(book.row(others[0]).answers.values())).time == pytest.approx(1767323045.0)


@pytest.mark.parametrize("content", ["{", "{}", '[{"no": 1}]', "[1]"])
def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_pool(tmp_path)
    Path("tasks.json").write_text(content)
    assert run(["import", "pool.csv", "tasks.json", "--label", "churn", "--classes", "no,yes"]) == 2


def test_nothing_to_export_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_pool(tmp_path)
    assert run(["export", str(path), "--label", "churn"]) == 2
    assert "must be there" in capsys.readouterr().err.replace("\n", " ")
    assert [one.name for one in tmp_path.iterdir()] == ["pool.csv"]


def test_the_interface_names_every_column_and_class(tmp_path: Path) -> None:
    found = config(read_labeled_table(write_pool(tmp_path), "churn", classes=["no", "yes"]))
    assert all(f'value="${name}"' in found for name in ("age", "income", "story"))
    assert 'toName="cell0"' in found
    assert '<Choice value="yes"/>' in found


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
    expected = {mine: "yes", rows[0]: "yes", rows[1]: "no"}
    for out in ("out.csv", "out.parquet"):
        assert run(["export", "pool.csv", "--label", "churn", "--out", out]) == 0
    assert read_labels("out.csv") == expected
    frame = pd.read_parquet("out.parquet")
    assert frame["churn"].dropna().to_dict() == expected
    assert run(["export", "pool.csv", "--label", "churn", "--in-place"]) == 0
    assert read_labels("pool.csv") == expected | {rows[2]: "no"}


def test_a_label_that_was_taken_back_leaves_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows, before = answered(tmp_path)
    assert run(["export", "pool.csv", "--label", "churn", "--in-place"]) == 0
    room = make_room(tmp_path)
    room.desk.take_back(room.desk.store.person("ada"), rows[1])
    room.desk.store.close()
    assert run(["export", "pool.csv", "--label", "churn", "--in-place"]) == 0
    assert read_labels("pool.csv") == {rows[0]: "yes"}
    assert len(Path("pool.csv").read_bytes()) == len(before) + len("yes")


def read_labels(path: str) -> dict[int, str]:
    return pd.read_csv(path)["churn"].dropna().to_dict()


def test_a_new_table_has_every_other_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that read as missing, quotes that need not be there, another delimiter, a byte order mark."""
    monkeypatch.chdir(tmp_path)
    lines = ["\ufeffcountry\tage\ty", '"NA"\t1\tno', "NaN\t2.50\tyes", *[f"DE\t{n}\t" for n in range(20)]]
    Path("t.tsv").write_text("\r\n".join(lines), encoding="utf-8")
    assert run(["serve", "t.tsv", "--label", "y", "--invite", "ada"]) == 0
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
            connection.execute("UPDATE about SET value = '{' WHERE key = 'rows'")
    else:
        content = bytearray(store.read_bytes())
        content[4096:] = bytes(len(content) - 4096)
        store.write_bytes(content)
    assert run(["export", "pool.csv", "--label", "churn"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "pool.csv.surefoot.db" in message.replace(" ", "")
    assert "Restore the file" in message
