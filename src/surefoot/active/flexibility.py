"""Label flexibility: the label probabilities that the adversary can choose at each unlabeled row."""

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
from surefoot.costs.metrics import FeatureMetric
from surefoot.priors import LabelPrior
from surefoot.problem.distances import row_chunks
from surefoot.problem.placement import check_problem
from surefoot.problem.robust import RobustProblem
from surefoot.problem.rows import Unlabeled
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal_radius import cheapest_relabeling

# Default margin, in units of κ/N, the cost of changing the label of one row.
DEFAULT_MARGIN = 0.1
# The margin of the paper's experiments.
PAPER_MARGIN = 1e-3
# Two bounds on a score agree if they are this close, relative to the spread of the impacts.
_AGREE = 1e-10
# Approximate number of distances in a group of rows whose linear programs are solved together.
_ENTRIES = 1 << 23


@dataclass(frozen=True, eq=False)
class LabelFlexibility:
    """Hold the label probabilities q that the adversary can choose at each of M rows, one row at a time.

    For row j, q is attainable if some distribution of the decision set has label probabilities q at x_j. The attainable
    q form a convex polytope in the simplex. For two classes, they form an interval.

    Attributes
    ----------
    intervals : array of shape (M, K, 2)
        Smallest and largest probability of each class that the adversary can choose at each row.
    width : array of shape (M,)
        Width of the widest interval of each row.
    decision_set : DecisionSet
        The decision set. Its radius is not used, because the budget is `excess`.
    rows : array of shape (M,)
        Indices of the rows in the decision set. The labeled rows come first in the decision set.
    classes : array of shape (K,)
        Classes in sorted order.
    excess : float
        Radius minus minimal radius.
    radius : float
        Radius of the adversary's set.
    minimal_radius : float
        The smallest radius at which the decision set is not empty.
    features : Features or None
        Distances and transport of all rows. None: computed from the decision set.
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
        """Radius of the adversary's set: minimal radius + excess."""
        return self.minimal_radius + self.excess

    @cached_property
    def intervals(self) -> FloatArray:
        """Smallest and largest probability (M, K, 2) of each class that the adversary can choose at each row."""
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
        """Width (M,) of each row's widest interval, from 0 (the labeled rows determine its label) to 1."""
        return np.ptp(self.intervals, axis=2).max(axis=1)

    def least_expectation(self, impact: ArrayLike) -> FloatArray:
        """Compute the smallest expected impact at each row, min Σ_k q_k f_k over the attainable q.

        For most rows, two bounds in closed form coincide. Each remaining row requires a small linear program with cuts
        from re-optimizing the transport plan (docs/active-learning.md).

        Parameters
        ----------
        impact : array of shape (M, K)
            Impacts f(x_j, k) of the rows, with classes in sorted order.

        Returns
        -------
        array of shape (M,)
            The smallest expectation at each row.
        """
        f = check_impact(impact, len(self.rows), len(self.classes))[:, self._labels.labels]
        least = f.min(axis=1)
        if self.excess >= self._unit * self._forced.max():
            return least  # the budget allows any label at any row
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
        """Return scores of feasible plans. Each label comes from its cheapest class, and no used entry runs out."""
        costs = (self._class_costs.above[:, None, :] + self._forced).min(axis=2)
        return _cheapest_mixture(costs, f, self._budget)

    def _lower(self, f: FloatArray) -> FloatArray:
        """Return lower bounds from dual prices chosen by the class of the row's home. −∞ for split rows."""
        home, below = self._class_costs.home, self._class_costs.below
        lower = np.full(len(f), -np.inf)
        for c in range(below.shape[1]):
            at = np.flatnonzero((home >= 0) & (self._graph.slots[home] == c))
            costs = (below[at][:, None, :] + self._labels.prices(c)[0]).min(axis=2)
            lower[at] = _cheapest_mixture(costs, f[at], self._budget)
        return lower

    def _by_program(self, left: NDArray[np.intp], f: FloatArray) -> FloatArray:
        """Compute the scores of the rows `left` by linear programs, for impacts f from 0 to 1."""
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
                f"the linear programs of {failed.sum()} rows did not terminate; the first is {left[failed][0]}"
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
    """Compute the label probabilities that the adversary can choose at each unlabeled row, given the labeled rows.

        {μ(y=k | x_j), k = 1..K : μ in the decision set}, for each row j

    A short interval means that the existing labels determine the label of the row. A wide interval means that a label
    would add information. The result does not depend on any classifier.

    Parameters
    ----------
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled, a memory map, `ParquetRows`, a Dask array or dataframe
        Unlabeled rows. P_X is the empirical distribution of X and X_unlabeled together, N = n + M. More than 2^24
        distances are computed in blocks. Memory then holds a few numbers per row and no distance matrix.
    radius : float, "ends" or "minimal", default="ends"
        "ends": the rule of the paper. For each class, compute the minimal radii at which the class probability is at
        either end of its interval. The radius is the maximum plus the margin. With exact probabilities (the strong
        prior) or without a prior, this is the minimal radius plus the margin. "minimal": minimal radius plus margin for
        every prior.
    margin : float or None, default=None
        Added to the radius. None means 0.1·κ/N, where κ is the largest label cost. The paper uses `PAPER_MARGIN`, 1e-3.
        If the margin is at least 2κ/N, every interval is [0, 1]. Ignored if the radius is a number.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, with classes in sorted order: 95 % intervals from y ("clopper-pearson"), exact values (K,),
        intervals (K, 2), or None for no constraint.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from y.
    sample_weight : array of shape (n,) or None, default=None
        Number of times each labeled row counts. None: once each.
    candidates : array of shape (m,) or None, default=None
        Indices of the rows of X_unlabeled to consider. None considers all.
    n_jobs : int or None, default=None
        Number of threads over groups of rows. None means one, -1 one per core.
    compute : Compute or None, default=None
        Where sums over blocks of rows run (for example on a GPU), and how much memory they may use. None: in memory up
        to 2^24 distances, in blocks beyond.

    Returns
    -------
    LabelFlexibility
        The intervals of each row.

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
    """Compute `label_flexibility` for an existing problem."""
    ds = replace(problem.decision_set, row_weights=problem.row_weights)
    chosen = problem.data.n_labeled + check_candidates(candidates, problem.n_rows - problem.data.n_labeled)
    features = FeaturesInBlocks(problem) if isinstance(problem, BlockedProblem) else None
    found = LabelFlexibility(ds, chosen, problem.data.classes, 0.0, features)
    return replace_excess(found, radius, margin, has_prior=has_prior)


def replace_excess(
    found: LabelFlexibility, radius: float | str, margin: float | None, *, has_prior: bool
) -> LabelFlexibility:
    """Return the same rows with a new excess, given by a radius or by a rule and a margin."""
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
    # keep cached results that do not depend on the budget
    for name in ("_features", "_cheapest", "minimal_radius", "_unit"):
        if name in found.__dict__:
            changed.__dict__[name] = found.__dict__[name]
    return changed


def dearest_end(ds: DecisionSet) -> float:
    """Return the largest cost of relabeling with p_k at an end of its interval, over classes k and both ends.

    With two classes, the ends match the paper: p_1 at its lower and at its upper bound.
    """
    costs = []
    for k in np.flatnonzero(np.ptp(ds.intervals, axis=1) > 0):
        for end in ds.intervals[k]:
            at_end = ds.intervals.copy()
            at_end[k] = end
            costs.append(cheapest_relabeling(replace(ds, intervals=at_end)).cost)
    return max(costs, default=0.0)


def check_impact(impact: ArrayLike, n_rows: int, n_classes: int) -> FloatArray:
    """Validate impacts: finite, of shape (n_rows, n_classes)."""
    f = check_finite_array(impact, "impact", ndim=2)
    if f.shape != (n_rows, n_classes):
        raise ParameterError(
            "impact",
            f"must have shape ({n_rows}, {n_classes}), one row per unlabeled row, one column per class",
            f.shape,
            "Pass f(x_j, k) for the classes in sorted order. Name all classes if the labels miss some.",
        )
    return f


def check_candidates(candidates: ArrayLike | None, n_rows: int, name: str = "X_unlabeled") -> NDArray[np.intp]:
    """Validate distinct indices of rows. None selects all rows."""
    if candidates is None:
        return np.arange(n_rows)
    indices = np.asarray(candidates)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        found = f"shape {indices.shape}, {indices.dtype}"
        raise ParameterError("candidates", "must be a list of row indices", found, f"Pass indices into {name}.")
    outside = indices[(indices < 0) | (indices >= n_rows)]
    if outside.size:
        raise ParameterError(
            "candidates", f"must be from 0 to {n_rows - 1}, rows of {name}", outside[0], "Pass existing rows."
        )
    if len(np.unique(indices)) < len(indices):
        raise ParameterError("candidates", "must be distinct", "some index twice", "Pass np.unique(candidates).")
    return indices.astype(np.intp)


def _cheapest_mixture(costs: FloatArray, f: FloatArray, budget: float) -> FloatArray:
    """Return (R,) min Σ_k x_k f_k over x in the simplex with Σ_k x_k cost_k ≤ budget; ∞ if no x is feasible.

    The optimal x mixes at most two labels: one within the budget and one beyond it.
    """
    within = costs <= budget
    best = np.where(within, f, np.inf).min(axis=1)
    for k in range(f.shape[1]):
        for g in range(f.shape[1]):
            at = within[:, k] & ~within[:, g] & np.isfinite(costs[:, g])
            share = (budget - costs[at, k]) / (costs[at, g] - costs[at, k])
            best[at] = np.minimum(best[at], f[at, k] + share * (f[at, g] - f[at, k]))
    return best
