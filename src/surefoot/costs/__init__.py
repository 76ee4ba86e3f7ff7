"""Ground costs c((x, y), (x', y')) = d(x, x') + labelcost(y, y'): metrics, given or learned, and label costs."""

from surefoot.costs.labels import MEDIAN, label_cost_matrix
from surefoot.costs.learned import LEARNED, Learned, resolve_metric
from surefoot.costs.metrics import (
    CallableMetric,
    Chebyshev,
    Euclidean,
    FeatureMetric,
    Mahalanobis,
    Manhattan,
    Precomputed,
    Weighted,
)

__all__ = [
    "LEARNED",
    "MEDIAN",
    "CallableMetric",
    "Chebyshev",
    "Euclidean",
    "FeatureMetric",
    "Learned",
    "Mahalanobis",
    "Manhattan",
    "Precomputed",
    "Weighted",
    "label_cost_matrix",
    "resolve_metric",
]
