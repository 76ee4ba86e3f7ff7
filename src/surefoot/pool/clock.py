"""Time of a fit: how long it may take, how long it has taken, and what is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from surefoot._callbacks import watch_rounds


class TimeIsUpError(Exception):
    """The time that was given is over."""


@dataclass
class Clock:
    """A budget in seconds, None for none, and what is said while work is done.

    say : takes a text that describes the work; one line in a terminal.
    """

    budget: float | None = None
    say: Callable[[str], None] = lambda _text: None
    began: float = field(default_factory=time.monotonic)

    @property
    def passed(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds left; infinite without a budget."""
        return float("inf") if self.budget is None else self.budget - self.passed

    def check(self) -> None:
        """Stop what is done when the time is over."""
        if self.left <= 0:
            raise TimeIsUpError

    @contextmanager
    def stage(self, what: str, seconds: float | None = None) -> Iterator[None]:
        """Work of one kind, with an estimate; its start and each round of learning look at the clock."""
        began = time.monotonic()

        def tick() -> None:
            self.check()
            self.say(f"{what}{self._left(began, seconds)}")

        tick()
        with watch_rounds(tick):
            yield

    def counted(self, what: str, n: int) -> Callable[[], None]:
        """A function to call before each of n equal pieces of work: says which one, and how long the rest takes."""
        began, done = time.monotonic(), 0

        def tick() -> None:
            nonlocal done
            self.check()
            rest = (n - done) * (time.monotonic() - began) / done if done else None
            done += 1
            left = "" if rest is None else f", about {in_words(rest)} left"
            self.say(f"{what} {min(done, n)} of {n}{left}")

        return tick

    def _left(self, began: float, seconds: float | None) -> str:
        if seconds is None or seconds < 2:
            return ""
        rest = seconds - (time.monotonic() - began)
        return f", about {in_words(rest)} left" if rest > 1 else ", nearly done"


def in_words(seconds: float) -> str:
    """12 s, 3 min, 2 h."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
