"""Both bounds of min_θ max_s max_{μ ∈ set s} E_μ ℓ_θ found so far, for one decision set or a union of them.

The supremum of a linear function over a union is that over its convex hull, so a mixture of one adversary per set
attains it, and the minimax theorem holds. Upper and lower bound may come from different points: every bound holds for
the problem itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from surefoot._validation import FloatArray
from surefoot.dual.adversary import Adversary, allowance, feasible_adversary, mixture, opened_radius
from surefoot.dual.block import Block, DualProblem
from surefoot.dual.bounds import LowerBound, reduced_dual_constant
from surefoot.dual.models import DualPoint, LinearModel, Model
from surefoot.dual.row_store import RowStore
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.joint_objective import JointPoint
from surefoot.solvers.minimal_radius import MinimalRadius
from surefoot.solvers.newton import PathState

# Adversaries of smaller weight are left out of the mixture.
_LEAST_WEIGHT = 1e-7
# Share of tol that a classifier which hedges may lose beyond the lower bound.
_HEDGE = 0.7

# Bounds may cross by this share of tol; an adversary is led back by halving, so often at most.
_LEVEL, _MOST_HALVINGS = 0.1, 30

JointState = PathState[JointPoint]


@dataclass(frozen=True, eq=False)
class SetAtRadius:
    """One decision set of a union, or the only one, with its minimal radius."""

    decision_set: DecisionSet
    minimal: MinimalRadius

    @cached_property
    def opened(self) -> DecisionSet:
        """The set, or where its radius is the minimal one, one larger by rounding error: it then has an interior."""
        return self.decision_set.with_radius(opened_radius(self.decision_set, self.minimal.value, share=0.4))

    @property
    def closed(self) -> bool:
        """Whether the radius is the minimal one; where that is zero, float64 knows no larger one to open the set to."""
        radius = self.decision_set.radius
        return radius < self.opened.radius or radius == self.minimal.value == 0.0

    def problem(self, model: Model) -> DualProblem:
        return DualProblem.from_decision_set(self.decision_set, model)


@dataclass(frozen=True)
class UpperBound:
    """The largest of the dual values at the points (S) of all sets, which share one θ.

    floors : (S) the least Φ over the rows; weights : (S,) of the sets where the points were found; path : there.
    """

    risk: float
    risks: tuple[float, ...]
    points: tuple[DualPoint, ...]
    floors: tuple[float, ...]
    weights: FloatArray
    path: JointState


@dataclass(frozen=True)
class MixtureBound:
    """A lower bound for the union: the smallest loss under a mixture of adversaries (S), by weights (S,)."""

    bound: LowerBound
    weights: FloatArray
    adversaries: tuple[Adversary, ...]
    mixture: Adversary


@dataclass
class BestBounds:
    """The best bounds so far. Every lower bound holds for the union, whichever sets take part in its mixture."""

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
        """The dual value of one set, and its least Φ."""
        return self.sweep.upper_bound(self.problems[s], point)

    def risk_beyond(self, s: int, point: DualPoint) -> tuple[float, float]:
        """`risk` of the point moved by α times the potentials of the minimal radius, without their cancellation.

        Their own dual value is the minimal radius, so α prices only what a plan costs beyond the cheapest one.
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
        """Keep dual points of all sets if the largest of their values and least Φ, `found`, is the least so far."""
        risks, floors = zip(*found, strict=True)
        if np.isfinite(risks).all() and (self.upper is None or max(risks) < self.upper.risk):
            self.upper = UpperBound(max(risks), risks, tuple(points), floors, weights, path)

    def consider_hedge(self, theta: FloatArray, tol: float, path: JointState) -> None:
        """Where the lower bound is that of a constant answer, log K: keep θ, scaled down until any labels would do.

        A classifier that gives every label the same probability loses log K whatever the labels are. One that leans
        towards θ by very little loses little more, and still says which label it would choose.
        """
        if self.lower is None or not isinstance(self.model, LinearModel):
            return
        constant = float(np.log(self.model.n_classes))
        room = self.lower.bound.value + _HEDGE * tol - constant
        largest = self._without_constraints(theta)[1][0][0] - constant
        if room <= 0 or not np.isfinite(largest):
            return
        # the loss at θ is convex along a line from zero: a share of θ loses at most that share of the difference
        share = min(1.0, room / max(largest, 1e-300))
        points, found = self._without_constraints(share * theta)
        self.consider_points(points, found, np.full(len(self.members), 1.0 / len(self.members)), path)

    def _without_constraints(self, theta: FloatArray) -> tuple[list[DualPoint], list[tuple[float, float]]]:
        """Dual points with a price on nothing: the mean over rows of the largest loss, for every set alike."""
        n, K = len(self.members[0].decision_set.anchor_weights), self.members[0].decision_set.n_classes
        point = DualPoint(theta, 0.0, np.zeros(K), np.zeros(n))
        found = self.risk(0, point)
        return [point] * len(self.members), [found] * len(self.members)

    def soft_adversaries(
        self, weights: FloatArray, points: list[DualPoint], tau: float
    ) -> dict[int, tuple[Adversary, FloatArray]]:
        """Adversaries of the soft plans with their label probabilities (K,), those of little weight left out."""
        chosen = np.flatnonzero(weights >= _LEAST_WEIGHT).tolist()
        return {s: self.sweep.soft_adversary(self.problems[s], points[s], tau) for s in chosen}

    def consider_mixture(
        self, wanted: dict[int, tuple[Adversary, FloatArray]], weights: FloatArray, theta: FloatArray
    ) -> float:
        """Mix the adversaries wanted, after each was moved into its set; the best lower bound so far."""
        adversaries: list[Adversary] = [member.minimal.adversary for member in self.members]
        shares = np.zeros(len(weights))
        for s, (one, labels) in wanted.items():
            adversaries[s] = feasible_adversary(self.members[s].decision_set, one, labels, self._retreat(s))
            shares[s] = weights[s]
        shares /= shares.sum()
        mixed = mixture(adversaries, shares)
        bound = self.sweep.lower_bound(self.problems[0], mixed, theta)
        if self.lower is None or bound.value > self.lower.bound.value:
            self.lower = MixtureBound(bound, shares, tuple(adversaries), mixed)
        return self.lower.bound.value

    def uncross(self, tol: float) -> None:
        """Lead an adversary that attains more than the upper bound back towards those of the minimal radius.

        It then spends more than the radius, by no more than the allowance, and need not.
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
        """The bound of adversaries that are mixed with those of the minimal radius."""
        sets = zip(found.adversaries, self.members, strict=True)
        weights = np.array([1.0 - share, share])
        adversaries = [mixture([one, member.minimal.adversary], weights) for one, member in sets]
        mixed = mixture(adversaries, found.weights)
        bound = self.sweep.lower_bound(self.problems[0], mixed, theta)
        return MixtureBound(bound, found.weights, tuple(adversaries), mixed)

    def _retreat(self, s: int) -> Adversary:
        """The best adversary so far is a better place to retreat to than the cheapest one, when it is as cheap."""
        ds, minimal = self.members[s].decision_set, self.members[s].minimal
        most = minimal.value + allowance(ds, minimal.value)
        if self.lower is not None and self.lower.adversaries[s].transport_cost <= most:
            return self.lower.adversaries[s]
        return minimal.adversary


def with_theta(theta: FloatArray, points: list[DualPoint]) -> list[DualPoint]:
    """The points with a common θ."""
    return [replace(point, theta=theta) for point in points]
