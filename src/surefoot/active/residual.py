"""The feature part of the adversary's budget: the cost of taking one row's mass from other classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from surefoot._validation import FloatArray
from surefoot.backends.blocks import BlockedProblem, StreamedDistances
from surefoot.problem.distances import DistanceRows, HeldDistances, kept_transport
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal_radius import cheapest_relabeling
from surefoot.solvers.transport import TransportSolution, cross_over, solve_transport

# The feature part of a problem: distances, and the plan that the adversary starts from.


class Features(Protocol):
    """Distances of rows to anchors, and an optimal plan between them."""

    @property
    def distances(self) -> DistanceRows: ...
    @property
    def transport(self) -> TransportSolution: ...


@dataclass(frozen=True, eq=False)
class FeaturesInMemory:
    """Features of a decision set with all distances in memory."""

    decision_set: DecisionSet

    @cached_property
    def distances(self) -> HeldDistances:
        return HeldDistances(self.decision_set.distances)

    @cached_property
    def transport(self) -> TransportSolution:
        ds = self.decision_set
        found: TransportSolution = kept_transport(ds.distances, ds.row_weights, ds.anchor_weights, solve_transport)
        return found


@dataclass(frozen=True, eq=False)
class FeaturesInBlocks:
    """Features of a problem over blocks: potentials from sums over the blocks, and the plan from a small simplex."""

    problem: BlockedProblem

    @cached_property
    def distances(self) -> StreamedDistances:
        return StreamedDistances(self.problem.rows, self.problem.anchors, self.problem.data.metric)

    @cached_property
    def transport(self) -> TransportSolution:
        potentials, weights = self.problem.minimal.transport.potentials, self.problem.decision_set.anchor_weights
        return cross_over(self.distances, self.problem.row_weights, weights, potentials)


# The label part of the adversary's budget: the cost of a row's labels while all other rows compensate for them.

# Masses are in units of one row. Smaller masses than this are rounding errors.
DUST = 1e-11
# An entry that holds one unit, up to rounding, does not run out while one row is moved.
FULL = 1.0 - 1e-9


@dataclass(frozen=True, eq=False)
class Relabeling:
    """The cheapest relabeling F* of all mass, and its residual graph over labels and classes.

    Attributes
    ----------
    flow : (K, C), F*: possible labels by classes that occur among the anchors.
    label_cost : (K, C); lower, upper : (K,) label intervals; supply : (C,) mass of each class.
    labels : (K,) codes of the labels that the prior allows with positive probability.
    """

    flow: FloatArray
    label_cost: FloatArray
    lower: FloatArray
    upper: FloatArray
    supply: FloatArray
    labels: NDArray[np.intp]

    @classmethod
    def from_decision_set(cls, ds: DecisionSet, unit: float) -> Relabeling:
        """Return the relabeling of a decision set, in units of a row's mass."""
        labels = np.flatnonzero(ds.intervals[:, 1] > 0)
        share = cheapest_relabeling(ds).share[np.ix_(labels, ds.present)]
        supply = ds.label_frequencies[ds.present] / unit
        flow = share * supply
        flow[flow < DUST] = 0.0
        lower, upper = ds.intervals[labels].T / unit
        return cls(flow, ds.label_cost[np.ix_(labels, ds.present)], lower, upper, supply, labels)

    def distances(self, room: float = DUST) -> FloatArray:
        """Compute the lowest costs (K+C, K+C) between nodes (labels first) over residual arcs with more than `room`.

        Changing mass of class c to label k costs κ_kc and is always possible. Undoing this change gains κ_kc, up to
        F*_kc. Labels exchange mass within their intervals.
        """
        K, C = self.flow.shape
        totals = self.flow.sum(axis=1)
        arcs = np.full((K + C + 1, K + C + 1), np.inf)
        np.fill_diagonal(arcs, 0.0)
        arcs[K:-1, :K] = self.label_cost.T
        arcs[:K, K:-1] = np.where(self.flow > room, -self.label_cost, np.inf)
        arcs[:K, -1] = np.where(self.upper - totals > room, 0.0, np.inf)
        arcs[-1, :K] = np.where(totals - self.lower > room, 0.0, np.inf)
        for node in range(K + C + 1):
            arcs = np.minimum(arcs, arcs[:, node, None] + arcs[node])
        return arcs

    def forced(self) -> FloatArray:
        """Compute the (K, C) cost of a unit of class c with label k while no residual arc runs out, otherwise ∞."""
        K = len(self.labels)
        back = self.distances(FULL)[:K, K:-1]
        return np.maximum(self.label_cost + back, 0.0)

    def prices(self, root: int) -> tuple[FloatArray, FloatArray]:
        """Return reduced costs (K, C) ≥ 0 and label prices (K,), largest for the class `root`.

        For every feasible F, Σ κF ≥ Σ κF* + Σ_kc reduced_kc F_kc + Σ_k (price_k⁺ (upper_k − p_k) + price_k⁻ (p_k −
        lower_k)), p_k = Σ_c F_kc; equality holds at F*.
        """
        K = len(self.labels)
        to_root = self.distances()[:, K + root]
        reduced = np.maximum(self.label_cost + to_root[:K, None] - to_root[None, K:-1], 0.0)
        reduced[reduced < 1e-12 * self.label_cost.max()] = 0.0
        trade = to_root[-1] if np.isfinite(to_root[-1]) else 0.0
        price = to_root[:K] - trade
        price[np.abs(price) < 1e-12 * self.label_cost.max()] = 0.0
        return reduced, price


@dataclass(frozen=True, eq=False)
class LabelProgram:
    """The linear program of one row over G and H = F − G, without the cost of taking mass from other classes.

    Σ_k (G+H)_kc = supply_c,  Σ G = 1,  lower_k ≤ Σ_c (G+H)_kc ≤ upper_k,  θ + cost of relabeling ≤ budget

    table (m, q+1), basis (m,): a simplex tableau at a feasible basis. Variables: G (K·C), H (K·C), θ, slacks.
    """

    table: FloatArray
    basis: NDArray[np.int64]

    @classmethod
    def from_labels(cls, labels: Relabeling, budget: float) -> LabelProgram:
        """Run phase one of the simplex method, once for all rows."""
        from surefoot.kernels.forced_labels import minimise, pivot

        A, b = _constraints(labels, budget)
        m, q = A.shape
        T = np.hstack([A, np.eye(m), b[:, None]])
        z = -np.concatenate([A.sum(axis=0), np.zeros(m), [b.sum()]])
        basis = q + np.arange(m)
        if not minimise(T, z, basis, m, q) or abs(z[-1]) > 1e-9 * b.max():
            raise RuntimeError(f"the label program has no feasible basis: residual {abs(z[-1]):.1e} of {b.max():.1e}")
        for r in np.flatnonzero(basis >= q):  # artificial variables at zero
            s = int(np.abs(T[r, :q]).argmax())
            if abs(T[r, s]) > 1e-9:
                pivot(T, z, basis, m, r, s)
        # a remaining artificial variable belongs to a redundant row; recompute all other rows without rounding errors
        basic = basis[basis < q]
        rows = _independent_rows(A[:, basic])
        table = np.linalg.solve(A[np.ix_(rows, basic)], np.hstack([A[rows], b[rows, None]]))
        table[:, basic] = np.eye(len(basic))
        table[:, -1] = np.where(np.abs(table[:, -1]) < DUST, 0.0, table[:, -1])
        return cls(table, basic)


def _independent_rows(A: FloatArray) -> NDArray[np.intp]:
    """Return k linearly independent rows of A (m, k), which has rank k."""
    _, _, order = qr(A.T, pivoting=True, mode="economic")
    return np.sort(order[: A.shape[1]])


def _constraints(labels: Relabeling, budget: float) -> tuple[FloatArray, FloatArray]:
    """Return A (m, q) and b (m,) of A x = b, x ≥ 0."""
    K, C = labels.flow.shape
    kappa = labels.label_cost.max()
    reduced, price = (part / kappa for part in labels.prices(0))
    wide = np.flatnonzero(labels.upper - labels.lower > DUST)
    theta, n_wide = 2 * K * C, len(wide)
    q = theta + 1 + 2 * n_wide + 1
    by_label, by_class = np.kron(np.eye(K), np.ones(C)), np.kron(np.ones(K), np.eye(C))
    A = np.zeros((C + 1 + K + n_wide + 1, q))
    A[:C, :theta] = np.hstack([by_class, by_class])
    A[C, : K * C] = 1.0
    A[C + 1 : C + 1 + K, :theta] = np.hstack([by_label, by_label])
    slack, surplus = theta + 1 + np.arange(n_wide), theta + 1 + n_wide + np.arange(n_wide)
    A[C + 1 + wide, slack] = 1.0
    A[C + 1 + K + np.arange(n_wide), slack] = 1.0
    A[C + 1 + K + np.arange(n_wide), surplus] = 1.0
    A[-1, :theta] = np.tile(reduced.ravel(), 2)
    A[-1, slack], A[-1, surplus] = np.maximum(price[wide], 0.0), np.maximum(-price[wide], 0.0)
    A[-1, [theta, q - 1]] = 1.0
    b = np.concatenate([labels.supply, [1.0], labels.upper, (labels.upper - labels.lower)[wide], [budget / kappa]])
    return A, b


Integers = NDArray[np.int64]
Entries = tuple[Integers, FloatArray, Integers, Integers]


@dataclass(frozen=True)
class ClassCosts:
    """Bounds on the extra cost of taking a row's unit of mass from each class, relative to the plan.

    home : (R,) the anchor that holds the whole row, or −1 if the plan splits the row.
    below : (R, C). The cost of every composition a (C,) is at least below·a.
    above : (R, C). The cost of every composition is at most above·a; ∞ for split rows.
    """

    home: NDArray[np.intp]
    below: FloatArray
    above: FloatArray


@dataclass(frozen=True, eq=False)
class ResidualGraph:
    """An optimal plan of the features, in units of one row's mass, and its residual graph over the anchors.

    Attributes
    ----------
    distances : from N rows to n anchors; slots : (n,) class of each anchor.
    offsets : (C+1,) first anchor of each class, then n.
    potentials : (n,) β. d_ri + β_i is smallest over i at the anchors where row r has mass.
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
    def from_decision_set(cls, ds: DecisionSet, features: Features, unit: float) -> ResidualGraph:
        """Return the residual graph of an optimal plan, in units of mass `unit`."""
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
        """Smaller costs than this are rounding errors."""
        return 1e-12 * max(float(chunk.max()) for _, chunk in self.distances.chunks())

    @cached_property
    def is_full(self) -> NDArray[np.bool_]:
        """Entries of the plan that hold at least one unit. They do not run out while one row is moved."""
        return self.amounts >= FULL

    @cached_property
    def full_arcs(self) -> tuple[FloatArray, Integers]:
        """Reduced cost (n, n) of moving a unit between anchors through a full entry, and the row that moves."""
        from surefoot.kernels.forced_labels import residual_costs

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
        """Reduced cost (n, n) of moving any mass between anchors through any entry."""
        from surefoot.kernels.forced_labels import residual_costs

        cost, via = self.full_arcs[0].copy(), self.full_arcs[1].copy()
        (rows, *_), _ = self.parts
        residual_costs(
            self.distances.distances_at(rows), 0, np.arange(len(rows)), self.anchors[~self.is_full], self.potentials,
            self.dust, cost, via,
        )  # fmt: skip
        return cost

    @cached_property
    def arrays(self) -> tuple[Integers, FloatArray, FloatArray, Integers]:
        """(slots, β, unreduced cost of full arcs, rows of full arcs), in the format of the kernel."""
        cost, via = self.full_arcs
        return self.slots, self.potentials, cost + self.potentials[:, None] - self.potentials, via

    @cached_property
    def parts(self) -> tuple[Entries, Integers]:
        """Return entries of less than a unit as linked lists per anchor, (row, amount, next, count), and heads."""
        part = np.flatnonzero(~self.is_full)
        rows = np.searchsorted(self.ptr, part, side="right") - 1
        anchors, amounts = self.anchors[part], self.amounts[part]
        head, following = np.full(len(self.potentials), -1, dtype=np.int64), np.full(len(rows), -1, dtype=np.int64)
        for e, u in enumerate(anchors):
            following[e], head[u] = head[u], e
        return (rows, amounts, following, np.array([len(rows)])), head

    def class_costs(self, rows: NDArray[np.intp]) -> ClassCosts:
        """Compute bounds for every row (R,) from all shortest paths, with and without the entries that may run out.

        A path from the anchor where row j takes its mass to the home of j never needs row j.
        """
        from surefoot.kernels.forced_labels import all_pairs

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
        """Return the graph with the rows needed to move `rows`, their distances, and the positions of `rows` in it."""
        if isinstance(self.distances, HeldDistances):
            return self, self.distances.matrix, rows
        cost, via = self.full_arcs
        (parted, *_), _ = self.parts
        kept = np.unique(np.concatenate([rows, via[via >= 0], parted]))
        counts = np.diff(self.ptr)[kept]
        entries = np.repeat(self.ptr[kept] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        held = self.distances.distances_at(kept)
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
