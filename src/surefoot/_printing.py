"""Numbers, tables and cells as text, results that print themselves, and pages from Jinja2 templates."""

from __future__ import annotations

import math
import re
import socket
from functools import cache
from html import escape
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
    """A cell as a text of one line: numbers to 6 digits, a missing value as a dash, cut where it is too long."""
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
    """A text of at most so many characters, for a message."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


class PrintsAsTable:
    """Text and HTML of a result that lists its rows, a name and a text each."""

    def _rows(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    def _title(self) -> str:
        """What the rows are headed by."""
        return type(self).__name__

    def __repr__(self) -> str:
        return self._title() + "\n" + "\n".join(f"  {name:<16}{text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        named: list[tuple[str, list[str]]] = []  # a row without a name goes on with the one before
        for name, text in self._rows():
            if name or not named:
                named.append((name, []))
            named[-1][1].append(text)
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left;vertical-align:top;white-space:nowrap">{escape(name)}</th>'
            f'<td style="text-align:left">{"<br>".join(map(escape, texts))}</td></tr>'
            for name, texts in named
        )
        return f"<table>{_caption(self._title())}<tbody>{cells}</tbody></table>"


def _caption(title: str) -> str:
    """The title of a table, in the colour of the notebook."""
    return (
        '<caption style="caption-side:top;text-align:left;white-space:nowrap;font-weight:bold;color:inherit">'
        f"{escape(title)}</caption>"
    )


# Far above what float64 loses in a product: 0.07 is 7.0 %, not 7.1 %.
_ROUNDING = 1e-9


def rounded_up(value: float, digits: int) -> str:
    """An upper bound to so many digits, never below it."""
    scale = 10**digits
    return f"{math.ceil(value * scale - _ROUNDING) / scale:.{digits}f}" if math.isfinite(value) else f"{value}"


def rounded_down(value: float, digits: int) -> str:
    """A lower bound to so many digits, never above it."""
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
        return f"<table>{_caption(self._title())}<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else cell_text(value)


def bound_in_words(loss: str, risk: float) -> str:
    """Describe an upper bound on the expected loss of a classifier."""
    if loss == "zero_one":
        return (
            f"over every distribution in this set, the error rate of this classifier is at most {share_at_most(risk)} %"
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
