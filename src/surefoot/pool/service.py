"""The labeling service: it hands out rows, accepts labels, and stores each label before confirming it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import FileError
from surefoot._printing import at_least, count
from surefoot._printing import short_percent as percent
from surefoot._validation import FloatArray
from surefoot.bounds.engine import NO_ROW_LEFT, OUT_OF_REACH, TOO_LONG, AuditEngine
from surefoot.bounds.metrics import F1, MetricEngine
from surefoot.pool import database as e
from surefoot.pool.database import LABEL, Event, NotSavedError
from surefoot.pool.finishing import FinishGoal, Finishing, expected_labels, sample_size
from surefoot.pool.label_log import Job, LabelLog, Ranking, as_job, check_known
from surefoot.pool.schedule import (
    AUDITED,
    AUDITING,
    FINISHED,
    LEARNING,
    OVER,
    PROVED,
    AuditSchedule,
    Chooser,
    ColumnAudit,
    LabelingSettings,
    freeze_events,
    is_shared,
    unpack,
)
from surefoot.pool.store import MOVED_AUDITS, FrozenBlobs, Person, Store
from surefoot.pool.store_labels import TABLE

# Rows that an annotator holds: the current row and the next ones, so that typing never waits.
AHEAD = 3
LONGEST_NOTE = 2000
_LONGEST_KEY = 64


class AnswerError(ValueError):
    """A label that the service does not accept."""


@dataclass(frozen=True)
class Answer:
    """A label that an annotator gives to a row, or None for a skip.

    key : made by the page, so that a label sent twice counts once.
    """

    person: Person
    row: int
    label: str | None
    key: str | None = None


class LabelingService:
    """Hand out rows and accept labels. Every method is safe to call from any thread."""

    def __init__(self, store: Store, n_rows: int, classes: list[str], settings: LabelingSettings) -> None:
        self.store, self.settings = store, settings
        self.lock = threading.RLock()
        self._size = n_rows, classes
        self.ranking: Ranking | None = None
        self.problem: str | None = None
        self.offered: tuple[tuple[Any, ...], list[dict[str, Any]]] | None = None
        self._paused_at: float | None = None
        self._fitted_to: Job | None = None
        self._read_store()

    def _read_store(self) -> None:
        """Rebuild the state from all events in the store."""
        settings = self.settings
        shared = partial(is_shared, overlap=settings.overlap, seed=settings.goal.seed)
        self.book = LabelLog(*self._size, *([shared] if settings.overlap > 0 else []))
        self.turns = AuditSchedule(self.book, settings.goal, settings.random_first, self.store.frozen)
        self.chooser = Chooser(self.book, self.turns, settings)
        self._last = 0
        self.turns.n_audits = moved = self.store.about.get(MOVED_AUDITS, 0)
        for event in self.store.events():
            if event.kind in (e.FREEZE, e.CLOSE) and (event.audit or 0) <= moved:
                self._last = event.id  # the event refers to old row numbers
            else:
                self._apply(event)

    def catch_up(self) -> bool:
        """Apply events that other processes have written. Return True if there were any."""
        with self.lock:
            new = self.store.events(self._last)
            check_known(new, self.book.classes)
            for event in new:
                self._apply(event)
            return bool(new)

    def rows_for(self, person: Person, *, beyond: bool = False) -> list[Event]:
        """Return the rows that a person holds, the row to show first. Hand out rows if needed.

        No row is returned when labeling is over or the target is out of reach, unless `beyond` is True.
        When the audit of a column is over, `beyond` has no effect.
        """
        with self.lock:
            self.catch_up()
            over = self.turns.phase in OVER
            if (over and (not beyond or self.turns.column is not None)) or (not beyond and is_out_of_reach(self)):
                return []
            if len(self.book.held.get(person.id, {})) < AHEAD:
                with self._transaction():
                    missing = 0 if self.pauses() else AHEAD - len(self.book.held.get(person.id, {}))
                    picks = self.chooser.choose(person.id, missing, self.ranking, time.time())
                    if picks:
                        self._store(picks)
            return list(self.book.held.get(person.id, {}).values())

    def pauses(self) -> bool:
        """Return True while no rows are handed out, because a model is being trained that may be due for an audit."""
        if not self.turns.awaits(self.ranking):
            self._paused_at = None
            return False
        now = time.monotonic()
        self._paused_at = now if self._paused_at is None else self._paused_at
        return now - self._paused_at < self.settings.pause

    def answer(self, person: Person, row: int, label: str | None, key: str | None = None) -> Event:
        """Store one label."""
        found = self.answer_all([Answer(person, row, label, key)])[0]
        if isinstance(found, Exception):
            raise found
        return found

    def answer_all(self, answers: Sequence[Answer]) -> list[Event | AnswerError | NotSavedError]:
        """Store labels in one transaction, and return the result for each.

        An invalid label does not affect valid ones. If writing to disk fails, no label counts, and memory is reset to
        the state on disk.
        """
        try:
            with self._transaction():
                return [self._taken(answer) for answer in answers]
        except NotSavedError as error:
            return [error] * len(answers)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Apply new events of other processes, then write all changes in one transaction."""
        with self.lock:
            try:
                with self.store.together():
                    self.catch_up()
                    yield
            except AnswerError:  # refused before anything was stored
                raise
            except BaseException:
                self._read_store()
                raise

    def _taken(self, answer: Answer) -> Event | AnswerError:
        try:
            return self._answer(answer)
        except AnswerError as error:
            return error

    def _answer(self, answer: Answer) -> Event:
        person, row, label, key = answer.person, answer.row, answer.label, answer.key
        self._check_row(row)
        known = self._known(key, person, (e.LABEL, e.SKIP), row)
        if known is not None:
            return known
        self._check_label(label)
        held = self.book.held.get(person.id, {})
        pick = held.get(row) or self._earlier(person, row)
        kind = e.SKIP if label is None else e.LABEL
        event = Event(kind, row, person.id, label, pick.purpose, pick.probability, pick.audit, key)
        missing = 0 if self.pauses() else max(AHEAD - len(held) + (row in held), 0)
        picks = self.chooser.choose(person.id, missing, self.ranking, time.time(), without=frozenset({row}))
        stored = self._store([event, *picks])[0]
        self._take_turns()
        return stored

    def undo(self, person: Person, key: str | None = None) -> int | None:
        """Undo an annotator's last label and return its row, or None if there is none."""
        with self._transaction():
            known = self._known(key, person, (e.UNDO,))
            if known is not None:
                return known.row
            done = self.book.done.get(person.id, [])
            if not done:
                return None
            row = done[-1]
            last = self.book.rows[row].answers[person.id]
            again = Event(e.PICK, row, person.id, "again", last.purpose, last.probability, last.audit)
            self._store([Event(e.UNDO, row, person.id, key=key), again])
            self._take_turns()
            return row

    def flag(self, person: Person, row: int, flagged: bool) -> None:
        """Mark a row for discussion, or clear its marks."""
        with self._transaction():
            self._check_row(row)
            self._store([Event(e.FLAG if flagged else e.UNFLAG, row, person.id)])

    def note(self, person: Person, row: int, text: str, key: str | None = None) -> None:
        """Add a note to a row."""
        words = text.strip()
        if not words or len(words) > LONGEST_NOTE:
            raise AnswerError(f"a note must have 1 to {LONGEST_NOTE} characters; got {len(words)}. Shorten it.")
        if any("\ud800" <= letter <= "\udfff" for letter in words):
            raise AnswerError("a note must be valid text. Type it again.")
        with self._transaction():
            self._check_row(row)
            if self._known(key, person, (e.NOTE,), row) is None:
                self._store([Event(e.NOTE, row, person.id, words, key=key)])

    def settle(self, person: Person, row: int, label: str) -> None:
        """Set the agreed label of a row with different labels."""
        with self._transaction():
            self._check_row(row)
            self._check_label(label)
            if not self.book.row(row).answers:
                raise AnswerError(f"row {row + 1} has no labels to settle. Label it first.")
            self._store([Event(e.SETTLE, row, person.id, label)])
            self._take_turns()

    def wanted(self) -> Job | None:
        """Return the labels for a new fit, or None if no new fit is due."""
        with self.lock:
            self.catch_up()
            if self.turns.audit is not None or len(self.book.labels) < min(self.settings.random_first, 2):
                return None
            job = as_job(self.book.labels, self.book.picked())
            enough = len(self.book.labels) >= self.settings.random_first or self._fitted_to is None
            return None if job == self._fitted_to or not enough else job

    def take_ranking(self, ranking: Ranking | None, job: Job) -> None:
        """Use a new ranking."""
        with self.lock:
            self._fitted_to = job
            if ranking is None:
                return
            self.ranking = ranking
            if ranking.measured is not None:
                found = ranking.measured
                value = json.dumps({"value": found.value, "level": found.level, "kind": found.kind,
                                    "n_labels": ranking.n_labels, "n_random": found.n_labels,
                                    "n_errors": found.n_errors})  # fmt: skip
                self._try_to_store([Event(e.MEASURED, value=value)])

    def freeze_if_due(self) -> None:
        """Freeze the model if an audit is due. The slow part runs without the lock, so annotators need not wait."""
        with self.lock:
            ranking = self.ranking
            if ranking is None or not self.turns.should_freeze(ranking):
                return
            number, known, labels = self.turns.n_audits + 1, self.turns.known_rows(), dict(self.book.labels)
        self.turns.prepare(number, ranking.predictions, known, labels)
        scores = ranking.proba.max(axis=1).astype(np.float64)
        events, blobs = freeze_events(number, self.book.classes, ranking.predictions, known, scores, ranking.model)
        with self.lock:
            self.catch_up()
            if self.turns.should_freeze(ranking) and number == self.turns.n_audits + 1:
                self._try_to_store(events, blobs)

    def set_target(self, person: Person | None, target: float) -> None:
        """Change the target error rate of the audits. Each change is recorded.

        The bounds of audits hold at all numbers of labels and for all targets at once, so the guarantee stays valid.
        """
        with self._transaction():
            if self.turns.finishing is not None or self.turns.column is not None:
                what = "a table is being finished" if self.turns.column is None else "a column is being audited"
                raise AnswerError(f"the target cannot change while {what}.")
            if target != self.turns.goal.target:
                who = e.NOBODY if person is None else person.id
                self._store([Event(e.TARGET, person=who, value=repr(float(target)))])
                self._take_turns()

    def begin_finish(self, max_error: float | None = None) -> None:
        """Freeze the latest model and finish the table with it. A new sample tests it, annotators label the rest.

        max_error : largest share of wrong labels in the finished table; None for the current target.
        """
        with self._transaction():
            ranking, book, goal = self.ranking, self.book, self.turns.goal
            if self.turns.finishing is not None:
                return
            if ranking is None:
                raise AnswerError("a model must have learned before the table can be finished. Label more rows first.")
            if not book.n_unanswered:
                raise AnswerError("a table can be finished while rows have no answer; all have one.")
            known, share = self.turns.known_rows(), goal.target if max_error is None else max_error
            size = sample_size(book.n_rows, len(known), share, goal.level)
            number = self.turns.n_audits
            before = [] if self.turns.audit is None else [Event(e.CLOSE, audit=number, value=e.FINISH)]
            events, blobs = freeze_events(
                number + 1, book.classes, ranking.predictions, known, ranking.proba.max(axis=1).astype(np.float64),
                ranking.model, FinishGoal(share, size, goal.level, goal.seed + number),
            )  # fmt: skip
            self._store([*before, *events], blobs)

    def take(self, events: Sequence[Event]) -> list[Event]:
        """Store events of another program, except those already stored."""
        with self._transaction():
            new = [event for event in events if event.key is None or event.key not in self.book.keys]
            stored = self._store(new) if new else []
            self._take_turns()
            return stored

    def order(self, most: int) -> list[int]:
        """Return at most `most` rows, most useful first, for a program that hands out rows itself."""
        with self.lock:
            self.catch_up()
            ranking, sample = self.ranking, [row for row in self.random_sample if self.book.is_untouched(row)]
            if self.turns.audit is None and (sample or ranking is not None):
                rows = [*sample, *(() if ranking is None else ranking.rows)]
                return [row for row in dict.fromkeys(rows) if self.book.is_untouched(row)][:most]
            return [pick.row for pick in self.chooser.choose(e.NOBODY, most, ranking, time.time())]

    @property
    def random_sample(self) -> list[int]:
        """The rows that another program labels first: a random sample, whatever the order of their labels."""
        order = np.random.default_rng([self.settings.goal.seed, self.book.n_rows]).permutation(self.book.n_rows)
        rows: list[int] = order[: self.settings.random_first].tolist()
        return rows

    def begin_audit(
        self, goal: ColumnAudit | None, predictions: NDArray[np.intp], scores: FloatArray | None = None
    ) -> None:
        """Begin or continue an audit of predictions (N,) in the table. Without a goal, close a finished audit.

        An unfinished audit is neither changed nor closed.
        """
        with self._transaction():
            turns, number = self.turns, self.turns.n_audits
            if goal is not None and turns.finishing is not None and turns.phase != FINISHED:
                raise FileError("--audit requires a table that is not being finished. Finish it first.")
            if turns.column is not None and (goal is None or turns.column.columns != goal.columns):
                if turns.phase not in OVER:
                    raise FileError(
                        f"--audit must be {turns.column.columns[0]}, whose audit is not over, got "
                        f"{'none' if goal is None else goal.columns[0]}. Continue it, or run surefoot export and move "
                        "the store away."
                    )
            elif turns.column is not None and goal is not None:
                _check_same(turns.column, goal)
                if not np.array_equal(unpack(self.store.frozen(number).predictions), predictions):
                    raise FileError(
                        f"--audit must name the predictions whose audit has begun; column {goal.columns[0]!r} has "
                        "changed since. Restore it, or run surefoot export and move the store away."
                    )
                return
            elif goal is None:
                return
            events = [] if turns.audit is None else [Event(e.CLOSE, audit=number, value=e.COLUMN)]
            blobs = None
            if goal is not None:
                goal.engine(turns.names(predictions), {}, self.book.classes)  # refused before anything is stored
                sure = np.zeros(self.book.n_rows) if scores is None else scores
                begun, blobs = freeze_events(
                    number + 1, self.book.classes, predictions, turns.known_rows(), sure, goal=goal
                )
                events += begun
            self._store(events, blobs)

    def _take_turns(self) -> None:
        """End an audit that cannot succeed."""
        why = self.turns.should_close()
        if why is not None:
            self._try_to_store([Event(e.CLOSE, audit=self.turns.n_audits, value=why)])

    def _store(self, events: Sequence[Event], frozen: FrozenBlobs | None = None) -> list[Event]:
        """Write events to disk, then apply them in memory."""
        placed = self.store.append(events, frozen)
        for event in placed:
            self._apply(event)
        self.problem = None
        return placed

    def _try_to_store(self, events: Sequence[Event], frozen: FrozenBlobs | None = None) -> None:
        """Store a result of the server. If the disk is full, it is computed again later."""
        try:
            self._store(events, frozen)
        except NotSavedError as error:
            self.problem = str(error)

    def _apply(self, event: Event) -> None:
        self._last = event.id
        self.book.apply(event)
        self.turns.apply(event)

    def _known(self, key: str | None, person: Person, kinds: tuple[str, ...], row: int | None = None) -> Event | None:
        """Return the stored event of this request if it was sent before."""
        if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable()):
            raise AnswerError(f"a key must have 1 to {_LONGEST_KEY} plain characters; got {key!r:.80}.")
        known = None if key is None else self.book.keys.get(key)
        if known is not None and (known.person != person.id or known.kind not in kinds or row not in (None, known.row)):
            raise AnswerError(f"a key must be new for each answer; {key!r} was used for another. Reload the page.")
        return known

    def _earlier(self, person: Person, row: int) -> Event:
        """Return the purpose of a row that a person no longer holds, from their label or from the row's history."""
        found = self.book.row(row)
        purpose = e.SECOND if found.answers else found.purpose or e.LEARN
        return found.answers.get(person.id) or Event(e.PICK, row, person.id, purpose=purpose)

    def _check_row(self, row: int) -> None:
        if type(row) is not int or not 0 <= row < self.book.n_rows:  # JSON may contain any type, such as true
            raise AnswerError(f"row must be a number from 0 to {self.book.n_rows - 1}; got {row!r}. Reload the page.")

    def _check_label(self, label: str | None) -> None:
        if label is not None and label not in self.book.classes:
            raise AnswerError(f"label must be one of {', '.join(self.book.classes)}; got {label!r}. Reload the page.")


# Status of the labeling in numbers and sentences: labels, the bound and its kind, and the labels still needed.


def _check_same(begun: ColumnAudit, asked: ColumnAudit) -> None:
    """Raise an error if an option other than the seed differs from that of the begun audit."""
    option = f"--target-{begun.metric}" if begun.metric else "--target"
    pairs = (
        ("--labels", begun.planned, asked.planned), ("--level", begun.level, asked.level),
        (option, (begun.metric, begun.target), (asked.metric, asked.target)),
        ("--positive", begun.positive, asked.positive),
    )  # fmt: skip
    for name, before, now in pairs:
        if before != now:
            value = before[1] if isinstance(before, tuple) else before
            raise FileError(
                f"{name} must be {'left out' if value is None else value}, as when the audit of "
                f"{begun.columns[0]!r} began. To audit otherwise, run surefoot export and move the store away."
            )


# Agreement between annotators: percent, Cohen's κ for two, Fleiss' κ for more.


@dataclass(frozen=True)
class Agreement:
    """Agreement between annotators on rows with two or more labels.

    n_rows : number of compared rows; share : share of equal labels among all pairs of labels.
    kappa : 1 for full agreement, 0 for chance agreement; None without comparisons or if chance agreement is 1.
    name : "Cohen" for two annotators, "Fleiss" for more.
    """

    n_rows: int
    share: float | None
    kappa: float | None
    name: str


def agreement(answers: Sequence[Mapping[int, str]], classes: Sequence[str]) -> Agreement:
    """Compute the agreement on rows. Each row is a mapping from person to label."""
    shared = [row for row in answers if len(row) >= 2]
    people = sorted({person for row in shared for person in row})
    name = "Cohen" if len(people) <= 2 else "Fleiss"
    if not shared:
        return Agreement(0, None, None, name)
    pairs = [a == b for row in shared for a, b in combinations(row.values(), 2)]
    if len(people) == 2:
        first, second = ([row[person] for row in shared] for person in people)
        kappa = cohen_kappa(first, second, classes)
    else:
        counts = np.array([[list(row.values()).count(name) for name in classes] for row in shared], dtype=np.float64)
        kappa = fleiss_kappa(counts)
    return Agreement(len(shared), float(np.mean(pairs)), kappa, name)


def agreement_in(book: LabelLog) -> Agreement:
    """Compute the agreement on the rows of a log."""
    answers = [
        {who: str(event.value) for who, event in state.answers.items() if event.kind == LABEL}
        for state in book.rows.values()
        if len(state.answers) > 1
    ]
    return agreement(answers, book.classes)


def cohen_kappa(first: Sequence[str], second: Sequence[str], classes: Sequence[str]) -> float | None:
    """Return Cohen's κ of two annotators who labeled the same rows, None if only one class occurs."""
    from sklearn.metrics import cohen_kappa_score

    if len(set(first) | set(second)) == 1:
        return None  # 0 / 0: only one class
    return float(cohen_kappa_score(first, second, labels=list(classes)))


def fleiss_kappa(counts: FloatArray) -> float | None:
    """Return Fleiss' κ from counts (rows, classes) of annotators who gave each label.

    Rows may have different numbers of labels, at least two. The agreement is averaged over the rows. The chance
    agreement uses all labels together.
    """
    answers = counts.sum(axis=1)
    alike = (counts * (counts - 1)).sum(axis=1) / (answers * (answers - 1))
    chance = float(((counts.sum(axis=0) / counts.sum()) ** 2).sum())
    return None if chance >= 1.0 else float((alike.mean() - chance) / (1.0 - chance))


THEOREM, MEASURED = "theorem", "measured"
# Reasons for ending an audit.
_WHY = {
    NO_ROW_LEFT: "and no row is left to draw",
    OUT_OF_REACH: "and the rows labeled before have more errors than the target allows",
    TOO_LONG: "so the proof would take too many labels",
}
# Most points on the chart.
_POINTS = 120


def status(desk: LabelingService) -> dict[str, Any]:
    """Return the current state for the script of the page."""
    with desk.lock:
        book, turns, ranking = desk.book, desk.turns, desk.ranking
        needed = _needed(desk)
        return {
            "phase": turns.phase,
            "rows": book.n_rows,
            "labels": len(book.labels),
            "skipped": len(book.skipped),
            "conflicts": len(book.conflicts),
            "flagged": len(book.flagged),
            "target": turns.goal.target if turns.column is None else turns.column.target,
            "level": turns.goal.level if turns.column is None else turns.column.level,
            "column": None if turns.column is None else _column_words(desk, turns.column),
            "bound": _bound(desk),
            "proved": _proved(desk),
            "needed": needed,
            "paused": desk.pauses(),
            "out_of_reach": is_out_of_reach(desk),
            "targets": _targets(desk),
            "headline": _headline(desk),
            "sentence": _sentence(desk, needed) if turns.column is None else _column_sentence(turns, turns.column),
            "counts": [[name, int(book.counts[name])] for name in book.classes],
            "curve": [[point.n_labels, point.value, point.audit] for point in turns.curve.thinned(_POINTS)],
            "people": [
                {"name": one.name, "answers": len(book.done.get(one.id, []))}
                for one in desk.store.people()
                if one.name != TABLE
            ],
            "fit": {
                "labels": 0 if ranking is None else ranking.n_labels,
                "seconds": 0.0 if ranking is None else round(ranking.seconds, 1),
                "notes": [] if ranking is None else list(ranking.notes),
            },
            "problem": desk.problem,
        }


def _bound(desk: LabelingService) -> dict[str, Any] | None:
    turns, audit, measured = desk.turns, desk.turns.audit, desk.turns.measured
    plan = None if desk.turns.finishing is None else desk.turns.finishing.plan()
    if audit is not None and not audit.n_labels:  # no result yet
        return None
    if audit is not None and turns.column is not None:
        return _column_bound(audit, turns.column, turns.phase)
    if desk.turns.finishing is not None and audit is not None:
        if plan is None:
            return None
        sampled = f"{count(int(plan.sample.wrong.sum()), 'error')} in {count(len(plan.sample.drawn), 'sampled row')}"
        return {"value": plan.bound, "shown": f"≤ {percent(plan.bound, up=True)}", "kind": THEOREM, "basis": sampled}
    if audit is not None:
        value, kind = audit.anytime_upper, THEOREM
        basis = f"{count(audit.n_errors, 'error')} in {count(audit.n_labels, 'audited row')}"
    elif measured is not None:
        value, kind = measured["value"], MEASURED
        basis = f"cross-fitted on {count(measured['n_random'], 'random label')}"
    else:
        return None
    return {"value": value, "shown": f"≤ {percent(value, up=True)}", "kind": kind, "basis": basis}


def _proved(desk: LabelingService) -> dict[str, Any] | None:
    """Return the smallest bound that audits have proved, None before the first audited row."""
    best = desk.turns.best()
    if best is None:
        return None
    number, audit = best
    return {
        "value": audit.anytime_upper,
        "shown": percent(audit.anytime_upper, up=True),
        "audit": number,
        "basis": f"{count(audit.n_errors, 'error')} in {count(audit.n_labels, 'audited row')}",
    }


def is_out_of_reach(desk: LabelingService) -> bool:
    """Return True if a proof is expected to take more than half of the remaining rows. This requires enough tests."""
    turns, state = desk.turns, desk.turns.state()
    if turns.audit is not None or state.n_tested < _ENOUGH * turns.policy.first or _targets(desk) is None:
        return False
    more = turns.policy.labels_left(state)
    return more is None or more > (state.n_rows - state.n_labels) / 2


# Tests required before a target is declared out of reach, as a multiple of the number of first random labels.
_ENOUGH = 2
# Shares of wrong labels that the page offers in addition to the target.
_OFFERED = (0.02, 0.05, 0.1)


def _targets(desk: LabelingService) -> list[dict[str, Any]] | None:
    """Estimate the labels needed to prove the error rate and to finish the table, for each share of wrong labels.

    None if neither can begin now.
    """
    book, turns, ranking = desk.book, desk.turns, desk.ranking
    if ranking is None or turns.finishing is not None or not book.n_unanswered:
        return None
    audit, shares = turns.audit, sorted({*_OFFERED, turns.goal.target})
    seen = None if audit is None else (turns.n_audits, audit.n_labels, audit.n_errors)
    few = len(book.labels) // max(book.n_rows // 1000, 1)  # update the estimate only after about 0.1 % new labels
    state = (ranking, shares, few, seen, turns.measured)
    if desk.offered is None or desk.offered[0][0] is not ranking or desk.offered[0][1:] != state[1:]:
        plans = turns.state()
        found = [
            {
                "target": share,
                "prove": turns.policy.labels_left(replace(plans, target=share), audit),
                "finish": _labels_to_finish(desk, ranking, share),
            }
            for share in shares
        ]
        desk.offered = state, found
    return desk.offered[1]


def _labels_to_finish(desk: LabelingService, ranking: Ranking, max_error: float) -> int:
    book = desk.book
    chances = np.sort(np.delete(ranking.proba.max(axis=1).astype(np.float64), list(book.labels)))[::-1]
    wrong = float((1.0 - chances).mean()) if len(chances) else 0.0
    if ranking.measured is not None and wrong > ranking.measured.value:  # a cautious model is right more often
        chances = 1.0 - (1.0 - chances) * ranking.measured.value / wrong
    size = sample_size(book.n_rows, len(book.labels), max_error, desk.turns.goal.level)
    return expected_labels(chances, book.n_rows, size)


def _headline(desk: LabelingService) -> str:
    goal, finishing, column = desk.turns.goal, desk.turns.finishing, desk.turns.column
    if column is not None:
        about = f"audit of {column.columns[0]!r}, {percent(column.level)} confidence"
        ended = "Done" if column.target is None else "Not proved"
        return {PROVED: f"Proved: {about}", AUDITED: f"{ended}: {about}", AUDITING: f"A{about[1:]}"}[desk.turns.phase]
    if finishing is not None:
        done = "Finished" if finishing.is_finished else "Finishing"
        return (
            f"{done}: at most {percent(finishing.goal.max_error)} wrong labels, "
            f"{percent(finishing.audit.level)} confidence"
        )
    at_most = f"at most {percent(goal.target)} wrong, {percent(goal.level)} confidence"
    return {
        PROVED: f"Proved: {at_most}",
        AUDITING: f"Proving: {at_most}?",
        LEARNING: "Learning",
    }[desk.turns.phase]


def _finish_sentence(finishing: Finishing) -> str:
    """Return a sentence on the progress of finishing the table."""
    plan = finishing.plan()
    if plan is not None:
        return plan.statement
    size = count(finishing.sample_size or 0, "sampled row")
    return f"{finishing.n_sampled} of {size} labeled. They judge the model. Then it is known which rows you label."


def _sentence(desk: LabelingService, needed: int | None) -> str:
    turns, book = desk.turns, desk.book
    audit = turns.audit
    if turns.finishing is not None:
        return _finish_sentence(turns.finishing)
    if audit is not None and audit.proved:
        return (
            f"The frozen model misclassifies at most {percent(audit.anytime_upper, up=True)} of the {book.n_rows} rows "
            f"of this pool. This is a theorem if the labels are correct. {count(audit.n_labels, 'audited row')}, "
            f"{count(audit.n_errors, 'error')}. You can stop here."
        )
    if audit is not None:
        n = audit.n_labels
        if n == 0:
            return "The model is frozen and is now audited on random rows."
        more = "At this rate the target is out of reach." if needed is None else f"About {count(needed, 'more label')}."
        return f"{count(audit.n_errors, 'error')} in {count(n, 'audited row')} so far. {more}"
    first = _learning_sentence(desk)
    if turns.last is None:
        return first
    number, errors, n, why = turns.last
    found = f"{errors} of {n} audited rows were wrong, {_WHY.get(why, why)}"
    return f"Audit {number} did not prove it: {found}. Its labels teach the model now. {first}"


def _learning_sentence(desk: LabelingService) -> str:
    """Return a sentence on the next step while no audit is open."""
    turns = desk.turns
    if desk.pauses():
        return "Training a new model. It may then be audited."
    state = turns.state(desk.ranking)
    tests = f"{count(state.n_errors, 'error')} in {count(state.n_tested, 'random label')} by cross-validation."
    if is_out_of_reach(desk):
        return (
            f"{tests} A proof would take more than half of the rows left. Finish the table, or choose another target."
        )
    plan = turns.policy.plan(state)
    if plan is None:
        left = max(turns.policy.n_first(state) - state.n_labels, 0)
        return f"{count(left, 'more label')} for training. Then the model is tested." if left else tests
    if plan.learn == 0:
        return f"{tests} The next audit is expected to take {count(plan.audit, 'label')}."
    return f"About {count(plan.learn, 'more label')} for training. Then the model is frozen and audited."


def _needed(desk: LabelingService) -> int | None:
    """Return the estimated number of labels still needed; None without an estimate, or if out of reach."""
    turns = desk.turns
    if turns.finishing is not None:
        return _left_to_finish(desk, turns.finishing)
    if turns.column is not None and turns.audit is not None:
        return _column_needed(turns.audit, turns)
    return turns.policy.labels_left(turns.state(), turns.audit)


def _column_needed(audit: AuditEngine, turns: AuditSchedule) -> int | None:
    """Return the number of labels that an audit of a column still needs, None without a target."""
    goal = turns.column
    if turns.phase in OVER or goal is None:
        return 0
    if goal.planned is not None or goal.metric is not None:
        return turns.n_wanted - audit.n_labels
    return None if goal.target is None else audit.labels_needed()


def _column_words(desk: LabelingService, goal: ColumnAudit) -> dict[str, Any]:
    """Return how the page describes an audit of a column: its target, and the labels that it needs."""
    needed, is_planned = _needed(desk), goal.planned is not None
    about = f"{'the error rate' if goal.metric is None else _metric_name(goal)}, {percent(goal.level)} confidence"
    sign = "≤" if goal.metric is None else "≥"
    more = "labels, as planned" if is_planned else "labels, as estimated"
    if needed is None:
        more = "no target: stop at any time" if goal.target is None else "target out of reach"
    return {
        "name": goal.columns[0],
        "is_planned": is_planned,
        "target": "none" if goal.target is None else f"{sign} {percent(goal.target)}",
        "target_more": about,
        "needed": "" if needed is None else f"{'' if is_planned else '≈ '}{needed}",
        "needed_more": "you can stop" if desk.turns.phase in OVER else more,
    }


def _metric_name(goal: ColumnAudit) -> str:
    name = "F1" if goal.metric == F1 else goal.metric
    return f"mean {name} over the classes" if goal.positive is None else f"{name} of {goal.positive!r}"


def _column_bound(audit: AuditEngine, goal: ColumnAudit, phase: str) -> dict[str, Any] | None:
    """Return the bound of an audit of a column. With a planned number of labels, the bound follows at the end."""
    if goal.planned is not None and phase not in OVER:
        return None
    basis = f"{count(audit.n_errors, 'error')} in {count(audit.n_labels, 'audited row')}"
    if isinstance(audit, MetricEngine):
        value = audit.metric_bound()
        shown, sign, words = at_least(value), "≥", "at least"
    else:
        value = audit.anytime_upper if audit.plan is None else audit.planned_upper(audit.plan)
        shown, sign, words = percent(value, up=True), "≤", "at most"
    return {
        "value": value, "shown": f"{sign} {shown}", "words": f"{words} {shown}", "kind": THEOREM, "basis": basis,
    }  # fmt: skip


def _column_sentence(turns: AuditSchedule, goal: ColumnAudit) -> str:
    audit = turns.audit
    found = None if audit is None or not audit.n_labels else _column_bound(audit, goal, turns.phase)
    if audit is None or found is None:
        if goal.planned is None:
            return "Rows are sampled at random. The bound follows at the first label."
        done = 0 if audit is None else audit.n_labels
        return f"{done} of {count(turns.n_wanted, 'planned row')} labeled. The bound follows at the last one."
    what = "the error rate" if goal.metric is None else f"the {_metric_name(goal)}"
    words = (
        f"With {percent(goal.level)} confidence, {what} of the predictions in {goal.columns[0]!r} is {found['words']} "
        f"on the {len(audit.predictions)} rows ({found['basis']}), if the labels are correct."
    )
    if isinstance(audit, MetricEngine):
        estimates = audit.estimates().items()
        others = [f"{'F1' if name == F1 else name} {value:.3f}" for name, value in estimates if value is not None]
        words += f" Estimates without a guarantee: {', '.join(others)}."
    return words


def _left_to_finish(desk: LabelingService, finishing: Finishing) -> int:
    """Return the rows left to label, from the plan if there is one, otherwise estimated from the scores."""
    if finishing.n_left is not None:
        return finishing.n_left
    size, done = finishing.sample_size or 0, finishing.n_sampled
    chances = np.sort(np.delete(finishing.scores, list(finishing.audit.known)))[::-1]
    if chances.size and not (chances.min() >= 0 and chances.max() <= 1):  # the scores are not probabilities
        return size - done
    return max(expected_labels(chances, desk.book.n_rows, size) - done, size - done)
