"""Label flexibility: which label probabilities the adversary can force at each unlabeled row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._errors import InfeasibleRadiusError, ParameterError
from surefoot._validation import FloatArray, check_finite_array, check_positive_scalar
from surefoot.active.residual import (
    ClassCosts,
    Features,
    FeaturesInBlocks,
    FeaturesInMemory,
    LabelProgram,
    Relabeling,
    ResidualGraph,
)
from surefoot.backends.blocks import BlockedProblem
from surefoot.backends.compute import Compute
from surefoot.costs import FeatureMetric
from surefoot.priors import LabelPrior
from surefoot.problem.distances import row_chunks
from surefoot.problem.placement import check_problem
from surefoot.problem.robust import RobustProblem
from surefoot.problem.rows import Unlabeled
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal_radius import cheapest_relabeling

# The default margin, in units of κ/N: what it costs to change the label of one row.
DEFAULT_MARGIN = 0.1
# The margin of the paper's experiments.
PAPER_MARGIN = 1e-3
# Bounds on a score that are this close, relative to the spread of the impacts, have met.
_AGREE = 1e-10
# Rows whose linear programs are solved together have about so many distances.
_ENTRIES = 1 << 23


@dataclass(frozen=True, eq=False)
class LabelFlexibility:
    """The label probabilities q that the adversary can force at each of M rows, one row at a time.

    Row j's q is attainable if some distribution of the decision set has q as its label probabilities at x_j. The
    attainable q form a convex polytope in the simplex: for two classes an interval.

    Attributes
    ----------
    intervals : array of shape (M, K, 2)
        Least and largest probability of each class that the adversary can force at each row.
    width : array of shape (M,)
        Length of the widest of a row's intervals.
    decision_set : DecisionSet
        Its radius is not used: the budget is `excess`.
    rows : array of shape (M,)
        Indices of the rows among those of the decision set, labeled rows first.
    classes : array of shape (K,)
        Classes, in sorted order.
    excess : float
        Radius less minimal radius.
    radius : float
        Radius of the set that the adversary chooses from.
    minimal_radius : float
        The smallest radius at which the decision set is not empty.
    features : Features or None
        Distances and transport of all rows; by default those of the decision set.
    """

    decision_set: DecisionSet
    rows: NDArray[np.intp]
    classes: NDArray[Any]
    excess: float
    features: Features | None = None

    @cached_property
    def minimal_radius(self) -> float:
        """The smallest radius at which the decision set is not empty."""
        return self._features.transport.cost + self._cheapest

    @property
    def radius(self) -> float:
        """Radius of the set that the adversary chooses from: minimal radius + excess."""
        return self.minimal_radius + self.excess

    @cached_property
    def intervals(self) -> FloatArray:
        """Least and largest probability (M, K, 2) of each class that the adversary can force at each row."""
        M, K = len(self.rows), len(self.classes)
        bounds = np.zeros((M, K, 2))
        for k in range(K if K > 2 else 1):
            indicator = np.zeros((M, K))
            indicator[:, k] = 1.0
            bounds[:, k, 0] = self.least_expectation(indicator)
            bounds[:, k, 1] = -self.least_expectation(-indicator)
        if K == 2:
            bounds[:, 1] = 1.0 - bounds[:, 0, ::-1]
        return np.clip(bounds, 0.0, 1.0)

    @property
    def width(self) -> FloatArray:
        """Length (M,) of the widest of a row's intervals: 0 where the labeled rows pin its labels down, at most 1."""
        return np.ptp(self.intervals, axis=2).max(axis=1)

    def least_expectation(self, impact: ArrayLike) -> FloatArray:
        """Least expected impact that the adversary can force at each row, min Σ_k q_k f_k over the attainable q.

        Most rows are settled by a pair of bounds in closed form; each of the others is a small linear program, with
        cuts from re-optimising the transport plan (docs/active-learning.md).

        Parameters
        ----------
        impact : array of shape (M, K)
            Impacts f(x_j, k) of the rows, classes in sorted order.

        Returns
        -------
        array of shape (M,)
            The least expectation at each row.
        """
        f = check_impact(impact, len(self.rows), len(self.classes))[:, self._labels.labels]
        least = f.min(axis=1)
        if self.excess >= self._unit * self._forced.max():
            return least  # the budget forces any label at any row
        spread = np.ptp(f, axis=1)
        upper, lower = self._upper(f), self._lower(f)
        values = np.maximum(lower, least)
        left = np.flatnonzero(~(upper - lower <= _AGREE * spread))
        if len(left):
            scaled = (f[left] - least[left, None]) / np.where(spread[left] > 0, spread[left], 1.0)[:, None]
            values[left] = least[left] + spread[left] * self._by_program(left, scaled)
        return values

    @cached_property
    def _unit(self) -> float:
        """Mass of one unlabeled row."""
        return float(self.decision_set.row_weights[self.rows[0]]) if len(self.rows) else 1.0

    @cached_property
    def _labels(self) -> Relabeling:
        return Relabeling.from_decision_set(self.decision_set, self._unit)

    @cached_property
    def _forced(self) -> FloatArray:
        return self._labels.forced()

    @cached_property
    def _features(self) -> Features:
        return self.features or FeaturesInMemory(self.decision_set)

    @cached_property
    def _cheapest(self) -> float:
        """Cost of the cheapest relabeling into the intervals."""
        return cheapest_relabeling(self.decision_set).cost

    @cached_property
    def _graph(self) -> ResidualGraph:
        return ResidualGraph.from_decision_set(self.decision_set, self._features, self._unit)

    @cached_property
    def _class_costs(self) -> ClassCosts:
        return self._graph.class_costs(self.rows)

    @property
    def _budget(self) -> float:
        return self.excess / self._unit

    def _upper(self, f: FloatArray) -> FloatArray:
        """Scores of plans that draw each label from its cheapest class: feasible, since no entry used runs out."""
        costs = (self._class_costs.above[:, None, :] + self._forced).min(axis=2)
        return _cheapest_mixture(costs, f, self._budget)

    def _lower(self, f: FloatArray) -> FloatArray:
        """Scores at prices that no plan can beat, chosen by the class of the row's home; −∞ for split rows."""
        home, below = self._class_costs.home, self._class_costs.below
        lower = np.full(len(f), -np.inf)
        for c in range(below.shape[1]):
            at = np.flatnonzero((home >= 0) & (self._graph.slots[home] == c))
            costs = (below[at][:, None, :] + self._labels.prices(c)[0]).min(axis=2)
            lower[at] = _cheapest_mixture(costs, f[at], self._budget)
        return lower

    def _by_program(self, left: NDArray[np.intp], f: FloatArray) -> FloatArray:
        """Scores of the rows `left` by linear programs, for impacts f from 0 to 1."""
        from surefoot.kernels.forced_labels import worst_labels

        labels, below = self._labels, self._class_costs.below
        K, C = labels.flow.shape
        program = LabelProgram.from_labels(labels, self._budget)
        values = np.empty(len(left))
        for part in row_chunks(len(left), len(self.decision_set.anchor_weights), _ENTRIES):
            graph, distances, rows = self._graph.narrowed(self.rows[left[part]])
            worst_labels(
                distances,
                rows,
                (graph.ptr, graph.anchors, graph.amounts),
                graph.arrays,
                *graph.parts,
                f[part],
                below[left[part]],
                (program.table, program.basis),
                (K, C, 2 * K * C),
                float(labels.label_cost.max()),
                graph.dust,
                values[part],
            )
        failed = np.isnan(values)
        if failed.any():
            raise RuntimeError(
                f"the linear programs of {failed.sum()} rows did not end; the first is {left[failed][0]}"
            )
        return values


def label_flexibility(  # noqa: PLR0913 - one keyword per part of the problem
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled,
    radius: float | Literal["ends", "minimal"] = "ends",
    margin: float | None = None,
    label_prior: LabelPrior | ArrayLike | str | None = "auto",
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    candidates: ArrayLike | None = None,
    n_jobs: int | None = None,
    compute: Compute | None = None,
) -> LabelFlexibility:
    """Which label probabilities the adversary can force at each unlabeled row, given the labeled ones.

    {μ(y=k | x_j), k = 1..K : μ in the decision set}, for each row j

    Rows with a short interval are pinned down by the labels already given; at the others a label would say something
    new. The result depends on no classifier.

    Parameters
    ----------
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled, a memory map, `ParquetRows`, a Dask array or dataframe
        Unlabeled rows. P_X is the empirical distribution of the rows of X and X_unlabeled together, N = n + M. Beyond
        2^24 distances rows are read in blocks, wherever they lie; numbers per row are held, but no matrix of distances.
    radius : float, "ends" or "minimal", default="ends"
        "ends": the paper's rule. The largest, over classes, of the minimal radii at which the class's probability is at
        either end of its interval, plus the margin. With exact probabilities (the strong prior), and without a prior,
        this is the minimal radius plus the margin. "minimal": minimal radius plus margin for every prior.
    margin : float or None, default=None
        Added to the radius; None is 0.1·κ/N, with κ the largest label cost. The paper's is `PAPER_MARGIN`, 1e-3; from
        2κ/N on every interval is [0, 1]. Not used with a radius that is a number.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities: 95 % intervals from y, exact, intervals, or unconstrained. Classes in sorted order.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of a change of label, or a matrix: [k, c] is the cost of turning label c of a labeled row into k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    classes : array of shape (K,) or None, default=None
        All classes, where the labels may miss some.
    sample_weight : array of shape (n,) or None, default=None
        How many times each labeled row counts; by default once.
    candidates : array of shape (m,) or None, default=None
        Indices of the rows of X_unlabeled to look at; all by default.
    n_jobs : int or None, default=None
        Threads over groups of rows; None means one, -1 one per core.
    compute : Compute or None, default=None
        Where sums over blocks of rows run (a GPU, say), and how much memory they may keep. None: in memory up to 2^24
        distances, beyond in blocks.

    Returns
    -------
    LabelFlexibility
        With the intervals of each row.

    Examples
    --------
    >>> found = label_flexibility([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.3]], label_prior=[0.5, 0.5])
    >>> found.intervals[:, 1].round(3)  # of class 1
    array([[0.  , 0.25],
           [0.75, 1.  ]])
    """
    if X_unlabeled is None:
        raise ParameterError("X_unlabeled", "must be given", "None", "Pass the unlabeled rows.")
    problem = check_problem(
        X,
        y,
        X_unlabeled=X_unlabeled,
        sample_weight=sample_weight,
        classes=classes,
        metric=metric,
        label_prior=label_prior,
        label_cost=label_cost,
        compute=compute,
        n_jobs=n_jobs,
    )
    return flexibility_of(problem, radius, margin, has_prior=label_prior is not None, candidates=candidates)


def flexibility_of(
    problem: RobustProblem,
    radius: float | str,
    margin: float | None,
    *,
    has_prior: bool,
    candidates: ArrayLike | None = None,
) -> LabelFlexibility:
    """`label_flexibility` of a problem that is there already."""
    ds = replace(problem.decision_set, row_weights=problem.row_weights)
    chosen = problem.data.n_labeled + check_candidates(candidates, problem.n_rows - problem.data.n_labeled)
    features = FeaturesInBlocks(problem) if isinstance(problem, BlockedProblem) else None
    found = LabelFlexibility(ds, chosen, problem.data.classes, 0.0, features)
    return replace_excess(found, radius, margin, has_prior=has_prior)


def replace_excess(
    found: LabelFlexibility, radius: float | str, margin: float | None, *, has_prior: bool
) -> LabelFlexibility:
    """The same rows with the budget that a radius, or a rule for it and a margin, leaves beyond the minimal radius."""
    ds = found.decision_set
    if not isinstance(radius, str):
        asked = check_positive_scalar(radius, "radius", allow_zero=True)
        excess = asked - found.minimal_radius
        if excess < -1e-9 * found.minimal_radius:
            raise InfeasibleRadiusError(asked, found.minimal_radius)
        return _with_excess(found, max(excess, 0.0))
    if radius not in ("ends", "minimal"):
        raise ParameterError("radius", 'must be a number, "ends" or "minimal"', repr(radius), "Pass one of these.")
    if margin is None:
        margin = DEFAULT_MARGIN * float(ds.label_cost.max()) * found._unit
    excess = check_positive_scalar(margin, "margin", allow_zero=True)
    if radius == "ends" and has_prior:
        excess += max(dearest_end(ds), found._cheapest) - found._cheapest
    return _with_excess(found, excess)


def _with_excess(found: LabelFlexibility, excess: float) -> LabelFlexibility:
    changed = replace(found, excess=excess)
    # what does not depend on the budget need not be solved for again
    for name in ("_features", "_cheapest", "minimal_radius", "_unit"):
        if name in found.__dict__:
            changed.__dict__[name] = found.__dict__[name]
    return changed


def dearest_end(ds: DecisionSet) -> float:
    """Largest, over classes k and both ends of their intervals, cost of relabeling with p_k at that end.

    With two classes these are the paper's two ends: p_1 at its lower and at its upper bound.
    """
    costs = []
    for k in np.flatnonzero(np.ptp(ds.intervals, axis=1) > 0):
        for end in ds.intervals[k]:
            at_end = ds.intervals.copy()
            at_end[k] = end
            costs.append(cheapest_relabeling(replace(ds, intervals=at_end)).cost)
    return max(costs, default=0.0)


def check_impact(impact: ArrayLike, n_rows: int, n_classes: int) -> FloatArray:
    """Finite impacts (n_rows, n_classes)."""
    f = check_finite_array(impact, "impact", ndim=2)
    if f.shape != (n_rows, n_classes):
        raise ParameterError(
            "impact",
            f"must have shape ({n_rows}, {n_classes}), a row per unlabeled row, a column per class",
            f.shape,
            "Pass f(x_j, k) for the classes in sorted order, and name all classes where the labels miss some.",
        )
    return f


def check_candidates(candidates: ArrayLike | None, n_rows: int, name: str = "X_unlabeled") -> NDArray[np.intp]:
    """Distinct indices of rows, all of them for None."""
    if candidates is None:
        return np.arange(n_rows)
    indices = np.asarray(candidates)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        found = f"shape {indices.shape}, {indices.dtype}"
        raise ParameterError("candidates", "must be a list of row indices", found, f"Pass indices into {name}.")
    outside = indices[(indices < 0) | (indices >= n_rows)]
    if outside.size:
        raise ParameterError("candidates", f"must be from 0 to {n_rows - 1}, rows of {name}", outside[0], "Correct it.")
    if len(np.unique(indices)) < len(indices):
        raise ParameterError("candidates", "must be distinct", "some index twice", "Pass np.unique(candidates).")
    return indices.astype(np.intp)


def _cheapest_mixture(costs: FloatArray, f: FloatArray, budget: float) -> FloatArray:
    """(R,) min Σ_k x_k f_k over x in the simplex with Σ_k x_k cost_k ≤ budget; ∞ where there is none.

    At most two labels are mixed: one within the budget and one beyond it.
    """
    within = costs <= budget
    best = np.where(within, f, np.inf).min(axis=1)
    for k in range(f.shape[1]):
        for g in range(f.shape[1]):
            at = within[:, k] & ~within[:, g] & np.isfinite(costs[:, g])
            share = (budget - costs[at, k]) / (costs[at, g] - costs[at, k])
            best[at] = np.minimum(best[at], f[at, k] + share * (f[at, g] - f[at, k]))
    return best
