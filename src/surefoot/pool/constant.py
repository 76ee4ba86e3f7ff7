"""The same answer for every row: what could be said without any feature."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq, linprog
from scipy.stats import entropy

from surefoot._types import FloatArray
from surefoot.exact.judge import Member
from surefoot.priors import tighten


def constant_loss(intervals: FloatArray) -> float:
    """Worst log loss of the best constant answer: the largest entropy of label probabilities in the intervals (K, 2).

    min_q max_p −Σ p_k log q_k over p in the intervals.
    """
    return float(entropy(constant_answer(intervals)))


def constant_answer(intervals: FloatArray) -> FloatArray:
    """(K,) label probabilities of largest entropy in the intervals (K, 2): one level, clipped to each of them."""
    lo, hi = tighten(intervals).T
    level = float(brentq(lambda t: np.clip(t, lo, hi).sum() - 1.0, 0.0, 1.0)) if np.any(lo < hi) else 0.0
    return np.clip(level, lo, hi)


def auto_confidence(intervals: FloatArray) -> float:
    """Median confidence that the "auto" radius keeps: 2/5 of the way from the best constant answer's to 1.

    That is the paper's 0.7 for two classes of which nothing is known. With a class that is known to hold 70 % of the
    rows, a constant answer has confidence 0.7 at any radius.
    """
    least = float(constant_answer(intervals).max())
    return least + 0.4 * (1.0 - least)


def constant_error(intervals: FloatArray) -> float:
    """Worst share of errors of the best constant answer: that for the class whose share is largest at least."""
    return float(1.0 - tighten(intervals)[:, 0].max())


def worst_constant_error(members: Sequence[Member]) -> tuple[int, float]:
    """The class whose constant answer errs least in the worst case over a union of decision sets, and that share.

    Over one set the smallest share of a class k is a linear program in the labels that are turned into others: their
    cost is at most what the radius leaves when the features are moved.
    """
    shares = np.min([_smallest_shares(member) for member in members], axis=0)
    best = int(shares.argmax())
    return best, float(1.0 - shares[best])


def _smallest_shares(member: Member) -> FloatArray:
    """(K,) the smallest share that each class can have in a set."""
    ds = member.decision_set
    K, before = ds.n_classes, ds.label_frequencies
    budget = max(ds.radius - member.minimal.feature_part, member.minimal.label_part)
    into = np.kron(np.eye(K), np.ones(K))  # entry (k, c) of the turned shares, row by row: what becomes k
    out_of = np.kron(np.ones(K), np.eye(K))
    found = [
        linprog(
            into[k],
            A_ub=np.vstack([into, -into, ds.label_cost.ravel()]),
            b_ub=np.concatenate([ds.intervals[:, 1], -ds.intervals[:, 0], [budget + 1e-12]]),
            A_eq=out_of,
            b_eq=before,
        )
        for k in range(K)
    ]
    return np.array([one.fun if one.status == 0 else ds.intervals[k, 0] for k, one in enumerate(found)])
