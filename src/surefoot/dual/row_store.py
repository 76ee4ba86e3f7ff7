"""Sums over all rows of a problem: in memory as one block, or read in many blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.dual.adversary import Adversary, LabelTable, RuleMixture, SoftPlanLabels
from surefoot.dual.block import Block, DualProblem
from surefoot.dual.bounds import AnchorRepair, LogisticSums, LowerBound, SmallestLoss, dual_constant
from surefoot.dual.models import DualPoint, FixedLosses, FrozenModel, KeptLosses, LinearModel, Model, RowTotals
from surefoot.dual.row_sums import RowSums, WeightedRows
from surefoot.dual.shortlist import ShortlistKeeper
from surefoot.kernels.tiles import factorized
from surefoot.problem.sets import DecisionSet

P = ParamSpec("P")
T = TypeVar("T")


class RowStore(ABC):
    """The rows of a problem, in one block or in many, and the sums over these rows.

    `total` and `gather` apply a method of `Block` to each block. Every other sum is built on these two.
    """

    n_rows: int

    @property
    def is_narrow(self) -> bool:
        """True if sums that need not be exact are computed in float32."""
        return False

    @property
    def threads(self) -> Executor | None:
        """The threads of this process, if several may be used."""
        return None

    @abstractmethod
    def total(
        self, problem: DualProblem, work: Callable[Concatenate[Block, P], T], *parameters: P.args, **named: P.kwargs
    ) -> T:
        """Return the sum over blocks of the results of `work`."""

    @abstractmethod
    def gather(
        self,
        problem: DualProblem,
        work: Callable[Concatenate[Block, P], FloatArray],
        *parameters: P.args,
        **named: P.kwargs,
    ) -> FloatArray:
        """Concatenate the arrays that `work` returns for each block."""

    def row_sums(
        self, problem: DualProblem, point: DualPoint, tau: float, *, second_order: bool, exact: bool
    ) -> RowSums:
        """Compute the sums for the smoothed dual and its derivatives. `exact` requires float64."""
        return self.total(problem, Block.row_sums, point, tau, second_order, not exact)

    def some_row_sums(self, problem: DualProblem, point: DualPoint, tau: float) -> tuple[RowSums, bool] | None:
        """Return first-order sums over listed anchors, and True if unlisted anchors have no weight. None without lists.

        If an unlisted anchor has a weight, Φ is too small.
        """
        return None

    def factorized(self, matrix: FloatArray, *, tame: bool = False) -> Callable[[FloatArray], FloatArray]:
        """Return a solver of matrix · x = right, as in `tiles`, on the device of the rows."""
        return factorized(matrix, self.threads, tame=tame)

    def upper_bound(self, problem: DualProblem, point: DualPoint) -> tuple[float, float]:
        """Return the exact dual value, and the smallest Φ over the rows."""
        rows = self.total(problem, Block.dual_rows, point)
        constant = dual_constant(problem.decision_set, point) + problem.model.penalty_value(point.theta)
        return constant + float(rows.sums[0][0]), -rows.largest[0]

    def anchor_repair(self, problem: DualProblem, point: DualPoint, tau: float) -> AnchorRepair:
        """Return the repair that makes the anchor marginal of the softmax plan exact."""
        return AnchorRepair.from_mass(problem.decision_set, self.total(problem, Block.plan_mass, point, tau).sums[0])

    def soft_adversary(
        self, problem: DualProblem, point: DualPoint, tau: float
    ) -> tuple[Adversary, NDArray[np.float64]]:
        """Return the labels of the softmax plan, with the repaired plan's cost, and the label probabilities (K,)."""
        repair = self.anchor_repair(problem, point, tau)
        cost, shares = self.total(problem, Block.plan_cost, point, tau, repair).sums
        rule = SoftPlanLabels(problem.decision_set, point, tau)
        return RuleMixture(((1.0, rule, None),), float(cost[0])), shares

    def label_shares(self, problem: DualProblem, adversary: Adversary) -> FloatArray:
        """Return the label probabilities (K,) of an adversary."""
        return self.total(problem, Block.label_shares, adversary).sums[0]

    def at_coefficients(self, model: LinearModel, theta: FloatArray) -> tuple[RowStore, Model]:
        """Return the same rows, with the losses of a linear model with fixed coefficients."""
        return self, FrozenModel(model, theta)

    def lower_bound(self, problem: DualProblem, adversary: Adversary, theta: FloatArray) -> LowerBound:
        """Bound the minimum over θ of E_q ℓ(θ) + ½ θᵀRθ from below, under the adversary's labels q."""
        if problem.model.responds:
            return LowerBound(float(self.total(problem, Block.least_loss, adversary).sums[0][0]))
        if not problem.model.learns:
            return LowerBound(float(self.total(problem, Block.expected_loss, adversary).sums[0][0]))
        return SmallestLoss(problem.model, self._logistic(problem, adversary)).bound(theta)

    def _logistic(self, problem: DualProblem, adversary: Adversary) -> LogisticSums:
        return _LogisticPasses(self, problem, adversary)


@dataclass(frozen=True)
class _LogisticPasses:
    """The sums of `SoftLabels`, each computed in a pass over all blocks."""

    sweep: RowStore
    problem: DualProblem
    adversary: Adversary

    def start(self, theta: FloatArray) -> RowTotals:
        return self.sweep.total(self.problem, Block.logistic_start, self.adversary, theta)

    def local(self, theta: FloatArray) -> RowTotals:
        return self.sweep.total(self.problem, Block.logistic_local, self.adversary, theta)

    def moved(self, theta: FloatArray, step: FloatArray) -> RowTotals:
        return self.sweep.total(self.problem, Block.logistic_moved, self.adversary, theta, step)


@dataclass(frozen=True, eq=False)
class InMemoryRows(RowStore):
    """All rows in memory, as one block: distances (N, n), weights (N,), and the design matrix or the losses."""

    distances: FloatArray
    weights: FloatArray
    design: FloatArray | None = None
    losses: FloatArray | None = None
    executor: Executor | None = None
    lists: ShortlistKeeper = field(default_factory=ShortlistKeeper)
    kept: KeptLosses = field(default_factory=KeptLosses)

    @classmethod
    def from_decision_set(cls, ds: DecisionSet, model: Model, executor: Executor | None = None) -> InMemoryRows:
        """Return the rows of a decision set and of its model."""
        if isinstance(model, LinearModel):
            return cls(ds.distances, ds.row_weights, model.X, None, executor)
        losses = model.losses(np.zeros((0, 0)), slice(0, len(ds.row_weights)))
        return cls(ds.distances, ds.row_weights, None, losses, executor)

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.weights)

    @property
    def threads(self) -> Executor | None:
        return self.executor

    def block(self, problem: DualProblem) -> Block:
        return Block(problem, self.distances, self.weights, lambda: self.design, lambda: self.losses)

    def total(self, problem: DualProblem, work: Any, *parameters: Any, **named: Any) -> Any:
        return work(self.block(problem), *parameters, **named)

    gather = total

    def row_sums(
        self, problem: DualProblem, point: DualPoint, tau: float, *, second_order: bool, exact: bool
    ) -> RowSums:
        """Sum by threads over groups of rows if there is an executor, and over short lists if they are faster."""
        rows = replace(self._weighted(problem), rough=not exact)
        return rows.kept_sums(self.lists, point, tau, second_order=second_order, executor=self.executor)

    def _weighted(self, problem: DualProblem) -> WeightedRows:
        model = self.block(problem).model
        return WeightedRows(problem.decision_set, self.distances, self.weights, model, kept=self.kept)

    def some_row_sums(self, problem: DualProblem, point: DualPoint, tau: float) -> tuple[RowSums, bool] | None:
        """Sum over the last short list of anchors, even if it is no longer valid."""
        sums = self._weighted(problem).some_sums(self.lists, point, tau, self.executor)
        return None if sums is None else (sums, self.lists.missed == 0)

    def row_sums_and_labels(self, problem: DualProblem, point: DualPoint, tau: float) -> tuple[RowSums, FloatArray]:
        """Compute second-order sums without the block of θ, and the labels (N, K) of the softmax plan."""
        labels = np.empty((self.n_rows, problem.decision_set.n_classes))
        rows = self._weighted(problem)
        return rows.sums(point, tau, second_order=True, executor=self.executor, labels=labels), labels

    def theta_curvature(
        self,
        problem: DualProblem,
        theta: FloatArray,
        tau: float,
        weights: FloatArray,
        labels: Sequence[FloatArray],
    ) -> FloatArray:
        """Return the block of θ for a mixture of sets by weights (S,), from the labels (S) of their softmax plans."""
        return self._weighted(problem).theta_curvature(theta, tau, weights, labels, self.executor)

    def soft_adversary(
        self, problem: DualProblem, point: DualPoint, tau: float
    ) -> tuple[Adversary, NDArray[np.float64]]:
        """Return the adversary of the softmax plan as a table of labels."""
        block = self.block(problem)
        cost, q = block.repaired_plan(point, tau, self.anchor_repair(problem, point, tau))
        return LabelTable(q, cost), self.weights @ q

    def plan_adversary(
        self, problem: DualProblem, joint: FloatArray, share: FloatArray
    ) -> tuple[Adversary, NDArray[np.float64]]:
        """Return the labels of any plan, with its cost after repair, and the label probabilities (K,).

        joint : (N, K, C) P(label, class of anchor | row), share : (N, n) P(anchor | row, class).
        """
        ds = problem.decision_set
        repair = AnchorRepair.from_mass(ds, self.weights @ (joint.sum(axis=1)[:, ds.anchor_slots] * share))
        cost = self.weights @ repair.cost(ds, joint, repair.moments(ds, self.distances, share))
        q = joint.sum(axis=2)
        return LabelTable(q, float(cost)), self.weights @ q

    def _logistic(self, problem: DualProblem, adversary: Adversary) -> LogisticSums:
        return self.block(problem).soft_labels(adversary)

    def at_coefficients(self, model: LinearModel, theta: FloatArray) -> tuple[RowStore, Model]:
        """Return the rows with the losses stored as a table."""
        losses = model.over(self).losses(theta, slice(None))
        return replace(self, design=None, losses=losses), FixedLosses(losses)

    def mean_distance(self, anchor_weights: FloatArray) -> float:
        """Return the mean feature distance between rows and anchors."""
        return float(self.weights @ self.distances @ anchor_weights)


def table_of(sweep: RowStore, problem: DualProblem, adversary: Adversary) -> FloatArray:
    """Return the labels (N, K) of an adversary."""
    if isinstance(adversary, LabelTable):
        return adversary.label_proba
    return sweep.gather(problem, Block.labels, adversary)
