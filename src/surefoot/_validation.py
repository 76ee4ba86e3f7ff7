"""Checks of arguments, and progress of a fit through scikit-learn's callbacks."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import _get_feature_names

from surefoot._errors import CodedWarning, ParameterError, see, warn_caller

__all__ = ["CallbackSupportMixin", "FitProgress", "watch_rounds", "with_callbacks"]


# Types that every room uses.

FloatArray = NDArray[np.float64]


# Checks of arguments. Each error states the rule, the value received and the fix.

_SUM_TOLERANCE = 1e-8
# Largest sum of weights, and inverse of the smallest: squares of weights beyond it are not finite, or zero.
_LARGEST_WEIGHT = 1e100


def check_finite_array(value: Any, name: str, *, ndim: int | None = None) -> FloatArray:
    """Return `value` as a float64 array of `ndim` dimensions with finite entries, copied only where it must be."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            name, "must be an array of real numbers", _describe(value), "Pass numbers, in rows of one length."
        ) from error
    if ndim is not None and array.ndim != ndim:
        raise ParameterError(
            name, f"must have {ndim} dimension{'s' if ndim != 1 else ''}", f"shape {array.shape}", "Reshape it."
        )
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ParameterError(
            name,
            "must be finite",
            f"{array[where]} at index {where if array.ndim != 1 else where[0]}",
            "Remove or impute NaN and infinite entries.",
        )
    return array


def check_positive_scalar(value: Any, name: str, *, allow_zero: bool = False, allow_infinity: bool = False) -> float:
    """Return `value` as a float, > 0 or (with `allow_zero`) >= 0, and finite unless `allow_infinity`."""
    kind = "number" if allow_infinity else "finite number"
    rule = f"must be a {kind} {'>=' if allow_zero else '>'} 0"
    scalar = _real_number(value, name, rule)
    in_range = scalar >= 0 if allow_zero else scalar > 0
    if not in_range or (scalar == np.inf and not allow_infinity):
        raise ParameterError(name, rule, repr(scalar), f"Pass a {'non-negative' if allow_zero else 'positive'} number.")
    return scalar


def check_unit_scalar(value: Any, name: str) -> float:
    """Return `value` as a float in [0, 1]."""
    rule = "must be a number from 0 to 1"
    scalar = _real_number(value, name, rule)
    if not 0 <= scalar <= 1:
        raise ParameterError(name, rule, repr(scalar), "Pass a number in this range.")
    return scalar


def check_positive_integer(value: Any, name: str) -> int:
    """Return `value` as an int >= 1."""
    if not _is_integer(value) or value < 1:
        raise ParameterError(name, "must be an integer >= 1", _describe(value), "Pass a positive whole number.")
    return int(value)


def check_n_jobs(value: Any) -> int | None:
    """Return `value` as an int other than 0, or None."""
    if value is None:
        return None
    if not _is_integer(value) or value == 0:
        raise ParameterError(
            "n_jobs",
            "must be None or an integer other than 0",
            _describe(value),
            "Pass a number of threads, or -1 for one per core.",
        )
    return int(value)


def check_labeled_rows(X: Any, y: Any, names: tuple[str, str] = ("X", "y")) -> tuple[FloatArray, NDArray[Any]]:
    """Finite rows (n, d) and their labels (n,)."""
    check_all_labeled(y, names[1])
    rows = check_array(X, dtype=np.float64, input_name=names[0])
    labels = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name=names[1]), warn=True)
    check_consistent_length(rows, labels)
    return rows, labels


def check_all_labeled(y: Any, name: str = "y") -> None:
    """Refuse None and NaN among labels: rows without a label are X_unlabeled."""
    labels = np.asarray(y) if y is not None else np.empty(0)
    empty = np.array([label is None for label in labels.ravel()]) if labels.dtype == object else np.zeros(labels.shape)
    empty = empty.ravel().astype(bool) | np.asarray(labels != labels).ravel()  # noqa: PLR0124 - NaN
    if empty.any():
        at = int(empty.argmax())
        raise ParameterError(
            name,
            "must hold a label for each row",
            f"{labels.ravel()[at]} at index {at}{f' and {int(empty.sum()) - 1} more' if empty.sum() > 1 else ''}",
            "Pass rows without a label as X_unlabeled.",
        )


def is_source(rows: Any) -> bool:
    """Whether rows are a source that is read in parts, as `ParquetRows` is, and no array."""
    return hasattr(rows, "read") and hasattr(rows, "n_rows")


def check_more_rows(other: Any, name: str, n_features: int) -> FloatArray:
    """Check finite rows (M, d), M = 0 allowed, with the number of features of X."""
    if is_source(other):
        raise ParameterError(
            name,
            "must be rows in memory here",
            f"{_describe(other)}, which is read in blocks",
            "Pass rows.read(0, rows.n_rows).",
        )
    rows = check_array(other, dtype=np.float64, input_name=name, ensure_min_samples=0)
    check_n_features(rows, name, n_features)
    return rows


def check_n_features(rows: FloatArray, name: str, n_features: int) -> None:
    """Refuse rows with another number of features than X."""
    if rows.shape[1] != n_features:
        raise ParameterError(
            name,
            f"must have as many features as X, {n_features}",
            rows.shape[1],
            "Pass the same columns, in the same order, in both.",
        )


def check_weights(value: Any, name: str, n_rows: int) -> FloatArray:
    """Finite, non-negative weights (n_rows,), not all zero; None is 1 for each row, a number the same for each."""
    if value is None:
        return np.ones(n_rows)
    if isinstance(value, numbers.Number):
        value = np.full(n_rows, value)
    weights: FloatArray = check_array(value, ensure_2d=False, dtype=np.float64, input_name=name, ensure_min_samples=0)
    if weights.ndim != 1:
        raise ParameterError(name, "must be 1D", f"shape {weights.shape}", f"Pass one weight per row, {n_rows} in all.")
    if len(weights) != n_rows:
        raise ParameterError(name, "must have one weight per row", f"shape {weights.shape}", f"Pass shape ({n_rows},).")
    if (weights < 0).any():
        row = int(weights.argmin())
        raise ParameterError(
            name,
            "must hold no negative values",
            f"{float(weights[row])!r} at index {row}",
            f"Set {name} to 0 for rows to leave out.",
        )
    if not weights.any():
        raise ParameterError(name, "must have a positive entry", "only zeros", "Pass a weight for some row.")
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not 1.0 / _LARGEST_WEIGHT <= total <= _LARGEST_WEIGHT:
        raise ParameterError(
            name,
            f"must have a sum between {1.0 / _LARGEST_WEIGHT:g} and {_LARGEST_WEIGHT:g}",
            f"{total!r}",
            f"Divide all of {name} by their mean.",
        )
    return weights


def encode_labels(y: ArrayLike, classes: ArrayLike | None) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Sorted classes (K,) and the codes (n,) of y among them; `classes` may name more than y shows."""
    seen = np.unique(np.asarray(y))
    if classes is None and seen.dtype.kind in "if" and -1 in seen and not {*seen.tolist()} <= {-1, 1}:
        raise ParameterError(
            "y",
            f"holds -1, scikit-learn's mark of a row without a label, beside {seen[seen != -1].tolist()}",
            None,
            f"Pass such rows as $X_unlabeled; or classes={seen.tolist()} where -1 is a class.",
        )
    known = seen if classes is None else _check_classes(classes)
    missing = np.setdiff1d(seen, known)
    if len(missing):
        raise ParameterError(
            "classes",
            "must contain every label of y",
            f"classes={known.tolist()} without {missing.tolist()}",
            "Add them, or pass classes=None.",
        )
    if len(known) < 2:
        raise ParameterError(
            "y",
            "must show at least 2 classes, or classes= must name them",
            f"1 class, {known.tolist()}",
            "Label a row of another class, or pass all classes as classes=[...].",
        )
    return known, np.searchsorted(known, np.asarray(y))


def _check_classes(classes: ArrayLike) -> NDArray[Any]:
    given = np.asarray(classes)
    if given.ndim != 1:
        raise ParameterError("classes", "must be a list of labels", _describe(classes), "Pass classes=[...].")
    if (given != given).any():  # noqa: PLR0124 - NaN, of floats and of objects alike
        raise ParameterError("classes", "must not contain NaN", f"classes={given.tolist()}", "Leave it out.")
    return np.unique(given)


def check_probability_vector(value: Any, name: str) -> FloatArray:
    """Return `value` (K,) as probabilities that sum to one exactly, up to rounding.

    A sum within 1e-8 of one is taken for rounding and divided out.
    """
    array = check_finite_array(value, name, ndim=1)
    if array.size == 0 or array.min() < 0 or array.max() > 1:
        raise ParameterError(name, "must be probabilities in [0, 1]", array, "Pass one probability per class.")
    total = float(array.sum())
    if abs(total - 1.0) > _SUM_TOLERANCE:
        raise ParameterError(name, "must sum to 1", f"{array}, with sum {total!r}", "Divide by the sum.")
    return array / total


def read_only_copy(array: FloatArray) -> FloatArray:
    """Copy of an array that refuses to be written to."""
    copy = np.array(array, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _real_number(value: Any, name: str, rule: str) -> float:
    number = np.asarray(value)
    if number.ndim != 0 or not isinstance(number.item(), numbers.Real) or isinstance(number.item(), bool):
        raise ParameterError(name, rule, _describe(value), "Pass one number.")
    return float(number)


def _describe(value: Any) -> str:
    text = " ".join(repr(value).split())
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"


def check_same_names(X: Any, other: Any, name: str) -> None:
    """Where both have named columns, as data frames and Parquet files do, these must agree, in order."""
    ours, theirs = _get_feature_names(X), _get_feature_names(other)
    if theirs is None:
        theirs = getattr(other, "columns", None)
    if ours is not None and theirs is not None and list(ours) != list(theirs):
        raise ParameterError(
            name,
            "must have the columns of X, in the same order",
            f"{list(theirs)[:8]} where X has {list(ours)[:8]}",
            f"Select them, for example {name}[X.columns], or ParquetRows(..., columns=X.columns).",
        )


try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as _with_callbacks
except ImportError:  # scikit-learn < 1.9 has no callbacks: estimators then have no set_callbacks

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Takes the place of scikit-learn's own base class, because `object` cannot precede another base."""

    _with_callbacks = None


Method = TypeVar("Method", bound=Callable[..., Any])


def with_callbacks(method: Method) -> Method:
    """Apply scikit-learn's decorator of `fit` if it exists, and keep the type."""
    return method if _with_callbacks is None else _with_callbacks(method)


_WATCHER: ContextVar[Callable[[], None] | None] = ContextVar("watcher", default=None)


@contextmanager
def watch_rounds(watcher: Callable[[], None]) -> Iterator[None]:
    """Call a function after each round of a solver, in this context. An exception from it ends the fit."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


class FitProgress:
    """One task per fit, one subtask per round of the solver; does nothing without callbacks."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self._context = None
        if hasattr(estimator, "_init_callback_context"):
            self._context = estimator._init_callback_context(max_subtasks=None)
            self._context.call_on_fit_task_begin(estimator=estimator)

    def round(self, _state: object) -> None:
        """A round of the solver has ended."""
        watcher = _WATCHER.get()
        if watcher is not None:
            watcher()
        if self._context is not None:
            task = self._context.subcontext(task_name="round")
            task.call_on_fit_task_begin(estimator=self._estimator)
            task.call_on_fit_task_end(estimator=self._estimator)

    def done(self) -> None:
        if self._context is not None:
            self._context.call_on_fit_task_end(estimator=self._estimator)


# Warnings about what a solver reached.


class InexactWarning(CodedWarning, ConvergenceWarning):
    """The tolerance was not reached, or there is no finite optimum; the bounds hold all the same."""


class SeparableWarning(InexactWarning):
    """The worst case is linearly separable: coefficients grow as the tolerance shrinks."""


def warn_about_gap(gap: float, tol: float, fix: str) -> None:
    """Warn where the certified gap exceeds the tolerance."""
    if gap > tol:
        statement = f"the certified gap is {gap:.2e}, above tol={tol:.2e}; both bounds hold all the same."
        warn_caller(InexactWarning("gap", statement, fix + see("gap"), gap=gap, tol=tol))
