"""The page as a browser shows it: light and dark, narrow and wide, by keyboard and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from report.browser import Browser, Page
from report.cases import SECTIONS
from surefoot.report import Report, write_report

NAMES = ["two", "tied", "four"]

# Least contrast, over all visible texts, of a text's colour against the ground behind it (WCAG 2).
CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = c => [0, 1, 2].map(i => c[i] / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  let worst = [99, ''];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
    if (element.matches('title, desc, .skip')) continue;
    const style = getComputedStyle(element);
    let ground = element;
    while (ground && rgba(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
    const front = light(rgba(element.closest('svg') ? style.fill : style.color));
    const back = light(rgba(ground ? getComputedStyle(ground).backgroundColor : 'white'));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < worst[0]) worst = [ratio, walker.currentNode.data];
  }
  return worst;
})()
"""

# Texts of the drawings that are shown: those that overlap, or leave their drawing.
CROWDED = """
(() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg.chart')) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    texts.forEach(([name, box], i) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1
          || box.top < frame.top - 1) found.push(name + ' is cut off');
      texts.slice(i + 1).forEach(([other, b]) => {
        if (box.left < b.right && b.left < box.right && box.top + 2 < b.bottom && b.top + 2 < box.bottom)
          found.push(name + ' / ' + other);
      });
    });
  }
  return found;
})()
"""


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory, reports: dict[str, Report]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    return {name: write_report(folder / f"{name}.html", report) for name, report in reports.items()}


@pytest.fixture(params=[(name, width, dark) for name in NAMES for width in (360, 1200) for dark in (False, True)])
def page(request: pytest.FixtureRequest, chromium: Browser, paths: dict[str, Path]) -> Iterator[Page]:
    name, width, dark = request.param
    page = chromium.open(paths[name], width=width, dark=dark)
    yield page
    page.close()


def test_shown_whole_and_quiet(page: Page) -> None:
    width = page.evaluate("innerWidth")
    assert page.complaints() == []
    assert [url.split("/")[-1] in ("two.html", "tied.html", "four.html") for url in page.requests()] == [True]
    assert page.requests()[0].startswith("file:")
    assert page.evaluate("window.hacked") is None
    heights = page.evaluate("[...document.querySelectorAll('section')].map(s => [s.id, s.offsetHeight])")
    assert [name for name, height in heights if height > 60] == SECTIONS
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shown = page.evaluate(
        "[...document.querySelectorAll('svg.chart')].filter(s => s.getBoundingClientRect().width).length"
    )
    assert shown == 5
    assert page.evaluate(CROWDED) == []
    ratio, text = page.evaluate(CONTRAST)
    assert ratio >= 4.5, text
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(19, 23, 29)" if dark else "rgb(255, 255, 255)")


def test_a_request_and_a_message_would_be_noticed(chromium: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text('<p>x</p><img src="http://outside.invalid/x.png"><script>console.error("no")</script>', "utf-8")
    page = chromium.open(bad)
    assert "http://outside.invalid/x.png" in page.requests()
    assert page.complaints()
    page.close()


def test_keyboard_reaches_the_report_the_tables_and_the_numbers(chromium: Browser, paths: dict[str, Path]) -> None:
    page = chromium.open(paths["two"], width=360)
    page.press("Tab", 9)
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    page.press("Enter", 13)
    assert page.evaluate("document.activeElement.id") == "main"
    seen = set()
    for _ in range(40):
        page.press("Tab", 9)
        seen.add(page.evaluate("document.activeElement.tagName"))
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    assert {"DIV", "SUMMARY"} <= seen
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("Enter", 13)
    assert page.evaluate("document.activeElement.parentElement.open") is True
    page.close()


def test_paper_is_white_without_navigation(chromium: Browser, paths: dict[str, Path], tmp_path: Path) -> None:
    page = chromium.open(paths["four"], dark=True, media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    ratio, text = page.evaluate(CONTRAST)
    assert ratio >= 4.5, text
    page.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")
    page.close()
