"""The smoothed dual objective of the robust problem, as sums over chunks of rows.

F_τ(θ, α, β, λ) = αε + Σ_i w_i β_i + Σ_k σ_τ(λ_k) + Σ_j m_j Φ_j^τ − μ log α + ½ θᵀRθ

Φ_j^τ is the max over labels and anchors replaced by τ·log-sum-exp; λ_k = λ̄_k − λ_k is the net label multiplier and σ_τ
the support function of its interval, smoothed by the log barrier on (λ̄_k, λ_k), μ = BARRIER·τ. Every derivative is
additive over rows.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk

from surefoot._types import FloatArray
from surefoot.dual.models import LinearModel, Model
from surefoot.problem.sets import DecisionSet

# Above this share of stored weights BLAS on the dense chunk beats the sparse products (measured in benchmarks/).
DENSE_SHARE = 0.12
_CHUNK_ENTRIES = 1 << 18
# The barrier on α and λ is this share of τ: it costs that share in the gap, and entropy, not the barrier, should set
# the gap.
BARRIER = 0.05


@dataclass(frozen=True)
class DualPoint:
    """A point (θ, α, β, λ): theta (K−1, p) against class 0 (or (0, 0) for fixed losses), beta (n,), lam (K,) net."""

    theta: FloatArray
    alpha: float
    lam: FloatArray
    beta: FloatArray


@dataclass(frozen=True)
class Layout:
    """Where θ, α, λ and β stand in the Newton vector; alpha_free is False for plain transport (α fixed)."""

    theta_shape: tuple[int, int]
    alpha_free: bool
    lam_free: NDArray[np.intp]
    n_anchors: int

    @property
    def theta(self) -> slice:
        return slice(0, self.theta_shape[0] * self.theta_shape[1])

    @property
    def alpha(self) -> slice:
        return slice(self.theta.stop, self.theta.stop + int(self.alpha_free))

    @property
    def lam(self) -> slice:
        return slice(self.alpha.stop, self.alpha.stop + len(self.lam_free))

    @property
    def beta(self) -> slice:
        return slice(self.lam.stop, self.lam.stop + self.n_anchors)

    @property
    def size(self) -> int:
        return self.beta.stop

    def reference_potentials(self, anchors: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Potentials of labels (K,), zero where no multiplier is free, and of anchors (n,): the same sums b_i + l_k."""
        shift = labels[0] if len(self.lam_free) == len(labels) - 1 else 0.0  # class 0 is then the reference
        fixed = np.zeros_like(labels)
        fixed[self.lam_free] = labels[self.lam_free] - shift
        return fixed, anchors + shift

    def pack(self, point: DualPoint) -> FloatArray:
        alpha = [point.alpha] if self.alpha_free else []
        return np.concatenate([point.theta.ravel(), alpha, point.lam[self.lam_free], point.beta])

    def unpack(self, vector: FloatArray, template: DualPoint) -> DualPoint:
        lam = template.lam.copy()
        lam[self.lam_free] = vector[self.lam]
        alpha = float(vector[self.alpha][0]) if self.alpha_free else template.alpha
        return DualPoint(vector[self.theta].reshape(self.theta_shape), alpha, lam, vector[self.beta].copy())


def free_label_multipliers(intervals: FloatArray) -> NDArray[np.intp]:
    """Classes that need a multiplier of their own: probabilities sum to one, so some constraints repeat others."""
    K = len(intervals)
    binding = (intervals[:, 0] > 0) | (intervals[:, 1] < 1)
    if not binding.any():
        return np.empty(0, dtype=np.intp)
    if K == 2 or np.all(intervals[:, 0] == intervals[:, 1]):
        return np.arange(1, K)
    return np.flatnonzero(binding)


def smoothed_support(
    intervals: FloatArray, lam: FloatArray, barrier: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """σ, σ' and σ'' at each net multiplier: min over λ̄ − λ = lam of λ̄ p_hi − λ p_lo − μ log λ̄ − μ log λ, μ the barrier.

    An exact probability (p_lo = p_hi) gives the linear function. σ' is the adversary's label probability, strictly
    inside.
    """
    lo, hi = intervals.T
    width = hi - lo
    exact = width <= 0
    half = 2.0 * barrier / np.where(exact, 1.0, width)
    root = np.hypot(lam, half)
    far, near = root + np.abs(lam), half * half / (root + np.abs(lam))  # root ± lam without cancellation
    upper = 0.5 * (np.where(lam >= 0, far, near) + half)
    lower = 0.5 * (np.where(lam >= 0, near, far) + half)
    value = np.where(exact, lam * hi, upper * hi - lower * lo - barrier * (np.log(upper) + np.log(lower)))
    slope = np.where(exact, hi, np.where(lam >= 0, hi - barrier / upper, lo + barrier / lower))
    curvature = np.where(exact, 0.0, barrier / upper**2 * 0.5 * np.where(lam >= 0, far, near) / root)
    return value, slope, curvature


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


class SmoothedDual:
    """F_τ of one decision set and one model, evaluated over groups of rows (by threads, where an executor is given).

    `minimal_radius` and `room` widen the set while τ is large, see `radius`; `potentials` (b, l) of the minimal radius
    give Newton's method the direction in which α can grow without a change of plan, see `ray`.
    """

    def __init__(
        self,
        decision_set: DecisionSet,
        model: Model,
        *,
        minimal_radius: float = 0.0,
        potentials: tuple[FloatArray, FloatArray] | None = None,
        room: float = 0.0,
        alpha_free: bool = True,
        executor: Executor | None = None,
    ):
        self.set = decision_set
        self._minimal_radius, self._room = minimal_radius, room
        self.model = model
        self.layout = Layout(
            model.shape, alpha_free, free_label_multipliers(decision_set.intervals), len(decision_set.anchor_weights)
        )
        self.ray = self._ray(potentials)
        self._executor = executor
        N, n = decision_set.distances.shape
        groups = int(np.clip(2 * (N // (3 * n)), 2 if N >= 512 else 1, 8))
        edges = np.linspace(0, N, groups + 1).astype(int)
        self._groups = [(int(a), int(b)) for a, b in pairwise(edges)]
        self._chunk = int(np.clip(_CHUNK_ENTRIES // n, 32, 4096))

    @property
    def barrier_count(self) -> int:
        """Number of log barriers in F_τ: on α, and on both multipliers of every interval that is not a point."""
        open_intervals = self.set.intervals[self.layout.lam_free]
        return int(self.layout.alpha_free) + 2 * int(np.sum(open_intervals[:, 0] < open_intervals[:, 1]))

    def _ray(self, potentials: tuple[FloatArray, FloatArray] | None) -> FloatArray:
        """Direction (α, λ, β) = (1, l, b), where only the weight of costs reduced by the potentials (b, l) changes."""
        ray = np.zeros(self.layout.size)
        if potentials is not None and self.layout.alpha_free:
            labels, ray[self.layout.beta] = self.layout.reference_potentials(*potentials)
            ray[self.layout.lam] = labels[self.layout.lam_free]
        ray[self.layout.alpha] = 1.0
        return ray

    def radius(self, tau: float) -> float:
        """Radius used at smoothing τ: at least the minimal one plus room·τ.

        A softmax plan costs more than the cheapest plan. Held to a radius close to the minimal one at a large τ, it
        could only comply by an α without bound, from which the path would have to come back.
        """
        return max(self.set.radius, self._minimal_radius + self._room * tau)

    def row_sums(self, point: DualPoint, tau: float, *, second_order: bool) -> RowSums:
        """Σ over all rows; the order of addition does not depend on the number of threads."""
        work = partial(self._group_sums, point=point, tau=tau, second_order=second_order)
        parts = map(work, self._groups) if self._executor is None else self._executor.map(work, self._groups)
        total: RowSums | None = None
        for part in parts:
            total = part if total is None else total.__iadd__(part)
        if total is None:
            raise ValueError("the decision set has no rows: give at least one labeled row")
        return total

    def _group_sums(self, group: tuple[int, int], *, point: DualPoint, tau: float, second_order: bool) -> RowSums:
        from surefoot.kernels.soft_rows import soft_rows

        K, n = len(self.set.label_cost), len(self.set.anchor_weights)
        C = len(self.set.class_offsets) - 1
        sums = RowSums.zeros(K, n, self.model.shape, second_order)
        B = min(self._chunk, group[1] - group[0])
        phi, q, cck, s = np.empty(B), np.empty((B, K)), np.empty((B, K)), np.empty((B, K, C))
        A = np.empty((B, n))
        offsets, label_cost = self.set.class_offsets, self.set.present_label_cost
        for start in range(group[0], group[1], B):
            rows = slice(start, min(start + B, group[1]))
            b = rows.stop - start
            m = self.set.row_weights[rows]
            losses = self.model.losses(point.theta, rows)
            stored = soft_rows(
                self.set.distances[rows], m, point.alpha, point.beta, offsets, label_cost, losses - point.lam, tau,
                A[:b], phi[:b], q[:b], cck[:b], s[:b], sums.beta, sums.alpha_beta, sums.label_beta, sums.small,
            )  # fmt: skip
            mq = m[:, None] * q[:b]
            sums.label += mq.sum(axis=0)
            sums.label_cost += m @ cck[:b]
            sums.label_label -= mq.T @ q[:b]
            if isinstance(self.model, LinearModel):
                X = self.model.X[rows]
                sums.theta += (m[:, None] * (np.exp(-losses) - q[:b]))[:, 1:].T @ X
                if second_order:
                    _add_theta_blocks(sums, X, m, q[:b], np.exp(-losses), cck[:b], tau)
            if second_order:
                self._add_products(sums, A[:b], stored, m, s[:b], rows)
        sums.label_beta[0] = -sums.label_beta[1:].sum(axis=0)
        return sums

    def _add_products(
        self, sums: RowSums, A: FloatArray, stored: int, m: FloatArray, s: FloatArray, rows: slice
    ) -> None:
        """Σ m a aᵀ and Σ m s a xᵀ: by BLAS where most weights count, entry by entry where few do."""
        from surefoot.kernels.soft_rows import add_sparse_products

        X = self.model.X[rows] if isinstance(self.model, LinearModel) else np.empty((len(A), 0))
        if stored < DENSE_SHARE * A.size:
            add_sparse_products(A, m, self.set.anchor_slots, s, X, sums.beta_beta, sums.theta_beta)
            return
        for k in range(sums.theta_beta.shape[0]):
            for c, (lo, hi) in enumerate(pairwise(self.set.class_offsets)):
                sums.theta_beta[k, lo:hi] += A[:, lo:hi].T @ (X * (m * s[:, k + 1, c])[:, None])
        A *= np.sqrt(m)[:, None]
        # in place, one triangle: the upper one in Fortran order is the lower one in C order
        dsyrk(1.0, A.T, beta=1.0, c=sums.beta_beta.T, overwrite_c=1)

    def solve_positive(self, matrix: FloatArray, right: FloatArray) -> FloatArray:
        """Solution x of matrix · x = right, by Cholesky from the lower triangle, which is overwritten.

        Raises LinAlgError where the matrix is not positive definite.
        """
        # the lower triangle in C order is the upper one in Fortran order: LAPACK then works without a copy
        factor = cho_factor(matrix.T, lower=False, overwrite_a=True, check_finite=False)
        return cast("FloatArray", cho_solve(factor, right, check_finite=False))

    def evaluate(self, point: DualPoint, tau: float, *, second_order: bool) -> Evaluation:
        """Value, gradient (p,) and, if asked, Hessian (p, p) of F_τ in the layout's coordinates."""
        sums = self.row_sums(point, tau, second_order=second_order)
        return Evaluation.assemble(self, point, tau, sums, second_order)


def _add_theta_blocks(
    sums: RowSums, X: FloatArray, m: FloatArray, q: FloatArray, p: FloatArray, cck: FloatArray, tau: float
) -> None:
    """The blocks of the Hessian that touch θ but not β: Cov over labels / τ, and the curvature of the loss itself."""
    free, K = sums.theta.shape[0], q.shape[1]
    sums.theta_alpha += (m[:, None] * cck[:, 1:]).T @ X
    for k in range(1, free + 1):
        cov = -q * q[:, [k]]
        cov[:, k] += q[:, k]
        sums.theta_label[k - 1] += (m[:, None] * cov).T @ X
        weight = m * (cov[:, k] / tau + p[:, k] * (1.0 - p[:, k]))
        Y = X * np.sqrt(np.maximum(weight, 0.0))[:, None]
        sums.theta_theta[k - 1, k - 1] += Y.T @ Y
        for other in range(k + 1, K):
            weight = m * (cov[:, other] / tau - p[:, k] * p[:, other])
            sums.theta_theta[k - 1, other - 1] += X.T @ (X * weight[:, None])


@dataclass(frozen=True)
class Evaluation:
    """F_τ at a point: value, gradient, Hessian (lower triangle valid), and the mean entropy of the adversary's plan.

    `natural` is the size of the terms that cancel in each diagonal entry of the Hessian, so the size of its rounding
    error.
    """

    value: float
    gradient: FloatArray
    hessian: FloatArray | None
    entropy: float
    natural: FloatArray

    @classmethod
    def assemble(
        cls, dual: SmoothedDual, point: DualPoint, tau: float, sums: RowSums, second_order: bool
    ) -> Evaluation:
        at, ds = dual.layout, dual.set
        sigma, slope, curvature = smoothed_support(ds.intervals, point.lam, BARRIER * tau)
        free = at.lam_free
        value = point.alpha * dual.radius(tau) + ds.anchor_weights @ point.beta + sigma[free].sum() + sums.small[0]
        value += dual.model.penalty_value(point.theta) - (BARRIER * tau * np.log(point.alpha) if at.alpha_free else 0.0)
        gradient = np.empty(at.size)
        if isinstance(dual.model, LinearModel):
            gradient[at.theta] = (sums.theta + dual.model.penalty_gradient(point.theta)).ravel()
        if at.alpha_free:
            gradient[at.alpha] = dual.radius(tau) - sums.small[1] - BARRIER * tau / point.alpha
        gradient[at.lam] = slope[free] - sums.label[free]
        gradient[at.beta] = ds.anchor_weights - sums.beta
        natural = np.full(at.size, 1e-2)
        natural[at.theta] = 1e-4
        natural[at.alpha] = 1e-2 * (sums.small[1] - dual._minimal_radius) ** 2 + 1e-12 * sums.small[1] ** 2
        natural[at.beta] = ds.anchor_weights
        hessian = cls._hessian(dual, point, tau, sums, curvature) if second_order else None
        return cls(float(value), gradient, hessian, float(sums.small[3]), natural / tau)

    @staticmethod
    def _hessian(dual: SmoothedDual, point: DualPoint, tau: float, sums: RowSums, curvature: FloatArray) -> FloatArray:
        at = dual.layout
        free = at.lam_free
        H = np.zeros((at.size, at.size))
        np.divide(sums.beta_beta, -tau, out=H[at.beta, at.beta])
        H[at.beta, at.beta][np.diag_indices(at.n_anchors)] += sums.beta / tau
        H[at.beta, at.lam] = sums.label_beta[free].T / tau
        label_label = sums.label_label + np.diag(sums.label)
        H[at.lam, at.lam] = label_label[np.ix_(free, free)] / tau + np.diag(curvature[free])
        if at.alpha_free:
            H[at.beta, at.alpha] = sums.alpha_beta[:, None] / tau
            H[at.lam, at.alpha] = sums.label_cost[free][:, None] / tau
            H[at.alpha, at.alpha] = sums.small[2] / tau + BARRIER * tau / point.alpha**2
        if isinstance(dual.model, LinearModel):
            k, p = at.theta_shape
            H[at.beta, at.theta] = sums.theta_beta.transpose(1, 0, 2).reshape(-1, k * p) / tau
            H[at.lam, at.theta] = sums.theta_label.transpose(1, 0, 2)[free].reshape(len(free), k * p) / tau
            if at.alpha_free:
                H[at.alpha, at.theta] = sums.theta_alpha.ravel() / tau
            coupling = dual.model.penalty_coupling()
            blocks = sums.theta_theta + coupling[:, :, None, None] * np.diag(dual.model.penalty)
            for a in range(k):
                for b in range(a + 1):
                    H[a * p : (a + 1) * p, b * p : (b + 1) * p] = blocks[b, a].T
        return H
