"""What the page asks of a learner, and what it gets: a ranking of rows, and predictions of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray


@dataclass(frozen=True)
class Job:
    """Labels to learn from.

    labels : row -> label; picked : rows that a strategy chose, which are no random sample.
    """

    labels: dict[int, str]
    picked: frozenset[int]


@dataclass(frozen=True)
class Measured:
    """A bound on the error of the present model whose coverage was measured, not proved."""

    value: float
    level: float
    kind: str
    n_labels: int


@dataclass(frozen=True, eq=False)
class Ranking:
    """What a fit says.

    rows : rows to label, most useful first, without a label when the fit began.
    predictions : (N,) place of the class that is predicted; proba : (N, K), as float32.
    n_labels : that it was fitted to; model : bytes of the model file; measured : a bound, where there is one.
    """

    rows: tuple[int, ...]
    predictions: NDArray[np.intp]
    proba: NDArray[np.float32]
    n_labels: int
    model: bytes | None = None
    measured: Measured | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


class Learner(Protocol):
    """Fits and ranks. It may be sent to another process."""

    def rank(self, job: Job) -> Ranking | None:
        """Fit to the labels and rank the others; None where they show too few classes."""
        ...

    def report(self, job: Job) -> bytes:
        """The report of a fit, a page of HTML."""
        ...


@dataclass(frozen=True)
class Neighbour:
    """A labeled row near a row."""

    row: int
    label: str
    distance: float


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The labeled rows nearest to a row, by the cleaned features (N, d)."""

    features: FloatArray

    def of(self, row: int, labels: dict[int, str], n: int = 3) -> list[Neighbour]:
        """At most n of them, nearest first."""
        rows = np.fromiter(labels, dtype=np.intp, count=len(labels))
        rows = rows[rows != row]
        apart = self.features[rows] - self.features[row]
        distances = np.sqrt(np.einsum("ij,ij->i", apart, apart))
        order = np.argsort(distances, kind="stable")[:n]
        return [Neighbour(int(rows[i]), labels[int(rows[i])], float(distances[i])) for i in order]


def as_job(labels: dict[int, str], picked: set[int]) -> Job:
    """The labels as they are now."""
    return Job(dict(labels), frozenset(picked & labels.keys()))


def leanings(proba: Any, classes: list[str], most: int = 3) -> list[tuple[str, float]]:
    """Classes and their probabilities (K,), the largest first."""
    order = np.argsort(-np.asarray(proba), kind="stable")[:most]
    return [(classes[k], float(proba[k])) for k in order]
