"""Attacks nobody had tried: the clock, the table and the disk change, answers come at once, and texts are odd."""

from __future__ import annotations

import csv
import io
import os
import random
import string
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest

from serve.rooms import Client, make_room, write_pool
from serve.services import CLASSES, make_desk
from serve.test_kills import CLIENTS, answer_and_kill
from surefoot.pool import database as e
from surefoot.pool import service as desks
from surefoot.pool.label_log import LabelLog
from surefoot.pool.service import LONGEST_NOTE, AnswerError
from surefoot.serve.app import COOKIE

ODD_NOTES = [
    "\u202eevil\u202c right to left",
    "\u05e9\u05dc\u05d5\u05dd and \u0645\u0631\u062d\u0628\u0627",
    "zero\u200bwidth\u200d\ufeff",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 and \U0001f1e9\U0001f1ea",
    "e" + "\u0301" * 500,
    "nul\x00 bell\x07 escape\x1b[2J",
    "line\rline\nline\r\nline\u2028line\x85line",
    "</p><script>hacked = 1</script>",
    '"quotes", and; more\t',
    "\ufffe\uffff\U0010ffff",
    "x" * LONGEST_NOTE,
    "\U0001f98a" * LONGEST_NOTE,
]


@pytest.mark.parametrize("step", [-86_400.0, -3_600.0, -1.0, 86_400.0])
def test_a_clock_that_is_set_anew_loses_no_row_and_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """Rows in the hands of someone who went away come back, however far the clock was set back."""
    now = [1e9]
    monkeypatch.setattr(desks.time, "time", lambda: now[0])
    desk = make_desk(tmp_path, n_rows=12)
    ada, bob = desk.store.person("ada"), desk.store.person("bob")
    gone = {pick.row for pick in desk.rows_for(ada)}
    now[0] += step
    for wait in (0.0, 700.0 * (step == -1.0)):  # set back by less than the lease, its end is to be waited for
        now[0] += wait
        while picks := desk.rows_for(bob):
            desk.answer(bob, picks[0].row, "yes")
    assert set(desk.book.labels) == set(range(12)) > gone
    ids = [event.id for event in desk.store.events()]
    assert ids == sorted(set(ids))
    desk.store.close()
    assert make_desk(tmp_path, n_rows=12).book.labels == desk.book.labels


def test_answers_of_any_time_can_be_shown(tmp_path: Path) -> None:
    """The clock was wrong when they came: history, downloads and tasks say what it said."""
    room = make_room(tmp_path)
    ada = Client(room)
    times = [1.0, 4e9, datetime(9999, 12, 30, tzinfo=UTC).timestamp()]
    person = room.desk.store.person("ada").id
    room.desk.store.append([e.Event(e.LABEL, row, person, "yes", e.LEARN, time=when) for row, when in enumerate(times)])
    assert room.desk.catch_up()
    for address in ("/history", "/finish", "/download/answers.csv", "/download/label-studio.json"):
        assert ada.http.get(address).status_code == 200


def test_notes_of_any_letters_come_back_whole(tmp_path: Path) -> None:
    room = make_room(tmp_path)
    ada = Client(room)
    rows = []
    for text in ODD_NOTES:
        rows.append(ada.rows()[0]["row"])
        assert ada.post("note", row=rows[-1], text=text).json()["saved"]
        assert ada.post("answer", row=rows[-1], label="yes").json()["saved"]
    page = ada.http.get("/history").text
    assert "<script>hacked" not in page
    lines = list(csv.DictReader(io.StringIO(ada.http.get("/download/answers.csv").content.decode(), newline="")))
    assert [line["notes"] for line in lines] == [text.strip() for text in ODD_NOTES]
    room.desk.store.close()
    again = make_room(tmp_path).desk.book
    assert [again.row(row).notes[0].value for row in rows] == [text.strip() for text in ODD_NOTES]
    assert Client(room, None).http.get("/history").status_code == 303


@pytest.mark.parametrize("text", ["x" * (LONGEST_NOTE + 1), "\U0001f98a" * 20_000, " \u2028\u3000\t", "a\udc00"])
def test_notes_too_long_or_empty_are_refused(tmp_path: Path, text: str) -> None:
    ada = Client(make_room(tmp_path))
    body = '{"row": 1, "text": "' + text.encode("unicode-escape").decode().replace("\\x", "\\u00") + '"}'
    assert ada.http.post("/api/note", content=body, headers={"x-write-token": ada.token}).status_code in (400, 413)
    assert not ada.room.desk.book.row(1).notes


def test_the_same_answer_sent_at_once_counts_once(tmp_path: Path) -> None:
    """Twelve threads send one answer with one key, one note, and one undo; then twelve people answer one row."""
    desk = make_desk(tmp_path, n_rows=50)
    ada = desk.store.person("ada")
    row = desk.rows_for(ada)[0].row
    with ThreadPoolExecutor(12) as threads:
        events = list(threads.map(lambda _: desk.answer(ada, row, "yes", "one"), range(12)))
        list(threads.map(lambda _: desk.note(ada, row, "look", "two"), range(12)))
        back = list(threads.map(lambda _: desk.undo(ada, "three"), range(12)))
        people = [desk.store.person(f"person {k}") for k in range(12)]
        list(threads.map(lambda person: desk.answer(person, row, "yes", f"key {person.id}"), people))
    assert len({event.id for event in events}) == 1
    assert back == [row] * 12
    kinds = [event.kind for event in desk.store.events()]
    assert [kinds.count(kind) for kind in (e.NOTE, e.UNDO, e.LABEL)] == [1, 1, 13]
    assert desk.book.labels == {row: "yes"}


@pytest.mark.parametrize("other", ["person", "row", "kind"])
def test_a_key_that_was_used_for_another_answer_saves_nothing_in_silence(tmp_path: Path, other: str) -> None:
    """It was called saved, and was not there."""
    desk = make_desk(tmp_path)
    ada, bob = desk.store.person("ada"), desk.store.person("bob")
    first, second = (pick.row for pick in desk.rows_for(ada)[:2])
    if other == "kind":
        desk.note(ada, first, "look", "key")
    else:
        desk.answer(ada, first, "yes", "key")
    with pytest.raises(AnswerError, match="key"):
        desk.answer(bob if other == "person" else ada, second if other == "row" else first, "yes", "key")
    desk.answer(ada, second, "no", "another")
    assert desk.book.labels[second] == "no"


def test_the_table_may_vanish_under_the_server(tmp_path: Path) -> None:
    """Labeling, downloads and the history go on; with another table of that name as well."""
    room = make_room(tmp_path)
    ada, path = Client(room), tmp_path / "pool.csv"
    row = ada.rows()[0]["row"]
    before = path.read_bytes()
    for change in (path.unlink, lambda: path.write_text("other,churn\n1,yes\n"), lambda: path.write_bytes(b"\xff\x00")):
        change()
        assert ada.post("answer", row=row, label="yes").json()["saved"]
        for address in ("/", "/history", "/finish", "/download/labels.parquet", "/download/answers.csv"):
            assert ada.http.get(address).status_code == 200
        found = ada.http.get("/download/labels.csv").content.decode().splitlines()
        assert [k for k, line in enumerate(found[1:]) if line.endswith(",yes")] == [row]
    assert len(found) == len(before.splitlines())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("n", "kills", "overlap"), [(10, 3, 1.0), *[pytest.param(100, 20, o, marks=pytest.mark.slow) for o in (0.3, 1.0)]]
)
def test_kills_while_several_people_answer_the_same_rows(tmp_path: Path, n: int, kills: int, overlap: float) -> None:
    """Rows that two people label: none has three answers, none is lost, and both who agreed still do."""
    write_pool(tmp_path, n_rows=n * CLIENTS + 50)
    workers, done = answer_and_kill(tmp_path, n, kills, seed=n, overlap=overlap)
    assert done == kills
    assert [worker.trouble for worker in workers] == [[]] * CLIENTS
    room = make_room(tmp_path, overlap=overlap)
    book, names = room.desk.book, {one.id: one.name for one in room.desk.store.people()}
    answers = {(names[who], row): event for row, state in book.rows.items() for who, event in state.answers.items()}
    saved = {(worker.person, row): label for worker in workers for row, label in worker.saved.values()}
    assert {place: event.value for place, event in answers.items()} == saved
    assert max(len(state.answers) for state in book.rows.values()) == 2
    again = LabelLog(book.n_rows, book.classes)
    for event in room.desk.store.events():
        again.apply(event)
    assert again.labels == book.labels


WORDS = [
    "row",
    "label",
    "token",
    "key",
    "text",
    "have",
    "beyond",
    "name",
    "flagged",
    "yes",
    "None",
    "0",
    "-1",
    "\u00e9",
]
PLACES = ["", "hello", "join", "leave", "edit", "settle", "unflag", "report", "history", "finish", "api", "answer",
          "undo", "flag", "note", "robot", "rows", "standing", "picture", "download", "static", "labels.csv", "..",
          "0", "99999999999999999999", "\u0661", "%00", "%ff", "%ed%a0%80", "answers.parquet", "label.js"]  # fmt: skip


def noise(rng: random.Random, length: int = 12) -> str:
    """A text of any letters."""
    letters = [*string.printable, "\x00", "\u00e9", "\u202e", "\U0001f98a", "\N{SUPERSCRIPT TWO}"]
    return "".join(rng.choices(letters, k=rng.randrange(length)))


def value(rng: random.Random, depth: int = 0) -> str:
    """JSON, mostly."""
    plain = ["1", "-1", "1e999", "true", "null", '"yes"', '"\\ud800"', '"\\u0000"', "NaN", "{", "9" * 5000]
    if depth < 3 and rng.random() < 0.6:
        pairs = [f'"{rng.choice(WORDS)}": {value(rng, depth + 1)}' for _ in range(rng.randrange(6))]
        return "{" + ", ".join(pairs) + "}"
    return rng.choice(plain)


@pytest.mark.parametrize("seed", [0, 1, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20)]])
def test_no_request_makes_the_server_fail(tmp_path: Path, seed: int) -> None:
    """Random addresses, forms, JSON, headers and cookies, signed in or not: the client raises what a view raises."""
    rng = random.Random(seed)
    room = make_room(tmp_path)
    for client in (Client(room, None), Client(room)):
        for _ in range(250):
            path = "/" + "/".join(rng.choices(PLACES, k=rng.randrange(1, 4)))
            path += f"?{rng.choice(WORDS)}={quote(noise(rng))}" * rng.randrange(2)
            headers = {"x-write-token": client.token if rng.random() < 0.8 else quote(noise(rng))}
            if rng.random() < 0.2:
                headers["cookie"] = f"{COOKIE}={quote(noise(rng))}; {quote(noise(rng))}"
            if rng.random() < 0.5:
                pairs = [f"{rng.choice(WORDS)}={quote(noise(rng))}" for _ in range(rng.choice([1, 3, 25]))]
                body = "&".join([f"token={client.token or room.form_token}", *pairs]).encode()
                headers["content-type"] = "application/x-www-form-urlencoded"
            else:
                body = value(rng).encode("utf-8", "replace")
            if path.startswith("/leave"):
                continue
            method = rng.choice(["GET", "POST", "POST", "PUT", "HEAD"])
            answer = client.http.request(method, f"http://127.0.0.1:8765{path}", content=body, headers=headers)
            assert answer.status_code < 500, (method, path, body)
    assert set(room.desk.book.labels.values()) <= set(CLASSES)
