"""`surefoot serve` itself: a fit in a worker process, an invitation, SIGTERM, and folders that cannot be written."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pandas as pd
import pytest

from generators import make_pool
from serve.rooms import write_pool
from serve.services import Knowing
from surefoot.cli import run
from surefoot.pool.label_log import Job, Ranking
from surefoot.pool.store import Store, store_path
from surefoot.serve.state import RANK, REPORT, Process, WorkerError


def start(folder: Path, *more: str) -> tuple[subprocess.Popen[str], str]:
    """A server on a free port, when it is ready; its address."""
    command = [sys.executable, "-m", "surefoot.cli", "serve", "pool.csv", "--label", "churn", "--classes", "yes,no"]
    server = subprocess.Popen(
        [*command, "--no-open", "--port", "0", *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = ""
    while "ready" not in said:
        line = server.stdout.readline()
        assert line, said
        said += line
    return server, re.search(r"http://\S+", said)[0]


@pytest.mark.slow
def test_a_real_model_learns_while_rows_are_labeled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = make_pool(n_rows=80, n_labels=24)
    frame.to_csv(tmp_path / "pool.csv", index=False)
    server, url = start(tmp_path)
    try:
        with httpx.Client(base_url=url, follow_redirects=True) as client:
            token = re.search(r'name="token" value="([^"]+)"', client.get("/hello").text)[1]
            page = client.post("/hello", data={"name": "ada", "token": token}).text
            write = {"x-write-token": re.search(r'write-token" content="(\w+)"', page)[1]}
            deadline = time.monotonic() + 120
            while client.get("/api/standing").json()["fit"]["labels"] == 0:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            standing = client.get("/api/standing").json()
            assert standing["problem"] is None
            assert (standing["phase"], standing["bound"]) == ("auditing", None)  # the first model is frozen at once
            row = client.get("/api/rows").json()["rows"][0]
            assert client.post("/api/answer", json={"row": row["row"], "label": "yes"}, headers=write).json()["saved"]
            assert client.get("/download/model.skops").content[:2] == b"PK"
            # a terminal may label the same pool meanwhile, and people may be invited
            monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
            assert run(["label", str(tmp_path / "pool.csv"), "--label", "churn", "--random-first", "90"]) == 0
            assert client.get("/api/standing").json()["labels"] == 26
        assert run(["serve", str(tmp_path / "pool.csv"), "--label", "churn", "--invite", "bob"]) == 0
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    assert not list(tmp_path.glob("*-wal"))  # closed in order
    store = Store(store_path(tmp_path / "pool.csv"))
    assert "measured" in {event.kind for event in store.events()}
    page, terminal = [event for event in store.events() if event.kind == "label"][-2:]
    assert (page.row, page.value, terminal.value) == (row["row"], "yes", "no")
    assert terminal.row != page.row
    labels = pd.read_csv(tmp_path / "pool.csv")["churn"]  # written when the terminal ended
    assert (labels[page.row], labels[terminal.row]) == ("yes", "no")
    assert {person.name for person in store.people()} >= {"ada", "bob"}


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_pool(tmp_path)
    tmp_path.chmod(0o555)
    try:
        assert run(["serve", str(path), "--label", "churn", "--classes", "yes,no", "--no-open", "--port", "0"]) == 2
    finally:
        tmp_path.chmod(0o755)
    assert "is read-only" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("code", ["SQLITE_READONLY", "SQLITE_READONLY_DBMOVED", "SQLITE_CANTOPEN"])
def test_a_store_that_turns_read_only_is_said(code: str) -> None:
    import sqlite3

    from surefoot.pool.database import error_message

    error = sqlite3.OperationalError("no")
    error.sqlite_errorcode = getattr(sqlite3, code)
    assert "read-only" in error_message(Path("pool.csv.surefoot.db"), error, "written to")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--label", "none"], "no column 'none'"),
        (["--label", "churn"], "for example --classes"),
        (["--label", "churn", "--classes", "yes,no", "--guidelines", "none.md"], "must be a Markdown file"),
        (["--label", "churn", "--classes", "yes,no", "--host", "192.0.2.1"], "cannot be used"),
        (["--label", "churn", "--classes", "yes,no", "--level", "1"], "--level must lie between 0 and 1"),
        (["--label", "churn", "--classes", "yes,no", "--target", "0"], "Pass a value such as 0.05"),
        (["--label", "churn", "--classes", "yes,no", "--invite", ""], "--invite must have 1 to 60 characters"),
        (["--label", "churn", "--classes", "yes,no", "--invite", "(in the table)"], "not begin with a bracket"),
    ],
)
def test_mistakes_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str) -> None:
    path = write_pool(tmp_path)
    assert run(["serve", str(path), "--no-open", "--port", "0", *more]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


class Failing(Knowing):
    """A learner whose report fails, and whose process can be ended by a job without labels."""

    def rank(self, job: Job) -> Ranking | None:
        if not job.labels:
            os._exit(3)
        return super().rank(job)

    def report(self, job: Job) -> bytes:
        raise ValueError("no report today")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_the_worker_answers_says_what_failed_and_comes_back() -> None:
    worker = Process(Failing(20, 0.0))
    worker.start()
    try:
        job = Job({3: "yes"}, frozenset())
        assert worker.ask(RANK, job).rows == tuple(row for row in range(20) if row != 3)
        with pytest.raises(WorkerError, match="no report today"):
            worker.ask(REPORT, job)
        with pytest.raises(WorkerError, match="ended with code 3"):
            worker.ask(RANK, Job({}, frozenset()))
        first = worker._process.pid
        assert worker.ask(RANK, job).n_labels == 1
        assert worker._process.pid != first
    finally:
        worker.stop()
