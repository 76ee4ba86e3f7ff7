"""Label priors: what is known of the label probabilities p, as intervals p_lo ≤ p ≤ p_hi (paper, the set of priors)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta

from surefoot._types import FloatArray
from surefoot._validation import check_finite_array, check_positive_scalar, check_probability_vector, read_only_copy

_TOLERANCE = 1e-12
_NO_COUNT = 1e-4


class LabelPrior(ABC):
    """Intervals for the probability of each class."""

    @abstractmethod
    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        """Intervals of the label probabilities.

        Parameters
        ----------
        class_weights : array of shape (K,)
            How many labeled rows each class has, or their total weight.

        Returns
        -------
        array of shape (K, 2)
            Lower and upper bound of each class, classes in sorted order.
        """


@dataclass(frozen=True, eq=False)
class ExactPrior(LabelPrior):
    """The label probabilities are known: p_lo = p_hi = p (the strong prior).

    Parameters
    ----------
    probabilities : array of shape (K,)
        In [0, 1], with sum one up to 1e-8.

    Examples
    --------
    >>> ExactPrior([0.25, 0.75]).intervals([10, 10])
    array([[0.25, 0.25],
           [0.75, 0.75]])
    """

    probabilities: FloatArray

    def __post_init__(self) -> None:
        probabilities = check_probability_vector(self.probabilities, "label_prior")
        object.__setattr__(self, "probabilities", read_only_copy(probabilities))

    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        _check_class_count(len(self.probabilities), len(_check_class_weights(class_weights)))
        return np.column_stack([self.probabilities, self.probabilities])

    def __repr__(self) -> str:
        return f"ExactPrior({np.array2string(self.probabilities, precision=6, separator=', ', threshold=10)})"


@dataclass(frozen=True, eq=False)
class IntervalPrior(LabelPrior):
    """The label probabilities lie in intervals.

    Parameters
    ----------
    bounds : array of shape (K, 2)
        Lower and upper bound of each class, in [0, 1]; at least one distribution must fit.

    Examples
    --------
    >>> IntervalPrior([[0.1, 0.5], [0.5, 0.9]]).intervals([10, 10])
    array([[0.1, 0.5],
           [0.5, 0.9]])
    """

    bounds: FloatArray

    def __post_init__(self) -> None:
        bounds = _check_intervals(self.bounds)
        _check_admits_distribution(bounds)
        object.__setattr__(self, "bounds", read_only_copy(bounds))

    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        _check_class_count(len(self.bounds), len(_check_class_weights(class_weights)))
        return self.bounds.copy()

    def __repr__(self) -> str:
        rows = np.array2string(self.bounds, precision=6, separator=", ", threshold=20).replace("\n", "")
        return f"IntervalPrior({rows})"


@dataclass(frozen=True)
class ClopperPearson(LabelPrior):
    """Two-sided Clopper–Pearson intervals, one per class, from the labels themselves (the weak prior).

    With m of n labels in a class, at confidence level 1 − a, the interval is [B(a/2; m, n−m+1), B(1−a/2; m+1, n−m)], B
    the quantile of the beta distribution. Each interval holds at its level; no correction is made for the number of
    classes. Weights may make m and n fractional; the level is then nominal.

    Parameters
    ----------
    level : float, default=0.95
        Confidence level in (0, 1).

    Examples
    --------
    >>> ClopperPearson().intervals([5, 15]).round(3)
    array([[0.087, 0.491],
           [0.509, 0.913]])
    """

    level: float = 0.95

    def __post_init__(self) -> None:
        if check_positive_scalar(self.level, "level") >= 1:
            raise ValueError(f"level must be a number below 1; got {self.level!r}. Pass 0.95, say.")

    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        m = _check_class_weights(class_weights)
        n = float(m.sum())
        if n <= 0:
            raise ValueError(
                f"Clopper-Pearson intervals need labels; got class weights {m}. Pass rows of positive weight."
            )
        tail = (1.0 - self.level) / 2
        rest = np.maximum(n - m, 0.0)
        lo, hi = np.zeros_like(m), np.ones_like(m)
        # A bound is about (a/2)^(1/m) from its end: below _NO_COUNT that is 0 in double precision.
        seen, missed = m > _NO_COUNT, rest > _NO_COUNT
        lo[seen] = beta.ppf(tail, m[seen], rest[seen] + 1)
        hi[missed] = beta.isf(tail, m[missed] + 1, rest[missed])
        return np.column_stack([lo, hi])


@dataclass(frozen=True)
class NoPrior(LabelPrior):
    """Nothing is known of the label probabilities: [0, 1] for each class.

    Examples
    --------
    >>> NoPrior().intervals([5, 15])
    array([[0., 1.],
           [0., 1.]])
    """

    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        return np.tile([0.0, 1.0], (len(_check_class_weights(class_weights)), 1))


def resolve_prior(label_prior: LabelPrior | ArrayLike | str | None) -> LabelPrior:
    """Label prior from an instance, None, a name or an array.

    Parameters
    ----------
    label_prior : LabelPrior, None, "clopper-pearson", array of shape (K,) or array of shape (K, 2)
        A prior; None for no constraint; a name; probabilities; or intervals.

    Returns
    -------
    LabelPrior
        The prior.

    Examples
    --------
    >>> resolve_prior("clopper-pearson")
    ClopperPearson(level=0.95)
    """
    if label_prior is None:
        return NoPrior()
    if isinstance(label_prior, LabelPrior):
        return label_prior
    choices = "None, 'clopper-pearson', probabilities of shape (K,), intervals of shape (K, 2) or a LabelPrior"
    if isinstance(label_prior, type) and issubclass(label_prior, LabelPrior):
        name = label_prior.__name__
        raise ValueError(f"label_prior must be an instance; got the class {name}. Pass {name}(...).")
    if isinstance(label_prior, str):
        if label_prior == "clopper-pearson":
            return ClopperPearson()
        raise ValueError(f"label_prior must be one of {choices}; got {label_prior!r}. Pass one of these.")
    array = check_finite_array(label_prior, "label_prior")
    if array.ndim == 1:
        return ExactPrior(array)
    if array.ndim == 2:
        return IntervalPrior(array)
    raise ValueError(f"label_prior must be one of {choices}; got an array of shape {array.shape}. Pass one of these.")


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
    lo, hi = _check_intervals(intervals).T
    _check_admits_distribution(np.column_stack([lo, hi]))
    # fsum rounds once, hence is monotone: p_lo ≤ p_hi survives. The clip keeps exact priors exact.
    others = [np.delete(np.arange(len(lo)), k) for k in range(len(lo))]
    least = np.clip([1.0 - math.fsum(hi[c]) for c in others], lo, hi)
    most = np.clip([1.0 - math.fsum(lo[c]) for c in others], lo, hi)
    return np.column_stack([least, most])


def _check_intervals(value: ArrayLike) -> FloatArray:
    bounds = check_finite_array(value, "label_prior", ndim=2)
    if bounds.shape[1] != 2 or len(bounds) == 0:
        raise ValueError(
            f"label_prior intervals must have shape (K, 2), lower and upper bound of each class; got {bounds.shape}. "
            "Pass one row per class."
        )
    if bounds.min() < -_TOLERANCE or bounds.max() > 1 + _TOLERANCE:
        raise ValueError(
            f"label_prior intervals must lie in [0, 1]; got bounds from {float(bounds.min())!r} to "
            f"{float(bounds.max())!r}. Pass probabilities."
        )
    bounds = np.clip(bounds, 0.0, 1.0)  # rounding may have left the interval
    crossed = np.flatnonzero(bounds[:, 0] > bounds[:, 1])
    if crossed.size:
        k = int(crossed[0])
        raise ValueError(
            f"label_prior intervals must have lower <= upper; got {bounds[k].tolist()} for class {k}. "
            "Swap the two bounds."
        )
    return bounds


def _check_admits_distribution(bounds: FloatArray) -> None:
    """Check Σ p_lo ≤ 1 ≤ Σ p_hi."""
    low, high = math.fsum(bounds[:, 0]), math.fsum(bounds[:, 1])
    if low > 1 + _TOLERANCE:
        raise ValueError(
            f"label_prior intervals must admit a distribution: the lower bounds may sum to at most 1; got {low!r}. "
            "Lower some of them."
        )
    if high < 1 - _TOLERANCE:
        raise ValueError(
            f"label_prior intervals must admit a distribution: the upper bounds must sum to at least 1; got {high!r}. "
            "Raise some of them."
        )


def _check_class_weights(value: ArrayLike) -> FloatArray:
    weights = check_finite_array(value, "class_weights", ndim=1)
    if weights.size == 0 or weights.min() < 0:
        raise ValueError(f"class_weights must be non-negative, one per class; got {weights}. Pass counts of labels.")
    return weights


def _check_class_count(given: int, n_classes: int) -> None:
    if given != n_classes:
        raise ValueError(
            f"label_prior must have one entry per class; got {given} entries for {n_classes} classes. Pass {n_classes} "
            "entries, for the classes in sorted order, and all classes where the labels miss some."
        )
