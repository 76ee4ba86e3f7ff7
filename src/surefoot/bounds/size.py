"""How many labels an audit will take: exact for a planned number, by the distribution of its end when one may peek."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import hypergeom

from surefoot._errors import import_extra
from surefoot._printing import PrintsAsTable
from surefoot._validation import FloatArray, check_finite_array, check_positive_integer, check_unit_scalar
from surefoot.bounds._arguments import check_level
from surefoot.bounds.betting import PoolErrors

# A curve goes up to this share of its target, nearer to which the labels needed grow without bound, by so many points.
_NEAREST, _POINTS = 0.8, 17


@dataclass(frozen=True, eq=False, repr=False)
class AuditSize(PrintsAsTable):
    """Labels that it takes to prove a target error.

    Attributes
    ----------
    n_labels : int or None
        To plan: with this many, the exact bound is at most the target with probability `power`, if the classifier errs
        on `expected_error` of the pool. None where labeling all of the pool would not do.
    n_errors : int or None
        Errors among them that are allowed.
    n_anytime : int or None
        Within this many the anytime bound is at most the target with the same probability; it may be there earlier.
    target : float
        The share of errors to prove.
    expected_error : float
        The share that the classifier is believed to make.
    n_pool : int
        Rows of the pool.
    level : float
        Probability with which the bound holds.
    power : float
        Probability that the target is proved.
    """

    n_labels: int | None
    n_errors: int | None
    n_anytime: int | None
    target: float
    expected_error: float
    n_pool: int
    level: float
    power: float

    def curve(self, believed_errors: ArrayLike) -> FloatArray:
        """Labels needed at the same target for other believed errors.

        Parameters
        ----------
        believed_errors : array of shape (k,)
            Shares that the classifier is believed to make.

        Returns
        -------
        array of shape (k,)
            Labels to plan; NaN where none suffice.
        """
        return self.table([self.target], believed_errors)[0]

    def table(self, targets: ArrayLike, believed_errors: ArrayLike) -> FloatArray:
        """Labels needed, targets by believed errors.

        Parameters
        ----------
        targets : array of shape (t,)
            Shares of errors to prove.
        believed_errors : array of shape (k,)
            Shares that the classifier is believed to make.

        Returns
        -------
        array of shape (t, k)
            Labels to plan; NaN where none suffice.
        """
        rows = check_finite_array(targets, "targets", ndim=1)
        columns = check_finite_array(believed_errors, "believed_errors", ndim=1)
        found = [[_plan(t, b, self.n_pool, self.level, self.power) for b in columns] for t in rows]
        return np.array([[np.nan if cell is None else cell[0] for cell in line] for line in found], dtype=np.float64)

    def plot(self, targets: ArrayLike | None = None, ax: Any = None) -> Any:
        """Draw the labels to plan against the believed error, a curve per target.

        Parameters
        ----------
        targets : array of shape (t,) or None, default=None
            Shares of errors to prove; by default half of this target, itself and twice it.
        ax : matplotlib Axes or None, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib Axes
            The drawing.
        """
        pyplot = import_extra("matplotlib.pyplot", "plots", "AuditSize.plot")
        if ax is None:
            ax = pyplot.subplots(figsize=(6.0, 3.8), layout="constrained")[1]
        chosen = np.array([0.5, 1.0, 2.0]) * self.target if targets is None else np.asarray(targets)
        for target in np.unique(np.clip(chosen, 0.0, 1.0)):
            shares = np.linspace(0.0, _NEAREST * target, _POINTS)
            ax.plot(100 * shares, self.table([target], shares)[0], ".-", label=f"at most {100 * target:.3g} % errors")
        ax.set(yscale="log", xlabel="believed error, %", ylabel="labels to plan")
        what = f"chance {self.power:.3g}, level {self.level:.3g}, {self.n_pool:,} rows"
        ax.set_title(f"Labels that prove a target ({what})", fontsize=10)
        ax.legend(frameon=False, fontsize=8)
        return ax

    def _rows(self) -> list[tuple[str, str]]:
        if self.n_labels is None:
            need = f"all {self.n_pool} rows would not do: the believed error is above the target, or too near to it"
        else:
            need = f"{self.n_labels}  (of {self.n_pool} rows; at most {self.n_errors} of them wrong)"
        peeking = (
            "not within the pool" if self.n_anytime is None else f"{self.n_anytime} or fewer, by the anytime bound"
        )
        shares = self.target * np.array([0.0, 0.2, 0.4, 0.6, 0.8])
        others = ", ".join(
            f"{share:.3g}: {'none suffice' if np.isnan(n) else int(n)}"
            for share, n in zip(shares, self.curve(shares), strict=True)
        )
        return [
            ("labels", need),
            ("when peeking", peeking),
            ("proves", f"an error of at most {self.target:.4g} at level {self.level:.4g}"),
            (
                "with chance",
                f"{self.power:.4g} or more, if the classifier errs on {self.expected_error:.4g} of the pool",
            ),
            ("if it errs on", others),
        ]


def audit_size(
    target: float = 0.05, expected_error: float = 0.02, n_pool: int = 5000, *, level: float = 0.9, power: float = 0.8
) -> AuditSize:
    """The labels to plan for an audit of a pool, drawn uniformly without replacement.

    The least n for which at most c errors may be found, c such that the exact bound is then at most the target, and
    for which that happens with probability `power` or more.

    Parameters
    ----------
    target : float, default=0.05
        The share of errors to prove.
    expected_error : float, default=0.02
        The share that the classifier is believed to make.
    n_pool : int, default=5000
        Rows of the pool.
    level : float in (0, 1), default=0.9
        Probability with which the bound holds.
    power : float in (0, 1), default=0.8
        Probability that the target is proved, if the classifier errs on `expected_error` of the pool.

    Returns
    -------
    AuditSize
        The labels to plan, the errors they allow, and the labels within which one who peeks is done.

    Examples
    --------
    >>> audit_size(target=0.05, expected_error=0.0, n_pool=5000).n_labels
    45
    """
    least = check_unit_scalar(target, "target")
    believed = check_unit_scalar(expected_error, "expected_error")
    N = check_positive_integer(n_pool, "n_pool")
    at, chance = check_level(level), check_unit_scalar(power, "power")
    found = _plan(least, believed, N, at, chance)
    n, errors = found if found is not None else (None, None)
    peeking = None if found is None else _anytime_labels(least, believed, N, at, chance)
    return AuditSize(n, errors, peeking, least, believed, N, at, chance)


def least_labels(target: float, n_pool: int, level: float) -> int | None:
    """The labels with which the anytime bound proves a target if none of them shows an error."""
    bad = int(np.floor(target * n_pool + 1e-9)) + 1
    return PoolErrors(n_pool, level).labels_needed(bad, 0, 0, 0.0)


def _plan(target: float, believed: float, N: int, level: float, power: float) -> tuple[int, int] | None:
    """The least number of labels, and the errors that it allows; None where even all rows would not do."""
    bad = int(np.floor(target * N + 1e-9)) + 1  # the least number of errors that must be ruled out
    real = round(believed * N)
    if bad > N:
        return 0, 0
    if real >= bad:
        return None
    for errors in range(bad):
        n = _least_labels(errors, bad, N, level)
        if hypergeom.cdf(errors, N, real, n) >= power:
            return n, errors
    return None


def _least_labels(errors: int, bad: int, N: int, level: float) -> int:
    """The least n at which `bad` errors among N rows would show more than `errors`, but for a chance of 1 − level."""
    # at n = N all `bad` > `errors` are seen
    numbers = range(errors + 1, N)
    few = bisect_left(numbers, True, key=lambda n: bool(hypergeom.cdf(errors, N, bad, n) <= 1.0 - level))
    return errors + 1 + few


def _anytime_labels(target: float, believed: float, N: int, level: float, power: float) -> int | None:
    """The number of labels within which the anytime bound gets to the target with probability `power`.

    The chances of x errors in t draws, those that have ended taken out, go forward draw by draw. That the least number
    of errors to rule out is rejected stands for all larger ones.
    """
    bad, real = int(np.floor(target * N + 1e-9)) + 1, round(believed * N)
    if bad > N:
        return 0
    pool, allowed, ended = PoolErrors(N, level), -1, 0.0
    chances = np.array([1.0])  # of x = 0, 1, ... errors, and not ended
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
