"""The constraints of `ball_newton`: ‖θ‖_* ≤ λ, with one class per norm, and the hinge.

Each cone stores its slacks and multipliers, and gives the Newton system the same interface. After linearisation, the
multiplier (v, v0) of (θ, λ) after a step is minus the gradient in (Δθ, Δλ) of

    ½ [Σ_j q_j Δθ_j² + k (φ·Δθ + ψΔλ)² + 2 (r·Δθ) Δλ + c Δλ²] + g_θ·Δθ + g_λ Δλ

`system` returns (q, k, φ, ψ, r, c) and `gradient` returns (g_θ, g_λ) for a barrier weight μ.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from surefoot._validation import FloatArray


class ConeSystem(NamedTuple):
    """Quadratic form of a cone: q (d,), k, φ (d,), ψ, r (d,), c, and schur = c − Σ r²/q, without cancellation."""

    q: FloatArray
    k: float
    phi: FloatArray
    psi: float
    r: FloatArray
    c: float
    schur: float


class Cone(Protocol):
    """The interface between a norm constraint and the Newton iteration."""

    degree: float

    def complementarity(self) -> float: ...
    def system(self) -> ConeSystem: ...
    def gradient(self, mu: float, correct: bool) -> tuple[FloatArray, float]: ...
    def direct(self, d_theta: FloatArray, d_lam: float, mu: float, correct: bool) -> None: ...
    def max_steps(self) -> tuple[float, float]: ...
    def barrier(self, step: float) -> float: ...
    def move(self, primal: float, dual: float) -> None: ...


def ratio_step(x: FloatArray, dx: FloatArray) -> float:
    """Return the largest step t (at most 1e10) with x + t·dx ≥ 0, for x > 0."""
    with np.errstate(over="ignore"):
        worst = float(np.max(-dx / x, initial=1e-10))
    return 1.0 / worst


def _log(x: FloatArray | float) -> float:
    """Return Σ log x, or NaN or −inf outside the domain."""
    return float(np.sum(np.log(x)))


def _det(x0: float, x1: FloatArray) -> float:
    """Return x0² − ‖x1‖², without the cancellation of the squares."""
    size = float(np.linalg.norm(x1))
    return (x0 - size) * (x0 + size)


class SecondOrderCone:
    """‖θ‖₂ ≤ λ with multiplier ‖v‖₂ ≤ v0 and Nesterov–Todd scaling; on the central path ⟨(λ,θ), (v0,v)⟩ = 2μ."""

    degree = 2.0

    def __init__(self, theta: FloatArray, lam: float, mu: float) -> None:
        det = _det(lam, theta)
        self.x0, self.x1 = lam, theta.copy()
        self.v0, self.v1 = 2 * mu * lam / det, -2 * mu * theta / det
        self.dx0, self.dx1, self.dv0, self.dv1 = 0.0, np.zeros_like(theta), 0.0, np.zeros_like(theta)

    def complementarity(self) -> float:
        return self.x0 * self.v0 + float(self.x1 @ self.v1)

    def system(self) -> ConeSystem:
        rx, rv = np.sqrt(_det(self.x0, self.x1)), np.sqrt(_det(self.v0, self.v1))
        a0, a1, b0, b1 = self.x0 / rx, self.x1 / rx, self.v0 / rv, self.v1 / rv
        gamma = np.sqrt(max((1.0 + a0 * b0 + float(a1 @ b1)) / 2.0, 1.0))
        self._w1 = (a1 - b1) / (2 * gamma)  # scaling point of unit determinant
        self._w0 = float(np.sqrt(1.0 + self._w1 @ self._w1))
        self._eta = float(np.sqrt(rx / rv))
        scale = 1.0 / self._eta**2
        q = np.full(len(self.x1), scale)
        return ConeSystem(q, 2 * scale, -self._w1, self._w0, np.zeros_like(q), -scale, -scale)

    def _scale(self, x0: float, x1: FloatArray, inverse: bool) -> tuple[float, FloatArray]:
        """Return W x, or W⁻¹ x, for the scaling W = η [[w0, w1ᵀ], [w1, I + w1 w1ᵀ/(1 + w0)]]."""
        w1 = -self._w1 if inverse else self._w1
        eta = 1.0 / self._eta if inverse else self._eta
        dot = float(w1 @ x1)
        return eta * (self._w0 * x0 + dot), eta * (x1 + (x0 + dot / (1.0 + self._w0)) * w1)

    def gradient(self, mu: float, correct: bool) -> tuple[FloatArray, float]:
        l0, l1 = self._scale(self.v0, self.v1, inverse=False)
        t0, t1 = 2.0 * mu, np.zeros_like(l1)
        if correct:
            a0, a1 = self._scale(self.dx0, self.dx1, inverse=True)
            b0, b1 = self._scale(self.dv0, self.dv1, inverse=False)
            t0 -= a0 * b0 + float(a1 @ b1)
            t1 -= a0 * b1 + b0 * a1
        # Jordan division of t by the scaled point l
        d0 = (l0 * t0 - float(l1 @ t1)) / _det(l0, l1)
        d1 = (t1 - d0 * l1) / l0
        g0, g1 = self._scale(d0, d1, inverse=True)
        return -g1, -g0

    def direct(self, d_theta: FloatArray, d_lam: float, mu: float, correct: bool) -> None:
        g1, g0 = self.gradient(mu, correct)
        a0, a1 = self._scale(*self._scale(d_lam, d_theta, inverse=True), inverse=True)
        self.dx0, self.dx1 = d_lam, d_theta
        self.dv0, self.dv1 = -a0 - g0 - self.v0, -a1 - g1 - self.v1

    def max_steps(self) -> tuple[float, float]:
        return _soc_step(self.x0, self.x1, self.dx0, self.dx1), _soc_step(self.v0, self.v1, self.dv0, self.dv1)

    def barrier(self, step: float) -> float:
        return -_log(_det(self.x0 + step * self.dx0, self.x1 + step * self.dx1))

    def move(self, primal: float, dual: float) -> None:
        self.x0, self.x1 = self.x0 + primal * self.dx0, self.x1 + primal * self.dx1
        self.v0, self.v1 = self.v0 + dual * self.dv0, self.v1 + dual * self.dv1


def _soc_step(x0: float, x1: FloatArray, d0: float, d1: FloatArray) -> float:
    """Return the largest step (at most 1e10) that keeps x + t·d in the second-order cone (x interior)."""
    root = np.sqrt(_det(x0, x1))
    n0, n1 = x0 / root, x1 / root
    # rotate x to the unit element: the rotated direction has eigenvalues r0 ± ‖r1‖ and the same step
    dot = n0 * d0 - float(n1 @ d1)
    r1 = d1 - ((dot + d0) / (n0 + 1.0)) * n1
    low = (dot - float(np.linalg.norm(r1))) / root
    return 1.0 / max(-low, 1e-10)


class BoxCone:
    """‖θ‖_∞ ≤ λ as λ − θ ≥ 0 and λ + θ ≥ 0, with multipliers g, h (d,), each with complementarity μ/d."""

    degree = 2.0

    def __init__(self, theta: FloatArray, lam: float, mu: float) -> None:
        self.weight = 1.0 / len(theta)
        self.a, self.c = lam - theta, lam + theta
        self.g, self.h = mu * self.weight / self.a, mu * self.weight / self.c
        self.da, self.dc, self.dg, self.dh = (np.zeros_like(theta) for _ in range(4))

    def complementarity(self) -> float:
        return float(self.a @ self.g + self.c @ self.h)

    def system(self) -> ConeSystem:
        ratio_a, ratio_c = self.g / self.a, self.h / self.c
        total = ratio_a + ratio_c
        schur = float((4.0 * ratio_a * (ratio_c / total)).sum())
        return ConeSystem(total, 0.0, np.zeros_like(total), 0.0, ratio_c - ratio_a, float(total.sum()), schur)

    def _targets(self, mu: float, correct: bool) -> tuple[FloatArray, FloatArray]:
        goal = mu * self.weight
        if not correct:
            return goal / self.a, goal / self.c
        return (goal - self.da * self.dg) / self.a, (goal - self.dc * self.dh) / self.c

    def gradient(self, mu: float, correct: bool) -> tuple[FloatArray, float]:
        ga, hc = self._targets(mu, correct)
        return ga - hc, -float((ga + hc).sum())

    def direct(self, d_theta: FloatArray, d_lam: float, mu: float, correct: bool) -> None:
        ga, hc = self._targets(mu, correct)
        self.da, self.dc = d_lam - d_theta, d_lam + d_theta
        self.dg = ga - self.g / self.a * self.da - self.g
        self.dh = hc - self.h / self.c * self.dc - self.h

    def max_steps(self) -> tuple[float, float]:
        primal = min(ratio_step(self.a, self.da), ratio_step(self.c, self.dc))
        return primal, min(ratio_step(self.g, self.dg), ratio_step(self.h, self.dh))

    def barrier(self, step: float) -> float:
        return -self.weight * (_log(self.a + step * self.da) + _log(self.c + step * self.dc))

    def move(self, primal: float, dual: float) -> None:
        self.a, self.c = self.a + primal * self.da, self.c + primal * self.dc
        self.g, self.h = self.g + dual * self.dg, self.h + dual * self.dh


class CrossPolytopeCone:
    """‖θ‖₁ ≤ λ as t ± θ ≥ 0 and m = λ − Σ t ≥ 0, with multipliers g, h (d,) and l. The variable t is eliminated.

    Stationarity in t requires g + h = l. Complementarity is μ/d for each row of t ± θ and μ for m.
    """

    degree = 3.0

    def __init__(self, theta: FloatArray, lam: float, mu: float) -> None:
        d = len(theta)
        self.weight = 1.0 / d
        room = lam - float(np.abs(theta).sum())
        t = np.abs(theta) + room * (2.0 / 3.0) / d
        self.a, self.c, self.m = t - theta, t + theta, room / 3.0
        self.l = mu / self.m
        share = self.a / (self.a + self.c)
        self.g, self.h = self.l * (1.0 - share), self.l * share
        self.da, self.dc, self.dg, self.dh = (np.zeros_like(theta) for _ in range(4))
        self.dm = self.dl = 0.0

    def complementarity(self) -> float:
        return float(self.a @ self.g + self.c @ self.h) + self.m * self.l

    def system(self) -> ConeSystem:
        ratio_a, ratio_c = self.g / self.a, self.h / self.c
        self._total = ratio_a + ratio_c
        self._phi = (ratio_c - ratio_a) / self._total
        self._k = 1.0 / (self.m / self.l + float((1.0 / self._total).sum()))
        q = 4.0 * ratio_a * (ratio_c / self._total)
        return ConeSystem(q, self._k, self._phi, 1.0, np.zeros_like(q), 0.0, 0.0)

    def _targets(self, mu: float, correct: bool) -> tuple[FloatArray, FloatArray, float]:
        goal = mu * self.weight
        if not correct:
            return goal / self.a, goal / self.c, mu / self.m
        ga, hc = (goal - self.da * self.dg) / self.a, (goal - self.dc * self.dh) / self.c
        return ga, hc, (mu - self.dm * self.dl) / self.m

    def gradient(self, mu: float, correct: bool) -> tuple[FloatArray, float]:
        ga, hc, lm = self._targets(mu, correct)
        short = ga + hc - lm
        pull = self._k * float((short / self._total).sum())
        return ga - hc + self._phi * (short - pull), -lm - pull

    def direct(self, d_theta: FloatArray, d_lam: float, mu: float, correct: bool) -> None:
        ga, hc, lm = self._targets(mu, correct)
        short = ga + hc - lm
        rho = self._k * (d_lam + float(self._phi @ d_theta) - float((short / self._total).sum()))
        dt = (short + rho) / self._total - self._phi * d_theta
        self.da, self.dc, self.dm = dt - d_theta, dt + d_theta, rho * self.m / self.l
        self.dg = ga - self.g / self.a * self.da - self.g
        self.dh = hc - self.h / self.c * self.dc - self.h
        self.dl = lm - rho - self.l

    def max_steps(self) -> tuple[float, float]:
        primal = min(ratio_step(self.a, self.da), ratio_step(self.c, self.dc), 1 / max(-self.dm / self.m, 1e-10))
        dual = min(ratio_step(self.g, self.dg), ratio_step(self.h, self.dh), 1 / max(-self.dl / self.l, 1e-10))
        return primal, dual

    def barrier(self, step: float) -> float:
        pairs = _log(self.a + step * self.da) + _log(self.c + step * self.dc)
        return -self.weight * pairs - _log(self.m + step * self.dm)

    def move(self, primal: float, dual: float) -> None:
        self.a, self.c, self.m = self.a + primal * self.da, self.c + primal * self.dc, self.m + primal * self.dm
        self.g, self.h, self.l = self.g + dual * self.dg, self.h + dual * self.dh, self.l + dual * self.dl


CONES: dict[str, type[SecondOrderCone] | type[BoxCone] | type[CrossPolytopeCone]] = {
    "l1": CrossPolytopeCone,
    "l2": SecondOrderCone,
    "linf": BoxCone,
}


class Hinge:
    """u ≥ 0 and c = u − t ≥ 0 for t = z − λκ, with multipliers 1 − s and s. Pairs: complementarity μ, weight w."""

    degree = 2.0

    def __init__(self, t: FloatArray, mu: float, w: FloatArray) -> None:
        self.w = w
        root = np.hypot(t, 2 * mu)
        big = (np.abs(t) + root) / 2  # μ/s̄ and μ/s are the two roots shifted by μ
        small = mu * (mu / big)
        self.u = mu + np.where(t > 0, big, small)
        self.c = mu + np.where(t > 0, small, big)
        self.s, self.s_bar = mu / self.c, mu / self.u
        self.du, self.dc, self.ds = (np.zeros_like(t) for _ in range(3))
        self.shift = np.zeros((2, len(t)))  # added to the targets of s̄u and sc

    def complementarity(self) -> float:
        return float(self.w @ (self.s_bar * self.u + self.s * self.c))

    def system(self) -> FloatArray:
        self.D = 1.0 / (self.c / self.s + self.u / self.s_bar)
        return self.D

    def _targets(self, mu: float, correct: bool) -> tuple[FloatArray, FloatArray]:
        r1, r2 = mu + self.shift[0] - self.s_bar * self.u, mu + self.shift[1] - self.s * self.c
        if correct:
            r1, r2 = r1 + self.ds * self.du, r2 - self.ds * self.dc
        return r1, r2

    def gradient(self, mu: float, correct: bool) -> FloatArray:
        """Return s⁺ − DΔt, the part of the next s that does not depend on the step."""
        r1, r2 = self._targets(mu, correct)
        return self.s + self.D * (r2 / self.s - r1 / self.s_bar)

    def direct(self, dt: FloatArray, mu: float, correct: bool) -> None:
        r1, r2 = self._targets(mu, correct)
        self.ds = self.D * (dt + r2 / self.s - r1 / self.s_bar)
        self.du = (r1 + self.u * self.ds) / self.s_bar
        self.dc = (r2 - self.c * self.ds) / self.s

    def max_steps(self) -> tuple[float, float]:
        primal = min(ratio_step(self.u, self.du), ratio_step(self.c, self.dc))
        return primal, min(ratio_step(self.s, self.ds), ratio_step(self.s_bar, -self.ds))

    def outliers(self, primal: float, dual: float, mu: float) -> FloatArray:
        """Correct s̄u and sc (2, n) after the steps: move them into [μ/10, 10μ], at most 10μ downwards."""
        products = np.stack(
            [
                (self.s_bar - dual * self.ds) * (self.u + primal * self.du),
                (self.s + dual * self.ds) * (self.c + primal * self.dc),
            ]
        )
        return np.maximum(np.clip(products, 0.1 * mu, 10.0 * mu) - products, -10.0 * mu)

    def value(self, step: float, mu: float) -> float:
        u, c = self.u + step * self.du, self.c + step * self.dc
        return float(self.w @ (u - mu * (np.log(u) + np.log(c))))

    def move(self, primal: float, dual: float) -> None:
        self.u, self.c = self.u + primal * self.du, self.c + primal * self.dc
        self.s, self.s_bar = self.s + dual * self.ds, self.s_bar - dual * self.ds
