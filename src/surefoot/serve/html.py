"""Elements that the report has no need of, and pieces that several pages share."""

from __future__ import annotations

from surefoot.report.html import Html, el, join

__all__ = ["Html", "el", "join", "percent", "void"]


def void(name: str, /, **attributes: object) -> Html:
    """An element without an end: img, input, link, meta."""
    return Html(el(name, **attributes).removesuffix(f"</{name}>"))


def percent(share: float, *, up: bool = False) -> str:
    """A share as a percentage with one decimal; `up` rounds a bound up."""
    from math import ceil

    tenths = ceil(1000 * share - 1e-9) if up else round(1000 * share)
    return f"{tenths / 10:g}\N{NO-BREAK SPACE}%"
