"""Learning against a union of decision sets as a conic program, by cvxpy with Clarabel: t above the dual of every set.

min  t + ½ l2 ‖θ‖²
s.t. t ≥ α_s ε_s + Σ_i w_i β_si + Σ_k (λ̄_sk p_hi_sk − λ_sk p_lo_sk) + Σ_j m_j φ_sj   for every set s
     φ_sj ≥ ℓ_jk(θ) − α_s (d_ji + κ^s_{k y_i}) − β_si − (λ̄_sk − λ_sk)                 for all j, k, i
     α_s, λ̄_s, λ_s ≥ 0

Independent of the package on purpose: it shares no code with what it checks, and states each triple (j, k, i) alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SetInUnion:
    """What differs between the sets: label_cost (K, K), [k, c] turning c into k; intervals (K, 2); radius."""

    label_cost: Array
    intervals: Array
    radius: float


def union_reference(
    sets: list[SetInUnion],
    distances: Array,
    row_weights: Array,
    anchor_weights: Array,
    anchor_labels: NDArray[np.intp],
    X: Array,
    l2: float = 0.0,
    *,
    tolerance: float = 1e-9,
) -> float:
    """The optimal value for a linear model on X (N, d) with a free intercept; distances (N, n)."""
    N, K = len(X), len(sets[0].label_cost)
    theta, intercept, top = cp.Variable((X.shape[1], K - 1)), cp.Variable((1, K - 1)), cp.Variable()
    scores = cp.hstack([np.zeros((N, 1)), X @ theta + np.ones((N, 1)) @ intercept])
    normaliser = cp.Variable(N)
    constraints = [normaliser >= (cp.logistic(scores[:, 1]) if K == 2 else cp.log_sum_exp(scores, axis=1))]
    for one in sets:
        alpha, beta, phi = cp.Variable(nonneg=True), cp.Variable(len(anchor_weights)), cp.Variable(N)
        above, below = cp.Variable(K, nonneg=True), cp.Variable(K, nonneg=True)
        support = above @ one.intervals[:, 1] - below @ one.intervals[:, 0]
        constraints.append(top >= alpha * one.radius + anchor_weights @ beta + support + row_weights @ phi)
        # constants move freely between β, φ and λ: pin them, so that the level sets are bounded
        constraints.append(anchor_weights @ beta == 0)
        if np.all(one.intervals[:, 0] == one.intervals[:, 1]):
            constraints.append(above[0] == below[0])
        for k in range(K):
            gain = normaliser - scores[:, k] - (above[k] - below[k]) - phi
            constraints += [
                gain <= alpha * (distances[:, i] + one.label_cost[k, label]) + beta[i]
                for i, label in enumerate(anchor_labels)
            ]
    # with K ≥ 3 classes of the representation that sums to zero: ‖θ‖² − ‖Σ_k θ_k‖² / K
    coupling = np.eye(1) if K == 2 else np.linalg.cholesky(np.eye(K - 1) - 1.0 / K)
    penalty = 0.5 * l2 * cp.sum_squares(theta @ coupling) if l2 > 0 else 0.0
    problem = cp.Problem(cp.Minimize(top + penalty), constraints)
    problem.solve(
        solver=cp.CLARABEL, max_iter=500, max_threads=1,
        tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance,
    )  # fmt: skip
    if problem.status != cp.OPTIMAL:
        raise RuntimeError(f"Clarabel ended with status {problem.status!r}: no reference value.")
    return float(problem.value)
