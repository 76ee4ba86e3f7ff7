"""The design matrix: rows in coordinates that suit Newton's method, and the way back to the features as given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, svd

from surefoot._validation import FloatArray
from surefoot.dual.bounds import RowTotals
from surefoot.dual.models import LinearModel
from surefoot.kernels.arrays import arrays_of


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Features less their mean, over their scale, in a basis, and the constant one.

    mean, scale : (d,), infinite for constant features; basis : (d, r), None where the rows span all features.
    """

    mean: FloatArray
    scale: FloatArray
    basis: FloatArray | None
    fit_intercept: bool

    @classmethod
    def as_given(cls, d: int, fit_intercept: bool) -> Coordinates:
        """Features as they are: those of the paper's Algorithm 1."""
        return cls(np.zeros(d), np.ones(d), None, fit_intercept)

    def design(self, rows: Any) -> Any:
        """(B, p) of rows (B, d)."""
        xp = arrays_of(rows)
        unit = (rows - xp.send(self.mean)) / xp.send(self.scale)
        if self.basis is not None:
            unit = unit @ xp.send(self.basis)
        return xp.hstack(unit, xp.zeros((len(rows), 1)) + 1.0) if self.fit_intercept else unit

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

    def penalty(self, l2: float, *, standardized: bool = False) -> FloatArray:
        """(p,) of ½ l2 ‖θ‖², on the features as given or standardised.

        A basis is taken only where there is no penalty on the features as given; one on standardised features is the
        same in any orthonormal basis.
        """
        p = len(self.scale) if self.basis is None else self.basis.shape[1]
        penalty = np.zeros(p + int(self.fit_intercept))
        if standardized:
            penalty[:p] = l2
        elif l2 > 0:
            penalty[: len(self.scale)] = l2 / self.scale**2
        return penalty

    def model(self, rows: FloatArray, n_classes: int, l2: float, *, standardized: bool = False) -> LinearModel:
        """A linear model over rows (N, d)."""
        return LinearModel(self.design(rows), self.penalty(l2, standardized=standardized), n_classes)


class FeatureSums(Protocol):
    """Sums over weighted rows from which coordinates are made: those of `FeatureBlock`."""

    def sizes(self) -> RowTotals: ...
    def means(self, size: FloatArray) -> RowTotals: ...
    def second_moments(self, size: FloatArray, mean: FloatArray) -> RowTotals: ...


@dataclass(frozen=True, eq=False)
class FeatureBlock:
    """Rows (B, d) with weights, before coordinates are known."""

    rows: Any
    weights: Any

    def sizes(self) -> RowTotals:
        """Σ m; the largest |x| of each feature."""
        xp = arrays_of(self.rows)
        largest = xp.fetch(xp.largest(abs(self.rows), 0)) if len(self.rows) else np.zeros(self.rows.shape[1])
        return RowTotals((np.array([float(self.weights.sum())]),), tuple(float(value) for value in largest))

    def means(self, size: FloatArray) -> RowTotals:
        xp = arrays_of(self.rows)
        return RowTotals((xp.fetch(self.weights @ (self.rows / xp.send(size))),))

    def second_moments(self, size: FloatArray, mean: FloatArray) -> RowTotals:
        xp = arrays_of(self.rows)
        unit = self.rows / xp.send(size) - xp.send(mean)
        return RowTotals((xp.fetch(xp.tall_product(unit, self.weights[:, None] * unit)),))


def standardize(features: FeatureSums, l2: float, fit_intercept: bool) -> Coordinates:
    """Mean 0 and deviation 1 per feature under the row weights; constant features become 0.

    Where features are collinear (more features than rows, one-hot codes) and no penalty picks among the equivalent
    coefficients, coordinates of the space the rows span are used: the coefficients are then those of least norm, after
    standardisation, and do not depend on rounding.
    """
    size = np.array(features.sizes().largest)
    size[size == 0] = 1.0
    mean = features.means(size).sums[0] if fit_intercept else np.zeros(len(size))
    moments = features.second_moments(size, mean).sums[0]
    deviation = np.sqrt(moments.diagonal())
    constant = deviation <= 1e-12
    deviation[constant] = 1.0
    centred = Coordinates(mean * size, np.where(constant, np.inf, deviation * size), None, fit_intercept)
    if l2 > 0:
        return centred
    if isinstance(features, FeatureBlock) and np.count_nonzero(features.weights) <= len(size):
        basis = _spanned_by_few(features, centred)
    else:
        basis = _spanned(moments / np.outer(deviation, deviation), constant)
    return Coordinates(centred.mean, centred.scale, basis, fit_intercept)


def _spanned_by_few(features: FeatureBlock, centred: Coordinates) -> FloatArray | None:
    """Basis of the span of rows that are fewer than features: from the rows themselves, which keeps more digits."""
    kept = features.weights > 0
    unit = (features.rows[kept] - centred.mean) / centred.scale
    _, singular, right = svd(np.sqrt(features.weights[kept])[:, None] * unit, full_matrices=False)
    basis = right[singular > 1e-10 * max(singular.max(initial=0.0), 1e-300)].T
    return None if basis.shape[1] == unit.shape[1] else basis


def _spanned(correlation: FloatArray, constant: NDArray[np.bool_]) -> FloatArray | None:
    """Orthonormal basis (d, r) of what the rows span, or None when that is everything."""
    varying = ~constant
    values, vectors = eigh(correlation * np.outer(varying, varying))
    basis = vectors[:, values > 1e-13 * max(values.max(initial=0.0), 1e-300)]
    return None if basis.shape[1] == len(correlation) else basis
