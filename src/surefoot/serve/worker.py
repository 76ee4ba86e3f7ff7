"""One process that fits and ranks, so that labeling never waits for it.

A thread of the server sends it the labels whenever they have changed and the last fit has ended, and hands on what
comes back. The process runs at a low priority.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from surefoot.pool.labeling.learning import Job, Learner, Ranking

RANK, REPORT = "rank", "report"
_NICE = 10
# Seconds that a process may take to end by itself.
_PATIENCE = 5.0


class WorkerError(RuntimeError):
    """A fit failed, or its process ended."""


def _serve(learner: Learner, pipe: Connection) -> None:
    """The process: answer one request after another until the pipe is closed."""
    _let_go_of_files(pipe.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(os, "nice"):
        os.nice(_NICE)
    while True:
        try:
            what, job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Any = learner.rank(job) if what == RANK else learner.report(job)
            failed = None
        except Exception as error:  # noqa: BLE001 - told to the server, which shows it
            answer, failed = None, "".join(traceback.format_exception_only(error)).strip()
        pipe.send((failed, answer))


def _let_go_of_files(kept: int) -> None:
    """Close what a fork has inherited: the lock, the store and the port must be free when the server has gone."""
    if sys.platform == "linux":
        for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
            if number > 2 and number != kept:
                with contextlib.suppress(OSError):
                    os.close(number)


class Process:
    """The process and its pipe; started anew where it has died."""

    def __init__(self, learner: Learner) -> None:
        # on Linux the pool is shared with the process, not copied
        self._context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self._learner = learner
        self._process: Any = None
        self._pipe: Connection | None = None

    def start(self) -> None:
        """Begin; before the server has threads, so that a fork finds none."""
        ours, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(self._learner, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours

    def ask(self, what: str, job: Job) -> Any:
        """What the learner answers."""
        if self._process is None or not self._process.is_alive():
            self.start()
        if self._pipe is None:
            raise WorkerError("the process that fits has ended")
        try:
            self._pipe.send((what, job))
            failed, answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(_PATIENCE)
            raise WorkerError(f"the process that fits ended with code {self._process.exitcode}") from error
        if failed is not None:
            raise WorkerError(failed)
        return answer

    def stop(self) -> None:
        """End it, a fit that is under way too."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            self._process.terminate()
        self._process.join(_PATIENCE)
        if self._pipe is not None:
            self._pipe.close()


class Fitter:
    """The thread that keeps the ranking fresh.

    wanted : gives the labels to fit to now, None where the ranking is fresh enough; take : gets each ranking;
    turn : called when labels have changed, before each fit.
    """

    def __init__(
        self,
        process: Process,
        wanted: Callable[[], Job | None],
        take: Callable[[Ranking | None, Job], None],
        turn: Callable[[], None] = lambda: None,
    ) -> None:
        self._process, self._wanted, self._take, self._turn = process, wanted, take, turn
        self._wake, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="surefoot-fitter", daemon=True)
        self.since: float | None = None
        self.problem: str | None = None
        self._report_for: Job | None = None
        self.report: bytes | None = None
        self.report_state = "none"

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Labels have changed."""
        self._wake.set()

    def ask_report(self, job: Job) -> None:
        """Make a report when the present fit has ended."""
        self._report_for, self.report_state = job, "working"
        self._wake.set()

    def stop(self) -> None:
        """End the process, then the thread."""
        self._ends.set()
        self._wake.set()
        self._process.stop()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while not self._ends.is_set():
            self._wake.wait()
            self._wake.clear()
            while not self._ends.is_set() and self._step():
                pass

    def _step(self) -> bool:
        """One request, if there is one to make."""
        self._turn()
        job = self._wanted()
        report, self._report_for = self._report_for, None
        if job is None and report is None:
            return False
        self.since = time.monotonic()
        try:
            if report is not None:
                self.report = self._process.ask(REPORT, report)
                self.report_state = "ready"
            if job is not None:
                self._take(self._process.ask(RANK, job), job)
            self.problem = None
        except Exception as error:  # noqa: BLE001 - shown on the page; labeling goes on with random rows
            if not self._ends.is_set():
                self.problem = str(error)
                if report is not None:
                    self.report_state = "failed"
            return False  # the same labels would fail again: wait for others
        finally:
            self.since = None
        return True
