"""The smoothed dual of learning against one decision set, or a union of sets over the same rows.

F_τ(θ, v_1, …, v_S) = min_t  t − μ Σ_s log((t − D_s(θ, v_s)) / μ),   μ = BARRIER·τ

D_s is the smoothed dual of set s (`dual.py`) and v_s = (α_s, λ_s, β_s) its multipliers. F_τ is a smooth maximum of the
D_s: at the best t the weights p_s = μ / (t − D_s) sum to one and are the derivatives ∂F_τ / ∂D_s. Softmax weights would
fall exponentially. These weights fall only in proportion to μ, so the multipliers of an inactive set remain determined.
With one set, F_τ is D_1 up to a constant, which is omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

from surefoot._validation import FloatArray
from surefoot.dual.models import DualPoint
from surefoot.dual.objective import BARRIER, Evaluation, SmoothedDual
from surefoot.kernels.arrays import arrays_of
from surefoot.solvers.direction import Direction, StallError, along_ray, gradient_along_ray
from surefoot.solvers.newton import OneSet


@dataclass(frozen=True)
class JointPoint:
    """One dual point per set, all with one common θ."""

    parts: tuple[DualPoint, ...]

    @classmethod
    def with_theta(cls, theta: FloatArray, parts: Sequence[DualPoint]) -> JointPoint:
        return cls(tuple(replace(part, theta=theta) for part in parts))

    @property
    def theta(self) -> FloatArray:
        return self.parts[0].theta


def smooth_maximum(values: FloatArray, barrier: float) -> tuple[float, FloatArray]:
    """Return min_t t − μ Σ_s log((t − D_s)/μ) of values D (S,), and its derivatives (S,), weights that sum to one."""
    if not np.isfinite(values).all():  # a trial step was too long, and the line search rejects it
        return np.inf, np.full(len(values), 1.0 / len(values))
    top = float(values.max())
    below = (top - values) / barrier
    # solve Σ_s 1/(x + below_s) = 1 by Newton from the left: the function is convex and falling
    x = 1.0
    for _ in range(60):
        shares = 1.0 / (x + below)
        change = (shares.sum() - 1.0) / np.square(shares).sum()
        x += change
        if change <= 1e-16 * x:
            break
    weights = 1.0 / (x + below)
    return top + barrier * (x + float(np.log(weights).sum())), weights / weights.sum()


@dataclass(frozen=True)
class JointEvaluation:
    """F_τ at a point: value and gradient, the evaluations of the sets, and their weights p (S,).

    theta_curvature : lower triangle of Σ_s p_s ∂²D_s/∂θ², if the Hessians of the sets do not contain the rows of θ.
    """

    value: float
    gradient: FloatArray
    weights: FloatArray
    barrier: float
    parts: tuple[Evaluation, ...]
    theta_curvature: FloatArray | None = None

    @classmethod
    def from_parts(cls, parts: Sequence[Evaluation], barrier: float, n_theta: int) -> JointEvaluation:
        if len(parts) == 1:
            return cls(parts[0].value, parts[0].gradient, np.ones(1), barrier, tuple(parts))
        value, weights = smooth_maximum(np.array([part.value for part in parts]), barrier)
        theta = sum(p * part.gradient[:n_theta] for p, part in zip(weights, parts, strict=True))
        own = [p * part.gradient[n_theta:] for p, part in zip(weights, parts, strict=True)]
        return cls(value, np.concatenate([theta, *own]), weights, barrier, tuple(parts))

    @property
    def hessian(self) -> tuple[FloatArray, ...] | None:
        """The second derivatives of the sets, or None if a set has none."""
        found = [part.hessian for part in self.parts if part.hessian is not None]
        return tuple(found) if len(found) == len(self.parts) else None


class JointDual:
    """F_τ of one or several decision sets and one model, packed as (θ, v_1, …, v_S)."""

    def __init__(self, duals: Sequence[SmoothedDual]):
        self.duals = tuple(duals)
        apart = len(self.duals) > 1 and self.duals[0].can_share_theta
        self._objectives = [OneSet(dual, apart) for dual in duals]
        self._n_theta = duals[0].layout.theta.stop
        sizes = [dual.layout.size - self._n_theta for dual in duals]
        stops = self._n_theta + np.cumsum(sizes)
        self._own = [slice(int(stop) - size, int(stop)) for stop, size in zip(stops, sizes, strict=True)]

    @property
    def positive(self) -> NDArray[np.intp]:
        return np.concatenate(
            [one.positive - self._n_theta + own.start for one, own in zip(self._objectives, self._own, strict=True)]
        )

    @property
    def rounding(self) -> float:
        return self.duals[0].rounding

    def pack(self, point: JointPoint) -> FloatArray:
        own = [dual.layout.pack(part)[self._n_theta :] for dual, part in zip(self.duals, point.parts, strict=True)]
        return np.concatenate([point.theta.ravel(), *own])

    def unpack(self, vector: FloatArray, template: JointPoint) -> JointPoint:
        theta = vector[: self._n_theta]
        return JointPoint(
            tuple(
                dual.layout.unpack(np.concatenate([theta, vector[own]]), part)
                for dual, own, part in zip(self.duals, self._own, template.parts, strict=True)
            )
        )

    def evaluate(self, point: JointPoint, tau: float, *, second_order: bool, limit: float = np.inf) -> JointEvaluation:
        limit = limit if len(self.duals) == 1 else np.inf
        pairs = zip(self._objectives, point.parts, strict=True)
        parts = [one.evaluate(part, tau, second_order=second_order, limit=limit) for one, part in pairs]
        return self._joined(point, parts, tau, second_order=second_order)

    def _joined(
        self, point: JointPoint, parts: Sequence[Evaluation], tau: float, *, second_order: bool
    ) -> JointEvaluation:
        joined = JointEvaluation.from_parts(parts, BARRIER * tau, self._n_theta)
        labels = [part.labels for part in parts if part.labels is not None]
        if not second_order or not labels:
            return joined
        curvature = self.duals[0].theta_curvature(point.theta, tau, joined.weights, labels)
        return replace(joined, theta_curvature=curvature)

    def balance(self, point: JointPoint, here: JointEvaluation, tau: float) -> tuple[JointPoint, JointEvaluation]:
        """Balance each set separately. This changes only β_s."""
        triples = zip(self._objectives, point.parts, here.parts, strict=True)
        moved = [one.balance(part, local, tau) for one, part, local in triples]
        if all(local is before for (_, local), before in zip(moved, here.parts, strict=True)):
            return point, here
        parts, locals_ = zip(*moved, strict=True)
        return JointPoint(parts), self._joined(JointPoint(parts), locals_, tau, second_order=True)

    def smoothing_gap(self, point: JointPoint, here: JointEvaluation, tau: float) -> float:
        """Return Σ_s p_s (gap of set s) + (max_s D_s − Σ_s p_s D_s). The last term is μ (S − 1 / max_s p_s)."""
        triples = zip(self._objectives, point.parts, here.parts, strict=True)
        gaps = np.array([one.smoothing_gap(part, local, tau) for one, part, local in triples])
        return float(here.weights @ gaps + here.barrier * (len(self.duals) - 1.0 / here.weights.max()))

    def smoothing_cost(self, here: JointEvaluation, tau: float) -> float:
        """Return `smoothing_gap` without the part due to widened radii."""
        costs = np.array(
            [one.smoothing_cost(part, tau) for one, part in zip(self._objectives, here.parts, strict=True)]
        )
        return float(here.weights @ costs + here.barrier * (len(self.duals) - 1.0 / here.weights.max()))

    def direction(self, here: JointEvaluation, ridge: float) -> Direction[JointEvaluation]:
        """Compute Newton's direction. The ridge grows until the factorisation succeeds, as in `newton_direction`."""
        if len(self.duals) == 1:
            one = self._objectives[0].direction(here.parts[0], ridge)
            return Direction(one.step, one.decrement, one.ridge, lambda there: one.decrement_at(there.parts[0]))
        if here.hessian is None:
            raise ValueError("direction requires an evaluation with second_order=True")
        arrow = _Arrow.from_duals(self.duals, here)
        gradient = _ArrowGradient.from_duals(self.duals, here)
        while ridge < 1e8:
            try:
                factors = arrow.factorized(ridge)
                step, decrement = factors.solve(gradient)
            except LinAlgError:
                decrement = np.inf  # not positive definite up to rounding: try a larger ridge
            if np.isfinite(decrement) and decrement >= 0:

                def decrement_at(there: JointEvaluation, factors: _ArrowFactors = factors) -> float:
                    return factors.solve(_ArrowGradient.from_duals(self.duals, there))[1]

                return Direction(step, decrement, ridge, decrement_at)
            ridge *= 100.0
        raise StallError("the Hessian could not be factorised")


@dataclass(frozen=True)
class _ArrowGradient:
    """The gradient in Newton's coordinates: corner (p+1,) in (θ, t), and the gradient in each v_s."""

    corner: FloatArray
    own: list[FloatArray]

    @classmethod
    def from_duals(cls, duals: Sequence[SmoothedDual], here: JointEvaluation) -> _ArrowGradient:
        p = duals[0].layout.theta.stop
        triples = zip(duals, here.parts, here.weights, strict=True)
        own = [w * gradient_along_ray(part.gradient, dual.ray, dual.layout.alpha)[p:] for dual, part, w in triples]
        return cls(np.append(here.gradient[:p], 0.0), own)


@dataclass(frozen=True)
class _Block:
    """The part of Newton's system that belongs to one set, with α_s replaced by the multiple of its ray.

    own : (m, m) block of v_s, lower triangle valid; border : (m, p+1) block of v_s and (θ, t); natural : (m,); ray :
    (m,) the direction of α_s; alpha : the position of α_s.
    """

    own: FloatArray
    border: FloatArray
    natural: FloatArray
    ray: FloatArray
    alpha: slice

    def eliminate(self, ridge: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the scale (m,), Cholesky factor L of the scaled, damped block, and L⁻¹ border (m, p+1)."""
        diagonal = np.maximum(self.own.diagonal(), 0.0)
        scale = 1.0 / np.sqrt(diagonal + ridge * (diagonal + self.natural) + 1e-300)
        scaled = self.own * scale[:, None]
        scaled *= scale
        np.fill_diagonal(scaled, 1.0)
        # the lower triangle in C order is the upper triangle in Fortran order, so LAPACK makes no copy
        upper = cholesky(scaled.T, lower=False, overwrite_a=True, check_finite=False)
        right = self.border * scale[:, None]
        return scale, upper, solve_triangular(upper, right, trans=1, overwrite_b=True, check_finite=False)

    def turned_back(self, step: FloatArray) -> FloatArray:
        """Return the step in (α, λ, β)."""
        along = step[self.alpha].sum()  # the step of α
        step = step.copy()
        step[self.alpha] = 0.0
        return step + along * self.ray


@dataclass(frozen=True)
class _Arrow:
    """Newton's system in (θ, t) and the v_s. Each v_s is coupled only to (θ, t), so it is eliminated separately.

    H = Σ_s p_s ∇²D_s + p_s²/μ (∇D_s − e_t)(∇D_s − e_t)ᵀ. The coordinate t moves with the weighted mean of the ∂D_s/∂θ.
    This removes t from the block of θ.
    """

    blocks: list[_Block]
    corner: FloatArray  # (p+1, p+1) block of (θ, t), lower triangle valid
    natural: FloatArray  # (p+1,)

    @classmethod
    def from_duals(cls, duals: Sequence[SmoothedDual], here: JointEvaluation) -> _Arrow:
        p, stiffness = duals[0].layout.theta.stop, np.square(here.weights) / here.barrier
        slopes = np.array([part.gradient[:p] for part in here.parts])
        slopes -= stiffness @ slopes / stiffness.sum()
        corner, natural = np.zeros((p + 1, p + 1)), np.zeros(p + 1)
        steep = slopes * np.sqrt(stiffness)[:, None]
        corner[:p, :p] = steep.T @ steep
        corner[p, p] = stiffness.sum()
        if here.theta_curvature is not None:
            corner[:p, :p] += here.theta_curvature
        blocks = []
        for dual, part, weight, stiff, slope in zip(duals, here.parts, here.weights, stiffness, slopes, strict=True):
            if part.hessian is None:
                raise ValueError("Newton's system requires evaluations with second_order=True")
            H = arrays_of(part.hessian).fetch(part.hessian)
            if here.theta_curvature is None:
                corner[:p, :p] += weight * H[:p, :p]
                H = H[p:]
            alpha = slice(dual.layout.alpha.start - p, dual.layout.alpha.stop - p)
            border, square, own = _along_ray(H, part.gradient, dual.ray, alpha, p)
            natural[:p] += weight * part.natural[:p]
            border = np.column_stack([weight * border + stiff * np.outer(own, slope), -stiff * own])
            square = weight * square + stiff * np.outer(own, own)
            blocks.append(_Block(square, border, weight * part.natural[p:], dual.ray[p:], alpha))
        return cls(blocks, corner, natural)

    def factorized(self, ridge: float) -> _ArrowFactors:
        """Compute the factors of H + ridge·(diag H + natural)."""
        diagonal = np.maximum(self.corner.diagonal(), 0.0)
        damped = diagonal + ridge * (diagonal + self.natural) + 1e-300
        eliminated = [block.eliminate(ridge) for block in self.blocks]
        borders = np.vstack([border for _, _, border in eliminated])
        schur = self.corner - borders.T @ borders
        np.fill_diagonal(schur, schur.diagonal() + (damped - self.corner.diagonal()))
        scale = 1.0 / np.sqrt(damped)
        schur *= scale[:, None]
        schur *= scale
        factor = cho_factor(schur, lower=True, overwrite_a=True, check_finite=False)
        return _ArrowFactors(self.blocks, eliminated, scale, factor)


def _along_ray(
    H: FloatArray, gradient: FloatArray, ray: FloatArray, alpha: slice, p: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Replace α_s by the multiple of the ray in rows (m, p+m) of v_s in the Hessian of its set, lower triangle.

    Returns the block with θ (m, p), the block of v_s (m, m), and the gradient (m,).
    """
    border, own = H[:, :p], gradient_along_ray(gradient, ray, slice(alpha.start + p, alpha.stop + p))[p:]
    if alpha.stop == alpha.start or np.count_nonzero(ray) <= 1:
        return border, H[:, p:], own
    square, _ = along_ray(H[:, p:], gradient[p:], ray[p:], alpha)
    border = border.copy()
    border[alpha] = ray[p:] @ H[:, :p]
    return border, square, own


@dataclass(frozen=True)
class _ArrowFactors:
    """The factors of Newton's system: scale, Cholesky factor and L⁻¹ border by block; scale and factor of the rest."""

    blocks: list[_Block]
    eliminated: list[tuple[FloatArray, FloatArray, FloatArray]]
    scale: FloatArray
    factor: tuple[FloatArray, bool]

    def solve(self, gradient: _ArrowGradient) -> tuple[FloatArray, float]:
        """Return the step in (θ, v_1, …, v_S), and the decrement."""
        right, halfway = gradient.corner.copy(), []
        for (size, upper, border), own in zip(self.eliminated, gradient.own, strict=True):
            halfway.append(solve_triangular(upper, size * own, trans=1, overwrite_b=True, check_finite=False))
            right -= border.T @ halfway[-1]
        corner = -self.scale * cho_solve(self.factor, self.scale * right, check_finite=False)
        decrement, steps = -float(corner @ gradient.corner), [corner[:-1]]
        parts = zip(self.blocks, self.eliminated, halfway, gradient.own, strict=True)
        for block, (size, upper, border), half, own in parts:
            step = -size * solve_triangular(upper, half + border @ corner, overwrite_b=True, check_finite=False)
            decrement -= float(step @ own)
            steps.append(block.turned_back(step))
        return np.concatenate(steps), decrement
