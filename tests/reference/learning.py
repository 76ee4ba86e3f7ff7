"""The learning problem as a conic program: the dual of docs/solver.md, solved by cvxpy with Clarabel.

min  αε + Σ_i w_i β_i + Σ_k (λ̄_k p_hi_k − λ_k p_lo_k) + Σ_j m_j φ_j + ½ l2 ‖θ‖²
s.t. φ_j ≥ ℓ_jk(θ) − a_jc − α κ_kc − (λ̄_k − λ_k)   for all j, k, c
     a_jc ≤ α d_ji + β_i                            for all j, and i of class c
     α, λ̄, λ ≥ 0

Independent of the package on purpose: it shares no code with what it checks.
"""

from __future__ import annotations

from typing import TypedDict

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class LearningReference(TypedDict):
    """The optimum: theta (K−1, d) and intercept (K−1,) against class 0, beta (n,), lam (K,) net multipliers λ̄ − λ."""

    value: float
    alpha: float
    beta: Array
    lam: Array
    theta: Array
    intercept: Array


def learn_reference(
    distances: Array,
    row_weights: Array,
    anchor_weights: Array,
    anchor_labels: NDArray[np.intp],
    label_cost: Array,
    intervals: Array | None,
    radius: float,
    X: Array,
    l2: float = 0.0,
    *,
    n_classes: int,
    tolerance: float = 1e-10,
) -> LearningReference:
    """Solve the dual for a linear model on X (N, d) with a free intercept.

    distances (N, n), row_weights (N,), anchor_weights (n,), anchor_labels (n,) codes in any order, label_cost (K, K)
    with entry [k, c] the cost of turning c into k, intervals (K, 2) or None for free labels. Raises ValueError where
    the set is empty (the dual is unbounded below), RuntimeError where Clarabel stops short of the tolerance.
    """
    N, K = len(X), n_classes
    alpha, beta, phi = cp.Variable(nonneg=True), cp.Variable(len(anchor_weights)), cp.Variable(N)
    theta, intercept = cp.Variable((K - 1, X.shape[1])), cp.Variable(K - 1)
    free = X @ theta.T + np.ones((N, 1)) @ cp.reshape(intercept, (1, K - 1), order="C")
    scores = cp.hstack([np.zeros((N, 1)), free])
    lam, support, constraints = _label_terms(intervals, K)
    # A constant moves freely between β and φ: pin it, so that the level sets are bounded.
    constraints.append(anchor_weights @ beta == 0)
    constraints += _normaliser_and_anchors(distances, anchor_labels, label_cost, alpha, beta, phi, scores, lam)
    if np.isfinite(radius):
        budget = alpha * radius
    else:
        budget, constraints = cp.Constant(0.0), [*constraints, alpha == 0]
    penalty = 0.5 * l2 * _squared_norm(theta) if l2 > 0 else cp.Constant(0.0)
    problem = cp.Problem(cp.Minimize(budget + support + row_weights @ phi + penalty), constraints)
    _solve(problem, radius, tolerance)
    return LearningReference(
        value=float(problem.value), alpha=float(alpha.value), beta=beta.value, lam=np.broadcast_to(lam.value, K).copy(),
        theta=theta.value, intercept=intercept.value,
    )  # fmt: skip


def learn_groups_reference(
    distances: Array,
    row_weights: Array,
    anchor_weights: Array,
    anchor_labels: NDArray[np.intp],
    label_cost: Array,
    intervals: Array | None,
    radius: float,
    X: Array,
    groups: NDArray[np.intp],
    l2: float = 0.0,
    *,
    n_classes: int,
) -> float:
    """The smallest largest worst case of Σ_{j in g} m_j ℓ_j / Σ_{j in g} m_j over groups g (N,) of the rows."""
    N, K = len(X), n_classes
    theta, intercept, largest = cp.Variable((K - 1, X.shape[1])), cp.Variable(K - 1), cp.Variable()
    free = X @ theta.T + np.ones((N, 1)) @ cp.reshape(intercept, (1, K - 1), order="C")
    scores = cp.hstack([np.zeros((N, 1)), free])
    constraints = []
    for g in np.unique(groups):
        factor = (groups == g) / row_weights[groups == g].sum()
        alpha, beta, phi = cp.Variable(nonneg=True), cp.Variable(len(anchor_weights)), cp.Variable(N)
        lam, support, more = _label_terms(intervals, K)
        constraints += [*more, anchor_weights @ beta == 0, largest >= alpha * radius + support + row_weights @ phi]
        constraints += _normaliser_and_anchors(
            distances, anchor_labels, label_cost, alpha, beta, phi, scores, lam, factor
        )
    penalty = 0.5 * l2 * _squared_norm(theta) if l2 > 0 else cp.Constant(0.0)
    problem = cp.Problem(cp.Minimize(largest + penalty), constraints)
    _solve(problem, radius, 1e-7)
    return float(problem.value)


def _label_terms(intervals: Array | None, n_classes: int) -> tuple[cp.Expression, cp.Expression, list[cp.Constraint]]:
    """Net label multipliers (K,), the support function Σ_k λ̄_k p_hi_k − λ_k p_lo_k, and constraints on them."""
    if intervals is None:
        return cp.Constant(np.zeros(n_classes)), cp.Constant(0.0), []
    lo, hi = np.asarray(intervals, dtype=np.float64).T
    if np.array_equal(lo, hi):
        # Exact probabilities: the net multiplier is free, and a constant moves between it and φ.
        lam = cp.Variable(n_classes)
        return lam, lam @ hi, [lam[0] == 0]
    upper, lower = cp.Variable(n_classes, nonneg=True), cp.Variable(n_classes, nonneg=True)
    return upper - lower, upper @ hi - lower @ lo, []


def _normaliser_and_anchors(
    distances: Array,
    anchor_labels: NDArray[np.intp],
    label_cost: Array,
    alpha: cp.Variable,
    beta: cp.Variable,
    phi: cp.Variable,
    scores: cp.Expression,
    lam: cp.Expression,
    factor: Array | None = None,
) -> list[cp.Constraint]:
    """Epigraphs: u_j ≥ log Σ_k exp(s_jk), so ℓ_jk ≤ u_j − s_jk; a_jc below every anchor of class c; φ_j above all.

    factor : (N,) by which the losses are multiplied.
    """
    N, K = scores.shape
    factor = np.ones(N) if factor is None else factor
    u = cp.Variable(N)
    # Two classes: log(1 + e^s), whose exponential cones are better conditioned than those of log_sum_exp.
    constraints = [u >= (cp.logistic(scores[:, 1]) if K == 2 else cp.log_sum_exp(scores, axis=1))]
    for c in np.unique(anchor_labels):
        columns = np.flatnonzero(anchor_labels == c)
        a = cp.Variable(N)
        anchor_costs = alpha * distances[:, columns] + np.ones((N, 1)) @ cp.reshape(
            beta[columns], (1, len(columns)), order="C"
        )
        constraints.append(cp.reshape(a, (N, 1), order="C") @ np.ones((1, len(columns))) <= anchor_costs)
        losses = [cp.multiply(factor, u - scores[:, k]) for k in range(K)]
        constraints += [phi >= losses[k] - a - alpha * label_cost[k, c] - lam[k] for k in range(K)]
    return constraints


def _squared_norm(theta: cp.Variable) -> cp.Expression:
    """‖θ‖², for K ≥ 3 classes of the representation that sums to zero: Σ_k ‖θ_k‖² − ‖Σ_k θ_k‖² / K."""
    free = theta.shape[0]
    if free == 1:
        return cp.sum_squares(theta)
    coupling = np.eye(free) - 1.0 / (free + 1)
    return cp.sum_squares(np.linalg.cholesky(coupling).T @ theta)


def _solve(problem: cp.Problem, radius: float, tolerance: float) -> None:
    problem.solve(
        solver=cp.CLARABEL, max_iter=500, max_threads=1,
        tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance,
    )  # fmt: skip
    if problem.status in {cp.UNBOUNDED, cp.UNBOUNDED_INACCURATE}:
        raise ValueError(f"the decision set must not be empty; radius {radius!r} is below the minimal one. Raise it.")
    if problem.status != cp.OPTIMAL:
        raise RuntimeError(
            f"Clarabel ended with status {problem.status!r} at tolerance {tolerance!r}: no reference value."
        )
