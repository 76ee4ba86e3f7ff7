"""Drawings in SVG, made from numbers. Colours are classes of the style sheet, so that they follow light and dark.

Each drawing exists in two widths, since a drawing that is scaled down to a telephone cannot be read; the style sheet
shows one of them. Names and numbers of the parts are in the legend and in a table beside the drawing, not inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from surefoot._printing import percent, rounded_up
from surefoot.pool.summary.contents import Bin, Bounds, RadiusCurve
from surefoot.report.html import Html, el
from surefoot.report.scale import Axis

WIDE, NARROW = 720, 320
_TICK_ROOM = 40  # pixels for a tick such as "100 %"
_LETTER = 7.8  # pixels of a letter at the size of ticks, to keep labels inside


def both_widths(name: str, title: str, description: str, draw: Callable[[int], tuple[int, list[Html]]]) -> Html:
    """A drawing in both widths, with a title and a description for readers who do not see it."""
    drawings = []
    for kind, width in (("wide", WIDE), ("narrow", NARROW)):
        height, parts = draw(width)
        ids = f"{name}-{kind}-title", f"{name}-{kind}-desc"
        drawings.append(
            el(
                "svg",
                el("title", title, id=ids[0]),
                el("desc", description, id=ids[1]),
                *parts,
                class_=f"chart {kind}",
                viewBox=f"0 0 {width} {height}",
                role="img",
                aria_labelledby=" ".join(ids),
            )
        )
    return el("div", *drawings, class_="drawing")


def certificate_bar(bounds: Bounds, guessing: float, width: int) -> tuple[int, list[Html]]:
    """Training loss, what the adversary adds, the gap, and below it the same with the sampling term."""
    most = 3.0 * max(bounds.training, bounds.risk, guessing)  # a longer bar is cut off: its number is in the text
    ends = [bounds.training, bounds.risk, guessing, min(bounds.sampled or 0.0, most)]
    top, height, bar = 42, 168 if bounds.sampled is not None else 112, 26
    x = Axis.rounded(0.0, 1.02 * max(ends), 8 if width == WIDE else 4, 4, width - 14)
    floor = height - 32
    parts = _vertical_grid(x, x.ticks(), 20, floor, lambda value: f"{value:.3g}")
    base = min(bounds.training, bounds.lower)
    parts += [
        _text(x.start, top - 6, f"These rows: at most {rounded_up(bounds.risk, 3)}", "strong"),
        _bar(x, 0.0, base, top, bar, "training"),
        _bar(x, base, bounds.lower, top, bar, "adversary"),
        _bar(x, bounds.lower, bounds.risk, top, bar, "gap", least=2.0),
    ]
    if bounds.training > bounds.lower:
        at = x(bounds.training)
        parts.append(el("line", x1=at, x2=at, y1=top - 3, y2=top + bar + 3, class_="s-training mark"))
    if bounds.sampled is not None and bounds.sampled_mean is not None:
        second = top + bar + 30
        kind = "at most" if bounds.guarantee else "roughly"
        parts += [
            _text(x.start, second - 6, f"Rows to come: {kind} {rounded_up(bounds.sampled, 3)}", "strong"),
            _bar(x, 0.0, bounds.sampled_mean, second, bar, "plain"),
            _bar(x, bounds.sampled_mean, bounds.sampled, second, bar, "sampling", least=2.0),
        ]
    at = x(guessing)
    parts += [
        el("line", x1=at, x2=at, y1=20, y2=floor, class_="guess"),
        _inside(at, 12, f"guessing {guessing:.3f}", "guess-label", width),
    ]
    return height, parts


def radius_lines(curve: RadiusCurve, risk: float, guessing: float, width: int) -> tuple[int, list[Html]]:
    """Certified loss over the radius, for this model and for one learned at each radius; the chosen radius marked."""
    values = [*curve.this_model, *curve.best_model, risk, guessing]
    height, top, floor = 270, 30, 224
    y = Axis.rounded(min(values), max(values), 5, floor, top)
    x = Axis(curve.excess[0], curve.excess[-1], 46, width - 14, log=True)
    parts = _frame(x, y, width, floor, top, "radius beyond the minimal one", lambda value: f"{value:.3g}")
    parts += [
        el("line", x1=x.start, x2=x.end, y1=y(guessing), y2=y(guessing), class_="guess"),
        _text(x.start + 6, y(guessing) - 5, "guessing", "guess-label"),
        *_chosen(x, curve.chosen, top, floor, width),
        _line(x, y, curve.excess, curve.best_model, "best"),
        _line(x, y, curve.excess, curve.this_model, "this"),
        el("circle", cx=x(curve.chosen), cy=y(risk), r=6, class_="ring"),
    ]
    return height, parts


def confidence_line(curve: RadiusCurve, width: int) -> tuple[int, list[Html]]:
    """Median confidence of the model learned at each radius."""
    height, top, floor = 190, 30, 144
    y = Axis.rounded(min(0.5, *curve.confidence), 1.0, 5, floor, top)
    x = Axis(curve.excess[0], curve.excess[-1], 46, width - 14, log=True)
    parts = _frame(x, y, width, floor, top, "radius beyond the minimal one", percent)
    parts += [
        *_chosen(x, curve.chosen, top, floor, width),
        _line(x, y, curve.excess, curve.confidence, "best"),
    ]
    return height, parts


def histogram(bins: Sequence[Bin], median: float | None, width: int, *, relabeled: bool) -> tuple[int, list[Html]]:
    """Rows per bin of confidence; with `relabeled` the part of each whose label the adversary changes."""
    largest = max(one.n_rows for one in bins)
    height, top, floor = 240, 30, 190
    y = Axis.rounded(0.0, max(largest, 4), 4, floor, top)
    x = Axis(bins[0].low, bins[-1].high, 58, width - 20)
    ticks = sorted({round(edge, 1) for one in bins for edge in (one.low, one.high) if abs(edge * 10 % 1) < 1e-6})
    while (x.end - x.start) / len(ticks) < _TICK_ROOM:
        ticks = ticks[::-2][::-1]  # 100 % stays
    parts = _horizontal_grid(y, x, lambda value: f"{value:,.0f}")
    for one in bins:
        left, right = x(one.low) + 1.0, x(one.high) - 1.0
        moved = one.n_rows * one.relabeled if relabeled else 0.0
        for start, end, kind in ((0.0, one.n_rows - moved, "kept"), (one.n_rows - moved, one.n_rows, "moved")):
            if end > start:
                size = round(y(start) - y(end), 2)
                parts.append(
                    el("rect", x=left, y=y(end), width=round(right - left, 2), height=size, class_=f"f-{kind}")
                )
    parts += [_text(x(value), floor + 18, percent(value), "tick", "middle") for value in ticks]
    parts.append(_text((x.start + x.end) / 2, floor + 40, "model's confidence in its answer", "axis", "middle"))
    if median is not None:
        at = x(median)
        parts.append(el("line", x1=at, x2=at, y1=top - 8, y2=floor, class_="chosen"))
        parts.append(_inside(at, top - 14, f"median {percent(median)}", "chosen-label", width))
    return height, parts


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> Html:
    return el("text", text, x=round(x, 2), y=round(y, 2), class_=f"t-{kind}", text_anchor=anchor)


def _inside(x: float, y: float, text: str, kind: str, width: int) -> Html:
    """A text centred at x, moved so that it stays inside the drawing."""
    half = 0.5 * _LETTER * len(text)
    return _text(min(max(x, half + 2), width - half - 2), y, text, kind, "middle")


def _bar(x: Axis, start: float, end: float, y: float, height: float, kind: str, least: float = 0.0) -> Html:
    left, size = x(start), max(x(end) - x(start), least)
    return el("rect", x=left, y=y, width=round(size, 2), height=height, class_=f"f-{kind}")


def _line(x: Axis, y: Axis, xs: Sequence[float], ys: Sequence[float], kind: str) -> Html:
    points = [(x(a), y(b)) for a, b in zip(xs, ys, strict=True)]
    line = el("polyline", points=" ".join(f"{a},{b}" for a, b in points), class_=f"line s-{kind}")
    dots = [el("circle", cx=a, cy=b, r=3, class_=f"f-{kind}") for a, b in points]
    return el("g", line, *dots)


def _chosen(x: Axis, chosen: float, top: float, floor: float, width: int) -> list[Html]:
    at, beyond = x(chosen), chosen < x.low
    text = "chosen: minimal" if beyond else f"chosen {chosen:.3g}"
    return [
        el("line", x1=at, x2=at, y1=top - 8, y2=floor, class_="chosen"),
        _inside(at, top - 14, text, "chosen-label", width),
    ]


def _frame(
    x: Axis, y: Axis, width: int, floor: float, top: float, name: str, text: Callable[[float], str]
) -> list[Html]:
    ticks = x.ticks(9 if width == WIDE else 5)
    parts = _horizontal_grid(y, x, text)
    for value in ticks:
        parts.append(el("line", x1=x(value), x2=x(value), y1=floor, y2=floor + 4, class_="axis-line"))
        parts.append(_inside(x(value), floor + 18, f"{value:.3g}", "tick", width))
    parts.append(_text((x.start + x.end) / 2, floor + 40, name, "axis", "middle"))
    return parts


def _horizontal_grid(y: Axis, x: Axis, text: Callable[[float], str]) -> list[Html]:
    parts = []
    for value in y.ticks():
        kind = "axis-line" if y(value) == y.start else "grid"
        parts.append(el("line", x1=x.start, x2=x.end, y1=y(value), y2=y(value), class_=kind))
        parts.append(_text(x.start - 7, y(value) + 4, text(value), "tick", "end"))
    return parts


def _vertical_grid(x: Axis, ticks: list[float], top: float, floor: float, text: Callable[[float], str]) -> list[Html]:
    parts = []
    for value in ticks:
        parts.append(el("line", x1=x(value), x2=x(value), y1=top, y2=floor, class_="grid"))
        anchor = "start" if value == 0 else "middle"
        parts.append(_text(x(value), floor + 18, text(value), "tick", anchor))
    return parts
