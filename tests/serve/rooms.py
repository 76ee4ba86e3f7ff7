"""A room on a small table, and a client of its pages."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from serve.services import CLASSES, Knowing, store_of
from surefoot.pool.label_log import Neighbours
from surefoot.pool.schedule import Goal, LabelingSettings
from surefoot.pool.service import LabelingService
from surefoot.pool.table import read_labeled_table
from surefoot.pool.table.reading import PLAIN
from surefoot.serve import bind, guarded, run_server
from surefoot.serve.state import RANK, AppState, Cards, Fitter

EVIL = '<script>window.hacked = 1</script><img src=x onerror="hacked=1">'


def write_pool(folder: Path, n_rows: int = 60) -> Path:
    """A table with numbers, a missing cell, long texts with markup, and no labels."""
    lines = ["age,income,story,churn"]
    for row in range(n_rows):
        income = "" if row % 9 == 0 else str(1000 + 37 * (row * row % 101))
        story = f"Ticket {row}: {EVIL} " + "words " * 14
        lines.append(f'{20 + row % 40},{income},"{story.replace(chr(34), chr(34) * 2)}",')
    path = folder / "pool.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class SameProcess:
    """The process that fits, without a process."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner

    def start(self) -> None:
        """Nothing to do."""

    def ask(self, what: str, job: Any) -> Any:
        return self._learner.rank(job) if what == RANK else self._learner.report(job)

    def stop(self) -> None:
        """Nothing to do."""


def make_room(
    folder: Path, *, wrong: float = 0.0, name: str = "pool.csv", classes: list[str] = CLASSES, **more: Any
) -> AppState:
    path = folder / name
    if not path.exists():
        write_pool(folder).rename(path)
    table = read_labeled_table(path, "churn", classes=classes, how=more.pop("how", PLAIN))
    features = np.arange(len(table.labels), dtype=np.float64)[:, None]
    settings = LabelingSettings(Goal(0.1, 0.9, 0), 4, more.pop("overlap", 0.0), pause=0.0)
    desk = LabelingService(store_of(table), len(table.labels), table.classes, settings)
    fitter = Fitter(SameProcess(Knowing(len(features), wrong)), desk.wanted, desk.take_ranking, desk.freeze_if_due)
    return AppState(desk, Cards(table), fitter, Neighbours(features), path.read_bytes(), **more)


class Client:
    """Someone at the page, with their session and the token of the page."""

    def __init__(self, room: AppState, name: str | None = "ada", host: str = "127.0.0.1") -> None:
        self.room = room
        self.http = TestClient(guarded(room, host), base_url="http://127.0.0.1:8765", follow_redirects=False)
        self.token = ""
        if name is not None:
            answer = self.http.post("/hello", data={"name": name, "token": room.form_token})
            assert answer.status_code == 303, answer.text
            self.read_token()

    def read_token(self) -> None:
        page = self.http.get("/")
        assert page.status_code == 200
        self.token = re.search(r'name="write-token" content="(\w+)"', page.text)[1]

    def post(self, name: str, **data: Any) -> Any:
        return self.http.post(f"/api/{name}", json=data, headers={"x-write-token": self.token})

    def rows(self) -> list[dict[str, Any]]:
        return self.http.get("/api/rows").json()["rows"]


class Running:
    """A server in a process of its own, forked: it starts in no time and can be killed."""

    def __init__(self, folder: Path, largest_file: int | None = None, files: int | None = None, **more: Any) -> None:
        self.folder, self.more = folder, {"form_token": "form", **more}
        self.largest_file, self.files = largest_file, files
        self.log = folder / "server.log"
        with bind("127.0.0.1", 0) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.child = 0
        self.start()

    def start(self) -> None:
        sock = bind("127.0.0.1", self.port)
        self.child = os.fork()
        if self.child == 0:
            try:
                sys.stderr = self.log.open("a", buffering=1)
                if self.files is not None:
                    import resource

                    most = len(list(Path("/dev/fd").iterdir())) + self.files  # beside those that the tests have opened
                    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
                room = make_room(self.folder, **self.more)
                if self.largest_file is not None:  # as a disk with no more room for a file
                    import resource

                    resource.setrlimit(resource.RLIMIT_FSIZE, (self.largest_file, resource.RLIM_INFINITY))
                run_server(room, sock, "127.0.0.1", ready=lambda url: None, browser=False)
            except SystemExit:
                os._exit(0)
            finally:
                os._exit(1)
        sock.close()

    def end(self) -> int:
        """As `kill` and service managers do by default: SIGTERM; its exit code."""
        os.kill(self.child, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])

    def kill(self) -> None:
        """As the power going out: no handler runs."""
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
