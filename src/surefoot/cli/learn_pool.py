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
from surefoot.blocks.learning import Learned
from surefoot.calibration import Calibrated, RadiusEstimate, calibrate, calibrate_radius, in_label_cost_of, tied_sets
from surefoot.certificates.certificate import Certificate
from surefoot.dual.models import FixedLosses
from surefoot.estimators.robust import FitProblem, RobustLogisticRegression, store
from surefoot.exact.solution import Found, solve_certified
from surefoot.losses import ZERO_ONE
from surefoot.priors import ClopperPearson, tighten
from surefoot.problem.rows import LabeledData
from surefoot.problem.sets import DecisionSet
from surefoot.report.certified import Sampled, error_bound
from surefoot.report.fitted import Fitted
from surefoot.solvers.minimal import MinimalRadius, check_radius, solve_minimal_radius
from surefoot.tabular import Pool, TableError
from surefoot.unlabeled import Unlabeled

# The table of measured coverage (docs/calibration.md) begins at so many labels, and its method ends at so many classes.
FEWEST_FOR_CALIBRATION, MOST_CLASSES = 20, 6
DEFAULT, CALIBRATED, AUTO, NUMBER = "default", "calibrated", "auto", "number"
WEAK, NONE = "weak", "none"
_TOL_ERROR = 1e-3
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

    def sample(self, most: int, seed: int) -> Start:
        """The same with at most so many unlabeled rows, drawn at random."""
        if len(self.rest) <= most:
            return self
        chosen = np.random.default_rng(seed).choice(len(self.rest), most, replace=False)
        return replace(self, rest=self.rest[np.sort(chosen)])

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
    small = start.sample(_MOST_SEARCHED, choices.seed)
    estimate, learned = None, None
    if kind == CALIBRATED:
        estimate = _estimate(problem, start, choices)
        may_change = useful and choices.radius == DEFAULT
        tried = None
        if may_change and small is not start:  # a quick look first: a large pool takes long
            tried = _problem(_classifier(kind, small, choices), small).at_estimate(estimate)
        if tried is None or not says_little(tried.certificate):
            learned = tried = problem.at_estimate(estimate)
        if may_change and says_little(tried.certificate):
            notes.append(_why_not_calibrated(tried.certificate, estimate, clf.confidence))
            kind, estimate, learned = AUTO, None, None
            clf.radius = AUTO
    if learned is None:
        learned = _auto(problem, small, choices, notes) if kind == AUTO else problem.solve(clf.radius)
    store(clf, learned)
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
    clf.confidence = auto_confidence(problem.decision_set.intervals)
    return replace(problem, settings=replace(problem.settings, confidence=clf.confidence))


def _auto(problem: FitProblem, small: Start, choices: Choices, notes: list[str]) -> Learned:
    """Learn at the "auto" radius; in a large pool its excess is that of a sample, and the certificate that of all."""
    if len(small.rest) == problem.data.everything.shape[0] - len(small.rows):
        return problem.solve(AUTO)
    found = _problem(_classifier(AUTO, small, replace(choices, tol=1e-3)), small).solve(AUTO).certificate
    notes.append(f"the 'auto' radius was searched over {len(small.rest)} unlabeled rows, drawn at random.")
    return problem.solve(problem.minimal.value + max(found.radius - found.minimal_radius, 0.0))


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
    if not start.nearest and problem.decision_set.distances.size > _LARGE:
        fitted = Fitted.check(clf, start.rows, start.y, start.rest)
        quick = error_bound(fitted, Sampled.of(fitted, 0))
        if quick <= 1.1 * constant_error(problem.decision_set.intervals):
            return quick
    return float(_error_certificate(problem, clf, estimate).risk)


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


def _estimate(problem: FitProblem | FixedProblem, start: Start, choices: Choices) -> RadiusEstimate:
    how = Calibrated(random_state=choices.seed)
    if start.n_random < 4:
        raise TableError(
            f"a calibrated radius needs at least 4 labels that were drawn at random; there are {start.n_random}. Pass "
            "--radius auto, or a number."
        )
    if start.all_random:
        return calibrate(problem.data, problem.decision_set, problem.minimal, how)
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


def _error_certificate(
    problem: FitProblem, clf: RobustLogisticRegression, estimate: RadiusEstimate | None
) -> Certificate:
    """The share of errors that the same set allows; the minimal radius is not computed again."""
    predicted = np.searchsorted(clf.classes_, clf.predict(problem.data.everything))
    losses = 1.0 - np.eye(len(clf.classes_))[predicted]
    over = FixedProblem(problem.data, problem.decision_set, problem.minimal, problem.settings.n_jobs)
    return over.certify(losses, ZERO_ONE, _TOL_ERROR, estimate, clf.certificate_.radius)


@dataclass(frozen=True, eq=False)
class FixedProblem:
    """The decision set of a pool, for classifiers that are given."""

    data: LabeledData
    decision_set: DecisionSet
    minimal: MinimalRadius
    n_jobs: int | None

    @classmethod
    def of(cls, start: Start, choices: Choices) -> FixedProblem:
        data = LabeledData.check(
            start.rows,
            start.y,
            X_unlabeled=start.rest,
            sample_weight=start.weights,
            classes=start.classes,
            metric="euclidean",
        )
        ds = data.decision_set(resolve_prior(choices.prior, start), 1.0)
        return cls(data, ds, solve_minimal_radius(ds), choices.n_jobs)

    def certify(
        self, losses: FloatArray, name: str, tol: float, estimate: RadiusEstimate | None, radius: float | None
    ) -> Certificate:
        """The worst expected loss of a classifier with losses (N, K), labeled rows first."""
        ds, minimal = self.decision_set, self.minimal
        if estimate is not None:
            sets = tied_sets(ds, minimal, estimate.excess)
        else:
            sets = [(ds.with_radius(float(radius or 0.0)), minimal)]
            check_radius(*sets[0])
        parts = []
        for piece, smallest in sets:
            found = solve_certified(piece, FixedLosses(losses), tol=tol, minimal=smallest, n_jobs=self.n_jobs).found
            parts.append(replace(found, adversary=in_label_cost_of(ds, piece, found.adversary)))
        return Found.over_union(parts, tol).certificate(name, self.data, sets[0][0], minimal, estimate=estimate)


def certify_losses(start: Start, choices: Choices, losses: FloatArray, name: str) -> tuple[Certificate, str, list[str]]:
    """The certificate of any classifier, given its losses at the labeled rows and then at the others."""
    kind, notes = choose_radius(choices, start)
    if kind == AUTO:
        raise TableError(
            "a classifier that is given has no 'auto' radius, and there are too few random labels (or too many "
            "classes) to calibrate one. Pass --radius with a number, for example from surefoot radius --reference."
        )
    problem = FixedProblem.of(start, choices)
    estimate = None
    if kind == CALIBRATED:
        estimate = _estimate(problem, start, choices)
    radius = None if estimate is not None else float(choices.radius)
    return problem.certify(losses, name, choices.tol, estimate, radius), kind, notes
