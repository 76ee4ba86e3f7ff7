"""The feature side of the adversary's budget: what it costs to draw one row's mass from other classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.active.relabeling import DUST, FULL
from surefoot.sets import DecisionSet
from surefoot.solvers.transport import TransportSolution

Integers = NDArray[np.int64]
Entries = tuple[Integers, FloatArray, Integers, Integers]


@dataclass(frozen=True)
class ClassCosts:
    """Bounds on the cost of drawing a row's unit of mass from each class instead of from where the plan draws it.

    home : (R,) the anchor that holds the whole row, or −1 where the plan splits it.
    below : (R, C) no composition a (C,) costs less than below·a.
    above : (R, C) no composition costs more than above·a; ∞ for split rows.
    """

    home: NDArray[np.intp]
    below: FloatArray
    above: FloatArray


@dataclass(frozen=True, eq=False)
class ResidualGraph:
    """An optimal plan of the features, in units of one row's mass, and its residual graph over the anchors.

    Attributes
    ----------
    distances : (N, n); slots : (n,) class of each anchor; offsets : (C+1,) first anchor of each class, then n.
    potentials : (n,) β with d_ri + β_i least, over i, where row r has mass.
    ptr, anchors, amounts : the plan by rows, in compressed sparse form.
    """

    distances: FloatArray
    slots: Integers
    offsets: Integers
    potentials: FloatArray
    ptr: Integers
    anchors: Integers
    amounts: FloatArray

    @classmethod
    def of(cls, ds: DecisionSet, transport: TransportSolution, unit: float) -> ResidualGraph:
        """The residual graph of an optimal plan, in units of mass `unit`."""
        plan = transport.plan.tocsr().copy()
        plan.data = np.where(plan.data < DUST * unit, 0.0, plan.data / unit)
        plan.eliminate_zeros()
        return cls(
            ds.distances,
            ds.anchor_slots.astype(np.int64),
            ds.class_offsets,
            np.ascontiguousarray(transport.potentials),
            plan.indptr.astype(np.int64),
            plan.indices.astype(np.int64),
            plan.data,
        )

    @cached_property
    def dust(self) -> float:
        """Costs below this are rounding."""
        return 1e-12 * float(self.distances.max())

    @cached_property
    def entry_rows(self) -> Integers:
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))

    @cached_property
    def is_full(self) -> NDArray[np.bool_]:
        """Entries of the plan that hold a unit or more: they do not run out while one row is moved."""
        return self.amounts >= FULL

    @cached_property
    def full_arcs(self) -> tuple[FloatArray, Integers]:
        """Reduced cost (n, n) of moving a unit from anchor to anchor by a full entry, and the row that moves."""
        n = len(self.potentials)
        return self._lowered(np.full((n, n), np.inf), np.full((n, n), -1, dtype=np.int64), self.is_full)

    def _lowered(self, cost: FloatArray, via: Integers, kept: NDArray[np.bool_]) -> tuple[FloatArray, Integers]:
        from surefoot.kernels.reroute import residual_costs

        rows, anchors = self.entry_rows[kept], self.anchors[kept]
        residual_costs(self.distances, rows, anchors, self.potentials, self.dust, cost, via)
        return cost, via

    @cached_property
    def arrays(self) -> tuple[Integers, FloatArray, FloatArray, Integers]:
        """(slots, β, unreduced cost of full arcs, their rows), as the kernel takes them."""
        cost, via = self.full_arcs
        return self.slots, self.potentials, cost + self.potentials[:, None] - self.potentials, via

    @cached_property
    def parts(self) -> tuple[Entries, Integers]:
        """Entries that hold less than a unit: (row, amount, next, count), a linked list per anchor, and its heads."""
        part = ~self.is_full
        rows, anchors, amounts = self.entry_rows[part], self.anchors[part], self.amounts[part]
        head, following = np.full(len(self.potentials), -1, dtype=np.int64), np.full(len(rows), -1, dtype=np.int64)
        for e, u in enumerate(anchors):
            following[e], head[u] = head[u], e
        return (rows, amounts, following, np.array([len(rows)])), head

    def class_costs(self, rows: NDArray[np.intp]) -> ClassCosts:
        """Bounds for every row (R,) from all shortest paths, with and without the entries that may run out.

        A path that starts where row j wants its mass and ends at j's home never needs j itself.
        """
        from surefoot.kernels.reroute import all_pairs

        cost, via = self.full_arcs
        reach_full = all_pairs(cost)
        reach = all_pairs(self._lowered(cost.copy(), via.copy(), ~self.is_full)[0])
        single = np.diff(self.ptr)[rows] == 1
        home = np.where(single, self.anchors[self.ptr[rows]], -1)
        below, above = np.empty((2, len(rows), len(self.offsets) - 1))
        for u in np.unique(home):
            at = np.flatnonzero(home == u)
            reduced = self.distances[rows[at]] + self.potentials
            if u < 0:
                below[at] = self._by_class(reduced - reduced.min(axis=1, keepdims=True))
                above[at] = np.inf
            else:
                reduced -= reduced[:, [u]]
                below[at] = self._by_class(reduced + reach[:, u])
                above[at] = self._by_class(reduced + reach_full[:, u])
        return ClassCosts(home, below, above)

    def _by_class(self, costs: FloatArray) -> FloatArray:
        least = np.minimum.reduceat(costs, self.offsets[:-1], axis=1)
        return np.where(least < self.dust, 0.0, least)
