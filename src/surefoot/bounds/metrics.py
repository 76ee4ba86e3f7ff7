"""Exact bounds on precision, recall, F1 and cost of predictions on a pool, from a sample per predicted class.

A class c splits the N rows into P, the rows predicted c, and R, all remaining rows. A rows of P are of class c. B rows
of R are of class c, and the predictions miss them. Precision is A / |P|, recall is A / (A + B), and F1 is
2A / (|P| + A + B). All increase in A and decrease in B. The sample sizes of P and R are fixed in advance, and rows are
sampled without replacement. x sampled rows of P and y sampled rows of R are of class c.

The split bound t(x, y) is the metric at the hypergeometric lower bound of A and upper bound of B, each with half of the
error probability 1 − level. The joint bound inverts the sample space ordered by t. It is the smallest metric at any
(A, B) for which P(t(X, Y) ≥ t(x, y)) exceeds 1 − level. It is the largest lower bound that increases with t (Buehler,
1957). Therefore it is never below t, and no rule has to choose between the two bounds.

Macro metrics (means over the classes) and costs use a stratum per predicted class, and a hypergeometric bound for each
count. The error probability is split among these bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from surefoot._errors import ParameterError
from surefoot._printing import (
    Bar,
    PrintsAsTable,
    at_least,
    count,
    in_percent,
    percent,
    rounded_down,
    rounded_up,
    share_at_least,
)
from surefoot._validation import FloatArray, check_unit_scalar
from surefoot.bounds._arguments import NO_PREDICTION
from surefoot.bounds.betting import PoolErrors
from surefoot.bounds.engine import AuditEngine, Draw
from surefoot.bounds.result import THEOREM
from surefoot.priors.clopper_pearson import hypergeometric_upper

PRECISION, RECALL, F1, COST = "precision", "recall", "f1", "cost"
METRICS = (PRECISION, RECALL, F1, COST)
# Number of sample sizes of P to try for a given number of labels.
_TRIED = 60
# Maximum number of cells in a table of the joint bound. Larger tables use the split bound, which is never tighter.
_MOST_CELLS = 30_000_000

Metric = Callable[[Any, Any], FloatArray]


def one_class_metric(name: str, n_predicted: int, known: tuple[int, int] = (0, 0)) -> Metric:
    """Return the metric as a function of A and B, which exclude `known` rows. It is 1 if there is nothing to find."""

    def value(found: Any, missed: Any) -> FloatArray:
        a, b = np.asarray(found, dtype=np.float64) + known[0], np.asarray(missed, dtype=np.float64) + known[1]
        top, bottom = {
            PRECISION: (a + 0 * b, n_predicted + 0 * (a + b)),
            RECALL: (a + 0 * b, a + b),
            F1: (2 * a + 0 * b, n_predicted + a + b),
        }[name]
        return np.divide(top, bottom, out=np.ones(np.broadcast(a, b).shape), where=bottom > 0)

    return value


@lru_cache(maxsize=100_000)
def most(x: int, n: int, N: int, level: float) -> int:
    """Return the upper bound on the number of rows of a kind, if x of n sampled rows are of this kind."""
    return hypergeometric_upper(x, n, N, level) if N else 0


def least(x: int, n: int, N: int, level: float) -> int:
    """Return the lower bound on the number of rows of a kind."""
    return N - most(n - x, n, N, level)


@lru_cache(maxsize=256)
def upper_counts(n: int, N: int, level: float) -> NDArray[np.intp]:
    """Return `most(x, n, N, level)` for x = 0, …, n."""
    return np.array([most(x, n, N, level) for x in range(n + 1)], dtype=np.intp)


@dataclass(frozen=True)
class Stratum:
    """A stratum: the number of rows without a known label, and the number of sampled rows."""

    size: int
    sampled: int


def split_bounds(metric: Metric, inside: Stratum, outside: Stratum, level: float) -> FloatArray:
    """Return the split bound at every outcome: x in the sample of P (rows) by y in the sample of R (columns)."""
    half = 1.0 - (1.0 - level) / 2
    lower = inside.size - upper_counts(inside.sampled, inside.size, half)[::-1]
    return metric(lower[:, None], upper_counts(outside.sampled, outside.size, half)[None, :])


def joint_lower(metric: Metric, inside: Stratum, outside: Stratum, x: int, y: int, level: float) -> float:
    """Compute the joint bound at the outcome (x, y)."""
    t = split_bounds(metric, inside, outside, level)
    # outcomes at least as good as (x, y): for each x' the largest y', or -1 if none
    largest = (t >= t[x, y] - 1e-12).sum(axis=1) - 1
    a = np.arange(x, inside.size - (inside.sampled - x) + 1)
    b = np.arange(y, outside.size - (outside.sampled - y) + 1)
    columns, place = np.unique(largest, return_inverse=True)
    if max(len(a) * (inside.sampled + 1), len(b) * (columns[-1] + 2)) > _MOST_CELLS:
        return float(t[x, y])
    chances = hypergeometric_pmf(np.arange(inside.sampled + 1), inside.size, a, inside.sampled)
    grouped = np.zeros((len(a), len(columns)))
    np.add.at(grouped.T, place, chances.T)
    pmf = hypergeometric_pmf(np.arange(columns[-1] + 1), outside.size, b, outside.sampled)
    cdf = np.concatenate([np.zeros((len(b), 1)), np.cumsum(pmf, axis=1)], axis=1)[:, columns + 1]
    # the probability of these outcomes decreases in B: for each A, find the largest B that is not rejected
    tail = (1.0 - level) * (1.0 - 1e-9)
    low, high = np.full(len(a), -1), np.full(len(a), len(b))
    while (high - low > 1).any():
        middle = (low + high) // 2
        kept = (grouped * cdf[np.clip(middle, 0, len(b) - 1)]).sum(axis=1) > tail
        low, high = np.where((high - low > 1) & kept, middle, low), np.where((high - low > 1) & ~kept, middle, high)
    possible = low >= 0
    if not possible.any():  # rounding in the tail
        return float(t[x, y])
    return float(max(metric(a[possible], b[low[possible]]).min(), t[x, y]))


def hypergeometric_pmf(x: NDArray[Any], N: int, M: NDArray[Any], n: int) -> FloatArray:
    """Return P(x of n sampled rows are of a kind) if M of N rows are of this kind, of shape (len(M), len(x))."""
    table = gammaln(np.arange(N + 2, dtype=np.float64) + 1.0)
    k, m = np.asarray(x)[None, :], np.asarray(M)[:, None]
    possible = (k <= m) & (n - k <= N - m) & (k <= n)
    k, rest = np.where(possible, k, 0), np.where(possible, n - k, 0)
    left, right = np.where(possible, m - k, 0), np.where(possible, N - m - rest, 0)
    whole = table[n] + table[N - n] - table[N]
    log = table[m] - table[k] - table[left] + table[N - m] - table[rest] - table[right] + whole
    return np.exp(np.where(possible, log, -np.inf))


def allocate(metric: Metric, n: int, inside: int, outside: int, level: float) -> tuple[int, int]:
    """Divide n labels between P and R to prove the most if no error is found. Only the sizes determine the result."""
    n = min(n, inside + outside)
    fewest, largest = max(0, n - outside), min(n, inside)
    half, best = 1.0 - (1.0 - level) / 2, (-1.0, fewest)
    for k in np.unique(np.linspace(fewest, largest, _TRIED).round().astype(int)).tolist():
        found = least(k, k, inside, half) if k else 0
        missed = most(0, n - k, outside, half) if n - k else outside
        best = max(best, (float(metric(found, missed)), k))
    return best[1], n - best[1]


@dataclass(frozen=True, eq=False, repr=False)
class MetricBound(PrintsAsTable):
    """Bound on a metric of predictions on a pool.

    Attributes
    ----------
    value : float
        Lower bound on precision, recall or F1; upper bound on the cost.
    metric : {"precision", "recall", "f1", "cost"}
        The metric that was declared before the audit.
    positive : label or None
        The class of the metric; None for the mean over all classes, and for the cost.
    estimates : dict of float
        Estimates of all metrics, without a guarantee. None if the sample is not informative.
    level : float
        Confidence level.
    n_labels : int
        Number of labels that count.
    n_rows : int
        Number of rows in the pool.
    assumptions : tuple of str
        Assumptions of the guarantee.
    kind : str
        Kind of guarantee.
    """

    value: float
    metric: str
    positive: Any
    estimates: Mapping[str, float | None]
    level: float
    n_labels: int
    n_rows: int
    assumptions: tuple[str, ...]
    kind: str = THEOREM

    @property
    def statement(self) -> str:
        """The bound as a sentence."""
        given, rows = f"With {in_percent(self.level)} confidence", f"on {count(self.n_rows, 'row')} of the pool"
        if self.metric == COST:
            return f"{given}, the mean cost of these predictions is at most {rounded_up(self.value, 4)} {rows}"
        name = "F1" if self.metric == F1 else self.metric
        what = f"mean {name} over the classes" if self.positive is None else f"{name} of {self.positive!r}"
        return f"{given}, the {what} is at least {share_at_least(self.value)} % {rows}"

    def _bars(self) -> list[Bar]:
        estimate, cost = self.estimates.get(self.metric), self.metric == COST
        limit = f"at most {rounded_up(self.value, 4)}" if cost else f"at least {at_least(self.value)}"
        bound = Bar("bound", self.value, self.value, limit)
        if estimate is None:
            return [bound]
        return [Bar("estimate", 0.0, estimate, f"{estimate:.4g}" if cost else percent(estimate, 1)), bound]

    def _rows(self) -> list[tuple[str, str]]:
        round_ = rounded_up if self.metric == COST else rounded_down
        estimates = ", ".join(f"{name} {value:.3f}" for name, value in self.estimates.items() if value is not None)
        return [
            ("value", round_(self.value, 4)),
            ("statement", self.statement),
            ("estimates", f"{estimates} (no guarantee)"),
            ("evidence", count(self.n_labels, "label")),
            *[("" if k else "assumes", text) for k, text in enumerate(self.assumptions)],
        ]


@dataclass(frozen=True)
class MetricGoal:
    """The metric that an audit bounds instead of the error rate.

    target : value to prove, or None; positive : class, or None for the mean over all classes; cost : (K, K), one row
    per true class; classes : all classes, for a mean or a cost.
    """

    metric: str
    target: float | None
    positive: Any
    classes: list[Any]
    cost: FloatArray | None = None

    @classmethod
    def from_arguments(
        cls, target: Any, positive: Any, cost: ArrayLike | None, classes: list[Any] | None, predictions: list[Any]
    ) -> MetricGoal:
        """Check the arguments of an audit."""
        entries = list(target.items()) if isinstance(target, Mapping) else []
        if len(entries) != 1 or entries[0][0] not in METRICS:
            raise ParameterError(
                "target", f"must map one of {list(METRICS)} to the value to prove, or to None", repr(target),
                'Pass {"recall": 0.9}, say.',
            )  # fmt: skip
        name, wanted = entries[0]
        known = (
            sorted({*predictions} - {NO_PREDICTION}, key=lambda one: (str(type(one)), one))
            if classes is None
            else list(classes)
        )
        if positive is not None and positive not in known:
            raise ParameterError(
                "positive", f"must be one of the classes, {known}", repr(positive), "Pass one of them."
            )
        if (name == COST) != (cost is not None) or (name == COST and positive is not None):
            raise ParameterError(
                "cost_matrix", 'must be given for target={"cost": ...} and for nothing else, without positive',
                "none" if cost is None else "a matrix", "Pass one cost per true and predicted class.",
            )  # fmt: skip
        if positive is None and len(known) < 2:
            raise ParameterError("classes", "must name two classes or more", repr(known), "Pass classes= with all.")
        costs = None if cost is None else _check_costs(cost, len(known))
        if wanted is not None:
            highest = 1.0 if costs is None else float(costs.max())
            wanted = check_unit_scalar(wanted / max(highest, 1.0), "target") * max(highest, 1.0)
        return cls(name, wanted, positive, known, costs)

    @property
    def about(self) -> dict[str, Any]:
        """Return the goal as it is stored in a journal."""
        costs = None if self.cost is None else self.cost.tolist()
        return {"metric": self.metric, "positive": self.positive, "classes": self.classes, "cost": costs}


def _check_costs(cost: ArrayLike, K: int) -> FloatArray:
    found = np.asarray(cost, dtype=np.float64)
    if found.shape != (K, K) or not np.isfinite(found).all() or (found < 0).any():
        raise ParameterError(
            "cost_matrix", f"must have finite costs of at least 0, one per true and predicted class, shape {(K, K)}",
            f"shape {found.shape}", "Pass a row per true class.",
        )  # fmt: skip
    return found


class MetricEngine(AuditEngine):
    """Sample rows per predicted class, in numbers fixed in advance, for a bound on a metric.

    plan : number of labels. With `positive`, there are two strata: the rows predicted `positive`, and all remaining
    rows. Otherwise each predicted class is a stratum. Rows without a prediction form a separate stratum.
    """

    def __init__(
        self, predictions: list[Any], known: Mapping[int, Any], goal: MetricGoal, *, level: float, seed: int, plan: int
    ) -> None:
        super().__init__(predictions, known, level=level, seed=seed)
        self.goal, self.is_uniform = goal, False
        where, K = {value: k for k, value in enumerate(goal.classes)}, len(goal.classes)
        self._codes = np.array([where.get(value, K) for value in predictions], dtype=np.intp)
        # rows without a prediction come after the classes and have the largest cost
        self._n_codes, self._cost_of = K + int((self._codes == K).any()), goal.cost
        if goal.cost is not None and self._n_codes > K:
            self._cost_of = np.column_stack([goal.cost, goal.cost.max(axis=1)])
        one = goal.positive is not None
        self._group = np.where(self._codes == where.get(goal.positive, -2), 0, 1) if one else self._codes
        order = np.random.default_rng(self._sampler.seed).permutation(self._left)
        rows = [order[self._group[order] == h] for h in range(2 if one else self._n_codes)]
        sizes = self._allocation(plan, [len(some) for some in rows])
        self.strata = [Stratum(len(some), n) for some, n in zip(rows, sizes, strict=True)]
        # take turns, so that an incomplete sample has rows of all strata
        turns = sorted((j / n, h, int(rows[h][j])) for h, n in enumerate(sizes) for j in range(n))
        self.draws = [Draw(row, 1.0 / self.strata[h].size) for _, h, row in turns]
        self._place = {draw.row: j for j, draw in enumerate(self.draws)}
        self.n_drawable, self._left = len(self.draws), np.empty(0, dtype=np.intp)
        self._bound: tuple[int, float] | None = None

    @property
    def proved(self) -> bool:
        """Whether all planned labels are recorded and prove the target."""
        if self.goal.target is None or len(self._outcomes) < self.n_drawable:
            return False
        value = self.metric_bound()
        return value <= self.goal.target if self.goal.metric == COST else value >= self.goal.target

    def metric_bound(self) -> float:
        """Compute the bound. Skipped and missing labels count as the worst possible label."""
        key = hash((len(self._outcomes), tuple(self._settled.items()), tuple(self.known.items())))
        if self._bound is None or self._bound[0] != key:
            if self.goal.positive is not None:
                value = self._one_class()
            else:
                value = self._cost() if self.goal.metric == COST else self._macro()
            self._bound = key, value
        return self._bound[1]

    def estimates(self) -> dict[str, float | None]:
        """Estimate precision, recall, F1 and error rate of the class, or of the mean over all classes."""
        whole = self._estimated_counts()
        goal = self.goal
        names = goal.classes if goal.positive is None else [goal.positive]
        found: dict[str, list[float | None]] = {PRECISION: [], RECALL: [], F1: []}
        for name in names:
            k = goal.classes.index(name)
            for metric, values in found.items():
                values.append(_ratio(metric, whole, k))
        means = {
            metric: None if None in values else float(np.mean([value for value in values if value is not None]))
            for metric, values in found.items()
        }
        if self._cost_of is None:
            return means
        cost = float((self._cost_of * whole.T).sum() / len(self.predictions))
        return {**means, COST: cost if np.isfinite(cost) else None}

    def _allocation(self, plan: int, sizes: list[int]) -> list[int]:
        goal, known = self.goal, self._known_counts()
        if goal.positive is None:
            weights = np.ones(len(sizes))
            if self._cost_of is not None:
                weights = np.array(sizes) * self._cost_of.max(axis=0)
            return _shared_out(min(plan, sum(sizes)), sizes, weights)
        if goal.metric == PRECISION:
            return [min(plan, sizes[0]), 0]
        value = one_class_metric(goal.metric, int((self._group == 0).sum()), known)
        return list(allocate(value, plan, sizes[0], sizes[1], self.level))

    def _known_counts(self) -> tuple[int, int]:
        """Count rows with a known label of the class: correctly predicted rows, and missed rows."""
        inside = [row for row, label in self.known.items() if label == self.goal.positive and self._group[row] == 0]
        missed = [row for row, label in self.known.items() if label == self.goal.positive and self._group[row] != 0]
        unknown = [row for row, label in self.known.items() if label is None and self._group[row] != 0]
        return len(inside), len(missed) + len(unknown)

    def _one_class(self) -> float:
        goal, (inside, outside) = self.goal, self.strata
        found = missed = 0
        for draw in self.draws:
            label = self._settled.get(draw.row)
            if self._group[draw.row] == 0:
                found += label == goal.positive and label is not None
            else:
                missed += label is None or label == goal.positive
        value = one_class_metric(goal.metric, int((self._group == 0).sum()), self._known_counts())
        if goal.metric == PRECISION:
            return float(value(least(found, inside.sampled, inside.size, self.level), 0))
        return joint_lower(value, inside, outside, found, missed, self.level)

    def _sampled_counts(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Count labels (H, K + 1) per stratum, the last column for rows without a label: sampled, and known."""
        K, H = len(self.goal.classes), self._n_codes
        where = {value: k for k, value in enumerate(self.goal.classes)}
        sampled, known = np.zeros((H, K + 1), dtype=np.intp), np.zeros((H, K + 1), dtype=np.intp)
        for counts, labels in ((sampled, {d.row: self._settled.get(d.row) for d in self.draws}), (known, self.known)):
            for row, label in labels.items():
                counts[self._codes[row], where.get(label, K)] += 1
        return sampled, known

    def _macro(self) -> float:
        K, H, (sampled, known) = len(self.goal.classes), self._n_codes, self._sampled_counts()
        n_counts = K if self.goal.metric == PRECISION else H * K
        level = 1.0 - (1.0 - self.level) / n_counts
        upper = np.zeros((H, K), dtype=np.intp)
        for h, part in enumerate(self.strata):
            for k in range(K):
                worst = sampled[h, k] + (sampled[h, K] if k != h else 0)
                if k == h:
                    upper[h, k] = least(int(worst), part.sampled, part.size, level) + known[h, k]
                else:
                    upper[h, k] = most(int(worst), part.sampled, part.size, level) + known[h, k] + known[h, K]
        found = np.diag(upper)
        missed = upper.sum(axis=0) - found
        values = [
            float(one_class_metric(self.goal.metric, int((self._codes == k).sum()))(found[k], missed[k]))
            for k in range(K)
        ]
        return float(np.mean(values))

    def _cost(self) -> float:
        cost, (sampled, known) = self._cost_of, self._sampled_counts()
        if cost is None:
            raise ParameterError("cost_matrix", "must be given for a cost", "None", "Pass it.")
        # for each stratum, the differences between successive costs
        steps = [np.diff(np.unique(np.append(cost[:, h], 0.0))) for h in range(cost.shape[1])]
        level = 1.0 - (1.0 - self.level) / max(sum(len(some) for some in steps), 1)
        total = 0.0
        for h, part in enumerate(self.strata):
            costs = np.append(cost[:, h], cost[:, h].max())  # a row without a label has the largest cost
            total += float(known[h] @ costs)
            for step, above in zip(steps[h], np.unique(np.append(cost[:, h], 0.0))[1:], strict=True):
                dear = int(sampled[h][costs >= above].sum())
                total += step * most(dear, part.sampled, part.size, level)
        return total / len(self.predictions)

    def _estimated_counts(self) -> FloatArray:
        """Estimate counts (H, K) by predicted and true class from the sample. NaN for a stratum without a label."""
        goal = self.goal
        K, where = len(goal.classes), {value: k for k, value in enumerate(goal.classes)}
        H = self._n_codes
        counts, known = np.zeros((H, K)), np.zeros((H, K))
        seen = np.zeros(len(self.strata))
        within = np.zeros((len(self.strata), H, K))
        for draw in self.draws:
            if draw.row in self._settled:
                h, label = self._group[draw.row], self._settled[draw.row]
                seen[h] += 1
                if label in where:
                    within[h, self._codes[draw.row], where[label]] += 1
        for row, label in self.known.items():
            if label in where:
                known[self._codes[row], where[label]] += 1
        for h, part in enumerate(self.strata):
            codes = np.unique(self._codes[self._group == h])
            if part.size:
                counts[codes] += within[h, codes] * part.size / seen[h] if seen[h] else np.nan
        return counts + known


def _ratio(metric: str, counts: FloatArray, k: int) -> float | None:
    """Return a metric of class k from counts (H, K) by predicted and true class, or None if it is undefined."""
    found, predicted, true = counts[k, k], counts[k].sum(), counts[:, k].sum()
    top, bottom = {PRECISION: (found, predicted), RECALL: (found, true), F1: (2 * found, predicted + true)}[metric]
    return float(top / bottom) if bottom > 0 else None


def _shared_out(n: int, sizes: list[int], weights: FloatArray) -> list[int]:
    """Divide n among strata by weight, at most the size of each stratum."""
    given = np.zeros(len(sizes), dtype=np.intp)
    room = np.array(sizes)
    while (left := n - int(given.sum())) > 0:
        open_ = given < room
        share = np.where(open_, np.maximum(weights, 1e-12), 0.0)
        more = np.minimum(np.floor(left * share / share.sum()).astype(np.intp), room - given)
        if not more.any():
            more[np.argmax(np.where(open_, share, -1.0))] = 1
        given += more
    return [int(value) for value in given]


def labels_for_metric(
    name: str, target: float, expected_error: float, n_pool: int, n_positive: int, level: float, power: float
) -> int | None:
    """Return the smallest number of labels that proves a metric of one class with probability `power`, or None.

    expected_error : share of wrong rows among the predicted positives, and missed positives per positive found.
    """
    value, rest = one_class_metric(name, n_positive), n_pool - n_positive
    found = n_positive - round(expected_error * n_positive)
    missed = min(round(expected_error * found), rest)

    def is_enough(n: int) -> bool:
        k, m = (min(n, n_positive), 0) if name == PRECISION else allocate(value, n, n_positive, rest, level)
        inside, outside = Stratum(n_positive, k), Stratum(rest, m)
        x, y = np.arange(k + 1), np.arange(m + 1)
        if name == PRECISION:
            chance = hypergeometric_pmf(x, n_positive, np.array([found]), k)[0]
            enough = value(n_positive - upper_counts(k, n_positive, level)[::-1], 0) >= target
            return bool(chance @ enough >= power - 1e-12)
        # skip the bound of very unlikely outcomes
        px = hypergeometric_pmf(x, n_positive, np.array([found]), k)[0]
        py = hypergeometric_pmf(y, rest, np.array([missed]), m)[0]
        x, y = x[px > 1e-9], y[py > 1e-9]
        half = 1.0 - (1.0 - level) / 2
        lower = np.array([least(int(i), inside.sampled, inside.size, half) for i in x])
        upper = np.array([most(int(i), outside.sampled, outside.size, half) for i in y])
        enough = value(lower[:, None], upper[None, :]) >= target
        return bool(px[px > 1e-9] @ enough @ py[py > 1e-9] >= power - 1e-6)

    low, high = 0, n_positive if name == PRECISION else n_pool
    if not is_enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


# Compare several predictions on one uniform sample.


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(PrintsAsTable):
    """Bounds on the error rates of several predictions and on their differences, all of which hold simultaneously.

    Attributes
    ----------
    errors : dict of float
        Upper bound on the error rate, by name.
    differences : dict of (float, float)
        Lower and upper bound on the difference of the error rates, first minus second, by pair of names.
    level : float
        Confidence level of all bounds together.
    n_labels : int
        Number of labels that count.
    """

    errors: Mapping[str, float]
    differences: Mapping[tuple[str, str], tuple[float, float]]
    level: float
    n_labels: int

    @property
    def best(self) -> str | None:
        """Name of the predictions proved to have the lowest error rate. None if this is not proved for any."""
        for name in self.errors:
            pairs = [
                (low, high) if first == name else (-high, -low)
                for (first, second), (low, high) in self.differences.items()
                if name in (first, second)
            ]
            if all(high < 0 for _, high in pairs):
                return name
        return None

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("error rate", f"{name}: at most {rounded_up(value, 4)}") for name, value in self.errors.items()]
        for (first, second), (low, high) in self.differences.items():
            span = f"from {rounded_down(low, 4)} to {rounded_up(high, 4)}"
            rows.append(("difference", f"{first} minus {second}: {span}"))
        best = "not decided" if self.best is None else self.best
        held = f"all bounds together, with {in_percent(self.level)} confidence, from {count(self.n_labels, 'label')}"
        return [*rows, ("lowest", best), ("holds", held)]


def compare_predictions(engine: AuditEngine, predictions: Mapping[str, list[Any]], planned: int | None) -> Comparison:
    """Bound each error rate and each difference from the labels of a uniform sample.

    planned : number of labels fixed in advance, where missing labels count as errors. None: bounds at all numbers of
    labels. The difference of two error rates depends only on rows that exactly one of the two predicts wrongly.
    """
    if not engine.is_uniform:
        raise ParameterError("sampling", "must be uniform for a comparison", "'weighted'", "Begin such an audit.")
    names, N = list(predictions), len(engine.predictions)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    level = 1.0 - (1.0 - engine.level) / (len(names) + 4 * len(pairs))
    labels = dict(engine.labels)
    if planned is not None:
        labels |= {draw.row: None for draw in engine.draw(planned)[engine.n_labels :]}

    def upper(kind: Callable[[int, Any], bool]) -> int:
        """Bound the number of rows of a kind. Labels known from the start count as given."""
        seen = [kind(row, label) for row, label in labels.items()]
        n_known = sum(kind(row, label) for row, label in engine.known.items())
        return n_known + _upper(seen, engine.n_drawable, level, planned is None)

    def wrong(name: str) -> Callable[[int, Any], bool]:
        return lambda row, label: label is None or bool(predictions[name][row] != label)

    def only(first: str, second: str, *, unknown: bool) -> Callable[[int, Any], bool]:
        """Return a test whether only the first prediction is wrong: `unknown` if they differ and there is no label."""
        one, two = predictions[first], predictions[second]
        return lambda row, label: one[row] != two[row] and (unknown if label is None else bool(two[row] == label))

    def lower(kind: Callable[[int, Any], bool]) -> int:
        return N - upper(lambda row, label: not kind(row, label))

    errors = {name: upper(wrong(name)) / N for name in names}
    differences = {}
    for a, b in pairs:
        low = lower(only(a, b, unknown=False)) - upper(only(b, a, unknown=True))
        high = upper(only(a, b, unknown=True)) - lower(only(b, a, unknown=False))
        differences[a, b] = low / N, high / N
    return Comparison(errors, differences, engine.level, engine.n_labels)


def _upper(seen: list[bool], N: int, level: float, anytime: bool) -> int:
    if not anytime:
        return most(sum(seen), len(seen), N, level)
    errors = PoolErrors(N, level)
    for value in seen:
        errors.add(value)
    return errors.upper
