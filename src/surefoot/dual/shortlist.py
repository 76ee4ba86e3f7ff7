"""Short lists: for each row and class, the few anchors that can have a weight in the softmax plan.

At a small τ, a plan assigns a row to a few anchors, and all other weights are below the rounding error. If α and β have
moved too far since a list was made, the row uses all anchors. Sums over lists and over all anchors agree up to
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.dual.models import DualPoint
from surefoot.problem.distances import Distances
from surefoot.problem.sets import DecisionSet

# The bytes of an anchor and its distance in a list.
PAIR_BYTES = np.dtype(np.uint32).itemsize + np.dtype(np.float64).itemsize
# Anchors have weights below the rounding error if their α d + β exceeds the smallest by this multiple of τ. A list
# extends to twice this distance, because α and β move about this far before the next list.
NEGLIGIBLE = 36.0
# Lists are not used if they contain more than this share of all pairs, or for fewer anchors or pairs than this.
_LARGEST_SHARE, _FEWEST_ANCHORS, _FEWEST_PAIRS = 0.2, 48, 1 << 16
# The number of pairs processed together. Distances that are not kept are measured in groups of this size.
_GROUP_PAIRS = 1 << 22
# A list is made again if it fails for this share of the rows, or once τ has fallen to this share.
_MOST_FAILED, _STALE = 0.02, 0.3
# If lists were too long, they are tried again once τ has fallen to this share.
_RETRY = 0.7


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Anchors (L,) and distances (L,) of each row and class, at starts (N·C+1,), made at α, β (n,) and τ.

    limits : (N, C) the list contains all anchors with α d + β below this; class_starts : (C,) the first anchor of each
    class.
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
        """The mean number of anchors per row."""
        return len(self.anchors) / len(self.limits)

    def starts_of(self, rows: slice) -> NDArray[np.int64]:
        """Return the positions (B·C+1,) at which the lists of some rows begin and end."""
        C = len(self.class_starts)
        return self.starts[rows.start * C : rows.stop * C + 1]

    def beyond(self, rows: slice, point: DualPoint) -> FloatArray:
        """Return a lower bound (B, C) on α d + β over the unlisted anchors.

        With α = s α₀ and β = s (β₀ + δ), the value at an unlisted anchor is at least s (limit + smallest δ of the
        class).
        """
        grown = point.alpha / self.alpha
        moved = point.beta / grown - self.beta
        return np.asarray(grown * (self.limits[rows] + np.minimum.reduceat(moved, self.class_starts)))


@dataclass
class ShortlistKeeper:
    """The last short list of a decision set over some rows, and the smallest τ at which a list was too long."""

    most_pairs: float = np.inf  # limit on the length of a list
    last: Shortlist | None = None
    failed: int = 0  # rows that used all anchors in the last sums over all rows
    missed: int = 0  # rows whose list may be incomplete in the last sums over listed anchors
    too_long: float = np.inf  # the smallest τ at which a list was too long

    def wants_new(self, shape: tuple[int, ...], tau: float) -> bool:
        """Return True if a new list should be made before sums over N×n distances."""
        N, n = shape
        if n < _FEWEST_ANCHORS or N * n < _FEWEST_PAIRS or tau > _RETRY * self.too_long:
            return False
        last = self.last
        return last is None or self.failed > _MOST_FAILED * N or not _STALE * last.tau < tau <= last.tau

    def keep(self, made: Shortlist | None, tau: float) -> None:
        """Keep a new list, or record that it would have been too long."""
        self.last, self.failed = made, 0
        if made is None:
            self.too_long = tau


@dataclass
class BlockLists:
    """Short lists of the blocks of a sweep, for one decision set at a time. Alternating between sets uses no lists."""

    set_key: tuple[object, ...] = ()
    settled: bool = False  # True if the last sums were over the same set
    keepers: dict[int, ShortlistKeeper] = field(default_factory=dict)

    def turn_to(self, ds: DecisionSet) -> None:
        """Set the decision set of the next sums. Drop the lists of another set."""
        self.settled = self.set_key == (key := _key(ds))
        if not self.settled:
            self.set_key, self.keepers = key, {}

    def of_block(self, start: int, most_pairs: float) -> ShortlistKeeper | None:
        """Return the keeper of the block that starts at a row, or None if the last sums were over another set."""
        return self.keepers.setdefault(start, ShortlistKeeper(most_pairs)) if self.settled else None

    def complete_for(self, ds: DecisionSet) -> bool:
        """Return True if every block has a list of this set."""
        lists = [keeper.last for keeper in self.keepers.values()]
        return len(lists) > 0 and None not in lists and self.set_key == _key(ds)

    @property
    def missed(self) -> int:
        """The number of rows whose lists may be incomplete in the last sums over listed anchors."""
        return sum(keeper.missed for keeper in self.keepers.values())


def _key(ds: DecisionSet) -> tuple[object, ...]:
    """Return a key that distinguishes decision sets over the same rows."""
    return ds.radius, ds.intervals.tobytes(), ds.label_cost.tobytes()


def make_shortlist(
    ds: DecisionSet,
    distances: Distances,
    gains: Callable[[slice], FloatArray],
    point: DualPoint,
    tau: float,
    executor: Executor | None = None,
    most_pairs: float = np.inf,
) -> Shortlist | None:
    """List the anchors near each row at a point. Return None if the list would be too long.

    gains : (B, K) ℓ − λ of some rows.
    """
    from surefoot.kernels.soft_rows import count_near, list_near

    (N, n), C, cost = distances.shape, len(ds.class_offsets) - 1, ds.present_label_cost
    edges = np.linspace(0, N, max(9, N * n // _GROUP_PAIRS)).astype(int).tolist()
    groups = [slice(a, b) for a, b in pairwise(edges) if b > a]
    run: Callable[..., Iterable[None]] = map if executor is None else executor.map
    counts, limits, margin = np.empty((N, C), dtype=np.int64), np.empty((N, C)), 2.0 * NEGLIGIBLE * tau
    at = point.alpha, point.beta, ds.class_offsets

    def count(rows: slice) -> None:
        count_near(distances[rows], *at, cost, gains(rows), margin, limits[rows], counts[rows])

    def write(rows: slice) -> None:
        own = starts[rows.start * C : rows.stop * C + 1]
        list_near(distances[rows], *at, limits[rows], own, anchors, near)

    list(run(count, groups))
    starts = np.concatenate([[0], np.cumsum(counts.ravel())])
    if starts[-1] > min(_LARGEST_SHARE * N * n, most_pairs):
        return None
    anchors, near = np.empty(starts[-1], dtype=np.uint32), np.empty(starts[-1])
    list(run(write, groups))
    return Shortlist(starts, anchors, near, limits, point.alpha, point.beta, tau, ds.class_offsets[:-1])
