"""Learning and auditing take turns: what the events so far make of the proof, and when the next turn begins."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.pool.labeling import events as e
from surefoot.pool.labeling.book import Book
from surefoot.pool.labeling.events import NO_ROW, Event
from surefoot.pool.labeling.learning import Ranking
from surefoot.pool.labeling.proof import Goal, Proof, unpack

LEARNING, AUDITING, PROVED = "learning", "auditing", "proved"
# Labels of a turn of learning: so many at the least, or this share of the labels there are.
_LEAST_TURN, _TURN_SHARE = 15, 1 / 3
# Labels picked by the model before the first audit.
_PICKED_FIRST = 10


@dataclass(frozen=True)
class CurvePoint:
    """A bound at a number of labels: of an audit (a theorem), or measured (audit 0)."""

    n_labels: int
    value: float
    audit: int


class Curve:
    """Bounds in the order in which they were found: of an audit, the last at each number of labels."""

    def __init__(self) -> None:
        self.points: list[CurvePoint] = []
        self._last: dict[int, int] = {}  # audit -> place of its last point

    def add(self, point: CurvePoint) -> None:
        """Take a point; one that says the same as its audit's last is left out."""
        last = self.points[-1] if self.points else None
        if last is not None and point.audit == last.audit != 0:
            if point.value == last.value:
                return
            if point.n_labels == last.n_labels:
                self.points.pop()
        self._last[point.audit] = len(self.points)
        self.points.append(point)

    def thinned(self, most: int) -> list[CurvePoint]:
        """So many points or a few more, the last of each audit among them."""
        step = -(-len(self.points) // most) or 1
        return [self.points[place] for place in sorted({*range(0, len(self.points), step), *self._last.values()})]


class _Undecided:
    """Rows with answers and no label: skipped by all, or people disagree."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def __contains__(self, row: object) -> bool:
        return row in self._book.skipped or row in self._book.conflicts


class Turns:
    """Whose turn it is, learning or the audit, and what audits have shown.

    Parameters
    ----------
    book : Book
    goal : Goal
    random_first : int, random labels before rows are picked.
    frozen : callable, the stored predictions and known rows of an audit's classifier.
    """

    def __init__(
        self, book: Book, goal: Goal, random_first: int, frozen: Callable[[int], tuple[bytes, bytes, Any]]
    ) -> None:
        self._book, self.goal, self._stored = book, goal, frozen
        self.proof: Proof | None = None
        self.last: tuple[int, int, int, str] | None = None  # the audit given up: number, errors, labels, why
        self.curve = Curve()
        self.measured: dict[str, Any] | None = None
        self.n_audits = 0
        self._prepared: Proof | None = None
        self.freeze_at = random_first + _PICKED_FIRST
        self._closed_at = -1
        self._undecided = _Undecided(book)

    @property
    def phase(self) -> str:
        if self.proof is None:
            return LEARNING
        return PROVED if self.proof.proved else AUDITING

    def apply(self, event: Event) -> None:
        """Follow an event that the book has taken."""
        if event.kind == e.FREEZE:
            self._begin(int(event.audit or 0), json.loads(str(event.value)))
        elif event.kind == e.CLOSE and self.proof is not None:
            self.last = (self.proof.number, self.proof.n_errors, self.proof.audit.n_labels, str(event.value))
            self.proof = None
            n = self._closed_at = len(self._book.labels)
            self.freeze_at = n + max(_LEAST_TURN, round(_TURN_SHARE * n))
        elif event.kind == e.MEASURED:
            self.measured = json.loads(str(event.value))
            self.curve.add(CurvePoint(self.measured["n_labels"], self.measured["value"], 0))
        elif self.proof is not None and event.row >= 0 and event.kind in (e.LABEL, e.SKIP, e.UNDO, e.SETTLE):
            self.proof.take(self._book.labels, self._undecided, event.row)
            self._mark()

    def should_freeze(self, ranking: Ranking | None) -> bool:
        """Whether the present model is to be judged: learning has had its turn, and the model has seen its labels."""
        if self.proof is not None or ranking is None:
            return False
        n = len(self._book.labels)
        nothing_open = n > self._closed_at and self._book.n_open == 0 and not self._book.holders
        return nothing_open or (n >= self.freeze_at and ranking.n_labels >= self.freeze_at)

    def should_close(self) -> str | None:
        """Why the audit gives way to learning; None where it does not."""
        if self.proof is None or self.proof.proved:
            return None
        if self.proof.waiting_for() is None:
            return None if len(self._book.labels) >= self._book.n_rows else "no row is left to draw"
        return self.proof.hopeless()

    def known_rows(self) -> list[int]:
        """Rows that a classifier frozen now counts as they are."""
        return sorted(self._book.labels)

    def prepare(self, number: int, predictions: NDArray[Any], known: list[int], labels: dict[int, str]) -> None:
        """Make the proof of the next audit ready: in a large pool that takes a while, which nobody should wait for."""
        rows = np.array(known, dtype=np.intp)
        self._prepared = Proof(number, np.array(self._book.classes, dtype=object)[predictions], rows, self.goal, labels)

    def _begin(self, number: int, classes: list[str]) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared.number != number:
            predictions, known, _ = self._stored(number)
            names = np.array(classes, dtype=object)[unpack(predictions)]
            prepared = Proof(number, names, unpack(known), self.goal, self._book.labels)
        self.proof, self.n_audits = prepared, number
        changed = NO_ROW if self.proof.counts(self._book.labels) else None
        self.proof.take(self._book.labels, self._undecided, changed)
        self._mark()

    def _mark(self) -> None:
        if self.proof is None:
            return
        self.curve.add(CurvePoint(len(self._book.labels), self.proof.bound, self.proof.number))
