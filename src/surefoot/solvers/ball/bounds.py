"""Both sides of the certificate of the Wasserstein ball alone, and the worst case of a fixed classifier.

Nothing here iterates, and nothing here is used to choose a step of the solver: these functions only judge points.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

Float = NDArray[np.float64]

# Exponent of the norm on θ (the dual norm) by name, and of the norm on features that it is dual to.
DUAL_NORMS: dict[str, float] = {"l1": 1.0, "l2": 2.0, "linf": np.inf}
FEATURE_NORMS: dict[str, float] = {"l1": np.inf, "l2": 2.0, "linf": 1.0}


def vector_norm(v: Float, order: float) -> float:
    """The p-norm of a vector (d,), free of overflow and 0 when d = 0."""
    top = float(np.max(np.abs(v), initial=0.0))
    if top == 0.0 or not np.isfinite(top):
        return top
    return top * float(np.linalg.norm(v / top, order))


def _softplus(t: Float) -> Float:
    return np.logaddexp(0.0, t)


def _margins(X: Float, y_sign: Float, coef: Float, intercept: float) -> Float:
    return y_sign * (X @ coef + intercept)


def _weights(weights: ArrayLike | None, n: int) -> Float:
    if weights is None:
        return np.full(n, 1.0 / n)
    w = np.asarray(weights, dtype=np.float64)
    return w / w.sum()


def _thresholds(z: Float, w: Float, radii: Float, label_cost: float, floor: float) -> tuple[Float, Float]:
    """The best λ for each radius, and Σ w_i (z_i − λκ)_+ there.

    ελ + Σ w_i (z_i − λκ)_+ has slope ε − κ·w{z > λκ}: λκ is the smallest order statistic of z with at most ε/κ of the
    weight above it, unless λ ≥ floor binds first.
    """
    order = np.argsort(z)
    z, w = z[order], w[order]
    above = np.append(np.cumsum(w[:0:-1])[::-1], 0.0)  # above[k] = weight strictly after position k, falling to 0
    k = np.searchsorted(-above, -radii / label_cost)  # first k with above[k] ≤ ε/κ
    lam = np.maximum(floor, z[k] / label_cost) + 0.0  # no negative zero
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
) -> Float:
    """Exact worst-case logistic risk of one fixed classifier over Wasserstein balls of many radii.

    Solves, for each radius ε, with z_i = y_i(⟨θ, x_i⟩ + b),

        min_λ  ελ + Σ_i w_i [log(1 + e^{−z_i}) + (z_i − λκ)_+]    s.t.  λ ≥ ‖θ‖_*

    which is piecewise linear in λ: one sort, cumulative sums, one binary search per radius.

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
    X: Float,
    y_sign: Float,
    coef: Float,
    intercept: float,
    *,
    weights: ArrayLike | None = None,
    radius: float,
    label_cost: float = 1.0,
    norm: str = "l2",
) -> tuple[float, float]:
    """Value of the robust risk at (θ, b), and the λ that attains it.

    Evaluates ελ + Σ_i w_i [log(1 + e^{−z_i}) + (z_i − λκ)_+] term by term at the best λ ≥ ‖θ‖_*; any λ ≥ ‖θ‖_* would
    give a valid upper bound on the optimal value, so rounding in the choice of λ never invalidates it.
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
    X: Float,
    y_sign: Float,
    p: Float,
    s: Float,
    *,
    weights: ArrayLike | None = None,
    radius: float,
    label_cost: float = 1.0,
    norm: str = "l2",
    fit_intercept: bool = True,
) -> tuple[float, Float, Float]:
    """Lower bound on the optimal robust risk from any (p, s), and the feasible pair that proves it.

    For p_i, s_i in [0, 1], log(1 + e^{−z}) + (z − λκ)_+ ≥ H(p_i) − (p_i − s_i) z − s_i λκ with H the binary entropy.
    Minimising the right side over (θ, b, λ) gives the dual

        max  Σ w_i H(p_i)   s.t.  Σ w_i (p_i − s_i) y_i = 0            (only with an intercept)
                                  ‖Σ w_i (p_i − s_i) y_i x_i‖ + κ Σ w_i s_i ≤ ε,    0 ≤ p, s ≤ 1

    The pair is first repaired: clipped to [0, 1], moved along y_i p_i (1 − p_i) to restore the equality, then scaled
    by the largest t ≤ 1 that meets the inequality (the set is star-shaped around 0). The inequality is held up to the
    rounding error of its own evaluation, 32 ulp of the sum of absolute terms; this matters at ε = 0 only.

    Returns
    -------
    value ≥ 0, p (n,), s (n,)
    """
    w = _weights(weights, len(y_sign))
    if fit_intercept:  # the equality makes any shift of the features free: centred, the sums lose least to rounding
        X = X - w @ X
    return dual_value(X, y_sign, p, s, w, radius, label_cost, norm, fit_intercept)


def dual_value(
    X: Float,
    y_sign: Float,
    p: Float,
    s: Float,
    w: Float,
    radius: float,
    label_cost: float,
    norm: str,
    fit_intercept: bool,
) -> tuple[float, Float, Float]:
    """Repair (p, s) and evaluate Σ w_i H(p_i), as `ball_lower_bound`, on features taken as they are."""
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


def _restore_balance(p: Float, s: Float, y: Float, w: Float) -> tuple[Float, Float]:
    """Move (p, s) so that Σ w_i (p_i − s_i) y_i = 0, first along y p(1−p), else by shrinking the heavier class."""
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


def _shrink_class(p: Float, s: Float, y: Float, w: Float) -> tuple[Float, Float]:
    """Scale one class of (p, s) so that both carry the same Σ w (p − s); (0, 0) when their signs differ."""
    net = w * (p - s)
    plus, minus = float(net[y > 0].sum()), float(net[y < 0].sum())
    if plus * minus <= 0.0:
        return np.zeros_like(p), np.zeros_like(s)
    factor_plus, factor_minus = min(1.0, minus / plus), min(1.0, plus / minus)
    factor = np.where(y > 0, factor_plus, factor_minus)
    return factor * p, factor * s
