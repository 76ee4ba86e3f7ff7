"""The page finishes a table: the offer, its sample, the rows that are left, and the files."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from serve.rooms import Client, make_room
from serve.services import CLASSES, Knowing, make_desk, truth
from surefoot.pool.finishing import expected_labels, sample_size
from surefoot.pool.schedule import AUDITING, FINISHED, FINISHING, LEARNING
from surefoot.pool.service import AnswerError, LabelingService, status
from surefoot.pool.store import Person


class Sure(Knowing):
    """A learner that is right where its score is large."""

    def __init__(self, n_rows: int, seed: int = 2) -> None:
        self.truth, rng = truth(n_rows), np.random.default_rng(seed)
        self.scores = rng.uniform(0.5, 1.0, n_rows)
        self.predictions = np.where(rng.random(n_rows) < 1 - self.scores, 1 - self.truth, self.truth)

    def rank(self, job):  # type: ignore[no-untyped-def]
        found = super().rank(job)
        proba = np.stack([1 - self.scores, self.scores], axis=1)
        proba[self.predictions == 0] = proba[self.predictions == 0][:, ::-1]
        object.__setattr__(found, "proba", proba.astype(np.float32))
        return found


def label(desk: LabelingService, person: Person, learner: Knowing, most: int = 1000) -> int:
    """Let a person label while rows are handed out."""
    for done in range(most):
        rows = desk.rows_for(person)
        if not rows:
            return done
        desk.answer(person, rows[0].row, CLASSES[learner.truth[rows[0].row]])
        if (job := desk.wanted()) is not None:
            desk.take_ranking(learner.rank(job), job)
    return most


def begun(folder: Path, learner: Knowing, n_rows: int) -> tuple[LabelingService, Person]:
    desk = make_desk(folder, n_rows)
    person = desk.store.person("ada")
    label(desk, person, learner, 10)
    assert desk.turns.phase == LEARNING
    desk.begin_finish()
    return desk, person


def in_audit(folder: Path, learner: Knowing, n_rows: int) -> tuple[LabelingService, Person]:
    desk = make_desk(folder, n_rows)
    person = desk.store.person("ada")
    while desk.turns.phase != AUDITING:
        label(desk, person, learner, 1)
        desk.freeze_if_due()
    return desk, person


class TestDesk:
    def test_from_the_offer_to_the_finished_table(self, tmp_path: Path) -> None:
        learner = Sure(400)
        desk = make_desk(tmp_path, 400)
        assert status(desk)["targets"] is None
        with pytest.raises(AnswerError, match="model must have learned"):
            desk.begin_finish()
        person = desk.store.person("ada")
        label(desk, person, learner, 10)
        offer = {one["target"]: one["finish"] for one in status(desk)["targets"]}
        assert list(offer) == [0.02, 0.05, 0.1]
        assert offer[0.1] <= offer[0.05] <= offer[0.02]
        desk.begin_finish()
        desk.begin_finish(0.02)  # of two people who press at once, the first one counts
        now = status(desk)
        assert (now["phase"], now["targets"], now["bound"]) == (AUDITING, None, None)
        assert desk.turns.finishing is not None
        assert desk.turns.finishing.goal.max_error == 0.1
        assert desk.turns.finishing.sample_size == sample_size(400, 10, 0.1, 0.9)
        assert now["needed"] == pytest.approx(offer[0.1], abs=2)
        n = label(desk, person, learner)
        assert 0.5 * offer[0.1] < n < 2 * offer[0.1]
        now = status(desk)
        assert (now["phase"], now["needed"]) == (FINISHED, 0)
        assert now["bound"]["value"] <= 0.1
        labels, authors = desk.turns.finishing.labels()
        wrong = labels != np.array(CLASSES)[learner.truth]
        assert not wrong[authors == "person"].any()
        assert wrong.mean() <= 0.1

    def test_an_audit_gives_way(self, tmp_path: Path) -> None:
        learner = Sure(400)
        desk, person = in_audit(tmp_path, learner, 400)
        label(desk, person, learner, 5)
        assert status(desk)["bound"] is not None
        n = len(desk.book.labels)
        desk.begin_finish(0.05)
        finishing = desk.turns.finishing
        assert finishing is not None
        assert len(finishing.audit.known) == n  # labels of the audit count as they are
        assert finishing.audit.n_labels == 0
        again = LabelingService(desk.store, 400, CLASSES, desk.settings)
        assert again.turns.finishing is not None
        assert again.turns.finishing.audit.draw(5)[0].row == finishing.audit.draw(5)[0].row
        label(again, person, learner)
        assert again.turns.phase == FINISHED

    def test_the_last_rows_wait_a_minute_for_others(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        learner = Sure(150)
        desk, person = begun(tmp_path, learner, 150)
        held = {pick.row for pick in desk.rows_for(desk.store.person("bo"))}
        label(desk, person, learner)
        assert desk.turns.phase == AUDITING
        assert desk.turns.finishing is not None
        assert desk.turns.finishing.n_sampled == (desk.turns.finishing.sample_size or 0) - len(held)
        later = time.time() + 61
        monkeypatch.setattr("surefoot.pool.service.time.time", lambda: later)
        label(desk, person, learner)
        assert desk.turns.phase == FINISHED

    def test_before_the_first_audited_row_no_bound_is_shown(self, tmp_path: Path) -> None:
        learner = Sure(400)
        desk, _ = in_audit(tmp_path, learner, 400)
        assert desk.turns.audit is not None
        assert desk.turns.audit.n_labels == 0
        assert status(desk)["bound"] is None

    def test_the_guarantee_holds(self, tmp_path: Path) -> None:
        """At level 0.9, from the first label to the last, in 20 tables."""
        missed = 0
        for seed in range(20):
            folder = tmp_path / str(seed)
            folder.mkdir()
            learner = Sure(150, seed)
            desk, person = begun(folder, learner, 150)
            label(desk, person, learner)
            assert desk.turns.finishing is not None
            labels = desk.turns.finishing.labels()[0]
            missed += (labels != np.array(CLASSES)[learner.truth]).mean() > 0.1
        assert missed <= binom.isf(1e-6, 20, 0.1)

    def test_nothing_is_offered_where_every_row_has_an_answer(self, tmp_path: Path) -> None:
        learner = Sure(20)
        desk = make_desk(tmp_path, 20)
        person = desk.store.person("ada")
        label(desk, person, learner)
        assert status(desk)["targets"] is None
        with pytest.raises(AnswerError):
            desk.begin_finish()


def test_the_estimate_is_the_median() -> None:
    """The model labels the rows up to the third sampled error: simulated, with honest probabilities."""
    rng = np.random.default_rng(0)
    chances = np.sort(rng.uniform(0.5, 1.0, 2000))[::-1]
    m, counts = sample_size(2000, 0, 0.05, 0.9), []
    for _ in range(300):
        wrong = rng.random(2000) > chances
        sampled = np.zeros(2000, dtype=bool)
        sampled[rng.choice(2000, m, replace=False)] = True
        errors = np.flatnonzero(wrong & sampled)
        end = errors[2] if len(errors) > 2 else 2000
        counts.append(m + int((~sampled[end:]).sum()))
    assert expected_labels(chances, 2000, m) == pytest.approx(np.median(counts), rel=0.1)
    assert expected_labels(np.empty(0), 0, 1) == 0


class TestPage:
    def test_finish_by_the_page(self, tmp_path: Path) -> None:
        room = make_room(tmp_path, wrong=0.05)
        client = Client(room)
        known = truth(60)
        assert client.http.get("/api/standing").json()["targets"] is None
        assert client.post("finish").status_code == 400
        for _ in range(6):
            row = client.rows()[0]["row"]
            client.post("answer", row=row, label=CLASSES[known[row]])
        job = room.desk.wanted()
        assert job is not None
        room.desk.take_ranking(Knowing(60, 0.05).rank(job), job)
        assert client.http.get("/api/standing").json()["targets"]
        for share in (0.0, 1.0, "0.1", -1, 2):
            assert client.post("finish", max_error=share).status_code == 400
        assert client.http.get("/download/finished.csv").status_code == 404
        assert client.http.post("/api/finish", json={}).status_code == 403  # without the token of the page
        assert client.post("finish", max_error=0.2).json()["saved"]
        while rows := client.rows():
            client.post("answer", row=rows[0]["row"], label=CLASSES[known[rows[0]["row"]]])
        assert client.http.get("/api/standing").json()["phase"] == FINISHED
        assert "Finished table" in client.http.get("/finish").text
        table = pd.read_csv(io.BytesIO(client.http.get("/download/finished.csv").content))
        assert set(table["labeled_by"]) <= {"person", "model"}
        assert (table["churn"] != np.array(CLASSES)[known]).mean() <= 0.2
        parquet = pd.read_parquet(io.BytesIO(client.http.get("/download/finished.parquet").content))
        assert parquet["churn"].tolist() == table["churn"].tolist()
        assert client.http.get("/download/model.skops").content == b"model"

    def test_phases_are_those_of_the_script(self) -> None:
        script = (Path(__file__).parents[2] / "src/surefoot/serve/static/label.js").read_text(encoding="utf-8")
        for phase in (FINISHED, FINISHING):
            assert json.dumps(phase) in script


def test_the_page_says_what_is_proved_and_changes_the_target(tmp_path: Path) -> None:
    room = make_room(tmp_path, wrong=0.0)
    client, known = Client(room), truth(60)
    assert "Nothing is proved yet" in client.http.get("/finish").text
    assert client.http.get("/download/proved.skops").status_code == 404
    learner = Knowing(60, 0.0)
    for _ in range(16):
        row = client.rows()[0]["row"]
        client.post("answer", row=row, label=CLASSES[known[row]])
        if (job := room.desk.wanted()) is not None:
            room.desk.take_ranking(learner.rank(job), job)
        room.desk.freeze_if_due()
    now = client.http.get("/api/standing").json()
    assert now["phase"] == AUDITING
    assert f"Proved so far: the frozen model of audit 1 misclassifies at most {now['proved']['shown']}" in (
        client.http.get("/finish").text
    )
    assert client.http.get("/download/proved.skops").content == b"model"
    for target in (0.0, 1.0, "0.5", None, 2):
        assert client.post("target", target=target).status_code == 400
    assert client.post("target", target=0.9).json()["saved"]
    now = client.http.get("/api/standing").json()
    assert (now["phase"], now["target"]) == ("proved", 0.9)
    assert [one["target"] for one in now["targets"]] == [0.02, 0.05, 0.1, 0.9]
    assert client.rows() == []
