"""Compute both sides of the certificate of the Wasserstein ball alone, and the worst case of a fixed classifier.

These functions only evaluate points. They do not iterate, and the solver never uses them to choose a step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve, qr
from scipy.special import entr

from surefoot._validation import FloatArray
from surefoot.solvers.ball_cones import ConeSystem

# The linear system of `ball_newton`: normal equations in (θ, b, λ), of size n or d, whichever is smaller.

# The proximal term is this share of the largest curvature. It keeps the system invertible.
PROXIMAL = 1e-9


class Factor(NamedTuple):
    """Cholesky factor of S H S. The diagonal S scales H to a unit diagonal."""

    scale: FloatArray
    chol: tuple[FloatArray, bool]


def factor_scaled(H: FloatArray) -> Factor:
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


def solve_scaled(factor: Factor, rhs: FloatArray) -> FloatArray:
    """Return H⁻¹ rhs from the factor of H, for rhs (m,) or (m, k)."""
    scale = factor.scale if rhs.ndim == 1 else factor.scale[:, None]
    return scale * cho_solve(factor.chol, scale * rhs, check_finite=False)


def balanced(A: FloatArray, w: FloatArray, p: FloatArray, s: FloatArray) -> FloatArray:
    """Return the nearest p in the metric w/(p(1 − p)) with Aᵀ(w(p − s)) = 0, to the rounding of each column of A."""
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
    """Right side of the Newton system: AᵀEΔz − κAᵀDΔλ + cone = Aᵀflow − (g_θ, 0) in (θ, b), force in λ; flow (n,)."""

    flow: FloatArray
    g_theta: FloatArray
    force: float


class TallEquations:
    """Newton system in (θ, b, λ) for d ≤ n: one dense Cholesky factor of size d + 2.

    The matrix, with E and D diagonal (n,), is

        [[AᵀEA + diag(q) + kφφᵀ, −κAᵀD1 + kψφ + r], [·, κ²ΣD + kψ² + c]]
    """

    def __init__(self, A: FloatArray, d: int, kappa: float) -> None:
        self.A, self.d, self.kappa = A, d, kappa

    def factor(self, E: FloatArray, D: FloatArray, cone: ConeSystem) -> None:
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

    def solve(self, right: RightHandSide) -> FloatArray:
        """Return (Δθ, Δb, Δλ), with two steps of iterative refinement."""
        rhs = np.append(right.flow @ self.A, right.force)
        rhs[: self.d] -= right.g_theta
        x = solve_scaled(self.chol, rhs)
        for _ in range(2):
            x = x + solve_scaled(self.chol, rhs - self.H @ x)
        return x


class WideEquations:
    """The same system for d > n, in the unknown τ = flow − EΔz + κDΔλ, the next w(p − s): a factor of size n.

    Δθ = Q⁻¹(Aᵀτ − g_θ − rΔλ − √k φρ) with ρ = √k (φ·Δθ + ψΔλ), and with δ = D/E, o = (Δb, Δλ, ρ)

        (E⁻¹ + AQ⁻¹Aᵀ) τ = E⁻¹flow + AQ⁻¹g_θ + C o,    Cᵀτ + K o = e,    C = [−y, AQ⁻¹r + κδ, √k AQ⁻¹φ]
    """

    def __init__(self, A: FloatArray, d: int, kappa: float) -> None:
        self.A, self.rest, self.kappa = np.ascontiguousarray(A[:, :d]), A[:, d:], kappa

    def factor(self, E: FloatArray, D: FloatArray, cone: ConeSystem) -> None:
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

    def solve(self, right: RightHandSide) -> FloatArray:
        """Return (Δθ, Δb, Δλ), refined in (θ, b, λ) while the residual decreases."""
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

    def _size(self, r_theta: FloatArray, r_b: FloatArray, r_lam: float) -> float:
        """Return the norm of a residual, with each part relative to the diagonal of the matrix."""
        cone = self.cone
        corner = self.kappa**2 * float(self.D.sum()) + cone.k * cone.psi**2 + cone.c
        theta = r_theta / np.sqrt(self.diagonal + cone.q + cone.k * cone.phi**2)
        return float(np.sqrt(theta @ theta + r_b @ r_b / self.E.sum() + r_lam**2 / corner))

    def _residual(self, right: RightHandSide, x: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        cone, d, lam = self.cone, self.A.shape[1], float(x[-1])
        dz = self.A @ x[:d] + self.rest @ x[d:-1]
        tau = right.flow - self.E * dz + (self.kappa * lam) * self.D
        rank_one = cone.k * (float(cone.phi @ x[:d]) + cone.psi * lam)
        r_theta = tau @ self.A - right.g_theta - cone.q * x[:d] - cone.r * lam - rank_one * cone.phi
        pull = self.kappa * float(self.D @ (self.kappa * lam - dz)) + float(cone.r @ x[:d]) + rank_one * cone.psi
        return r_theta, tau @ self.rest, right.force - pull - cone.c * lam

    def _solve_once(self, flow: FloatArray, g_theta: FloatArray, balance: FloatArray, force: float) -> FloatArray:
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


# Exponents by name: of the norm on θ (the dual norm), and of the norm on features whose dual it is.
DUAL_NORMS: dict[str, float] = {"l1": 1.0, "l2": 2.0, "linf": np.inf}
FEATURE_NORMS: dict[str, float] = {"l1": np.inf, "l2": 2.0, "linf": 1.0}


def vector_norm(v: FloatArray, order: float) -> float:
    """Return the p-norm of a vector (d,). It does not overflow, and is 0 if d = 0."""
    top = float(np.max(np.abs(v), initial=0.0))
    if top == 0.0 or not np.isfinite(top):
        return top
    return top * float(np.linalg.norm(v / top, order))


def _softplus(t: FloatArray) -> FloatArray:
    return np.logaddexp(0.0, t)


def _margins(X: FloatArray, y_sign: FloatArray, coef: FloatArray, intercept: float) -> FloatArray:
    return y_sign * (X @ coef + intercept)


def _weights(weights: ArrayLike | None, n: int) -> FloatArray:
    if weights is None:
        return np.full(n, 1.0 / n)
    w = np.asarray(weights, dtype=np.float64)
    return w / w.sum()


def _thresholds(
    z: FloatArray, w: FloatArray, radii: FloatArray, label_cost: float, floor: float
) -> tuple[FloatArray, FloatArray]:
    """Return the best λ for each radius, and Σ w_i (z_i − λκ)_+ there.

    ελ + Σ w_i (z_i − λκ)_+ has slope ε − κ·w{z > λκ}. Therefore λκ is the smallest order statistic of z with at most
    ε/κ of the weight above it, unless the constraint λ ≥ floor is active.
    """
    order = np.argsort(z)
    z, w = z[order], w[order]
    above = np.append(np.cumsum(w[:0:-1])[::-1], 0.0)  # above[k] = weight strictly after position k, falling to 0
    k = np.searchsorted(-above, -radii / label_cost)  # first k with above[k] ≤ ε/κ
    lam = np.maximum(floor, z[k] / label_cost) + 0.0  # avoids negative zero
    after = np.searchsorted(z, lam * label_cost, side="right")
    tail_w = np.append(np.cumsum(w[::-1])[::-1], 0.0)
    tail_wz = np.append(np.cumsum((w * z)[::-1])[::-1], 0.0)
    hinge = tail_wz[after] - lam * label_cost * tail_w[after]
    return lam, np.maximum(hinge, 0.0)


def ball_worst_case(
    X: ArrayLike,
    y_sign: ArrayLike,
    coef: ArrayLike,
    intercept: float = 0.0,
    *,
    weights: ArrayLike | None = None,
    radii: ArrayLike,
    label_cost: float = 1.0,
    norm: str = "l2",
) -> FloatArray:
    """Compute the exact worst-case logistic risk of a fixed classifier over Wasserstein balls of many radii.

    Solves, for each radius ε, with z_i = y_i(⟨θ, x_i⟩ + b),

        min_λ  ελ + Σ_i w_i [log(1 + e^{−z_i}) + (z_i − λκ)_+]    s.t.  λ ≥ ‖θ‖_*

    The objective is piecewise linear in λ. One sort and cumulative sums serve all radii, with a binary search for each.

    Parameters
    ----------
    X : (n, d) features; y_sign : (n,) labels ±1; coef : (d,) θ; intercept : b
    weights : (n,) non-negative, normalised to sum one; None means 1/n
    radii : (m,) radii ε ≥ 0 (a scalar counts as m = 1)
    label_cost : κ > 0, possibly inf
    norm : the norm on θ, "l2" (Euclidean metric), "linf" (Manhattan) or "l1" (Chebyshev)

    Returns
    -------
    (m,) worst-case risks, non-decreasing and concave in the radius.
    """
    X, y, theta = (np.asarray(a, dtype=np.float64) for a in (X, y_sign, coef))
    eps = np.atleast_1d(np.asarray(radii, dtype=np.float64))
    w = _weights(weights, len(y))
    z = _margins(X, y, theta, float(intercept))
    floor = vector_norm(theta, DUAL_NORMS[norm])
    loss = float(w @ _softplus(-z))
    if np.isinf(label_cost):
        return loss + eps * floor
    lam, hinge = _thresholds(z, w, eps, label_cost, floor)
    return loss + eps * lam + hinge


def ball_upper_bound(
    X: FloatArray,
    y_sign: FloatArray,
    coef: FloatArray,
    intercept: float,
    *,
    weights: ArrayLike | None = None,
    radius: float,
    label_cost: float = 1.0,
    norm: str = "l2",
) -> tuple[float, float]:
    """Return the robust risk at (θ, b), and the λ that attains it.

    Evaluates ελ + Σ_i w_i [log(1 + e^{−z_i}) + (z_i − λκ)_+] term by term at the best λ ≥ ‖θ‖_*. Every λ ≥ ‖θ‖_* gives
    a valid upper bound on the optimal value, so rounding in the choice of λ never invalidates the bound.
    """
    w = _weights(weights, len(y_sign))
    z = _margins(X, y_sign, coef, intercept)
    lam = vector_norm(coef, DUAL_NORMS[norm])
    excess = np.zeros_like(z)
    if np.isfinite(label_cost):
        lam = float(_thresholds(z, w, np.array([radius]), label_cost, lam)[0][0])
        excess = np.maximum(z - lam * label_cost, 0.0)
    return float(radius * lam + w @ (_softplus(-z) + excess)), lam


def ball_lower_bound(
    X: FloatArray,
    y_sign: FloatArray,
    p: FloatArray,
    s: FloatArray,
    *,
    weights: ArrayLike | None = None,
    radius: float,
    label_cost: float = 1.0,
    norm: str = "l2",
    fit_intercept: bool = True,
) -> tuple[float, FloatArray, FloatArray]:
    """Return a lower bound on the optimal robust risk from any (p, s), and the feasible pair that proves the bound.

    For p_i, s_i in [0, 1], log(1 + e^{−z}) + (z − λκ)_+ ≥ H(p_i) − (p_i − s_i) z − s_i λκ with H the binary entropy.
    Minimising the right side over (θ, b, λ) gives the dual

        max  Σ w_i H(p_i)   s.t.  Σ w_i (p_i − s_i) y_i = 0            (only with an intercept)
                                  ‖Σ w_i (p_i − s_i) y_i x_i‖ + κ Σ w_i s_i ≤ ε,    0 ≤ p, s ≤ 1

    The pair is first repaired. It is clipped to [0, 1], moved along y_i p_i (1 − p_i) to restore the equality, and
    scaled by the largest t ≤ 1 that satisfies the inequality (the feasible set is star-shaped around 0). The inequality
    holds up to the rounding error of its own evaluation, 32 ulp of the sum of absolute terms. This error matters for
    zero ε only.

    Returns
    -------
    value ≥ 0, p (n,), s (n,)
    """
    w = _weights(weights, len(y_sign))
    if fit_intercept:  # the dual ignores shifts of the features, and sums round least if centred
        X = X - w @ X
    return ball_dual_value(X, y_sign, p, s, w, radius, label_cost, norm, fit_intercept)


def ball_dual_value(
    X: FloatArray,
    y_sign: FloatArray,
    p: FloatArray,
    s: FloatArray,
    w: FloatArray,
    radius: float,
    label_cost: float,
    norm: str,
    fit_intercept: bool,
) -> tuple[float, FloatArray, FloatArray]:
    """Repair (p, s) and evaluate Σ w_i H(p_i), like `ball_lower_bound`, without centring the features."""
    p, s = np.clip(p, 0.0, 1.0), np.clip(s, 0.0, 1.0)
    if np.isinf(label_cost):
        s = np.zeros_like(p)
    if fit_intercept:
        p, s = _restore_balance(p, s, y_sign, w)
    order = FEATURE_NORMS[norm]
    flow = w * (p - s) * y_sign
    flips = label_cost * float(w @ s) if np.isfinite(label_cost) else 0.0
    moved = vector_norm(flow @ X, order)
    rounding = 32 * np.finfo(float).eps * (vector_norm(np.abs(flow) @ np.abs(X), order) + flips)
    need = moved + flips
    t = 1.0 if need <= radius + rounding else radius / need
    p, s = t * p, t * s
    return float(w @ (entr(p) + entr(1.0 - p))), p, s


def _restore_balance(p: FloatArray, s: FloatArray, y: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Move (p, s) so that Σ w_i (p_i − s_i) y_i = 0: first along y p(1−p), otherwise by shrinking the heavier class."""
    for _ in range(2):  # the second pass removes the rounding of the first
        push = w * p * (1.0 - p)
        total = float(push.sum())
        excess = float((w * (p - s)) @ y)
        if excess == 0.0:
            return p, s
        if total == 0.0 or abs(excess) > total:
            return _shrink_class(p, s, y, w)
        p = np.clip(p - (excess / total) * y * p * (1.0 - p), 0.0, 1.0)
    return p, s


def _shrink_class(p: FloatArray, s: FloatArray, y: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scale one class of (p, s) so that both classes have equal Σ w (p − s). Return (0, 0) if the signs differ."""
    net = w * (p - s)
    plus, minus = float(net[y > 0].sum()), float(net[y < 0].sum())
    if plus * minus <= 0.0:
        return np.zeros_like(p), np.zeros_like(s)
    factor_plus, factor_minus = min(1.0, minus / plus), min(1.0, plus / minus)
    factor = np.where(y > 0, factor_plus, factor_minus)
    return factor * p, factor * s
