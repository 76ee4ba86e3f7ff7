"""Both bounds of a robust problem, recomputed from a dual point by plain NumPy: nothing here is the solver's.

Upper: the exact dual value. Lower: the labels q of the soft plan, repaired until a transport plan proves them feasible,
then the smallest loss that any classifier of the model can have under q.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lstsq
from scipy.special import entr, logsumexp

from surefoot._validation import FloatArray
from surefoot.dual import DualPoint, FixedLosses, LinearModel, Model
from surefoot.losses import log_loss_matrix, probabilities
from surefoot.sets import DecisionSet, row_chunks

# At the minimal radius the set has no interior; there the adversary may exceed it by this share, and nowhere else.
FEASIBILITY = 2.5e-7


@dataclass(frozen=True)
class Adversary:
    """Labels of a distribution in (or near) the decision set.

    label_proba : (N, K) q_jk = μ(y=k | x_j).
    transport_cost : cost of an explicit plan to the labeled distribution, so an upper bound of W_c(μ, P̂_l).
    """

    label_proba: FloatArray
    transport_cost: float

    def label_probabilities(self, decision_set: DecisionSet) -> FloatArray:
        """(K,) μ(y=k)."""
        return decision_set.row_weights @ self.label_proba


def dual_value(ds: DecisionSet, model: Model, point: DualPoint) -> float:
    """αε + Σ w β + Σ_k (λ̄_k p_hi_k − λ_k p_lo_k) + Σ_j m_j max_{k,i}(…) + ½ θᵀRθ: an upper bound for any α ≥ 0."""
    total = dual_constant(ds, point) + model.penalty_value(point.theta)
    for rows in row_chunks(*ds.distances.shape):
        values = row_values(ds, ds.distances[rows], model.losses(point.theta, rows), point)
        total += float(ds.row_weights[rows] @ values)
    return total


def dual_constant(ds: DecisionSet, point: DualPoint) -> float:
    """All of the dual value but the rows and the penalty.

    β may be shifted by a constant: it is taken with mean zero, and what float64 can lose among large terms is added.
    """
    support = np.where(point.lam >= 0, point.lam * ds.intervals[:, 1], point.lam * ds.intervals[:, 0]).sum()
    beta = _centred(ds, point)
    terms = point.alpha * ds.radius + ds.anchor_weights @ np.abs(beta) + np.abs(point.lam).sum()
    total = point.alpha * ds.radius + ds.anchor_weights @ beta + support
    return float(total + 32.0 * np.finfo(float).eps * terms)


def row_values(ds: DecisionSet, distances: FloatArray, losses: FloatArray, point: DualPoint) -> FloatArray:
    """(B,) Φ_j = max_{k,i} ℓ_jk − α c((x_j, k), z_i) − β_i − λ_k at rows with these distances (B, n), losses (B, K)."""
    least = np.minimum.reduceat(point.alpha * distances + _centred(ds, point), ds.class_offsets[:-1], axis=1)
    values = (losses - point.lam)[:, :, None] - point.alpha * ds.present_label_cost - least[:, None, :]
    return values.max(axis=(1, 2))


def largest_row_value(ds: DecisionSet, point: DualPoint, largest_loss: float) -> float:
    """Supremum of Φ over all rows there could be, where no loss exceeds `largest_loss`."""
    price = point.lam[:, None] + point.alpha * ds.label_cost[:, ds.anchor_labels] + _centred(ds, point)
    return float(largest_loss - price.min())


def _centred(ds: DecisionSet, point: DualPoint) -> FloatArray:
    return point.beta - ds.anchor_weights @ point.beta


def soft_adversary(ds: DecisionSet, model: Model, point: DualPoint, tau: float) -> Adversary:
    """Labels of the softmax plan at smoothing τ, with the cost of that plan after its anchor marginal is made exact.

    Anchors that received too much are scaled down; the mass set free goes to the anchors of the same class that lack
    it, and what is then left to those of other classes. Labels do not change.
    """
    mass = np.zeros(len(ds.anchor_weights))
    for rows, joint, share in _soft_plan(ds, model, point, tau):
        mass += ds.row_weights[rows] @ (joint.sum(axis=1)[:, ds.anchor_slots] * share)
    repair = _AnchorRepair.of(ds, mass)
    q = np.empty((len(ds.row_weights), ds.n_classes))
    cost = 0.0
    for rows, joint, share in _soft_plan(ds, model, point, tau):
        q[rows] = joint.sum(axis=2)
        cost += float(ds.row_weights[rows] @ repair.cost(ds, ds.distances[rows], joint, share))
    return Adversary(q, cost)


@dataclass(frozen=True)
class _AnchorRepair:
    """How a plan's anchor marginal is made exact: keep (n,) of each anchor, then where the mass set free goes.

    stay : (C,) share of a class's free mass that stays in the class; within : (n,) its shares, summing to one by class;
    across : (n,) shares of the rest.
    """

    keep: FloatArray
    stay: FloatArray
    within: FloatArray
    across: FloatArray

    @classmethod
    def of(cls, ds: DecisionSet, mass: FloatArray) -> _AnchorRepair:
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

    def cost(self, ds: DecisionSet, D: FloatArray, joint: FloatArray, share: FloatArray) -> FloatArray:
        """(B,) cost of the repaired plan, per unit of row weight, of a chunk of rows."""
        starts, label_cost = ds.class_offsets[:-1], ds.present_label_cost
        held = share * self.keep
        kept = np.add.reduceat(held, starts, axis=1)
        kept_distance = np.add.reduceat(held * D, starts, axis=1)
        free = joint * (1.0 - kept)[:, None, :]
        moved_distance = np.add.reduceat(D * self.within, starts, axis=1)
        inside = joint * (kept_distance[:, None, :] + kept[:, None, :] * label_cost)
        inside += free * self.stay * (moved_distance[:, None, :] + label_cost)
        leaving = (free * (1.0 - self.stay)).sum(axis=2)
        outside = leaving.sum(axis=1) * (D @ self.across) + leaving @ (ds.label_cost[:, ds.anchor_labels] @ self.across)
        return inside.sum(axis=(1, 2)) + outside


def _soft_plan(
    ds: DecisionSet, model: Model, point: DualPoint, tau: float
) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Chunks of (rows, joint (B, K, C) = P(label, class of anchor | row), share (B, n) = P(anchor | row, class))."""
    starts = ds.class_offsets[:-1]
    for rows in row_chunks(*ds.distances.shape):
        V = (point.alpha * ds.distances[rows] + point.beta) / -tau
        top = np.maximum.reduceat(V, starts, axis=1)
        share = np.exp(V - top[:, ds.anchor_slots])
        total = np.add.reduceat(share, starts, axis=1)
        share /= total[:, ds.anchor_slots]
        soft = top + np.log(total)
        gain = (model.losses(point.theta, rows) - point.lam) / tau
        logits = gain[:, :, None] - point.alpha / tau * ds.present_label_cost + soft[:, None, :]
        joint = np.exp(logits - logsumexp(logits, axis=(1, 2), keepdims=True))
        joint /= joint.sum(axis=(1, 2), keepdims=True)
        yield rows, joint, share


def feasible_adversary(ds: DecisionSet, wanted: Adversary, nearest: Adversary) -> Adversary:
    """Move `wanted` into the decision set: labels into their intervals, then towards the cheapest one, `nearest`."""
    inside = _labels_into_intervals(ds, wanted)
    limit = max(ds.radius, nearest.transport_cost * (1.0 + FEASIBILITY))
    if inside.transport_cost <= limit:
        return inside
    spare = inside.transport_cost - nearest.transport_cost
    t = min(1.0, (inside.transport_cost - limit) / spare) if spare > 0 else 1.0
    q = (1.0 - t) * inside.label_proba + t * nearest.label_proba
    return Adversary(q, (1.0 - t) * inside.transport_cost + t * nearest.transport_cost)


def _labels_into_intervals(ds: DecisionSet, adversary: Adversary) -> Adversary:
    p = adversary.label_probabilities(ds)
    lo, hi = ds.intervals.T
    give, take = np.maximum(p - hi, 0.0), np.maximum(lo - p, 0.0)
    missing = give.sum() - take.sum()
    if missing > 0:
        room = np.maximum(hi - p - take, 0.0)
        take += room * (missing / max(room.sum(), 1e-300))
    elif missing < 0:
        room = np.maximum(p - lo - give, 0.0)
        give += room * (-missing / max(room.sum(), 1e-300))
    if min(give.sum(), take.sum()) <= 1e-15:  # rounding of the sum of label_proba, nothing to move
        return adversary
    share = np.divide(give, p, out=np.zeros_like(p), where=p > 0)
    change = np.diag(1.0 - share) + np.outer(share, take / take.sum())
    cost = ds.label_cost[:, ds.present]
    dearer = np.maximum((cost[None, :, :] - cost[:, None, :]).max(axis=2), 0.0)  # [from, to]
    added = float(give @ dearer @ take / take.sum())
    return Adversary(adversary.label_proba @ change, adversary.transport_cost + added)


@dataclass(frozen=True)
class LowerBound:
    """Smallest loss of the model under the adversary's labels; `unbounded` when no finite θ attains it."""

    value: float
    unbounded: bool = False


def lower_bound(ds: DecisionSet, model: Model, adversary: Adversary, theta: FloatArray) -> LowerBound:
    """Minimum over θ of E_q ℓ(θ) + ½ θᵀRθ, from below."""
    if isinstance(model, FixedLosses):
        return LowerBound(float(ds.row_weights @ (adversary.label_proba * model.matrix).sum(axis=1)))
    return _LogisticDual(model, ds.row_weights, adversary.label_proba).bound(theta)


class _LogisticDual:
    """Weighted logistic regression with soft labels q: max Σ m H(s) − ½ θᵀRθ over s with Σ m (s − q) xᵀ = −Rθ.

    s = softmax(Xθ) moved by one linearised Newton step satisfies the constraint exactly, so its value is a true lower
    bound.
    """

    def __init__(self, model: LinearModel, weights: FloatArray, q: FloatArray):
        kept = weights > 0  # a row without mass takes no part, and its scores may be anything
        self.model, self.m, self.q = replace(model, X=model.X[kept]), weights[kept], q[kept]
        self.penalty = cast("FloatArray", np.kron(model.penalty_coupling(), np.diag(model.penalty)))

    def bound(self, theta: FloatArray, max_steps: int = 25) -> LowerBound:
        shape = theta.shape
        best = float(self.m @ entr(self.q).sum(axis=1)) if not self.model.penalty.any() else 0.0
        value = self._primal(theta)
        unbounded = self._recedes(theta)
        for _ in range(max_steps):
            s, step, moved = self._newton_step(theta)
            drift = np.abs(moved).max(initial=0.0)
            bound = self._dual_value(s, moved, theta + step.reshape(shape))
            best = max(best, bound)
            unbounded = unbounded or drift > 0.05
            if value - best <= 1e-12 * max(1.0, abs(value)) or drift < 1e-9:
                unbounded = (unbounded and drift > 1e-6) or self._recedes(theta)
                break
            size = 1.0
            while size > 1e-6:
                trial = self._primal(theta + size * step.reshape(shape))
                if trial <= value:
                    break
                size *= 0.5
            else:
                break
            theta, value = theta + size * step.reshape(shape), trial
        return LowerBound(best, unbounded)

    def _recedes(self, theta: FloatArray) -> bool:
        """Whether the loss under q falls all the way along θ, to scores so large that it has nothing left to lose."""
        scores = self.model.scores(theta, slice(None))
        size = np.abs(scores).max(initial=0.0)
        slope = self.m @ (scores.max(axis=1) - (self.q * scores).sum(axis=1))
        return size > 15.0 and slope <= 1e-9 * size and not self.model.penalty.any()

    def _primal(self, theta: FloatArray) -> float:
        losses = log_loss_matrix(self.model.scores(theta, slice(None)))
        return float(self.m @ (self.q * losses).sum(axis=1)) + self.model.penalty_value(theta)

    def _newton_step(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Probabilities s (N, K), the Newton step (flat) and the relative change (N, K) of s that it makes."""
        X = self.model.X
        s = probabilities(self.model.scores(theta, slice(None)))
        free, p = theta.shape
        g = ((self.m[:, None] * (s - self.q))[:, 1:].T @ X + self.model.penalty_gradient(theta)).ravel()
        H = self.penalty.copy()
        for a in range(free):
            for b in range(a + 1):
                weight = self.m * (s[:, a + 1] * (float(a == b) - s[:, b + 1]))
                block = X.T @ (X * weight[:, None])
                H[a * p : (a + 1) * p, b * p : (b + 1) * p] += block
                if a != b:
                    H[b * p : (b + 1) * p, a * p : (a + 1) * p] += block.T
        step = -_solve_symmetric(H, g)
        eta = self.model.scores(step.reshape(free, p), slice(None))
        return s, step, eta - (s * eta).sum(axis=1, keepdims=True)

    def _dual_value(self, s: FloatArray, moved: FloatArray, theta: FloatArray) -> float:
        if moved.min() < -1.0:
            return -np.inf
        s = s * (1.0 + moved)
        residual = (self.m[:, None] * (s - self.q))[:, 1:].T @ self.model.X + self.model.penalty_gradient(theta)
        # what rounding leaves of the constraint is paid for at twice the size of θ
        slack = 2.0 * float(np.abs(residual).ravel() @ (1.0 + np.abs(theta)).ravel())
        return float(self.m @ entr(s).sum(axis=1)) - self.model.penalty_value(theta) - slack


def _solve_symmetric(H: FloatArray, g: FloatArray) -> FloatArray:
    scale = 1.0 / np.sqrt(np.maximum(H.diagonal(), 1e-300))
    scaled = H * scale[:, None] * scale
    try:
        factor = cho_factor(scaled + 1e-13 * np.eye(len(g)), check_finite=False)
        x = cho_solve(factor, g * scale, check_finite=False)
        x += cho_solve(factor, g * scale - scaled @ x, check_finite=False)
        if np.abs(scaled @ x - g * scale).max(initial=0.0) <= 1e-10 * np.abs(g * scale).max(initial=1e-300):
            return x * scale
    except np.linalg.LinAlgError:
        x = np.zeros_like(g)
    return lstsq(scaled, g * scale, check_finite=False)[0] * scale
