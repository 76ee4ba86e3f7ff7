"""Runs the ```python blocks of README.md and docs/*.md; a ```text block right after one is the output it must print."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from math import isclose
from pathlib import Path

import pytest
import sklearn

ROOT = Path(__file__).resolve().parents[1]
PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if page.exists()]

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w)")


@dataclass(frozen=True)
class Block:
    code: str
    line: int
    output: str | None


def blocks(text: str) -> list[Block]:
    """The blocks to run. Blocks marked "python no-run" are left out; any other mark on a python block is an error."""
    fences = list(FENCE.finditer(text))
    found = []
    for fence, following in zip(fences, [*fences[1:], None][: len(fences)], strict=True):
        language, *marks = fence["info"].split() or [""]
        if language != "python" or marks == ["no-run"]:
            continue
        line = text[: fence.start()].count("\n") + 1
        if marks:
            raise ValueError(f"line {line}: a python block is marked 'no-run' or not at all; got {marks}")
        printed = None
        if following is not None and not text[fence.end() : following.start()].strip():
            printed = following["body"] if following["info"].strip() == "text" else None
        found.append(Block(fence["body"], line, printed))
    return found


def difference(expected: str, printed: str) -> str | None:
    """What differs: words exactly, integers exactly, other numbers to 3 significant digits, white space not at all.

    Numbers with a negative exponent are gaps: how far below the tolerance a solver ends is not guaranteed, so they may
    differ by the default tolerance, 1e-4.
    """
    ours, theirs = (re.sub(r"\s+", " ", text).strip() for text in (expected, printed))
    if NUMBER.sub("#", ours) != NUMBER.sub("#", theirs):
        return f"expected\n{expected}\nprinted\n{printed}"
    for a, b in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
        exact = a.lstrip("+-").isdigit() and b.lstrip("+-").isdigit()
        slack = 1e-4 if "e-" in a else 1e-12
        if a != b and (exact or not isclose(float(a), float(b), rel_tol=5e-3, abs_tol=slack)):
            return f"expected the number {a}, printed {b}, in\n{printed}"
    return None


def run(text: str, name: str) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(text):
        # blank lines first: tracebacks then show the line of the page
        code = compile("\n" * block.line + block.code, name, "exec")
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, namespace)
        if block.output is not None:
            problem = difference(block.output, printed.getvalue())
            assert problem is None, f"{name}, block at line {block.line}: {problem}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a page may write files
    monkeypatch.setenv("MPLBACKEND", "agg")
    with sklearn.config_context():
        run(page.read_text(encoding="utf-8"), str(page))


def test_the_page_on_unlabeled_rows_is_run() -> None:
    page = ROOT / "docs" / "unlabeled-rows.md"
    assert page in PAGES
    checked = [block for block in blocks(page.read_text(encoding="utf-8")) if block.output is not None]
    assert len(checked) >= 6


class TestRunner:
    """The checks above must be able to fail."""

    def test_shares_one_namespace_and_compares(self) -> None:
        page = "```python\na = 2 / 3\n```\nwords\n```python\nprint('a =',\n      a)\n```\n\n```text\na  = 0.667\n```\n"
        run(page, "page")
        with pytest.raises(AssertionError, match=r"page, block at line 5: expected the number 0\.677"):
            run(page.replace("0.667", "0.677"), "page")

    def test_marks(self) -> None:
        run("```python no-run\nraise SystemExit\n```\n```bash\nrm\n```\n", "page")
        with pytest.raises(ZeroDivisionError):
            run("```python\n1 / 0\n```\n", "page")
        with pytest.raises(ValueError, match=r"line 2: .*'norun'"):
            run("\n```python norun\n1 / 0\n```\n", "page")

    def test_output_must_follow_at_once(self) -> None:
        run("```python\nprint(1)\n```\n\nOther numbers:\n\n```text\n2\n```\n", "page")

    @pytest.mark.parametrize(
        ("expected", "printed"),
        [("risk 0.5", "risk 0.51"), ("20 rows", "21 rows"), ("20 rows", "20 row"), ("", "x"), ("x", ""), ("1 2", "1")],
    )
    def test_differences_are_seen(self, expected: str, printed: str) -> None:
        assert difference(expected, printed)

    @pytest.mark.parametrize(
        ("expected", "printed"),
        [("risk  0.5\n", "risk 0.50009"), ("[1e-05, 2.]", "[1.001e-5,\n 2.0]"), ("x1 -0.25", "x1 -0.2504")],
    )
    def test_equals_are_seen(self, expected: str, printed: str) -> None:
        assert difference(expected, printed) is None
