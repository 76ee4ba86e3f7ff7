"""The examples of the gallery: each runs without a warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from test_docs import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))


def test_every_topic_has_an_example() -> None:
    assert len(EXAMPLES) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    command = [sys.executable, "-W", "error::UserWarning", str(path)]
    subprocess.run(command, check=True, env={**os.environ, "MPLBACKEND": "agg", "OPENBLAS_NUM_THREADS": "1"})
