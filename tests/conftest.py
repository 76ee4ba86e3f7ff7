"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def find_dataset(name: str) -> Path:
    """Path of the raw dataset `name`; without it the test is skipped, or fails under SUREFOOT_REQUIRE_DATA=1."""
    folder = Path(os.environ.get("SUREFOOT_DATA") or ROOT.parent / "shared" / "datasets")
    path = folder / name
    if path.exists():
        return path
    reason = f"no dataset {name!r} in {folder}: set SUREFOOT_DATA to the folder of raw datasets"
    if os.environ.get("SUREFOOT_REQUIRE_DATA") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems of any size are solved over blocks of rows."""
    monkeypatch.setattr("surefoot.problem.placement.MOST_DISTANCES", 0)


@pytest.fixture(scope="session")
def dataset_path() -> Callable[[str], Path]:
    """The function `dataset_path(name)`, see `find_dataset`."""
    return find_dataset
