"""What the page asks of a learner, and what it gets: a ranking of rows, and predictions of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.bounds.result import ErrorBound


@dataclass(frozen=True)
class Job:
    """Labels to learn from.

    labels : row -> label; picked : rows that a strategy chose, which are no random sample.
    """

    labels: dict[int, str]
    picked: frozenset[int]


@dataclass(frozen=True, eq=False)
class Ranking:
    """What a fit says.

    rows : rows to label, most useful first, without a label when the fit began.
    predictions : (N,) place of the class that is predicted; proba : (N, K), as float32.
    n_labels : that it was fitted to; model : bytes of the model file; measured : the cross-fitted bound.
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
        """Classes and their probabilities at a row, the largest first."""
        order = np.argsort(-self.proba[row], kind="stable")[:most]
        return [(classes[k], float(self.proba[row, k])) for k in order]


class Learner(Protocol):
    """Fits and ranks. It may be sent to another process."""

    def rank(self, job: Job) -> Ranking | None:
        """Fit to the labels and rank the others; None where they show too few classes."""
        ...

    def report(self, job: Job) -> bytes:
        """The report of a fit, a page of HTML."""
        ...


# Rows beyond those wanted that are measured exactly.
_SPARE = 5


@dataclass(frozen=True)
class Neighbour:
    """A labeled row near a row."""

    row: int
    label: str
    distance: float


class Neighbours:
    """The labeled rows nearest to a row, by the cleaned features (N, d).

    Features of labeled rows are kept side by side from one question to the next: labels come one by one.
    """

    def __init__(self, features: FloatArray) -> None:
        self._features = features
        self._rows = np.empty(0, dtype=np.intp)
        self._near = np.empty((0, features.shape[1]))
        self._squares = np.empty(0)

    def of(self, row: int, labels: dict[int, str], n: int = 3) -> list[Neighbour]:
        """At most n of them, nearest first."""
        self._follow(labels)
        here = self._features[row]
        rough = self._squares - 2.0 * (self._near @ here)
        rough[self._rows == row] = np.inf
        few = min(n + _SPARE, len(rough))
        places = np.sort(np.argpartition(rough, few - 1)[:few]) if few else np.empty(0, dtype=np.intp)
        distances = np.linalg.norm(self._near[places] - here, axis=1)  # rough ones may err where rows are alike
        order = [i for i in np.argsort(distances, kind="stable").tolist() if self._rows[places[i]] != row][:n]
        rows = [int(self._rows[places[i]]) for i in order]
        return [Neighbour(near, labels[near], float(distances[i])) for near, i in zip(rows, order, strict=True)]

    def _follow(self, labels: dict[int, str]) -> None:
        rows = np.fromiter(labels, dtype=np.intp, count=len(labels))
        same = len(self._rows)
        if same > len(rows) or not np.array_equal(rows[:same], self._rows):  # a label was changed or taken back
            same = 0
        elif same == len(rows):
            return
        new = self._features[rows[same:]]
        self._rows, self._near = rows, np.concatenate([self._near[:same], new])
        self._squares = np.concatenate([self._squares[:same], np.einsum("ij,ij->i", new, new)])


def as_job(labels: dict[int, str], picked: set[int]) -> Job:
    """The labels as they are now."""
    return Job(dict(labels), frozenset(picked & labels.keys()))
