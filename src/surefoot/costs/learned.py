"""A metric learned from labels: features are weighted by their coefficients in a logistic regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from surefoot._errors import ParameterError
from surefoot._validation import (
    FloatArray,
    check_labeled_rows,
    check_more_rows,
    check_positive_scalar,
    check_weights,
    encode_labels,
)
from surefoot.costs.metrics import CallableMetric, Chebyshev, Euclidean, FeatureMetric, Manhattan, WeightedMetric

LEARNED, AUTO = "learned", "auto"
# Steps and gradient of the regression. Its coefficients have six correct digits, whatever the unit of a feature.
_MOST_STEPS, _GRADIENT = 1000, 1e-6
# Weight of the scores relative to the features, divided by √n.
_DIRECTION = 0.05


@dataclass(frozen=True)
class LearnedMetric(FeatureMetric):
    """Measure distances between standardized features weighted by their coefficients in a regression on the labels.

    The regression is logistic with a ridge penalty. The differences of its scores are added to the distance. Features
    that are unrelated to the labels then have almost no weight. The metric does not depend on the units of the
    features, unless `unit` is set. It is learned in a fit (as `metric_`) or by `learn`, from the labels and from the
    spread of each feature over all rows. If the labels show one class only, all features have the same weight.

    Parameters
    ----------
    C : float, default=0.3
        Inverse strength of the ridge penalty, as in scikit-learn's LogisticRegression on standardized features.
    shrinkage : float, default=0.0
        Constant added to each weight, in units of the root mean square of the weights. At 0 only the regression
        determines the weights. Large values make the metric Euclidean on standardized features.
    direction : float or None, default=None
        Weight of the differences of the regression scores relative to the features. None: √n/20, because more labels
        make the scores more reliable.
    unit : float or None, default=None
        Divisor of each feature, instead of its standard deviation. Use it if the scales of the features were chosen on
        purpose, as in a cleaned table. Columns of 0 and 1 and the leading directions of text then keep their own
        variation.

    Examples
    --------
    >>> import surefoot as sf
    >>> X, y = [[0.0, 3.0], [0.2, 1.0], [1.0, 2.0], [1.3, 2.0]], [0, 0, 1, 1]
    >>> metric = sf.costs.LearnedMetric().learn(X, y)
    >>> bool(metric.weights[0] > metric.weights[1])
    True
    >>> sf.RobustLogisticRegression(metric=sf.costs.LearnedMetric(C=1.0)).fit(X, y).metric_
    WeightedMetric(<2 features>)
    """

    C: float = 0.3
    shrinkage: float = 0.0
    direction: float | None = None
    unit: float | None = None

    def __post_init__(self) -> None:
        check_positive_scalar(self.C, "C")
        if self.unit is not None:
            check_positive_scalar(self.unit, "unit")
        check_positive_scalar(self.shrinkage, "shrinkage", allow_zero=True)
        if self.direction is not None:
            check_positive_scalar(self.direction, "direction", allow_zero=True)

    def learn(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_unlabeled: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> WeightedMetric:
        """Learn the metric from labels.

        Parameters
        ----------
        X : array of shape (n, d)
            Labeled rows.
        y : array of shape (n,)
            Their labels.
        X_unlabeled : array of shape (M, d) or None, default=None
            Unlabeled rows. The spread of each feature is computed over X and X_unlabeled.
        sample_weight : array of shape (n,) or None, default=None
            Number of times each labeled row counts. None: once each.

        Returns
        -------
        WeightedMetric
            The learned metric.
        """
        rows, labels = check_labeled_rows(X, y)
        weights = check_weights(sample_weight, "sample_weight", len(rows))
        codes = encode_labels(labels, None)[1]
        U = np.empty((0, rows.shape[1])) if X_unlabeled is None else X_unlabeled
        more = check_more_rows(U, "X_unlabeled", rows.shape[1])
        spread = self.spread(np.vstack([rows, more]), np.append(weights, np.ones(len(more))))
        return self.from_codes(rows, codes, weights, spread)

    def spread(self, rows: FloatArray, weights: FloatArray) -> FloatArray:
        """Compute the divisor of each feature from weighted rows; 0 for a constant feature.

        Parameters
        ----------
        rows : array of shape (N, d)
            Labeled and unlabeled rows.
        weights : array of shape (N,)
            Weight of each row.

        Returns
        -------
        array of shape (d,)
            The standard deviation, or `unit`.
        """
        spread = feature_spread(rows, weights)
        return spread if self.unit is None else np.where(spread > 0, self.unit, 0.0)

    def from_codes(
        self, rows: FloatArray, codes: NDArray[np.intp], weights: FloatArray, spread: FloatArray
    ) -> WeightedMetric:
        """Learn the metric from class codes and the spread of each feature over all rows.

        Parameters
        ----------
        rows : array of shape (n, d)
            Labeled rows.
        codes : array of shape (n,)
            Class codes.
        weights : array of shape (n,)
            Weights of the rows. Only their ratios matter.
        spread : array of shape (d,)
            Divisor of each feature. A feature with divisor 0 is ignored.

        Returns
        -------
        WeightedMetric
            The learned metric.
        """
        per_unit = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
        coef = _ridge_coefficients((rows - rows.mean(axis=0)) * per_unit, codes, weights, self.C)
        importance = np.sqrt((coef**2).sum(axis=0))
        size = np.sqrt((importance**2).mean())
        if size == 0:
            return WeightedMetric(per_unit)
        weights_found = (importance / size + self.shrinkage) / np.sqrt(1.0 + self.shrinkage)
        direction = _DIRECTION * np.sqrt(_effective(weights)) if self.direction is None else self.direction
        directions = (direction / size) * (coef * per_unit).T if direction else None
        return WeightedMetric(weights_found * per_unit, directions)

    def distances(self, rows: ArrayLike, anchors: ArrayLike) -> FloatArray:
        raise ParameterError(
            "metric",
            "must be learned before it can measure distances",
            f"{self!r}, which has seen no labels",
            "Pass metric_ of a fitted estimator, or the result of learn(X, y).",
        )


def feature_spread(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Compute the (d,) weighted standard deviations, exactly 0 for a feature that is constant up to rounding."""
    size = np.abs(rows).max(axis=0, initial=0.0)
    size[size == 0] = 1.0
    unit, share = rows / size, weights / weights.sum()
    centred = unit - share @ unit
    spread = np.sqrt(share @ centred**2)
    return np.where(spread > 1e-12, spread * size, 0.0)


def _effective(weights: FloatArray) -> float:
    """Return the effective number of labels: the number of labels of equal weight with the same variance."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def _ridge_coefficients(S: FloatArray, codes: NDArray[np.intp], weights: FloatArray, C: float) -> FloatArray:
    """Return (1, d) or (K, d), zero if there is one class. Copies of a row count as one label of their total weight."""
    kept = weights > 0
    S, codes, weights = S[kept], codes[kept], weights[kept]
    if len(np.unique(codes)) < 2:
        return np.zeros((1, S.shape[1]))
    effective = _effective(weights)
    model = LogisticRegression(C=C, tol=_GRADIENT, max_iter=_MOST_STEPS)
    coef: FloatArray = model.fit(S, codes, sample_weight=weights * (effective / weights.sum())).coef_
    return coef


_NAMED_METRICS: dict[str, Callable[[], FeatureMetric]] = {
    "euclidean": Euclidean,
    "l2": Euclidean,
    "manhattan": Manhattan,
    "l1": Manhattan,
    "cityblock": Manhattan,
    "chebyshev": Chebyshev,
    "linf": Chebyshev,
    LEARNED: LearnedMetric,
}


def resolve_metric(metric: FeatureMetric | str | Callable[[Any, Any], float]) -> FeatureMetric:
    """Return the feature metric for an instance, a name or a function.

    Parameters
    ----------
    metric : FeatureMetric, str or callable
        A metric; "euclidean" or "l2", "manhattan", "l1" or "cityblock", "chebyshev" or "linf", "learned"; or a
        function(x, x') -> float.

    Returns
    -------
    FeatureMetric
        The metric.

    Examples
    --------
    >>> resolve_metric("l1")
    Manhattan()
    """
    if isinstance(metric, FeatureMetric):
        return metric
    if isinstance(metric, str) and metric in _NAMED_METRICS:
        return _NAMED_METRICS[metric]()
    if isinstance(metric, type) and issubclass(metric, FeatureMetric):
        raise ParameterError(
            "metric", "must be an instance", f"the class {metric.__name__}", f"Pass {metric.__name__}(...)."
        )
    if callable(metric):
        return CallableMetric(metric)
    raise ParameterError(
        "metric",
        f"must be one of {', '.join(map(repr, _NAMED_METRICS))}, a FeatureMetric or a function of two vectors",
        repr(metric),
        "Pass one of them. For your own distances, pass Precomputed(matrix).",
    )
