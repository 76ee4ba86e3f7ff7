"""Requests that no page of ours sends, people with two tabs, and files that change under the server."""

from __future__ import annotations

import json
from pathlib import Path

from serve.rooms import Client, make_room
from serve.services import CLASSES, truth
from surefoot.pool.schedule import AUDITING, PROVED
from surefoot.serve.app import COOKIE


def test_a_forged_session_is_nobody(tmp_path: Path) -> None:
    stranger = Client(make_room(tmp_path), None)
    for secret in ("", "x", "a" * 43, "' OR 1=1 --", "%00"):
        headers = {"cookie": f"{COOKIE}={secret}"}
        assert stranger.http.get("/", headers=headers).headers["location"] == "/hello"
        for address in ("/api/rows", "/api/standing"):
            assert stranger.http.get(address, headers=headers).status_code == 401
        assert stranger.http.get("/picture/0/0", headers=headers).status_code == 404


def test_who_leaves_is_signed_out_on_the_server_too(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    secret = ada.http.cookies[COOKIE]
    assert ada.http.post("/leave", data={"token": "wrong"}).headers["location"] == "/hello"
    assert ada.http.get("/").status_code == 200  # nobody else can make her leave
    ada.http.post("/leave", data={"token": ada.token})
    assert Client(ada.room, None).http.get("/", headers={"cookie": f"{COOKIE}={secret}"}).status_code == 303
    assert ada.room.desk.store.signed_in(secret) is None


ADDRESSES = {
    f"/history?person={'9' * 1900}": 200,
    f"/history?page={'9' * 1900}": 200,
    "/history?person=\N{SUPERSCRIPT TWO}&state=nonsense&page=-3": 200,
    f"/picture/{'9' * 1900}/0": 404,
    f"/picture/{'9' * 5000}/0": 414,
    f"/history?q={'x' * 3000}": 414,
    "/static/%2e%2e/app.py": 404,
    "/download/labels.csv%0d%0aset-cookie:x": 404,
    "/download/....//pool.csv": 404,
}
BODIES = [
    ("note", b'{"row": 1, "text": "half \\ud800"}'),
    ("note", b'{"row": 1, "text": ""}'),
    ("answer", b'{"row": 1, "label": "yes", "key": "\\ud800"}'),
    ("answer", b'{"row": 1, "label": ["yes"]}'),
    ("answer", b'{"row": [1], "label": "yes"}'),
    ("undo", b'{"key": "\\u0000"}'),
]


def test_odd_addresses_are_answered(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    answers = {address: ada.http.get(address) for address in ADDRESSES}
    assert {address: answer.status_code for address, answer in answers.items()} == ADDRESSES
    assert [address for address, answer in answers.items() if "x" in answer.cookies] == []


def test_texts_that_no_file_can_hold_are_refused(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    for act, body in BODIES:
        answer = ada.http.post(f"/api/{act}", content=body, headers={"x-write-token": ada.token})
        assert (answer.status_code, answer.json()["saved"]) == (400, False), body
    assert {event.kind for event in ada.room.desk.store.events()} <= {"pick"}


def test_a_name_of_a_file_is_no_header(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path, name='a"b\r\nx-evil: 1 gr\u00f6\u00dfe.csv'))
    answer = ada.http.get("/download/labels.csv")
    assert "x-evil" not in answer.headers
    said = answer.headers["content-disposition"]
    assert said.startswith('attachment; filename="a_b__x-evil__1_gr__e.labeled.csv"; ')
    assert said.endswith("filename*=UTF-8''a%22b%0D%0Ax-evil%3A%201%20gr%C3%B6%C3%9Fe.labeled.csv")


def test_two_tabs_of_one_person_show_the_same_rows_and_the_last_answer_stands(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    first, second = ada.rows(), ada.rows()
    assert [card["row"] for card in first] == [card["row"] for card in second]
    row = first[0]["row"]
    for key, label in (("tab-1", "yes"), ("tab-2", "no")):
        assert ada.post("answer", row=row, label=label, key=key).json()["saved"]
    book = ada.room.desk.book
    assert book.labels == {row: "no"}
    assert book.conflicts == set()
    assert row not in [card["row"] for card in ada.rows()]


def label_until(client: Client, phase: str) -> list[int]:
    """Answer with the truth until a phase is reached; the rows."""
    rows: list[int] = []
    while client.room.desk.turns.phase != phase:
        row = client.rows()[0]["row"]
        client.post("answer", row=row, label=CLASSES[truth(60)[row]])
        rows.append(row)
        while client.room.fitter._step():
            pass
    return rows


def test_undo_goes_back_across_the_freeze_and_the_proof_counts_again(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    rows = label_until(ada, AUDITING)
    rows += label_until(ada, PROVED)
    turns = ada.room.desk.turns
    bound, audited = turns.audit.anytime_upper, turns.audit.n_labels
    back = rows[-(audited + 6) :][::-1]
    assert [ada.post("undo", beyond=True).json()["undone"] for _ in back] == back
    assert turns.phase == AUDITING
    assert turns.audit.labels == {}
    assert len(ada.room.desk.book.labels) == len(rows) - len(back)
    # rows known when the model was frozen have no label now: each counts as an error until it has one again
    unknown = set(back) & set(turns.audit.known)
    assert turns.audit.known_errors == len(unknown) >= 3
    for row in reversed(back):
        assert ada.rows()[0]["row"] == row
        ada.post("answer", row=row, label=CLASSES[truth(60)[row]])
    assert (turns.phase, turns.audit.anytime_upper) == (PROVED, bound)


def test_a_pool_that_changes_on_the_disk_changes_nothing_until_the_next_start(tmp_path: Path) -> None:
    room = make_room(tmp_path)
    ada = Client(room)
    path = tmp_path / "pool.csv"
    before = path.read_text()
    path.write_text(before.replace("Ticket 1:", "Ticket one:"))
    row = ada.rows()[0]["row"]
    assert ada.post("answer", row=row, label="yes").json()["saved"]
    assert "Ticket 1:" in ada.http.get("/download/labels.csv").text
    room.desk.store.close()
    lines = before.splitlines(keepends=True)
    path.write_text("".join([*lines[:1], lines[-1], *lines[1:-1]]))  # the last row comes first
    again = make_room(tmp_path)
    assert again.desk.book.labels == {(row + 1) % 60: "yes"}
    again.desk.store.close()
    path.write_text(before)
    assert make_room(tmp_path).desk.book.labels == {row: "yes"}


def test_a_store_that_turns_read_only_is_said_and_nothing_is_counted(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    rows = [card["row"] for card in ada.rows()]
    ada.room.desk.store._database._connection.execute("PRAGMA query_only=ON")
    for act, data in (("answer", {"row": rows[0], "label": "yes"}), ("flag", {"row": rows[0], "flagged": True})):
        refused = ada.post(act, **data)
        assert refused.status_code == 507
        assert "the folder or the file is read-only" in refused.json()["message"]
    assert ada.http.post("/edit", data={"token": ada.token, "row": rows[0], "label": "yes"}).status_code == 507
    assert ada.room.desk.book.labels == {}
    ada.room.desk.store._database._connection.execute("PRAGMA query_only=OFF")
    assert [card["row"] for card in ada.rows()] == rows
    assert ada.post("answer", row=rows[0], label="yes").json()["saved"]
    assert ada.room.desk.book.labels == {rows[0]: "yes"}


def test_an_answer_that_is_saved_is_called_saved_though_no_row_can_follow(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    row, real = ada.rows()[0]["row"], ada.room.desk.rows_for

    def full(*_: object, **__: object) -> None:
        ada.room.desk.store._database._connection.execute("PRAGMA query_only=ON")
        ada.room.desk.flag(ada.room.desk.store.people()[0], row, True)

    ada.room.desk.rows_for = full
    state = ada.post("answer", row=row, label="yes").json()
    assert (state["saved"], state["rows"]) == (True, [])
    assert "read-only" in state["standing"]["problem"]
    ada.room.desk.rows_for = real
    assert [event.value for event in ada.room.desk.store.events() if event.kind == "label"] == ["yes"]


def test_very_long_texts_are_cut_on_the_card_and_whole_in_the_download(tmp_path: Path) -> None:
    text = "long " * 20_000
    (tmp_path / "pool.csv").write_text("story,k,churn\n" + "".join(f"{k} {text},{k},\n" for k in range(3)))
    ada = Client(make_room(tmp_path))
    state = ada.http.get("/api/rows").content
    assert len(state) < 3 * 25_000
    assert "\u2026" in json.loads(state)["rows"][0]["html"]
    assert text.strip() in ada.http.get("/download/labels.csv").text
