"""Downloads from a server on this machine that misbehaves as told."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot import datasets
from surefoot.datasets import _download
from surefoot.datasets._download import Archive, DatasetCorruptError, RawFile, locate

CONTENTS = {"x.data": b"1,2\n3,4\n" * 20_000, "y.data": b"5 6\n"}
ARCHIVE = Archive(7, "x+y", "x", tuple(RawFile(name, hashlib.sha256(c).hexdigest()) for name, c in CONTENTS.items()))
WRITTEN = ["x.data.gz", "y.data.gz"]


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


GOOD = zipped(CONTENTS)
Handler = Any  # of a request, see conftest.py
Server = Any
Behaviour = Callable[[Handler], None]


def good(handler: Handler, body: bytes = GOOD) -> None:
    handler.head(Content_Length=len(body))
    handler.wfile.write(body)


def serving(body: bytes) -> Behaviour:
    return lambda handler: good(handler, body)


def without_length(handler: Handler) -> None:
    handler.head()
    handler.wfile.write(GOOD)


def chunked(handler: Handler) -> None:
    handler.head(Transfer_Encoding="chunked")
    handler.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD))


def redirected(handler: Handler) -> None:
    if handler.path.startswith("/moved"):
        good(handler)
    else:
        handler.head(302, Location="/moved", Content_Length=0)


def truncated(handler: Handler) -> None:
    handler.head(Content_Length=len(GOOD))
    handler.wfile.write(GOOD[: len(GOOD) // 2])


def truncated_without_length(handler: Handler) -> None:
    handler.head()
    handler.wfile.write(GOOD[: len(GOOD) // 2])


def truncated_chunk(handler: Handler) -> None:
    handler.head(Transfer_Encoding="chunked")
    handler.wfile.write(b"%x\r\n%s" % (len(GOOD), GOOD[: len(GOOD) // 2]))


def empty(handler: Handler) -> None:
    handler.head(Content_Length=0)


def hung_up(handler: Handler) -> None:
    """No answer at all."""


def no_http(handler: Handler) -> None:
    handler.wfile.write(b"what?\r\n\r\n")


def login_page(handler: Handler) -> None:
    good(handler, b"<html>Log in to this network</html>")


def status(code: int) -> Behaviour:
    return lambda handler: handler.head(code, Content_Length=0)


def stalled(handler: Handler) -> None:
    handler.head(Content_Length=len(GOOD))
    handler.wfile.write(GOOD[:1000])
    handler.wfile.flush()
    handler.server.closing.wait(20)


def trickling(handler: Handler) -> None:
    """Never silent for long, and never done."""
    handler.head(Content_Length=len(GOOD))
    for i in range(1000):
        handler.wfile.write(GOOD[i : i + 1])
        handler.wfile.flush()
        if handler.server.closing.wait(0.02):
            return


def files_below(folder: Path) -> list[str]:
    """All files, those with a dot too."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def check_written(folder: Path) -> None:
    assert files_below(folder) == WRITTEN
    for name, content in CONTENTS.items():
        assert gzip.decompress((folder / "x" / f"{name}.gz").read_bytes()) == content


@pytest.mark.parametrize("behaviour", [good, without_length, chunked, redirected])
def test_good(behaviour: Behaviour, server: Server, cache: Path) -> None:
    server.behaviours = [behaviour]
    assert locate(ARCHIVE) == tuple(cache / "x" / name for name in WRITTEN)
    check_written(cache)
    assert server.requests[0].path == "/static/public/7/x+y.zip"
    assert server.requests[0].headers["User-Agent"].startswith("surefoot/")
    n_requests = len(server.requests)
    assert locate(ARCHIVE) == tuple(cache / "x" / name for name in WRITTEN)
    assert len(server.requests) == n_requests


def test_into_data_home(server: Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path / "variable"))
    server.behaviours = [good]
    locate(ARCHIVE, tmp_path / "argument")
    check_written(tmp_path / "argument")
    assert not cache.exists()
    assert not (tmp_path / "variable").exists()


def test_never_into_the_folder_of_the_variable(
    server: Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path / "variable"))
    (tmp_path / "variable").mkdir()
    server.behaviours = [good]
    locate(ARCHIVE)
    check_written(cache)
    assert files_below(tmp_path / "variable") == []


def test_a_folder_with_some_of_the_files_is_completed(server: Server, cache: Path, tmp_path: Path) -> None:
    server.behaviours = [good]
    mine = tmp_path / "mine" / "x" / "y.data"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(CONTENTS["y.data"])
    assert locate(ARCHIVE, tmp_path / "mine") == (mine.with_name("x.data.gz"), mine)
    assert mine.read_bytes() == CONTENTS["y.data"]


PASSING = [
    (truncated, "broke off after 80101 of 160203 bytes"),
    (truncated_without_length, "not a complete zip file"),
    (truncated_chunk, "broke off after"),
    (empty, "0 bytes, is not a complete zip file"),
    (hung_up, "without response"),
    (no_http, "broke off after 0 bytes"),
    (login_page, "35 bytes, is not a complete zip file"),
    (status(500), "HTTP Error 500"),
    (status(503), "HTTP Error 503"),
    (status(429), "HTTP Error 429"),
]
IDS = ["truncated", "no length", "chunk", "empty", "hung up", "no http", "login", "500", "503", "429"]


@pytest.mark.parametrize(("behaviour", "reason"), PASSING, ids=IDS)
def test_faults_that_last(behaviour: Behaviour, reason: str, server: Server, cache: Path) -> None:
    server.behaviours = [behaviour]
    with pytest.raises(FileNotFoundError) as caught:
        locate(ARCHIVE)
    assert reason.replace("80101 of 160203", f"{len(GOOD) // 2} of {len(GOOD)}") in str(caught.value)
    assert "by hand" in str(caught.value)
    assert len(server.requests) == 3
    assert files_below(cache.parents[1]) == []


@pytest.mark.parametrize(("behaviour", "reason"), PASSING, ids=IDS)
def test_faults_that_pass(
    behaviour: Behaviour, reason: str, server: Server, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.behaviours = [behaviour, behaviour, good]
    with caplog.at_level(logging.WARNING):
        locate(ARCHIVE)
    check_written(cache)
    assert len(server.requests) == 3
    assert len(caplog.records) == 2
    assert "Next attempt in 0 seconds" in caplog.text


@pytest.mark.parametrize("code", [404, 403, 410])
def test_refusals_are_not_repeated(code: int, server: Server, cache: Path) -> None:
    server.behaviours = [status(code), good]
    with pytest.raises(FileNotFoundError, match=f"HTTP Error {code}"):
        locate(ARCHIVE)
    assert len(server.requests) == 1
    assert files_below(cache.parents[1]) == []


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({**CONTENTS, "x.data": b"1,2\n3,5\n"}, r"x\.data in http.*is not the x\.data expected: the sha256"),
        ({**CONTENTS, "y.data": b""}, r"y\.data in http.*is not the y\.data expected: the sha256"),
        ({"x.data": CONTENTS["x.data"]}, r"holds no file y\.data"),
        ({"y.data": CONTENTS["y.data"], "x.data.gz": b"no gzip"}, "cannot be unpacked"),
    ],
)
def test_a_wrong_file_is_not_kept(members: dict[str, bytes], message: str, server: Server, cache: Path) -> None:
    server.behaviours = [serving(zipped(members))]
    with pytest.raises(DatasetCorruptError, match=message) as caught:
        locate(ARCHIVE)
    assert "by hand" in str(caught.value)
    assert len(server.requests) == 1  # the same would come again
    assert files_below(cache.parents[1]) == []


def test_a_damaged_zip_is_not_kept(server: Server, cache: Path) -> None:
    damaged = bytearray(GOOD)
    damaged[1000] ^= 1  # the zip's own sum notices
    server.behaviours = [serving(bytes(damaged))]
    with pytest.raises(DatasetCorruptError, match="cannot be unpacked: Bad CRC-32"):
        locate(ARCHIVE)
    assert files_below(cache.parents[1]) == []


def test_a_silent_server_is_given_up(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "_STALL", 0.2)
    server.behaviours = [stalled]
    begin = time.monotonic()
    with pytest.raises(FileNotFoundError, match="timed out"):
        locate(ARCHIVE)
    assert len(server.requests) == 3
    assert time.monotonic() - begin < 10
    server.behaviours = [stalled, good]
    locate(ARCHIVE)
    check_written(cache)


def test_a_slow_server_is_given_up(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "_LIMIT", 0.2)
    server.behaviours = [trickling]
    with pytest.raises(FileNotFoundError, match=r"took more than 0\.2 seconds"):
        locate(ARCHIVE)
    assert files_below(cache.parents[1]) == []


def test_no_server(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "_BASE_URL", "http://surefoot.invalid")
    with pytest.raises(FileNotFoundError, match="urlopen error"):
        locate(ARCHIVE)


def test_pauses_grow(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(_download, "_PAUSES", (1.0, 3.0))
    monkeypatch.setattr(_download.time, "sleep", slept.append)
    server.behaviours = [status(503)]
    with pytest.raises(FileNotFoundError):
        locate(ARCHIVE)
    assert slept == [1.0, 3.0]


class TestInterrupts:
    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_while_bytes_come(
        self, error: type[BaseException], server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        @contextlib.contextmanager
        def stop(*_: object) -> Iterator[Callable[[int], None]]:
            def advance(_: int) -> None:
                raise error

            yield advance

        server.behaviours = [good]
        with monkeypatch.context() as patch:
            patch.setattr(_download, "_progress", stop)
            with pytest.raises(error):
                locate(ARCHIVE)
        assert len(server.requests) == 1
        assert files_below(cache.parents[1]) == []
        locate(ARCHIVE)
        check_written(cache)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("disk full")])
    @pytest.mark.parametrize("step", ["write", "rename"])
    def test_while_a_file_is_written(
        self, error: Any, step: str, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise error

        def half(path: Path, content: bytes) -> None:
            with path.open("wb") as file:
                file.write(content[: len(content) // 2])
            raise error

        server.behaviours = [good]
        with monkeypatch.context() as patch:
            if step == "write":
                patch.setattr(Path, "write_bytes", half)
            else:
                patch.setattr(Path, "replace", fail)
            with pytest.raises(FileNotFoundError if isinstance(error, OSError) else KeyboardInterrupt):
                locate(ARCHIVE)
        assert files_below(cache.parents[1]) == []
        locate(ARCHIVE)
        check_written(cache)

    def test_a_killed_process_leaves_nothing(self, server: Server, tmp_path: Path) -> None:
        server.behaviours = [trickling]
        program = (
            "from surefoot import datasets; from surefoot.datasets import _download;"
            f"_download._BASE_URL = {server.url!r}; datasets.load('wine', data_home={str(tmp_path)!r})"
        )
        source = str(Path(datasets.__file__).parents[2])
        environment = {**os.environ, "PYTHONPATH": source, "SUREFOOT_DATA": "", "XDG_CACHE_HOME": str(tmp_path)}
        process = subprocess.Popen([sys.executable, "-c", program], env=environment)
        try:
            deadline = time.monotonic() + 30
            while not server.requests and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.1)
            assert process.poll() is None
            assert server.requests
        finally:
            process.kill()
            process.wait()
        assert process.returncode in {-getattr(signal, "SIGKILL", 9), 1}
        assert files_below(tmp_path) == []


def test_a_folder_that_cannot_be_made(server: Server, cache: Path, tmp_path: Path) -> None:
    server.behaviours = [good]
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(FileNotFoundError, match=r"failed: .*(Not a directory|cannot find|exists)"):
        locate(ARCHIVE, tmp_path / "file")


def test_two_at_once(server: Server, cache: Path) -> None:
    server.behaviours = [good]
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(locate(ARCHIVE))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    check_written(cache)


class TestProgress:
    def test_moves_a_bar_on_a_terminal(
        self, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pytest.importorskip("rich")
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
        monkeypatch.setenv("TERM", "xterm")
        server.behaviours = [good]
        locate(ARCHIVE)
        assert "x+y.zip" in capsys.readouterr().err

    def test_is_quiet_elsewhere(
        self, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        server.behaviours = [good]
        locate(ARCHIVE)
        output = capsys.readouterr()
        assert output.out + output.err == ""

    def test_rich_is_not_needed(self, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "rich.console", None)
        monkeypatch.setitem(sys.modules, "rich.progress", None)
        server.behaviours = [good]
        locate(ARCHIVE)
        check_written(cache)
