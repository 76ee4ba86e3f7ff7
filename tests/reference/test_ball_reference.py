"""The ball solver against an independent conic model."""

from __future__ import annotations

import numpy as np
import pytest

from reference.ball import ball_reference
from surefoot.solvers.ball import ball_worst_case, solve_ball

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def draw(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.5, 2.0, size=d) + rng.normal(size=d)
    chance = 1 / (1 + np.exp(-2 * (X - X.mean(0)) @ rng.normal(size=d) / np.sqrt(d)))
    return X, np.where(rng.random(n) < chance, 1.0, -1.0), rng.uniform(0.1, 2.0, size=n)


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
@pytest.mark.parametrize("label_cost", [0.1, 1.0, 10.0, np.inf])
@pytest.mark.parametrize("radius", [1e-3, 0.03, 0.2])
def test_agrees_with_the_conic_model(norm: str, label_cost: float, radius: float) -> None:
    X, y, w = draw(0, 40, 4)
    ours = solve_ball(X, y, weights=w, radius=radius, label_cost=label_cost, norm=norm, tol=1e-9)
    conic = ball_reference(X, y, weights=w, radius=radius, label_cost=label_cost, norm=norm, **TIGHT)
    assert conic.status in {"optimal", "optimal_inaccurate"}  # 1e-10 is more than Clarabel always reaches
    assert ours.status == "optimal"
    assert ours.risk == pytest.approx(conic.value, abs=1e-7)
    assert ours.lower <= conic.value + 1e-7


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
@pytest.mark.parametrize(("n", "d"), [(12, 30), (60, 3), (25, 25)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_agrees_for_every_shape(norm: str, n: int, d: int, fit_intercept: bool) -> None:
    X, y, w = draw(n, n, d)
    ours = solve_ball(X, y, weights=w, radius=0.05, norm=norm, fit_intercept=fit_intercept, tol=1e-9)
    conic = ball_reference(X, y, weights=w, radius=0.05, norm=norm, fit_intercept=fit_intercept, **TIGHT)
    assert ours.status == "optimal"
    assert ours.risk == pytest.approx(conic.value, abs=1e-7)


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
def test_worst_case_of_the_conic_point_is_its_value(norm: str) -> None:
    X, y, w = draw(3, 50, 5)
    conic = ball_reference(X, y, weights=w, radius=0.1, norm=norm, **TIGHT)
    value = ball_worst_case(X, y, conic.coef, conic.intercept, weights=w, radii=[0.1], norm=norm)
    assert value[0] == pytest.approx(conic.value, abs=1e-7)
