"""Rows that coincide are moved as one: the same transport, a plan of all rows, and no ties to go round in."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from surefoot._validation import FloatArray
from surefoot.solvers import transport
from surefoot.solvers import transport as equal_rows
from surefoot.solvers.transport import EqualRows, solve_transport


def on_a_grid(N: int, n: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Distances (N, n) of weighted rows on 27 points to anchors that lie among them, and both weights."""
    rng = np.random.default_rng(seed)
    rows, anchors = rng.integers(0, 3, size=(N, 3)), rng.integers(0, 3, size=(n, 3)) + rng.normal(size=(n, 3))
    m, w = rng.random(N), rng.random(n)
    m[:5] = 0.0
    return cdist(rows, anchors), m / m.sum(), w / w.sum()


@pytest.mark.parametrize("n", [1, 4, 9])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_plan_of_all_rows_is_that_of_the_simplex(n: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    distances, rows, anchors = on_a_grid(400, n, seed)
    monkeypatch.setattr(transport, "_MERGE_ENTRIES", 0)
    found = solve_transport(distances, rows, anchors)
    assert EqualRows.from_table(distances, rows) is not None
    assert found.cost == pytest.approx(ot.emd2(rows, anchors, distances), abs=1e-12)
    assert found.lower == pytest.approx(found.cost, abs=1e-12)
    np.testing.assert_allclose(found.plan.sum(axis=1), rows, atol=1e-15)
    np.testing.assert_allclose(found.plan.sum(axis=0), anchors, atol=1e-14)
    assert found.plan.nnz <= (rows > 0).sum() + 27 + n  # few rows are split
    assert found.plan.data.min() > 0


def test_rows_of_one_fingerprint_that_differ_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    distances, rows, _ = on_a_grid(400, 4, 0)
    monkeypatch.setattr(equal_rows, "fingerprints", lambda part: np.zeros(len(part), dtype=np.uint64))
    assert EqualRows.from_table(distances, rows) is None


def test_distinct_rows_are_left_as_they_are() -> None:
    rng = np.random.default_rng(0)
    assert EqualRows.from_table(rng.random((300, 3)), np.full(300, 1 / 300)) is None


def test_many_rows_on_few_points_end() -> None:
    # without it the simplex was still going round after minutes
    distances, rows, anchors = on_a_grid(100_000, 40, 3)
    found = solve_transport(distances, rows, anchors)
    assert found.cost - found.lower <= 1e-11
