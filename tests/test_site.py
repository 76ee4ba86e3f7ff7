"""What the site, the README and the package's data say agrees with the code, where no build is needed to see it."""

from __future__ import annotations

import functools
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from docutils import nodes
from docutils.utils import new_document
from sphinx import addnodes

import surefoot as sf
from api_pages import index_page
from public_names import RESULTS, names_by_module
from readable import NAMES, link_pages, polish
from site_check import faults, slowest_example
from surefoot._errors import DOCUMENTATION, HELP, import_extra, see
from test_doc_names import headings
from test_docs import FENCE, PAGES, ROOT

DOCS = ROOT / "docs"


def in_toctrees() -> list[Path]:
    """Pages that a toctree of another page lists."""
    found = []
    for page in DOCS.rglob("*.md"):
        for fence in FENCE.finditer(page.read_text(encoding="utf-8")):
            if fence["info"] == "{toctree}":
                entries = [line for line in fence["body"].splitlines() if line and line[0] != ":"]
                names = [re.sub(r".*<(.*)>", r"\1", entry) for entry in entries]
                found += [page.parent / f"{name}.md" for name in names]
    return found


def test_every_page_stands_in_one_toctree() -> None:
    listed = [path for path in in_toctrees() if path.parent.name not in {"api", "auto_examples"}]
    pages = {page for page in PAGES if page.is_relative_to(DOCS)} - {DOCS / "index.md"}
    assert sorted(listed) == sorted(pages)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_pictures_of_the_readme_are_on_the_site_too() -> None:
    """The page of the package on PyPI takes them from there."""
    shown = re.findall(r"!\[[^\]]*\]\(docs/images/([\w.-]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    on_pages = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.is_relative_to(DOCS))
    assert shown
    assert [name for name in shown if not re.search(rf"\]\((\.\./)?images/{re.escape(name)}\)", on_pages)] == []


@pytest.mark.parametrize("topic", HELP)
def test_messages_lead_to_a_page(topic: str) -> None:
    name, _, heading = HELP[topic].partition("#")
    page = DOCS / Path(name).with_suffix(".md")
    assert page.exists()
    assert not heading or heading in headings(page.read_text(encoding="utf-8"))
    assert see(topic).endswith(f"{DOCUMENTATION}/{HELP[topic]}")


def test_errors_name_their_page() -> None:
    assert str(sf.InfeasibleRadiusError(0.1, 0.2)).endswith(see("radius"))
    with pytest.raises(ImportError, match=re.escape(see("extras"))):
        import_extra("no_such_package_anywhere", "cli", "this")
    with pytest.warns(sf.UnlabeledRowsWarning, match=re.escape(see("unlabeled rows"))):
        sf.RobustLogisticRegression(radius=1.0).fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.2], [0.8]])


def test_the_tables_of_the_cost_page_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    made = runpy.run_path(str(ROOT / "benchmarks" / "cost_tables.py"))
    with_tables = functools.partial(made["with_tables"], make=made["make_table"])
    text = (DOCS / "cost.md").read_text(encoding="utf-8")
    assert with_tables(text) == text, "run python benchmarks/cost_tables.py"
    assert set(re.findall(r"<!-- table: ([\w-]+) -->", text)) == set(made["TABLES"])
    # and a figure changed by hand is seen
    assert with_tables(text.replace("| 0.91 |", "| 0.81 |")) == text != text.replace("| 0.91 |", "| 0.81 |")
    sys.modules.pop("scaling", None)


def test_the_tables_of_the_finish_page_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    made = runpy.run_path(str(ROOT / "benchmarks" / "finish.py"))
    text = (DOCS / "finish.md").read_text(encoding="utf-8")
    assert made["with_tables"](text, made["make_table"]) == text, "run python benchmarks/finish.py"
    assert text.count("<!-- table: ") == 2


def test_every_extra_is_described_and_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"test", "docs", "dev"}
    assert extras <= set(re.findall(r"^\| `(\w+)` \|", (DOCS / "start.md").read_text(encoding="utf-8"), re.MULTILINE))
    tried = re.search(r"extras=\(none ([\w ]+)\)", (ROOT / "scripts" / "release-check").read_text(encoding="utf-8"))
    assert tried is not None
    assert extras == set(tried[1].split())


def test_the_version_stands_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {sf.__version__}\n" in citation
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = re.search(rf"^## \[{re.escape(sf.__version__)}\] - (\d{{4}}-\d\d-\d\d)$", changes, re.MULTILINE)
    assert dated is not None
    assert f"\ndate-released: {dated[1]}\n" in citation


def test_the_api_reference_lists_every_public_name_once() -> None:
    listed = re.findall(r"^   ~(\S+)$", index_page(), re.MULTILINE)
    public = [f"{module}.{name}" for module, names in names_by_module().items() for name in names]
    assert sorted(listed) == sorted([*public, *RESULTS])
    assert len(public) <= 80  # a new name earns its place, or replaces one
    assert not [name for name in listed if "._" in name]


class TestReadable:
    """What the site makes of file names, docstrings and tables."""

    def test_public_names_are_linked(self) -> None:
        assert NAMES["calibrate_radius"] == NAMES["sf.calibrate_radius"] == "surefoot.calibrate_radius"
        assert NAMES["costs.LearnedMetric"] == NAMES["LearnedMetric"] == "surefoot.costs.LearnedMetric"
        assert "shift" not in NAMES  # also a word
        assert NAMES["sf.shift"] == "surefoot.shift"

    def test_pages_named_by_docstrings_are_linked_and_exist(self) -> None:
        lines = ["It is (docs/solver.md).", "No page."]
        link_pages(None, "", "", None, None, lines)
        assert lines == ["It is (:doc:`/solver`).", "No page."]
        named = [
            name
            for path in (ROOT / "src").rglob("*.py")
            for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text("utf-8"))
        ]
        assert len(named) > 10
        assert [name for name in named if not (ROOT / name).exists()] == []

    def test_file_names_give_way_to_titles_and_numbers_are_marked(self) -> None:
        doctree = new_document("page")
        texts = ["certificates.md", "reproduction/README.md", "how to certify"]
        links = [
            addnodes.pending_xref("", nodes.inline(text, text), refdomain="doc", refexplicit=True) for text in texts
        ]
        doctree += nodes.paragraph("", "", *links)
        cells = [nodes.entry("", nodes.paragraph(text, text)) for text in ("2.05e-05", "0.8 / 0.5", "–", "n = 20")]
        doctree += nodes.row("", *cells)
        polish(None, doctree)
        assert [link["refexplicit"] for link in links] == [False, False, True]
        assert [cell["classes"] for cell in cells] == [["number"], ["number"], ["number"], []]


class TestSiteCheck:
    def test_a_sound_site_has_no_faults(self, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        (tmp_path / "index.html").write_text(
            '<a href="other/#here"></a><a href="https://example.org"></a><img src="a.png"><a href="#top"></a>', "utf-8"
        )
        (tmp_path / "a.png").touch()
        (tmp_path / "other" / "index.html").write_text('<p id="here"><a href="../index.html">', "utf-8")
        (tmp_path / "a.css").write_text("@font-face { src: url(data:font/woff2;base64,AA) }", "utf-8")
        assert faults(tmp_path) == []

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ('<a href="none.html">', "'none.html' leads nowhere"),
            ('<a href="#none">', "'#none' leads nowhere"),
            ('<img src="none.png">', "'none.png' leads nowhere"),
            ('<script src="https://cdn.example/x.js"></script>', "fetches https://cdn.example/x.js"),
            ('<link rel="stylesheet" href="//fonts.example/x.css">', "fetches //fonts.example/x.css"),
            ('<img srcset="http://a.example/x.png 2x">', "fetches http://a.example/x.png"),
            ('<p style="background: url(http://a.example/x.png)">', "fetches http://a.example/x.png"),
            ("<style>@import 'https://a.example/x.css'</style>", "fetches https://a.example/x.css"),
        ],
    )
    def test_faults_are_found(self, tmp_path: Path, text: str, fault: str) -> None:
        (tmp_path / "index.html").write_text(text, encoding="utf-8")
        assert faults(tmp_path) == [f"index.html: {fault}"]

    def test_style_sheets_are_read(self, tmp_path: Path) -> None:
        (tmp_path / "a.css").write_text("p { background: url('https://a.example/x.png') }", encoding="utf-8")
        assert faults(tmp_path) == ["a.css: fetches https://a.example/x.png"]

    def test_a_path_of_the_machine_is_found(self, tmp_path: Path) -> None:
        (tmp_path / "index.html").write_text(f"<p>{tmp_path}/examples/plot_01.py:30: UserWarning</p>", "utf-8")
        assert faults(tmp_path, tmp_path) == [f"index.html: names the folder {tmp_path}"]
        assert faults(tmp_path) == []

    def test_the_slowest_example_is_named(self, tmp_path: Path) -> None:
        assert slowest_example(tmp_path) is None
        (tmp_path / "auto_examples").mkdir()
        for name, time in (("plot_a", "0 minutes 7.561"), ("plot_b", "1 minutes 2.000")):
            text = f"<strong>Total running time of the script:</strong> ({time} seconds)"
            (tmp_path / "auto_examples" / f"{name}.html").write_text(text, encoding="utf-8")
        assert slowest_example(tmp_path) == "plot_b, 62.0 s"
