"""Unlabeled rows on their way through pipelines and cross-validation: a wrapper, and guards against two known traps."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from surefoot._errors import UnlabeledRowsWarning
from surefoot._validation import FloatArray


class Unlabeled:
    """Unlabeled rows that no cross-validation splits.

    `cross_validate(..., params={"X_unlabeled": U})` cuts U into folds whenever it has as many rows as X. Wrapped,
    `Unlabeled(U)` is passed on whole.

    Parameters
    ----------
    rows : array of shape (M, d)
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        return f"Unlabeled(<{np.shape(self.rows)[0]} rows>)"


def warn_if_cut_by_folds(n_labeled: int, n_unlabeled: int) -> None:
    """`cross_validate` slices every parameter that is as long as X, X_unlabeled too."""
    if n_labeled == n_unlabeled:
        warnings.warn(
            f"X_unlabeled has as many rows as X ({n_labeled}). If this fit runs inside cross_validate or a search, it has "
            "been cut into folds along with X: pass surefoot.Unlabeled(X_unlabeled) instead, which is passed on whole.",
            UnlabeledRowsWarning,
            stacklevel=4,
        )


def warn_if_scaled_apart(X: FloatArray, U: FloatArray) -> None:
    """A pipeline without transform_input scales X and leaves X_unlabeled as it was."""
    if len(X) < 10 or len(U) == 0:
        return
    span = np.ptp(X, axis=0)
    apart = np.abs(np.median(U, axis=0) - np.median(X, axis=0)) > np.maximum(span, np.finfo(float).tiny)
    share = float(apart[span > 0].mean()) if (span > 0).any() else 0.0
    if share > 0.2:
        warnings.warn(
            f"in {share:.0%} of the features the median of X_unlabeled lies farther from that of X than the whole range of "
            'X. A Pipeline scales X_unlabeled only if told so: Pipeline(..., transform_input=["X_unlabeled"]). If the '
            "rows do differ that much, ignore this warning.",
            UnlabeledRowsWarning,
            stacklevel=4,
        )
