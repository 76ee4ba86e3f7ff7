"""A robust problem whose rows and distances are held in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._validation import FloatArray
from surefoot.dual.design import Coordinates, FeatureBlock, standardize
from surefoot.dual.models import FixedLosses, LinearModel, Model
from surefoot.dual.sweep import InMemoryRows
from surefoot.priors import LabelPrior
from surefoot.problem.distances import kept_transport
from surefoot.problem.robust import Objective, OnRound, RobustProblem
from surefoot.problem.rows import LabeledData, fingerprints
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal_radius import MinimalRadius, solve_minimal_radius
from surefoot.solvers.newton import DEFAULT_OPTIONS, NewtonOptions
from surefoot.solvers.search.best_bounds import JointState, SetAtRadius
from surefoot.solvers.search.solution import Solution, quick_start_in_memory, solve, solver_threads, typical_distance
from surefoot.solvers.transport import solve_transport


@dataclass(frozen=True, eq=False)
class InMemoryProblem(RobustProblem):
    """A problem whose rows and distances are held in memory; `n_jobs` threads work on groups of rows."""

    data: LabeledData
    decision_set: DecisionSet
    n_jobs: int | None = 1

    @classmethod
    def from_data(
        cls,
        data: LabeledData,
        label_prior: LabelPrior | ArrayLike | str | None,
        label_cost: ArrayLike,
        n_jobs: int | None = 1,
    ) -> InMemoryProblem:
        return cls(data, data.decision_set(label_prior, label_cost), n_jobs)

    @cached_property
    def minimal(self) -> MinimalRadius:
        ds = self.decision_set
        transport = kept_transport(ds.distances, ds.row_weights, ds.anchor_weights, solve_transport)
        return solve_minimal_radius(ds, transport)

    @property
    def n_rows(self) -> int:
        return len(self.decision_set.row_weights)

    @property
    def row_weights(self) -> FloatArray:
        return self.decision_set.row_weights

    @property
    def row_blocks(self) -> Iterable[FloatArray]:
        return [self.data.everything]

    @cached_property
    def used(self) -> NDArray[np.uint64]:
        return fingerprints(self.data.everything)

    @cached_property
    def typical(self) -> float:
        ds = self.decision_set
        return typical_distance(InMemoryRows(ds.distances, ds.row_weights), ds)

    def coordinates(self, l2: float, fit_intercept: bool) -> Coordinates:
        return standardize(FeatureBlock(self.data.everything, self.row_weights), l2, fit_intercept)

    def linear(self, l2: float, fit_intercept: bool, *, standardized: bool = False) -> InMemoryObjective:
        rows = self.data.everything
        coordinates = self.coordinates(0.0 if standardized else l2, fit_intercept)
        model = coordinates.model(rows, self.decision_set.n_classes, l2, standardized=standardized)
        return self.play(model, coordinates)

    def fixed(self, losses: Any, scale: float | None = None) -> InMemoryObjective:
        return self.play(FixedLosses(np.asarray(losses), scale))

    def play(self, model: Model, coordinates: Coordinates | None = None) -> InMemoryObjective:
        """Any model over the rows."""
        return InMemoryObjective(self, InMemoryRows.from_decision_set(self.decision_set, model), model, coordinates)

    def with_label_shares(self, shares: FloatArray) -> InMemoryProblem:
        return replace(self, decision_set=self.decision_set.with_label_shares(shares))

    def sample(self, most: int, seed: int) -> InMemoryProblem:
        U = self.data.unlabeled
        if U is None or len(U) <= most:
            return self
        chosen = np.sort(np.random.default_rng(seed).choice(len(U), most, replace=False))
        return replace_unlabeled(self, U[chosen], self.n_jobs)


def replace_unlabeled(problem: RobustProblem, rows: FloatArray, n_jobs: int | None = 1) -> InMemoryProblem:
    """A problem with other unlabeled rows, in memory; label intervals and costs stay as they are."""
    data = replace(problem.data, unlabeled=rows)
    known = problem.decision_set
    ds = data.decision_set(None, known.label_cost)
    return InMemoryProblem(data, replace(ds, intervals=known.intervals, anchor_weights=known.anchor_weights), n_jobs)


@dataclass(frozen=True, eq=False)
class InMemoryObjective(Objective):
    """A model over rows in memory; the model knows them too."""

    problem: InMemoryProblem
    sweep: InMemoryRows
    model: Model
    coordinates: Coordinates | None = None

    @property
    def linear_model(self) -> LinearModel:
        if not isinstance(self.model, LinearModel):
            raise TypeError("the model of this game is not linear")
        return self.model

    def solve(
        self,
        members: Sequence[SetAtRadius],
        *,
        tol: float,
        warm_start: JointState | None = None,
        options: NewtonOptions = DEFAULT_OPTIONS,
        on_round: OnRound | None = None,
        enough: float = -np.inf,
    ) -> Solution:
        with solver_threads(self.problem.n_jobs) as executor:
            return solve(
                replace(self.sweep, executor=executor),
                self.model,
                members,
                tol=tol,
                typical=self.problem.typical,
                quick=quick_start_in_memory,
                warm_start=warm_start,
                options=options,
                on_round=on_round,
                enough=enough,
            )
