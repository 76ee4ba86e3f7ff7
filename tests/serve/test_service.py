"""The desk: rows out, answers in, several people, undo, conflicts, and learning and audits in turn."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from serve.services import CLASSES, Knowing, make_desk, truth
from surefoot.bounds.audit import Audit
from surefoot.bounds.engine import TOO_LONG, level_of
from surefoot.pool import database as e
from surefoot.pool.database import NotSavedError
from surefoot.pool.label_log import Neighbours
from surefoot.pool.schedule import AUDITING, LEARNING, PROVED, Goal, is_shared, pack, unpack
from surefoot.pool.service import Answer, AnswerError, LabelingService, agreement, fleiss_kappa, status
from surefoot.pool.store_labels import TABLE


def label_next(desk: LabelingService, person: object, n: int = 1, errors: float | None = None) -> list[int]:
    """Answer rows with the truth, fitting whenever the desk wants a fit."""
    hidden, rows = truth(desk.book.n_rows), []
    learner = Knowing(desk.book.n_rows, 0.02, errors)
    for _ in range(n):
        picks = desk.rows_for(person, beyond=errors is not None)
        if not picks:
            break
        desk.answer(person, picks[0].row, CLASSES[hidden[picks[0].row]])
        rows.append(picks[0].row)
        job = desk.wanted()
        if job is not None:
            desk.take_ranking(learner.rank(job), job)
        desk.freeze_if_due()
    return rows


def test_people_never_hold_the_same_row(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    people = [desk.store.person(name) for name in ("ada", "bob", "eve")]
    for _ in range(40):
        for person in people:
            label_next(desk, person)
        held = [row for person in people for row in desk.book.held[person.id]]
        assert len(held) == len(set(held))


def test_labels_in_the_table_count_as_nobody(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    desk.store.person(TABLE)
    label_next(desk, desk.store.person("ada"))
    assert status(desk)["people"] == [{"name": "ada", "answers": 1}]


def test_the_first_rows_are_random_then_the_model_picks_then_the_audit_draws(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    ada = desk.store.person("ada")
    first = label_next(desk, ada, 24, errors=0.25)  # a quarter is wrong: no audit begins
    purposes = [event.purpose for event in desk.book.events if event.kind == e.LABEL]
    assert purposes[:4] == [e.RANDOM] * 4
    # rows are handed out three ahead, and half of them test what the others taught
    assert abs(purposes.count(e.LEARN) - 12) <= 2
    assert set(purposes) == {e.RANDOM, e.LEARN}
    assert desk.turns.phase == LEARNING
    first += label_next(desk, ada, 4, errors=0.0)
    assert desk.turns.phase == AUDITING
    rows = label_next(desk, ada, 200)
    assert desk.turns.phase == PROVED
    assert desk.rows_for(ada) == []
    found = desk.turns.audit
    assert found.anytime_upper <= 0.1
    assert list(found.labels) == [draw.row for draw in found.draw(found.n_labels)]
    assert set(found.labels) <= {*first, *rows}
    assert np.mean(Knowing(200, 0.02).predictions != truth(200)) <= found.anytime_upper


def test_the_page_and_the_audit_agree(tmp_path: Path) -> None:
    """Handing out rows ahead of their labels changes nothing: the bound is that of `Audit` on the same rows."""
    desk = make_desk(tmp_path)
    label_next(desk, desk.store.person("ada"), 30)
    engine = desk.turns.audit

    class Lookup:
        def predict(self, rows: np.ndarray) -> np.ndarray:
            return np.array(CLASSES, dtype=object)[Knowing(200, 0.02).predictions][rows[:, 0]]

    known = np.full(200, None, dtype=object)
    for row in engine.known:
        known[row] = desk.book.labels[row]
    audit = Audit(Lookup(), np.arange(200)[:, None], known, level=level_of(0.9, 1), target_error=0.1, random_state=1)
    audit.run(lambda row: CLASSES[truth(200)[row]], engine.n_labels)
    assert audit.anytime_bound().value == engine.anytime_upper
    assert audit.labels == engine.labels


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    ada = desk.store.person("ada")
    label_next(desk, ada, 25)
    before = (
        desk.book.labels,
        desk.book.held,
        desk.turns.curve.points,
        desk.turns.audit.anytime_upper,
        desk.turns.audit.draw(5),
    )
    desk.store.close()
    again = make_desk(tmp_path)
    audit = again.turns.audit
    found = (again.book.labels, again.book.held, again.turns.curve.points, audit.anytime_upper, audit.draw(5))
    assert found == before


def test_a_bad_model_loses_its_audit_and_learning_goes_on(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, goal=Goal(0.05, 0.9, 0))
    ada, hidden, learner = desk.store.person("ada"), truth(200), Knowing(200, 0.3)
    for _ in range(60):
        row = desk.rows_for(ada)[0].row
        desk.answer(ada, row, CLASSES[hidden[row]])
        if desk.turns.last is not None:
            break
        job = desk.wanted()
        if job is not None:
            desk.take_ranking(learner.rank(job), job)
        desk.freeze_if_due()
    number, errors, labels, why = desk.turns.last
    assert number == 1
    assert errors / labels > 0.05
    assert why == TOO_LONG
    assert desk.turns.phase == LEARNING
    closed = len(desk.book.labels)
    assert desk.turns.awaits(desk.ranking)  # the next model has learned from the labels of the audit
    assert not desk.turns.should_freeze(desk.ranking)
    fresh = learner.rank(desk.wanted())
    assert not desk.turns.awaits(fresh)
    assert fresh.n_labels == closed
    assert desk.turns.should_freeze(fresh)


def test_no_row_is_handed_out_while_a_model_is_trained_for_an_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(tmp_path, pause=10.0)
    ada, learner = desk.store.person("ada"), Knowing(200, 0.02)
    for _ in range(4):
        row = desk.rows_for(ada)[0].row
        desk.answer(ada, row, CLASSES[learner.truth[row]])
    assert status(desk)["paused"]
    held = desk.rows_for(ada)
    assert len(held) == 3  # those that were handed out before
    for pick in held:
        desk.answer(ada, pick.row, CLASSES[learner.truth[pick.row]])
    assert desk.rows_for(ada) == []
    later = time.monotonic() + 11
    with monkeypatch.context() as patched:
        patched.setattr(
            "surefoot.pool.service.time.monotonic", lambda: later
        )  # the fit takes too long: labeling goes on
        assert len(desk.rows_for(ada)) == 3
    job = desk.wanted()
    desk.take_ranking(learner.rank(job), job)
    assert not status(desk)["paused"]
    desk.freeze_if_due()  # the model that was trained, as it is
    assert desk.turns.phase == AUDITING
    assert desk.turns.audit.known.keys() == desk.book.labels.keys()


class TestTargets:
    def test_a_change_is_recorded_and_spends_no_confidence(self, tmp_path: Path) -> None:
        desk = make_desk(tmp_path)
        ada = desk.store.person("ada")
        label_next(desk, ada, 20)
        engine = desk.turns.audit
        bound = engine.anytime_upper
        assert not engine.proved
        desk.set_target(ada, 0.9)
        assert (desk.turns.phase, engine.anytime_upper) == (PROVED, bound)
        desk.set_target(ada, 0.05)
        assert desk.turns.phase == AUDITING
        changes = [(event.person, event.value) for event in desk.store.events() if event.kind == e.TARGET]
        assert changes == [(ada.id, "0.9"), (ada.id, "0.05")]
        label_next(desk, ada, 200)
        assert desk.turns.phase == PROVED
        assert desk.turns.audit.anytime_upper <= 0.05
        desk.store.close()
        again = make_desk(tmp_path)
        assert (again.turns.goal.target, again.turns.phase) == (0.05, PROVED)

    def test_the_page_lists_them(self, tmp_path: Path) -> None:
        desk = make_desk(tmp_path)
        ada = desk.store.person("ada")
        assert status(desk)["targets"] is None
        label_next(desk, ada, 40)
        found = {one["target"]: one for one in status(desk)["targets"]}
        assert list(found) == [0.02, 0.05, 0.1]
        labels = [200 if one["prove"] is None else one["prove"] for one in found.values()]
        assert labels == sorted(labels, reverse=True)
        assert found[0.1]["prove"] == status(desk)["needed"]

    def test_what_was_proved_stays_proved(self, tmp_path: Path) -> None:
        """The bound of an audit that ended without a proof is still one, and its labels may change."""
        desk = make_desk(tmp_path, goal=Goal(0.01, 0.9, 0))
        ada, hidden, learner = desk.store.person("ada"), truth(200), Knowing(200, 0.1)
        assert status(desk)["proved"] is None
        while desk.turns.last is None:
            row = desk.rows_for(ada)[0].row
            desk.answer(ada, row, CLASSES[hidden[row]])
            if (job := desk.wanted()) is not None:
                desk.take_ranking(learner.rank(job), job)
            desk.freeze_if_due()
        best = status(desk)["proved"]
        number, engine = desk.turns.best()
        assert (best["audit"], best["value"]) == (number, engine.anytime_upper)
        assert np.mean(learner.predictions != hidden) <= best["value"] < 1
        row = next(row for row, wrong in zip(engine.labels, engine.outcomes, strict=True) if not wrong)
        desk.answer(ada, row, CLASSES[1 - hidden[row]])
        assert status(desk)["proved"]["value"] > best["value"]

    def test_out_of_reach_asks_for_a_decision(self, tmp_path: Path) -> None:
        desk = make_desk(tmp_path)
        ada = desk.store.person("ada")
        label_next(desk, ada, 30, errors=0.4)
        now = status(desk)
        assert now["out_of_reach"]
        assert desk.rows_for(ada) == []
        assert desk.rows_for(ada, beyond=True)
        desk.begin_finish()
        assert not status(desk)["out_of_reach"]
        assert desk.rows_for(ada)
        with pytest.raises(AnswerError, match="while a table is being finished"):
            desk.set_target(ada, 0.2)


def test_an_edit_in_the_audit_counts_anew(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    ada = desk.store.person("ada")
    label_next(desk, ada, 24)
    audit = desk.turns.audit
    before, errors, row = audit.anytime_upper, audit.n_errors, next(iter(audit.labels))
    right = desk.book.labels[row]
    desk.answer(ada, row, "no" if right == "yes" else "yes")
    assert audit.n_errors == errors + 1
    assert audit.anytime_upper > before
    desk.answer(ada, row, right)
    assert (audit.n_errors, audit.anytime_upper) == (errors, before)


def test_undo_gives_the_row_back_for_its_purpose(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, random_first=10)
    ada = desk.store.person("ada")
    label_next(desk, ada, 16)
    assert desk.turns.phase == AUDITING
    bound, n = desk.turns.audit.anytime_upper, len(desk.book.labels)
    pick = desk.rows_for(ada)[0]
    desk.answer(ada, pick.row, None)
    assert pick.row in desk.book.skipped
    assert desk.turns.audit.anytime_upper >= bound  # a skip counts as an error
    assert desk.undo(ada) == pick.row
    assert (desk.turns.audit.anytime_upper, len(desk.book.labels)) == (bound, n)
    again = desk.rows_for(ada)[0]
    assert (again.row, again.purpose, again.probability) == (pick.row, e.AUDIT, pick.probability)


def test_undo_goes_back_step_by_step_to_the_beginning(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    ada = desk.store.person("ada")
    rows = label_next(desk, ada, 5)
    assert [desk.undo(ada) for _ in range(6)] == [*reversed(rows), None]
    assert desk.book.labels == {}


def test_an_answer_sent_twice_counts_once(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    ada = desk.store.person("ada")
    row = desk.rows_for(ada)[0].row
    first = desk.answer(ada, row, "yes", "key-1")
    assert desk.answer(ada, row, "yes", "key-1") == first
    assert [event.row for event in desk.store.events() if event.kind == e.LABEL] == [row]


def test_overlap_asks_a_second_person_and_a_conflict_is_settled(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, overlap=1.0)
    ada, bob = desk.store.person("ada"), desk.store.person("bob")
    row = desk.rows_for(ada)[0].row
    desk.answer(ada, row, "yes")
    pick = desk.rows_for(bob)[0]
    assert (pick.row, pick.purpose) == (row, e.SECOND)
    desk.answer(bob, row, "no")
    assert row in desk.book.conflicts
    assert row not in desk.book.labels
    desk.settle(bob, row, "yes")
    assert (desk.book.labels[row], desk.book.conflicts) == ("yes", set())
    assert desk.rows_for(ada)[0].row != row


def test_without_overlap_nobody_is_asked_twice(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    ada, bob = desk.store.person("ada"), desk.store.person("bob")
    assert not set(label_next(desk, ada, 30)) & set(label_next(desk, bob, 30))


def test_a_row_held_too_long_goes_to_another(tmp_path: Path) -> None:
    desk = make_desk(tmp_path, n_rows=2, lease=0.0)
    ada, bob = desk.store.person("ada"), desk.store.person("bob")
    rows = [pick.row for pick in desk.rows_for(ada)]
    assert sorted(rows) == [0, 1]
    assert sorted(pick.row for pick in desk.rows_for(bob)) == [0, 1]
    assert desk.book.held[ada.id] == {}


@pytest.mark.parametrize(("row", "label"), [(200, "yes"), (-1, "yes"), (True, "yes"), (0, "maybe")])
def test_a_wrong_answer_is_refused(tmp_path: Path, row: int, label: str) -> None:
    desk = make_desk(tmp_path)
    with pytest.raises(AnswerError, match="Reload the page"):
        desk.answer(desk.store.person("ada"), row, label)
    assert desk.store.events() == []


def test_numbers_survive_packing() -> None:
    assert unpack(pack(np.array([3, 1, 70000]))).tolist() == [3, 1, 70000]


def test_agreement_of_two_and_of_three() -> None:
    two = agreement([{1: "a", 2: "a"}, {1: "a", 2: "b"}, {1: "b", 2: "b"}, {1: "b", 2: "b"}, {1: "a"}], ["a", "b"])
    assert (two.n_rows, two.share, two.name) == (4, 0.75, "Cohen")
    assert two.kappa == pytest.approx(0.5)  # chance: 1/2 * 1/4 + 1/2 * 3/4 = 1/2
    assert agreement([{1: "a", 2: "a", 3: "a"}], ["a", "b"]).kappa is None
    assert agreement([{1: "a"}], ["a", "b"]).share is None


def test_fleiss_kappa_of_a_published_table() -> None:
    """Ten subjects, 14 raters, five categories: κ = 0.210 (Wikipedia, "Fleiss' kappa", worked example)."""
    counts = [
        [0, 0, 0, 0, 14],
        [0, 2, 6, 4, 2],
        [0, 0, 3, 5, 6],
        [0, 3, 9, 2, 0],
        [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0],
        [3, 2, 6, 3, 0],
        [2, 5, 3, 2, 2],
        [6, 5, 2, 1, 0],
        [0, 2, 2, 3, 7],
    ]
    assert fleiss_kappa(np.array(counts, dtype=float)) == pytest.approx(0.2099, abs=1e-4)


def test_answers_that_wait_for_each_other_share_a_transaction(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    people = [desk.store.person(f"p{k}") for k in range(6)]
    rows = [desk.rows_for(person)[0].row for person in people]
    begun: list[str] = []
    desk.store._database._connection.set_trace_callback(
        lambda said: begun.append(said) if said.startswith("BEGIN") else None
    )
    given = [
        Answer(person, row if k else 10**6, "yes") for k, (person, row) in enumerate(zip(people, rows, strict=True))
    ]
    found = desk.answer_all(given)
    assert len(begun) == 1
    assert [isinstance(one, AnswerError) for one in found] == [True] + [False] * 5  # no fault of the others
    assert sorted(desk.book.labels) == sorted(rows[1:])


@pytest.mark.parametrize("key", ["", "x" * 65, "\ud800", "a\nb", "ä"])
def test_an_odd_key_is_refused_and_the_others_are_taken(tmp_path: Path, key: str) -> None:
    desk = make_desk(tmp_path)
    ada = desk.store.person("ada")
    first, second = desk.rows_for(ada)[:2]
    refused, taken = desk.answer_all([Answer(ada, first.row, "yes", key), Answer(ada, second.row, "no", "fine")])
    assert isinstance(refused, AnswerError)
    assert taken.value == "no"
    assert desk.book.labels == {second.row: "no"}


def test_what_the_book_keeps_at_hand_is_what_its_rows_say(tmp_path: Path) -> None:
    """Open rows, random labels and rows that await a second answer, against a count over all rows."""
    desk = make_desk(tmp_path, 60, overlap=0.5)
    people, rng = [desk.store.person(name) for name in ("ada", "bob")], np.random.default_rng(0)
    for _ in range(150):
        person = people[rng.integers(2)]
        act = rng.integers(6)
        picks = desk.rows_for(person)
        if act == 0:
            desk.undo(person)
        elif act == 1 and desk.book.rows:
            row = int(rng.choice([row for row, state in desk.book.rows.items() if state.answers] or [-1]))
            if row >= 0:
                desk.settle(person, row, CLASSES[rng.integers(2)])
        elif picks:
            desk.answer(person, picks[0].row, [None, *CLASSES][rng.integers(3)])
        book = desk.book
        touched = {row for row, state in book.rows.items() if state.answers or state.settled or row in book.holders}
        assert set(book.open_rows().tolist()) == set(range(60)) - touched
        assert book.n_open == 60 - len(touched)
        assert book.drawn == {
            row for row in book.labels if book.rows[row].purpose in e.DRAWN and not book.rows[row].picked
        }
        single = {row for row, state in book.rows.items() if len(state.answers) == 1 and state.settled is None}
        assert set(book.awaiting) == {row for row in single if is_shared(row, 0.5, 0)}


def test_random_rows_are_drawn_with_the_chance_that_is_stored(tmp_path: Path) -> None:
    """Each open row comes first as often as another, and 1 over the number of open rows is its probability."""
    desk = make_desk(tmp_path, 5)
    ada = desk.store.person("ada")
    desk.store.append([e.Event(e.LABEL, 2, ada.id, "yes", e.LEARN)])
    desk.catch_up()
    counts = np.zeros(5)
    for k in range(800):
        desk.chooser._seed = k
        pick = desk.chooser.choose(ada.id, 1, None, 0.0)[0]
        assert pick.probability == 1 / 4
        counts[pick.row] += 1
    assert counts[2] == 0
    assert np.abs(counts[[0, 1, 3, 4]] - 200).max() < 4 * np.sqrt(800 * 0.25 * 0.75)
    picks = desk.chooser.choose(ada.id, 9, None, 0.0)
    assert [pick.probability for pick in picks] == [1 / 4, 1 / 3, 1 / 2, 1]
    assert {pick.row for pick in picks} == {0, 1, 3, 4}


def fill(desk: LabelingService, person: object) -> None:
    """Answer until the disk is full."""
    for k in range(400):
        desk.answer(person, desk.rows_for(person)[0].row, "yes", f"{k:060}")


def test_a_refused_transaction_leaves_memory_as_the_disk_is(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    ada = desk.store.person("ada")
    label_next(desk, ada, 20)
    before = (dict(desk.book.labels), desk.book.held, desk.turns.audit.anytime_upper)
    connection = desk.store._database._connection
    connection.execute(f"PRAGMA max_page_count={connection.execute('PRAGMA page_count').fetchone()[0]}")
    with pytest.raises(NotSavedError, match="disk is full"):
        fill(desk, ada)
    stored = [event for event in desk.store.events() if event.kind == e.LABEL]
    assert len(stored) == len(desk.book.labels) >= len(before[0])
    connection.execute("PRAGMA max_page_count=100000")
    n = len(desk.book.labels)
    label_next(desk, ada, 1)
    assert len(desk.book.labels) == n + 1


def test_neighbours_are_the_nearest_labeled_rows_however_labels_come_and_go() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(80, 4)).round(1)
    features[40:60] = features[:20]  # the same rows again: distances of zero, and ties
    near, labels = Neighbours(features), {}
    assert near.nearest_labeled(0, labels) == []
    for step in range(120):
        row = int(rng.integers(80))
        if step % 7 == 6:
            labels.pop(row, None)
        else:
            labels.pop(row, None)
            labels[row] = CLASSES[step % 2]
        for asked in (row, int(rng.integers(80))):
            others = [other for other in labels if other != asked]
            expected = sorted(np.linalg.norm(features[other] - features[asked]) for other in others)[:3]
            found = near.nearest_labeled(asked, labels)
            assert [one.distance for one in found] == pytest.approx(expected, abs=1e-12)
            assert all(one.row != asked and labels[one.row] == one.label for one in found)
            exact = [np.linalg.norm(features[one.row] - features[asked]) for one in found]
            assert [one.distance for one in found] == pytest.approx(exact, abs=1e-12)
    assert near.nearest_labeled(0, {}) == []
