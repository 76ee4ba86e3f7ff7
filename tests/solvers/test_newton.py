"""Newton's method on the smoothed dual: its cheap moves, and how τ falls."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from surefoot.dual.models import DualPoint, LinearModel
from surefoot.dual.objective import Evaluation, SmoothedDual
from surefoot.problem.sets import build_decision_set
from surefoot.solvers import newton
from surefoot.solvers.newton import DEFAULT_OPTIONS, OneSet, PathState, follow


@pytest.mark.parametrize("off", [0.5, 3.0, 30.0, 300.0])
@pytest.mark.parametrize("tau", [1.0, 0.01])
def test_balancing_the_anchors_lowers_the_objective_at_every_step(tau: float, off: float) -> None:
    # far off, the mass of an anchor is below rounding error, and how far to go unknown
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), np.arange(6) % 2
    ds = build_decision_set(X[:6], y, 2, X_unlabeled=X[6:], radius=1.0)
    model = LinearModel(np.column_stack([X, np.ones(len(X))]), np.zeros(3), 2)
    values: list[float] = []

    class Recorded(OneSet):
        def evaluate(self, point: DualPoint, tau: float, *, second_order: bool) -> Evaluation:
            here = super().evaluate(point, tau, second_order=second_order)
            values.append(here.value)
            return here

    objective = Recorded(SmoothedDual(ds, model))
    beta = off * tau * rng.normal(size=6)
    start = DualPoint(np.zeros(model.shape), 1.0, np.zeros(2), beta)
    here = objective.evaluate(start, tau, second_order=False)
    point, there = objective.balance(start, here, tau)
    assert np.all(np.diff(values) <= 1e-12 * np.abs(values[0]))
    assert there.value == pytest.approx(objective.evaluate(replace(point), tau, second_order=False).value)
    if off > 10:
        assert there.value < here.value


def test_a_round_that_takes_long_after_a_large_fall_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 2)), np.arange(10) % 2
    ds = build_decision_set(X[:10], y, 2, X_unlabeled=X[10:], radius=1.0)
    model = LinearModel(np.column_stack([X, np.ones(len(X))]), np.zeros(3), 2)
    objective = OneSet(SmoothedDual(ds, model))
    start = PathState(DualPoint(np.zeros(model.shape), 1.0, np.zeros(2), np.zeros(10)), 1.0)

    def rounds() -> list[PathState[DualPoint]]:
        seen = [start]
        follow(objective, start, 1e-6, on_round=seen.append)
        return seen

    def is_large(before: PathState[DualPoint], after: PathState[DualPoint]) -> bool:
        return after.tau < 0.9 * DEFAULT_OPTIONS.decrease * before.tau

    usual = rounds()
    assert any(is_large(*pair) and pair[1].steps > pair[0].steps for pair in pairwise(usual))
    monkeypatch.setattr(newton, "_LONG", 1)
    careful = rounds()
    assert not any(is_large(*pair) and pair[1].steps > pair[0].steps for pair in pairwise(careful))
    ends = [objective.evaluate(seen[-1].point, seen[-1].tau, second_order=False).value for seen in (usual, careful)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-5)
