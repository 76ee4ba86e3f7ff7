"""Losses observed at labels, and arguments shared by bounds and audits."""

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

# Observed losses of a classifier at labeled rows, the range of the loss, and the classes that it knows.


@dataclass(frozen=True, eq=False)
class ObservedLosses:
    """Losses (n,) in [low, high] at labeled rows, predictions (n,), and whether each prediction is wrong (n,)."""

    values: FloatArray
    predicted: NDArray[Any]
    wrong: NDArray[np.bool_]
    name: str
    low: float
    high: float

    def at_rows(self, chosen: NDArray[Any]) -> ObservedLosses:
        """Return the losses at a subset of the rows."""
        return replace(self, values=self.values[chosen], predicted=self.predicted[chosen], wrong=self.wrong[chosen])

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def n_errors(self) -> int:
        return int(self.wrong.sum())

    @property
    def counts(self) -> dict[str, Any]:
        """The label counts and the mean loss, as fields of an `ErrorBound`."""
        mean = float(self.values.mean()) if self.n else 0.0
        return {"n_labels": self.n, "n_errors": self.n_errors, "mean_loss": mean}


def observe(
    classifier: Any, X: Any, y: NDArray[Any], classes: NDArray[Any], loss: str | ArrayLike, clip: float
) -> ObservedLosses:
    """Return the losses of a fitted classifier at rows X with labels y from `classes`."""
    judged = ClassifierLoss.from_arguments(classifier, classes, loss, clip, own=False)
    if judged.losses is None:
        raise TypeError("internal error: a classifier must have losses")
    values = judged.losses(X)[np.arange(len(y)), np.searchsorted(classes, y)]
    matrix = judged.losses.matrix
    low = 0.0 if matrix is None else float(matrix.min())
    high = float(-np.log(clip)) if matrix is None else float(matrix.max())
    predicted = np.asarray(classifier.predict(X)).ravel()
    return ObservedLosses(values, predicted, predicted != y, judged.name, low, high)


def expected_error(classifier: Any, X: Any) -> FloatArray:
    """Return the classifier's own probability (N,) of a wrong prediction, 1 − max_k p_k."""
    if not callable(getattr(classifier, "predict_proba", None)):
        raise ParameterError(
            "classifier",
            "must have predict_proba to estimate its own error probabilities",
            type(classifier).__name__,
            "Pass a classifier with predict_proba, or use uniform sampling and no control variate.",
        )
    proba = np.asarray(classifier.predict_proba(X), dtype=np.float64)
    return np.clip(1.0 - proba.max(axis=1), 0.0, 1.0)


def fit_clone(classifier: Any, X: Any, y: NDArray[Any], X_unlabeled: Any) -> Any | None:
    """Fit a clone, with unlabeled rows if it accepts them. Return None if it requires two classes and y has one."""
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
    """Validated arguments of `error_bound`.

    in_memory : whether to validate unlabeled rows and groups here. For a certificate, `certify` validates them.
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
                "y", f"must contain at least {_FEWEST_LABELS} labels for a bound", len(self.y), "Label more rows."
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
        """Return the groups of the rows of X, then of X_unlabeled. Groups for the rows of X alone are also allowed."""
        if callable(self.groups):
            raise ParameterError(
                "groups",
                "must be an array for this method",
                "a function of rows, which requires method='transport'",
                "Pass the groups of the rows as an array.",
            )
        given = np.asarray(self.groups)
        wanted = n if M is None or given.shape == (n,) else n + M
        if given.shape != (wanted,):
            rows = "row of X" if M is None else "row of X, then one per row of X_unlabeled"
            raise ParameterError(
                "groups",
                f"must have one entry per {rows}, {wanted} in all",
                f"shape {given.shape}",
                "Pass one entry per row.",
            )
        empty = np.setdiff1d(given, given[:n]).tolist()
        if empty:
            raise ParameterError(
                "groups",
                "must each contain a labeled row",
                f"no labeled row in {empty}",
                "Label rows of these groups, or merge them with other groups.",
            )
        return given


def check_level(level: float) -> float:
    """Check that a confidence level lies strictly between 0 and 1."""
    value = check_unit_scalar(level, "level")
    if not 0 < value < 1:
        raise ParameterError("level", "must lie strictly between 0 and 1", repr(level), "Pass a value such as 0.9.")
    return value


def check_known_label(value: Any, classes: list[Any] | None) -> Any:
    """Return the label as a plain number or text, and check that the classifier knows this class."""
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, str | bool | int | float) or plain != plain:  # noqa: PLR0124 - NaN
        raise ParameterError(
            "label", "must be a number or a text", repr(value), "Skip the row if it cannot be labeled."
        )
    if classes is not None and plain not in classes:
        raise ParameterError(
            "label",
            f"must be a class that the classifier knows, {classes}",
            repr(plain),
            "Correct the label, or pass classes= with all classes.",
        )
    return plain


def known_labels(y: ArrayLike | None, N: int, classes: list[Any] | None) -> dict[int, Any]:
    """Return the labels known from the start, by row."""
    if y is None:
        return {}
    given = np.asarray(y)
    if given.shape != (N,):
        raise ParameterError(
            "y",
            "must have one label per row, with NaN or None for missing labels",
            f"shape {given.shape}",
            "Pass one entry per row.",
        )
    values = enumerate(given.tolist())
    return {row: check_known_label(v, classes) for row, v in values if v is not None and v == v}  # noqa: PLR0124 - NaN


# Replaces a missing prediction. No label equals it.
NO_PREDICTION = ""


def check_predictions(predictions: ArrayLike, classes: list[Any] | None) -> list[Any]:
    """Return predictions (N,) as plain numbers or texts. Each must be one of `classes`, if given, or an empty text."""
    given = np.asarray(predictions)
    if given.ndim != 1 or not len(given):
        raise ParameterError("predictions", "must have one class per row", f"shape {given.shape}", "Pass shape (N,).")
    plain = given.tolist()
    for row, value in enumerate(plain):
        known = isinstance(value, str | bool | int | float) and value == value  # noqa: PLR0124 - NaN
        if not known or (classes is not None and value not in classes and value != NO_PREDICTION):
            rule = "must have a number or a text for each row" if not known else f"must be among classes, {classes}"
            raise ParameterError("predictions", rule, f"{value!r} at row {row}", "Correct it, or assign a class.")
    return plain


def check_scores(scores: ArrayLike, N: int) -> FloatArray:
    """Return scores (N,), larger for surer predictions. For probabilities (N, K), take the row maximum."""
    given = check_finite_array(scores, "scores")
    if given.ndim not in (1, 2) or len(given) != N or not given.size:
        raise ParameterError(
            "scores", f"must have one value per prediction, {N} in all", f"shape {given.shape}", "Pass one per row."
        )
    return given if given.ndim == 1 else given.max(axis=1)


def check_seed(random_state: int | None) -> int:
    """Return the given seed, or a fresh one."""
    if random_state is None:
        return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
    if not isinstance(random_state, numbers.Integral) or random_state < 0:
        raise ParameterError("random_state", "must be an integer >= 0 or None", repr(random_state), "Pass 0.")
    return int(random_state)


def check_uniform_fraction(value: float) -> float:
    """Check a fraction η in [0.2, 1]. Then every row can be sampled, and no weight 1/(N q) exceeds 5."""
    share = check_unit_scalar(value, "uniform_fraction")
    if share < LEAST_UNIFORM_SHARE:
        raise ParameterError(
            "uniform_fraction", f"must be at least {LEAST_UNIFORM_SHARE}", repr(value), "Pass a value such as 0.6."
        )
    return share


def known_classes_of(clf: Any, classes: ArrayLike | None) -> list[Any] | None:
    """Return the classes that a label may have, or None if any label is allowed."""
    known = getattr(clf, "classes_", None) if classes is None else classes
    return None if known is None else np.asarray(known).tolist()


def known_classes(classifier: Any, y: NDArray[Any], classes: ArrayLike | None) -> NDArray[Any]:
    """Return all classes, sorted: `classes` if given, else the classes of a fitted classifier, else the labels in y."""
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
            "Pass classes= with all classes, or correct the labels.",
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
    """Return True if the classifier can predict. A classifier without fit counts as fitted."""
    if not hasattr(classifier, "fit"):
        return True
    try:
        check_is_fitted(classifier)
    except NotFittedError:
        return False
    return True
