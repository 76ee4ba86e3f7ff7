"""Progress of a run: a bar with the time left, or now and then a line where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator

from surefoot.paper.protocol import Task
from surefoot.paper.records import Record

_SECONDS_BETWEEN_LINES = 30.0


def shown(
    records: Iterable[Record], title: str, tasks: Collection[Task], done: Collection[Task], *, show: bool
) -> Iterator[Record]:
    """The same records, shown as they come, on the standard error."""
    if not show:
        yield from records
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError as error:
        raise ImportError('progress=True needs the package rich: pip install "surefoot[cli]"') from error
    console = Console(stderr=True)
    before = sum(task in done for task in tasks)
    estimate = TimeLeft(len(tasks) - before)
    if not console.is_terminal:
        yield from _lines(records, console, title, before, len(tasks), estimate)
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, TextColumn("{task.fields[left]} left"), console=console) as bar:
        shown_task = bar.add_task(title, total=len(tasks), completed=before, left="?")
        for record in records:
            yield record
            estimate.step()
            bar.update(shown_task, advance=1, left=str(estimate))


class TimeLeft:
    """Estimate of the time left, from the pace of this run so far."""

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.finished = 0
        self.start = time.monotonic()

    def step(self) -> None:
        self.finished += 1

    @property
    def seconds(self) -> float:
        """Infinite before the first task is done."""
        if not self.finished:
            return float("inf")
        return (time.monotonic() - self.start) / self.finished * (self.missing - self.finished)

    def __str__(self) -> str:
        if not self.finished:
            return "?"
        minutes, seconds = divmod(round(self.seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}"


def _lines(
    records: Iterable[Record], console: object, title: str, before: int, total: int, estimate: TimeLeft
) -> Iterator[Record]:
    last = time.monotonic()
    for record in records:
        yield record
        estimate.step()
        finished = before + estimate.finished
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES or finished == total:
            last = time.monotonic()
            console.print(f"{title}: {finished} of {total} tasks, {estimate} left", highlight=False, soft_wrap=True)  # type: ignore[attr-defined]
