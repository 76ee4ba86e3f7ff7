"""Checks of arguments. Each error states the rule, the value received and the fix."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_SUM_TOLERANCE = 1e-8


def check_finite_array(value: Any, name: str, *, ndim: int | None = None) -> FloatArray:
    """Return `value` as a float64 array of `ndim` dimensions with finite entries, copied only where it must be."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be an array of real numbers; got {_describe(value)}. Pass numbers, in rows of one length."
        ) from error
    if ndim is not None and array.ndim != ndim:
        raise ValueError(
            f"{name} must have {ndim} dimension{'s' if ndim != 1 else ''}; got shape {array.shape}. Reshape it."
        )
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(
            f"{name} must be finite; got {array[where]} at index {where if array.ndim != 1 else where[0]}. "
            "Remove or impute NaN and infinite entries."
        )
    return array


def check_positive_scalar(value: Any, name: str, *, allow_zero: bool = False) -> float:
    """Return `value` as a finite float, > 0 or (with `allow_zero`) >= 0."""
    rule = f"{name} must be a finite number {'>=' if allow_zero else '>'} 0"
    number = np.asarray(value)
    if number.ndim != 0 or not isinstance(number.item(), numbers.Real) or isinstance(number.item(), bool):
        raise ValueError(f"{rule}; got {_describe(value)}. Pass one number.")
    scalar = float(number)
    if not np.isfinite(scalar) or scalar < 0 or (scalar == 0 and not allow_zero):
        raise ValueError(f"{rule}; got {scalar!r}. Pass a {'non-negative' if allow_zero else 'positive'} number.")
    return scalar


def check_probability_vector(value: Any, name: str) -> FloatArray:
    """Return `value` (K,) as probabilities that sum to one exactly, up to rounding.

    A sum within 1e-8 of one is taken for rounding and divided out.
    """
    array = check_finite_array(value, name, ndim=1)
    if array.size == 0 or array.min() < 0 or array.max() > 1:
        raise ValueError(f"{name} must be probabilities in [0, 1]; got {array}. Pass one probability per class.")
    total = float(array.sum())
    if abs(total - 1.0) > _SUM_TOLERANCE:
        raise ValueError(f"{name} must sum to 1; got {array}, with sum {total!r}. Divide by the sum.")
    return array / total


def read_only_copy(array: FloatArray) -> FloatArray:
    """Copy of an array that refuses to be written to."""
    copy = np.array(array, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy


def _describe(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"
