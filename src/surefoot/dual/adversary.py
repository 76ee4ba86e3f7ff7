"""Adversaries: distributions in (or near) a decision set, given by the labels that they assign to the rows.

For rows in memory, the labels are a table. Over blocks, they are a rule, a function from a block to labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from surefoot._errors import warn_caller
from surefoot._validation import FloatArray, InexactWarning
from surefoot.dual.bounds import AnchorRepair, soft_labels
from surefoot.dual.models import DualPoint
from surefoot.kernels.arrays import arrays_of
from surefoot.problem.distances import Distances, row_chunks
from surefoot.problem.sets import DecisionSet

# At the minimal radius the set has no interior. Only there, the adversary may exceed the radius by this share of it. If
# a few distant rows make the radius large, the excess is smaller, but at least a rounding error: see `allowance`.
FEASIBILITY = 2.5e-7
# Rounding and the allowance may make the lower bound exceed the upper bound by this share of it, or of 1 if larger.
_CROSSING = 1e-6
# The relative rounding error of a sum over rows.
_ROUNDING = 8.0 * float(np.finfo(float).eps)


class LabeledBlock(Protocol):
    """Rows as an adversary sees them: distances (B, n) and a model over the rows, starting at row `start`."""

    @property
    def start(self) -> int: ...
    @property
    def distances(self) -> Distances: ...
    @property
    def weights(self) -> Any: ...
    def losses_at(self, point: DualPoint, tau: float, rows: slice) -> Any: ...


class LabelRule(Protocol):
    """Labels (B, K) of the rows of a block."""

    def labels_on(self, block: LabeledBlock) -> Any: ...


class Adversary(LabelRule, Protocol):
    """Labels, and the cost of an explicit plan to the labeled distribution, an upper bound on W_c(μ, P̂_l)."""

    @property
    def transport_cost(self) -> float: ...
    def relabeled(self, change: FloatArray, added: float) -> Adversary:
        """Return the adversary with label probabilities q @ change, and a cost larger by `added`."""


@dataclass(frozen=True)
class LabelTable:
    """An adversary over rows in memory.

    label_proba : (N, K) q_jk = μ(y=k | x_j).
    transport_cost : cost of an explicit plan to the labeled distribution, an upper bound on W_c(μ, P̂_l).
    """

    label_proba: FloatArray
    transport_cost: float

    def label_probabilities(self, decision_set: DecisionSet) -> FloatArray:
        """Return the label probabilities (K,) μ(y=k)."""
        return decision_set.row_weights @ self.label_proba

    def labels_on(self, block: LabeledBlock) -> Any:
        stop = block.start + len(block.weights)
        return arrays_of(block.weights).send(self.label_proba[block.start : stop])

    def relabeled(self, change: FloatArray, added: float) -> LabelTable:
        return LabelTable(self.label_proba @ change, self.transport_cost + added)


@dataclass(frozen=True)
class RuleMixture:
    """An adversary over blocks: Σ weight · (labels of a rule, times a matrix (K, K) of [from, to], or None)."""

    parts: tuple[tuple[float, LabelRule, FloatArray | None], ...]
    transport_cost: float

    def labels_on(self, block: LabeledBlock) -> Any:
        xp, total = arrays_of(block.weights), None
        for weight, rule, change in self.parts:
            q = rule.labels_on(block)
            q = weight * (q if change is None else q @ xp.send(change))
            total = q if total is None else total + q
        return total

    def relabeled(self, change: FloatArray, added: float) -> RuleMixture:
        parts = tuple((w, rule, change if before is None else before @ change) for w, rule, before in self.parts)
        return RuleMixture(parts, self.transport_cost + added)


def mixture(adversaries: list[Adversary], weights: FloatArray) -> Adversary:
    """Return the mixture Σ weight · adversary. The weights (S,) sum to one."""
    cost = float(sum(w * one.transport_cost for w, one in zip(weights, adversaries, strict=True)))
    used = [(float(w), one) for w, one in zip(weights, adversaries, strict=True) if w > 0]
    if len(used) == 1:
        return used[0][1]
    if all(isinstance(one, LabelTable) for _, one in used):
        tables = [w * one.label_proba for w, one in used if isinstance(one, LabelTable)]
        return LabelTable(sum(tables[1:], tables[0]), cost)
    parts: list[tuple[float, LabelRule, FloatArray | None]] = []
    for weight, one in used:
        inner = one.parts if isinstance(one, RuleMixture) else ((1.0, one, None),)
        parts += [(weight * share, rule, change) for share, rule, change in inner]
    return RuleMixture(tuple(parts), cost)


@dataclass(frozen=True, eq=False)
class SoftPlanLabels:
    """Labels of the softmax plan of a decision set (without rows) at a dual point and smoothing."""

    decision_set: DecisionSet
    point: DualPoint
    tau: float

    def labels_on(self, block: LabeledBlock) -> Any:
        ds, xp = self.decision_set, arrays_of(block.weights)
        q = xp.zeros((len(block.weights), ds.n_classes))
        for rows in row_chunks(len(block.weights), block.distances.shape[1], xp.entries):
            losses = block.losses_at(self.point, self.tau, rows)
            q[rows] = soft_labels(ds, block.distances[rows], losses, self.point, self.tau)
        return q


@dataclass(frozen=True, eq=False)
class NearestPlanLabels:
    """Labels of a transport plan between rows and anchors: softmax at potentials, then repaired, then relabeled.

    potentials : (n,), tau : of the plain transport problem; classes : (n, K) one-hot.
    relabel : (K, K), [k, c] is the share of class c that receives label k.
    """

    potentials: FloatArray
    tau: float
    repair: AnchorRepair
    classes: FloatArray
    relabel: FloatArray

    def labels_on(self, block: LabeledBlock) -> Any:
        xp = arrays_of(block.weights)
        q = xp.zeros((len(block.weights), len(self.relabel)))
        for rows in row_chunks(len(block.weights), block.distances.shape[1], xp.entries):
            shares = self.repair.class_shares(block.distances[rows], self.potentials, self.tau, self.classes)
            q[rows] = shares @ xp.send(self.relabel.T)
        return q


def feasible_adversary(ds: DecisionSet, wanted: Adversary, shares: FloatArray, nearest: Adversary) -> Adversary:
    """Move `wanted` into the decision set: first its labels into the intervals, then towards the cheapest, `nearest`.

    shares : (K,) the label probabilities of `wanted`.
    """
    change, added = label_repair(ds, shares)
    inside = wanted if change is None else wanted.relabeled(change, added)
    t = retreat(ds, inside.transport_cost, nearest.transport_cost)
    return inside if t == 0 else mixture([inside, nearest], np.array([1.0 - t, t]))


def retreat(ds: DecisionSet, cost: float, nearest: float) -> float:
    """Return the share of `nearest` that brings a mixture with an adversary of the given cost within the radius."""
    limit = opened_radius(ds, nearest)
    if cost <= limit:
        return 0.0
    return min(1.0, (cost - limit) / (cost - nearest)) if cost > nearest else 1.0


def opened_radius(ds: DecisionSet, nearest: float, share: float = 1.0) -> float:
    """Return the radius. If it equals the minimal radius, `nearest`, enlarge it by a share of the allowance."""
    if ds.radius >= nearest * (1.0 + FEASIBILITY):
        return ds.radius
    return max(ds.radius, nearest + share * allowance(ds, nearest))


def allowance(ds: DecisionSet, nearest: float) -> float:
    """Return the cost by which an adversary may exceed the minimal radius `nearest`.

    The adversary spends this cost on changing labels, and each change costs at least the smallest label cost. Rows that
    are r times as far away as the rest can make the radius arbitrarily large. A label changed there can cost a
    classifier r times as much. Therefore the share applies to the smallest cost (radius, distance or label cost),
    divided by the ratio of the radius to a typical radius.
    """
    label_cost = float(ds.label_cost[ds.label_cost > 0].min(initial=np.inf))
    distance = ds.median_distance or label_cost
    typical = max(distance, float(ds.label_cost.max()))  # bounds the radius if there are no distant rows
    share = FEASIBILITY * min(nearest, distance, label_cost) * min(1.0, typical / max(nearest, 1e-300))
    return max(share, _ROUNDING * nearest)


_AT_MINIMAL = ("float64 cannot tell this radius from the minimal one.", "Raise $radius, or bring")
ROUNDED = ("float64 rounds them so far.", "Bring")


def meet(risk: float, lower: float, why: tuple[str, str] = _AT_MINIMAL) -> float:
    """Return the lower bound, cut at the upper bound. Rounding may make them cross. Report a larger crossing."""
    if lower - risk > _CROSSING * max(1.0, abs(risk)):
        warn_caller(
            InexactWarning(
                "crossed_bounds",
                f"the bounds cross by {lower - risk:.2e}: risk = {risk:.6g} holds, but the lower bound {lower:.6g} "
                f"does not, because {why[0]}",
                f"{why[1]} features and label costs to similar scales.",
                risk=risk,
                lower=lower,
            )
        )
    return min(lower, risk)


def label_repair(ds: DecisionSet, p: FloatArray) -> tuple[FloatArray | None, float]:
    """Move label probabilities p (K,) into their intervals. Return a matrix (K, K), [from, to], and the cost."""
    lo, hi = ds.intervals.T
    give, take = np.maximum(p - hi, 0.0), np.maximum(lo - p, 0.0)
    missing = give.sum() - take.sum()
    if missing > 0:
        room = np.maximum(hi - p - take, 0.0)
        take += room * (missing / max(room.sum(), 1e-300))
    elif missing < 0:
        room = np.maximum(p - lo - give, 0.0)
        give += room * (-missing / max(room.sum(), 1e-300))
    if min(give.sum(), take.sum()) <= 1e-15:  # only rounding errors of the sum of label_proba
        return None, 0.0
    share = np.divide(give, p, out=np.zeros_like(p), where=p > 0)
    change = np.diag(1.0 - share) + np.outer(share, take / take.sum())
    cost = ds.label_cost[:, ds.present]
    dearer = np.maximum((cost[None, :, :] - cost[:, None, :]).max(axis=2), 0.0)  # [from, to]
    return change, float(give @ dearer @ take / take.sum())
