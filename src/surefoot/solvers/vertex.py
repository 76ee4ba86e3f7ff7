"""Linear programs over the triples (row, label, anchor) that can matter: exact, and cheap where few can.

Near the end of the path most rows have one triple that can matter. Their mass is then known, and the program that is
left has a few hundred rows: a vertex, exact to rounding, long before smoothing alone would come as close.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, vstack

from surefoot._types import FloatArray
from surefoot.dual.objective import DualPoint, free_label_multipliers
from surefoot.problem.sets import DecisionSet, row_chunks

_MOST_TRIPLES = 400_000
_EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


@dataclass(frozen=True)
class LinearProgramSolution:
    """A vertex of the decision set over the pairs kept, and the multipliers that price them.

    label_proba : (N, K); transport_cost : cost of the plan found; point : DualPoint without θ.
    """

    label_proba: FloatArray
    transport_cost: float
    point: DualPoint


@dataclass(frozen=True)
class Triples:
    """Triples (row j, label k, anchor i) that a plan may use, and the decision set's constraints on it."""

    decision_set: DecisionSet
    rows: NDArray[np.intp]
    labels: NDArray[np.intp]
    anchors: NDArray[np.intp]

    @property
    def cost(self) -> FloatArray:
        ds = self.decision_set
        return ds.distances[self.rows, self.anchors] + ds.label_cost[self.labels, ds.anchor_labels[self.anchors]]

    def __getitem__(self, kept: NDArray[np.bool_]) -> Triples:
        return Triples(self.decision_set, self.rows[kept], self.labels[kept], self.anchors[kept])

    def sums_over(self, index: NDArray[np.intp], size: int) -> csr_array:
        return csr_array((np.ones(len(index)), (index, np.arange(len(index)))), shape=(size, len(index)))

    def constraints(self, radius: float) -> dict[str, Any]:
        """A_ub, b_ub (cost, labels from above, labels from below) and A_eq, b_eq (rows, anchors) of linprog."""
        ds = self.decision_set
        by_label = self.sums_over(self.labels, ds.n_classes)
        by_row = self.sums_over(self.rows, len(ds.row_weights))
        by_anchor = self.sums_over(self.anchors, len(ds.anchor_weights))
        lo, hi = ds.intervals.T
        return {
            "A_ub": vstack([csr_array(self.cost[None, :]), by_label, -by_label]),
            "b_ub": np.concatenate([[radius], hi, -lo]),
            "A_eq": vstack([by_row, by_anchor]),
            "b_eq": np.concatenate([ds.row_weights, ds.anchor_weights]),
        }

    def mass_of_single(self, single: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, float]:
        """Mass on anchors (n,), on labels (K,), and the cost, of the rows that have one triple only."""
        ds, fixed = self.decision_set, self[single]
        mass = ds.row_weights[fixed.rows]
        on_anchors = np.bincount(fixed.anchors, weights=mass, minlength=len(ds.anchor_weights))
        on_labels = np.bincount(fixed.labels, weights=mass, minlength=ds.n_classes)
        return cast("FloatArray", on_anchors), cast("FloatArray", on_labels), float(mass @ fixed.cost)

    def may_hold_a_plan(self) -> bool:
        """False where some row has no triple, or rows with one alone exceed the mass of an anchor."""
        ds = self.decision_set
        count = np.bincount(self.rows, minlength=len(ds.row_weights))
        on_anchors = self.mass_of_single(count[self.rows] == 1)[0]
        return bool(count.min() > 0 and np.all(on_anchors <= ds.anchor_weights + 1e-12))

    def transport_cost(self, plan: FloatArray) -> float:
        """Cost of a plan (T,) whose marginals a solver left off by its tolerance, once they are made exact.

        Rows are scaled to their weight, as in `label_proba`; mass beyond that of an anchor goes elsewhere, at the
        largest cost there is.
        """
        ds = self.decision_set
        total = np.bincount(self.rows, weights=plan, minlength=len(ds.row_weights))
        exact = plan * np.divide(ds.row_weights, total, out=np.zeros_like(total), where=total > 0)[self.rows]
        on_anchors = np.bincount(self.anchors, weights=exact, minlength=len(ds.anchor_weights))
        missing = max(float(ds.row_weights[total <= 0].sum()), 0.0)
        moved = float(np.maximum(on_anchors - ds.anchor_weights, 0.0).sum()) + missing
        return float(exact @ self.cost) + moved * float(ds.distances.max(initial=0.0) + ds.label_cost.max())

    def label_proba(self, plan: FloatArray) -> FloatArray:
        ds = self.decision_set
        q = np.zeros((len(ds.row_weights), ds.n_classes))
        np.add.at(q, (self.rows, self.labels), plan)
        total = q.sum(axis=1, keepdims=True)
        return np.divide(q, total, out=np.full_like(q, 1.0 / ds.n_classes), where=total > 0)


@dataclass(frozen=True)
class NearTriples:
    """The triples whose value at a dual point falls least short, by `gap` (T,), of the best of their row.

    Sorted by gap, so that a prefix holds the triples within a slack.
    """

    triples: Triples
    gap: FloatArray

    @classmethod
    def of(cls, ds: DecisionSet, losses: FloatArray, point: DualPoint, most: int) -> NearTriples:
        """About the `most` nearest ones."""
        slack = slack_of_nearest(ds, losses, point, [int(1.1 * most)])[0]
        found = []
        for start, part in _chunks_of(_gaps(ds, losses, point, np.arange(len(losses)))):
            rows, labels, anchors = np.nonzero(part <= slack)
            found.append((rows + start, labels, anchors, part[rows, labels, anchors]))
        rows, labels, anchors, gap = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(gap, kind="stable")
        return cls(Triples(ds, rows[order], labels[order], anchors[order]), gap[order])

    def slack(self, count: int) -> float:
        """Gap of the triple at this place, infinite where there are not so many."""
        return float(self.gap[count - 1]) if count <= len(self.gap) else np.inf

    def within(self, slack: float) -> Triples:
        return self.triples[self.gap <= slack]


def slack_of_nearest(ds: DecisionSet, losses: FloatArray, point: DualPoint, counts: list[int]) -> list[float]:
    """Estimates, from some of the rows, of the slack that so many triples need."""
    N = len(losses)
    sample = np.unique(np.linspace(0, N - 1, min(N, 400)).astype(np.intp))
    gaps = np.concatenate([part.ravel() for part in _gaps(ds, losses, point, sample)])
    total = N * ds.n_classes * len(ds.anchor_weights)
    return [float(slack) for slack in np.quantile(gaps, [min(1.0, count / total) for count in counts])]


def with_violated(losses: FloatArray, triples: Triples, point: DualPoint, slack: float) -> Triples | None:
    """The triples, and those that a dual point prices better than all of their row by more than slack.

    Of each row and label the best is added, if it is one; None where there is none.
    """
    ds = triples.decision_set
    N, K = losses.shape
    price = point.lam[triples.labels] + point.alpha * triples.cost + point.beta[triples.anchors]
    kept = np.full(N, -np.inf)
    np.maximum.at(kept, triples.rows, losses[triples.rows, triples.labels] - price)
    found = []
    for part in row_chunks(N, K * len(ds.anchor_weights)):
        values = _values(ds, losses, point, np.arange(part.start, part.stop))
        anchor = values.argmax(axis=2)
        rows, labels = np.nonzero(values.max(axis=2) > kept[part, None] + slack)
        found.append((rows + part.start, labels, anchor[rows, labels]))
    rows, labels, anchors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if len(rows) == 0:
        return None
    return Triples(
        ds,
        np.concatenate([triples.rows, rows]),
        np.concatenate([triples.labels, labels]),
        np.concatenate([triples.anchors, anchors]),
    )


def solve_restricted(losses: FloatArray, triples: Triples) -> LinearProgramSolution | None:
    """Max Σ π_jki ℓ_jk over plans π on some triples (j, k, i), by HiGHS.

    The decision set's constraints are exact, so the plan is feasible; it is optimal for the whole set if enough triples
    were kept, which the dual value at the returned point tells. None if the kept ones admit no plan.
    """
    ds = triples.decision_set
    N, K, n = len(ds.row_weights), ds.n_classes, len(ds.anchor_weights)
    if not triples.may_hold_a_plan():
        return None
    single = np.bincount(triples.rows, minlength=N)[triples.rows] == 1
    on_anchors, on_labels, spent = triples.mass_of_single(single)
    if single.all():
        return _only_plan(triples, on_labels)
    room = ds.anchor_weights - on_anchors
    free = triples[~single]
    open_rows, position = np.unique(free.rows, return_inverse=True)
    # constraints that follow from others are left out: with them, rounding alone could make the program infeasible
    binding = free_label_multipliers(ds.intervals)
    by_label = free.sums_over(free.labels, K)[binding]
    lo, hi = (ds.intervals[binding] - on_labels[binding, None]).T
    exact = lo == hi
    solved = linprog(
        -losses[free.rows, free.labels],
        A_ub=vstack([csr_array(free.cost[None, :]), by_label[~exact], -by_label[~exact]]),
        b_ub=N * np.concatenate([[ds.radius - spent], hi[~exact], -lo[~exact]]),
        A_eq=vstack([by_label[exact], free.sums_over(free.anchors, n)[:-1], free.sums_over(position, len(open_rows))]),
        b_eq=N * np.concatenate([hi[exact], np.maximum(room[:-1], 0.0), ds.row_weights[open_rows]]),
        method="highs-ds",
        options=_EXACT,
    )
    if solved.status != 0:
        return None
    plan = np.where(single, ds.row_weights[triples.rows], 0.0)
    plan[~single] = np.maximum(solved.x, 0.0) / N
    price, equal = -solved.ineqlin.marginals, -solved.eqlin.marginals
    above, below = price[1 : 1 + (~exact).sum()], price[1 + (~exact).sum() :]
    lam = np.zeros(K)
    lam[binding[~exact]], lam[binding[exact]] = above - below, equal[: exact.sum()]
    beta = np.append(equal[exact.sum() : exact.sum() + n - 1], 0.0)
    point = DualPoint(np.zeros((0, 0)), max(float(price[0]), 0.0), lam, beta)
    return LinearProgramSolution(triples.label_proba(plan), triples.transport_cost(plan), point)


def _only_plan(triples: Triples, on_labels: FloatArray) -> LinearProgramSolution | None:
    """Where each row has one triple nothing is left to choose: the plan, if it is feasible, and multipliers of zero.

    Those price nothing, so that the triples which are missing show.
    """
    ds = triples.decision_set
    plan = ds.row_weights[triples.rows]
    cost = triples.transport_cost(plan)
    lo, hi = ds.intervals.T
    if cost > ds.radius or np.any(on_labels < lo - 1e-12) or np.any(on_labels > hi + 1e-12):
        return None
    point = DualPoint(np.zeros((0, 0)), 0.0, np.zeros(ds.n_classes), np.zeros(len(ds.anchor_weights)))
    return LinearProgramSolution(triples.label_proba(plan), cost, point)


def nearest_feasible(
    ds: DecisionSet, losses: FloatArray, near: DualPoint, slack: float, wanted: FloatArray, radius: float
) -> tuple[FloatArray, float] | None:
    """Labels (N, K) of a plan within radius whose labels differ least, in mass, from those wanted; and the plan's cost.

    min Σ_jk |Σ_i π_jki − m_j q_jk| over plans on the triples near the best of their row. None as in `solve_restricted`.
    """
    triples = triples_within(ds, losses, near, slack)
    if triples is None:
        return None
    N, K, n_triples = len(ds.row_weights), ds.n_classes, len(triples.rows)
    parts = triples.constraints(radius)
    # Σ_i π_jki + less_jk − more_jk = m_j q_jk
    by_pair = triples.sums_over(triples.rows * K + triples.labels, N * K)
    unit = eye_array(N * K, format="csr")
    empty = csr_array((parts["A_eq"].shape[0], 2 * N * K))
    empty_ub = csr_array((parts["A_ub"].shape[0], 2 * N * K))
    solved = linprog(
        np.concatenate([np.zeros(n_triples), np.ones(2 * N * K)]),
        A_ub=hstack([parts["A_ub"], empty_ub]),
        b_ub=N * parts["b_ub"],
        A_eq=vstack([hstack([parts["A_eq"], empty]), hstack([by_pair, unit, -unit])]),
        b_eq=N * np.concatenate([parts["b_eq"], (ds.row_weights[:, None] * wanted).ravel()]),
        method="highs-ds",
        options=_EXACT,
    )
    if solved.status != 0:
        return None
    plan = np.maximum(solved.x[:n_triples], 0.0) / N
    return triples.label_proba(plan), triples.transport_cost(plan)


def triples_within(ds: DecisionSet, losses: FloatArray, near: DualPoint, slack: float) -> Triples | None:
    """Triples within slack of their row's best; None if they are too many."""
    found = []
    for start, part in _chunks_of(_gaps(ds, losses, near, np.arange(len(losses)))):
        rows, labels, anchors = np.nonzero(part <= slack)
        found.append((rows + start, labels, anchors))
    rows, labels, anchors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Triples(ds, rows, labels, anchors) if len(rows) <= _MOST_TRIPLES else None


def _gaps(ds: DecisionSet, losses: FloatArray, near: DualPoint, rows: NDArray[np.intp]) -> Iterator[FloatArray]:
    """Chunks (B, K, n) of how far each triple's value falls short of the best of its row."""
    for part in row_chunks(len(rows), ds.n_classes * len(ds.anchor_weights)):
        values = _values(ds, losses, near, rows[part])
        yield values.max(axis=(1, 2), keepdims=True) - values


def _values(ds: DecisionSet, losses: FloatArray, point: DualPoint, rows: NDArray[np.intp]) -> FloatArray:
    """(B, K, n) ℓ_jk − α c((x_j, k), z_i) − β_i − λ_k at some rows."""
    price = point.alpha * ds.label_cost[:, ds.anchor_labels] + point.beta  # (K, n)
    return (losses[rows] - point.lam)[:, :, None] - price - point.alpha * ds.distances[rows][:, None, :]


def _chunks_of(parts: Iterator[FloatArray]) -> Iterator[tuple[int, FloatArray]]:
    """Each chunk with the number of its first row."""
    start = 0
    for part in parts:
        yield start, part
        start += len(part)
