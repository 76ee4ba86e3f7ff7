"""Distances and plain transport, kept while one task asks for them several times: a labeling round, a command.

Within `shared_geometry` rows that were measured before are not measured again: the fit, its certificate, the scores of
the rows to label next and the report speak of the same distances. Outside of it nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.costs import FeatureMetric

# Measured sets of rows that are kept at a time: the pool, and a sample of it.
_MOST_KEPT = 2


@dataclass(eq=False)
class Measured:
    """Distances (N, n) of rows to anchors, and the transport problems between them that were solved."""

    rows: FloatArray
    anchors: FloatArray
    metric: FeatureMetric
    distances: FloatArray
    solved: list[tuple[FloatArray, FloatArray, Any]] = field(default_factory=list)

    def is_of(self, rows: FloatArray, anchors: FloatArray, metric: FeatureMetric) -> bool:
        same_metric = self.metric is metric or (type(metric) is type(self.metric) and metric == self.metric)
        return bool(same_metric and np.array_equal(self.anchors, anchors) and np.array_equal(self.rows, rows))


@dataclass(eq=False)
class GeometryStore:
    """What was measured last, the oldest first."""

    kept: list[Measured] = field(default_factory=list)

    def measured(
        self, rows: FloatArray, anchors: FloatArray, metric: FeatureMetric, measure: Callable[[], FloatArray]
    ) -> FloatArray:
        """Distances of rows to anchors, computed where they are not kept."""
        found = next((one for one in self.kept if one.is_of(rows, anchors, metric)), None)
        if found is None:
            found = Measured(rows, anchors, metric, measure())
            self.kept = [*self.kept[1 - _MOST_KEPT :], found] if len(self.kept) >= _MOST_KEPT else [*self.kept, found]
        return found.distances

    def transport(
        self,
        distances: FloatArray,
        row_weights: FloatArray,
        anchor_weights: FloatArray,
        solve: Callable[[FloatArray, FloatArray, FloatArray], Any],
    ) -> Any:
        """Transport between rows and anchors of these distances, solved where it is not kept."""
        owner = next((one for one in self.kept if one.distances is distances), None)
        for mine, theirs, solution in [] if owner is None else owner.solved:
            if np.array_equal(mine, row_weights) and np.array_equal(theirs, anchor_weights):
                return solution
        found = solve(distances, row_weights, anchor_weights)
        if owner is not None:
            owner.solved.append((row_weights, anchor_weights, found))
        return found


_STORE: ContextVar[GeometryStore | None] = ContextVar("surefoot_geometry", default=None)


def current_geometry() -> GeometryStore:
    """The store of the task in progress, or one that is forgotten at once."""
    return _STORE.get() or GeometryStore()


@contextmanager
def shared_geometry(store: GeometryStore | None = None) -> Iterator[GeometryStore]:
    """Keep distances and transport plans, in this store, until the task ends; a task inside a task shares its store."""
    outer = _STORE.get()
    token = _STORE.set(store or outer or GeometryStore())
    try:
        yield current_geometry()
    finally:
        _STORE.reset(token)


def distances_to_anchors(
    metric: FeatureMetric, rows: FloatArray, X: FloatArray, anchors: NDArray[np.intp]
) -> FloatArray:
    """Distances (N, m) from each row to the labeled rows X[anchors], C-contiguous."""
    return current_geometry().measured(
        rows,
        X[anchors],
        metric,
        lambda: np.ascontiguousarray(metric.labeled_distances(rows, X, anchors), dtype=np.float64),
    )
