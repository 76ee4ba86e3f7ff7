"""Exact bounds on label shares: hypergeometric counts, label intervals, cross-fitted difference estimates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import hypergeom
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_finite_array

# Exact bounds on the number of rows of a kind among N rows, from a uniform random sample of n without replacement.


def hypergeometric_upper(errors: int, n: int, N: int, level: float) -> int:
    """Return the largest number M of errors among N rows with P(at most `errors` among n sampled rows) > 1 − level.

    The n rows are sampled uniformly without replacement. The probability decreases in M, so M is found by bisection.
    With probability at least `level`, M is at least the true number of errors.
    """
    tail = 1.0 - level
    low, high = errors, N - (n - errors)  # `low` is possible at any level: all M = errors errors are in the sample
    if hypergeom.cdf(errors, N, high, n) > tail:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if hypergeom.cdf(errors, N, middle, n) > tail:
            low = middle
        else:
            high = middle
    return low


def hypergeometric_lower(errors: int, n: int, N: int, level: float) -> int:
    """Return the smallest number M of errors among N rows with P(at least `errors` in a sample of n) > 1 − level."""
    return N - hypergeometric_upper(n - errors, n, N, level)


# Intervals of label probabilities, one per class: validated, and tightened to values that a distribution can attain.

TOLERANCE = 1e-12


def tighten(intervals: ArrayLike) -> FloatArray:
    """Compute the tightest intervals of the distributions {p : p_lo ≤ p ≤ p_hi, Σ_k p_k = 1}.

    p_lo_k becomes max(p_lo_k, 1 − Σ_{c≠k} p_hi_c) and p_hi_k becomes min(p_hi_k, 1 − Σ_{c≠k} p_lo_c). Each bound is
    then attained by a distribution in the set.

    Parameters
    ----------
    intervals : array of shape (K, 2)
        Lower and upper bound for each class. At least one distribution must satisfy them.

    Returns
    -------
    array of shape (K, 2)
        Bounds that are all attained.

    Examples
    --------
    >>> tighten([[0.0, 0.25], [0.0, 1.0]])
    array([[0.  , 0.25],
           [0.75, 1.  ]])
    """
    lo, hi = check_intervals(intervals).T
    check_admits_distribution(np.column_stack([lo, hi]))
    # fsum rounds once and is therefore monotone, so p_lo ≤ p_hi is preserved. The clip keeps exact priors exact.
    others = [np.delete(np.arange(len(lo)), k) for k in range(len(lo))]
    least = np.clip([1.0 - math.fsum(hi[c]) for c in others], lo, hi)
    most = np.clip([1.0 - math.fsum(lo[c]) for c in others], lo, hi)
    return np.column_stack([least, most])


def check_intervals(value: ArrayLike) -> FloatArray:
    """Return intervals (K, 2) of label probabilities. Raises ParameterError if they are invalid."""
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
    bounds = np.clip(bounds, 0.0, 1.0)  # rounding may have moved them out of [0, 1]
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
            "Decrease lower bounds.",
        )
    if high < 1 - TOLERANCE:
        raise ParameterError(
            "label_prior",
            "intervals must admit a distribution: the upper bounds must sum to at least 1",
            repr(high),
            "Increase upper bounds.",
        )


def check_class_weights(value: ArrayLike) -> FloatArray:
    """Return weights (K,) of labels per class. Raises ParameterError if they are invalid."""
    weights = check_finite_array(value, "class_weights", ndim=1)
    if weights.size == 0 or weights.min() < 0:
        raise ParameterError("class_weights", "must be non-negative, one per class", weights, "Pass counts of labels.")
    return weights


def check_class_count(given: int, n_classes: int) -> None:
    """Raise ParameterError if a prior has another number of classes."""
    if given != n_classes:
        raise ParameterError(
            "label_prior",
            "must have one entry per class",
            f"{given} entries for {n_classes} classes",
            f"Pass {n_classes} entries, one per class in sorted order. Pass all classes if the labels miss some.",
        )


# The largest factor by which labels may count, and the number of labels whose part of the gain is not used.
_MOST_GAIN = 4.0
_UNSURE = 10
_TOLERANCE = 1e-12
# C of the auxiliary logistic regression, on standardized rows.
_RIDGE = 0.05


def fold_numbers(
    y: NDArray[Any], n_folds: int, random_state: int | None, clusters: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """Return the (n,) fold of each row. Each class is spread evenly, in random order; with fewer rows, n folds.

    clusters : (n,) cluster number of each row. Rows of a cluster share a fold and count with the label of the first
    row.
    """
    if clusters is not None:
        _, first, inverse = np.unique(clusters, return_index=True, return_inverse=True)
        return fold_numbers(y[first], n_folds, random_state)[inverse]
    n = len(y)
    order = np.lexsort([np.random.default_rng(random_state).random(n), y])
    folds = np.empty(n, dtype=np.intp)
    folds[order] = np.arange(n) % min(n_folds, n)
    return folds


def _first_equal(X: FloatArray) -> NDArray[np.intp]:
    """Return the (n,) index of the first row that equals each row."""
    _, first, inverse = np.unique(X + 0.0, axis=0, return_index=True, return_inverse=True)
    return first[inverse.ravel()]


def difference_estimate(hit: FloatArray, guess: FloatArray, mean_guess: float) -> tuple[float, float]:
    """Estimate a share, and the number of labels that would estimate it as well without the guesses.

    The share is mean(hit − b·guess) + b·mean_guess, where b in [0, 1] is the least-squares slope. It varies less than
    mean(hit) by a factor g ≥ 1, so n labels count as n + (g − 1)(n − 10) labels, at most 4 n.

    Parameters
    ----------
    hit, guess : (n,) values at the labels, 0 or 1 and in [0, 1]; the guesses come from models that did not see the
    label.
    mean_guess : float, mean guess over all rows.
    """
    n = len(hit)
    plain = float(hit.var(ddof=1)) if n > 1 else 0.0
    spread = float(guess.var(ddof=1)) if n > 1 else 0.0
    if plain <= 0 or spread <= 0:
        return float(hit.mean()), float(n)
    slope = float(np.clip(np.cov(hit, guess)[0, 1] / spread, 0.0, 1.0))
    rest = float((hit - slope * guess).var(ddof=1))
    share = float(np.clip(hit.mean() - slope * (guess.mean() - mean_guess), 0.0, 1.0))
    gain = min(max(plain / max(rest, _TOLERANCE), 1.0), _MOST_GAIN)
    return share, n * (1.0 + (gain - 1.0) * max(1.0 - _UNSURE / n, 0.0))


def cross_fitted_shares(
    X: FloatArray,
    codes: NDArray[np.intp],
    n_classes: int,
    X_unlabeled: FloatArray,
    n_folds: int,
    random_state: int,
) -> tuple[FloatArray, FloatArray]:
    """Return cross-fitted class probabilities (n, K) at the labeled rows, and their mean (K,) over all rows."""
    n, everything = len(X), np.vstack([X, X_unlabeled])
    scaler = StandardScaler().fit(everything)
    folds = fold_numbers(codes, n_folds, random_state, _first_equal(X))
    at_labels, everywhere = np.zeros((n, n_classes)), np.zeros(n_classes)
    rows, pool = scaler.transform(X), scaler.transform(everything)
    for fold in np.unique(folds):
        held, seen = folds == fold, np.unique(codes[folds != fold])
        if len(seen) < 2:  # one class or none: nothing to learn
            constant = np.bincount(codes[~held], minlength=n_classes) / max(int((~held).sum()), 1)
            at_labels[held], everywhere = constant, everywhere + held.mean() * constant
            continue
        model = LogisticRegression(C=_RIDGE, max_iter=1000).fit(rows[~held], codes[~held])
        at_labels[np.ix_(held, seen)] = model.predict_proba(rows[held])
        everywhere[seen] += held.mean() * model.predict_proba(pool).mean(axis=0)
    return at_labels, everywhere
