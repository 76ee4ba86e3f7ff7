"""Bound the recall of a rare class from uniform samples of the predicted negatives, and from samples weighted by score.

    python benchmarks/recall.py [--draws 40]

All ways prove a lower bound on the recall of the positive class with 90 % confidence from the same number of labels, by
bounds on the counts that share the confidence. A census labels the predicted negatives of the largest scores, as a
share of the labels fixed beforehand, and samples the others uniformly. With two strata, the tenth of the predicted
negatives with the largest scores gets half of their sample, and the confidence is shared by three bounds. Pools of
10,000 rows have probabilities of a logistic regression trained on 400 labels; "blind" shuffles those of the predicted
negatives.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from surefoot.bounds.metrics import RECALL, allocate, least, most, one_class_metric

LEVEL, N = 0.9, 10_000


class Pool:
    """Truth (N,), and the rows by prediction: `inside` positives, `outside` negatives with the largest score first."""

    def __init__(self, share: float, separation: float, blind: bool) -> None:
        X, y = make_classification(
            N + 2000, 20, n_informative=8, weights=[1 - share], class_sep=separation, flip_y=0.002, random_state=0
        )
        taught = N + np.r_[np.flatnonzero(y[N:] == 1)[:60], np.flatnonzero(y[N:] == 0)[:340]]
        p = LogisticRegression(max_iter=1000).fit(X[taught], y[taught]).predict_proba(X[:N])[:, 1]
        self.y, self.inside = y[:N], np.flatnonzero(p > 0.5)
        rest = np.flatnonzero(p <= 0.5)
        self.outside = (
            np.random.default_rng(0).permutation(rest) if blind else rest[np.argsort(-p[rest], kind="stable")]
        )

    @property
    def recall(self) -> float:
        return float(self.y[self.inside].sum() / self.y.sum())

    def hits(self, rows: NDArray[np.intp], n: int, rng: np.random.Generator) -> int:
        """Positives in a uniform sample of n of these rows."""
        return int(self.y[rng.choice(rows, n, replace=False)].sum())


def bound_with_census(pool: Pool, n: int, rng: np.random.Generator, census: float) -> float:
    """Label the first of the predicted negatives completely; `census` is their share of the n labels."""
    top, rest = pool.outside[: int(census * n)], pool.outside[int(census * n) :]
    value, half = one_class_metric(RECALL, len(pool.inside)), 1 - (1 - LEVEL) / 2
    k, m = allocate(value, n - len(top), len(pool.inside), len(rest), LEVEL)
    found = least(pool.hits(pool.inside, k, rng), k, len(pool.inside), half)
    missed = most(pool.hits(rest, m, rng), m, len(rest), half)
    return float(value(found, int(pool.y[top].sum()) + missed))


def bound_with_strata(pool: Pool, n: int, rng: np.random.Generator) -> float:
    """Sample the first tenth of the predicted negatives, and the others, with as many labels each."""
    cut, third = len(pool.outside) // 10, 1 - (1 - LEVEL) / 3
    value = one_class_metric(RECALL, len(pool.inside))
    k, m = allocate(value, n, len(pool.inside), len(pool.outside), LEVEL)
    first = min(m // 2, cut)
    parts = ((pool.outside[:cut], first), (pool.outside[cut:], m - first))
    missed = sum(most(pool.hits(part, size, rng), size, len(part), third) for part, size in parts)
    return float(value(least(pool.hits(pool.inside, k, rng), k, len(pool.inside), third), missed))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=40)
    draws = parser.parse_args().draws
    ways = {f"census {share:.0%}": partial(bound_with_census, census=share) for share in (0.0, 0.25, 0.5)}
    ways["two strata"] = bound_with_strata
    print("median bound (draws above the true recall)")
    print(f"{'share':>5} {'separation':>10} {'scores':>8} {'recall':>6} {'labels':>6}  " + "  ".join(ways))
    for share, separation, blind in [(0.05, 1.0, False), (0.05, 1.5, False), (0.02, 1.5, False), (0.05, 1.0, True)]:
        pool = Pool(share, separation, blind)
        for n in (300, 1000, 3000):
            cells = []
            for way in ways.values():
                found = np.array([way(pool, n, np.random.default_rng([seed, n])) for seed in range(draws)])
                cells.append(f"{np.median(found):.3f} ({int((found > pool.recall + 1e-9).sum())})")
            scores = "blind" if blind else "logistic"
            print(
                f"{share:5.2f} {separation:10.1f} {scores:>8} {pool.recall:6.3f} {n:6d}  " + "  ".join(cells),
                flush=True,
            )


if __name__ == "__main__":
    main()
