"""Fixtures of the dataset tests: no test reaches the internet or the user's own cache."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from surefoot import datasets
from surefoot.datasets import _download
from surefoot.datasets._catalogue import DATASETS


@pytest.fixture(autouse=True)
def no_internet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "_BASE_URL", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr(_download, "_PAUSES", ())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty and on its own; SUREFOOT_DATA is not set."""
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
    monkeypatch.delenv("SUREFOOT_DATA", raising=False)
    from surefoot.datasets._download import user_cache

    folder = user_cache()
    assert tmp_path in folder.parents
    return folder


@pytest.fixture(scope="session")
def load(dataset_path: Callable[[str], Path]) -> Callable[..., Any]:
    """`datasets.load` from the raw files of the tests; without them the test is skipped."""

    @functools.wraps(datasets.load)
    def load_local(name: str, **options: Any) -> Any:
        archive = DATASETS[name].archive
        home = dataset_path(archive.folder).parent if archive.files else None
        return datasets.load(name, data_home=home, download_if_missing=False, **options)

    return load_local


class Handler(BaseHTTPRequestHandler):
    """Answers each request with the next behaviour on the server's list, the last one for ever."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self)
        behaviours = self.server.behaviours
        behaviour = behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]
        self.close_connection = True
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client gave up
            behaviour(self)

    def head(self, status: int = 200, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours: list[Callable[[Handler], None]] = []
        self.requests: list[Handler] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        monkeypatch.setattr(_download, "_BASE_URL", server.url)
        monkeypatch.setattr(_download, "_PAUSES", (0.0, 0.0))
        monkeypatch.setattr(_download, "_STALL", 5.0)
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


class _CodeWriter:
    """Codes of a .Z file: groups of 8, filled up where the width changes."""

    def __init__(self, max_width: int) -> None:
        self.output = bytearray([0x1F, 0x9D, max_width | 0x80])
        self.max_width, self.width, self.group = max_width, 9, list[int]()
        self.n_made, self.n_sent = 257, 0  # entries that the decoder has made; codes since the last clear

    def send(self, code: int) -> None:
        self.group.append(code)
        if code == 256:
            self.flush(self.width)
            self.width, self.n_made, self.n_sent = 9, 257, 0
            return
        if self.n_sent > 0 and self.n_made < 1 << self.max_width:
            self.n_made += 1
        self.n_sent += 1
        wider = self.n_made == 1 << self.width and self.width < self.max_width
        if wider or len(self.group) == 8:
            self.flush(self.width)
        self.width += wider

    def flush(self, n_bytes: int) -> None:
        bits = sum(code << (i * self.width) for i, code in enumerate(self.group))
        self.output.extend(bits.to_bytes(n_bytes, "little"))
        self.group.clear()

    def finish(self) -> bytes:
        self.flush(-(-len(self.group) * self.width // 8))
        return bytes(self.output)


@pytest.fixture(scope="session")
def compress_z() -> Callable[..., bytes]:
    """`compress_z(data, max_width, clear_every)`: a .Z file that stands for the data."""

    def compress(data: bytes, max_width: int = 16, clear_every: int | None = None) -> bytes:
        writer = _CodeWriter(max_width)
        root = {bytes([byte]): byte for byte in range(256)}
        codes, word = dict(root), b""
        for i, byte in enumerate(data):
            longer = word + bytes([byte])
            if longer in codes:
                word = longer
                continue
            writer.send(codes[word])
            if len(codes) + 1 < 1 << max_width:  # 256 is no entry
                codes[longer] = len(codes) + 1
            word = bytes([byte])
            if clear_every and i % clear_every == 0:
                writer.send(256)
                codes = dict(root)
        if word:
            writer.send(codes[word])
        return writer.finish()

    return compress
