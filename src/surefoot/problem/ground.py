"""The ground cost of a problem, settled once its rows are known: a learned metric, and a label cost in its units.

Both look at all rows, or at some of many that are spread evenly over them: the same rows wherever these lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import squareform

from surefoot._types import FloatArray
from surefoot.costs import FeatureMetric, Learned, Precomputed
from surefoot.costs.labels import MEDIAN
from surefoot.costs.learned import feature_spread
from surefoot.problem.rows import LabeledData
from surefoot.problem.sets import distinct_rows

# Rows over which the spread of a feature is taken, and rows between which distances are measured for their median.
_MOST_SEEN, _MOST_PAIRED = 10_000, 400

TakeRows = Callable[[NDArray[np.intp]], FloatArray]


@dataclass(frozen=True, eq=False)
class GroundRule:
    """How the ground cost follows from labels: kept, so that it can be learned again from some of them.

    seen, seen_weights : (m, d), (m,) rows that stand for all, the first n_labeled of them labeled.
    spread : (d,) what each feature is divided by; scaled : whether the label cost is the median distance.
    """

    learned: Learned | None
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
    learned = data.metric if isinstance(data.metric, Learned) else None
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
