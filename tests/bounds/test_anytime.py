"""Anytime bounds: martingales by enumeration, agreement with direct sums, laws, and coverage at every time at once."""

from __future__ import annotations

from itertools import product
from math import comb, log

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln

from surefoot.bounds.betting import PoolErrors, clopper_pearson_upper, population_upper
from surefoot.priors.clopper_pearson import hypergeometric_upper


def sequence_probability(outcomes: tuple[int, ...], M: int, N: int) -> float:
    """P(these outcomes in this order), M errors among N rows, draw by draw."""
    chance, errors, left = 1.0, M, N
    for error in outcomes:
        chance *= (errors if error else left - errors) / left
        errors, left = errors - error, left - 1
    return chance


def evidence_by_sum(outcomes: tuple[int, ...], m: int, N: int) -> float:
    """L_t(m) by its definition."""
    prior = [comb(N, M) * np.exp(betaln(M + 0.5, N - M + 0.5) - betaln(0.5, 0.5)) for M in range(N + 1)]
    mixed = sum(prior[M] * sequence_probability(outcomes, M, N) for M in range(m)) / sum(prior[:m])
    return mixed / sequence_probability(outcomes, m, N)


def test_evidence_is_its_definition() -> None:
    N, outcomes = 11, (0, 1, 0, 0, 1)
    pool = PoolErrors(N, 0.9)
    M = np.arange(2, 9)
    found = pool.evidence(M, 2, 5)
    assert found[0] == -np.inf
    for m, value in zip(M[1:].tolist(), found[1:], strict=True):
        assert value == pytest.approx(log(evidence_by_sum(outcomes, m, N)), abs=1e-10)


def test_evidence_is_a_martingale() -> None:
    """Under m, the expected evidence after any number of draws is 1: exactly, over all sequences."""
    N = 7
    for m in range(1, N + 1):
        for t in range(1, N + 1):
            total = sum(
                sequence_probability(outcomes, m, N) * evidence_by_sum(outcomes, m, N)
                for outcomes in product((0, 1), repeat=t)
                if sequence_probability(outcomes, m, N) > 0
            )
            assert total <= 1 + 1e-12
            if t <= min(m, N - m):  # every sequence is possible under m: nothing is lost
                assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_ever_below_the_truth_by_enumeration(level: float) -> None:
    """Over all orders of every pool of up to 10 rows, the bound is ever below the truth with 1 − level at most."""
    for N in range(1, 11):
        for M in range(N + 1):
            missed = 0.0
            for outcomes in {o for o in product((0, 1), repeat=N) if sum(o) == M}:
                pool = PoolErrors(N, level)
                if any(pool.add(bool(error)) < M for error in outcomes):
                    missed += sequence_probability(outcomes, M, N)
            assert missed <= 1.0 - level + 1e-12, (M, N)


def test_it_never_grows_and_ends_at_the_truth() -> None:
    outcomes = np.random.default_rng(3).random(200) < 0.1
    pool = PoolErrors(200, 0.9)
    uppers = [pool.add(bool(error)) for error in outcomes]
    assert np.all(np.diff(uppers) <= 0)
    assert uppers[-1] == outcomes.sum()


def test_it_stands_above_the_exact_bound_by_less_than_twice() -> None:
    N, outcomes = 2000, np.random.default_rng(5).permutation(np.arange(2000) < 86)[:200]
    pool = PoolErrors(N, 0.9)
    for error in outcomes:
        pool.add(bool(error))
    share, exact = outcomes.mean(), hypergeometric_upper(int(outcomes.sum()), 200, N, 0.9) / N
    assert exact < pool.upper / N < share + 2 * (exact - share)


def jeffreys(q: float) -> float:
    return float(np.exp(-betaln(0.5, 0.5)) / np.sqrt(q * (1 - q)))


class TestPopulation:
    def test_evidence_by_integration(self) -> None:
        """At the bound, the evidence is 1/(1 − level): the mixture integrated numerically."""
        errors = np.array([False, True, False, False, False, False, False, False])
        for n in (3, 8):
            x = int(errors[:n].sum())
            p = float(population_upper(errors[:n], 0.9)[-1])
            inside, _ = quad(lambda q, x=x, n=n: jeffreys(q) * q**x * (1 - q) ** (n - x), 0, p)
            below, _ = quad(jeffreys, 0, p)
            # a running minimum may have stopped the bound earlier
            assert inside / below / (p**x * (1 - p) ** (n - x)) >= 10 * (1 - 1e-6)

    def test_it_is_above_clopper_pearson_and_never_grows(self) -> None:
        errors = np.random.default_rng(0).random(300) < 0.15
        uppers = population_upper(errors, 0.9)
        exact = [clopper_pearson_upper(int(errors[:n].sum()), n, 0.9) for n in range(1, 301)]
        assert np.all(np.diff(uppers) <= 0)
        # running minima: compare with the running minimum of the exact ones
        assert np.all(uppers >= np.minimum.accumulate(exact) - 1e-12)

    def test_a_large_pool_is_a_population(self) -> None:
        errors = np.random.default_rng(1).random(60) < 0.1
        pool = PoolErrors(200_000, 0.9)
        for error in errors:
            pool.add(bool(error))
        assert pool.upper / 200_000 == pytest.approx(float(population_upper(errors, 0.9)[-1]), abs=2e-4)

    def test_coverage_over_all_times(self) -> None:
        rng, below = np.random.default_rng(7), 0
        for _ in range(100):
            below += bool(population_upper(rng.random(60) < 0.2, 0.8).min() < 0.2)
        assert below <= 20  # 20 % are allowed; seeded

    def test_only_errors(self) -> None:
        assert population_upper(np.ones(5, dtype=bool), 0.9)[-1] == 1.0
