"""Learn, freeze, prove, for a page: which rows judge the frozen classifier, and what they prove so far.

This module alone knows `surefoot.bounds`. A frozen classifier is the list of its predictions: the rows of the pool
are known by their numbers. The order in which an audit draws rows does not depend on their labels, so that rows can be
handed to several people ahead of time; their labels are recorded in the order of the draws.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from surefoot.bounds.anytime import PoolErrors
from surefoot.bounds.audit import Audit
from surefoot.bounds.journal import hash_predictions
from surefoot.bounds.picks import Picks
from surefoot.bounds.series import level_of

# An audit is given up when errors are this improbable at the target, or it would take so many times the least.
_HOPELESS, _PATIENCE, _FEWEST = 0.1, 3.0, 12
# Labels without an error after which what is still needed is computed anew.
_FRESH = 4
# A label that no classifier predicts: of a row on which people disagree.
_UNSETTLED = "\0unsettled"


@dataclass(frozen=True)
class Goal:
    """What is to be proved: at most `target` of the pool's rows wrong, `level` sure."""

    target: float = 0.05
    level: float = 0.9
    seed: int = 0


class _Frozen:
    """A classifier that is its predictions, by the number of the row."""

    def __init__(self, predictions: NDArray[Any]) -> None:
        self._predictions = predictions

    def predict(self, rows: ArrayLike) -> NDArray[Any]:
        return self._predictions[np.asarray(rows)[:, 0]]


def pack(numbers: NDArray[Any]) -> bytes:
    """Whole numbers for the store."""
    return zlib.compress(np.asarray(numbers, dtype="<i4").tobytes(), 6)


def unpack(blob: bytes) -> NDArray[np.intp]:
    """The numbers that `pack` took."""
    return np.frombuffer(zlib.decompress(blob), dtype="<i4").astype(np.intp)


class Proof:
    """The audit of one frozen classifier, fed with labels as they settle.

    Parameters
    ----------
    number : int, of the audit, from 1; it sets its share of the level.
    predictions : array of shape (N,), of the frozen classifier, as texts.
    known : array, rows that had a label when it was frozen: they count as they are and are not drawn.
    goal : Goal
    labels : mapping, of the rows known.
    """

    def __init__(
        self, number: int, predictions: NDArray[Any], known: NDArray[np.intp], goal: Goal, labels: Mapping[int, str]
    ) -> None:
        self.number, self.known, self.goal = number, known, goal
        self.level = level_of(goal.level, number)
        self._frozen = _Frozen(predictions)
        self._rows = np.arange(len(predictions))[:, None]
        self._counted: dict[int, str] = {}
        self.recorded: dict[int, str | None] = {}
        self.audit = self._new_audit(labels)
        # the same draws as those of the audit, ahead of the labels: `Audit.record` refuses any other row
        seed = (goal.seed + number, int(hash_predictions(self.audit.predicted, None), 16))
        self._picks = Picks(seed, None)
        self._left = np.setdiff1d(self._rows[:, 0], known).astype(np.intp)
        self.order: list[int] = []
        self.probabilities: list[float] = []
        self._pool = PoolErrors(len(self._left), self.level)
        self._needed: tuple[tuple[int, int], int | None] | None = None
        self._least = self._least_more(0, 0, 0.0)

    @property
    def n_rows(self) -> int:
        return len(self._rows)

    @property
    def n_errors(self) -> int:
        return self.audit.n_errors

    @property
    def bound(self) -> float:
        """Share of errors of the whole pool, at most, at the level of this audit; it holds however often one looks."""
        return float(self.audit.anytime_bound().value)

    @property
    def proved(self) -> bool:
        return bool(self.audit.proved)

    def draw(self, n: int) -> list[int]:
        """The first n rows of the audit's order, fewer where the pool ends."""
        while len(self.order) < n and len(self._left):
            position, probabilities = self._picks.draw(self._left, len(self.order))
            self.order.append(int(self._left[position]))
            self.probabilities.append(float(probabilities[position]))
            self._left = np.delete(self._left, position)
        return self.order[:n]

    def take(self, labels: Mapping[int, str], undecided: Container[object], changed: int | None = None) -> None:
        """Record what has settled, in the order of the draws; `undecided` rows (skips, conflicts) count as errors.

        changed : the row that an event spoke of; one recorded before makes the audit count again from its first row.
        """
        if changed is None or self._stands_otherwise(changed, labels, undecided):
            self.audit, self.recorded = self._new_audit(labels), {}
            self._least = self._least_more(0, 0, 0.0)
        while not self.proved:
            row = self.audit.next()
            if row is None or not (row in labels or row in undecided):
                return
            label = labels.get(row)
            if label is None:
                self.audit.skip(row)
            else:
                self.audit.record(row, label)
            self.recorded[row] = label

    def waiting_for(self) -> int | None:
        """The row without which the audit cannot go on."""
        return self.audit.next()

    def labels_needed(self) -> int | None:
        """Labels that the target will still take, if errors go on as so far; None if it is out of reach."""
        n, x = self.audit.n_labels, self.n_errors
        if self._needed is None or self._needed[0][1] != x or not 0 <= n - self._needed[0][0] < _FRESH:
            self._needed = (n, x), self._least_more(n, x, x / n if n else 0.0)
        (at, _), more = self._needed
        return None if more is None else max(more - (n - at), 0 if self.proved else 1)

    def hopeless(self) -> str | None:
        """Why the audit should give way to learning; None where it should go on."""
        n, x = self.audit.n_labels, self.n_errors
        if self.proved or n < _FEWEST:
            return None
        wrong = f"{x} of {n} audited rows were wrong"
        if x > 0 and binom.sf(x - 1, n, self.goal.target) < _HOPELESS:
            return f"{wrong}: more than a share of {self.goal.target:g} makes likely"
        least, more = self._least, self.labels_needed()
        if least is None:
            known = self._known_errors()
            return f"{wrong}, and {known} of the {len(self.known)} rows known before: more than the target allows"
        if n >= 2 * _FEWEST and (more is None or n + more > _PATIENCE * least):
            return f"{wrong}: the proof would take too many labels"
        return None

    def _least_more(self, n: int, x: int, rate: float) -> int | None:
        bad = int(np.floor(self.goal.target * self.n_rows + 1e-9)) - self._known_errors() + 1
        return _least_more(self._pool, bad, n, x, rate)

    def counts(self, labels: Mapping[int, str]) -> bool:
        """Whether the rows known count with these labels."""
        return all(labels.get(row, _UNSETTLED) == label for row, label in self._counted.items())

    def _known_errors(self) -> int:
        return sum(self.audit.predicted[row] != label for row, label in self._counted.items())

    def _stands_otherwise(self, row: int, labels: Mapping[int, str], undecided: Container[object]) -> bool:
        if row in self._counted:
            return self._counted[row] != labels.get(row, _UNSETTLED)
        if row not in self.recorded:
            return False
        return self.recorded[row] != labels.get(row) or not (row in labels or row in undecided)

    def _new_audit(self, labels: Mapping[int, str]) -> Audit:
        known = np.full(len(self._rows), None, dtype=object)
        self._counted = {int(row): labels.get(int(row), _UNSETTLED) for row in self.known}
        for row, label in self._counted.items():
            known[row] = label
        return Audit(
            self._frozen,
            self._rows,
            known,
            level=self.level,
            target_error=self.goal.target,
            random_state=self.goal.seed + self.number,
        )


def least_labels(goal: Goal, number: int, n_rows: int) -> int | None:
    """Labels of an audit that finds no error, by its number: at the least so many prove the target."""
    pool = PoolErrors(n_rows, level_of(goal.level, number))
    return _least_more(pool, int(np.floor(goal.target * n_rows + 1e-9)) + 1, 0, 0, 0.0)


def _least_more(pool: PoolErrors, bad: int, n: int, x: int, rate: float) -> int | None:
    """The least number of labels after n, x of them errors, at which `bad` errors in the pool are ruled out.

    Errors come in at this rate; None where they would not be ruled out with all of the pool.
    """
    low, high = -1, pool.N - n
    if bad <= x or high < 0:
        return None

    def reached(more: int) -> bool:
        errors = x + int(rate * more + 1e-9)
        return pool.rejects(bad, errors, n + more)

    step = 16
    while step < high and not reached(step):
        low, step = step, 2 * step
    high = min(step, high)
    if not reached(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
