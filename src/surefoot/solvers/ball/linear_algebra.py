"""The one linear system of `ball_newton`: normal equations in (θ, b, λ), whichever of n and d is the smaller."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, qr

from surefoot.solvers.ball.cones import ConeSystem

Float = NDArray[np.float64]


PROXIMAL = 1e-9


class Factor(NamedTuple):
    """Cholesky factor of S H S for the diagonal S that gives it a unit diagonal."""

    scale: Float
    chol: tuple[Float, bool]


def factor_scaled(H: Float) -> Factor:
    """Factor a symmetric positive semidefinite H, with the smallest ridge (relative to its diagonal) that succeeds."""
    diagonal = np.diag(H).copy()
    diagonal[~(diagonal > 0.0)] = 1.0
    scale = 1.0 / np.sqrt(diagonal)
    unit = H * scale[:, None] * scale
    if not np.isfinite(unit).all():
        return Factor(scale, (np.full_like(H, np.nan), True))
    ridge = 0.0
    while True:
        try:
            return Factor(scale, cho_factor(unit + ridge * np.eye(len(H)), lower=True, check_finite=False))
        except LinAlgError:
            ridge = max(10 * ridge, 1e-15)


def solve_scaled(factor: Factor, rhs: Float) -> Float:
    """H⁻¹ rhs from its factor, for rhs (m,) or (m, k)."""
    scale = factor.scale if rhs.ndim == 1 else factor.scale[:, None]
    return scale * cho_solve(factor.chol, scale * rhs, check_finite=False)


def balanced(A: Float, w: Float, p: Float, s: Float) -> Float:
    """The nearest p in the metric w/(p(1 − p)) with Aᵀ(w(p − s)) = 0, to the rounding of each column of A."""
    curvature = p * (1.0 - p)
    rows = np.flatnonzero(curvature > 1e-200)
    if len(rows) == 0:
        return p
    G = np.sqrt(w[rows] * curvature[rows])[:, None] * A[rows]
    size = np.linalg.norm(G, axis=0)
    Q, R, _ = qr(G / np.where(size > 0.0, size, 1.0), mode="economic", pivoting=True)
    Q = Q[:, : int((np.abs(np.diag(R)) > max(G.shape) * np.finfo(float).eps).sum())]
    weight = np.sqrt(w[rows] / curvature[rows])
    h = weight * (p[rows] - s[rows])
    for _ in range(2):
        h = h - Q @ (Q.T @ h)
    p = p.copy()
    p[rows] = s[rows] + h / weight
    return p


class RightHandSide(NamedTuple):
    """The Newton system asks AᵀEΔz − κAᵀDΔλ + cone = Aᵀflow − (g_θ, 0) in (θ, b), and force in λ; flow (n,)."""

    flow: Float
    g_theta: Float
    force: float


class TallEquations:
    """Newton system in (θ, b, λ) for d ≤ n: one dense Cholesky factor of size d + 2.

    The matrix, with E and D diagonal (n,), is

        [[AᵀEA + diag(q) + kφφᵀ, −κAᵀD1 + kψφ + r], [·, κ²ΣD + kψ² + c]]
    """

    def __init__(self, A: Float, d: int, kappa: float) -> None:
        self.A, self.d, self.kappa = A, d, kappa

    def factor(self, E: Float, D: Float, cone: ConeSystem) -> None:
        d, m = self.d, self.A.shape[1]
        B = np.sqrt(E)[:, None] * self.A
        H = np.empty((m + 1, m + 1))
        H[:m, :m] = B.T @ B
        H[:d, :d] += cone.k * np.outer(cone.phi, cone.phi)
        H[np.arange(d), np.arange(d)] += cone.q
        side = -self.kappa * (D @ self.A)
        side[:d] += cone.k * cone.psi * cone.phi + cone.r
        H[:m, m] = H[m, :m] = side
        H[m, m] = self.kappa**2 * float(D.sum()) + cone.k * cone.psi**2 + cone.c
        self.H, self.chol = H, factor_scaled(H)

    def solve(self, right: RightHandSide) -> Float:
        """(Δθ, Δb, Δλ), with two steps of iterative refinement."""
        rhs = np.append(right.flow @ self.A, right.force)
        rhs[: self.d] -= right.g_theta
        x = solve_scaled(self.chol, rhs)
        for _ in range(2):
            x = x + solve_scaled(self.chol, rhs - self.H @ x)
        return x


class WideEquations:
    """The same system for d > n, through τ = flow − EΔz + κDΔλ, the next w(p − s): a factor of size n.

    Δθ = Q⁻¹(Aᵀτ − g_θ − rΔλ − √k φρ) with ρ = √k (φ·Δθ + ψΔλ), and with δ = D/E, o = (Δb, Δλ, ρ)

        (E⁻¹ + AQ⁻¹Aᵀ) τ = E⁻¹flow + AQ⁻¹g_θ + C o,    Cᵀτ + K o = e,    C = [−y, AQ⁻¹r + κδ, √k AQ⁻¹φ]
    """

    def __init__(self, A: Float, d: int, kappa: float) -> None:
        self.A, self.rest, self.kappa = np.ascontiguousarray(A[:, :d]), A[:, d:], kappa

    def factor(self, E: Float, D: Float, cone: ConeSystem) -> None:
        self.diagonal = E @ self.A**2
        # a proximal term keeps q invertible where the cone is slack; it vanishes with the step
        cone = cone._replace(q=cone.q + PROXIMAL * float(self.diagonal.max()))
        self.E, self.D, self.cone, self.delta = E, D, cone, D / E
        self.AQ = self.A / cone.q
        S = self.AQ @ self.A.T
        S[np.diag_indices_from(S)] += 1.0 / E
        self.chol = factor_scaled(S)
        root, m = np.sqrt(cone.k), self.rest.shape[1]
        self.C = np.column_stack([-self.rest, self.AQ @ cone.r + self.kappa * self.delta, root * (self.AQ @ cone.phi)])
        K = np.zeros((m + 2, m + 2))
        K[m, m] = self.kappa**2 * float(D @ (1.0 - self.delta)) + cone.schur
        K[m, m + 1] = K[m + 1, m] = root * (cone.psi - float((cone.phi / cone.q) @ cone.r))
        K[m + 1, m + 1] = -1.0 - cone.k * float((cone.phi / cone.q) @ cone.phi)
        self.SC = solve_scaled(self.chol, self.C)
        self.small = K + self.C.T @ self.SC
        self.small_scale = 1.0 / np.sqrt(np.maximum(np.abs(self.small).max(axis=0), 1e-300))

    def solve(self, right: RightHandSide) -> Float:
        """(Δθ, Δb, Δλ), refined in (θ, b, λ) as long as that lowers the residual."""
        best = self._solve_once(right.flow, right.g_theta, np.zeros(self.rest.shape[1]), right.force)
        r_theta, r_b, r_lam = self._residual(right, best)
        size = self._size(r_theta, r_b, r_lam)
        for _ in range(3):
            x = best + self._solve_once(np.zeros_like(self.E), -r_theta, r_b, r_lam)
            r_theta, r_b, r_lam = self._residual(right, x)
            last, size = size, self._size(r_theta, r_b, r_lam)
            if not size < last:
                break
            best = x
        return best

    def _size(self, r_theta: Float, r_b: Float, r_lam: float) -> float:
        """Norm of a residual, each part relative to the diagonal of the matrix."""
        cone = self.cone
        corner = self.kappa**2 * float(self.D.sum()) + cone.k * cone.psi**2 + cone.c
        theta = r_theta / np.sqrt(self.diagonal + cone.q + cone.k * cone.phi**2)
        return float(np.sqrt(theta @ theta + r_b @ r_b / self.E.sum() + r_lam**2 / corner))

    def _residual(self, right: RightHandSide, x: Float) -> tuple[Float, Float, float]:
        cone, d, lam = self.cone, self.A.shape[1], float(x[-1])
        dz = self.A @ x[:d] + self.rest @ x[d:-1]
        tau = right.flow - self.E * dz + (self.kappa * lam) * self.D
        rank_one = cone.k * (float(cone.phi @ x[:d]) + cone.psi * lam)
        r_theta = tau @ self.A - right.g_theta - cone.q * x[:d] - cone.r * lam - rank_one * cone.phi
        pull = self.kappa * float(self.D @ (self.kappa * lam - dz)) + float(cone.r @ x[:d]) + rank_one * cone.psi
        return r_theta, tau @ self.rest, right.force - pull - cone.c * lam

    def _solve_once(self, flow: Float, g_theta: Float, balance: Float, force: float) -> Float:
        cone, m, root = self.cone, self.rest.shape[1], np.sqrt(self.cone.k)
        tau = solve_scaled(self.chol, flow / self.E + self.AQ @ g_theta)
        e = np.append(balance, [self.kappa * float(self.delta @ flow) + force, 0.0])
        e[m:] += float((cone.r / cone.q) @ g_theta), root * float((cone.phi / cone.q) @ g_theta)
        if not np.isfinite(self.small).all():
            return np.full(self.A.shape[1] + m + 1, np.nan)
        unit = self.small * self.small_scale[:, None] * self.small_scale
        o = self.small_scale * np.linalg.lstsq(unit, self.small_scale * (e - self.C.T @ tau), rcond=1e-15)[0]
        tau = tau + self.SC @ o
        pull = g_theta + cone.r * o[m] + (root * o[m + 1]) * cone.phi
        return np.concatenate([(tau @ self.A - pull) / cone.q, o[: m + 1]])
