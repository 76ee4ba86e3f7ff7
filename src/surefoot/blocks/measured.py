"""Which numbers the distances between rows are measured on, where a classifier takes texts or mixed columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from surefoot._errors import ParameterError
from surefoot._validation import check_finite_array
from surefoot.unlabeled import Unlabeled, unwrap


@dataclass(frozen=True, eq=False)
class MeasuredRows:
    """Labeled rows, unlabeled rows and those of a target as numbers; `transformed` where they are not as passed."""

    X: Any
    X_unlabeled: Any
    X_target: Any
    transformed: bool


def rows_to_measure(
    classifier: Any, X: Any, X_unlabeled: Any, X_target: Any, X_metric: ArrayLike | None
) -> MeasuredRows:
    """The rows as passed; X_metric cut into their parts; or what a pipeline's first steps make of rows with texts."""
    if X_metric is not None:
        return _cut(X, X_unlabeled, X_target, X_metric)
    if not _has_texts(X):
        return MeasuredRows(X, X_unlabeled, X_target, False)
    if not isinstance(classifier, Pipeline) or len(classifier) < 2:
        raise ParameterError(
            "X",
            "must hold numbers, between which distances are measured",
            f"columns of texts, and {_name(classifier)} has no steps that turn them into numbers",
            "Pass a pipeline, or the numbers as X_metric=.",
        )
    steps = classifier[:-1]

    def numbers(rows: Any) -> Any:
        if rows is None:
            return None
        found = steps.transform(unwrap(rows)[0])
        return Unlabeled(found.toarray() if hasattr(found, "toarray") else np.asarray(found))

    first = numbers(X)
    return MeasuredRows(unwrap(first)[0], numbers(X_unlabeled), numbers(X_target), True)


def _cut(X: Any, X_unlabeled: Any, X_target: Any, X_metric: ArrayLike) -> MeasuredRows:
    rows = check_finite_array(X_metric, "X_metric", ndim=2)
    counts = [0 if part is None else len(unwrap(part)[0]) for part in (X, X_unlabeled, X_target)]
    if len(rows) != sum(counts):
        raise ParameterError(
            "X_metric",
            f"must have a row for each row of X, then of X_unlabeled, then of X_target, {sum(counts)} in all",
            len(rows),
            "Pass that many, in this order.",
        )
    first, second, third = np.split(rows, np.cumsum(counts)[:-1])
    return MeasuredRows(
        first,
        None if X_unlabeled is None else Unlabeled(second),
        None if X_target is None else Unlabeled(third),
        True,
    )


def _has_texts(rows: Any) -> bool:
    """Whether a data frame, a series, a list or an array of objects holds texts."""
    columns = getattr(rows, "dtypes", None)
    if columns is not None and hasattr(rows, "columns"):
        return any(str(kind).startswith(("object", "str", "cat", "String", "Categorical")) for kind in columns)
    if isinstance(rows, list):
        return any(isinstance(cell, str) for row in rows for cell in (row if isinstance(row, list | tuple) else [row]))
    array = rows if isinstance(rows, np.ndarray) else np.asarray(rows) if _is_series(rows) else None
    return array is not None and (
        array.dtype.kind in "USO" and any(isinstance(cell, str) for cell in array.ravel().tolist())
    )


def _is_series(rows: Any) -> bool:
    """Whether rows are one column of a data frame."""
    return hasattr(rows, "dtype") and hasattr(rows, "name") and getattr(rows, "ndim", 1) == 1


def _name(classifier: Any) -> str:
    return type(classifier).__name__
