"""Exact upper bounds on a population from a number of labels that was fixed beforehand."""

from __future__ import annotations

from scipy.stats import beta

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
