"""The page of a report, written in one piece."""

from __future__ import annotations

import os
from pathlib import Path

from surefoot._files import write_bytes
from surefoot._templates import render
from surefoot.pool.summary.contents import Report
from surefoot.report import charts


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
    guessing = report.promise.guessing
    return render(
        "surefoot.report",
        "report.html",
        report=report,
        bar=charts.certificate_bar(report.bounds, guessing),
        over_radius=charts.radius_lines(report.radius, report.promise.risk, guessing),
        confidence_over_radius=charts.confidence_line(report.radius),
        histogram=charts.histogram(report.confidence.bins),
    )


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
