"""ε(N_u): both bounds against their formulas, computed another way, and against simulated coverage."""

from __future__ import annotations

from collections.abc import Callable
from math import erfc, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import binom

from surefoot.certificates.fresh import bernstein_term, normal_term

Array = NDArray[np.float64]
SHEVTSOVA = 0.4748  # arXiv:1111.6554, identically distributed summands
values_of = arrays(np.float64, st.integers(2, 400), elements=st.floats(-3, 3, width=32))
levels = st.floats(0.55, 0.999)
many = settings(max_examples=100, deadline=None, derandomize=True)


def normal_by_root(values: Array, level: float) -> float:
    """Solve P(Z > z) + C ρ/(σ³√m) = 1 − level for z by bisection, with erfc for the tail."""
    m = len(values)
    mean = sum(values) / m
    variance = sum((v - mean) ** 2 for v in values) / (m - 1)
    third = sum(abs(v - mean) ** 3 for v in values) / m
    correction = SHEVTSOVA * third / (variance**1.5 * sqrt(m))
    if correction >= 1 - level:
        return np.inf
    z = brentq(lambda z: 0.5 * erfc(z / sqrt(2)) + correction - (1 - level), -40, 40, xtol=1e-13)
    return z * sqrt(variance / m)


@many
@given(values_of, levels)
def test_normal_solves_its_equation(values: Array, level: float) -> None:
    if np.ptp(values) < 1e-3:
        values = values + np.arange(len(values))
    expected = normal_by_root(values, level)
    assert normal_term(values, level) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def coin(m: int, size: float = 1.0) -> Array:
    return np.resize([-size, size], m)


def test_normal_guarantees_nothing_where_the_correction_is_the_whole_level() -> None:
    # ρ/σ³ = ((m−1)/m)^1.5 for a fair coin: 0.4748 ρ/(σ³ √m) falls below 0.05 between 86 and 88 rows
    assert SHEVTSOVA * (85 / 86) ** 1.5 / sqrt(86) > 0.05 > SHEVTSOVA * (87 / 88) ** 1.5 / sqrt(88)
    assert normal_term(coin(86), 0.95) == np.inf
    assert 0 < normal_term(coin(88), 0.95) < 1
    assert 0 < normal_term(coin(86), 0.9) < 1
    rare = np.zeros(2000)
    rare[0] = 1.0
    assert normal_term(rare, 0.95) == np.inf  # so skewed that 2000 rows are too few
    assert normal_term(np.array([0.3]), 0.6) == np.inf


def test_equal_values_leave_nothing_to_add_where_rows_are_enough() -> None:
    assert 0 <= normal_term(np.full(1000, 0.3), 0.95) < 1e-15


@pytest.mark.parametrize("m", [2, 86])
def test_few_rows_guarantee_nothing_even_if_their_values_are_equal(m: int) -> None:
    assert normal_term(coin(m, 1e-9), 0.95) == np.inf
    assert normal_term(coin(m, 0.0), 0.95) == np.inf  # Lyapunov: ρ/σ³ ≥ 1 for every distribution


@many
@given(values_of, levels, st.floats(0, 5), st.floats(0, 5))
def test_bernstein_is_its_formula(values: Array, level: float, below: float, above: float) -> None:
    low, high, m = values.min() - below, values.max() + above, len(values)
    # the sample variance as a mean over pairs, as in Maurer and Pontil
    variance = np.square(values[:, None] - values).sum() / (2 * m * (m - 1))
    expected = sqrt(2 * variance * log(2 / (1 - level)) / m) + 7 * log(2 / (1 - level)) * (high - low) / (3 * (m - 1))
    assert bernstein_term(values, level, low, high) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_bernstein_of_a_single_row() -> None:
    assert bernstein_term(np.array([0.3]), 0.6, 0.0, 1.0) == np.inf


TERMS: dict[str, Callable[[Array, float], float]] = {
    "normal": normal_term,
    "bernstein": lambda values, level: bernstein_term(values, level, -3.0, 3.0),
}


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
class TestLaws:
    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(values_of, levels, levels)
    def test_grows_with_the_level(self, term: Callable[..., float], values: Array, a: float, b: float) -> None:
        assert term(values, min(a, b)) <= term(values, max(a, b))

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(values_of, levels, st.floats(-100, 100))
    def test_does_not_depend_on_a_shift(
        self, term: Callable[..., float], values: Array, level: float, shift: float
    ) -> None:
        values = values + np.arange(len(values)) % 2  # not constant
        assert term(values + shift, level) == pytest.approx(term(values, level), rel=1e-6, abs=1e-9)

    def test_shrinks_like_one_over_root_m(self, term: Callable[..., float]) -> None:
        values = np.random.default_rng(0).uniform(-3, 3, size=20_000)
        ratio = term(values, 0.9) / term(np.tile(values, 4), 0.9)
        assert ratio == pytest.approx(2.0, rel=0.05)


POPULATIONS = {
    "uniform": lambda rng, size: rng.uniform(0, 1, size),
    "rare errors": lambda rng, size: (rng.uniform(size=size) < 0.05).astype(float),
    "skewed": lambda rng, size: 1.0 - rng.beta(0.5, 3.0, size),
}
MEANS = {"uniform": 0.5, "rare errors": 0.05, "skewed": 1.0 - 0.5 / 3.5}


@pytest.mark.parametrize("m", [60, 400])
@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("method", TERMS)
def test_simulated_coverage(method: str, name: str, m: int) -> None:
    """The expectation exceeds mean + term in at most 1 − level of the samples; without the term, in about half."""
    draws, level = 2000, 0.8
    samples = POPULATIONS[name](np.random.default_rng(m), (draws, m))
    if method == "normal":
        terms = np.array([normal_term(row, level) for row in samples])
    else:
        terms = np.array([bernstein_term(row, level, 0.0, 1.0) for row in samples])
    missed = MEANS[name] - samples.mean(axis=1)
    assert (missed > terms).sum() <= binom.ppf(0.999, draws, 1 - level)
    assert (missed > 0).sum() > 1.5 * binom.ppf(0.999, draws, 1 - level)
    assert np.isfinite(terms).mean() > 0.9 or m == 60
