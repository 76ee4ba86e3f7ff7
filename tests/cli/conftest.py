"""A runner for commands, in this process, and a pool to run them on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from generators import Result, TrueAnswers, make_pool
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


@pytest.fixture(scope="session")
def stored_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same pool, fitted once."""
    folder = tmp_path_factory.mktemp("fitted")
    make_pool().to_csv(folder / "pool.csv", index=False)
    how = ["--no-report", "--no-worst-case", "--radius", "auto", "--out", str(folder / "pool.skops")]
    assert run(["fit", str(folder / "pool.csv"), "--label", "churn", *how]) == 0
    return folder / "pool.skops"


@pytest.fixture
def model(stored_model: Path, pool: Path) -> Path:
    """That model beside the pool."""
    return Path(shutil.copy(stored_model, pool.with_suffix(".skops")))


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., TrueAnswers]:
    """person(most, truth) -> someone at the terminal who knows the truth, of make_pool's table by default."""

    def answers(most: int = 1000, truth: list[str] | None = None) -> TrueAnswers:
        found = TrueAnswers(capsys, most, make_pool(120, 120)["churn"].tolist() if truth is None else truth)
        monkeypatch.setattr("sys.stdin", found)
        return found

    return answers
