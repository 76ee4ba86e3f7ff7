"""Elements of HTML and SVG whose texts are escaped unless they are elements themselves."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = {"br", "col", "line", "circle", "rect", "path", "polyline"}


class Html(str):
    """A text that is HTML already. Only `el` and `join` make one from data; texts of the user never are one."""

    __slots__ = ()


def el(name: str, /, *children: str | Html, **attributes: object) -> Html:
    """An element; texts and attributes are escaped. class_ is class, aria_label is aria-label, None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{given}/>")
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Iterable[str | Html]) -> Html:
    """Children one after another, texts escaped."""
    return Html("".join(child if isinstance(child, Html) else escape(child, quote=True) for child in children))


def table(
    caption: str | Html,
    head: Iterable[str],
    rows: Iterable[Iterable[str | Html]],
    *,
    numeric: Iterable[int] = (),
    label: str | None = None,
) -> Html:
    """A table with a caption; the first cell of each row is its header. Wide ones scroll on their own, by keyboard too.

    numeric : columns that are set flush right; label : name of the scrolling region, by default the caption.
    """
    right = set(numeric)

    def cell(kind: str, i: int, text: str | Html, scope: str | None) -> Html:
        return el(kind, text, scope=scope, class_="num" if i in right else None)

    top = el("thead", el("tr", *[cell("th", i, text, "col") for i, text in enumerate(head)]))
    body = [
        el("tr", *[cell("td" if i else "th", i, text, None if i else "row") for i, text in enumerate(row)])
        for row in rows
    ]
    whole = el("table", el("caption", el("span", caption)), top, el("tbody", *body))
    return el("div", whole, class_="scroll", tabindex=0, role="region", aria_label=label or caption)
