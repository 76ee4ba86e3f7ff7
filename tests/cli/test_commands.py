"""Each command on a small pool: what it guarantees must be so."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC

import surefoot as sf
from generators import Result, make_pool
from surefoot.pool.model_file import ModelFile, load_model
from surefoot.pool.training import auto_confidence, constant_answer, constant_loss

Run = Callable[..., Result]
# What a stored forest is made of, to be trusted by name.
FOREST = ("ensemble._forest.RandomForestClassifier", "tree._classes.DecisionTreeClassifier", "tree._tree.Tree")
TREES = ",".join(f"sklearn.{name}" for name in FOREST)


def test_fit_writes_a_model_and_a_report(run_cli: Run, pool: Path) -> None:
    result = run_cli("fit", pool, "--label", "churn", "--prior", "0.6,0.4", "--worst-case")
    assert result.code == 0, result.err
    words = " ".join(result.out.split())
    assert words.index("accuracy") < words.index("error rate at most") < words.index("worst case")
    assert len((result.out + result.err).splitlines()) <= 15
    assert {"pool.skops", "pool.html"} <= {path.name for path in Path().iterdir()}
    model = load_model("pool.skops")
    assert isinstance(model, ModelFile)
    assert model.label == "churn"
    assert model.classes == ["no", "yes"]
    assert model.columns.used == ["age", "income", "plan"]


def test_fit_is_what_the_library_gives(run_cli: Run, pool: Path) -> None:
    result = run_cli("fit", pool, "--label", "churn", "--radius", "calibrated", "--no-report", "--json")
    assert result.code == 0
    model = load_model("pool.skops")
    frame = pd.read_csv(pool)
    rows = model.cleaner.transform(model.columns.read(frame))
    labeled = frame["churn"].notna().to_numpy()
    y = frame.loc[labeled, "churn"].to_numpy()
    metric = sf.costs.LearnedMetric(unit=1 / model.cleaner[-1].scale_)  # cleaned features keep their scales
    clf = sf.RobustLogisticRegression(radius="calibrated", metric=metric)
    clf.fit(rows[labeled], y, X_unlabeled=rows[~labeled])
    found = result.data["certificate"]
    assert found["risk"] == pytest.approx(clf.certificate_.risk, abs=1e-3)
    assert found["guaranteed"] is True
    assert "radius" not in found  # it is tied to the label shares, so that no one number is it
    assert found["tied_excess"] == pytest.approx(clf.certificate_.estimate.excess, rel=1e-9)
    assert found["lower"] <= clf.certificate_.risk
    assert model.pipeline[-1].predict_proba(rows) == pytest.approx(clf.predict_proba(rows), abs=5e-3)
    how = {"radius": "calibrated", "loss": "zero_one", "metric": metric}
    errors = sf.certify(clf, rows[labeled], y, X_unlabeled=rows[~labeled], **how)
    assert found["error"] == pytest.approx(errors.risk, abs=3e-3)


def test_by_default_the_model_is_the_librarys_and_the_guarantee_a_certificate_of_it(run_cli: Run, pool: Path) -> None:
    result = run_cli("fit", pool, "--label", "churn", "--json", "--no-report", "--worst-case")
    model, frame = load_model("pool.skops"), pd.read_csv(pool)
    rows = model.cleaner.transform(model.columns.read(frame))
    labeled = frame["churn"].notna().to_numpy()
    y, U = frame.loc[labeled, "churn"].to_numpy(), rows[~labeled]
    # cleaned features keep their scales, which are in units of the largest entry
    metric = sf.costs.LearnedMetric(unit=1 / model.cleaner[-1].scale_)
    clf = sf.RobustLogisticRegression(metric=metric).fit(rows[labeled], y, X_unlabeled=U)
    assert model.pipeline[-1].predict_proba(rows) == pytest.approx(clf.predict_proba(rows), abs=5e-3)
    assert model.pipeline[-1].metric_.weights == pytest.approx(clf.metric_.weights, rel=1e-6)
    found = result.data["certificate"]
    assert (found["radius_from"], found["guaranteed"]) == ("calibrated", True)
    for loss, value in (("log_loss", found["risk"]), ("zero_one", found["error"])):
        guarantee = sf.certify(clf, rows[labeled], y, X_unlabeled=U, radius="calibrated", loss=loss, metric=metric)
        assert value == pytest.approx(guarantee.risk, rel=5e-3, abs=5e-3)


@pytest.mark.parametrize(("radius", "word"), [("calibrated", "certified"), ("auto", "worst-case")])
def test_a_target_that_is_missed_is_told_in_true_words(run_cli: Run, pool: Path, radius: str, word: str) -> None:
    result = run_cli("fit", pool, "-l", "churn", "-r", radius, "--no-report", "--target-risk", 0.001, "--json")
    assert result.code == 3
    note = next(note for note in result.data["notes"] if "is above --target-risk" in note)
    assert note.startswith(f"the {word} log loss ")
    shown = float(re.findall(r"\d+\.\d+", note)[0])
    assert 0 <= shown - result.data["certificate"]["risk"] < 1e-4


def test_with_few_labels_nothing_is_guaranteed(run_cli: Run, pool: Path) -> None:
    make_pool(n_labels=12).to_csv(pool, index=False)
    result = run_cli("fit", pool, "--label", "churn", "--no-report", "--worst-case")
    words = " ".join(result.out.split())
    assert "no cross-fitted bound, which requires at least 20 random labels (got 12)." in words
    assert "requires at least 20 random labels (got 12). Pass a number as --radius" in words
    assert "Certificate" not in words
    assert "guaranteed" not in words
    data = run_cli("fit", pool, "--no-report", "--json").data
    assert data["bounds"] == []
    assert data["certificate"]["guaranteed"] is False
    assert any("kept from pool.csv.surefoot.db: --label churn" in note for note in data["notes"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), []), (("--worst-case",), ["radius"]), (("--full-report",), ["radius", "curves"]), (("-r", 0.5), ["radius"])],
)
def test_the_worst_case_and_its_curves_are_computed_on_request(
    run_cli: Run, pool: Path, options: tuple[object, ...], expected: list[str]
) -> None:
    data = run_cli("fit", pool, "--label", "churn", "--json", *options).data
    assert [bound["method"] for bound in data["bounds"]] == ["crossfit", *(["transport"] * 2 if expected else [])]
    page = Path("pool.html").read_text(encoding="utf-8")
    sections = re.findall(r'<section id="(\w+)"', page)
    always = ["short", "warnings", "weights", "confidence", "next", "data"]
    stated = ["guarantee", "certificate", "adversary"] if expected else []
    assert sorted(sections) == sorted([*always, *stated, *(["radius"] if "curves" in expected else [])])
    assert re.findall(r'href="#(\w+)"', page)[1:] == sections
    assert ("For the worst case" in page) == ("curves" in expected)
    assert "worst case" not in page or expected


def test_a_rule_of_thumb_is_no_guarantee(run_cli: Run, pool: Path) -> None:
    words = " ".join(run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto").out.split())
    assert "Certificate" not in words
    assert "no guarantee: the true distribution may lie outside this set" in words
    data = run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto", "--json").data
    assert data["certificate"]["guaranteed"] is False
    assert [bound["guaranteed"] for bound in data["bounds"]] == [True, False, False]  # the bound, then worst cases
    given = run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", 5, "--json").data["certificate"]
    assert given["guaranteed"] is True
    assert given["radius"] == 5.0


def test_the_bound_is_that_of_the_library(run_cli: Run, pool: Path) -> None:
    data = run_cli("fit", pool, "--label", "churn", "--no-report", "--json").data
    model, frame = load_model("pool.skops"), pd.read_csv(pool)
    rows = model.cleaner.transform(model.columns.read(frame))
    labeled = frame["churn"].notna().to_numpy()
    metric = sf.costs.LearnedMetric(unit=1 / model.cleaner[-1].scale_)
    clf = sf.RobustLogisticRegression(metric=metric, tol=1e-3, classes=["no", "yes"])
    found = sf.error_bound(
        clf, rows[labeled], frame.loc[labeled, "churn"].to_numpy(), X_unlabeled=sf.Unlabeled(rows[~labeled])
    )
    first = data["bounds"][0]
    assert (first["method"], first["kind"]) == ("crossfit", "measured")
    assert first["value"] == pytest.approx(found.value)
    assert data["accuracy"]["cross_validated"] == pytest.approx(1 - found.n_errors / found.n_labels)


def test_a_constant_model_is_named_one(run_cli: Run, pool: Path) -> None:
    frame = make_pool(n_labels=30)
    rng = np.random.default_rng(1)
    frame[["age", "income"]] = rng.normal(size=(len(frame), 2))
    frame["plan"] = rng.choice(["a", "b"], len(frame))
    frame.to_csv(pool, index=False)
    asked = run_cli("fit", pool, "--label", "churn", "--no-report", "--json", "--radius", "calibrated").data
    worst = asked["certificate"]
    answered = max(asked["answers"].values())
    if answered == 1.0:
        assert any("for every row. Label more rows." in note for note in asked["notes"])
        assert worst["error"] == pytest.approx(worst["constant_error"], abs=1e-3)
    assert worst["error"] >= worst["constant_error"] - 1e-3


def test_the_next_command_works_as_it_is(run_cli: Run, pool: Path) -> None:
    make_pool().to_csv("my pool.csv", index=False, sep=";")
    found = run_cli("fit", "my pool.csv", "--label", "churn", "--no-report", "--json", "--out", "my model.skops").data
    program, *arguments = shlex.split(found["next"])
    assert (program, arguments[0]) == ("surefoot", "predict")
    assert run_cli(*arguments).code == 0
    assert len(pd.read_csv("my pool-predicted.csv")) == 120


def test_a_model_not_to_be_used_asks_for_labels_next(run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = make_pool(n_labels=30)
    frame[["age", "income"]] = np.random.default_rng(1).normal(size=(len(frame), 2))
    frame["plan"] = "a"
    frame.to_csv(pool, index=False)
    found = run_cli("fit", pool, "--label", "churn", "--json").data
    program, *arguments = shlex.split(found["next"])
    assert (program, arguments[0]) == ("surefoot", "label")
    page = Path("pool.html").read_text(encoding="utf-8")
    assert "label the rows that help most" in page
    assert found["next"] in page
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert run_cli(*arguments).code == 0


def test_time_bounds_a_fit_and_says_what_was_left_out(
    run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surefoot.pool import model

    with monkeypatch.context() as hurried:
        hurried.setattr(model, "_PILOT_ROWS", 20)
        hurried.setattr(model, "_SHARE", 0.0)
        data = run_cli("fit", pool, "--label", "churn", "--no-report", "--json", "--time", 300).data
    assert data["complete"] is False
    assert any("random sample of 20 of the 90 unlabeled rows" in note for note in data["notes"])
    monkeypatch.setattr("surefoot.pool.options.Clock.left", property(lambda self: -1.0 if self.budget else np.inf))
    late = run_cli("fit", pool, "--label", "churn", "--no-report", "--worst-case", "--time", 1)
    assert late.code == 0
    assert " ".join(late.out.split()).count("within the time limit (--time)") == 2


def test_unsure_rows_are_left_empty_on_request(run_cli: Run, model: Path, pool: Path) -> None:
    whole = run_cli("predict", model, pool, "--json").data
    confidence = np.max(whole["probabilities"], axis=1)
    limit = float(np.round(np.median(confidence), 3))
    found = run_cli("predict", model, pool, "--abstain", limit, "--json").data
    expected = [one if sure >= limit else None for one, sure in zip(whole["predictions"], confidence, strict=True)]
    assert found["predictions"] == expected
    assert whole["abstained"] == 0 < found["abstained"] == expected.count(None)
    assert sum(found["predicted"].values()) == len(expected) - found["abstained"]
    run_cli("predict", model, pool, "--abstain", limit, "--out", "sure.csv")
    assert pd.read_csv("sure.csv")["predicted_churn"].isna().sum() == found["abstained"]


def test_a_model_without_probabilities_cannot_abstain(run_cli: Run, pool: Path) -> None:
    import skops.io

    frame = make_pool().dropna(subset=["income"]).assign(plan=0)
    svm = LinearSVC().fit(frame[["age", "income"]].to_numpy(), np.arange(len(frame)) % 2)
    skops.io.dump(svm, "svm.skops")
    frame[["age", "income"]].to_csv("numbers.csv", index=False)
    result = run_cli(
        "predict", "svm.skops", "numbers.csv", "--abstain", 0.8, "--trust", "sklearn.svm._classes.LinearSVC"
    )
    assert result.code == 2
    assert "--abstain needs a model with probabilities" in result.message


def test_predict_and_score_count_the_same_new_labels(run_cli: Run, model: Path, pool: Path) -> None:
    frame = pd.read_csv(pool)
    labeled = frame[frame["churn"].notna()]
    copies = labeled.assign(churn=None)  # alike in all features, and not labeled
    new = frame[frame["churn"].isna()].assign(churn="no").head(7)
    pd.concat([copies, labeled, new]).to_csv("new.csv", index=False)
    notes = run_cli("predict", model, "new.csv", "--json").data["notes"]
    scored = run_cli("score", model, "new.csv", "--json").data
    assert (scored["rows"], scored["taught"]) == (len(labeled) + 7, len(labeled))
    assert any("filled in for 7 new rows" in note for note in notes)


@pytest.mark.parametrize(("wanted", "code", "program"), [(0.9, 0, "predict"), (0.01, 3, "label")])
def test_a_largest_error_gives_a_verdict(run_cli: Run, pool: Path, wanted: float, code: int, program: str) -> None:
    result = run_cli("fit", pool, "--label", "churn", "--max-error", wanted, "--json")
    assert result.code == code
    assert result.data["verdict"] == ("met" if code == 0 else "not_met")
    assert shlex.split(result.data["next"])[1] == program
    assert f"--max-error {wanted:g}" in Path("pool.html").read_text(encoding="utf-8")


def test_a_column_that_gives_the_label_away_is_named(run_cli: Run, pool: Path) -> None:
    frame = make_pool(n_labels=40)
    frame[["age", "income"]] = np.random.default_rng(0).normal(size=(len(frame), 2)).round(2)
    frame["plan"] = "plus"
    frame.to_csv(pool, index=False)
    assert run_cli("fit", pool, "--label", "churn", "--no-report", "--json").data["suspects"] == []
    frame["outcome"] = frame["churn"].map({"yes": "left", "no": "stayed"}).fillna("stayed")
    frame.to_csv(pool, index=False)
    result = run_cli("fit", pool, "--label", "churn", "--no-report")
    assert "--drop 'outcome'" in result.err
    assert run_cli("fit", pool, "--label", "churn", "--no-report", "--json").data["suspects"] == ["outcome"]


def test_a_rare_class_that_is_missed_is_named(run_cli: Run, pool: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(150, 3)).round(3), columns=["a", "b", "c"])
    frame["y"] = [*["yes"] * 6, *["no"] * 74, *[None] * 70]
    frame.loc[frame.index[-30:], "a"] += 20  # not all predictions are alike
    frame.to_csv(pool, index=False)
    data = run_cli("fit", pool, "--label", "y", "--no-report", "--json").data
    results = data["by_class"]
    assert results["yes"]["labels"] == 6
    assert results["yes"]["recall"] < 0.5
    assert results["no"]["recall"] > 0.9
    assert data["constant"] == {"answer": "no", "accuracy": 74 / 80}
    assert any("of the 6 labels 'yes'" in note for note in data["notes"])
    assert data["verdict"] in {"care", "constant"}
    words = " ".join(run_cli("fit", pool, "--label", "y", "--no-report", "--verbose").out.split())
    assert "yes: recall" in words


@pytest.mark.parametrize("code", [0, 3])
def test_the_target_risk_sets_the_exit_code(run_cli: Run, pool: Path, code: int) -> None:
    arguments = ("fit", pool, "--label", "churn", "--no-report", "--json", "--target-risk", 5.0 if code == 0 else 1e-6)
    result = run_cli(*arguments)
    assert result.code == code == result.data["exit_code"]
    assert Path("pool.skops").exists()


@pytest.mark.slow
def test_the_seed_settles_everything(run_cli: Run, pool: Path) -> None:
    arguments = ("fit", pool, "--label", "churn", "--no-report", "--json", "--radius", "calibrated", "--seed")
    first, again, other = (run_cli(*arguments, seed).data["certificate"] for seed in (1, 1, 2))
    assert first == again
    assert first["tied_excess"] != other["tied_excess"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_all_formats_say_the_same(run_cli: Run, pool: Path, suffix: str) -> None:
    frame, path = make_pool(), Path(f"other{suffix}")
    if suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    expected = run_cli("fit", pool, "--label", "churn", "--no-report", "--json", "--radius", "1.0").data
    found = run_cli("fit", path, "--label", "churn", "--no-report", "--json", "--radius", "1.0").data
    assert found["certificate"] == expected["certificate"]
    assert found["columns"] == expected["columns"]


@pytest.mark.usefixtures("model")
class TestPredict:
    def test_a_raw_table(self, run_cli: Run) -> None:
        new = make_pool(200, 200, seed=5)
        truth = new.pop("churn")
        new.loc[0, "plan"], new.loc[1, "age"] = "never seen", np.nan
        new.to_csv("new.csv", index=False)
        result = run_cli("predict", "pool.skops", "new.csv", "--json").data
        assert np.mean(np.array(result["predictions"]) == truth.to_numpy()) > 0.9
        assert np.sum(result["probabilities"], axis=1) == pytest.approx(np.ones(200), abs=1e-5)
        text = run_cli("predict", "pool.skops", "new.csv").out
        assert text.splitlines()[0] == "row,predicted_churn,p(no),p(yes)"
        assert [line.split(",")[1] for line in text.splitlines()[1:]] == result["predictions"]

    @pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
    def test_to_a_file(self, run_cli: Run, pool: Path, suffix: str) -> None:
        out = Path(f"out{suffix}")
        assert run_cli("predict", "pool.skops", pool, "--out", out).code == 0
        written = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out, sep=None, engine="python")
        assert list(written.columns) == ["age", "income", "plan", "churn", "predicted_churn", "p(no)", "p(yes)"]
        assert len(written) == 120

    def test_other_columns_are_refused(self, run_cli: Run) -> None:
        make_pool().drop(columns="plan").to_csv("new.csv", index=False)
        result = run_cli("predict", "pool.skops", "new.csv")
        assert result.code == 2
        assert "'plan' is missing" in result.message
        make_pool().assign(age="old").to_csv("new.csv", index=False)
        result = run_cli("predict", "pool.skops", "new.csv")
        assert result.code == 2
        assert "'age'" in result.message
        make_pool().assign(income=[f"{k},25" for k in range(120)]).to_csv("new.csv", index=False)
        message = run_cli("predict", "pool.skops", "new.csv").message
        assert "1234.5" in message  # how the table of the fit writes its numbers
        assert "--categories" not in message  # which predict does not have

    def test_a_table_is_no_model(self, run_cli: Run, pool: Path) -> None:
        result = run_cli("predict", pool, pool)
        assert result.code == 2
        assert "must be a model stored with skops" in result.message
        assert run_cli("predict", "none.skops", pool).code == 2


class TestCertify:
    def test_our_own_model_as_the_fit_said(self, run_cli: Run, pool: Path) -> None:
        fit = run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "calibrated", "--json").data
        for loss, value in (("log_loss", fit["certificate"]["risk"]), ("zero_one", fit["certificate"]["error"])):
            again = run_cli("certify", "pool.skops", pool, "--loss", loss, "--radius", "calibrated", "--json").data
            if loss == "zero_one":
                assert again["bounds"][0] == fit["bounds"][0]  # the same model, the same number
            assert again["certificate"]["risk"] == pytest.approx(value, abs=3e-3)
            assert again["certificate"]["lower"] <= again["certificate"]["risk"]

    @pytest.mark.parametrize("numbers", [False, True])
    def test_any_classifier(self, run_cli: Run, pool: Path, numbers: bool) -> None:
        import skops.io

        frame = make_pool()
        if numbers:
            frame["churn"] = frame["churn"].map({"no": 0, "yes": 1})
        frame.to_csv(pool, index=False)
        labeled = frame["churn"].notna()
        encode = OneHotEncoder(handle_unknown="ignore")
        y = frame.loc[labeled, "churn"].astype(int if numbers else object)
        forest = make_pipeline(encode, RandomForestClassifier(20, random_state=0)).fit(
            frame.loc[labeled, ["plan", "age"]], y
        )
        skops.io.dump(forest, "forest.skops")
        result = run_cli(
            "certify",
            "forest.skops",
            pool,
            "--label",
            "churn",
            "--radius",
            "1.0",
            "--prior",
            "0.6,0.4",
            "--json",
            "--trust",
            TREES,
        )
        assert result.code == 0, result.message
        found = result.data["certificate"]
        assert found["loss"] == "zero_one"
        assert 0 < found["lower"] <= found["risk"] <= 1

    def test_the_label_must_be_named(self, run_cli: Run, pool: Path) -> None:
        import skops.io

        skops.io.dump(LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"]), "linear.skops")
        assert "Pass --label" in run_cli("certify", "linear.skops", pool).message
        skops.io.dump({"a": 1}, "dict.skops")
        assert "must hold a fitted classifier" in run_cli("certify", "dict.skops", pool, "--label", "churn").message

    def test_few_labels_need_a_radius(self, run_cli: Run, pool: Path) -> None:
        run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto")
        make_pool(n_labels=10).to_csv(pool, index=False)
        result = run_cli("certify", "pool.skops", pool, "--forget")
        assert result.code == 2
        assert "Pass a number as --radius" in result.message


def test_radius_prints_what_the_library_gives(run_cli: Run, pool: Path) -> None:
    make_pool(80, 80, seed=3).to_csv("last-year.csv", index=False)
    result = run_cli("radius", pool, "--label", "churn", "--reference", "last-year.csv", "--path", 3, "--json").data
    run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto")
    model, frame, last = load_model("pool.skops"), pd.read_csv(pool), pd.read_csv("last-year.csv")
    rows = model.cleaner.transform(model.columns.read(frame))
    labeled = frame["churn"].notna().to_numpy()
    y = frame.loc[labeled, "churn"].to_numpy()
    units = {"metric": "euclidean", "label_cost": 1.0}  # those of the numbers that --radius takes
    estimate = sf.calibrate_radius(rows[labeled], y, X_unlabeled=rows[~labeled], **units)
    assert result["minimal"] == pytest.approx(estimate.minimal_radius)
    assert result["calibrated"]["tied_excess"] == pytest.approx(estimate.excess)
    other = model.cleaner.transform(model.columns.read(last))
    distance = sf.transport_distance(rows[labeled], y, other, last["churn"].to_numpy())
    assert result["reference"]["radius"] == pytest.approx(distance)
    risks = [point["risk"] for point in result["path"]]
    assert risks == sorted(risks)


def test_query_names_unlabeled_rows_with_reasons(run_cli: Run, pool: Path) -> None:
    result = run_cli("query", pool, "--label", "churn", "-n", 4, "--json").data
    labels = pd.read_csv(pool)["churn"]
    rows = [entry["row"] for entry in result["rows"]]
    assert len(set(rows)) == 4
    assert labels.iloc[[row - 1 for row in rows]].isna().all()
    assert all(entry["why"] for entry in result["rows"])
    text = run_cli("query", pool, "--label", "churn", "-n", 4).out
    assert all(str(row) in text for row in rows)
    assert run_cli("query", pool, "--label", "churn", "-n", 4, "--pool-size", 20, "--json").data["notes"]


def test_query_shows_identifiers_and_dates_as_they_are_written(run_cli: Run, pool: Path) -> None:
    frame = make_pool()
    frame.insert(0, "customer", [f"C-{7919 * row % 9973:04d}" for row in range(len(frame))])
    frame.insert(1, "since", pd.date_range("2021-03-01", periods=len(frame), freq="9D").strftime("%d.%m.%Y"))
    frame.to_csv(pool, index=False)
    result = run_cli("query", pool, "--label", "churn", "-n", 2, "--json").data
    text = run_cli("query", pool, "--label", "churn", "-n", 2).out
    for entry in result["rows"]:
        row = frame.iloc[entry["row"] - 1]
        assert (entry["name"], entry["cells"]["since"]) == (row["customer"], row["since"])
        assert row["customer"] in text
        assert row["since"] in text


def test_reproduce_and_demo(run_cli: Run, pool: Path) -> None:
    result = run_cli("reproduce", "table2", "--quick", "--out", "here", "--json")
    assert result.code == 0, result.message
    assert result.data["name"] == "table2"
    assert all(Path(path).exists() for path in result.data["tables"].values())
    assert "must be one of figure1" in run_cli("reproduce", "figure9", "--quick").message
    assert run_cli("demo", "--out", "demo.txt").code == 2


def test_every_command_offers_json_and_help(run_cli: Run) -> None:
    for command in ("fit", "predict", "score", "certify", "radius", "query", "label", "reproduce", "demo"):
        result = run_cli(command, "--help")
        assert result.code == 0
        assert "--json" in result.out
        assert result.out.index("Output:") < result.out.index("Advanced:")
    assert run_cli("--version").out == f"surefoot {sf.__version__}\n"
    assert run_cli("frob").code == 2


def test_the_program_names_three_commands_and_its_help_all(run_cli: Run) -> None:
    start = run_cli()
    assert start.code == 0
    assert [line.split()[:2] for line in start.out.splitlines() if line.startswith("  ")] == [
        ["surefoot", "serve"],
        ["surefoot", "fit"],
        ["surefoot", "serve"],
    ]
    sections = run_cli("--help").out
    assert "..." not in sections.replace("COMMAND [ARGS]...", "")  # no sentence is cut
    for command in ("fit", "serve", "audit", "reproduce"):
        assert f"\n  {command} " in sections


def test_fit_explains_itself_when_asked(run_cli: Run, pool: Path) -> None:
    certified = run_cli("fit", pool, "--label", "churn", "--no-report", "--verbose", "--worst-case").out
    assert certified.index("Quality of this model") < certified.index("Certificate: worst case over the decision set")
    assert "Assumptions" in certified


def test_the_shell_can_complete(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "surefoot.cli"]
    environment = {"_SUREFOOT_COMPLETE": "complete_bash", "COMP_WORDS": "surefoot que", "COMP_CWORD": "1"}
    done = subprocess.run(program, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["query"]


def test_an_interrupt_is_130(run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("surefoot.pool.model.train", stop)
    assert run_cli("fit", pool, "--label", "churn").code == 130


@pytest.mark.parametrize(
    "intervals", [[[0.2, 0.3], [0.1, 0.9], [0.0, 0.15]], [[0.7, 0.7], [0.3, 0.3]], [[0, 1], [0, 1]]]
)
def test_the_constant_answer_has_the_largest_entropy(intervals: list[list[float]]) -> None:
    bounds = np.array(intervals, dtype=float)
    found = minimize(
        lambda p: float(np.sum(p * np.log(np.maximum(p, 1e-300)))),
        constant_answer(bounds) * 0.5 + 0.5 * bounds.mean(axis=1),
        bounds=bounds,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0},
        tol=1e-12,
    )
    assert constant_loss(bounds) == pytest.approx(-found.fun, abs=1e-6)


def test_without_a_prior_auto_keeps_the_papers_confidence() -> None:
    assert auto_confidence(np.array([[0.0, 1.0], [0.0, 1.0]])) == pytest.approx(0.7)
    assert auto_confidence(np.array([[0.9, 0.9], [0.1, 0.1]])) > 0.9


def test_json_holds_no_infinities() -> None:
    from surefoot.cli.output import plain

    assert json.loads(json.dumps(plain({"a": np.inf, "b": np.array([1.0, np.nan]), 3: np.int64(2)}))) == {
        "a": None,
        "b": [1.0, None],
        "3": 2,
    }


def test_rare_categories_do_not_drown_what_matters(run_cli: Run, tmp_path: Path) -> None:
    """25 categories, and a number that tells the classes: standardised, each category weighs as much as it."""
    rng = np.random.default_rng(0)
    value, city = rng.normal(size=800), rng.integers(25, size=800)
    truth = np.where(value + 0.3 * rng.normal(size=800) > 0, "yes", "no")
    frame = pd.DataFrame({"value": value, "city": [f"city {c}" for c in city], "y": truth})
    frame.assign(y=frame["y"].where(np.arange(800) < 40)).to_csv(tmp_path / "cities.csv", index=False)
    run_cli("fit", tmp_path / "cities.csv", "--label", "y", "--no-report", "--json", "--out", tmp_path / "cities.skops")
    model = load_model(tmp_path / "cities.skops")
    rows = model.cleaner.transform(model.columns.read(frame))
    U = rows[40:]
    standardised = sf.RobustLogisticRegression().fit(rows[:40], truth[:40], X_unlabeled=U)
    plain = LogisticRegression().fit(rows[:40] * model.cleaner[-1].scale_, truth[:40])
    found = np.mean(model.pipeline[-1].predict(U) == truth[40:])
    assert found > standardised.score(U, truth[40:]) + 0.02
    assert found >= plain.score(U * model.cleaner[-1].scale_, truth[40:]) - 0.01


def test_the_model_is_an_ordinary_pipeline(run_cli: Run, pool: Path) -> None:
    run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto")
    model = load_model("pool.skops")
    assert isinstance(model.pipeline, Pipeline)
    assert set(model.pipeline.predict(make_pool().drop(columns="churn"))) <= {"no", "yes"}
