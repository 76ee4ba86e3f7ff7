"""Results that print themselves as a short table, as text and in notebooks."""

from __future__ import annotations

from html import escape


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
