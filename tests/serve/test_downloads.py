"""What is taken along: whole cells, no formulas, and labels that come back as they were."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pytest

from serve.rooms import Client, make_room
from surefoot.cli import run
from surefoot.pool.stored import write_predictions
from surefoot.pool.table import read_labeled_table
from surefoot.pool.table.reading import Format

SIGNED = ["-1", "+1", "=1+1", "@home", "-", "'tis"]
FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\N{FULLWIDTH EQUALS SIGN}1", "'=1", "'"]


def write_odd_pool(folder: Path, name: str = "pool.csv") -> Path:
    """Cells with a lone carriage return, line ends, quotes, and texts that stand for nothing."""
    path = folder / name
    cells = ["a\rb", "\r", "c\r\nd", 'e"f', "g\nh", "NA", "", "i"]
    with path.open("w", newline="", encoding="utf-8") as file:
        mark = "\t" if name.endswith(".tsv") else ","
        writer = csv.writer(file, delimiter=mark, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["story", "k", "churn"])
        writer.writerows([cells[k % len(cells)], k, ""] for k in range(80))
    return path


@pytest.mark.parametrize("name", ["pool.csv", "pool.tsv"])
def test_the_download_of_labels_is_what_export_writes(tmp_path: Path, name: str) -> None:
    path = write_odd_pool(tmp_path, name)
    room = make_room(tmp_path, name=name)
    ada = Client(room)
    rows = [card["row"] for card in ada.rows()]
    for row in rows:
        ada.post("answer", row=row, label="yes")
    answer = ada.http.get("/download/labels.csv")
    assert f'filename="pool.labeled{path.suffix}"' in answer.headers["content-disposition"]
    room.desk.store.close()
    assert run(["export", str(path), "--label", "churn", "--out", str(tmp_path / f"out{path.suffix}")]) == 0
    assert answer.content == (tmp_path / f"out{path.suffix}").read_bytes()
    (tmp_path / name).write_bytes(answer.content)
    again = read_labeled_table(path, "churn", classes=["no", "yes"])
    assert {row: label for row, label in enumerate(again.labels) if label} == dict.fromkeys(rows, "yes")
    assert len(again.labels) == 80


def test_a_lone_carriage_return_splits_no_row(tmp_path: Path) -> None:
    """In labels of a Parquet pool as CSV, and in answers: 81 lines became 82."""
    write_odd_pool(tmp_path)
    pd.read_csv(tmp_path / "pool.csv", dtype=str, keep_default_na=False).to_parquet(tmp_path / "p.parquet")
    ada = Client(make_room(tmp_path, name="p.parquet"))
    row = ada.rows()[0]["row"]
    ada.post("note", row=row, text="one\rtwo")
    ada.post("answer", row=row, label="yes")
    for name, n_rows in (("labels", 80), ("answers", 1)):
        content = ada.http.get(f"/download/{name}.csv").content
        assert len(pd.read_csv(io.BytesIO(content))) == n_rows
        strict = list(csv.reader(io.StringIO(content.decode(), newline=""), strict=True))
        assert {len(line) for line in strict} == {len(strict[0])}
        assert b"\r" not in content.replace(b"\r\n", b"").replace(b'"a\rb"', b"").replace(b'"\r"', b"").replace(
            b'"one\rtwo"', b""
        )
    stories = pd.read_csv(io.BytesIO(ada.http.get("/download/labels.csv").content), keep_default_na=False)["story"]
    assert stories.tolist()[:6] == ["a\rb", "\r", "c\r\nd", 'e"f', "g\nh", "NA"]


def test_what_people_typed_is_no_formula_in_answers(tmp_path: Path) -> None:
    """Names, notes and labels get an apostrophe where a spreadsheet would run them; without it they are as typed."""
    room = make_room(tmp_path, classes=SIGNED)
    typed = []
    for number, text in enumerate(FORMULAS):
        client = Client(room, text)
        row = client.rows()[0]["row"]
        label = room.desk.book.classes[number % len(SIGNED)]
        client.post("note", row=row, text=text)
        client.post("answer", row=row, label=label)
        typed.append((text, label))
    csv_lines = answers_of(room, "csv")
    for line, (text, label) in zip(csv_lines, typed, strict=True):
        for cell, whole in ((line["person"], text), (line["notes"], text), (line["answer"], label)):
            is_number = whole in ("-1", "1")
            assert cell == (whole if is_number else f"'{whole}")
        assert line["settled"] == line["answer"]
    assert [line["person"] for line in answers_of(room, "parquet")] == FORMULAS  # has types: nothing reads as a formula
    room.desk.store.close()
    assert run(["export", str(tmp_path / "pool.csv"), "--label", "churn", "--answers", str(tmp_path / "a.csv")]) == 0
    assert pd.read_csv(tmp_path / "a.csv", dtype=str)["notes"].tolist() == [f"'{text}" for text in FORMULAS]


def answers_of(room: object, form: str) -> list[dict[str, str]]:
    content = Client(room).http.get(f"/download/answers.{form}").content
    if form == "parquet":
        return pd.read_parquet(io.BytesIO(content)).to_dict("records")
    return pd.read_csv(io.BytesIO(content), dtype=str).to_dict("records")


@pytest.mark.parametrize("classes", [SIGNED, ["-1", "+2"], ["+", "-"]])
def test_labels_that_look_like_formulas_come_back_as_they_were(tmp_path: Path, classes: list[str]) -> None:
    """Through the table in place, a new one, a download, and Label Studio's tasks."""
    room = make_room(tmp_path, classes=classes)
    ada = Client(room)
    for _ in range(12):
        row = ada.rows()[0]["row"]
        assert ada.post("answer", row=row, label=room.desk.book.classes[row % len(classes)]).json()["saved"]
    labels = dict(room.desk.book.labels)
    assert len(labels) == 12
    (tmp_path / "download.csv").write_bytes(ada.http.get("/download/labels.csv").content)
    room.desk.store.close()
    pool, named = str(tmp_path / "pool.csv"), ["--label", "churn"]
    assert run(["export", pool, *named, "--out", str(tmp_path / "new.csv")]) == 0
    assert run(["export", pool, *named, "--out", str(tmp_path / "tasks.json")]) == 0
    assert run(["export", pool, *named, "--in-place"]) == 0
    for name in ("pool.csv", "new.csv", "download.csv"):
        found = read_labeled_table(tmp_path / name, "churn").labels
        assert {row: label for row, label in enumerate(found) if label is not None} == labels
    for file in tmp_path.glob("pool.csv.*"):
        file.unlink()
    pd.read_csv(pool, dtype=str, keep_default_na=False).assign(churn="").to_csv(pool, index=False)
    listed = ",".join(f'"{name}"' for name in classes)
    assert run(["import", pool, str(tmp_path / "tasks.json"), *named, "--classes", listed]) == 0
    assert make_room(tmp_path, classes=classes).desk.book.labels == labels


def test_labels_that_the_table_cannot_hold_are_told(tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    path.write_bytes("story,k,churn\n".encode("latin-1") + b"".join(b"gr\xfcn,%d,\n" % k for k in range(30)))
    room = make_room(tmp_path, classes=["\u044f", "no"], how=Format(encoding="latin-1"))
    ada = Client(room)
    ada.post("answer", row=ada.rows()[0]["row"], label="\u044f")
    refused = ada.http.get("/download/labels.csv")
    assert (refused.status_code, "latin-1" in refused.text or "iso8859" in refused.text) == (409, True)
    assert ada.http.get("/download/labels.parquet").status_code == 200


def test_a_prediction_splits_no_row_either(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write_predictions(path, pd.DataFrame({"story": ["a\rb", "c\nd", "e"], "predicted_churn": ["yes", "no", "yes"]}))
    assert pd.read_csv(path)["story"].tolist() == ["a\rb", "c\nd", "e"]
