"""A runner for commands, in this process, and a pool to run them on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.pools import Result, make_pool
from surefoot.cli import run


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """run_cli("fit", "pool.csv", ...) -> Result."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(code, printed.out, printed.err)

    return call


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pool of 120 rows with 30 labels, in the working folder."""
    monkeypatch.chdir(tmp_path)
    path = Path("pool.csv")
    make_pool().to_csv(path, index=False)
    return path
