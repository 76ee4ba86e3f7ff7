"""Label Studio's files in and out, and what `surefoot export` writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from serve.rooms import Client, make_room, write_pool
from surefoot.cli import run
from surefoot.pool.exchange import config
from surefoot.pool.table import read_labeled_table


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
    assert "does not exist" in capsys.readouterr().err.replace("\n", " ")
    assert [one.name for one in tmp_path.iterdir()] == ["pool.csv"]


def test_the_interface_names_every_column_and_class(tmp_path: Path) -> None:
    found = config(read_labeled_table(write_pool(tmp_path), "churn", classes=["no", "yes"]))
    assert all(f'value="${name}"' in found for name in ("age", "income", "story"))
    assert 'toName="cell0"' in found
    assert '<Choice value="yes"/>' in found


def odd_pool(folder: Path) -> Path:
    """Columns whose names Label Studio would not take for variables, numbers, and missing cells."""
    path = folder / "pool.csv"
    names = ["mean radius", "mean_radius", "gr\u00f6\u00dfe", "surefoot_row", "a.b", "!"]
    lines = [",".join([*names, "churn"])]
    lines += [f"{k}.5,{k},{'' if k % 3 else 'x'},{k},p{k},\N{SNOWMAN}," for k in range(8)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_data_of_tasks_have_names_that_label_studio_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its editor takes a variable for $ and [A-Za-z0-9_] (a point would mean a structure), and null for an error."""
    monkeypatch.chdir(tmp_path)
    table = read_labeled_table(odd_pool(tmp_path), "churn", classes=["no", "yes"])
    variables = re.findall(r'value="\$([^"]*)"', config(table))
    assert len(set(variables)) == 6
    assert all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in variables)
    room = make_room(tmp_path)
    ada = Client(room)
    while room.fitter._step():
        pass
    row = ada.rows()[0]["row"]
    ada.post("answer", row=row, label="yes")
    tasks = json.loads(ada.http.get("/download/label-studio.json").content)
    assert all(set(task["data"]) == {*variables, "surefoot_row"} for task in tasks)
    assert not [task for task in tasks if None in task["data"].values()]
    room.desk.store.close()
    for task in tasks:  # labeled there, and back; one with the cells as somebody else would upload them
        result = [{"type": "choices", "value": {"choices": ["no"]}, "from_name": "label", "to_name": "cell0"}]
        task["annotations"] = [{"id": task["id"], "completed_by": {"email": "eve@lab"}, "result": result}]
    cells = [str(value) for value in table.cells.drop(columns=["churn"]).iloc[3].fillna("").tolist()]
    tasks[3]["data"] = dict(zip([name for name in table.cells.columns if name != "churn"], cells, strict=True))
    Path("back.json").write_text(json.dumps(tasks))
    assert run(["import", "pool.csv", "back.json", "--label", "churn", "--classes", "no,yes"]) == 0
    book = make_room(tmp_path).desk.book
    assert book.labels == {other: "no" for other in range(8) if other != row}
    assert book.conflicts == {row}


def test_predictions_go_along_but_not_while_an_audit_hides_them(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    learner = ada.room.fitter._process._learner
    seen = {}
    for _ in range(40):
        tasks = json.loads(ada.http.get("/download/label-studio.json").content)
        phase = ada.room.desk.turns.phase
        if ada.room.desk.ranking is not None:
            seen[phase] = [task.get("predictions") for task in tasks]
        rows = ada.rows()
        if not rows:
            break
        ada.post("answer", row=rows[0]["row"], label=["no", "yes"][int(learner.truth[rows[0]["row"]])])
        while ada.room.fitter._step():
            pass
    assert set(seen) == {"learning", "auditing", "proved"}
    assert seen["auditing"] == [None] * 60
    for phase in ("learning", "proved"):
        labels = [one[0]["result"][0]["value"]["choices"][0] for one in seen[phase]]
        assert labels == [["no", "yes"][k] for k in learner.predictions]
        assert {round(one[0]["score"], 6) for one in seen[phase]} == {0.7}
