"""The index of the API reference, written at each build from the list of public names."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

from public_names import RESULTS, names_by_module

# What the names of `surefoot` itself are for, by the room that defines them.
TOPICS = {
    "estimators": "Learning",
    "certification": "Certificates",
    "certificates": "Certificates",
    "bounds": "Bounds from labels, and audits",
    "radius": "The radius",
    "calibration": "The radius",
    "path": "The radius",
}
OTHERS = "Rows, solvers and errors"
TITLE = "API reference"
INTRODUCTION = """
Every public name, with its parameters one by one. ``import surefoot as sf`` gives the first groups; the others are
modules of their own. All other names are private, and may change between any two versions.
"""


def topic(value: Any) -> str:
    """Return the heading for a name of `surefoot` itself."""
    return TOPICS.get(value.__module__.split(".")[1], OTHERS)


def index_page() -> str:
    """The text of the index: a table of names per topic of `surefoot` and per other public module."""
    sections: dict[str, list[str]] = {title: [] for title in [*dict.fromkeys(TOPICS.values()), OTHERS]}
    introductions: dict[str, str] = {}
    for module, names in names_by_module().items():
        if module != "surefoot":
            introductions[module] = (inspect.getdoc(importlib.import_module(module)) or "").partition("\n")[0]
        for name, value in names.items():
            sections.setdefault(topic(value) if module == "surefoot" else module, []).append(f"{module}.{name}")
    sections["Results"] = RESULTS
    lines = [TITLE, "=" * len(TITLE), INTRODUCTION]
    for title, names_listed in sections.items():
        heading = f"``{title}``" if title in introductions else title
        lines += [heading, "-" * len(heading), "", introductions.get(title, "").replace("`", "``"), ""]
        lines += [".. autosummary::", "   :toctree: generated", "   :nosignatures:", ""]
        lines += [f"   ~{name}" for name in names_listed] + [""]
    return "\n".join(lines)


def write_index(app: Sphinx, _config: Config) -> None:
    """Write the page, unless it is the same already: Sphinx then need not read it again."""
    path = Path(app.srcdir) / "api" / "index.rst"
    path.parent.mkdir(exist_ok=True)
    text = index_page()
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def not_ours(_app: Sphinx, _what: str, name: str, member: Any, skip: bool, _options: Any) -> bool | None:
    """Leave out what a class inherits from other packages: their own pages describe it."""
    if isinstance(member, property):
        member = member.fget
    member = inspect.unwrap(getattr(member, "func", getattr(member, "__func__", member)))
    module = getattr(member, "__module__", None) or ""
    return True if skip or name.startswith("_") or not module.startswith("surefoot") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("config-inited", write_index)  # before Sphinx looks for pages
    app.connect("autodoc-skip-member", not_ours)
    return {"parallel_read_safe": True}
