"""Appraise a finished classifier: compute every number that the terminal, the report, the page and JSON show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from surefoot._errors import InfeasibleRadiusError, first_line
from surefoot._validation import FloatArray
from surefoot.bounds.methods import error_bound
from surefoot.bounds.result import ErrorBound
from surefoot.estimators.base import CertifiedClassifier, LinearClassifier
from surefoot.estimators.combined import CombinedClassifier
from surefoot.pool.model import CLIP, TrainedModel, most_rows, sampled
from surefoot.pool.notes import ClassResult, Code, Note, about_answers, about_classes, class_results, verdict_on
from surefoot.pool.options import Clock, FitOptions, TimeIsUpError
from surefoot.pool.report_findings import suspect_columns
from surefoot.pool.store_labels import picked_rows
from surefoot.pool.stored import Classifier
from surefoot.pool.table import Pool
from surefoot.pool.table.pool import as_targets
from surefoot.pool.table.reading import listed
from surefoot.pool.training import LabeledTable, about_sample, label_intervals
from surefoot.pool.worst import PoolWorstCase, certificate_data, worst_case
from surefoot.problem.losses import LOG_LOSS, ZERO_ONE, loss_matrix_from_proba
from surefoot.problem.rows import Unlabeled

LEVEL = 0.9
# Fewest labels for which the coverage of the cross-fitted bound was measured (docs/bounds.md), and most rows per fit.
_FEWEST_FOR_CROSSFIT, _CROSSFIT_ROWS = 20, 1000
# Share of the remaining time that cross-validation may take, and the fewest rows that it uses.
_CROSSFIT_SHARE, _FEWEST_ROWS = 0.7, 100


@dataclass(frozen=True, eq=False)
class Appraisal:
    """Bounds on the errors of a classifier, and its predictions for the unlabeled rows.

    crossfit, worst : the cross-fitted bound and the worst case, None if missing.
    no_crossfit, no_worst : the reason why the bound is missing.
    trained : the model that `fit` trained, None for a classifier from a file.
    shares : share of the unlabeled rows predicted to be in each class; empty for a classifier from a file.
    max_error : the largest error rate that the user accepts, None if not given.
    """

    crossfit: ErrorBound | None
    worst: PoolWorstCase | None
    no_crossfit: Note | None = None
    no_worst: Note | None = None
    trained: TrainedModel | None = None
    shares: dict[str, float] = field(default_factory=dict)
    max_error: float | None = None

    @classmethod
    def from_parts(
        cls,
        crossfit: ErrorBound | Note | None,
        worst: PoolWorstCase | Note | None,
        trained: TrainedModel | None = None,
        max_error: float | None = None,
    ) -> Appraisal:
        """Build an appraisal. Each bound may be a note with the reason why it is missing, or None if not requested."""
        return cls(
            None if isinstance(crossfit, Note) else crossfit,
            None if isinstance(worst, Note) else worst,
            crossfit if isinstance(crossfit, Note) else None,
            worst if isinstance(worst, Note) else None,
            trained,
            {} if trained is None else shares_predicted(trained),
            max_error,
        )

    @property
    def missing(self) -> list[Note]:
        trained = self.trained
        linear = trained is None or isinstance(trained.clf, LinearClassifier)
        no_weights = None if linear else Note(Code.NOT_LINEAR, name=self.model.name)
        return [note for note in (self.no_crossfit, self.no_worst, no_weights) if note is not None]

    @property
    def notes(self) -> list[Note]:
        """Notes about the bounds."""
        bound, start = self.crossfit, self.worst.start if self.trained is None and self.worst is not None else None
        found = [] if start is None else about_sample(start)
        if bound is not None and bound.n_groups is not None:
            found.append(Note(Code.CROSSFIT_GROUPS, n_labels=bound.n_labels, n_groups=bound.n_groups))
        return found

    @property
    def accuracy(self) -> float | None:
        """Accuracy in cross-validation."""
        return None if self.crossfit is None else 1.0 - self.crossfit.n_errors / self.crossfit.n_labels

    @property
    def bounds(self) -> list[dict[str, Any]]:
        """Each bound with its kind as plain data, in printing order."""
        found = [] if self.crossfit is None else [_crossfit_data(self.crossfit)]
        if self.worst is None:
            return found
        guaranteed, source = self.worst.guaranteed, self.worst.kind
        kind = "conditional" if guaranteed else "rule of thumb"
        return found + [
            {
                "method": "transport",
                "kind": kind,
                "loss": name,
                "value": certificate.risk,
                "guaranteed": guaranteed,
                "radius_from": source,
            }
            for name, certificate in self.worst.certificates.items()
        ]

    @property
    def accuracy_data(self) -> dict[str, float] | None:
        return None if self.accuracy is None else {"cross_validated": self.accuracy}

    @property
    def is_guaranteed(self) -> bool:
        """Return True if there is a worst case whose radius was calibrated or given."""
        return self.worst is not None and self.worst.guaranteed

    @property
    def risk(self) -> float | None:
        """Worst-case log loss of a trained model, at the radius of the worst case if there is one, else of training."""
        found = None if self.worst is None else self.worst.risk(LOG_LOSS)
        if found is None and self.model.certificate is not None:
            return float(self.model.certificate.risk)
        return found

    @property
    def cautions(self) -> list[Note]:
        """Warnings about the data and the predictions of a trained model."""
        return [
            *about_sample(self.model.start),
            *([Note(Code.LEAK, names=listed(self.suspects), first=self.suspects[0])] if self.suspects else []),
            *about_answers(self.shares, self.model.intervals.tolist()),
            *about_classes(self.classes),
        ]

    @cached_property
    def suspects(self) -> list[str]:
        """Columns that alone predict the label of nearly all labeled rows."""
        start = self.model.start
        pool, codes = start.pool, np.searchsorted(start.classes, start.y)
        features = [str(name) for name in pool.cleaner.get_feature_names_out()]
        raw = pool.shown_cells.loc[:, pool.columns.used].iloc[np.flatnonzero(pool.labeled)]
        found = suspect_columns(start.rows, codes, features, pool.classes, raw)
        return [one.column for one in found if one.column in pool.columns.used]

    @property
    def classes(self) -> list[ClassResult]:
        """Recall and precision of each class in cross-validation; empty without a cross-fitted bound."""
        if self.crossfit is None or self.crossfit.predicted is None:
            return []
        start = self.model.start
        results = class_results(start.y, self.crossfit.predicted, start.classes.tolist())
        return [replace(one, name=name) for one, name in zip(results, start.pool.classes, strict=True)]

    @property
    def most_frequent(self) -> tuple[str, float]:
        """The most frequent label and its share of the labels."""
        pool = self.model.start.pool
        counts = {name: int((pool.labels == name).sum()) for name in pool.classes}
        most = max(counts, key=lambda name: counts[name])
        return most, counts[most] / int(pool.labeled.sum())

    @property
    def verdict(self) -> Note:
        """The verdict on a trained model, based on the bound on its error rate."""
        bound = None if self.crossfit is None else self.crossfit.value
        most = max(self.shares, key=lambda name: self.shares[name])
        n_rows = len(self.model.start.rest)
        return verdict_on(bound, (most, self.shares[most]), self.most_frequent, n_rows, self.max_error)

    @property
    def is_useful(self) -> bool:
        """Return True if the model meets --max-error or, without this option, beats a constant prediction."""
        return self.verdict.code in (Code.VERDICT_BETTER, Code.VERDICT_MET)

    def data(self) -> dict[str, Any]:
        """Return the appraisal of a trained model as plain data, as stored with the model and printed with --json."""
        trained, classes = self.model, self.model.start.pool.classes
        training = None
        if trained.certificate is not None:
            training = {
                **certificate_data(trained.certificate, classes, guaranteed=False, tied=False),
                "radius_from": str(trained.clf.radius) if isinstance(trained.clf.radius, str) else "training",
            }
        return {
            "classifier": trained.name,
            "bounds": self.bounds,
            "missing": self.missing,
            "accuracy": self.accuracy_data,
            "verdict": self.verdict.code.removeprefix("verdict_"),
            "constant": dict(zip(("answer", "accuracy"), self.most_frequent, strict=True)),
            "by_class": {
                one.name: {"labels": one.n_labels, "recall": one.recall, "precision": one.precision}
                for one in self.classes
            },
            "suspects": self.suspects,
            "answers": self.shares,
            "certificate": training if self.worst is None else self.worst.data(classes),
            "training": training,
            "complete": trained.complete,
        }

    @property
    def model(self) -> TrainedModel:
        if self.trained is None:
            raise RuntimeError("only the appraisal of a trained model has this part")
        return self.trained


class CountingClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that calls `tick` before each fit, to show the progress of a cross-validation."""

    def __init__(self, classifier: Any = None, tick: Callable[[], None] | None = None) -> None:
        self.classifier = classifier
        self.tick = tick

    def fit(self, X: FloatArray, y: NDArray[Any], X_unlabeled: Any = None) -> CountingClassifier:
        if self.tick is not None:
            self.tick()
        self.fitted_ = clone(self.classifier).fit(X, y, X_unlabeled=X_unlabeled)
        self.classes_ = self.fitted_.classes_
        return self

    def predict(self, X: FloatArray) -> NDArray[Any]:
        return np.asarray(self.fitted_.predict(X))

    def predict_proba(self, X: FloatArray) -> FloatArray:
        return np.asarray(self.fitted_.predict_proba(X))


def appraise(trained: TrainedModel, choices: FitOptions, clock: Clock, *, worst: bool = False) -> Appraisal:
    """Bound the error rate of a trained model by cross-fitting.

    worst : whether to compute the worst case over a transport ball, too.
    """
    crossfit = cross_fitted(trained, choices, clock)
    found: PoolWorstCase | Note | None = None
    if worst:
        losses = losses_of(trained.clf, trained.start)
        try:
            with clock.stage("finding the worst case"):
                auto = None if trained.certificate is None else trained.certificate.radius
                found = worst_case(trained.start, choices, losses, auto=auto)
        except TimeIsUpError:
            found = Note(Code.WORST_TIME)
    return Appraisal.from_parts(crossfit, found, trained, choices.max_error)


def shares_predicted(trained: TrainedModel) -> dict[str, float]:
    """Return the share of the unlabeled rows that the model assigns to each class."""
    start = trained.start
    predicted = np.asarray(trained.clf.predict(start.rest))
    shares = [(predicted == value).mean() for value in start.classes]
    return dict(zip(start.pool.classes, map(float, shares), strict=True))


def losses_of(clf: Any, start: LabeledTable) -> dict[str, FloatArray]:
    """Return (N, K) zero-one and log losses of a classifier for each possible label, labeled rows first."""
    rows = np.vstack([start.rows, start.rest])
    wrong = (np.asarray(clf.predict(rows))[:, None] != start.classes[None, :]).astype(np.float64)
    return {ZERO_ONE: wrong, LOG_LOSS: loss_matrix_from_proba(clf.predict_proba(rows), LOG_LOSS, CLIP)}


def cross_fitted(trained: TrainedModel, choices: FitOptions, clock: Clock) -> ErrorBound | Note:
    """Return the cross-fitted bound, or a note if there are too few labels or not all are random."""
    start = trained.start
    if not start.all_random:
        return Note(Code.CROSSFIT_PICKED)
    if len(start.y) < _FEWEST_FOR_CROSSFIT:
        return Note(Code.CROSSFIT_FEW, needed=_FEWEST_FOR_CROSSFIT, n_labels=len(start.y))
    n_folds = min(10, len(start.y))
    most = min(most_rows(start) // 6, _CROSSFIT_ROWS)
    if clock.budget is not None and trained.seconds > 0:
        n_trained = len(start.rest) if trained.sample is None else len(trained.sample)
        affordable = int(_CROSSFIT_SHARE * clock.left / (n_folds * trained.seconds) * n_trained)
        most = max(min(most, affordable), _FEWEST_ROWS)
    some = sampled(start, most, choices.seed)
    try:
        return error_bound(
            CountingClassifier(trained.recipe, clock.counted("cross-validating, fold", n_folds)),
            start.rows,
            start.y,
            X_unlabeled=Unlabeled(some.rest),
            level=LEVEL,
            classes=start.classes,
            n_folds=n_folds,
            cv_groups=start.groups,
            random_state=choices.seed,
            n_jobs=choices.n_jobs,
        )
    except InfeasibleRadiusError as error:
        return Note(Code.CROSSFIT_RADIUS, minimal_radius=error.minimal_radius, radius=error.radius)
    except TimeIsUpError:
        return Note(Code.CROSSFIT_TIME)


def cross_fitted_recipe(
    classifier: Classifier, start: LabeledTable, inputs: Any, choices: FitOptions, clock: Clock
) -> ErrorBound | Note:
    """Return the cross-fitted bound of a stored classifier, refitted with its settings on these labels."""
    last = classifier.model[-1] if classifier.stored is not None else None
    if isinstance(last, CertifiedClassifier | CombinedClassifier):
        return cross_fitted(TrainedModel(start, last, 0.0, label_intervals(choices, start)), choices, clock)
    if not start.all_random or len(start.y) < _FEWEST_FOR_CROSSFIT:
        return Note(Code.CROSSFIT_RANDOM, needed=_FEWEST_FOR_CROSSFIT)
    try:
        recipe = clone(classifier.model)
        # the folds match those of our own model; this classifier uses no unlabeled rows
        rows, own = np.flatnonzero(start.pool.labeled), as_targets(classifier.classes)
        y = as_targets(start.pool.labels[start.pool.labeled], start.pool.classes)
        if own.dtype.kind != y.dtype.kind:
            y = np.array([str(value) for value in y], dtype=object)
        some = inputs.iloc[rows] if hasattr(inputs, "iloc") else inputs[rows]
        return error_bound(
            recipe, some, y, level=LEVEL, classes=np.unique(y), cv_groups=start.groups, random_state=choices.seed
        )
    except (ValueError, TypeError) as error:
        return Note(Code.CROSSFIT_REFIT, reason=first_line(error))


def appraise_classifier(classifier: Classifier, pool: Pool, choices: FitOptions, clock: Clock, loss: str) -> Appraisal:
    """Bound the loss of a stored classifier over a pool. The cleaned rows of the pool define the distances."""
    table = pool.table
    order = np.concatenate([np.flatnonzero(pool.labeled), np.flatnonzero(~pool.labeled)])
    inputs = classifier.inputs(table.cells, table.label)
    losses = classifier.losses(inputs, pool.classes, loss)[order]
    start = LabeledTable.from_pool(pool, picked_rows(table))
    bound = cross_fitted_recipe(classifier, start, inputs, choices, clock) if loss == ZERO_ONE else None
    clock.say("finding the worst case")
    return Appraisal.from_parts(bound, worst_case(start, choices, {loss: losses}, auto=classifier.auto_radius))


def _crossfit_data(bound: ErrorBound) -> dict[str, Any]:
    return {
        "method": "crossfit",
        "kind": bound.kind,
        "loss": bound.loss,
        "value": bound.value,
        "guaranteed": True,
        "level": bound.level,
        "labels": bound.n_labels,
        "groups": bound.n_groups,
        "errors": bound.n_errors,
        "statement": bound.statement,
    }
