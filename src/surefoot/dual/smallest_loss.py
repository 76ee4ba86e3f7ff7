"""The lower bound of a robust problem: the smallest loss of a model under the labels of a feasible adversary.

Sums over rows are apart from what is done with them, so that they can be taken over blocks of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lstsq
from scipy.special import entr

from surefoot._types import FloatArray
from surefoot.dual.bounds import Adversary
from surefoot.dual.models import FixedLosses, LinearModel, Model
from surefoot.losses import log_loss_matrix, probabilities
from surefoot.problem.sets import DecisionSet

# Curvature below this, at scores beyond 230, is taken as this much: a Newton step stays finite however far θ has gone.
_LEAST_CURVATURE = 1e-100


@dataclass(frozen=True)
class LowerBound:
    """Smallest loss of the model under the adversary's labels; `unbounded` when no finite θ attains it."""

    value: float
    unbounded: bool = False


def lower_bound(ds: DecisionSet, model: Model, adversary: Adversary, theta: FloatArray) -> LowerBound:
    """Minimum over θ of E_q ℓ(θ) + ½ θᵀRθ, from below."""
    if isinstance(model, FixedLosses):
        return LowerBound(float(ds.row_weights @ (adversary.label_proba * model.matrix).sum(axis=1)))
    kept = ds.row_weights > 0  # a row without mass takes no part, and its scores may be anything
    rows = SoftLabels(replace(model, X=model.X[kept]), ds.row_weights[kept], adversary.label_proba[kept])
    return SmallestLoss(model, rows.start, rows.local, rows.moved).bound(theta)


@dataclass
class Tally:
    """Sums over rows, and largest values: both can be put together from those of blocks."""

    sums: tuple[FloatArray, ...]
    largest: tuple[float, ...] = ()

    def __iadd__(self, other: Tally) -> Tally:
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            np.add(mine, theirs, out=mine)
        self.largest = tuple(max(pair) for pair in zip(self.largest, other.largest, strict=True))
        return self


@dataclass(frozen=True)
class SoftLabels:
    """Rows of weight m (N,) with soft labels q (N, K), and the sums over them that logistic regression needs."""

    model: LinearModel
    m: FloatArray
    q: FloatArray

    def start(self, theta: FloatArray) -> Tally:
        """Σ m H(q), the loss, Σ m (largest score − score under q), then the sums of `local`; the largest score."""
        scores = self.model.scores(theta, slice(None))
        loss = self.m @ (self.q * log_loss_matrix(scores)).sum(axis=1)
        slope = self.m @ (scores.max(axis=1) - (self.q * scores).sum(axis=1))
        entropy = self.m @ entr(np.maximum(self.q, 0.0)).sum(axis=1)  # rounding may leave q below 0
        values = np.array([entropy, loss, slope])
        return Tally((values, *self.local(theta).sums), (float(np.abs(scores).max(initial=0.0)),))

    def local(self, theta: FloatArray) -> Tally:
        """Gradient (K−1, p) and Hessian ((K−1)p, (K−1)p) of the loss."""
        X = self.model.X
        s = probabilities(self.model.scores(theta, slice(None)))
        free, p = theta.shape
        H = np.zeros((free * p, free * p))
        for a in range(free):
            for b in range(a + 1):
                weight = self.m * (s[:, a + 1] * (float(a == b) - s[:, b + 1]))
                block = X.T @ (X * weight[:, None])
                H[a * p : (a + 1) * p, b * p : (b + 1) * p] = block
                if a != b:
                    H[b * p : (b + 1) * p, a * p : (a + 1) * p] = block.T
        return Tally(((self.m[:, None] * (s - self.q))[:, 1:].T @ X, H))

    def moved(self, theta: FloatArray, step: FloatArray) -> Tally:
        """Residual (K−1, p) and Σ m H(s) of s = softmax(Xθ) moved along a step, to first order; the loss after it.

        Largest values: the relative change of s, its decrease, and the score after the step.
        """
        s = probabilities(self.model.scores(theta, slice(None)))
        eta = self.model.scores(step, slice(None))
        change = eta - (s * eta).sum(axis=1, keepdims=True)
        s = s * (1.0 + change)
        residual = (self.m[:, None] * (s - self.q))[:, 1:].T @ self.model.X
        entropy = self.m @ entr(np.maximum(s, 0.0)).sum(axis=1)
        scores = self.model.scores(theta + step, slice(None))
        loss = self.m @ (self.q * log_loss_matrix(scores)).sum(axis=1)
        slope = self.m @ (scores.max(axis=1) - (self.q * scores).sum(axis=1))
        largest = (np.abs(change).max(initial=0.0), -change.min(initial=0.0), np.abs(scores).max(initial=0.0))
        return Tally((residual, np.array([entropy, loss, slope])), tuple(float(value) for value in largest))


@dataclass(frozen=True)
class SmallestLoss:
    """Weighted logistic regression with soft labels q: max Σ m H(s) − ½ θᵀRθ over s with Σ m (s − q) xᵀ = −Rθ.

    s = softmax(Xθ) moved by one linearised Newton step satisfies the constraint exactly, so its value is a true lower
    bound. The three functions return the sums of `SoftLabels` over all rows.
    """

    model: LinearModel
    start: Callable[[FloatArray], Tally]
    local: Callable[[FloatArray], Tally]
    moved: Callable[[FloatArray, FloatArray], Tally]

    def bound(self, theta: FloatArray, max_steps: int = 25) -> LowerBound:
        first = self.start(theta)
        (entropy, loss, slope), *local = first.sums
        best = float(entropy) if not self.model.penalty.any() else 0.0
        value = float(loss) + self.model.penalty_value(theta)
        reach = first.largest[0]
        recedes = self._recedes(slope, reach)
        unbounded = recedes
        for steps in range(max_steps):
            step = self._newton_step(theta, *(local if steps == 0 else self.local(theta).sums))
            after = self.moved(theta, step)
            drift, least, size = after.largest
            if drift > 2.0 * (1.0 + reach):  # where scores saturate the quadratic model knows nothing of the loss
                step = step * (2.0 * (1.0 + reach) / drift)
                after = self.moved(theta, step)
                size = after.largest[2]
            elif least <= 1.0:
                best = max(best, self._dual_value(after, theta + step))
            unbounded = unbounded or drift > 0.05
            if value - best <= 1e-12 * max(1.0, abs(value)) or drift < 1e-9:
                unbounded = (unbounded and drift > 1e-6) or recedes
                break
            trial = float(after.sums[1][1]) + self.model.penalty_value(theta + step)
            shrink = 1.0
            while not trial <= value and shrink > 1e-6:
                shrink *= 0.5
                after = self.moved(theta, shrink * step)
                trial, size = (
                    float(after.sums[1][1]) + self.model.penalty_value(theta + shrink * step),
                    after.largest[2],
                )
            if not trial <= value:
                break
            theta, value, reach = theta + shrink * step, trial, size
            recedes = self._recedes(after.sums[1][2], size)
        return LowerBound(best, unbounded)

    def _recedes(self, slope: float, size: float) -> bool:
        """Whether the loss under q falls all the way along θ, to scores so large that it has nothing left to lose."""
        return bool(size > 15.0 and slope <= 1e-9 * size and not self.model.penalty.any())

    def _newton_step(self, theta: FloatArray, gradient: FloatArray, H: FloatArray) -> FloatArray:
        penalty = cast("FloatArray", np.kron(self.model.penalty_coupling(), np.diag(self.model.penalty)))
        step = -_solve_symmetric(H + penalty, (gradient + self.model.penalty_gradient(theta)).ravel())
        return step.reshape(theta.shape)

    def _dual_value(self, after: Tally, theta: FloatArray) -> float:
        residual = after.sums[0] + self.model.penalty_gradient(theta)
        # what rounding leaves of the constraint is paid for at twice the size of θ
        slack = 2.0 * float(np.abs(residual).ravel() @ (1.0 + np.abs(theta)).ravel())
        return float(after.sums[1][0]) - self.model.penalty_value(theta) - slack


def _solve_symmetric(H: FloatArray, g: FloatArray) -> FloatArray:
    scale = 1.0 / np.sqrt(np.maximum(H.diagonal(), _LEAST_CURVATURE))
    scaled = H * scale[:, None] * scale
    np.fill_diagonal(scaled, 1.0)
    try:
        factor = cho_factor(scaled + 1e-13 * np.eye(len(g)), check_finite=False)
        x = cho_solve(factor, g * scale, check_finite=False)
        x += cho_solve(factor, g * scale - scaled @ x, check_finite=False)
        if np.abs(scaled @ x - g * scale).max(initial=0.0) <= 1e-10 * np.abs(g * scale).max(initial=1e-300):
            return x * scale
    except np.linalg.LinAlgError:
        x = np.zeros_like(g)
    return lstsq(scaled, g * scale, check_finite=False)[0] * scale
