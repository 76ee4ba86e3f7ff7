"""Label Studio as a front end, by requests that Label Studio 1.23.2 sent to a page (label_studio_requests.json).

The token in them was replaced by TOKEN, that of basic authentication by BASIC.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from serve.rooms import Running, SameProcess
from serve.services import store_of
from surefoot._errors import ParameterError
from surefoot.cli import run
from surefoot.pool import database as e
from surefoot.pool.exchange import ChoicesTag, config
from surefoot.pool.label_log import Neighbours, Ranking
from surefoot.pool.schedule import AUDITING, ColumnAudit, Goal, LabelingSettings
from surefoot.pool.service import LabelingService
from surefoot.pool.store import LABEL_STUDIO, Store, store_path
from surefoot.pool.table import read_labeled_table
from surefoot.pool.table.reading import PLAIN
from surefoot.serve import guarded
from surefoot.serve.guard import LARGEST_BATCH, LARGEST_REQUEST
from surefoot.serve.state import AppState, Cards, Fitter

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("label_studio_requests.json").read_text())
CLASSES = ["no", "yes"]


def recorded(name: str) -> dict[str, Any]:
    """The body of the first recorded request of this action or address."""
    return copy.deepcopy(
        next(
            one["body"]
            for one in RECORDED
            if one["path"].endswith(f"/{name}") or (one["body"] or {}).get("action") == name
        )
    )


def wait_until(running: Running) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(running.url)
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


class Room:
    """A small page with its Label Studio."""

    def __init__(self, folder: Path, n_rows: int = 6, audit: ColumnAudit | None = None, **settings: Any) -> None:
        path = folder / "pool.csv"
        if not path.exists():
            said = [f"{20 + row},Ticket number {row} says something,no," for row in range(n_rows)]
            path.write_text("\n".join(["age,story,llm,churn", *said]) + "\n")
            if audit is None:
                path.write_text(path.read_text().replace(",no,", ",").replace("story,llm,", "story,"))
        self.table = read_labeled_table(path, "churn", classes=CLASSES, how=PLAIN)
        values = {"goal": Goal(0.1, 0.9, 0), "random_first": 3, **settings}
        self.desk = LabelingService(store_of(self.table), n_rows, CLASSES, LabelingSettings(**values))
        if audit is not None:
            self.desk.begin_audit(audit, np.zeros(n_rows, dtype=np.intp))
        fitter = Fitter(SameProcess(Right(n_rows)), self.desk.wanted, self.desk.take_ranking, self.desk.freeze_if_due)
        cards, near = Cards(self.table, None, self.desk.turns.hidden_columns), Neighbours(np.zeros((n_rows, 1)))
        self.state = AppState(self.desk, cards, fitter, near, path.read_bytes(), label_studio=True)
        self.token = self.desk.store.invite(LABEL_STUDIO)
        self.http = TestClient(guarded(self.state, "127.0.0.1"), base_url="http://127.0.0.1:8765")

    def replay(self, one: dict[str, Any]) -> Any:
        basic = base64.b64encode(f"surefoot:{self.token}".encode()).decode()
        headers = {name: value.replace("BASIC", basic) for name, value in one["headers"].items()}
        content = None if one["body"] is None else json.dumps(one["body"]).encode()
        path = one["path"].replace("TOKEN", self.token)
        return self.http.request(one["method"], path, headers=headers, content=content)

    def send(self, name: str, body: Any) -> Any:
        return self.http.post(f"/label-studio/{self.token}/{name}", json=body)

    def answer(self, row: int, label: str | None, number: int, who: int = 1, **more: Any) -> Any:
        """Report an annotation of a row, with the cells as Label Studio has them."""
        sent = recorded("ANNOTATION_CREATED")
        sent["task"] = {"id": 500 + row, "data": {"age": 20 + row, "story": f"Ticket number {row} says something"}}
        result = [] if label is None else ChoicesTag("answer", "t").result(label)
        sent["annotation"] |= {
            "id": number, "task": 500 + row, "completed_by": who, "result": result, "was_cancelled": label is None,
        } | more  # fmt: skip
        return self.send("webhook", sent)

    def tasks(self) -> list[dict[str, Any]]:
        rows = range(self.desk.book.n_rows)
        return [
            {"id": 500 + row, "data": {"age": 20 + row, "story": f"Ticket number {row} says something"}} for row in rows
        ]

    def learn(self) -> None:
        job = self.desk.wanted()
        assert job is not None
        self.desk.take_ranking(Right(self.desk.book.n_rows).rank(job), job)


class Right:
    """A learner that predicts the first class, and ranks the rows backwards."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows

    def rank(self, job: Any) -> Ranking:
        proba = np.tile(np.float32([0.9, 0.1]), (self.n_rows, 1))
        rows = tuple(row for row in reversed(range(self.n_rows)) if row not in job.labels)
        return Ranking(rows, np.zeros(self.n_rows, dtype=np.intp), proba, len(job.labels), model=b"model")


class TestRecorded:
    def test_every_request_is_answered_and_the_labels_are_those_of_label_studio(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        replies = [room.replay(one) for one in RECORDED]
        assert [one.status_code for one in replies] == [200] * len(RECORDED)
        # rows 0 and 2 have a label, that of row 0 was changed; that of row 1 was deleted; row 3 was skipped
        assert room.desk.book.labels == {0: "no", 2: "yes"}
        assert room.desk.book.skipped == {3}
        results = next(one.json()["results"] for one in replies if "results" in one.json())
        assert len(results) == 6
        assert len({one["score"] for one in results}) > 3
        room.desk.store.close()
        assert Room(tmp_path).desk.book.labels == {0: "no", 2: "yes"}

    def test_a_request_that_comes_twice_counts_once(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        made = [one for one in RECORDED if (one["body"] or {}).get("action") == "ANNOTATION_CREATED"]
        for _ in range(2):
            taken = [room.replay(one).json()["taken"] for one in made]
        assert taken == [0] * len(made)
        assert sum(event.kind == e.LABEL for event in room.desk.book.events) == 3

    def test_over_a_socket(self, tmp_path: Path) -> None:
        """Requests of the client library over loopback, some at once."""
        running = Running(tmp_path, label_studio=True)
        try:
            wait_until(running)
            with Store(store_path(tmp_path / "pool.csv")) as store:
                token = store.invite(LABEL_STUDIO)
            url = f"{running.url}/label-studio/{token}"
            assert httpx.get(f"{url}/health").json()["status"] == "UP"
            tasks = httpx.get(f"{url}/metrics").json()["rows"]
            found: list[Any] = []
            body = {"tasks": [{"id": 1, "data": {"no": "such row"}}]}
            threads = [
                threading.Thread(target=lambda: found.append(httpx.post(f"{url}/predict", json=body, timeout=30)))
                for _ in range(4)
            ]
            [one.start() for one in threads]
            [one.join() for one in threads]
            assert tasks == 60
            assert [one.json()["results"] for one in found] == [
                [{"result": [], "score": 1.0, "model_version": "0 labels"}]
            ] * 4
        finally:
            running.kill()


class TestPredict:
    def test_the_smallest_score_is_our_next_row(self, tmp_path: Path) -> None:
        room = Room(tmp_path, 20)
        sample = room.desk.random_sample
        for number, row in enumerate(sample):
            results = room.send("predict", {"tasks": room.tasks()}).json()["results"]
            assert min(range(20), key=lambda task: results[task]["score"]) == row
            assert {one["model_version"] for one in results} == {"0 labels"}
            assert not any(one["result"] for one in results)
            room.answer(row, CLASSES[number % 2], 900 + number)
        assert {room.desk.book.row(row).purpose for row in sample} == {e.RANDOM}  # they are a random sample
        room.answer(next(row for row in range(20) if row not in sample), "no", 990)
        assert e.IMPORTED in {found.purpose for found in room.desk.book.rows.values()}
        room.learn()
        sent = recorded("predict")
        results = room.send("predict", {**sent, "tasks": room.tasks()}).json()["results"]
        order = sorted(range(20), key=lambda task: results[task]["score"])
        first = [row for row in reversed(range(20)) if row not in room.desk.book.labels]
        assert order[: len(first)] == first
        assert results[0]["model_version"] == "4 labels"
        assert results[first[0]]["result"] == [
            {"from_name": "answer", "to_name": "t", "type": "choices", "value": {"choices": ["no"]}}
        ]

    def test_an_audit_has_scores_and_no_predictions(self, tmp_path: Path) -> None:
        room = Room(tmp_path, 60)
        number = 0
        while room.desk.turns.phase != AUDITING:
            row = room.desk.order(1)[0]
            room.answer(row, CLASSES[number % 2], 900 + number)
            number += 1
            if room.desk.wanted() is not None:
                room.learn()
            room.desk.freeze_if_due()
        results = room.send("predict", {"tasks": room.tasks()}).json()["results"]
        assert not any(one["result"] for one in results)
        assert results[0]["model_version"] == "audit 1"
        sampled = [draw.row for draw in room.desk.turns.audit.draw(10)]
        assert sorted(range(60), key=lambda task: results[task]["score"])[:10] == sampled
        before = room.desk.turns.audit.n_labels
        for row in sampled[:5]:
            room.answer(row, "no", 2000 + row)
        assert room.desk.turns.audit.n_labels == before + 5
        assert room.http.get(f"/label-studio/{room.token}/metrics").json()["kind"] == "theorem"

    def test_a_column_that_is_audited_is_not_in_the_tasks(self, tmp_path: Path) -> None:
        room = Room(tmp_path, 30, audit=ColumnAudit(("llm",)))
        results = room.send("predict", {"tasks": room.tasks()}).json()["results"]
        assert sorted(one["score"] for one in results)[:3] == [0.0, 0.5 / 30, 1 / 30]
        assert room.answer(room.desk.order(1)[0], "no", 1).json()["taken"] == 1
        assert room.desk.turns.audit.n_labels == 1
        assert "llm" not in config(room.table, ("llm",))


class TestWebhook:
    def test_two_annotators_who_disagree(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        room.answer(2, "yes", 1, who=1)
        room.answer(2, "no", 2, who=2)
        assert room.desk.book.conflicts == {2}
        room.send("webhook", {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 2}]})
        assert room.desk.book.labels == {2: "yes"}

    def test_an_older_state_does_not_replace_a_newer_one(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        times = [f"2026-11-19T10:00:0{second}Z" for second in range(4)]
        room.answer(2, "yes", 1, updated_at=times[0])
        room.answer(2, "no", 1, updated_at=times[2])
        assert room.answer(2, "yes", 1, updated_at=times[1]).json()["taken"] == 0
        assert room.desk.book.labels == {2: "no"}
        room.answer(2, "yes", 1, updated_at=times[3])  # back to a label that it had before
        assert room.desk.book.labels == {2: "yes"}

    def test_several_annotations_in_one_report(self, tmp_path: Path) -> None:
        room, sent = Room(tmp_path), recorded("ANNOTATION_CREATED")
        made = sent["annotation"]
        sent |= {
            "action": "ANNOTATIONS_CREATED", "task": room.tasks()[:2],
            "annotation": [{**made, "id": 7, "task": 500}, {**made, "id": 8, "task": 501}],
        }  # fmt: skip
        assert room.send("webhook", sent).json()["taken"] == 2
        assert room.desk.book.labels == {0: "yes", 1: "yes"}

    def test_what_cannot_be_used_is_said_there_and_on_the_page(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        assert room.answer(2, "maybe", 1).status_code == 400
        assert room.desk.problem is not None
        assert room.answer(77, "yes", 1).status_code == 400
        only = recorded("ANNOTATION_CREATED") | {"task": None}
        assert room.send("webhook", only).status_code == 400
        assert room.desk.book.labels == {}
        room.answer(2, "yes", 1)
        assert room.desk.problem is None

    @pytest.mark.parametrize("action", ["PROJECT_UPDATED", "TASKS_CREATED", None, 7, {}])
    def test_reports_of_anything_else_change_nothing(self, tmp_path: Path, action: Any) -> None:
        room = Room(tmp_path)
        assert room.send("webhook", {"action": action, "tasks": [1], "project": {"id": 1}}).json()["taken"] == 0
        assert room.desk.book.events == []

    @pytest.mark.parametrize(
        "change",
        [
            {"annotation": 7}, {"annotation": [None]}, {"annotation": {"result": "x"}}, {"task": [3]}, {"task": {}},
            {"task": {"data": []}}, {"task": {"data": {"age": {}, "story": []}}},
            {"action": "ANNOTATIONS_DELETED", "annotations": "x"}, {"action": "ANNOTATIONS_DELETED"},
            {"action": "ANNOTATIONS_DELETED", "annotations": [{}, {"id": {}}, {"id": None}]},
        ],
    )  # fmt: skip
    def test_damaged_reports_change_nothing(self, tmp_path: Path, change: dict[str, Any]) -> None:
        room = Room(tmp_path)
        room.answer(1, "yes", 5)
        assert room.send("webhook", recorded("ANNOTATION_CREATED") | change).status_code in (200, 400)
        assert room.desk.book.labels == {1: "yes"}


class TestSetup:
    def test_another_interface_is_refused(self, tmp_path: Path) -> None:
        room, sent = Room(tmp_path), recorded("setup")
        for schema in (
            sent["schema"].replace('value="yes"', 'value="maybe"'),
            "<View/>",
            "<Choices name='a'/>",
            "<Choices" * 500,
        ):
            assert room.send("setup", {**sent, "schema": schema}).status_code == 400
        assert room.send("setup", {**sent, "schema": config(room.table)}).status_code == 200

    def test_names_of_the_interface(self) -> None:
        text = (
            "<Choices toName='t &amp; u' name=\"c\"><Choice value='a &lt; b'/><Choice alias='x' value=\"é\"/></Choices>"
        )
        assert ChoicesTag.from_interface(text) == ChoicesTag("c", "t & u", ("a < b", "é"))
        assert ChoicesTag.from_interface("<Choices name='c' toName='t' value='$options'/>").classes == ()
        with pytest.raises(ParameterError) as error:
            ChoicesTag.from_interface("<Labels/>")
        assert error.value.parameter == "label_config"


class TestToken:
    def test_without_it_nothing_is_said(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        ann = room.desk.store.invite("ann")
        for token in ("x" * 22, ann, ""):
            basic = base64.b64encode(f"surefoot:{token}".encode()).decode()
            for one in RECORDED:
                path, headers = one["path"].replace("TOKEN", token), dict(one["headers"])
                headers = {name: value.replace("BASIC", basic) for name, value in headers.items()}
                found = room.http.request(one["method"], path, headers=headers, json=one["body"])
                assert found.status_code in (401, 404)
        for header in ("Basic", "Basic x", "Basic ????", "Bearer " + room.token, "Basic " + "4pyT" * 3):
            assert room.http.get("/health", headers={"authorization": header}).status_code == 401
        assert room.desk.book.events == []

    def test_an_older_token_is_not_valid(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        old, room.token = room.token, room.desk.store.invite(LABEL_STUDIO)
        assert room.http.get(f"/label-studio/{old}/health").status_code == 401
        assert room.http.get(f"/label-studio/{room.token}/health").status_code == 200

    def test_it_lets_annotators_in_by_name_as_before(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        assert not room.state.by_invitation

    def test_without_the_option_there_are_no_such_addresses(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        room.http = TestClient(
            guarded(AppState(**{**vars(room.state), "label_studio": False}), "127.0.0.1"),
            base_url="http://127.0.0.1:8765",
        )
        assert [room.replay(one).status_code for one in RECORDED] == [404] * len(RECORDED)

    def test_other_hosts_and_origins_are_refused(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        address = f"/label-studio/{room.token}/webhook"
        assert room.http.post(address, json={}, headers={"host": "evil.example"}).status_code == 400
        assert room.http.post(address, json={}, headers={"origin": "http://evil.example"}).status_code == 403

    def test_only_with_it_a_request_may_be_large(self, tmp_path: Path) -> None:
        room = Room(tmp_path)
        large = {"tasks": [], "padding": "x" * (2 * LARGEST_REQUEST)}
        assert room.send("predict", large).status_code == 200
        assert room.http.post("/label-studio/xyz/predict", json=large).status_code == 413
        too_large = {"content-length": str(LARGEST_BATCH + 1)}
        assert room.http.post(f"/label-studio/{room.token}/predict", headers=too_large).status_code == 413

    @pytest.mark.parametrize("body", [b"{", b"[]", b"7", b"[" * 60000, b'{"tasks": 7}'])
    def test_a_body_that_is_no_object(self, tmp_path: Path, body: bytes) -> None:
        room = Room(tmp_path)
        assert room.http.post(f"/label-studio/{room.token}/predict", content=body).status_code == 400

    def test_the_command_prints_a_new_address(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        room = Room(tmp_path)
        monkeypatch.chdir(tmp_path)
        assert run(["serve", "pool.csv", "--label", "churn", "--invite", LABEL_STUDIO]) == 0
        token = re.search(r"8765/label-studio/([\w-]{22})", capsys.readouterr().out.replace("\n", ""))[1]
        assert room.http.get(f"/label-studio/{token}/health").status_code == 200
