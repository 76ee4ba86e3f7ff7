"""The median of a sample with an interval for the true median, from order statistics alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from surefoot._errors import ParameterError
from surefoot._validation import check_finite_array, check_unit_scalar


@lru_cache(maxsize=64)
def median_ranks(n: int, level: float = 0.95) -> tuple[int, int]:
    """Ranks (low, high), from 0, of the order statistics of n values that hold the true median at this level.

    Of n independent values the number below the true median is binomial(n, ½), whatever their distribution. The pair is
    symmetric, and the innermost one of at least the level; with fewer than 6 values none reaches 95 %, and the extremes
    are returned.
    """
    tail = int(binom.ppf((1.0 - level) / 2.0, n, 0.5))
    low = max(tail - 1, 0)  # P(fewer than `tail` values lie below the median) ≤ (1 − level)/2
    return low, n - 1 - low


def median_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """Median of a sample (n,), and the ends of the interval of its median.

    Examples
    --------
    >>> median_interval(range(1, 21))
    (10.5, 6.0, 15.0)
    """
    ordered = np.sort(check_finite_array(values, "values", ndim=1))
    if not len(ordered):
        raise ParameterError("values", "must not be empty", "none", "Pass the results of at least one trial.")
    low, high = median_ranks(len(ordered), check_unit_scalar(level, "level"))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


def median_table(rows: Any, by: list[str], columns: list[str]) -> Any:
    """A data frame of `rows` grouped by columns `by`: trials, and for each column its median, _low and _high."""
    import pandas as pd

    table = []
    for key, group in rows.groupby(by, sort=False):
        line = dict(zip(by, key, strict=True)) | {"trials": len(group)}
        for column in columns:
            line[column], line[f"{column}_low"], line[f"{column}_high"] = median_interval(group[column].to_numpy())
        table.append(line)
    return pd.DataFrame(table)
