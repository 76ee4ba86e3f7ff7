"""Pools whose labels are known, and classifiers given by their predictions at each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Told:
    """A classifier given by its predictions (N,) and beliefs to be wrong (N,); a row's number is its feature."""

    predictions: NDArray[np.intp]
    beliefs: NDArray[np.float64]

    @property
    def classes_(self) -> NDArray[np.intp]:
        return np.array([0, 1])

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.intp]:
        return self.predictions[np.asarray(X)[:, 0].astype(int)]

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = np.asarray(X)[:, 0].astype(int)
        ones = np.where(self.predictions[rows] == 1, 1 - self.beliefs[rows], self.beliefs[rows])
        return np.column_stack([1 - ones, ones])


def numbered(N: int) -> NDArray[np.float64]:
    """Rows whose feature is their number."""
    return np.arange(N, dtype=float)[:, None]


def told(
    truth: NDArray[np.intp], rate: float, rng: np.random.Generator, right: list[int] | None = None
) -> tuple[Told, float]:
    """A classifier that errs on about `rate` of the rows, most where it is unsure, and its true error.

    It is right at the rows `right`: those it was trained on.
    """
    N = len(truth)
    beliefs = rng.beta(0.3, 1.5, size=N) / 2
    wrong = rng.random(N) < np.clip(beliefs * rate / beliefs.mean(), 0, 1)
    wrong[right or []] = False
    return Told(np.where(wrong, 1 - truth, truth), beliefs), float(wrong.mean())
