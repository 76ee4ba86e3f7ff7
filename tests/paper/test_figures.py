"""Quick runs of every figure are compared with stored images, and their numbers with the library used directly.

To draw the stored images again after a deliberate change: SUREFOOT_NEW_BASELINE=1 pytest tests/paper; then look
at them.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.testing.compare import compare_images

import surefoot as sf
from refusals import refuses
from surefoot.paper import experiment, reproduce
from surefoot.paper.page import TABLES, publish, refreshed
from surefoot.paper.protocol import Settings, Task
from surefoot.paper.runner import Reproduction
from surefoot.paper.samples import APPENDIX, MAIN, Sample, counted, panels
from surefoot.paper.tables import PRINTED

BASELINE = Path(__file__).parent / "baseline"
# root-mean-square difference of pixels, of 255: fonts and line caps may differ a little between versions
TOLERANCE = 6.0
FIGURES = ["figure1", "figure2", "figure3", "figure4", "figure5", "figure6"]
QUICK = Settings(("breast-cancer",), 1, quick=True)
_done: dict[str, Reproduction] = {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("quick")
    return path


def quick(name: str, folder: Path) -> Reproduction:
    """A quick run; figures 5 and 6 share their trials."""
    if name not in _done:
        with mpl.rc_context():
            mpl.rcdefaults()
            found = experiment(name)
            _done[name] = reproduce(name, quick=True, out=folder / found.study, progress=False)
    return _done[name]


@pytest.mark.parametrize("name", FIGURES)
def test_a_quick_run_looks_like_the_stored_image(name: str, folder: Path, tmp_path: Path) -> None:
    drawn = next(path for path in quick(name, folder).figures if path.suffix == ".png")
    expected = BASELINE / f"{name}.png"
    if os.environ.get("SUREFOOT_NEW_BASELINE"):
        shutil.copy(drawn, expected)
        pytest.skip(f"{expected.name} was drawn anew: look at it")
    copy = tmp_path / drawn.name  # compare_images writes beside its second argument
    shutil.copy(drawn, copy)
    difference = compare_images(str(expected), str(copy), tol=TOLERANCE)
    assert difference is None, difference


def test_an_image_that_differs_is_noticed(tmp_path: Path) -> None:
    copy = tmp_path / "figure5.png"
    shutil.copy(BASELINE / "figure6.png", copy)
    assert compare_images(str(BASELINE / "figure5.png"), str(copy), tol=TOLERANCE) is not None


@pytest.mark.parametrize("name", FIGURES)
def test_tables_and_claims_are_written(name: str, folder: Path) -> None:
    found = quick(name, folder)
    for table in found.tables:
        assert (found.out / f"{table}.csv").stat().st_size > 0
    claims = pd.read_csv(found.out / f"{name}-claims.csv")
    assert (claims["of"] == 1).all()
    assert claims["holds"].between(0, 1).all()


def test_a_device_is_refused_where_it_would_not_be_used(tmp_path: Path) -> None:
    with refuses("device", '"cpu"', "'cuda'"):
        reproduce("figure3", device="cuda", out=tmp_path)


def test_the_device_is_a_setting_of_the_folder() -> None:
    assert "device" not in QUICK.as_dict()  # as in folders begun before there was one
    assert replace(QUICK, device="cuda").as_dict()["device"] == "cuda"


def test_figure6_finds_the_trials_of_figure5_done(folder: Path) -> None:
    quick("figure5", folder)
    again = quick("figure6", folder)
    records = (again.out / "records.jsonl").read_bytes().splitlines()
    assert len(records) == 9
    assert {path.name for path in again.out.glob("figure*.png")} >= {"figure5.png", "figure6.png"}


class TestNumbers:
    """Rows against estimators and functions that users call."""

    def test_figure2_is_the_estimator_at_shares_of_the_distance(self) -> None:
        task = Task("breast-cancer", 0)
        rows = experiment("figure2").run(task, QUICK)
        sample = Sample.draw(task, QUICK, 100)
        X, y = sample.labeled
        distance = sf.transport_distance(X, y, sample.X, sample.y)
        for row in rows[3:]:
            assert row["radius"] == pytest.approx(row["share"] * distance, rel=1e-6)
            clf = sf.WassersteinLogisticRegression(radius=row["radius"]).fit(X, y)
            proba = clf.predict_proba(sample.X)
            likelihood = np.exp(np.log(proba[np.arange(len(sample.y)), sample.y]).mean())
            assert row["likelihood"] == pytest.approx(likelihood, abs=2e-3)
            assert row["max_confidence"] == pytest.approx(proba.max(), abs=2e-3)

    def test_figure3_is_the_worst_case_curve(self) -> None:
        task = Task("breast-cancer", 0)
        rows = experiment("figure3").run(task, QUICK)
        X, y = Sample.draw(task, QUICK, 100).labeled
        grid = np.logspace(-3, 0, 7)
        row = rows[2]
        clf = sf.WassersteinLogisticRegression(radius=grid[2]).fit(X, y)
        curve = sf.radius_curve(clf, X, y, radii=grid[2] + grid, ball=True, refit=False)
        np.testing.assert_allclose(row["likelihoods"], curve.likelihood, atol=2e-3)
        assert row["guarantee"] == pytest.approx(clf.certificate_.likelihood, abs=1e-5)
        for other in rows:  # worse the farther, and never better than the guarantee
            assert np.all(np.diff([other["guarantee"], *other["likelihoods"]]) <= 1e-6)

    def test_figure4_is_the_estimator_beyond_the_minimal_radius(self) -> None:
        task = Task("breast-cancer", 0)
        rows = experiment("figure4").run(task, QUICK)
        sample = Sample.draw(task, QUICK, 100)
        X, y = sample.labeled
        row = rows[2]
        prior = sample.label_probabilities
        minimal = sf.minimal_radius(X, y, X_unlabeled=sample.unlabeled, label_prior=prior)
        assert row["minimal_radius"] == pytest.approx(minimal)
        clf = sf.RobustLogisticRegression(radius=minimal + 0.01, label_prior=prior)
        clf.fit(X, y, X_unlabeled=sample.unlabeled)
        assert row["bound"] == pytest.approx(clf.certificate_.likelihood, abs=1e-3)
        assert row["gap"] <= 1e-3

    def test_figure5_on_a_device_agrees_within_the_gap(self) -> None:
        pytest.importorskip("torch", reason="torch is not installed")
        task = Task("breast-cancer", 0, "20")
        held = experiment("figure5").run(task, QUICK)
        there = experiment("figure5").run(task, replace(QUICK, device="torch"))
        for one, other in zip(held, there, strict=True):
            assert one["method"] == other["method"]
            assert abs(np.log(one["bound"] / other["bound"])) <= max(one["gap"], other["gap"])
            assert other["gap"] <= 1e-3

    def test_figure5_is_the_estimator_at_the_distance(self) -> None:
        task = Task("breast-cancer", 0, "40")
        rows = {row["method"]: row for row in experiment("figure5").run(task, QUICK)}
        sample = Sample.draw(task, QUICK, 40)
        X, y = sample.labeled
        radius = sf.transport_distance(X, y, sample.X, sample.y)
        assert rows["ball"]["radius"] == pytest.approx(radius)
        ball = sf.WassersteinLogisticRegression(radius=radius).fit(X, y)
        assert rows["ball"]["bound"] == pytest.approx(ball.certificate_.likelihood, abs=1e-5)
        for method, prior in (("strong", sample.label_probabilities), ("weak", "clopper-pearson")):
            clf = sf.RobustLogisticRegression(radius=radius, label_prior=prior)
            clf.fit(X, y, X_unlabeled=sample.unlabeled)
            assert rows[method]["bound"] == pytest.approx(clf.certificate_.likelihood, abs=1e-3)
            assert rows[method]["gap"] <= 1e-3
            assert rows[method]["excess"] == pytest.approx(radius - clf.certificate_.minimal_radius, abs=1e-6)

    def test_labels_of_one_class_are_no_error(self) -> None:
        sample = Sample.draw(Task("breast-cancer", 0), QUICK, 10)
        order = np.argsort(sample.y, kind="stable")
        from surefoot.paper.figures_4_to_6 import at_true_radius

        one_class = Sample(sample.X[order], sample.y[order], 10)
        assert len(set(one_class.labeled[1])) == 1
        assert [row["method"] for row in at_true_radius(one_class)] == ["ball", "strong", "weak"]


class TestTable2:
    def test_it_equals_the_papers(self, dataset_path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SUREFOOT_DATA", str(dataset_path("abalone").parent))
        asked = ["abalone", "letter-c-e", "wine", "yeast", "pulsar", "bank", "bank-leaky"]
        table = reproduce("table2", datasets=asked, out=tmp_path, progress=False).tables["table2"].set_index("dataset")
        assert table.drop(index="bank")["equal"].eq("yes").all()
        assert table.loc["bank", "features"] == 51
        assert "label itself" in table.loc["bank", "note"]
        assert "contain the label" in table.loc["bank-leaky", "note"]

    @pytest.mark.slow
    def test_all_datasets(self, dataset_path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SUREFOOT_DATA", str(dataset_path("abalone").parent))
        table = reproduce("table2", out=tmp_path, progress=False).tables["table2"]
        assert set(table["dataset"]) == set(PRINTED)
        assert set(table.loc[table["equal"] == "no", "dataset"]) == {"bank"}


class TestPanels:
    def test_main_text_and_appendix_get_a_figure_each(self) -> None:
        assert len(MAIN) == 6
        assert len(APPENDIX) == 8
        table = pd.DataFrame({"dataset": ["yeast", "wine", "wine", "bank"], "x": [1, 2, 3, 4]})
        seen: dict[str, list[int]] = {}
        drawn = panels("figure9", table, lambda ax, part: seen.update({part["dataset"].iloc[0]: list(part["x"])}))
        assert {name: [ax.get_title() for ax in figure.axes] for name, figure in drawn.items()} == {
            "figure9": ["Wine"],
            "figure9-appendix": ["Yeast", "Bank"],
        }
        assert seen == {"wine": [2, 3], "yeast": [1], "bank": [4]}

    def test_claims_are_counted(self) -> None:
        holds = pd.Series({"wine": True, "yeast": False, "bank": True})
        table = counted({"it holds": holds})
        assert table.to_dict("records") == [{"claim": "it holds", "holds": 2, "of": 3, "fails_on": "yeast"}]


class TestPage:
    """docs/reproduction/README.md and the summaries beside it."""

    FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproduction"

    def test_its_tables_are_those_of_the_summaries(self) -> None:
        page = (self.FOLDER / "README.md").read_text(encoding="utf-8")
        assert page == refreshed(page, self.FOLDER)

    def test_it_shows_only_figures_that_are_there(self) -> None:
        page = (self.FOLDER / "README.md").read_text(encoding="utf-8")
        shown = re.findall(r"\]\(([\w.-]+\.(?:png|csv))\)", page)
        assert shown
        assert [name for name in shown if not (self.FOLDER / name).exists()] == []

    def test_runs_are_published(self, folder: Path, tmp_path: Path) -> None:
        names = ["figure1", "figure2", "figure3", "figure4", "figure5", "figure6"]
        publish(tmp_path, dict.fromkeys(quick(name, folder).out for name in names))
        marks = [name for name in TABLES if name != "table2"]
        page = "\n".join(f"<!-- {name} -->\n<!-- end -->" for name in marks)
        found = refreshed(page, tmp_path)
        assert found.count("| Breast cancer |") >= 7
        assert "Not run yet" not in found
        assert refreshed(found, tmp_path) == found
        bounds = pd.read_csv(tmp_path / "figure5-6.csv").query("n_labeled == 40").set_index("method")["bound"]
        assert " / ".join(f"{bounds[method]:.3f}" for method in ("ball", "strong", "weak")) in found
        assert list(pd.read_csv(tmp_path / "runs.csv")["study"]) == [
            "figure1",
            "figure2",
            "figure3",
            "figure4",
            "figure5-6",
        ]

    def test_a_mark_of_no_table_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"a mark must name one of runs, .*; got 'figure9'"):
            refreshed("<!-- figure9 -->\n<!-- end -->", tmp_path)
