"""What labels say of a classifier: its loss at each, the range of the loss, and the classes that it knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from surefoot._types import FloatArray
from surefoot.certify import ClassifierLoss


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
    def mean(self) -> float:
        return float(self.values.mean()) if self.n else 0.0


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
        raise ValueError(
            f"the classifier's own belief needs predict_proba; got {type(classifier).__name__}. Pass a classifier with "
            "predict_proba, or do without the belief."
        )
    proba = np.asarray(classifier.predict_proba(X), dtype=np.float64)
    return np.clip(1.0 - proba.max(axis=1), 0.0, 1.0)


def known_classes(classifier: Any, y: NDArray[Any], classes: ArrayLike | None) -> NDArray[Any]:
    """All classes, sorted: those asked for, else those of a fitted classifier, else those of y."""
    own = getattr(classifier, "classes_", None)
    if classes is None and own is None:
        return np.unique(y)
    known = np.unique(np.asarray(own if classes is None else classes))
    missing = np.setdiff1d(y, known).tolist()
    if missing:
        raise ValueError(
            f"labels must be classes that the classifier knows, {known.tolist()}; got {missing}. Pass classes= with "
            "all of them (one that it does not know is never predicted), or correct the labels."
        )
    if classes is not None and own is not None and len(np.setdiff1d(own, known)):
        raise ValueError(
            f"classes must contain every class of the classifier, {np.asarray(own).tolist()}; got {known.tolist()}. "
            "Add the others."
        )
    return known


def is_fitted(classifier: Any) -> bool:
    """Whether a classifier can predict; one that has no fit is taken to be finished."""
    if not hasattr(classifier, "fit"):
        return True
    try:
        check_is_fitted(classifier)
    except NotFittedError:
        return False
    return True
