"""Docstrings: their examples run, and those of public names follow numpydoc's rules and a few of our own."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import pytest
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import validate

import surefoot
from public_names import defined_name, names_by_module, public_objects

MODULES = sorted(
    info.name for info in pkgutil.walk_packages(surefoot.__path__, "surefoot.") if not info.name.endswith("__main__")
)

NOT_CHECKED = {
    "GL01": "a summary begins right after the opening quotes",
    "GL02": "a docstring of one line ends on it",
    "ES01": "where a summary says it all, nothing follows it",
    "SA01": "other names are named in the text, where they are needed",
    "EX01": "examples are asked of functions and classes, not of each method: see test_example",
    "SS05": "a summary may name what is returned, and nouns such as 'Distances' are taken for verbs",
}
# skorch and torch call these on what they train; users do not, and parameters are theirs to describe.
HOOKS = {"extra_repr", "get_iterator", "get_loss", "initialize_criterion", "initialize_module", "train_step"}

NEED_TRITON = {"surefoot.kernels.torch_fused"}

NO_EXAMPLE = {
    "surefoot.active.simulation.simulate": "docs/active-learning.md runs one: learning curves take seconds",
    "surefoot.paper.reproduce": "writes a folder, for minutes",
    "surefoot.pool.report_gather.build_report": "docs/report.md runs one, on a fit that is worth a page",
    "surefoot.report.write_report": "as build_report, whose result it takes",
}


def public_members(owner: type) -> dict[str, Any]:
    """Methods and properties of a class and of its bases of ours; one that only inherits its docstring is not asked."""
    found = {}
    for base in owner.__mro__:
        if not base.__module__.startswith("surefoot."):
            continue
        for name, value in vars(base).items():
            method = isinstance(value, classmethod | staticmethod | property | cached_property)
            if name[0] == "_" or not (method or inspect.isfunction(value)):
                continue
            above = [parent for parent in base.__mro__[1:] if hasattr(parent, name)]
            if value.__doc__ is None and any(getattr(parent, name).__doc__ for parent in above):
                continue
            found[f"{defined_name(base)}.{name}"] = value
    return found


OBJECTS = public_objects()
MEMBERS = {
    name: member
    for owner in OBJECTS.values()
    if inspect.isclass(owner)
    for name, member in public_members(owner).items()
}


def is_result(owner: Any, doc: Any) -> bool:
    """Whether a class describes what it holds, not how it is built: only the package builds it."""
    return inspect.isclass(owner) and bool(doc["Attributes"]) and not doc["Parameters"]


def problems(owner: Any, name: str = "") -> list[str]:
    """What is wrong with a docstring."""
    if not owner.__doc__:
        return ["GL08: no docstring"]
    doc = get_doc_object(owner, config={"show_class_members": False})
    skipped = {*NOT_CHECKED, *(["PR01"] if is_result(owner, doc) else [])}
    if inspect.isclass(owner) and issubclass(owner, Warning):  # given by the package, and filtered by users
        skipped.add("PR01")
    skipped |= {"PR01", "RT01"} if name.rpartition(".")[2] in HOOKS else set()
    given = name or doc
    found = [f"{code}: {text}" for code, text in validate(given)["errors"] if code not in skipped]
    if is_result(owner, doc):
        missing = set(inspect.signature(owner).parameters) - {entry.name for entry in doc["Attributes"]}
        found += [f"attribute {field!r} is not described" for field in sorted(missing - {"args", "kwargs"})]
    for section in ("Parameters", "Attributes", "Returns"):
        for entry in doc[section]:
            text = " ".join(entry.desc).strip()
            if re.search(r"[,;]", entry.name):
                found.append(f"{section}: {entry.name!r} is more than one entry")
            if re.match(r"(As|as) in\b", text) or re.match(r"as in\b", entry.type):
                found.append(f"{section}: {entry.name!r} is described elsewhere only: {text or entry.type!r}")
            if section == "Attributes" and not (entry.type and text.endswith(".")):
                found.append(f"{section}: {entry.name!r} needs a type, and a description that ends with a period")
    return found


def test_public_names_stay_few() -> None:
    """A name is public if users type it: what they get as a result, or pass as a string or an array, is not."""
    assert sum(map(len, names_by_module().values())) <= 69


@pytest.mark.parametrize("name", sorted({**OBJECTS, **MEMBERS}))
def test_public_docstring(name: str) -> None:
    found = problems({**OBJECTS, **MEMBERS}[name], name)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_example(name: str) -> None:
    owner = OBJECTS[name]
    if inspect.isclass(owner) and issubclass(owner, BaseException):
        return  # raised, not called
    doc = get_doc_object(owner, config={"show_class_members": False})
    has_example = ">>> " in "\n".join(doc["Examples"])
    if name in NO_EXAMPLE or is_result(owner, doc):
        assert not has_example, "it has an example: take it off the list"
    else:
        assert has_example


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    if name in NEED_TRITON and find_spec("triton") is None:
        pytest.skip("needs Triton, which comes with PyTorch for CUDA")
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0


class TestRules:
    """The checks above must be able to fail."""

    def test_a_good_one_passes(self) -> None:
        def scale(x: float, *, by: float = 2.0) -> float:
            """Scale a number.

            Parameters
            ----------
            x : float
                The number.
            by : float, default=2.0
                Its factor.

            Returns
            -------
            float
                The product.
            """
            return x * by

        assert problems(scale) == []

    def test_faults_are_found(self) -> None:
        def scale(x: float, y: float, *, by: float = 2.0, times: int = 1) -> float:
            """scale a number.

            Parameters
            ----------
            x, y : float
                Two numbers.
            times : int
            by
                As in `other`.
            """
            return x * y * by**times

        found = "\n".join(problems(scale))
        for fault in ("SS02", "PR03", 'PR04: Parameter "by"', 'PR07: Parameter "times"', "RT01", "'x, y' is more than"):
            assert fault in found
        assert "'by' is described elsewhere only: 'As in `other`.'" in found

    def test_missing_ones_are_found(self) -> None:
        def scale(x: float) -> None:
            """Scale a number."""

        def bare(x: float) -> None:
            return None

        assert any(fault.startswith("PR01") for fault in problems(scale))
        assert problems(bare) == ["GL08: no docstring"]

    def test_results_describe_their_fields(self) -> None:
        class Result:
            """A result.

            Attributes
            ----------
            value : float
                The value.
            lower : float
            """

            def __init__(self, value: float, lower: float, gap: float) -> None:
                self.value, self.lower, self.gap = value, lower, gap

        assert problems(Result) == [
            "attribute 'gap' is not described",
            "Attributes: 'lower' needs a type, and a description that ends with a period",
        ]

    def test_all_of_the_public_interface_is_seen(self) -> None:
        assert {"surefoot.certificates.certification.certify", "surefoot.nn.classifier.RobustNetClassifier"} <= set(
            OBJECTS
        )
        assert "surefoot.estimators.base.LinearClassifier.predict_proba" in MEMBERS
        assert "surefoot.active.flexibility.LabelFlexibility.intervals" in MEMBERS
        assert set(OBJECTS) >= set(NO_EXAMPLE)
