"""Laws of the scale and of the draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import StandardScaler

from surefoot.datasets import standardize
from surefoot.datasets._catalogue import BalancedDraw

TABLES = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.integers(-1000, 1000).map(lambda k: k / 8),
)


@given(TABLES)
def test_standardize_is_scikit_learns_scaler_over_the_largest_entry(X: np.ndarray) -> None:
    scaled = StandardScaler().fit_transform(X)
    largest = np.abs(scaled).max()
    assert np.allclose(standardize(X), scaled / largest if largest > 0 else 0, atol=1e-12)


@given(TABLES)
def test_standardize_twice_changes_nothing(X: np.ndarray) -> None:
    once = standardize(X)
    assert np.allclose(standardize(once), once, atol=1e-9)


@given(TABLES, st.integers(1, 64), st.integers(-64, 64))
def test_units_and_origin_do_not_matter(X: np.ndarray, unit: int, origin: int) -> None:
    assert np.allclose(standardize(unit * X + origin), standardize(X), atol=1e-9)


@given(TABLES)
def test_entries_reach_one_and_constants_are_zero(X: np.ndarray) -> None:
    Z = standardize(X)
    constant = np.ptp(X, axis=0) == 0
    assert not Z[:, constant].any()
    assert np.abs(Z).max() == (0 if constant.all() else 1)


def test_a_constant_whose_mean_is_rounded_is_zero() -> None:
    X = np.column_stack([np.full(10, 0.1), np.arange(10.0)])
    assert (X - X.mean(axis=0))[:, 0].any()  # or this test shows nothing
    assert not standardize(X)[:, 0].any()


def test_a_spread_too_small_for_floats_is_no_spread() -> None:
    assert not standardize([[0.0], [5e-324]]).any()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([1.0, 2.0], "Expected 2D"),
        ([[np.nan, 1.0]], "X contains NaN"),
        (np.empty((0, 3)), "0 sample"),
        ([["a"]], "conv"),
    ],
)
def test_standardize_refuses_what_is_no_table(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        standardize(X)


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_balanced_draw(n_negative: int, n_positive: int, seed: int) -> None:
    target = np.random.default_rng(seed).permutation(np.repeat([0, 1], [n_negative, n_positive]))
    rows = BalancedDraw(None, balanced=True).rows(target, np.random.RandomState(seed))
    assert len(np.unique(rows)) == len(rows) == 2 * min(n_negative, n_positive)
    assert (np.diff(rows) > 0).all()
    assert target[rows].mean() == 0.5


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 2**32 - 1), st.data())
def test_proportional_draw(n_negative: int, n_positive: int, seed: int, data: st.DataObject) -> None:
    n_rows = data.draw(st.integers(1, n_negative + n_positive))
    target = np.random.default_rng(seed).permutation(np.repeat([0, 1], [n_negative, n_positive]))
    rows = BalancedDraw(n_rows, balanced=False).rows(target, np.random.RandomState(seed))
    assert len(np.unique(rows)) == len(rows) == n_rows
    assert abs(target[rows].sum() - n_rows * target.mean()) <= 0.5
    assert len(BalancedDraw(None, balanced=False).rows(target, np.random.RandomState(seed))) == len(target)


@pytest.mark.parametrize("balanced", [True, False])
def test_every_row_of_a_class_is_as_likely(balanced: bool) -> None:
    target = np.repeat([0, 1], [10, 20])
    rng = np.random.RandomState(0)
    draw = BalancedDraw(12, balanced=balanced)
    counts = sum(np.bincount(draw.rows(target, rng), minlength=30) for _ in range(4000))
    sizes = np.repeat([6 / 10, 6 / 20] if balanced else [4 / 10, 8 / 20], [10, 20])
    # five standard deviations of a binomial count
    assert (np.abs(counts - 4000 * sizes) < 5 * np.sqrt(4000 * sizes * (1 - sizes))).all()
