"""The server, killed at random moments while clients answer: what was acknowledged is there, and nothing is twice."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from serve.rooms import Running, make_room, write_pool

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
CLIENTS = 8


class Worker(threading.Thread):
    """A client that answers rows, each again with its key until the server says that it is saved."""

    def __init__(self, port: int, name: str, n: int) -> None:
        super().__init__(daemon=True)
        self.port, self.person, self.n = port, name, n
        self.saved: dict[str, tuple[int, str | None]] = {}
        self.headers: dict[str, str] = {}
        self.trouble: list[Any] = []
        self.gone = False

    def request(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, bytes, Any]:
        """Again until an answer comes: the server may be dead, or die while it answers."""
        while not self.gone:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            try:
                connection.request(method, path, body, {**self.headers, **headers})
                answer = connection.getresponse()
                return answer.status, answer.read(), answer
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
            finally:
                connection.close()
        return 0, b"", None

    def run(self) -> None:
        form = urlencode({"name": self.person, "token": "form"})
        _, _, answer = self.request("POST", "/hello", form, **{"content-type": "application/x-www-form-urlencoded"})
        self.headers["cookie"] = answer.getheader("set-cookie").partition(";")[0]
        _, page, _ = self.request("GET", "/")
        self.headers["x-write-token"] = re.search(rb'write-token" content="(\w+)"', page)[1].decode()
        _, content, _ = self.request("GET", "/api/rows?beyond=1")
        while len(self.saved) < self.n:
            row = json.loads(content)["rows"][0]["row"]
            key, label = f"{self.person}-{len(self.saved)}", ["yes", "no", None][row % 3]
            body = json.dumps({"row": row, "label": label, "key": key, "beyond": True})
            status, content, _ = self.request("POST", "/api/answer", body)
            if status != 200:
                self.trouble.append((status, content))
                return
            self.saved[key] = (row, label)


def answer_and_kill(folder: Path, n: int, kills: int, seed: int, **more: Any) -> tuple[list[Worker], int]:
    """Let clients answer n rows each; kill the server so often on the way."""
    server, rng, done = Running(folder, **more), random.Random(seed), 0
    workers = [Worker(server.port, f"client {k}", n) for k in range(CLIENTS)]
    try:
        for worker in workers:
            worker.start()
        marks = [n * CLIENTS * (k + rng.random()) / kills for k in range(kills)]
        for mark in marks:
            while sum(len(worker.saved) for worker in workers) < mark and any(w.is_alive() for w in workers):
                time.sleep(0.002)
            time.sleep(rng.random() * 0.02)
            server.kill()
            done += 1
            server.start()
        for worker in workers:
            worker.join(300)
    finally:
        server.kill()
    return workers, done


@pytest.mark.parametrize(
    ("n", "kills"), [(12, 3), *[pytest.param(n, kills, marks=pytest.mark.slow) for n, kills in ((125, 15), (1000, 40))]]
)
def test_no_acknowledged_answer_is_lost_and_none_is_there_twice(tmp_path: Path, n: int, kills: int) -> None:
    write_pool(tmp_path, n_rows=n * CLIENTS + 50)
    workers, done = answer_and_kill(tmp_path, n, kills, seed=n)
    assert done == kills
    assert [worker.trouble for worker in workers] == [[]] * CLIENTS
    book = make_room(tmp_path).desk.book
    stored = [event for event in book.events if event.kind in ("label", "skip")]
    assert max(Counter(event.key for event in stored).values()) == 1
    assert max(Counter((event.person, event.row) for event in stored).values()) == 1
    by_key = {event.key: (event.row, event.value) for event in stored}
    for worker in workers:
        assert len(worker.saved) == n
        assert {key: by_key.get(key) for key in worker.saved} == worker.saved
    # an answer that was written and not acknowledged may be there, one per client and kill at the most; here its
    # client sends it again with its key, so that none is left over
    assert len(stored) == n * CLIENTS


def stored_answers(folder: Path) -> dict[str, tuple[int, str | None]]:
    """Answers in the store by their keys."""
    events = make_room(folder).desk.store.events()
    return {str(event.key): (event.row, event.value) for event in events if event.kind in ("label", "skip")}


def test_sigterm_finishes_writes(tmp_path: Path) -> None:
    """Clients answer on; the server is told to end, ends with 0, and has all that it acknowledged, and no log left."""
    write_pool(tmp_path, n_rows=1000)
    server = Running(tmp_path)
    workers = [Worker(server.port, f"client {k}", 10**6) for k in range(4)]
    for worker in workers:
        worker.start()
    while sum(len(worker.saved) for worker in workers) < 40:
        time.sleep(0.005)
    assert server.end() == 0
    assert not list(tmp_path.glob("*-wal"))
    time.sleep(0.2)  # answers that were under way have come in
    acknowledged = {key: said for worker in workers for key, said in worker.saved.items()}
    stored = stored_answers(tmp_path)
    assert {key: stored.get(key) for key in acknowledged} == acknowledged
    assert len(stored) - len(acknowledged) <= 4  # at most one each whose reply did not reach its client
    for worker in workers:
        worker.gone = True
        worker.join(10)


def test_a_disk_without_room_refuses_answers_and_loses_none(tmp_path: Path) -> None:
    """The system refuses to let files grow: what was acknowledged stays, the rest is refused in words."""
    write_pool(tmp_path, n_rows=1000)
    server = Running(tmp_path, largest_file=600_000)
    worker = Worker(server.port, "ada", 10**6)
    worker.start()
    worker.join(60)
    server.kill()
    (status, content), *_ = worker.trouble
    message = json.loads(content)["message"]
    assert status == 507
    assert "the disk is full or fails" in message
    assert "Make room on it" in message
    assert len(worker.saved) > 5
    assert stored_answers(tmp_path) == worker.saved
