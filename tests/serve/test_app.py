"""The pages and their interface: who comes in, what is refused, what is shown, what is taken along."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import pandas as pd
import pytest

from serve.rooms import EVIL, Client, make_room, write_pool
from surefoot._errors import FileError
from surefoot.pool.table import read_labeled_table
from surefoot.serve import bind
from surefoot.serve.guard import LARGEST_REQUEST, allowed_hosts
from surefoot.serve.pages import class_keys
from surefoot.serve.state import Cards


def test_a_name_is_asked_for_once(tmp_path: Path) -> None:
    room = make_room(tmp_path)
    stranger = Client(room, None)
    assert stranger.http.get("/").headers["location"] == "/hello"
    assert stranger.http.get("/api/rows").status_code == 401
    assert stranger.http.get("/download/labels.csv").headers["location"] == "/hello"
    ada = Client(room)
    assert ada.http.get("/").status_code == 200
    cookie = next(iter(ada.http.cookies.jar))
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "strict"


@pytest.mark.parametrize("name", ["", "x" * 61, "(in the table)", "a\x1bb"])
def test_an_odd_name_is_refused(tmp_path: Path, name: str) -> None:
    room = make_room(tmp_path)
    answer = Client(room, None).http.post("/hello", data={"name": name, "token": room.form_token})
    assert answer.status_code == 400
    assert "1 to 60 characters" in answer.text


def test_on_a_server_only_a_link_lets_people_in(tmp_path: Path) -> None:
    room = make_room(tmp_path, invitations_only=True)
    guest = Client(room, None, host="0.0.0.0")
    assert 'id="name"' not in guest.http.get("/hello").text
    assert guest.http.post("/hello", data={"name": "eve", "token": room.form_token}).status_code == 403
    assert guest.http.get("/join/wrong").status_code == 403
    token = room.desk.store.invite("ada")
    welcome = guest.http.get(f"/join/{token}")
    assert (welcome.status_code, "Welcome, ada" in welcome.text) == (200, True)
    guest.read_token()
    assert guest.post("answer", row=guest.rows()[0]["row"], label="yes").json()["saved"]


def test_answers_need_the_token_of_the_page(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    row = ada.rows()[0]["row"]
    for headers in ({}, {"x-write-token": "0" * 32}):
        refused = ada.http.post("/api/answer", json={"row": row, "label": "yes"}, headers=headers)
        assert (refused.status_code, refused.json()["saved"]) == (403, False)
    assert ada.http.post("/edit", data={"row": row, "label": "yes"}).status_code == 403
    assert ada.room.desk.book.labels == {}
    assert ada.post("answer", row=row, label="yes").json()["saved"]
    assert ada.room.desk.book.labels == {row: "yes"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example:8765"}, 400),
        ({"host": ""}, 400),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://127.0.0.1:8765"}, 200),
    ],
)
def test_other_hosts_and_origins_are_refused(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    ada = Client(make_room(tmp_path))
    row = ada.rows()[0]["row"]
    answer = ada.http.post(
        "/api/answer", json={"row": row, "label": "no"}, headers={"x-write-token": ada.token, **headers}
    )
    assert answer.status_code == status
    assert len(ada.room.desk.book.labels) == (status == 200)


def test_numeric_addresses_will_do_on_a_server_but_other_names_will_not(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    guest = Client(make_room(tmp_path, invitations_only=True), None, host="0.0.0.0")
    assert guest.http.get("/hello", headers={"host": "192.168.7.7:8765"}).status_code == 200
    assert guest.http.get("/hello", headers={"host": "evil.example"}).status_code == 400
    assert "lab.example" in allowed_hosts("0.0.0.0", ["Lab.Example"])
    for host in ("[2001:db8::7]:8765", "[2001:db8::7]", "[::1]:8765", "LOCALHOST"):
        assert guest.http.get("/hello", headers={"host": host}).status_code == 200
    for host in ("192.168.7.7.evil.example", "[2001:db8::7", "x@192.168.7.7", "localhost.evil.example"):
        assert guest.http.get("/hello", headers={"host": host}).status_code == 400
    local = Client(make_room(tmp_path / "local"), None)
    assert local.http.get("/hello", headers={"host": "[::1]:8765"}).status_code == 200
    assert local.http.get("/hello", headers={"host": "192.168.7.7"}).status_code == 400


def test_a_large_request_is_refused(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    body = b"x" * (LARGEST_REQUEST + 1)
    assert ada.http.post("/api/note", content=body, headers={"x-write-token": ada.token}).status_code == 413
    pieces = ada.http.post(  # without a length
        "/api/note", content=iter([body[:1000]] * 100), headers={"x-write-token": ada.token}
    )
    assert pieces.status_code == 413


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"[" * 20000, b'{"row": "1", "label": "yes"}', b'{"row": 1, "label": 7}', b'{"row": 1e9}'],
)
def test_nonsense_is_refused(tmp_path: Path, body: bytes) -> None:
    ada = Client(make_room(tmp_path))
    answer = ada.http.post("/api/answer", content=body, headers={"x-write-token": ada.token})
    assert (answer.status_code, answer.json()["saved"]) == (400, False)
    assert ada.room.desk.book.labels == {}


def test_cells_are_escaped_and_headers_forbid_scripts(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path, guidelines="<p>fine</p>"))
    card = ada.rows()[0]
    assert EVIL not in card["html"]
    assert "&lt;script&gt;window.hacked" in card["html"]
    ada.post("note", row=card["row"], text=EVIL)
    ada.post("answer", row=card["row"], label="yes")
    for address in ("/", "/history", f"/history?q={EVIL}", "/finish"):
        page = ada.http.get(address)
        assert EVIL not in page.text
        assert "<script>" not in page.text
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"


def test_a_card_shows_quantiles_and_missing_cells(tmp_path: Path) -> None:
    cards = make_room(tmp_path).cards
    assert "missing" in cards.html(0)
    assert "missing" not in cards.html(1)
    assert "above 2\N{NO-BREAK SPACE}% of the pool" in cards.html(0)  # the youngest
    assert 'class="long"' in cards.html(1)


def test_missing_cells_of_parquet_have_cards(tmp_path: Path) -> None:
    columns = {"a": pd.array([1, None, 3], dtype="Int64"), "b": pd.array(["x", None, "y"], dtype="string")}
    pd.DataFrame({**columns, "churn": [None] * 3}).to_parquet(tmp_path / "pool.parquet")
    cards = Cards(read_labeled_table(tmp_path / "pool.parquet", "churn", classes=["no", "yes"]))
    assert [cards.html(row).count('class="missing"') for row in range(3)] == [0, 2, 0]


def test_pictures_come_from_below_the_folder_only(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "img").mkdir(parents=True)
    (folder / "img" / "a.png").write_bytes(b"\x89PNG a")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    names = ["img/a.png", "../secret.png", "link.png", str(tmp_path / "secret.png"), "x" * 5000 + ".png", "a\0.png"]
    lines = [f"{name},{k}," for k, name in enumerate(names)]
    (folder / "pool.csv").write_text("\n".join(["file,k,churn", *lines]) + "\n")
    ada = Client(make_room(folder))
    answers = [ada.http.get(f"/picture/{row}/0") for row in range(len(names))]
    assert [answer.status_code for answer in answers] == [200, 404, 404, 404, 404, 404]
    assert answers[0].content == b"\x89PNG a"
    assert answers[0].headers["content-type"] == "image/png"
    assert ada.http.get("/picture/99/0").status_code == 404
    assert ada.http.get("/static/..%2Fapp.py").status_code == 404
    assert ada.http.get("/static/app.py").status_code == 404


def test_nothing_the_model_believes_is_said_of_an_audited_row(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    seen = {}
    for _ in range(40):
        rows = ada.rows()
        if not rows:
            break
        seen.setdefault(rows[0]["purpose"], rows[0]["why"])
        ada.post(
            "answer",
            row=rows[0]["row"],
            label=["no", "yes"][int(ada.room.fitter._process._learner.truth[rows[0]["row"]])],
        )
        while ada.room.fitter._step():
            pass
    assert {"random", "learn", "audit"} <= set(seen)
    assert "The model leans to" in seen["learn"]
    assert "hidden" in seen["audit"]
    assert "leans" not in seen["audit"]
    assert "Nearest" not in seen["audit"]
    standing = ada.http.get("/api/standing").json()
    assert standing["phase"] == "proved"
    assert standing["headline"] == "Proved: at most 10\N{NO-BREAK SPACE}% wrong, 90\N{NO-BREAK SPACE}% confidence"
    assert standing["bound"]["kind"] == "theorem"
    assert standing["bound"]["value"] <= 0.1
    assert ada.http.get("/download/model.skops").content == b"model"
    assert ada.http.get("/api/rows?beyond=1").json()["rows"]


def test_history_finds_edits_and_settles(tmp_path: Path) -> None:
    room = make_room(tmp_path, overlap=1.0)
    ada, bob = Client(room), Client(room, "bob")
    row = ada.rows()[0]["row"]
    ada.post("answer", row=row, label="yes")
    assert bob.rows()[0]["row"] == row
    bob.post("answer", row=row, label="no")
    page = ada.http.get("/history?state=conflict").text
    assert f"Row {row + 1}" in page
    assert "Settle" in page
    assert "κ" in page
    moved = ada.http.post("/settle", data={"token": ada.token, "row": row, "label": "no"})
    assert moved.headers["location"] == f"/history#row-{row + 1}"
    assert room.desk.book.labels == {row: "no"}
    assert "Nothing here yet" in ada.http.get("/history?state=conflict").text
    assert f"Row {row + 1}" in ada.http.get(f"/history?q=ticket {row}:&person=&state=labeled").text
    assert "Nothing here yet" in ada.http.get("/history?q=no such words").text
    other = next(card["row"] for card in ada.rows() if card["row"] != row)
    ada.post("answer", row=other, label="yes")
    ada.http.post("/edit", data={"token": ada.token, "row": other, "label": "no"})
    assert room.desk.book.labels[other] == "no"
    assert ada.http.post("/edit", data={"token": ada.token, "row": "x", "label": "no"}).status_code == 400


def test_downloads_hold_labels_and_answers(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    rows = []
    for label in ("yes", "no", None):
        rows.append(ada.rows()[0]["row"])
        ada.post("answer", row=rows[-1], label=label)
    before = read_labeled_table(tmp_path / "pool.csv", "churn", classes=["no", "yes"]).cells
    for form, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        found = read(io.BytesIO(ada.http.get(f"/download/labels.{form}").content))
        assert found["churn"].dropna().to_dict() == dict(zip(rows[:2], ["yes", "no"], strict=True))
        assert found["story"].tolist() == before["story"].tolist()
        answers = read(io.BytesIO(ada.http.get(f"/download/answers.{form}").content))
        assert answers["row"].tolist() == [row + 1 for row in rows]
        assert answers["person"].tolist() == ["ada"] * 3
        assert answers["purpose"].tolist() == ["random"] * 3
        assert answers["pick_probability"].between(1 / 60, 1 / 50).all()
        assert answers["skipped"].tolist() == [False, False, True]
    assert len(json.loads(ada.http.get("/download/label-studio.json").content)) == 60
    assert ada.http.get("/download/../pool.csv").status_code == 404
    assert ada.http.get("/download/pool.csv").status_code == 404


def test_a_full_disk_is_said_to_the_page_and_the_answer_is_not_counted(tmp_path: Path) -> None:
    ada = Client(make_room(tmp_path))
    row = ada.rows()[0]["row"]
    connection = ada.room.desk.store._database._connection
    connection.execute(f"PRAGMA max_page_count={connection.execute('PRAGMA page_count').fetchone()[0]}")
    last = None
    for attempt in range(300):
        last = ada.post("note", row=row, text="x" * 1500, key=f"k{attempt}")
        if last.status_code != 200:
            break
    assert last.status_code == 507
    assert "the disk is full" in last.json()["message"]
    notes = len(ada.room.desk.book.row(row).notes)
    assert notes == attempt
    connection.execute("PRAGMA max_page_count=1000000")
    assert ada.post("answer", row=row, label="yes").json()["saved"]
    assert len([event for event in ada.room.desk.store.events() if event.kind == "note"]) == notes


def test_keys_are_digits_and_free_letters() -> None:
    assert class_keys(["benign", "malignant"]) == {"benign": ["1", "b"], "malignant": ["2", "m"]}
    assert class_keys(["no", "yes", "unsure"]) == {"no": ["1"], "yes": ["2", "y"], "unsure": ["3"]}
    assert class_keys(["0", "1"]) == {"0": ["0"], "1": ["1"]}
    assert class_keys([f"c{k}" for k in range(12)])["c11"] == []


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as held, pytest.raises(FileError, match="Pass another --port"):
        bind("127.0.0.1", held.getsockname()[1])


def test_the_terminal_and_the_page_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from surefoot.cli import run

    path = write_pool(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\nskip\nno\nquit\n"))
    command = ["label", str(path), "--label", "churn", "--classes", "yes,no", "--random-first", "1000"]
    assert run(command) == 0
    room = make_room(tmp_path)
    assert sorted(room.desk.book.labels.values()) == ["no", "yes"]
    assert len(room.desk.book.skipped) == 1
    assert {state.purpose for state in room.desk.book.rows.values() if state.answers} <= {"given", "random"}
    ada = Client(room)
    ada.post("answer", row=ada.rows()[0]["row"], label="yes")
    room.desk.store.close()
    monkeypatch.setattr(sys, "stdin", io.StringIO("no\nundo\nyes\nquit\n"))
    assert run(command) == 0
    again = make_room(tmp_path)
    assert len(again.desk.book.labels) == 4
    assert pd.read_csv(path)["churn"].notna().sum() == 4  # the answer of the page, too
    # of an answer, and of each row that a terminal held when it ended
    assert sum(event.kind == "undo" for event in again.desk.book.events) == 4
    assert set(again.desk.book.holders.values()) == {again.desk.store.person("ada").id}


def test_what_the_socket_accepts_sends_at_once() -> None:
    """With Nagle's algorithm on, the body of each answer waited for the client to acknowledge its head: 40 ms."""
    with bind("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            assert accepted.proto == socket.IPPROTO_TCP  # without which asyncio would not ask for it
