"""Both bounds of a robust problem, from a dual point: nothing here is the solver's.

Upper: the exact dual value. Lower: the labels q of the soft plan, repaired until a transport plan proves them feasible,
for which `smallest_loss` finds the smallest loss that any classifier of the model can have. What runs over rows is
additive over blocks of them, and runs on NumPy arrays and on tensors alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from surefoot._types import FloatArray
from surefoot.dual.arrays import arrays_of
from surefoot.dual.models import Model
from surefoot.dual.point import DualPoint
from surefoot.problem.sets import DecisionSet, row_chunks


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
    beta = _centred(ds, point)
    terms = point.alpha * ds.radius + ds.anchor_weights @ np.abs(beta) + np.abs(point.lam).sum()
    terms += np.abs(beta).max() / 16.0  # what a row loses where α d and β cancel
    total = point.alpha * ds.radius + ds.anchor_weights @ beta + _support(ds, point.lam).sum()
    return float(total + 32.0 * np.finfo(float).eps * terms)


def _support(ds: DecisionSet, lam: FloatArray) -> FloatArray:
    """(K,) λ̄ p_hi − λ p_lo."""
    return np.where(lam >= 0, lam * ds.intervals[:, 1], lam * ds.intervals[:, 0])


def reduced_dual_constant(ds: DecisionSet, point: DualPoint, prices: DualPoint) -> float:
    """`dual_constant` at the point moved by α times the prices, less what the prices alone give.

    The radius of ds is the excess over the minimal one, and β has mean zero.
    """
    moved, bound = point.lam + point.alpha * prices.lam, ds.intervals[np.arange(ds.n_classes), 1 * (prices.lam > 0)]
    across = _support(ds, moved) - point.alpha * prices.lam * bound
    labels = np.where(moved * prices.lam > 0, point.lam * bound, across)  # without cancellation
    terms = np.abs(point.beta).max() + np.abs(point.lam).sum()
    total = point.alpha * ds.radius + ds.anchor_weights @ point.beta + labels.sum()
    return float(total + 32.0 * np.finfo(float).eps * terms)


def row_values(ds: DecisionSet, distances: Any, losses: Any, point: DualPoint) -> Any:
    """(B,) Φ_j = max_{k,i} ℓ_jk − α c((x_j, k), z_i) − β_i − λ_k at rows with these distances (B, n), losses (B, K)."""
    xp = arrays_of(distances)
    fused, beta = xp.fused(distances), xp.send(_centred(ds, point))
    if fused is None:
        least = xp.least_by_class(point.alpha * distances + beta, ds)
    else:
        least = fused.class_least(distances, point.alpha, beta, ds.class_columns)
    gain = (losses - xp.send(point.lam))[:, :, None] - point.alpha * xp.send(ds.present_label_cost)
    return xp.largest(gain - least[:, None, :], (1, 2))


def largest_row_value(ds: DecisionSet, point: DualPoint, largest_loss: float) -> float:
    """Supremum of Φ over all rows there could be, where no loss exceeds `largest_loss`."""
    price = point.lam[:, None] + point.alpha * ds.label_cost[:, ds.anchor_labels] + _centred(ds, point)
    return float(largest_loss - price.min())


def _centred(ds: DecisionSet, point: DualPoint) -> FloatArray:
    return point.beta - ds.anchor_weights @ point.beta


def soft_plan(ds: DecisionSet, distances: Any, losses: Any, point: DualPoint, tau: float) -> tuple[Any, Any]:
    """The softmax plan of some rows: P(label, class of anchor | row) (B, K, C), P(anchor | row, class) (B, n)."""
    xp = arrays_of(distances)
    slots = xp.slots(ds)
    V = (point.alpha * distances + xp.send(point.beta)) / -tau
    top = xp.largest_by_class(V, ds)
    share = xp.exp(V - top[:, slots])
    total = xp.sum_by_class(share, ds)
    share /= total[:, slots]
    return joint_plan(ds, top + xp.log(total), losses, point, tau), share


def joint_plan(ds: DecisionSet, soft: Any, losses: Any, point: DualPoint, tau: float) -> Any:
    """P(label, class of anchor | row) (B, K, C), from log Σ exp(−(α d + β) / τ) over the anchors of each class."""
    xp = arrays_of(soft)
    gain = (losses - xp.send(point.lam)) / tau
    logits = gain[:, :, None] - point.alpha / tau * xp.send(ds.present_label_cost) + soft[:, None, :]
    joint = xp.exp(logits - xp.log_total(logits))
    joint /= joint.sum(axis=(1, 2), keepdims=True)
    return joint


def soft_labels(ds: DecisionSet, distances: Any, losses: Any, point: DualPoint, tau: float) -> Any:
    """(B, K) labels of the softmax plan."""
    xp = arrays_of(distances)
    fused = xp.fused(distances)
    if fused is None:
        return soft_plan(ds, distances, losses, point, tau)[0].sum(axis=2)
    soft = fused.class_totals(distances, point.alpha, xp.send(point.beta), tau, ds.class_columns)
    return joint_plan(ds, soft, losses, point, tau).sum(axis=2)


@dataclass(frozen=True)
class AnchorRepair:
    """How a plan's anchor marginal is made exact: keep (n,) of each anchor, then where the mass set free goes.

    stay : (C,) share of a class's free mass that stays in the class; within : (n,) its shares, summing to one by class;
    across : (n,) shares of the rest.

    Anchors that received too much are scaled down; the mass set free goes to the anchors of the same class that lack
    it, and what is then left to those of other classes. Labels do not change.
    """

    keep: FloatArray
    stay: FloatArray
    within: FloatArray
    across: FloatArray

    @classmethod
    def of(cls, ds: DecisionSet, mass: FloatArray) -> AnchorRepair:
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
        """Of a problem without labels: the plan that ignores where rows lie."""
        nothing = np.zeros(len(ds.anchor_weights))
        return cls(nothing, np.ones(1), ds.anchor_weights, nothing)

    def plan(
        self, ds: DecisionSet, D: Any, losses: Any, point: DualPoint, tau: float
    ) -> tuple[Any, tuple[Any, Any, Any, Any]]:
        """The softmax plan of some rows, P(label, class | row) (B, K, C), and what `cost` needs of it.

        Per row and class (B, C): the share that is kept, its distance, and the distance of what is moved within the
        class; per row (B,) the distance of what is moved to other classes.
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
        """What `cost` needs of P(anchor | row, class) (B, n)."""
        xp = arrays_of(D)
        held = share * xp.send(self.keep)
        moved = xp.sum_by_class(D * xp.send(self.within), ds)
        return xp.sum_by_class(held, ds), xp.sum_by_class(held * D, ds), moved, D @ xp.send(self.across)

    @property
    def shares(self) -> FloatArray:
        """(3, n) keep, within, across."""
        return np.stack([self.keep, self.within, self.across])

    def cost(self, ds: DecisionSet, joint: Any, moments: tuple[Any, Any, Any, Any]) -> Any:
        """(B,) cost of the repaired plan, per unit of row weight, of a chunk of rows: from what `plan` gives."""
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
        """(B, K) class shares of the repaired plan of a problem without labels; classes (n, K) is one-hot, in order."""
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
