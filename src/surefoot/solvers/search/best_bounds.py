"""Keep the best bounds of min_θ max_s max_{μ ∈ set s} E_μ ℓ_θ for one decision set or a union of sets.

A linear function has the same supremum over a union and over its convex hull. A mixture of one adversary per set
attains this supremum, and the minimax theorem holds. The upper and the lower bound may come from different points,
because every bound holds for the problem itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from surefoot._validation import FloatArray
from surefoot.dual.adversary import Adversary, LabelTable, allowance, feasible_adversary, mixture, opened_radius
from surefoot.dual.block import Block, DualProblem
from surefoot.dual.bounds import LowerBound, reduced_dual_constant
from surefoot.dual.models import DualPoint, LinearModel, Model
from surefoot.dual.row_store import InMemoryRows, RowStore, table_of
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.joint_objective import JointPoint
from surefoot.solvers.minimal_radius import MinimalRadius
from surefoot.solvers.newton import PathState

# Adversaries with a smaller weight are dropped from the mixture.
_LEAST_WEIGHT = 1e-7
# A hedging classifier may lose at most this share of tol beyond the lower bound.
_HEDGE = 0.7

# Bounds may cross by this share of tol. An adversary is moved back by bisection, in at most this many steps.
_LEVEL, _MOST_HALVINGS = 0.1, 30

JointState = PathState[JointPoint]


@dataclass(frozen=True, eq=False)
class SetAtRadius:
    """One decision set of a union, or the only decision set, with its minimal radius.

    within : (N,) factors of the losses, for the worst case within a group of rows: 1 / (share of the group) inside the
    group, 0 outside; None for the worst case over all rows.
    """

    decision_set: DecisionSet
    minimal: MinimalRadius
    within: FloatArray | None = None

    @cached_property
    def opened(self) -> DecisionSet:
        """The set. At the minimal radius, a set enlarged by the rounding error, so that it has an interior."""
        return self.decision_set.with_radius(opened_radius(self.decision_set, self.minimal.value, share=0.4))

    @property
    def closed(self) -> bool:
        """True if the radius is the minimal one. Opening does not change a minimal radius of zero."""
        radius = self.decision_set.radius
        return radius < self.opened.radius or radius == self.minimal.value == 0.0

    def problem(self, model: Model) -> DualProblem:
        return DualProblem.from_decision_set(self.decision_set, self.model(model))

    def model(self, model: Model) -> Model:
        """Return the model with losses within the group of rows. Fixed losses already contain the factors."""
        return replace(model, within=self.within) if isinstance(model, LinearModel) else model


@dataclass(frozen=True)
class UpperBound:
    """The largest dual value over all sets, at one point per set (S) with a common θ.

    floors : (S) the smallest Φ over the rows; weights : (S,) of the sets at these points; path : the state at these
    points.
    """

    risk: float
    risks: tuple[float, ...]
    points: tuple[DualPoint, ...]
    floors: tuple[float, ...]
    weights: FloatArray
    path: JointState


@dataclass(frozen=True)
class MixtureBound:
    """A lower bound for the union: the smallest loss under a mixture of adversaries (S) with weights (S,)."""

    bound: LowerBound
    weights: FloatArray
    adversaries: tuple[Adversary, ...]
    mixture: Adversary


@dataclass
class BestBounds:
    """The best bounds found. Every lower bound holds for the union, whichever sets contribute to its mixture."""

    sweep: RowStore
    model: Model
    members: list[SetAtRadius]
    upper: UpperBound | None = None
    lower: MixtureBound | None = None

    @property
    def gap(self) -> float:
        return self.upper.risk - self.lower.bound.value if self.upper and self.lower else np.inf

    @cached_property
    def problems(self) -> list[DualProblem]:
        return [member.problem(self.model) for member in self.members]

    def risk(self, s: int, point: DualPoint) -> tuple[float, float]:
        """Return the dual value of one set, and the smallest Φ."""
        return self.sweep.upper_bound(self.problems[s], point)

    def risk_beyond(self, s: int, point: DualPoint) -> tuple[float, float]:
        """Compute `risk` at the point moved by α times the potentials of the minimal radius, without cancellation.

        The dual value of the potentials is the minimal radius, so α prices only the cost beyond the cheapest plan.
        """
        ds, minimal = self.members[s].decision_set, self.members[s].minimal
        point = replace(point, beta=point.beta - ds.anchor_weights @ point.beta)
        prices = replace(point, lam=minimal.label_potentials, beta=minimal.anchor_potentials)
        rows = self.sweep.total(self.problems[s], Block.reduced_dual_rows, point, prices)
        constant = reduced_dual_constant(ds.with_radius(minimal.excess(ds.radius)), point, prices)
        return constant + float(rows.sums[0][0]), -rows.largest[0]

    def consider_points(
        self, points: list[DualPoint], found: list[tuple[float, float]], weights: FloatArray, path: JointState
    ) -> None:
        """Keep dual points of all sets, with values and floors `found`, if they lower the upper bound."""
        risks, floors = zip(*found, strict=True)
        if np.isfinite(risks).all() and (self.upper is None or max(risks) < self.upper.risk):
            self.upper = UpperBound(max(risks), risks, tuple(points), floors, weights, path)

    def consider_hedge(self, theta: FloatArray, tol: float, path: JointState) -> None:
        """If the lower bound is near log K, the loss of a constant classifier, keep θ scaled down to stay within tol.

        A classifier that gives every label the same probability has loss log K for any labels. A classifier that leans
        slightly towards θ loses slightly more, but still prefers a label.
        """
        if self.lower is None or not isinstance(self.model, LinearModel):
            return
        constant = float(np.log(self.model.n_classes))
        room = self.lower.bound.value + _HEDGE * tol - constant
        largest = max(risk for risk, _ in self._without_constraints(theta)[1]) - constant
        if room <= 0 or not np.isfinite(largest):
            return
        # the loss at θ is convex along a line from zero, so a share of θ loses at most the same share of the difference
        share = min(1.0, room / max(largest, 1e-300))
        points, found = self._without_constraints(share * theta)
        self.consider_points(points, found, np.full(len(self.members), 1.0 / len(self.members)), path)

    def _without_constraints(self, theta: FloatArray) -> tuple[list[DualPoint], list[tuple[float, float]]]:
        """Return dual points without prices. Their value is the mean of the largest loss over the rows of each set."""
        n, K = len(self.members[0].decision_set.anchor_weights), self.members[0].decision_set.n_classes
        point = DualPoint(theta, 0.0, np.zeros(K), np.zeros(n))
        alike = all(member.within is None for member in self.members)
        found = [self.risk(s, point) for s in ([0] if alike else range(len(self.members)))]
        return [point] * len(self.members), found * (len(self.members) if alike else 1)

    def soft_adversaries(
        self, weights: FloatArray, points: list[DualPoint], tau: float
    ) -> dict[int, tuple[Adversary, FloatArray]]:
        """Return the adversaries of the soft plans with label probabilities (K,), unless their weight is negligible."""
        chosen = np.flatnonzero(weights >= _LEAST_WEIGHT).tolist()
        return {s: self.sweep.soft_adversary(self.problems[s], points[s], tau) for s in chosen}

    def consider_mixture(
        self, wanted: dict[int, tuple[Adversary, FloatArray]], weights: FloatArray, theta: FloatArray
    ) -> float:
        """Move the wanted adversaries into their sets, mix them, and return the best lower bound."""
        adversaries: list[Adversary] = [member.minimal.adversary for member in self.members]
        shares = np.zeros(len(weights))
        for s, (one, labels) in wanted.items():
            adversaries[s] = feasible_adversary(self.members[s].decision_set, one, labels, self._retreat(s))
            shares[s] = weights[s]
        shares /= shares.sum()
        found = self._mixed(adversaries, shares, theta)
        if self.lower is None or found.bound.value > self.lower.bound.value:
            self.lower = found
        return self.lower.bound.value

    def _mixed(self, adversaries: list[Adversary], shares: FloatArray, theta: FloatArray) -> MixtureBound:
        """Compute the lower bound of a mixture of adversaries of all sets, with shares (S,)."""
        mixed = mixture(adversaries, shares)
        if all(member.within is None for member in self.members):
            bound = self.sweep.lower_bound(self.problems[0], mixed, theta)
        else:
            bound = self._within_groups(adversaries, shares, theta)
        return MixtureBound(bound, shares, tuple(adversaries), mixed)

    def _within_groups(self, adversaries: list[Adversary], shares: FloatArray, theta: FloatArray) -> LowerBound:
        """Bound the smallest loss of a mixture of losses within groups: a regression, weighted and labeled by row."""
        if not isinstance(self.sweep, InMemoryRows):
            raise TypeError("groups of rows require rows in memory")
        mass = np.zeros((self.sweep.n_rows, self.members[0].decision_set.n_classes))
        for s, adversary in enumerate(adversaries):
            within = self.members[s].within
            factor = shares[s] * (np.ones(len(mass)) if within is None else within)
            mass += factor[:, None] * table_of(self.sweep, self.problems[s], adversary)
        total = mass.sum(axis=1)
        labels = np.divide(mass, total[:, None], out=np.full_like(mass, 1.0 / mass.shape[1]), where=total[:, None] > 0)
        rows = replace(self.sweep, weights=self.sweep.weights * total)
        problem = DualProblem(self.problems[0].decision_set, self.model)
        return rows.lower_bound(problem, LabelTable(labels, np.inf), theta)

    def uncross(self, tol: float) -> None:
        """If an adversary attains more than the upper bound, mix in an adversary of the minimal radius.

        A crossing adversary exceeds the radius by at most the allowance. This excess is unnecessary.
        """
        if self.upper is None or self.lower is None or self.gap >= -_LEVEL * tol:
            return
        crossed, inside, outside = self.lower, 1.0, 0.0
        for _ in range(_MOST_HALVINGS):
            share = 0.5 * (inside + outside)
            moved = self._led_back(crossed, share, self.upper.points[0].theta)
            if moved.bound.value > self.upper.risk:
                outside = share
                continue
            inside, self.lower = share, moved
            if self.gap <= _LEVEL * tol:
                return

    def _led_back(self, found: MixtureBound, share: float, theta: FloatArray) -> MixtureBound:
        """Compute the bound of adversaries mixed with the adversaries of the minimal radius."""
        sets = zip(found.adversaries, self.members, strict=True)
        weights = np.array([1.0 - share, share])
        adversaries = [mixture([one, member.minimal.adversary], weights) for one, member in sets]
        return self._mixed(adversaries, found.weights, theta)

    def _retreat(self, s: int) -> Adversary:
        """Return the adversary to mix in: the best one if it is as cheap as the cheapest, otherwise the cheapest."""
        ds, minimal = self.members[s].decision_set, self.members[s].minimal
        most = minimal.value + allowance(ds, minimal.value)
        if self.lower is not None and self.lower.adversaries[s].transport_cost <= most:
            return self.lower.adversaries[s]
        return minimal.adversary


def with_theta(theta: FloatArray, points: list[DualPoint]) -> list[DualPoint]:
    """Return the points with a common θ."""
    return [replace(point, theta=theta) for point in points]
