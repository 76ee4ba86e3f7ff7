"""Learn a linear classifier against a union of decision sets over the same rows: min_θ max_s max_{μ ∈ set s} E_μ ℓ_θ.

The supremum of a linear function over a union is that over its convex hull, so a mixture of one adversary per set
attains it, and the minimax theorem holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surefoot._types import FloatArray
from surefoot.dual.bounds import Adversary, dual_value, meet
from surefoot.dual.models import LinearModel
from surefoot.dual.objective import DualPoint
from surefoot.exact.solution import solve_certified, solver_threads
from surefoot.exact.union_search import Member, UnionSearch
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal import MinimalRadius, check_radius
from surefoot.solvers.newton import DEFAULT_OPTIONS, NewtonOptions, PathPoint


@dataclass(frozen=True)
class UnionPart:
    """One set of a solved union: the dual point (with the common θ) that proves `risk`, and an adversary in the set.

    The adversary of a set without weight in the mixture is some distribution in it, the cheapest one.
    """

    decision_set: DecisionSet
    point: DualPoint
    adversary: Adversary
    risk: float


@dataclass(frozen=True)
class UnionSolution:
    """A classifier learned against a union of decision sets, with both bounds.

    parts : one per set, in the order given.
    weights : (S,) of the adversaries in the mixture; they sum to one, and are zero for sets that do not matter.
    mixture : Σ_s weights_s · (adversary of set s); its transport cost mixes theirs, each by the label cost of its set.
        So it bounds W_c of the mixture only where all sets have the same label cost.
    risk, lower : bounds of min_θ max_s max_μ E_μ ℓ_θ + penalty; the first holds for this θ, the second for every θ.
    status : "optimal" (gap ≤ tol), "separable" (no finite θ attains the minimum; the bounds hold) or "stopped".
    n_steps : Newton steps of all paths that were followed.
    """

    parts: tuple[UnionPart, ...]
    weights: FloatArray
    mixture: Adversary
    risk: float
    lower: float
    status: str
    n_steps: int

    @property
    def gap(self) -> float:
        return self.risk - self.lower

    @property
    def theta(self) -> FloatArray:
        return self.parts[0].point.theta

    @property
    def label_proba(self) -> FloatArray:
        """(N, K) labels of the mixture."""
        return self.mixture.label_proba

    @property
    def transport_cost(self) -> float:
        return self.mixture.transport_cost


def solve_union(
    sets: list[tuple[DecisionSet, MinimalRadius]],
    model: LinearModel,
    *,
    tol: float = 1e-4,
    options: NewtonOptions = DEFAULT_OPTIONS,
    n_jobs: int | None = 1,
    on_round: Callable[[PathPoint], None] | None = None,
) -> UnionSolution:
    """Solve min_θ max_s max_{μ ∈ set s} E_μ ℓ_θ + penalty to a certified gap ≤ tol.

    sets : decision sets over the same rows, each with its minimal radius; label costs, intervals and radii may differ.
    on_round : told each round of the path, at the point of the first set that still takes part.
    """
    _check_sets(sets, model)
    if len(sets) == 1:
        ds, minimal = sets[0]
        alone = solve_certified(ds, model, tol=tol, minimal=minimal, options=options, n_jobs=n_jobs, on_round=on_round)
        part = UnionPart(ds, alone.path.point, alone.adversary, alone.risk)
        steps = alone.path.steps
        return UnionSolution((part,), np.ones(1), alone.adversary, alone.risk, alone.lower, alone.status, steps)
    with solver_threads(n_jobs) as executor:
        search = UnionSearch([Member(*one) for one in sets], model, tol, options, executor, on_round)
        upper, lower = search.learn()
    parts = tuple(
        UnionPart(ds, point, adversary, dual_value(ds, model, point))
        for (ds, _), point, adversary in zip(sets, upper.points, lower.adversaries, strict=True)
    )
    status = "stopped" if search.gap > tol else "separable" if lower.bound.unbounded else "optimal"
    least = meet(upper.risk, lower.bound.value)
    return UnionSolution(parts, lower.weights, lower.mixture, upper.risk, least, status, search.n_steps)


def _check_sets(sets: list[tuple[DecisionSet, MinimalRadius]], model: LinearModel) -> None:
    if not sets:
        raise ValueError("a union needs at least one decision set; got none. Pass a list of (set, minimal radius).")
    first = sets[0][0]
    if len(model.X) != len(first.row_weights):
        raise ValueError(
            f"the model must have one row per row of the sets; got {len(model.X)} and {len(first.row_weights)} rows. "
            "Build both from the same rows."
        )
    for position, (ds, minimal) in enumerate(sets):
        same = ds.row_weights is first.row_weights or np.array_equal(ds.row_weights, first.row_weights)
        if not same or ds.n_classes != model.n_classes:
            raise ValueError(
                f"all sets of a union must share their rows, and the {model.n_classes} classes of the model; set "
                f"{position} has {ds.n_classes} classes, and its row weights {'agree' if same else 'disagree'} with "
                "those of set 0. Build all sets from one decision set."
            )
        check_radius(ds, minimal)
