"""The inner problem at fixed losses as a linear program over the pairs that can matter: exact where Newton stalls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from surefoot._validation import FloatArray
from surefoot.dual import DualPoint
from surefoot.sets import DecisionSet

_MOST_PAIRS = 400_000


@dataclass(frozen=True)
class LinearProgramSolution:
    """A vertex of the decision set over the pairs kept, and the multipliers that price them.

    label_proba : (N, K); transport_cost : cost of the plan found; point : DualPoint without θ.
    """

    label_proba: FloatArray
    transport_cost: float
    point: DualPoint


def solve_restricted(
    ds: DecisionSet, losses: FloatArray, near: DualPoint, slack: float
) -> LinearProgramSolution | None:
    """Maximise Σ π_jki ℓ_jk over plans π on triples (j, k, i) with a value at `near` within `slack` of the row's best.

    Solved by HiGHS. The decision set's constraints are exact, so the plan is feasible; it is optimal for the whole
    set if `slack` kept enough triples, which the dual value at the returned point tells. None if too many would be
    kept or the kept ones admit no plan.
    """
    rows, labels, anchors = _near_best(ds, losses, near, slack)
    if len(rows) > _MOST_PAIRS:
        return None
    N, n, K = len(ds.row_weights), len(ds.anchor_weights), ds.n_classes
    cost = ds.distances[rows, anchors] + ds.label_cost[labels, ds.anchor_labels[anchors]]
    ones, variables = np.ones(len(rows)), np.arange(len(rows))
    by_row = csr_array((ones, (rows, variables)), shape=(N, len(rows)))
    by_anchor = csr_array((ones, (anchors, variables)), shape=(n, len(rows)))
    by_label = csr_array((ones, (labels, variables)), shape=(K, len(rows)))
    lo, hi = ds.intervals.T
    solved = linprog(
        -losses[rows, labels],
        A_ub=vstack([csr_array(cost[None, :]), by_label, -by_label]),
        b_ub=np.concatenate([[ds.radius], hi, -lo]),
        A_eq=vstack([by_row, by_anchor]),
        b_eq=np.concatenate([ds.row_weights, ds.anchor_weights]),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solved.status != 0:
        return None
    plan = np.maximum(solved.x, 0.0)
    q = np.zeros((N, K))
    np.add.at(q, (rows, labels), plan)
    total = q.sum(axis=1, keepdims=True)
    q = np.divide(q, total, out=np.full_like(q, 1.0 / K), where=total > 0)
    prices = -solved.ineqlin.marginals
    lam = prices[1 : 1 + K] - prices[1 + K :]
    beta = -solved.eqlin.marginals[N:]
    return LinearProgramSolution(
        q, float(plan @ cost), DualPoint(np.zeros((0, 0)), max(float(prices[0]), 0.0), lam, beta)
    )


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
