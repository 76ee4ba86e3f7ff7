"""Pointwise losses: matrices ℓ_jk, the loss at row j if its label were k.

Scores are (N, K), or (N,) or (N, 1) for two classes, where a score s means the scores (0, s). Scores that are not
finite are accepted. They give losses that are not finite, which a line search can reject.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_finite_array

LOG_LOSS: Literal["log_loss"] = "log_loss"
ZERO_ONE: Literal["zero_one"] = "zero_one"

_SUM_TOLERANCE = 1e-4


def log_loss_matrix(scores: ArrayLike) -> FloatArray:
    """Multinomial log loss ℓ_jk = log Σ_c exp(s_jc) − s_jk, of shape (N, K).

    With m the largest score of a row, ℓ_k = (m − s_k) + log1p(Σ exp(s_c − m) over the other classes). This form neither
    overflows nor cancels, so a loss of 1e-300 keeps its digits.
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
    """Class probabilities exp(−ℓ_jk), the softmax of the scores, of shape (N, K)."""
    s = _check_scores(scores)
    if s.ndim == 1:
        return np.column_stack([expit(-s), expit(s)])
    exponentials = np.exp(s - s.max(axis=1, keepdims=True))
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials


def loss_matrix_from_proba(proba: ArrayLike, loss: str, clip: float = 1e-12) -> FloatArray:
    """Losses ℓ_jk (N, K) of a classifier, from its class probabilities.

    Parameters
    ----------
    proba : array of shape (N, K)
        Rows in [0, 1] that sum to one (up to 1e-4, for classifiers of single precision). They are used as they are.
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


def _check_scores(scores: ArrayLike) -> FloatArray:
    """Scores (N, K) with K ≥ 2, or (N,) for two classes."""
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
