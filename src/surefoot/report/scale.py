"""Axes: from numbers to pixels, and where to put ticks."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10

_SLACK = 1e-9


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic axis from [low, high] to pixels [start, end]."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    step: float | None = None

    @classmethod
    def rounded(cls, low: float, high: float, most: int, start: float, end: float) -> Axis:
        """A linear axis whose ends and ticks are multiples of a round step, `most` of which cover [low, high]."""
        step = nice_step(low, high, most)
        first, last = floor(low / step + _SLACK), ceil(high / step - _SLACK)
        return cls(first * step, max(last, first + 1) * step, start, end, step=step)

    def __call__(self, value: float) -> float:
        """Pixel of a value; values beyond the ends are put at the ends."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = log10(low), log10(high), log10(at)
        share = (at - low) / (high - low) if high > low else 0.0
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, most: int = 9) -> list[float]:
        """Multiples of the step; on a log axis 1, 2, 5 times powers of ten, or fewer of these, at most so many."""
        if self.log:
            return _log_ticks(self.low, self.high, most)
        step = self.step or nice_step(self.low, self.high, most)
        first, last = ceil(self.low / step - _SLACK), floor(self.high / step + _SLACK)
        return [round(i * step, 12) for i in range(first, last + 1)]


def nice_step(low: float, high: float, most: int) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that cuts [low, high] into at most `most` steps."""
    raw = (high - low) / max(most, 1)
    power = 10.0 ** floor(log10(raw)) if raw > 0 else 1.0
    return next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= raw * (1 - _SLACK))


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    found: list[float] = []
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [f * 10.0**p for p in powers for f in factors if low * (1 - _SLACK) <= f * 10.0**p <= high]
        if len(found) <= most:
            break
    return found
