"""The calibrated radius: minimal radius plus an excess estimated from random half-splits of the labeled rows.

W_c(P, P̂_l) = W_d(P_X, P̂_X) + T(p, p̂) + excess: the first two terms are known (or bounded by the label intervals), and
only the excess, what is lost because labels and features move together, depends on hidden labels. The same quantity
between two halves of the labeled rows is measured, many times. An estimate with measured coverage, not a theorem.

Few labels show too little excess: among fifty rows of which three are positive, most splits show none at all. So in
every other split one label, of a row chosen at random, is replaced by another: one more row that does not fit, as in
the rule of succession. It adds an excess of order 1/n, in the units of the data at hand. The quantile is taken at (1 +
level)/2, since the splits of one sample vary less than samples do. Both were settled by measurement
(docs/calibration.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import CodedWarning, ParameterError, warn_caller
from surefoot._printing import PrintsAsTable
from surefoot._validation import FloatArray, check_positive_integer, check_positive_scalar, check_unit_scalar
from surefoot.costs import Precomputed
from surefoot.problem.rows import LabeledData
from surefoot.problem.sets import DecisionSet, distinct_rows
from surefoot.solvers.minimal_radius import MinimalRadius, solve_minimal_radius
from surefoot.solvers.transport import solve_transport

AUTO, PREDICTIVE = "auto", "predictive"
_FEWEST_ROWS = 4
# Union of 2^K − 2 sets: more classes than this would be slow, and need an exact prior.
_MOST_CLASSES = 6


@dataclass(frozen=True)
class CalibratedRadius:
    """How `radius="calibrated"` estimates the radius: pass an instance as `radius` for another level or more splits.

    Parameters
    ----------
    level : float, default=0.9
        Share of samples for which the radius is meant to cover the truth.
    n_splits : int, default=50
        Random half-splits of the labeled rows.
    random_state : int, default=0
        Seed of the splits. A fixed one, so that the same data give the same radius.

    Examples
    --------
    >>> import surefoot as sf
    >>> sf.RobustLogisticRegression(radius=sf.CalibratedRadius(level=0.8)).radius
    CalibratedRadius(level=0.8, n_splits=50, random_state=0)
    """

    level: float = 0.9
    n_splits: int = 50
    random_state: int = 0

    def __post_init__(self) -> None:
        if not 0 < check_unit_scalar(self.level, "level") < 1:
            raise ParameterError("level", "must lie strictly between 0 and 1", repr(self.level), "Pass 0.9, say.")
        check_positive_integer(self.n_splits, "n_splits")


@dataclass(frozen=True, eq=False, repr=False)
class RadiusEstimate(PrintsAsTable):
    """A radius estimated from the labels: minimal_radius + excess.

    Attributes
    ----------
    radius : float
        The estimate.
    excess : float
        What the truth is estimated to need beyond the minimal radius.
    minimal_radius : float
        The smallest radius at which the decision set is not empty.
    level : float
        Share of samples in which such a radius is meant to cover the truth.
    splits : array of shape (n_splits,)
        The excess between the halves of each split.
    n_labeled : int
        Labeled rows.
    other_population : bool
        Whether the radius is that of another population than the labeled rows'.
    """

    radius: float
    excess: float
    minimal_radius: float
    level: float
    splits: FloatArray
    n_labeled: int
    other_population: bool = False

    @property
    def meaning(self) -> str:
        """What the estimate guarantees, in words."""
        how = "i.i.d. labels assumed; measured coverage, not a theorem"
        if self.other_population:
            how = "of another population: labels are assumed to follow features in X_target as they do here"
        return (
            f"estimated at level {self.level:.4g} from {len(self.splits)} half-splits of {self.n_labeled} labeled rows "
            f"({how})"
        )

    def _rows(self) -> list[tuple[str, str]]:
        low, high = np.quantile(self.splits, [0.05, 0.95])
        return [
            ("radius", f"{self.radius:.6g}  (= minimal {self.minimal_radius:.6g} + excess {self.excess:.6g})"),
            ("splits", f"excess {self.splits.mean():.4g} on average, 5 % to 95 %: {low:.4g} to {high:.4g}"),
            ("meaning", self.meaning),
        ]


class MeasureSplit(Protocol):
    """What measures the halves of a split: the metric that the labels of A teach."""

    def __call__(self, A: NDArray[np.intp], codes: NDArray[np.intp], /) -> tuple[FloatArray, float]:
        """(n, n) distances between labeled rows, and the unit in which a label cost counts there."""


def estimate_excess(
    distances: FloatArray | MeasureSplit,
    codes: NDArray[np.intp],
    weights: FloatArray,
    label_cost: FloatArray,
    how: CalibratedRadius,
) -> FloatArray:
    """(n_splits,) W_c(A, B) − W_d(A, B) − T(p_A, p_B) between random halves A, B, with a label replaced in every other.

    distances : (n, n) between labeled rows, or what measures them anew in each split; codes, weights : (n,);
    label_cost : (K, K), T its cheapest relabeling.
    """
    kept = np.flatnonzero(weights > 0)
    if len(kept) < _FEWEST_ROWS:
        raise ParameterError(
            "radius",
            f"can be calibrated from at least {_FEWEST_ROWS} labeled rows that differ in features or label",
            f"{len(kept)} among {len(codes)}",
            "Label more rows, or pass a number as $radius.",
        )
    rng = np.random.default_rng(how.random_state)
    found = []
    for split in range(how.n_splits):
        A, B = np.array_split(rng.permutation(kept), 2)
        labels, row, shift = codes.copy(), rng.choice(kept), rng.integers(1, len(label_cost))
        if split % 2:
            labels[row] = (labels[row] + shift) % len(label_cost)
        between, unit = distances(A, labels) if callable(distances) else (distances, 1.0)
        found.append(excess_between(A, B, between, labels, weights, unit * label_cost) / unit)
    return np.array(found)


def excess_between(
    A: NDArray[np.intp],
    B: NDArray[np.intp],
    distances: FloatArray,
    codes: NDArray[np.intp],
    weights: FloatArray,
    label_cost: FloatArray,
) -> float:
    """W_c(A, B) − W_d(A, B) − T(p_A, p_B) between two sets of rows."""
    a, b = weights[A] / weights[A].sum(), weights[B] / weights[B].sum()
    features = np.ascontiguousarray(distances[np.ix_(A, B)])
    both = features + label_cost[np.ix_(codes[A], codes[B])]
    K = len(label_cost)
    labels = [cast("FloatArray", np.bincount(codes[half], weights=w, minlength=K)) for half, w in ((A, a), (B, b))]
    relabeling = solve_transport(label_cost, labels[0], labels[1]).cost
    return max(solve_transport(both, a, b).cost - solve_transport(features, a, b).cost - relabeling, 0.0)


def merged_weights(data: LabeledData) -> FloatArray:
    """(n,) weights of labeled rows, those of copies (the same features and label) added to the first of them."""
    # with precomputed distances equal rows are those of equal distances to all others
    rows = data.distances_between_labeled().T if isinstance(data.metric, Precomputed) else data.rows
    first, total = distinct_rows(rows, data.codes, data.weights)
    weights = np.zeros_like(data.weights)
    weights[first] = total
    return weights


class HasValue(Protocol):
    """A minimal radius."""

    @property
    def value(self) -> float: ...


def calibrate(data: LabeledData, ds: DecisionSet, minimal: HasValue, how: CalibratedRadius) -> RadiusEstimate:
    """The radius of a decision set, estimated from its labeled rows.

    Rows that repeat another in features and label are one row with their weights added: copies in both halves of a
    split would make them alike, and the excess small, without any new label.
    """
    weights = merged_weights(data)
    fixed = data.rule is None or data.rule.learned is None
    measured = data.distances_between_labeled() if fixed else _relearn(data, ds)
    splits = estimate_excess(measured, data.codes, weights, ds.label_cost, how)
    n_labeled = int(np.count_nonzero(weights))
    copies = int(np.count_nonzero(data.weights)) - n_labeled
    if copies:
        warn_caller(
            CodedWarning(
                "repeated_rows",
                f"{copies} of {n_labeled + copies} labeled rows repeat another in features and label: the radius is "
                f"estimated from the {n_labeled} that differ, with the weights of their copies.",
                "Where rows were copied to weigh more, pass $sample_weight instead.",
                copies=copies,
                n_labels=n_labeled,
            )
        )
    excess = float(np.quantile(splits, 0.5 * (1.0 + how.level)))
    return RadiusEstimate(minimal.value + excess, excess, minimal.value, how.level, splits, n_labeled, data.target)


def _relearn(data: LabeledData, ds: DecisionSet) -> MeasureSplit:
    """The metric learned anew from half of the labels, as the metric of the fit was from all of them.

    Labels seem better separated in a metric that was made to separate them than any others are: distances learned from
    both halves would hide the excess. A label cost in units of the data follows each metric.
    """
    rule, kappa = data.rule, float(ds.label_cost.max())

    def measure(A: NDArray[np.intp], codes: NDArray[np.intp]) -> tuple[FloatArray, float]:
        metric = rule.metric(data, A, codes)
        between = replace(data, metric=metric).distances_between_labeled()
        return between, rule.label_cost(metric) / kappa if rule.scaled else 1.0

    return measure


def resolve_radius(radius: float | str | CalibratedRadius, *, auto: bool = False) -> float | str | CalibratedRadius:
    """A number ≥ 0, how to estimate one, or (where `auto` allows it) "auto" or "predictive"."""
    if isinstance(radius, CalibratedRadius) or (auto and isinstance(radius, str) and radius in (AUTO, PREDICTIVE)):
        return radius
    if isinstance(radius, str):
        if radius == "calibrated":
            return CalibratedRadius()
        allowed = ('"predictive", "auto", ' if auto else "") + '"calibrated" or CalibratedRadius(...)'
        raise ParameterError("radius", f"must be a number at least 0, {allowed}", repr(radius), "Pass one of these.")
    return check_positive_scalar(radius, "radius", allow_zero=True)


def label_cost_difference(ds: DecisionSet, tied: DecisionSet) -> FloatArray:
    """(K,) u with label costs of `ds` and of one of its tied sets that differ by u_k − u_c.

    So the costs of a plan differ by Σ u p_μ − Σ u p̂.
    """
    return np.asarray((ds.label_cost - tied.label_cost)[:, 0])


def tied_sets(ds: DecisionSet, minimal: MinimalRadius, excess: float) -> list[tuple[DecisionSet, MinimalRadius]]:
    """Decision sets whose union is { μ : W_c(μ, P̂_l) ≤ W_d + excess + κ TV(p_μ, p̂) }, each with its minimal radius.

    With an exact prior: one, of radius minimal + excess. With intervals the radius depends on the label probabilities
    p_μ, so that a wide interval does not lend its budget to other changes. TV(p, p̂) = max_S Σ_{k∈S} (p_k − p̂_k), so the
    union runs over classes S that gain: there κ·(p_S − p̂_S) is granted. So turning a label from outside of S into one
    of S is free, leaving S costs 2κ, and all other changes cost κ.
    """
    lo, hi = ds.intervals.T
    if np.all(lo == hi):
        return [(ds.with_radius(minimal.value + excess), minimal)]
    K, kappa = ds.n_classes, float(ds.label_cost.max())
    if not np.array_equal(ds.label_cost, kappa * (1.0 - np.eye(K))):
        raise ParameterError(
            "label_cost",
            "must be one number for all classes where a radius is calibrated with label intervals",
            "a matrix",
            "Pass a number as $label_cost, or exact label probabilities as $label_prior.",
        )
    if K > _MOST_CLASSES:
        raise ParameterError(
            "radius",
            f"can be calibrated with label intervals for at most {_MOST_CLASSES} classes",
            K,
            "Pass exact label probabilities as $label_prior.",
        )
    found = []
    for size in range(1, K):
        for gaining in combinations(range(K), size):
            inside = np.isin(np.arange(K), gaining).astype(float)
            cost = ds.label_cost + kappa * (inside[None, :] - inside[:, None])
            piece = replace(ds, label_cost=np.maximum(cost, 0.0), radius=minimal.feature_part + excess)
            smallest = solve_minimal_radius(piece, minimal.transport)
            if smallest.value <= piece.radius:
                found.append((piece, smallest))
    return found
