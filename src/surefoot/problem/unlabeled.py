"""Unlabeled rows on their way through pipelines and cross-validation: a wrapper, and guards against two known traps."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from surefoot._errors import ParameterError, UnlabeledRowsWarning, see, warn_caller
from surefoot._validation import FloatArray, check_more_rows

# Fewer rows than this say too little about where a feature lies, and how widely.
_ENOUGH_ROWS = 10
# So many of the unlabeled rows, drawn at random, are compared with the labeled ones.
COMPARED = 2000
# Interquartile ranges that differ by more than this factor are taken for different units.
_SPREAD_RATIO = 10.0
# A warning needs more than this share of the features.
_SHARE = 0.2

UNLABELED, TARGET = "X_unlabeled", "X_target"
_FIX = (
    'A Pipeline scales {name} only if told so: Pipeline(..., transform_input=["{name}"]). If the rows do '
    "differ that much, ignore this warning."
)


class Unlabeled(tuple[Any]):
    """Unlabeled rows that no cross-validation splits, and that a pipeline still transforms.

    `cross_validate(..., params={"X_unlabeled": U})` cuts U into folds whenever it has as many rows as X. Wrapped,
    `Unlabeled(U)` has length 1 and is passed on whole. It is a tuple because a Pipeline with
    `transform_input=["X_unlabeled"]` transforms the elements of a tuple one by one, and hands on a plain tuple, which
    `fit` takes too.

    Parameters
    ----------
    rows : array of shape (M, d)
        Unlabeled rows.

    Examples
    --------
    >>> from surefoot import Unlabeled
    >>> U = Unlabeled([[0.1], [0.9]])
    >>> len(U), U.rows
    (1, [[0.1], [0.9]])
    """

    __slots__ = ()

    def __new__(cls, rows: Any) -> Unlabeled:
        return super().__new__(cls, (rows,))

    @property
    def rows(self) -> Any:
        """The rows as they were given."""
        return self[0]

    def __getnewargs__(self) -> tuple[Any]:
        # A copy or a pickle would call the class with the tuple.
        return (self.rows,)

    def __repr__(self) -> str:
        return f"Unlabeled(<{np.shape(self.rows)[0]} rows>)"


def unwrap(X_unlabeled: Any) -> tuple[Any, bool]:
    """The rows, and whether they came in an Unlabeled, or in the tuple of one matrix that a Pipeline makes of it."""
    if isinstance(X_unlabeled, Unlabeled):
        return X_unlabeled.rows, True
    # A tuple of one vector is a matrix of one row, not a wrapper.
    if isinstance(X_unlabeled, tuple) and len(X_unlabeled) == 1 and np.ndim(X_unlabeled[0]) == 2:
        return X_unlabeled[0], True
    return X_unlabeled, False


def choose_marginal(X_unlabeled: Any, X_target: Any) -> tuple[Any, str]:
    """The rows that make up the feature marginal, with the labeled ones or (those of a target) alone, and their name.

    Where both are given, the unlabeled rows of the labels' own population take no part, and a warning says so.
    """
    if X_target is None:
        return X_unlabeled, UNLABELED
    if X_unlabeled is not None:
        warn_caller(
            UnlabeledRowsWarning(
                "unused_rows",
                "the feature marginal is that of X_target alone: the rows of X_unlabeled take no part.",
                "Leave them out, or pass all rows of the population to judge as X_target.",
            )
        )
    return X_target, TARGET


def check_unlabeled(estimator: Any, X: FloatArray, rows: Any, name: str = UNLABELED) -> FloatArray:
    """Rows (M, d) with the columns of X (n, d), which the estimator has seen."""
    try:
        validate_data(estimator, rows, reset=False, skip_check_array=True, ensure_2d=False)  # names of columns
    except ValueError as error:
        raise ParameterError(name, "must have the columns of X, in the same order", None, str(error)) from error
    return check_more_rows(rows, name, X.shape[1])


def warn_about_unlabeled(
    X: FloatArray, U: FloatArray, n_unlabeled: int, *, wrapped: bool, name: str = UNLABELED
) -> None:
    """A warning where one of the two traps seems to have caught the unlabeled rows; U may be a sample of them."""
    if not wrapped:
        _warn_if_cut_by_folds(len(X), n_unlabeled, name)
    _warn_if_scaled_apart(X, U, name)


def _warn_if_cut_by_folds(n_labeled: int, n_unlabeled: int, name: str) -> None:
    """`cross_validate` slices every parameter that is as long as X, X_unlabeled too."""
    if n_labeled == n_unlabeled:
        warn_caller(
            UnlabeledRowsWarning(
                "cut_by_folds",
                f"{name} has as many rows as X ({n_labeled}).",
                "If this fit runs inside cross_validate or a search, it has been cut into folds along with X: pass "
                f"surefoot.Unlabeled({name}) instead, which is passed on whole." + see("unlabeled rows"),
                n_rows=n_labeled,
            )
        )


def _warn_if_scaled_apart(X: FloatArray, U: FloatArray, name: str) -> None:
    """A pipeline without transform_input scales X and leaves X_unlabeled as it was: compare medians, then spreads."""
    if len(X) < _ENOUGH_ROWS or len(U) == 0:
        return
    if len(U) > COMPARED:
        U = U[np.random.default_rng(0).choice(len(U), COMPARED, replace=False)]
    moved = _share_moved(X, U)
    if moved > _SHARE:
        warn_caller(
            UnlabeledRowsWarning(
                "moved_features",
                f"in {moved:.0%} of the features the median of {name} lies farther from that of X than the whole "
                "range of X.",
                _FIX.format(name=name) + see("unlabeled rows"),
                share=moved,
            )
        )
        return
    stretched = _share_stretched(X, U) if len(U) >= _ENOUGH_ROWS else 0.0
    if stretched > _SHARE:
        warn_caller(
            UnlabeledRowsWarning(
                "stretched_features",
                f"in {stretched:.0%} of the features the interquartile range of {name} and that of X differ by a "
                f"factor of more than {_SPREAD_RATIO:.0f}.",
                _FIX.format(name=name) + see("unlabeled rows"),
                share=stretched,
            )
        )


def _share_moved(X: FloatArray, U: FloatArray) -> float:
    """Share of the features, of those that vary in X, whose medians differ by more than the range of X."""
    span = np.ptp(X, axis=0)
    apart = np.abs(np.median(U, axis=0) - np.median(X, axis=0)) > span
    return float(apart[span > 0].mean()) if (span > 0).any() else 0.0


def _share_stretched(X: FloatArray, U: FloatArray) -> float:
    """Share of the features whose interquartile ranges, where neither is 0, differ by more than _SPREAD_RATIO."""
    ours, theirs = (np.subtract(*np.quantile(rows, [0.75, 0.25], axis=0)) for rows in (X, U))
    spread = (ours > 0) & (theirs > 0)
    apart = (theirs > _SPREAD_RATIO * ours) | (ours > _SPREAD_RATIO * theirs)
    return float((apart & spread).mean())
