"""Exact bounds against enumeration: every pool of up to 30 rows, every number of draws, every outcome."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.stats import binom

from refusals import refuses
from surefoot.bounds._arguments import check_level
from surefoot.bounds.betting import clopper_pearson_upper
from surefoot.priors import HypergeometricPrior
from surefoot.priors.clopper_pearson import hypergeometric_lower, hypergeometric_upper

POOLS = range(1, 31)


def at_most(x: int, n: int, M: int, N: int) -> Fraction:
    """P(at most x errors in n draws without replacement), M errors among N rows, by counting the draws."""
    ways = sum(comb(M, k) * comb(N - M, n - k) for k in range(max(0, n - (N - M)), min(x, M, n) + 1))
    return Fraction(ways, comb(N, n))


@pytest.mark.parametrize("level", [0.53, 0.9, 0.99])
def test_the_hypergeometric_bound_is_the_largest_number_not_ruled_out(level: float) -> None:
    tail = 1.0 - level
    for N in POOLS:
        for n in range(1, N + 1):
            uppers = [hypergeometric_upper(x, n, N, level) for x in range(n + 1)]
            for x, upper in enumerate(uppers):
                possible = [M for M in range(x, N - (n - x) + 1) if at_most(x, n, M, N) > tail]
                assert upper == max(possible), (x, n, N)


@pytest.mark.parametrize("level", [0.6, 0.9])
def test_coverage_of_the_hypergeometric_bound_in_every_pool(level: float) -> None:
    for N in POOLS:
        for n in range(1, N + 1):
            uppers = [hypergeometric_upper(x, n, N, level) for x in range(n + 1)]
            for M in range(N + 1):
                missed = sum(
                    Fraction(comb(M, x) * comb(N - M, n - x), comb(N, n))
                    for x in range(max(0, n - (N - M)), min(M, n) + 1)
                    if uppers[x] < M
                )
                assert float(missed) <= 1.0 - level + 1e-12, (n, M, N)


def test_all_rows_drawn_leave_nothing_open() -> None:
    assert [hypergeometric_upper(x, 12, 12, 0.9) for x in range(13)] == list(range(13))
    assert [hypergeometric_lower(x, 12, 12, 0.9) for x in range(13)] == list(range(13))


def test_no_draw_says_nothing() -> None:
    assert hypergeometric_upper(0, 0, 17, 0.9) == 17


def test_the_lower_bound_mirrors_the_upper_one() -> None:
    for x in range(6):
        possible = [M for M in range(x, 21 - (5 - x)) if 1 - at_most(x - 1, 5, M, 20) > 0.1]
        assert hypergeometric_lower(x, 5, 20, 0.9) == min(possible)


@pytest.mark.parametrize(("errors", "n"), [(0, 20), (3, 20), (19, 20), (17, 400)])
def test_clopper_pearson_solves_its_equation(errors: int, n: int) -> None:
    upper = clopper_pearson_upper(errors, n, 0.9)
    assert binom.cdf(errors, n, upper) == pytest.approx(0.1, rel=1e-9)


def test_clopper_pearson_closed_form_and_end() -> None:
    assert clopper_pearson_upper(0, 44, 0.9) == pytest.approx(1 - 0.1 ** (1 / 44), rel=1e-12)
    assert clopper_pearson_upper(9, 9, 0.9) == 1.0


def test_a_large_pool_is_a_population() -> None:
    assert hypergeometric_upper(4, 60, 2_000_000, 0.9) / 2_000_000 == pytest.approx(
        clopper_pearson_upper(4, 60, 0.9), abs=1e-4
    )


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 2.0, "0.9", True])
def test_a_level_outside_is_refused(level: object) -> None:
    with refuses("level"):
        check_level(level)  # type: ignore[arg-type]


class TestLabelSharesOfAPool:
    def test_against_enumeration(self) -> None:
        for N in (1, 2, 7, 13, 30):
            for n in range(1, N + 1):
                for x in range(n + 1):
                    kept = [
                        M
                        for M in range(x, N - (n - x) + 1)
                        if at_most(x, n, M, N) > 0.025 and 1 - at_most(x - 1, n, M, N) > 0.025
                    ]
                    found = HypergeometricPrior(N).intervals([x, n - x])[0]
                    np.testing.assert_allclose(found, [min(kept) / N, max(kept) / N], rtol=0, atol=1e-15)

    def test_counts_the_rows_given(self) -> None:
        X, U = np.zeros((4, 1)), np.ones((6, 1))
        found = HypergeometricPrior().for_rows(X, np.array([0, 0, 1, 1]), 2, U)
        assert found == HypergeometricPrior(10)
        with refuses("class_weights", "[1.5 2. ]"):
            found.intervals([1.5, 2.0])
        with refuses("class_weights", "[8. 4.]"):
            found.intervals([8, 4])
        with refuses("X_unlabeled"):
            HypergeometricPrior().for_rows(X, np.array([0, 0, 1, 1]), 2, None)
        with refuses("n_rows", "None"):
            HypergeometricPrior().intervals([1, 2])
