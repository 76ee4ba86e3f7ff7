"""Model files: they say what they hold, run nothing, and are whole."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import skops.io
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import surefoot as sf
from surefoot.pool.model_file import ALLOWED, ModelFile, load_model, save_model, without_pool
from surefoot.pool.table import FileError
from surefoot.pool.table.cleaning import make_cleaner
from surefoot.pool.table.columns import Columns

X, Y = np.random.default_rng(0).normal(size=(40, 2)), np.array(["no", "yes"], dtype=object)[np.arange(40) % 2]


def stored() -> tuple[ModelFile, pd.DataFrame]:
    frame = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "p", "q").astype(object)})
    frame.loc[3, "a"] = np.nan
    cleaner = make_cleaner(Columns(["a"], ["b"]), frame)
    rows = cleaner.fit_transform(frame)
    clf = sf.RobustLogisticRegression(radius=sf.CalibratedRadius(random_state=3)).fit(
        rows[:22], Y[:22], X_unlabeled=rows[22:]
    )
    pipeline = Pipeline([*cleaner.steps, ("classify", without_pool(clf))])
    said = {"risk": 0.5, "label_intervals": {"no": [0.1, 0.9]}}
    return ModelFile(pipeline, "y", ["no", "yes"], Columns(["a"], ["b"]).stored(), said), frame


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
        GaussianNB(),
        MLPClassifier(3, max_iter=5),
        CalibratedClassifierCV(LogisticRegression(), cv=2),
        make_pipeline(ColumnTransformer([("s", StandardScaler(), [0])]), LogisticRegression()),
    ],
    ids=lambda clf: type(clf).__name__,
)
def test_reviewed_classifiers_of_scikit_learn_are_loaded(clf: Any, tmp_path: Path) -> None:
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
    forged = {"kind": "surefoot model", "format": 2, "certificate": {"risk": 0.0}, "pipeline": os.system}
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


def stored_at(path: Path, model: Any) -> Path:
    skops.io.dump(model, path)
    return path


def forest() -> RandomForestClassifier:
    return RandomForestClassifier(2, random_state=0).fit(X, Y)


class TestForged:
    """What compiled code would follow without looking is refused, or looked at, before it is followed."""

    @pytest.mark.parametrize(
        "clf",
        [
            forest(),
            GradientBoostingClassifier(n_estimators=2).fit(X, Y),
            HistGradientBoostingClassifier(max_iter=2).fit(X, Y),
            KNeighborsClassifier(3, algorithm="kd_tree").fit(X, Y),
            KNeighborsClassifier(3, algorithm="brute").fit(X, Y),
            make_pipeline(StandardScaler(), SVC()).fit(X, Y),
            VotingClassifier([("a", LogisticRegression()), ("b", SVC())]).fit(X, Y),
        ],
        ids=lambda clf: type(clf).__name__,
    )
    def test_types_with_such_code_are_loaded_by_name_only(self, clf: Any, tmp_path: Path) -> None:
        path = stored_at(tmp_path / "m", clf)
        with pytest.raises(FileError, match="It was not loaded") as found:
            load_model(path)
        names = str(found.value).rpartition("--trust ")[2].split(",")
        assert (load_model(path, trust=names).predict(X) == clf.predict(X)).all()
        with pytest.raises(FileError, match="It was not loaded"):
            load_model(path, trust=names[1:])

    def test_such_types_in_odd_places(self, tmp_path: Path) -> None:
        model = LogisticRegression().fit(X, Y)
        model.extra = np.array([[SVC().fit(X, Y)], [None]], dtype=object)
        with pytest.raises(FileError, match=r"sklearn\.svm"):
            load_model(stored_at(tmp_path / "m", model))

    def test_a_type_that_the_description_hides(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = stored_at(tmp_path / "m", SVC().fit(X, Y))
        monkeypatch.setattr("surefoot.pool.model_file.foreign_types", lambda _: set())
        with pytest.raises(FileError, match="could not be loaded"):
            load_model(path)

    @pytest.mark.parametrize("part", ["dates", "styles", "numbers"])
    @pytest.mark.parametrize("value", [[], None, 3, ("a", [])])
    def test_how_columns_are_read_is_told_by_texts(self, part: str, value: Any, tmp_path: Path) -> None:
        model, _ = stored()
        reading = Columns(["a"], ["b"]).stored()
        reading[part] = [value] if part == "numbers" else {"a": value}
        save_model(tmp_path / "m", replace(model, reading=reading))
        with pytest.raises(FileError, match="does not describe its columns"):
            load_model(tmp_path / "m")

    @pytest.mark.parametrize("value", [[{}], {}, [["a"]], 3])
    def test_what_taught_a_model_is_told_by_texts(self, value: Any, tmp_path: Path) -> None:
        model, _ = stored()
        for changed in ({"certificate": {"taught": value}}, {"options": {"delimiter": [value]}}):
            save_model(tmp_path / "m", replace(model, **changed))
            with pytest.raises(FileError, match="does not describe its training rows"):
                load_model(tmp_path / "m")

    def test_categories(self, tmp_path: Path) -> None:
        names = np.array(list("abcdefgh") * 5)[:, None]
        model = make_pipeline(OneHotEncoder(max_categories=3, sparse_output=False), LogisticRegression()).fit(names, Y)
        path = stored_at(tmp_path / "m", model)
        assert (load_model(path).predict(names) == model.predict(names)).all()
        encoder = model[0]
        encoder._default_to_infrequent_mappings[0][:] = 2**40
        with pytest.raises(FileError, match="a category has no column"):
            load_model(stored_at(path, model))
        encoder._default_to_infrequent_mappings[0][:] = 0
        encoder._n_features_outs = [1]
        with pytest.raises(FileError, match="the number of categories is another"):
            load_model(stored_at(path, model))

    def test_sparse_weights(self, tmp_path: Path) -> None:
        model = LogisticRegression().fit(X, Y).sparsify()
        path, trust = stored_at(tmp_path / "m", model), ["scipy.sparse._csr.csr_matrix"]
        assert (load_model(path, trust=trust).predict(X) == model.predict(X)).all()
        model.coef_.indices = np.full_like(model.coef_.indices, 10**6)
        with pytest.raises(FileError, match="could not be loaded"):
            load_model(stored_at(path, model), trust=trust)


class TestSizes:
    def test_a_file_that_unpacks_to_too_much_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        model = LogisticRegression().fit(X, Y)
        model.extra = np.zeros(1_000_000)
        path = tmp_path / "m"
        skops.io.dump(model, path, compression=zipfile.ZIP_DEFLATED)
        assert path.stat().st_size < 100_000
        assert load_model(path).extra.shape == (1_000_000,)
        monkeypatch.setattr("surefoot.pool.model_file.MOST_BYTES", 1 << 20)
        with pytest.raises(FileError, match=r"unpacks to 0\.0 GiB\. It was not loaded.*--trust size"):
            load_model(path)
        assert load_model(path, trust=["size"]).extra.shape == (1_000_000,)
        model.extra = scipy.sparse.csr_array(np.eye(1000))
        monkeypatch.setattr("surefoot.pool.model_file.MOST_BYTES", 20_000)
        nested = io.BytesIO()
        scipy.sparse.save_npz(nested, scipy.sparse.csr_array(np.zeros((30_000, 3))))
        assert len(nested.getvalue()) < 2000  # an archive in the archive is counted, too
        model.extra = scipy.sparse.csr_array(np.zeros((30_000, 3)))
        skops.io.dump(model, path)
        with pytest.raises(FileError, match="--trust size"):
            load_model(path)

    def test_a_long_description_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("surefoot.pool.model_file.MOST_SCHEMA_BYTES", 1000)
        with pytest.raises(FileError, match="MiB of text"):
            load_model(stored_at(tmp_path / "m", forest()))

    @pytest.mark.parametrize("shape", [(2**50,), (2**40, 2**40), (-5,)])
    def test_an_array_that_declares_more_than_it_holds_is_refused(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        model = LogisticRegression().fit(X, Y)
        path = stored_at(tmp_path / "m", model)
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        array = next(name for name, content in members.items() if content.startswith(b"\x93NUMPY"))
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
        members[array] = header.getvalue() + bytes(16)
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        for trust in ([], ["size"]):
            with pytest.raises(FileError, match="more than it holds"):
                load_model(path, trust=trust)


@pytest.mark.parametrize("name", ["pipeline", "label", "classes", "reading", "certificate", "version", "format"])
def test_a_model_that_lacks_a_part_is_refused(tmp_path: Path, name: str) -> None:
    model, _ = stored()
    content = {"kind": "surefoot model", "format": 2, **vars(model)}
    for value in ("missing", 3, [1, 2]):
        if value == "missing":
            content.pop(name)
        else:
            content[name] = value
        skops.io.dump(content, tmp_path / "m")
        with pytest.raises(FileError, match=f"has no valid {name}|is of format|must be texts"):
            load_model(tmp_path / "m")
