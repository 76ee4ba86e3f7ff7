"""The paper's Algorithm 1 in plain numpy, the reference for the speed of the exact solver.

Adam minimizes the dual over (θ, α, β, λ̄, λ) at the true radius, on batches of rows sampled from P_X with replacement.
The settings are those of the paper's appendix: β₁ = 0.9, β₂ = 0.999, ε = 1e-8, batch 100, and the learning rate divided
by 8 every 10,000 steps. The distance matrix is given. Each step is a few vectorized calls on preallocated arrays, and a
thousand batches are sampled at a time. The maximum over labels and anchors runs over all pairs, as printed. With
`separate=True` it runs class by class, as in our kernel, and a step costs B·n instead of B·n·K.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.problem.sets import DecisionSet

Array = NDArray[np.float64]
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
DECAY, DECAY_EVERY = 8.0, 10_000
LEARNING_RATES = (5e-1, 2e-1, 1e-1, 3e-2, 1e-2, 3e-3)
_BLOCK = 1000
_CHUNK_ENTRIES = 1 << 20


class DualVariables(NamedTuple):
    """theta (K−1, p) against class 0, alpha, beta (n,), lam_hi (K,) and lam_lo (K,), the paper's λ̄ and λ."""

    theta: Array
    alpha: float
    beta: Array
    lam_hi: Array
    lam_lo: Array


class _Views:
    """Parts of one flat vector in the order θ, β, α, λ̄, λ. The parts that are projected on [0, ∞) are at the end."""

    def __init__(self, vector: Array, theta_shape: tuple[int, int], n: int, K: int):
        edges = np.cumsum([theta_shape[0] * theta_shape[1], n, 1, K, K])
        theta, self.beta, self.alpha, self.lam_hi, self.lam_lo = np.split(vector, edges[:-1])
        self.theta = theta.reshape(theta_shape)
        self.non_negative = vector[edges[1] :]


class _Subgradient:
    """Subgradients of the dual on a batch of rows (paper, appendix "Subgradients of dual program")."""

    def __init__(self, decision_set: DecisionSet, X: Array, batch: int, separate: bool):
        self.set, self.X, self.batch, self.separate = decision_set, X, batch, separate
        self.K, self.C = decision_set.present_label_cost.shape
        self.kappa = decision_set.present_label_cost.ravel()
        self.pair_cost = decision_set.label_cost[:, decision_set.anchor_labels]  # (K, n)
        offsets = decision_set.class_offsets
        self.classes = list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
        self.lo, self.hi = decision_set.intervals.T
        n = len(decision_set.anchor_weights)
        self.rows = np.arange(batch)
        self.costs = np.empty((batch, n))
        self.X_batch = np.empty((batch, X.shape[1]))
        self.scores = np.zeros((batch, self.K))
        self.nearest = np.empty((batch, self.C), dtype=np.intp)
        self.least = np.empty((batch, self.C))

    def write(self, out: _Views, at: _Views, drawn: NDArray[np.intp]) -> None:
        """Write the subgradient at a point, for the rows drawn, into out."""
        alpha, B = float(at.alpha[0]), self.batch
        np.take(self.set.distances, drawn, axis=0, out=self.costs, mode="clip")
        np.take(self.X, drawn, axis=0, out=self.X_batch, mode="clip")
        self.costs *= alpha
        self.costs += at.beta
        np.matmul(self.X_batch, at.theta.T, out=self.scores[:, 1:])
        losses = np.logaddexp.reduce(self.scores, axis=1)[:, None] - self.scores
        choose = self._choose_by_class if self.separate else self._choose
        label, anchor = choose(losses - (at.lam_hi - at.lam_lo), alpha)  # V^{ik} of each row
        shares = np.bincount(label, minlength=self.K) / B
        np.subtract(self.set.anchor_weights, np.bincount(anchor, minlength=len(at.beta)) / B, out=out.beta)
        moved = self.set.distances[drawn, anchor].sum()
        moved += self.set.label_cost[label, self.set.anchor_labels[anchor]].sum()
        out.alpha[0] = self.set.radius - moved / B
        np.subtract(self.hi, shares, out=out.lam_hi)
        np.subtract(shares, self.lo, out=out.lam_lo)
        residual = np.exp(-losses)
        residual[self.rows, label] -= 1.0
        np.matmul(residual[:, 1:].T, self.X_batch, out=out.theta)
        out.theta /= B

    def _choose(self, gains: Array, alpha: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Argmax over all (k, i) of Φ^{ik}. The array of all values is formed, as printed."""
        values = (gains[:, :, None] - alpha * self.pair_cost) - self.costs[:, None, :]
        return np.divmod(values.reshape(self.batch, -1).argmax(axis=1), self.costs.shape[1])

    def _choose_by_class(self, gains: Array, alpha: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The same argmax, by the smallest cost within each class of anchors first."""
        for c, (start, stop) in enumerate(self.classes):
            nearest = self.costs[:, start:stop].argmin(axis=1)
            nearest += start
            self.nearest[:, c] = nearest
            self.least[:, c] = self.costs[self.rows, nearest]
        flat = (gains[:, :, None] - self.least[:, None, :]).reshape(self.batch, -1)
        flat -= alpha * self.kappa
        label, slot = np.divmod(flat.argmax(axis=1), self.C)
        return label, self.nearest[self.rows, slot]


def run_algorithm1(
    decision_set: DecisionSet,
    X: Array,
    *,
    learning_rate: float,
    steps: int = 40_000,
    batch: int = 100,
    seed: int = 0,
    separate: bool = False,
) -> DualVariables:
    """Algorithm 1 from zeros, on a decision set and the rows X (N, p) with their intercept column.

    Unpacks as (theta, alpha, beta, lam_hi, lam_lo), the last iterate, as in the paper. The value it reaches is
    `dual_value(decision_set, X, *result)`.
    """
    K, n = decision_set.n_classes, len(decision_set.anchor_weights)
    shape = (K - 1, X.shape[1])
    size = shape[0] * shape[1] + n + 1 + 2 * K
    point, gradient, first, second, work = np.zeros((5, size))
    at, out = _Views(point, shape, n, K), _Views(gradient, shape, n, K)
    subgradient = _Subgradient(decision_set, np.ascontiguousarray(X), batch, separate)
    for step, drawn in enumerate(_batches(decision_set.row_weights, steps, batch, seed)):
        subgradient.write(out, at, drawn)
        rate = learning_rate / DECAY ** (step // DECAY_EVERY)
        first *= BETA1
        np.multiply(gradient, 1.0 - BETA1, out=work)
        first += work
        second *= BETA2
        gradient *= gradient
        gradient *= 1.0 - BETA2
        second += gradient
        np.sqrt(second, out=work)
        work /= (1.0 - BETA2 ** (step + 1)) ** 0.5
        work += EPSILON
        np.divide(first, work, out=work)
        work *= rate / (1.0 - BETA1 ** (step + 1))
        point -= work
        np.maximum(at.non_negative, 0.0, out=at.non_negative)
    return DualVariables(
        at.theta.copy(), float(at.alpha[0]), at.beta.copy(), at.lam_hi.copy(), at.lam_lo.copy()
    )  # fmt: skip


def dual_value(
    decision_set: DecisionSet, X: Array, theta: Array, alpha: float, beta: Array, lam_hi: Array, lam_lo: Array
) -> float:
    """Exact value of the dual over all rows: an upper bound on the worst case of θ, at any α, β, λ̄, λ."""
    ds = decision_set
    lo, hi = ds.intervals.T
    starts = ds.class_offsets[:-1]
    value = alpha * ds.radius + ds.anchor_weights @ beta + lam_hi @ hi - lam_lo @ lo
    B = max(1, _CHUNK_ENTRIES // len(beta))
    for start in range(0, len(X), B):
        rows = slice(start, start + B)
        least = np.minimum.reduceat(alpha * ds.distances[rows] + beta, starts, axis=1)
        costs = (least[:, None, :] + alpha * ds.present_label_cost).min(axis=2)
        scores = np.pad(X[rows] @ theta.T, ((0, 0), (1, 0)))
        losses = np.logaddexp.reduce(scores, axis=1)[:, None] - scores
        value += ds.row_weights[rows] @ (losses - costs - (lam_hi - lam_lo)).max(axis=1)
    return float(value)


def best_learning_rate(
    decision_set: DecisionSet,
    X: Array,
    *,
    rates: Sequence[float] = LEARNING_RATES,
    steps: int = 40_000,
    batch: int = 100,
    seed: int = 0,
) -> tuple[float, dict[float, float]]:
    """The rate whose last iterate has the smallest exact dual value, and the values of all rates. It is not timed."""
    values = {}
    for rate in rates:
        found = run_algorithm1(decision_set, X, learning_rate=rate, steps=steps, batch=batch, seed=seed, separate=True)
        values[rate] = dual_value(decision_set, X, *found)
    return min(values, key=values.__getitem__), values


def _batches(row_weights: Array, steps: int, batch: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Rows drawn from P_X with replacement, a batch at a time."""
    rng = np.random.default_rng(seed)
    N = len(row_weights)
    cumulative = None if np.ptp(row_weights) == 0 else np.cumsum(row_weights) / np.sum(row_weights)
    for start in range(0, steps, _BLOCK):
        shape = (min(_BLOCK, steps - start), batch)
        if cumulative is None:
            yield from rng.integers(N, size=shape)
        else:
            yield from np.minimum(np.searchsorted(cumulative, rng.random(shape), side="right"), N - 1)
