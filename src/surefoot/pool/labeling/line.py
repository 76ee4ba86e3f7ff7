"""Requests that wait for each other are done together, by one thread: one wait for the disk serves them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Given = TypeVar("Given")


class Line(Generic[Asked, Given]):
    """Takes requests of one event loop in the order in which they come.

    Parameters
    ----------
    work : callable, does all requests that wait; what it gives for each, in their order, is handed on at once.
    """

    def __init__(self, work: Callable[[list[Asked]], Iterable[Given]]) -> None:
        self._work = work
        self._waiting: list[tuple[Asked, asyncio.Future[Given]]] = []
        self._working: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="surefoot-line")

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
                loop.call_soon_threadsafe(_fail, given, error)


def _give(given: asyncio.Future[Given], what: Given) -> None:
    if not given.done():  # whoever asked may have gone
        given.set_result(what)


def _fail(given: asyncio.Future[Given], error: Exception) -> None:
    if not given.done():
        given.set_exception(error)
