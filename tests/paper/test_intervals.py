"""The interval of the median holds it as often as it says, whatever the distribution."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, quantile_test

from refusals import refuses
from surefoot.paper.samples import median_interval, median_ranks, median_table


@pytest.mark.parametrize("n", [6, 7, 20, 40, 50, 99, 100, 1000])
def test_it_is_scipys_two_sided_interval_of_the_median(n: int) -> None:
    values = np.sort(np.random.default_rng(n).normal(size=n))
    found = median_interval(values)
    lower = quantile_test(values, p=0.5, alternative="two-sided").confidence_interval(0.95)
    assert found == (float(np.median(values)), lower.low, lower.high)


@pytest.mark.parametrize("n", [6, 13, 20, 40])
def test_coverage_is_at_least_95_percent_and_no_narrower_pair_has_it(n: int) -> None:
    rng = np.random.default_rng(0)
    draws = np.sort(rng.exponential(size=(20_000, n)), axis=1)
    low, high = median_ranks(n)
    inside = int(np.sum((draws[:, low] <= np.log(2)) & (np.log(2) <= draws[:, high])))
    assert binomtest(inside, len(draws), 0.95, alternative="less").pvalue > 1e-3
    narrower = int(np.sum((draws[:, low + 1] <= np.log(2)) & (np.log(2) <= draws[:, high - 1])))
    assert narrower < 0.95 * len(draws)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_the_median_lies_inside(values: list[float]) -> None:
    middle, low, high = median_interval(values)
    assert min(values) <= low <= middle <= high <= max(values)


def test_none_and_nan_are_refused() -> None:
    with refuses("values"):
        median_interval([])
    with refuses("values", "nan at index 1"):
        median_interval([1.0, np.nan])


def test_a_table_has_a_line_per_group_in_order_of_appearance() -> None:
    rows = pd.DataFrame({"dataset": ["b", "b", "a"], "n": [1, 1, 1], "score": [1.0, 2.0, 5.0]})
    table = median_table(rows, ["dataset", "n"], ["score"])
    assert table.to_dict("records") == [
        {"dataset": "b", "n": 1, "trials": 2, "score": 1.5, "score_low": 1.0, "score_high": 2.0},
        {"dataset": "a", "n": 1, "trials": 1, "score": 5.0, "score_low": 5.0, "score_high": 5.0},
    ]
