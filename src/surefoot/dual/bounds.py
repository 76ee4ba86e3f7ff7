"""Compute both bounds of a robust problem at a dual point, independently of the solver.

The upper bound is the exact dual value. The lower bound uses the labels q of the soft plan, repaired until a transport
plan proves them feasible. It is the smallest loss of any classifier of the model under these labels (`SmallestLoss`).
The sums over rows are additive over blocks, and accept NumPy arrays and tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lstsq

from surefoot._validation import FloatArray
from surefoot.dual.models import AnyClassifier, DualPoint, LinearModel, Model, RowTotals
from surefoot.kernels.arrays import arrays_of
from surefoot.problem.distances import row_chunks
from surefoot.problem.sets import DecisionSet

# The lower bound of a robust problem: the smallest loss of a model under the labels of a feasible adversary.

# A smaller curvature, which occurs at scores beyond 230, is replaced by this value, so that Newton steps are finite.
_LEAST_CURVATURE = 1e-100


@dataclass(frozen=True)
class LowerBound:
    """The smallest loss of the model under the adversary's labels. `unbounded` : True if no finite θ attains it."""

    value: float
    unbounded: bool = False


class LogisticSums(Protocol):
    """The interface of `SoftLabels`: sums over rows under soft labels for logistic regression."""

    def start(self, theta: FloatArray) -> RowTotals: ...
    def local(self, theta: FloatArray) -> RowTotals: ...
    def moved(self, theta: FloatArray, step: FloatArray) -> RowTotals: ...


@dataclass(frozen=True)
class SoftLabels:
    """Rows of weight m (N,) with soft labels q (N, K), and the sums over the rows for logistic regression."""

    model: LinearModel
    m: Any
    q: Any

    def start(self, theta: FloatArray) -> RowTotals:
        """Return Σ m H(q), the loss, Σ m (largest score − score under q), the sums of `local`; the largest score."""
        scores = self.model.scores(theta, slice(None))
        values = np.array([self._entropy(self.q), *self._losses(scores)])
        return RowTotals((values, *self.local(theta).sums), (float(abs(scores).max()),))

    def local(self, theta: FloatArray) -> RowTotals:
        """Return the gradient (K−1, p) and the Hessian ((K−1)p, (K−1)p) of the loss."""
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
        """Return residual (K−1, p) and Σ m H(s) of s = softmax(Xθ) after a linearised step, and the loss at θ + step.

        Also returns three largest values: the relative change of s, its decrease, and the score after the step.
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
        """Return the loss, and the mean gap between the largest score and the score under q."""
        xp = arrays_of(scores)
        loss = self.m @ (self.q * xp.log_loss(scores)).sum(axis=1)
        return float(loss), float(self.m @ (xp.largest(scores, 1) - (self.q * scores).sum(axis=1)))


@dataclass(frozen=True)
class SmallestLoss:
    """Weighted logistic regression with soft labels q: max Σ m H(s) − ½ θᵀRθ over s with Σ m (s − q) xᵀ = −Rθ.

    s = softmax(Xθ), moved by one linearised Newton step, satisfies the constraint exactly. Its value is therefore a
    valid lower bound. `rows` computes the sums of `SoftLabels` over all rows.
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
        """Take damped Newton steps from θ. Each gives a bound. Stop once a bound is within rounding of the loss."""
        with np.errstate(all="ignore"):
            first = self.rows.start(theta)
        if not np.isfinite(first.sums[0]).all():  # θ has diverged, but any start gives a bound
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
            if drift > 2.0 * (1.0 + reach):  # the quadratic model is wrong at saturated scores
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
        """Return True if the loss under q falls along θ until the scores are so large that no loss remains."""
        return bool(size > 15.0 and slope <= 1e-9 * size and not self._penalised)

    def _newton_step(self, theta: FloatArray, gradient: FloatArray, H: FloatArray) -> FloatArray:
        penalty = self._penalty.transpose(0, 2, 1, 3).reshape(H.shape)
        step = -_solve_symmetric(H + penalty, (gradient + self.model.penalty_gradient(theta)).ravel())
        return step.reshape(theta.shape)

    def _dual_value(self, after: RowTotals, theta: FloatArray) -> float:
        residual = after.sums[0] + self.model.penalty_gradient(theta)
        # subtract the rounding error of the constraint, at twice the size of θ
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


def dual_value(ds: DecisionSet, model: Model, point: DualPoint) -> float:
    """Upper bound αε + Σ w β + Σ_k (λ̄_k p_hi_k − λ_k p_lo_k) + Σ_j m_j max_{k,i}(…) + ½ θᵀRθ, valid for any α ≥ 0."""
    total = dual_constant(ds, point) + model.penalty_value(point.theta)
    for rows in row_chunks(*ds.distances.shape):
        values = row_values(ds, ds.distances[rows], model.losses(point.theta, rows), point)
        total += float(ds.row_weights[rows] @ values)
    return total


def dual_constant(ds: DecisionSet, point: DualPoint) -> float:
    """Return the dual value without the rows and the penalty.

    A constant shift of β does not change the dual, so β is shifted to mean zero. The rounding error of large terms is
    added.
    """
    beta = _centred(ds, point)
    terms = point.alpha * ds.radius + ds.anchor_weights @ np.abs(beta) + np.abs(point.lam).sum()
    terms += np.abs(beta).max() / 16.0  # bounds the rounding error of a row where α d and β cancel
    total = point.alpha * ds.radius + ds.anchor_weights @ beta + _support(ds, point.lam).sum()
    return float(total + 32.0 * np.finfo(float).eps * terms)


def _support(ds: DecisionSet, lam: FloatArray) -> FloatArray:
    """Return λ̄ p_hi − λ p_lo (K,)."""
    return np.where(lam >= 0, lam * ds.intervals[:, 1], lam * ds.intervals[:, 0])


def reduced_dual_constant(ds: DecisionSet, point: DualPoint, prices: DualPoint) -> float:
    """Compute `dual_constant` at the point moved by α times the prices, minus the value of the prices alone.

    The radius of ds is the excess over the minimal radius, and β has mean zero.
    """
    moved, bound = point.lam + point.alpha * prices.lam, ds.intervals[np.arange(ds.n_classes), 1 * (prices.lam > 0)]
    across = _support(ds, moved) - point.alpha * prices.lam * bound
    labels = np.where(moved * prices.lam > 0, point.lam * bound, across)  # avoids cancellation
    terms = np.abs(point.beta).max() + np.abs(point.lam).sum()
    total = point.alpha * ds.radius + ds.anchor_weights @ point.beta + labels.sum()
    return float(total + 32.0 * np.finfo(float).eps * terms)


def row_values(ds: DecisionSet, distances: Any, losses: Any, point: DualPoint) -> Any:
    """Return Φ_j = max_{k,i} ℓ_jk − α c((x_j, k), z_i) − β_i − λ_k (B,) from distances (B, n) and losses (B, K)."""
    xp, least = arrays_of(distances), soft_least(ds, distances, point, 0.0)
    gain = (losses - xp.send(point.lam))[:, :, None] - point.alpha * xp.send(ds.present_label_cost)
    return xp.largest(gain - least[:, None, :], (1, 2))


def largest_row_value(ds: DecisionSet, point: DualPoint, largest_loss: float) -> float:
    """Return the supremum of Φ over all possible rows, if no loss exceeds `largest_loss`."""
    price = point.lam[:, None] + point.alpha * ds.label_cost[:, ds.anchor_labels] + _centred(ds, point)
    return float(largest_loss - price.min())


def _centred(ds: DecisionSet, point: DualPoint) -> FloatArray:
    return point.beta - ds.anchor_weights @ point.beta


def best_response(model: AnyClassifier, ds: DecisionSet, distances: Any, point: DualPoint, tau: float = 0.0) -> Any:
    """Return the losses (B, K) of the best response to the prices of a dual point. It minimises Φ^τ at each row."""
    return model.response_losses(label_prices(ds, distances, point, tau), tau)


def label_prices(ds: DecisionSet, distances: Any, point: DualPoint, tau: float = 0.0) -> Any:
    """Return a_k (B, K) = max over anchors of −α c((x, k), z_i) − β_i − λ_k, or its softmax at τ > 0."""
    xp = arrays_of(distances)
    least = soft_least(ds, distances, point, tau)[:, None, :] + point.alpha * xp.send(ds.present_label_cost)
    if tau > 0:
        top = -xp.largest(-least, 2)
        cheapest = top - tau * xp.log(xp.exp((top[:, :, None] - least) / tau).sum(axis=2))
    else:
        cheapest = -xp.largest(-least, 2)
    return -(cheapest + xp.send(point.lam))


def soft_least(ds: DecisionSet, distances: Any, point: DualPoint, tau: float) -> Any:
    """Return −τ log Σ exp(−(α d + β) / τ) (B, C) over the anchors of each class, or the least α d + β at τ = 0."""
    xp = arrays_of(distances)
    fused, beta = xp.fused(distances), xp.send(_centred(ds, point) if tau == 0 else point.beta)
    if fused is not None and tau == 0:
        return fused.class_least(distances, point.alpha, beta, ds.class_columns)
    if fused is not None:
        return -tau * fused.class_totals(distances, point.alpha, beta, tau, ds.class_columns)
    price = point.alpha * distances + beta
    least = xp.least_by_class(price, ds)
    if tau == 0:
        return least
    return least - tau * xp.log(xp.sum_by_class(xp.exp((least[:, xp.slots(ds)] - price) / tau), ds))


def soft_plan(ds: DecisionSet, distances: Any, losses: Any, point: DualPoint, tau: float) -> tuple[Any, Any]:
    """Return the softmax plan of some rows: P(label, class | row) (B, K, C) and P(anchor | row, class) (B, n)."""
    xp = arrays_of(distances)
    slots = xp.slots(ds)
    V = (point.alpha * distances + xp.send(point.beta)) / -tau
    top = xp.largest_by_class(V, ds)
    share = xp.exp(V - top[:, slots])
    total = xp.sum_by_class(share, ds)
    share /= total[:, slots]
    return joint_plan(ds, top + xp.log(total), losses, point, tau), share


def joint_plan(ds: DecisionSet, soft: Any, losses: Any, point: DualPoint, tau: float) -> Any:
    """Return P(label, class of anchor | row) (B, K, C) from log Σ exp(−(α d + β) / τ) over each class's anchors."""
    xp = arrays_of(soft)
    gain = (losses - xp.send(point.lam)) / tau
    logits = gain[:, :, None] - point.alpha / tau * xp.send(ds.present_label_cost) + soft[:, None, :]
    joint = xp.exp(logits - xp.log_total(logits))
    joint /= joint.sum(axis=(1, 2), keepdims=True)
    return joint


def soft_labels(ds: DecisionSet, distances: Any, losses: Any, point: DualPoint, tau: float) -> Any:
    """Return the labels (B, K) of the softmax plan."""
    xp = arrays_of(distances)
    fused = xp.fused(distances)
    if fused is None:
        return soft_plan(ds, distances, losses, point, tau)[0].sum(axis=2)
    soft = fused.class_totals(distances, point.alpha, xp.send(point.beta), tau, ds.class_columns)
    return joint_plan(ds, soft, losses, point, tau).sum(axis=2)


@dataclass(frozen=True)
class AnchorRepair:
    """A repair that makes a plan's anchor marginal exact.

    keep : (n,) share of each anchor that is kept. The rest is free mass. stay : (C,) share of a class's free mass that
    stays in the class; within : (n,) the distribution of this mass, summing to one by class; across : (n,) the
    distribution of the remaining free mass.

    Anchors that receive too much are scaled down. The free mass goes first to anchors of the same class that lack mass.
    The remainder goes to anchors of other classes. Labels do not change.
    """

    keep: FloatArray
    stay: FloatArray
    within: FloatArray
    across: FloatArray

    @classmethod
    def from_mass(cls, ds: DecisionSet, mass: FloatArray) -> AnchorRepair:
        starts, slots = ds.class_offsets[:-1], ds.anchor_slots
        keep = np.minimum(1.0, ds.anchor_weights / np.maximum(mass, 1e-300))
        lack = np.maximum(ds.anchor_weights - keep * mass, 0.0)
        free_by_class = np.add.reduceat(mass * (1.0 - keep), starts)
        lack_by_class = np.add.reduceat(lack, starts)
        stay = np.minimum(1.0, lack_by_class / np.maximum(free_by_class, 1e-300))
        filled = np.minimum(1.0, free_by_class / np.maximum(lack_by_class, 1e-300))
        across = lack * (1.0 - filled)[slots]
        within = lack / np.maximum(lack_by_class, 1e-300)[slots]
        return cls(keep, stay, within, across / max(across.sum(), 1e-300))

    @classmethod
    def blind(cls, ds: DecisionSet) -> AnchorRepair:
        """Return the repair for a problem without labels. Its plan ignores the positions of rows."""
        nothing = np.zeros(len(ds.anchor_weights))
        return cls(nothing, np.ones(1), ds.anchor_weights, nothing)

    def plan(
        self, ds: DecisionSet, D: Any, losses: Any, point: DualPoint, tau: float
    ) -> tuple[Any, tuple[Any, Any, Any, Any]]:
        """Return the softmax plan of some rows, P(label, class | row) (B, K, C), and the moments for `cost`.

        The moments per row and class (B, C) are the share kept, its distance, and the distance of the mass moved within
        the class. The moment per row (B,) is the distance of the mass moved to other classes.
        """
        xp = arrays_of(D)
        fused = xp.fused(D)
        if fused is None:
            joint, share = soft_plan(ds, D, losses, point, tau)
            return joint, self.moments(ds, D, share)
        soft, kept, kept_distance, moved, across = fused.class_repaired(
            D, point.alpha, xp.send(point.beta), tau, xp.send(self.shares), ds.class_columns
        )
        return joint_plan(ds, soft, losses, point, tau), (kept, kept_distance, moved, across.sum(axis=1))

    def moments(self, ds: DecisionSet, D: Any, share: Any) -> tuple[Any, Any, Any, Any]:
        """Return the moments for `cost`, from P(anchor | row, class) (B, n)."""
        xp = arrays_of(D)
        held = share * xp.send(self.keep)
        moved = xp.sum_by_class(D * xp.send(self.within), ds)
        return xp.sum_by_class(held, ds), xp.sum_by_class(held * D, ds), moved, D @ xp.send(self.across)

    @property
    def shares(self) -> FloatArray:
        """The rows keep, within and across of an array (3, n)."""
        return np.stack([self.keep, self.within, self.across])

    def cost(self, ds: DecisionSet, joint: Any, moments: tuple[Any, Any, Any, Any]) -> Any:
        """Return the cost (B,) of the repaired plan for a chunk of rows, per unit of row weight, from `plan`."""
        kept, kept_distance, moved_distance, across_distance = moments
        xp = arrays_of(joint)
        label_cost, stay = xp.send(ds.present_label_cost), xp.send(self.stay)
        free = joint * (1.0 - kept)[:, None, :]
        inside = joint * (kept_distance[:, None, :] + kept[:, None, :] * label_cost)
        inside += free * stay * (moved_distance[:, None, :] + label_cost)
        leaving = (free * (1.0 - stay)).sum(axis=2)
        outside = leaving.sum(axis=1) * across_distance
        outside += leaving @ xp.send(ds.label_cost[:, ds.anchor_labels] @ self.across)
        return inside.sum(axis=(1, 2)) + outside

    def class_shares(self, D: Any, potentials: FloatArray, tau: float, classes: FloatArray) -> Any:
        """Return class shares (B, K) of the repaired plan without labels. classes (n, K) : one-hot, in order."""
        xp = arrays_of(D)
        fused = xp.fused(D)
        if fused is None:
            held = xp.softmax((D + xp.send(potentials)) / -tau) * xp.send(self.keep)
            return held @ xp.send(classes) + (1.0 - held.sum(axis=1))[:, None] * xp.send(self.within @ classes)
        edges = np.flatnonzero(np.any(np.diff(classes, axis=0, prepend=-1.0, append=-1.0), axis=1)).tolist()
        soft, kept, *_ = fused.class_repaired(
            D, 1.0, xp.send(potentials), tau, xp.send(self.shares), tuple(pairwise(edges))
        )
        held = xp.softmax(soft) * kept
        return held @ xp.send(classes[edges[:-1]]) + (1.0 - held.sum(axis=1))[:, None] * xp.send(self.within @ classes)
