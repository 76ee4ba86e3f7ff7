"""`surefoot finish`: from predictions, a model file or no label to a finished table; stopped, resumed, refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import surefoot as sf
from generators import Result, TrueAnswers, make_pool, write_answers
from surefoot.pool.finishing import sample_size
from surefoot.pool.schedule import FINISHED, FINISHING, Goal, LabelingSettings
from surefoot.pool.service import LabelingService
from surefoot.pool.store import Store, store_path

Run = Callable[..., Result]
Person = Callable[..., TrueAnswers]
GIVEN = ("finish", "llm.csv", "--label", "truth", "--predictions", "llm_label", "--score", "confidence")
SEED = ("--seed", 0, "--json")


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], pd.DataFrame]:
    """The truth of llm.csv, and the table: 150 rows, one of five predictions wrong."""
    monkeypatch.chdir(tmp_path)
    return write_answers()


class TestPredictions:
    def test_it_finishes_the_table(self, run_cli: Run, person: Person, answers: tuple[list[str], pd.DataFrame]) -> None:
        truth, frame = answers
        typed = person(truth=truth)
        found = run_cli(*GIVEN, "--max-error", 0.1, "--sample", 40, *SEED)
        assert found.code == 0, found.message
        data = found.data
        assert (data["finished"], data["sample"], data["level"]) == (True, 40, 0.9)
        # the plan of the library, from the same sample
        audit = sf.Audit(predictions=frame["llm_label"], scores=frame["confidence"], n_labels=40, random_state=0)
        plan = audit.run(lambda row: truth[row]).finish(max_error=0.1)
        assert typed.asked == [*audit.labels, *plan.rows.tolist()]
        assert (data["n_model"], data["rows_left"], data["bound"]) == (plan.n_model, 0, plan.bound)
        finished = pd.read_csv("llm.finished.csv")
        assert list(finished.columns) == [*frame.columns, "labeled_by"]
        by_model = (finished["labeled_by"] == "model").to_numpy()
        assert np.flatnonzero(by_model).tolist() == plan.model_rows.tolist()
        assert (finished["truth"][by_model] == frame["llm_label"][by_model]).all()
        assert (finished["truth"] != truth).mean() <= data["bound"] <= 0.1
        assert finished["text"].tolist() == frame["text"].tolist()
        words = Path("llm.finished.txt").read_text(encoding="utf-8")
        assert data["statement"] in words
        assert "the labels of annotators are right" in words
        # the table itself has the labels of the annotator alone
        assert pd.read_csv("llm.csv")["truth"].notna().sum() == len(typed.asked) == (~by_model).sum()
        assert "llm_label  " not in typed.shown
        assert "confidence  " not in typed.shown

    def test_it_goes_on_where_it_was(
        self, run_cli: Run, person: Person, answers: tuple[list[str], pd.DataFrame]
    ) -> None:
        truth, _ = answers
        asked: list[int] = []
        for most in (7, 45, 1000):
            typed = person(most, truth)
            # the columns of the predictions stay hidden, whether they are named again or not
            found = run_cli(*(GIVEN if not asked else GIVEN[:4]), "--max-error", 0.1, *SEED)
            assert "llm_label  " not in typed.shown
            asked += typed.asked
            assert found.code == (0 if most == 1000 else 3)
        assert len(asked) == len(set(asked))
        assert found.data["sample"] == sample_size(150, 0, 0.1, 0.9)
        again = run_cli(*GIVEN, *SEED)
        assert (again.code, again.data["answered"]) == (0, 0)
        assert again.data["statement"] == found.data["statement"]

    def test_the_labeling_page_goes_on(
        self, run_cli: Run, person: Person, answers: tuple[list[str], pd.DataFrame]
    ) -> None:
        truth, _ = answers
        person(12, truth)
        assert run_cli(*GIVEN, "--max-error", 0.1, "--sample", 40, *SEED).code == 3
        with Store(store_path("llm.csv")) as store:
            desk = LabelingService(store, 150, ["complaint", "praise"], LabelingSettings(Goal(), 4))
            one = store.person("one")
            phases = set()
            while picks := desk.rows_for(one):
                phases.add(desk.turns.phase)
                desk.answer(one, picks[0].row, truth[picks[0].row])
            assert FINISHING in phases
            assert desk.turns.phase == FINISHED
        person(0, truth)
        assert run_cli(*GIVEN, *SEED).data["finished"]

    def test_a_label_is_taken_back(
        self, run_cli: Run, monkeypatch: pytest.MonkeyPatch, person: Person, answers: tuple[list[str], pd.DataFrame]
    ) -> None:
        truth, _ = answers
        typed = person(truth=truth)
        wrong = {"praise": "complaint", "complaint": "praise"}
        plan: list[str] = ["wrong", "undo"]
        true_answer = typed.readline

        def readline(*_: object) -> str:
            label = true_answer().strip()
            action = plan.pop(0) if plan else label
            return {"wrong": wrong.get(label, label)}.get(action, action) + "\n"

        monkeypatch.setattr(typed, "readline", readline)
        found = run_cli(*GIVEN, "--max-error", 0.1, *SEED)
        assert found.code == 0
        assert typed.asked[0] == typed.asked[2]  # asked for again
        finished = pd.read_csv("llm.finished.csv")
        by_person = finished["labeled_by"] == "person"
        assert (finished["truth"] == truth)[by_person].all()

    def test_a_row_without_a_prediction_is_left_to_annotators(
        self, run_cli: Run, person: Person, answers: tuple[list[str], pd.DataFrame]
    ) -> None:
        truth, frame = answers
        surest = int(frame["confidence"].idxmax())
        frame.loc[surest, "llm_label"] = None
        frame.to_csv("llm.csv", index=False)
        typed = person(truth=truth)
        assert run_cli(*GIVEN, "--max-error", 0.2, *SEED).code == 0
        assert surest in typed.asked

    @pytest.mark.parametrize(
        ("options", "part"),
        [
            (("--max-error", 0), "--max-error must be above 0"),
            (("--max-error", "nan"), "--max-error must be"),
            (("--level", 1), "--level must"),
            (("--sample", 0), "--sample"),
            (("--model", "x.skops"), "cannot be combined"),
            (("--out", "llm.csv"), "must not overwrite"),
        ],
    )
    @pytest.mark.usefixtures("answers")
    def test_bad_options(self, run_cli: Run, options: tuple[object, ...], part: str) -> None:
        found = run_cli(*GIVEN, *options)
        assert found.code == 2
        assert part in " ".join(found.message.split())

    @pytest.mark.usefixtures("answers")
    def test_scores_are_needed(self, run_cli: Run, person: Person) -> None:
        person(1)
        found = run_cli(*GIVEN[:6])
        assert found.code == 2
        assert "--score must name a column" in found.message

    def test_other_options_than_those_it_was_begun_with_are_refused(
        self, run_cli: Run, person: Person, answers: tuple[list[str], pd.DataFrame]
    ) -> None:
        person(3, answers[0])
        assert run_cli(*GIVEN, "--max-error", 0.1, *SEED).code == 3
        for options in (("--max-error", 0.05), ("--level", 0.95), ("--sample", 10)):
            found = run_cli(*GIVEN, *options)
            assert found.code == 2
            assert f"{options[0]} must be" in found.message
        found = run_cli(*GIVEN[:4], "--predictions", "text")
        assert found.code == 2

    def test_a_foreign_file_is_left_as_it_is(self, run_cli: Run, answers: tuple[list[str], pd.DataFrame]) -> None:
        answers[1].to_csv("llm.finished.csv", index=False)
        found = run_cli(*GIVEN)
        assert found.code == 2
        assert "--force" in found.message

    def test_a_table_with_the_column_of_authors_is_refused(
        self, run_cli: Run, answers: tuple[list[str], pd.DataFrame]
    ) -> None:
        answers[1].assign(labeled_by="x").to_csv("llm.csv", index=False)
        found = run_cli(*GIVEN)
        assert found.code == 2
        assert "labeled_by" in found.message


class TestModels:
    @pytest.mark.usefixtures("model")
    def test_a_model_file(self, run_cli: Run, person: Person) -> None:
        typed = person()
        found = run_cli("finish", "pool.csv", "--model", "pool.skops", "--max-error", 0.2, *SEED)
        assert found.code == 0, found.message
        assert found.data["n_model"] + 30 + len(typed.asked) == 120
        finished = pd.read_csv("pool.finished.csv")
        assert finished["churn"].notna().all()
        assert (finished["churn"] != make_pool(120, 120)["churn"]).mean() <= 0.2

    @pytest.mark.usefixtures("pool")
    def test_a_new_model(self, run_cli: Run, person: Person) -> None:
        """From no label at all: labels to learn from, the sample, the rest."""
        frame = make_pool().assign(churn=None)
        frame.to_csv("pool.csv", index=False)
        typed = person(5)
        options = ("finish", "pool.csv", "--label", "churn", "--classes", "no,yes", "--learn", 25, "--max-error", 0.3)
        found = run_cli(*options, *SEED)
        assert (found.code, found.data["sample"], found.data["labeled"]) == (3, None, 5)
        typed = person()
        found = run_cli(*options, "--out", "done.csv", *SEED)
        assert found.code == 0, found.message
        assert found.data["sample"] == sample_size(120, 25, 0.3, 0.9)
        assert found.data["n_model"] + 5 + len(typed.asked) == 120
        assert (pd.read_csv("done.csv")["labeled_by"] == "model").sum() == found.data["n_model"]

    @pytest.mark.usefixtures("pool")
    def test_every_row_is_labeled_before_the_model_has_learned(self, run_cli: Run, person: Person) -> None:
        person()
        found = run_cli("finish", "pool.csv", "--label", "churn", "--learn", 120, *SEED)
        assert (found.code, found.data["finished"], found.data["bound"]) == (0, True, None)
        assert set(pd.read_csv("pool.finished.csv")["labeled_by"]) == {"person"}


def test_the_default_sample_allows_two_errors() -> None:
    """The least m with which two errors among the rows of the model may be seen; from the hypergeometric law."""
    from scipy.stats import hypergeom

    for N, known, share, level in ((3000, 100, 0.05, 0.9), (400, 20, 0.1, 0.95), (100, 20, 0.05, 0.9)):
        m, rest, bad = sample_size(N, known, share, level), N - known, int(share * N) + 3
        assert hypergeom.cdf(2, rest, bad, m) <= 1 - level < hypergeom.cdf(2, rest, bad, m - 1)
    assert sample_size(50, 48, 0.02, 0.9) == 2
    assert sample_size(50, 50, 0.02, 0.9) == 1
