"""`RobustProblem`: rows, decision set and minimal radius, each built once. `InMemoryProblem`: its version in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._validation import FloatArray
from surefoot.certificates.calibration import (
    CalibratedRadius,
    RadiusEstimate,
    calibrate,
    label_cost_difference,
    largest_label_change,
    tied_sets,
)
from surefoot.certificates.certificate import Certificate, WorstCase
from surefoot.certificates.fresh import LossFunction, RowBound, SetBound
from surefoot.costs.metrics import Precomputed
from surefoot.dual.models import (
    AnyClassifier,
    Coordinates,
    FeatureBlock,
    FixedLosses,
    LinearModel,
    Model,
    standard_coordinates,
)
from surefoot.dual.row_store import InMemoryRows, RowStore, table_of
from surefoot.priors import LabelPrior
from surefoot.problem.distances import kept_transport
from surefoot.problem.losses import has_game
from surefoot.problem.rows import LabeledData, fingerprints, warn_if_picked
from surefoot.problem.sets import DecisionSet, plain_label_cost
from surefoot.solvers.minimal_radius import MinimalRadius, solve_minimal_radius
from surefoot.solvers.newton import DEFAULT_OPTIONS, NewtonOptions
from surefoot.solvers.search.best_bounds import JointState, SetAtRadius
from surefoot.solvers.search.solution import Solution, quick_start_in_memory, solve, solver_threads, typical_distance
from surefoot.solvers.transport import EqualRows, solve_transport

# With at most this many rows, a certificate keeps the worst-case labels and the fingerprints of its rows.
_FEW_ROWS = 1 << 24
# At most this many unlabeled rows are compared with the labeled rows.
_MOST_COMPARED = 1000
# With several sets, each is first solved to this gap, in units of the loss, to find the worst set.
_ROUGH = 0.1

OnRound = Callable[[JointState], None]


class Objective(ABC):
    """A learned or fixed model against the adversary of a robust problem.

    sweep : sums over the rows; model : the model without rows; coordinates : the coordinates of a linear model.
    """

    problem: RobustProblem
    sweep: RowStore
    model: Model
    coordinates: Coordinates | None

    @abstractmethod
    def solve(
        self,
        members: Sequence[SetAtRadius],
        *,
        tol: float,
        warm_start: JointState | None = None,
        options: NewtonOptions = DEFAULT_OPTIONS,
        on_round: OnRound | None = None,
        stop_below: float = -np.inf,
    ) -> Solution:
        """Compute both bounds over one decision set, or learn over a union of sets.

        `stop_below` : stop once the upper bound of a single set is below this value.
        """

    def worst_over(self, members: Sequence[SetAtRadius], *, tol: float) -> list[Solution]:
        """Solve with fixed losses over each set. The sets are independent.

        All sets are first solved to a rough gap. Only sets that may be the worst one are then solved to `tol`.
        """
        if len(members) == 1:
            return [self.solve(members, tol=tol)]
        found = [self.solve([member], tol=max(tol, _ROUGH * self.model.scale)) for member in members]
        worst = -np.inf
        for s in np.argsort([-one.risk for one in found]).tolist():
            if found[s].risk > worst:
                found[s] = self.solve([members[s]], tol=tol, warm_start=found[s].checkpoint, stop_below=worst)
            worst = max(worst, found[s].lower)
        return found

    def coefficients(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return coef_ and intercept_ for the original features."""
        if self.coordinates is None:
            raise TypeError("only a linear model has coefficients")
        return self.coordinates.coefficients(theta)

    def certificate(
        self,
        solutions: Sequence[Solution],
        loss: str,
        *,
        tol: float,
        estimate: RadiusEstimate | None = None,
        losses_at: LossFunction | None = None,
        largest_loss: float | None = None,
    ) -> Certificate:
        """Build the certificate of one solution, or of one solution per set of a union, with the largest of each bound.

        The penalty is subtracted from both bounds, so that they bound the loss. `tol` is the requested gap.
        """
        problem, worst = self.problem, max(solutions, key=lambda one: one.lower)
        penalty = self.model.penalty_value(worst.theta)
        risk, ds = max(one.risk for one in solutions), solutions[0].decision_set
        status = worst.status
        if len(solutions) > 1:
            status = "optimal" if risk - worst.lower <= tol else "stopped"
        radius = ds.radius if estimate is None else estimate.radius
        few, bound = self.sweep.n_rows <= _FEW_ROWS, None
        if few:
            sets = tuple(_set_bound(part) for one in solutions for part in one.parts)
            bound = RowBound(
                problem.anchors, problem.data.metric, sets, losses_at, largest_loss, problem.used, loss, radius
            )
        return Certificate(
            risk - penalty,
            worst.lower - penalty,
            radius,
            problem.minimal.value,
            ds.intervals.copy(),
            loss,
            status,
            self._worst_case(worst) if few else None,
            estimate,
            bound,
            _stages(worst),
            metric=problem.data.metric,
            label_cost=plain_label_cost(problem.decision_set.label_cost),
        )

    def _worst_case(self, solution: Solution) -> WorstCase:
        """Return the adversary's labels and transport cost, in units of the problem's own label cost."""
        bare = SetAtRadius(solution.decision_set, self.problem.minimal).problem(self.model)
        cost = 0.0
        for part, weight in zip(solution.parts, solution.weights, strict=True):
            if weight > 0:
                cost += weight * part.adversary.transport_cost
                u = label_cost_difference(self.problem.decision_set, part.decision_set)
                if u.any():
                    shares = self.sweep.label_shares(bare, part.adversary)
                    cost += weight * float(u @ (shares - self.problem.decision_set.label_frequencies))
        q = table_of(self.sweep, bare, solution.adversary)
        return WorstCase(*self.problem.over_all_rows(q), float(cost))


def _set_bound(part: Any) -> SetBound:
    ds, n = part.decision_set, len(part.decision_set.anchor_weights)
    empty = replace(ds, distances=np.empty((0, n)), row_weights=np.empty(0))
    return SetBound(empty, replace(part.point, theta=np.zeros((0, 0))), part.floor)


def _stages(solution: Solution) -> tuple[str, ...]:
    """Return the names of the stages up to the last one that improved a bound."""
    last = max((at for at, stage in enumerate(solution.stages) if stage.improved), default=len(solution.stages) - 1)
    return tuple(stage.name for stage in solution.stages[: last + 1])


class RobustProblem(ABC):
    """Labeled rows, unlabeled rows, and their decision set. The minimal radius is computed once.

    data : the labeled rows, and the unlabeled rows if they are in memory; decision_set : the set of infinite radius.
    finest : the gap to which fixed losses are solved by default.
    """

    data: LabeledData
    decision_set: DecisionSet
    finest: ClassVar[float]

    @property
    @abstractmethod
    def minimal(self) -> MinimalRadius:
        """The minimal radius of the decision set."""

    @property
    @abstractmethod
    def n_rows(self) -> int: ...

    @property
    @abstractmethod
    def row_weights(self) -> FloatArray:
        """(N,) the feature marginal, labeled rows first."""

    @property
    @abstractmethod
    def row_blocks(self) -> Iterable[FloatArray]:
        """Blocks of rows in order. The property can be read more than once."""

    @property
    @abstractmethod
    def used(self) -> NDArray[np.uint64]:
        """(N,) fingerprints of the rows."""

    @abstractmethod
    def linear(self, l2: float, fit_intercept: bool, *, standardized: bool = False) -> Objective:
        """Return the problem of learning a linear classifier."""

    @abstractmethod
    def fixed(self, losses: Any, scale: float | None = None) -> Objective:
        """Return the problem of a fixed classifier. Losses are (N, K), or a function of rows over blocks."""

    @abstractmethod
    def any_classifier(self, costs: FloatArray | None = None) -> Objective:
        """Return the problem of learning over all classifiers, with log loss or with costs (K, K)."""

    @abstractmethod
    def sample(self, most: int, seed: int) -> RobustProblem:
        """Return the problem over a sample of at most `most` unlabeled rows, in memory, with the same intervals."""

    @abstractmethod
    def with_label_shares(self, shares: FloatArray) -> RobustProblem:
        """Return the problem with labels reweighted so that the classes have these shares (K,)."""

    @property
    def anchors(self) -> FloatArray:
        """(n, d) labeled rows in the order of the decision set."""
        if self.decision_set.anchor_rows is None:
            raise ValueError("the decision set must know its anchors' rows: build it with build_decision_set")
        return self.data.rows[self.decision_set.anchor_rows]

    def over_all_rows(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values (N, ...) and weights for all rows as they were passed, from values of the problem's rows."""
        return values, self.row_weights

    def at_radius(self, radius: float) -> list[SetAtRadius]:
        """The decision set at a radius."""
        return [SetAtRadius(self.decision_set.with_radius(radius), self.minimal)]

    def at_excess(self, excess: float) -> list[SetAtRadius]:
        return self.at_radius(self.minimal.value + excess)

    def calibrate(self, how: CalibratedRadius) -> RadiusEstimate:
        """Estimate the radius from the labeled rows."""
        return calibrate(self.data, self.decision_set, self.minimal, how)

    def warn_if_picked(self) -> None:
        """Warn if the labeled rows do not look like a random sample, which an estimate assumes."""
        if self.data.target or isinstance(self.data.metric, Precomputed):
            return
        some = self.sample(_MOST_COMPARED, 0).data
        U = some.unlabeled
        if U is not None and some.counts is not None:
            U = np.repeat(U, some.counts.astype(np.intp), axis=0)
        warn_if_picked(self.data.rows, U, self.data.weights)

    def tied(self, excess: float) -> list[SetAtRadius]:
        """Return the sets of an estimated excess: one set, or a union of sets with label intervals."""
        return [SetAtRadius(*one) for one in tied_sets(self.decision_set, self.minimal, excess)]

    def containing(self, excess: float) -> list[SetAtRadius]:
        """Return one set that contains the sets of an estimated excess."""
        ds = self.decision_set
        lo, hi = ds.intervals.T
        if np.all(lo == hi):
            return self.tied(excess)
        shares = largest_label_change(ds)
        return self.at_radius(self.minimal.feature_part + excess + float(ds.label_cost.max()) * shares)

    def limit(self, members: Sequence[SetAtRadius], *, tol: float, costs: FloatArray | None = None) -> float:
        """Return a lower bound on the worst expected loss of every classifier over a set or a union of sets.

        costs : (K, K), entry [k, c] is the loss of predicting c if the class is k. It replaces the log loss. If there
        are too many classes for `CostGame`, the bound is the smallest loss under the distribution of largest entropy in
        a set.
        """
        if costs is None or has_game(costs):
            game = self.any_classifier(costs)
            return max(game.solve([member], tol=tol).lower for member in members)
        game, found = self.any_classifier(), []
        for member in members:
            q = table_of(game.sweep, member.problem(game.model), game.solve([member], tol=tol).adversary)
            found.append(float(self.row_weights @ (q @ costs).min(axis=1)))
        return max(found)

    def members(self, radius: float | str | CalibratedRadius) -> tuple[list[SetAtRadius], RadiusEstimate | None]:
        """Return the sets at a radius, or at an estimated radius."""
        if isinstance(radius, CalibratedRadius):
            self.warn_if_picked()
            estimate = self.calibrate(radius)
            return self.tied(estimate.excess), estimate
        return self.at_radius(float(radius)), None


@dataclass(frozen=True, eq=False)
class InMemoryProblem(RobustProblem):
    """A problem whose rows and distances are in memory. `n_jobs` threads work on groups of rows.

    merged : the groups of equal unlabeled rows if each group is one row of the problem, weighted by its size. None if
    no rows are merged.
    """

    data: LabeledData
    decision_set: DecisionSet
    n_jobs: int | None = 1
    merged: EqualRows | None = None

    finest: ClassVar[float] = 1e-6

    @classmethod
    def from_data(
        cls,
        data: LabeledData,
        label_prior: LabelPrior | ArrayLike | str | None,
        label_cost: ArrayLike,
        n_jobs: int | None = 1,
        merged: EqualRows | None = None,
    ) -> InMemoryProblem:
        return cls(data, data.decision_set(label_prior, label_cost), n_jobs, merged)

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
        return standard_coordinates(FeatureBlock(self.data.everything, self.row_weights), l2, fit_intercept)

    def linear(self, l2: float, fit_intercept: bool, *, standardized: bool = False) -> InMemoryObjective:
        rows = self.data.everything
        coordinates = self.coordinates(0.0 if standardized else l2, fit_intercept)
        model = coordinates.model(rows, self.decision_set.n_classes, l2, standardized=standardized)
        return self.play(model, coordinates)

    def fixed(self, losses: Any, scale: float | None = None) -> InMemoryObjective:
        return self.play(FixedLosses(np.asarray(losses), scale))

    def any_classifier(self, costs: FloatArray | None = None) -> InMemoryObjective:
        return self.play(AnyClassifier.with_costs(self.decision_set.n_classes, costs))

    def play(self, model: Model, coordinates: Coordinates | None = None) -> InMemoryObjective:
        """Pair any model with the rows."""
        return InMemoryObjective(self, InMemoryRows.from_decision_set(self.decision_set, model), model, coordinates)

    def with_label_shares(self, shares: FloatArray) -> InMemoryProblem:
        return replace(self, decision_set=self.decision_set.with_label_shares(shares))

    def over_all_rows(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        if self.merged is None:
            return values, self.row_weights
        first = len(self.data.counted_rows)
        row_of = np.append(np.arange(first), first + self.merged.member_of)
        counts = np.append(np.ones(first), self.merged.distinct_weights)
        return values[row_of], (self.row_weights / counts)[row_of]

    def sample(self, most: int, seed: int) -> InMemoryProblem:
        U = self.data.unlabeled
        if U is None or len(U) <= most:
            return self
        row_of = np.arange(len(U)) if self.merged is None else self.merged.member_of
        chosen = row_of[np.sort(np.random.default_rng(seed).choice(len(row_of), most, replace=False))]
        return replace_unlabeled(self, U[chosen], self.n_jobs)


def replace_unlabeled(problem: RobustProblem, rows: FloatArray, n_jobs: int | None = 1) -> InMemoryProblem:
    """Return the problem with other unlabeled rows, in memory, with the same label intervals and costs."""
    data = replace(problem.data, unlabeled=rows, counts=None)
    known = problem.decision_set
    ds = data.decision_set(None, known.label_cost)
    return InMemoryProblem(data, replace(ds, intervals=known.intervals, anchor_weights=known.anchor_weights), n_jobs)


@dataclass(frozen=True, eq=False)
class InMemoryObjective(Objective):
    """A model over rows in memory. The model also holds the rows."""

    problem: InMemoryProblem
    sweep: InMemoryRows
    model: Model
    coordinates: Coordinates | None = None

    @property
    def linear_model(self) -> LinearModel:
        if not isinstance(self.model, LinearModel):
            raise TypeError("the model of this objective is not linear")
        return self.model

    def solve(
        self,
        members: Sequence[SetAtRadius],
        *,
        tol: float,
        warm_start: JointState | None = None,
        options: NewtonOptions = DEFAULT_OPTIONS,
        on_round: OnRound | None = None,
        stop_below: float = -np.inf,
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
                stop_below=stop_below,
            )
