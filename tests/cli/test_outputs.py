"""What a command may write: nothing that it reads, no file twice, no file of others; and it says so before any work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression

from generators import Result, make_pool
from surefoot.cli import demo
from surefoot.estimators.curves import RadiusCurve
from surefoot.pool.store import Store, store_path

Run = Callable[..., Result]
BESIDE = [f"pool.csv.surefoot.db{end}" for end in ("", "-wal", "-shm")]
FIT = ("fit", "pool.csv", "--label", "churn", "--radius", 5)


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a table fails: what is refused is refused before."""

    def read(*_: object, **__: object) -> None:
        raise AssertionError("the table was read")

    monkeypatch.setattr("surefoot.cli.app.Call.read_pool", read)
    monkeypatch.setattr("surefoot.pool.stored.load_model", read)
    monkeypatch.setattr("surefoot.pool.stored.read_table", read)
    monkeypatch.setattr("surefoot.pool.table.read_table", read)
    monkeypatch.setattr("surefoot.cli.demo.Demonstration.from_seed", read)


def contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}


@pytest.mark.usefixtures("no_work")
class TestRefused:
    @pytest.mark.parametrize("option", ["--out", "--report"])
    @pytest.mark.parametrize("name", ["pool.csv", "./pool.csv", "link.csv", "hard.csv", *BESIDE])
    def test_an_input(self, run_cli: Run, pool: Path, option: str, name: str) -> None:
        Path("link.csv").symlink_to(pool)
        os.link(pool, "hard.csv")
        Store(store_path(pool), {}).close()
        before = contents()
        result = run_cli(*FIT, option, name, "--force")
        assert result.code == 2
        assert "must not overwrite a file that is read" in result.message
        assert contents() == before

    @pytest.mark.parametrize(
        "more", [("--out", "m.html"), ("--out", "m", "--report", "./m"), ("--report", "pool.skops")]
    )
    def test_another_output(self, run_cli: Run, pool: Path, more: tuple[str, ...]) -> None:
        result = run_cli(*FIT, *more, "--force")
        assert result.code == 2
        assert "the model and the report must be two files" in result.message
        assert "Pass another name as --report" in result.message

    @pytest.mark.parametrize(("name", "what"), [("pool.skops", "model"), ("pool.html", "report")])
    def test_a_foreign_file(self, run_cli: Run, pool: Path, name: str, what: str) -> None:
        Path(name).write_text("<html><title>My home page</title></html>")
        before = contents()
        result = run_cli(*FIT)
        assert result.code == 2
        assert (
            f"{name} exists and is not a {'model' if name == 'pool.skops' else 'report'} written by" in result.message
        )
        assert "--force" in result.message
        assert contents() == before

    def test_a_model_of_another_program(self, run_cli: Run, pool: Path) -> None:
        skops.io.dump(LogisticRegression(), "pool.skops")
        assert "pool.skops exists and is not a model written by surefoot" in run_cli(*FIT).message

    @pytest.mark.parametrize("option", ["--out", "--report"])
    def test_no_plain_file(self, run_cli: Run, pool: Path, option: str) -> None:
        os.mkfifo("pipe")
        result = run_cli(*FIT, option, "pipe", "--force")
        assert result.code == 2
        assert "must be a plain file" in result.message
        assert Path("pipe").is_fifo()

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("pool.csv", "must not overwrite a file that is read"),
            ("m.skops", "must end in one of .csv"),
            ("other.csv", "other.csv exists and is not a table of predictions"),
            ("other.parquet", "other.parquet exists and is not a table of predictions"),
        ],
    )
    def test_by_predict(self, run_cli: Run, pool: Path, name: str, message: str) -> None:
        make_pool().to_csv("other.csv", index=False)
        make_pool().to_parquet("other.parquet", index=False)
        before = contents()
        result = run_cli("predict", "m.skops", pool, "--out", name)
        assert result.code == 2
        assert message in result.message
        assert contents() == before

    @pytest.mark.parametrize("suffix", demo.FORMATS)
    def test_by_the_demo(self, run_cli: Run, pool: Path, suffix: str) -> None:
        figure = Path(f"holiday{suffix}")
        figure.write_bytes(b"\x89PNG a photograph")
        assert "is not a figure written by surefoot" in run_cli("demo", "--out", figure).message
        assert figure.read_bytes() == b"\x89PNG a photograph"


def test_own_files_give_way_and_others_by_force(run_cli: Run, pool: Path) -> None:
    Path("pool.html").write_text("<html>My home page</html>")
    assert run_cli(*FIT, "--force").code == 0
    model, report = Path("pool.skops").stat().st_mtime_ns, Path("pool.html").stat().st_mtime_ns
    assert run_cli(*FIT).code == 0
    assert Path("pool.skops").stat().st_mtime_ns > model
    assert Path("pool.html").stat().st_mtime_ns > report
    for name in ("out.csv", "out.tsv", "out.parquet"):
        assert run_cli("predict", "pool.skops", pool, "--out", name).code == 0
        make_pool(50, 0).to_csv("new.csv", index=False)
        assert run_cli("predict", "pool.skops", "new.csv", "--out", name).code == 0
    assert len(pd.read_csv("out.csv")) == 50
    result = run_cli("predict", "pool.skops", pool, "--out", "pool.skops", "--force")
    assert result.code == 2


@pytest.mark.parametrize("suffix", demo.FORMATS)
def test_the_demos_own_figure_is_known(tmp_path: Path, suffix: str) -> None:
    path, radii = tmp_path / f"figure{suffix}", np.array([0.5, 0.9])
    found = RadiusCurve(radii, 0.0, radii, radii, coef=np.zeros((2, 1, 3)), intercept=np.zeros((2, 1)))
    demo.draw({"weak": found}, np.ones((4, 3)), 0.5, path)
    assert demo.figure_file(path).is_own(path)


def test_reproduce_leaves_other_folders_alone(run_cli: Run, pool: Path) -> None:
    result = run_cli("reproduce", "table2", "--quick", "--out", ".")
    assert result.code == 2
    assert "out must be an empty folder, or one of an earlier run; . holds pool.csv" in result.message
    assert list(contents()) == ["pool.csv"]
    Path("run").mkdir()
    for text in ("[]", "no JSON", '{"runs": 3}'):
        Path("run/config.json").write_text(text)
        assert "must be the configuration of a run" in run_cli("reproduce", "table2", "--quick", "--out", "run").message
    assert "is a file" in run_cli("reproduce", "table2", "--quick", "--out", pool).message
    assert run_cli("reproduce", "table2", "--quick", "--out", ".", "--force", "--json").code == 0
    assert run_cli("reproduce", "table2", "--quick", "--out", ".", "--json").code == 0
