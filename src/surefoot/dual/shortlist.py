"""Short lists: of each row and class the few anchors that can have a weight in the softmax plan.

At a small τ a plan gives a row to a few anchors; the others have weights below rounding error. Rows for which α and β
have moved too far since a list was made, for that to be certain, ask all anchors: sums over lists and over all anchors
agree but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.dual.point import DualPoint
from surefoot.problem.distances import Distances
from surefoot.problem.sets import DecisionSet

# Anchors whose α d + β lies above the least by this multiple of τ have weights below rounding error.
NEGLIGIBLE = 36.0
# A list reaches this multiple of τ further than it must: about as far as α and β move before the next one.
_REACH = 36.0
# Lists of more than this share of all pairs are not worth their while; nor are those of few pairs, or few anchors.
_LARGEST_SHARE, _FEWEST_ANCHORS, _FEWEST_PAIRS = 0.2, 48, 1 << 16
# A list is made anew where it fails for this share of the rows, or where τ has fallen to this share.
_MOST_FAILED, _STALE = 0.02, 0.3
# Where lists were too long, they are tried again once τ has fallen to this share.
_RETRY = 0.7


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Anchors (L,) and distances (L,) of each row and class, at starts (N·C+1,); made at α, β (n,) and τ.

    limits : (N, C) all anchors whose α d + β lies below are listed; class_starts : (C,) the first anchor of each class.
    """

    starts: NDArray[np.int64]
    anchors: NDArray[np.uint32]
    distances: FloatArray
    limits: FloatArray
    alpha: float
    beta: FloatArray
    tau: float
    class_starts: NDArray[np.intp]

    @property
    def mean_length(self) -> float:
        """Anchors per row."""
        return len(self.anchors) / len(self.limits)

    def starts_of(self, rows: slice) -> NDArray[np.int64]:
        """(B·C+1,) where the lists of some rows begin and end."""
        C = len(self.class_starts)
        return self.starts[rows.start * C : rows.stop * C + 1]

    def beyond(self, rows: slice, point: DualPoint) -> FloatArray:
        """(B, C) a bound from below of α d + β over the anchors that are left out.

        With α = s α₀ and β = s (β₀ + δ) they lie above s (limit + least δ of the class).
        """
        grown = point.alpha / self.alpha
        moved = point.beta / grown - self.beta
        return np.asarray(grown * (self.limits[rows] + np.minimum.reduceat(moved, self.class_starts)))


@dataclass
class ShortlistKeeper:
    """The last short list of a decision set over rows in memory, and where none was worth its while."""

    last: Shortlist | None = None
    failed: int = 0  # rows that had to ask all anchors, in the last sums over all rows
    too_long: float = np.inf  # the least τ at which a list was too long

    def wants_new(self, shape: tuple[int, ...], tau: float) -> bool:
        """Whether sums over rows of N×n distances should be preceded by a new list."""
        N, n = shape
        if n < _FEWEST_ANCHORS or N * n < _FEWEST_PAIRS or tau > _RETRY * self.too_long:
            return False
        last = self.last
        return last is None or self.failed > _MOST_FAILED * N or not _STALE * last.tau < tau <= last.tau

    def keep(self, made: Shortlist | None, tau: float) -> None:
        """Keep a new list, or that it would have been too long."""
        self.last, self.failed = made, 0
        if made is None:
            self.too_long = tau


def make_shortlist(
    ds: DecisionSet,
    distances: Distances,
    gains: Callable[[slice], FloatArray],
    point: DualPoint,
    tau: float,
    executor: Executor | None = None,
) -> Shortlist | None:
    """A list of the anchors near each row at a point; None where it would be too long.

    gains : (B, K) ℓ − λ of some rows.
    """
    from surefoot.kernels.listed_rows import count_near, list_near

    (N, n), C, cost = distances.shape, len(ds.class_offsets) - 1, ds.present_label_cost
    groups = [slice(a, b) for a, b in pairwise(np.linspace(0, N, 9).astype(int).tolist()) if b > a]
    run: Callable[..., Iterable[None]] = map if executor is None else executor.map
    counts, limits, margin = np.empty((N, C), dtype=np.int64), np.empty((N, C)), (NEGLIGIBLE + _REACH) * tau
    at = point.alpha, point.beta, ds.class_offsets

    def count(rows: slice) -> None:
        count_near(distances[rows], *at, cost, gains(rows), margin, limits[rows], counts[rows])

    def write(rows: slice) -> None:
        own = starts[rows.start * C : rows.stop * C + 1]
        list_near(distances[rows], *at, limits[rows], own, anchors, near)

    list(run(count, groups))
    starts = np.concatenate([[0], np.cumsum(counts.ravel())])
    if starts[-1] > _LARGEST_SHARE * N * n:
        return None
    anchors, near = np.empty(starts[-1], dtype=np.uint32), np.empty(starts[-1])
    list(run(write, groups))
    return Shortlist(starts, anchors, near, limits, point.alpha, point.beta, tau, ds.class_offsets[:-1])
