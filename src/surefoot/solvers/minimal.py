"""The minimal radius: the smallest at which the decision set is not empty, by its closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import linprog

from surefoot._errors import InfeasibleRadiusError
from surefoot._types import FloatArray
from surefoot.dual.adversary import Adversary
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.transport import solve_transport

# Radii are compared with the minimal one to this relative accuracy: that of the transport solver itself.
_RADIUS_ACCURACY = 1e-9


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

    @property
    def feature_part(self) -> float:
        return self.transport.cost


def solve_minimal_radius(ds: DecisionSet, transport: FeatureTransport | None = None) -> MinimalRadius:
    """The closed form, for rows that are held in memory, or with a transport that is known."""
    if transport is None:
        transport = solve_transport(ds.distances, ds.row_weights, ds.anchor_weights)
    return MinimalRadius.of(ds, transport)


@dataclass(frozen=True)
class _Relabeling:
    """share (K, K), [k, c]: share of label c turned into k; its cost; κ_kc + to_k − from_c ≥ 0, tight if share > 0."""

    share: FloatArray
    cost: float
    to_potentials: FloatArray
    from_potentials: FloatArray


def cheapest_relabeling(ds: DecisionSet) -> _Relabeling:
    """Cheapest transport of the labeled frequencies into the intervals: an LP in K² variables."""
    p, K = ds.label_frequencies, ds.n_classes
    lo, hi = ds.intervals.T
    if np.all(p >= lo) and np.all(p <= hi):
        return _Relabeling(np.eye(K), 0.0, np.zeros(K), np.zeros(K))
    to_label = np.kron(np.eye(K), np.ones(K))  # variables flow[k, c], k-major
    from_label = np.kron(np.ones(K), np.eye(K))
    scale = ds.label_cost.max() or 1.0  # the solver has absolute tolerances
    solved = linprog(
        ds.label_cost.ravel() / scale,
        A_ub=np.vstack([to_label, -to_label]),
        b_ub=np.concatenate([hi, -lo]) + 1e-15,
        A_eq=from_label,
        b_eq=p,
        method="highs-ds",
    )
    if solved.status != 0:
        raise RuntimeError(f"the relabeling problem failed: {solved.message}")
    flow = _exact_label_flow(np.maximum(solved.x.reshape(K, K), 0.0), p, lo, hi)
    share = np.where(p > 0, flow / np.where(p > 0, p, 1.0), np.eye(K))
    below, above = -scale * solved.ineqlin.marginals[:K], -scale * solved.ineqlin.marginals[K:]
    return _Relabeling(share, float((flow * ds.label_cost).sum()), below - above, scale * solved.eqlin.marginals)


def _exact_label_flow(flow: FloatArray, p: FloatArray, lo: FloatArray, hi: FloatArray) -> FloatArray:
    """Remove the LP's tolerance from a flow [k, c]: its column sums become p, its row sums clipped targets."""
    target = np.clip(flow.sum(axis=1), lo, hi)
    missing = p.sum() - target.sum()
    room = (hi - target if missing > 0 else target - lo) + 1e-300
    target += missing * room / room.sum()
    for _ in range(3):
        flow = flow * (target / np.where(flow.sum(axis=1) > 0, flow.sum(axis=1), 1.0))[:, None]
        flow = flow * (p / np.where(flow.sum(axis=0) > 0, flow.sum(axis=0), 1.0))
    return flow


def check_radius(ds: DecisionSet, minimal: MinimalRadius) -> None:
    """Refuse an empty decision set before any iteration, and one of which it is not known whether it is empty."""
    if ds.radius < min(minimal.lower, minimal.value) * (1.0 - _RADIUS_ACCURACY):
        raise InfeasibleRadiusError(ds.radius, minimal.value)
    if ds.radius < minimal.value * (1.0 - _RADIUS_ACCURACY):
        raise ValueError(
            f"radius={ds.radius:.9g} lies between the two bounds of the minimal radius, {minimal.lower:.9g} and "
            f"{minimal.value:.9g}: whether the set is empty is not known. Pass a radius above."
        )
