"""The lower bound of a robust problem: the smallest loss of a model under the labels of a feasible adversary.

Sums over rows are apart from what is done with them, so that they can be taken over blocks of rows, and on a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lstsq

from surefoot._types import FloatArray
from surefoot.dual.arrays import arrays_of
from surefoot.dual.models import LinearModel, Model

# Curvature below this, at scores beyond 230, is taken as this much: a Newton step stays finite however far θ has gone.
_LEAST_CURVATURE = 1e-100


@dataclass(frozen=True)
class LowerBound:
    """Smallest loss of the model under the adversary's labels; `unbounded` when no finite θ attains it."""

    value: float
    unbounded: bool = False


@dataclass
class RowTotals:
    """Sums over rows, and largest values: both can be put together from those of blocks."""

    sums: tuple[FloatArray, ...]
    largest: tuple[float, ...] = ()

    def __iadd__(self, other: RowTotals) -> RowTotals:
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            np.add(mine, theirs, out=mine)
        self.largest = tuple(max(pair) for pair in zip(self.largest, other.largest, strict=True))
        return self


class LogisticSums(Protocol):
    """Sums over rows under soft labels, that logistic regression needs: those of `SoftLabels`."""

    def start(self, theta: FloatArray) -> RowTotals: ...
    def local(self, theta: FloatArray) -> RowTotals: ...
    def moved(self, theta: FloatArray, step: FloatArray) -> RowTotals: ...


@dataclass(frozen=True)
class SoftLabels:
    """Rows of weight m (N,) with soft labels q (N, K), and the sums over them that logistic regression needs."""

    model: LinearModel
    m: Any
    q: Any

    def start(self, theta: FloatArray) -> RowTotals:
        """Σ m H(q), the loss, Σ m (largest score − score under q), then the sums of `local`; the largest score."""
        scores = self.model.scores(theta, slice(None))
        values = np.array([self._entropy(self.q), *self._losses(scores)])
        return RowTotals((values, *self.local(theta).sums), (float(abs(scores).max()),))

    def local(self, theta: FloatArray) -> RowTotals:
        """Gradient (K−1, p) and Hessian ((K−1)p, (K−1)p) of the loss."""
        X = self.model.X
        xp = arrays_of(X)
        s = xp.probabilities(self.model.scores(theta, slice(None)))
        free, p = theta.shape
        H = xp.zeros((free * p, free * p))
        for a in range(free):
            for b in range(a + 1):
                weight = self.m * (s[:, a + 1] * (float(a == b) - s[:, b + 1]))
                block = xp.tall_product(X, X * weight[:, None])
                H[a * p : (a + 1) * p, b * p : (b + 1) * p] = block
                if a != b:
                    H[b * p : (b + 1) * p, a * p : (a + 1) * p] = block.T
        return RowTotals((xp.fetch(self._residual(s)), xp.fetch(H)))

    def moved(self, theta: FloatArray, step: FloatArray) -> RowTotals:
        """Residual (K−1, p) and Σ m H(s) of s = softmax(Xθ) moved along a step, to first order; the loss after it.

        Largest values: the relative change of s, its decrease, and the score after the step.
        """
        xp = arrays_of(self.model.X)
        s = xp.probabilities(self.model.scores(theta, slice(None)))
        eta = self.model.scores(step, slice(None))
        change = eta - (s * eta).sum(axis=1, keepdims=True)
        s = s * (1.0 + change)
        scores = self.model.scores(theta + step, slice(None))
        largest = (float(abs(change).max()), max(0.0, -float(change.min())), float(abs(scores).max()))
        values = np.array([self._entropy(s), *self._losses(scores)])
        return RowTotals((xp.fetch(self._residual(s)), values), largest)

    def _residual(self, s: Any) -> Any:
        return arrays_of(s).tall_product((self.m[:, None] * (s - self.q))[:, 1:], self.model.X)

    def _entropy(self, s: Any) -> float:
        return float(self.m @ arrays_of(s).entr(s.clip(0.0)).sum(axis=1))

    def _losses(self, scores: Any) -> tuple[float, float]:
        """The loss, and by how much scores under q fall short of the largest ones."""
        xp = arrays_of(scores)
        loss = self.m @ (self.q * xp.log_loss(scores)).sum(axis=1)
        return float(loss), float(self.m @ (xp.largest(scores, 1) - (self.q * scores).sum(axis=1)))


@dataclass(frozen=True)
class SmallestLoss:
    """Weighted logistic regression with soft labels q: max Σ m H(s) − ½ θᵀRθ over s with Σ m (s − q) xᵀ = −Rθ.

    s = softmax(Xθ) moved by one linearised Newton step satisfies the constraint exactly, so its value is a true lower
    bound. `rows` gives the sums of `SoftLabels` over all rows.
    """

    model: Model
    rows: LogisticSums

    @cached_property
    def _penalty(self) -> FloatArray:
        return self.model.penalty_hessian()

    @property
    def _penalised(self) -> bool:
        return bool(self._penalty.any())

    def bound(self, theta: FloatArray, max_steps: int = 25) -> LowerBound:
        """From θ on by damped Newton steps, each of which gives a bound, until one is within rounding of the loss."""
        with np.errstate(all="ignore"):
            first = self.rows.start(theta)
        if not np.isfinite(first.sums[0]).all():  # θ has run off: a bound can be found from anywhere
            theta = np.zeros_like(theta)
            first = self.rows.start(theta)
        (entropy, loss, slope), *local = first.sums
        best = 0.0 if self._penalised else float(entropy)
        value = float(loss) + self.model.penalty_value(theta)
        reach = first.largest[0]
        recedes = self._recedes(slope, reach)
        unbounded = recedes
        for steps in range(max_steps):
            step = self._newton_step(theta, *(local if steps == 0 else self.rows.local(theta).sums))
            after = self.rows.moved(theta, step)
            drift, least, size = after.largest
            if drift > 2.0 * (1.0 + reach):  # where scores saturate the quadratic model knows nothing of the loss
                step = step * (2.0 * (1.0 + reach) / drift)
                after = self.rows.moved(theta, step)
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
                after = self.rows.moved(theta, shrink * step)
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
        return bool(size > 15.0 and slope <= 1e-9 * size and not self._penalised)

    def _newton_step(self, theta: FloatArray, gradient: FloatArray, H: FloatArray) -> FloatArray:
        penalty = self._penalty.transpose(0, 2, 1, 3).reshape(H.shape)
        step = -_solve_symmetric(H + penalty, (gradient + self.model.penalty_gradient(theta)).ravel())
        return step.reshape(theta.shape)

    def _dual_value(self, after: RowTotals, theta: FloatArray) -> float:
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
