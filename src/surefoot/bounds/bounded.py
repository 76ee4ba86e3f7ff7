"""Upper bounds on the mean of losses in a known range, from labels whose number was fixed beforehand or not."""

from __future__ import annotations

import numpy as np

from surefoot._types import FloatArray
from surefoot.bounds.betting import BettingBound
from surefoot.certificates.sampling import bernstein_term

# From this many independent draws on the empirical Bernstein bound is used, below it betting. The rule looks at the
# number of labels only: the smaller of two bounds at one level does not hold at that level.
BERNSTEIN_FROM = 5000


def bounded_upper(
    values: FloatArray, low: float, high: float, level: float, *, N: int | None = None, anytime: bool = False
) -> float:
    """Bound on the mean of losses in [low, high]: of a population, or of N rows that `values` (n,) were drawn from.

    Betting for draws without replacement, for anytime bounds, and for fewer than BERNSTEIN_FROM labels; else the
    empirical Bernstein bound of Maurer and Pontil (2009).
    """
    if high <= low:
        return high
    if N is None and not anytime and len(values) >= BERNSTEIN_FROM:
        return min(float(values.mean()) + bernstein_term(values, level, low, high), high)
    scaled = np.clip((values - low) / (high - low), 0.0, 1.0)
    n, bound = len(scaled), BettingBound(level)
    if N is None:
        return low + bound.add_all(scaled, np.ones(n), np.zeros(n)) * (high - low)
    left = (N - np.arange(n)) / N  # 1 / (N q) of a uniform draw from the rows left
    drawn = (np.cumsum(scaled) - scaled) / N
    return low + bound.add_all(scaled * left, left, drawn) * (high - low)


def rule_in_words(n: int, *, pool: bool, anytime: bool) -> str:
    """Which of the two was used, as `bounded_upper` decides it."""
    bernstein = not pool and not anytime and n >= BERNSTEIN_FROM
    return "empirical Bernstein" if bernstein else "betting"
