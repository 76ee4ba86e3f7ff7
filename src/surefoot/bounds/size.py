"""Number of labels that an audit requires, for a planned number of labels and for the anytime bound."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import hypergeom

from surefoot._errors import ParameterError, import_extra
from surefoot._printing import PrintsAsTable, count, in_percent
from surefoot._validation import FloatArray, check_finite_array, check_positive_integer, check_unit_scalar
from surefoot.bounds._arguments import check_level
from surefoot.bounds.betting import PoolErrors
from surefoot.bounds.metrics import F1, PRECISION, RECALL, labels_for_metric

# A curve ends at this fraction of its target, because the number of labels diverges there. Number of points per curve.
_NEAREST, _POINTS = 0.8, 17


@dataclass(frozen=True, eq=False, repr=False)
class AuditSize(PrintsAsTable):
    """Number of labels required to prove a target error rate.

    Attributes
    ----------
    n_labels : int or None
        Number of labels to plan. With this number, the exact bound is at most the target with probability `power`, if
        the true error rate is `expected_error`. None if labeling the whole pool does not suffice.
    n_errors : int or None
        Number of errors allowed among these labels.
    n_anytime : int or None
        The anytime bound reaches the target within this number of labels, with the same probability.
    target : float
        The error rate to prove.
    expected_error : float
        Expected error rate of the classifier.
    n_pool : int
        Number of rows in the pool.
    level : float
        Confidence level of the bound.
    power : float
        Probability that the target is proved.
    metric : {"error", "precision", "recall", "f1"}
        The metric to prove.
    """

    n_labels: int | None
    n_errors: int | None
    n_anytime: int | None
    target: float
    expected_error: float
    n_pool: int
    level: float
    power: float
    metric: str = "error"

    def curve(self, believed_errors: ArrayLike) -> FloatArray:
        """Compute the number of labels at the same target for other expected error rates.

        Parameters
        ----------
        believed_errors : array of shape (k,)
            Expected error rates.

        Returns
        -------
        array of shape (k,)
            Numbers of labels to plan; NaN if no number suffices.
        """
        return self.table([self.target], believed_errors)[0]

    def table(self, targets: ArrayLike, believed_errors: ArrayLike) -> FloatArray:
        """Compute the number of labels for each target and expected error rate.

        Parameters
        ----------
        targets : array of shape (t,)
            Error rates to prove.
        believed_errors : array of shape (k,)
            Expected error rates.

        Returns
        -------
        array of shape (t, k)
            Numbers of labels to plan; NaN if no number suffices.
        """
        rows = check_finite_array(targets, "targets", ndim=1)
        columns = check_finite_array(believed_errors, "believed_errors", ndim=1)
        found = [[_plan(t, b, self.n_pool, self.level, self.power) for b in columns] for t in rows]
        return np.array([[np.nan if cell is None else cell[0] for cell in line] for line in found], dtype=np.float64)

    def plot(self, targets: ArrayLike | None = None, ax: Any = None) -> Any:
        """Plot the number of labels against the expected error rate, one curve per target.

        Parameters
        ----------
        targets : array of shape (t,) or None, default=None
            Error rates to prove. The default is half of this target, the target itself, and twice the target.
        ax : matplotlib Axes or None, default=None
            Axes to plot on. None creates a new figure.

        Returns
        -------
        matplotlib Axes
            The axes with the plot.
        """
        pyplot = import_extra("matplotlib.pyplot", "plots", "AuditSize.plot")
        if ax is None:
            ax = pyplot.subplots(figsize=(6.0, 3.8), layout="constrained")[1]
        chosen = np.array([0.5, 1.0, 2.0]) * self.target if targets is None else np.asarray(targets)
        for target in np.unique(np.clip(chosen, 0.0, 1.0)):
            shares = np.linspace(0.0, _NEAREST * target, _POINTS)
            ax.plot(100 * shares, self.table([target], shares)[0], ".-", label=f"at most {100 * target:.3g} % errors")
        ax.set(yscale="log", xlabel="expected error rate, %", ylabel="labels to plan")
        what = f"{in_percent(self.level)} confidence, power {in_percent(self.power)}, {self.n_pool:,} rows"
        ax.set_title(f"Labels required to prove a target ({what})", fontsize=10)
        ax.legend(frameon=False, fontsize=8)
        return ax

    def _rows(self) -> list[tuple[str, str]]:
        if self.metric != "error":
            need, name = f"{self.n_labels}  (of {self.n_pool} rows)", "F1" if self.metric == F1 else self.metric
            share = f"{self.expected_error:.4g}"
            wrong = f"{share} of the predicted positives are wrong, and {share} positives are missed per one found"
            return [
                ("labels", "labeling all rows is not enough" if self.n_labels is None else need),
                ("proves", f"{name} of at least {self.target:.4g} at level {self.level:.4g}"),
                ("with chance", f"{self.power:.4g} or more, if {wrong}"),
            ]
        if self.n_labels is None:
            need = f"more than all {self.n_pool} rows: the expected error rate is above the target or too close to it"
        else:
            need = f"{self.n_labels} of {self.n_pool} rows, with at most {count(self.n_errors or 0, 'error')}"
        anytime = "more than the pool has" if self.n_anytime is None else f"at most {self.n_anytime} labels"
        shares = self.target * np.array([0.0, 0.2, 0.4, 0.6, 0.8])
        others = ", ".join(
            f"{in_percent(share)}: {'not possible' if np.isnan(n) else int(n)}"
            for share, n in zip(shares, self.curve(shares), strict=True)
        )
        return [
            ("labels", need),
            ("anytime bound", anytime),
            ("target", f"an error rate of at most {in_percent(self.target)}, with {in_percent(self.level)} confidence"),
            (
                "power",
                f"at least {in_percent(self.power)}, if the true error rate is {in_percent(self.expected_error)}",
            ),
            ("other rates", others),
        ]


def audit_size(
    target: float = 0.05,
    expected_error: float = 0.02,
    n_pool: int = 5000,
    *,
    metric: str = "error",
    n_positive: int | None = None,
    level: float = 0.9,
    power: float = 0.8,
) -> AuditSize:
    """Compute the number of labels to plan for an audit with uniform sampling.

    This is the smallest n that proves the target with probability `power` or more. The exact bound is at most the
    target if the n labels contain at most c errors.

    Parameters
    ----------
    target : float, default=0.05
        The error rate to prove, or the smallest precision, recall or F1 to prove.
    expected_error : float, default=0.02
        Expected error rate of the classifier. For other metrics: the share of wrong rows among the predicted
        positives, and the number of missed positives per positive found.
    n_pool : int, default=5000
        Number of rows in the pool.
    metric : {"error", "precision", "recall", "f1"}, default="error"
        The metric to prove. Precision, recall and F1 refer to one class, and `Audit(target=...)` divides the labels.
    n_positive : int or None, default=None
        Number of rows predicted to be of the class. Required for metrics other than the error rate.
    level : float in (0, 1), default=0.9
        Confidence level of the bound.
    power : float in (0, 1), default=0.8
        Probability that the target is proved, if the true error rate is `expected_error`.

    Returns
    -------
    AuditSize
        The number of labels to plan, the number of errors allowed, and the number of labels for the anytime bound.

    Examples
    --------
    >>> audit_size(target=0.05, expected_error=0.0, n_pool=5000).n_labels
    45
    >>> audit_size(0.9, 0.0, 1000, metric="recall", n_positive=100).n_labels
    238
    """
    least = check_unit_scalar(target, "target")
    believed = check_unit_scalar(expected_error, "expected_error")
    N = check_positive_integer(n_pool, "n_pool")
    at, chance = check_level(level), check_unit_scalar(power, "power")
    if metric != "error":
        n = _metric_labels(metric, least, believed, N, n_positive, at, chance)
        return AuditSize(n, None, None, least, believed, N, at, chance, metric)
    found = _plan(least, believed, N, at, chance)
    n, errors = found if found is not None else (None, None)
    peeking = None if found is None else _anytime_labels(least, believed, N, at, chance)
    return AuditSize(n, errors, peeking, least, believed, N, at, chance)


def _metric_labels(
    metric: str, target: float, expected: float, N: int, n_positive: int | None, level: float, power: float
) -> int | None:
    if metric not in (PRECISION, RECALL, F1):
        raise ParameterError(
            "metric", "must be 'error', 'precision', 'recall' or 'f1'", repr(metric), "Pass one of these."
        )
    if n_positive is None or not 0 < check_positive_integer(n_positive, "n_positive") <= N:
        raise ParameterError(
            "n_positive", f"must be from 1 to n_pool, {N}, for metric={metric!r}", repr(n_positive), "Count them."
        )
    return labels_for_metric(metric, target, expected, N, n_positive, level, power)


def _plan(target: float, believed: float, N: int, level: float, power: float) -> tuple[int, int] | None:
    """Return the smallest number of labels and the number of errors allowed, or None if all rows do not suffice."""
    bad = int(np.floor(target * N + 1e-9)) + 1  # the smallest number of errors to rule out
    real = round(believed * N)
    if bad > N:
        return 0, 0
    if real >= bad:
        return None
    for errors in range(bad):
        n = least_planned(errors, bad, N, level)
        if hypergeom.cdf(errors, N, real, n) >= power:
            return n, errors
    return None


def least_planned(errors: int, bad: int, N: int, level: float) -> int:
    """Return the smallest n at which `bad` errors among N rows show more than `errors` with probability `level`."""
    # at n = N all errors are seen, and `bad` > `errors`
    numbers = range(errors + 1, N)
    few = bisect_left(numbers, True, key=lambda n: bool(hypergeom.cdf(errors, N, bad, n) <= 1.0 - level))
    return errors + 1 + few


def _anytime_labels(target: float, believed: float, N: int, level: float, power: float) -> int | None:
    """Return the number of labels within which the anytime bound reaches the target with probability `power`.

    The recursion runs over draws. It keeps the probabilities of x errors in t draws among audits that have not ended.
    Once the smallest number of errors to rule out is rejected, all larger numbers are rejected too.
    """
    bad, real = int(np.floor(target * N + 1e-9)) + 1, round(believed * N)
    if bad > N:
        return 0
    pool, allowed, ended = PoolErrors(N, level), -1, 0.0
    chances = np.array([1.0])  # probability of x = 0, 1, ... errors in audits that have not ended
    for t in range(1, N + 1):
        x = np.arange(len(chances))
        error = np.clip((real - x) / (N - t + 1), 0.0, 1.0)
        chances = np.append(chances * (1.0 - error), 0.0) + np.append(0.0, chances * error)
        while allowed + 1 <= t and pool.rejects(bad, allowed + 1, t):
            allowed += 1
        ended += float(chances[: allowed + 1].sum())
        chances[: allowed + 1] = 0.0
        if ended >= power:
            return t
        while len(chances) > 1 and chances[-1] < 1e-12:
            chances = chances[:-1]
    return None
