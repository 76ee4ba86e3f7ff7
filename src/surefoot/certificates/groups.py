"""Worst cases per group of rows, and the numeric rows from which distances are measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_finite_array
from surefoot.problem.robust import RobustProblem
from surefoot.problem.rows import Unlabeled, unwrap

# Groups of rows: the worst expected loss within each group is a linear objective over the same adversary set.

GroupFunction = Callable[[Any], ArrayLike]


@dataclass(frozen=True, eq=False)
class RowGroups:
    """The groups of the rows of a problem: names in sorted order, and the share (G,) of each.

    member_of : (N,) the group name of each row in memory, or a function of rows.
    """

    names: list[Any]
    shares: FloatArray
    member_of: NDArray[Any] | GroupFunction

    @classmethod
    def from_arguments(
        cls, groups: ArrayLike | GroupFunction, problem: RobustProblem, parts: Iterable[Any] | None = None
    ) -> RowGroups:
        """Return the groups of the rows. `parts` are the rows in memory as passed, or None over blocks."""
        if parts is None:
            if not callable(groups):
                raise ParameterError(
                    "groups",
                    "must be a function of rows, one group per row, if rows are read in blocks",
                    f"an array of shape {np.shape(groups)}",
                    "Pass function(rows) -> array of shape (B,).",
                )
            return cls._over_blocks(groups, problem)
        if callable(groups):
            given = np.concatenate([_checked(groups(part), len(part)) for part in parts if len(part)])
        else:
            given = _checked(groups, problem.n_rows)
        names, member = np.unique(given, return_inverse=True)
        shares = np.bincount(member, weights=problem.row_weights, minlength=len(names))
        return cls._with_rows(names.tolist(), np.asarray(shares, dtype=np.float64), given)

    @classmethod
    def _over_blocks(cls, groups: GroupFunction, problem: RobustProblem) -> RowGroups:
        found: dict[Any, float] = defaultdict(float)
        start = 0
        for rows in problem.row_blocks:
            weights = problem.row_weights[start : start + len(rows)]
            names, member = np.unique(_checked(groups(rows), len(rows)), return_inverse=True)
            for name, share in zip(names.tolist(), np.bincount(member, weights=weights), strict=True):
                found[name] += float(share)
            start += len(rows)
        ordered = sorted(found)
        return cls._with_rows(ordered, np.array([found[name] for name in ordered]), groups)

    @classmethod
    def _with_rows(cls, names: list[Any], shares: FloatArray, member_of: NDArray[Any] | GroupFunction) -> RowGroups:
        """Build the groups. Drop groups of weight 0, which have no mean."""
        kept = np.flatnonzero(shares > 0)
        return cls([names[at] for at in kept], shares[kept], member_of)

    @property
    def factors(self) -> list[FloatArray]:
        """For each group, the factors (N,) that turn the mean over rows in memory into the mean over the group."""
        return [
            np.where(np.asarray(self.member_of) == name, 1.0 / share, 0.0)
            for name, share in zip(self.names, self.shares.tolist(), strict=True)
        ]

    def within(self, name: Any, losses: Any) -> Any:
        """Return losses ℓ 1_G: a matrix (N, K) for rows in memory, otherwise a function of rows."""
        if callable(self.member_of):
            return _LossesWithin(losses, self.member_of, name)
        return np.where((self.member_of == name)[:, None], losses, 0.0)


@dataclass(frozen=True, eq=False)
class _LossesWithin:
    """Losses (B, K) of a classifier at rows, 0 outside a group. Picklable if both functions are."""

    losses: Any
    member_of: GroupFunction
    name: Any

    def __call__(self, rows: Any) -> FloatArray:
        inside = _checked(self.member_of(rows), len(rows)) == self.name
        return np.where(inside[:, None], self.losses(rows), 0.0)


def _checked(groups: ArrayLike, n_rows: int) -> NDArray[Any]:
    """Return one group per row and check that none is missing."""
    given = np.asarray(groups)
    if given.shape != (n_rows,):
        raise ParameterError(
            "groups",
            "must have one entry per row of the feature marginal (X followed by X_unlabeled, or X_target alone): "
            f"{n_rows} here",
            f"shape {given.shape}",
            "Pass one group per row.",
        )
    missing = np.array([one is None or one != one for one in given.tolist()])  # noqa: PLR0124 - NaN
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise ParameterError(
            "groups", "must name a group for every row", f"none for row {row}", 'Name the group, for example "other".'
        )
    return given


@dataclass(frozen=True, eq=False)
class NumericRows:
    """Labeled, unlabeled and target rows as numbers. `transformed`: whether they differ from the rows passed."""

    X: Any
    X_unlabeled: Any
    X_target: Any
    transformed: bool


def rows_to_measure(
    classifier: Any, X: Any, X_unlabeled: Any, X_target: Any, X_metric: ArrayLike | None
) -> NumericRows:
    """Return the rows as passed, the parts of X_metric, or for text the output of a pipeline's first steps."""
    if X_metric is not None:
        return _cut(X, X_unlabeled, X_target, X_metric)
    if not _has_texts(X):
        return NumericRows(X, X_unlabeled, X_target, False)
    if not isinstance(classifier, Pipeline) or len(classifier) < 2:
        raise ParameterError(
            "X",
            "must contain numbers, from which distances are measured",
            f"columns of text, and {_name(classifier)} has no steps that convert them to numbers",
            "Pass a pipeline, or the numbers as X_metric=.",
        )
    steps = classifier[:-1]

    def numbers(rows: Any) -> Any:
        if rows is None:
            return None
        found = steps.transform(unwrap(rows)[0])
        return Unlabeled(found.toarray() if hasattr(found, "toarray") else np.asarray(found))

    first = numbers(X)
    return NumericRows(unwrap(first)[0], numbers(X_unlabeled), numbers(X_target), True)


def _cut(X: Any, X_unlabeled: Any, X_target: Any, X_metric: ArrayLike) -> NumericRows:
    rows = check_finite_array(X_metric, "X_metric", ndim=2)
    counts = [0 if part is None else len(unwrap(part)[0]) for part in (X, X_unlabeled, X_target)]
    if len(rows) != sum(counts):
        raise ParameterError(
            "X_metric",
            f"must have one row for each row of X, X_unlabeled and X_target, {sum(counts)} in all",
            len(rows),
            "Pass the rows of X, X_unlabeled and X_target in this order.",
        )
    first, second, third = np.split(rows, np.cumsum(counts)[:-1])
    return NumericRows(
        first,
        None if X_unlabeled is None else Unlabeled(second),
        None if X_target is None else Unlabeled(third),
        True,
    )


def _has_texts(rows: Any) -> bool:
    """Return True if a data frame, a series, a list or an object array contains text."""
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
    """Return True if the rows are one column of a data frame."""
    return hasattr(rows, "dtype") and hasattr(rows, "name") and getattr(rows, "ndim", 1) == 1


def _name(classifier: Any) -> str:
    return type(classifier).__name__
