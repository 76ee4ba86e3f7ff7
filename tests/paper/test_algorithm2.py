"""The paper's Algorithm 2: below the exact scores, near them on small problems, and nothing but Algorithm 1's steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from generators import FlexibilityProblem, draw_flexibility
from refusals import refuses
from surefoot.active import RobustModelChange, robust_model_change
from surefoot.paper import StochasticGradient, StochasticModelChange, algorithm2
from surefoot.paper.algorithms import PAPER_STEPS, algorithm2_score
from surefoot.solvers.minimal_radius import solve_minimal_radius


def telling_row(problem: FlexibilityProblem, impact: np.ndarray, excess: float) -> tuple[int, float]:
    """The unlabeled row whose exact score is farthest above its least impact, and that score."""
    scores = problem.flexibility(excess).least_expectation(impact)
    row = int(np.argmax(scores - impact.min(axis=1)))
    return row, float(scores[row])


@pytest.mark.parametrize(("seed", "K", "prior"), [(0, 3, "weak"), (1, 2, "strong"), (2, 2, "none")])
def test_comes_within_a_hundredth_of_the_exact_score(seed: int, K: int, prior: str) -> None:
    problem = draw_flexibility(seed, K, prior, N=40)
    excess = 0.3 * problem.kappa * problem.unit
    impact = np.random.default_rng(K).random((len(problem.U), K))
    row, exact = telling_row(problem, impact, excess)
    ds = problem.decision_set
    ds = ds.with_radius(solve_minimal_radius(ds).value + excess)
    rate = np.ptp(impact[row]) / problem.unit
    reached = [
        algorithm2_score(ds, len(problem.X) + row, impact[row], replace(PAPER_STEPS, learning_rate=share * rate))
        for share in (0.03, 0.05)
    ]
    assert max(reached) <= exact + 1e-9  # weak duality
    assert max(reached) == pytest.approx(exact, abs=1e-2)
    if prior != "none":
        assert exact > impact[row].min() + 0.05  # not the closed form


def test_settings_are_those_of_the_paper() -> None:
    assert StochasticGradient("adam", None, 100, 50_000, 10.0, 5_000) == PAPER_STEPS
    np.testing.assert_allclose(PAPER_STEPS.rates(4_999, 5_001), [0.1, 0.01])


def test_scores_many_candidates_as_the_exact_function_does() -> None:
    problem = draw_flexibility(4, 2, "strong", N=24)
    impact = np.random.default_rng(0).random((3, 2))
    keywords: dict[str, Any] = {**problem.keywords, "X_unlabeled": problem.U, "candidates": [4, 0, 9]}
    keywords["margin"] = 0.4 * problem.kappa * problem.unit
    del keywords["sample_weight"]
    exact = robust_model_change(impact, problem.X, problem.y, **keywords)
    found = algorithm2(impact, problem.X, problem.y, **keywords)
    assert (found <= exact + 1e-9).all()
    np.testing.assert_allclose(found, exact, atol=1e-2)
    alone = algorithm2(impact[1:2], problem.X, problem.y, **{**keywords, "candidates": [0]})
    assert alone[0] == found[1]  # a seed settles a score, whatever the other candidates


def test_the_closed_form_beyond_the_papers_margin() -> None:
    problem = draw_flexibility(5, 2, "strong", N=30)
    impact = np.random.default_rng(1).random((1, 2))
    margin = 2.5 * problem.kappa * problem.unit
    found = algorithm2(
        impact,
        problem.X,
        problem.y,
        X_unlabeled=problem.U,
        candidates=[3],
        margin=margin,
        label_prior=problem.keywords["label_prior"],  # type: ignore[arg-type]
        label_cost=problem.keywords["label_cost"],  # type: ignore[arg-type]
    )
    assert found[0] == pytest.approx(impact.min(), abs=1e-2)


def test_refuses_impacts_of_another_shape() -> None:
    problem = draw_flexibility(0, 2, "strong", N=30)
    with refuses("impact", "(2, 2)"):
        algorithm2(np.ones((2, 2)), problem.X, problem.y, X_unlabeled=problem.U, candidates=[1])


def test_the_strategy_chooses_the_row_of_the_largest_score() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 2))
    y = np.where(np.arange(30) < 8, X[:, 0] > 0, np.nan)
    clf = LogisticRegression().fit(X[:8], y[:8])
    keywords: dict[str, Any] = {"label_prior": [0.5, 0.5], "impact": lambda _clf, rows: np.abs(rows) + 0.1}
    steps = StochasticGradient(n_steps=2000, decay=10.0, decay_every=500)
    strategy = StochasticModelChange(**keywords, max_candidates=None, steps=steps)
    row, scores = strategy.query(X, y, clf, fit_clf=False, return_utilities=True)
    assert row[0] == np.nanargmax(scores[0])
    exact = RobustModelChange(**keywords).query(X, y, clf, fit_clf=False, return_utilities=True)[1]
    assert (scores[0, 8:] <= exact[0, 8:] + 1e-9).all()
    impact = np.abs(X[8:]) + 0.1
    printed = algorithm2(impact, X[:8], y[:8], X_unlabeled=X[8:], label_prior=[0.5, 0.5], steps=steps)
    np.testing.assert_array_equal(scores[0, 8:], printed)
    assert clone(strategy).steps == steps
