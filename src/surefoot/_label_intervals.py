"""Intervals of label probabilities, one per class: checked, and tightened to what a distribution can reach."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._types import FloatArray
from surefoot._validation import check_finite_array

TOLERANCE = 1e-12


def tighten(intervals: ArrayLike) -> FloatArray:
    """Tightest intervals of the distributions {p : p_lo ≤ p ≤ p_hi, Σ_k p_k = 1}.

    p_lo_k becomes max(p_lo_k, 1 − Σ_{c≠k} p_hi_c) and p_hi_k becomes min(p_hi_k, 1 − Σ_{c≠k} p_lo_c): each bound is
    then reached by a distribution in the set.

    Parameters
    ----------
    intervals : array of shape (K, 2)
        Lower and upper bound of each class; at least one distribution must fit.

    Returns
    -------
    array of shape (K, 2)
        Bounds that are each reached.

    Examples
    --------
    >>> tighten([[0.0, 0.25], [0.0, 1.0]])
    array([[0.  , 0.25],
           [0.75, 1.  ]])
    """
    lo, hi = check_intervals(intervals).T
    check_admits_distribution(np.column_stack([lo, hi]))
    # fsum rounds once, hence is monotone: p_lo ≤ p_hi survives. The clip keeps exact priors exact.
    others = [np.delete(np.arange(len(lo)), k) for k in range(len(lo))]
    least = np.clip([1.0 - math.fsum(hi[c]) for c in others], lo, hi)
    most = np.clip([1.0 - math.fsum(lo[c]) for c in others], lo, hi)
    return np.column_stack([least, most])


def check_intervals(value: ArrayLike) -> FloatArray:
    bounds = check_finite_array(value, "label_prior", ndim=2)
    if bounds.shape[1] != 2 or len(bounds) == 0:
        raise ParameterError(
            "label_prior",
            "intervals must have shape (K, 2), lower and upper bound of each class",
            bounds.shape,
            "Pass one row per class.",
        )
    if bounds.min() < -TOLERANCE or bounds.max() > 1 + TOLERANCE:
        raise ParameterError(
            "label_prior",
            "intervals must lie in [0, 1]",
            f"bounds from {float(bounds.min())!r} to {float(bounds.max())!r}",
            "Pass probabilities.",
        )
    bounds = np.clip(bounds, 0.0, 1.0)  # rounding may have left the interval
    crossed = np.flatnonzero(bounds[:, 0] > bounds[:, 1])
    if crossed.size:
        k = int(crossed[0])
        raise ParameterError(
            "label_prior",
            "intervals must have lower <= upper",
            f"{bounds[k].tolist()} for class {k}",
            "Swap the two bounds.",
        )
    return bounds


def check_admits_distribution(bounds: FloatArray) -> None:
    """Check Σ p_lo ≤ 1 ≤ Σ p_hi."""
    low, high = math.fsum(bounds[:, 0]), math.fsum(bounds[:, 1])
    if low > 1 + TOLERANCE:
        raise ParameterError(
            "label_prior",
            "intervals must admit a distribution: the lower bounds may sum to at most 1",
            repr(low),
            "Lower some of them.",
        )
    if high < 1 - TOLERANCE:
        raise ParameterError(
            "label_prior",
            "intervals must admit a distribution: the upper bounds must sum to at least 1",
            repr(high),
            "Raise some of them.",
        )


def check_class_weights(value: ArrayLike) -> FloatArray:
    weights = check_finite_array(value, "class_weights", ndim=1)
    if weights.size == 0 or weights.min() < 0:
        raise ParameterError("class_weights", "must be non-negative, one per class", weights, "Pass counts of labels.")
    return weights


def check_class_count(given: int, n_classes: int) -> None:
    if given != n_classes:
        raise ParameterError(
            "label_prior",
            "must have one entry per class",
            f"{given} entries for {n_classes} classes",
            f"Pass {n_classes} entries, for the classes in sorted order, and all classes where the labels miss some.",
        )
