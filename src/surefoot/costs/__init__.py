"""Ground costs c((x, y), (x', y')) = d(x, x') + labelcost(y, y'): feature metrics and label costs."""

from surefoot.costs.learned import LearnedMetric
from surefoot.costs.metrics import (
    Chebyshev,
    Euclidean,
    Mahalanobis,
    Manhattan,
    Precomputed,
    WeightedMetric,
)

__all__ = [
    "Chebyshev",
    "Euclidean",
    "LearnedMetric",
    "Mahalanobis",
    "Manhattan",
    "Precomputed",
    "WeightedMetric",
]
