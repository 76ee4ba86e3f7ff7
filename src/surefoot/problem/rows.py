"""Labeled and unlabeled rows: checked, wrapped for pipelines, and the ground cost that they settle.

Spreads and median distances are taken over all rows, or over a sample spread evenly over them: the same rows for every
backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import squareform
from sklearn.utils.validation import validate_data

from surefoot._errors import ParameterError, UnlabeledRowsWarning, see, warn_caller
from surefoot._machine import check_fits
from surefoot._validation import FloatArray, check_labeled_rows, check_more_rows, check_weights, encode_labels
from surefoot.costs import FeatureMetric, LearnedMetric, Precomputed
from surefoot.costs.learned import feature_spread, resolve_metric
from surefoot.priors import LabelPrior
from surefoot.problem.sets import MEDIAN, DecisionSet, build_decision_set, distinct_rows

# Checked data: labeled rows, unlabeled rows, and the decision set they span.


@dataclass(frozen=True, eq=False)
class LabeledData:
    """Labeled rows (n, d), their codes (n,) and weights (n,), unlabeled rows (M, d) or None, and the metric.

    target : whether the unlabeled rows are those of another population, and alone make up the feature marginal.
    rule : the GroundRule by which metric and label cost were found, so that some of the labels can find them again.
    """

    rows: FloatArray
    codes: NDArray[np.intp]
    weights: FloatArray
    unlabeled: FloatArray | None
    classes: NDArray[Any]
    metric: FeatureMetric
    target: bool = False
    rule: Any = None

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
        """Labeled rows as arguments of a function, each refused with the rule that it breaks."""
        rows, labels = check_labeled_rows(X, y)
        weights = check_weights(sample_weight, "sample_weight", len(rows))
        known, codes = encode_labels(labels, classes)
        return cls(rows, codes, weights, None, known, resolve_metric(metric))

    @property
    def n_labeled(self) -> int:
        return len(self.rows)

    @cached_property
    def everything(self) -> FloatArray:
        """(N, d) the rows of the feature marginal: all, the labeled ones first; or those of the target population."""
        if self.unlabeled is None:
            return self.counted_rows
        return self.unlabeled if self.target else np.vstack([self.rows, self.unlabeled])

    @property
    def counted_rows(self) -> FloatArray:
        """The labeled rows that count in the feature marginal: all, or none beside a target population."""
        return self.rows[:0] if self.target else self.rows

    @property
    def counted_weights(self) -> FloatArray:
        """Their weights."""
        return self.weights[:0] if self.target else self.weights

    def decision_set(
        self, label_prior: LabelPrior | ArrayLike | str | None, label_cost: ArrayLike, radius: float = np.inf
    ) -> DecisionSet:
        return build_decision_set(
            self.rows,
            self.codes,
            len(self.classes),
            X_unlabeled=self.unlabeled,
            sample_weight=self.weights,
            radius=radius,
            label_prior=label_prior,
            label_cost=label_cost,
            metric=self.metric,
            target=self.target,
        )

    def distances_between_labeled(self) -> FloatArray:
        """(n, n)."""
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
    """(N,) a 64-bit number per row, equal for equal rows."""
    bits = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # −0.0 becomes 0.0
    mixed = (bits ^ (bits >> np.uint64(31))) * fingerprint_factors(rows.shape[1])
    return np.asarray((mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64))


def fingerprint_factors(n_features: int) -> NDArray[np.uint64]:
    """(d,) odd numbers, one per feature."""
    half = np.random.default_rng(20211).integers(1 << 63, size=n_features, dtype=np.uint64)
    return half * np.uint64(2) + np.uint64(1)


# Rows over which the spread of a feature is taken, and rows between which distances are measured for their median.
_MOST_SEEN, _MOST_PAIRED = 10_000, 400

TakeRows = Callable[[NDArray[np.intp]], FloatArray]


@dataclass(frozen=True, eq=False)
class GroundRule:
    """How the ground cost follows from labels: kept, so that it can be learned again from some of them.

    seen, seen_weights : (m, d), (m,) rows that stand for all, the first n_labeled of them labeled.
    spread : (d,) what each feature is divided by; scaled : whether the label cost is the median distance.
    """

    learned: LearnedMetric | None
    scaled: bool
    seen: FloatArray
    seen_weights: FloatArray
    spread: FloatArray
    n_labeled: int

    def metric(self, data: LabeledData, some: NDArray[np.intp], codes: NDArray[np.intp]) -> FeatureMetric:
        """The metric of some of the labeled rows, with these class codes (n,)."""
        if self.learned is None:
            return data.metric
        rows, labels = data.rows[some], codes[some]
        first, weights = distinct_rows(rows, labels, data.weights[some])  # copies are one label of more weight
        return self.learned.from_codes(rows[first], labels[first], weights, self.spread)

    @property
    def unit(self) -> float | None:
        """What all features are divided by, if the metric says so."""
        return None if self.learned is None else self.learned.unit

    def label_cost(self, metric: FeatureMetric) -> float:
        """The median distance between rows."""
        return median_distance(metric, self.seen, self.seen_weights)


def settle_ground_cost(
    data: LabeledData, label_cost: ArrayLike, n_rows: int, take: TakeRows
) -> tuple[LabeledData, ArrayLike]:
    """Labeled rows with a metric that can measure, and a label cost in numbers.

    n_rows : all, the labeled ones first, whether or not these count in the feature marginal; take : these rows, by
    ascending indices.
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


def is_median(label_cost: Any) -> bool:
    """Whether a label cost is to follow from the distances."""
    return isinstance(label_cost, str) and label_cost == MEDIAN


def evenly_spread(n_rows: int, most: int) -> NDArray[np.intp]:
    """Ascending indices of at most so many rows."""
    if n_rows <= most:
        return np.arange(n_rows)
    return np.linspace(0, n_rows - 1, most).astype(np.intp)


def median_distance(metric: FeatureMetric, rows: FloatArray, weights: FloatArray) -> float:
    """Weighted median of the distances between rows that differ; 1 where none do.

    Pairs at distance 0 do not count: so it makes no difference whether a row has weight 2 or is there twice.
    """
    if isinstance(metric, Precomputed):  # known to the labeled rows only
        known = metric.matrix[evenly_spread(len(metric.matrix), _MOST_SEEN)]
        counted = weights[-len(known) :]  # beside a target population labeled rows come first, and have no distances
        distances, pairs = known.ravel(), np.repeat(counted, known.shape[1])
    else:
        some = evenly_spread(len(rows), _MOST_PAIRED)
        between = metric.distances(rows[some], rows[some])
        distances = squareform(np.maximum(between, between.T), checks=False)
        products = np.outer(weights[some], weights[some])
        np.fill_diagonal(products, 0.0)
        pairs = squareform(products, checks=False)
    kept = (distances > 0) & (pairs > 0)
    if not kept.any():
        return 1.0
    order = np.argsort(distances[kept])
    cumulative = np.cumsum(pairs[kept][order])
    return float(distances[kept][order][np.searchsorted(cumulative, 0.5 * cumulative[-1])])


# Fewer rows than this say too little about where a feature lies, and how widely.
_ENOUGH_ROWS = 10
# So many of the unlabeled rows, drawn at random, are compared with the labeled ones.
COMPARED = 2000
# Interquartile ranges that differ by more than this factor are taken for different units.
_SPREAD_RATIO = 10.0
# A warning needs more than this share of the features.
_SHARE = 0.2

UNLABELED, TARGET = "X_unlabeled", "X_target"
_FIX = (
    'A Pipeline scales {name} only if told so: Pipeline(..., transform_input=["{name}"]). If the rows do '
    "differ that much, ignore this warning."
)


class Unlabeled(tuple[Any]):
    """Unlabeled rows that no cross-validation splits, and that a pipeline still transforms.

    `cross_validate(..., params={"X_unlabeled": U})` cuts U into folds whenever it has as many rows as X. Wrapped,
    `Unlabeled(U)` has length 1 and is passed on whole. It is a tuple because a Pipeline with
    `transform_input=["X_unlabeled"]` transforms the elements of a tuple one by one, and hands on a plain tuple, which
    `fit` takes too.

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
        """The rows as they were given."""
        return self[0]

    def __getnewargs__(self) -> tuple[Any]:
        # A copy or a pickle would call the class with the tuple.
        return (self.rows,)

    def __repr__(self) -> str:
        return f"Unlabeled(<{np.shape(self.rows)[0]} rows>)"


def unwrap(X_unlabeled: Any) -> tuple[Any, bool]:
    """The rows, and whether they came in an Unlabeled, or in the tuple of one matrix that a Pipeline makes of it."""
    if isinstance(X_unlabeled, Unlabeled):
        return X_unlabeled.rows, True
    # A tuple of one vector is a matrix of one row, not a wrapper.
    if isinstance(X_unlabeled, tuple) and len(X_unlabeled) == 1 and np.ndim(X_unlabeled[0]) == 2:
        return X_unlabeled[0], True
    return X_unlabeled, False


def choose_marginal(X_unlabeled: Any, X_target: Any) -> tuple[Any, str]:
    """The rows that make up the feature marginal, with the labeled ones or (those of a target) alone, and their name.

    Where both are given, the unlabeled rows of the labels' own population take no part, and a warning says so.
    """
    if X_target is None:
        return X_unlabeled, UNLABELED
    if X_unlabeled is not None:
        warn_caller(
            UnlabeledRowsWarning(
                "unused_rows",
                "the feature marginal is that of X_target alone: the rows of X_unlabeled take no part.",
                "Leave them out, or pass all rows of the population to judge as X_target.",
            )
        )
    return X_target, TARGET


def check_unlabeled(estimator: Any, X: FloatArray, rows: Any, name: str = UNLABELED) -> FloatArray:
    """Rows (M, d) with the columns of X (n, d), which the estimator has seen."""
    try:
        validate_data(estimator, rows, reset=False, skip_check_array=True, ensure_2d=False)  # names of columns
    except ValueError as error:
        raise ParameterError(name, "must have the columns of X, in the same order", None, str(error)) from error
    return check_more_rows(rows, name, X.shape[1])


def warn_about_unlabeled(
    X: FloatArray, U: FloatArray, n_unlabeled: int, *, wrapped: bool, name: str = UNLABELED
) -> None:
    """A warning where one of the two traps seems to have caught the unlabeled rows; U may be a sample of them."""
    if not wrapped:
        _warn_if_cut_by_folds(len(X), n_unlabeled, name)
    _warn_if_scaled_apart(X, U, name)


def _warn_if_cut_by_folds(n_labeled: int, n_unlabeled: int, name: str) -> None:
    """`cross_validate` slices every parameter that is as long as X, X_unlabeled too."""
    if n_labeled == n_unlabeled:
        warn_caller(
            UnlabeledRowsWarning(
                "cut_by_folds",
                f"{name} has as many rows as X ({n_labeled}).",
                "If this fit runs inside cross_validate or a search, it has been cut into folds along with X: pass "
                f"surefoot.Unlabeled({name}) instead, which is passed on whole." + see("unlabeled rows"),
                n_rows=n_labeled,
            )
        )


def _warn_if_scaled_apart(X: FloatArray, U: FloatArray, name: str) -> None:
    """A pipeline without transform_input scales X and leaves X_unlabeled as it was: compare medians, then spreads."""
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
    """Share of the features, of those that vary in X, whose medians differ by more than the range of X."""
    span = np.ptp(X, axis=0)
    apart = np.abs(np.median(U, axis=0) - np.median(X, axis=0)) > span
    return float(apart[span > 0].mean()) if (span > 0).any() else 0.0


def _share_stretched(X: FloatArray, U: FloatArray) -> float:
    """Share of the features whose interquartile ranges, where neither is 0, differ by more than _SPREAD_RATIO."""
    ours, theirs = (np.subtract(*np.quantile(rows, [0.75, 0.25], axis=0)) for rows in (X, U))
    spread = (ours > 0) & (theirs > 0)
    apart = (theirs > _SPREAD_RATIO * ours) | (ours > _SPREAD_RATIO * theirs)
    return float((apart & spread).mean())
