"""The tiers of tests: `scripts/test --fast` reaches every room, and tests/ has a folder for each."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOMS = {path.parent.name for path in (TESTS.parent / "src" / "surefoot").glob("*/__init__.py")}
FAST = [line for line in (TESTS / "fast.txt").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def test_every_room_has_a_folder_of_tests() -> None:
    assert {path.name for path in TESTS.iterdir() if any(path.glob("test_*.py"))} >= ROOMS


def test_the_fast_tests_reach_every_room() -> None:
    assert {Path(line).parent.name for line in FAST} >= ROOMS
    assert all((TESTS.parent / line).is_file() for line in FAST)
