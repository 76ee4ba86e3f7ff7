"""The calibrated radius: minimal radius plus an excess estimated from random half-splits of the labeled rows.

W_c(P, P̂_l) = W_d(P_X, P̂_X) + T(p, p̂) + excess. The first two terms are known, or bounded by the label intervals. The
excess is the extra cost of moving labels and features together. It depends on hidden labels. The estimate measures the
same quantity between two halves of the labeled rows, for many random halves. Its coverage was measured, not proved.

With few labels, the splits underestimate the excess. For example, with three positives among fifty rows, most splits
have no excess. Therefore every other split replaces the label of one random row by another label. This adds one row
that does not fit, as in the rule of succession, and an excess of order 1/n in the units of the data. The quantile is
taken at (1 + level)/2 because the splits of one sample vary less than samples do. Both choices come from measurements
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
from surefoot.costs.metrics import Precomputed
from surefoot.problem.rows import PAIRED_IN_SPLITS, LabeledData
from surefoot.problem.sets import DecisionSet, distinct_rows
from surefoot.solvers.minimal_radius import MinimalRadius, solve_minimal_radius
from surefoot.solvers.transport import solve_transport

AUTO, PREDICTIVE = "auto", "predictive"
_FEWEST_ROWS = 4
# The union has 2^K − 2 sets, which is slow for many classes. More classes than this require an exact prior.
_MOST_CLASSES = 6


@dataclass(frozen=True)
class CalibratedRadius:
    """Configure how `radius="calibrated"` estimates the radius. Pass an instance as `radius`.

    Parameters
    ----------
    level : float, default=0.9
        Fraction of samples for which the radius should cover the true distribution.
    n_splits : int, default=50
        Number of random half-splits of the labeled rows.
    random_state : int, default=0
        Seed of the splits. It is fixed by default so that the same data give the same radius.

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
            raise ParameterError(
                "level", "must lie strictly between 0 and 1", repr(self.level), "Pass a value such as 0.9."
            )
        check_positive_integer(self.n_splits, "n_splits")


@dataclass(frozen=True, eq=False, repr=False)
class RadiusEstimate(PrintsAsTable):
    """A radius estimated from the labels: minimal_radius + excess.

    Attributes
    ----------
    radius : float
        The estimate.
    excess : float
        Estimated excess over the minimal radius that the true distribution needs.
    minimal_radius : float
        The smallest radius at which the decision set is not empty.
    level : float
        Fraction of samples for which the radius should cover the true distribution.
    splits : array of shape (n_splits,)
        Excess between the two halves of each split.
    n_labeled : int
        Number of labeled rows.
    other_population : bool
        Whether the radius is for a different population than the labeled rows.
    learned_metric : bool
        Whether the metric was learned from the labels. If so, each split learned it again from one half.
    """

    radius: float
    excess: float
    minimal_radius: float
    level: float
    splits: FloatArray
    n_labeled: int
    other_population: bool = False
    learned_metric: bool = False

    @property
    def meaning(self) -> str:
        """The meaning of the estimate and its assumptions, in words."""
        how = "assumes i.i.d. labels; coverage measured, not proved"
        if self.other_population:
            how = "for another population; assumes that labels follow features in X_target as they do here"
        metric = ", in a metric learned from the labels" if self.learned_metric else ""
        return (
            f"estimated at confidence level {self.level:.4g} from {len(self.splits)} half-splits of "
            f"{self.n_labeled} labeled rows{metric} ({how})"
        )

    def _rows(self) -> list[tuple[str, str]]:
        low, high = np.quantile(self.splits, [0.05, 0.95])
        return [
            ("radius", f"{self.radius:.6g}  (= minimal {self.minimal_radius:.6g} + excess {self.excess:.6g})"),
            ("splits", f"excess {self.splits.mean():.4g} on average, 5 % to 95 %: {low:.4g} to {high:.4g}"),
            ("meaning", self.meaning),
        ]


class MeasureSplit(Protocol):
    """Measure the halves of a split with a metric learned from the labels of A."""

    def __call__(self, A: NDArray[np.intp], codes: NDArray[np.intp], /) -> tuple[FloatArray, float]:
        """Return (n, n) distances between labeled rows, and the unit of the label cost under this metric."""


def estimate_excess(
    distances: FloatArray | MeasureSplit,
    codes: NDArray[np.intp],
    weights: FloatArray,
    label_cost: FloatArray,
    how: CalibratedRadius,
) -> FloatArray:
    """Return (n_splits,) excesses W_c(A, B) − W_d(A, B) − T(p_A, p_B) between random halves A and B.

    Every other split replaces one label. T is the cost of the cheapest relabeling.

    distances : (n, n) between labeled rows, or a function that measures them again for each split; codes, weights :
    (n,); label_cost : (K, K).
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
    """Compute W_c(A, B) − W_d(A, B) − T(p_A, p_B) between two sets of rows."""
    a, b = weights[A] / weights[A].sum(), weights[B] / weights[B].sum()
    features = np.ascontiguousarray(distances[np.ix_(A, B)])
    both = features + label_cost[np.ix_(codes[A], codes[B])]
    K = len(label_cost)
    labels = [cast("FloatArray", np.bincount(codes[half], weights=w, minlength=K)) for half, w in ((A, a), (B, b))]
    relabeling = solve_transport(label_cost, labels[0], labels[1]).cost
    return max(solve_transport(both, a, b).cost - solve_transport(features, a, b).cost - relabeling, 0.0)


def merged_weights(data: LabeledData) -> FloatArray:
    """Return (n,) weights. The first of several copies (same features and label) gets the weights of all copies."""
    # with precomputed distances, rows are equal if their distances to all other rows are equal
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
    """Estimate the radius of a decision set from its labeled rows.

    Rows with equal features and labels are merged and their weights are added. Otherwise copies in both halves of a
    split would make the halves similar and the excess small, without any new label.
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
                f"{copies} of {n_labeled + copies} labeled rows repeat another row in features and label. The radius "
                f"is estimated from the {n_labeled} distinct rows, each with the total weight of its copies.",
                "If rows were copied to increase their weight, pass $sample_weight instead.",
                copies=copies,
                n_labels=n_labeled,
            )
        )
    excess = float(np.quantile(splits, 0.5 * (1.0 + how.level)))
    return RadiusEstimate(
        minimal.value + excess, excess, minimal.value, how.level, splits, n_labeled, data.target, not fixed
    )


def _relearn(data: LabeledData, ds: DecisionSet) -> MeasureSplit:
    """Return a function that learns the metric from half of the labels, as the fit learned it from all labels.

    A metric separates the labels that it was learned from better than it separates other labels. Distances learned from
    both halves would therefore hide the excess. A label cost in units of the data changes with each metric.
    """
    rule, kappa = data.rule, float(ds.label_cost.max())

    def measure(A: NDArray[np.intp], codes: NDArray[np.intp]) -> tuple[FloatArray, float]:
        metric = rule.metric(data, A, codes)
        between = replace(data, metric=metric).distances_between_labeled()
        return between, rule.label_cost(metric, PAIRED_IN_SPLITS) / kappa if rule.scaled else 1.0

    return measure


def resolve_radius(radius: float | str | CalibratedRadius, *, auto: bool = False) -> float | str | CalibratedRadius:
    """Validate the radius: a number ≥ 0, an estimation method, or with `auto` also "auto" or "predictive"."""
    if isinstance(radius, CalibratedRadius) or (auto and isinstance(radius, str) and radius in (AUTO, PREDICTIVE)):
        return radius
    if isinstance(radius, str):
        if radius == "calibrated":
            return CalibratedRadius()
        allowed = ('"predictive", "auto", ' if auto else "") + '"calibrated" or CalibratedRadius(...)'
        raise ParameterError("radius", f"must be a number at least 0, {allowed}", repr(radius), "Pass one of these.")
    return check_positive_scalar(radius, "radius", allow_zero=True)


def label_cost_difference(ds: DecisionSet, tied: DecisionSet) -> FloatArray:
    """Return (K,) u such that the label costs of `ds` and one of its tied sets differ by u_k − u_c.

    The costs of a plan then differ by Σ u p_μ − Σ u p̂.
    """
    return np.asarray((ds.label_cost - tied.label_cost)[:, 0])


def largest_label_change(ds: DecisionSet) -> float:
    """Return the largest TV(p, p̂) between p in the label intervals and the label shares p̂ of the labeled rows.

    This is the maximum over sets S of classes of min(Σ_{k∈S} (p_hi − p̂)_k, Σ_{k∉S} (p̂ − p_lo)_k).
    """
    gain, loss = ds.intervals[:, 1] - ds.label_frequencies, ds.label_frequencies - ds.intervals[:, 0]
    sets = (
        np.isin(np.arange(ds.n_classes), some)
        for size in range(1, ds.n_classes)
        for some in combinations(range(ds.n_classes), size)
    )
    return max(min(float(gain[inside].sum()), float(loss[~inside].sum())) for inside in sets)


def tied_sets(ds: DecisionSet, minimal: MinimalRadius, excess: float) -> list[tuple[DecisionSet, MinimalRadius]]:
    """Return decision sets with union { μ : W_c(μ, P̂_l) ≤ W_d + excess + κ TV(p_μ, p̂) }, each with its minimal radius.

    With an exact prior there is one set, of radius minimal + excess. With intervals, the radius depends on the label
    probabilities p_μ, so that the extra radius of a wide interval cannot be used for other changes. TV(p, p̂) is
    max_S Σ_{k∈S} (p_k − p̂_k), so the union runs over the sets S of classes that gain, and each set allows κ·(p_S − p̂_S)
    more. In that set, changing a label from outside S to one in S is free, changing a label in S to one outside S
    costs 2κ, and all other changes cost κ.
    """
    lo, hi = ds.intervals.T
    if np.all(lo == hi):
        return [(ds.with_radius(minimal.value + excess), minimal)]
    K, kappa = ds.n_classes, float(ds.label_cost.max())
    if not np.array_equal(ds.label_cost, kappa * (1.0 - np.eye(K))):
        raise ParameterError(
            "label_cost",
            "must be one number for all classes if the radius is calibrated with label intervals",
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
