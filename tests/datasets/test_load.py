"""`load`: its arguments, its Bunch and its errors."""

from __future__ import annotations

import builtins
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from refusals import refuses
from surefoot import datasets
from surefoot.datasets._catalogue import DATASETS
from surefoot.datasets._download import DatasetCorruptError

Load = Callable[..., Any]


def test_names() -> None:
    assert datasets.names() == [*datasets.names(paper_only=True), "bank-leaky", "breast-cancer"]
    datasets.names().clear()
    assert len(datasets.names()) == 16


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("HTRU2", "pulsar"),
        ("Pulsar", "pulsar"),
        ("Cover (2/3)", "covtype-2-3"),
        ("Cover (5/6)", "covtype-5-6"),
        ("Letter (C/E)", "letter-c-e"),
        ("letter_u_v", "letter-u-v"),
        ("Spam", "spambase"),
        ("Breast Cancer", "breast-cancer"),
        ("bank_leaky", "bank-leaky"),
    ],
)
def test_other_names(given: str, name: str) -> None:
    assert datasets.resolve(given) == name


def test_the_papers_titles_are_names() -> None:
    for name, dataset in DATASETS.items():
        assert datasets.resolve(dataset.title) == name.replace("bank-leaky", "bank")


@pytest.mark.parametrize(
    ("given", "near"), [("abalon", "abalone"), ("covtype", "covtype-"), ("htru", "pulsar"), ("wines", "wine")]
)
def test_unknown_name(given: str, near: str) -> None:
    with refuses("name", "abalone", "breast-cancer", f"'{given}'") as caught:
        datasets.load(given)
    assert f"'{near}" in caught.value.fix


@pytest.mark.parametrize("given", ["xyzzy", "", "!"])
def test_unknown_name_like_no_other(given: str) -> None:
    with refuses("name"):
        datasets.load(given)


@pytest.mark.parametrize("given", [None, 3, ["wine"], Path("wine")])
def test_a_name_is_a_string(given: Any) -> None:
    with refuses("name"):
        datasets.load(given)


@pytest.mark.parametrize("seed", ["a", -1, 1.5])
@pytest.mark.parametrize("name", ["breast-cancer", "magic"])
def test_a_bad_seed_is_refused_also_where_it_is_not_used(name: str, seed: Any, load: Load) -> None:
    with pytest.raises(ValueError, match=r"seed|Seed"):
        load(name, random_state=seed)


def test_breast_cancer_is_scikit_learns() -> None:
    bunch = datasets.load("breast-cancer", scaled=False)
    theirs = load_breast_cancer()
    assert np.array_equal(bunch.data, theirs.data)
    assert np.array_equal(bunch.target, theirs.target)
    assert list(bunch.feature_names) == list(theirs.feature_names)
    assert list(bunch.target_names) == list(theirs.target_names)


def test_bunch(load: Load) -> None:
    bunch = load("wine")
    assert bunch.data.dtype == np.float64
    assert bunch.target.dtype == np.int64
    assert bunch.name == "wine"
    assert bunch.title == "Wine"
    assert bunch.source == "https://archive.ics.uci.edu/dataset/186/wine+quality"
    assert list(bunch.target_names) == ["quality <= 5", "quality >= 7"]
    assert bunch.n_positive == 1060
    assert bunch.frame is None
    for part in ("2700 rows", "quality >= 7, 1060 rows or 39.3%", bunch.source, "11 measurements", "largest absolute"):
        assert part in bunch.DESCR
    assert "not scaled" in load("wine", scaled=False).DESCR
    assert "drawn from 45211 without replacement, half from each class" in load("bank").DESCR


def test_return_x_y(load: Load) -> None:
    X, y = load("wine", return_X_y=True)
    bunch = load("wine")
    assert np.array_equal(X, bunch.data)
    assert np.array_equal(y, bunch.target)


def test_as_frame(load: Load) -> None:
    bunch = load("wine", as_frame=True)
    assert isinstance(bunch.data, pd.DataFrame)
    assert isinstance(bunch.target, pd.Series)
    assert list(bunch.data.columns) == bunch.feature_names
    assert list(bunch.frame.columns) == [*bunch.feature_names, "target"]
    assert np.array_equal(bunch.data.to_numpy(), load("wine").data)
    X, y = load("wine", as_frame=True, return_X_y=True)
    pd.testing.assert_frame_equal(X, bunch.data)
    pd.testing.assert_series_equal(y, bunch.target)


def test_as_frame_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pandas(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return genuine(name, *args, **kwargs)

    genuine = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", no_pandas)
    with pytest.raises(ImportError, match="as_frame=True needs pandas"):
        datasets.load("breast-cancer", as_frame=True)


@pytest.mark.parametrize("name", ["wine", "pulsar", "breast-cancer"])
@pytest.mark.parametrize("scaled", [True, False])
def test_results_are_the_callers_own(name: str, scaled: bool, load: Load) -> None:
    first = load(name, scaled=scaled)
    kept = first.data.copy(), first.target.copy()
    first.data[:] = -7
    first.target[:] = -7
    again = load(name, scaled=scaled)
    assert np.array_equal(again.data, kept[0])
    assert np.array_equal(again.target, kept[1])


def test_tables_that_are_kept_cannot_be_written_to() -> None:
    table = DATASETS["breast-cancer"].encode(())
    assert not table.data.flags.writeable
    assert not table.target.flags.writeable


def test_files_are_read_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    load("yeast")
    monkeypatch.setattr("surefoot.datasets._download.RawFile.read", None)
    load("yeast", random_state=3)


def test_a_file_that_changed_is_read_again(tmp_path: Path, dataset_path: Callable[[str], Path]) -> None:
    path = tmp_path / "yeast" / "yeast.data"
    path.parent.mkdir()
    path.write_bytes(dataset_path("yeast/yeast.data").read_bytes())
    datasets.load("yeast", data_home=tmp_path, download_if_missing=False)
    path.write_bytes(path.read_bytes().replace(b"MIT", b"NUC", 1))
    with pytest.raises(DatasetCorruptError, match=r"yeast\.data is not the yeast\.data expected"):
        datasets.load("yeast", data_home=tmp_path, download_if_missing=False)


def test_nothing_is_written_where_the_files_lie(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "variable"
    home.mkdir()
    monkeypatch.setenv("SUREFOOT_DATA", str(home))
    with pytest.raises(FileNotFoundError):
        datasets.load("wine")
    assert list(home.iterdir()) == []
    assert not cache.exists()


class TestMissing:
    """Offline and absent: one error that says where it looked and what to do."""

    def test_offline(self, cache: Path) -> None:
        with pytest.raises(FileNotFoundError) as caught:
            datasets.load("isolet")
        message = str(caught.value)
        assert "isolet1+2+3+4.data and isolet5.data: not found below" in message
        assert str(cache) in message
        assert "(SUREFOOT_DATA is not set)" in message
        url = "https://archive.ics.uci.edu/static/public/54/isolet.zip"
        assert f"Downloading {url} failed: <urlopen error" in message
        assert f"fetch {url} by hand and put it, packed as it is, into {cache / 'isolet'}" in message
        assert "set SUREFOOT_DATA to a folder that has isolet/isolet1+2+3+4.data" in message

    def test_with_folders_given(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path / "variable"))
        with pytest.raises(FileNotFoundError) as caught:
            datasets.load("wine", data_home=tmp_path / "argument")
        message = str(caught.value)
        assert f"not found below {tmp_path / 'argument'}, {tmp_path / 'variable'}, {cache}." in message
        assert "is not set" not in message
        assert f"into {tmp_path / 'argument' / 'winequality'}" in message

    def test_download_not_wanted(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("surefoot.datasets._download.download", None)  # a call would be a TypeError
        with pytest.raises(FileNotFoundError, match="Nothing was downloaded, for download_if_missing is False"):
            datasets.load("wine", download_if_missing=False)

    def test_breast_cancer_needs_no_file(self, cache: Path) -> None:
        assert datasets.load("breast-cancer", download_if_missing=False).data.shape == (569, 30)

    def test_errors_survive_another_process(self) -> None:
        error = pickle.loads(pickle.dumps(DatasetCorruptError("a message")))
        assert type(error) is DatasetCorruptError
        assert str(error) == "a message"


def test_import_is_light() -> None:
    heavy = {"rich", "pandas", "numba", "ot", "matplotlib", "sklearn.datasets"}
    program = f"""import sys, sklearn.utils.validation, surefoot
before = set(sys.modules)
import surefoot.datasets
print(*(set(sys.modules) - before) & {heavy})"""
    environment = {**os.environ, "PYTHONPATH": str(Path(datasets.__file__).parents[2])}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
