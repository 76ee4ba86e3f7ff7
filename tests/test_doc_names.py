"""Every name in the inline code of README.md, CONTRIBUTING.md and docs/**/*.md exists.

A dotted name is one of

- `surefoot.x.y` or `sf.x.y`; `room.module.name`, the same without `surefoot`; or what an import of the page names;
- `Class.attribute`, of any class of ours;
- `certificate_.risk`: an attribute of an object that OBJECTS lists by the name that the pages give it;
- a name of an installed package, such as `torch.autocast`;
- a file name: one that ends in a suffix of FILES. A path that begins with a folder of ours exists.

Anything else is an error, so that a name whose module was renamed cannot pass for one that is none of ours. A name
without a dot, in snake_case_ or CamelCase, is a word of our code. A relative link leads to a file and its heading.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from numpydoc.docscrape import ClassDoc

import surefoot as sf
from surefoot.active.flexibility import LabelFlexibility
from test_docs import FENCE, PAGES, ROOT

OBJECTS: dict[str, type] = {
    "certificate": sf.Certificate,
    "certificate_": sf.Certificate,
    "clf": sf.RobustLogisticRegression,
    "found": LabelFlexibility,
    "fresh": sf.FreshCertificate,
    "network": torch.nn.Module,
    "worst_case": sf.WorstCase,
    "worst_case_": sf.WorstCase,
}
FILES = {"cff", "csv", "db", "html", "json", "jsonl", "md", "npz", "png", "py", "skops", "toml", "yml", "zip"}
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} & {
    ".ci",
    "benchmarks",
    "docs",
    "scripts",
    "src",
    "tests",
}

INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
DOTTED = re.compile(r"(?<![\w./\-~)\]])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
WORD = re.compile(r"(?<![\w./\-])(?:[A-Za-z]\w*_\w*|[A-Z]+[a-z]+[A-Z]\w*)(?![\w.…])")
LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(#[^)\s]*)?\)")


def strays(text: str, page: Path) -> list[str]:
    """Names and links of a page that lead nowhere, each with its line."""
    prose = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    aliases = {"sf": "surefoot", **dict(imported_as(text))}
    found = []
    for number, line in enumerate(prose.splitlines(), 1):
        for code in INLINE.findall(line):
            wrong = [f"{path!r} is no file" for path in paths_in(code) if not (ROOT / path).exists()]
            wrong += [f"{name!r} does not exist" for name in dotted_in(code) if not exists(name, aliases)]
            wrong += [f"{word!r} is no word of our code" for word in WORD.findall(code) if word not in words()]
            found += [f"line {number}: {what}" for what in wrong]
        for target, heading in LINK.findall(line):
            file = page.parent / target if target else page
            if not file.exists() or (heading and heading[1:] not in headings(file.read_text(encoding="utf-8"))):
                found.append(f"line {number}: the link {target + heading!r} leads nowhere")
    for fence in FENCE.finditer(text):
        line_number = text[: fence.start()].count("\n") + 1
        if fence["info"].strip() in {"bash", "console", "sh"}:
            found += [
                f"block at line {line_number}: {path!r} is no file"
                for path in paths_in(fence["body"])
                if not (ROOT / path).exists()
            ]
    return found


def paths_in(code: str) -> list[str]:
    return [
        word
        for word in re.findall(r"(?<![\w./\-])[\w.][\w./\-]*", code)
        if word.split("/")[0] in FOLDERS and "/" in word
    ]


def dotted_in(code: str) -> list[str]:
    return [name for name in DOTTED.findall(code) if name.rpartition(".")[2] not in FILES]


def imported_as(text: str) -> Iterator[tuple[str, str]]:
    """Names that the page's Python blocks import from surefoot, with what they stand for."""
    for fence in FENCE.finditer(text):
        if fence["info"].split()[:1] != ["python"]:
            continue
        for node in ast.walk(ast.parse(fence["body"])):
            if isinstance(node, ast.Import):
                yield from ((name.asname, name.name) for name in node.names if name.asname)
            elif isinstance(node, ast.ImportFrom):
                yield from ((name.asname or name.name, f"{node.module}.{name.name}") for name in node.names)


def exists(name: str, aliases: dict[str, str]) -> bool:
    first, *rest = name.split(".")
    if first in OBJECTS:
        return leads_on(OBJECTS[first], rest)
    if first in classes():
        return any(leads_on(getattr(importlib.import_module(module), first), rest) for module in classes()[first])
    if first in aliases:
        return resolves([*aliases[first].split("."), *rest])
    return resolves(["surefoot", first, *rest]) or resolves([first, *rest])


def resolves(parts: list[str]) -> bool:
    """Whether a module is found by the first parts, and the others are its attributes."""
    if find_spec(parts[0]) is None:
        return False
    here: Any = importlib.import_module(parts[0])
    for place, part in enumerate(parts[1:], 1):
        if inspect.isclass(here):
            return leads_on(here, parts[place:])
        if not hasattr(here, part):
            inner = ".".join(parts[: place + 1])
            if not inspect.ismodule(here) or not hasattr(here, "__path__") or find_spec(inner) is None:
                return False
            importlib.import_module(inner)
        here = getattr(here, part)
    return True


def leads_on(owner: type, parts: list[str]) -> bool:
    """Whether instances of a class have the first part, what that is has the second, and so on."""
    for part in parts:
        if not hasattr(owner, part) and part not in attributes(owner):
            return False
        owner = OBJECTS.get(part, object)
    return True


@cache
def attributes(owner: type) -> set[str]:
    """Attributes that only instances have: annotated, documented, arguments of the constructor, or set by a method."""
    annotated = {name for base in owner.__mro__ for name in inspect.get_annotations(base)}
    documented = {entry.name for entry in ClassDoc(owner)["Attributes"]}
    written = set(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? =", inspect.getsource(owner)))
    return annotated | documented | written | set(inspect.signature(owner).parameters)


@cache
def classes() -> dict[str, list[str]]:
    """Modules of ours that define a class, by its name."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    return found


@cache
def words() -> set[str]:
    """Names, and strings that could be one, in the code of the package, its tests and its benchmarks."""
    found = set()
    for folder in ("src", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            if path == Path(__file__):
                continue
            for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
                if token.type in {tokenize.NAME, tokenize.STRING}:
                    found.add(token.string.strip("\"'"))
    return found


def headings(text: str) -> set[str]:
    """Anchors that a page offers, as GitHub forms them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_names(page: Path) -> None:
    found = strays(page.read_text(encoding="utf-8"), page)
    assert not found, "\n".join(found)


PAGE = ROOT / "docs" / "index.md"


@pytest.mark.parametrize(
    "text",
    [
        "`surefoot.certify` `sf.Compute(memory=1 << 30)` `surefoot.estimators.robust` `compute=sf.Compute()`",
        "`python -m surefoot.cli.output` `solvers.transport` `active.label_flexibility` `sf.Certificate.on_fresh_rows`",
        "`Certificate.risk` `DecisionSet.row_weights` `certificate_.worst_case.label_proba` `clf.certificate_.gap`",
        "`torch.nn.Unflatten` `ot.emd` `config.json` `tests/reference` `python benchmarks/run.py --quick`",
        "```python no-run\nimport surefoot.active as al\n```\n`al.PAPER_MARGIN` `al.ActiveLearner.suggest`",
        "`X_unlabeled=U` `RobustNetClassifier` `1.0` `~/.cache/surefoot` `n/a` `SmoothedDual.decision_set`",
        "```text\nsf.nothing benchmarks/none.py\n```\nsf.nothing in prose",
        "[a](certificates.md), [b](../README.md), [c](solver.md#the-ball-alone), [d](https://example.org/none.md)",
    ],
)
def test_what_exists_is_let_pass(text: str) -> None:
    assert strays(text, PAGE) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("`surefoot.linear_model`", "surefoot.linear_model"),
        ("`compute=sf.Compote()`", "sf.Compote"),
        ("`solvers.coarse`", "solvers.coarse"),
        ("`worst_case._Search.finish_at_vertex`", "worst_case._Search.finish_at_vertex"),
        ("`gone_module.anything`", "gone_module.anything"),
        ("`bounds.lower_bound`", "bounds.lower_bound"),  # a module of ours, but not by that path
        ("`dual.bounds.lower_bound`", "dual.bounds.lower_bound"),
        ("`Certificate.risc`", "Certificate.risc"),
        ("`clf.certificate_.risc`", "clf.certificate_.risc"),
        ("`torch.nn.Unflat`", "torch.nn.Unflat"),
        ("```python no-run\nimport surefoot.active as al\n```\n`al.NONE`", "al.NONE"),
        ("`python benchmarks/none.py --quick`", "benchmarks/none.py"),
        ("```bash\npython benchmarks/none.py\n```", "benchmarks/none.py"),
        ("`tests/none`", "tests/none"),
        ("`no_such_parameter=3`", "no_such_parameter"),
        ("`NoSuchClass(3)`", "NoSuchClass"),
        ("[a](none.md)", "none.md"),
        ("[a](solver.md#none)", "solver.md#none"),
    ],
)
def test_what_does_not_exist_is_found(text: str, name: str) -> None:
    found = strays(text, PAGE)
    assert len(found) == 1
    assert repr(name) in found[0]
    assert re.match(r"(block at )?line \d+: ", found[0])
