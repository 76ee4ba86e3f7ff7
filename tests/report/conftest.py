"""Fits, their reports, and a browser to look at them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from report.browser import Browser, find_chromium
from report.cases import Case, make_case
from surefoot.report import Report


@pytest.fixture(scope="session")
def two() -> Case:
    """Two classes, the radius by its rule of thumb."""
    return make_case(2, 24, 120, radius="auto")


@pytest.fixture(scope="session")
def tied() -> Case:
    """Two classes, a calibrated radius and label intervals: the decision set is a union."""
    return make_case(2, 24, 120, seed=1, radius="calibrated")


@pytest.fixture(scope="session")
def four() -> Case:
    """Four classes, known label probabilities and a radius that is a number."""
    return make_case(4, 30, 120, seed=2, radius=0.45, label_prior=[0.25] * 4)


@pytest.fixture(scope="session")
def reports(two: Case, tied: Case, four: Case) -> dict[str, Report]:
    return {"two": two.report(), "tied": tied.report(), "four": four.report()}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A browser; without one the test is skipped, or fails under SUREFOOT_REQUIRE_BROWSER=1."""
    program = find_chromium()
    if program is None:
        reason = "no Chromium found: install the package chromium"
        if os.environ.get("SUREFOOT_REQUIRE_BROWSER") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with Browser(program) as browser:
        yield browser
