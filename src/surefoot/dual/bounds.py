"""Both bounds of a robust problem, recomputed from a dual point by plain NumPy: nothing here is the solver's.

Upper: the exact dual value. Lower: the labels q of the soft plan, repaired until a transport plan proves them feasible,
for which `smallest_loss` finds the smallest loss that any classifier of the model can have. What runs over rows is
additive over blocks of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from surefoot._errors import warn_caller
from surefoot._types import FloatArray
from surefoot.dual.models import Model
from surefoot.dual.objective import DualPoint
from surefoot.problem.sets import DecisionSet, row_chunks

# At the minimal radius the set has no interior; there, and nowhere else, the adversary may exceed it by this share of
# it, less where a few rows far away make it large, or by what float64 loses of it: see `allowance`.
FEASIBILITY = 2.5e-7
# Share of the upper bound, at least of 1, by which the lower one may lie above it: that of rounding and the allowance.
_CROSSING = 1e-6
_ROUNDING = 8.0 * float(np.finfo(float).eps)


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
    repair = AnchorRepair.of(ds, plan_mass(ds, model, point, tau))
    return repaired_plan(ds, model, point, tau, repair)


def plan_mass(ds: DecisionSet, model: Model, point: DualPoint, tau: float) -> FloatArray:
    """(n,) what the softmax plan brings to each anchor: a sum over rows."""
    mass = np.zeros(len(ds.anchor_weights))
    for rows, _, joint, share in _soft_plan(ds, model, point, tau):
        mass += ds.row_weights[rows] @ (joint.sum(axis=1)[:, ds.anchor_slots] * share)
    return mass


def repaired_plan(ds: DecisionSet, model: Model, point: DualPoint, tau: float, repair: AnchorRepair) -> Adversary:
    """Labels of the softmax plan, and its cost, a sum over rows, once its anchor marginal is repaired."""
    q = np.empty((len(ds.row_weights), ds.n_classes))
    cost = 0.0
    for rows, D, joint, share in _soft_plan(ds, model, point, tau):
        q[rows] = joint.sum(axis=2)
        cost += float(ds.row_weights[rows] @ repair.cost(ds, D, joint, share))
    return Adversary(q, cost)


def soft_labels(ds: DecisionSet, model: Model, point: DualPoint, tau: float) -> FloatArray:
    """(N, K) labels of the softmax plan."""
    return np.concatenate([joint.sum(axis=2) for _, _, joint, _ in _soft_plan(ds, model, point, tau)])


def soft_shares(distances: FloatArray, potentials: FloatArray, tau: float) -> FloatArray:
    """(B, n) P(anchor | row) of the softmax plan of plain transport."""
    return cast("FloatArray", softmax((distances + potentials) / -tau, axis=1))


@dataclass(frozen=True)
class AnchorRepair:
    """How a plan's anchor marginal is made exact: keep (n,) of each anchor, then where the mass set free goes.

    stay : (C,) share of a class's free mass that stays in the class; within : (n,) its shares, summing to one by class;
    across : (n,) shares of the rest.
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

    def class_shares(self, share: FloatArray, classes: FloatArray) -> FloatArray:
        """(B, C) class shares of the repaired plan of a problem without labels; classes (n, C) is one-hot."""
        held = share * self.keep
        return held @ classes + (1.0 - held.sum(axis=1))[:, None] * (self.within @ classes)


def _soft_plan(
    ds: DecisionSet, model: Model, point: DualPoint, tau: float
) -> Iterator[tuple[slice, FloatArray, FloatArray, FloatArray]]:
    """Chunks of rows: distances (B, n), P(label, class of anchor | row) (B, K, C), P(anchor | row, class) (B, n)."""
    starts = ds.class_offsets[:-1]
    for rows in row_chunks(*ds.distances.shape):
        D = ds.distances[rows]
        V = (point.alpha * D + point.beta) / -tau
        top = np.maximum.reduceat(V, starts, axis=1)
        share = np.exp(V - top[:, ds.anchor_slots])
        total = np.add.reduceat(share, starts, axis=1)
        share /= total[:, ds.anchor_slots]
        soft = top + np.log(total)
        gain = (model.losses(point.theta, rows) - point.lam) / tau
        logits = gain[:, :, None] - point.alpha / tau * ds.present_label_cost + soft[:, None, :]
        joint = np.exp(logits - logsumexp(logits, axis=(1, 2), keepdims=True))
        joint /= joint.sum(axis=(1, 2), keepdims=True)
        yield rows, D, joint, share


def feasible_adversary(ds: DecisionSet, wanted: Adversary, nearest: Adversary) -> Adversary:
    """Move `wanted` into the decision set: labels into their intervals, then towards the cheapest one, `nearest`."""
    change, added = label_repair(ds, wanted.label_probabilities(ds))
    inside = Adversary(wanted.label_proba @ change, wanted.transport_cost + added) if change is not None else wanted
    t = retreat(ds, inside.transport_cost, nearest.transport_cost)
    if t == 0:
        return inside
    q = (1.0 - t) * inside.label_proba + t * nearest.label_proba
    return Adversary(q, (1.0 - t) * inside.transport_cost + t * nearest.transport_cost)


def retreat(ds: DecisionSet, cost: float, nearest: float) -> float:
    """How far to go from a distribution of this cost towards one of cost `nearest`, to be within the radius."""
    limit = opened_radius(ds, nearest)
    if cost <= limit:
        return 0.0
    return min(1.0, (cost - limit) / (cost - nearest)) if cost > nearest else 1.0


def opened_radius(ds: DecisionSet, nearest: float, share: float = 1.0) -> float:
    """The radius, or where that is the minimal one, `nearest`, one larger by a share of the allowance."""
    if ds.radius >= nearest * (1.0 + FEASIBILITY):
        return ds.radius
    return max(ds.radius, nearest + share * allowance(ds, nearest))


def allowance(ds: DecisionSet, nearest: float) -> float:
    """What an adversary may cost beyond the minimal radius `nearest`.

    It buys changes of labels, at no less than the least label cost. A row r times as far away as others can make the
    radius as large as one likes, and a label changed there can cost a classifier r times as much: so the share is
    taken of the least of these costs, and divided by what the radius exceeds the typical distance by.
    """
    label_cost = float(ds.label_cost[ds.label_cost > 0].min(initial=np.inf))
    distance = ds.median_distance or label_cost
    share = FEASIBILITY * min(nearest, distance, label_cost) * min(1.0, distance / max(nearest, 1e-300))
    return max(share, _ROUNDING * nearest)


def meet(risk: float, lower: float) -> float:
    """The lower bound, at most the upper one: they may cross by rounding, and what crosses further is reported."""
    if lower - risk > _CROSSING * max(1.0, abs(risk)):
        warn_caller(
            f"the bounds cross by {lower - risk:.2e}: risk = {risk:.6g} holds, but the lower bound {lower:.6g} does "
            "not, since float64 cannot tell this radius from the minimal one. Raise the radius, or bring features and "
            "label costs to similar scales.",
            ConvergenceWarning,
        )
    return min(lower, risk)


def label_repair(ds: DecisionSet, p: FloatArray) -> tuple[FloatArray | None, float]:
    """What moves label probabilities p (K,) into their intervals: a matrix (K, K), from by to, and what it costs."""
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
        return None, 0.0
    share = np.divide(give, p, out=np.zeros_like(p), where=p > 0)
    change = np.diag(1.0 - share) + np.outer(share, take / take.sum())
    cost = ds.label_cost[:, ds.present]
    dearer = np.maximum((cost[None, :, :] - cost[:, None, :]).max(axis=2), 0.0)  # [from, to]
    return change, float(give @ dearer @ take / take.sum())
