"""What labels say of a classifier: its loss at each, the range of the loss, and the classes that it knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from surefoot._errors import ParameterError
from surefoot._types import FloatArray
from surefoot.certification import ClassifierLoss
from surefoot.unlabeled import Unlabeled


@dataclass(frozen=True, eq=False)
class ObservedLosses:
    """Losses (n,) in [low, high] at labeled rows, and which of them the classifier predicts wrongly (n,)."""

    values: FloatArray
    wrong: NDArray[np.bool_]
    name: str
    low: float
    high: float

    def at(self, chosen: NDArray[Any]) -> ObservedLosses:
        """Some of the rows."""
        return replace(self, values=self.values[chosen], wrong=self.wrong[chosen])

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def n_errors(self) -> int:
        return int(self.wrong.sum())

    @property
    def counts(self) -> dict[str, Any]:
        """What an `ErrorBound` says of the labels."""
        mean = float(self.values.mean()) if self.n else 0.0
        return {"n_labels": self.n, "n_errors": self.n_errors, "mean_loss": mean}


def observe(
    classifier: Any, X: Any, y: NDArray[Any], classes: NDArray[Any], loss: str | ArrayLike, clip: float
) -> ObservedLosses:
    """Losses of a fitted classifier at rows X with labels y, each among `classes`."""
    judged = ClassifierLoss.of(classifier, classes, loss, clip, own=False)
    if judged.losses is None:
        raise TypeError("a classifier that is there has losses")
    values = judged.losses(X)[np.arange(len(y)), np.searchsorted(classes, y)]
    matrix = judged.losses.matrix
    low = 0.0 if matrix is None else float(matrix.min())
    high = float(-np.log(clip)) if matrix is None else float(matrix.max())
    wrong = np.asarray(classifier.predict(X)).ravel() != y
    return ObservedLosses(values, wrong, judged.name, low, high)


def believed_error(classifier: Any, X: Any) -> FloatArray:
    """(N,) how probable the classifier itself holds it that its prediction is wrong: 1 − max_k p_k."""
    if not callable(getattr(classifier, "predict_proba", None)):
        raise ParameterError(
            "classifier",
            "must have predict_proba for a belief of its own",
            type(classifier).__name__,
            "Pass a classifier with predict_proba, or do without the belief.",
        )
    proba = np.asarray(classifier.predict_proba(X), dtype=np.float64)
    return np.clip(1.0 - proba.max(axis=1), 0.0, 1.0)


def fit_clone(classifier: Any, X: Any, y: NDArray[Any], X_unlabeled: Any) -> Any | None:
    """A clone fitted, with unlabeled rows where it takes them; None where y shows one class and it needs two."""
    takes = X_unlabeled is not None and has_fit_parameter(classifier, "X_unlabeled")
    try:
        return clone(classifier).fit(X, y, **({"X_unlabeled": Unlabeled(X_unlabeled)} if takes else {}))
    except ValueError:
        if len(np.unique(y)) > 1:
            raise
        return None
