"""Results that print themselves as a short table, as text and in notebooks."""

from __future__ import annotations

import re
from html import escape
from typing import Any

import numpy as np

# What a terminal acts on instead of showing it: control characters, marks that turn the direction of a line, separators
# of lines and paragraphs, and halves of characters that no encoding can write.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str, *, lines: bool = False) -> str:
    """A text from a file as it may be printed: what a terminal would act on is written out; `lines` keeps line ends."""
    return _UNSEEN.sub(lambda found: found[0] if lines and found[0] == "\n" else _written_out(found[0]), text)


def _written_out(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(character)
    return named.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def cell_text(value: Any, longest: int | None = None) -> str:
    """A cell as a text of one line: numbers to 6 digits, a missing value as a dash, cut where it is too long."""
    is_number = isinstance(value, float | np.floating)
    if value is None or (is_number and np.isnan(value)):
        return "\N{EN DASH}"
    text = f"{value:.6g}" if is_number else visible(" ".join(str(value).split()))
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


class Printed:
    """Text and HTML of a result that lists its rows, a name and a text each."""

    def _rows(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__ + "\n" + "\n".join(f"  {name:<16}{text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self._rows()
        )
        return f"<table><caption>{type(self).__name__}</caption><tbody>{cells}</tbody></table>"


def bound_in_words(loss: str, risk: float) -> str:
    """What an upper bound on a loss says of a classifier."""
    if loss == "zero_one":
        return f"over every distribution in this set, this classifier errs on at most {100 * risk:.1f} %"
    return f"over every distribution in this set, the expected {loss} of this classifier is at most {risk:.6g}"
