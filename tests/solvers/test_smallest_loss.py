"""The smallest loss under soft labels: a true and finite lower bound, wherever its search starts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import entr

from surefoot.dual.bounds import SmallestLoss, SoftLabels
from surefoot.dual.models import LinearModel

Array = NDArray[np.float64]


def smallest_loss(X: Array, q: Array, theta: Array) -> float:
    model = LinearModel(X, np.zeros(X.shape[1]), q.shape[1])
    rows = SoftLabels(model, np.full(len(X), 1.0 / len(X)), q)
    return SmallestLoss(model, rows).bound(theta).value


@pytest.mark.parametrize("size", [50.0, 345.0, 709.0, 720.0, 740.0, 800.0])
def test_scores_that_saturate_at_every_row(size: float) -> None:
    # θ may start far out, where a separable path stopped: the curvature there is 1e-313 and the Newton step overflows
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    q = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.7, 0.3]])
    # the two rows of a feature are one row whose labels are averaged
    truth = 0.5 * (entr([0.85, 0.15]).sum() + entr([0.4, 0.6]).sum())
    assert smallest_loss(X, q, np.array([[size, -size]])) == pytest.approx(truth, abs=1e-9)


@pytest.mark.parametrize("K", [2, 3])
def test_a_distant_start_finds_what_a_near_one_does(K: int) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(40, 3)), np.ones(40)])
    q = 0.9 * np.eye(K)[rng.integers(K, size=40)] + 0.1 / K
    direction = rng.normal(size=(K - 1, 4))
    direction /= np.abs(X @ direction.T).max()
    near = smallest_loss(X, q, np.zeros((K - 1, 4)))
    for size in (100.0, 300.0):
        assert smallest_loss(X, q, size * direction) == pytest.approx(near, abs=1e-9)


@pytest.mark.parametrize("off", [1e155, 1e308, -1e308, np.inf, np.nan])
def test_a_start_at_no_finite_score_still_gives_the_bound(off: float) -> None:
    X = np.array([[1.0, 0.5], [-1.0, 0.3], [0.2, 1.0], [0.1, -1.0]])
    q = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.7, 0.3]])
    value = smallest_loss(X, q, np.array([[off, 0.0]]))
    assert 0.0 <= value <= smallest_loss(X, q, np.zeros((1, 2))) + 1e-12


def test_labels_that_rounding_leaves_below_zero() -> None:
    X, q = np.ones((2, 1)), np.array([[1.0 + 1e-16, -1e-17], [0.5, 0.5]])
    model = LinearModel(X, np.zeros(1), 2)
    assert np.isfinite(SoftLabels(model, np.full(2, 0.5), q).start(np.zeros((1, 1))).sums[0]).all()
