"""What is learned or judged: a linear model, or the losses of a classifier that is fixed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot._types import FloatArray
from surefoot.losses import log_loss_matrix


@dataclass(frozen=True)
class LinearModel:
    """Linear scores: X (N, p) with its intercept column, penalty (p,) the diagonal of R, n_classes K ≥ 2."""

    X: FloatArray
    penalty: FloatArray
    n_classes: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_classes - 1, self.X.shape[1]

    def scores(self, theta: FloatArray, rows: slice) -> FloatArray:
        """Scores (B, K) of a chunk of rows; class 0 is the reference with score 0."""
        free = self.X[rows] @ theta.T
        return np.column_stack([np.zeros(len(free)), free])

    def losses(self, theta: FloatArray, rows: slice) -> FloatArray:
        return log_loss_matrix(self.scores(theta, rows))

    def penalty_value(self, theta: FloatArray) -> float:
        return float(0.5 * np.sum(self.penalty_gradient(theta) * theta))

    def penalty_gradient(self, theta: FloatArray) -> FloatArray:
        return (theta - self._centre(theta)) * self.penalty

    def penalty_coupling(self) -> FloatArray:
        """(K−1, K−1) matrix G with penalty ½ Σ_t penalty_t θ_tᵀ G θ_t."""
        free = self.n_classes - 1
        return np.eye(free) - (1.0 / self.n_classes if free > 1 else 0.0)

    def _centre(self, theta: FloatArray) -> FloatArray:
        # With K ≥ 3 classes the penalty is taken at the representation whose coefficients sum to zero over classes.
        return theta.sum(axis=0) / self.n_classes if len(theta) > 1 else np.zeros_like(theta[0])


@dataclass(frozen=True)
class FixedLosses:
    """A classifier that is not optimised: its losses (N, K) alone."""

    matrix: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return 0, 0

    def losses(self, theta: FloatArray, rows: slice) -> FloatArray:
        return self.matrix[rows]

    def penalty_value(self, theta: FloatArray) -> float:
        return 0.0


Model = LinearModel | FixedLosses
