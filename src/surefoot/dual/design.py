"""The design matrix: rows in coordinates that suit Newton's method, and the way back to the features as given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, svd

from surefoot._types import FloatArray
from surefoot.dual.models import LinearModel


@dataclass(frozen=True)
class StandardizedRows:
    """Rows with mean 0 and deviation 1 per feature under the row weights; constant features become 0.

    Where features are collinear (more features than rows, one-hot codes) and no penalty picks among the equivalent
    coefficients, coordinates of the space the rows span are used: the coefficients are then those of least norm, after
    standardisation, and do not depend on rounding.
    """

    model: LinearModel
    mean: FloatArray  # (d,)
    scale: FloatArray  # (d,), infinite for constant features
    basis: FloatArray | None  # (d, r), None where the rows span all features
    fit_intercept: bool

    @classmethod
    def of(
        cls, rows: FloatArray, weights: FloatArray, n_classes: int, l2: float, fit_intercept: bool
    ) -> StandardizedRows:
        """Standardise rows (N, d) under weights (N,)."""
        size = np.abs(rows).max(axis=0, initial=0.0)
        size[size == 0] = 1.0
        unit = rows / size
        mean = weights @ unit if fit_intercept else np.zeros(rows.shape[1])
        unit -= mean
        deviation = np.sqrt(weights @ unit**2)
        constant = deviation <= 1e-12
        unit[:, constant] = 0.0
        deviation[constant] = 1.0
        unit /= deviation
        scale = np.where(constant, np.inf, deviation * size)
        basis = _spanned(unit, weights) if l2 == 0 else None
        if basis is not None:
            unit = unit @ basis
        ones = np.ones((len(rows), int(fit_intercept)))
        penalty = np.zeros(unit.shape[1] + int(fit_intercept))
        if l2 > 0:
            penalty[: len(scale)] = l2 / scale**2
        model = LinearModel(np.hstack([unit, ones]), penalty, n_classes)
        return cls(model, mean * size, scale, basis, fit_intercept)

    def coefficients(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """coef_ and intercept_ on the features as given; for K ≥ 3 classes they sum to zero over classes."""
        slopes = theta[:, :-1] if self.fit_intercept else theta
        if self.basis is not None:
            slopes = slopes @ self.basis.T
        coef = slopes / self.scale
        intercept = theta[:, -1] if self.fit_intercept else np.zeros(len(theta))
        intercept = intercept - coef @ self.mean
        if len(theta) > 1:
            coef, intercept = np.vstack([np.zeros(coef.shape[1]), coef]), np.append(0.0, intercept)
            coef, intercept = coef - coef.mean(axis=0), intercept - intercept.mean()
        return coef, intercept


def _spanned(unit: FloatArray, weights: FloatArray) -> FloatArray | None:
    """Orthonormal basis (d, r) of the span of the rows that have weight, or None when that is everything."""
    d = unit.shape[1]
    kept = weights > 0
    if kept.sum() <= d:
        _, singular, right = svd(np.sqrt(weights[kept])[:, None] * unit[kept], full_matrices=False)
        basis = right[singular > 1e-10 * max(singular.max(initial=0.0), 1e-300)].T
    else:
        values, vectors = eigh(unit.T @ (weights[:, None] * unit))
        basis = vectors[:, values > 1e-13 * max(values.max(initial=0.0), 1e-300)]
    return None if basis.shape[1] == d else basis
