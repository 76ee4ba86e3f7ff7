"""A fitted model with the rows it was fitted to, checked once, and how each row is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from surefoot._errors import ParameterError
from surefoot._printing import cell_text
from surefoot._types import FloatArray
from surefoot._validation import check_labeled_rows, check_more_rows, encode_labels
from surefoot.calibration import Calibrated, resolve_radius
from surefoot.certificates.certificate import Certificate, WorstCase
from surefoot.costs import FeatureMetric, Precomputed
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.problem.sets import row_chunks
from surefoot.unlabeled import Unlabeled, unwrap

# Cells of a row that are shown, and characters of a cell.
_MOST_CELLS, LONGEST_CELL = 12, 60


@dataclass(frozen=True, eq=False)
class Stated:
    """A certificate of a model and the set of distributions that it speaks of.

    radius : the rule that set it, as the parameter of an estimator; l2 : of the models that are compared with this one.
    """

    certificate: Certificate
    metric: FeatureMetric
    label_cost: Any
    radius: float | str | Calibrated
    l2: float | str

    @classmethod
    def from_fit(cls, clf: RobustLogisticRegression) -> Stated:
        """What the fit itself certified."""
        return cls(clf.certificate_, clf.metric_, clf.label_cost_, resolve_radius(clf.radius, auto=True), clf.l2)


@dataclass(frozen=True, eq=False)
class ModelWithRows:
    """A fitted model, its labeled rows X (n, d) with class codes (n,), and its unlabeled rows U (M, d), M ≥ 1."""

    clf: RobustLogisticRegression
    X: FloatArray
    y: NDArray[Any]
    codes: NDArray[np.intp]
    U: FloatArray
    stated: Stated
    worst_case: WorstCase

    @classmethod
    def check(
        cls,
        clf: RobustLogisticRegression,
        X: ArrayLike,
        y: ArrayLike,
        X_unlabeled: ArrayLike | Unlabeled,
        stated: Stated | None = None,
    ) -> ModelWithRows:
        """Refuse another model, no unlabeled rows, or rows that were not certified; by default those of its fit."""
        if not isinstance(clf, RobustLogisticRegression):
            raise ParameterError(
                "clf",
                "must be a RobustLogisticRegression for a report",
                type(clf).__name__,
                "Fit one, or use certify for another classifier.",
            )
        check_is_fitted(clf, "certificate_")
        rows, labels = check_labeled_rows(X, y)
        if X_unlabeled is None:
            raise ParameterError("X_unlabeled", "must be given", "None", "Pass the unlabeled rows of the fit.")
        U = check_more_rows(unwrap(X_unlabeled)[0], "X_unlabeled", rows.shape[1])
        stated = Stated.from_fit(clf) if stated is None else stated
        worst_case = stated.certificate.worst_case
        if worst_case is None:
            raise RuntimeError("the certificate of a RobustLogisticRegression holds its adversary; this one does not")
        N = len(worst_case.label_proba)
        if len(U) == 0 or len(rows) + len(U) != N:
            raise ParameterError(
                "X",
                f"and X_unlabeled must be the rows of the fit, {N} in all, some of them unlabeled",
                f"{len(rows)} and {len(U)}",
                "Pass the same rows, in the same order.",
            )
        if isinstance(stated.metric, Precomputed):
            raise ParameterError(
                "metric",
                "must give distances between any rows for a report",
                "a Precomputed metric",
                "Pass a metric by name.",
            )
        return cls(clf, rows, labels, encode_labels(labels, clf.classes_)[1], U, stated, worst_case)

    @property
    def certificate(self) -> Certificate:
        return self.stated.certificate

    @property
    def metric(self) -> FeatureMetric:
        return self.stated.metric

    @property
    def n_classes(self) -> int:
        return len(self.clf.classes_)

    @cached_property
    def proba(self) -> FloatArray:
        """(N, K) of the model, the labeled rows first."""
        return np.vstack([self.clf.predict_proba(self.X), self.clf.predict_proba(self.U)])

    @property
    def row_weights(self) -> FloatArray:
        """(N,) of the fit: sample weights are in it."""
        return self.worst_case.row_weights

    @cached_property
    def nearest(self) -> tuple[NDArray[np.intp], FloatArray]:
        """(M,) nearest labeled row of each unlabeled one, and its distance; in chunks: no M×n matrix is held."""
        index, distance = np.empty(len(self.U), dtype=np.intp), np.empty(len(self.U))
        for part in row_chunks(len(self.U), len(self.X), entries=1 << 21):
            block = self.metric.distances(self.U[part], self.X)
            index[part] = block.argmin(axis=1)
            distance[part] = block[np.arange(len(block)), index[part]]
        return index, distance


@dataclass(frozen=True, eq=False)
class Names:
    """How classes and rows are called, and the cells of a row; `raw` is a pandas DataFrame or None."""

    features: tuple[str, ...]
    classes: tuple[str, ...]
    rows: tuple[str, ...] | None
    raw: Any
    values: tuple[FloatArray, FloatArray]

    @classmethod
    def check(
        cls,
        fitted: ModelWithRows,
        feature_names: Sequence[str] | None,
        class_names: Sequence[str] | None,
        row_labels: Sequence[str] | None,
        raw_rows: Any,
        label_name: str,
    ) -> Names:
        n_rows, d = len(fitted.X) + len(fitted.U), fitted.X.shape[1]
        features = [f"x{i}" for i in range(d)] if feature_names is None else [str(name) for name in feature_names]
        classes = fitted.clf.classes_.tolist() if class_names is None else list(class_names)
        rows = None if row_labels is None else tuple(str(name) for name in row_labels)
        _check_length(features, "feature_names", "column of X", d)
        _check_length(classes, "class_names", "class", fitted.n_classes)
        _check_length(rows, "row_labels", "row, those of X first", n_rows)
        _check_length(raw_rows, "raw_rows", "row, those of X first", n_rows)
        if raw_rows is not None:
            raw_rows = raw_rows.loc[:, [name != label_name for name in raw_rows.columns]]
        names = tuple(str(name) for name in classes)
        return cls(tuple(features), names, rows, raw_rows, (fitted.X, fitted.U))

    def row(self, position: int) -> str:
        """Name of a row, by its position among all rows."""
        return f"row {position + 1}" if self.rows is None else self.rows[position]

    def cells(self, position: int) -> tuple[tuple[str, str], ...]:
        """The first columns of a row, as texts; the last entry says how many are left out."""
        if self.raw is None:
            labeled, unlabeled = self.values
            row = labeled[position] if position < len(labeled) else unlabeled[position - len(labeled)]
            pairs = list(zip(self.features, row.tolist(), strict=True))
        else:
            missing = self.raw.iloc[[position]].isna().to_numpy()[0]
            columns = range(min(_MOST_CELLS, self.raw.shape[1]))
            # cell by cell: a whole row of mixed types would be turned into one type
            pairs = [(str(self.raw.columns[i]), None if missing[i] else self.raw.iat[position, i]) for i in columns]
        shown = [(name, cell_text(value, LONGEST_CELL)) for name, value in pairs[:_MOST_CELLS]]
        left = (len(self.features) if self.raw is None else self.raw.shape[1]) - len(shown)
        return (*shown, *([("", f"and {left} more column{'s' if left > 1 else ''}")] if left else []))


def _check_length(value: Any, name: str, what: str, wanted: int) -> None:
    if value is not None and len(value) != wanted:
        raise ParameterError(name, f"must have one entry per {what}, {wanted}", len(value), f"Pass {wanted}, or None.")
