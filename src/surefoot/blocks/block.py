"""One block of rows, and the sums over it that the solver and the bounds need.

Everything here is small (the header, parameters, sums) or one block long; distances are computed where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.certificates.fresh import fingerprints
from surefoot.costs import FeatureMetric
from surefoot.dual.bounds import AnchorRepair, plan_mass, repaired_plan, row_values, soft_labels, soft_shares
from surefoot.dual.models import FixedLosses, LinearModel, Model
from surefoot.dual.objective import DualPoint, RowSums, SmoothedDual
from surefoot.dual.smallest_loss import SoftLabels, Tally
from surefoot.problem.sets import DecisionSet, row_chunks


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The design matrix of a block: features less their mean, over their scale, in a basis, and the constant one."""

    mean: FloatArray
    scale: FloatArray
    basis: FloatArray | None
    fit_intercept: bool

    def design(self, rows: FloatArray) -> FloatArray:
        """(B, p)."""
        unit = (rows - self.mean) / self.scale
        if self.basis is not None:
            unit = unit @ self.basis
        return np.hstack([unit, np.ones((len(rows), 1))]) if self.fit_intercept else unit


@dataclass(frozen=True, eq=False)
class Header:
    """All of a robust problem but its rows.

    decision_set : without rows; anchors : (n, d) labeled rows in its order; coordinates, penalty : of a linear model,
    None and (0,) for fixed losses.
    """

    decision_set: DecisionSet
    anchors: FloatArray
    metric: FeatureMetric
    coordinates: Coordinates | None
    penalty: FloatArray

    @property
    def model(self) -> Model:
        """The model, without rows."""
        K = self.decision_set.n_classes
        if self.coordinates is None:
            return FixedLosses(np.empty((0, K)))
        return LinearModel(np.empty((0, len(self.penalty))), self.penalty, K)

    def with_radius(self, radius: float) -> Header:
        return replace(self, decision_set=self.decision_set.with_radius(radius))

    def without_labels(self) -> Header:
        """The plain transport problem between rows and anchors: the feature part of the minimal radius."""
        ds = self.decision_set
        plain = replace(
            ds,
            anchor_labels=np.zeros(len(ds.anchor_weights), dtype=np.intp),
            label_cost=np.zeros((1, 1)),
            intervals=np.ones((1, 2)),
            radius=0.0,
        )
        return replace(self, decision_set=plain, coordinates=None, penalty=np.empty(0))


class _Distances:
    """Distances (B, n), computed for the rows that are asked for."""

    def __init__(self, metric: FeatureMetric, rows: FloatArray, anchors: FloatArray):
        self._metric, self._rows, self._anchors = metric, rows, anchors
        self.shape = (len(rows), len(anchors))
        self.size = len(rows) * len(anchors)

    def __getitem__(self, rows: slice) -> FloatArray:
        return self._metric.distances(self._rows[rows], self._anchors)


@dataclass(frozen=True)
class NearestPlan:
    """A transport plan between rows and anchors, as a function of a row: softmax at potentials, then repaired.

    potentials : (n,), tau : of the plain transport problem; classes : (n, K) one-hot; relabel : (K, K), [k, c] the
    share of class c that gets label k; cost : of the whole, an upper bound of the minimal radius.
    """

    potentials: FloatArray
    tau: float
    repair: AnchorRepair
    classes: FloatArray
    relabel: FloatArray
    cost: float


@dataclass(frozen=True)
class BlockAdversary:
    """A distribution of the decision set, as a function of a row.

    Labels of the softmax plan at (point, tau), moved by `change` (K, K) into their intervals, then the share `away`
    of the way to the nearest plan.
    """

    point: DualPoint
    tau: float
    change: FloatArray | None
    away: float
    nearest: NearestPlan
    transport_cost: float


@dataclass(frozen=True, eq=False)
class Block:
    """Rows (B, d) of weights m (B,), and for fixed losses their losses (B, K)."""

    header: Header
    rows: FloatArray
    weights: FloatArray
    losses: FloatArray | None = None
    distances: FloatArray | None = None  # where there is memory to keep them

    @cached_property
    def decision_set(self) -> DecisionSet:
        distances: Any = self.distances
        if distances is None:
            distances = _Distances(self.header.metric, self.rows, self.header.anchors)
        return replace(self.header.decision_set, distances=cast("FloatArray", distances), row_weights=self.weights)

    @cached_property
    def model(self) -> Model:
        header = self.header
        if header.coordinates is None:
            K = header.decision_set.n_classes
            return FixedLosses(np.zeros((len(self.rows), K)) if self.losses is None else self.losses)
        X = header.coordinates.design(self.rows)
        return LinearModel(X, header.penalty, header.decision_set.n_classes)

    def row_sums(self, point: DualPoint, tau: float, alpha_free: bool, second_order: bool) -> RowSums:
        """What the smoothed dual and its derivatives are made of."""
        dual = SmoothedDual(self.decision_set, self.model, alpha_free=alpha_free)
        return dual.row_sums(point, tau, second_order=second_order)

    exact_row_sums = row_sums

    def dual_rows(self, point: DualPoint) -> Tally:
        """Σ m Φ, exact; the largest −Φ."""
        ds, total, low = self.decision_set, 0.0, -np.inf
        for part in row_chunks(*ds.distances.shape):
            values = row_values(ds, ds.distances[part], self.model.losses(point.theta, part), point)
            total += float(self.weights[part] @ values)
            low = max(low, float(-values.min()))
        return Tally((np.array([total]),), (low,))

    def mass(self, point: DualPoint, tau: float) -> Tally:
        return Tally((plan_mass(self.decision_set, self.model, point, tau),))

    def plan(self, point: DualPoint, tau: float, repair: AnchorRepair) -> Tally:
        """Cost of the repaired plan, and its label probabilities (K,)."""
        found = repaired_plan(self.decision_set, self.model, point, tau, repair)
        return Tally((np.array([found.transport_cost]), self.weights @ found.label_proba))

    def label_proba(self, adversary: BlockAdversary) -> FloatArray:
        """(B, K) μ(y=k | x)."""
        ds, nearest = self.decision_set, adversary.nearest
        q = np.zeros((len(self.rows), ds.n_classes))
        if adversary.away < 1:
            q = soft_labels(ds, self.model, adversary.point, adversary.tau)
            q = q if adversary.change is None else q @ adversary.change
        if adversary.away > 0:
            q *= 1.0 - adversary.away
            for part in row_chunks(*ds.distances.shape):
                share = soft_shares(ds.distances[part], nearest.potentials, nearest.tau)
                classes = nearest.repair.class_shares(share, nearest.classes)
                q[part] += adversary.away * (classes @ nearest.relabel.T)
        return q

    def fingerprints(self) -> NDArray[np.uint64]:
        """(B,) a number per row, equal for equal rows."""
        return fingerprints(self.rows)

    def row_weights(self) -> FloatArray:
        return self.weights

    def expected_loss(self, adversary: BlockAdversary) -> Tally:
        """Σ m E_q ℓ of fixed losses."""
        losses = self.model.losses(np.zeros((0, 0)), slice(None))
        return Tally((np.array([self.weights @ (self.label_proba(adversary) * losses).sum(axis=1)]),))

    def logistic(self, name: str, adversary: BlockAdversary, *at: FloatArray) -> Tally:
        """A sum of `SoftLabels` under the adversary's labels."""
        kept = self.weights > 0
        model = cast("LinearModel", self.model)
        q = self.label_proba(adversary)
        labels = SoftLabels(replace(model, X=model.X[kept]), self.weights[kept], q[kept])
        return cast("Tally", getattr(labels, name)(*at))


@dataclass(frozen=True, eq=False)
class RawBlock:
    """Rows (B, d) with weights, before coordinates are known."""

    rows: FloatArray
    weights: FloatArray

    def sizes(self) -> Tally:
        """Σ m; the largest |x| of each feature."""
        largest = np.abs(self.rows).max(axis=0, initial=0.0)
        return Tally((np.array([self.weights.sum()]),), tuple(float(value) for value in largest))

    def means(self, size: FloatArray) -> Tally:
        return Tally((self.weights @ (self.rows / size),))

    def second_moments(self, size: FloatArray, mean: FloatArray) -> Tally:
        unit = self.rows / size - mean
        return Tally((unit.T @ (self.weights[:, None] * unit),))
