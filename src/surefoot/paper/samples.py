"""What the experiments share: a dataset, a labeled sample of it, and a linear classifier judged on all rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.datasets import load
from surefoot.losses import log_loss_matrix, probabilities
from surefoot.paper.protocol import Row, Settings, Task
from surefoot.radius import transport_distance
from surefoot.solvers.ball.solver import BallSolution, solve_ball

LABEL_COST = 1.0  # κ of the paper's experiments
_BALL_GAP = 1e-6
# Bounds and confidences below this print as 0.50: the bound is vacuous, the classifier indifferent.
VACUOUS = 0.505
# A classifier whose probabilities differ by less than this over all rows says the same of all of them.
CONSTANT = 0.01


@lru_cache(maxsize=16)  # the paper's 14 datasets take about 160 MB together
def load_rows(name: str, seed: int) -> tuple[FloatArray, NDArray[np.intp]]:
    """Rows (N, d) and labels (N,), 0 or 1, of a dataset; the seed draws the rows of Bank, Cover, Magic and Pulsar."""
    X, y = load(name, random_state=seed, return_X_y=True)
    X.flags.writeable = False
    return X, y.astype(np.intp)


@dataclass(frozen=True, eq=False)
class Sample:
    """A dataset in random order, X (N, d) and y (N,), of which the first n rows are the labeled ones.

    The whole dataset is the true distribution P, as in the paper: classifiers are judged on all of its rows.
    """

    X: FloatArray
    y: NDArray[np.intp]
    n: int

    @classmethod
    def draw(cls, task: Task, settings: Settings, n: int) -> Sample:
        """Label n rows, uniformly without replacement; samples of different size of one trial are nested."""
        X, y = load_rows(task.dataset, settings.seed)
        order = task.rng(settings.seed).permutation(len(X))
        return cls(X[order], y[order], min(n, len(X)))

    @property
    def labeled(self) -> tuple[FloatArray, NDArray[np.intp]]:
        return self.X[: self.n], self.y[: self.n]

    @property
    def unlabeled(self) -> FloatArray:
        return self.X[self.n :]

    @property
    def label_probabilities(self) -> FloatArray:
        """(2,) of P: the strong prior."""
        return np.bincount(self.y, minlength=2) / len(self.y)

    def distance(self) -> float:
        """W_c from the labeled sample to P."""
        return transport_distance(*self.labeled, self.X, self.y, label_cost=LABEL_COST)

    def ball(self, radius: float, warm_start: BallSolution | None = None) -> BallSolution:
        """The classifier of the ball alone; one class among the labels is enough."""
        X, y = self.labeled
        return solve_ball(X, 2.0 * y - 1.0, radius=radius, label_cost=LABEL_COST, tol=_BALL_GAP, warm_start=warm_start)

    def judged(self, coef: FloatArray, intercept: float) -> Row:
        """Likelihood exp(−mean log loss), confidences and spread of a linear classifier, coef (d,), over P.

        The spread is that of its probabilities of one class: zero where it says the same of all rows.
        """
        scores = self.X @ coef + intercept
        proba = probabilities(scores)
        top = proba.max(axis=1)
        losses = log_loss_matrix(scores)[np.arange(len(self.y)), self.y]
        return {
            "likelihood": rounded(np.exp(-losses.mean())),
            "median_confidence": rounded(np.median(top)),
            "max_confidence": rounded(top.max()),
            "spread": rounded(np.ptp(proba[:, 1])),
        }


def rounded(value: float) -> float:
    """Seven digits, more than any of the results has."""
    return float(f"{float(value):.7g}")
