"""Compute sums over rows at a smoothing τ. Value, gradient and Hessian of the smoothed dual follow from these sums.

Φ_j^τ and its first and second derivatives are additive over rows, so sums over chunks, groups and blocks can be added.
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

from surefoot._validation import FloatArray
from surefoot.dual.bounds import soft_least
from surefoot.dual.models import NO_RESPONSE, DualPoint, KeptLosses, LinearModel, Model, Response
from surefoot.dual.shortlist import NEGLIGIBLE, Shortlist, ShortlistKeeper, make_shortlist
from surefoot.kernels.tiles import add_gram, least_factor, root_weights
from surefoot.problem.distances import Distances
from surefoot.problem.sets import DecisionSet

T = TypeVar("T")

# Above this share of stored weights, BLAS on the dense chunk is faster than sparse products (measured in benchmarks/).
DENSE_SHARE = 0.12
# The number of distances in a chunk, which fits into the cache.
_CHUNK_ENTRIES = 1 << 18
# Threads work on groups of rows. There are at most this many groups, each with at least this many entries (distances
# and features).
_MOST_GROUPS, _GROUP_ENTRIES = 8, 1 << 16
# With many anchors, or at least this many features, products in float32 take half as long. They use larger chunks.
MANY_ANCHORS, _FEWEST_ROUGH_FEATURES, _ROUGH_ENTRIES = 256, 64, 1 << 20
# In products over fewer rows than this, additions would dominate the time.
_FEWEST_PRODUCT_ROWS, _FEWEST_ROUGH_ROWS = 384, 1024
# Sums of second derivatives are large. Groups with fewer rows than this take longer to add than to compute. Over short
# lists of anchors, each row takes less time, so groups must be larger.
_FEWEST_ROWS, _FEWEST_LISTED_ROWS = 512, 4096


@dataclass
class RowSums:
    """Sums over rows at a smoothing τ. Value, gradient and Hessian follow from these sums."""

    small: FloatArray  # Σ m φ, Σ m E c, Σ m Var c, Σ m entropy
    label: FloatArray  # (K,) Σ m q
    label_cost: FloatArray  # (K,) Σ m Cov(c, e_k)
    label_label: FloatArray  # (K, K) Σ m Cov(e_k, e_l)
    beta: FloatArray  # (n,) Σ m a
    alpha_beta: FloatArray  # (n,)
    label_beta: FloatArray  # (K, n)
    beta_beta: FloatArray  # (n, n) Σ m a aᵀ, at least its lower triangle
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
    """Rows of weights (N,) at distances (N, n) from the anchors of a decision set, and a model over them.

    rough : products over many anchors, which occur in second derivatives only, may use float32. groups : the largest
    number of groups of rows for threads. kept : losses and probabilities at the last θ, reused for the next set or
    order of derivatives.
    """

    decision_set: DecisionSet
    distances: Distances
    weights: FloatArray
    model: Model
    rough: bool = False
    groups: int = _MOST_GROUPS
    kept: KeptLosses | None = None

    def sums(
        self,
        point: DualPoint,
        tau: float,
        *,
        second_order: bool,
        executor: Executor | None = None,
        labels: FloatArray | None = None,
        near: ListedAnchors | None = None,
    ) -> RowSums:
        """Sum over all rows. The order of addition does not depend on the number of threads.

        labels : (N, K) array that receives the labels of the softmax plan. The sum over pairs of features is then left
        to `theta_curvature`. near : the anchors of a short list, used instead of all anchors.
        """
        self._keep_losses(point.theta)
        work = partial(self._group_sums, near=near, point=point, tau=tau, second_order=second_order, labels=labels)
        fewest = 1 if not second_order else _FEWEST_ROWS if near is None else _FEWEST_LISTED_ROWS
        return self._total(work, executor, fewest)

    def kept_sums(
        self,
        lists: ShortlistKeeper,
        point: DualPoint,
        tau: float,
        *,
        second_order: bool,
        executor: Executor | None = None,
    ) -> RowSums:
        """Compute `sums` over short lists of anchors if they are faster. Make new lists if the lists are too old."""
        if second_order and lists.wants_new(self.distances.shape, tau):
            lists.keep(self.shortlist(point, tau, executor, lists.most_pairs), tau)
        near = None if lists.last is None else ListedAnchors(lists.last)
        sums = self.sums(point, tau, second_order=second_order, executor=executor, near=near)
        if near is not None:
            lists.failed = near.failed
        return sums

    def some_sums(
        self, lists: ShortlistKeeper, point: DualPoint, tau: float, executor: Executor | None = None
    ) -> RowSums | None:
        """Compute first-order sums over the last short lists, even if invalid. `lists.missed` counts failed rows."""
        if lists.last is None:
            return None
        near = ListedAnchors(lists.last, loose=True)
        sums = self.sums(point, tau, second_order=False, executor=executor, near=near)
        lists.missed = near.failed
        return sums

    def shortlist(
        self, point: DualPoint, tau: float, executor: Executor | None = None, most_pairs: float = np.inf
    ) -> Shortlist | None:
        """List the near anchors of each row and class, or return None if the list would be too long."""

        def gains(rows: slice) -> FloatArray:
            if self.model.responds:  # every label has a weight, so compare anchors for each label
                ds = self.decision_set
                least = soft_least(ds, self.distances[rows], point, 0.0)[:, None, :]
                return np.asarray((least + point.alpha * ds.present_label_cost).min(axis=2))
            return np.asarray(self.model.losses(point.theta, rows) - point.lam)

        return make_shortlist(self.decision_set, self.distances, gains, point, tau, executor, most_pairs)

    def theta_curvature(
        self,
        theta: FloatArray,
        tau: float,
        weights: FloatArray,
        labels: Sequence[FloatArray],
        executor: Executor | None = None,
    ) -> FloatArray:
        """Return the block of θ for a mixture of sets, (K−1, K−1, p, p), blocks [a, b ≥ a] valid, by one product.

        weights : (S,) of the sets, summing to one; labels : (S) tables (N, K) of their softmax plans.
        """
        self._keep_losses(theta)
        work = partial(self._group_curvature, theta=theta, tau=tau, weights=weights, labels=labels)
        return self._total(work, executor, _FEWEST_ROWS)

    def _total(self, work: Callable[[tuple[int, int]], T], executor: Executor | None, fewest: int) -> T:
        """Sum over groups of rows, in order. Each group has at least `fewest` rows, if there are enough rows."""
        N, n = self.distances.shape
        groups = int(np.clip(min(N * (n + self.model.shape[1]) // _GROUP_ENTRIES, N // fewest), 1, self.groups))
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
        _, p = self._losses(theta, rows)
        tables = [table[rows] for table in labels]
        free = p.shape[1] - 1
        total = np.zeros((free, free, X.shape[1], X.shape[1]))
        mean = sum(w * q for w, q in zip(weights, tables, strict=True))
        for k in range(1, free + 1):
            for other in range(k, free + 1):
                both = sum(w * q[:, k] * q[:, other] for w, q in zip(weights, tables, strict=True))
                same = float(k == other)
                weight = m * ((same * mean[:, k] - both) / tau + p[:, k] * (same - p[:, other]))
                # all weights have this sign: a product with its own transpose takes half as long
                sign = 1.0 if same else -1.0
                Y = X * np.sqrt(np.maximum(sign * weight, 0.0))[:, None]
                total[k - 1, other - 1] = sign * (Y.T @ Y)
        return total

    def _keep_losses(self, theta: FloatArray) -> None:
        """Compute the losses of all rows at once, before threads read them."""
        if self.kept is not None and self.model.learns:
            self.kept.losses_at(self.model, theta)

    def _losses(self, theta: FloatArray, rows: slice) -> tuple[FloatArray, FloatArray]:
        """Return losses (B, K) at some rows, and exp(−ℓ)."""
        if self.kept is not None and self.model.learns:
            losses, p = self.kept.losses_at(self.model, theta)
            return losses[rows], p[rows]
        losses = self.model.losses(theta, rows)
        return losses, np.exp(-losses)

    def _factor(self, rows: slice) -> FloatArray | None:
        """Return the factors (B,) of the losses at some rows, or None if all are 1."""
        within = self.model.within if isinstance(self.model, LinearModel) else None
        return None if within is None else within[rows]

    def _group_sums(
        self,
        group: tuple[int, int],
        *,
        near: ListedAnchors | None,
        point: DualPoint,
        tau: float,
        second_order: bool,
        labels: FloatArray | None,
    ) -> RowSums:
        ds, model = self.decision_set, self.model
        sums = RowSums.zeros(ds.n_classes, len(ds.anchor_weights), model.shape, second_order)
        per_row = len(ds.anchor_weights) if near is None else near.shortlist.mean_length
        rough = self.rough and second_order and near is None and len(ds.anchor_weights) >= MANY_ANCHORS
        entries = _ROUGH_ENTRIES if rough else _CHUNK_ENTRIES
        least = (_FEWEST_ROUGH_ROWS if rough else _FEWEST_PRODUCT_ROWS) if second_order and near is None else 32
        B = min(int(np.clip(entries // per_row, least, 4096)), group[1] - group[0])
        for start in range(group[0], group[1], B):
            rows = slice(start, min(start + B, group[1]))
            losses, p = self._losses(point.theta, rows)
            X, m, factor = model.design(rows), self.weights[rows], self._factor(rows)
            if factor is not None:  # the factors apply to losses and to their derivatives
                losses, X = factor[:, None] * losses, factor[:, None] * X
            response = model.response(tau)
            chunk = Chunk.from_rows(ds, X, m, losses - point.lam, rough, response)
            if near is None:
                add_products = chunk.soften(self.distances[rows], point, tau, sums, second_order)
            else:
                add_products = near.soften(chunk, rows, self.distances, point, tau, sums, second_order)
            q = chunk.q
            sums.label += m @ q
            if model.learns:
                sums.theta += (m[:, None] * (p - q))[:, 1:].T @ X
            if second_order:
                sums.label_cost += m @ chunk.cck
                # the kernel has added the covariances of a response
                sums.label_label -= np.diag(m @ q) if response.share else (m[:, None] * q).T @ q
                if labels is not None:
                    labels[rows] = q
                if model.learns:
                    many = model.shape[1] >= _FEWEST_ROUGH_FEATURES
                    features = X.astype(np.float32) if self.rough and many else X
                    # rows outside the group have no losses
                    at = slice(None) if factor is None else np.flatnonzero(factor)
                    bend = m if factor is None else m[at] / factor[at]
                    _add_theta_blocks(
                        sums, features[at], m[at], q[at], p[at], chunk.cck[at], bend, tau, alone=labels is None
                    )
                add_products()
        sums.label_beta[0] = -sums.label_beta[1:].sum(axis=0)
        return sums


@dataclass(frozen=True, eq=False)
class Chunk:
    """A chunk of rows of weights m (B,): design matrix X (B, p) and gains (B, K) = ℓ − λ.

    phi (B,), q (B, K), cck (B, K) and s (B, K, C) belong to the softmax plan. `soft_rows` writes these arrays, and also
    pairs (B, C, C) if there is a response. See `WeightedRows` for `rough`, and `soft_rows` for `response`.
    """

    decision_set: DecisionSet
    X: FloatArray
    m: FloatArray
    gains: FloatArray
    phi: FloatArray
    q: FloatArray
    cck: FloatArray
    s: FloatArray
    pairs: FloatArray
    rough: bool
    response: Response

    @classmethod
    def from_rows(
        cls,
        ds: DecisionSet,
        X: FloatArray,
        m: FloatArray,
        gains: FloatArray,
        rough: bool = False,
        response: Response = NO_RESPONSE,
    ) -> Chunk:
        (B, K), C = gains.shape, len(ds.class_offsets) - 1
        pairs, s = np.empty((B if response.share else 0, C, C)), np.empty((B, K, C))
        return cls(ds, X, m, gains, np.empty(B), np.empty((B, K)), np.empty((B, K)), s, pairs, rough, response)

    def soften(
        self, distances: FloatArray, point: DualPoint, tau: float, sums: RowSums, second_order: bool
    ) -> Callable[[], None]:
        """Add the softmax plan over all anchors to sums. Return a function that adds the products of its weights."""
        from surefoot.kernels.soft_rows import soft_rows

        ds, A = self.decision_set, np.empty(distances.shape)
        least = least_factor(np.float32 if self.rough else np.float64)
        stored = soft_rows(
            distances, self.m, point.alpha, point.beta, ds.class_offsets, ds.present_label_cost, self.gains, tau,
            *self.response, least, A, self.phi, self.q, self.cck, self.s, self.pairs, sums.beta, sums.alpha_beta,
            sums.label_beta, sums.label_label, sums.small, second_order,
        )  # fmt: skip
        return lambda: self._add_products(A, stored, sums)

    def _add_products(self, A: FloatArray, stored: int, sums: RowSums) -> None:
        """Add Σ m a aᵀ and Σ m s a xᵀ, by BLAS if most weights are stored, and entry by entry if few are."""
        from surefoot.kernels.soft_rows import add_sparse_products

        ds, X, m, s = self.decision_set, self.X, self.m, self.s
        if stored < DENSE_SHARE * A.size:
            add_sparse_products(A, m, ds.anchor_slots, s, self.pairs, X, sums.beta_beta, sums.theta_beta)
            return
        free, n, p = sums.theta_beta.shape
        if n <= s.shape[2] * p:
            weighted = (m[:, None, None] * s[:, 1:, ds.anchor_slots]) * A[:, None, :]
            sums.theta_beta += (weighted.reshape(len(m), free * n).T @ X).reshape(free, n, p)
        else:
            for k in range(free):
                for c, (lo, hi) in enumerate(pairwise(ds.class_offsets)):
                    sums.theta_beta[k, lo:hi] += A[:, lo:hi].T @ (X * (m * s[:, k + 1, c])[:, None])
        if self.response.share:
            self._add_pairs(A, sums.beta_beta)
            return
        A *= np.sqrt(m)[:, None]
        add_gram(A.astype(np.float32) if self.rough else A, sums.beta_beta)

    def _add_pairs(self, A: FloatArray, total: FloatArray) -> None:
        """Add Σ m · pairs · a aᵀ to the lower triangle of total (n, n), by pairs of classes."""
        kind, columns = np.float32 if self.rough else np.float64, self.decision_set.class_columns
        for c, (lo, hi) in enumerate(columns):
            for other, (start, stop) in enumerate(columns[: c + 1]):
                # a factor may overflow float32 where its weights are zero
                weighted = A[:, start:stop] * (self.m * self.pairs[:, c, other])[:, None]
                total[lo:hi, start:stop] += A[:, lo:hi].astype(kind, copy=False).T @ weighted.astype(kind, copy=False)


@dataclass(eq=False)
class ListedAnchors:
    """The softmax plan over the anchors of a short list. Rows whose list may be incomplete use all anchors.

    loose : True if no row uses all anchors, so that Φ may be too small. failed : the number of rows whose list may be
    incomplete.
    """

    shortlist: Shortlist
    loose: bool = False
    failed: int = 0

    def soften(
        self,
        chunk: Chunk,
        rows: slice,
        distances: Distances,
        point: DualPoint,
        tau: float,
        sums: RowSums,
        second_order: bool,
    ) -> Callable[[], None]:
        """Add the softmax plan over listed anchors to sums, like `Chunk.soften`."""
        from surefoot.kernels.soft_rows import add_listed_products, soft_listed

        near, fails = self.shortlist, np.zeros(len(chunk.m), dtype=bool)
        starts = near.starts_of(rows)
        a = np.empty(starts[-1] - starts[0])
        m = chunk.m.copy()
        soft_listed(
            starts, near.anchors, near.distances, near.beyond(rows, point), NEGLIGIBLE * tau, self.loose, fails, m,
            point.alpha, point.beta, chunk.decision_set.present_label_cost, chunk.gains, tau, *chunk.response, a,
            chunk.phi, chunk.q, chunk.cck, chunk.s, chunk.pairs, sums.beta, sums.alpha_beta, sums.label_beta,
            sums.label_label, sums.small, second_order,
        )  # fmt: skip
        again = np.flatnonzero(fails)
        self.failed += len(again)
        add_rest = None
        if len(again) and not self.loose:
            gains = chunk.gains[again] if not chunk.response.share else np.tile(-point.lam, (len(again), 1))
            rest = Chunk.from_rows(chunk.decision_set, chunk.X[again], chunk.m[again], gains, False, chunk.response)
            add_rest = rest.soften(distances[rows.start + again], point, tau, sums, second_order)
            for mine, theirs in ((chunk.phi, rest.phi), (chunk.q, rest.q), (chunk.cck, rest.cck), (chunk.s, rest.s)):
                mine[again] = theirs

        def add_products() -> None:
            add_listed_products(
                starts, near.anchors, a, m, chunk.s, chunk.pairs, chunk.X, sums.beta_beta, sums.theta_beta
            )
            if add_rest is not None:
                add_rest()

        return add_products


def _add_theta_blocks(
    sums: RowSums,
    X: FloatArray,
    m: FloatArray,
    q: FloatArray,
    p: FloatArray,
    cck: FloatArray,
    bend: FloatArray,
    tau: float,
    *,
    alone: bool,
) -> None:
    """Add the Hessian blocks that involve θ but not β: Cov over labels / τ, and the curvature of the loss itself.

    bend : (B,) weights of the curvature: m over the factor of the losses. X is multiplied by this factor. alone : also
    add the block of θ itself. Products have the precision of X.
    """
    free, K = sums.theta.shape[0], q.shape[1]
    sums.theta_alpha += (m[:, None] * cck[:, 1:]).T @ X
    for k in range(1, free + 1):
        cov = -q * q[:, [k]]
        cov[:, k] += q[:, k]
        sums.theta_label[k - 1] += (m[:, None] * cov).T @ X
        if not alone:
            continue
        Y = X * root_weights(m * cov[:, k] / tau + bend * p[:, k] * (1.0 - p[:, k]), X)
        sums.theta_theta[k - 1, k - 1] += Y.T @ Y
        for other in range(k + 1, K):
            # no weight is positive here: a product with its own transpose takes half as long
            Y = X * root_weights(bend * p[:, k] * p[:, other] - m * cov[:, other] / tau, X)
            sums.theta_theta[k - 1, other - 1] -= Y.T @ Y
