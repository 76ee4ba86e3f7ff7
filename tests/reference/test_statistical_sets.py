"""Calibrated unions, groups, fresh rows, paths, learned and precomputed metrics against linear programs by HiGHS.

The set of a calibrated certificate is { μ : W_c(μ, P̂_l) ≤ W_d + excess + κ TV(p_μ, p̂) }. TV is the largest of
Σ_{k∈S} (p_k − p̂_k) over sets S of classes, so the worst case is the largest of one program per S, with costs d + κ
and a budget that depends on the plan: none of the other label costs of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from scipy.stats import binom, hypergeom

import surefoot as sf
from surefoot.priors import AssistedPrior, HypergeometricPrior

Array = NDArray[np.float64]
SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 150))]


@dataclass(frozen=True)
class Problem:
    """Labeled rows X (n, d) with codes y (n,), unlabeled rows U, losses (N, K) at all of them."""

    X: Array
    y: NDArray[np.intp]
    U: Array
    losses: Array
    kappa: float

    @classmethod
    def random(cls, seed: int) -> Problem:
        """Small, with ties, copies, outliers and losses of either sign in some."""
        g = np.random.default_rng(seed)
        K, n, M, d = int(g.integers(2, 4)), int(g.integers(6, 10)), int(g.integers(1, 7)), int(g.integers(1, 3))
        X, U, y = g.normal(size=(n, d)), g.normal(size=(M, d)), np.r_[np.arange(K), g.integers(0, K, n - K)]
        if seed % 4 == 1:
            X, U = X.round(), U.round()
        if seed % 4 == 2:
            U[0] *= 50.0
        losses = g.random((n + M, K)) - 0.5 * (seed % 2)
        return cls(X, y, U, losses, float(g.choice([0.3, 1.0, 4.0])))

    @property
    def rows(self) -> Array:
        return np.vstack([self.X, self.U])

    def certify(self, **given: Any) -> Any:
        how = {"label_prior": None, "metric": "euclidean", "label_cost": self.kappa, "tol": 1e-7} | given
        return sf.certify(None, self.X, self.y, X_unlabeled=self.U, losses=self.losses, **how)

    def transport(self) -> float:
        """W_d between all rows and the labeled ones."""
        return -self.program(np.zeros_like(self.losses), None, minus_cost=True)

    def program(
        self,
        losses: Array,
        budget: float | None,
        intervals: Array | None = None,
        gaining: tuple[int, ...] = (),
        *,
        minus_cost: bool = False,
        rows: Array | None = None,
    ) -> float:
        """sup over plans (N, K, n) of the loss; −inf where there is none. minus_cost: of minus the feature distance."""
        rows = self.rows if rows is None else rows
        (N, K), n = (len(rows), losses.shape[1]), len(self.X)
        d = np.repeat(cdist(rows, self.X)[:, None, :], K, axis=1)
        cost = d + self.kappa * (np.arange(K)[:, None] != self.y)[None]
        index = np.indices((N, K, n)).reshape(3, -1)
        of_row, of_class, of_anchor = ((index[a] == np.arange(size)[:, None]) for a, size in ((0, N), (1, K), (2, n)))
        shares = np.bincount(self.y, minlength=K) / n
        A, b = [np.zeros(N * K * n)], [0.0]
        if budget is not None:
            A.append(cost.ravel() - self.kappa * of_class[list(gaining)].sum(axis=0))
            b.append(budget - self.kappa * shares[list(gaining)].sum())
        if intervals is not None:
            A += [*of_class, *-of_class.astype(float)]
            b += [*intervals[:, 1], *-intervals[:, 0]]
        objective = -d if minus_cost else np.repeat(losses[:, :, None], n, axis=2)
        found = linprog(
            -objective.ravel(),
            A_ub=np.array(A, dtype=float),
            b_ub=b,
            A_eq=np.vstack([of_row, of_anchor]).astype(float),
            b_eq=np.r_[np.full(N, 1 / N), np.full(n, 1 / n)],
            method="highs",
        )
        assert found.status in {0, 2}, found.message
        return -float(found.fun) if found.status == 0 else -np.inf


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("prior", ["none", "clopper-pearson"])
def test_a_calibrated_union(seed: int, prior: str) -> None:
    problem = Problem.random(seed)
    found = problem.certify(radius="calibrated", label_prior=None if prior == "none" else prior)
    assert found.estimate is not None
    budget, K = problem.transport() + found.estimate.excess, problem.losses.shape[1]
    sets = [S for size in range(1, K) for S in combinations(range(K), size)]
    expected = max(problem.program(problem.losses, budget, found.label_intervals, S) for S in sets)
    assert found.risk == pytest.approx(expected, abs=2e-6)
    assert found.lower == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_groups(seed: int) -> None:
    problem = Problem.random(seed)
    N, g = len(problem.rows), np.random.default_rng(seed)
    groups = np.r_[np.arange(3) % N, g.integers(0, 3, N)][:N]
    radius = sf.minimal_radius(
        problem.X, problem.y, X_unlabeled=problem.U, label_prior=None, metric="euclidean", label_cost=problem.kappa
    ) + float(g.choice([0.01, 0.3, 2.0]))
    found = problem.certify(radius=radius, groups=groups)
    for name, one in found.groups.items():
        inside = groups == name
        expected = problem.program(problem.losses * (inside * N / inside.sum())[:, None], radius)
        assert one.risk == pytest.approx(expected, abs=1e-5)
        assert one.lower <= expected + 1e-6
    assert found.risk == pytest.approx(problem.program(problem.losses, radius), abs=2e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_dual_point_holds_on_fresh_rows(seed: int) -> None:
    """Weak duality: its mean over fresh rows is no less than the worst case over their own set, wherever they lie."""
    problem, g = Problem.random(seed), np.random.default_rng(seed)
    found = problem.certify(radius="calibrated", label_prior=[1 / problem.losses.shape[1]] * problem.losses.shape[1])
    fresh = g.normal(size=(7, problem.X.shape[1])) * float(g.choice([0.3, 1.0, 5.0]))
    losses = g.random((7, problem.losses.shape[1]))
    upper = found.on_fresh_rows(fresh, losses=losses, largest_loss=1.0, method="bernstein").mean
    shares = np.full((problem.losses.shape[1], 2), 1 / problem.losses.shape[1])
    assert upper >= problem.program(losses, found.radius, shares, rows=fresh) - 1e-8
    same = found.on_fresh_rows(problem.rows, losses=problem.losses, largest_loss=1.0, method="bernstein")
    assert same.mean == pytest.approx(found.risk, abs=1e-9)  # the bound itself
    assert same.reused_rows == len(problem.rows)
    assert not same.guarantee


def test_coverage_on_fresh_rows() -> None:
    """The mean over all rows of a population is bounded at the level by a few fresh ones of them."""
    problem, g, missed, runs = Problem.random(3), np.random.default_rng(0), 0, 300
    found = problem.certify(radius=2.0)
    population = g.normal(size=(4000, problem.X.shape[1]))
    losses = (g.random((4000, problem.losses.shape[1])) < 0.2).astype(float)
    truth = found.on_fresh_rows(population, losses=losses, largest_loss=1.0).mean
    for _ in range(runs):
        chosen = g.choice(4000, 60, replace=False)
        bound = found.on_fresh_rows(population[chosen], losses=losses[chosen], largest_loss=1.0, level=0.9)
        missed += bound.risk < truth
    assert missed <= binom.ppf(0.999, runs, 0.1)


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_precomputed_distances_are_those_of_a_metric(seed: int) -> None:
    """A weighted metric, and its distances given as numbers, make the same certificates."""
    problem = Problem.random(seed)
    by = sf.costs.WeightedMetric(np.abs(np.random.default_rng(seed).normal(size=problem.X.shape[1])) + 0.1)
    given = sf.costs.Precomputed(by.distances(problem.rows, problem.X))
    for radius in (3.0, "calibrated"):
        one, two = problem.certify(radius=radius, metric=by), problem.certify(radius=radius, metric=given)
        assert two.risk == pytest.approx(one.risk, abs=1e-6)
        assert two.radius == pytest.approx(one.radius, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_a_learned_metric_is_one_like_others(seed: int) -> None:
    """What a fit has learned from is the metric that it names: its distances as numbers give the same worst case."""
    problem = Problem.random(seed)
    how: dict[str, Any] = {"radius": 5.0, "label_prior": None, "tol": 1e-6, "l2": 0.0}
    first = sf.RobustLogisticRegression(**how).fit(problem.X, problem.y, X_unlabeled=problem.U)
    given = sf.costs.Precomputed(first.metric_.distances(problem.rows, problem.X))
    second = sf.RobustLogisticRegression(**how, metric=given, label_cost=first.label_cost_)
    second.fit(problem.X, problem.y, X_unlabeled=problem.U)
    assert second.certificate_.lower - 1e-6 <= first.certificate_.risk
    assert first.certificate_.lower - 1e-6 <= second.certificate_.risk
    assert second.certificate_.minimal_radius == pytest.approx(first.certificate_.minimal_radius, abs=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_a_path_is_made_of_single_fits(seed: int) -> None:
    g = np.random.default_rng(seed)
    X, U, y = g.normal(size=(9, 2)), g.normal(size=(8, 2)), np.r_[0, 1, g.integers(0, 2, 7)]
    clf = sf.RobustLogisticRegression(label_prior=None, metric="euclidean", label_cost=1.0, tol=1e-5)
    path = sf.radius_curve(clf, X, y, X_unlabeled=U, n_radii=6)
    for radius, risk in zip(path.radii, path.risk, strict=True):
        single = clf.set_params(radius=float(radius)).fit(X, y, X_unlabeled=U).certificate_
        assert single.lower - 2e-5 <= risk
        assert risk <= single.risk + 2e-5
    assert (np.diff(path.risk) >= -2e-5).all()


def test_the_hypergeometric_prior_by_enumeration() -> None:
    """Of every pool of 12 rows and every sample size, each end misses with at most half of what is allowed."""
    for N, level in ((12, 0.8), (9, 0.95)):
        for n in range(1, N + 1):
            found = np.array([HypergeometricPrior(N, level).intervals([x, n - x])[0] for x in range(n + 1)])
            for M in range(N + 1):
                chance = hypergeom(N, M, n).pmf(np.arange(n + 1))
                assert chance[found[:, 1] < M / N - 1e-12].sum() <= (1 - level) / 2 + 1e-12
                assert chance[found[:, 0] > M / N + 1e-12].sum() <= (1 - level) / 2 + 1e-12


@pytest.mark.parametrize("runs", [60, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("signal", [0.0, 1.0, 8.0])
def test_coverage_of_the_assisted_prior(runs: int, signal: float) -> None:
    """Populations where the model that assists knows nothing, something and everything; a rare class among them."""
    g, missed = np.random.default_rng(12), 0
    for _ in range(runs):
        X = g.normal(size=(1500, 3))
        y = (signal * X[:, 0] + g.logistic(size=1500) > 1.5).astype(int)
        n = int(g.integers(20, 80))
        low, high = AssistedPrior(0.9).for_rows(X[:n], y[:n], 2, X[n:]).intervals([1, 1])[1]
        missed += not low <= y.mean() <= high
    assert missed <= binom.ppf(0.999, runs, 0.1)
