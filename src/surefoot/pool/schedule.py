"""Decide who gets which row, and whether to train or to audit next, from the events of a pool."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import FileError
from surefoot._validation import FloatArray
from surefoot.bounds._arguments import NO_PREDICTION
from surefoot.bounds.engine import NO_ROW_LEFT, AuditEngine, AuditPolicy, LearningState, level_of
from surefoot.bounds.metrics import MetricEngine, MetricGoal
from surefoot.pool import database as e
from surefoot.pool.database import Event
from surefoot.pool.finishing import FinishGoal, Finishing, StoredGoal
from surefoot.pool.label_log import OPEN, LabelLog, Ranking
from surefoot.pool.store import FrozenBlobs

LEARNING, AUDITING, PROVED = "learning", "auditing", "proved"
FINISHING, FINISHED = "finishing", "finished"
# The audit of a column ended without a proof, or had no target.
AUDITED = "audited"
# Phases in which no row needs a label.
OVER = (PROVED, FINISHED, AUDITED)
# Number of audit rows to look at beyond the labeled ones, to find a row that nobody holds.
_LOOK_AHEAD = 64
# Seconds after which a row that someone holds may go to another person if no other row is left.
_LAST_LEASE = 60.0
# Random tries to sample an open row before all open rows are listed.
_TRIES = 64


@dataclass(frozen=True)
class Goal:
    """The goal of a proof: an error rate of at most `target` on the pool, with confidence `level`."""

    target: float = 0.05
    level: float = 0.9
    seed: int = 0


@dataclass(frozen=True)
class ColumnAudit(StoredGoal):
    """An audit of predictions in a column of the table, declared before its first label.

    columns : names of the columns with predictions and scores. planned : number of labels; None for an anytime bound.
    metric, positive : the metric to bound and its positive class, None for the error rate.
    target : the value to prove, or None.
    """

    columns: tuple[str, ...]
    level: float = 0.9
    seed: int = 0
    target: float | None = None
    planned: int | None = None
    metric: str | None = None
    positive: str | None = None

    def engine(self, predictions: list[str], known: Mapping[int, str | None], classes: list[str]) -> AuditEngine:
        """Return the audit before its first label."""
        if self.metric is None:
            return AuditEngine(
                predictions, known, level=self.level, seed=self.seed, target=self.target, plan=self.planned
            )
        goal = MetricGoal.from_arguments({self.metric: self.target}, self.positive, None, classes, predictions)
        n_labels = len(predictions) if self.planned is None else self.planned
        return MetricEngine(predictions, known, goal, level=self.level, seed=self.seed, plan=n_labels)


@dataclass(frozen=True)
class LabelingSettings:
    """How to label a pool.

    random_first : random labels before the model picks rows; overlap : share of rows that two annotators label;
    lease : seconds after which a row that someone holds may go to another person;
    pause : seconds without new rows while a model is trained that may be due for an audit.
    """

    goal: Goal
    random_first: int = 20
    overlap: float = 0.0
    lease: float = 600.0
    pause: float = 20.0


@dataclass(frozen=True)
class BoundPoint:
    """A bound at a number of labels, proved by an audit or measured (audit 0)."""

    n_labels: int
    value: float
    audit: int


class BoundHistory:
    """Bounds in the order of discovery. For each audit and number of labels, only the last bound is kept."""

    def __init__(self) -> None:
        self.points: list[BoundPoint] = []
        self._last: dict[int, int] = {}  # audit -> index of its last point

    def add(self, point: BoundPoint) -> None:
        """Add a point, unless it repeats the last value of its audit."""
        last = self.points[-1] if self.points else None
        if last is not None and point.audit == last.audit != 0:
            if point.value == last.value:
                return
            if point.n_labels == last.n_labels:
                self.points.pop()
        self._last[point.audit] = len(self.points)
        self.points.append(point)

    def thinned(self, most: int) -> list[BoundPoint]:
        """Return about this number of points, including the last of each audit."""
        step = -(-len(self.points) // most) or 1
        return [self.points[place] for place in sorted({*range(0, len(self.points), step), *self._last.values()})]


class AuditSchedule:
    """Decide whether to train or to audit, and keep the results of audits.

    random_first : random labels before the model picks rows; frozen : returns the stored predictions of an audit.
    finishing : who labels which row, set when the current audit is used to finish the table; None before.
    column : the current audit if it audits predictions in the table.
    """

    def __init__(self, book: LabelLog, goal: Goal, random_first: int, frozen: Callable[[int], FrozenBlobs]) -> None:
        self._book, self.goal, self._stored = book, goal, frozen
        self.policy = AuditPolicy(first=max(random_first, 1))
        self.audit: AuditEngine | None = None
        self.audits: dict[int, AuditEngine] = {}  # all audits of models; their bounds hold simultaneously
        self.finishing: Finishing | None = None
        self.column: ColumnAudit | None = None
        self.last: tuple[int, int, int, str] | None = None  # last closed audit: number, errors, labels, why
        self.curve = BoundHistory()
        self.measured: dict[str, Any] | None = None
        self.n_audits = 0
        self._prepared: tuple[int, AuditEngine] | None = None
        self._begun: LearningState | None = None  # state when the current audit began
        self._n_frozen, self._n_closed = 0, 0  # number of labels when the last audit began, and ended

    @property
    def phase(self) -> str:
        if self.audit is None:
            return LEARNING
        if self.finishing is not None:
            is_sampled = self.finishing.is_sampled
            return AUDITING if not is_sampled else FINISHED if self.finishing.is_finished else FINISHING
        if self.audit.proved:
            return PROVED
        return AUDITED if self.column is not None and self.audit.n_labels >= self.n_wanted else AUDITING

    @property
    def hidden_columns(self) -> tuple[str, ...]:
        """Columns of the table that would suggest a label to annotators."""
        goal = self.column if self.finishing is None else self.finishing.goal
        return () if goal is None else goal.columns

    @property
    def n_wanted(self) -> int:
        """Number of rows that the current audit may sample."""
        if self.audit is None:
            return 0
        return self.audit.n_drawable if self.audit.plan is None else min(self.audit.plan, self.audit.n_drawable)

    def state(self, ranking: Ranking | None = None) -> LearningState:
        """Return the state that the policy needs. ranking : of the model that would be audited."""
        if self.audit is not None and self._begun is not None:
            return replace(self._begun, target=self.goal.target)
        book, tests = self._book, self.measured or {}
        n_tested = tests.get("n_random", 0)
        wrong = 0
        if ranking is not None:
            place = {name: k for k, name in enumerate(book.classes)}
            wrong = sum(int(ranking.predictions[row]) != place[label] for row, label in book.labels.items())
        return LearningState(
            book.n_rows, len(book.labels), wrong, n_tested or len(book.labels), n_tested, tests.get("n_errors", 0),
            self._n_frozen, self.n_audits + 1, self.goal.target, self.goal.level,
        )  # fmt: skip

    def best(self) -> tuple[int, AuditEngine] | None:
        """Return the number and the audit with the smallest anytime bound, None without one."""
        found = [(number, audit) for number, audit in self.audits.items() if audit.plan is None and audit.n_labels]
        return min(found, key=lambda one: one[1].anytime_upper, default=None)

    def apply(self, event: Event) -> None:
        """Update the schedule with an event. The log has already applied it."""
        if event.kind == e.FREEZE:
            self._begin(int(event.audit or 0), json.loads(str(event.value)))
        elif event.kind == e.FINISH and self.audit is not None:
            self._begin_finish(FinishGoal.from_json(event.value))
        elif event.kind == e.COLUMN and self.audit is not None:
            self.column = ColumnAudit.from_json(event.value)
            before = self.audits.pop(self.n_audits)  # this audit judges a column, not a model
            self._take_up(self.column.engine(before.predictions, before.known, self._book.classes))
        elif event.kind == e.TARGET:
            self._aim(float(str(event.value)))
        elif event.kind == e.CLOSE and self.audit is not None:
            found = (self.n_audits, self.audit.n_errors, self.audit.n_labels, str(event.value))
            self.last = found if self.column is None else None
            self.audit, self.finishing, self.column, self._n_closed = None, None, None, len(self._book.labels)
        elif event.kind == e.MEASURED:
            self.measured = json.loads(str(event.value))
            self.curve.add(BoundPoint(self.measured["n_labels"], self.measured["value"], 0))
        elif event.row >= 0 and event.kind in (e.LABEL, e.SKIP, e.UNDO, e.SETTLE):
            for audit in dict.fromkeys([*self.audits.values(), *([] if self.audit is None else [self.audit])]):
                self._settle(audit, event.row)
            if self.audit is not None:
                self._mark(self.audit)

    def should_freeze(self, ranking: Ranking | None) -> bool:
        """Return True if an audit of the current model should begin."""
        if self.audit is not None or ranking is None:
            return False
        n = len(self._book.labels)
        nothing_open = n > self._n_closed and self._book.n_open == 0 and not self._book.holders
        return nothing_open or (not self.awaits(ranking) and self.policy.begins(self.state(ranking)))

    def awaits(self, ranking: Ranking | None) -> bool:
        """Return True if an audit may be due as soon as a model has been trained on enough labels."""
        first = self.policy.n_first(self.state())
        if self.audit is not None or len(self._book.labels) < first:
            return False
        return ranking is None or ranking.n_labels < max(self.policy.first, self._n_closed)

    def should_close(self) -> str | None:
        """Return the reason to end the audit and continue training, or None."""
        if self.audit is None or self.finishing is not None or self.column is not None:
            return None
        why = self.policy.reason(self.audit, self.state())
        return None if why == NO_ROW_LEFT and len(self._book.labels) >= self._book.n_rows else why

    def known_rows(self) -> list[int]:
        """Return the labeled rows, which an audit that begins now counts as known."""
        return sorted(self._book.labels)

    def prepare(self, number: int, predictions: NDArray[Any], known: list[int], labels: dict[int, str]) -> None:
        """Prepare the next audit in advance. In a large pool this takes a while, and nobody should have to wait."""
        self._prepared = number, self._new_audit(number, self._book.classes, predictions, known, labels)

    def _begin(self, number: int, classes: list[str]) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] == number:
            audit = prepared[1]
        else:
            stored = self._stored(number)
            known = unpack(stored.known).tolist()
            audit = self._new_audit(number, classes, unpack(stored.predictions), known, self._book.labels)
        audit.target = self.goal.target  # the target may have changed since the audit was prepared
        wrong = audit.known_errors
        self._begun = replace(self.state(), n_wrong=wrong, audit=number)
        self.n_audits, self._n_frozen, self.audits[number] = number, len(self._book.labels), audit
        self._take_up(audit)

    def _aim(self, target: float) -> None:
        """Change the target error rate. This costs no confidence, because anytime bounds hold for all targets."""
        self.goal = replace(self.goal, target=target)
        if self.audit is not None and self.finishing is None and self.column is None:
            self.audit.aim(target)

    def _take_up(self, audit: AuditEngine) -> None:
        """Make this the current audit, with all existing labels."""
        self.audit = audit
        for row in {*audit.known, *self._book.labels, *self._book.skipped, *self._book.conflicts}:
            self._settle(audit, row)
        self._mark(audit)

    def _begin_finish(self, goal: FinishGoal) -> None:
        """Finish the table with the current audit, or with a new one if the goal has a planned sample."""
        before, scores = self.audit, self._stored(self.n_audits).scores
        if before is None or scores is None:
            raise FileError(f"the store has no scores of audit {self.n_audits}. Restore the file.")
        if goal.planned is None or goal.level is None or goal.seed is None:
            before.target = goal.max_error
            audit = before
        else:
            audit = AuditEngine(
                before.predictions, before.known, level=goal.level, seed=goal.seed, plan=goal.planned
            )  # no target, because the whole sample is needed
            self._take_up(audit)
        self.finishing = Finishing(audit, unpack_scores(scores), goal, self._book)

    def _new_audit(
        self, number: int, classes: list[str], predictions: NDArray[Any], known: list[int], labels: dict[int, str]
    ) -> AuditEngine:
        return AuditEngine(
            _names(classes, predictions),
            {row: labels.get(row) for row in known},
            level=level_of(self.goal.level, number),
            seed=self.goal.seed + number,
            target=self.goal.target,
        )

    def names(self, predictions: NDArray[Any]) -> list[str]:
        """Return predictions (N,), given as class indices or -1, as texts."""
        return _names(self._book.classes, predictions)

    def _settle(self, audit: AuditEngine, row: int) -> None:
        """Pass the label of a row to an audit. A skipped row, or one with different labels, counts as an error."""
        book = self._book
        if row in book.labels or row in book.skipped or row in book.conflicts:
            audit.settle(row, book.labels.get(row))
        else:
            audit.unsettle(row)

    def _mark(self, audit: AuditEngine) -> None:
        if audit.plan is None and audit.is_uniform:
            self.curve.add(BoundPoint(len(self._book.labels), audit.anytime_upper, self.n_audits))


def _names(classes: list[str], predictions: NDArray[Any]) -> list[str]:
    names: list[str] = np.array([*classes, NO_PREDICTION], dtype=object)[predictions].tolist()
    return names


def is_shared(row: int, overlap: float, seed: int) -> bool:
    """Return True if two annotators label this row. The sample is fixed by a hash of the row number."""
    digest = hashlib.sha256(f"{seed}:{row}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < overlap * 2**64


class Chooser:
    """Choose rows for annotators."""

    def __init__(self, book: LabelLog, turns: AuditSchedule, settings: LabelingSettings) -> None:
        self._book, self._turns, self._seed = book, turns, settings.goal.seed
        self._random_first, self._lease = settings.random_first, settings.lease

    def choose(
        self, person: int, n: int, ranking: Ranking | None, now: float, *, without: frozenset[int] = frozenset()
    ) -> list[Event]:
        """Return up to n rows for a person, as pick events to store."""
        picks: list[Event] = []
        if n <= 0:
            return picks
        taken = set(without)
        for pick in self._candidates(person, ranking, now, taken):
            if pick.row not in taken:
                picks.append(pick)
                taken.add(pick.row)
            if len(picks) == n:
                break
        return picks

    def _candidates(self, person: int, ranking: Ranking | None, now: float, taken: set[int]) -> Iterator[Event]:
        yield from self._second_opinions(person, now)
        if self._turns.finishing is not None:
            yield from self._finishing_rows(self._turns.finishing, person, now)
            return  # the plan needs no other labels
        if self._turns.phase == AUDITING:
            yield from self._audit_rows(person, now)
        if self._turns.column is not None:
            return
        n_drawn, n_given = self._n_drawn(), len(self._book.labels) + len(self._book.holders)
        # every second row is random, to test the model trained on the other rows
        if ranking is not None and n_drawn >= max(self._random_first, n_given - n_drawn):
            for row in ranking.rows:
                if self._book.is_untouched(row):
                    yield Event(e.PICK, row, person, purpose=e.LEARN)
        yield from self._random_rows(person, taken, now)

    def _second_opinions(self, person: int, now: float) -> Iterator[Event]:
        for row in self._book.awaiting:
            if person not in self._book.rows[row].answers and self._is_free(row, person, now):
                yield Event(e.PICK, row, person, purpose=e.SECOND)

    def _audit_rows(self, person: int, now: float) -> Iterator[Event]:
        audit = self._turns.audit
        if audit is None:
            return
        leases = [self._lease, *([] if self._turns.column is None else [min(self._lease, _LAST_LEASE)])]
        last = min(audit.n_labels + _LOOK_AHEAD, self._turns.n_wanted)
        for lease, place in product(leases, range(audit.n_labels, last)):
            for draw in audit.draw(place + 1)[place:]:
                if self._book.row(draw.row).state == OPEN and self._is_free(draw.row, person, now, lease):
                    number, probability = self._turns.n_audits, draw.probability
                    yield Event(e.PICK, draw.row, person, purpose=e.AUDIT, probability=probability, audit=number)

    def _finishing_rows(self, finishing: Finishing, person: int, now: float) -> Iterator[Event]:
        purpose = e.LEARN if finishing.is_sampled else e.AUDIT  # rows left by a plan are not random
        rows = [row for row in finishing.rows(_LOOK_AHEAD) if self._book.row(row).state == OPEN]
        for lease in (self._lease, min(self._lease, _LAST_LEASE)):  # rows that others hold come last
            for row in rows:
                if self._is_free(row, person, now, lease):
                    yield Event(e.PICK, row, person, purpose=purpose, audit=self._turns.n_audits)

    def _random_rows(self, person: int, taken: set[int], now: float) -> Iterator[Event]:
        """Yield random open rows without replacement, then random rows that others have held for too long."""
        book, rng = self._book, np.random.default_rng([self._seed, len(self._book.events), person])
        gone = {row for row in taken if book.is_untouched(row)}
        while (n := book.n_open - len(gone)) > 0:
            row = self._draw_open(rng, gone)
            gone.add(row)
            yield Event(e.PICK, row, person, purpose=e.RANDOM, probability=1.0 / n)
        stale = [row for row in list(book.holders) if self._is_free(row, person, now) and row not in taken]
        rows = np.array([row for row in stale if not book.row(row).answers], dtype=np.intp)
        for place, row in enumerate(rng.permutation(rows).tolist()):
            yield Event(e.PICK, row, person, purpose=e.RANDOM, probability=1.0 / (len(rows) - place))

    def _draw_open(self, rng: np.random.Generator, gone: set[int]) -> int:
        """Sample one open row uniformly, excluding the rows in `gone`."""
        book = self._book
        for _ in range(_TRIES):
            row = int(rng.integers(book.n_rows))
            if book.is_untouched(row) and row not in gone:
                return row
        rows = [row for row in book.open_rows().tolist() if row not in gone]
        return int(rows[int(rng.integers(len(rows)))])

    def _is_free(self, row: int, person: int, now: float, lease: float | None = None) -> bool:
        """Return True if nobody else holds the row or its lease has expired. A clock set back also ends the lease."""
        holder = self._book.holders.get(row)
        if holder is None:
            return True
        if holder == person:
            return False
        return abs(now - self._book.held[holder][row].time) > (self._lease if lease is None else lease)

    def _n_drawn(self) -> int:
        """Return the number of random rows that are labeled or held by someone."""
        return len(self._book.drawn) + sum(
            pick.purpose == e.RANDOM for held in self._book.held.values() for pick in held.values()
        )


def pack(numbers: NDArray[Any]) -> bytes:
    """Compress integers for the store."""
    return zlib.compress(np.asarray(numbers, dtype="<i4").tobytes(), 6)


def unpack(blob: bytes) -> NDArray[np.intp]:
    """Return the integers that `pack` compressed."""
    return np.frombuffer(zlib.decompress(blob), dtype="<i4").astype(np.intp)


def pack_scores(scores: FloatArray) -> bytes:
    """Compress scores for the store."""
    return zlib.compress(np.asarray(scores, dtype="<f8").tobytes(), 6)


def unpack_scores(blob: bytes) -> FloatArray:
    """Return the scores that `pack_scores` compressed."""
    return np.frombuffer(zlib.decompress(blob), dtype="<f8").astype(np.float64)


def freeze_events(
    number: int,
    classes: list[str],
    predictions: NDArray[Any],
    known: list[int],
    scores: FloatArray,
    model: bytes | None = None,
    goal: StoredGoal | None = None,
) -> tuple[list[Event], FrozenBlobs]:
    """Return the events and blobs that freeze predictions for an audit.

    predictions : (N,) class indices or -1; goal : purpose of the audit.
    """
    events = [Event(e.FREEZE, audit=number, value=json.dumps(classes))]
    kind = e.COLUMN if isinstance(goal, ColumnAudit) else e.FINISH
    events += [] if goal is None else [Event(kind, audit=number, value=goal.to_json())]
    packed = pack(predictions), pack(np.array(known, dtype=np.intp))
    return events, FrozenBlobs(number, *packed, model, pack_scores(scores))
