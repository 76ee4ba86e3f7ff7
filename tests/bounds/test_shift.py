"""`shift`: the minimal radius, a two-sample test that keeps its level, and the features that moved."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp
from sklearn.linear_model import LogisticRegression

import surefoot as sf
from refusals import refuses


def test_a_feature_that_moved_is_named_first() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 3)), columns=["age", "pay", "debt"])
    T = pd.DataFrame(rng.normal([0.0, 1.5, 0.0], size=(200, 3)), columns=X.columns)
    y = np.arange(60) % 2
    found = sf.shift(X, y, T)
    first = found.features[0]
    assert first.name == "pay"
    assert first.distance == pytest.approx(ks_2samp(X["pay"], T["pay"]).statistic)
    assert 0.5 < first.difference < 2.0  # in interquartile ranges, of about 1.35 each
    assert found.p_value < 1e-6
    assert found.separability > 0.7
    assert found.minimal_radius == pytest.approx(sf.minimal_radius(X, y, X_target=T))
    assert found.minimal_radius > found.within_labeled
    for text in ("largest shifts", "pay", "two populations", "minimal radius"):
        assert text in repr(found)
        assert text in found._repr_html_()


def test_a_change_of_spread_alone_is_seen() -> None:
    rng = np.random.default_rng(1)
    found = sf.shift(rng.normal(size=(80, 2)), np.arange(80) % 2, rng.normal(size=(300, 2)) * [3.0, 1.0])
    assert found.p_value < 1e-3


def test_the_test_keeps_its_level() -> None:
    """Without a shift p-values of at most 0.1 come up in at most 10 % of draws; 16 of 80 has a chance of 0.5 %."""
    rng, low = np.random.default_rng(2), 0
    for seed in range(80):
        rows = rng.normal(size=(70, 2))
        clf = LogisticRegression(class_weight="balanced")
        found = sf.shift(rows[:30], np.arange(30) % 2, rows[30:], classifier=clf, random_state=seed)
        low += found.p_value <= 0.1
    assert low < 16


def test_rows_elsewhere_and_the_same_seed() -> None:
    rng = np.random.default_rng(3)
    X, y, T = rng.normal(size=(20, 2)), np.arange(20) % 2, rng.normal(size=(90, 2)) + 1.0
    here, there = sf.shift(X, y, T), sf.shift(X, y, da.from_array(T, chunks=(40, -1)))
    assert repr(here) == repr(there)


def test_labels_of_one_class_will_do() -> None:
    rng = np.random.default_rng(4)
    X, T = rng.normal(size=(20, 2)), rng.normal(size=(50, 2))
    one, two = (sf.shift(X, y, T).minimal_radius for y in (np.zeros(20), np.arange(20) % 2))
    assert one == pytest.approx(two)


def test_too_few_rows() -> None:
    with refuses("X", 4):
        sf.shift([[0.0], [1.0]], [0, 1], [[0.0]] * 9)
