"""Labeled and unlabeled rows: checks, the wrapper for pipelines, and the ground cost derived from the rows.

Spreads and median distances are computed over all rows or over evenly spaced rows, the same rows in every backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import squareform
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, validate_data

from surefoot._errors import ParameterError, PickedLabelsWarning, UnlabeledRowsWarning, see, warn_caller
from surefoot._machine import check_fits
from surefoot._validation import (
    FloatArray,
    check_labeled_rows,
    check_more_rows,
    check_weights,
    encode_labels,
    is_source,
)
from surefoot.costs.learned import AUTO, LEARNED, LearnedMetric, feature_spread, resolve_metric
from surefoot.costs.metrics import FeatureMetric, Precomputed
from surefoot.priors import LabelPrior
from surefoot.problem.sets import MEDIAN, DecisionSet, build_decision_set, distinct_rows

# Checked data: labeled rows, unlabeled rows, and their decision set.


@dataclass(frozen=True, eq=False)
class LabeledData:
    """Labeled rows (n, d), their codes (n,) and weights (n,), unlabeled rows (M, d) or None, and the metric.

    target : True if the unlabeled rows are a sample of another population. They alone then make up the feature
    marginal.
    rule : the GroundRule that derived metric and label cost. A subset of the labels can use it to derive them again.
    counts : (M,) how many times each unlabeled row counts; None means once.
    """

    rows: FloatArray
    codes: NDArray[np.intp]
    weights: FloatArray
    unlabeled: FloatArray | None
    classes: NDArray[Any]
    metric: FeatureMetric
    target: bool = False
    rule: Any = None
    counts: FloatArray | None = None

    @classmethod
    def check(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None,
        classes: ArrayLike | None,
        metric: FeatureMetric | str | Callable[..., float],
    ) -> LabeledData:
        """Check labeled rows passed to a function, and raise an error for each invalid argument."""
        rows, labels = check_labeled_rows(X, y)
        weights = check_weights(sample_weight, "sample_weight", len(rows))
        known, codes = encode_labels(labels, classes)
        return cls(rows, codes, weights, None, known, resolve_metric(metric))

    @property
    def n_labeled(self) -> int:
        return len(self.rows)

    @cached_property
    def everything(self) -> FloatArray:
        """(N, d) the rows of the feature marginal: all rows, labeled first, or the rows of the target population."""
        if self.unlabeled is None:
            return self.counted_rows
        return self.unlabeled if self.target else np.vstack([self.rows, self.unlabeled])

    @property
    def counted_rows(self) -> FloatArray:
        """The labeled rows in the feature marginal: all of them, or none if there is a target population."""
        return self.rows[:0] if self.target else self.rows

    @property
    def counted_weights(self) -> FloatArray:
        """The weights of the labeled rows in the feature marginal."""
        return self.weights[:0] if self.target else self.weights

    def decision_set(
        self, label_prior: LabelPrior | ArrayLike | str | None, label_cost: ArrayLike, radius: float = np.inf
    ) -> DecisionSet:
        return build_decision_set(
            self.rows,
            self.codes,
            len(self.classes),
            X_unlabeled=self.unlabeled,
            unlabeled_weights=self.counts,
            sample_weight=self.weights,
            radius=radius,
            label_prior=label_prior,
            label_cost=label_cost,
            metric=self.metric,
            target=self.target,
        )

    def distances_between_labeled(self) -> FloatArray:
        """(n, n) distances between labeled rows."""
        if isinstance(self.metric, Precomputed):
            if self.target:
                raise ParameterError(
                    "radius",
                    "can be estimated from distances between labeled rows only",
                    "precomputed distances to X_target",
                    "Pass a number as $radius, or a metric.",
                )
            return self.metric.matrix[: len(self.rows)]
        n = len(self.rows)
        fix = "Pass a number as radius, or estimate one by calibrate_radius on a random sample of the labeled rows."
        check_fits(n, n, "the distances between labeled rows, from which a radius is estimated,", fix)
        return self.metric.distances(self.rows, self.rows)


def fingerprints(rows: FloatArray) -> NDArray[np.uint64]:
    """Return (N,) a 64-bit number per row. Equal rows have equal numbers."""
    bits = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # −0.0 becomes 0.0
    mixed = (bits ^ (bits >> np.uint64(31))) * fingerprint_factors(rows.shape[1])
    return np.asarray((mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64))


def fingerprint_factors(n_features: int) -> NDArray[np.uint64]:
    """Return (d,) odd numbers, one per feature."""
    half = np.random.default_rng(20211).integers(1 << 63, size=n_features, dtype=np.uint64)
    return half * np.uint64(2) + np.uint64(1)


# The most rows used for the spread of a feature, for the median distance, and for the median distance of a half-split.
_MOST_SEEN, _MOST_PAIRED, PAIRED_IN_SPLITS = 10_000, 400, 200

TakeRows = Callable[[NDArray[np.intp]], FloatArray]


@dataclass(frozen=True, eq=False)
class GroundRule:
    """The rule that derives the ground cost from labels. It is kept so that a subset of the labels can use it.

    seen, seen_weights : (m, d), (m,) rows that represent all rows. The first n_labeled rows are labeled.
    spread : (d,) the divisor of each feature; scaled : True if the label cost is the median distance.
    """

    learned: LearnedMetric | None
    scaled: bool
    seen: FloatArray
    seen_weights: FloatArray
    spread: FloatArray
    n_labeled: int

    def metric(self, data: LabeledData, some: NDArray[np.intp], codes: NDArray[np.intp]) -> FeatureMetric:
        """Derive the metric from a subset of the labeled rows, with class codes (n,)."""
        if self.learned is None:
            return data.metric
        rows, labels = data.rows[some], codes[some]
        first, weights = distinct_rows(rows, labels, data.weights[some])  # copies are one label with more weight
        return self.learned.from_codes(rows[first], labels[first], weights, self.spread)

    @property
    def unit(self) -> float | None:
        """The common divisor of all features, or None if the metric has none."""
        return None if self.learned is None else self.learned.unit

    def label_cost(self, metric: FeatureMetric, most: int = _MOST_PAIRED) -> float:
        """Return the median distance between rows, from pairs of at most `most` rows."""
        return median_distance(metric, self.seen, self.seen_weights, most)


def settle_ground_cost(
    data: LabeledData, label_cost: ArrayLike, n_rows: int, take: TakeRows
) -> tuple[LabeledData, ArrayLike]:
    """Return labeled rows with a metric that can measure distances, and a numeric label cost.

    n_rows : the number of all rows, labeled first, including labeled rows outside the feature marginal; take : returns
    the rows at ascending indices.
    """
    learned = data.metric if isinstance(data.metric, LearnedMetric) else None
    scaled = is_median(label_cost)
    if learned is None and not scaled:
        return data, label_cost
    chosen = evenly_spread(n_rows, _MOST_SEEN)
    seen = take(chosen)
    weights = np.append(data.weights, np.ones(n_rows - len(data.rows)))[chosen]
    n_labeled = int(np.searchsorted(chosen, len(data.rows)))
    spread = feature_spread(seen, weights) if learned is None else learned.spread(seen, weights)
    rule = GroundRule(learned, scaled, seen, weights, spread, n_labeled)
    data = replace(data, metric=rule.metric(data, np.arange(len(data.rows)), data.codes), rule=rule)
    return data, rule.label_cost(data.metric) if scaled else label_cost


def choose_ground_cost(label_cost: Any, metric: Any, *, from_data: bool) -> tuple[Any, Any]:
    """Return label cost and metric. "auto" takes their scales from the data, or from the units of the features.

    A numeric radius is in the units of the features. A radius derived from the data needs no units.
    """
    if isinstance(label_cost, str) and label_cost == AUTO:
        label_cost = MEDIAN if from_data else 1.0
    if isinstance(metric, str) and metric == AUTO:
        metric = LEARNED if from_data else "euclidean"
    return label_cost, metric


def is_median(label_cost: Any) -> bool:
    """Return True if the label cost is derived from the distances."""
    return isinstance(label_cost, str) and label_cost == MEDIAN


def evenly_spread(n_rows: int, most: int) -> NDArray[np.intp]:
    """Return ascending, evenly spaced indices of at most `most` rows."""
    if n_rows <= most:
        return np.arange(n_rows)
    return np.linspace(0, n_rows - 1, most).astype(np.intp)


def median_distance(metric: FeatureMetric, rows: FloatArray, weights: FloatArray, most: int = _MOST_PAIRED) -> float:
    """Return the weighted median distance between distinct rows, or 1 if all rows are equal.

    Pairs at distance 0 do not count, so a row of weight 2 is equivalent to two copies of the row.
    """
    if isinstance(metric, Precomputed):  # precomputed distances reach the labeled rows only
        known = metric.matrix[evenly_spread(len(metric.matrix), _MOST_SEEN)]
        counted = weights[-len(known) :]  # with a target population, labeled rows come first and have no distances
        distances, pairs = known.ravel(), np.repeat(counted, known.shape[1])
    else:
        some = evenly_spread(len(rows), most)
        between = metric.distances(rows[some], rows[some])
        distances = squareform(np.maximum(between, between.T), checks=False)
        products = np.outer(weights[some], weights[some])
        np.fill_diagonal(products, 0.0)
        pairs = squareform(products, checks=False)
    kept = (distances > 0) & (pairs > 0)
    if not kept.any():
        return 1.0
    distances, pairs = distances[kept], pairs[kept]
    if pairs.min() == pairs.max():
        middle = (len(distances) - 1) // 2
        return float(np.partition(distances, middle)[middle])
    order = np.argsort(distances)
    cumulative = np.cumsum(pairs[order])
    return float(distances[order][np.searchsorted(cumulative, 0.5 * cumulative[-1])])


# With fewer rows than this, the median and the spread of a feature are too noisy to compare.
_ENOUGH_ROWS = 10
# At most this many unlabeled rows, sampled at random, are compared with the labeled rows.
COMPARED = 2000
# Interquartile ranges that differ by more than this factor suggest different units.
_SPREAD_RATIO = 10.0
# A warning requires that more than this share of the features differs.
_SHARE = 0.2

UNLABELED, TARGET = "X_unlabeled", "X_target"
_FIX = (
    'A Pipeline scales {name} only with Pipeline(..., transform_input=["{name}"]). If the rows really '
    "differ that much, ignore this warning."
)


class Unlabeled(tuple[Any]):
    """Unlabeled rows that cross-validation passes on whole and that a pipeline still transforms.

    `cross_validate(..., params={"X_unlabeled": U})` splits U into folds if U and X have equally many rows.
    `Unlabeled(U)` has length 1, so it is passed on whole. It is a tuple because a Pipeline with
    `transform_input=["X_unlabeled"]` transforms the elements of a tuple one by one. The Pipeline passes on a plain
    tuple, which `fit` also accepts.

    Parameters
    ----------
    rows : array of shape (M, d)
        Unlabeled rows.

    Examples
    --------
    >>> from surefoot import Unlabeled
    >>> U = Unlabeled([[0.1], [0.9]])
    >>> len(U), U.rows
    (1, [[0.1], [0.9]])
    """

    __slots__ = ()

    def __new__(cls, rows: Any) -> Unlabeled:
        return super().__new__(cls, (rows,))

    @property
    def rows(self) -> Any:
        """The rows as passed to the constructor."""
        return self[0]

    def __getnewargs__(self) -> tuple[Any]:
        # A copy or a pickle would call the class with the tuple.
        return (self.rows,)

    def __repr__(self) -> str:
        return f"Unlabeled(<{np.shape(self.rows)[0]} rows>)"


def unwrap(X_unlabeled: Any) -> tuple[Any, bool]:
    """Return the rows, and True if they came in an Unlabeled or in the 1-tuple that a Pipeline makes from one."""
    if isinstance(X_unlabeled, Unlabeled):
        return X_unlabeled.rows, True
    # A tuple of one vector is a matrix of one row, not a wrapper.
    if isinstance(X_unlabeled, tuple) and len(X_unlabeled) == 1 and np.ndim(X_unlabeled[0]) == 2:
        return X_unlabeled[0], True
    return X_unlabeled, False


def move_unlabeled(
    X: Any, y: Any, sample_weight: Any, X_unlabeled: Any, classes: ArrayLike | None
) -> tuple[Any, Any, Any, Any]:
    """Return the labeled rows with their labels and weights, and all unlabeled rows.

    Unlabeled rows of X (see `is_unlabeled`) come before the rows of X_unlabeled.
    """
    if y is None or np.asarray(y).size != _num_samples(X):
        return X, y, sample_weight, X_unlabeled  # rejected later
    missing = is_unlabeled(y, classes)
    if not missing.any():
        return X, y, sample_weight, X_unlabeled
    if missing.all():
        raise ParameterError("y", "must hold a label", f"{len(missing)} rows without one", "Label rows of two classes.")
    labels = np.asarray(y).ravel()[~missing]
    rows, more = (_safe_indexing(X, np.flatnonzero(chosen)) for chosen in (~missing, missing))
    weights = None if sample_weight is None else np.asarray(sample_weight)[~missing]
    bare = unwrap(X_unlabeled)[0]
    if bare is not None:
        if is_source(bare) or hasattr(bare, "__dask_graph__"):
            raise ParameterError(
                "y",
                "must hold a label for each row if X_unlabeled is not in memory",
                f"{int(missing.sum())} rows without one",
                "Pass all rows without a label in X_unlabeled.",
            )
        more = np.vstack([np.asarray(more), np.asarray(bare)])
    # convert an array of objects to the type of its labels
    return rows, np.array(labels.tolist()) if labels.dtype == object else labels, weights, Unlabeled(more)


def is_unlabeled(y: ArrayLike, classes: ArrayLike | None = None) -> NDArray[np.bool_]:
    """Return a mask (n,) of the missing labels: None, NaN, and -1 as in scikit-learn.

    -1 is a class if `classes` contains it, or, without `classes`, if the labels are -1 and 1, a common coding.
    """
    labels = np.asarray(y).ravel()
    missing = np.array([label is None or label != label for label in labels], dtype=bool)  # noqa: PLR0124 - NaN
    if labels.dtype.kind not in "ifO":
        return missing
    numbers = np.array([isinstance(label, int | float | np.number) and label == -1 for label in labels], dtype=bool)
    others = set(labels[~missing & ~numbers].tolist())
    is_class = others <= {1} if classes is None else -1 in np.ravel(classes).tolist()
    return missing if is_class else missing | numbers


def choose_marginal(X_unlabeled: Any, X_target: Any) -> tuple[Any, str]:
    """Return the rows of the feature marginal (without labeled rows), and the name of their argument.

    If both arguments are given, the unlabeled rows are not used, and a warning reports this.
    """
    if X_target is None:
        return X_unlabeled, UNLABELED
    if X_unlabeled is not None:
        warn_caller(
            UnlabeledRowsWarning(
                "unused_rows",
                "X_target alone makes up the feature marginal, so X_unlabeled is not used.",
                "Omit X_unlabeled, or pass all rows of the target population as X_target.",
            )
        )
    return X_target, TARGET


def check_unlabeled(estimator: Any, X: FloatArray, rows: Any, name: str = UNLABELED) -> FloatArray:
    """Check that rows (M, d) have the columns of X (n, d), on which the estimator was fitted."""
    try:
        validate_data(estimator, rows, reset=False, skip_check_array=True, ensure_2d=False)  # names of columns
    except ValueError as error:
        raise ParameterError(name, "must have the columns of X, in the same order", None, str(error)) from error
    return check_more_rows(rows, name, X.shape[1])


def warn_about_unlabeled(
    X: FloatArray, U: FloatArray, n_unlabeled: int, *, wrapped: bool, name: str = UNLABELED
) -> None:
    """Warn if the unlabeled rows show one of two common mistakes. U may be a sample of the rows."""
    if not wrapped:
        _warn_if_cut_by_folds(len(X), n_unlabeled, name)
    _warn_if_scaled_apart(X, U, name)


def _warn_if_cut_by_folds(n_labeled: int, n_unlabeled: int, name: str) -> None:
    """Warn about equal lengths: `cross_validate` splits every parameter that is as long as X, including X_unlabeled."""
    if n_labeled == n_unlabeled:
        warn_caller(
            UnlabeledRowsWarning(
                "cut_by_folds",
                f"{name} has as many rows as X ({n_labeled}).",
                f"If this fit runs inside cross_validate or a search, {name} was split into folds like X. Pass "
                f"surefoot.Unlabeled({name}) instead, which is not split." + see("unlabeled rows"),
                n_rows=n_labeled,
            )
        )


def _warn_if_scaled_apart(X: FloatArray, U: FloatArray, name: str) -> None:
    """Warn about different scales: a pipeline without transform_input scales X, but not X_unlabeled."""
    if len(X) < _ENOUGH_ROWS or len(U) == 0:
        return
    if len(U) > COMPARED:
        U = U[np.random.default_rng(0).choice(len(U), COMPARED, replace=False)]
    moved = _share_moved(X, U)
    if moved > _SHARE:
        warn_caller(
            UnlabeledRowsWarning(
                "moved_features",
                f"in {moved:.0%} of the features the median of {name} lies farther from that of X than the whole "
                "range of X.",
                _FIX.format(name=name) + see("unlabeled rows"),
                share=moved,
            )
        )
        return
    stretched = _share_stretched(X, U) if len(U) >= _ENOUGH_ROWS else 0.0
    if stretched > _SHARE:
        warn_caller(
            UnlabeledRowsWarning(
                "stretched_features",
                f"in {stretched:.0%} of the features the interquartile range of {name} and that of X differ by a "
                f"factor of more than {_SPREAD_RATIO:.0f}.",
                _FIX.format(name=name) + see("unlabeled rows"),
                share=stretched,
            )
        )


def _share_moved(X: FloatArray, U: FloatArray) -> float:
    """Return the share of features, among those that vary in X, whose medians differ by more than the range of X."""
    span = np.ptp(X, axis=0)
    apart = np.abs(np.median(U, axis=0) - np.median(X, axis=0)) > span
    return float(apart[span > 0].mean()) if (span > 0).any() else 0.0


def _share_stretched(X: FloatArray, U: FloatArray) -> float:
    """Return the share of features whose interquartile ranges, if both are positive, differ by over _SPREAD_RATIO."""
    ours, theirs = (np.subtract(*np.quantile(rows, [0.75, 0.25], axis=0)) for rows in (X, U))
    spread = (ours > 0) & (theirs > 0)
    apart = (theirs > _SPREAD_RATIO * ours) | (ours > _SPREAD_RATIO * theirs)
    return float((apart & spread).mean())


# The test of whether labels are a random sample: the most labeled rows, unlabeled rows and cells of unlabeled rows, the
# number of relabelings, and the p-value up to which it warns.
_MOST_LABELED, _MOST_UNLABELED, _MOST_CELLS, _RELABELINGS, PICKED_AT = 200, 600, 200_000, 399, 0.02
# Standardized features are clipped at this value, so that no outlier decides the test.
_MOST_DEVIATIONS = 4.0


def warn_if_picked(X: Any, U: Any, weights: FloatArray | None = None) -> None:
    """Warn if the labeled rows do not look like a random sample of all rows. Weighted labels are not tested."""
    weighted = weights is not None and bool(np.ptp(weights) > 0)
    p_value = None if U is None or weighted else sample_p_value(X, U)
    if p_value is not None and p_value <= PICKED_AT:
        warn_caller(
            PickedLabelsWarning(
                "picked_labels",
                f"the {len(X)} labeled rows do not look like a random sample of all rows (p-value {p_value:.3g}). "
                "Bounds and radii estimated from these labels do not hold for rows that are sampled differently.",
                "Label a random sample, or audit one. If the labels come from another population, pass your rows as "
                "$X_target." + see("picked labels"),
                n_labels=len(X),
                p_value=p_value,
            )
        )


def sample_p_value(X: Any, U: Any) -> float | None:
    """Test whether labeled rows X are a random sample of all rows, given unlabeled rows U. Return the p-value.

    If there are many rows, the test uses a random sample. It returns None for few rows, and for cells that are not
    finite.
    """
    n, M = np.shape(X)[0], np.shape(U)[0]
    if min(n, M) < _ENOUGH_ROWS:
        return None
    rng = np.random.default_rng(0)
    most = max(_MOST_LABELED, min(_MOST_UNLABELED, _MOST_CELLS // np.shape(X)[1]))
    X, U = _some_numbers(X, _MOST_LABELED, rng), _some_numbers(U, most, rng)
    return None if X is None or U is None else permutation_p_value(X, U, rng)


def _some_numbers(rows: Any, most: int, rng: np.random.Generator) -> FloatArray | None:
    """Return at most `most` random rows, or None if some of their cells are not finite numbers."""
    n_rows = np.shape(rows)[0]
    if n_rows > most:
        rows = _safe_indexing(rows, np.sort(rng.choice(n_rows, most, replace=False)))
    found = np.asarray(rows)
    if found.ndim != 2 or found.dtype.kind not in "fiub" or not np.isfinite(found).all():
        return None
    return found.astype(np.float64, copy=False)


def permutation_p_value(X: FloatArray, U: FloatArray, rng: np.random.Generator) -> float:
    """Compute a permutation p-value from the energy distance between rows X (n, d) and U (M, d).

    The observed distance is compared with the distances for random choices of n of these rows, between standardized
    features. If every choice of n rows was equally likely, the p-value is at most p with probability at most p.
    """
    rows = np.vstack([X, U])
    N, n = len(rows), len(X)
    spread = feature_spread(rows, np.ones(N))
    unit = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    unit = np.clip(unit, -_MOST_DEVIATIONS, _MOST_DEVIATIONS).astype(np.float32)
    squares = np.square(unit).sum(axis=1)
    between = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * (unit @ unit.T), 0.0))
    # one column per choice of n rows: 1/n for the chosen rows, −1/(N − n) for the rest. The actual labels come first
    choices = np.full((N, 1 + _RELABELINGS), -1.0 / (N - n), dtype=np.float32)
    choices[:n, 0] = 1.0 / n
    for column in range(1, 1 + _RELABELINGS):
        choices[rng.permutation(N)[:n], column] = 1.0 / n
    energy = -np.einsum("ij,ij->j", choices, between @ choices)
    return float(np.mean(energy >= energy[0]))
