"""Compute the minimal radius in closed form: the smallest radius at which the decision set is not empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from surefoot._errors import InfeasibleRadiusError, ParameterError
from surefoot._validation import FloatArray
from surefoot.dual.adversary import Adversary
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.transport import solve_transport

# The cheapest relabeling: transport of label frequencies into their intervals, in exact arithmetic.

# An interval that misses a frequency by at most this much counts as containing it.
_RELABELING_ROUNDING = 1e-15


@dataclass(frozen=True)
class ShareTransport:
    """share (K, K), [k, c]: share of label c changed to k; its cost; κ_kc + to_k − from_c ≥ 0, tight if share > 0."""

    share: FloatArray
    cost: float
    to_potentials: FloatArray
    from_potentials: FloatArray


def cheapest_label_flow(p: FloatArray, intervals: FloatArray, label_cost: FloatArray) -> ShareTransport:
    """Minimise Σ_kc f_kc κ_kc over flows f ≥ 0 (K, K) with Σ_k f_kc = p_c and p_lo_k ≤ Σ_c f_kc ≤ p_hi_k.

    p : (K,) label frequencies; intervals : (K, 2); label_cost : (K, K), κ_kc ≥ 0 the cost of changing c to k.

    Frequencies are sums of weights, with rounding errors. A bound that misses a frequency by rounding is moved to the
    frequency. The rounding difference between the sums of p and of the intervals is added to the largest bound.
    """
    K = len(p)
    least, most = intervals.T
    least = np.where(least - p <= _RELABELING_ROUNDING, np.minimum(least, p), least)
    most = np.where(p - most <= _RELABELING_ROUNDING, np.maximum(most, p), most)
    if np.all(p >= least) and np.all(p <= most):
        return ShareTransport(np.eye(K), 0.0, np.zeros(K), np.zeros(K))
    (supply, lo, hi), mass_unit = _integers(p, least, most)
    (costs,), cost_unit = _integers(label_cost.ravel())
    _admit(sum(supply), lo, hi)
    network = _LabelNetwork(K, supply, lo, hi, [costs[k * K : (k + 1) * K] for k in range(K)])
    network.send_all()
    flow = [[network.flow(k, c) for c in range(K)] for k in range(K)]
    share = [[flow[k][c] / supply[c] if supply[c] else float(k == c) for c in range(K)] for k in range(K)]
    spent = sum(flow[k][c] * costs[k * K + c] for k in range(K) for c in range(K))
    to_labels, from_labels = network.potentials()
    return ShareTransport(
        np.array(share),
        spent / (mass_unit * cost_unit),
        np.array([value / cost_unit for value in to_labels]),
        np.array([value / cost_unit for value in from_labels]),
    )


def _integers(*arrays: FloatArray) -> tuple[list[list[int]], int]:
    """Multiply numbers by a common unit, a power of two that makes every number an integer."""
    ratios = [[float(value).as_integer_ratio() for value in array] for array in arrays]
    unit = max(below for row in ratios for _, below in row)
    return [[above * (unit // below) for above, below in row] for row in ratios], unit


def _admit(total: int, lo: list[int], hi: list[int]) -> None:
    """Change the bounds so that Σ lo ≤ total ≤ Σ hi holds exactly."""
    surplus, lack = sum(lo) - total, total - sum(hi)
    if surplus > 0:
        lo[lo.index(max(lo))] -= surplus
    if lack > 0:
        hi[hi.index(max(hi))] += lack


class _LabelNetwork:
    """Flow from labels c to labels k and on to a sink, by shortest augmenting paths.

    Nodes: given label c (c), wanted label k (K + k), the sink (2K). The arc from k to the sink has capacity p_lo_k at
    price −M, then p_hi_k − p_lo_k at price zero. −M outweighs the price of any plan, so lower bounds are satisfied
    first.
    """

    def __init__(self, K: int, supply: list[int], lo: list[int], hi: list[int], costs: list[list[int]]) -> None:
        self.K, self.sink, self.left = K, 2 * K, list(supply)
        self.heads: list[int] = []
        self.room: list[int] = []
        self.price: list[int] = []
        self.leaving: list[list[int]] = [[] for _ in range(2 * K + 1)]
        total, most = sum(supply), 4 * (K + 1) * max(max(row) for row in costs) + 1
        for k in range(K):
            for c in range(K):
                self._add_arc(c, K + k, total, costs[k][c])
        for k in range(K):
            self._add_arc(K + k, self.sink, lo[k], -most)
            self._add_arc(K + k, self.sink, hi[k] - lo[k], 0)

    def _add_arc(self, tail: int, head: int, room: int, price: int) -> None:
        """Add an arc and its reverse. Arcs e and e ^ 1 belong together."""
        for start, end, free, cost in ((tail, head, room, price), (head, tail, 0, -price)):
            self.leaving[start].append(len(self.heads))
            self.heads.append(end)
            self.room.append(free)
            self.price.append(cost)

    def flow(self, k: int, c: int) -> int:
        return self.room[2 * (k * self.K + c) + 1]

    def send_all(self) -> None:
        """Send the supply of all labels along cheapest paths. Each path saturates an arc or exhausts a supply."""
        while any(self.left):
            starts = [c for c in range(self.K) if self.left[c]]
            distance, arrived_by = self._distances(dict.fromkeys(starts, 0))
            path, node = [], self.sink
            if node not in distance:
                raise RuntimeError("the relabeling problem has no solution: the intervals admit no distribution")
            while (arc := arrived_by[node]) is not None:
                path.append(arc)
                node = self.heads[arc ^ 1]
            amount = min(self.left[node], *(self.room[arc] for arc in path))
            self.left[node] -= amount
            for arc in path:
                self.room[arc] -= amount
                self.room[arc ^ 1] += amount

    def potentials(self) -> tuple[list[int], list[int]]:
        """Return multipliers of the wanted and of the given labels that prove that the flow is the cheapest."""
        distance, _ = self._distances(dict.fromkeys(range(2 * self.K + 1), 0))
        at_sink = distance[self.sink]
        wanted = [at_sink - distance[self.K + k] for k in range(self.K)]
        return wanted, [at_sink - distance[c] for c in range(self.K)]

    def _distances(self, distance: dict[int, int]) -> tuple[dict[int, int], dict[int, int | None]]:
        """Return shortest distances over arcs with capacity, from nodes at given distances, and the last arcs."""
        arrived_by: dict[int, int | None] = dict.fromkeys(distance)
        changed = list(distance)
        while changed:
            waiting = dict.fromkeys(changed)
            changed = []
            for node in waiting:
                here = distance[node]
                for arc in self.leaving[node]:
                    if self.room[arc] == 0:
                        continue
                    head, there = self.heads[arc], here + self.price[arc]
                    if head not in distance or there < distance[head]:
                        distance[head], arrived_by[head] = there, arc
                        changed.append(head)
        return distance, arrived_by


# Radii are compared with the minimal radius to this relative accuracy, the accuracy of the transport solver.
_RADIUS_ACCURACY = 1e-9
# Differences of costs below this share of the prices are rounding errors.
_ROUNDING = 64.0 * float(np.finfo(float).eps)


class FeatureTransport(Protocol):
    """Plain transport between rows and anchors: upper and lower bound on the cost, and the potentials (n,)."""

    @property
    def cost(self) -> float: ...
    @property
    def lower(self) -> float: ...
    @property
    def potentials(self) -> FloatArray: ...
    def adversary(self, ds: DecisionSet, relabel: FloatArray, cost: float) -> Adversary:
        """Return the plan's adversary, with the share relabel (K, K), [k, c], of anchor class c changed to label k."""


@dataclass(frozen=True)
class MinimalRadius:
    """ε_min = W_d(P_X, P̂_X) + cheapest relabeling of p̂ into the intervals, and the adversary that attains it.

    value : an upper bound, at which the set is known not to be empty; lower : a lower bound, equal to value up to
    rounding if the rows are in memory.
    anchor_potentials b (n,) and label_potentials l (K,) prove the lower bound: d_ji + κ_kc + b_i + l_k ≥ u_j for all,
    tight on the plan.
    """

    value: float
    lower: float
    label_part: float
    adversary: Adversary
    transport: FeatureTransport
    anchor_potentials: FloatArray
    label_potentials: FloatArray

    @classmethod
    def from_transport(cls, ds: DecisionSet, transport: FeatureTransport) -> MinimalRadius:
        """Combine both parts. Features and labels move independently of each other (docs/solver.md)."""
        relabeling = cheapest_relabeling(ds)
        value = transport.cost + relabeling.cost
        return cls(
            value,
            transport.lower + relabeling.cost,
            relabeling.cost,
            transport.adversary(ds, relabeling.share, value),
            transport,
            transport.potentials - relabeling.from_potentials[ds.anchor_labels],
            relabeling.to_potentials,
        )

    def excess(self, radius: float) -> float:
        """Return the radius minus the dual value of the potentials, or 0 if the difference may be a rounding error."""
        size = self.value + float(np.abs(self.anchor_potentials).max() + np.abs(self.label_potentials).max())
        unproved = self.value - self.lower
        return max(radius - self.value, 0.0) + (unproved if unproved > _ROUNDING * size else 0.0)

    @property
    def feature_part(self) -> float:
        return self.transport.cost


def solve_minimal_radius(ds: DecisionSet, transport: FeatureTransport | None = None) -> MinimalRadius:
    """Evaluate the closed form, for rows in memory or from a known transport."""
    if transport is None:
        transport = solve_transport(ds.distances, ds.row_weights, ds.anchor_weights)
    return MinimalRadius.from_transport(ds, transport)


def cheapest_relabeling(ds: DecisionSet) -> ShareTransport:
    """Return the cheapest transport of the label frequencies into their intervals."""
    return cheapest_label_flow(ds.label_frequencies, ds.intervals, ds.label_cost)


def check_radius(ds: DecisionSet, minimal: MinimalRadius) -> None:
    """Reject an empty decision set, and a set that may be empty, before any iteration."""
    if ds.radius < min(minimal.lower, minimal.value) * (1.0 - _RADIUS_ACCURACY):
        raise InfeasibleRadiusError(ds.radius, minimal.value)
    if ds.radius < minimal.value * (1.0 - _RADIUS_ACCURACY):
        raise ParameterError(
            "radius",
            f"must not lie between the two bounds of the minimal radius, {minimal.lower:.9g} and {minimal.value:.9g}, "
            "because the set may be empty there",
            f"{ds.radius:.9g}",
            "Pass a larger $radius.",
        )
