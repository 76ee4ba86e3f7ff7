"""The paper's Algorithm 1: stochastic subgradient steps on (θ, α, β, λ̄, λ) with projection, from zeros.

min over θ, α, λ̄, λ ≥ 0, β of   αε + Σ_i w_i β_i + Σ_k (λ̄_k p_hi_k − λ_k p_lo_k) + E_{x ~ P_X} Φ(x) + ½ θᵀRθ

Each step draws a batch of rows from P_X and moves against the subgradients of the paper's appendix ("Subgradients of
dual program"), by plain SGD or by Adam. With fixed losses the same steps solve the adversary's problem alone; with the
losses −1[x = x*] f(x, y) / φ̂(x) they are the paper's Algorithm 2 (`surefoot.paper.algorithm2`).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_positive_integer, check_positive_scalar
from surefoot.dual.models import DualPoint, FixedLosses, LinearModel
from surefoot.kernels.compiled import compiled
from surefoot.problem.sets import DecisionSet

# Rows are drawn, and the exact dual value is looked at, once in so many steps.
_BLOCK = 2000
_OPTIMIZERS = {"adam": 0.1, "sgd": 1.0}  # and their default step sizes


@dataclass(frozen=True)
class StochasticGradient:
    """Step settings of Algorithms 1 and 2: an instance is their parameter `steps`.

    Parameters
    ----------
    optimizer : {"adam", "sgd"}, default="adam"
        Adam with β₁ = 0.9, β₂ = 0.999 and 1e-8, or plain projected steps.
    learning_rate : float or None, default=None
        The first step size, γ in the paper, which does not name it; None is 0.1 for Adam and 1 for SGD. With features
        of largest absolute value 1, as in the paper, 0.05 to 0.2 served well.
    batch_size : int, default=100
        Rows of a step.
    n_steps : int, default=40_000
        How many steps.
    decay : float, default=8.0
        The step size is divided by this after every `decay_every` steps.
    decay_every : int, default=10_000
        Steps of one size.
    random_state : int or None, default=0
        Seed of the batches. A fixed one, so that the same data give the same result; None draws anew.

    Examples
    --------
    >>> from surefoot import paper
    >>> steps = paper.StochasticGradient(n_steps=1000, learning_rate=0.1)
    >>> clf = paper.StochasticRobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5], tol=0.01, steps=steps)
    >>> clf.fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9], [1.1]]).n_iter_
    1000
    """

    optimizer: str = "adam"
    learning_rate: float | None = None
    batch_size: int = 100
    n_steps: int = 40_000
    decay: float = 8.0
    decay_every: int = 10_000
    random_state: int | None = 0

    def __post_init__(self) -> None:
        if self.optimizer not in _OPTIMIZERS:
            raise ParameterError("optimizer", 'must be "adam" or "sgd"', repr(self.optimizer), "Pass one of these.")
        if self.learning_rate is not None:
            check_positive_scalar(self.learning_rate, "learning_rate")
        for name in ("batch_size", "n_steps", "decay_every"):
            check_positive_integer(getattr(self, name), name)
        if check_positive_scalar(self.decay, "decay") < 1:
            raise ParameterError(
                "decay", "must be at least 1, or steps would grow", repr(self.decay), "Pass a value such as 8."
            )
        seed = self.random_state
        if seed is not None and (not isinstance(seed, numbers.Integral) or isinstance(seed, bool) or seed < 0):
            raise ParameterError("random_state", "must be None or an integer >= 0", repr(seed), "Pass a seed.")

    def rates(self, start: int, stop: int) -> FloatArray:
        """Step sizes.

        Parameters
        ----------
        start : int
            The first step.
        stop : int
            The step after the last one.

        Returns
        -------
        array of shape (stop − start,)
            The size of each step.
        """
        first = _OPTIMIZERS[self.optimizer] if self.learning_rate is None else float(self.learning_rate)
        cuts = np.arange(start, stop) // self.decay_every
        return np.asarray(first / float(self.decay) ** cuts, dtype=np.float64)


@dataclass(frozen=True)
class StochasticSolution:
    """The last iterate of Algorithm 1, as in the paper; it keeps its problem.

    point : DualPoint, λ the net multiplier λ̄ − λ.
    lam_hi, lam_lo : (K,) the paper's λ̄ and λ.
    value : exact dual value over all rows, penalty included: an upper bound of the worst case at any iterate.
    steps, values : (b,) numbers of steps, and the exact dual values after them.
    """

    decision_set: DecisionSet
    model: LinearModel | FixedLosses
    point: DualPoint
    lam_hi: FloatArray
    lam_lo: FloatArray
    value: float
    steps: NDArray[np.int64]
    values: FloatArray


class UnboundedDualError(ValueError):
    """The dual value fell below the least loss there is: the decision set is empty.

    Over a distribution of a set that is not empty, the expected loss is at least the least loss, and no dual value lies
    below it (weak duality). So one such value proves the set empty, and with it every set of a radius below
    `least_radius`, a bound from below on the minimal radius.

    Parameters
    ----------
    radius : float
        The radius given.
    least_radius : float
        A bound from below on the minimal radius.
    value : float
        The dual value that proves it.
    step : int
        Steps taken until then.
    """

    def __init__(self, radius: float, least_radius: float, value: float, step: int) -> None:
        self.radius, self.least_radius = float(radius), float(least_radius)
        self.value, self.step = float(value), int(step)
        super().__init__(
            "radius must be at least the minimal radius of the data, or the dual is unbounded below; got "
            f"radius={self.radius!r}, where the dual value fell to {self.value!r} in {self.step} steps. The minimal "
            f"radius is {self.least_radius!r} or more: surefoot.minimal_radius computes it."
        )

    def __reduce__(self) -> tuple[type[UnboundedDualError], tuple[float, float, float, int]]:
        # The default would call the class with the message.
        return type(self), (self.radius, self.least_radius, self.value, self.step)


def run_algorithm1(
    decision_set: DecisionSet,
    model: LinearModel | FixedLosses,
    how: StochasticGradient | None = None,
    *,
    on_block: Callable[[int, float], None] | None = None,
) -> StochasticSolution:
    """Algorithm 1 on a decision set and a linear model, or on fixed losses.

    on_block gets the number of steps and the exact dual value after each block. Raises UnboundedDualError
    where such a value proves the set empty; sets whose radius is only little below the minimal one may pass unnoticed,
    since the steps shrink before the value has fallen far enough (`check_radius` knows).
    """
    how = StochasticGradient() if how is None else how
    steps = _Steps(decision_set, model, how)
    floor = float(model.matrix.min()) if isinstance(model, FixedLosses) else 0.0
    marks, values = [], []
    for start in range(0, how.n_steps, _BLOCK):
        stop = min(start + _BLOCK, how.n_steps)
        steps.take(start, stop)
        value, _ = steps.full_subgradient()
        marks.append(stop)
        values.append(value)
        if value < floor - 1e-9 * (1.0 + abs(floor)):
            alpha = max(steps.point.alpha, 1e-300)
            raise UnboundedDualError(decision_set.radius, decision_set.radius + (floor - value) / alpha, value, stop)
        if on_block is not None:
            on_block(stop, value)
    lam_hi, lam_lo = steps.multipliers
    return StochasticSolution(
        decision_set, model, steps.point, lam_hi, lam_lo, values[-1], np.array(marks), np.array(values)
    )


def dual_subgradient(
    decision_set: DecisionSet,
    model: LinearModel | FixedLosses,
    theta: FloatArray,
    alpha: float,
    beta: FloatArray,
    *lam: FloatArray,
) -> tuple[float, dict[str, FloatArray]]:
    """Return the dual value over all rows and its subgradient by variable; lam is (λ̄, λ).

    The same sums as in the steps of Algorithm 1, with all rows in place of a batch.
    """
    steps = _Steps(decision_set, model, StochasticGradient())
    steps.vector[:] = np.concatenate([np.ravel(theta), beta, [alpha], *lam])
    value, gradient = steps.full_subgradient()
    parts = np.split(gradient, steps.edges)
    names = ("theta", "beta", "alpha", "lam_hi", "lam_lo")
    found = dict(zip(names, parts, strict=True))
    return value, found | {"theta": found["theta"].reshape(model.shape)}


class _Steps:
    """The flat vector of all variables in the kernel's order, Adam's moments, and the rows drawn."""

    def __init__(self, ds: DecisionSet, model: LinearModel | FixedLosses, how: StochasticGradient):
        self.set, self.model, self.how = ds, model, how
        n, K = len(ds.anchor_weights), ds.n_classes
        sizes = [model.shape[0] * model.shape[1], n, 1, K, K]
        self.edges = np.cumsum(sizes)[:-1]
        self.vector, self.first, self.second = np.zeros((3, sum(sizes)))
        self.rng = np.random.default_rng(how.random_state)
        uniform = np.ptp(ds.row_weights) == 0
        self.cumulative = None if uniform else np.cumsum(ds.row_weights) / ds.row_weights.sum()
        N = len(ds.row_weights)
        if isinstance(model, LinearModel):
            X, L, penalty = np.ascontiguousarray(model.X), np.empty((0, K)), model.penalty
        else:
            X, L, penalty = np.empty((N, 0)), np.ascontiguousarray(model.matrix), np.empty(0)
        lo, hi = (np.ascontiguousarray(end) for end in ds.intervals.T)
        self.problem: tuple[Any, ...] = (
            ds.distances, X, L, penalty, ds.class_offsets, ds.present_label_cost, ds.anchor_weights, lo, hi, ds.radius,
        )  # fmt: skip

    def take(self, start: int, stop: int) -> None:
        """The steps from `start` to `stop`."""
        drawn, rates = self._draw(stop - start), self.how.rates(start, stop)
        adam = self.how.optimizer == "adam"
        stochastic_steps(self.problem, drawn, rates, start, adam, self.vector, self.first, self.second)

    def full_subgradient(self) -> tuple[float, FloatArray]:
        """The exact dual value over all rows, and a subgradient in the order of the vector."""
        rows = np.arange(len(self.set.row_weights))
        gradient, scratch = np.empty_like(self.vector), np.empty(len(self.set.anchor_weights))
        value = batch_subgradient(self.problem, rows, self.set.row_weights, self.vector, gradient, scratch)
        return float(value), gradient

    def _draw(self, count: int) -> NDArray[np.int64]:
        """Rows (count, batch_size) from P_X, with replacement."""
        shape, N = (count, self.how.batch_size), len(self.set.row_weights)
        if self.cumulative is None:
            return self.rng.integers(N, size=shape)
        return np.minimum(np.searchsorted(self.cumulative, self.rng.random(shape), side="right"), N - 1)

    @property
    def multipliers(self) -> tuple[FloatArray, FloatArray]:
        """λ̄ and λ."""
        lam_hi, lam_lo = np.split(self.vector, self.edges)[3:]
        return lam_hi.copy(), lam_lo.copy()

    @property
    def point(self) -> DualPoint:
        theta, beta, alpha, lam_hi, lam_lo = np.split(self.vector, self.edges)
        return DualPoint(theta.reshape(self.model.shape).copy(), float(alpha[0]), lam_hi - lam_lo, beta.copy())


def check_steps(steps: Any) -> StochasticGradient:
    """Step settings as given, or their defaults."""
    if steps is None:
        return StochasticGradient()
    if not isinstance(steps, StochasticGradient):
        raise ParameterError(
            "steps", "must be a StochasticGradient or None", repr(steps), "Pass StochasticGradient(...)."
        )
    return steps


# The steps are compiled by numba. The variables stand in one flat vector in the order θ (K−1, p), β (n,), α, λ̄ (K,),
# λ (K,): those that are projected on [0, ∞) are the last 2K + 1. Adam's constants are as in the paper's appendix.
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
_FAST = {"nnan", "ninf", "nsz", "contract", "arcp", "reassoc"}


@compiled(fastmath=_FAST)
# one long function: splitting it costs passes over memory
def batch_subgradient(  # type: ignore[no-untyped-def] # noqa: C901, PLR0912, PLR0915 # pragma: no cover (compiled)
    problem, rows, m, x, g, v
):
    """Write a subgradient of the dual at x, on rows (B,) of weights m (B,), into g; return the dual's value on them.

    problem = (D, X, L, penalty, offsets, kappa, w, lo, hi, radius): D (N, n) distances, anchors by class; kappa (K, C)
    and offsets (C+1,) of the classes that anchors carry; w (n,) anchor weights; lo, hi (K,) label intervals. Losses are
    those of the scores X θᵀ, X (N, p), or where X has no columns the matrix L (N, K). penalty (p,) is the diagonal of
    R. v (n,) is scratch. Among equal maxima the first counts.
    """
    D, X, L, penalty, offsets, kappa, w, lo, hi, radius = problem
    B, n = rows.shape[0], D.shape[1]
    K, C = kappa.shape
    p = X.shape[1]
    free = K - 1 if p > 0 else 0
    at_beta = free * p
    at_alpha = at_beta + n
    at_hi, at_lo = at_alpha + 1, at_alpha + 1 + K
    alpha = x[at_alpha]
    beta = x[at_beta:at_alpha]
    g_beta = g[at_beta:at_alpha]
    g[:at_beta] = 0.0
    value = alpha * radius
    for i in range(n):
        g_beta[i] = w[i]
        value += w[i] * beta[i]
    for k in range(K):
        g[at_hi + k] = hi[k]
        g[at_lo + k] = -lo[k]
        value += x[at_hi + k] * hi[k] - x[at_lo + k] * lo[k]
    least = np.empty(C)
    scores = np.zeros(K)
    losses = np.empty(K)
    moved, total = 0.0, 0.0
    for b in range(B):
        j, share = rows[b], m[b]
        d = D[j]
        for c in range(C):
            start, stop = offsets[c], offsets[c + 1]
            dc, bc, vc = d[start:stop], beta[start:stop], v[start:stop]
            for i in range(stop - start):
                vc[i] = alpha * dc[i] + bc[i]
            low = vc[0]  # as stored: it is looked for below
            for i in range(1, stop - start):
                low = min(low, vc[i])
            least[c] = low
        if p > 0:
            row = X[j]
            top = 0.0
            for k in range(1, K):
                t = 0.0
                theta = x[(k - 1) * p : k * p]
                for s in range(p):
                    t += theta[s] * row[s]
                scores[k] = t
                top = max(top, t)
            t = 0.0
            for k in range(K):
                t += math.exp(scores[k] - top)
            top += math.log(t)
            for k in range(K):
                losses[k] = top - scores[k]
        else:
            for k in range(K):
                losses[k] = L[j, k]
        best, label, slot = -np.inf, 0, 0
        for k in range(K):
            own = losses[k] - x[at_hi + k] + x[at_lo + k]
            for c in range(C):
                t = own - alpha * kappa[k, c] - least[c]
                if t > best:
                    best, label, slot = t, k, c
        anchor = offsets[slot]
        while v[anchor] > least[slot]:
            anchor += 1
        total += share * best
        moved += share * (d[anchor] + kappa[label, slot])
        g_beta[anchor] -= share
        g[at_hi + label] -= share
        g[at_lo + label] += share
        if p > 0:
            row = X[j]
            for k in range(1, K):
                t = share * (math.exp(-losses[k]) - (1.0 if k == label else 0.0))
                slope = g[(k - 1) * p : k * p]
                for s in range(p):
                    slope[s] += t * row[s]
    g[at_alpha] = radius - moved
    for s in range(p):
        # with K ≥ 3 classes the penalty is that of the coefficients centred over classes
        mean = 0.0
        for k in range(free):
            mean += x[k * p + s]
        mean *= 1.0 / K if K > 2 else 0.0
        for k in range(free):
            t = penalty[s] * (x[k * p + s] - mean)
            g[k * p + s] += t
            value += 0.5 * t * x[k * p + s]
    return value + total


@compiled()
def stochastic_steps(  # type: ignore[no-untyped-def] # pragma: no cover (compiled)
    problem, drawn, rates, first_step, adam, x, first, second
):
    """One step per line of drawn (S, B), of sizes rates (S,); x, and Adam's moments first and second, change in place.

    first_step counts the steps taken before. Everything else is as in `batch_subgradient`.
    """
    g = np.empty(x.shape[0])
    v = np.empty(problem[0].shape[1])
    m = np.full(drawn.shape[1], 1.0 / drawn.shape[1])
    projected = x.shape[0] - 2 * problem[5].shape[0] - 1
    for s in range(drawn.shape[0]):
        batch_subgradient(problem, drawn[s], m, x, g, v)
        if adam:
            step = first_step + s + 1
            unbias = math.sqrt(1.0 - BETA2**step)
            rate = rates[s] / (1.0 - BETA1**step) * unbias
            small = EPSILON * unbias
            for i in range(x.shape[0]):
                first[i] = BETA1 * first[i] + (1.0 - BETA1) * g[i]
                second[i] = BETA2 * second[i] + (1.0 - BETA2) * g[i] * g[i]
                x[i] -= rate * first[i] / (math.sqrt(second[i]) + small)
        else:
            for i in range(x.shape[0]):
                x[i] -= rates[s] * g[i]
        for i in range(projected, x.shape[0]):
            x[i] = max(x[i], 0.0)
