"""The report of a fit: one HTML file that needs no network.

Three steps: `gather` takes numbers from a fitted model into the plain data of `contents`, `charts` draws them, `page`
puts them into words and HTML.
"""

from surefoot.pool.next_rows import rows_to_label
from surefoot.pool.summary.certified import certified_error
from surefoot.pool.summary.contents import Report
from surefoot.pool.summary.gather import build_report
from surefoot.report.page import is_report, render_report, write_report

__all__ = ["Report", "build_report", "certified_error", "is_report", "render_report", "rows_to_label", "write_report"]
