"""Compute Newton's direction: solve the linear system of a step, damped if necessary, along the ray of the radius."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from scipy.linalg import LinAlgError

from surefoot._validation import FloatArray
from surefoot.dual.objective import Evaluation
from surefoot.kernels.arrays import arrays_of

# A scaled matrix with at least this ridge is far from singular.
_WELL_CONDITIONED = 1e-8


class StallError(RuntimeError):
    """Newton's method made no progress at this τ: rounding errors have reached the size of the predicted decrease."""


class Local(Protocol):
    """A smooth objective at a point: value, gradient, and the second derivatives if they were requested."""

    @property
    def value(self) -> float: ...
    @property
    def gradient(self) -> FloatArray: ...
    @property
    def hessian(self) -> object | None: ...


class Factorized(Protocol):
    """Return a solver of matrix · x = right. Overwrites the lower triangle. tame : the matrix is far from singular."""

    def __call__(self, matrix: Any, *, tame: bool) -> Callable[[FloatArray], FloatArray]: ...


Here = TypeVar("Here", bound=Local)


@dataclass(frozen=True)
class Direction(Generic[Here]):
    """Newton's direction, the decrement, and the ridge used.

    decrement_at : returns the decrement at another point, with the second derivatives of this point.
    """

    step: FloatArray
    decrement: float
    ridge: float
    decrement_at: Callable[[Here], float]


def newton_direction(
    evaluation: Evaluation,
    ridge: float,
    ray: FloatArray,
    alpha: slice,
    factorized: Factorized,
) -> Direction[Evaluation]:
    """Solve (H + ridge·(diag H + natural)) Δ = −g. The ridge grows until the factorisation succeeds.

    Coordinates: α is replaced by the multiple of `ray`, along which α, β and λ grow together. Near the minimal radius,
    the optimal points are far out along the ray. A ridge on β must not keep the steps from reaching them.
    """
    if evaluation.hessian is None:
        raise ValueError("newton_direction requires an evaluation with second_order=True")
    H, gradient = evaluation.hessian, gradient_along_ray(evaluation.gradient, ray, alpha)
    xp, on_diagonal, turned = arrays_of(H), np.arange(len(gradient)), _turned(H, ray, alpha)
    diagonal = xp.fetch(H.diagonal()).copy()
    if turned is not None:
        diagonal[alpha] = turned[alpha]
    diagonal = np.maximum(diagonal, 0.0)
    while ridge < 1e8:
        damped = diagonal + ridge * (diagonal + evaluation.natural) + 1e-300
        scale = 1.0 / np.sqrt(damped)
        scaled = xp.scaled(H, xp.send(scale))
        if turned is not None:
            _place(scaled, turned * scale * scale[alpha], alpha.start)
        scaled[on_diagonal, on_diagonal] = 1.0
        g = gradient * scale
        try:
            solve = factorized(scaled, tame=ridge > _WELL_CONDITIONED)
            step = -solve(g)
        except LinAlgError:
            ridge *= 100.0  # not positive definite to rounding
            continue
        decrement = float(-(step @ g))
        if np.isfinite(decrement) and decrement >= 0:
            step *= scale
            along = step[alpha].sum()  # the step of α; zero if α is fixed
            step[alpha] = 0.0

            def decrement_at(there: Evaluation, scale: FloatArray = scale, solve: Any = solve) -> float:
                g = scale * gradient_along_ray(there.gradient, ray, alpha)
                try:
                    return float(g @ solve(g))
                except LinAlgError:  # nearly singular: the decrement is unknown
                    return np.inf

            return Direction(step + along * ray, decrement, ridge, decrement_at)
        ridge *= 100.0
    raise StallError("the Hessian could not be factorised")


def along_ray(H: Any, gradient: FloatArray, ray: FloatArray, alpha: slice) -> tuple[Any, FloatArray]:
    """Return H (lower triangle) and the gradient in coordinates in which α is replaced by the multiple of the ray."""
    turned = _turned(H, ray, alpha)
    if turned is None:
        return H, gradient
    H = arrays_of(H).copy(H)
    _place(H, turned, alpha.start)
    return H, gradient_along_ray(gradient, ray, alpha)


def _turned(H: Any, ray: FloatArray, alpha: slice) -> FloatArray | None:
    """Return the row of α in H after α is replaced by the multiple of the ray, or None if nothing changes."""
    if alpha.stop == alpha.start or np.count_nonzero(ray) <= 1:
        return None
    product: FloatArray = arrays_of(H).symmetric_product(H, ray)
    product[alpha] = ray @ product
    return product


def _place(H: Any, row: FloatArray, at: int) -> None:
    """Write a row, and the column that mirrors the row, to the lower triangle of a matrix."""
    send = arrays_of(H).send
    H[at, :at], H[at:, at] = send(row[:at]), send(row[at:])


def gradient_along_ray(gradient: FloatArray, ray: FloatArray, alpha: slice) -> FloatArray:
    """Return the gradient in coordinates in which α is replaced by the multiple of the ray."""
    if alpha.stop == alpha.start:
        return gradient
    turned = gradient.copy()
    turned[alpha] = ray @ gradient
    return turned
