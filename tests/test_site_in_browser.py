"""The site as it is read, where `scripts/docs` has built it: on a phone and a desk, with nothing from other hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from report.browser import Browser
from report.conftest import chromium  # noqa: F401 - a fixture
from test_docs import ROOT

SITE = ROOT / "docs" / "_build" / "html"
# One page of each kind: cards, tables, code, examples, an index, a class, a function.
PAGES = [
    "index.html",
    "guide.html",
    "cost.html",
    "auto_examples/index.html",
    "auto_examples/plot_05_learn_freeze_prove.html",
    "api/index.html",
    "api/generated/surefoot.WassersteinLogisticRegression.html",
    "api/generated/surefoot.certify.html",
]
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.skipif(not SITE.exists(), reason="scripts/docs has not built the site")
@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_page(chromium: Browser, name: str, width: int) -> None:  # noqa: F811 - the fixture
    page = chromium.open(SITE / Path(name), width=width, dark=width < 500)
    assert [url for url in page.requests() if not url.startswith(("file:", "data:"))] == []
    assert [c for c in page.complaints() if c.get("type") != "log"] == []  # the theme talks to the console
    assert page.evaluate(OVERFLOW) == 0
    page.close()
