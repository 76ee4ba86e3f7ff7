"""Betting: expectation and range of each draw, rejection of a half-line, coverage of bounded means."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from surefoot.bounds.betting import BERNSTEIN_FROM, BettingBound, WeightedErrors, bounded_upper, rule_in_words
from surefoot.bounds.engine import RowSampler


class Recorded(BettingBound):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__(0.9)
        self.seen: list[tuple[float, float, float]] = []

    def add(self, value: float, top: float = 1.0, spent: float = 0.0) -> float:
        self.seen.append((value, top, spent))
        return super().add(value, top, spent)


def test_each_draw_has_the_mean_that_is_left_and_stays_below_its_top() -> None:
    rng = np.random.default_rng(0)
    N = 12
    f, guess = (rng.random(N) < 0.3).astype(float), rng.random(N)
    left = np.array([0, 2, 3, 5, 7, 8, 11])
    drawn = np.setdiff1d(np.arange(N), left)
    q = rng.dirichlet(np.ones(len(left)))
    mean = 0.0
    for position in range(len(left)):
        draws = WeightedErrors(N, float(f[drawn].sum()), guess, 0.9)
        draws._bound = recorded = Recorded()
        draws.add(float(f[left[position]]), draws.bet(position, left, q))
        value, top, spent = recorded.seen[0]
        assert value <= top + 1e-12
        assert spent == pytest.approx(f[drawn].sum() / N)
        mean += q[position] * value
    assert mean == pytest.approx(f[left].sum() / N, abs=1e-12)


def wealth_of(order: tuple[int, ...], f: np.ndarray, guess: np.ndarray, picks: RowSampler) -> tuple[float, list[float]]:
    """Probability of drawing rows in this order, and the wealth against the true mean after each."""
    draws, left, chance, wealth = WeightedErrors(len(f), 0.0, guess, 0.8), np.arange(len(f)), 1.0, []
    for row in order:
        q, position = picks.probabilities(left), int(np.flatnonzero(left == row)[0])
        chance *= q[position]
        draws.add(float(f[row]), draws.bet(position, left, q))
        wealth.append(np.exp(draws._bound.log_wealth(f.mean())))
        left = np.delete(left, position)
    return chance, wealth


@pytest.mark.parametrize("wrong", [[1, 0, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 0]])
def test_wealth_against_the_truth_is_a_martingale(wrong: list[int]) -> None:
    """By enumeration of every order of five rows, weighted picks and a control variate."""
    f, guess = np.array(wrong, dtype=float), np.array([0.45, 0.3, 0.1, 0.05, 0.2])
    picks = RowSampler((0,), guess, 0.3)
    found = [wealth_of(order, f, guess, picks) for order in permutations(range(5))]
    chances = np.array([chance for chance, _ in found])
    wealth = np.array([values for _, values in found])
    assert chances.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(chances @ wealth, 1.0, rtol=1e-9)
    assert chances @ (wealth.max(axis=1) >= 5) <= 0.2  # Ville


def test_a_half_line_is_rejected() -> None:
    bound = BettingBound(0.9)
    for value in np.random.default_rng(1).beta(1, 12, size=60):
        bound.add(float(value))
    rejected = [bound._rejects(m) for m in np.linspace(0, 1, 401)]
    assert rejected == sorted(rejected)
    assert bound._rejects(bound.upper)
    assert not bound._rejects(bound.upper - 1e-6)


def test_the_bound_falls_with_smaller_losses_and_a_lower_level() -> None:
    values = np.random.default_rng(2).random(50)
    assert bounded_upper(0.5 * values, 0, 1, 0.9) < bounded_upper(values, 0, 1, 0.9)
    assert bounded_upper(values, 0, 1, 0.8) < bounded_upper(values, 0, 1, 0.95)


def test_the_bound_moves_with_the_units() -> None:
    values = np.random.default_rng(3).random(40)
    plain = bounded_upper(values, 0, 1, 0.9)
    assert bounded_upper(5 + 3 * values, 5, 8, 0.9) == pytest.approx(5 + 3 * plain, abs=1e-5)


def test_all_rows_of_a_pool_leave_little_open() -> None:
    values = np.random.default_rng(4).random(80)
    found = bounded_upper(values, 0, 1, 0.9, N=80)
    assert values.mean() <= found < values.mean() + 0.03


def test_drawing_from_a_pool_is_tighter_than_from_a_population() -> None:
    values = np.random.default_rng(4).random(80)
    assert bounded_upper(values, 0, 1, 0.9, N=100) < bounded_upper(values, 0, 1, 0.9)


def test_coverage_of_bounded_means() -> None:
    rng, missed = np.random.default_rng(5), 0
    for _ in range(400):
        missed += bounded_upper(rng.beta(0.3, 2.7, size=40), 0, 1, 0.8) < 0.1
    assert missed <= 80  # 20 % are allowed; seeded


def test_the_rule_looks_at_the_number_of_labels_alone() -> None:
    values = np.random.default_rng(6).random(BERNSTEIN_FROM)
    assert rule_in_words(BERNSTEIN_FROM, pool=False, anytime=False) == "empirical Bernstein"
    assert rule_in_words(BERNSTEIN_FROM - 1, pool=False, anytime=False) == "betting"
    assert rule_in_words(BERNSTEIN_FROM, pool=True, anytime=False) == "betting"
    betting = bounded_upper(values, 0, 1, 0.9, anytime=True)
    assert values.mean() < bounded_upper(values, 0, 1, 0.9) < betting  # Bernstein is the smaller one by then


def test_losses_without_a_range_are_known() -> None:
    assert bounded_upper(np.full(5, 2.0), 2.0, 2.0, 0.9) == 2.0


class TestPicks:
    belief = np.array([0.5, 0.1, 0.0, 0.3, 0.02])

    def test_probabilities_keep_the_uniform_share(self) -> None:
        left = np.arange(5)
        q = RowSampler((0,), self.belief, 0.4).probabilities(left)
        assert q.sum() == pytest.approx(1.0)
        assert q.min() >= 0.4 / 5 - 1e-12
        assert q[2] == pytest.approx(0.4 / 5)
        assert q.argmax() == 0

    def test_a_sure_model_is_audited_uniformly(self) -> None:
        np.testing.assert_allclose(RowSampler((0,), np.zeros(5), 0.4).probabilities(np.arange(5)), 0.2)

    def test_rows_are_drawn_with_their_probabilities(self) -> None:
        left = np.arange(5)
        q = RowSampler((0,), self.belief, 0.4).probabilities(left)
        counts = np.bincount([RowSampler((s,), self.belief, 0.4).draw(left, 0)[0] for s in range(4000)], minlength=5)
        assert np.abs(counts / 4000 - q).max() < 0.03

    def test_the_same_history_gives_the_same_row(self) -> None:
        one, other = (RowSampler((3, 9), None).draw(np.arange(50), 4)[0] for _ in range(2))
        assert one == other
        assert len({RowSampler((3, 9), None).draw(np.arange(50), step)[0] for step in range(20)}) > 5
