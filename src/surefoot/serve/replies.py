"""What the script of the page gets: rows as cards, where we stand, and whether its answer is on the disk."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

from surefoot.pool.database import NotSavedError
from surefoot.pool.labeling.desk import Answer
from surefoot.pool.labeling.events import Event
from surefoot.pool.labeling.status import status
from surefoot.pool.store import Person
from surefoot.serve.pages import why_html
from surefoot.serve.state import AppState

Asked = TypeVar("Asked")
Given = TypeVar("Given")

_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Replies:
    """Replies to the script of one page."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    def answers(self, asked: list[tuple[Person, dict[str, Any]]]) -> Iterator[bytes | Exception]:
        """Take answers that wait for each other, then say what became of each; where we stand is said alike to all."""
        found = self._state.desk.answer_all([_answer_of(person, data) for person, data in asked])
        self._state.fitter.wake()
        now = self.status()
        for (person, data), one in zip(asked, found, strict=True):
            yield one if isinstance(one, Exception) else self._taken(person, data, now)

    def _taken(self, person: Person, data: dict[str, Any], now: bytes) -> bytes:
        try:
            return self.rows(person, data, now)
        except NotSavedError as error:  # the answer is on the disk, though no row could be handed out after it
            self._state.desk.problem = str(error)
            return b'{"saved":true,"rows":[],"standing":' + self.status() + b"}"

    def rows(self, person: Person, data: dict[str, Any], now: bytes | None = None, **more: Any) -> bytes:
        """The rows to show, as cards where the page has them not yet, and where we stand."""
        have = data.get("have")
        known = have if isinstance(have, list) else []
        picks = self._state.desk.rows_for(person, beyond=bool(data.get("beyond")))
        cards = [{"row": pick.row} if pick.row in known else self._card(pick) for pick in picks]
        head = _json({"saved": True, **more, "rows": cards}).encode()
        return head[:-1] + b',"standing":' + (now or self.status()) + b"}"

    def status(self) -> bytes:
        """Where we stand, and what the fit is doing."""
        desk, fitter = self._state.desk, self._state.fitter
        if desk.catch_up():
            fitter.wake()
        now, since = status(desk), fitter.since
        now["fit"]["running"] = None if since is None else round(time.monotonic() - since, 1)
        now["problem"] = now["problem"] or fitter.problem
        return _json({**now, "report": fitter.report_state}).encode()

    def _card(self, pick: Event) -> dict[str, Any]:
        with self._state.desk.lock:
            state = self._state.desk.book.row(pick.row)
            why = why_html(self._state, pick)
            flagged, notes = bool(state.flags), [str(note.value) for note in state.notes]
        html = self._state.cards.html(pick.row)
        return {"row": pick.row, "html": html, "why": why, "purpose": pick.purpose, "flagged": flagged, "notes": notes}


def _answer_of(person: Person, data: dict[str, Any]) -> Answer:
    return Answer(person, data.get("row", -1), data.get("label", ""), key_of(data))


def key_of(data: dict[str, Any]) -> str | None:
    """What the page has made so that an answer that is sent twice counts once."""
    key = data.get("key")
    return key if isinstance(key, str) else None


class BatchQueue(Generic[Asked, Given]):
    """Takes requests of one event loop in the order in which they come; one thread does all that wait together.

    One wait for the disk then serves them all. What `work` gives for each is handed on at once; an error is raised.
    """

    def __init__(self, work: Callable[[list[Asked]], Iterable[Given | Exception]]) -> None:
        self._work = work
        self._waiting: list[tuple[Asked, asyncio.Future[Given]]] = []
        self._working: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="surefoot-answers")

    async def ask(self, asked: Asked) -> Given:
        """What becomes of a request."""
        loop = asyncio.get_running_loop()
        given: asyncio.Future[Given] = loop.create_future()
        self._waiting.append((asked, given))
        if self._working is None:
            self._working = loop.create_task(self._work_off(loop))
        return await given

    async def _work_off(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await loop.run_in_executor(self._thread, self._do, batch, loop)
        finally:
            self._working = None

    def _do(self, batch: list[tuple[Asked, asyncio.Future[Given]]], loop: asyncio.AbstractEventLoop) -> None:
        waiting = iter(batch)
        try:
            for one in self._work([asked for asked, _ in batch]):
                loop.call_soon_threadsafe(_give, next(waiting)[1], one)
        except Exception as error:  # noqa: BLE001 - told to those who asked
            for _, given in waiting:
                loop.call_soon_threadsafe(_give, given, error)


def _give(given: asyncio.Future[Given], what: Given | Exception) -> None:
    if given.done():  # whoever asked may have gone
        return
    if isinstance(what, Exception):
        given.set_exception(what)
    else:
        given.set_result(what)
