"""Linear programs over the triples (row, label, anchor) that can matter: exact where Newton stalls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, vstack

from surefoot._validation import FloatArray
from surefoot.dual import DualPoint
from surefoot.sets import DecisionSet

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
class _Triples:
    """Triples (row j, label k, anchor i) that a plan may use, and the decision set's constraints on it."""

    decision_set: DecisionSet
    rows: NDArray[np.intp]
    labels: NDArray[np.intp]
    anchors: NDArray[np.intp]

    @classmethod
    def near(cls, ds: DecisionSet, losses: FloatArray, point: DualPoint, slack: float) -> _Triples | None:
        """Those whose value at a dual point is within slack of the best of their row; None if they are too many."""
        rows, labels, anchors = _near_best(ds, losses, point, slack)
        return cls(ds, rows, labels, anchors) if len(rows) <= _MOST_TRIPLES else None

    @property
    def cost(self) -> FloatArray:
        ds = self.decision_set
        return ds.distances[self.rows, self.anchors] + ds.label_cost[self.labels, ds.anchor_labels[self.anchors]]

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

    def label_proba(self, plan: FloatArray) -> FloatArray:
        ds = self.decision_set
        q = np.zeros((len(ds.row_weights), ds.n_classes))
        np.add.at(q, (self.rows, self.labels), plan)
        total = q.sum(axis=1, keepdims=True)
        return np.divide(q, total, out=np.full_like(q, 1.0 / ds.n_classes), where=total > 0)


def solve_restricted(
    ds: DecisionSet, losses: FloatArray, near: DualPoint, slack: float
) -> LinearProgramSolution | None:
    """Max Σ π_jki ℓ_jk over plans π on the triples (j, k, i) whose value at `near` is within `slack` of the row's best.

    Solved by HiGHS. The decision set's constraints are exact, so the plan is feasible; it is optimal for the whole set
    if `slack` kept enough triples, which the dual value at the returned point tells. None if too many would be kept or
    the kept ones admit no plan.
    """
    triples = _Triples.near(ds, losses, near, slack)
    if triples is None:
        return None
    solved = linprog(
        -losses[triples.rows, triples.labels], **triples.constraints(ds.radius), method="highs-ds", options=_EXACT
    )
    if solved.status != 0:
        return None
    plan = np.maximum(solved.x, 0.0)
    N, K = len(ds.row_weights), ds.n_classes
    prices = -solved.ineqlin.marginals
    lam = prices[1 : 1 + K] - prices[1 + K :]
    point = DualPoint(np.zeros((0, 0)), max(float(prices[0]), 0.0), lam, -solved.eqlin.marginals[N:])
    return LinearProgramSolution(triples.label_proba(plan), float(plan @ triples.cost), point)


def nearest_feasible(
    ds: DecisionSet, losses: FloatArray, near: DualPoint, slack: float, wanted: FloatArray, radius: float
) -> tuple[FloatArray, float] | None:
    """Labels (N, K) of a plan within radius whose labels differ least, in mass, from those wanted; and the plan's cost.

    min Σ_jk |Σ_i π_jki − m_j q_jk| over plans on the triples near the best of their row. None as in `solve_restricted`.
    """
    triples = _Triples.near(ds, losses, near, slack)
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
        b_ub=parts["b_ub"],
        A_eq=vstack([hstack([parts["A_eq"], empty]), hstack([by_pair, unit, -unit])]),
        b_eq=np.concatenate([parts["b_eq"], (ds.row_weights[:, None] * wanted).ravel()]),
        method="highs-ds",
        options=_EXACT,
    )
    if solved.status != 0:
        return None
    plan = np.maximum(solved.x[:n_triples], 0.0)
    return triples.label_proba(plan), float(plan @ triples.cost)


def _near_best(
    ds: DecisionSet, losses: FloatArray, near: DualPoint, slack: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Triples (row, label, anchor) whose value is within slack of the best of their row."""
    price = near.alpha * ds.label_cost[:, ds.anchor_labels] + near.beta  # (K, n)
    found = []
    for start in range(0, len(losses), 256):
        part = slice(start, start + 256)
        values = (losses[part] - near.lam)[:, :, None] - price - near.alpha * ds.distances[part][:, None, :]
        keep = values >= values.max(axis=(1, 2), keepdims=True) - slack
        rows, labels, anchors = np.nonzero(keep)
        found.append((rows + start, labels, anchors))
    rows, labels, anchors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return rows, labels, anchors
