"""Standardised coordinates of rows that are read in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from surefoot._types import FloatArray
from surefoot.blocks.block import Coordinates
from surefoot.blocks.sweep import Sweep


def standardize(sweep: Sweep, l2: float, fit_intercept: bool) -> tuple[Coordinates, FloatArray]:
    """As `StandardizedRows`: mean 0 and deviation 1, in the space that the rows span; and the penalty (p,)."""
    size = np.array(sweep.raw("sizes").largest)
    size[size == 0] = 1.0
    mean = sweep.raw("means", size).sums[0] if fit_intercept else np.zeros(len(size))
    moments = sweep.raw("second_moments", size, mean).sums[0]
    deviation = np.sqrt(moments.diagonal())
    constant = deviation <= 1e-12
    deviation[constant] = 1.0
    scale = np.where(constant, np.inf, deviation * size)
    basis = _spanned(moments / np.outer(deviation, deviation), constant) if l2 == 0 else None
    p = len(size) if basis is None else basis.shape[1]
    penalty = np.zeros(p + int(fit_intercept))
    if l2 > 0:
        penalty[: len(scale)] = l2 / scale**2
    return Coordinates(mean * size, scale, basis, fit_intercept), penalty


def _spanned(correlation: FloatArray, constant: NDArray[np.bool_]) -> FloatArray | None:
    """Orthonormal basis (d, r) of what the rows span, or None when that is everything."""
    varying = ~constant
    values, vectors = eigh(correlation * np.outer(varying, varying))
    basis = vectors[:, values > 1e-13 * max(values.max(initial=0.0), 1e-300)]
    return None if basis.shape[1] == len(correlation) else basis
