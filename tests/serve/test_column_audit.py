"""`surefoot serve --audit COLUMN`: predictions that the table holds are audited on the page, without a model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import surefoot as sf
from serve.rooms import Client, SameProcess
from serve.services import store_of
from surefoot._errors import FileError, ParameterError
from surefoot.cli import run
from surefoot.pool.label_log import Neighbours
from surefoot.pool.schedule import AUDITED, AUDITING, LEARNING, PROVED, ColumnAudit, Goal, LabelingSettings
from surefoot.pool.service import AnswerError, LabelingService, status
from surefoot.pool.stored import GivenPredictions
from surefoot.pool.table import Table, read_labeled_table
from surefoot.pool.table.reading import PLAIN
from surefoot.serve.state import AppState, Cards, Fitter

N, CLASSES = 80, ["ham", "spam"]
GOAL = ColumnAudit(("llm", "sure"), 0.9, 0)
TRUTH = [CLASSES[int(value)] for value in np.random.default_rng(3).random(N) < 0.3]
SAID = [CLASSES[1 - CLASSES.index(name)] if row % 16 == 0 else name for row, name in enumerate(TRUTH)]


def write(folder: Path, said: list[str] = SAID) -> Path:
    path = folder / "mails.csv"
    lines = [f'"Mail {row}: {"words " * 14}",{name},{(row % 7) / 7:.3f},' for row, name in enumerate(said)]
    path.write_text("\n".join(["mail,llm,sure,truth", *lines]) + "\n", encoding="utf-8")
    return path


def opened(folder: Path, goal: ColumnAudit | None = GOAL, overlap: float = 0.0) -> AppState:
    """What `surefoot serve --audit` serves."""
    path = folder / "mails.csv"
    table: Table = read_labeled_table(path, "truth", classes=CLASSES, how=PLAIN)
    desk = LabelingService(store_of(table), N, table.classes, LabelingSettings(Goal(), 4, overlap))
    given = GivenPredictions.from_cells(table.cells, "truth", "llm", "sure")
    try:
        desk.begin_audit(goal, given.codes(table.classes), given.scores)
    except BaseException:
        desk.store.close()
        raise
    fitter = Fitter(None, desk.wanted, desk.take_ranking, desk.freeze_if_due)
    return AppState(
        desk, Cards(table, None, desk.turns.hidden_columns), fitter, Neighbours(np.empty((N, 0))), path.read_bytes()
    )


def label(room: AppState, name: str = "ada", most: int = N) -> list[int]:
    """Let someone label with the truth while rows are handed out; the rows."""
    person, rows = room.desk.store.person(name), []
    while len(rows) < most and (held := room.desk.rows_for(person)):
        rows.append(held[0].row)
        room.desk.answer(person, rows[-1], TRUTH[rows[-1]])
    return rows


class TestBound:
    def test_it_is_that_of_the_same_audit_in_python(self, tmp_path: Path) -> None:
        write(tmp_path)
        room = opened(tmp_path)
        assert status(room.desk)["bound"] is None
        rows = label(room, most=50)
        audit = sf.Audit(predictions=SAID, random_state=0)
        assert audit.run(lambda row: TRUTH[row], 50).labels == {row: TRUTH[row] for row in rows}
        found = status(room.desk)
        assert found["bound"]["value"] == audit.anytime_bound().value
        assert (found["phase"], found["target"]) == (AUDITING, None)
        assert len(found["curve"]) > 1

    def test_a_target_ends_it(self, tmp_path: Path) -> None:
        write(tmp_path)
        room = opened(tmp_path, replace(GOAL, target=0.2))
        rows = label(room)
        assert len(rows) < N
        assert room.desk.turns.phase == PROVED
        assert status(room.desk)["bound"]["value"] <= 0.2
        assert room.desk.rows_for(room.desk.store.person("ada"), beyond=True) == []

    def test_a_planned_number_of_labels(self, tmp_path: Path) -> None:
        write(tmp_path)
        room = opened(tmp_path, replace(GOAL, planned=30))
        label(room, most=29)
        found = status(room.desk)
        assert (found["phase"], found["bound"], found["needed"]) == (AUDITING, None, 1)
        label(room)
        audit = sf.Audit(predictions=SAID, n_labels=30, random_state=0).run(lambda row: TRUTH[row])
        assert status(room.desk)["bound"]["value"] == audit.bound().value
        assert room.desk.turns.phase == AUDITED

    @pytest.mark.parametrize(
        ("metric", "positive"), [("recall", "spam"), ("precision", "spam"), ("f1", "spam"), ("recall", None)]
    )
    def test_other_metrics(self, tmp_path: Path, metric: str, positive: str | None) -> None:
        write(tmp_path)
        goal = replace(GOAL, planned=40, metric=metric, positive=positive, target=0.99)
        room = opened(tmp_path, goal)
        label(room, most=20)
        assert status(room.desk)["bound"] is None
        label(room)
        audit = sf.Audit(
            predictions=SAID, target={metric: 0.99}, positive=positive, classes=CLASSES, n_labels=40, random_state=0
        ).run(lambda row: TRUTH[row])
        found = status(room.desk)
        assert found["bound"]["value"] == audit.bound().value
        assert found["phase"] == (PROVED if audit.proved else AUDITED)

    def test_labels_of_before_count_as_they_are(self, tmp_path: Path) -> None:
        path = write(tmp_path)
        lines = path.read_text().splitlines()
        filled = [line + (TRUTH[row] if row < 10 else "") for row, line in enumerate(lines[1:])]
        path.write_text("\n".join([lines[0], *filled]) + "\n")
        room = opened(tmp_path)
        assert min(label(room, most=20)) >= 10
        audit = sf.Audit(predictions=SAID, y=TRUTH[:10] + [None] * (N - 10), random_state=0)
        assert status(room.desk)["bound"]["value"] == audit.run(lambda row: TRUTH[row], 20).anytime_bound().value

    def test_a_skip_counts_as_an_error_until_the_label_is_given(self, tmp_path: Path) -> None:
        write(tmp_path)
        room = opened(tmp_path)
        rows = label(room, most=20)
        before = status(room.desk)["bound"]["value"]
        ada = room.desk.store.person("ada")
        right = next(row for row in rows if TRUTH[row] == SAID[row])
        room.desk.answer(ada, right, None)
        assert status(room.desk)["bound"]["value"] > before
        room.desk.answer(ada, right, TRUTH[right])
        assert status(room.desk)["bound"]["value"] == before


class TestPage:
    def test_neither_predictions_nor_scores_are_shown(self, tmp_path: Path) -> None:
        write(tmp_path)
        ada = Client(opened(tmp_path))
        page = "".join(card["html"] + card["why"] for card in ada.rows())
        assert "Mail" in page
        assert "sure" not in page
        assert "0.1" not in page
        assert not any(f"<dd>{name}</dd>" in page for name in CLASSES)
        assert "predictions in “llm”" in page
        assert ada.http.get("/download/labels.csv").status_code == 404
        assert ada.http.get("/download/model.skops").status_code == 404
        assert "/report" not in ada.http.get("/finish").text
        task = json.loads(ada.http.get("/download/label-studio.json").content)[0]
        assert set(task["data"]) == {"mail", "surefoot_row"}
        assert "predictions" not in task
        assert ada.http.post("/report", data={"token": ada.token}).status_code == 400

    def test_the_table_can_be_downloaded_afterwards(self, tmp_path: Path) -> None:
        write(tmp_path)
        room = opened(tmp_path, replace(GOAL, planned=10))
        label(room)
        ada = Client(room)
        assert b"llm" in ada.http.get("/download/labels.csv").content
        assert "labels.csv" in ada.http.get("/finish").text

    def test_several_annotators_share_the_sample(self, tmp_path: Path) -> None:
        write(tmp_path)
        room = opened(tmp_path, replace(GOAL, planned=20), overlap=1.0)
        ada, bob = Client(room, "ada"), Client(room, "bob")
        assert not {one["row"] for one in ada.rows()} & {one["row"] for one in bob.rows()}
        for _ in range(25):
            for one in (ada, bob):
                if rows := one.rows():
                    one.post("answer", row=rows[0]["row"], label=TRUTH[rows[0]["row"]])
        assert room.desk.turns.phase == AUDITED
        assert 2 in {len(found.answers) for found in room.desk.book.rows.values()}
        assert not room.desk.book.conflicts


class TestResume:
    def test_it_continues_with_the_same_rows(self, tmp_path: Path) -> None:
        write(tmp_path)
        room = opened(tmp_path, replace(GOAL, planned=40))
        first = label(room, most=15)
        room.desk.store.close()
        room = opened(tmp_path, replace(GOAL, planned=40, seed=7))  # the seed stays
        rows = [*first, *label(room)]
        assert list(sf.Audit(predictions=SAID, n_labels=40, random_state=0).run(lambda row: "ham").labels) == rows

    @pytest.mark.parametrize(
        ("change", "option"),
        [
            ({"planned": 50}, "--labels"), ({"level": 0.95}, "--level"), ({"target": 0.1}, "--target"),
            ({"metric": "recall", "positive": "spam", "planned": 40}, "--target"), ({"columns": ("other",)}, "--audit"),
        ],
    )  # fmt: skip
    def test_another_goal_is_refused(self, tmp_path: Path, change: dict[str, object], option: str) -> None:
        write(tmp_path)
        room = opened(tmp_path, replace(GOAL, planned=40))
        label(room, most=5)
        room.desk.store.close()
        with pytest.raises(FileError, match=option):
            opened(tmp_path, replace(replace(GOAL, planned=40), **change))  # type: ignore[arg-type]
        assert len(opened(tmp_path, replace(GOAL, planned=40)).desk.book.labels) == 5

    def test_an_audit_that_is_not_over_is_not_given_up(self, tmp_path: Path) -> None:
        write(tmp_path)
        room = opened(tmp_path, replace(GOAL, planned=10))
        label(room, most=5)
        room.desk.store.close()
        with pytest.raises(FileError, match="--audit"):
            opened(tmp_path, None)
        room = opened(tmp_path, replace(GOAL, planned=10))
        label(room)
        room.desk.store.close()
        room = opened(tmp_path, None)  # it is over: now a model learns
        assert room.desk.turns.phase == LEARNING
        assert room.desk.turns.last is None
        assert len(room.desk.book.labels) == 10

    def test_changed_predictions_and_a_class_that_is_none_are_refused(self, tmp_path: Path) -> None:
        write(tmp_path)
        with pytest.raises(ParameterError) as error:
            opened(tmp_path, replace(GOAL, planned=40, metric="recall", positive="no such"))
        assert error.value.parameter == "positive"
        room = opened(tmp_path)
        label(room, most=3)
        with pytest.raises(AnswerError):
            room.desk.answer(room.desk.store.person("ada"), 0, "no such")
        room.desk.store.close()
        path = tmp_path / "mails.csv"
        table = read_labeled_table(path, "truth", classes=CLASSES, how=PLAIN)
        desk = LabelingService(store_of(table), N, CLASSES, LabelingSettings(Goal()))
        with pytest.raises(FileError, match="changed since"):
            desk.begin_audit(GOAL, np.zeros(N, dtype=np.intp))


def test_it_takes_the_place_of_an_audit_of_a_model(tmp_path: Path) -> None:
    from serve.services import Knowing

    write(tmp_path)
    room = opened(tmp_path, None)
    ada = room.desk.store.person("ada")
    learner = SameProcess(Knowing(N, 0.1))
    while room.desk.turns.phase == LEARNING:
        row = room.desk.rows_for(ada)[0].row
        room.desk.answer(ada, row, TRUTH[row])
        if (job := room.desk.wanted()) is not None:
            room.desk.take_ranking(learner.ask("rank", job), job)
            room.desk.freeze_if_due()
    n_known = len(room.desk.book.labels)
    room.desk.store.close()
    room = opened(tmp_path)
    assert room.desk.turns.column == GOAL
    assert len(room.desk.turns.audit.known) == n_known


@pytest.mark.parametrize(
    "more",
    [
        ["--target-recall", "0.9", "--labels", "10"], ["--labels", "10"], ["--score", "sure"],
        ["--audit", "llm", "--target-recall", "0.9"], ["--audit", "llm", "--positive", "spam"],
        ["--audit", "llm", "--target-recall", "0.9", "--labels", "9", "--target", "0.1"], ["--audit", "none"],
        ["--audit", "truth"], ["--audit", "llm", "--demo"],
        ["--audit", "llm", "--target-recall", "0.9", "--labels", "9", "--positive", "no"],
    ],
)  # fmt: skip
def test_the_command_refuses_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["serve", "mails.csv", "--label", "truth", "--no-open", "--port", "0", *more]) == 2
