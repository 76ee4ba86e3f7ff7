"""What can be said of a finished classifier: a cross-fitted bound on its errors, and its worst case over a set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from surefoot._errors import InfeasibleRadiusError
from surefoot._types import FloatArray
from surefoot.blocks.placement import check_problem
from surefoot.bounds.menu import error_bound
from surefoot.bounds.result import ErrorBound
from surefoot.calibration import Calibrated
from surefoot.certificates.certificate import Certificate
from surefoot.certify import ClassifierLoss, certify_over
from surefoot.costs import Euclidean
from surefoot.exact.problem import RobustProblem
from surefoot.losses import LOG_LOSS, ZERO_ONE, loss_matrix_from_proba
from surefoot.pool.all_rows import risk_over_rows
from surefoot.pool.choices import AUTO, CALIBRATED, DEFAULT, NUMBER, Choices
from surefoot.pool.clock import Clock, TimeIsUpError
from surefoot.pool.constant import worst_constant_error
from surefoot.pool.learn_pool import FEWEST_FOR_CALIBRATION, MOST_CLASSES, Start, estimate_radius, resolve_prior
from surefoot.pool.model import TrainedModel, all_rows, drawn, most_rows, sampled
from surefoot.pool.model_with_rows import Stated
from surefoot.pool.table import TableError
from surefoot.unlabeled import Unlabeled

LEVEL = 0.9
# Labels from which on the coverage of the cross-fitted bound was measured (docs/bounds.md); rows of its fits.
_FEWEST_FOR_CROSSFIT, _CROSSFIT_ROWS = 20, 1000
_CLIP = 1e-12
# The gap of a worst case: its bounds are printed to a tenth of a percent.
_TOL = 5e-4
# Distances times sets in a union from which on it is solved over some rows and proved over all; and fewest of these.
_ENTRIES, _FEWEST_ROWS = 1_000_000, 250


@dataclass(frozen=True, eq=False)
class Worst:
    """The worst case of a classifier over a set of distributions.

    certificates : by loss; kind : where the radius comes from; constant, constant_error : the best constant answer over
    the same set, and its worst share of errors. sample : unlabeled rows (positions) over which it was solved, None for
    all; the bounds are of all rows in any case, and `lower` then speaks of those rows alone.
    """

    certificates: dict[str, Certificate]
    kind: str
    constant: str
    constant_error: float
    sample: NDArray[np.intp] | None = None

    @property
    def promise(self) -> bool:
        """Whether the radius was calibrated or given: a rule of thumb covers the truth by luck."""
        return self.kind in (CALIBRATED, NUMBER)

    @property
    def first(self) -> Certificate:
        return next(iter(self.certificates.values()))

    @property
    def tied(self) -> bool:
        """Whether the radius grows with the change of label shares."""
        return self.kind == CALIBRATED and bool(np.any(np.diff(self.first.label_intervals) > 0))

    @property
    def stated(self) -> Stated | None:
        """The certificate of the log loss with its set, for a report; None where there is none."""
        found = self.certificates.get(LOG_LOSS)
        if found is None:
            return None
        rule: float | str | Calibrated = found.radius if self.promise else AUTO
        return Stated(found, Euclidean(), 1.0, Calibrated() if self.kind == CALIBRATED else rule, None)

    def risk(self, loss: str) -> float | None:
        return self.certificates[loss].risk if loss in self.certificates else None


@dataclass(frozen=True, eq=False)
class Appraisal:
    """All that is said of a classifier; where a part is missing, why."""

    crossfit: ErrorBound | None
    worst: Worst | None
    missing: tuple[str, ...] = ()

    @property
    def accuracy(self) -> float | None:
        """Of cross-validation."""
        return None if self.crossfit is None else 1.0 - self.crossfit.n_errors / self.crossfit.n_labels


class CountingClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that says when it is fitted, for the progress of a cross-validation."""

    def __init__(self, classifier: Any = None, tick: Callable[[], None] | None = None) -> None:
        self.classifier = classifier
        self.tick = tick

    def fit(self, X: FloatArray, y: NDArray[Any], X_unlabeled: Any = None) -> CountingClassifier:
        """Fit a clone."""
        if self.tick is not None:
            self.tick()
        self.fitted_ = clone(self.classifier).fit(X, y, X_unlabeled=X_unlabeled)
        self.classes_ = self.fitted_.classes_
        return self

    def predict(self, X: FloatArray) -> NDArray[Any]:
        """Its answers."""
        return np.asarray(self.fitted_.predict(X))

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Its probabilities."""
        return np.asarray(self.fitted_.predict_proba(X))


def judge(trained: TrainedModel, choices: Choices, clock: Clock, *, worst: bool = True) -> Appraisal:
    """Bound the errors of a finished classifier, first by cross-fitting, then over a transport ball."""
    missing: list[str] = []
    crossfit = cross_fitted(trained, choices, clock, missing)
    found = None
    if worst:
        losses = losses_of(trained.clf, trained.start)
        try:
            with clock.stage("finding the worst case"):
                found = worst_case(trained.start, choices, losses, missing, auto=trained.certificate.radius)
        except TimeIsUpError:
            missing.append("no worst case: the time given (--time) was over.")
    return Appraisal(crossfit, found, tuple(missing))


def losses_of(clf: Any, start: Start) -> dict[str, FloatArray]:
    """Losses (N, K) of a classifier, labeled rows first: of wrong answers, and of its probabilities."""
    rows = all_rows(start)
    wrong = (np.asarray(clf.predict(rows))[:, None] != start.classes[None, :]).astype(np.float64)
    return {ZERO_ONE: wrong, LOG_LOSS: loss_matrix_from_proba(clf.predict_proba(rows), LOG_LOSS, _CLIP)}


def cross_fitted(trained: TrainedModel, choices: Choices, clock: Clock, missing: list[str]) -> ErrorBound | None:
    """The cross-fitted bound, with enough labels that are all random."""
    start = trained.start
    if not start.all_random:
        missing.append(
            "no cross-fitted bound: some labels were picked by surefoot label, and picked rows are no random sample."
        )
        return None
    if len(start.y) < _FEWEST_FOR_CROSSFIT:
        missing.append(
            f"no cross-fitted bound: it needs {_FEWEST_FOR_CROSSFIT} random labels or more; there are {len(start.y)}."
        )
        return None
    n_folds = min(10, len(start.y))
    some = sampled(start, min(most_rows(start) // 6, _CROSSFIT_ROWS), choices.seed)
    try:
        return error_bound(
            CountingClassifier(trained.recipe, clock.counted("cross-validating, fold", n_folds)),
            start.rows,
            start.y,
            X_unlabeled=Unlabeled(some.rest),
            level=LEVEL,
            classes=start.classes,
            n_folds=n_folds,
            random_state=choices.seed,
        )
    except InfeasibleRadiusError as error:
        missing.append(
            "no cross-fitted bound: with a tenth of the labels left out the minimal radius is "
            f"{error.minimal_radius:.4f}, above --radius {error.radius:g}."
        )
    except TimeIsUpError:
        missing.append("no cross-fitted bound: the time given (--time) was over.")
    return None


def worst_case(
    start: Start,
    choices: Choices,
    losses: Mapping[str, FloatArray],
    missing: list[str],
    *,
    auto: float | None = None,
) -> Worst | None:
    """The worst case of a classifier, given its losses at the labeled rows and then at the others.

    Over Euclidean distances between cleaned rows and a label cost of 1, whatever the classifier was trained with: the
    coverage of a calibrated radius was measured so. `auto` is the radius of the rule of thumb, if there is one.
    """
    kind = radius_kind(choices, start, auto, missing)
    if kind is None:
        return None
    whole = _problem(start, choices, start.rest, resolve_prior(choices.prior, start), start.weights)
    estimate = estimate_radius(whole, start, choices) if kind == CALIBRATED else None
    tied = estimate is not None and bool(np.any(np.diff(whole.decision_set.intervals) > 0))
    n_sets = 2 ** len(start.pool.classes) - 2 if tied else 1
    sample = drawn(len(start.rest), max(_ENTRIES // (len(start.y) * n_sets), _FEWEST_ROWS), choices.seed)
    problem = whole if sample is None else _part(whole, start, choices, sample)
    # the same sets over the sampled rows: only what the features need is another number there
    shift = whole.minimal.feature_part - problem.minimal.feature_part
    if estimate is not None:
        members = problem.tied(estimate.excess)
    else:
        members = problem.at((float(choices.radius) if kind == NUMBER else float(auto or 0.0)) - shift)
    found = {}
    for name, values in losses.items():
        some = values if sample is None else values[np.concatenate([np.arange(len(start.y)), len(start.y) + sample])]
        one = certify_over(problem.fixed(some), ClassifierLoss(name, None, None), members, _TOL, estimate)
        risk = (
            one.risk
            if sample is None
            else risk_over_rows(one, (start.rows, start.rest), whole.row_weights, values, shift)
        )
        found[name] = replace(
            one,
            risk=min(risk, 1.0) if name == ZERO_ONE else risk,
            radius=one.radius + shift if estimate is None else estimate.radius,
            minimal_radius=whole.minimal.value,
            promise=kind != AUTO,
        )
    best, share = worst_constant_error(members)
    return Worst(found, kind, start.pool.classes[best], share, sample)


def _problem(start: Start, choices: Choices, rest: FloatArray, prior: Any, weights: FloatArray | None) -> RobustProblem:
    return check_problem(
        start.rows,
        start.y,
        X_unlabeled=Unlabeled(rest),
        sample_weight=weights,
        classes=start.classes,
        label_prior=prior,
        label_cost=1.0,
        metric="euclidean",
        n_jobs=choices.n_jobs,
        memory_only=True,
    )


def _part(whole: RobustProblem, start: Start, choices: Choices, sample: NDArray[np.intp]) -> RobustProblem:
    """The problem over some of the unlabeled rows; labeled ones keep their share of all rows by smaller weights."""
    shares = whole.row_weights
    weights = shares[: len(start.y)] / shares[-1] * (len(sample) / len(start.rest))
    return _problem(start, choices, start.rest[sample], whole.decision_set.intervals, weights)


def radius_kind(choices: Choices, start: Start, auto: float | None, missing: list[str]) -> str | None:
    """Where the radius comes from; None where there is none."""
    if not isinstance(choices.radius, str):
        return NUMBER
    if choices.radius == AUTO:
        if auto is None:
            raise TableError(
                "a classifier that is given has no 'auto' radius. Pass --radius calibrated, or a number, for example "
                "from surefoot radius --reference."
            )
        return AUTO
    few, many = start.n_random < FEWEST_FOR_CALIBRATION, len(start.pool.classes) > MOST_CLASSES
    if choices.radius == DEFAULT and few:
        missing.append(
            f"no worst case: {start.n_random} random labels are too few to calibrate a radius (at least "
            f"{FEWEST_FOR_CALIBRATION}). --radius takes a number, for example from surefoot radius --reference."
        )
        return None
    if choices.radius == DEFAULT and many and not isinstance(choices.prior, tuple):
        missing.append(
            f"no worst case: {len(start.pool.classes)} classes are too many to calibrate a radius with label intervals "
            f"(at most {MOST_CLASSES}). --prior with the probabilities of the classes allows it."
        )
        return None
    return CALIBRATED
