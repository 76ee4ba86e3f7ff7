"""The minimal radius: the smallest at which the decision set is not empty, by its closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot._errors import InfeasibleRadiusError
from surefoot._types import FloatArray
from surefoot.dual.bounds import Adversary
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.relabeling import Relabeling, cheapest_label_flow
from surefoot.solvers.transport import TransportSolution, solve_transport

# Radii are compared with the minimal one to this relative accuracy: that of the transport solver itself.
_RADIUS_ACCURACY = 1e-9


@dataclass(frozen=True)
class MinimalRadius:
    """ε_min = W_d(P_X, P̂_X) + cheapest relabeling of p̂ into the intervals, and the adversary that attains it.

    anchor_potentials b (n,) and label_potentials l (K,) prove it: d_ji + κ_kc + b_i + l_k ≥ u_j for all, tight on the
    plan.
    """

    value: float
    feature_part: float
    label_part: float
    adversary: Adversary
    transport: TransportSolution
    anchor_potentials: FloatArray
    label_potentials: FloatArray


def solve_minimal_radius(ds: DecisionSet, transport: TransportSolution | None = None) -> MinimalRadius:
    """The closed form: features and labels are moved independently of each other (docs/solver.md)."""
    if transport is None:
        transport = solve_transport(ds.distances, ds.row_weights, ds.anchor_weights)
    relabeling = cheapest_relabeling(ds)
    by_class = np.zeros((len(ds.row_weights), ds.n_classes))
    entries = transport.plan.tocoo()
    np.add.at(by_class, (entries.row, ds.anchor_labels[entries.col]), entries.data)
    total = by_class.sum(axis=1, keepdims=True)
    by_class = np.where(total > 0, by_class / np.where(total > 0, total, 1.0), ds.label_frequencies)
    value = transport.cost + relabeling.cost
    return MinimalRadius(
        value,
        transport.cost,
        relabeling.cost,
        Adversary(by_class @ relabeling.share.T, value),
        transport,
        transport.potentials - relabeling.from_potentials[ds.anchor_labels],
        relabeling.to_potentials,
    )


def cheapest_relabeling(ds: DecisionSet) -> Relabeling:
    """Cheapest transport of the labeled frequencies into the intervals."""
    return cheapest_label_flow(ds.label_frequencies, ds.intervals, ds.label_cost)


def check_radius(ds: DecisionSet, minimal: MinimalRadius) -> None:
    """Refuse an empty decision set before any iteration."""
    if ds.radius < minimal.value * (1.0 - _RADIUS_ACCURACY):
        raise InfeasibleRadiusError(ds.radius, minimal.value)
