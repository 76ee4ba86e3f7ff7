"""Upper bounds that hold at every number of labels at once, so that one may look and stop at any time.

For each share of errors m, the labels seen so far are weighed under m against a mixture of all smaller shares:

    L_t(m) = Σ_{m' < m} π(m') P_{m'}(labels) / (π(m' < m) P_m(labels)),

π a beta–binomial prior with parameters 1/2, 1/2. Under m this is a martingale that starts at 1, so with probability at
least `level` it never reaches 1/(1 − level) (Ville): shares at which it has are rejected, and the largest one left is
the bound. This is the prior–posterior ratio of Waudby-Smith and Ramdas (2020) turned to one side, which is smaller
than the two-sided ratio throughout. A share once rejected stays so: the bound never grows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaln, gammaln

from surefoot._types import FloatArray

# Jeffreys' prior: near the best of those tried for errors from 1 % to 15 % and 20 to 400 labels
_PRIOR = 0.5
_GRID = 256


class PoolErrors:
    """Bound on the number of errors among N rows, drawn one by one, uniformly and without replacement."""

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
        """The largest number of errors that is not rejected."""
        return self._seen[-1][1]

    def add(self, error: bool) -> int:
        """Take the next row's outcome; the bound now."""
        n, N = len(self._seen), self.N
        x = self._seen[-1][0] + int(error)
        M = np.arange(x, min(self.upper, N - (n - x)) + 1)
        possible = M[self.evidence(M, x, n) < self.least_evidence]
        # none left has probability 1 - level at most: then the least number that the labels allow stays
        self._seen.append((x, int(possible[-1]) if len(possible) else x))
        return self.upper

    def cut(self, n: int) -> None:
        """Forget all outcomes but the first n."""
        del self._seen[n + 1 :]

    def labels_needed(self, bad: int, n: int, x: int, rate: float) -> int | None:
        """Labels after n, x of them errors, until `bad` errors are rejected, if errors go on at this rate.

        None if labeling every row would not reject them.
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
        """Whether x errors in n draws reject M errors in all."""
        if x >= M:
            return False
        if n - x > self.N - M:
            return True  # more right ones than there would be
        return bool(self.evidence(np.arange(x, M + 1), x, n)[-1] >= self.least_evidence)

    def evidence(self, M: NDArray[np.intp], x: int, n: int) -> FloatArray:
        """The logarithm of L_n at numbers of errors M = x, x + 1, ..., where n draws showed x; at x it is −inf."""
        logs = self._log_factorial
        right = self.N - M
        likelihood = logs[M] - logs[M - x] + logs[right] - logs[right - (n - x)]
        mixed = np.logaddexp.accumulate(self._log_prior[M] + likelihood)[:-1]
        evidence = np.full(len(M), -np.inf)
        evidence[1:] = mixed - self._log_prior_below[M[1:]] - likelihood[1:]
        return evidence


def population_upper(errors: NDArray[np.bool_], level: float) -> FloatArray:
    """(n,) the bound on the share of errors in a population after each of n independent draws, errors (n,) 0 or 1."""
    least = -np.log1p(-level)
    uppers, best, x = [], 1.0, 0
    for n, error in enumerate(errors, start=1):
        x += int(error)
        best = _largest_share(x, n, least, best)
        uppers.append(best)
    return np.array(uppers)


def _largest_share(x: int, n: int, least: float, upper: float) -> float:
    """The largest share up to `upper` with log L_n below `least`: the last on a grid, then between it and the next."""
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
    """The logarithm of L_n at shares of errors in [0, 1], x errors in n draws."""
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
