"""The feature side of the adversary's budget: what it costs to draw one row's mass from other classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot.active.features import Features
from surefoot.active.relabeling import DUST, FULL
from surefoot.problem.distances import DistanceRows, HeldDistances
from surefoot.problem.sets import DecisionSet

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
    distances : of N rows to n anchors; slots : (n,) class of each anchor.
    offsets : (C+1,) first anchor of each class, then n.
    potentials : (n,) β with d_ri + β_i least, over i, where row r has mass.
    ptr, anchors, amounts : the plan by rows, in compressed sparse form.
    """

    distances: DistanceRows
    slots: Integers
    offsets: Integers
    potentials: FloatArray
    ptr: Integers
    anchors: Integers
    amounts: FloatArray

    @classmethod
    def of(cls, ds: DecisionSet, features: Features, unit: float) -> ResidualGraph:
        """The residual graph of an optimal plan, in units of mass `unit`."""
        transport = features.transport
        plan = transport.plan.tocsr().copy()
        plan.data = np.where(plan.data < DUST * unit, 0.0, plan.data / unit)
        plan.eliminate_zeros()
        return cls(
            features.distances,
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
        return 1e-12 * max(float(chunk.max()) for _, chunk in self.distances.chunks())

    @cached_property
    def is_full(self) -> NDArray[np.bool_]:
        """Entries of the plan that hold a unit or more: they do not run out while one row is moved."""
        return self.amounts >= FULL

    @cached_property
    def full_arcs(self) -> tuple[FloatArray, Integers]:
        """Reduced cost (n, n) of moving a unit from anchor to anchor by a full entry, and the row that moves."""
        from surefoot.kernels.reroute import residual_costs

        n = len(self.potentials)
        cost, via = np.full((n, n), np.inf), np.full((n, n), -1, dtype=np.int64)
        for part, chunk in self.distances.chunks():
            entries = slice(self.ptr[part.start], self.ptr[part.stop])
            rows = np.repeat(np.arange(len(chunk)), np.diff(self.ptr[part.start : part.stop + 1]))
            full = self.is_full[entries]
            residual_costs(
                chunk, part.start, rows[full], self.anchors[entries][full], self.potentials, self.dust, cost, via
            )
        return cost, via

    def _all_arcs(self) -> FloatArray:
        """Reduced cost (n, n) of moving any mass from anchor to anchor, by full entries and others."""
        from surefoot.kernels.reroute import residual_costs

        cost, via = self.full_arcs[0].copy(), self.full_arcs[1].copy()
        (rows, *_), _ = self.parts
        residual_costs(
            self.distances.at(rows), 0, np.arange(len(rows)), self.anchors[~self.is_full], self.potentials, self.dust,
            cost, via,
        )  # fmt: skip
        return cost

    @cached_property
    def arrays(self) -> tuple[Integers, FloatArray, FloatArray, Integers]:
        """(slots, β, unreduced cost of full arcs, their rows), as the kernel takes them."""
        cost, via = self.full_arcs
        return self.slots, self.potentials, cost + self.potentials[:, None] - self.potentials, via

    @cached_property
    def parts(self) -> tuple[Entries, Integers]:
        """Entries that hold less than a unit: (row, amount, next, count), a linked list per anchor, and its heads."""
        part = np.flatnonzero(~self.is_full)
        rows = np.searchsorted(self.ptr, part, side="right") - 1
        anchors, amounts = self.anchors[part], self.amounts[part]
        head, following = np.full(len(self.potentials), -1, dtype=np.int64), np.full(len(rows), -1, dtype=np.int64)
        for e, u in enumerate(anchors):
            following[e], head[u] = head[u], e
        return (rows, amounts, following, np.array([len(rows)])), head

    def class_costs(self, rows: NDArray[np.intp]) -> ClassCosts:
        """Bounds for every row (R,) from all shortest paths, with and without the entries that may run out.

        A path that starts where row j wants its mass and ends at j's home never needs j itself.
        """
        from surefoot.kernels.reroute import all_pairs

        arcs = self.full_arcs[0], self._all_arcs()
        to_home_full, to_home = (np.ascontiguousarray(all_pairs(cost).T) for cost in arcs)
        single = np.diff(self.ptr)[rows] == 1
        home = np.where(single, self.anchors[self.ptr[rows]], -1)
        below, above = np.empty((2, len(rows), len(self.offsets) - 1))
        order = np.argsort(rows, kind="stable")
        edges = rows[order]
        for part, chunk in self.distances.chunks():
            at = order[slice(*np.searchsorted(edges, [part.start, part.stop]))]
            reduced = chunk[rows[at] - part.start] + self.potentials
            split, u = home[at] < 0, home[at]
            start = np.where(split, reduced.min(axis=1), reduced[np.arange(len(at)), u])
            reduced -= start[:, None]
            below[at] = self._by_class(reduced + np.where(split[:, None], 0.0, to_home[u]))
            above[at] = np.where(split[:, None], np.inf, self._by_class(reduced + to_home_full[u]))
        return ClassCosts(home, below, above)

    def narrowed(self, rows: NDArray[np.intp]) -> tuple[ResidualGraph, FloatArray, NDArray[np.intp]]:
        """The graph with no more rows than moving `rows` needs, their distances in memory, and where `rows` are now."""
        if isinstance(self.distances, HeldDistances):
            return self, self.distances.matrix, rows
        cost, via = self.full_arcs
        (parted, *_), _ = self.parts
        kept = np.unique(np.concatenate([rows, via[via >= 0], parted]))
        counts = np.diff(self.ptr)[kept]
        entries = np.repeat(self.ptr[kept] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        held = self.distances.at(kept)
        narrow = replace(
            self,
            distances=HeldDistances(held),
            ptr=np.concatenate([[0], np.cumsum(counts)]),
            anchors=self.anchors[entries],
            amounts=self.amounts[entries],
        )
        narrow.__dict__["dust"] = self.dust
        narrow.__dict__["full_arcs"] = cost, np.where(via >= 0, np.searchsorted(kept, via), -1)
        return narrow, held, np.searchsorted(kept, rows)

    def _by_class(self, costs: FloatArray) -> FloatArray:
        least = np.minimum.reduceat(costs, self.offsets[:-1], axis=1)
        return np.where(least < self.dust, 0.0, least)
