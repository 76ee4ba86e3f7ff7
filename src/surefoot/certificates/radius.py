"""`minimal_radius`, `calibrate_radius`, `transport_distance`, and the search of the as-robust-as-possible rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.multiclass import unique_labels

from surefoot._validation import FloatArray, check_labeled_rows, check_n_features, check_same_names, check_weights
from surefoot.backends.compute import Compute
from surefoot.certificates.calibration import CalibratedRadius, RadiusEstimate
from surefoot.costs.learned import resolve_metric
from surefoot.costs.metrics import FeatureMetric
from surefoot.dual.bounds import label_prices
from surefoot.dual.models import AnyClassifier, LinearModel, Model
from surefoot.priors import LabelPrior
from surefoot.problem.distances import row_chunks
from surefoot.problem.losses import probabilities
from surefoot.problem.placement import check_problem
from surefoot.problem.rows import Unlabeled, choose_ground_cost
from surefoot.problem.sets import DecisionSet, label_cost_matrix
from surefoot.solvers.minimal_radius import MinimalRadius
from surefoot.solvers.search.best_bounds import JointState
from surefoot.solvers.search.solution import Solution, solve_certified
from surefoot.solvers.transport import solve_transport

# The search of the as-robust-as-possible rule uses only the median confidence. It solves its trials to the first gap,
# and to the second gap if the confidence differs from the required confidence by less than the margin.
_ROUGH_TOL, _TRIAL_TOL, _MARGIN = 1e-2, 2e-3, 0.05
# A solve starts from the end of the previous path if the two excesses differ by at most this factor.
_NEAR = 1.07
# Radii closer to the minimal radius than this fraction of the first excess tried are treated as equal.
_NEAREST = 1.0 / 64.0


def minimal_radius(
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None = None,
    X_target: ArrayLike | Unlabeled | None = None,
    sample_weight: ArrayLike | None = None,
    label_prior: LabelPrior | ArrayLike | str | None = "auto",
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classes: ArrayLike | None = None,
    n_jobs: int | None = None,
    compute: Compute | None = None,
) -> float:
    """Compute the smallest radius at which the decision set is not empty.

    This is the smallest radius for which some distribution has the required feature marginal and label probabilities.
    It is the sum of two terms. The first is W_d(P_X, P̂_X), the transport distance in feature space between all rows
    and the labeled rows. The second is the cost of the cheapest relabeling of the labeled frequencies into the
    intervals (for a scalar label cost κ: κ times their total variation distance).

    Parameters
    ----------
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        Unlabeled rows. P_X is the empirical distribution of X and X_unlabeled together. Memory maps, `ParquetRows`,
        Dask arrays and Dask dataframes are accepted. More than 2^24 distances are computed in blocks, and the result is
        then an upper bound within a relative 1e-5 of the minimal radius.
    X_target : array of shape (M, d), Unlabeled or None, default=None
        Rows of another population, in any form that X_unlabeled accepts. They replace X and X_unlabeled as the feature
        marginal.
    sample_weight : array of shape (n,) or None, default=None
        Number of times each labeled row counts. None: once each.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, with classes in sorted order: 95 % intervals from y ("clopper-pearson"), exact values (K,),
        intervals (K, 2), or None for no constraint. "auto": "clopper-pearson", or None with X_target, because y
        contains no information about the label probabilities of X_target.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from y.
    n_jobs : int or None, default=None
        Number of threads over blocks of rows. None means one, -1 one per core.
    compute : Compute or None, default=None
        Where sums over blocks of rows run (for example on a GPU), and how much memory they may use. None: in memory up
        to 2^24 distances, in blocks beyond.

    Returns
    -------
    float
        The minimal radius.

    Examples
    --------
    >>> minimal_radius([[0.0], [1.0]], [0, 1], X_unlabeled=[[2.0], [3.0]])
    1.0
    """
    return check_problem(
        X,
        y,
        X_unlabeled=X_unlabeled,
        X_target=X_target,
        sample_weight=sample_weight,
        classes=classes,
        metric=metric,
        label_prior=label_prior,
        label_cost=label_cost,
        compute=compute,
        n_jobs=n_jobs,
    ).minimal.value


def calibrate_radius(  # noqa: PLR0913 - one keyword per part of the problem
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None = None,
    X_target: ArrayLike | Unlabeled | None = None,
    level: float = 0.9,
    n_splits: int = 50,
    random_state: int = 0,
    sample_weight: ArrayLike | None = None,
    label_prior: LabelPrior | ArrayLike | str | None = "auto",
    label_cost: ArrayLike | str = "auto",
    metric: FeatureMetric | str | Callable[..., float] = "auto",
    classes: ArrayLike | None = None,
    n_jobs: int | None = None,
    compute: Compute | None = None,
) -> RadiusEstimate:
    """Estimate from the labels a radius that should cover the true distribution in a fraction `level` of samples.

    The estimate is the minimal radius plus a quantile of the excess W_c(A, B) − W_d(A, B) − T(p_A, p_B) between random
    halves A, B of the labeled rows. It assumes i.i.d. labels. Its coverage was measured, not proved
    (docs/calibration.md).

    Parameters
    ----------
    X : array of shape (n, d)
        Labeled rows, at least four.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        Unlabeled rows. X and X_unlabeled together make up the feature marginal P_X.
    X_target : array of shape (M, d), Unlabeled or None, default=None
        Rows of another population, in any form that X_unlabeled accepts. They replace X and X_unlabeled as the feature
        marginal. The excess is measured among the labeled rows and assumed to be no larger in this population.
    level : float, default=0.9
        Fraction of samples for which the radius should cover the true distribution.
    n_splits : int, default=50
        Number of random half-splits of the labeled rows.
    random_state : int, default=0
        Seed of the splits. It is fixed by default so that the same data give the same radius.
    sample_weight : array of shape (n,) or None, default=None
        Number of times each labeled row counts. None: once each.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, with classes in sorted order: 95 % intervals from y ("clopper-pearson"), exact values (K,),
        intervals (K, 2), or None for no constraint. "auto": "clopper-pearson", or None with X_target, because y
        contains no information about the label probabilities of X_target.
    label_cost : float, "auto", "median" or array of shape (K, K), default="auto"
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k. "median" and "auto": the median distance between rows.
    metric : str, FeatureMetric or callable, default="auto"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", "learned" (learned from the labels, see
        `surefoot.costs.LearnedMetric`), an object of `surefoot.costs`, or a function. "auto": "learned".
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from y.
    n_jobs : int or None, default=None
        Number of threads over groups of rows. None means one, -1 one per core.
    compute : Compute or None, default=None
        Where sums over blocks of rows run (for example on a GPU), and how much memory they may use. None: in memory up
        to 2^24 distances, in blocks beyond.

    Returns
    -------
    RadiusEstimate
        The estimated radius, with the excess of each split.

    Examples
    --------
    >>> import surefoot as sf
    >>> X, y, U = [[0.0], [0.4], [0.6], [1.0]], [0, 1, 0, 1], [[0.1], [0.9]]
    >>> estimate = sf.calibrate_radius(X, y, X_unlabeled=U)
    >>> bool(estimate.radius > estimate.minimal_radius), estimate.n_labeled
    (True, 4)
    """
    label_cost, metric = choose_ground_cost(label_cost, metric, from_data=True)
    problem = check_problem(
        X,
        y,
        X_unlabeled=X_unlabeled,
        X_target=X_target,
        sample_weight=sample_weight,
        classes=classes,
        metric=metric,
        label_prior=label_prior,
        label_cost=label_cost,
        compute=compute,
        n_jobs=n_jobs,
    )
    problem.warn_if_picked()
    return problem.calibrate(CalibratedRadius(level, n_splits, random_state))


def transport_distance(
    X: ArrayLike,
    y: ArrayLike,
    X_ref: ArrayLike,
    y_ref: ArrayLike,
    *,
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    sample_weight: ArrayLike | None = None,
    ref_weight: ArrayLike | None = None,
) -> float:
    """Compute the transport distance W_c between a labeled sample and a labeled reference dataset, c = d + label cost.

    A decision set of this radius around the sample contains the reference, so a certificate bounds the loss on the
    reference.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows of the sample.
    y : array of shape (n,)
        Labels of the sample.
    X_ref : array of shape (N, d)
        Rows of the reference.
    y_ref : array of shape (N,)
        Labels of the reference.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of changing a label, or a matrix over the sorted labels of both datasets: entry [k, c] is the cost of
        changing label c of the sample to k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows, see `RobustLogisticRegression`. `Precomputed` distances have shape (N, n), reference
        rows by sample rows.
    sample_weight : array of shape (n,) or None, default=None
        Number of times each row of the sample counts. None: once each.
    ref_weight : array of shape (N,) or None, default=None
        Number of times each row of the reference counts. None: once each.

    Returns
    -------
    float
        The transport distance.

    Examples
    --------
    >>> transport_distance([[0.0]], [0], [[0.0], [1.0]], [0, 1])
    1.0
    """
    rows, labels = check_labeled_rows(X, y)
    check_same_names(X, X_ref, "X_ref")
    ref_rows, ref_labels = check_labeled_rows(X_ref, y_ref, ("X_ref", "y_ref"))
    check_n_features(ref_rows, "X_ref", rows.shape[1])
    sample = check_weights(sample_weight, "sample_weight", len(rows))
    reference = check_weights(ref_weight, "ref_weight", len(ref_rows))
    classes = unique_labels(labels, ref_labels)
    kappa = label_cost_matrix(label_cost, len(classes))
    cost = resolve_metric(metric).distances(ref_rows, rows)
    cost = cost + kappa[np.ix_(np.searchsorted(classes, ref_labels), np.searchsorted(classes, labels))]
    return solve_transport(np.ascontiguousarray(cost), reference / reference.sum(), sample / sample.sum()).cost


@dataclass(frozen=True)
class RadiusSearch:
    """Result of the as-robust-as-possible rule: the radius, its solution, and the confidence at every radius tried."""

    radius: float
    solution: Solution
    confident: bool
    tried: list[tuple[float, float]]


def weighted_median(values: FloatArray, weights: FloatArray) -> float:
    """Return the smallest value at which the cumulative weight reaches half."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulative, 0.5 * cumulative[-1])])


def median_confidence(model: Model, solution: Solution, ds: DecisionSet) -> float:
    """Compute the weighted median over rows in memory of the largest class probability."""
    if isinstance(model, LinearModel):
        proba = probabilities(model.scores(solution.theta, slice(None)))
    elif isinstance(model, AnyClassifier):
        chunks = row_chunks(*ds.distances.shape)
        proba = np.vstack([model.rule(label_prices(ds, ds.distances[rows], solution.point)) for rows in chunks])
    else:
        raise TypeError("only a model that is learned has a confidence")
    return weighted_median(proba.max(axis=1), ds.row_weights)


def largest_confident_radius(
    ds: DecisionSet,
    model: Model,
    minimal: MinimalRadius,
    *,
    confidence: float = 0.7,
    tol: float = 1e-4,
    accuracy: float = 0.05,
    solve: Callable[..., Solution] = solve_certified,
) -> RadiusSearch:
    """Find the largest radius with a median confidence over all rows of at least `confidence` (paper, section 5.1).

    The search brackets the excess over the minimal radius by factors of 4, then narrows the bracket on a log scale to a
    relative `accuracy`. Every solve starts from the previous one. The search tries no radius beyond the diameter of the
    data, because the constraint is no longer active there. It tries no excess below 1/64 of the first excess, because α
    grows without bound there with no benefit. It tries this smallest excess immediately if the trend of the confidence
    suggests that no larger excess is confident. If no radius is confident, it returns the smallest radius tried.
    """
    largest = float(ds.distances[ds.row_weights > 0].max() + ds.label_cost.max())
    tried: list[tuple[float, float]] = []
    states: tuple[JointState, ...] = ()
    at, solution = np.inf, None

    def surplus(excess: float, tolerance: float) -> tuple[float, Solution]:
        """Return the median confidence minus the required confidence, and the solution."""
        nonlocal states, at, solution
        radius = min(minimal.value + excess, largest)
        if at != excess or solution is None or solution.gap > tolerance:
            start = None if not states else states[-1] if max(at, excess) <= _NEAR * min(at, excess) else states[0]
            solution = solve(ds.with_radius(radius), model, tol=tolerance, minimal=minimal, warm_start=start)
            at, states = excess, solution.checkpoints or states
        value = median_confidence(model, solution, ds)
        tried.append((radius, value))
        return value - confidence, solution

    def trial(excess: float) -> float:
        """Return the median confidence minus the required confidence, accurate enough to compare the two."""
        found = surplus(excess, max(tol, _ROUGH_TOL))[0]
        return found if abs(found) > _MARGIN else surplus(excess, max(tol, _TRIAL_TOL))[0]

    most = max(largest - minimal.value, 0.0)
    first = min(max(0.01 * minimal.value, 1e-4 * largest), most)
    excess, smallest, bracket = first, _NEAREST * first, Bracket()
    found, gain = trial(first), np.inf  # gain : increase of the surplus when the excess falls to a quarter
    bracket.add(first, found)
    while bracket.low is None and excess > smallest:
        steps = np.log(excess / smallest) / np.log(4.0)
        excess = smallest if found + gain * steps < 0 else max(excess / 4.0, smallest)
        before, found = found, trial(excess) if excess > smallest else surplus(excess, tol)[0]
        gain = found - before
        bracket.add(excess, found)
    while bracket.high is None and excess < most:
        excess = min(4.0 * excess, most)
        bracket.add(excess, trial(excess))
    if bracket.low is None:
        more, solution = surplus(excess, tol)
        return RadiusSearch(tried[-1][0], solution, more >= 0, tried)
    while not bracket.narrow(accuracy):
        excess = bracket.next(accuracy)
        bracket.add(excess, surplus(excess, max(tol, _TRIAL_TOL))[0])
    _, solution = surplus(bracket.low, tol)
    return RadiusSearch(tried[-1][0], solution, True, tried)


@dataclass
class Bracket:
    """The largest confident excess found, the smallest larger excess that is not confident, and the surplus of each."""

    low: float | None = None
    high: float | None = None
    low_surplus: float = 0.0
    high_surplus: float = 0.0
    last_was_low: bool = False
    widths: list[float] = field(default_factory=list)

    def add(self, excess: float, surplus: float) -> None:
        """Replace an end. The surplus of an end that stays twice is halved so that it moves next (Illinois rule)."""
        if surplus >= 0:
            self.high_surplus *= 0.5 if self.last_was_low else 1.0
            self.low, self.low_surplus, self.last_was_low = excess, surplus, True
        else:
            self.low_surplus *= 1.0 if self.last_was_low else 0.5
            self.high, self.high_surplus, self.last_was_low = excess, surplus, False

    def narrow(self, accuracy: float) -> bool:
        """Return True if both ends agree to a relative accuracy, or no larger excess is left to try."""
        return self.low is None or self.high is None or self.high <= (1.0 + accuracy) * self.low * (1.0 + 1e-12)

    def next(self, accuracy: float) -> float:
        """Return the next excess: just below the zero of the line through both ends, or the middle if lines fail."""
        if self.low is None or self.high is None:
            raise ValueError("a bracket needs both ends: add a confident excess and an excess that is not confident")
        width, step = float(np.log(self.high / self.low)), float(np.log1p(accuracy))
        self.widths.append(width)
        slow = len(self.widths) > 3 and width > 0.5 * self.widths[-4]
        if slow or width <= 2.0 * step:
            return self.low * float(np.exp(0.5 * width))
        crossing = width * self.low_surplus / (self.low_surplus - self.high_surplus)
        return self.low * float(np.exp(np.clip(crossing - 0.5 * step, step, width - step)))
