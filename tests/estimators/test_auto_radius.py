"""The as-robust-as-possible rule: how it searches, and draws of real data on which it was slow or failed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

import surefoot as sf
from surefoot.certificates.radius import Bracket, RadiusSearch, largest_confident_radius
from surefoot.dual.models import FeatureBlock, LinearModel, standard_coordinates
from surefoot.problem.sets import build_decision_set
from surefoot.solvers.minimal_radius import solve_minimal_radius
from surefoot.solvers.search.solution import Solution, solve_certified

Find = Callable[[str], Path]


def draw(find: Find, name: str, seed: int, size: int) -> tuple[NDArray[np.float64], NDArray[Any]]:
    home = find(name.split("-", maxsplit=1)[0]).parent
    X, y = sf.datasets.load(name, return_X_y=True, data_home=home, download_if_missing=False)
    rows = np.random.default_rng(seed).permutation(len(y))[:size]
    return X[rows], y[rows]


def search(
    X: NDArray[np.float64], y: NDArray[Any], n: int = 20, confidence: float = 0.7
) -> tuple[RadiusSearch, float, list[Solution]]:
    """The rule with the first n rows labeled, the minimal radius, and every solution on its way."""
    codes = np.unique(y, return_inverse=True)[1]
    ds = build_decision_set(X[:n], codes[:n], 2, X_unlabeled=X[n:], label_prior="clopper-pearson")
    model = standard_coordinates(FeatureBlock(X, ds.row_weights), 0.0, True).model(X, 2, 0.0)
    minimal, solutions = solve_minimal_radius(ds), []

    def solve(*arguments: Any, **keywords: Any) -> Solution:
        solutions.append(solve_certified(*arguments, **keywords))
        return solutions[-1]

    return largest_confident_radius(ds, model, minimal, confidence=confidence, solve=solve), minimal.value, solutions


# excess found by bisection from the minimal radius upwards, every trial solved to a gap of 1e-3
KNOWN = [("letter-u-v", 2, 3.3502e-3), ("spambase", 0, 3.6561e-4), ("spambase", 3, 5.4024e-2)]


@pytest.mark.parametrize(("name", "seed", "excess"), KNOWN)
def test_few_solves_and_none_at_the_minimal_radius(name: str, seed: int, excess: float, dataset_path: Find) -> None:
    found, minimal, solutions = search(*draw(dataset_path, name, seed, 2000))
    assert found.radius - minimal == pytest.approx(excess, rel=0.05)
    assert min(radius for radius, _ in found.tried) > minimal
    assert len(solutions) <= 12
    assert sum(solution.path.steps for solution in solutions) <= 300  # these draws took up to 2500
    assert found.solution.gap <= 1e-4
    assert all(solution.gap <= 1e-2 for solution in solutions)


@pytest.mark.parametrize("name", ["letter-u-v", pytest.param("mushroom", marks=pytest.mark.slow)])
def test_draws_that_once_ended_in_an_error_of_linear_algebra(name: str, dataset_path: Find) -> None:
    X, y = draw(dataset_path, name, 9001, 1500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the worst case may be separable
        clf = sf.RobustLogisticRegression(radius="auto").fit(X[:20], y[:20], X_unlabeled=X[20:])
    assert 0 <= clf.certificate_.gap <= 1e-4


@pytest.mark.parametrize("truth", [1.3, 2.0, 3.9])
@pytest.mark.parametrize("bend", [0.05, 1.0, 20.0])
def test_a_bracket_closes_around_the_crossing(truth: float, bend: float) -> None:
    bracket, tries = Bracket(), 0

    def surplus(excess: float) -> float:
        return float(np.expm1(bend * np.log(truth / excess)))

    for excess in (1.0, 4.0):
        bracket.add(excess, surplus(excess))
    while not bracket.narrow(0.05):
        excess = bracket.next(0.05)
        bracket.add(excess, surplus(excess))
        tries += 1
    assert bracket.low is not None
    assert bracket.low <= truth <= 1.0501 * bracket.low
    assert tries <= 9


def test_where_no_trial_is_confident_the_answer_lies_next_to_the_minimal_radius_and_not_on_it() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=31), np.ones(31)])
    ds = build_decision_set(X[:9, :1], (X[:9, 0] > 0).astype(np.intp), 2, X_unlabeled=X[9:, :1])
    minimal = solve_minimal_radius(ds)

    def solve(trial: Any, _model: Any, **_: Any) -> Any:
        return SimpleNamespace(theta=np.zeros((1, 2)), checkpoints=(trial.radius,), gap=0.0)

    found = largest_confident_radius(ds, LinearModel(X, np.zeros(2), 2), minimal, solve=solve)
    radii = [radius for radius, _ in found.tried]
    assert not found.confident
    assert found.radius == min(radii)
    assert 0 < found.radius - minimal.value <= (radii[0] - minimal.value) / 64
    assert len(radii) <= 5
