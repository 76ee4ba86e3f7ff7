"""Exact bounds on how many of N rows are of a kind, from n of them drawn uniformly without replacement."""

from __future__ import annotations

from scipy.stats import hypergeom


def hypergeometric_upper(errors: int, n: int, N: int, level: float) -> int:
    """The largest number M of errors among N rows with P(at most `errors` in n draws) > 1 − level.

    n rows are drawn uniformly without replacement. The probability falls as M grows, so that M is found by bisection;
    with probability at least `level` it is not below the number there is.
    """
    tail = 1.0 - level
    low, high = errors, N - (n - errors)  # `low` is possible at any level, since all M = errors would have been drawn
    if hypergeom.cdf(errors, N, high, n) > tail:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if hypergeom.cdf(errors, N, middle, n) > tail:
            low = middle
        else:
            high = middle
    return low


def hypergeometric_lower(errors: int, n: int, N: int, level: float) -> int:
    """The smallest number M of errors among N rows with P(at least `errors` in n draws) > 1 − level."""
    return N - hypergeometric_upper(n - errors, n, N, level)
