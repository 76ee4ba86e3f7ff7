"""`surefoot audit`, and `surefoot label --target-error`: asked, stopped, resumed, proved, refused."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pexpect
import pytest

import surefoot as sf
from generators import Result, TrueAnswers, make_pool, write_answers
from surefoot.pool.store import Store, store_path

Run = Callable[..., Result]


def log(name: str, table: str = "pool.csv") -> list[dict[str, Any]]:
    """What the store keeps of an audit."""
    with Store(store_path(table)) as store, store.log(name) as found:
        return found.read()


TRUTH = make_pool(120, 120)["churn"].tolist()


def audit(run_cli: Run, *more: Any) -> Result:
    return run_cli("audit", "pool.csv", "--label", "churn", "--model", "pool.skops", "--seed", 0, *more)


@pytest.mark.usefixtures("model")
class TestAudit:
    def test_it_proves_a_target(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        typed = person()
        found = audit(run_cli, "--target", "0.15", "--json")
        assert found.code == 0
        data = json.loads(found.out)
        assert data["proved"]
        assert data["bound"] <= 0.15
        assert data["labels"] == len(typed.asked) == len(set(typed.asked))
        labels = pd.read_csv("pool.csv")["churn"]
        assert all(labels[row] == TRUTH[row] for row in typed.asked)
        assert labels.notna().sum() == 30 + data["labels"]
        # all known labels and none of the table's others were drawn
        first = log("audit audit")[0]
        assert len(first["known"]) == 30
        assert not {row for row, _ in first["known"]} & set(typed.asked)

    def test_it_goes_on_where_it_was(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        first = person(5)
        found = audit(run_cli, "--target", "0.15")
        assert found.code == 3
        assert len(log("audit audit")) == 6
        # killed before the table was written: the label is only in the store
        frame = pd.read_csv("pool.csv")
        frame.loc[first.asked[-1], "churn"] = None
        frame.to_csv("pool.csv", index=False)
        second = person()
        found = audit(run_cli, "--target", "0.15", "--json")
        assert found.code == 0
        assert found.data["labels"] == 5 + len(second.asked)
        assert not set(first.asked) & set(second.asked)
        assert pd.read_csv("pool.csv").loc[first.asked[-1], "churn"] == TRUTH[first.asked[-1]]

    def test_a_planned_number_and_words(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        typed = person()
        found = audit(run_cli, "--labels", "12")
        assert found.code == 0
        text = typed.shown + found.out
        assert len(typed.asked) == 12
        assert "12 labels, " in text
        assert "With 90 % confidence, at most" in text.replace("\N{NO-BREAK SPACE}", " ")
        assert "the number of labels, 12, was fixed in advance" in " ".join(text.split())

    def test_another_model_is_refused(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        person(5)
        audit(run_cli, "--target", "0.15")
        frame = pd.read_csv("pool.csv")
        frame["churn"] = frame["churn"].map({"yes": "no", "no": "yes"})  # a model that says the contrary
        frame.to_csv("other.csv", index=False)
        assert run_cli("fit", "other.csv", "--label", "churn", "--no-report", "--no-worst-case").code == 0
        person(5)
        found = run_cli("audit", "pool.csv", "--label", "churn", "--model", "other.skops", "--target", "0.15")
        assert found.code == 2
        assert "cannot audit it" in found.message
        typed = person(2)
        more = ("--target", "0.15", "--audit", "of another model")
        found = run_cli("audit", "pool.csv", "--label", "churn", "--model", "other.skops", *more, "--json")
        assert (found.code, found.data["labels"], found.data["audit"]) == (3, 2, "of another model")
        assert len(log("audit of another model")) == 3
        assert len(log("audit audit")) == 6
        assert len(typed.asked) == 2

    def test_classes_may_hold_a_comma(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        person(1)
        for name in ("pool.csv", "other.csv"):
            frame = pd.read_csv("pool.csv")
            frame["churn"] = frame["churn"].replace({"yes": "yes, soon"})
            frame.to_csv(name, index=False)
        assert run_cli("fit", "other.csv", "--label", "churn", "--no-report", "--no-worst-case").code == 0
        found = run_cli("audit", "pool.csv", "--label", "churn", "--model", "other.skops", "--labels", "3")
        assert found.code == 0, found.message

    def test_a_label_that_was_changed_is_refused(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        first = person(4)
        audit(run_cli, "--target", "0.15")
        frame = pd.read_csv("pool.csv")
        row = first.asked[0]
        frame.loc[row, "churn"] = "no" if TRUTH[row] == "yes" else "yes"
        frame.to_csv("pool.csv", index=False)
        found = audit(run_cli, "--target", "0.15")
        assert found.code == 2
        assert f"row {row + 1} was labeled" in found.message
        assert pd.read_csv("pool.csv").loc[row, "churn"] == frame.loc[row, "churn"]  # what was typed stays

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--level", "1.5"), "level must be a number from 0 to 1"),
            (("--sampling", "best"), "--sampling must be"),
            (("--labels", "10", "--sampling", "weighted"), "--sampling must be 'uniform'"),
        ],
    )
    def test_bad_options(self, run_cli: Run, options: tuple[str, ...], message: str) -> None:
        found = audit(run_cli, *options)
        assert found.code == 2
        assert message in found.message
        assert log("audit audit") == []


PREDICTIONS = ("audit", "llm.csv", "--predictions", "llm_label", "--label", "truth", "--seed", 0)


@pytest.mark.usefixtures("model")
def test_an_audit_writes_evidence(run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
    typed = person()
    found = audit(run_cli, "--target", "0.15", "--evidence", "audit.json", "--json")
    assert (found.code, found.data["evidence"]) == (0, "audit.json")
    assert run_cli("verify", "audit.json", "pool.csv", "pool.skops").code == 0
    assert run_cli("verify", "audit.json", "pool.csv").code == 0
    frame = pd.read_csv("pool.csv")
    row = typed.asked[0]
    frame.loc[row, "churn"] = "no" if TRUTH[row] == "yes" else "yes"
    frame.to_csv("pool.csv", index=False)
    found = run_cli("verify", "audit.json", "pool.csv", "--json")
    assert found.code == 1
    assert len(found.data["mismatches"]) == 1


class TestPredictions:
    """Answers of a language model in a column: no model file and no features."""

    @pytest.fixture(autouse=True)
    def _table(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        self.truth, self.frame = write_answers()

    def test_it_proves_a_target(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        typed = person(truth=self.truth)
        found = run_cli(*PREDICTIONS, "--score", "confidence", "--target", 0.3, "--json")
        assert (found.code, found.data["proved"], found.data["audit"]) == (0, True, "llm_label")
        assert found.data["labels"] == len(typed.asked)
        wrong = [self.truth[row] != self.frame["llm_label"][row] for row in range(150)]
        assert np.mean(wrong) <= found.data["bound"] <= 0.3
        assert found.data["errors"] == sum(wrong[row] for row in typed.asked)
        labels = pd.read_csv("llm.csv")["truth"]
        assert all(labels[row] == self.truth[row] for row in typed.asked)
        assert labels.notna().sum() == len(typed.asked)
        # as the library has it
        audit = sf.Audit(predictions=self.frame["llm_label"], level=0.9, target_error=0.3, random_state=0)
        audit.run(lambda row: self.truth[row])
        assert audit.anytime_bound().value == found.data["bound"]

    def test_predictions_are_hidden_and_texts_are_shown(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        typed = person(3, truth=self.truth)
        assert run_cli(*PREDICTIONS, "--score", "confidence").code == 0
        shown = typed.shown
        assert "confidence  " not in shown
        assert "llm_label  " not in shown
        row = typed.asked[0]
        words = " ".join(self.frame["text"][row].split())
        assert words in " ".join(shown.split())
        assert "    the end" in [line.rstrip() for line in shown.splitlines()]  # a line of its own, as in the cell

    def test_it_goes_on_after_a_kill(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        """A terminal that is killed with kill -9 after each answer: every label counts, and none is asked for twice."""
        asked: list[int] = []
        prompt = r"truth\?  \[1\] complaint  \[2\] praise  \|  \[s\] skip  \[q\] quit > "
        for _ in range(3):
            program = ["-m", "surefoot.cli", *map(str, PREDICTIONS)]
            child = pexpect.spawn(sys.executable, program, timeout=120, dimensions=(60, 200), encoding="utf-8")
            child.expect(prompt)
            asked.append(int(re.findall(r"Row (\d+)\b", child.before)[-1]) - 1)
            child.sendline(self.truth[asked[-1]])
            child.expect(prompt)
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        assert pd.read_csv("llm.csv")["truth"].isna().all()
        person(0)
        found = run_cli(*PREDICTIONS, "--json")
        assert found.data["labels"] == 3
        library = sf.Audit(predictions=self.frame["llm_label"], random_state=0)
        assert asked == library.next_rows(3)
        assert pd.read_csv("llm.csv")["truth"].notna().sum() == 3

    def test_two_models_on_one_sample(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        self.frame["other_llm"] = self.frame["llm_label"].map({"praise": "complaint", "complaint": "praise"})
        self.frame.to_csv("llm.csv", index=False)
        typed = person(truth=self.truth)
        found = run_cli(*PREDICTIONS, "--compare", "other_llm", "--labels", 40, "--json")
        assert found.code == 0, found.message
        assert "other_llm  " not in typed.shown
        audit = sf.Audit(predictions=self.frame["llm_label"], n_labels=40, random_state=0)
        audit.run(lambda row: self.truth[row])
        library = audit.compare({"other_llm": self.frame["other_llm"]}, name="llm_label")
        comparison = found.data["comparison"]
        assert comparison["errors"] == dict(library.errors)
        low, high = library.differences["llm_label", "other_llm"]
        assert comparison["differences"] == [{"first": "llm_label", "second": "other_llm", "from": low, "to": high}]
        assert comparison["best"] == "llm_label"
        person(0)
        shown = run_cli(*PREDICTIONS, "--compare", "other_llm", "--labels", 40).out
        assert "fewest errors" in shown

    @pytest.mark.parametrize("options", [("--sampling", "weighted"), ("--target-f1", 0.5, "--labels", 9)])
    def test_comparisons_that_are_refused(self, run_cli: Run, options: tuple[Any, ...]) -> None:
        found = run_cli(*PREDICTIONS, "--compare", "text", *options)
        assert found.code == 2
        assert "--compare requires" in found.message

    def test_recall_of_a_class(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        typed = person(truth=self.truth)
        recall = ("--target-recall", 0.5, "--positive", "complaint", "--labels", 90)
        found = run_cli(*PREDICTIONS, *recall, "--json")
        audit = sf.Audit(
            predictions=self.frame["llm_label"],
            target={"recall": 0.5},
            positive="complaint",
            n_labels=90,
            random_state=0,
        ).run(lambda row: self.truth[row])
        assert typed.asked == list(audit.labels)
        bound = audit.bound()
        assert (found.data["metric"], found.data["bound"], found.data["target"]) == ("recall", bound.value, 0.5)
        assert (found.code, found.data["proved"]) == ((0, True) if bound.value >= 0.5 else (3, False))
        assert found.data["statement"] == f"{bound.statement}."
        is_complaint = np.array(self.truth) == "complaint"
        assert bound.value <= (self.frame["llm_label"] == "complaint")[is_complaint].mean()

    @pytest.mark.parametrize(
        ("options", "part"),
        [
            (("--target-recall", 0.5, "--positive", "complaint"), "--labels"),
            (("--target-recall", 0.5, "--target-f1", 0.5, "--labels", 9), "exclude each other"),
            (("--target-recall", 0.5, "--labels", 9, "--positive", "x"), "--positive must be one of the classes"),
            (("--positive", "complaint"), "--positive is a class for"),
            (("--target-f1", 0.5, "--labels", 9, "--evidence", "e.json"), "--evidence"),
        ],
    )
    def test_bad_metrics(self, run_cli: Run, options: tuple[Any, ...], part: str) -> None:
        found = run_cli(*PREDICTIONS, *options)
        assert found.code == 2
        assert part in " ".join(found.message.split())

    def test_labels_from_before_count(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        self.frame["truth"] = [value if row < 20 else None for row, value in enumerate(self.truth)]
        self.frame.to_csv("llm.csv", index=False)
        typed = person(5, truth=self.truth)
        assert run_cli(*PREDICTIONS, "--json").data["labels"] == 5
        assert min(typed.asked) >= 20
        assert len(log("audit llm_label", "llm.csv")[0]["known"]) == 20

    def test_a_missing_prediction_counts_as_wrong(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        self.frame.loc[[0, 1], "llm_label"] = None
        self.frame.loc[0, "confidence"] = None
        self.frame.to_csv("llm.csv", index=False)
        person(truth=self.truth)
        found = run_cli(*PREDICTIONS, "--score", "confidence", "--labels", 150, "--json")
        wrong = sum(self.truth[row] != self.frame["llm_label"][row] for row in range(150))
        assert found.data["errors"] == wrong >= 2
        assert found.data["bound"] == pytest.approx(wrong / 150)
        assert any("2 rows have no prediction" in note for note in found.data["notes"])

    def test_each_column_has_an_audit_of_its_own(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        self.frame.insert(2, "rule", self.frame["llm_label"].iloc[::-1].to_numpy())
        self.frame.to_csv("llm.csv", index=False)
        person(4, truth=self.truth)
        assert run_cli(*PREDICTIONS, "--json").data["labels"] == 4
        person(2, truth=self.truth)
        other = run_cli("audit", "llm.csv", "--predictions", "rule", "--label", "truth", "--json")
        assert (other.data["labels"], other.data["audit"]) == (2, "rule")
        assert len(log("audit rule", "llm.csv")[0]["known"]) == 4
        # another name is another audit; the same name with another column is refused
        refused = run_cli("audit", "llm.csv", "--predictions", "rule", "--label", "truth", "--audit", "llm_label")
        assert refused.code == 2
        assert "another name as --audit" in refused.message

    @pytest.mark.parametrize(
        ("change", "options", "message"),
        [
            ({}, ("--predictions", "llm"), "--predictions must name a column besides --label; 'llm' is no column"),
            ({}, ("--predictions", "truth"), "'truth' is the label column"),
            ({}, ("--predictions", "text"), "--predictions must name a column of classes; 'text' holds 150"),
            ({}, ("--predictions", "llm_label", "--score", "text"), "--score must name a column with a finite number"),
            ({"confidence": np.inf}, ("--predictions", "llm_label", "--score", "confidence"), "row 3 of 'confidence'"),
            ({"confidence": np.nan}, ("--predictions", "llm_label", "--score", "confidence"), "row 3 of 'confidence'"),
            ({"llm_label": "I think so"}, ("--predictions", "llm_label", "--classes", "complaint,praise"), "row 3 of"),
            ({}, (), "Pass either a model file as --model or a column as --predictions"),
            ({}, ("--predictions", "llm_label", "--model", "m.skops"), "Pass either a model file"),
            ({}, ("--model", "m.skops", "--score", "confidence"), "--score requires --predictions"),
            ({}, ("--predictions", "llm_label", "--labels", "0"), "--labels"),
            ({}, ("--predictions", "llm_label", "--sampling", "weighted"), "--score must be probabilities"),
            ({}, ("--predictions", "llm_label", "--level", "0"), "--level must lie strictly between 0 and 1"),
        ],
    )
    def test_bad_input_is_refused_and_changes_nothing(
        self, run_cli: Run, change: dict[str, Any], options: tuple[str, ...], message: str
    ) -> None:
        for name, value in change.items():
            self.frame.loc[2, name] = value
        self.frame.to_csv("llm.csv", index=False)
        before = Path("llm.csv").read_bytes()
        found = run_cli("audit", "llm.csv", "--label", "truth", *options)
        assert found.code == 2
        assert message in " ".join(found.message.split())
        assert Path("llm.csv").read_bytes() == before


class TestLabelUntilProved:
    def label(self, run_cli: Run, *more: Any) -> Result:
        return run_cli("label", "pool.csv", "--label", "churn", "--target-error", "0.15", "--radius", "0.5", *more)

    def test_it_proves_and_writes_the_model(self, run_cli: Run, pool: Path, person: Callable[..., TrueAnswers]) -> None:
        make_pool(n_labels=0).assign(churn=None).to_csv(pool, index=False)
        first = person(26)
        found = self.label(run_cli, "--classes", "yes,no")
        assert found.code == 3
        assert "Run it again to continue" in found.out + first.shown
        second = person()
        found = self.label(run_cli, "--classes", "yes,no", "--json")
        assert found.code == 0
        assert found.data["proved"]
        assert found.data["labeled"] == len(first.asked) + len(second.asked)
        assert found.data["bound"] <= 0.15
        predicted = run_cli("predict", "pool.skops", "pool.csv", "--json").data["predictions"]
        wrong = sum(p != t for p, t in zip(predicted, TRUTH, strict=True)) / len(TRUTH)
        assert wrong <= found.data["bound"]
        assert len(log("proof")) > 26

    def test_labels_from_elsewhere_teach(self, run_cli: Run, pool: Path, person: Callable[..., TrueAnswers]) -> None:
        person(8)
        self.label(run_cli)
        frame = pd.read_csv(pool)
        row = int(frame.index[frame["churn"].isna()][0])
        frame.loc[row, "churn"] = TRUTH[row]
        frame.to_csv(pool, index=False)
        person(0)
        found = self.label(run_cli, "--json")
        assert found.code == 3
        assert found.data["labeled"] == 39
        assert any("1 label written into the table since the last session" in note for note in found.data["notes"])
