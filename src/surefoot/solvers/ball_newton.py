"""Primal–dual interior-point Newton method for the Wasserstein ball alone (binary logistic regression).

    min_{θ,b,λ,u}  ελ + Σ_i w_i [log(1 + e^{−z_i}) + u_i]    s.t.  u_i ≥ 0,  u_i ≥ z_i − λκ,  ‖θ‖_* ≤ λ

with z = A(θ, b). The multipliers of the two constraints on u_i are w_i (1 − s_i) and w_i s_i. Eliminating the slacks
and u leaves one symmetric positive definite system in (θ, b, λ) per iteration. A full Newton step satisfies the linear
dual constraints exactly, so `dual_value` can turn the new multipliers into a lower bound.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from surefoot._validation import FloatArray
from surefoot.solvers.ball_algebra import (
    DUAL_NORMS,
    RightHandSide,
    TallEquations,
    WideEquations,
    balanced,
    ball_dual_value,
    ball_upper_bound,
    vector_norm,
)
from surefoot.solvers.ball_cones import CONES, Cone, Hinge

# A step covers at most this share of the distance to the boundary.
TO_BOUNDARY = 0.99
# The central path is followed to this share of the best gap. It ends after this many steps without a better gap.
GAP_SHARE, PATIENCE = 0.03, 30
# The most corrector steps per factorisation. They stop earlier if one does not make the step longer.
CORRECTORS = 3


@dataclass(frozen=True)
class BallProblem:
    """One scaled instance: X (n, d) centred if there is an intercept, y (n,) ±1, w (n,) positive with sum one."""

    X: FloatArray
    y: FloatArray
    w: FloatArray
    radius: float
    label_cost: float
    norm: str
    fit_intercept: bool

    def upper(self, theta: FloatArray, b: float) -> float:
        return ball_upper_bound(
            self.X, self.y, theta, b, weights=self.w, radius=self.radius, label_cost=self.label_cost, norm=self.norm
        )[0]

    def lower(self, p: FloatArray, s: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        return ball_dual_value(
            self.X, self.y, p, s, self.w, self.radius, self.label_cost, self.norm, self.fit_intercept
        )


@dataclass
class Incumbent:
    """The best primal point (θ, b) and the best dual point (p, s), each with its own bound."""

    theta: FloatArray
    b: float
    p: FloatArray
    s: FloatArray
    upper: float = np.inf
    lower: float = 0.0
    n_iter: int = 0

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    def merge(self, other: Incumbent) -> None:
        """Keep the better of each bound, and add up the iterations."""
        if other.upper < self.upper:
            self.upper, self.theta, self.b = other.upper, other.theta, other.b
        if other.lower > self.lower:
            self.lower, self.p, self.s = other.lower, other.p, other.s
        self.n_iter += other.n_iter

    def offer_primal(self, problem: BallProblem, theta: FloatArray, b: float) -> None:
        value = problem.upper(theta, b)
        if value < self.upper:
            self.upper, self.theta, self.b = value, theta.copy(), b

    def offer_dual(self, problem: BallProblem, p: FloatArray, s: FloatArray) -> None:
        value, p, s = problem.lower(p, s)
        if value > self.lower:
            self.lower, self.p, self.s = value, p, s


class BallIterate:
    """State of the iteration: x = (θ, b) (m,), λ, margins z (n,), the cone and the hinge with their multipliers."""

    def __init__(self, problem: BallProblem, mu: float, theta: FloatArray, b: float) -> None:
        self.problem = problem
        n, self.d = problem.X.shape
        columns = [problem.X, np.ones((n, 1))] if problem.fit_intercept else [problem.X]
        self.A = problem.y[:, None] * np.hstack(columns)
        self.kappa = problem.label_cost if np.isfinite(problem.label_cost) else 0.0
        self.x = np.append(theta, b) if problem.fit_intercept else theta.copy()
        self.z = self.A @ self.x
        self.lam = _central_lambda(problem, self.z, vector_norm(theta, DUAL_NORMS[problem.norm]), mu)
        self.cone: Cone = CONES[problem.norm](theta, self.lam, mu)
        self.hinge = Hinge(self.z - self.lam * self.kappa, mu, problem.w) if self.kappa else None
        self.equations = (TallEquations if self.d <= n else WideEquations)(self.A, self.d, self.kappa)

    @property
    def b(self) -> float:
        return float(self.x[self.d]) if self.problem.fit_intercept else 0.0

    @property
    def degree(self) -> float:
        return self.cone.degree + (self.hinge.degree if self.hinge is not None else 0.0)

    def mu(self) -> float:
        """The average complementarity."""
        total = self.cone.complementarity()
        if self.hinge is not None:
            total += self.hinge.complementarity()
        return total / self.degree

    def factor(self) -> None:
        self.p = expit(-self.z)
        self.curvature = self.p * expit(self.z)
        D = self.hinge.system() if self.hinge is not None else np.zeros_like(self.z)
        w = self.problem.w
        self.equations.factor(w * (self.curvature + D), w * D, self.cone.system())

    def direct(self, mu: float, correct: bool) -> None:
        """Compute the Newton direction for barrier weight mu. `correct` adds the last direction's second-order term."""
        w, d = self.problem.w, self.d
        s = self.hinge.gradient(mu, correct) if self.hinge is not None else np.zeros_like(self.z)
        g_theta, g_lam = self.cone.gradient(mu, correct)
        force = self.kappa * float(w @ s) - self.problem.radius - g_lam
        step = self.equations.solve(RightHandSide(w * (self.p - s), g_theta, force))
        self.dx, self.dlam = step[:-1], float(step[-1])
        self.dz = self.A @ self.dx
        self.cone.direct(self.dx[:d], self.dlam, mu, correct)
        if self.hinge is not None:
            self.hinge.direct(self.dz - self.kappa * self.dlam, mu, correct)

    def max_steps(self) -> tuple[float, float]:
        """Return the primal and the dual step to the boundary."""
        primal, dual = self.cone.max_steps()
        if self.hinge is not None:
            other = self.hinge.max_steps()
            primal, dual = min(primal, other[0]), min(dual, other[1])
        return primal, dual

    def safe_steps(self) -> tuple[float, float]:
        """Return the primal and the dual step of the iteration: short of the boundary, at most one."""
        primal, dual = self.max_steps()
        return min(1.0, TO_BOUNDARY * primal), min(1.0, TO_BOUNDARY * dual)

    def merit(self, step: float, mu: float) -> float:
        """Return the barrier function of weight mu after a step along the direction."""
        value = self.problem.radius * (self.lam + step * self.dlam) + mu * self.cone.barrier(step)
        value += float(self.problem.w @ np.logaddexp(0.0, -(self.z + step * self.dz)))
        return value + (self.hinge.value(step, mu) if self.hinge is not None else 0.0)

    def dual_candidate(self) -> tuple[FloatArray, FloatArray]:
        """Return (p, s) after a full Newton step, which satisfies the linear dual constraints up to rounding."""
        s = self.hinge.s + self.hinge.ds if self.hinge is not None else np.zeros_like(self.z)
        return self.p - self.curvature * self.dz, s

    def adopt(self, other: BallIterate) -> None:
        """Copy the direction of another state at the same point."""
        self.cone, self.hinge = other.cone, other.hinge
        self.dx, self.dlam, self.dz = other.dx, other.dlam, other.dz

    def move(self, primal: float, dual: float) -> None:
        self.x, self.lam, self.z = self.x + primal * self.dx, self.lam + primal * self.dlam, self.z + primal * self.dz
        self.cone.move(primal, dual)
        if self.hinge is not None:
            self.hinge.move(primal, dual)
            self.hinge.shift = np.zeros_like(self.hinge.shift)


def _central_lambda(problem: BallProblem, z: FloatArray, size: float, mu: float) -> float:
    """Find λ > ‖θ‖_* that solves the λ-row of the perturbed optimality conditions, by bisection in log λ."""
    kappa, degree = problem.label_cost, CONES[problem.norm].degree
    low, high = np.log(1e-12 + 1.05 * size), np.log(1.0 + 2 * size + (degree + 2.0) * mu / problem.radius)
    for _ in range(60):
        mid = (low + high) / 2
        lam = float(np.exp(mid))
        need = degree * mu / (lam - size)
        if np.isfinite(kappa):
            need += kappa * float(problem.w @ Hinge(z - lam * kappa, mu, problem.w).s)
        low, high = (mid, high) if need > problem.radius else (low, mid)
        if high - low < 0.05:
            break
    return float(np.exp(high))


def interior_point(
    problem: BallProblem, tol: float, max_iter: int, theta: FloatArray, b: float = 0.0, mu: float = 0.1
) -> Incumbent:
    """Minimise the problem (radius > 0) from (θ, b) until the certified gap is at most tol."""
    n = len(problem.y)
    best = Incumbent(theta, b, np.zeros(n), np.zeros(n))
    best.offer_primal(problem, theta, b)
    state = BallIterate(problem, mu, theta, b)
    stalled = 0
    with np.errstate(all="ignore"):
        for best.n_iter in range(1, max_iter + 1):
            before = best.gap
            try:
                moved = _iterate(state, best, tol)
            except (ArithmeticError, np.linalg.LinAlgError):  # rounding broke the Newton system: keep the incumbent
                moved = False
            if not moved or best.gap <= tol:
                break
            stalled = stalled + 1 if best.gap > 0.9 * before else 0
            settled = state.mu() * state.degree <= 0.2 * best.gap
            if settled and stalled and stalled & (stalled - 1) == 0:  # at 1, 2, 4, ... iterations without progress
                _offer_balanced(state, best)
            if stalled == PATIENCE or best.gap <= tol:
                break
    return best


def _offer_balanced(state: BallIterate, best: Incumbent) -> None:
    """If ε is below the rounding error of Σ w_i (p_i − s_i) y_i x_i, offer a dual point whose sum vanishes."""
    p, s = (np.clip(v, 0.0, 1.0) for v in state.dual_candidate())
    if np.isfinite(p).all() and np.isfinite(s).all():
        best.offer_dual(state.problem, balanced(state.A, state.problem.w, p, s), s)


def _iterate(state: BallIterate, best: Incumbent, tol: float) -> bool:
    """Take one predictor-corrector iteration. Return False if rounding leaves no finite direction."""
    mu, degree = state.mu(), state.degree
    state.factor()
    state.direct(0.0, correct=False)
    reach = min(1.0, *state.max_steps())
    # μ must not fall faster than the logistic part converges, which shows in the gap only
    target = max(
        (1.0 - reach) ** 3 * mu, 1e-3 * mu, GAP_SHARE * min(best.gap, np.log(2.0)) / degree, 0.2 * tol / degree
    )
    affine = copy(state)
    affine.cone, affine.hinge = copy(state.cone), copy(state.hinge)
    state.direct(target, correct=reach > 0.1)
    primal, dual = _recentre(state, affine, target, correct=reach > 0.1)
    if not (np.isfinite(state.dz).all() and np.isfinite(state.dlam) and np.isfinite(primal + dual)):
        return False
    best.offer_dual(state.problem, *state.dual_candidate())
    state.move(_guard(state, primal, target, 0.01 * max(mu, target)), dual)
    best.offer_primal(state.problem, state.x[: state.d], state.b)
    return True


def _recentre(state: BallIterate, affine: BallIterate, target: float, correct: bool) -> tuple[float, float]:
    """Lengthen the steps by up to three centrality correctors on the hinge (Gondzio, 1996), and return the steps.

    Each corrector costs one more solve with the current factor. `affine` holds the state after the predictor, from
    which each corrected direction is computed.
    """
    steps = state.safe_steps()
    for _ in range(CORRECTORS):
        if state.hinge is None or affine.hinge is None or min(steps) > 0.9:
            break
        primal, dual = min(1.0, steps[0] + 0.3), min(1.0, steps[1] + 0.3)
        shift = state.hinge.shift + state.hinge.outliers(primal, dual, target)
        trial = copy(affine)
        trial.cone, trial.hinge = copy(affine.cone), copy(affine.hinge)
        trial.hinge.shift = shift
        trial.direct(target, correct)
        longer = trial.safe_steps()
        if not sum(longer) > sum(steps):
            break
        enough = sum(longer) < 1.02 * sum(steps)
        state.adopt(trial)
        steps = longer
        if enough:
            break
    return steps


def _guard(state: BallIterate, step: float, target: float, slack: float) -> float:
    """Halve the primal step, at most ten times, until the barrier function rises by at most the slack."""
    ceiling = state.merit(0.0, target) + slack
    for _ in range(10):
        if state.merit(step, target) <= ceiling:
            break
        step /= 2
    return step
