"""Every classifier of --classifier: trained, appraised, ranked, reported, stored and loaded again."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from generators import make_pool
from surefoot._errors import FileError
from surefoot.estimators.combined import TreeAverage
from surefoot.pool.appraisal import appraise
from surefoot.pool.model import TrainedModel, train
from surefoot.pool.model_file import load_model, model_file_of, save_model
from surefoot.pool.next_rows import candidates
from surefoot.pool.notes import Code
from surefoot.pool.options import CLASSIFIERS, Clock, FitOptions, read_options, settle
from surefoot.pool.served_model import Writing, report_of
from surefoot.pool.store import Store, store_path
from surefoot.pool.stored import Classifier, Predictions, is_predictions, predict_rows, write_predictions
from surefoot.pool.table import TableError, clean, read_labeled_table
from surefoot.pool.training import LabeledTable, unfitted
from surefoot.report import render_report

BAYES = "sklearn.naive_bayes:GaussianNB"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> LabeledTable:
    """A pool whose --classes has one more class than its labels."""
    path = tmp_path_factory.mktemp("pool") / "pool.csv"
    make_pool().to_csv(path, index=False)
    table = read_labeled_table(path, "churn")
    pool = clean(replace(table, classes=[*table.classes, "unseen"]))
    return LabeledTable.from_pool(pool, np.zeros(len(pool.rows), dtype=bool))


@pytest.fixture(scope="module")
def trained(start: LabeledTable) -> dict[str, TrainedModel]:
    return {}


def model(name: str, start: LabeledTable, trained: dict[str, TrainedModel]) -> TrainedModel:
    if name not in trained:
        trained[name] = train(start, FitOptions(classifier=name), Clock())
    return trained[name]


@pytest.mark.parametrize("name", [*CLASSIFIERS, BAYES])
class TestEachClassifier:
    def test_is_stored_without_rows_and_predicts_the_same(
        self, name: str, start: LabeledTable, trained: dict[str, TrainedModel], tmp_path: Path
    ) -> None:
        found = model(name, start, trained)
        save_model(tmp_path / "model", model_file_of(found, {}, {}))
        data = (tmp_path / "model").read_bytes()
        trust = set(skops.io.get_untrusted_types(data=data)) if name == "boosting" else ()
        if trust:
            with pytest.raises(FileError):
                load_model(tmp_path / "model")
            trust |= {"sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingClassifier"}
        stored = load_model(tmp_path / "model", trust=_and_parts(tmp_path / "model", trust))
        again = stored.pipeline[-1].predict_proba(start.rest)
        np.testing.assert_array_equal(again, found.clf.predict_proba(start.rest))
        assert again.shape == (len(start.rest), 3)

    def test_chooses_rows_to_label(self, name: str, start: LabeledTable, trained: dict[str, TrainedModel]) -> None:
        chosen = candidates(model(name, start, trained), 3, 0)
        assert len({one.position for one in chosen}) == 3
        assert all(len(one.proba) == 3 and one.reason for one in chosen)


def _and_parts(path: Path, trust: Any) -> Any:
    """All types that a refusal names."""
    if not trust:
        return ()
    try:
        load_model(path)
    except FileError as error:
        return str(error).rpartition("--trust ")[2].split(",")
    return ()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CLASSIFIERS, BAYES])
def test_is_appraised_and_reported(name: str, start: LabeledTable, trained: dict[str, TrainedModel]) -> None:
    choices = FitOptions(classifier=name, radius=0.5 if name == "forest" else "default")
    judged = appraise(model(name, start, trained), choices, Clock(), worst=True)
    data = judged.data()
    assert data["classifier"] == name
    assert judged.crossfit is not None
    assert judged.worst is not None
    linear = name == "robust"
    assert (Code.NOT_LINEAR in {note.code for note in judged.missing}) is not linear
    assert (data["training"] is None) is (name not in ("robust", "minimax"))
    writing = Writing(Path("model.skops"), None, {}, 0)
    report = report_of(judged, [], writing, lambda _: None, curves=True)
    assert (report.weights is None, report.radius is None) == (not linear, not linear)
    assert report.guarantee is not None
    assert 'id="weights"' in render_report(report)


def test_the_bound_of_auto_repeats_the_choice(start: LabeledTable, monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot.estimators.combined import CombinedClassifier

    calls = []
    losses = CombinedClassifier._losses
    monkeypatch.setattr(CombinedClassifier, "_losses", lambda self, *args: calls.append(1) or losses(self, *args))
    choices = FitOptions(classifier="auto")
    found = TrainedModel(start, unfitted(choices, start, 1e-2), 0.0, np.ones((3, 2)), "auto")
    recipe = found.recipe.set_params(classifiers=[one for one in found.recipe.classifiers if _is_quick(one)])
    from surefoot import error_bound

    error_bound(recipe, start.rows, start.y, classes=start.classes, n_folds=4)
    assert len(calls) == 4


def _is_quick(clf: Any) -> bool:
    return type(clf).__name__ == "LogisticRegression" or type(clf).__name__ == "RandomForestClassifier"


class TestModuleObject:
    def test_in_the_working_folder(self, start: LabeledTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "my_models.py").write_text(
            "from sklearn.naive_bayes import GaussianNB\nflat = GaussianNB(var_smoothing=1.0)\n"
            "def made():\n    return GaussianNB(var_smoothing=0.5)\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        smoothing = [
            unfitted(FitOptions(classifier=f"my_models:{name}"), start, 1e-3).classifiers[0].var_smoothing
            for name in ("flat", "made")
        ]
        assert smoothing == [1.0, 0.5]

    @pytest.mark.parametrize("name", ["no_such_module:thing", "sklearn.svm:LinearSVC", "sklearn.svm:Nothing"])
    def test_refusals(self, name: str, start: LabeledTable) -> None:
        with pytest.raises(TableError):
            unfitted(FitOptions(classifier=name), start, 1e-3)

    def test_a_classifier_that_cannot_be_trained(self, start: LabeledTable) -> None:
        with pytest.raises(TableError, match="ComplementNB"):  # it refuses negative features
            train(start, FitOptions(classifier="sklearn.naive_bayes:ComplementNB"), Clock())

    def test_a_store_names_no_module(self, tmp_path: Path) -> None:
        """A store that came with a table must not make surefoot import anything."""
        table = tmp_path / "pool.csv"
        table.write_text("x,label\n1,a\n2,b\n")
        kept = settle(table, {"classifier": BAYES, "label": "label"}, {"classifier", "label"})
        kept.keep()
        assert read_options(store_path(table)) == {"label": "label"}
        with Store(store_path(table), {}) as store:
            store.keep_options({"classifier": "os:system"})
        with pytest.raises(FileError):
            read_options(store_path(table))


@pytest.mark.parametrize(("n", "n_classes"), [(30, 2), (200, 4)])
def test_trees_as_arrays_predict_the_same(n: int, n_classes: int) -> None:
    rng = np.random.default_rng(n)
    X, y, U = rng.normal(size=(n, 6)), rng.integers(n_classes, size=n), rng.normal(size=(500, 6))
    forest = RandomForestClassifier(20, random_state=0).fit(X, np.array(list("abcd"))[y])
    arrays = TreeAverage.from_forest(forest)
    np.testing.assert_array_equal(arrays.predict_proba(U), forest.predict_proba(U))
    np.testing.assert_array_equal(arrays.predict(U), forest.predict(U))


@pytest.mark.parametrize("field", ["feature_", "left_", "right_", "roots_"])
@pytest.mark.parametrize("value", [10**6, -(10**6)])
def test_forged_trees_end_with_an_error(field: str, value: int) -> None:
    rng = np.random.default_rng(0)
    forest = RandomForestClassifier(3, random_state=0).fit(rng.normal(size=(40, 3)), rng.integers(2, size=40))
    arrays = TreeAverage.from_forest(forest)
    getattr(arrays, field)[:] = value
    with pytest.raises(IndexError):
        arrays.predict_proba(np.zeros((2, 3)))


def test_trees_in_a_circle_end() -> None:
    rng = np.random.default_rng(0)
    forest = RandomForestClassifier(3, random_state=0).fit(rng.normal(size=(40, 3)), rng.integers(2, size=40))
    arrays = TreeAverage.from_forest(forest)
    arrays.left_[:] = arrays.right_[:] = 0
    arrays.depth_ = 10**12
    assert arrays.predict_proba(np.zeros((2, 3))).shape == (2, 2)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A label that follows one column of numbers and one of categories; the third is noise."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"size": rng.normal(size=90), "kind": rng.choice(["a", "b", "c"], 90), "noise": rng.normal(size=90)}
    )
    rows["label"] = np.where(2 * rows["size"] + 2 * (rows["kind"] == "a") > 0.7, "yes", "no")
    rows.loc[60:, "label"] = ""
    path = tmp_path_factory.mktemp("explain") / "pool.csv"
    rows.to_csv(path, index=False)
    return path


class TestExplain:
    def explained(self, table: Path, name: str, tmp_path: Path) -> Predictions:
        pool = clean(read_labeled_table(table, "label"))
        start = LabeledTable.from_pool(pool, np.zeros(len(pool.rows), dtype=bool))
        save_model(tmp_path / "m", model_file_of(train(start, FitOptions(classifier=name), Clock()), {}, {}))
        return predict_rows(Classifier.load(tmp_path / "m"), pool.table.cells, explain=True)

    def test_effects_of_a_linear_model_are_terms_of_its_score(self, table: Path, tmp_path: Path) -> None:
        found = self.explained(table, "robust", tmp_path)
        assert found.why is not None
        assert found.why.additive
        assert found.proba is not None
        clf = Classifier.load(tmp_path / "m")
        frame = clf.inputs(found.cells, "label")
        typical = clf.stored.certificate["typical"]  # type: ignore[union-attr]
        scores = clf.model.decision_function(frame)
        base = clf.model.decision_function(frame.assign(**typical))
        signed = np.where(found.proba[:, 1] > 0.5, 1, -1)
        # three columns in all: the listed effects are all terms, and their sum is the whole difference
        np.testing.assert_allclose(found.why.effects.sum(axis=1), signed * (scores - base), atol=1e-12)

    @pytest.mark.parametrize("name", ["robust", "blend"])
    def test_the_columns_of_the_label_come_first(self, name: str, table: Path, tmp_path: Path) -> None:
        found = self.explained(table, name, tmp_path)
        assert found.why is not None
        first = [found.why.names[at] for at in found.why.columns[:, 0]]
        assert np.mean([one == "noise" for one in first]) < 0.1
        told = found.table()
        assert list(told.columns[-3:]) == ["why_1", "why_2", "why_3"]
        assert told["why_1"].str.match(r"^(size|kind|noise) = .* \([+-]\d\.\d{3}\)$|^$").all()

    def test_a_written_table_may_be_written_again(self, table: Path, tmp_path: Path) -> None:
        write_predictions(tmp_path / "out.csv", self.explained(table, "robust", tmp_path).table())
        assert is_predictions(tmp_path / "out.csv")

    def test_a_foreign_model_is_compared_with_the_table(self, table: Path, tmp_path: Path) -> None:
        rows = pd.read_csv(table).iloc[:60]
        skops.io.dump(LogisticRegression().fit(rows[["size", "noise"]].to_numpy(), rows["label"]), tmp_path / "m")
        cells = read_labeled_table(table, "label").cells[["size", "noise"]]
        found = predict_rows(Classifier.load(tmp_path / "m"), cells, explain=True)
        assert found.why is not None
        assert not found.why.additive
        assert found.why.columns[:, 0].mean() < 0.2
