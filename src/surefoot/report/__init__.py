"""The report of a fit: one HTML file that needs no network.

`surefoot.pool.summary` gathers its numbers as plain data; the templates put them into words, tables and drawings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path

from surefoot._files import is_report, write_bytes
from surefoot._printing import percent, render
from surefoot.pool.report_contents import Bin, BoundsBar, RadiusChart, Report
from surefoot.pool.report_gather import build_report

__all__ = ["Report", "build_report", "is_report", "render_report", "write_report"]

# Where the drawings of the page put their parts: sizes, axes and ticks. The templates draw them.

WIDE, NARROW = 720, 320
_SLACK = 1e-9
_TICK_ROOM = 40  # pixels for a tick such as "100 %"

Ticks = tuple[tuple[float, str], ...]  # a pixel and the text there


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
        """Return tick positions: multiples of the step, or on a log axis 1, 2, 5 times powers of ten."""
        if self.log:
            return _log_ticks(self.low, self.high, most)
        step = self.step or nice_step(self.low, self.high, most)
        first, last = ceil(self.low / step - _SLACK), floor(self.high / step + _SLACK)
        return [round(i * step, 12) for i in range(first, last + 1)]


@dataclass(frozen=True)
class Panel:
    """A drawing in one width, in pixels.

    top, floor : edges of the grid; x, y : the axes; x_ticks, y_ticks : positions and texts of the labels.
    """

    width: int
    height: int
    top: int
    floor: int
    x: Axis
    x_ticks: Ticks
    y: Axis | None = None
    y_ticks: Ticks = ()

    @property
    def kind(self) -> str:
        return "wide" if self.width == WIDE else "narrow"


Panels = tuple[Panel, Panel]


def certificate_bar(bounds: BoundsBar, guessing: float) -> Panels:
    """Log loss from 0 on; a very long second bar is cut off, since its number is in the text."""
    most = 3.0 * max(bounds.training, bounds.risk, guessing)
    end = 1.02 * max(bounds.training, bounds.risk, guessing, min(bounds.sampled or 0.0, most))
    height = 168 if bounds.sampled is not None else 112

    def panel(width: int) -> Panel:
        x = Axis.rounded(0.0, end, 8 if width == WIDE else 4, 4, width - 14)
        return Panel(width, height, 20, height - 32, x, _ticks(x, x.ticks(), _short))

    return panel(WIDE), panel(NARROW)


def radius_lines(curve: RadiusChart, risk: float, guessing: float) -> Panels:
    """Certified loss over the radius, for this model and for one learned at each radius."""
    values = [*curve.this_model, *curve.best_model, risk, guessing]
    return _over_radius(curve, min(values), max(values), 270, _short)


def confidence_line(curve: RadiusChart) -> Panels:
    """Median confidence of the model learned at each radius."""
    return _over_radius(curve, min(0.5, *curve.confidence), 1.0, 190, percent)


def histogram(bins: Sequence[Bin]) -> Panels:
    """Rows per bin of confidence."""
    largest = max(one.n_rows for one in bins)
    edges = sorted({round(edge, 1) for one in bins for edge in (one.low, one.high) if abs(edge * 10 % 1) < 1e-6})

    def panel(width: int) -> Panel:
        x, y = Axis(bins[0].low, bins[-1].high, 58, width - 20), Axis.rounded(0.0, max(largest, 4), 4, 190, 30)
        ticks = edges
        while (x.end - x.start) / len(ticks) < _TICK_ROOM:
            ticks = ticks[::-2][::-1]  # 100 % stays
        return Panel(width, 240, 30, 190, x, _ticks(x, ticks, percent), y, _ticks(y, y.ticks(), "{:,.0f}".format))

    return panel(WIDE), panel(NARROW)


def _over_radius(curve: RadiusChart, low: float, high: float, height: int, text: Callable[[float], str]) -> Panels:
    top, floor = 30, height - 46
    y = Axis.rounded(low, high, 5, floor, top)

    def panel(width: int) -> Panel:
        x = Axis(curve.excess[0], curve.excess[-1], 46, width - 14, log=True)
        ticks = _ticks(x, x.ticks(9 if width == WIDE else 5), _short)
        return Panel(width, height, top, floor, x, ticks, y, _ticks(y, y.ticks(), text))

    return panel(WIDE), panel(NARROW)


def _ticks(axis: Axis, values: Sequence[float], text: Callable[[float], str]) -> Ticks:
    return tuple((axis(value), text(value)) for value in values)


def _short(value: float) -> str:
    return f"{value:.3g}"


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


def render_report(report: Report) -> str:
    """The whole page as HTML that loads nothing from anywhere and runs no script.

    Parameters
    ----------
    report : Report
        Its contents, from `build_report`.

    Returns
    -------
    str
        The page.
    """
    panels = {"histogram": histogram(report.confidence.bins)}
    stated, bounds, adversary, curves = report.guarantee, report.bounds, report.adversary, report.radius
    if stated is not None and bounds is not None and adversary is not None:
        panels["bar"] = certificate_bar(bounds, stated.guessing)
        panels["relabeled_histogram"] = histogram(adversary.bins)
        if curves is not None:
            panels["over_radius"] = radius_lines(curves, stated.risk, stated.guessing)
            panels["confidence_over_radius"] = confidence_line(curves)
    return render("surefoot.report", "report.html", report=report, **panels)


def write_report(path: str | os.PathLike[str], report: Report) -> Path:
    """Write the page to a file, whole or not at all: an error leaves neither half a file nor a changed one.

    Parameters
    ----------
    path : str or path-like
        The file.
    report : Report
        Its contents, from `build_report`.

    Returns
    -------
    Path
        The file.
    """
    write_bytes(path, render_report(report).encode())
    return Path(path)
