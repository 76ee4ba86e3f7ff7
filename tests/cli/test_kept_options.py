"""Options that are kept, `surefoot score`, completion of columns, and words in the place of parameters."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss
from typer.main import get_command

import surefoot as sf
from generators import Result, make_pool
from surefoot._errors import CodedWarning, InfeasibleRadiusError, ParameterError
from surefoot._printing import rounded_down, rounded_up, share_at_least, share_at_most
from surefoot.cli import app_model, app_pool  # noqa: F401 - each adds its commands
from surefoot.cli.app import app
from surefoot.cli.output import OPTIONS, sentence
from surefoot.pool.notes import Code, about_answers
from surefoot.pool.options import read_options, settle, split_names
from surefoot.pool.store import Store, store_path
from surefoot.pool.table import FileError
from surefoot.pool.worst import worst_constant_error

Run = Callable[..., Result]
VALUES = {"label": None, "drop": "", "missing": "", "prior": "weak", "radius": "default", "strict": False}


class TestKept:
    def test_options_once_given_are_kept_and_named(self, run_cli: Run, pool: Path) -> None:
        frame = make_pool().assign(noise=1.0)
        frame["age"] = frame["age"].astype(object).where(np.arange(len(frame)) != 3, "?")
        frame.to_csv(pool, index=False, sep=";")
        first = ("--label", "churn", "--delimiter", ";", "--missing", "?", "--drop", "noise", "--prior", "0.6,0.4")
        fit = run_cli("fit", pool, *first, "--no-report", "--json")
        assert fit.code == 0, fit.message
        assert read_options(store_path(pool)) == {
            "label": "churn",
            "delimiter": ";",
            "missing": "?",
            "drop": "noise",
            "prior": "0.6,0.4",
        }
        later = run_cli("query", pool, "-n", 2, "--json")
        assert later.code == 0, later.message
        assert any(
            "--delimiter ';' --missing '?' --label churn" in note and "--prior 0.6,0.4" in note
            for note in later.data["notes"]
        )
        # and a model knows how the table of its fit was written
        frame.drop(columns="churn").to_csv("new.csv", index=False, sep=";")
        assert run_cli("predict", "pool.skops", "new.csv", "--json").data["rows"] == 120

    def test_what_could_not_be_read_is_not_kept(self, run_cli: Run, pool: Path) -> None:
        assert run_cli("fit", pool, "--label", "churn", "--drop", "colour").code == 2
        assert not store_path(pool).exists()

    def test_another_label_takes_what_is_of_the_file_alone(self, tmp_path: Path) -> None:
        table = tmp_path / "t.csv"
        settle(table, VALUES | {"label": "a", "drop": "x", "missing": "?"}, {"label", "drop", "missing"}).keep()
        again = settle(table, VALUES, set())
        assert (again.values["label"], again.values["drop"], again.values["missing"]) == ("a", "x", "?")
        other = settle(table, VALUES | {"label": "b"}, {"label"})
        assert (other.values["drop"], other.values["missing"]) == ("", "?")
        assert settle(table, VALUES, set(), forget=True).values == VALUES
        settle(table, VALUES | {"label": "a"}, {"label"}, forget=True).keep()
        assert read_options(store_path(table)) == {"label": "a"}

    @pytest.mark.parametrize("options", ["'drop', '3'", "'colour', '\"x\"'", "'drop', '{'", "'strict', '\"yes\"'"])
    def test_broken_options_are_named(self, tmp_path: Path, options: str) -> None:
        with Store(store_path(tmp_path / "t.csv"), {}) as store, store.together() as run:
            run(f"INSERT INTO options VALUES ({options})")
        with pytest.raises(FileError, match=r"t\.csv\.surefoot\.db must hold"):
            settle(tmp_path / "t.csv", VALUES, set())

    def test_nothing_is_written_for_a_command_without_options(self, run_cli: Run, pool: Path) -> None:
        make_pool().rename(columns={"churn": "y"}).to_csv(pool, index=False)
        assert run_cli("radius", pool).code == 2  # no label is known
        assert [path.name for path in Path().iterdir()] == ["pool.csv"]
        assert run_cli("radius", pool, "--label", "y").code == 0
        assert sorted(path.name for path in Path().iterdir()) == ["pool.csv", "pool.csv.surefoot.db"]

    def test_options_are_read_where_nothing_may_be_written(self, tmp_path: Path) -> None:
        settle(tmp_path / "t.csv", VALUES | {"drop": "x"}, {"drop"}).keep()
        content = store_path(tmp_path / "t.csv").read_bytes()
        with pytest.MonkeyPatch.context() as patch:  # the tests may run as root, who may write anywhere
            patch.setattr("os.access", lambda path, mode: mode != os.W_OK)
            found = settle(tmp_path / "t.csv", VALUES | {"drop": "y"}, {"drop"})
            assert found.before == {"drop": "x"}
            assert "could not be kept" in str(found.keep())
        assert store_path(tmp_path / "t.csv").read_bytes() == content


class TestScore:
    def test_it_is_what_scikit_learn_says(self, run_cli: Run, pool: Path) -> None:
        fit = run_cli("fit", pool, "--label", "churn", "--no-report", "--json").data
        truth = make_pool(n_labels=120)
        truth.to_csv("truth.csv", index=False)
        found = run_cli("score", "pool.skops", "truth.csv", "--json").data
        answers = run_cli("predict", "pool.skops", "truth.csv", "--json").data
        assert any("surefoot score pool.skops truth.csv" in note for note in answers["notes"])
        assert found["accuracy"] == accuracy_score(truth["churn"], answers["predictions"])
        assert found["log_loss"] == pytest.approx(log_loss(truth["churn"], answers["probabilities"]), abs=1e-4)
        assert sum(sum(row.values()) for row in found["confusion"].values()) == 120
        assert sum(one["rows"] for one in found["calibration"]) == 120
        assert [one["value"] for one in found["bounds"]] == [one["value"] for one in fit["bounds"]]
        for one in found["bounds"]:
            assert one["held"] is (one["truth"] <= one["value"])
        words = run_cli("score", "pool.skops", "truth.csv").out
        assert "(cross-fitted): held" in words

    def test_rows_that_taught_the_model_do_not_judge_it(self, run_cli: Run, pool: Path) -> None:
        run_cli("fit", pool, "--label", "churn", "--no-report")
        same = run_cli("score", "pool.skops", pool, "--json").data
        assert (same["rows"], same["taught"], same["bounds"]) == (30, 30, [])
        assert any("All rows with a label trained the model" in note for note in same["notes"])
        answers = run_cli("predict", "pool.skops", pool, "--json").data
        assert not any("surefoot score" in note for note in answers["notes"])
        truth = make_pool(n_labels=120)
        truth.to_parquet("truth.parquet")
        some = run_cli("score", "pool.skops", "truth.parquet", "--json").data
        assert (some["rows"], some["taught"]) == (120, 30)
        assert some["bounds"]
        truth[make_pool()["churn"].isna()].to_csv("new.csv", index=False)
        assert run_cli("score", "pool.skops", "new.csv", "--json").data["taught"] == 0

    def test_a_broken_bound_is_said(self, run_cli: Run, pool: Path) -> None:
        run_cli("fit", pool, "--label", "churn", "--no-report")
        wrong = make_pool(n_labels=120)
        wrong["churn"] = wrong["churn"].map({"yes": "no", "no": "yes"})
        wrong.to_csv("wrong.csv", index=False)
        assert "exceeded, true value" in run_cli("score", "pool.skops", "wrong.csv").out
        wrong.assign(churn=np.nan).to_csv("empty.csv", index=False)
        assert "all are empty" in run_cli("score", "pool.skops", "empty.csv").message


def test_completion_offers_the_columns_of_the_file(pool: Path) -> None:
    words = "surefoot fit pool.csv --label c"
    environment = {"_SUREFOOT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"}
    done = subprocess.run(
        [sys.executable, "-m", "surefoot.cli"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["churn"]


@pytest.mark.parametrize("arguments", [("--help",), ("fit", "--help"), ("fit", "none.csv", "-l", "x")])
def test_help_and_mistakes_load_no_numerical_packages(pool: Path, arguments: tuple[str, ...]) -> None:
    program = (
        "import sys\nfrom surefoot.cli import run\nrun(sys.argv[1:])\n"
        "print('loaded', *[name for name in ('sklearn', 'scipy', 'pandas', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "loaded"


def test_bounds_are_rounded_to_the_safe_side() -> None:
    for value in np.random.default_rng(0).random(2000):
        assert value * 100 - 1e-6 <= float(share_at_most(value)) <= value * 100 + 0.1
        assert value * 100 - 0.1 <= float(share_at_least(value)) <= value * 100 + 1e-6
        assert value - 1e-8 <= float(rounded_up(value, 4)) <= value + 1e-4
        assert value - 1e-4 <= float(rounded_down(value, 4)) <= value + 1e-8
    assert [share_at_most(0.07), share_at_most(0.2831), share_at_least(0.2839)] == ["7.0", "28.4", "28.3"]


def test_the_library_speaks_in_options_here() -> None:
    error = ParameterError("label_prior", "must sum to 1", 2, "Pass $label_prior, or another $radius.")
    assert sentence(error) == "--prior must sum to 1; got 2. Pass --prior, or another --radius."
    said = sentence(InfeasibleRadiusError(0.05, 0.11737365414931562))
    assert said.startswith("--radius must be at least the minimal radius 0.1174")
    assert "got 0.05. Increase --radius" in said
    assert "label_cost" not in said
    assert sentence(CodedWarning("repeated_rows", "So.", "Pass $sample_weight.", copies=3)) == "So."
    assert sentence(CodedWarning("new", "So.", "Raise $radius.")) == "So. Raise --radius."


def test_every_option_that_messages_name_exists() -> None:
    options = {name for command in get_command(app).commands.values() for one in command.params for name in one.opts}
    assert {name for name in OPTIONS.values() if name.startswith("-")} <= options


def test_warnings_about_answers() -> None:
    box = [(0.5, 0.8), (0.2, 0.5)]
    assert about_answers({"no": 0.7, "yes": 0.3}, box) == []
    (constant,) = about_answers({"no": 1.0, "yes": 0.0}, box)
    assert (constant.code, constant.parameters) == (Code.CONSTANT_MODEL, {"name": "no"})
    nearly, outside = about_answers({"no": 0.995, "yes": 0.005}, box)
    assert (nearly.code, nearly.parameters) == (Code.NEARLY_CONSTANT_MODEL, {"name": "no", "percent": 99.5})
    assert outside.code == Code.UNLIKELY_SHARES
    assert "'no' for 99.5 %" in outside.parameters["outside"]
    assert "'yes' for 0.5 %" in outside.parameters["outside"]
    (never,) = about_answers({"a": 0.5, "b": 0.5, "c": 0.0}, [(0, 1)] * 3)
    assert (never.code, never.parameters) == (Code.NEVER_ANSWERED, {"names": "'c'"})
    rare = [(0, 1), (0, 1), (0.0006, 0.1)]  # no share of 0.0 % is named
    assert about_answers({"a": 0.5, "b": 0.5, "c": 0.0}, rare)[0].parameters == {"names": "'c'"}


@pytest.mark.parametrize("radius", [0.4, 0.6, 2.0, "calibrated"])
def test_the_constant_answer_is_judged_over_the_same_set(radius: float | str) -> None:
    """Against `certify` of classifiers that always give one answer."""
    from sklearn.dummy import DummyClassifier

    from surefoot.certificates.calibration import CalibratedRadius
    from surefoot.problem.placement import check_problem

    rng = np.random.default_rng(0)
    X, U = rng.normal(size=(24, 2)) / 4, rng.normal(size=(60, 2)) / 4
    y = np.where(rng.random(24) < 0.3, "b", "a")
    problem = check_problem(X, y, X_unlabeled=sf.Unlabeled(U), label_prior="clopper-pearson")
    members, _ = problem.members(CalibratedRadius() if radius == "calibrated" else radius)
    best, share = worst_constant_error(members)
    each = [
        sf.certify(
            DummyClassifier(strategy="constant", constant=name).fit(X, y), X, y, X_unlabeled=U, radius=radius,
            loss="zero_one",
        ).risk
        for name in ("a", "b")
    ]  # fmt: skip
    assert share == pytest.approx(min(each), abs=1e-5)
    assert best == int(np.argmin(each))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a, b,,", ["a", "b"]),
        ('"age, years", b', ["age, years", "b"]),
        ('say "hi",b', ['say "hi"', "b"]),
        ("a\nb", ["a\nb"]),
    ],
)
def test_names_with_commas_stand_in_quotes(text: str, found: list[str]) -> None:
    assert split_names(text) == found
