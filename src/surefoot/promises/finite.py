"""Exact upper bounds from a number of labels that was fixed beforehand: a population, and a pool of N rows."""

from __future__ import annotations

from scipy.stats import beta, hypergeom

from surefoot._validation import check_unit_scalar


def check_level(level: float) -> float:
    """A level strictly between 0 and 1."""
    value = check_unit_scalar(level, "level")
    if not 0 < value < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}. Pass 0.9, say.")
    return value


def clopper_pearson_upper(errors: float, n: float, level: float) -> float:
    """The largest share p of errors in a population with P(at most `errors` in n draws) ≥ 1 − level.

    Solves P(Bin(n, p) ≤ errors) = 1 − level, by the quantile of the beta distribution; counts may be fractional.
    """
    if errors >= n:
        return 1.0
    return float(beta.isf(1.0 - level, errors + 1, n - errors))


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
