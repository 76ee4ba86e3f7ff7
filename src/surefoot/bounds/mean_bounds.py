"""Upper bounds on a mean: Clopper and Pearson's for errors; empirical Bernstein and betting for values in a range.

Betting is for values that are drawn with known probabilities. The mean to bound is m = Σ_i f_i / N, 0 ≤ f_i ≤ 1. At
step t a row is drawn from those left with probability q_t(i). It may depend on all that was seen before. With a guess
s_i of f_i (control variate), known for every row,

    Z_t = (f − s)(I_t) / (N q_t(I_t)) + Σ_{i left} s_i / N

has expectation m − Σ_{drawn} f_i / N, and at most the value `top` that the largest f at each row left would give. A bet
that a share g of the wealth is staked on Z being small multiplies it by 1 − g (Z − μ_t(m)) / (top − μ_t(m)): under m
wealth is a martingale, so with probability at least `level` it never reaches 1/(1 − level). Each factor grows with m:
the shares m that have been rejected form a half-line. Wealth is spread over a fixed grid of g, so no g is chosen after
the fact. Shekhar, Xu, Lipton, Liang and Ramdas (2023, arXiv:2305.06884) have the same process with other bets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from surefoot._types import FloatArray
from surefoot.certificates.sampling import bernstein_term

# From this many independent draws on the empirical Bernstein bound is used, below it betting. The rule looks at the
# number of labels only: the smaller of two bounds at one level does not hold at that level.
BERNSTEIN_FROM = 5000

_STAKES = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97])
_RESOLUTION = 1e-7
_ROUNDING = 1e-12


class BettingBound:
    """Bound on a mean in [0, 1], one draw after the other; it holds at every number of draws at once."""

    def __init__(self, level: float) -> None:
        self._least_evidence = -np.log1p(-level)
        self._draws: list[tuple[float, float, float]] = []
        self._uppers = [1.0]  # before the first draw, and after each

    @property
    def upper(self) -> float:
        return self._uppers[-1]

    def add(self, value: float, top: float = 1.0, spent: float = 0.0) -> float:
        """Take Z_t, the largest that it could have been, and Σ_{drawn} f_i / N before it; the bound now.

        For independent draws from a population, value is the loss itself and the rest stays as it is.
        """
        return self.add_all(np.array([value]), np.array([top]), np.array([spent]))

    def add_all(self, values: FloatArray, tops: FloatArray, spent: FloatArray) -> float:
        """Take many draws in their order, and look only after the last."""
        self._draws += zip(values.tolist(), tops.tolist(), spent.tolist(), strict=True)
        self._uppers += [self.upper] * len(values)
        if self._rejects(self.upper):
            self._uppers[-1] = self._largest_left()
        return self.upper

    def cut(self, n: int) -> None:
        """Forget all draws but the first n."""
        del self._draws[n:], self._uppers[n + 1 :]

    def _largest_left(self) -> float:
        """The least mean that is rejected, from above, to the resolution."""
        low, high = 0.0, self.upper
        if self._rejects(low):
            return low
        while high - low > _RESOLUTION:
            middle = 0.5 * (low + high)
            if self._rejects(middle):
                high = middle
            else:
                low = middle
        return high

    def _rejects(self, m: float) -> bool:
        return self.log_wealth(m) >= self._least_evidence

    def log_wealth(self, m: float) -> float:
        """The logarithm of the wealth, 1 at first, after all bets against m; infinite where m is impossible."""
        values, tops, spent = np.array(self._draws).reshape(-1, 3).T
        expected: FloatArray = m - spent
        room = tops - expected
        # a draw cannot exceed `top`, nor can its expectation; where they are equal, the draw is certain
        certain = np.abs(room) <= _ROUNDING
        if (room < -_ROUNDING).any() or (values < tops - _ROUNDING)[certain].any():
            return np.inf
        edge = np.minimum((values - expected)[~certain] / room[~certain], 1.0)
        wealth = np.log1p(-_STAKES[:, None] * edge).sum(axis=1)
        return float(np.logaddexp.reduce(wealth) - np.log(len(_STAKES)))


@dataclass(frozen=True)
class Bet:
    """What is known of a draw before its f: 1/(N q), the guess s, Σ_{i left} s_i / N and the largest possible Z_t."""

    scale: float
    guess: float
    rest: float
    top: float


class WeightedErrors:
    """Bound on the mean of f over N rows from draws without replacement with probabilities q_t.

    N counts the known rows, too, over which f adds up to `known_sum`; guess (N,) are the s_i in [0, 1].
    """

    def __init__(self, N: int, known_sum: float, guess: FloatArray, level: float) -> None:
        self.N, self.guess = N, guess
        self._sums = [known_sum]
        self._bound = BettingBound(level)

    @property
    def upper(self) -> float:
        """The bound on the mean of f over all N rows."""
        return self._bound.upper

    def bet(self, position: int, left: NDArray[np.intp], probabilities: FloatArray) -> Bet:
        """The bet on left[position], drawn from the rows `left` (r,) with `probabilities` (r,)."""
        scale = 1.0 / (self.N * probabilities)
        guess = self.guess[left]
        rest = float(guess.sum()) / self.N
        top = float((scale * (1.0 - guess)).max()) + rest
        return Bet(float(scale[position]), float(guess[position]), rest, top)

    def add(self, f: float, bet: Bet) -> float:
        """Take f of a row drawn; the bound now."""
        self._bound.add(bet.scale * (f - bet.guess) + bet.rest, bet.top, self._sums[-1] / self.N)
        self._sums.append(self._sums[-1] + f)
        return self.upper

    def cut(self, n: int) -> None:
        """Forget all draws but the first n."""
        self._bound.cut(n)
        del self._sums[n + 1 :]


def clopper_pearson_upper(errors: float, n: float, level: float) -> float:
    """The largest share p of errors in a population with P(at most `errors` in n draws) ≥ 1 − level.

    Solves P(Bin(n, p) ≤ errors) = 1 − level, by the quantile of the beta distribution; counts may be fractional.
    """
    if errors >= n:
        return 1.0
    return float(beta.isf(1.0 - level, errors + 1, n - errors))


def bounded_upper(
    values: FloatArray, low: float, high: float, level: float, *, N: int | None = None, anytime: bool = False
) -> float:
    """Bound on the mean of losses in [low, high]: of a population, or of N rows that `values` (n,) were drawn from.

    Betting for draws without replacement, for anytime bounds, and for fewer than BERNSTEIN_FROM labels; else the
    empirical Bernstein bound of Maurer and Pontil (2009).
    """
    if high <= low:
        return high
    if N is None and not anytime and len(values) >= BERNSTEIN_FROM:
        return min(float(values.mean()) + bernstein_term(values, level, low, high), high)
    scaled = np.clip((values - low) / (high - low), 0.0, 1.0)
    n, bound = len(scaled), BettingBound(level)
    if N is None:
        return low + bound.add_all(scaled, np.ones(n), np.zeros(n)) * (high - low)
    left = (N - np.arange(n)) / N  # 1 / (N q) of a uniform draw from the rows left
    drawn = (np.cumsum(scaled) - scaled) / N
    return low + bound.add_all(scaled * left, left, drawn) * (high - low)


def rule_in_words(n: int, *, pool: bool, anytime: bool) -> str:
    """Which of the two was used, as `bounded_upper` decides it."""
    bernstein = not pool and not anytime and n >= BERNSTEIN_FROM
    return "empirical Bernstein" if bernstein else "betting"
