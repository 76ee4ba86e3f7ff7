"""A fitted model with its checked training rows, and the texts that show each row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from surefoot._errors import ParameterError, first_line
from surefoot._printing import cell_text, in_words
from surefoot._validation import FloatArray, check_labeled_rows, check_more_rows, encode_labels
from surefoot.certificates.calibration import PREDICTIVE, CalibratedRadius, resolve_radius
from surefoot.certificates.certificate import Certificate, WorstCase
from surefoot.costs.metrics import FeatureMetric, Precomputed
from surefoot.estimators.base import CertifiedClassifier
from surefoot.estimators.combined import CombinedClassifier
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.pool.notes import Code, Note
from surefoot.pool.options import BEST, BLEND, CLASSIFIERS, DEFAULT, MINIMAX, ROBUST, Clock, FitOptions, TimeIsUpError
from surefoot.pool.table import TableError
from surefoot.pool.training import LabeledTable, about_picked, label_intervals, learn, learned_metric, unfitted
from surefoot.problem.distances import row_chunks
from surefoot.problem.losses import LOG_LOSS, loss_matrix_from_proba
from surefoot.problem.rows import Unlabeled, unwrap

# Train the model of `surefoot fit`, with the library's default or a given radius, within a time limit.

# Optimality gap of the default model.
_TOL = 1e-3
# Unlabeled rows of the quick fit that predicts the duration of the full fit, and its optimality gap.
_PILOT_ROWS, _PILOT_TOL = 400, 1e-3
# Largest cost of a default fit per Newton step, in units of rows × classes² × (labels + features). A fit above the
# second cost, which takes about 10 s, begins with a quick fit. The last number is the fewest rows.
_WORK, _LARGE, _FEWEST_ROWS = 20_000_000, 50_000_000, 1000
# Names of classifiers that also learn from unlabeled rows.
_LEARN_FROM_UNLABELED = (ROBUST, MINIMAX, BLEND, BEST)
# Rows in the sample for the median distance, which is the unit of the label cost.
_MEDIAN_ROWS = 400
# Expected seconds above which a fit is announced, and the share of the time limit for training.
_SLOW, _SHARE = 20.0, 0.4


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A fitted classifier.

    seconds : duration of training; intervals : (K, 2) possible shares of the classes.
    name : of the classifier, as for --classifier.
    sample : (m,) positions of the unlabeled rows used in training, None for all rows.
    """

    start: LabeledTable
    clf: Any
    seconds: float
    intervals: FloatArray
    name: str = ROBUST
    sample: NDArray[np.intp] | None = None
    notes: list[Note] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return self.sample is None

    @property
    def certificate(self) -> Certificate | None:
        """The certificate at the training radius, which has no guarantee; None if the classifier has no radius."""
        return getattr(self.clf, "certificate_", None)

    @property
    def recipe(self) -> Any:
        """The same classifier, unfitted and with one thread. The folds of a cross-validation run in parallel."""
        return _recipe(self.clf)

    @cached_property
    def stated(self) -> Stated:
        """The model's certificate, or only its metric, label cost, radius rule and label shares if it has none.

        A combined model gets these settings from its first certified part, without the certificate.
        """
        parts = [self.clf, *getattr(self.clf, "classifiers_", [])]
        found = next((one for one in parts if hasattr(one, "certificate_")), None)
        if found is not None:
            stated = Stated.from_fit(found)
            return stated if found is self.clf else replace(stated, certificate=None)
        start = self.start
        metric = learned_metric(start.pool).learn(start.rows, start.y, X_unlabeled=start.rest)
        some = start.rest[:: max(len(start.rest) // _MEDIAN_ROWS, 1)]
        cost = float(np.median(metric.distances(some, start.rows))) or 1.0
        return Stated(None, metric, cost, PREDICTIVE, "auto", self.intervals, self.intervals)


def _recipe(clf: Any) -> Any:
    """Return a classifier, unfitted and on one thread."""
    options = clf.get_params(deep=False)
    if isinstance(clf, CombinedClassifier):
        return type(clf)(**{**options, "classifiers": [_recipe(one) for one in clf.classifiers]})
    fresh: Any = type(clf)(**options) if isinstance(clf, CertifiedClassifier) else clone(clf)
    if "n_jobs" in options:
        fresh.set_params(n_jobs=None)
    return fresh


def train(start: LabeledTable, choices: FitOptions, clock: Clock) -> TrainedModel:
    """Train on the labels of a pool and on a sample of its unlabeled rows. Size and time limit determine the sample."""
    if choices.chosen not in _LEARN_FROM_UNLABELED:
        return _fit(start, None, choices, clock, None)
    most = most_rows(start) if choices.learn_rows is None else choices.learn_rows or len(start.rest)
    sample = drawn(len(start.rest), most, choices.seed)
    pilot, expected, bounded = None, None, False
    n_rows = len(start.rest) if sample is None else len(sample)
    if clock.budget is not None or n_rows * _work_per_row(start) > _LARGE:
        # there must always be a result, so the quick fit has no time limit
        quick, few = replace(choices, tol=_PILOT_TOL), drawn(len(start.rest), _PILOT_ROWS, choices.seed)
        pilot = _fit(start, few, quick, Clock(None, clock.say), None)
        n_few = len(start.rest) if few is None else len(few)
        expected = pilot.seconds * max(n_rows / n_few, 1.0)
        if clock.budget is None and expected > _SLOW:
            clock.say(f"this takes about {in_words(expected)}; --time 60 would bound it")
        allowed = _SHARE * clock.budget - clock.passed if clock.budget is not None else float("inf")
        if expected > allowed:
            bounded = True
            sample = drawn(len(start.rest), int(n_few * max(allowed, 0.0) / pilot.seconds), choices.seed)
            if sample is not None and len(sample) <= n_few:
                return _noted(pilot, clock.budget)
    try:
        return _noted(_fit(start, sample, choices, clock, expected), clock.budget if bounded else None)
    except TimeIsUpError:
        if pilot is None:
            raise
        return _noted(pilot, clock.budget)


def most_rows(start: LabeledTable) -> int:
    """Return the default number of unlabeled rows for training."""
    return max(_WORK // _work_per_row(start), _FEWEST_ROWS)


def _work_per_row(start: LabeledTable) -> int:
    """Return the cost of a row in a Newton step: about classes² × (labels + features)."""
    return len(start.pool.classes) ** 2 * (len(start.y) + start.rows.shape[1])


def _noted(found: TrainedModel, seconds: float | None) -> TrainedModel:
    if found.sample is None:
        return found
    note = Note(Code.SAMPLED, n_sampled=len(found.sample), n_rows=len(found.start.rest), seconds=seconds)
    return replace(found, notes=[*found.notes, note])


def _fit(
    start: LabeledTable, sample: NDArray[np.intp] | None, choices: FitOptions, clock: Clock, seconds: float | None
) -> TrainedModel:
    began = time.monotonic()
    some = start if sample is None else replace(start, rest=np.ascontiguousarray(start.rest[sample]))
    with clock.stage(f"learning from {len(some.y)} labels and {len(some.rest)} unlabeled rows", seconds):
        if choices.chosen == ROBUST and choices.radius != DEFAULT:
            fit = learn(some, choices, error=False)
            clf, notes = fit.clf, fit.notes
        else:
            clf, notes = unfitted(choices, start, max(choices.tol, _TOL)), about_picked(some)
            try:
                clf.fit(some.rows, some.y, some.weights, X_unlabeled=Unlabeled(some.rest))
            except (ValueError, TypeError, AttributeError) as error:
                if choices.chosen in CLASSIFIERS:
                    raise
                raise TableError(
                    f"--classifier {choices.chosen} could not be trained on this table ({type(error).__name__}: "
                    f"{first_line(error)}). See the recipes in the documentation of --classifier."
                ) from error
    seconds, intervals = time.monotonic() - began, label_intervals(choices, start)
    return TrainedModel(start, clf, seconds, intervals, choices.chosen, sample, notes)


def drawn(n: int, most: int, seed: int) -> NDArray[np.intp] | None:
    """Return sorted positions of `most` of n rows, sampled at random; None if this is all rows."""
    return None if n <= most else np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def sampled(start: LabeledTable, most: int, seed: int) -> LabeledTable:
    """Return the same labels with a random sample of the unlabeled rows."""
    at = drawn(len(start.rest), most, seed)
    return start if at is None else replace(start, rest=np.ascontiguousarray(start.rest[at]))


# Smallest probability in the log loss, for classifiers that may predict 0.
CLIP = 1e-12
# Most cells shown per row, and most characters per cell.
_MOST_CELLS, LONGEST_CELL = 12, 60


@dataclass(frozen=True, eq=False)
class Stated:
    """A certificate of a model and its decision set; certificate : None for a model without one.

    radius : the rule for the radius, as the parameter of an estimator; l2 : of the models compared with this one.
    prior : the prior on label shares, as the parameter of an estimator; intervals : (K, 2) the resulting label shares.
    """

    certificate: Certificate | None
    metric: FeatureMetric
    label_cost: Any
    radius: float | str | CalibratedRadius
    l2: float | str
    prior: Any
    intervals: FloatArray

    @classmethod
    def from_fit(cls, clf: Any) -> Stated:
        """Return the certificate of a fit."""
        rule, found = resolve_radius(clf.radius, auto=True), clf.certificate_
        l2 = getattr(clf, "l2", "auto")
        return cls(found, clf.metric_, clf.label_cost_, rule, l2, clf.label_prior, found.label_intervals)


@dataclass(frozen=True, eq=False)
class ModelWithRows:
    """A fitted model with its labeled rows X (n, d), class codes (n,), and unlabeled rows U (M, d), M ≥ 1.

    U : rows to predict. `worst_case` and `row_weights` require the certified rows.
    """

    clf: Any
    X: FloatArray
    y: NDArray[Any]
    codes: NDArray[np.intp]
    U: FloatArray
    stated: Stated

    @classmethod
    def check(
        cls,
        clf: Any,
        X: ArrayLike,
        y: ArrayLike,
        X_unlabeled: ArrayLike | Unlabeled,
        stated: Stated | None = None,
    ) -> ModelWithRows:
        """Check the model and its rows. stated : the certificate, None for the certificate of the fit."""
        if stated is None and not isinstance(clf, RobustLogisticRegression):
            raise ParameterError(
                "clf",
                "must be a RobustLogisticRegression for a report",
                type(clf).__name__,
                "Fit one, or use certify for another classifier.",
            )
        check_is_fitted(clf, None if stated is not None else "certificate_")
        rows, labels = check_labeled_rows(X, y)
        if X_unlabeled is None:
            raise ParameterError("X_unlabeled", "must be given", "None", "Pass the unlabeled rows of the fit.")
        U = check_more_rows(unwrap(X_unlabeled)[0], "X_unlabeled", rows.shape[1])
        if len(U) == 0:
            raise ParameterError("X_unlabeled", "must hold rows for a report", "none", "Pass the unlabeled rows.")
        stated = Stated.from_fit(clf) if stated is None else stated
        if isinstance(stated.metric, Precomputed):
            raise ParameterError(
                "metric",
                "must give distances between any rows for a report",
                "a Precomputed metric",
                "Pass a metric by name.",
            )
        return cls(clf, rows, labels, encode_labels(labels, clf.classes_)[1], U, stated)

    def at_rows(self, sample: NDArray[np.intp] | None) -> ModelWithRows:
        """Return the same model with a sample of the unlabeled rows; None for all."""
        return self if sample is None else replace(self, U=np.ascontiguousarray(self.U[sample]))

    @cached_property
    def worst_case(self) -> WorstCase:
        """The worst case of the certificate. The rows must be the certified rows."""
        found = self.certificate.worst_case
        if found is None:
            raise RuntimeError("the certificate of a RobustLogisticRegression holds its adversary; this one does not")
        N = len(found.label_proba)
        if len(self.X) + len(self.U) != N:
            raise ParameterError(
                "X",
                f"and X_unlabeled must be the rows of the fit, {N} in all, some of them unlabeled",
                f"{len(self.X)} and {len(self.U)}",
                "Pass the same rows, in the same order.",
            )
        return found

    @property
    def certificate(self) -> Certificate:
        if self.stated.certificate is None:
            raise RuntimeError("only a model with a certificate has this part")
        return self.stated.certificate

    def losses(self, rows: FloatArray) -> FloatArray:
        """Return (N, K) log losses of the model at the rows, for each possible label."""
        if isinstance(self.clf, CertifiedClassifier):
            return -np.asarray(self.clf.predict_log_proba(rows))
        return loss_matrix_from_proba(self.clf.predict_proba(rows), LOG_LOSS, CLIP)

    @property
    def metric(self) -> FeatureMetric:
        return self.stated.metric

    @property
    def n_classes(self) -> int:
        return len(self.clf.classes_)

    @cached_property
    def proba(self) -> FloatArray:
        """(N, K) predicted probabilities, labeled rows first."""
        return np.vstack([self.clf.predict_proba(self.X), self.clf.predict_proba(self.U)])

    @property
    def row_weights(self) -> FloatArray:
        """(N,) row weights of the fit, which include the sample weights."""
        return self.worst_case.row_weights

    @cached_property
    def nearest(self) -> tuple[NDArray[np.intp], FloatArray]:
        """(M,) nearest labeled row of each unlabeled row, and (M,) distances, without storing an M×n matrix."""
        index, distance = np.empty(len(self.U), dtype=np.intp), np.empty(len(self.U))
        for part in row_chunks(len(self.U), len(self.X), entries=1 << 21):
            block = self.metric.distances(self.U[part], self.X)
            index[part] = block.argmin(axis=1)
            distance[part] = block[np.arange(len(block)), index[part]]
        return index, distance


@dataclass(frozen=True, eq=False)
class Names:
    """Names of features, classes and rows, and the cells of each row. raw : a pandas DataFrame or None."""

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
        """Return the name of a row, given its position among all rows."""
        return f"row {position + 1}" if self.rows is None else self.rows[position]

    def cells(self, position: int) -> tuple[tuple[str, str], ...]:
        """Return the first columns of a row as texts. If columns are omitted, the last entry gives their number."""
        if self.raw is None:
            labeled, unlabeled = self.values
            row = labeled[position] if position < len(labeled) else unlabeled[position - len(labeled)]
            pairs = list(zip(self.features, row.tolist(), strict=True))
        else:
            missing = self.raw.iloc[[position]].isna().to_numpy()[0]
            columns = range(min(_MOST_CELLS, self.raw.shape[1]))
            # read cell by cell, because pandas converts a row of mixed types to one type
            pairs = [(str(self.raw.columns[i]), None if missing[i] else self.raw.iat[position, i]) for i in columns]
        shown = [(name, cell_text(value, LONGEST_CELL)) for name, value in pairs[:_MOST_CELLS]]
        left = (len(self.features) if self.raw is None else self.raw.shape[1]) - len(shown)
        return (*shown, *([("", f"and {left} more column{'s' if left > 1 else ''}")] if left else []))


def _check_length(value: Any, name: str, what: str, wanted: int) -> None:
    if value is not None and len(value) != wanted:
        raise ParameterError(name, f"must have one entry per {what}, {wanted}", len(value), f"Pass {wanted}, or None.")
