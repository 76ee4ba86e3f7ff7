"""Certificates at the minimal radius, where weights differ by 1e12 or label costs are 1e9 or 1e-9.

The set has no interior there. Each bound is compared with an exact linear program, or with the loss that the returned
adversary attains, which needs no program and so judges larger problems.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

import surefoot as sf
from fuzz.test_small_problems import Problem

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WeightedProblem(Problem):
    """A small problem whose labeled rows count by weights (n,)."""

    weights: Array | None = None

    @classmethod
    def unbalanced(cls, seed: int) -> WeightedProblem:
        """Weights are powers of two from 2^-20 to 2^20: a ratio of 1e12, and exact."""
        problem = cls.draw(seed)
        rng = np.random.default_rng([31, seed])
        return replace(problem, weights=2.0 ** rng.integers(-20, 21, size=len(problem.x)))

    @classmethod
    def of_label_cost(cls, seed: int, factor: float) -> WeightedProblem:
        problem = cls.draw(seed)
        cost = np.where(problem.label_cost > 0, np.maximum(problem.label_cost, 0.125), 0.0) * factor
        return replace(problem, label_cost=cost, weights=np.ones(len(problem.x)))

    @property
    def keywords(self) -> dict[str, Any]:
        return {**super().keywords, "sample_weight": self.weights}

    def constraints(self) -> tuple[list[tuple[list[int], Fraction]], list[tuple[list[int], Fraction]]]:
        equal, at_most = super().constraints()
        assert self.weights is not None
        counts = [Fraction(one) for one in self.weights]
        rows = [*counts, *([Fraction(1)] * len(self.u))]
        masses = [one / sum(rows) for one in rows] + [one / sum(counts) for one in counts]
        return [(line, mass) for (line, _), mass in zip(equal, masses, strict=True)], at_most


def certified(problem: WeightedProblem) -> sf.Certificate:
    x, keywords = problem.x[:, None], problem.keywords
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        radius = sf.minimal_radius(x, problem.y, **keywords)
        return sf.certify(None, x, problem.y, losses=problem.losses, radius=radius, **keywords)


def check_against_fractions(problem: WeightedProblem) -> None:
    found, least = certified(problem), problem.minimal_radius
    assert found.radius == pytest.approx(float(least), rel=1e-9)
    size = float(problem.losses.max())
    assert found.risk >= float(problem.worst_loss(least)) - 1e-9 * size
    allowed = Fraction(5e-7) * least + Fraction(1e-15) * max(problem.costs)
    worst = float(problem.worst_loss(least + allowed))
    assert found.lower <= worst + 1e-9 * size
    # the risk is exact even where float64 does not place the adversary's mass well enough: that is then no optimum
    assert found.risk <= worst + 1e-6 * size
    assert (found.status == "optimal") == (found.gap <= 1e-6)


# 5005 and 5730: prices of labels that cancel label costs 10,000 times as large as distances
@pytest.mark.parametrize("seed", [*range(40), 5005, 5730])
def test_unbalanced_weights_against_fractions(seed: int) -> None:
    check_against_fractions(WeightedProblem.unbalanced(seed))


@pytest.mark.parametrize("factor", [1e-9, 1e9])
@pytest.mark.parametrize("seed", range(20))
def test_tiny_and_huge_label_costs_against_fractions(seed: int, factor: float) -> None:
    check_against_fractions(WeightedProblem.of_label_cost(seed, factor))


@pytest.mark.parametrize("above", [1e-8, 1e-7])
@pytest.mark.parametrize("seed", range(10))
def test_just_above_against_fractions(seed: int, above: float) -> None:
    problem, least = Problem.draw(seed), Problem.draw(seed).minimal_radius
    radius = float(least) * (1.0 + above)
    found = sf.certify(None, problem.x[:, None], problem.y, losses=problem.losses, radius=radius, **problem.keywords)
    exact = float(problem.worst_loss(max(Fraction(radius), least)))
    size = float(problem.losses.max())
    assert found.risk >= exact - 1e-9 * size
    assert found.lower <= float(problem.worst_loss(max(Fraction(radius), least * (1 + Fraction(5e-7))))) + 1e-9 * size
    assert found.status == "optimal"


@pytest.mark.parametrize("K", [2, 3, 4])
@pytest.mark.parametrize("prior", [None, "clopper-pearson", "exact"])
def test_just_above_small_problems_end_at_a_vertex(K: int, prior: str | None) -> None:
    # by a path these took up to 14 s, and ended at gaps of 1e-4
    rng = np.random.default_rng([14, K])
    X, U = rng.normal(size=(10, 2)), rng.normal(size=(44, 2))
    y = np.append(np.arange(K), rng.integers(0, K, size=10 - K))
    shares = np.full(K, 1.0 / K) if prior == "exact" else prior
    losses = rng.exponential(size=(54, K))
    arguments: dict[str, Any] = {"X_unlabeled": U, "label_prior": shares, "classes": np.arange(K)}
    radius = sf.minimal_radius(X, y, **arguments) * (1 + 1e-8)
    found = sf.certify(None, X, y, losses=losses, radius=radius, **arguments)
    assert found.stages == ("minimal radius",)
    assert found.gap <= 1e-9


def larger(seed: int) -> tuple[Array, Array, dict[str, Any]]:
    """Labeled rows, losses, and arguments of a problem of up to 26 rows whose weights differ by 1e12."""
    rng = np.random.default_rng([31, seed])
    n, M, K = int(rng.integers(3, 14)), int(rng.integers(2, 14)), int(rng.integers(2, 4))
    X, U = rng.normal(size=(n, 2)), rng.normal(size=(M, 2)) + rng.choice([0.0, 1.0])
    if rng.random() < 0.4:
        X, U = np.round(2 * X) / 2, np.round(2 * U) / 2
    shares = rng.dirichlet(np.ones(K))
    intervals = np.column_stack([np.maximum(shares - 0.05, 0.0), np.minimum(shares + 0.05, 1.0)])
    losses = rng.integers(0, 2, size=(n + M, K)) * 1.0 if rng.random() < 0.5 else rng.exponential(size=(n + M, K))
    arguments = {
        "y": rng.integers(0, K, size=n),
        "X_unlabeled": sf.Unlabeled(U),
        "sample_weight": 10.0 ** rng.uniform(-6, 6, size=n),
        "label_prior": [None, "clopper-pearson", intervals][int(rng.integers(3))],
        "label_cost": float(rng.choice([0.1, 1.0, 10.0])),
        "classes": np.arange(K),
    }
    return X, losses, arguments


def check_what_the_adversary_attains(seed: int) -> None:
    X, losses, arguments = larger(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        radius = sf.minimal_radius(X, **arguments)
        found = sf.certify(None, X, losses=losses, radius=radius, **arguments)
    assert found.worst_case is not None
    attained = found.worst_case.row_weights @ (found.worst_case.label_proba * losses).sum(axis=1)
    assert found.risk >= attained - 1e-12
    assert losses.min() - 1e-12 <= found.lower <= found.risk <= losses.max() * (1 + 1e-12)
    assert (found.status == "optimal") == (found.gap <= 1e-6)
    assert found.status == "optimal" or caught


@pytest.mark.parametrize("seed", range(24))
def test_no_adversary_attains_more_than_the_risk(seed: int) -> None:
    check_what_the_adversary_attains(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_more_adversaries_attain_no_more_than_the_risk(seed: int) -> None:
    check_what_the_adversary_attains(seed)
