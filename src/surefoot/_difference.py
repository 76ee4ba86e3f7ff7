"""Cross-fitted difference estimates: a share from few labels, helped by what a model says of many rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from surefoot._types import FloatArray

# The most that labels may count for, and the labels whose part of the gain is left out: few do not tell it well.
_MOST_GAIN = 4.0
_UNSURE = 10
_TOLERANCE = 1e-12
# C of the logistic regression that assists, on standardised rows
_RIDGE = 0.05


def fold_numbers(
    y: NDArray[Any], n_folds: int, random_state: int | None, clusters: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """(n,) the fold of each row: every class spread evenly, at random within it; n folds where there are fewer rows.

    clusters : (n,) rows of equal number share a fold, and count by the label of the first.
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
    """(n,) the first row that equals each."""
    _, first, inverse = np.unique(X + 0.0, axis=0, return_index=True, return_inverse=True)
    return first[inverse.ravel()]


def difference_estimate(hit: FloatArray, guess: FloatArray, mean_guess: float) -> tuple[float, float]:
    """A share, and how many labels alone would tell it as well.

    The share is mean(hit − b·guess) + b·mean_guess, b in [0, 1] the least-squares slope. It varies less than mean(hit)
    by a factor g ≥ 1: n labels count as n + (g − 1)(n − 10), and as 4 n at most.

    Parameters
    ----------
    hit, guess : (n,) at the labels, 0 or 1 and in [0, 1]; the guesses by models that did not see the label.
    mean_guess : float, over all rows.
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
    """Class probabilities (n, K) at labeled rows by models that did not see them, and their mean (K,) over all rows."""
    n, everything = len(X), np.vstack([X, X_unlabeled])
    scaler = StandardScaler().fit(everything)
    folds = fold_numbers(codes, n_folds, random_state, _first_equal(X))
    at_labels, everywhere = np.zeros((n, n_classes)), np.zeros(n_classes)
    rows, pool = scaler.transform(X), scaler.transform(everything)
    for fold in np.unique(folds):
        held, seen = folds == fold, np.unique(codes[folds != fold])
        if len(seen) < 2:  # one class, or none: nothing to learn
            constant = np.bincount(codes[~held], minlength=n_classes) / max(int((~held).sum()), 1)
            at_labels[held], everywhere = constant, everywhere + held.mean() * constant
            continue
        model = LogisticRegression(C=_RIDGE, max_iter=1000).fit(rows[~held], codes[~held])
        at_labels[np.ix_(held, seen)] = model.predict_proba(rows[held])
        everywhere[seen] += held.mean() * model.predict_proba(pool).mean(axis=0)
    return at_labels, everywhere
