"""The current state of labeling after all events: who labeled which row, and which labels are settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.bounds.result import ErrorBound
from surefoot.pool import database as e
from surefoot.pool.database import Event, NotSavedError

# The interface between the page and a learner: the learner ranks rows and predicts all of them.


@dataclass(frozen=True)
class Job:
    """Labels to train on.

    labels : row -> label; picked : rows that a strategy chose, which are not a random sample.
    """

    labels: dict[int, str]
    picked: frozenset[int]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The result of a fit.

    rows : rows without a label when the fit began, most useful to label first.
    predictions : (N,) index of the predicted class; proba : (N, K), as float32.
    n_labels : number of training labels; model : bytes of the model file; measured : the cross-fitted bound.
    """

    rows: tuple[int, ...]
    predictions: NDArray[np.intp]
    proba: NDArray[np.float32]
    n_labels: int
    model: bytes | None = None
    measured: ErrorBound | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def leanings(self, row: int, classes: list[str], most: int) -> list[tuple[str, float]]:
        """Return the `most` most probable classes of a row with their probabilities, largest first."""
        order = np.argsort(-self.proba[row], kind="stable")[:most]
        return [(classes[k], float(self.proba[row, k])) for k in order]


class RowRanker(Protocol):
    """Trains models and ranks rows. It must be picklable, because another process may run it."""

    def rank(self, job: Job) -> Ranking | None:
        """Train on the labels and rank the unlabeled rows; None if the labels have too few classes."""
        ...

    def report(self, job: Job) -> bytes:
        """Return the HTML report of a fit."""
        ...


# Number of additional rows for which the distance is computed exactly.
_SPARE = 5


@dataclass(frozen=True)
class Neighbour:
    """A labeled row near another row."""

    row: int
    label: str
    distance: float


class Neighbours:
    """Find the labeled rows nearest to a row, by the cleaned features (N, d).

    The features of labeled rows are cached between calls, because labels arrive one by one.
    """

    def __init__(self, features: FloatArray) -> None:
        self._features = features
        self._rows = np.empty(0, dtype=np.intp)
        self._near = np.empty((0, features.shape[1]))
        self._squares = np.empty(0)

    def nearest_labeled(self, row: int, labels: dict[int, str], n: int = 3) -> list[Neighbour]:
        """Return at most n rows, nearest first."""
        self._follow(labels)
        here = self._features[row]
        rough = self._squares - 2.0 * (self._near @ here)
        rough[self._rows == row] = np.inf
        few = min(n + _SPARE, len(rough))
        places = np.sort(np.argpartition(rough, few - 1)[:few]) if few else np.empty(0, dtype=np.intp)
        distances = np.linalg.norm(self._near[places] - here, axis=1)  # rough distances are inaccurate for similar rows
        order = [i for i in np.argsort(distances, kind="stable").tolist() if self._rows[places[i]] != row][:n]
        rows = [int(self._rows[places[i]]) for i in order]
        return [Neighbour(near, labels[near], float(distances[i])) for near, i in zip(rows, order, strict=True)]

    def _follow(self, labels: dict[int, str]) -> None:
        rows = np.fromiter(labels, dtype=np.intp, count=len(labels))
        same = len(self._rows)
        if same > len(rows) or not np.array_equal(rows[:same], self._rows):  # a label was changed or undone
            same = 0
        elif same == len(rows):
            return
        new = self._features[rows[same:]]
        self._rows, self._near = rows, np.concatenate([self._near[:same], new])
        self._squares = np.concatenate([self._squares[:same], np.einsum("ij,ij->i", new, new)])


def as_job(labels: dict[int, str], picked: set[int]) -> Job:
    """Return the current labels as a job."""
    return Job(dict(labels), frozenset(picked & labels.keys()))


# The demonstration: a dataset from scikit-learn as an unlabeled pool, with true labels for an automatic annotator.

LABEL = "diagnosis"
GUIDELINES = """# What to label

Each row is a lump, measured under a microscope: the mean of its cell nuclei, the standard error, and the worst.

- **benign**: nuclei small and alike, low *concavity* and few *concave points*.
- **malignant**: large radius, area and perimeter, high concavity, uneven texture.

Skip a row that you cannot tell. A skipped row of the audit counts as an error, so that skipping cannot help the model.
"""


def write_demo(folder: Path) -> tuple[Path, NDArray[Any]]:
    """Write the Wisconsin breast cancer data without labels. Return the path and the true labels (N,)."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    order = np.random.default_rng(0).permutation(len(data.target))
    rows = data.data.iloc[order].assign(**{LABEL: None})
    path = folder / "tumours.csv"
    rows.to_csv(path, index=False)
    (folder / "guidelines.md").write_text(GUIDELINES, encoding="utf-8")
    return path, data.target_names[data.target.to_numpy()[order]]


OPEN, LABELED, SKIPPED, CONFLICT = "open", "labeled", "skipped", "conflict"


@dataclass
class RowState:
    """The state of one row.

    answers : annotator -> event of the valid label or skip; settled : event of the agreed label.
    """

    answers: dict[int, Event] = field(default_factory=dict)
    settled: Event | None = None
    flags: dict[int, Event] = field(default_factory=dict)
    notes: list[Event] = field(default_factory=list)
    purpose: str | None = None
    picked: bool = False

    @property
    def labels(self) -> set[str]:
        return {str(event.value) for event in self.answers.values() if event.kind == e.LABEL}

    @property
    def state(self) -> str:
        if self.settled is not None or len(self.labels) == 1:
            return LABELED
        if len(self.labels) > 1:
            return CONFLICT
        return SKIPPED if self.answers else OPEN

    @property
    def label(self) -> str | None:
        """The label that counts; None if there is no label or annotators disagree."""
        if self.settled is not None:
            return self.settled.value
        return next(iter(self.labels)) if len(self.labels) == 1 else None


class LabelLog:
    """The current labels of a pool. is_shared : row -> whether two annotators must label the row."""

    def __init__(self, n_rows: int, classes: list[str], is_shared: Callable[[int], bool] = lambda row: False) -> None:
        self.n_rows, self.classes, self._is_shared = n_rows, classes, is_shared
        self.rows: dict[int, RowState] = {}
        self.events: list[Event] = []
        self.labels: dict[int, str] = {}
        self.conflicts: set[int] = set()
        self.skipped: set[int] = set()
        self.flagged: set[int] = set()
        self.drawn: set[int] = set()  # labeled rows that were sampled at random
        self.awaiting: dict[int, None] = {}  # shared rows with one answer, oldest first
        self.counts: Counter[str] = Counter()
        self._open, self.n_open = np.ones(n_rows, dtype=bool), n_rows
        self.held: dict[int, dict[int, Event]] = {}  # person -> row -> event that handed the row out, oldest first
        self.holders: dict[int, int] = {}  # row -> last person who received the row
        self.done: dict[int, list[int]] = {}  # person -> answered rows, oldest first
        self.keys: dict[str, Event] = {}

    def row(self, row: int) -> RowState:
        """Return the state of a row. For a row without events, the state is empty and not kept."""
        return self.rows.get(row) or RowState()

    def is_untouched(self, row: int) -> bool:
        """Return True if nobody answered or holds the row."""
        return bool(self._open[row])

    @property
    def n_unanswered(self) -> int:
        """Number of rows with neither a label nor a skip."""
        return self.n_rows - len(self.labels) - len(self.skipped) - len(self.conflicts)

    def open_rows(self) -> NDArray[np.intp]:
        """Return the rows that nobody answered or holds."""
        return np.flatnonzero(self._open)

    def picked(self) -> set[int]:
        """Return the rows that a strategy chose, which are not a random sample."""
        return {row for row, found in self.rows.items() if found.picked}

    def apply(self, event: Event) -> None:
        """Update the state with an event."""
        self.events.append(event)
        if event.key is not None:
            self.keys[event.key] = event
        if event.row < 0:
            return
        found = self.rows.setdefault(event.row, RowState())
        if event.kind == e.PICK:
            self._hand_out(event, found)
        elif event.kind in (e.LABEL, e.SKIP):
            self._answer(event, found)
        elif event.kind == e.UNDO:
            if found.answers.pop(event.person, None) is None and event.row in self.held.get(event.person, {}):
                self._give_back(event.row, event.person)
            if event.row in self.done.get(event.person, []):
                self.done[event.person].remove(event.row)
        elif event.kind == e.SETTLE:
            found.settled = event if event.value is not None else None
        elif event.kind == e.FLAG:
            found.flags[event.person] = event
        elif event.kind == e.UNFLAG:
            found.flags.clear()
        elif event.kind == e.NOTE:
            found.notes.append(event)
        self._refresh(event.row, found)

    def _hand_out(self, event: Event, found: RowState) -> None:
        row, person = event.row, event.person
        before = self.holders.get(row)
        if before is not None and before != person:
            self.held.get(before, {}).pop(row, None)
        others = {other: kept for other, kept in self.held.get(person, {}).items() if other != row}
        # show a row first if it was handed out again after an undo
        self.held[person] = {row: event, **others} if event.value == "again" else {**others, row: event}
        self.holders[row] = person
        if found.purpose is None and event.purpose != e.SECOND:
            found.purpose = event.purpose
        found.picked |= event.purpose == e.LEARN

    def _answer(self, event: Event, found: RowState) -> None:
        row, person = event.row, event.person
        found.answers[person] = event
        if found.purpose is None:
            found.purpose = event.purpose
            found.picked |= event.purpose in (e.LEARN, e.IMPORTED)
        self._give_back(row, person)
        done = self.done.setdefault(person, [])
        if row in done:
            done.remove(row)
        done.append(row)

    def _give_back(self, row: int, person: int) -> None:
        """Record that a person no longer holds a row."""
        self.held.get(person, {}).pop(row, None)
        if self.holders.get(row) == person:
            del self.holders[row]

    def _refresh(self, row: int, found: RowState) -> None:
        before, now = self.labels.get(row), found.label
        if before != now:
            if before is not None:
                self.counts[before] -= 1
                del self.labels[row]
            if now is not None:
                self.counts[now] += 1
                self.labels[row] = now
        for rows, state in ((self.conflicts, CONFLICT), (self.skipped, SKIPPED)):
            (rows.add if found.state == state else rows.discard)(row)
        (self.flagged.add if found.flags else self.flagged.discard)(row)
        drawn = now is not None and found.purpose in e.DRAWN and not found.picked
        (self.drawn.add if drawn else self.drawn.discard)(row)
        is_open = row not in self.holders and not found.answers and found.settled is None
        self.n_open += int(is_open) - int(self._open[row])
        self._open[row] = is_open
        if self._awaits(row, found):
            self.awaiting.setdefault(row)
        else:
            self.awaiting.pop(row, None)

    def _awaits(self, row: int, found: RowState) -> bool:
        """Return True if a row needs the answer of a second person."""
        one = len(found.answers) == 1 and found.settled is None and found.purpose not in (e.GIVEN, e.IMPORTED)
        return one and self._is_shared(row)


def check_known(events: Iterable[Event], classes: list[str]) -> None:
    """Raise an error if another process wrote a class that this process does not know."""
    for event in events:
        if event.kind in (e.LABEL, e.SETTLE) and event.value is not None and event.value not in classes:
            raise NotSavedError(
                f"Another process has given a row the class {event.value!r}, which is none of {', '.join(classes)}. "
                "Nothing is lost. Start this command again."
            )
