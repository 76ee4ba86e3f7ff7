"""One block of rows, and the sums over the block that the solver and the bounds need.

For rows in memory, the block contains all rows. Its arrays may be NumPy arrays or tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.dual.adversary import Adversary
from surefoot.dual.bounds import AnchorRepair, SoftLabels, best_response, row_values, soft_plan
from surefoot.dual.models import AnyClassifier, DualPoint, LinearModel, Model, NoLosses, RowTotals
from surefoot.dual.row_sums import RowSums, WeightedRows
from surefoot.dual.shortlist import ShortlistKeeper
from surefoot.kernels.arrays import arrays_of
from surefoot.problem.distances import Distances, row_chunks
from surefoot.problem.sets import DecisionSet

# Reduced costs below this share of the largest cost or price are rounding errors.
_ROUNDING = 32.0 * float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class DualProblem:
    """A robust problem without its rows: a decision set and a model, both without rows."""

    decision_set: DecisionSet
    model: Model

    @classmethod
    def from_decision_set(cls, ds: DecisionSet, model: Model) -> DualProblem:
        n = len(ds.anchor_weights)
        bare = ds if len(ds.row_weights) == 0 else replace(ds, distances=np.empty((0, n)), row_weights=np.empty(0))
        return cls(bare, model)

    @classmethod
    def plain_transport(cls, ds: DecisionSet) -> DualProblem:
        """Return transport between rows and anchors without labels: the feature part of the minimal radius."""
        plain = replace(
            ds,
            anchor_labels=np.zeros(len(ds.anchor_weights), dtype=np.intp),
            label_cost=np.zeros((1, 1)),
            intervals=np.ones((1, 2)),
            radius=0.0,
        )
        return cls.from_decision_set(plain, NoLosses(np.empty(0)))


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of weights (B,) at distances (B, n) from the anchors. The first row has number `start`.

    make_design, make_losses : functions that compute, on demand, the design matrix (B, p) of a linear model and the
    losses (B, K) of a fixed classifier. lists : short lists of near anchors, if they are kept for this problem.
    """

    problem: DualProblem
    distances: Distances
    weights: Any
    make_design: Callable[[], Any]
    make_losses: Callable[[], Any]
    start: int = 0
    lists: ShortlistKeeper | None = None

    @cached_property
    def design(self) -> Any:
        return self.make_design()

    @cached_property
    def losses(self) -> Any:
        return self.make_losses()

    @cached_property
    def model(self) -> Model:
        return self.problem.model.over(self)

    def losses_at(self, point: DualPoint, tau: float, rows: slice) -> Any:
        """Return losses (b, K) of the model at some rows. A model that responds returns its best response."""
        if isinstance(self.model, AnyClassifier):
            return best_response(self.model, self.problem.decision_set, self.distances[rows], point, tau)
        return self.model.losses(point.theta, rows)

    def chunks(self) -> Iterator[slice]:
        return row_chunks(len(self.weights), self.distances.shape[1], arrays_of(self.weights).entries)

    def row_sums(self, point: DualPoint, tau: float, second_order: bool, rough: bool = False) -> RowSums:
        """Compute the sums for the smoothed dual and its derivatives. See `WeightedRows` for `rough`."""
        rows = self._weighted(rough)
        if self.lists is None:
            return rows.sums(point, tau, second_order=second_order)
        return rows.kept_sums(self.lists, point, tau, second_order=second_order)

    def some_row_sums(self, point: DualPoint, tau: float) -> RowSums:
        """Compute first-order sums over the last short lists, which must exist."""
        sums = None if self.lists is None else self._weighted(False).some_sums(self.lists, point, tau)
        if sums is None:
            raise ValueError("this block has no lists of anchors: ask for row_sums")
        return sums

    def _weighted(self, rough: bool) -> WeightedRows:
        """Return the rows as one group, because threads work on blocks."""
        ds = self.problem.decision_set
        return WeightedRows(ds, self.distances, self.weights, self.model, rough, groups=1)

    def dual_rows(self, point: DualPoint) -> RowTotals:
        """Return the exact Σ m Φ, and the largest −Φ."""
        total, low = 0.0, -np.inf
        for part in self.chunks():
            losses = self.losses_at(point, 0.0, part)
            values = row_values(self.problem.decision_set, self.distances[part], losses, point)
            total += float(self.weights[part] @ values)
            low = max(low, float(-values.min()))
        return RowTotals((np.array([total]),), (low,))

    def plan_mass(self, point: DualPoint, tau: float) -> RowTotals:
        """Return the mass (n,) that the softmax plan moves to each anchor."""
        xp = arrays_of(self.weights)
        slots = xp.slots(self.problem.decision_set)
        mass = xp.zeros((self.distances.shape[1],))
        for part in self.chunks():
            losses = self.losses_at(point, tau, part)
            joint, share = soft_plan(self.problem.decision_set, self.distances[part], losses, point, tau)
            mass += self.weights[part] @ (joint.sum(axis=1)[:, slots] * share)
        return RowTotals((xp.fetch(mass),))

    def repaired_plan(self, point: DualPoint, tau: float, repair: AnchorRepair) -> tuple[float, Any]:
        """Return the cost of the softmax plan after repair of its anchor marginal, and its labels (B, K)."""
        ds = self.problem.decision_set
        q = arrays_of(self.weights).zeros((len(self.weights), ds.n_classes))
        cost = 0.0
        for part in self.chunks():
            losses = self.losses_at(point, tau, part)
            joint, moments = repair.plan(ds, self.distances[part], losses, point, tau)
            q[part] = joint.sum(axis=2)
            cost += float(self.weights[part] @ repair.cost(ds, joint, moments))
        return cost, q

    def plan_cost(self, point: DualPoint, tau: float, repair: AnchorRepair) -> RowTotals:
        """Return the cost of the repaired plan, and its label probabilities (K,)."""
        cost, q = self.repaired_plan(point, tau, repair)
        return RowTotals((np.array([cost]), arrays_of(q).fetch(self.weights @ q)))

    def labels(self, adversary: Adversary) -> FloatArray:
        """Return the labels (B, K) μ(y=k | x)."""
        return np.asarray(arrays_of(self.weights).fetch(adversary.labels_on(self)))

    def label_shares(self, adversary: Adversary) -> RowTotals:
        """Return Σ m q (K,)."""
        return RowTotals((arrays_of(self.weights).fetch(self.weights @ adversary.labels_on(self)),))

    def row_weights(self) -> FloatArray:
        return np.asarray(arrays_of(self.weights).fetch(self.weights))

    def least_loss(self, adversary: Adversary) -> RowTotals:
        """Return the least expected loss of any classifier under the adversary's labels: for the log loss Σ m H(q)."""
        if not isinstance(self.model, AnyClassifier):
            raise TypeError("the smallest loss of any classifier requires the model of all classifiers")
        return RowTotals((np.array([float(self.weights @ self.model.least_loss(adversary.labels_on(self)))]),))

    def expected_loss(self, adversary: Adversary) -> RowTotals:
        """Return Σ m E_q ℓ for fixed losses."""
        losses = self.model.losses(np.zeros((0, 0)), slice(None))
        return RowTotals((np.array([float(self.weights @ (adversary.labels_on(self) * losses).sum(axis=1))]),))

    def soft_labels(self, adversary: Adversary) -> SoftLabels:
        """Return the rows of positive weight with the adversary's labels. Scores of other rows may be arbitrary."""
        model, q = self.model, adversary.labels_on(self)
        if not isinstance(model, LinearModel):
            raise TypeError("soft labels require a model that is learned")
        kept = self.weights > 0
        if bool(kept.all()):
            return SoftLabels(model, self.weights, q)
        return SoftLabels(replace(model, X=model.X[kept]), self.weights[kept], q[kept])

    def logistic_start(self, adversary: Adversary, theta: FloatArray) -> RowTotals:
        return self.soft_labels(adversary).start(theta)

    def logistic_local(self, adversary: Adversary, theta: FloatArray) -> RowTotals:
        return self.soft_labels(adversary).local(theta)

    def logistic_moved(self, adversary: Adversary, theta: FloatArray, step: FloatArray) -> RowTotals:
        return self.soft_labels(adversary).moved(theta, step)

    def triple_values(self, point: DualPoint, rows: Any) -> FloatArray:
        """Return ℓ_jk − α c((x_j, k), z_i) − β_i − λ_k at some rows (b, K, n)."""
        ds = self.problem.decision_set
        D, losses = self._fetched(point, rows)
        price = point.alpha * ds.label_cost[:, ds.anchor_labels] + point.beta  # (K, n)
        return np.asarray((losses - point.lam)[:, :, None] - price - point.alpha * D[:, None, :])

    def _fetched(self, point: DualPoint, rows: Any) -> tuple[FloatArray, FloatArray]:
        """Return the distances (b, n) and losses (b, K) of some rows."""
        fetch = arrays_of(self.weights).fetch
        losses = self.model.losses(point.theta, slice(None))[rows]
        return np.asarray(fetch(self.distances[rows])), np.asarray(fetch(losses))

    def sampled_gaps(self, point: DualPoint, sample: NDArray[np.intp]) -> FloatArray:
        """Return the gap of each triple of the sampled rows (row numbers) to the best triple of its row, (b, K·n)."""
        mine = sample[(sample >= self.start) & (sample < self.start + len(self.weights))] - self.start
        values = self.triple_values(point, mine)
        return np.asarray((values.max(axis=(1, 2), keepdims=True) - values).reshape(len(mine), -1))

    def reduced_costs(self, prices: DualPoint, rows: slice) -> tuple[FloatArray, FloatArray]:
        """Return the reduced costs (b, K, n) at prices of labels and anchors, and the least cost (b,) of each row.

        The reduced cost d_ji + κ_kc + b_i + l_k − u_j is the cost of a triple beyond the cheapest triple of its row. It
        is exactly 0 if the difference may be a rounding error.
        """
        ds, (D, _) = self.problem.decision_set, self._fetched(prices, rows)
        changes, lam = ds.label_cost[:, ds.anchor_labels], prices.lam[:, None]
        costs = D[:, None, :] + (changes + prices.beta + lam)
        least = costs.min(axis=(1, 2))
        # the rounding error of a triple follows from its own terms, which may cancel; the terms of other triples may be
        # much larger
        rounding = _ROUNDING * (2.0 * D.max(initial=0.0) + changes + np.abs(prices.beta) + np.abs(lam))
        costs -= rounding
        costs -= (costs + 2.0 * rounding).min(axis=(1, 2))[:, None, None]
        return np.maximum(costs, 0.0), least

    def reduced_dual_rows(self, point: DualPoint, prices: DualPoint) -> RowTotals:
        """Compute `dual_rows` at the point moved by α times the prices, without the dual value of the prices."""
        total, low = 0.0, -np.inf
        for part in row_chunks(len(self.weights), self.problem.decision_set.n_classes * self.distances.shape[1]):
            costs, least = self.reduced_costs(prices, part)
            losses = self._fetched(point, part)[1]
            values = ((losses - point.lam)[:, :, None] - point.beta - point.alpha * costs).max(axis=(1, 2))
            total += float(self.row_weights()[part] @ values)
            low = max(low, float((point.alpha * least - values).max()))
        return RowTotals((np.array([total]),), (low,))

    def largest_distance(self) -> RowTotals:
        """Return the largest distance between a row and an anchor."""
        xp = arrays_of(self.weights)
        largest = max((float(xp.fetch(self.distances[part]).max(initial=0.0)) for part in self.chunks()), default=0.0)
        return RowTotals((), (largest,))

    def near_triples(self, point: DualPoint, slack: float) -> FloatArray:
        """Return the triples (T, 6) within slack of the best of their row: row, label, anchor, gap, cost, loss."""
        values = partial(self.triple_values, point)
        return self._triples(point, values, lambda found, _: found >= found.max(axis=(1, 2), keepdims=True) - slack)

    def cheapest_triples(self, prices: DualPoint, slack: float) -> FloatArray:
        """Return the triples (T, 6) of reduced cost at most slack, with the columns of `near_triples`."""
        return self._triples(
            prices, lambda part: -self.reduced_costs(prices, part)[0], lambda found, _: found >= -slack
        )

    def better_triples(self, point: DualPoint, slack: float, kept: FloatArray) -> FloatArray:
        """Return the best triple of each row and label, (T, 6), if it beats the row's best kept one, (N,), by slack."""

        def better(values: FloatArray, part: slice) -> NDArray[np.bool_]:
            at_best = np.zeros(values.shape, dtype=bool)
            best = values.argmax(axis=2)
            np.put_along_axis(at_best, best[:, :, None], True, axis=2)
            limit = kept[self.start + part.start : self.start + part.stop] + slack
            return np.asarray(at_best & (values > limit[:, None, None]))

        return self._triples(point, partial(self.triple_values, point), better)

    def _triples(self, point: DualPoint, values_at: Any, chosen: Any) -> FloatArray:
        ds, found = self.problem.decision_set, [np.empty((0, 6))]
        for part in row_chunks(len(self.weights), ds.n_classes * len(ds.anchor_weights)):
            values, (D, losses) = values_at(part), self._fetched(point, part)
            rows, labels, anchors = np.nonzero(chosen(values, part))
            short = values.max(axis=(1, 2))[rows] - values[rows, labels, anchors]
            cost = D[rows, anchors] + ds.label_cost[labels, ds.anchor_labels[anchors]]
            number = rows + float(self.start + part.start)
            found.append(np.column_stack([number, labels, anchors, short, cost, losses[rows, labels]]))
        return np.concatenate(found)
