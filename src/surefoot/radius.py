"""Radii: the minimal one, the distance to a reference dataset, and the as-robust-as-possible rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import _check_sample_weight

from surefoot._validation import FloatArray
from surefoot.costs import FeatureMetric, label_cost_matrix, resolve_metric
from surefoot.dual import LinearModel
from surefoot.losses import probabilities
from surefoot.priors import LabelPrior
from surefoot.minimal import MinimalRadius, solve_minimal_radius
from surefoot.worst_case import CertifiedSolution, solve_certified
from surefoot.sets import DecisionSet, build_decision_set
from surefoot.solvers.newton import PathPoint
from surefoot.solvers.transport import solve_transport


def minimal_radius(
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    label_prior: LabelPrior | ArrayLike | str | None = None,
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classes: ArrayLike | None = None,
) -> float:
    """Smallest radius at which some distribution has the feature marginal and the label probabilities asked for.

    It equals W_d(P_X, P̂_X), plain transport between all rows and the labeled ones in feature space, plus the cheapest
    relabeling of the labeled frequencies into the intervals (for a scalar label cost κ: κ times their total variation
    distance).

    Parameters
    ----------
    X : array of shape (n, d), labeled rows; y : array of shape (n,), their labels.
    X_unlabeled : array of shape (M, d) or None
        Unlabeled rows. P_X is the empirical distribution of the rows of X and X_unlabeled together.
    sample_weight : array of shape (n,) or None
        How often each labeled row counts.
    label_prior, label_cost, metric, classes
        As in `RobustLogisticRegression`; here the default prior is None, no constraint.

    Examples
    --------
    >>> minimal_radius([[0.0], [1.0]], [0, 1], X_unlabeled=[[2.0], [3.0]])
    1.0
    """
    X, y = check_X_y(X, y, dtype=np.float64)
    U = None if X_unlabeled is None else check_same_features(X, X_unlabeled)
    weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    known, codes = encode_labels(y, classes)
    ds = build_decision_set(
        X,
        codes,
        len(known),
        X_unlabeled=U,
        sample_weight=weights,
        label_prior=label_prior,
        label_cost=label_cost,
        metric=metric,
    )
    return solve_minimal_radius(ds).value


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
    """W_c between a labeled sample and a labeled reference dataset, c = d + label cost.

    At this radius the decision set of the sample contains the reference, so a certificate bounds the loss on it.

    Parameters
    ----------
    X, y : the labeled sample, (n, d) and (n,); X_ref, y_ref : the reference, (N, d) and (N,).
    label_cost : scalar or (K, K) over the sorted labels of both; entry [k, c] turns label c of the sample into k.
    metric : as in `RobustLogisticRegression`; `Precomputed` distances have shape (N, n), reference rows by sample rows.

    Examples
    --------
    >>> transport_distance([[0.0]], [0], [[0.0], [1.0]], [0, 1])
    1.0
    """
    X, y = check_X_y(X, y, dtype=np.float64)
    X_ref, y_ref = check_X_y(X_ref, y_ref, dtype=np.float64)
    check_same_features(X, X_ref, name="X_ref")
    classes = np.unique(np.concatenate([y, y_ref]))
    kappa = label_cost_matrix(label_cost, len(classes))
    feature_metric = resolve_metric(metric)
    cost = feature_metric.distances(X_ref, X)
    cost = cost + kappa[np.ix_(np.searchsorted(classes, y_ref), np.searchsorted(classes, y))]
    sample = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    reference = _check_sample_weight(ref_weight, X_ref, ensure_non_negative=True)
    return solve_transport(np.ascontiguousarray(cost), reference / reference.sum(), sample / sample.sum()).cost


def check_same_features(X: FloatArray, other: ArrayLike, name: str = "X_unlabeled") -> FloatArray:
    """A finite (M, d) array with as many features as X."""
    array = check_array(other, dtype=np.float64, input_name=name)
    if array.shape[1] != X.shape[1]:
        raise ValueError(
            f"{name} must have as many features as X, {X.shape[1]}; got {array.shape[1]}. "
            f"Pass the same columns, in the same order, in both."
        )
    return array


def encode_labels(y: ArrayLike, classes: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """Sorted classes (K,) and the codes (n,) of y among them; `classes` may name more than y shows."""
    seen = np.unique(np.asarray(y))
    known = seen if classes is None else np.unique(np.asarray(classes))
    missing = np.setdiff1d(seen, known)
    if len(missing):
        raise ValueError(
            f"classes must contain every label of y; got classes={known.tolist()} without {missing.tolist()}. "
            "Add them, or pass classes=None."
        )
    if len(known) < 2:
        raise ValueError(
            f"y must show at least 2 classes, or classes= must name them; got 1 class, {known.tolist()}. "
            "Label a row of another class, or pass all classes as classes=[...]."
        )
    return known, np.searchsorted(known, np.asarray(y))


@dataclass(frozen=True)
class RadiusSearch:
    """Result of the as-robust-as-possible rule: the radius, its solution, and every radius tried with its confidence."""

    radius: float
    solution: CertifiedSolution
    confident: bool
    tried: list[tuple[float, float]]


def median_confidence(model: LinearModel, theta: FloatArray, weights: FloatArray) -> float:
    """Weighted median over rows of the largest class probability."""
    top = probabilities(model.scores(theta, slice(None))).max(axis=1)
    order = np.argsort(top)
    cumulative = np.cumsum(weights[order])
    return float(top[order][np.searchsorted(cumulative, 0.5 * cumulative[-1])])


def as_robust_as_possible(
    ds: DecisionSet,
    model: LinearModel,
    minimal: MinimalRadius,
    *,
    confidence: float = 0.7,
    tol: float = 1e-4,
    accuracy: float = 0.05,
    solve: Callable[..., CertifiedSolution] = solve_certified,
) -> RadiusSearch:
    """Largest radius at which the median confidence over all rows is at least `confidence` (paper, section 5.1).

    The excess over the minimal radius is bracketed by factors of 4 and then halved, on a log scale, to a relative
    `accuracy`. Every solve starts from the one before. No radius beyond the diameter of the data is tried: there the ball
    does not bind any more.
    """
    largest = float(ds.distances[ds.row_weights > 0].max() + ds.label_cost.max())
    tried: list[tuple[float, float]] = []
    last: PathPoint | None = None

    def confident(excess: float, tolerance: float) -> tuple[bool, CertifiedSolution]:
        nonlocal last
        radius = min(minimal.value + excess, largest)
        solution = solve(ds.with_radius(radius), model, tol=tolerance, minimal=minimal, warm_start=last)
        last = solution.checkpoint
        value = median_confidence(model, solution.theta, ds.row_weights)
        tried.append((radius, value))
        return value >= confidence, solution

    coarse = max(tol, 1e-3)
    low, high = 0.0, max(0.01 * minimal.value, 1e-4 * largest)
    while minimal.value + high < largest:
        enough, _ = confident(high, coarse)
        if not enough:
            break
        low, high = high, 4.0 * high
    else:
        enough, solution = confident(largest, tol)
        if enough:
            return RadiusSearch(largest, solution, True, tried)
    if low == 0.0:
        enough, solution = confident(0.0, tol)
        if not enough:
            return RadiusSearch(minimal.value, solution, False, tried)
        low = 1e-3 * high
    while high > (1.0 + accuracy) * low:
        middle = float(np.sqrt(low * high))
        enough, _ = confident(middle, coarse)
        low, high = (middle, high) if enough else (low, middle)
    _, solution = confident(low, tol)
    return RadiusSearch(minimal.value + low, solution, True, tried)
