"""The report of a fit: one HTML file that needs no network.

`surefoot.pool.summary` gathers its numbers as plain data; the templates put them into words, tables and drawings.
"""

from surefoot._files import is_report
from surefoot.pool.report_contents import Report
from surefoot.pool.report_gather import build_report
from surefoot.report.page import render_report, write_report

__all__ = ["Report", "build_report", "is_report", "render_report", "write_report"]
