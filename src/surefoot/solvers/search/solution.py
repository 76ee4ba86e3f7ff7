"""Solve a robust problem to a certified gap, and start problems in memory quickly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from surefoot._machine import one_blas_thread
from surefoot._validation import FloatArray
from surefoot.dual.adversary import meet
from surefoot.dual.models import DualPoint, LinearModel, Model
from surefoot.dual.objective import SmoothedDual
from surefoot.dual.row_store import InMemoryRows, RowStore
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.joint_objective import JointDual, JointPoint
from surefoot.solvers.minimal_radius import MinimalRadius, check_radius, solve_minimal_radius
from surefoot.solvers.newton import DEFAULT_OPTIONS, NewtonOptions, PathState, follow
from surefoot.solvers.search.best_bounds import BestBounds, JointState, SetAtRadius
from surefoot.solvers.search.endings import Stage, StopRule, coarsen, start_from_potentials
from surefoot.solvers.search.search import Search, fixed_loss_options, response_options
from surefoot.solvers.transport import TransportSolution

# Solve a robust problem to a certified gap: the inner problem for fixed losses, or learning a linear model.


@dataclass(frozen=True, eq=False)
class SetSolution:
    """The part of a solution for one set: the dual point (with the common θ) that proves `risk`, and an adversary.

    floor : the smallest Φ over the rows. If a set has no weight in the mixture, its adversary is an arbitrary element
    of the set.
    """

    decision_set: DecisionSet
    minimal: MinimalRadius
    point: DualPoint
    adversary: Any
    risk: float
    floor: float


@dataclass(frozen=True, eq=False)
class Solution:
    """A solved robust problem over one set or a union of sets, with both bounds, recomputed at the returned point.

    parts : one per set, in the order given.
    weights : (S,) of the adversaries in the mixture. They sum to one, and are zero for inactive sets.
    adversary : Σ_s weights_s · (adversary of set s). Its transport cost mixes the costs of these adversaries, each in
    the label cost of its set. It therefore bounds W_c of the mixture only if all sets have the same label cost.
    risk, lower : bounds of min_θ max_s max_μ E_μ ℓ_θ + penalty. `risk` holds for this θ, `lower` for every θ.
    status : "optimal" (gap ≤ tol), "separable" (no finite θ attains the minimum; the bounds are valid), or "stopped"
    (gap > tol).
    path : the state at which the upper bound was found.
    checkpoints : an early point of the path, smooth enough to start a nearby problem, and its last point; empty if
    there was no path.
    stages : the stages of the search, in order; n_steps : the total of their Newton steps.
    """

    model: Model
    parts: tuple[SetSolution, ...]
    weights: FloatArray
    adversary: Any
    risk: float
    lower: float
    status: str
    path: JointState
    checkpoints: tuple[JointState, ...]
    stages: tuple[Stage, ...]
    n_steps: int

    @classmethod
    def from_search(cls, search: Search) -> Solution:
        """Build a solution from the best bounds of a search."""
        upper, lower = search.judge.upper, search.judge.lower
        if upper is None or lower is None:
            raise RuntimeError("no point was certified: follow a path first")
        parts = tuple(
            SetSolution(member.decision_set, member.minimal, point, adversary, risk, floor)
            for member, point, adversary, risk, floor in zip(
                search.members, upper.points, lower.adversaries, upper.risks, upper.floors, strict=True
            )
        )
        # if the bounds cross, the adversary attains more than was proved, so the attained value is reported
        risk, least = max(upper.risk, lower.bound.value), meet(upper.risk, lower.bound.value)
        status = "stopped" if not risk - least <= search.tol else "separable" if lower.bound.unbounded else "optimal"
        return cls(
            search.judge.model,
            parts,
            lower.weights,
            lower.mixture,
            risk,
            least,
            status,
            upper.path,
            search.checkpoints(),
            tuple(search.log.stages),
            search.log.n_steps,
        )

    @property
    def gap(self) -> float:
        return self.risk - self.lower

    @property
    def checkpoint(self) -> JointState | None:
        """An early point of the path, or None."""
        return self.checkpoints[0] if self.checkpoints else None

    @property
    def decision_set(self) -> DecisionSet:
        return self.parts[0].decision_set

    @property
    def minimal_radius(self) -> MinimalRadius:
        return self.parts[0].minimal

    @property
    def point(self) -> DualPoint:
        """The dual point of the first set, or of the only one."""
        return self.parts[0].point

    @property
    def theta(self) -> FloatArray:
        return self.point.theta

    @property
    def label_proba(self) -> FloatArray:
        """The labels (N, K) of the mixture, for rows in memory."""
        return np.asarray(self.adversary.label_proba)


@contextmanager
def solver_threads(n_jobs: int | None) -> Iterator[ThreadPoolExecutor | None]:
    """Limit BLAS to one thread, and return an executor for groups of rows if n_jobs is more than one."""
    workers = effective_n_jobs(n_jobs)
    with one_blas_thread():
        if workers <= 1:
            yield None
        else:
            with ThreadPoolExecutor(workers) as executor:
                yield executor


def solve(
    sweep: RowStore,
    model: Model,
    members: Sequence[SetAtRadius],
    *,
    tol: float,
    typical: float,
    quick: Callable[[Search], JointState | None],
    warm_start: JointState | None = None,
    options: NewtonOptions = DEFAULT_OPTIONS,
    on_round: Callable[[JointState], None] | None = None,
    stop_below: float = -np.inf,
) -> Solution:
    """Solve min_θ max_s max_{μ ∈ set s} E_μ ℓ_θ + penalty (max_μ alone for fixed losses) to a certified gap ≤ tol.

    sweep : sums over the rows; model : the model without rows; members : decision sets over the same rows, each with
    its minimal radius; typical : the size of a distance. `quick` returns a later start of the path than zero.
    `stop_below` : stop once the upper bound of a single set is below this value. The solution lists its stages
    (docs/solver.md).
    """
    for member in members:
        check_radius(member.decision_set, member.minimal)
    if not model.learns:
        options = response_options(options, tol) if model.responds else fixed_loss_options(options)
    search = Search(BestBounds(sweep, model, list(members)), typical, tol, options, on_round, StopRule(stop_below))
    search.run(warm_start, quick)
    search.judge.uncross(tol)
    return Solution.from_search(search)


def solve_certified(
    ds: DecisionSet,
    model: Model,
    *,
    tol: float = 1e-4,
    warm_start: JointState | None = None,
    minimal: MinimalRadius | None = None,
    options: NewtonOptions = DEFAULT_OPTIONS,
    n_jobs: int | None = 1,
    on_round: Callable[[JointState], None] | None = None,
) -> Solution:
    """Run `solve` for one decision set with all rows in memory, in the set and in the model."""
    minimal = minimal if minimal is not None else solve_minimal_radius(ds)
    return solve_held(
        [(ds, minimal)], model, tol=tol, warm_start=warm_start, options=options, n_jobs=n_jobs, on_round=on_round
    )


def solve_held(
    sets: Sequence[tuple[DecisionSet, MinimalRadius]],
    model: Model,
    *,
    tol: float = 1e-4,
    warm_start: JointState | None = None,
    options: NewtonOptions = DEFAULT_OPTIONS,
    n_jobs: int | None = 1,
    on_round: Callable[[JointState], None] | None = None,
) -> Solution:
    """Run `solve` for sets over the same rows, in memory. Label costs, intervals and radii may differ."""
    _check_sets(sets, model)
    with solver_threads(n_jobs) as executor:
        rows = InMemoryRows.from_decision_set(sets[0][0], model, executor)
        return solve(
            rows,
            model,
            [SetAtRadius(ds, minimal) for ds, minimal in sets],
            tol=tol,
            typical=typical_distance(rows, sets[0][0]),
            quick=quick_start_in_memory,
            warm_start=warm_start,
            options=options,
            on_round=on_round,
        )


def typical_distance(rows: InMemoryRows, ds: DecisionSet) -> float:
    """Return the mean distance between rows and anchors, or the label cost if all rows are equal."""
    return rows.mean_distance(ds.anchor_weights) or float(ds.label_cost.max())


def _check_sets(sets: Sequence[tuple[DecisionSet, MinimalRadius]], model: Model) -> None:
    if not sets:
        raise ValueError("a union requires at least one decision set, got none. Pass a list of (set, minimal radius).")
    if not isinstance(model, LinearModel):
        return
    first = sets[0][0]
    if len(model.X) != len(first.row_weights):
        raise ValueError(
            f"the model must have one row per row of the sets; got {len(model.X)} and {len(first.row_weights)} rows. "
            "Build both from the same rows."
        )
    for position, (ds, _) in enumerate(sets):
        same = ds.row_weights is first.row_weights or np.array_equal(ds.row_weights, first.row_weights)
        if not same or ds.n_classes != model.n_classes:
            raise ValueError(
                f"all sets of a union must share their rows and the {model.n_classes} classes of the model; set "
                f"{position} has {ds.n_classes} classes, and its row weights {'agree' if same else 'disagree'} with "
                "those of set 0. Build all sets from one decision set."
            )


# The early part of the path runs over a few rows down to this τ, in units of the loss.
_COARSE_TAU = 0.02


def quick_start_in_memory(search: Search) -> JointState | None:
    """Follow the early part of the path over a few rows, the same for all sets, if this is a large enough saving.

    Returns None if the potentials of the minimal radius give no start, or if the path over a few rows failed.
    """
    sweep, model = search.judge.sweep, search.judge.model
    if not isinstance(sweep, InMemoryRows):
        raise TypeError("a coarse start requires rows in memory")
    coarse = []
    for member in search.members:
        transport = member.minimal.transport
        if not isinstance(transport, TransportSolution) or transport.cost <= 0:
            return None
        rng = np.random.default_rng(0)  # one seed for all sets, which must keep the same rows
        found = coarsen(
            replace(member.opened, row_weights=sweep.weights),
            sweep.distances,
            member.model(model).over(sweep),
            transport,
            search.scale,
            rng,
            len(search.members),
        )
        if found is None:
            return _from_potentials(search)
        coarse.append(found)
    joint = JointDual([SmoothedDual(one.decision_set, one.model) for one in coarse])
    start = PathState(JointPoint(tuple(one.start.point for one in coarse)), coarse[0].start.tau)
    path = follow(joint, start, 0.0, search.options, search.on_round, _COARSE_TAU * search.scale)
    return None if path.stalled or np.isinf(path.smoothing_gap) else replace(path, smoothing_gap=np.inf)


def _from_potentials(search: Search) -> JointState | None:
    """Start from the potentials of the minimal radius, if there is one set."""
    if len(search.members) > 1:
        return None
    member = search.members[0]
    transport = member.minimal.transport
    start = start_from_potentials(member.opened, search.judge.model, transport.potentials, transport.cost, search.scale)
    return PathState(JointPoint((start.point,)), start.tau)
