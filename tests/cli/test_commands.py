"""Each command on a small pool: what it promises must be so."""

from __future__ import annotations

import json
import os
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
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

import surefoot as sf
from cli.pools import Result, make_pool
from surefoot.cli.learn_pool import auto_confidence, constant_answer, constant_loss
from surefoot.model_file import ModelFile, load_model

Run = Callable[..., Result]


def test_fit_writes_a_model_and_a_report(run_cli: Run, pool: Path) -> None:
    result = run_cli("fit", pool, "--label", "churn", "--prior", "0.6,0.4")
    assert result.code == 0, result.err
    assert "in the worst case" in result.out
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
    clf = sf.RobustLogisticRegression(radius="calibrated").fit(rows[labeled], y, X_unlabeled=rows[~labeled])
    found = result.data["certificate"]
    assert found["risk"] == pytest.approx(clf.certificate_.risk, abs=2e-4)
    assert found["radius"] == pytest.approx(clf.certificate_.radius, rel=1e-9)
    assert found["lower"] <= clf.certificate_.risk
    assert model.pipeline[-1].predict_proba(rows) == pytest.approx(clf.predict_proba(rows), abs=5e-3)
    errors = sf.certify(clf, rows[labeled], y, X_unlabeled=rows[~labeled], radius="calibrated", loss="zero_one")
    assert found["error"] == pytest.approx(errors.risk, abs=3e-3)


def test_with_few_labels_the_radius_is_the_rule_of_thumb(run_cli: Run, pool: Path) -> None:
    make_pool(n_labels=12).to_csv(pool, index=False)
    result = run_cli("fit", pool, "--label", "churn", "--no-report", "--json")
    assert result.data["certificate"]["radius_from"] == "auto"
    assert any("12 random labels are too few" in note for note in result.data["notes"])


def test_a_vacuous_calibrated_radius_is_said_and_not_used(run_cli: Run, pool: Path) -> None:
    frame = make_pool(n_labels=24)
    rng = np.random.default_rng(1)
    frame[["age", "income"]] = rng.normal(size=(len(frame), 2))
    frame["plan"] = rng.choice(["a", "b"], len(frame))
    frame.to_csv(pool, index=False)
    by_default = run_cli("fit", pool, "--label", "churn", "--no-report", "--json").data
    assert by_default["certificate"]["radius_from"] == "auto"
    assert any("nothing can be promised" in note for note in by_default["notes"])
    asked = run_cli("fit", pool, "--label", "churn", "--no-report", "--json", "--radius", "calibrated").data
    assert asked["certificate"]["radius_from"] == "calibrated"
    assert any("says little" in note for note in asked["notes"])


@pytest.mark.parametrize("code", [0, 3])
def test_the_target_risk_sets_the_exit_code(run_cli: Run, pool: Path, code: int) -> None:
    arguments = ("fit", pool, "--label", "churn", "--no-report", "--json", "--target-risk", 5.0 if code == 0 else 1e-6)
    result = run_cli(*arguments)
    assert result.code == code == result.data["exit_code"]
    assert Path("pool.skops").exists()


def test_the_seed_settles_everything(run_cli: Run, pool: Path) -> None:
    arguments = ("fit", pool, "--label", "churn", "--no-report", "--json", "--radius", "calibrated", "--seed")
    first, again, other = (run_cli(*arguments, seed).data["certificate"] for seed in (1, 1, 2))
    assert first == again
    assert first["radius"] != other["radius"]


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


class TestPredict:
    def test_a_raw_table(self, run_cli: Run, pool: Path) -> None:
        run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto")
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
        run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto")
        out = Path(f"out{suffix}")
        assert run_cli("predict", "pool.skops", pool, "--out", out).code == 0
        written = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out, sep=None, engine="python")
        assert list(written.columns) == ["age", "income", "plan", "churn", "predicted_churn", "p(no)", "p(yes)"]
        assert len(written) == 120

    def test_other_columns_are_refused(self, run_cli: Run, pool: Path) -> None:
        run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto")
        make_pool().drop(columns="plan").to_csv("new.csv", index=False)
        result = run_cli("predict", "pool.skops", "new.csv")
        assert result.code == 2
        assert "'plan' is missing" in result.message
        make_pool().assign(age="old").to_csv("new.csv", index=False)
        assert "'age' mixes numbers and texts: row 1 holds 'old'" in run_cli("predict", "pool.skops", "new.csv").message

    def test_a_table_is_no_model(self, run_cli: Run, pool: Path) -> None:
        result = run_cli("predict", pool, pool)
        assert result.code == 2
        assert "must be a model stored with skops" in result.message
        assert run_cli("predict", "none.skops", pool).code == 2


class TestCertify:
    def test_our_own_model_as_the_fit_said(self, run_cli: Run, pool: Path) -> None:
        fit = run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "calibrated", "--json").data
        for loss, value in (("log", fit["certificate"]["risk"]), ("error", fit["certificate"]["error"])):
            again = run_cli("certify", "pool.skops", pool, "--loss", loss, "--radius", "calibrated", "--json").data
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
            "certify", "forest.skops", pool, "--label", "churn", "--radius", "1.0", "--prior", "0.6,0.4", "--json"
        )
        assert result.code == 0, result.message
        found = result.data["certificate"]
        assert found["loss"] == "zero_one"
        assert 0 < found["lower"] <= found["risk"] <= 1

    def test_the_label_must_be_named(self, run_cli: Run, pool: Path) -> None:
        import skops.io

        skops.io.dump(RandomForestClassifier(2).fit([[0.0], [1.0]], ["no", "yes"]), "forest.skops")
        assert "Pass --label" in run_cli("certify", "forest.skops", pool).message
        skops.io.dump({"a": 1}, "dict.skops")
        assert "must hold a fitted classifier" in run_cli("certify", "dict.skops", pool, "--label", "churn").message

    def test_few_labels_need_a_radius(self, run_cli: Run, pool: Path) -> None:
        run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto")
        make_pool(n_labels=10).to_csv(pool, index=False)
        result = run_cli("certify", "pool.skops", pool)
        assert result.code == 2
        assert "Pass --radius with a number" in result.message


def test_radius_prints_what_the_library_gives(run_cli: Run, pool: Path) -> None:
    make_pool(80, 80, seed=3).to_csv("last-year.csv", index=False)
    result = run_cli("radius", pool, "--label", "churn", "--reference", "last-year.csv", "--path", 3, "--json").data
    run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto")
    model, frame, last = load_model("pool.skops"), pd.read_csv(pool), pd.read_csv("last-year.csv")
    rows = model.cleaner.transform(model.columns.read(frame))
    labeled = frame["churn"].notna().to_numpy()
    y = frame.loc[labeled, "churn"].to_numpy()
    estimate = sf.calibrate_radius(rows[labeled], y, X_unlabeled=rows[~labeled])
    assert result["minimal"] == pytest.approx(estimate.minimal_radius)
    assert result["calibrated"]["radius"] == pytest.approx(estimate.radius)
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


def test_reproduce_and_demo(run_cli: Run, pool: Path) -> None:
    result = run_cli("reproduce", "table2", "--quick", "--out", "here", "--json")
    assert result.code == 0, result.message
    assert result.data["name"] == "table2"
    assert all(Path(path).exists() for path in result.data["tables"].values())
    assert "must be one of figure1" in run_cli("reproduce", "figure9", "--quick").message
    assert run_cli("demo", "--out", "demo.txt").code == 2


def test_every_command_offers_json_and_help(run_cli: Run) -> None:
    for command in ("fit", "predict", "certify", "radius", "query", "label", "reproduce", "demo"):
        result = run_cli(command, "--help")
        assert result.code == 0
        assert "--json" in result.out
    assert run_cli("--version").out == f"surefoot {sf.__version__}\n"
    assert "certify" in run_cli().out
    assert run_cli("frob").code == 2


def test_the_shell_can_complete(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "surefoot.cli"]
    environment = {"_SUREFOOT_COMPLETE": "complete_bash", "COMP_WORDS": "surefoot que", "COMP_CWORD": "1"}
    done = subprocess.run(program, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["query"]


def test_an_interrupt_is_130(run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("surefoot.cli.fit.learn", stop)
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


def test_the_model_is_an_ordinary_pipeline(run_cli: Run, pool: Path) -> None:
    run_cli("fit", pool, "--label", "churn", "--no-report", "--radius", "auto")
    model = load_model("pool.skops")
    assert isinstance(model.pipeline, Pipeline)
    assert set(model.pipeline.predict(make_pool().drop(columns="churn"))) <= {"no", "yes"}
