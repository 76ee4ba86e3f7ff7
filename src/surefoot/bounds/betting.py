"""Upper bounds that hold at all numbers of labels simultaneously, so that you may stop at any time.

For each error rate m, a likelihood ratio compares a mixture of all smaller error rates with m:

    L_t(m) = Σ_{m' < m} π(m') P_{m'}(labels) / (π(m' < m) P_m(labels)),

where π is a beta–binomial prior with parameters 1/2, 1/2. Under m, the ratio is a martingale that starts at 1, so with
probability at least `level` it never reaches 1/(1 − level) (Ville). An error rate is rejected once its ratio reaches
this value. The bound is the largest error rate that is not rejected. This is the one-sided version of the
prior–posterior ratio of Waudby-Smith and Ramdas (2020), and always gives a smaller bound than the two-sided ratio. A
rejected error rate stays rejected, so the bound never grows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaln, gammaln
from scipy.stats import beta

from surefoot._validation import FloatArray
from surefoot.certificates.fresh import bernstein_term

# Upper bounds on a mean: Clopper–Pearson for errors; empirical Bernstein and betting for values in a range.

# Below this number of independent draws, use betting. From this number on, use empirical Bernstein. The rule depends
# only on the number of labels, because the smaller of two bounds at one confidence level does not hold at that level.
BERNSTEIN_FROM = 5000

_STAKES = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97])
_RESOLUTION = 1e-7
_ROUNDING = 1e-12


class BettingBound:
    """Bound on a mean in [0, 1], updated draw by draw. It holds at all numbers of draws simultaneously."""

    def __init__(self, level: float) -> None:
        self._least_evidence = -np.log1p(-level)
        self._draws: list[tuple[float, float, float]] = []
        self._uppers = [1.0]  # before the first draw, and after each draw

    @property
    def upper(self) -> float:
        return self._uppers[-1]

    def add(self, value: float, top: float = 1.0, spent: float = 0.0) -> float:
        """Add a draw: Z_t, its largest possible value, and the earlier Σ_{drawn} f_i / N. Return the new bound.

        For independent draws from a population, pass the loss as value and keep the defaults.
        """
        return self.add_all(np.array([value]), np.array([top]), np.array([spent]))

    def add_all(self, values: FloatArray, tops: FloatArray, spent: FloatArray) -> float:
        """Add several draws in order, and compute the bound after the last one only."""
        self._draws += zip(values.tolist(), tops.tolist(), spent.tolist(), strict=True)
        self._uppers += [self.upper] * len(values)
        if self._rejects(self.upper):
            self._uppers[-1] = self._largest_left()
        return self.upper

    def cut(self, n: int) -> None:
        """Keep only the first n draws."""
        del self._draws[n:], self._uppers[n + 1 :]

    def _largest_left(self) -> float:
        """Return the smallest rejected mean, rounded up to the resolution."""
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
        """Return the log wealth after all bets against m. Wealth starts at 1 and is infinite if m is impossible."""
        values, tops, spent = np.array(self._draws).reshape(-1, 3).T
        expected: FloatArray = m - spent
        room = tops - expected
        # a draw and its expectation are at most `top`; if the expectation equals `top`, so does the draw
        certain = np.abs(room) <= _ROUNDING
        if (room < -_ROUNDING).any() or (values < tops - _ROUNDING)[certain].any():
            return np.inf
        edge = np.minimum((values - expected)[~certain] / room[~certain], 1.0)
        wealth = np.log1p(-_STAKES[:, None] * edge).sum(axis=1)
        return float(np.logaddexp.reduce(wealth) - np.log(len(_STAKES)))


@dataclass(frozen=True)
class Bet:
    """Constants of a draw before f is known: 1/(N q), the guess s, Σ_{i left} s_i / N and the largest possible Z_t."""

    scale: float
    guess: float
    rest: float
    top: float


class WeightedErrors:
    """Bound on the mean of f over N rows, from weighted sampling without replacement with probabilities q_t.

    N includes the known rows, over which f sums to `known_sum`. guess (N,) holds the s_i in [0, 1].
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
        """Return the bet on left[position], sampled from the rows `left` (r,) with `probabilities` (r,)."""
        scale = 1.0 / (self.N * probabilities)
        guess = self.guess[left]
        rest = float(guess.sum()) / self.N
        top = float((scale * (1.0 - guess)).max()) + rest
        return Bet(float(scale[position]), float(guess[position]), rest, top)

    def add(self, f: float, bet: Bet) -> float:
        """Add f of a sampled row and return the new bound."""
        self._bound.add(bet.scale * (f - bet.guess) + bet.rest, bet.top, self._sums[-1] / self.N)
        self._sums.append(self._sums[-1] + f)
        return self.upper

    def cut(self, n: int) -> None:
        """Keep only the first n draws."""
        self._bound.cut(n)
        del self._sums[n + 1 :]


def clopper_pearson_upper(errors: float, n: float, level: float) -> float:
    """Return the largest error rate p of a population with P(at most `errors` in n draws) ≥ 1 − level.

    Solves P(Bin(n, p) ≤ errors) = 1 − level by a quantile of the beta distribution. Counts may be fractional.
    """
    if errors >= n:
        return 1.0
    return float(beta.isf(1.0 - level, errors + 1, n - errors))


def bounded_upper(
    values: FloatArray, low: float, high: float, level: float, *, N: int | None = None, anytime: bool = False
) -> float:
    """Bound the mean of losses in [low, high] over a population, or over N rows from which `values` (n,) were sampled.

    Use betting for sampling without replacement, for anytime bounds, and for fewer than BERNSTEIN_FROM labels.
    Otherwise use the empirical Bernstein bound of Maurer and Pontil (2009).
    """
    if high <= low:
        return high
    if N is None and not anytime and len(values) >= BERNSTEIN_FROM:
        return min(float(values.mean()) + bernstein_term(values, level, low, high), high)
    scaled = np.clip((values - low) / (high - low), 0.0, 1.0)
    n, bound = len(scaled), BettingBound(level)
    if N is None:
        return low + bound.add_all(scaled, np.ones(n), np.zeros(n)) * (high - low)
    left = (N - np.arange(n)) / N  # 1 / (N q) of a uniform draw from the remaining rows
    drawn = (np.cumsum(scaled) - scaled) / N
    return low + bound.add_all(scaled * left, left, drawn) * (high - low)


def rule_in_words(n: int, *, pool: bool, anytime: bool) -> str:
    """Return the name of the method that `bounded_upper` uses."""
    bernstein = not pool and not anytime and n >= BERNSTEIN_FROM
    return "empirical Bernstein" if bernstein else "betting"


# Jeffreys' prior: close to the best of several tested priors for error rates from 1 % to 15 % and 20 to 400 labels
_PRIOR = 0.5
_GRID = 256


class PoolErrors:
    """Bound on the number of errors among N rows, from uniform sampling without replacement."""

    def __init__(self, N: int, level: float) -> None:
        self.N = N
        self.least_evidence = -np.log1p(-level)
        self._seen = [(0, N)]  # errors, and the bound, after each label
        self._log_factorial: FloatArray = gammaln(np.arange(N + 1) + 1.0)
        M = np.arange(N + 1)
        counts = self._log_factorial[N] - self._log_factorial - self._log_factorial[::-1]
        self._log_prior: FloatArray = counts + betaln(M + _PRIOR, N - M + _PRIOR) - betaln(_PRIOR, _PRIOR)
        below = np.logaddexp.accumulate(self._log_prior)[:-1]
        self._log_prior_below: FloatArray = np.concatenate([[-np.inf], below])

    @property
    def upper(self) -> int:
        """The largest number of errors that is not rejected yet."""
        return self._seen[-1][1]

    def add(self, error: bool) -> int:
        """Add the outcome of the next row and return the new bound."""
        n, N = len(self._seen), self.N
        x = self._seen[-1][0] + int(error)
        M = np.arange(x, min(self.upper, N - (n - x)) + 1)
        possible = M[self.evidence(M, x, n) < self.least_evidence]
        # with probability at most 1 - level all numbers are rejected; then the bound is the observed number
        self._seen.append((x, int(possible[-1]) if len(possible) else x))
        return self.upper

    def cut(self, n: int) -> None:
        """Keep only the first n outcomes."""
        del self._seen[n + 1 :]

    def labels_needed(self, bad: int, n: int, x: int, rate: float) -> int | None:
        """Return the number of further labels until `bad` errors are rejected, if errors continue at this rate.

        The first n labels contain x errors. Return None if labeling every row would not reject `bad` errors.
        """
        low, high, step = -1, self.N - n, 16
        if bad <= x or high < 0:
            return None

        def reached(more: int) -> bool:
            return self.rejects(bad, x + int(rate * more + 1e-9), n + more)

        while step < high and not reached(step):
            low, step = step, 2 * step
        high = min(step, high)
        if not reached(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(middle) else (middle, high)
        return high

    def rejects(self, M: int, x: int, n: int) -> bool:
        """Return True if x errors in n draws reject M errors in total."""
        if x >= M:
            return False
        if n - x > self.N - M:
            return True  # more correct predictions than M errors allow
        return bool(self.evidence(np.arange(x, M + 1), x, n)[-1] >= self.least_evidence)

    def evidence(self, M: NDArray[np.intp], x: int, n: int) -> FloatArray:
        """Return log L_n at M = x, x + 1, ... errors in total, given x errors in n draws. It is −inf at M = x."""
        logs = self._log_factorial
        right = self.N - M
        likelihood = logs[M] - logs[M - x] + logs[right] - logs[right - (n - x)]
        mixed = np.logaddexp.accumulate(self._log_prior[M] + likelihood)[:-1]
        evidence = np.full(len(M), -np.inf)
        evidence[1:] = mixed - self._log_prior_below[M[1:]] - likelihood[1:]
        return evidence


def population_upper(errors: NDArray[np.bool_], level: float) -> FloatArray:
    """Return the bound (n,) on the error rate of a population after each of n independent draws, errors (n,)."""
    least = -np.log1p(-level)
    uppers, best, x = [], 1.0, 0
    for n, error in enumerate(errors, start=1):
        x += int(error)
        best = _largest_share(x, n, least, best)
        uppers.append(best)
    return np.array(uppers)


def _largest_share(x: int, n: int, least: float, upper: float) -> float:
    """Return the largest error rate up to `upper` with log L_n below `least`, by a grid and then bisection."""
    if _log_evidence(np.array([upper]), x, n)[0] < least:
        return upper
    shares = np.linspace(x / n, upper, _GRID)
    open_ones = np.flatnonzero(_log_evidence(shares, x, n) < least)
    if not len(open_ones):
        return x / n
    last = int(open_ones[-1])
    low, high = shares[last], shares[last + 1]
    for _ in range(40):
        middle = 0.5 * (low + high)
        if _log_evidence(np.array([middle]), x, n)[0] < least:
            low = middle
        else:
            high = middle
    return float(high)


def _log_evidence(shares: FloatArray, x: int, n: int) -> FloatArray:
    """Return log L_n at error rates in [0, 1], given x errors in n draws."""
    evidence = np.full(len(shares), -np.inf)
    inside = (shares > 0) & (shares < 1)
    p, a, b = shares[inside], x + _PRIOR, n - x + _PRIOR
    with np.errstate(divide="ignore"):
        mixed = np.log(betainc(a, b, p)) + betaln(a, b)
        below = np.log(betainc(_PRIOR, _PRIOR, p)) + betaln(_PRIOR, _PRIOR)
    evidence[inside] = mixed - below - x * np.log(p) - (n - x) * np.log1p(-p)
    if x < n:
        evidence[shares >= 1] = np.inf
    return evidence
