"""Requests that wait for each other are done together, in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from surefoot.serve.pages import BatchQueue


def test_those_that_wait_are_done_together() -> None:
    batches: list[list[int]] = []
    begun, go = threading.Event(), threading.Event()

    def work(asked: list[int]) -> Iterator[int]:
        batches.append(asked)
        begun.set()
        go.wait(10)
        yield from (10 * one for one in asked)

    async def ask() -> list[int]:
        line = BatchQueue(work)
        first = asyncio.create_task(line.ask(0))
        await asyncio.to_thread(begun.wait, 10)
        others = [asyncio.create_task(line.ask(k)) for k in range(1, 5)]
        await asyncio.sleep(0)
        go.set()
        return [await first, *[await one for one in others], await line.ask(5)]

    assert asyncio.run(ask()) == [0, 10, 20, 30, 40, 50]
    assert batches == [[0], [1, 2, 3, 4], [5]]


def test_a_failure_is_told_to_those_it_left_without_an_answer() -> None:
    def work(asked: list[int]) -> Iterator[int]:
        yield asked[0]
        raise RuntimeError("no more")

    async def ask() -> list[int | BaseException]:
        line = BatchQueue(work)
        found = await asyncio.gather(line.ask(1), line.ask(2), line.ask(3), return_exceptions=True)
        with pytest.raises(RuntimeError, match="no more"):
            await asyncio.gather(line.ask(4), line.ask(5))
        return found

    first, *others = asyncio.run(ask())
    assert first == 1
    assert [str(one) for one in others] == ["no more"] * 2
