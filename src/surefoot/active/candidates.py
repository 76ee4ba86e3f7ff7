"""A pool of rows, some labeled: what a query is given, checked; and the classifier fitted to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import has_fit_parameter

from surefoot._errors import CodedWarning, ParameterError, warn_caller
from surefoot._types import FloatArray
from surefoot.active.flexibility import check_candidates
from surefoot.unlabeled import Unlabeled


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows X (N, d), labels y (N,) with missing ones, and the rows that may be asked for.

    candidates : (m,) indices of rows of X, or None where `extra` (m, d) are rows that X does not hold.
    """

    X: FloatArray
    y: NDArray[Any]
    labeled: NDArray[np.bool_]
    candidates: NDArray[np.intp] | None
    extra: FloatArray | None = None

    @classmethod
    def of(cls, X: ArrayLike, y: ArrayLike, candidates: ArrayLike | None, missing_label: Any) -> Pool:
        """Check rows, labels and candidates; by default every unlabeled row is a candidate."""
        rows = check_array(X, dtype=np.float64, input_name="X")
        labels = column_or_1d(check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y"))
        check_consistent_length(rows, labels)
        labeled = ~is_missing(labels, missing_label)
        if labels.dtype.kind == "f" and not np.isfinite(labels[labeled]).all():
            raise ParameterError(
                "y",
                f"must hold labels, or {missing_label!r} where they are missing",
                "NaN or infinity",
                "Pass missing_label=numpy.nan, or correct them.",
            )
        if candidates is not None and np.ndim(candidates) == 2:
            extra = check_array(candidates, dtype=np.float64, input_name="candidates")
            if extra.shape[1] != rows.shape[1]:
                raise ParameterError(
                    "candidates",
                    f"must have as many features as X, {rows.shape[1]}",
                    extra.shape[1],
                    "Pass the same columns, or indices of rows of X.",
                )
            return cls(rows, labels, labeled, None, extra)
        chosen = np.flatnonzero(~labeled) if candidates is None else check_candidates(candidates, len(rows), "X")
        if labeled[chosen].any():
            raise ParameterError(
                "candidates",
                "must be unlabeled rows",
                f"row {chosen[labeled[chosen]][0]}, which has a label",
                "Leave out labeled rows.",
            )
        return cls(rows, labels, labeled, chosen)

    @property
    def size(self) -> int:
        """Number of rows that a query's indices refer to."""
        return len(self.X) if self.extra is None else len(self.extra)

    @property
    def positions(self) -> NDArray[np.intp]:
        """(m,) where the candidates stand among the rows that a query's indices refer to."""
        return np.arange(self.size) if self.candidates is None else self.candidates

    @property
    def labels(self) -> NDArray[Any]:
        """(n,) the labels that are there, as an array of their own type."""
        return np.array(self.y[self.labeled].tolist())

    def rows(self, positions: NDArray[np.intp]) -> FloatArray:
        return (self.X if self.extra is None else self.extra)[positions]


def is_missing(y: NDArray[Any], missing_label: Any) -> NDArray[np.bool_]:
    """Which labels are missing: NaN and None alike, if the mark is either of these, else those equal to the mark."""
    if missing_label is not None and missing_label == missing_label:  # noqa: PLR0124 - not NaN
        return np.array([value == missing_label for value in y.tolist()], dtype=bool)
    if y.dtype.kind == "f":
        return np.isnan(y)
    if y.dtype.kind != "O":
        return np.zeros(len(y), dtype=bool)
    return np.array([value is None or value != value for value in y], dtype=bool)  # noqa: PLR0124 - NaN


def known_classes(classes: ArrayLike | None, clf: Any) -> NDArray[Any] | None:
    """All classes: as given, or as the classifier was told or has seen; None where nobody knows."""
    for given in (classes, getattr(clf, "classes", None), getattr(clf, "classes_", None)):
        if given is not None:
            return np.unique(np.asarray(given))
    return None


def fit_to(clf: Any, pool: Pool, sample_weight: ArrayLike | None) -> Any | None:
    """A fitted clone of clf; None, with a warning, where the labels show fewer than two classes and it needs more.

    A classifier that takes X_unlabeled is given the unlabeled rows; one of scikit-activeml all rows, labeled or not.
    """
    model = clone(clf)
    n_seen = len(np.unique(pool.labels)) if pool.labeled.any() else 0
    weights = None if sample_weight is None else np.asarray(sample_weight)
    of_activeml = hasattr(clf, "missing_label")  # with too few classes such a classifier would only count labels
    if n_seen == 0 or (n_seen == 1 and of_activeml):
        _warn_unfit(n_seen)
        return None
    if of_activeml:
        return model.fit(pool.X, pool.y) if weights is None else model.fit(pool.X, pool.y, weights)
    keywords: dict[str, Any] = {} if weights is None else {"sample_weight": weights[pool.labeled]}
    if has_fit_parameter(clf, "X_unlabeled"):
        keywords["X_unlabeled"] = Unlabeled(pool.X[~pool.labeled])
    try:
        return model.fit(pool.X[pool.labeled], pool.labels, **keywords)
    except ValueError:
        if n_seen > 1:
            raise
        _warn_unfit(n_seen)
        return None


def _warn_unfit(n_seen: int) -> None:
    warn_caller(
        CodedWarning(
            "few_classes",
            f"the labels show {n_seen} class{'es' * (n_seen != 1)}, too few to fit the classifier: rows are drawn at "
            "random until a second class is seen.",
            n_classes=n_seen,
        )
    )
