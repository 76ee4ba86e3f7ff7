"""The smoothed dual objective of the robust problem, computed from sums over rows.

F_τ(θ, α, β, λ) = αε + Σ_i w_i β_i + Σ_k σ_τ(λ_k) + Σ_j m_j Φ_j^τ − μ log α + ½ θᵀRθ

Φ_j^τ is the maximum over labels and anchors, replaced by τ·log-sum-exp. λ_k = λ̄_k − λ_k is the net label multiplier.
σ_τ is the support function of its interval, smoothed by the log barrier on (λ̄_k, λ_k), and μ = BARRIER·τ. Every
derivative is additive over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.dual.block import DualProblem
from surefoot.dual.models import DualPoint, LinearModel, Model
from surefoot.dual.row_store import InMemoryRows, RowStore
from surefoot.dual.row_sums import RowSums
from surefoot.kernels.arrays import arrays_of
from surefoot.problem.sets import DecisionSet

# The barrier on α and λ is this share of τ. It adds the same share to the gap, and entropy should dominate the gap.
BARRIER = 0.05


@dataclass(frozen=True)
class Layout:
    """Positions of θ, α, λ and β in the Newton vector. alpha_free : False for plain transport, where α is fixed."""

    theta_shape: tuple[int, int]
    alpha_free: bool
    lam_free: NDArray[np.intp]
    n_anchors: int

    @cached_property
    def theta(self) -> slice:
        return slice(0, self.theta_shape[0] * self.theta_shape[1])

    @cached_property
    def alpha(self) -> slice:
        return slice(self.theta.stop, self.theta.stop + int(self.alpha_free))

    @cached_property
    def lam(self) -> slice:
        return slice(self.alpha.stop, self.alpha.stop + len(self.lam_free))

    @cached_property
    def beta(self) -> slice:
        return slice(self.lam.stop, self.lam.stop + self.n_anchors)

    @cached_property
    def size(self) -> int:
        return self.beta.stop

    def reference_potentials(self, anchors: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Shift potentials of labels (K,), to zero if no multiplier is free, and of anchors (n,), keeping b_i + l_k."""
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
    """Return the classes with their own multiplier. Probabilities sum to one, so some constraints are redundant."""
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
    """Return σ, σ' and σ'' at each net multiplier: min over λ̄ − λ = lam of λ̄ p_hi − λ p_lo − μ log λ̄ − μ log λ.

    μ is the barrier. An exact probability (p_lo = p_hi) gives the linear function. σ' is the adversary's label
    probability, strictly inside the interval.
    """
    lo, hi = intervals.T
    width = hi - lo
    exact = width <= 0
    half = 2.0 * barrier / np.where(exact, 1.0, width)
    root = np.hypot(lam, half)
    far, near = root + np.abs(lam), half * half / (root + np.abs(lam))  # root ± lam, computed without cancellation
    upper = 0.5 * (np.where(lam >= 0, far, near) + half)
    lower = 0.5 * (np.where(lam >= 0, near, far) + half)
    value = np.where(exact, lam * hi, upper * hi - lower * lo - barrier * (np.log(upper) + np.log(lower)))
    slope = np.where(exact, hi, np.where(lam >= 0, hi - barrier / upper, lo + barrier / lower))
    curvature = np.where(exact, 0.0, barrier / upper**2 * 0.5 * np.where(lam >= 0, far, near) / root)
    return value, slope, curvature


class SmoothedDual:
    """F_τ of one decision set and one model. A sweep sums over the rows, which are in memory by default.

    `minimal_radius` and `room` widen the set while τ is large (see `radius`). The `potentials` (b, l) of the minimal
    radius give Newton's method the direction in which α can grow without changing the plan (see `ray`). `exact`
    requests sums in float64 from a sweep that may otherwise use float32.
    """

    def __init__(
        self,
        decision_set: DecisionSet,
        model: Model,
        sweep: RowStore | None = None,
        *,
        minimal_radius: float = 0.0,
        potentials: tuple[FloatArray, FloatArray] | None = None,
        room: float = 0.0,
        alpha_free: bool = True,
        exact: bool = False,
    ):
        self.set, self.model = decision_set, model
        self.sweep = InMemoryRows.from_decision_set(decision_set, model) if sweep is None else sweep
        self._problem = DualProblem.from_decision_set(decision_set, model)
        self._minimal_radius, self._room, self._exact = minimal_radius, room, exact
        self.layout = Layout(
            model.shape, alpha_free, free_label_multipliers(decision_set.intervals), len(decision_set.anchor_weights)
        )
        self.ray = self._ray(potentials)

    @property
    def barrier_count(self) -> int:
        """The number of log barriers in F_τ: on α, and on both multipliers of each interval that is not a point."""
        open_intervals = self.set.intervals[self.layout.lam_free]
        return int(self.layout.alpha_free) + 2 * int(np.sum(open_intervals[:, 0] < open_intervals[:, 1]))

    def _ray(self, potentials: tuple[FloatArray, FloatArray] | None) -> FloatArray:
        """Return the direction (α, λ, β) = (1, l, b), which only changes the weight of costs reduced by (b, l)."""
        ray = np.zeros(self.layout.size)
        if potentials is not None and self.layout.alpha_free:
            labels, ray[self.layout.beta] = self.layout.reference_potentials(*potentials)
            ray[self.layout.lam] = labels[self.layout.lam_free]
        ray[self.layout.alpha] = 1.0
        return ray

    def radius(self, tau: float) -> float:
        """Return the radius used at smoothing τ: at least the minimal radius plus room·τ.

        A softmax plan costs more than the cheapest plan. If the radius is close to the minimal radius, a plan at large
        τ could satisfy it only with an unbounded α. The path would then have to return from there.
        """
        return max(self.set.radius, self._minimal_radius + self._room * tau)

    @property
    def rounding(self) -> float:
        """The rounding error of F_τ relative to its size: that of float64, or of a mean over many rows in float32."""
        return 1e-15 if self._exact or not self.sweep.is_narrow else 2e-9

    def row_sums(self, point: DualPoint, tau: float, *, second_order: bool) -> RowSums:
        """Compute the sums over all rows."""
        return self.sweep.row_sums(self._problem, point, tau, second_order=second_order, exact=self._exact)

    def factorized(self, matrix: FloatArray, *, tame: bool) -> Callable[[FloatArray], FloatArray]:
        """Return a solver of matrix · x = right, computed on the device of the rows. Overwrites the lower triangle."""
        return self.sweep.factorized(matrix, tame=tame)

    def evaluate(self, point: DualPoint, tau: float, *, second_order: bool, limit: float = np.inf) -> Evaluation:
        """Compute value, gradient (p,) and, on request, Hessian (p, p) of F_τ in the layout's coordinates.

        If F_τ is larger than `limit`, value and gradient may belong to a smaller function that is also above `limit`.
        """
        some = self.sweep.some_row_sums(self._problem, point, tau) if limit < np.inf else None
        if some is not None:
            sums, complete = some
            least = Evaluation.assemble(self, point, tau, sums, False)
            if not least.value <= limit or (complete and not second_order):
                return least
        sums = self.row_sums(point, tau, second_order=second_order)
        return Evaluation.assemble(self, point, tau, sums, second_order)

    @property
    def can_share_theta(self) -> bool:
        """True if the block of θ can be computed for several sets at once."""
        whole = isinstance(self.model, LinearModel) and self.model.within is None
        return whole and isinstance(self.sweep, InMemoryRows)

    def evaluate_apart(self, point: DualPoint, tau: float) -> Evaluation:
        """Evaluate without the rows of θ in the Hessian (m, p), but with the labels for `theta_curvature`."""
        if not isinstance(self.sweep, InMemoryRows):
            raise TypeError("labels are kept only for rows in memory")
        sums, labels = self.sweep.row_sums_and_labels(self._problem, point, tau)
        return replace(Evaluation.assemble(self, point, tau, sums, True, apart=True), labels=labels)

    def theta_curvature(
        self, theta: FloatArray, tau: float, weights: FloatArray, labels: Sequence[FloatArray]
    ) -> FloatArray:
        """Return the block (q, q) of θ for a mixture of sets, weights (S,), with penalty; lower triangle valid."""
        if not isinstance(self.sweep, InMemoryRows):
            raise TypeError("labels are kept only for rows in memory")
        blocks = self.sweep.theta_curvature(self._problem, theta, tau, weights, labels)
        whole = np.zeros((theta.size, theta.size))
        place_theta_blocks(blocks + self.model.penalty_hessian(), whole)
        return whole


@dataclass(frozen=True)
class Evaluation:
    """F_τ at a point: value, gradient, Hessian (lower triangle valid), and the mean entropy of the adversary's plan.

    If labels (N, K) of the softmax plan are present, the Hessian does not contain the rows of θ.

    `natural` is the size of the terms that cancel in each diagonal entry of the Hessian. It determines the rounding
    error of the entry.
    """

    value: float
    gradient: FloatArray
    hessian: Any  # None if it was not requested
    entropy: float
    natural: FloatArray
    labels: FloatArray | None = None

    @classmethod
    def assemble(
        cls,
        dual: SmoothedDual,
        point: DualPoint,
        tau: float,
        sums: RowSums,
        second_order: bool,
        *,
        apart: bool = False,
    ) -> Evaluation:
        at, ds = dual.layout, dual.set
        sigma, slope, curvature = smoothed_support(ds.intervals, point.lam, BARRIER * tau)
        free = at.lam_free
        value = point.alpha * dual.radius(tau) + ds.anchor_weights @ point.beta + sigma[free].sum() + sums.small[0]
        value += dual.model.penalty_value(point.theta) - (BARRIER * tau * np.log(point.alpha) if at.alpha_free else 0.0)
        gradient = np.empty(at.size)
        gradient[at.theta] = (sums.theta + dual.model.penalty_gradient(point.theta)).ravel()
        if at.alpha_free:
            gradient[at.alpha] = dual.radius(tau) - sums.small[1] - BARRIER * tau / point.alpha
        gradient[at.lam] = slope[free] - sums.label[free]
        gradient[at.beta] = ds.anchor_weights - sums.beta
        natural = np.full(at.size, 1e-2)
        natural[at.theta] = 1e-4
        natural[at.alpha] = 1e-2 * (sums.small[1] - dual._minimal_radius) ** 2 + 1e-12 * sums.small[1] ** 2
        natural[at.beta] = ds.anchor_weights
        hessian = cls._hessian(dual, point, tau, sums, curvature, apart) if second_order else None
        return cls(float(value), gradient, hessian, float(sums.small[3]), natural / tau)

    @staticmethod
    def _hessian(
        dual: SmoothedDual, point: DualPoint, tau: float, sums: RowSums, curvature: FloatArray, apart: bool
    ) -> Any:
        """Assemble the Hessian where the sums are stored, in memory or on a device."""
        at = dual.layout
        free = at.lam_free
        xp = arrays_of(sums.beta_beta)
        send = xp.send
        skipped = at.theta.stop if apart else 0  # rows
        H = xp.zeros((at.size - skipped, at.size))
        alpha, lam, beta = (slice(part.start - skipped, part.stop - skipped) for part in (at.alpha, at.lam, at.beta))
        xp.multiply(sums.beta_beta, -1.0 / tau, out=H[beta, at.beta])
        H[beta, at.beta][np.diag_indices(at.n_anchors)] += send(sums.beta / tau)
        H[beta, at.lam] = send(sums.label_beta[free].T / tau)
        label_label = sums.label_label + np.diag(sums.label)
        H[lam, at.lam] = send(label_label[np.ix_(free, free)] / tau + np.diag(curvature[free]))
        if at.alpha_free:
            H[beta, at.alpha] = send(sums.alpha_beta[:, None] / tau)
            H[lam, at.alpha] = send(sums.label_cost[free][:, None] / tau)
            H[alpha, at.alpha] = sums.small[2] / tau + BARRIER * tau / point.alpha**2
        k, p = at.theta_shape
        H[beta, at.theta] = sums.theta_beta.swapaxes(0, 1).reshape(at.n_anchors, k * p) / tau
        H[lam, at.theta] = sums.theta_label.swapaxes(0, 1)[free].reshape(len(free), k * p) / tau
        if at.alpha_free:
            H[alpha, at.theta] = sums.theta_alpha.ravel() / tau
        if not apart:
            place_theta_blocks(sums.theta_theta + send(dual.model.penalty_hessian()), H)
        return H


def place_theta_blocks(blocks: Any, H: Any) -> None:
    """Write the valid blocks [a, b ≥ a] of (K−1, K−1, p, p) to the lower triangle of a Hessian."""
    k, p = blocks.shape[0], blocks.shape[2]
    for a in range(k):
        for b in range(a + 1):
            H[a * p : (a + 1) * p, b * p : (b + 1) * p] = blocks[b, a].T
