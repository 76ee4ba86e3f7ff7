"""Connections that never finish what they begin, on a real server: it goes on, and says little about it."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import httpx
import pytest

import surefoot.serve as serving
from serve.rooms import Running, make_room
from surefoot.serve import Once
from surefoot.serve.app import Views

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
HEAD = b"POST /edit HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/x-www-form-urlencoded\r\n"


@contextmanager
def running(folder: Path, **more: object) -> Iterator[Running]:
    """A server that is killed at the end."""
    server = Running(folder, **more)
    try:
        with httpx.Client(base_url=server.url) as client:
            wait_for(lambda: client.get("/hello").status_code == 200)
        yield server
    finally:
        server.kill()


def wait_for(done: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def dial(server: Running, sent: bytes = b"") -> socket.socket:
    """A connection on which so much was sent."""
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    sock.sendall(sent)
    return sock


def is_closed(sock: socket.socket) -> bool:
    """Whether the server has ended a connection; what it sent is read."""
    sock.settimeout(0.01)
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def sign_in(server: Running, client: httpx.Client) -> str:
    """Come in, and the token of the page."""
    page = client.post("/hello", data={"name": "ada", "token": "form"}, follow_redirects=True).text
    return re.search(r'write-token" content="(\w+)"', page)[1]


SLOW_READER = b"GET /static/label.js HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 60


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /hello HTTP/1.1\r\nho", HEAD + b"content-length: 60\r\n\r\nrow=1", SLOW_READER],
    ids=["nothing", "half a head", "half a body", "reads no response"],
)
def test_connections_that_stand_still_keep_nobody_out(tmp_path: Path, sent: bytes) -> None:
    """200 of them, where the server may open 128 files: it stopped, and wrote 33 MB of log in 15 s."""
    with running(tmp_path, files=128) as server, ExitStack() as held:
        for _ in range(200):
            still = held.enter_context(socket.socket())
            still.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            still.connect(("127.0.0.1", server.port))
            still.settimeout(0.2)
            try:
                still.sendall(sent)
            except OSError:  # its place was given to another, or it takes no more
                continue

        def comes_in() -> bool:
            with httpx.Client(base_url=server.url, timeout=5) as client:
                try:
                    sign_in(server, client)
                    return bool(client.get("/api/rows").json()["rows"])
                except httpx.TransportError:  # all are at work: the next try finds a place
                    return False

        wait_for(comes_in, 20.0)
        assert server.log.stat().st_size < 4000


def test_a_request_must_arrive_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps no connection open: neither in the head, in the body, nor in a second request."""
    monkeypatch.setattr(serving, "SECONDS_TO_ARRIVE", 1.0)
    whole = b"GET /hello HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    with running(tmp_path) as server, ExitStack() as held:
        begun = [b"G", HEAD + b"content-length: 5000\r\n\r\n", whole + b"GET /hello HTTP/1.1\r\n"]
        slow = [held.enter_context(dial(server, sent)) for sent in begun]

        def all_closed() -> bool:
            for sock in slow:
                try:
                    sock.sendall(b"x")
                except OSError:
                    continue
            return all(is_closed(sock) for sock in slow)

        wait_for(all_closed, 20.0)


def test_requests_at_work_are_not_given_up_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "most_connections", lambda: 4)
    monkeypatch.setattr(serving, "SECONDS_TO_ARRIVE", 0.5)
    real = Views._file

    def slow(views: Views, name: str) -> object:
        time.sleep(2)
        return real(views, name)

    monkeypatch.setattr(Views, "_file", slow)
    statuses: list[int] = []
    with running(tmp_path) as server, httpx.Client(base_url=server.url, timeout=30) as client, ExitStack() as held:
        sign_in(server, client)
        work = [
            Thread(target=lambda: statuses.append(client.get("/download/answers.csv").status_code)) for _ in range(3)
        ]
        for thread in work:
            thread.start()
        time.sleep(0.5)
        for _ in range(20):
            held.enter_context(dial(server))
        for thread in work:
            thread.join()
    assert statuses == [200] * 3


@pytest.mark.parametrize("kind", ["form", "answer", "chunked"])
def test_a_request_cut_off_in_transit_is_not_carried_out(tmp_path: Path, kind: str) -> None:
    """`row=30` is what arrived of `row=301`: it wrote the label of another row."""
    with running(tmp_path) as server:
        with httpx.Client(base_url=server.url) as client:
            token = sign_in(server, client)
            cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        head = HEAD + f"cookie: {cookie}\r\nx-write-token: {token}\r\n".encode()
        body = f"token={token}&label=yes&row=30".encode()
        if kind == "answer":
            head, body = head.replace(b"/edit", b"/api/answer"), b'{"label": "yes", "row": 30}'
        length = f"content-length: {len(body) + 1}\r\n\r\n".encode()
        if kind == "chunked":
            length, body = b"transfer-encoding: chunked\r\n\r\n", b"%x\r\n%s\r\n" % (len(body), body)
        with dial(server, head + length + body) as sock:
            sock.shutdown(socket.SHUT_WR)
            wait_for(lambda: is_closed(sock))
        with httpx.Client(base_url=server.url, cookies=dict([cookie.split("=")])) as client:  # it goes on
            headers = {"x-write-token": token}
            assert client.post("/api/answer", json={"row": 7, "label": "yes"}, headers=headers).json()["saved"]
        assert server.log.read_text() == ""
    assert [event.row for event in make_room(tmp_path).desk.store.events() if event.kind == "label"] == [7]


def test_a_line_of_the_log_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(serving.time, "monotonic", lambda: now[0])
    once = Once()

    def passes(message: str, *args: object) -> str | None:
        record = logging.LogRecord("x", logging.WARNING, "", 0, message, args, None)
        return record.getMessage() if once.filter(record) else None

    assert passes("Invalid %s\nat 0x1", "request") == "Invalid request\nat 0x1"
    assert [passes("Invalid %s\nat 0x2", "request") for _ in range(1000)] == [None] * 1000
    assert passes("Another line") == "Another line"
    now[0] = 61.0
    assert passes("Invalid %s\nat 0x3", "request") == "Invalid request\nat 0x3 (1000 more like this since the last)"
    assert passes("Invalid %s\nat 0x3", "request") is None


def test_requests_that_are_none_write_one_line(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        for _ in range(300):
            with dial(server, b"nonsense\r\n\r\n") as sock:
                assert sock.recv(100).startswith(b"HTTP/1.1 400")
        assert server.log.read_text().count("Invalid HTTP request") == 1
