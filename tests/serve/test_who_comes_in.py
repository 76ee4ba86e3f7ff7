"""Who is let in, for how long, and under which name; and forms that no page of ours sends."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from serve.rooms import Client, make_room, write_pool
from surefoot.cli import run
from surefoot.pool import store as stores
from surefoot.pool.notes import Code
from surefoot.pool.store import SESSION_SECONDS, Store, store_path
from surefoot.pool.table import read_labeled_table
from surefoot.serve.app import COOKIE

COMPOSED, DECOMPOSED = "Ren\u00e9", "Rene\u0301"


def come_in(client: Client, name: str = "eve", **headers: str) -> int:
    """The status of the form that asks for a name."""
    return client.http.post("/hello", data={"name": name, "token": client.room.form_token}, headers=headers).status_code


@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-for": "203.0.113.9"},
        {"x-forwarded-proto": "https"},
        {"x-forwarded-host": "label.example.org"},
        {"x-real-ip": "203.0.113.9"},
        {"forwarded": "for=203.0.113.9"},
        {"via": "1.1 proxy"},
    ],
)
def test_who_comes_by_a_proxy_needs_an_invitation(tmp_path: Path, headers: dict[str, str]) -> None:
    guest = Client(make_room(tmp_path), None)
    assert 'id="name"' not in guest.http.get("/hello", headers=headers).text
    assert come_in(guest, **headers) == 403
    assert come_in(guest) == 303  # on this machine itself


def test_where_somebody_was_invited_everybody_must_be(tmp_path: Path) -> None:
    room = make_room(tmp_path)
    assert come_in(Client(room, None)) == 303
    token = room.desk.store.invite("ada")
    guest = Client(room, None)
    assert come_in(guest) == 403
    assert 'id="name"' not in guest.http.get("/hello").text
    assert guest.http.get(f"/join/{token}").status_code == 200


@pytest.mark.parametrize(
    ("options", "closed"), [([], False), (["--allow-host", "label.example.org"], True), (["--host", "0.0.0.0"], True)]
)
def test_other_names_of_the_server_are_by_invitation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], closed: bool
) -> None:
    rooms = []
    monkeypatch.setattr("surefoot.serve.run_server", lambda room, sock, *_, **__: rooms.append(room) or sock.close())
    command = ["serve", str(write_pool(tmp_path)), "--label", "churn", "--classes", "yes,no", "--no-open"]
    assert run([*command, "--port", "0", *options]) == 0
    (room,) = rooms
    room.fitter._process.stop()
    assert room.by_invitation is closed
    assert come_in(Client(room, None)) == (403 if closed else 303)


@pytest.mark.parametrize("host", ["https://label.example.org", "label.example.org:8443", "*", "*.example.org", "a b"])
def test_allowed_hosts_are_plain_names(tmp_path: Path, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["serve", str(write_pool(tmp_path)), "--label", "churn", "--classes", "yes,no", "--no-open"]
    assert run([*command, "--port", "0", "--allow-host", host]) == 2
    assert "--allow-host" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["/hello", "/leave", "/edit", "/settle", "/unflag", "/report"])
def test_a_form_of_too_many_fields_is_refused(tmp_path: Path, address: str) -> None:
    stranger = Client(make_room(tmp_path), None)
    for _ in range(2):
        answer = stranger.http.post(address, data={f"f{k}": "x" for k in range(21)})
        assert answer.status_code == 400
        assert "20 fields" in answer.text


def test_a_form_or_an_answer_without_a_label_is_no_skip(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path, classes=["None", "yes"]))
    row = ada.rows()[0]["row"]
    assert ada.http.post("/edit", data={"token": ada.token, "row": row}).status_code == 400
    assert ada.http.post("/settle", data={"token": ada.token, "row": row}).status_code == 400
    assert ada.post("answer", row=row).status_code == 400
    assert ada.post("note", row=row, text=["a", "list"]).status_code == 400
    assert not ada.room.desk.book.row(row).answers
    assert ada.post("answer", row=row, label=None).json()["saved"]  # a skip says so
    assert ada.room.desk.book.skipped == {row}


def test_a_session_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = make_room(tmp_path)
    ada = Client(room)
    cookie = next(iter(ada.http.cookies.jar))
    begun = stores.time.time()
    assert cookie.expires == pytest.approx(begun + SESSION_SECONDS, abs=60)
    # whatever the clock does: set back, a session would last longer than it may
    for days, there in ((0, True), (29, True), (31, False), (-29, True), (-31, False)):
        monkeypatch.setattr(stores.time, "time", lambda days=days: begun + days * 24 * 3600)
        assert (room.desk.store.signed_in(ada.http.cookies[COOKIE]) is not None) is there
    monkeypatch.setattr(stores.time, "time", lambda: begun + 31 * 24 * 3600)
    Client(room, "bob")
    assert room.desk.store._read("SELECT count(*) FROM sessions") == [(1,)]  # those that ended are gone


@pytest.mark.parametrize(("first", "second"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_a_name_is_one_person_however_it_is_composed(tmp_path: Path, first: str, second: str) -> None:
    room = make_room(tmp_path)
    for name in (first, second, f" {second}\t"):
        Client(room, name)
    assert run(["serve", str(tmp_path / "pool.csv"), "--label", "churn", "--invite", second]) == 0
    assert room.desk.store.person(first) == room.desk.store.person(second)
    assert [one.name for one in room.desk.store.people() if not one.name.startswith("(")] == [COMPOSED]


@pytest.mark.parametrize(("typed", "cell"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_a_class_is_one_however_it_is_composed(tmp_path: Path, typed: str, cell: str) -> None:
    """In --classes, in the table, and in tasks of Label Studio; the table's own bytes stay."""
    path = write_pool(tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2] + cell, *lines[3:]]) + "\n")
    command = [str(path), "--label", "churn"]
    tasks = tmp_path / "tasks.json"
    result = f'[{{"type": "choices", "value": {{"choices": ["{cell}"]}}}}]'
    story = lines[1].split(",", 2)[2].rsplit(",", 1)[0].strip('"').replace('""', '\\"')
    data = f'{{"age": "20", "income": "", "story": "{story}", "surefoot_row": 1}}'
    tasks.write_text(f'[{{"id": 1, "data": {data}, "annotations": [{{"id": 1, "result": {result}}}]}}]')
    assert run(["import", command[0], str(tasks), *command[1:], "--classes", f"{typed},no"]) == 0
    store = Store(store_path(path))
    assert store.about["classes"] == [COMPOSED, "no"]
    labels = [event.value for event in store.events() if event.kind == "label"]
    store.close()
    assert labels == [COMPOSED, COMPOSED]
    before = path.read_bytes()
    assert run(["export", *command, "--in-place"]) == 0
    after = path.read_bytes().decode().splitlines()
    assert after[1] == before.decode().splitlines()[1] + COMPOSED
    assert after[2:] == before.decode().splitlines()[2:]  # the label that was there is as it was


def test_classes_that_cannot_be_stored_or_told_apart_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["label", str(write_pool(tmp_path)), "--label", "churn", "--classes"]
    assert run([*command, "yes,\udcff"]) == 2
    assert "--classes must be text" in " ".join(capsys.readouterr().err.split())
    table = read_labeled_table(tmp_path / "pool.csv", "churn", classes=["yes", "yes\u200b", "no"])
    assert [note.code for note in table.notes] == [Code.SIMILAR_CLASSES]


@pytest.mark.parametrize(
    "name", ["a\u200bb", "a\u202eb", "\u2066a", "a\x00b", "a\ud800", "\ufeffada", "e" + "\u0301" * 70, "a\x85b\u0086"]
)
def test_names_that_cannot_be_seen_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name must have"):
        stores.clean_name(name)


def test_a_name_may_be_of_any_script() -> None:
    for name in ("\u05d3\u05d5\u05d3", "\u0645\u0631\u064a\u0645", "\u738b\u8299", "O'Brien", "\U0001f98a"):
        assert stores.clean_name(f" {name} ") == unicodedata.normalize("NFC", name)
