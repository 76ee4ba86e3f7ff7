"""Compute pointwise losses: matrices ℓ_jk, the loss at row j if its label were k.

Scores are (N, K), or (N,) or (N, 1) for two classes, where a score s means the scores (0, s). Infinite and NaN scores
are accepted. Their losses are not finite, so a line search can reject them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_finite_array

LOG_LOSS: Literal["log_loss"] = "log_loss"
ZERO_ONE: Literal["zero_one"] = "zero_one"

_SUM_TOLERANCE = 1e-4

# The game of a row has up to 2^K − 1 vertices for the zero-one loss, and up to (2K choose K) − 1 for other costs.
MOST_CLASSES_ZERO_ONE, MOST_CLASSES_OF_COSTS = 10, 6
# A candidate vertex is rejected if its linear system has a larger condition number than this, or if it violates an
# optimality condition by more than this rounding error.
_SINGULAR, _EPSILON = 1e12, 1e-9


def log_loss_matrix(scores: ArrayLike) -> FloatArray:
    """Compute the multinomial log loss ℓ_jk = log Σ_c exp(s_jc) − s_jk, of shape (N, K).

    With m the largest score of a row, ℓ_k = (m − s_k) + log1p(Σ exp(s_c − m) over the remaining classes). This form
    neither overflows nor cancels, so a loss of 1e-300 keeps its digits.
    """
    s = _check_scores(scores)
    if s.ndim == 1:
        tail = np.log1p(np.exp(-np.abs(s)))
        return np.column_stack([np.maximum(s, 0.0) + tail, np.maximum(-s, 0.0) + tail])
    rows = np.arange(len(s))
    top = s.argmax(axis=1)
    below = s[rows, top][:, None] - s
    others = np.exp(-below)
    others[rows, top] = 0.0
    below += np.log1p(others.sum(axis=1))[:, None]
    return below


def probabilities(scores: ArrayLike) -> FloatArray:
    """Return the class probabilities exp(−ℓ_jk), the softmax of the scores, of shape (N, K)."""
    s = _check_scores(scores)
    if s.ndim == 1:
        return np.column_stack([expit(-s), expit(s)])
    exponentials = np.exp(s - s.max(axis=1, keepdims=True))
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials


def loss_matrix_from_proba(proba: ArrayLike, loss: str, clip: float = 1e-12) -> FloatArray:
    """Compute the losses ℓ_jk (N, K) of a classifier from its class probabilities.

    Parameters
    ----------
    proba : array of shape (N, K)
        Rows in [0, 1] that sum to one (up to 1e-4, for classifiers in single precision). They are used unchanged.
    loss : {"log_loss", "zero_one"}
        "log_loss": −log(max(p_jk, clip)). "zero_one": 1 unless k is the most probable class of row j (the first, among
        equals).
    clip : float, default=1e-12
        Smallest probability in the log loss, so that no loss exceeds −log(clip).
    """
    p = check_finite_array(proba, "proba", ndim=2)
    _check_proba(p)
    if loss == LOG_LOSS:
        if not 0 < clip < 1:
            raise ParameterError("clip", "must lie strictly between 0 and 1", repr(clip), "Pass 1e-12, for example.")
        return np.abs(np.log(np.clip(p, clip, 1.0)))
    if loss == ZERO_ONE:
        losses = np.ones_like(p)
        losses[np.arange(len(p)), p.argmax(axis=1)] = 0.0
        return losses
    raise ParameterError("loss", f"must be {LOG_LOSS!r} or {ZERO_ONE!r}", repr(loss), "Pass one of the two.")


@dataclass(frozen=True, eq=False)
class CostGame:
    """The game of one row, with costs L (K, K) of [label, prediction] and prices a (K,) of labels.

        min over h in the simplex of max_k (L h)_k + a_k  =  max over label probabilities q of q·a + min_c (q L)_c

    The right-hand side is piecewise linear and concave in q. Its maximum is at a vertex of the Bayes risk, and the
    vertices do not depend on a. For the zero-one loss, the vertices are the uniform distributions on sets of labels.

    labels : (V, K) vertices q; values : (V,) their Bayes risks min_c (q L)_c.
    bases : per vertex, the maps (K, K+1) from (a, 1) to the rules h that may be optimal there, one for each choice of
        tied predictions.
    """

    costs: FloatArray
    labels: FloatArray
    values: FloatArray
    bases: tuple[tuple[FloatArray, ...], ...]

    @classmethod
    def from_costs(cls, costs: FloatArray) -> CostGame:
        """Enumerate the vertices. Each belongs to a set of labels and an equally large set of tied predictions."""
        K, unit = len(costs), float(np.ptp(costs)) or 1.0
        _check_number_of_vertices(costs)
        found: dict[tuple[float, ...], tuple[FloatArray, float, list[FloatArray]]] = {}
        for support, ties in _supports(costs):
            m = len(support)
            system = np.zeros((m + 1, m + 1))
            system[:m, :m], system[:m, m], system[m, :m] = costs[np.ix_(support, ties)] / unit, -1.0, 1.0
            if np.linalg.cond(system) > _SINGULAR:
                continue
            inverse = np.linalg.inv(system)
            q = np.zeros(K)
            q[support] = -inverse[m, :m]
            if q.min() < -_EPSILON or (q @ costs).min() < unit * (inverse[m, m] - _EPSILON):
                continue
            rule = np.zeros((K, K + 1))
            rule[np.ix_(ties, support)], rule[ties, K] = -inverse[:m, :m] / unit, inverse[:m, m]
            q = np.maximum(q, 0.0) / np.maximum(q, 0.0).sum()
            same = found.setdefault(tuple(np.round(q, 9)), (q, float((q @ costs).min()), []))
            same[2].append(rule)
        labels, values, bases = zip(*found.values(), strict=True)
        return cls(costs, np.array(labels), np.array(values), tuple(tuple(some) for some in bases))

    def rule(self, prices: FloatArray) -> FloatArray:
        """Return the predictions h (B, K) that minimise the largest loss plus price at each row."""
        h = np.empty_like(prices)
        best = (prices @ self.labels.T + self.values).argmax(axis=1)
        with_one = np.column_stack([prices, np.ones(len(prices))])
        for vertex in np.unique(best).tolist():
            rows = np.flatnonzero(best == vertex)
            tried = np.maximum(np.stack([with_one[rows] @ basis.T for basis in self.bases[vertex]]), 0.0)
            tried /= tried.sum(axis=2, keepdims=True)
            largest = (tried @ self.costs.T + prices[rows]).max(axis=2)
            h[rows] = tried[largest.argmin(axis=0), np.arange(len(rows))]
        return h


def _supports(costs: FloatArray) -> Iterator[tuple[list[int], list[int]]]:
    """Yield a set of labels and an equally large set of predictions. For the zero-one loss, only equal sets tie."""
    K, same = len(costs), _is_zero_one(costs)
    for m in range(1, K + 1):
        for labels in combinations(range(K), m):
            for ties in [labels] if same else combinations(range(K), m):
                yield list(labels), list(ties)


def has_game(costs: FloatArray) -> bool:
    """Return True if the game of a row has few enough vertices."""
    return len(costs) <= (MOST_CLASSES_ZERO_ONE if _is_zero_one(costs) else MOST_CLASSES_OF_COSTS)


def _check_number_of_vertices(costs: FloatArray) -> None:
    if not has_game(costs):
        raise ParameterError(
            "loss",
            f"allows at most {MOST_CLASSES_ZERO_ONE} classes if it is {ZERO_ONE!r}, and {MOST_CLASSES_OF_COSTS} if it "
            "is a matrix of costs",
            f"{len(costs)} classes",
            f"Pass {LOG_LOSS!r}, or merge classes.",
        )


def _is_zero_one(costs: FloatArray) -> bool:
    return bool(np.array_equal(costs, 1.0 - np.eye(len(costs))))


def _check_scores(scores: ArrayLike) -> FloatArray:
    """Return scores (N, K) with K ≥ 2, or (N,) for two classes."""
    s = np.asarray(scores, dtype=np.float64)
    if s.ndim == 2 and s.shape[1] == 1:
        return s[:, 0]
    if s.ndim == 1 or (s.ndim == 2 and s.shape[1] >= 2):
        return s
    raise ParameterError(
        "scores", "must have shape (N,) or (N, 1) for two classes, or (N, K)", s.shape, "Reshape them."
    )


def _check_proba(p: FloatArray) -> None:
    if p.shape[1] < 2:
        raise ParameterError(
            "proba", "must have a column per class, at least 2", f"shape {p.shape}", "Pass predict_proba(X)."
        )
    if not p.size:
        return
    if p.min() < 0 or p.max() > 1 + _SUM_TOLERANCE:
        raise ParameterError(
            "proba",
            "must lie in [0, 1]",
            f"values from {float(p.min())!r} to {float(p.max())!r}",
            "Pass probabilities, not scores.",
        )
    sums = p.sum(axis=1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > _SUM_TOLERANCE:
        raise ParameterError(
            "proba",
            "must sum to 1 in each row",
            f"{float(sums[worst])!r} in row {worst}",
            "Divide each row by its sum.",
        )
