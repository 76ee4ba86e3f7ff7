"""Sums over rows at a smoothing τ: what value, gradient and Hessian of the smoothed dual are made of.

Φ_j^τ, its first and its second derivatives are additive over rows: sums of chunks, groups and blocks just add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import iadd
from typing import TypeVar

import numpy as np
from scipy.linalg.blas import dsyrk

from surefoot._types import FloatArray
from surefoot.dual.models import Model
from surefoot.dual.point import DualPoint
from surefoot.problem.distances import Distances
from surefoot.problem.sets import DecisionSet

T = TypeVar("T")

# Above this share of stored weights BLAS on the dense chunk beats the sparse products (measured in benchmarks/).
DENSE_SHARE = 0.12
_CHUNK_ENTRIES = 1 << 18
# Threads work on groups of rows: so many at most, and none of fewer entries, distances and features, than this.
_MOST_GROUPS, _GROUP_ENTRIES = 8, 1 << 16


@dataclass
class RowSums:
    """Sums over rows at a smoothing τ: what value, gradient and Hessian are made of."""

    small: FloatArray  # Σ m φ, Σ m E c, Σ m Var c, Σ m entropy
    label: FloatArray  # (K,) Σ m q
    label_cost: FloatArray  # (K,) Σ m Cov(c, e_k)
    label_label: FloatArray  # (K, K) Σ m Cov(e_k, e_l)
    beta: FloatArray  # (n,) Σ m a
    alpha_beta: FloatArray  # (n,)
    label_beta: FloatArray  # (K, n)
    beta_beta: FloatArray  # (n, n) Σ m a aᵀ, its lower triangle at least
    theta: FloatArray  # (K−1, p) Σ m (p_k − q_k) x
    theta_alpha: FloatArray  # (K−1, p)
    theta_label: FloatArray  # (K−1, K, p)
    theta_theta: FloatArray  # (K−1, K−1, p, p)
    theta_beta: FloatArray  # (K−1, n, p)

    @classmethod
    def zeros(cls, K: int, n: int, theta_shape: tuple[int, int], second_order: bool) -> RowSums:
        free, p = theta_shape
        nn = n if second_order else 0
        pp = p if second_order else 0
        z = np.zeros
        return cls(
            z(4), z(K), z(K), z((K, K)), z(n), z(n), z((K, n)), z((nn, nn)), z((free, p)), z((free, pp)),
            z((free, K, pp)), z((free, free, pp, pp)), z((free, nn, pp)),
        )  # fmt: skip

    def __iadd__(self, other: RowSums) -> RowSums:
        for name, mine in vars(self).items():
            np.add(mine, getattr(other, name), out=mine)
        return self


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Rows of weights (N,) at distances (N, n) from the anchors of a decision set, and a model over them."""

    decision_set: DecisionSet
    distances: Distances
    weights: FloatArray
    model: Model

    def sums(
        self,
        point: DualPoint,
        tau: float,
        *,
        second_order: bool,
        executor: Executor | None = None,
        labels: FloatArray | None = None,
    ) -> RowSums:
        """Σ over all rows; the order of addition does not depend on the number of threads.

        labels : (N, K) where the labels of the softmax plan are to be stored, of which `theta_curvature` then makes
        what is left out here, Σ over pairs of features.
        """
        work = partial(self._group_sums, point=point, tau=tau, second_order=second_order, labels=labels)
        return self._total(work, executor)

    def theta_curvature(
        self,
        theta: FloatArray,
        tau: float,
        weights: FloatArray,
        labels: Sequence[FloatArray],
        executor: Executor | None = None,
    ) -> FloatArray:
        """(K−1, K−1, p, p), blocks [a, b ≥ a] valid: the block of θ for a mixture of sets, one product for all.

        weights : (S,) of the sets, summing to one; labels : (S) tables (N, K) of their softmax plans.
        """
        work = partial(self._group_curvature, theta=theta, tau=tau, weights=weights, labels=labels)
        return self._total(work, executor)

    def _total(self, work: Callable[[tuple[int, int]], T], executor: Executor | None) -> T:
        """Σ over groups of rows, in their order."""
        N, n = self.distances.shape
        groups = int(np.clip(N * (n + self.model.shape[1]) // _GROUP_ENTRIES, 1, _MOST_GROUPS))
        edges = np.linspace(0, N, groups + 1).astype(int).tolist()
        parts = map(work, pairwise(edges)) if executor is None else executor.map(work, pairwise(edges))
        total: T | None = None
        for part in parts:
            total = part if total is None else iadd(total, part)
        if total is None:
            raise ValueError("the decision set has no rows: give at least one labeled row")
        return total

    def _group_curvature(
        self,
        group: tuple[int, int],
        *,
        theta: FloatArray,
        tau: float,
        weights: FloatArray,
        labels: Sequence[FloatArray],
    ) -> FloatArray:
        rows = slice(*group)
        X, m = self.model.design(rows), self.weights[rows]
        p = np.exp(-self.model.losses(theta, rows))
        tables = [table[rows] for table in labels]
        free = p.shape[1] - 1
        total = np.zeros((free, free, X.shape[1], X.shape[1]))
        mean = sum(w * q for w, q in zip(weights, tables, strict=True))
        for k in range(1, free + 1):
            for other in range(k, free + 1):
                both = sum(w * q[:, k] * q[:, other] for w, q in zip(weights, tables, strict=True))
                same = float(k == other)
                weight = m * ((same * mean[:, k] - both) / tau + p[:, k] * (same - p[:, other]))
                if same:
                    Y = X * np.sqrt(np.maximum(weight, 0.0))[:, None]
                    total[k - 1, k - 1] = Y.T @ Y
                else:
                    total[k - 1, other - 1] = X.T @ (X * weight[:, None])
        return total

    def _group_sums(
        self,
        group: tuple[int, int],
        *,
        point: DualPoint,
        tau: float,
        second_order: bool,
        labels: FloatArray | None,
    ) -> RowSums:
        from surefoot.kernels.soft_rows import soft_rows

        ds, model = self.decision_set, self.model
        K, n = ds.n_classes, len(ds.anchor_weights)
        C = len(ds.class_offsets) - 1
        sums = RowSums.zeros(K, n, model.shape, second_order)
        B = min(int(np.clip(_CHUNK_ENTRIES // n, 32, 4096)), group[1] - group[0])
        phi, q, cck, s = np.empty(B), np.empty((B, K)), np.empty((B, K)), np.empty((B, K, C))
        A = np.empty((B, n))
        for start in range(group[0], group[1], B):
            rows = slice(start, min(start + B, group[1]))
            b = rows.stop - start
            m = self.weights[rows]
            losses = model.losses(point.theta, rows)
            stored = soft_rows(
                self.distances[rows], m, point.alpha, point.beta, ds.class_offsets, ds.present_label_cost,
                losses - point.lam, tau, A[:b], phi[:b], q[:b], cck[:b], s[:b], sums.beta, sums.alpha_beta,
                sums.label_beta, sums.small,
            )  # fmt: skip
            mq = m[:, None] * q[:b]
            sums.label += mq.sum(axis=0)
            sums.label_cost += m @ cck[:b]
            sums.label_label -= mq.T @ q[:b]
            if model.learns:
                X = model.design(rows)
                sums.theta += (m[:, None] * (np.exp(-losses) - q[:b]))[:, 1:].T @ X
                if second_order:
                    if labels is not None:
                        labels[rows] = q[:b]
                    _add_theta_blocks(sums, X, m, q[:b], np.exp(-losses), cck[:b], tau, alone=labels is None)
            if second_order:
                self._add_products(sums, A[:b], stored, m, s[:b], rows)
        sums.label_beta[0] = -sums.label_beta[1:].sum(axis=0)
        return sums

    def _add_products(
        self, sums: RowSums, A: FloatArray, stored: int, m: FloatArray, s: FloatArray, rows: slice
    ) -> None:
        """Σ m a aᵀ and Σ m s a xᵀ: by BLAS where most weights count, entry by entry where few do."""
        from surefoot.kernels.soft_rows import add_sparse_products

        ds, X = self.decision_set, self.model.design(rows)
        if stored < DENSE_SHARE * A.size:
            add_sparse_products(A, m, ds.anchor_slots, s, X, sums.beta_beta, sums.theta_beta)
            return
        for k in range(sums.theta_beta.shape[0]):
            for c, (lo, hi) in enumerate(pairwise(ds.class_offsets)):
                sums.theta_beta[k, lo:hi] += A[:, lo:hi].T @ (X * (m * s[:, k + 1, c])[:, None])
        A *= np.sqrt(m)[:, None]
        # in place, one triangle: the upper one in Fortran order is the lower one in C order
        dsyrk(1.0, A.T, beta=1.0, c=sums.beta_beta.T, overwrite_c=1)


def _add_theta_blocks(
    sums: RowSums,
    X: FloatArray,
    m: FloatArray,
    q: FloatArray,
    p: FloatArray,
    cck: FloatArray,
    tau: float,
    *,
    alone: bool,
) -> None:
    """The blocks of the Hessian that touch θ but not β: Cov over labels / τ, and the curvature of the loss itself.

    alone : with the block of θ itself.
    """
    free, K = sums.theta.shape[0], q.shape[1]
    sums.theta_alpha += (m[:, None] * cck[:, 1:]).T @ X
    for k in range(1, free + 1):
        cov = -q * q[:, [k]]
        cov[:, k] += q[:, k]
        sums.theta_label[k - 1] += (m[:, None] * cov).T @ X
        if not alone:
            continue
        weight = m * (cov[:, k] / tau + p[:, k] * (1.0 - p[:, k]))
        Y = X * np.sqrt(np.maximum(weight, 0.0))[:, None]
        sums.theta_theta[k - 1, k - 1] += Y.T @ Y
        for other in range(k + 1, K):
            weight = m * (cov[:, other] / tau - p[:, k] * p[:, other])
            sums.theta_theta[k - 1, other - 1] += X.T @ (X * weight[:, None])
