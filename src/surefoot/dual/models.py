"""What is learned or judged: a linear model, a classifier that is fixed, or nothing (plain transport).

A model without rows (`over` gives it those of a block) is what a search carries about; its rows may be NumPy arrays or
tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.kernels.arrays import arrays_of

# Points of the dual problem.


@dataclass(frozen=True)
class DualPoint:
    """A point (θ, α, β, λ): theta (K−1, p) against class 0 (or (0, 0) for fixed losses), beta (n,), lam (K,) net."""

    theta: FloatArray
    alpha: float
    lam: FloatArray
    beta: FloatArray


class ModelRows(Protocol):
    """What a block knows of its rows: weights (B,), design matrix (B, p) and a classifier's losses at them (B, K)."""

    @property
    def weights(self) -> Any: ...
    @property
    def design(self) -> Any: ...
    @property
    def losses(self) -> Any: ...


class Model(Protocol):
    """Losses at rows, as a function of θ (K−1, p); (0, 0) where nothing is learned."""

    learns: ClassVar[bool]

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def scale(self) -> float:
        """Size of the losses: τ and α are measured in it."""

    def design(self, rows: slice) -> Any:
        """(B, p) of some rows."""

    def losses(self, theta: FloatArray, rows: slice) -> Any: ...
    def penalty_value(self, theta: FloatArray) -> float: ...
    def penalty_gradient(self, theta: FloatArray) -> FloatArray: ...
    def penalty_hessian(self) -> FloatArray:
        """(K−1, K−1, p, p)."""

    def restricted(self, rows: NDArray[np.intp]) -> Model: ...
    def over(self, rows: ModelRows) -> Model: ...


@dataclass(frozen=True)
class LinearModel:
    """Linear scores: X (N, p) with its intercept column, penalty (p,) the diagonal of R, n_classes K ≥ 2."""

    X: FloatArray
    penalty: FloatArray
    n_classes: int

    learns: ClassVar[bool] = True
    scale: ClassVar[float] = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_classes - 1, self.X.shape[1]

    def scores(self, theta: FloatArray, rows: slice) -> Any:
        """Scores (B, K) of a chunk of rows; class 0 is the reference with score 0."""
        xp = arrays_of(self.X)
        free = self.X[rows] @ xp.send(theta).T
        return xp.hstack(xp.zeros((len(free), 1)), free)

    def losses(self, theta: FloatArray, rows: slice) -> Any:
        return arrays_of(self.X).log_loss(self.scores(theta, rows))

    def penalty_value(self, theta: FloatArray) -> float:
        return float(0.5 * np.sum(self.penalty_gradient(theta) * theta))

    def penalty_gradient(self, theta: FloatArray) -> FloatArray:
        return (theta - self._centre(theta)) * self.penalty

    def penalty_hessian(self) -> FloatArray:
        """(K−1, K−1, p, p): G ⊗ R, with penalty ½ Σ_t penalty_t θ_tᵀ G θ_t."""
        free = self.n_classes - 1
        coupling = np.eye(free) - (1.0 / self.n_classes if free > 1 else 0.0)
        return coupling[:, :, None, None] * np.diag(self.penalty)

    def design(self, rows: slice) -> Any:
        return self.X[rows]

    def restricted(self, rows: NDArray[np.intp]) -> LinearModel:
        return replace(self, X=np.ascontiguousarray(self.X[rows]))

    def over(self, rows: ModelRows) -> LinearModel:
        return replace(self, X=rows.design)

    def _centre(self, theta: FloatArray) -> FloatArray:
        # With K ≥ 3 classes the penalty is taken at the representation whose coefficients sum to zero over classes.
        return theta.sum(axis=0) / self.n_classes if len(theta) > 1 else np.zeros_like(theta[0])


@dataclass(eq=False)
class KeptLosses:
    """Losses (N, K) of a linear model at the last θ (K−1, p) asked for, and the probabilities exp(−ℓ)."""

    theta: FloatArray | None = None
    last: tuple[FloatArray, FloatArray] = (np.empty((0, 0)), np.empty((0, 0)))

    def losses_at(self, model: Model, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        if self.theta is None or not np.array_equal(self.theta, theta):
            losses = model.losses(theta, slice(None))
            self.theta, self.last = theta, (losses, np.exp(-losses))
        return self.last


class _NothingLearned:
    """A model without θ."""

    learns: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, int]:
        return 0, 0

    def penalty_value(self, theta: FloatArray) -> float:
        return 0.0

    def penalty_gradient(self, theta: FloatArray) -> FloatArray:
        return np.zeros((0, 0))

    def penalty_hessian(self) -> FloatArray:
        return np.zeros((0, 0, 0, 0))

    def design(self, rows: slice) -> FloatArray:
        return np.empty((rows.stop - rows.start, 0))


@dataclass(frozen=True)
class FixedLosses(_NothingLearned):
    """A classifier that is not optimised: its losses (N, K) alone, and their size where it is known otherwise."""

    matrix: FloatArray
    size: float | None = None

    @property
    def scale(self) -> float:
        return max(float(np.ptp(self.matrix)), 1e-12) if self.size is None else self.size

    def losses(self, theta: FloatArray, rows: slice) -> Any:
        return self.matrix[rows]

    def restricted(self, rows: NDArray[np.intp]) -> FixedLosses:
        return replace(self, matrix=self.matrix[rows])

    def over(self, rows: ModelRows) -> FixedLosses:
        return replace(self, matrix=rows.losses)


@dataclass(frozen=True)
class FrozenModel(_NothingLearned):
    """A linear model whose coefficients are given."""

    linear: LinearModel
    theta: FloatArray

    scale: ClassVar[float] = 1.0

    def losses(self, theta: FloatArray, rows: slice) -> Any:
        return self.linear.losses(self.theta, rows)

    def restricted(self, rows: NDArray[np.intp]) -> FrozenModel:
        return replace(self, linear=self.linear.restricted(rows))

    def over(self, rows: ModelRows) -> FrozenModel:
        return replace(self, linear=self.linear.over(rows))


@dataclass(frozen=True)
class NoLosses(_NothingLearned):
    """Plain transport: one label, and no loss at any row; `weights` (N,) are those of the rows."""

    weights: FloatArray

    scale: ClassVar[float] = 1.0

    def losses(self, theta: FloatArray, rows: slice) -> Any:
        return arrays_of(self.weights).zeros((len(self.weights[rows]), 1))

    def restricted(self, rows: NDArray[np.intp]) -> NoLosses:
        return NoLosses(self.weights[rows])

    def over(self, rows: ModelRows) -> NoLosses:
        return NoLosses(rows.weights)
