"""The page: valid, escaped, self-contained, readable by machines that read aloud, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from report.cases import HOSTILE, SECTIONS
from surefoot._errors import FileError
from surefoot._printing import _environment, at_least, at_most, percent
from surefoot.report import Axis, Report, render_report, write_report

VOID = {"meta", "link", "line", "circle", "rect", "path", "polyline", "br"}
NAMES = ["two", "tied", "four"]


class Outline(HTMLParser):
    """Tags in order; a tag closed out of order is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.paths: list[tuple[str, ...]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in <{tag}>"
        self.tags.append((tag, dict(attrs)))
        self.paths.append((*self.open, tag))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, *names: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag in names]


@pytest.fixture(params=NAMES)
def outline(request: pytest.FixtureRequest, reports: dict[str, Report]) -> Outline:
    return Outline(render_report(reports[request.param]))


def test_every_section_is_there(outline: Outline) -> None:
    assert [attributes["id"] for attributes in outline.all("section")] == SECTIONS
    assert len(outline.all("main")) == len(outline.all("nav")) == len(outline.all("header")) == 1


def test_ids_are_unique_and_references_resolve(outline: Outline) -> None:
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [name for _, a in outline.tags for name in (a.get("aria-labelledby") or "").split()]
    links = [a["href"] or "" for a in outline.all("a")]
    assert {*named, *[link[1:] for link in links]} <= set(ids)
    assert all(link.startswith("#") for link in links)


def test_headings_go_down_one_level_at_a_time(outline: Outline) -> None:
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_tables_and_drawings_speak(outline: Outline) -> None:
    tables, captions = outline.all("table"), outline.all("caption")
    assert len(tables) == len(captions) > 4
    assert all(a.get("scope") in ("col", "row") for a in outline.all("th"))
    drawings = [a for a in outline.all("svg") if a.get("role") == "img"]
    assert len(drawings) == len(outline.all("desc")) == 2 * 5
    assert all(a.get("aria-labelledby") for a in drawings)
    # a region that scrolls can be reached by the keyboard and has a name
    assert all(
        a.get("tabindex") == "0" and a.get("aria-label") for a in outline.all("div") if a.get("role") == "region"
    )
    assert outline.all("html")[0]["lang"] == "en"


def test_nothing_is_loaded_and_nothing_runs(outline: Outline) -> None:
    assert not outline.all("script", "iframe", "object", "embed", "img", "form")
    for tag, attributes in outline.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "action", "srcset", "style"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,", (tag, name, value)
    style = "".join(data for tag, data in outline.texts if tag == "style")
    assert "@import" not in style
    assert re.findall(r"url\((.*?)\)", style) == ["#hatch"]


def test_texts_of_the_user_stay_texts(outline: Outline) -> None:
    assert any(HOSTILE in data for _, data in outline.texts)
    assert any("<b>east</b>" in data for _, data in outline.texts)
    assert any("3 missing values of <a> replaced" in data for _, data in outline.texts)


@given(st.text(), st.text())
def test_templates_escape_any_text(text: str, value: str) -> None:
    template = _environment("surefoot.report").from_string('<p title="{{ value }}">{{ text }}</p>')

    def read(html: str) -> tuple[str, str | None]:
        outline = Outline(html)
        assert [tag for tag, _ in outline.tags] == ["p"]
        return "".join(data for _, data in outline.texts), outline.tags[0][1]["title"]

    # the parser turns no control character or line end into another one, so the round trip is exact
    assert read(template.render(text=text, value=value)) == (text, value)


def test_a_name_that_the_context_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="titel"):
        _environment("surefoot.report").from_string("{{ titel }}").render(title="")


def with_head(report: Report, **texts: str) -> Report:
    return replace(report, head=replace(report.head, **texts))


def test_title_and_file_are_escaped(reports: dict[str, Report]) -> None:
    hostile = with_head(reports["two"], title=HOSTILE, source=HOSTILE, label_name=HOSTILE, created="</p><script>")
    page = render_report(hostile)
    assert "<script" not in page.lower()
    assert "<img" not in page.lower()


def test_a_dollar_sign_in_the_data_is_no_placeholder(reports: dict[str, Report]) -> None:
    title = "price in $style or ${links}"
    assert title in render_report(with_head(reports["two"], title=title))


def test_write_replaces_a_file_in_one_piece(tmp_path: Path, reports: dict[str, Report]) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)
    assert write_report(path, reports["two"]) == path
    assert path.read_text(encoding="utf-8") == render_report(reports["two"])
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, reports: dict[str, Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")

    def full(_number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left"):
        write_report(path, reports["two"])
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_follows_the_umask(tmp_path: Path, reports: dict[str, Report]) -> None:
    before = os.umask(0o027)
    try:
        path = write_report(tmp_path / "report.html", reports["two"])
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


@given(st.floats(0, 1))
def test_percentages_are_honest(share: float) -> None:
    number = {
        name: float(f(share).split("\N{NO-BREAK SPACE}")[0]) / 100 for name, f in [("up", at_most), ("down", at_least)]
    }
    assert number["down"] <= share + 1e-12
    assert number["up"] >= share - 1e-12
    assert number["up"] - number["down"] <= 0.0011
    assert (percent(share).startswith("0\N{NO-BREAK SPACE}")) == (share == 0)
    assert (percent(share).startswith("100")) == (share == 1)


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.integers(2, 9))
def test_axes_cover_their_range_with_few_round_ticks(low: float, width: float, most: int) -> None:
    axis = Axis.rounded(low, low + width, most, 0.0, 100.0)
    ticks = axis.ticks()
    assert axis.low <= low + 1e-6 * width
    assert axis.high >= low + width * (1 - 1e-6)
    assert 2 <= len(ticks) <= most + 3
    assert axis(axis.low) == 0
    assert axis(axis.high) == 100


@given(st.floats(1e-6, 1e3), st.floats(3, 1e6), st.integers(3, 9))
def test_log_ticks_are_inside(low: float, ratio: float, most: int) -> None:
    axis = Axis(low, low * ratio, 0.0, 1.0, log=True)
    assert all(0 <= axis(tick) <= 1 for tick in axis.ticks(most))
