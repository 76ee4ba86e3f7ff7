"""The Wasserstein ball alone: distributionally robust binary logistic regression (Shafieezadeh-Abadeh et al., 2015)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import qr
from scipy.optimize import linprog
from scipy.special import entr, expit

from surefoot._errors import ParameterError
from surefoot._machine import one_blas_thread
from surefoot._validation import FloatArray
from surefoot.dual.adversary import ROUNDED, meet
from surefoot.solvers.ball_algebra import (
    DUAL_NORMS,
    balanced,
    ball_lower_bound,
    ball_upper_bound,
    ball_worst_case,
    factor_scaled,
    solve_scaled,
)
from surefoot.solvers.ball_newton import BallProblem, Incumbent, interior_point

__all__ = ["BallSolution", "ball_lower_bound", "ball_upper_bound", "ball_worst_case", "solve_ball"]


# Radius zero: plain logistic regression, with the certificate of the ball and an exact treatment of separable data.


@dataclass(frozen=True)
class PlainSolution:
    """x (m,) with margins A x, dual p (n,), True if the infimum is not attained, and the number of Newton steps."""

    x: FloatArray
    p: FloatArray
    separable: bool
    n_iter: int


def plain_logistic(A: FloatArray, w: FloatArray, tol: float, max_iter: int) -> PlainSolution:
    """Solve plain logistic regression on rows A (n, m), weights w (n,), to a duality gap of about tol."""
    size = np.linalg.norm(A, axis=0) / np.sqrt(len(A))
    size[size == 0.0] = 1.0
    basis, back = _orthonormal(A / size)
    solution = _newton(basis, w, tol, max_iter, suspect=True)
    if solution.separable and not (basis @ solution.x > 0).all():
        solution = _reduce_face(basis, w, tol, max_iter, solution)
    p = balanced(A, w, np.clip(solution.p, 0.0, 1.0), np.zeros_like(w))
    return PlainSolution((back @ solution.x) / size, p, solution.separable, solution.n_iter)


def _orthonormal(A: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a basis B (n, r) of the columns of A with BᵀB = n I, of entries near 1, and the map T (m, r), A T = B."""
    n, m = A.shape
    Q, R, order = qr(A, mode="economic", pivoting=True)
    rank = int((np.abs(np.diag(R)) > max(n, m) * np.finfo(float).eps * np.sqrt(n)).sum())
    back = np.zeros((m, rank))
    back[order[:rank]] = np.linalg.solve(R[:rank, :rank], np.sqrt(n) * np.eye(rank))
    return np.sqrt(n) * Q[:, :rank], back


def _newton(B: FloatArray, w: FloatArray, tol: float, max_iter: int, suspect: bool) -> PlainSolution:
    """Damped Newton on rows B (n, r).

    With `suspect`, stop as `separable` once all margins are positive, or once the objective settles while the steps do
    not shrink. Along a separating direction, each step gains only a factor e. Otherwise Newton converges quadratically.
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


def _armijo(w: FloatArray, z: FloatArray, dz: FloatArray, value: float, slope: float) -> float:
    step = 1.0
    while step > 1e-10 and float(w @ np.logaddexp(0.0, -(z + step * dz))) > value + 1e-4 * step * slope + 1e-15:
        step /= 2
    return step


def _reduce_face(B: FloatArray, w: FloatArray, tol: float, max_iter: int, found: PlainSolution) -> PlainSolution:
    """Remove every row that some direction separates, found by one linear program, and solve the remaining rows."""
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


def _separating_direction(B: FloatArray) -> FloatArray:
    """Return a direction dir with B·dir ≥ 0 everywhere and B·dir ≥ 1 on the largest possible set of rows."""
    n, r = B.shape
    rows = np.hstack([-B, np.eye(n)])  # t_i ≤ b_i·dir
    cost = np.concatenate([np.zeros(r), -np.ones(n)])
    bounds = [(None, None)] * r + [(0.0, 1.0)] * n
    answer = linprog(cost, A_ub=rows, b_ub=np.zeros(n), bounds=bounds, method="highs")
    return np.zeros(r) if answer.x is None else np.asarray(answer.x[:r])


# Iterations of a warm start before the solver tries a cold start.
WARM_ITERATIONS = 40


@dataclass(frozen=True)
class BallSolution:
    """Solution of `solve_ball` with its two-sided certificate: lower ≤ optimal value ≤ risk.

    coef (d,), intercept and lam are the primal point; p (n,) and s (n,) are the feasible dual point that proves
    `lower`. status: "optimal" (gap ≤ tol), "separable" (the infimum is not attained, but the certificate is valid), or
    "max_iter" (the gap is larger than tol).
    """

    coef: FloatArray
    intercept: float
    lam: float
    risk: float
    lower: float
    gap: float
    status: str
    n_iter: int
    p: FloatArray
    s: FloatArray


@dataclass(frozen=True)
class _Point:
    """The primal and dual point of a solver, without a certificate."""

    coef: FloatArray
    intercept: float
    p: FloatArray
    s: FloatArray
    n_iter: int = 0
    attained: bool = True


def solve_ball(
    X: ArrayLike,
    y_sign: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    radius: float,
    label_cost: float = 1.0,
    norm: str = "l2",
    fit_intercept: bool = True,
    tol: float = 1e-8,
    max_iter: int = 200,
    warm_start: BallSolution | None = None,
) -> BallSolution:
    """Minimise the worst-case risk of logistic regression over a Wasserstein ball around the sample.

    Solves, with z_i = y_i(⟨θ, x_i⟩ + b) and the intercept b free,

        min_{θ,b,λ}  ελ + Σ_i w_i [log(1 + e^{−z_i}) + (z_i − λκ)_+]    s.t.  ‖θ‖_* ≤ λ

    by a primal–dual interior-point Newton method. Both sides of the certificate are recomputed on the original data at
    the returned point, by `ball_upper_bound` and `ball_lower_bound`.

    Parameters
    ----------
    X : (n, d) finite features; y_sign : (n,) labels ±1, possibly all equal
    weights : (n,) non-negative, not all zero, normalised to sum one; None means 1/n
    radius : ε ≥ 0; radius 0 means plain logistic regression
    label_cost : κ > 0, possibly inf (labels never flip: norm-regularised logistic regression)
    norm : the norm on θ, "l2" (Euclidean metric), "linf" (Manhattan) or "l1" (Chebyshev)
    fit_intercept : True if b is free, False if b = 0
    tol : certified gap to reach, absolute, in units of the risk
    warm_start : a solution at a nearby radius

    Returns
    -------
    BallSolution
    """
    X, y, w = _check(X, y_sign, weights, radius, label_cost, norm)
    if warm_start is not None and warm_start.coef.shape != X.shape[1:]:
        raise ParameterError(
            "warm_start", "must have one coefficient per feature", f"{warm_start.coef.shape} for {X.shape}", "Omit it."
        )
    if not tol > 0:
        raise ParameterError("tol", "must be positive", tol, "Pass a value such as 1e-6.")
    keep = w > 0
    problem = BallProblem(X[keep], y[keep], w[keep] / w[keep].sum(), radius, label_cost, norm, fit_intercept)
    with one_blas_thread():
        point = _solve(problem, tol, max_iter, warm_start)
        return _certify(problem, point, tol, keep)


def _check(
    X: ArrayLike, y_sign: ArrayLike, weights: ArrayLike | None, radius: float, label_cost: float, norm: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y_sign, dtype=np.float64)
    if X.ndim != 2 or y.shape != X.shape[:1] or X.size == 0:
        raise ParameterError(
            "X", "must be (n, d) and y_sign (n,) with n, d ≥ 1", f"{X.shape} and {y.shape}", "Pass a row per sign."
        )
    if not np.isfinite(X).all():
        raise ParameterError("X", "must be finite", "NaN or infinity", "Impute or drop these rows.")
    if not np.isin(y, (-1.0, 1.0)).all():
        raise ParameterError("y_sign", "must hold -1 and +1 only", "other values", "Map the two classes to ±1.")
    w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != y.shape or not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
        raise ParameterError(
            "weights",
            "must be (n,), finite, non-negative and not all zero",
            f"shape {w.shape}",
            "Pass a weight per row.",
        )
    if not (np.isfinite(radius) and radius >= 0):
        raise ParameterError("radius", "must be finite and at least 0", radius, "Pass a finite number >= 0.")
    if not label_cost > 0:
        raise ParameterError(
            "label_cost", "must be positive (inf forbids label flips)", label_cost, "Pass a positive number."
        )
    if norm not in DUAL_NORMS:
        raise ParameterError("norm", f"must be one of {sorted(DUAL_NORMS)}", repr(norm), "Pass a norm from this list.")
    return X, y, w / w.sum()


def _certify(problem: BallProblem, point: _Point, tol: float, keep: NDArray[np.bool_]) -> BallSolution:
    """Compute both bounds at the point, on the original data. Rows of weight zero get p = s = 0."""
    risk, lam = ball_upper_bound(
        problem.X,
        problem.y,
        point.coef,
        point.intercept,
        weights=problem.w,
        radius=problem.radius,
        label_cost=problem.label_cost,
        norm=problem.norm,
    )
    lower, p, s = ball_lower_bound(
        problem.X,
        problem.y,
        point.p,
        point.s,
        weights=problem.w,
        radius=problem.radius,
        label_cost=problem.label_cost,
        norm=problem.norm,
        fit_intercept=problem.fit_intercept,
    )
    lower = meet(risk, lower, ROUNDED)
    status = "max_iter" if not risk - lower <= tol else "optimal" if point.attained else "separable"
    full_p, full_s = np.zeros(len(keep)), np.zeros(len(keep))
    full_p[keep], full_s[keep] = p, s
    return BallSolution(
        point.coef, point.intercept, lam, risk, lower, risk - lower, status, point.n_iter, full_p, full_s
    )


def _solve(problem: BallProblem, tol: float, max_iter: int, warm_start: BallSolution | None) -> _Point:
    n, d = problem.X.shape
    if problem.radius >= problem.label_cost / 2:
        # (p, s) = (1/2, 1/2) is feasible with entropy log 2, which θ = 0, b = 0, λ = 0 attains
        return _Point(np.zeros(d), 0.0, np.full(n, 0.5), np.full(n, 0.5))
    one_class = bool((problem.y == problem.y[0]).all())
    if problem.fit_intercept and one_class and (problem.radius == 0 or np.isinf(problem.label_cost)):
        return _Point(np.zeros(d), float(problem.y[0] * np.log(10.0 / tol)), np.zeros(n), np.zeros(n), attained=False)
    scaled, columns, scale, centre = _scale(problem)
    if problem.radius == 0:
        ones = np.ones((n, 1)) if problem.fit_intercept else np.empty((n, 0))
        plain = plain_logistic(scaled.y[:, None] * np.hstack([scaled.X, ones]), scaled.w, tol, max_iter)
        theta, b = plain.x[: len(columns)], float(plain.x[len(columns) :].sum())
        p, s, n_iter, attained = plain.p, np.zeros(n), plain.n_iter, not plain.separable
    else:
        start = None
        if warm_start is not None:
            b0 = warm_start.intercept + float(warm_start.coef @ centre) if problem.fit_intercept else 0.0
            start = scale * warm_start.coef[columns], b0
        best = _interior(scaled, 0.5 * tol, max_iter, start)
        theta, b, p, s, n_iter, attained = best.theta, best.b, best.p, best.s, best.n_iter, True
    coef = np.zeros(d)
    coef[columns] = theta / scale
    return _Point(coef, b - float(coef @ centre), p, s, n_iter, attained)


def _interior(problem: BallProblem, tol: float, max_iter: int, start: tuple[FloatArray, float] | None) -> Incumbent:
    """Run the interior-point method from the given start, then from θ = 0. Restart if rounding errors stop it.

    The best bounds of all attempts are kept. All attempts together take at most max_iter iterations.
    """
    zero = (np.zeros(problem.X.shape[1]), 0.0)
    attempts = [(0.01, True), (1.0, False)]
    if start is None:
        best = interior_point(problem, tol, max_iter, *zero)
    else:
        best = interior_point(problem, tol, min(max_iter, WARM_ITERATIONS), *start, mu=0.01)
        attempts = [(0.1, False), *attempts]
    for mu, again in attempts:
        if best.gap > tol and best.n_iter < max_iter:
            origin = (best.theta, best.b) if again else zero
            best.merge(interior_point(problem, tol, max_iter - best.n_iter, *origin, mu=mu))
    return best


def _scale(problem: BallProblem) -> tuple[BallProblem, NDArray[np.intp], float, FloatArray]:
    """Scale the problem: centre the features (if the intercept is free), scale to unit size, drop constant columns.

    With x' = (x − centre)/σ: θ' = σθ, λ' = σλ, ε' = ε/σ, κ' = κ/σ leave every term of the objective unchanged.
    """
    centre = problem.w @ problem.X if problem.fit_intercept else np.zeros(problem.X.shape[1])
    X = problem.X - centre
    top = np.abs(X).max(axis=0, initial=0.0)
    columns = np.flatnonzero(top > 1e-14 * np.abs(problem.X).max(axis=0, initial=0.0))
    if len(columns) == 0:  # keep one column of zeros, so that θ is never empty
        X, columns = np.zeros((len(X), 1)), np.arange(min(1, problem.X.shape[1]))
    else:
        X = X[:, columns]
    with np.errstate(over="ignore", under="ignore"):
        spread = np.sqrt(problem.w @ (X / max(top.max(initial=0.0), 1e-300)) ** 2)
    size = float(spread.max() * top.max(initial=0.0)) or 1.0
    scale = float(2.0 ** np.round(np.log2(size)))  # a power of two scales without rounding
    X = np.ascontiguousarray(X / scale)
    scaled = BallProblem(
        X,
        problem.y,
        problem.w,
        problem.radius / scale,
        problem.label_cost / scale,
        problem.norm,
        problem.fit_intercept,
    )
    return scaled, columns, scale, centre
