"""From a pool to a certified classifier: which radius and which label intervals its labels allow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import entropy
from sklearn.metrics import pairwise_distances_argmin

from surefoot._callbacks import FitProgress
from surefoot._types import FloatArray
from surefoot.blocks.placement import check_problem
from surefoot.calibration import Calibrated, RadiusEstimate
from surefoot.certificates.certificate import Certificate
from surefoot.certify import ClassifierLoss, certify_over
from surefoot.estimators.fit_problem import FitProblem, FittedModel
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.exact.problem import RobustProblem
from surefoot.losses import ZERO_ONE
from surefoot.priors import ClopperPearson, tighten
from surefoot.radius import calibrate_radius
from surefoot.report.certified import Sampled, error_bound
from surefoot.report.fitted import Fitted
from surefoot.tabular import Pool, TableError
from surefoot.unlabeled import Unlabeled

# The table of measured coverage (docs/calibration.md) begins at so many labels, and its method ends at so many classes.
FEWEST_FOR_CALIBRATION, MOST_CLASSES = 20, 6
DEFAULT, CALIBRATED, AUTO, NUMBER = "default", "calibrated", "auto", "number"
WEAK, NONE = "weak", "none"
_TOL_ERROR, _CLIP = 1e-3, 1e-12
# Unlabeled rows over which the "auto" radius is searched: a rule of thumb needs no more.
_MOST_SEARCHED = 4000
# Distances from which on the share of errors is bounded by a sample's dual point, evaluated at all rows.
_LARGE = 5_000_000
# A log loss above this share of that of a constant answer promises nothing of use.
_LITTLE = 0.98
# Labeled rows that stand for the pool's rows nearest to them must not count a second time among these.
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class Choices:
    """What a user asked of a fit.

    radius : "default", "calibrated", "auto" or a number; prior : "weak", "none" or probabilities (K,).
    """

    radius: str | float = DEFAULT
    prior: str | tuple[float, ...] = WEAK
    seed: int = 0
    n_jobs: int | None = None
    tol: float = 1e-4


@dataclass(frozen=True, eq=False)
class Start:
    """The labels of a pool, and which of them are a random sample: estimates may rest on those only.

    rows, y : labeled rows (n, d) and labels (n,); random : (n,); rest : unlabeled rows (M, d).
    nearest : whether labeled rows count by the rows of the pool nearest to them, not equally.
    """

    pool: Pool
    rows: FloatArray
    y: NDArray[Any]
    random: NDArray[np.bool_]
    rest: FloatArray
    nearest: bool

    @classmethod
    def of(cls, pool: Pool, picked: NDArray[np.bool_], *, nearest: bool = False) -> Start:
        """With picked labels, or where these are to come, `nearest` keeps the certificates comparable."""
        labeled = pool.labeled
        y = np.array(pool.labels[labeled].tolist(), dtype=object)
        by_nearest = nearest or bool(picked[labeled].any())
        return cls(pool, pool.rows[labeled], y, ~picked[labeled], pool.rows[~labeled], by_nearest)

    @property
    def n_random(self) -> int:
        return int(self.random.sum())

    @property
    def all_random(self) -> bool:
        return bool(self.random.all())

    @property
    def classes(self) -> NDArray[Any]:
        return np.array(self.pool.classes, dtype=object)

    @property
    def weights(self) -> FloatArray | None:
        """(n,) None where all count equally; else in proportion to the rows of the pool nearest to each."""
        if not self.nearest:
            return None
        nearest = pairwise_distances_argmin(self.pool.rows, self.rows)
        return _NEGLIGIBLE * np.bincount(nearest, minlength=len(self.rows)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Fit:
    """A classifier, its certificate for the log loss, a bound on its share of errors, and how the radius was chosen."""

    start: Start
    clf: RobustLogisticRegression
    certificate: Certificate
    error: float | None
    radius_kind: str
    notes: list[str] = field(default_factory=list)


def resolve_prior(prior: str | tuple[float, ...], start: Start) -> Any:
    """Label probabilities for the library; intervals come from the random labels alone."""
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
            "--prior weak estimates label probabilities from labels drawn at random; all labels were picked. Pass the "
            "probabilities, or --prior none."
        )
    counts = [(start.y[start.random] == name).sum() for name in start.pool.classes]
    return ClopperPearson().intervals(counts)


def choose_radius(choices: Choices, start: Start) -> tuple[str, list[str]]:
    """Which rule finds the radius, and what to say about it."""
    if not isinstance(choices.radius, str):
        return NUMBER, []
    notes = []
    if not start.all_random:
        notes.append(
            f"{len(start.y) - start.n_random} of {len(start.y)} labels were picked by surefoot label: radius and label "
            f"intervals are estimated from the {start.n_random} random ones."
        )
    if choices.radius != DEFAULT:
        return choices.radius, notes
    few, many = start.n_random < FEWEST_FOR_CALIBRATION, len(start.pool.classes) > MOST_CLASSES
    if few:
        notes.append(
            f"{start.n_random} random labels are too few to calibrate a radius (at least {FEWEST_FOR_CALIBRATION}): "
            "the rule of thumb 'auto' is used, which promises no coverage."
        )
    elif many and not isinstance(choices.prior, tuple):
        notes.append(
            f"{len(start.pool.classes)} classes are too many to calibrate a radius with label intervals: the rule of "
            "thumb 'auto' is used. Pass --prior with the probabilities of the classes."
        )
    return (AUTO if few or (many and not isinstance(choices.prior, tuple)) else CALIBRATED), notes


def learn(start: Start, choices: Choices, *, error: bool = True, useful: bool = True) -> Fit:
    """Fit and certify a classifier to the labels of a pool.

    With random labels this is RobustLogisticRegression. Labels that a strategy picked are weighted by the rows of the
    pool nearest to them, as NearestCertifier does, and the excess of the radius is calibrated on the random ones.

    Where nothing better than a constant answer can be promised at the calibrated radius, the classifier learned there
    is one. With `useful`, and unless that radius was asked for, it is then learned at the "auto" radius.
    """
    kind, notes = choose_radius(choices, start)
    clf = _classifier(kind, start, choices)
    problem = _problem(clf, start)
    small = problem.sampled(_MOST_SEARCHED, choices.seed, choices.tol)
    estimate, learned = None, None
    if kind == CALIBRATED:
        estimate = _estimate(problem.problem, start, choices)
        may_change = useful and choices.radius == DEFAULT
        tried = None
        if may_change and small.problem is not problem.problem:  # a quick look first: a large pool takes long
            tried = small.at_estimate(estimate)
        if tried is None or not says_little(tried.certificate):
            learned = tried = problem.at_estimate(estimate)
        if may_change and says_little(tried.certificate):
            notes.append(_why_not_calibrated(tried.certificate, estimate, clf.confidence))
            kind, estimate, learned = AUTO, None, None
            clf.radius = AUTO
    if learned is None:
        learned = _auto(problem, choices, notes) if kind == AUTO else problem.solve(clf.radius)
    learned.store(clf)
    return Fit(start, clf, learned.certificate, _error(problem, clf, start, estimate) if error else None, kind, notes)


def _classifier(kind: str, start: Start, choices: Choices) -> RobustLogisticRegression:
    radius: float | str | Calibrated = AUTO
    if kind == NUMBER:
        radius = float(choices.radius)
    elif kind == CALIBRATED:
        radius = Calibrated(random_state=choices.seed)
    prior = resolve_prior(choices.prior, start)
    return RobustLogisticRegression(radius, prior, classes=start.classes, tol=choices.tol, n_jobs=choices.n_jobs)


def _problem(clf: RobustLogisticRegression, start: Start) -> FitProblem:
    """The problem of a fit, with the confidence that suits what is known of the classes."""
    problem = FitProblem.of(clf, start.rows, start.y, start.weights, Unlabeled(start.rest), FitProgress(clf))
    clf.confidence = auto_confidence(problem.problem.decision_set.intervals)
    return replace(problem, settings=replace(problem.settings, confidence=clf.confidence))


def _auto(problem: FitProblem, choices: Choices, notes: list[str]) -> FittedModel:
    """Learn at the "auto" radius; in a large pool its excess is that of a sample, and the certificate that of all."""
    small = problem.sampled(_MOST_SEARCHED, choices.seed, 1e-3)
    if small.problem is problem.problem:
        return problem.solve(AUTO)
    searched = small.problem.n_rows - small.problem.data.n_labeled
    notes.append(f"the 'auto' radius was searched over {searched} unlabeled rows, drawn at random.")
    return problem.solve(problem.problem.minimal.value + small.auto_excess())


def _why_not_calibrated(certificate: Certificate, estimate: RadiusEstimate, confidence: float) -> str:
    constant = constant_loss(certificate.label_intervals)
    return (
        f"at the calibrated radius {estimate.radius:.4f} nothing can be promised: the worst log loss is "
        f"{certificate.risk:.4f}, that of the same answer for all rows {constant:.4f}. The model was learned at the "
        f"largest radius with median confidence {confidence:.2g} instead (radius 'auto'), which need not cover the "
        "truth. More labels, or known class probabilities (--prior), allow a promise."
    )


def _error(problem: FitProblem, clf: RobustLogisticRegression, start: Start, estimate: RadiusEstimate | None) -> float:
    """Bound on the share of errors over the set of the fit; in a large pool a quick one, if it is good enough."""
    whole = problem.problem
    if not start.nearest and whole.n_rows * len(whole.anchors) > _LARGE:
        fitted = Fitted.check(clf, start.rows, start.y, start.rest)
        quick = error_bound(fitted, Sampled.of(fitted, 0))
        if quick <= 1.1 * constant_error(whole.decision_set.intervals):
            return quick
    judged = ClassifierLoss.of(clf, clf.classes_, ZERO_ONE, _CLIP, own=False)
    members = whole.at(clf.certificate_.radius) if estimate is None else whole.tied(estimate.excess)
    return float(
        certify_over(judged.game(whole, start.rows, start.rest, None), judged, members, _TOL_ERROR, estimate).risk
    )


def says_little(certificate: Certificate) -> bool:
    """Whether a certificate promises hardly more than the same answer for every row does."""
    return certificate.risk > _LITTLE * constant_loss(certificate.label_intervals)


def constant_loss(intervals: FloatArray) -> float:
    """Worst log loss of the best constant answer: the largest entropy of label probabilities in the intervals (K, 2).

    min_q max_p −Σ p_k log q_k over p in the intervals.
    """
    return float(entropy(constant_answer(intervals)))


def constant_answer(intervals: FloatArray) -> FloatArray:
    """(K,) label probabilities of largest entropy in the intervals (K, 2): one level, clipped to each of them."""
    lo, hi = tighten(intervals).T
    level = float(brentq(lambda t: np.clip(t, lo, hi).sum() - 1.0, 0.0, 1.0)) if np.any(lo < hi) else 0.0
    return np.clip(level, lo, hi)


def auto_confidence(intervals: FloatArray) -> float:
    """Median confidence that the "auto" radius keeps: 2/5 of the way from the best constant answer's to 1.

    That is the paper's 0.7 for two classes of which nothing is known. With a class that is known to hold 70 % of the
    rows, a constant answer has confidence 0.7 at any radius.
    """
    least = float(constant_answer(intervals).max())
    return least + 0.4 * (1.0 - least)


def constant_error(intervals: FloatArray) -> float:
    """Worst share of errors of the best constant answer: that for the class whose share is largest at least."""
    return float(1.0 - tighten(intervals)[:, 0].max())


def _estimate(problem: RobustProblem, start: Start, choices: Choices) -> RadiusEstimate:
    how = Calibrated(random_state=choices.seed)
    if start.n_random < 4:
        raise TableError(
            f"a calibrated radius needs at least 4 labels that were drawn at random; there are {start.n_random}. Pass "
            "--radius auto, or a number."
        )
    if start.all_random:
        return problem.calibrate(how)
    found = calibrate_radius(
        start.rows[start.random],
        start.y[start.random],
        classes=start.classes,
        label_prior=None,
        level=how.level,
        n_splits=how.n_splits,
        random_state=how.random_state,
    )
    least = problem.minimal.value
    return RadiusEstimate(least + found.excess, found.excess, least, found.level, found.splits, found.n_labeled)


def certify_losses(start: Start, choices: Choices, losses: FloatArray, name: str) -> tuple[Certificate, str, list[str]]:
    """The certificate of any classifier, given its losses at the labeled rows and then at the others."""
    kind, notes = choose_radius(choices, start)
    if kind == AUTO:
        raise TableError(
            "a classifier that is given has no 'auto' radius, and there are too few random labels (or too many "
            "classes) to calibrate one. Pass --radius with a number, for example from surefoot radius --reference."
        )
    problem = check_problem(
        start.rows,
        start.y,
        X_unlabeled=Unlabeled(start.rest),
        sample_weight=start.weights,
        classes=start.classes,
        label_prior=resolve_prior(choices.prior, start),
        n_jobs=choices.n_jobs,
        memory_only=True,
    )
    if kind == CALIBRATED:
        estimate = _estimate(problem, start, choices)
        members = problem.tied(estimate.excess)
    else:
        estimate, members = None, problem.at(float(choices.radius))
    judged = ClassifierLoss(name, None, None)
    return certify_over(problem.fixed(losses), judged, members, choices.tol, estimate), kind, notes
