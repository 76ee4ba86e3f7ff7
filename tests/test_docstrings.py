"""Runs the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import surefoot

MODULES = sorted(
    info.name for info in pkgutil.walk_packages(surefoot.__path__, "surefoot.") if not info.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 10
