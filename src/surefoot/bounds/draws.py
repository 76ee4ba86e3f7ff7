"""The draws of an audit, and what they say of the classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.bounds.anytime import PoolErrors
from surefoot.bounds.betting import WeightedDraws
from surefoot.bounds.picks import Picks


class Draws:
    """The draws of an audit so far, and what they say: rows left, answers, errors, the anytime bound."""

    def __init__(
        self,
        predicted: list[Any],
        known: dict[int, Any],
        belief: FloatArray | None,
        uniform_share: float,
        seed: int,
        predictions: str,
        level: float,
    ) -> None:
        N = len(predicted)
        self.predicted, self.belief = predicted, belief
        self.picks = Picks((seed, int(predictions, 16)), belief, uniform_share)
        self.left: NDArray[np.intp] = np.setdiff1d(np.arange(N), list(known)).astype(np.intp)
        self.known_errors = sum(predicted[row] != label for row, label in known.items())
        self.answers: dict[int, Any] = {}
        self.outcomes: list[bool] = []
        self._bound: PoolErrors | WeightedDraws
        if belief is None:
            self._bound = PoolErrors(len(self.left), level)
        else:
            self._bound = WeightedDraws(N, float(self.known_errors), belief, level)
        self._pending: tuple[int, FloatArray] | None = None

    @property
    def n_errors(self) -> int:
        return sum(self.outcomes)

    @property
    def anytime_upper(self) -> float:
        N = len(self.predicted)
        if isinstance(self._bound, PoolErrors):
            return (self.known_errors + self._bound.upper) / N
        # errors come in whole rows, and those left are no more than there are
        most = self.known_errors + self.n_errors + len(self.left)
        return float(min(np.floor(self._bound.upper * N + 1e-9), most) / N)

    def can_reach(self, target: float, n_labels: int) -> bool:
        """Whether the bound can be at most `target` after so many labels in all, if no more errors come."""
        if not isinstance(self._bound, PoolErrors):
            return True
        most = int(np.floor(target * len(self.predicted) + 1e-9)) - self.known_errors
        return self._bound.rejects(most + 1, self.n_errors, min(n_labels, self._bound.N))

    @property
    def probability(self) -> float:
        """With which the pending row was drawn."""
        position, probabilities = self._draw()
        return float(probabilities[position])

    def next_row(self) -> int:
        return int(self.left[self._draw()[0]])

    def take(self, label: Any) -> None:
        """The answer for the pending row; None counts as an error."""
        position, probabilities = self._draw()
        row = int(self.left[position])
        wrong = label is None or label != self.predicted[row]
        if isinstance(self._bound, PoolErrors):
            self._bound.add(wrong)
        else:
            self._bound.add(float(wrong), position, self.left, probabilities)
        self.answers[row] = label
        self.outcomes.append(wrong)
        self.left = np.delete(self.left, position)
        self._pending = None

    def _draw(self) -> tuple[int, FloatArray]:
        if self._pending is None:
            self._pending = self.picks.draw(self.left, len(self.outcomes))
        return self._pending
