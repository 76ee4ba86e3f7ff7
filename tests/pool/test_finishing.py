"""Finishing a table: who labels which row, the guarantee, several annotators, changes of mind, and a resumed store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from surefoot._errors import FileError, ParameterError
from surefoot.bounds.engine import AuditEngine
from surefoot.bounds.finish import plan_finish
from surefoot.pool import database as e
from surefoot.pool.database import Event
from surefoot.pool.finishing import (
    LABELED_BY,
    MODEL,
    PERSON,
    FinishGoal,
    Finishing,
    check_unfinished,
    finished_table,
)
from surefoot.pool.label_log import LabelLog
from surefoot.pool.schedule import (
    AUDITING,
    FINISHED,
    FINISHING,
    AuditSchedule,
    Goal,
    LabelingSettings,
    freeze_events,
)
from surefoot.pool.service import LabelingService, status
from surefoot.pool.store import FrozenBlobs, Person, Store
from surefoot.pool.table import TableError, read_labeled_table

CLASSES = ["no", "yes"]
N = 240
GOAL = FinishGoal(max_error=0.1, planned=40, level=0.8, seed=3)


def predicted(seed: int = 0, n_rows: int = N) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truth and predictions (N,) as places of classes, with scores: errors where these are low."""
    rng = np.random.default_rng(seed)
    truth, scores = rng.integers(0, 2, n_rows), rng.random(n_rows)
    return truth, np.where(rng.random(n_rows) < 0.5 - scores / 2, 1 - truth, truth), scores


class Desk:
    """A store in which a table is finished, and a robot that knows the truth."""

    def __init__(self, folder: Path, goal: FinishGoal | None = GOAL, known: int = 10) -> None:
        self.truth, self.predictions, self.scores = predicted()
        folder.mkdir(exist_ok=True)
        self.path = folder / "pool.csv.surefoot.db"
        with Store(self.path, {"label": "y", "classes": CLASSES}) as store:
            one = store.person("one")
            given = [Event(e.LABEL, row, one.id, CLASSES[self.truth[row]], e.GIVEN) for row in range(known)]
            rows = list(range(known))
            events, blobs = freeze_events(1, CLASSES, self.predictions, rows, self.scores, goal=goal)
            store.append([*given, *events], blobs)
        self.open()

    def open(self) -> None:
        """Open the store, as after a kill."""
        settings = LabelingSettings(Goal(0.15, 0.9, 0), random_first=30)
        self.service = LabelingService(Store(self.path), N, CLASSES, settings)

    @property
    def finishing(self) -> Finishing:
        found = self.service.turns.finishing
        assert found is not None
        return found

    def person(self, name: str = "one") -> Person:
        return self.service.store.person(name)

    def label(self, most: int = N, *names: str) -> list[int]:
        """Let annotators label in turns; the rows."""
        rows = []
        for k in range(most):
            person = self.person((names or ("one",))[k % max(len(names), 1)])
            picks = self.service.rows_for(person)
            if not picks:
                break
            rows.append(picks[0].row)
            self.service.answer(person, rows[-1], CLASSES[self.truth[rows[-1]]])
        return rows


class TestFinishing:
    def test_the_sample_comes_first_then_the_rows_that_are_left(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        assert (desk.service.turns.phase, desk.finishing.sample_size, desk.finishing.n_left) == (AUDITING, 40, None)
        sample = desk.label(40)
        assert sample == [draw.row for draw in desk.finishing.audit.draw(40)]
        assert not set(sample) & set(range(10))
        assert desk.service.turns.phase == FINISHING
        plan = desk.finishing.plan()
        assert plan is not None
        # the plan of the same labels, computed from the sample alone
        names = [CLASSES[k] for k in desk.predictions]
        engine = AuditEngine(names, {row: CLASSES[desk.truth[row]] for row in range(10)}, level=0.8, seed=3, plan=40)
        for row in sample:
            engine.settle(row, CLASSES[desk.truth[row]])
        expected = plan_finish(engine, desk.scores, 40, 0.1)
        assert plan.rows.tolist() == expected.rows.tolist()
        assert plan.curve() == expected.curve()
        assert 0 < len(plan.rows) < N - 50
        left = desk.label()
        assert left == plan.rows.tolist()
        assert desk.service.turns.phase == FINISHED
        assert desk.service.rows_for(desk.person()) == []
        labels, authors = desk.finishing.labels()
        assert (authors == MODEL).sum() == plan.n_model
        assert (authors == PERSON).sum() == 10 + 40 + len(left) == N - plan.n_model
        wrong = labels != np.array(CLASSES)[desk.truth]
        assert not wrong[authors == PERSON].any()
        assert wrong.sum() <= plan.n_wrong <= 0.1 * N

    def test_it_goes_on_after_a_kill(self, tmp_path: Path) -> None:
        whole, other = Desk(tmp_path / "a"), tmp_path / "b"
        order = whole.label()
        desk, rows = Desk(other), []
        while part := desk.label(7):
            rows += part
            desk.open()
        assert rows == order
        assert np.array_equal(desk.finishing.labels()[0], whole.finishing.labels()[0])

    def test_several_annotators_get_different_rows(self, tmp_path: Path) -> None:
        whole, desk = Desk(tmp_path / "a"), Desk(tmp_path / "b")
        rows = desk.label(N, "one", "two", "three")
        assert len(rows) == len(set(rows))
        assert set(rows) >= set(whole.label())  # a few more: they held rows of the sample when it ended
        assert desk.finishing.is_finished

    def test_skips_and_changes_of_mind(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        person = desk.person()
        first = desk.service.rows_for(person)[0].row
        desk.service.answer(person, first, None)  # an error of the sample
        assert desk.finishing.audit.n_errors == 1
        desk.label(39)
        plan = desk.finishing.plan()
        assert plan is not None
        desk.service.answer(person, first, CLASSES[desk.predictions[first]])  # the prediction was right after all
        better = desk.finishing.plan()
        assert better is not None
        assert len(better.rows) <= len(plan.rows)
        skipped = desk.service.rows_for(person)[0].row
        desk.service.answer(person, skipped, None)
        desk.label()
        assert desk.finishing.is_finished
        labels, authors = desk.finishing.labels()
        assert labels[skipped] is authors[skipped] is None
        assert all(author is not None for row, author in enumerate(authors) if row != skipped)

    def test_a_label_of_a_person_counts_for_a_row_of_the_model(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        desk.label(40)
        plan = desk.finishing.plan()
        assert plan is not None
        row = int(plan.model_rows[0])
        other = CLASSES[1 - desk.predictions[row]]
        desk.service.answer(desk.person("two"), row, other)
        labels, authors = desk.finishing.labels()
        assert (labels[row], authors[row]) == (other, PERSON)
        again = desk.finishing.plan()
        assert again is not None
        assert again.n_model == plan.n_model - 1
        assert again.rows.tolist() == plan.rows.tolist()

    def test_an_audit_that_was_begun_for_a_target_is_finished_at_any_time(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, goal=None)
        assert desk.service.turns.finishing is None
        desk.label(25)
        service = desk.service
        audit = service.turns.audit
        assert audit is not None
        service.store.append([Event(e.FINISH, audit=1, value=FinishGoal(0.2).to_json())])
        service.catch_up()
        assert (desk.finishing.audit, audit.target, desk.finishing.sample_size) == (audit, 0.2, None)
        plan = desk.finishing.plan()
        assert plan is not None
        assert plan.sample.anytime
        assert set(desk.label()) >= set(plan.rows.tolist()[:1])
        desk.open()
        assert desk.service.turns.phase == FINISHED
        labels, authors = desk.finishing.labels()
        assert (labels[authors == MODEL] != np.array(CLASSES)[desk.truth][authors == MODEL]).sum() <= 0.2 * N

    def test_rows_without_a_prediction_are_left_to_annotators(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        scores = rng.random(100)
        predictions = np.where(scores < 0.3, -1, 1)
        events, blobs = freeze_events(
            1, CLASSES, predictions, [], np.where(predictions < 0, -np.inf, scores), goal=FinishGoal(0.1, 30, 0.9, 0)
        )
        book = LabelLog(100, CLASSES)
        turns = AuditSchedule(book, Goal(), 4, lambda _: blobs)
        for event in events:
            book.apply(event)
            turns.apply(event)
        finishing = turns.finishing
        assert finishing is not None
        while rows := finishing.rows(1):
            event = Event(e.LABEL, rows[0], 1, "yes")
            book.apply(event)
            turns.apply(event)
        authors = finishing.labels()[1]
        assert set(authors[predictions < 0]) == {PERSON}
        assert (authors == MODEL).sum() > 20

    def test_the_page_says_where_it_stands(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        assert status(desk.service)["needed"] > 40  # the sample, and more as estimated
        desk.label(40)
        now = status(desk.service)
        assert (now["phase"], now["needed"]) == (FINISHING, desk.finishing.n_left)
        plan = desk.finishing.plan()
        assert plan is not None
        assert now["sentence"] == plan.statement
        desk.label()
        assert status(desk.service)["phase"] == FINISHED

    def test_a_store_without_scores_or_goal_is_refused(self, tmp_path: Path) -> None:
        book = LabelLog(2, CLASSES)
        turns = AuditSchedule(
            book, Goal(), 4, lambda _: FrozenBlobs(1, *freeze_events(1, CLASSES, np.zeros(2), [], np.zeros(2))[1][1:4])
        )
        turns.apply(Event(e.FREEZE, audit=1, value='["no", "yes"]'))
        with pytest.raises(FileError, match="scores of audit 1"):
            turns.apply(Event(e.FINISH, audit=1, value=GOAL.to_json()))
        for text in ("", "[]", '{"max": 1}', None):
            with pytest.raises(FileError, match="what an audit is for"):
                FinishGoal.from_json(text)


def missed(seed: int, truth: np.ndarray, predictions: np.ndarray, scores: np.ndarray) -> bool:
    """Whether one run of a robot leaves more wrong labels than allowed."""
    n_rows = len(truth)
    goal = FinishGoal(0.1, 30, 0.8, seed)
    events, blobs = freeze_events(1, CLASSES, predictions, [], scores, goal=goal)
    book = LabelLog(n_rows, CLASSES)
    turns = AuditSchedule(book, Goal(), 4, lambda _: blobs)
    turns.apply(events[0])
    turns.apply(events[1])
    finishing = turns.finishing
    assert finishing is not None
    while rows := finishing.rows(1):
        event = Event(e.LABEL, rows[0], 1, CLASSES[truth[rows[0]]])
        book.apply(event)
        turns.apply(event)
    labels = finishing.labels()[0]
    return int((labels != np.array(CLASSES)[truth]).sum()) > 0.1 * n_rows


def worst_pool() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All errors, one more than allowed, among the surest rows."""
    scores = np.arange(80)[::-1] / 80
    truth = np.zeros(80, dtype=int)
    return truth, np.where(np.arange(80) <= 8, 1, 0), scores


@pytest.mark.parametrize("make", [lambda: predicted(7, 80), worst_pool], ids=["usual", "worst"])
def test_the_guarantee_holds(make: object) -> None:
    """At level 0.8, in 100 runs from the first row to the last."""
    truth, predictions, scores = make()  # type: ignore[operator]
    misses = sum(missed(seed, truth, predictions, scores) for seed in range(100))
    assert misses <= binom.isf(1e-6, 100, 0.2)


class TestFinishedTable:
    def write(self, folder: Path, name: str, frame: pd.DataFrame) -> Path:
        path = folder / name
        if name.endswith(".csv"):
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path, index=False)
        return path

    @pytest.mark.parametrize("name", ["pool.csv", "pool.parquet"])
    def test_columns_and_types_stay(self, tmp_path: Path, name: str) -> None:
        frame = pd.DataFrame({"a": [1.5, 2.5, 3.5], "y": pd.array([1, None, 0], dtype="Int64")})
        table = read_labeled_table(self.write(tmp_path, name, frame), "y")
        labels = np.array(["1", "0", "0"], dtype=object)
        found = finished_table(table, labels, np.array([PERSON, MODEL, PERSON], dtype=object))
        assert list(found.columns) == ["a", "y", LABELED_BY]
        assert [float(value) for value in found["y"]] == [1, 0, 0]
        assert found[LABELED_BY].tolist() == [PERSON, MODEL, PERSON]
        assert found["a"].tolist() == table.cells["a"].tolist()
        some = finished_table(table, np.array(["1", None, "0"], dtype=object), np.array([PERSON, None, PERSON]))
        assert some["y"].isna().tolist() == some[LABELED_BY].isna().tolist() == [False, True, False]

    def test_a_table_that_has_the_column_is_refused(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "pool.csv", pd.DataFrame({LABELED_BY: ["x", "z"], "y": ["a", "b"]}))
        with pytest.raises(TableError, match="labeled_by"):
            check_unfinished(read_labeled_table(path, "y"))


def test_a_share_of_zero_is_refused() -> None:
    engine = AuditEngine(["a", "b"], {}, level=0.9, seed=0)
    engine.settle(engine.draw(1)[0].row, "a")
    with pytest.raises(ParameterError, match="max_error must be above 0"):
        plan_finish(engine, np.zeros(2), None, 0.0)
