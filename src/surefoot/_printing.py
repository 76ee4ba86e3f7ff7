"""Numbers, tables and cells as text, results that print themselves, and pages from Jinja2 templates."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from inspect import cleandoc
from typing import Any

import numpy as np

from surefoot._errors import import_extra

# Results that print themselves as a short table, as text and in notebooks.

# What a terminal acts on instead of showing it: control characters, marks that turn the direction of a line, separators
# of lines and paragraphs, and halves of characters that no encoding can write.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str, *, lines: bool = False) -> str:
    """A text from a file as it may be printed: what a terminal would act on is written out; `lines` keeps line ends."""
    return _UNSEEN.sub(lambda found: found[0] if lines and found[0] == "\n" else _written_out(found[0]), text)


def _written_out(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(character)
    return named.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def count(n: int, what: str, many: str | None = None) -> str:
    """1 row, 2 rows, 12 345 rows."""
    number = f"{n:,}".replace(",", "\u202f") if n >= 10_000 else str(n)
    return f"{number} {what if n == 1 else many or what + 's'}"


def cell_text(value: Any, longest: int | None = None) -> str:
    """Format a cell as one line: numbers with 6 digits, a dash for a missing value, long texts cut."""
    is_number = isinstance(value, float | np.floating)
    if value is None or (is_number and np.isnan(value)):
        return "\N{EN DASH}"
    text = f"{value:.6g}" if is_number else visible(" ".join(str(value).split()))
    return text if longest is None else cut(text, longest)


# A text from this length on, or with line breaks, stands by itself.
_LONG_TEXT, _LONGEST_TEXT = 60, 20_000


def is_long(value: Any) -> bool:
    """Whether a cell is read as a text."""
    return isinstance(value, str) and (len(value) > _LONG_TEXT or "\n" in value.strip())


def long_text(value: str) -> str:
    """A long text as it is shown, with its line breaks."""
    whole = value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + "…"
    return visible(whole.replace("\r\n", "\n").replace("\t", "    "), lines=True)


def cut(text: str, longest: int = 60) -> str:
    """Cut a text for a message."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


# Explanations of rows that are neither attributes nor properties of their class.
_TERMS = {
    "assumes": "The guarantee holds if all of these hold.",
    "evidence": "The labels that the bound is computed from, and how many of them were predicted wrongly.",
    "ground cost": "The cost of moving probability: between rows by this metric, between labels by the label cost.",
    "radius from": "How the radius was estimated. An estimated radius is not proved to cover the true distribution.",
}


class PrintsAsTable:
    """Text and HTML of a result that lists its rows, a name and a text each."""

    def _rows(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    def _title(self) -> str:
        """The title of the printed rows."""
        return type(self).__name__

    def _bars(self) -> list[Bar]:
        """Numbers to draw in a notebook; none by default."""
        return []

    def __repr__(self) -> str:
        return self._title() + "\n" + "\n".join(f"  {name:<16}{text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        return folded_table(self._title(), getattr(self, "statement", ""), self._bars(), self._rows(), type(self))


@dataclass(frozen=True)
class Bar:
    """A bar of a chart from 0 to `high`, lighter from `low` on; `text` is its value in words."""

    name: str
    low: float
    high: float
    text: str


def folded_table(title: str, statement: str, bars: list[Bar], rows: list[tuple[str, str]], about: type) -> str:
    """A result as HTML for a notebook: a box to fold, in its colours, without a script, a style sheet or a request.

    rows : names and texts; a row without a name continues the one before. about : class whose attributes explain them.
    """
    named: list[tuple[str, list[str]]] = []
    for name, text in rows:
        if text == statement:
            continue  # it stands above the table
        if name or not named:
            named.append((name, []))
        named[-1][1].append(text)
    explained = _attributes(about)
    cells = "".join(
        '<tr><th scope="row" style="text-align:left;vertical-align:top;white-space:nowrap;font-weight:normal;'
        f'padding-right:1em">{_term(name, explained)}</th>'
        f'<td style="text-align:left">{"<br>".join(map(escape, texts))}</td></tr>'
        for name, texts in named
    )
    words = f'<p style="margin:.6em">{escape(statement[:1].upper() + statement[1:])}</p>' if statement else ""
    return _folded(title, f"{words}{_chart(bars)}<table><tbody>{cells}</tbody></table>")


def _folded(title: str, body: str) -> str:
    """A box that the reader can fold, in the colour of the notebook."""
    return (
        '<details open style="color:inherit;border:1px solid cornflowerblue;border-radius:4px;width:fit-content;'
        'max-width:60em;padding:.3em .6em"><summary style="cursor:pointer;font-weight:bold">'
        f"{escape(title)}</summary>{body}</details>"
    )


def _term(name: str, explained: Mapping[str, str]) -> str:
    """The name of a row, with its explanation for a pointer that rests on it."""
    meaning = explained.get(name.replace(" ", "_"), _TERMS.get(name))
    if meaning is None:
        return escape(name)
    return f'<abbr title="{escape(meaning)}" style="cursor:help">{escape(name)}</abbr>'


@cache
def _attributes(about: type) -> dict[str, str]:
    """What the docstring of a class says of its attributes, and its properties of themselves."""
    found = {name: cleandoc(part.__doc__ or "") for name, part in vars(about).items() if isinstance(part, property)}
    _, _, section = cleandoc(about.__doc__ or "").partition("Attributes\n----------\n")
    for entry in re.finditer(r"^(\w+) : .*\n((?:    .*\n?|\n(?=    ))+)", section, re.MULTILINE):
        found[entry[1]] = " ".join(entry[2].split()).replace("`", "")
    return {name: text.replace("`", "") for name, text in found.items() if text}


# Where the bars of a chart begin, their longest width, and the height of a row, in pixels.
_LEFT, _WIDE, _HIGH = 100, 320, 22
_ENDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def _chart(bars: list[Bar]) -> str:
    """Horizontal bars on one scale as SVG."""
    if not bars or not all(math.isfinite(bar.high) for bar in bars):
        return ""
    most = max(bar.high for bar in bars)
    end = next((end for end in _ENDS if most <= end), math.ceil(2 * most) / 2)
    shown = percent(end) if all(bar.text.count("%") for bar in bars) else f"{end:g}"
    bottom = _HIGH * len(bars)
    parts = [_row_of_chart(bar, _HIGH * at, end) for at, bar in enumerate(bars)]
    axis = (
        f'<path d="M{_LEFT} {bottom}h{_WIDE}" stroke="currentColor" stroke-opacity=".4"/>'
        f'<text x="{_LEFT}" y="{bottom + 15}">0</text>'
        f'<text x="{_LEFT + _WIDE}" y="{bottom + 15}" text-anchor="end">{shown}</text>'
    )
    label = "; ".join(f"{bar.name}: {bar.text}" for bar in bars)
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{_LEFT + _WIDE + 150}" height="{bottom + 20}" '
        f'style="font-size:12px;display:block" fill="currentColor">{"".join(parts)}{axis}</svg>'
    )


def _row_of_chart(bar: Bar, top: int, end: float) -> str:
    low, high = (round(_WIDE * max(value, 0.0) / end, 1) for value in (bar.low, bar.high))
    middle = top + 15
    return (
        f"<g><title>{escape(f'{bar.name}: {bar.text}')}</title>"
        f'<text x="{_LEFT - 8}" y="{middle}" text-anchor="end">{escape(cut(bar.name, 16))}</text>'
        f'<rect x="{_LEFT}" y="{top + 3}" width="{high}" height="15" fill="cornflowerblue" fill-opacity=".45"/>'
        f'<rect x="{_LEFT}" y="{top + 3}" width="{low}" height="15" fill="cornflowerblue"/>'
        f'<text x="{_LEFT + high + 6}" y="{middle}">{escape(bar.text)}</text></g>'
    )


# Far above what float64 loses in a product: 0.07 is 7.0 %, not 7.1 %.
_ROUNDING = 1e-9


def rounded_up(value: float, digits: int) -> str:
    """Format an upper bound, rounded up."""
    scale = 10**digits
    return f"{math.ceil(value * scale - _ROUNDING) / scale:.{digits}f}" if math.isfinite(value) else f"{value}"


def rounded_down(value: float, digits: int) -> str:
    """Format a lower bound, rounded down."""
    scale = 10**digits
    return f"{math.floor(value * scale + _ROUNDING) / scale:.{digits}f}" if math.isfinite(value) else f"{value}"


def share_at_most(share: float) -> str:
    """An upper bound on a share in percent, without the sign: rounded up to a tenth."""
    return rounded_up(100 * min(share, 1.0), 1)


def share_at_least(share: float) -> str:
    """A lower bound on a share in percent, without the sign: rounded down to a tenth."""
    return rounded_down(100 * max(share, 0.0), 1)


_SHOWN = 12  # rows of a table: of a longer one, as many from its beginning and from its end


class PrintedTable:
    """Text and HTML of a result that has columns, all of one length; of a long one the middle is left out."""

    def _columns(self) -> dict[str, Any]:
        raise NotImplementedError

    def _cells(self) -> list[list[str]]:
        """The names of the columns, then the rows, as texts."""
        columns = self._columns()
        rows = [[_short(value) for value in row] for row in zip(*columns.values(), strict=True)]
        if len(rows) > _SHOWN:
            rows = [*rows[: _SHOWN // 2], ["…"] * len(columns), *rows[-_SHOWN // 2 :]]
        return [[name.replace("_", " ") for name in columns], *rows]

    def _title(self) -> str:
        return f"{type(self).__name__}, {len(next(iter(self._columns().values())))} radii"

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in cells)
        return "\n  ".join([self._title(), *lines])

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        names = "".join(f'<th scope="col" style="text-align:right">{escape(name)}</th>' for name in head)
        cells = ("".join(f'<td style="text-align:right">{escape(text)}</td>' for text in row) for row in rows)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return _folded(self._title(), f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else cell_text(value)


def in_words(seconds: float) -> str:
    """12 s, 3 min, 2 h."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def bound_in_words(loss: str, risk: float) -> str:
    """Describe an upper bound on the expected loss of a classifier."""
    if loss == "zero_one":
        return (
            f"over every distribution in this set, the error rate of this classifier is at most {share_at_most(risk)} %"
        )
    if loss == "randomized_error":
        return (
            "over every distribution in this set, the expected error rate of the randomized rule is at most "
            f"{share_at_most(risk)} %"
        )
    return (
        f"over every distribution in this set, the expected {loss} of this classifier is at most {rounded_up(risk, 4)}"
    )


_PERCENT = "\N{NO-BREAK SPACE}%"


def percent(share: float, digits: int = 0) -> str:
    """A share as a percentage; never rounded to 0 % or 100 % unless it is."""
    text = f"{100 * share:.{digits}f}"
    least = 10.0**-digits
    if share > 0 and float(text) == 0:
        return f"under {least:g}{_PERCENT}"
    if share < 1 and float(text) == 100:
        return f"over {100 - least:g}{_PERCENT}"
    return f"{text}{_PERCENT}"


def in_percent(share: float) -> str:
    """A chosen share, such as a confidence level or a target, as a percentage with four digits."""
    return f"{100 * share:.4g} %"


def at_most(share: float) -> str:
    """An upper bound as a percentage, rounded up to a tenth."""
    return f"{share_at_most(share)}{_PERCENT}"


def at_least(share: float) -> str:
    """A lower bound as a percentage, rounded down to a tenth."""
    return f"{share_at_least(share)}{_PERCENT}"


def short_percent(share: float, *, up: bool = False) -> str:
    """A share as a percentage with at most one decimal; `up` rounds a bound up."""
    tenths = math.ceil(1000 * share - _ROUNDING) if up else round(1000 * share)
    return f"{tenths / 10:g}{_PERCENT}"


# Pages from Jinja2 templates: every value is escaped, and a template may use what it is given only.


def render(package: str, template: str, **values: Any) -> str:
    """Render a file of the folder `templates` of a package; it may use these values only."""
    return str(_template(package, template).render(values))


@cache
def _template(package: str, name: str) -> Any:
    return _environment(package).get_template(name)


@cache
def _environment(package: str) -> Any:
    jinja2 = import_extra("jinja2", "cli", "an HTML page")
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "at_least": at_least,
        "at_most": at_most,
        "percent": percent,
        "rounded_down": rounded_down,
        "rounded_up": rounded_up,
        "short_percent": short_percent,
        "thousands": "{:,}".format,
    }
    return made


def address(host: str, port: int) -> str:
    """The address for a browser."""
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"
