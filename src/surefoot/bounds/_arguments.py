"""Losses observed at labels, and the arguments that bounds and audits share."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_finite_array, check_unit_scalar, is_source
from surefoot.bounds.clusters import Clusters
from surefoot.certificates.certification import ClassifierLoss
from surefoot.problem.rows import Unlabeled, unwrap

# What labels say of a classifier: its loss at each, the range of the loss, and the classes that it knows.


@dataclass(frozen=True, eq=False)
class ObservedLosses:
    """Losses (n,) in [low, high] at labeled rows, and which of them the classifier predicts wrongly (n,)."""

    values: FloatArray
    wrong: NDArray[np.bool_]
    name: str
    low: float
    high: float

    def at_rows(self, chosen: NDArray[Any]) -> ObservedLosses:
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
    judged = ClassifierLoss.from_arguments(classifier, classes, loss, clip, own=False)
    if judged.losses is None:
        raise TypeError("a classifier that is there has losses")
    values = judged.losses(X)[np.arange(len(y)), np.searchsorted(classes, y)]
    matrix = judged.losses.matrix
    low = 0.0 if matrix is None else float(matrix.min())
    high = float(-np.log(clip)) if matrix is None else float(matrix.max())
    wrong = np.asarray(classifier.predict(X)).ravel() != y
    return ObservedLosses(values, wrong, judged.name, low, high)


def expected_error(classifier: Any, X: Any) -> FloatArray:
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


UNIFORM, WEIGHTED, AUTO = "uniform", "weighted", "auto"
LEAST_UNIFORM_SHARE = 0.2
_FEWEST_LABELS = 2


@dataclass(eq=False)
class Arguments:
    """Arguments of `error_bound`, checked.

    in_memory : whether unlabeled rows and groups are looked at here; those of a certificate are by `certify`.
    """

    classifier: Any
    X: Any
    y: Any
    X_unlabeled: Any
    level: float
    loss: str | ArrayLike
    groups: Any
    classes: ArrayLike | None
    clip: float
    cv_groups: ArrayLike | None
    random_state: int | None
    in_memory: bool
    clusters: Clusters = field(init=False)

    def __post_init__(self) -> None:
        if not callable(getattr(self.classifier, "predict", None)):
            raise ParameterError(
                "classifier",
                "must have predict",
                type(self.classifier).__name__,
                "Pass a scikit-learn classifier, or an object with predict.",
            )
        self.y = column_or_1d(check_array(self.y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
        check_consistent_length(self.X, self.y)
        if len(self.y) < _FEWEST_LABELS:
            raise ParameterError(
                "y", f"must hold at least {_FEWEST_LABELS} labels for a bound", len(self.y), "Label more rows."
            )
        self.level = check_level(self.level)
        if self.in_memory:
            self._check_rows()
        self.clusters = Clusters.check(
            self.cv_groups, self.X, self.X_unlabeled if self.in_memory else None, self.random_state
        )

    def _check_rows(self) -> None:
        U = None if self.X_unlabeled is None else unwrap(self.X_unlabeled)[0]
        if is_source(U) or hasattr(U, "__dask_graph__"):
            raise ParameterError(
                "X_unlabeled",
                "must be rows in memory for this method",
                type(U).__name__,
                'Read them, or pass method="transport".',
            )
        if U is not None and np.shape(U)[1:] != np.shape(self.X)[1:]:
            columns = np.shape(self.X)[1:]
            raise ParameterError(
                "X_unlabeled", f"must have the columns of X, {columns}", np.shape(U)[1:], "Pass the same columns."
            )
        self.X_unlabeled = U
        if self.groups is not None:
            self.groups = self._checked_groups(len(self.y), None if U is None else len(U))

    def _checked_groups(self, n: int, M: int | None) -> NDArray[Any]:
        """Groups of the rows of X, then of X_unlabeled, one each; they may always be of the rows of X alone."""
        if callable(self.groups):
            raise ParameterError(
                "groups",
                "must be an array for this method",
                "a function of rows, which is for method='transport'",
                "Pass its values at the rows.",
            )
        given = np.asarray(self.groups)
        wanted = n if M is None or given.shape == (n,) else n + M
        if given.shape != (wanted,):
            rows = "row of X" if M is None else "row of X, then one per row of X_unlabeled"
            raise ParameterError(
                "groups", f"must be one per {rows}, {wanted} in all", f"shape {given.shape}", "Pass that many."
            )
        empty = np.setdiff1d(given, given[:n]).tolist()
        if empty:
            raise ParameterError(
                "groups",
                "must each have a labeled row to judge it",
                f"none in {empty}",
                "Label some of their rows, or merge them with other groups.",
            )
        return given


def check_level(level: float) -> float:
    """A level strictly between 0 and 1."""
    value = check_unit_scalar(level, "level")
    if not 0 < value < 1:
        raise ParameterError("level", "must lie strictly between 0 and 1", repr(level), "Pass 0.9, say.")
    return value


def check_known_label(value: Any, classes: list[Any] | None) -> Any:
    """A plain number or text, as the journal can hold it, and a class that the classifier knows."""
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, str | bool | int | float) or plain != plain:  # noqa: PLR0124 - NaN
        raise ParameterError("label", "must be a number or a text", repr(value), "A row without one can be skipped.")
    if classes is not None and plain not in classes:
        raise ParameterError(
            "label",
            f"must be a class that the classifier knows, {classes}",
            repr(plain),
            "Correct it, or pass classes= with all classes: one that it does not know is never predicted.",
        )
    return plain


def known_labels(y: ArrayLike | None, N: int, classes: list[Any] | None) -> dict[int, Any]:
    """Labels known from the start, by row."""
    if y is None:
        return {}
    given = np.asarray(y)
    if given.shape != (N,):
        raise ParameterError(
            "y", "must have one label per row, missing ones NaN or None", f"shape {given.shape}", "Pass that."
        )
    values = enumerate(given.tolist())
    return {row: check_known_label(v, classes) for row, v in values if v is not None and v == v}  # noqa: PLR0124 - NaN


def check_predictions(predictions: ArrayLike, classes: list[Any] | None) -> list[Any]:
    """Predictions (N,) as plain numbers or texts, each among the classes where these are given."""
    given = np.asarray(predictions)
    if given.ndim != 1 or not len(given):
        raise ParameterError("predictions", "must have one class per row", f"shape {given.shape}", "Pass shape (N,).")
    plain = given.tolist()
    for row, value in enumerate(plain):
        known = isinstance(value, str | bool | int | float) and value == value  # noqa: PLR0124 - NaN
        if not known or (classes is not None and value not in classes):
            rule = "must have a number or a text for each row" if not known else f"must be among classes, {classes}"
            raise ParameterError("predictions", rule, f"{value!r} at row {row}", "Correct it, or give it a class.")
    return plain


def check_scores(scores: ArrayLike, N: int) -> FloatArray:
    """Scores (N,), larger where a prediction is surer; of probabilities (N, K) the largest of each row."""
    given = check_finite_array(scores, "scores")
    if given.ndim not in (1, 2) or len(given) != N or not given.size:
        raise ParameterError(
            "scores", f"must have one value per prediction, {N} in all", f"shape {given.shape}", "Pass that many."
        )
    return given if given.ndim == 1 else given.max(axis=1)


def check_seed(random_state: int | None) -> int:
    """The seed given, or a fresh one."""
    if random_state is None:
        return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
    if not isinstance(random_state, numbers.Integral) or random_state < 0:
        raise ParameterError("random_state", "must be an integer >= 0 or None", repr(random_state), "Pass 0, say.")
    return int(random_state)


def check_uniform_fraction(value: float) -> float:
    """A share η in [0.2, 1]: every row keeps a chance, so that no weight 1/(N q) exceeds 5."""
    share = check_unit_scalar(value, "uniform_fraction")
    if share < LEAST_UNIFORM_SHARE:
        raise ParameterError(
            "uniform_fraction", f"must be at least {LEAST_UNIFORM_SHARE}", repr(value), "Pass 0.6, say."
        )
    return share


def known_classes_of(clf: Any, classes: ArrayLike | None) -> list[Any] | None:
    """The classes that a label may have; None for any."""
    known = getattr(clf, "classes_", None) if classes is None else classes
    return None if known is None else np.asarray(known).tolist()


def known_classes(classifier: Any, y: NDArray[Any], classes: ArrayLike | None) -> NDArray[Any]:
    """All classes, sorted: those asked for, else those of a fitted classifier, else those of y."""
    own = getattr(classifier, "classes_", None)
    if classes is None and own is None:
        return np.unique(y)
    known = np.unique(np.asarray(own if classes is None else classes))
    missing = np.setdiff1d(y, known).tolist()
    if missing:
        raise ParameterError(
            "labels",
            f"must be classes that the classifier knows, {known.tolist()}",
            missing,
            "Pass classes= with all of them (one that it does not know is never predicted), or correct the labels.",
        )
    if classes is not None and own is not None and len(np.setdiff1d(own, known)):
        raise ParameterError(
            "classes",
            f"must contain every class of the classifier, {np.asarray(own).tolist()}",
            known.tolist(),
            "Add the others.",
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
