"""The examples of the gallery: each runs without a warning, in less than 20 seconds of processor time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from test_docs import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
MOST_SECONDS = 20.0


def test_every_topic_has_an_example() -> None:
    assert len(EXAMPLES) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    command = [sys.executable, "-W", "error::UserWarning", str(path)]
    before = os.times()
    subprocess.run(command, check=True, env={**os.environ, "MPLBACKEND": "agg", "OPENBLAS_NUM_THREADS": "1"})
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < MOST_SECONDS
