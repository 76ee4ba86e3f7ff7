"""From a pool to a classifier: choose the classifier, the radius, and the label intervals that the labels allow."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import entropy
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances_argmin

from surefoot._errors import first_line
from surefoot._validation import FitProgress, FloatArray
from surefoot.bounds.clusters import equal_rows, share_intervals
from surefoot.certificates.calibration import CalibratedRadius, RadiusEstimate
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.certification import ClassifierLoss, certify_over
from surefoot.certificates.radius import calibrate_radius
from surefoot.costs.learned import LearnedMetric
from surefoot.estimators.combined import BEST as CHOOSE_BEST
from surefoot.estimators.combined import CombinedClassifier
from surefoot.estimators.fit_problem import FitProblem, FittedModel
from surefoot.estimators.minimax import MinimaxClassifier
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.pool.notes import Code, Note
from surefoot.pool.options import (
    AUTO,
    BEST,
    BLEND,
    BOOSTING,
    CALIBRATED,
    DEFAULT,
    FOREST,
    LOGISTIC,
    MINIMAX,
    NONE,
    NUMBER,
    ROBUST,
    WEAK,
    FitOptions,
)
from surefoot.pool.table import Pool, TableError
from surefoot.pool.table.cells import as_texts
from surefoot.pool.table.pool import as_targets
from surefoot.priors import ClopperPearson, resolve_prior
from surefoot.priors.clopper_pearson import tighten
from surefoot.problem.losses import ZERO_ONE
from surefoot.problem.robust import RobustProblem
from surefoot.problem.rows import PICKED_AT, Unlabeled, sample_p_value
from surefoot.problem.sets import MEDIAN

# Fewest labels with measured coverage (docs/calibration.md), and most classes for which its method works.
FEWEST_FOR_CALIBRATION, MOST_CLASSES = 20, 6
_TOL_ERROR, _CLIP = 1e-3, 1e-12
# Unlabeled rows in the search for the "auto" radius. More rows would not improve a rule of thumb.
_MOST_SEARCHED = 4000
# A certificate is uninformative if its log loss is above this share of the loss of a constant prediction.
_LITTLE = 0.98
# Labeled rows that represent the nearest rows of the pool must not be counted again, so their weights are tiny.
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class LabeledTable:
    """The labels of a pool, and which of them are a random sample. Estimates use the random sample only.

    rows, y : labeled rows (n, d) and labels (n,); random : (n,) True in the random sample.
    rest : unlabeled rows (M, d).
    nearest : whether the weight of a labeled row is the number of pool rows nearest to it. Otherwise weights are equal.
    group_column : column that defines groups of labeled rows; None for groups of rows with equal features.
    """

    pool: Pool
    rows: FloatArray
    y: NDArray[Any]
    random: NDArray[np.bool_]
    rest: FloatArray
    nearest: bool
    group_column: str | None = None

    @classmethod
    def from_pool(
        cls, pool: Pool, picked: NDArray[np.bool_], *, nearest: bool = False, group_column: str | None = None
    ) -> LabeledTable:
        """Load the labels of a pool. With picked labels, `nearest` keeps the certificates comparable."""
        labeled = pool.labeled
        y = pool.targets
        by_nearest = nearest or bool(picked[labeled].any())
        return cls(pool, pool.rows[labeled], y, ~picked[labeled], pool.rows[~labeled], by_nearest, group_column)

    @property
    def n_random(self) -> int:
        return int(self.random.sum())

    @property
    def all_random(self) -> bool:
        return bool(self.random.all())

    @property
    def classes(self) -> NDArray[Any]:
        return as_targets(self.pool.classes)

    @property
    def groups(self) -> NDArray[np.intp]:
        """(n,) group numbers of the labeled rows. A row without a group forms its own group."""
        if self.group_column is None:
            return equal_rows(self.rows)
        cells = as_texts(self.pool.table.cells[self.group_column][self.pool.labeled])
        return equal_rows([row if cell != cell else cell for row, cell in enumerate(cells)])  # noqa: PLR0124 - NaN

    @property
    def weights(self) -> FloatArray | None:
        """(n,) weights proportional to the number of pool rows nearest to each labeled row; None for equal weights."""
        if not self.nearest:
            return None
        nearest = pairwise_distances_argmin(self.pool.rows, self.rows)
        return _NEGLIGIBLE * np.bincount(nearest, minlength=len(self.rows)).astype(np.float64)


# Trees in the forest, and rows per leaf in boosting. With the default of 20, boosting cannot split 50 rows.
_TREES, _LEAF = 100, 5


def unfitted(choices: FitOptions, start: LabeledTable, tol: float, classes: NDArray[Any] | None = None) -> Any:
    """Return the unfitted classifier of --classifier. It knows all classes and accepts unlabeled rows."""
    name, classes = choices.chosen, start.classes if classes is None else classes
    own = {
        "label_prior": prior_from_options(choices.prior, start),
        "metric": learned_metric(start.pool),
        "classes": classes,
        "tol": tol,
        "n_jobs": choices.n_jobs,
    }
    if name == ROBUST:
        return RobustLogisticRegression(**own)
    if name == MINIMAX:
        return MinimaxClassifier(**own)
    # the penalty applies to the features before they were divided by the largest entry
    unit = float(own["metric"].unit)
    logistic = LogisticRegression(C=1.0 / unit**2, max_iter=1000)
    forest = RandomForestClassifier(_TREES, n_jobs=choices.n_jobs, random_state=choices.seed)
    boosting = HistGradientBoostingClassifier(min_samples_leaf=_LEAF, random_state=choices.seed)
    blend = [RobustLogisticRegression(**own), forest]
    members = {LOGISTIC: [logistic], FOREST: [forest], BOOSTING: [boosting], BLEND: blend}
    if name == BEST:
        # excludes boosting, which had the smallest log loss on none of 46 tables (benchmarks/classifiers.py)
        candidates = [blend[0], logistic, forest, CombinedClassifier(blend, classes=classes)]
        return CombinedClassifier(candidates, CHOOSE_BEST, classes=classes, random_state=choices.seed)
    found = members[name] if name in members else [imported(name)]
    return CombinedClassifier(found, classes=classes, random_state=choices.seed)


def imported(name: str) -> Any:
    """Return the unfitted classifier module:object: an estimator, or a class or function that returns one.

    Modules in the working folder are found, too.
    """
    module, _, rest = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = import_module(module)
        for part in rest.split("."):
            found = getattr(found, part)
        found = found if hasattr(found, "fit") and not isinstance(found, type) else found()
        found = clone(found)
    except Exception as error:
        raise TableError(
            f"--classifier must name a classifier as MODULE:OBJECT; {name} fails with {type(error).__name__}: "
            f"{first_line(error)}. Check the name, and install the package."
        ) from error
    if not hasattr(found, "predict_proba"):
        raise TableError(
            f"--classifier must name a classifier with predict_proba; {name} is a {type(found).__name__}. Wrap it in "
            "CalibratedClassifierCV."
        )
    return found


def learned_metric(pool: Pool) -> LearnedMetric:
    """Return the library's metric with the feature scales of the cleaning, before the division by the largest entry.

    Columns of 0 and 1 and directions of texts keep their variance. If standardized, each rare category and each
    faint direction would have the weight of a numeric column.
    """
    return LearnedMetric(unit=1.0 / float(pool.cleaner.named_steps["scale"].scale_))


def label_intervals(choices: FitOptions, start: LabeledTable) -> FloatArray:
    """Return (K, 2) intervals of the label shares, from the labels or from --prior."""
    counts = np.array([(start.y == name).sum() for name in start.classes], dtype=np.float64)
    return resolve_prior(prior_from_options(choices.prior, start)).intervals(counts)


@dataclass(frozen=True, eq=False)
class Fit:
    """A classifier, its certificate for the log loss, a bound on its error rate, and how the radius was chosen.

    stated : for a classifier not trained for the worst case, the distances in its training, else None.
    """

    start: LabeledTable
    clf: Any
    certificate: Certificate
    error: float | None
    radius_kind: str
    notes: list[Note] = field(default_factory=list)
    stated: Any = None


def prior_from_options(prior: str | tuple[float, ...], start: LabeledTable) -> Any:
    """Return label probabilities for the library. Intervals use only the random labels."""
    if isinstance(prior, tuple):
        if len(prior) != len(start.pool.classes):
            raise TableError(
                f"--prior must name one probability per class, {len(start.pool.classes)} of them, in the order "
                f"{', '.join(start.pool.classes)}; got {len(prior)}. Name all classes with --classes where labels miss "
                "some."
            )
        return np.array(prior)
    if prior == NONE:
        return None
    if start.all_random:
        return "clopper-pearson"
    if not start.n_random:
        raise TableError(
            "--prior weak requires random labels; active learning chose all labels. Pass the "
            "probabilities, or --prior none."
        )
    counts = [(start.y[start.random] == name).sum() for name in start.classes]
    return ClopperPearson().intervals(counts)


def prior_of_worst_case(prior: str | tuple[float, ...], start: LabeledTable) -> Any:
    """Return the prior for a guarantee. With grouped random rows, its intervals count each group as one draw."""
    found, numbers = prior_from_options(prior, start), start.groups[start.random]
    if prior != WEAK or len(np.unique(numbers)) == len(numbers):
        return found
    return share_intervals(start.y[start.random], start.classes, numbers)


def about_picked(start: LabeledTable) -> list[Note]:
    """Return a note if active learning chose some labels."""
    if start.all_random:
        return []
    n_labels, n_random = len(start.y), start.n_random
    return [Note(Code.PICKED_LABELS, n_picked=n_labels - n_random, n_labels=n_labels, n_random=n_random)]


def about_sample(start: LabeledTable) -> list[Note]:
    """Return a note if the labels that count as random do not look like a random sample."""
    if start.n_random == 0:
        return []
    rows = start.rows[start.random]
    p_value = sample_p_value(rows, np.vstack([start.rows[~start.random], start.rest]))
    if p_value is None or p_value > PICKED_AT:
        return []
    return [Note(Code.UNLIKE_SAMPLE, n_labels=len(rows), p_value=p_value)]


def choose_radius(choices: FitOptions, start: LabeledTable) -> tuple[str, list[Note]]:
    """Return the rule for the radius, and notes about it."""
    if not isinstance(choices.radius, str):
        return NUMBER, []
    notes = about_picked(start)
    if choices.radius != DEFAULT:
        return choices.radius, notes
    few, many = start.n_random < FEWEST_FOR_CALIBRATION, len(start.pool.classes) > MOST_CLASSES
    if few:
        notes.append(Note(Code.AUTO_FEW, n_random=start.n_random, needed=FEWEST_FOR_CALIBRATION))
    elif many and not isinstance(choices.prior, tuple):
        notes.append(Note(Code.AUTO_CLASSES, n_classes=len(start.pool.classes)))
    return (AUTO if few or (many and not isinstance(choices.prior, tuple)) else CALIBRATED), notes


def learn(start: LabeledTable, choices: FitOptions, *, error: bool = True) -> Fit:
    """Train and certify the classifier with the smallest worst case at a calibrated, "auto" or given radius.

    With random labels, this is RobustLogisticRegression. Labels that a strategy picked are weighted by the number of
    pool rows nearest to them, as in NearestCertifier, and the excess of the radius is calibrated on the random labels.
    """
    kind, notes = choose_radius(choices, start)
    clf = _classifier(kind, start, choices)
    problem = _problem(clf, start)
    estimate = None
    if kind == CALIBRATED:
        estimate = estimate_radius(problem.problem, start, choices)
        learned = problem.at_estimate(estimate)
    else:
        learned = _auto(problem, choices, notes) if kind == AUTO else problem.solve(clf.radius)
    learned.store(clf)
    return Fit(start, clf, learned.certificate, _error(problem, clf, start, estimate) if error else None, kind, notes)


def _classifier(kind: str, start: LabeledTable, choices: FitOptions) -> RobustLogisticRegression:
    radius: float | str | CalibratedRadius = AUTO
    if kind == NUMBER:
        radius = float(choices.radius)
    elif kind == CALIBRATED:
        radius = CalibratedRadius(random_state=choices.seed)
    prior = prior_from_options(choices.prior, start)
    cost = ground_cost(kind, start)
    return RobustLogisticRegression(radius, prior, *cost, choices.tol, start.classes, n_jobs=choices.n_jobs)


def ground_cost(kind: str, start: LabeledTable) -> tuple[Any, Any]:
    """Return label cost and metric: learned for a calibrated radius from random labels, else Euclidean."""
    learned = kind == CALIBRATED and start.all_random
    return (MEDIAN, learned_metric(start.pool)) if learned else (1.0, "euclidean")


def _problem(clf: RobustLogisticRegression, start: LabeledTable) -> FitProblem:
    """Return the problem of a fit, with a confidence that suits the known label shares."""
    problem = FitProblem.from_arguments(
        clf, start.rows, start.y, start.weights, Unlabeled(start.rest), FitProgress(clf)
    )
    clf.confidence = auto_confidence(problem.problem.decision_set.intervals)
    return replace(problem, settings=replace(problem.settings, confidence=clf.confidence))


def _auto(problem: FitProblem, choices: FitOptions, notes: list[Note]) -> FittedModel:
    """Train at the "auto" radius. A large pool uses the excess from a sample, but the certificate covers all rows."""
    small = problem.sampled(_MOST_SEARCHED, choices.seed, 1e-3)
    if small.problem is problem.problem:
        return problem.solve(AUTO)
    searched = small.problem.n_rows - small.problem.data.n_labeled
    notes.append(Note(Code.AUTO_SAMPLED, n_rows=searched))
    return problem.solve(problem.problem.minimal.value + small.auto_excess())


def _error(
    problem: FitProblem, clf: RobustLogisticRegression, start: LabeledTable, estimate: RadiusEstimate | None
) -> float:
    """Bound the error rate over the decision set of the fit."""
    whole = problem.problem
    judged = ClassifierLoss.from_arguments(clf, clf.classes_, ZERO_ONE, _CLIP, own=False)
    members = whole.at_radius(clf.certificate_.radius) if estimate is None else whole.tied(estimate.excess)
    return float(
        certify_over(judged.game(whole, start.rows, start.rest, None), judged, members, _TOL_ERROR, estimate).risk
    )


def says_little(certificate: Certificate) -> bool:
    """Return True if a certificate guarantees hardly more than a constant prediction does."""
    return certificate.risk > _LITTLE * constant_loss(certificate.label_intervals)


def estimate_radius(problem: RobustProblem, start: LabeledTable, choices: FitOptions) -> RadiusEstimate:
    """Return the calibrated radius. If some labels were picked, the random labels determine the excess."""
    how = CalibratedRadius(random_state=choices.seed)
    if start.n_random < 4:
        raise TableError(
            f"a calibrated radius requires at least 4 random labels; there are {start.n_random}. Pass "
            "--radius auto, or a number."
        )
    if start.all_random:
        return problem.calibrate(how)
    found = calibrate_radius(
        start.rows[start.random],
        start.y[start.random],
        classes=start.classes,
        label_prior=None,
        label_cost=problem.decision_set.label_cost,
        metric=problem.data.metric,
        level=how.level,
        n_splits=how.n_splits,
        random_state=how.random_state,
    )
    least = problem.minimal.value
    return RadiusEstimate(least + found.excess, found.excess, least, found.level, found.splits, found.n_labeled)


def constant_loss(intervals: FloatArray) -> float:
    """Return the worst-case log loss of the best constant prediction.

    This is the largest entropy of label probabilities in the intervals (K, 2):
    min_q max_p −Σ p_k log q_k over p in the intervals.
    """
    return float(entropy(constant_answer(intervals)))


def constant_answer(intervals: FloatArray) -> FloatArray:
    """Return (K,) maximum-entropy label probabilities in the intervals (K, 2): one value, clipped to each interval."""
    lo, hi = tighten(intervals).T
    level = float(brentq(lambda t: np.clip(t, lo, hi).sum() - 1.0, 0.0, 1.0)) if np.any(lo < hi) else 0.0
    return np.clip(level, lo, hi)


def auto_confidence(intervals: FloatArray) -> float:
    """Return the median confidence for the "auto" radius: 2/5 of the way from the best constant prediction's to 1.

    Without knowledge of the shares of two classes, this is the paper's 0.7. With a class that is known to hold 70 % of
    the rows, a constant prediction has confidence 0.7 at any radius.
    """
    least = float(constant_answer(intervals).max())
    return least + 0.4 * (1.0 - least)
