"""`surefoot audit`, and `surefoot label --target-error`: asked, stopped, resumed, proved, refused."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from generators import Result, make_pool
from surefoot.pool.store import Store, store_path

Run = Callable[..., Result]


def log(name: str) -> list[dict[str, Any]]:
    """What the store keeps of an audit."""
    with Store(store_path("pool.csv")) as store, store.log(name) as found:
        return found.read()


TRUTH = make_pool(120, 120)["churn"].tolist()


class TrueAnswers(io.StringIO):
    """A person who knows every label and answers the row that was asked for last, up to a number of answers."""

    def __init__(self, capsys: pytest.CaptureFixture[str], most: int, wrong: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.capsys, self.left, self.wrong = capsys, most, wrong
        self.shown, self.asked = "", []

    def readline(self, *_: Any) -> str:  # type: ignore[override]
        printed = self.capsys.readouterr()
        self.shown += printed.out + printed.err
        row = int(re.findall(r"^Row (\d+)$", self.shown, re.MULTILINE)[-1]) - 1
        if self.left == 0:
            return "quit\n"
        self.left -= 1
        self.asked.append(row)
        return f"{TRUTH[row]}\n"


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., TrueAnswers]:
    def answers(most: int = 1000) -> TrueAnswers:
        found = TrueAnswers(capsys, most)
        monkeypatch.setattr("sys.stdin", found)
        return found

    return answers


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
        assert "errs on at most" in text
        assert "the number of labels, 12, was fixed before the first was seen" in " ".join(text.split())

    def test_another_model_is_refused(self, run_cli: Run, person: Callable[..., TrueAnswers]) -> None:
        person(5)
        audit(run_cli, "--target", "0.15")
        frame = pd.read_csv("pool.csv")
        frame["churn"] = frame["churn"].map({"yes": "no", "no": "yes"})  # a model that says the contrary
        frame.to_csv("other.csv", index=False)
        assert run_cli("fit", "other.csv", "--label", "churn", "--no-report", "--no-error").code == 0
        person(5)
        found = run_cli("audit", "pool.csv", "--label", "churn", "--model", "other.skops", "--target", "0.15")
        assert found.code == 2
        assert "cannot be judged by them" in found.message
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
        assert run_cli("fit", "other.csv", "--label", "churn", "--no-report", "--no-error").code == 0
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


class TestLabelUntilProved:
    def label(self, run_cli: Run, *more: Any) -> Result:
        return run_cli("label", "pool.csv", "--label", "churn", "--target-error", "0.15", "--radius", "0.5", *more)

    def test_it_proves_and_writes_the_model(self, run_cli: Run, pool: Path, person: Callable[..., TrueAnswers]) -> None:
        make_pool(n_labels=0).assign(churn=None).to_csv(pool, index=False)
        first = person(26)
        found = self.label(run_cli, "--classes", "yes,no")
        assert found.code == 3
        assert "run it again to go on" in found.out + first.shown
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
        assert any("1 label came into the table" in note for note in found.data["notes"])
