"""What reads well in a checkout, made to read well on the site.

Files name each other by file names, docstrings name pages as docs/solver.md and other names between backticks. Here a
link that is only a file name shows the title of its page, docstrings link to pages and to public names, and numbers in
tables are kept on one line.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from public_names import names_by_module

FILE_NAME = re.compile(r"[\w/-]+\.md")
PAGE_IN_DOCSTRING = re.compile(r"\bdocs/([\w/-]+)\.md\b")
NUMBERS = re.compile(r"[-+\d.,e%×/≤≥ ()\[\]\N{EN DASH}\N{MINUS SIGN}]+")  # noqa: RUF001 - signs of tables


def linked_names() -> dict[str, str]:
    """Full names of public objects, by what docstrings call them; words that do not look like names are left out."""
    found = {}
    for module, names in names_by_module().items():
        for name in names:
            called = [f"{module}.{name}", f"{module}.{name}".replace("surefoot", "sf", 1)]
            called += [f"{module.partition('.')[2]}.{name}"] if module != "surefoot" else []
            called += [name] if "_" in name or name != name.lower() else []
            found |= dict.fromkeys(called, f"{module}.{name}")
    return found


def name_role(
    _name: str,
    rawtext: str,
    text: str,
    _lineno: int,
    _inliner: Any,
    _options: Any = None,
    _content: Any = None,
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Text between single backticks: code, and a link where it is a public name."""
    literal = nodes.literal(rawtext, text)
    target = NAMES.get(text.removesuffix("()"))
    if target is None:
        return [literal], []
    keys = {"refdomain": "py", "reftype": "obj", "reftarget": target, "refexplicit": True, "refwarn": True}
    return [addnodes.pending_xref(rawtext, literal, **keys)], []


def link_pages(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Turn docs/solver.md in a docstring into a link that shows the title of the page."""
    lines[:] = [PAGE_IN_DOCSTRING.sub(r":doc:`/\1`", line) for line in lines]


def polish(_app: Sphinx, doctree: nodes.document) -> None:
    """Let links that are file names show titles, and mark the cells of tables that hold numbers."""
    for link in doctree.findall(addnodes.pending_xref):
        if link.get("refdomain") == "doc" and FILE_NAME.fullmatch(link.astext()):
            link["refexplicit"] = False
    for cell in doctree.findall(nodes.entry):
        if NUMBERS.fullmatch(cell.astext()):
            cell["classes"].append("number")


NAMES = linked_names()


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_role("name", name_role)
    app.connect("autodoc-process-docstring", link_pages, priority=400)  # before numpydoc takes the docstring apart
    app.connect("doctree-read", polish)
    return {"parallel_read_safe": True}
