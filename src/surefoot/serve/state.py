"""All that the pages of one pool need: the desk, the cards, the learner, and who may come in."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from surefoot._printing import cell_text, is_long, long_text, render, visible
from surefoot.pool.label_log import Job, Neighbours, Ranking, RowRanker
from surefoot.pool.service import AnswerError, LabelingService
from surefoot.pool.store import LABEL_STUDIO, hashed
from surefoot.pool.table import Table
from surefoot.pool.table.cells import quantiles, share_below

# A row as a card that is read at a glance: long texts as texts, numbers beside their place in the pool, pictures.

_PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
             ".webp": "image/webp", ".avif": "image/avif"}  # fmt: skip
# Cells of a column that are looked at to see whether it names pictures.
_LOOKED_AT = 25
# Cells that are read to see whether a column holds texts, and the share of them that must be long.
_READ, _TEXTS = 200, 0.1


class Fact(NamedTuple):
    """A short cell: its column and its value, or None if missing.

    percent : share of the pool below a number; mark : its position on a line of 54 pixels.
    """

    name: str
    value: str | None
    percent: str | None = None
    mark: str = ""


class Cards:
    """Cards of the rows of a table.

    values : data frame of its columns of numbers, where they were read before; hidden : columns that nobody must see.
    """

    def __init__(self, table: Table, values: Any = None, hidden: Sequence[str] = ()) -> None:
        self.table = table
        self.folder = table.path.resolve().parent
        self.names = [str(name) for name in table.cells.columns if name not in (table.label, *hidden)]
        self._cells = {name: table.cells[name] for name in self.names}
        known = [] if values is None else [name for name in values.columns if name in self._cells]
        columns = self._cells | {name: values[name] for name in known}
        self._grid = {name: grid for name in self.names if (grid := quantiles(columns[name])) is not None}
        self._numbers = {name: columns[name].to_numpy() for name in self._grid}
        self._shown = {name: visible(name) for name in self.names}
        self._summaries: dict[int, str] = {}
        self.pictures = [name for name in self.names if self._names_pictures(name)]
        # short cells of such a column stand as its long ones do, so that the eye finds them
        self._texts = {name for name in self.names if name not in self._grid and self._holds_texts(name)}

    def html(self, row: int) -> str:
        """The card of a row."""
        pictured = [name for name in self.pictures if self.picture(row, name) is not None]
        pictures = [(f"/picture/{row}/{self.names.index(name)}", f"{name} of row {row + 1}") for name in pictured]
        texts, facts = [], []
        for name in self.names:
            if name in pictured:
                continue
            number = self._number(name, row)
            if number is not None:
                share = share_below(self._grid[name], number)
                facts.append(
                    Fact(
                        self._shown[name], f"{number:.5g}", f"{100 * share:.0f}\N{NO-BREAK SPACE}%", f"{54 * share:.1f}"
                    )
                )
                continue
            value = self._cells[name].iloc[row]
            missing = _is_missing(value)
            if is_long(value) or (name in self._texts and not missing):
                texts.append((name, long_text(str(value))))
            else:
                facts.append(Fact(self._shown[name], None if missing else visible(str(value))))
        return render("surefoot.serve", "card.html", pictures=pictures, texts=texts, facts=facts)

    def summary(self, row: int, longest: int = 140) -> str:
        """A row in one line."""
        if row not in self._summaries:
            parts = [f"{name}: {cell_text(self._cells[name].iloc[row], 60)}" for name in self.names[:6]]
            self._summaries[row] = " · ".join(parts)
        whole = self._summaries[row]
        return whole if len(whole) <= longest else whole[: longest - 1] + "…"

    def text(self, row: int) -> str:
        """All that a row says, to search in."""
        return " ".join(str(self._cells[name].iloc[row]) for name in self.names).casefold()

    def picture(self, row: int, name: str) -> Path | None:
        """The file of a picture: it must lie below the folder of the pool, whatever the cell says."""
        if name not in self._cells:
            return None
        value = self._cells[name].iloc[row]
        if not isinstance(value, str) or "\0" in value or Path(value).suffix.lower() not in _PICTURES:
            return None
        try:
            file = (self.folder / value).resolve()
            inside = file.is_relative_to(self.folder) and file.is_file()
        except OSError:  # a name that no system has, such as one of 5,000 characters
            return None
        return file if inside else None

    def _holds_texts(self, name: str) -> bool:
        cells = self._cells[name].iloc[:_READ].tolist()
        return sum(map(is_long, cells)) > _TEXTS * len(cells)

    def _names_pictures(self, name: str) -> bool:
        column = self._cells[name]
        rows = np.flatnonzero(column.notna().to_numpy())[:_LOOKED_AT]
        return bool(len(rows)) and all(self.picture(int(row), name) is not None for row in rows)

    def _number(self, name: str, row: int) -> float | None:
        """Return the number in a cell, or None."""
        if name not in self._numbers or _is_missing(self._numbers[name][row]):
            return None
        return float(self._numbers[name][row])


def media_type(file: Path) -> str:
    """Of a picture."""
    return _PICTURES[file.suffix.lower()]


def _is_missing(value: Any) -> bool:
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


# One process that fits and ranks, so that labeling never waits for it.

RANK, REPORT = "rank", "report"
_NICE = 10
# Seconds that a process may take to end by itself.
_PATIENCE = 5.0


class WorkerError(RuntimeError):
    """A fit failed, or its process ended."""


def _serve(learner: RowRanker, pipe: Connection) -> None:
    """Run the process, which handles requests one by one until the pipe is closed."""
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
    """The process and its pipe, restarted if it died."""

    def __init__(self, learner: RowRanker) -> None:
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

    process : None if nothing is learned. wanted : gives the labels to fit to now, None where the ranking is fresh
    enough; take : gets each ranking;
    turn : called when labels have changed, before each fit.
    """

    def __init__(
        self,
        process: Process | None,
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
        if self._process is None:
            raise AnswerError("there is no model to report on.")
        self._report_for, self.report_state = job, "working"
        self._wake.set()

    def stop(self) -> None:
        """End the process, then the thread."""
        self._ends.set()
        self._wake.set()
        if self._process is not None:
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
        if self._process is None or (job is None and report is None):
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


@dataclass(frozen=True, eq=False)
class AppState:
    """One pool that is being labeled.

    content : the bytes of the pool's file; labels are written into a copy.
    guidelines : HTML of the guidelines, or None.
    invitations_only : whether everyone needs a link, also before the first is made.
    form_token : token of the sign-in form, used before there is a session.
    robot : whether a robot that knows the truth can be switched on, as in the demonstration.
    label_studio : whether a Label Studio with a token is served as well.
    """

    desk: LabelingService
    cards: Cards
    fitter: Fitter
    neighbours: Neighbours
    content: bytes
    guidelines: str | None = None
    invitations_only: bool = False
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    robot: object | None = None
    label_studio: bool = False

    def is_label_studio(self, token: str) -> bool:
        """Whether this is the token of the Label Studio that is served."""
        found = self.desk.store.invited(token) if self.label_studio else None
        return found is not None and found.name == LABEL_STUDIO

    @property
    def by_invitation(self) -> bool:
        """Whether people need a link of their own: always on a server, and wherever somebody was invited."""
        return self.invitations_only or self.desk.store.has_invitations()


def write_token(secret: str) -> str:
    """What a page must send with every answer: it follows from the session, whose cookie no script can read."""
    return hashed(f"write:{secret}")[:32]
