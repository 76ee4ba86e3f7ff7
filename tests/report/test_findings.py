"""The checks of the data find what was planted, and nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot as sf
from surefoot.pool.model import ModelWithRows, Names
from surefoot.pool.report_findings import far_rows, leakage_suspects, repeated_rows

RNG = np.random.default_rng(0)


def fitted_to(
    X: np.ndarray, y: np.ndarray, U: np.ndarray, raw: pd.DataFrame | None = None
) -> tuple[ModelWithRows, Names]:
    clf = sf.RobustLogisticRegression(radius=50.0, label_prior=None, tol=0.1).fit(X, y, X_unlabeled=U)
    fitted = ModelWithRows.check(clf, X, y, U)
    return fitted, Names.check(fitted, None, None, None, raw, "label")


def rows(n: int, d: int = 5) -> np.ndarray:
    return RNG.normal(size=(n, d))


def labels(n: int) -> np.ndarray:
    return np.arange(n) % 2


def test_rows_far_from_every_label_are_found() -> None:
    U = rows(200)
    U[:30, 0] += 100
    found = far_rows(*fitted_to(rows(40), labels(40), U))
    assert found.caution
    assert found.n_items >= 30
    assert {name for name, _ in found.items} <= {f"row {40 + j + 1}" for j in range(30)}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_chance_level_of_far_rows_holds_on_average(seed: int) -> None:
    rng = np.random.default_rng(seed)
    share = 0.0
    for _ in range(40):
        X, U = rng.normal(size=(15, 2)), rng.normal(size=(200, 2))
        between = np.linalg.norm(X[:, None] - X[None], axis=2) + np.diag(np.full(15, np.inf))
        share += (np.linalg.norm(U[:, None] - X[None], axis=2).min(axis=1) > between.min(axis=1).max()).mean() / 40
    assert share <= 2.0 / 16  # the theorem: at most 1/16 in expectation


def test_random_labels_raise_no_alarm() -> None:
    fitted, names = fitted_to(rows(60), labels(60), rows(300))
    assert not far_rows(fitted, names).caution
    assert [f.caution for f in repeated_rows(fitted, names, 0)] == [False]
    assert not leakage_suspects(fitted, names).caution


def test_copies_and_near_copies_are_counted() -> None:
    U = rows(300)
    U[100:120] = U[:20]
    U[200:230] = U[20:50] + 1e-6
    (found,) = repeated_rows(*fitted_to(rows(20), labels(20), U), 0)
    assert found.caution
    assert found.n_items == 20
    assert "20 of 320 rows repeat" in found.text
    assert "60 more are" in found.text


def test_equal_rows_with_different_labels_are_named() -> None:
    X = rows(20)
    X[1] = X[0]
    first, _ = repeated_rows(*fitted_to(X, labels(20), rows(50)), 0)
    assert (first.key, first.n_items) == ("contradictions", 1)
    assert first.items == (("row 1, row 2", "0, 1"),)


def test_the_label_in_disguise_is_found() -> None:
    X, y = rows(40), labels(40)
    X[:, 2] = 7.0 - 3.0 * y  # equal to the label
    X[:, 3] = y + 0.3 * RNG.random(40)  # separates it
    found = leakage_suspects(*fitted_to(X, y, rows(100)))
    assert {name for name, _ in found.items} == {"x2", "x3"}
    assert "one value for 0" in dict(found.items)["x2"]
    assert "area 1.000" in dict(found.items)["x3"]


def test_one_class_of_three_is_enough() -> None:
    X, y = rows(60), np.arange(60) % 3
    X[:, 1] = np.where(y == 2, 5.0, -5.0) + RNG.random(60)
    found = leakage_suspects(*fitted_to(X, y, rows(70)))
    assert [name for name, _ in found.items] == ["x1"]
    assert "separates 2 from the rest" in found.items[0][1]


def test_a_text_column_that_names_the_label_is_found() -> None:
    X, y, U = rows(60), labels(60), rows(40)
    code = np.concatenate([np.where(y == 0, "a", "b").astype(object), np.full(40, "a")])
    code[:60:4] = [{"a": "c", "b": "d"}[value] for value in code[:60:4]]
    raw = pd.DataFrame({"code": code, "noise": RNG.choice(["p", "q"], size=100), "id": [f"i{i}" for i in range(100)]})
    found = leakage_suspects(*fitted_to(X, y, U, raw))
    assert [name for name, _ in found.items] == ["code"]


def test_few_rows_are_no_evidence() -> None:
    X, y = rows(8, 40), labels(8)
    X[:, 0] = y
    assert not leakage_suspects(*fitted_to(X, y, rows(30, 40))).caution


@pytest.mark.parametrize("seed", range(10))
def test_noise_is_not_suspect(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y, U = rng.normal(size=(14, 200)), labels(14), rng.normal(size=(20, 200))
    assert not leakage_suspects(*fitted_to(X, y, U)).caution
