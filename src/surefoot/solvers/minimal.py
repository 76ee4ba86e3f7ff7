"""The minimal radius: the smallest at which the decision set is not empty, by its closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from surefoot._errors import InfeasibleRadiusError, ParameterError
from surefoot._types import FloatArray
from surefoot.dual.adversary import Adversary
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.relabeling import Relabeling, cheapest_label_flow
from surefoot.solvers.transport import solve_transport

# Radii are compared with the minimal one to this relative accuracy: that of the transport solver itself.
_RADIUS_ACCURACY = 1e-9
# Differences of costs below this share of the prices are rounding.
_ROUNDING = 64.0 * float(np.finfo(float).eps)


class FeatureTransport(Protocol):
    """Plain transport between rows and anchors, its cost from above and from below, and the potentials (n,) behind."""

    @property
    def cost(self) -> float: ...
    @property
    def lower(self) -> float: ...
    @property
    def potentials(self) -> FloatArray: ...
    def adversary(self, ds: DecisionSet, relabel: FloatArray, cost: float) -> Adversary:
        """The plan, with the share relabel (K, K), [k, c], of each anchor class c turned into label k."""


@dataclass(frozen=True)
class MinimalRadius:
    """ε_min = W_d(P_X, P̂_X) + cheapest relabeling of p̂ into the intervals, and the adversary that attains it.

    value : from above, at this radius the set is known not to be empty; lower : from below, equal but for rounding
    where rows are held in memory. anchor_potentials b (n,) and label_potentials l (K,) prove it: d_ji + κ_kc + b_i +
    l_k ≥ u_j for all, tight on the plan.
    """

    value: float
    lower: float
    label_part: float
    adversary: Adversary
    transport: FeatureTransport
    anchor_potentials: FloatArray
    label_potentials: FloatArray

    @classmethod
    def of(cls, ds: DecisionSet, transport: FeatureTransport) -> MinimalRadius:
        """Features and labels are moved independently of each other (docs/solver.md)."""
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
        """What a radius leaves beyond the potentials' own dual value: 0 where that may be rounding."""
        size = self.value + float(np.abs(self.anchor_potentials).max() + np.abs(self.label_potentials).max())
        unproved = self.value - self.lower
        return max(radius - self.value, 0.0) + (unproved if unproved > _ROUNDING * size else 0.0)

    @property
    def feature_part(self) -> float:
        return self.transport.cost


def solve_minimal_radius(ds: DecisionSet, transport: FeatureTransport | None = None) -> MinimalRadius:
    """The closed form, for rows that are held in memory, or with a transport that is known."""
    if transport is None:
        transport = solve_transport(ds.distances, ds.row_weights, ds.anchor_weights)
    return MinimalRadius.of(ds, transport)


def cheapest_relabeling(ds: DecisionSet) -> Relabeling:
    """Cheapest transport of the labeled frequencies into the intervals."""
    return cheapest_label_flow(ds.label_frequencies, ds.intervals, ds.label_cost)


def check_radius(ds: DecisionSet, minimal: MinimalRadius) -> None:
    """Refuse an empty decision set before any iteration, and one of which it is not known whether it is empty."""
    if ds.radius < min(minimal.lower, minimal.value) * (1.0 - _RADIUS_ACCURACY):
        raise InfeasibleRadiusError(ds.radius, minimal.value)
    if ds.radius < minimal.value * (1.0 - _RADIUS_ACCURACY):
        raise ParameterError(
            "radius",
            f"must not lie between the two bounds of the minimal radius, {minimal.lower:.9g} and {minimal.value:.9g}, "
            "where it is not known whether the set is empty",
            f"{ds.radius:.9g}",
            "Pass a $radius above.",
        )
