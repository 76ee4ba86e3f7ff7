"""Model files: they say what they hold, run nothing, and are whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import surefoot as sf
from surefoot.model_file import ALLOWED, ModelFile, load_model, save_model, without_pool
from surefoot.tabular import FileError
from surefoot.tabular.cleaning import make_cleaner
from surefoot.tabular.columns import Columns

X, Y = np.random.default_rng(0).normal(size=(40, 2)), np.array(["no", "yes"], dtype=object)[np.arange(40) % 2]


def stored() -> tuple[ModelFile, pd.DataFrame]:
    frame = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "p", "q").astype(object)})
    frame.loc[3, "a"] = np.nan
    cleaner = make_cleaner(Columns(["a"], ["b"]), frame)
    rows = cleaner.fit_transform(frame)
    clf = sf.RobustLogisticRegression(radius=sf.Calibrated(random_state=3)).fit(
        rows[:22], Y[:22], X_unlabeled=rows[22:]
    )
    pipeline = Pipeline([*cleaner.steps, ("classify", without_pool(clf))])
    return ModelFile(pipeline, "y", ["no", "yes"], {"risk": 0.5, "label_intervals": {"no": [0.1, 0.9]}}), frame


def test_a_round_trip(tmp_path: Path) -> None:
    model, frame = stored()
    path = tmp_path / "model.skops"
    save_model(path, model)
    again = load_model(path)
    assert isinstance(again, ModelFile)
    assert again.pipeline.predict_proba(frame) == pytest.approx(model.pipeline.predict_proba(frame), abs=0)
    assert (again.label, again.classes, again.certificate) == (model.label, model.classes, model.certificate)
    assert again.columns.used == ["a", "b"]
    assert again.version == sf.__version__
    assert again.pipeline[-1].radius == "calibrated"
    assert set(skops.io.get_untrusted_types(file=path)) <= ALLOWED
    assert path.stat().st_size < 500_000


def test_nothing_as_large_as_the_pool_is_stored() -> None:
    clf = sf.RobustLogisticRegression(radius=3.0).fit(X, Y)
    light = without_pool(clf)
    assert not hasattr(light, "certificate_")
    assert not hasattr(light, "worst_case_")
    assert light.predict_proba(X) == pytest.approx(clf.predict_proba(X), abs=0)
    assert hasattr(clf, "certificate_")


@pytest.mark.parametrize(
    "clf",
    [
        LogisticRegression(),
        make_pipeline(StandardScaler(), RandomForestClassifier(3)),
        HistGradientBoostingClassifier(max_iter=2),
        KNeighborsClassifier(2),
        make_pipeline(ColumnTransformer([("s", StandardScaler(), [0])]), LogisticRegression()),
    ],
    ids=lambda clf: type(clf).__name__,
)
def test_any_classifier_of_scikit_learn_is_loaded(clf: Any, tmp_path: Path) -> None:
    path = tmp_path / "any.skops"
    skops.io.dump(clf.fit(X, Y), path)
    assert (load_model(path).predict(X) == clf.predict(X)).all()


def test_an_untrusted_file_is_refused_with_its_contents(tmp_path: Path) -> None:
    path, touched = tmp_path / "evil.skops", tmp_path / "touched"
    skops.io.dump(make_pipeline(FunctionTransformer(os.remove), LogisticRegression().fit(X, Y)), path)
    with pytest.raises(FileError, match=r"It was not loaded(.|\n)*posix\.remove(.|\n)*--trust .*posix\.remove"):
        load_model(path)
    assert not touched.exists()
    names = skops.io.get_untrusted_types(file=path)
    assert isinstance(load_model(path, trust=names), Pipeline)
    with pytest.raises(FileError, match="It was not loaded"):
        load_model(path, trust=["another.Type"])


def test_our_own_files_are_checked_too(tmp_path: Path) -> None:
    """A file that says it is ours gets no more trust than any other."""
    model, _ = stored()
    forged = {"kind": "surefoot model", "format": 1, "certificate": {"risk": 0.0}, "pipeline": os.system}
    skops.io.dump(forged, tmp_path / "forged.skops")
    with pytest.raises(FileError, match=r"posix\.system"):
        load_model(tmp_path / "forged.skops")
    assert model.label == "y"


def test_files_that_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "text.skops").write_text("hello")
    for name, message in (("text.skops", "stored with skops"), ("none.skops", "there is none"), (".", "a folder")):
        with pytest.raises(FileError, match=message):
            load_model(tmp_path / name)
    skops.io.dump({"kind": "surefoot model", "format": 99}, tmp_path / "new.skops")
    with pytest.raises(FileError, match="is of format 99"):
        load_model(tmp_path / "new.skops")


def test_a_failed_write_keeps_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.skops"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(FileError, match="No space left on device"):
        save_model(path, stored()[0])
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["model.skops"]
