"""Upper bounds on a mean by betting against it: values in a range, drawn with known probabilities.

The mean to bound is m = Σ_i f_i / N, 0 ≤ f_i ≤ 1. At step t a row is drawn from those left with probability q_t(i). It
may depend on all that was seen before. With a guess s_i of f_i (control variate), known for every row,

    Z_t = (f − s)(I_t) / (N q_t(I_t)) + Σ_{i left} s_i / N

has expectation m − Σ_{drawn} f_i / N, and at most the value `top` that the largest f at each row left would give. A bet
that a share g of the wealth is staked on Z being small multiplies it by 1 − g (Z − μ_t(m)) / (top − μ_t(m)): under m
wealth is a martingale, so with probability at least `level` it never reaches 1/(1 − level). Each factor grows with m:
the shares m that have been rejected form a half-line. Wealth is spread over a fixed grid of g, so no g is chosen after
the fact. Shekhar, Xu, Lipton, Liang and Ramdas (2023, arXiv:2305.06884) have the same process with other bets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray

_STAKES = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97])
_RESOLUTION = 1e-7
_ROUNDING = 1e-12


class BettingBound:
    """Bound on a mean in [0, 1], one draw after the other; it holds at every number of draws at once.

    Parameters
    ----------
    level : float
    """

    def __init__(self, level: float) -> None:
        self.upper = 1.0
        self._least_evidence = -np.log1p(-level)
        self._values: list[float] = []
        self._tops: list[float] = []
        self._spent: list[float] = []

    def add(self, value: float, top: float = 1.0, spent: float = 0.0) -> float:
        """Take Z_t, the largest that it could have been, and Σ_{drawn} f_i / N before it; the bound now.

        For independent draws from a population, value is the loss itself and the rest stays as it is.
        """
        return self.add_all(np.array([value]), np.array([top]), np.array([spent]))

    def add_all(self, values: FloatArray, tops: FloatArray, spent: FloatArray) -> float:
        """Take many draws in their order, and look only after the last."""
        self._values += values.tolist()
        self._tops += tops.tolist()
        self._spent += spent.tolist()
        if self._rejects(self.upper):
            self.upper = self._largest_left()
        return self.upper

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
        values, tops = np.array(self._values), np.array(self._tops)
        expected: FloatArray = m - np.array(self._spent)
        room = tops - expected
        # a draw cannot exceed `top`, nor can its expectation; where they are equal, the draw is certain
        certain = np.abs(room) <= _ROUNDING
        if (room < -_ROUNDING).any() or (values < tops - _ROUNDING)[certain].any():
            return np.inf
        edge = np.minimum((values - expected)[~certain] / room[~certain], 1.0)
        wealth = np.log1p(-_STAKES[:, None] * edge).sum(axis=1)
        return float(np.logaddexp.reduce(wealth) - np.log(len(_STAKES)))


class WeightedDraws:
    """Z_t of draws without replacement from N rows with probabilities q_t, a share of them known from the start.

    Parameters
    ----------
    N : int, all rows, known ones included.
    known_sum : float, Σ f_i over the known rows.
    guess : array of shape (N,), s_i in [0, 1].
    level : float
    """

    def __init__(self, N: int, known_sum: float, guess: FloatArray, level: float) -> None:
        self.N, self.guess = N, guess
        self._sum = known_sum
        self._bound = BettingBound(level)

    @property
    def upper(self) -> float:
        """The bound on the mean of f over all N rows."""
        return self._bound.upper

    def add(self, f: float, position: int, left: NDArray[np.intp], probabilities: FloatArray) -> float:
        """Take f at left[position], drawn from the rows `left` (r,) with `probabilities` (r,); the bound now."""
        scale = 1.0 / (self.N * probabilities)
        guess = self.guess[left]
        still = float(guess.sum()) / self.N
        value = float(scale[position] * (f - guess[position])) + still
        top = float((scale * (1.0 - guess)).max()) + still
        self._bound.add(value, top, self._sum / self.N)
        self._sum += f
        return self.upper
