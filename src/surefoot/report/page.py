"""The page: sections put into the template, with the style sheet inside, and written in one piece."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from string import Template

from surefoot._files import write_bytes
from surefoot.pool.summary.contents import Report
from surefoot.report import sections
from surefoot.report.first_words import opening_section, weights_section
from surefoot.report.html import Html, el, join

_SECTIONS = {
    "short": ("In short", opening_section),
    "warnings": ("Warnings", sections.warnings_section),
    "promise": ("Assumptions", sections.promise_section),
    "weights": ("Columns", weights_section),
    "certificate": ("Certificate", sections.certificate_section),
    "radius": ("Radius", sections.radius_section),
    "confidence": ("Confidence", sections.confidence_section),
    "adversary": ("Worst case", sections.adversary_section),
    "next": ("Label next", sections.next_section),
    "data": ("Data", sections.data_section),
}


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
    folder = files("surefoot.report")
    head = report.head
    links = [el("li", el("a", _link_text(report, key, name), href=f"#{key}")) for key, (name, _) in _SECTIONS.items()]
    facts = [
        ("Label column", head.label_name),
        *([("File", head.source)] if head.source else []),
        ("Rows", f"{report.data.n_labeled:,} labeled, {_unlabeled(report)} unlabeled"),
        ("Classes", f"{len(report.classes)}"),
    ]
    return Template((folder / "template.html").read_text(encoding="utf-8")).substitute(
        title=join([head.title]),
        style=(folder / "style.css").read_text(encoding="utf-8"),
        facts=join([el("div", el("dt", name), el("dd", value)) for name, value in facts]),
        links=join(links),
        sections=join([build(report) for _, build in _SECTIONS.values()]),
        foot=join(_foot(report)),
    )


def _unlabeled(report: Report) -> str:
    """How many rows the page looks at, and of how many."""
    shown, pool = report.data.n_unlabeled, report.head.n_pool
    return f"{shown:,}" if pool is None or pool == shown else f"{shown:,} of {pool:,}"


def _link_text(report: Report, key: str, name: str) -> str:
    return f"{name} ({len(report.cautions)})" if key == "warnings" and report.cautions else name


def _foot(report: Report) -> list[Html | str]:
    head = report.head
    when = f" on {head.created}" if head.created else ""
    made = f"Made by surefoot {head.version}{when}, seed {head.seed}"
    if not head.command:
        return [f"{made}. This file loads nothing from the network."]
    return [f"{made}, by ", el("code", head.command), ". This file loads nothing from the network."]


def is_report(path: Path) -> bool:
    """Whether a file is a report of surefoot, by what its head says.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    bool
        True for a page that `write_report` wrote.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder) / "page.html"
    ...     _ = page.write_text("<html></html>")
    ...     is_report(page)
    False
    """
    with path.open("rb") as file:
        return b'<meta name="generator" content="surefoot">' in file.read(4096)


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
