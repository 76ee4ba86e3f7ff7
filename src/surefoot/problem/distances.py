"""Measure distances between rows and anchors, in memory or in chunks, and keep them for the rest of a task.

Inside a `shared_geometry` block, each set of rows is measured once. The fit, its certificate, the scores of the rows to
label next and the report share the distances. Outside a block, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.costs.metrics import FeatureMetric

# Distances (N, n) of rows to anchors. They need not be in memory at once.


def row_chunks(n_rows: int, n_columns: int, entries: int = 1 << 18) -> Iterator[slice]:
    """Split rows into slices. A chunk of an (n_rows, n_columns) matrix then has about `entries` entries."""
    size = max(1, entries // max(1, n_columns))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


class Distances(Protocol):
    """Distances (N, n), indexed by rows: a matrix, or distances computed on demand."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, rows: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class MeasuredDistances:
    """Distances of rows (N, d) to anchors (n, d), computed for the requested rows."""

    metric: FeatureMetric
    rows: FloatArray
    anchors: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.anchors)

    def __getitem__(self, rows: Any, /) -> FloatArray:
        return self.metric.distances(self.rows[rows], self.anchors)


class DistanceRows(Protocol):
    """Rows of distances, which can be read in order or looked up."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def chunks(self) -> Iterator[tuple[slice, FloatArray]]: ...
    def distances_at(self, rows: NDArray[np.intp]) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class HeldDistances:
    """Distances as a matrix in memory."""

    matrix: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    def chunks(self) -> Iterator[tuple[slice, FloatArray]]:
        for rows in row_chunks(*self.shape):
            yield rows, self.matrix[rows]

    def distances_at(self, rows: NDArray[np.intp]) -> FloatArray:
        return self.matrix[rows]


# The number of sets of rows whose distances are kept at once: the pool and a sample of the pool.
_MOST_KEPT = 2


@dataclass(eq=False)
class MeasuredRows:
    """Distances (N, n) of rows to labeled rows X (n, d), with the results computed from them."""

    rows: FloatArray
    X: FloatArray
    metric: FeatureMetric
    whole: FloatArray
    by_anchors: dict[bytes, FloatArray] = field(default_factory=dict)
    transports: list[tuple[FloatArray, FloatArray, FloatArray, Any]] = field(default_factory=list)

    def is_of(self, rows: FloatArray, X: FloatArray, metric: FeatureMetric) -> bool:
        same_metric = self.metric is metric or (type(metric) is type(self.metric) and metric == self.metric)
        return bool(same_metric and np.array_equal(self.X, X) and np.array_equal(self.rows, rows))

    def to(self, anchors: NDArray[np.intp]) -> FloatArray:
        """Return the distances to some of the labeled rows. Equal arguments give the same array object."""
        if np.array_equal(anchors, np.arange(len(self.X))):
            return self.whole
        key = anchors.tobytes()
        if key not in self.by_anchors:
            self.by_anchors[key] = np.ascontiguousarray(self.whole[:, anchors])
        return self.by_anchors[key]

    def holds(self, distances: FloatArray) -> bool:
        return self.whole is distances or any(part is distances for part in self.by_anchors.values())


@dataclass(eq=False)
class GeometryStore:
    """The most recently measured rows, the oldest first."""

    kept: list[MeasuredRows] = field(default_factory=list)

    def distances(
        self, metric: FeatureMetric, rows: FloatArray, X: FloatArray, anchors: NDArray[np.intp]
    ) -> FloatArray:
        """Return the distances of rows to the labeled rows X[anchors], from the store if it has them."""
        found = next((one for one in self.kept if one.is_of(rows, X, metric)), None)
        if found is None:
            found = MeasuredRows(rows, X, metric, _measure(metric, rows, X, np.arange(len(X))))
            self.kept = [*self.kept, found][-_MOST_KEPT:]
        return found.to(anchors)

    def transport(
        self,
        distances: FloatArray,
        row_weights: FloatArray,
        anchor_weights: FloatArray,
        solve: Callable[[FloatArray, FloatArray, FloatArray], Any],
    ) -> Any:
        """Return the transport between rows and anchors at these distances, from the store if it has one."""
        owner = next((one for one in self.kept if one.holds(distances)), None)
        for matrix, rows, anchors, solution in [] if owner is None else owner.transports:
            same = matrix is distances and np.array_equal(rows, row_weights)
            if same and np.array_equal(anchors, anchor_weights):
                return solution
        found = solve(distances, row_weights, anchor_weights)
        if owner is not None:
            owner.transports.append((distances, row_weights, anchor_weights, found))
        return found


_STORE: ContextVar[GeometryStore | None] = ContextVar("surefoot_geometry", default=None)


def distances_to_anchors(
    metric: FeatureMetric, rows: FloatArray, X: FloatArray, anchors: NDArray[np.intp]
) -> FloatArray:
    """Return the distances (N, m) from each row to the labeled rows X[anchors], C-contiguous."""
    store = _STORE.get()
    if store is None:
        return _measure(metric, rows, X, anchors)
    return store.distances(metric, rows, X, anchors)


def kept_transport(
    distances: FloatArray,
    row_weights: FloatArray,
    anchor_weights: FloatArray,
    solve: Callable[[FloatArray, FloatArray, FloatArray], Any],
) -> Any:
    """Return the transport between rows and anchors, from the store of the current task if it has one."""
    store = _STORE.get()
    if store is None:
        return solve(distances, row_weights, anchor_weights)
    return store.transport(distances, row_weights, anchor_weights, solve)


def _measure(metric: FeatureMetric, rows: FloatArray, X: FloatArray, anchors: NDArray[np.intp]) -> FloatArray:
    return np.ascontiguousarray(metric.labeled_distances(rows, X, anchors), dtype=np.float64)


@contextmanager
def shared_geometry(store: GeometryStore | None = None) -> Iterator[None]:
    """Keep distances and transport plans in a store until the task ends. A nested task shares the store."""
    token = _STORE.set(store or _STORE.get() or GeometryStore())
    try:
        yield
    finally:
        _STORE.reset(token)
