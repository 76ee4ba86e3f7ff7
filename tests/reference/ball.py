"""The Wasserstein ball alone as a conic programme: cvxpy with Clarabel."""

from __future__ import annotations

from typing import NamedTuple

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

NORMS: dict[str, float | str] = {"l1": 1, "l2": 2, "linf": "inf"}


class BallReference(NamedTuple):
    """Status of the conic solver, its value, and its point (θ, b, λ)."""

    status: str
    value: float
    coef: Float
    intercept: float
    lam: float


def ball_reference(
    X: Float,
    y_sign: Float,
    *,
    weights: Float | None = None,
    radius: float,
    label_cost: float = 1.0,
    norm: str = "l2",
    fit_intercept: bool = True,
    **options: float,
) -> BallReference:
    """Solve min ελ + Σ w_i [log(1 + e^{−z_i}) + (z_i − λκ)_+] s.t. ‖θ‖_* ≤ λ as it is written."""
    n, d = X.shape
    w = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    theta, b, lam = cp.Variable(d), cp.Variable(), cp.Variable(nonneg=True)
    z = cp.multiply(y_sign, X @ theta + (b if fit_intercept else 0.0))
    terms = cp.logistic(-z)
    if np.isfinite(label_cost):
        terms = terms + cp.pos(z - lam * label_cost)
    problem = cp.Problem(cp.Minimize(radius * lam + w @ terms), [cp.norm(theta, NORMS[norm]) <= lam])
    problem.solve(solver=cp.CLARABEL, **options)
    intercept = float(b.value) if fit_intercept and b.value is not None else 0.0
    coef = np.full(d, np.nan) if theta.value is None else np.asarray(theta.value)
    level = np.nan if lam.value is None else float(lam.value)
    value = np.nan if problem.value is None else float(problem.value)
    return BallReference(str(problem.status), value, coef, intercept, level)
