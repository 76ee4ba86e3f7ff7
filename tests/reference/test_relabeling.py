"""The cheapest relabeling against an exact linear program, with costs and frequencies of very different sizes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

import surefoot as sf
from reference.exact import minimize
from surefoot.priors.clopper_pearson import tighten
from surefoot.solvers.minimal_radius import cheapest_label_flow

Array = NDArray[np.float64]


def exact_cost(p: Array, intervals: Array, label_cost: Array) -> Fraction:
    """Over flows [k, c], k-major. The frequencies are divided by their sum, and the last bound that is too small by
    rounding is widened, so that the program has a solution in rational numbers.
    """
    K = len(p)
    share = [Fraction(value) for value in p]
    lo, hi = ([Fraction(value) for value in end] for end in intervals.T)
    lo[int(np.argmax(intervals[:, 0]))] -= max(sum(lo) - sum(share), Fraction(0))
    hi[int(np.argmax(intervals[:, 1]))] += max(sum(share) - sum(hi), Fraction(0))
    wanted = [[Fraction(int(k == row)) for k in range(K) for _ in range(K)] for row in range(K)]
    given = [[Fraction(int(c == column)) for _ in range(K) for c in range(K)] for column in range(K)]
    below = [([-value for value in row], -bound) for row, bound in zip(wanted, lo, strict=True)]
    return minimize(
        label_cost.ravel().tolist(),
        equal=list(zip(given, share, strict=True)),
        at_most=[*zip(wanted, hi, strict=True), *below],
    )[0]


def draw(seed: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 5))
    p = rng.dirichlet(np.ones(K)) * 10.0 ** rng.integers(-9, 1, size=K)
    p[rng.random(K) < 0.15] = 0.0
    p = p / p.sum() if p.sum() > 0 else np.eye(K)[0]
    label_cost = rng.uniform(0.2, 2.0, size=(K, K)) * 10.0 ** rng.integers(-8, 9, size=(K, K)) * (1 - np.eye(K))
    centre = rng.dirichlet(np.ones(K))
    width = rng.choice([0.0, 1e-9, 0.1])
    return p, tighten(np.column_stack([np.maximum(centre - width, 0), np.minimum(centre + width, 1)])), label_cost


@pytest.mark.parametrize("seed", range(60))
def test_the_cheapest_relabeling_is_the_exact_program_s(seed: int) -> None:
    p, intervals, label_cost = draw(seed)
    found = cheapest_label_flow(p, intervals, label_cost)
    assert found.cost == pytest.approx(float(exact_cost(p, intervals, label_cost)), rel=1e-14, abs=0)
    np.testing.assert_allclose(found.share.sum(axis=0), 1.0, rtol=1e-14)
    reached = found.share @ p
    assert np.all(reached >= intervals[:, 0] - 1e-15)
    assert np.all(reached <= intervals[:, 1] + 1e-15)
    # potentials prove it: no reduced cost is negative, those of changes made are zero, and the bounds pay for the rest
    reduced = label_cost + found.to_potentials[:, None] - found.from_potentials
    size = np.abs(found.to_potentials)[:, None] + np.abs(found.from_potentials) + label_cost
    assert np.all(reduced >= -1e-14 * size)
    assert np.all(np.abs(reduced)[(found.share > 0) & (p > 0)] <= 1e-14 * size[(found.share > 0) & (p > 0)])
    lo, hi = intervals.T
    assert np.all(found.to_potentials[reached < hi - 1e-12] <= 0)
    assert np.all(found.to_potentials[reached > lo + 1e-12] >= 0)


def test_a_large_label_cost_leaves_the_small_ones_their_digits() -> None:
    y = np.repeat([0, 1, 2], [15, 10, 5])
    prior = [[0.55, 0.65], [0.1, 0.3], [0.1657, 0.1677]]
    label_cost = [[0, 1, 1e8], [3, 0, 1e8], [1e8, 1e8, 0]]
    assert sf.minimal_radius(np.zeros((30, 1)), y, label_prior=prior, label_cost=label_cost) == pytest.approx(0.05)


def test_a_class_of_tiny_weight_is_relabeled_too() -> None:
    found = cheapest_label_flow(np.array([1 - 1e-13, 1e-13]), np.array([[1.0, 1.0], [0.0, 0.0]]), 1 - np.eye(2))
    np.testing.assert_array_equal(found.share, [[1.0, 1.0], [0.0, 0.0]])
    assert found.cost == pytest.approx(1e-13, rel=1e-14)


@pytest.mark.parametrize("K", [10, 30])
def test_many_classes_by_duality(K: int) -> None:
    rng = np.random.default_rng(K)
    p, centre = rng.dirichlet(np.ones(K), size=2)
    intervals = tighten(np.column_stack([0.9 * centre, 1.1 * centre]))
    found = cheapest_label_flow(p, intervals, rng.uniform(1, 9, (K, K)) * (1 - np.eye(K)))
    bounds = np.where(found.to_potentials >= 0, intervals[:, 1], intervals[:, 0])
    dual = p @ found.from_potentials - bounds @ found.to_potentials
    assert dual == pytest.approx(found.cost, rel=1e-12)
