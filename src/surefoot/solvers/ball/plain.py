"""Radius zero: plain logistic regression, with the certificate of the ball and an exact treatment of separable data.

    min_{θ,b}  Σ_i w_i log(1 + e^{−z_i}),   dual:  max Σ_i w_i H(p_i)  s.t.  Aᵀ(w p) = 0,  0 ≤ p ≤ 1

with rows a_i = y_i (x_i, 1) of A. If some direction has A·dir ≥ 0 and is positive on rows S, the infimum is that of the
other rows and is not attained: rows in S have p = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.optimize import linprog
from scipy.special import entr, expit

from surefoot.solvers.ball.linear_algebra import balanced, factor_scaled, solve_scaled

Float = NDArray[np.float64]


@dataclass(frozen=True)
class PlainSolution:
    """x (m,) with margins A x, dual p (n,), whether the infimum is not attained, and the Newton steps taken."""

    x: Float
    p: Float
    separable: bool
    n_iter: int


def plain_logistic(A: Float, w: Float, tol: float, max_iter: int) -> PlainSolution:
    """Solve plain logistic regression on rows A (n, m), weights w (n,), to a duality gap of about tol."""
    size = np.linalg.norm(A, axis=0) / np.sqrt(len(A))
    size[size == 0.0] = 1.0
    basis, back = _orthonormal(A / size)
    solution = _newton(basis, w, tol, max_iter, suspect=True)
    if solution.separable and not (basis @ solution.x > 0).all():
        solution = _reduce_face(basis, w, tol, max_iter, solution)
    p = balanced(A, w, np.clip(solution.p, 0.0, 1.0), np.zeros_like(w))
    return PlainSolution((back @ solution.x) / size, p, solution.separable, solution.n_iter)


def _orthonormal(A: Float) -> tuple[Float, Float]:
    """Basis B (n, r) of the columns of A, of size about one each, with BᵀB = n I; and the map T (m, r), A T = B."""
    n, m = A.shape
    Q, R, order = qr(A, mode="economic", pivoting=True)
    rank = int((np.abs(np.diag(R)) > max(n, m) * np.finfo(float).eps * np.sqrt(n)).sum())
    back = np.zeros((m, rank))
    back[order[:rank]] = np.linalg.solve(R[:rank, :rank], np.sqrt(n) * np.eye(rank))
    return np.sqrt(n) * Q[:, :rank], back


def _newton(B: Float, w: Float, tol: float, max_iter: int, suspect: bool) -> PlainSolution:
    """Damped Newton on rows B (n, r).

    With `suspect`, stop as `separable` once all margins are positive, or once the objective settles while the steps do
    not: along a separating direction each step gains a factor e only, where Newton else converges quadratically.
    """
    n, r = B.shape
    x, z, dual = np.zeros(r), np.zeros(n), np.full(n, 0.5)
    last = np.inf
    for n_iter in range(1, max_iter + 1):
        p = expit(-z)
        curvature = p * expit(z)
        gradient = -(w * p) @ B
        factor = factor_scaled(((w * curvature)[:, None] * B).T @ B)
        dx = -solve_scaled(factor, gradient)
        dz = B @ dx
        dual = p - curvature * dz
        for _ in range(2):  # remove the rounding left in Bᵀ(w dual) = 0
            dual = dual - curvature * (B @ solve_scaled(factor, (w * dual) @ B))
        value, slope = float(w @ np.logaddexp(0.0, -z)), float(gradient @ dx)
        settled = not suspect or slope > 0.05 * last or float(np.max(np.abs(dz), initial=0.0)) < 0.01
        lower = float(w @ (entr(np.clip(dual, 0, 1)) + entr(np.clip(1 - dual, 0, 1))))
        if settled and dual.min() >= -1e-15 and value - lower <= 0.5 * tol:
            return PlainSolution(x, dual, False, n_iter)
        if -slope < 1e-3 * tol and not settled:
            break
        step, last = _armijo(w, z, dz, value, slope), slope
        x, z = x + step * dx, z + step * dz
        if suspect and (z > 0).all():
            x = x * max(1.0, np.log(10.0 / tol) / float(z.min()))
            return PlainSolution(x, np.zeros(n), True, n_iter)
    return PlainSolution(x, dual, suspect, n_iter)


def _armijo(w: Float, z: Float, dz: Float, value: float, slope: float) -> float:
    step = 1.0
    while step > 1e-10 and float(w @ np.logaddexp(0.0, -(z + step * dz))) > value + 1e-4 * step * slope + 1e-15:
        step /= 2
    return step


def _reduce_face(B: Float, w: Float, tol: float, max_iter: int, found: PlainSolution) -> PlainSolution:
    """Split off, by one linear programme, every row that some direction separates; solve the remaining rows."""
    direction = _separating_direction(B)
    margin = B @ direction
    away = margin > 0.5
    if not away.any():
        inner = _newton(B, w, tol, max_iter, suspect=False)
        return PlainSolution(inner.x, inner.p, False, found.n_iter + inner.n_iter)
    if away.all():
        return PlainSolution(direction * np.log(10.0 / tol) / margin.min(), np.zeros(len(w)), True, found.n_iter)
    rest = B[~away]
    direction = direction - np.linalg.lstsq(rest, rest @ direction, rcond=None)[0]
    basis, back = _orthonormal(rest)
    inner = _newton(basis, w[~away], tol, max_iter, suspect=False)
    x = back @ inner.x
    far = (np.log(10.0 / tol) + float(np.max(-(B[away] @ x), initial=0.0))) / float((B[away] @ direction).min())
    p = np.zeros(len(w))
    p[~away] = inner.p
    return PlainSolution(x + max(far, 0.0) * direction, p, True, found.n_iter + inner.n_iter)


def _separating_direction(B: Float) -> Float:
    """A direction with B·dir ≥ 0 and B·dir ≥ 1 on the largest possible set of rows."""
    n, r = B.shape
    rows = np.hstack([-B, np.eye(n)])  # t_i ≤ b_i·dir
    cost = np.concatenate([np.zeros(r), -np.ones(n)])
    bounds = [(None, None)] * r + [(0.0, 1.0)] * n
    answer = linprog(cost, A_ub=rows, b_ub=np.zeros(n), bounds=bounds, method="highs")
    return np.zeros(r) if answer.x is None else np.asarray(answer.x[:r])
