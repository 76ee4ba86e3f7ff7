"""The adversary's problems as plain linear programs over the transport plan, solved by HiGHS; and W_c through POT.

The plan π (N, K, n) moves mass from anchor i to row j with label k:

sup  Σ π_jki ℓ_jk
s.t. Σ_ki π_jki = m_j,  Σ_jk π_jki = w_i,  Σ π_jki (d_ji + κ[k, y_i]) ≤ ε,  p_lo_k ≤ Σ_ji π_jki ≤ p_hi_k

All N·K·n variables, nothing eliminated: independent of the package on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

Array = NDArray[np.float64]
_INFEASIBLE = 2
_TOLERANCE = 1e-10


class InnerReference(TypedDict):
    """The adversary's best value, its plan (N, K, n) and label_proba (N, K), the labels it gives each row."""

    value: float
    plan: Array
    label_proba: Array


@dataclass(frozen=True)
class PlanProgram:
    """Constraints on the plan, as sparse rows over its N·K·n entries in C order; masses are multiplied by N."""

    shape: tuple[int, int, int]
    costs: Array  # (N·K·n,) d_ji + κ[k, y_i]
    equalities: sparse.csr_array
    equal_to: Array
    inequalities: sparse.csr_array
    at_most: Array

    @classmethod
    def build(
        cls,
        distances: Array,
        row_weights: Array,
        anchor_weights: Array,
        anchor_labels: NDArray[np.intp],
        label_cost: Array,
        intervals: Array | None,
    ) -> PlanProgram:
        """The set without its radius: both marginals and the label intervals."""
        (N, n), K = distances.shape, len(label_cost)
        costs = distances[:, None, :] + label_cost[:, anchor_labels][None, :, :]
        one_row, one_class, one_anchor = np.ones((1, N)), np.ones((1, K)), np.ones((1, n))
        rows = _kron(sparse.eye_array(N), one_class, one_anchor)
        anchors = _kron(one_row, one_class, sparse.eye_array(n))
        labels = _kron(one_row, sparse.eye_array(K), one_anchor)
        lo, hi = np.asarray(np.tile([0.0, 1.0], (K, 1)) if intervals is None else intervals, dtype=np.float64).T
        exact, below, above = lo == hi, (lo < hi) & (hi < 1), (lo < hi) & (lo > 0)
        return cls(
            shape=(N, K, n),
            costs=costs.ravel(),
            equalities=sparse.vstack([rows, anchors, labels[exact]], format="csr"),
            equal_to=N * np.concatenate([row_weights, anchor_weights, hi[exact]]),
            inequalities=sparse.vstack([labels[below], -labels[above]], format="csr"),
            at_most=N * np.concatenate([hi[below], -lo[above]]),
        )

    def within(self, radius: float) -> PlanProgram:
        """The same set with a transport cost of at most radius."""
        if not np.isfinite(radius):
            return self
        inequalities = sparse.vstack([self.inequalities, sparse.csr_array(self.costs[None, :])], format="csr")
        at_most = np.append(self.at_most, self.shape[0] * radius)
        return PlanProgram(self.shape, self.costs, self.equalities, self.equal_to, inequalities, at_most)

    def minimise(self, objective: Array, method: str) -> Array:
        """The plan (N, K, n) of least objective; ValueError where the set is empty."""
        some = self.inequalities.shape[0] > 0
        result = linprog(
            objective, A_eq=self.equalities, b_eq=self.equal_to, A_ub=self.inequalities if some else None,
            b_ub=self.at_most if some else None, bounds=(0, None), method=method, options=_options(method),
        )  # fmt: skip
        if result.status == _INFEASIBLE:
            raise ValueError("the decision set must not be empty; HiGHS finds no plan in it. Raise the radius.")
        if not result.success:
            raise RuntimeError(f"HiGHS ended with status {result.status}: {result.message}")
        return result.x.reshape(self.shape) / self.shape[0]


def inner_reference(
    losses: Array,
    distances: Array,
    row_weights: Array,
    anchor_weights: Array,
    anchor_labels: NDArray[np.intp],
    label_cost: Array,
    intervals: Array | None,
    radius: float,
    *,
    method: str = "highs-ds",
) -> InnerReference:
    """Worst expected loss sup_μ E^μ ℓ for fixed losses (N, K); intervals (K, 2) or None for free labels.

    method is "highs-ds" (dual simplex) or "highs-ipm" (interior point with crossover). An empty set is a
    ValueError.
    """
    program = PlanProgram.build(distances, row_weights, anchor_weights, anchor_labels, label_cost, intervals)
    plan = program.within(radius).minimise(-np.repeat(losses.ravel(), distances.shape[1]), method)
    mass = plan.sum(axis=2)
    value = float(np.sum(mass * losses))
    # a row of no weight has no labels to speak of
    proba = np.divide(mass, row_weights[:, None], out=np.zeros_like(mass), where=row_weights[:, None] > 0)
    return InnerReference(value=value, plan=plan, label_proba=proba)


def minimal_radius_reference(
    distances: Array,
    row_weights: Array,
    anchor_weights: Array,
    anchor_labels: NDArray[np.intp],
    label_cost: Array,
    intervals: Array | None,
    *,
    method: str = "highs-ds",
) -> float:
    """Least transport cost over the set without its radius: the smallest radius at which the set is not empty."""
    program = PlanProgram.build(distances, row_weights, anchor_weights, anchor_labels, label_cost, intervals)
    return float(program.minimise(program.costs, method).ravel() @ program.costs)


def transport_reference(
    distances: Array,
    row_labels: NDArray[np.intp],
    anchor_labels: NDArray[np.intp],
    label_cost: Array,
    row_weights: Array | None = None,
    anchor_weights: Array | None = None,
) -> float:
    """W_c between two labeled samples, by POT's network simplex on the full cost matrix d_ji + κ[y_j, y_i] (N, n)."""
    N, n = distances.shape
    costs = distances + label_cost[np.ix_(row_labels, anchor_labels)]
    rows = np.full(N, 1.0 / N) if row_weights is None else row_weights
    anchors = np.full(n, 1.0 / n) if anchor_weights is None else anchor_weights
    import ot  # absent on some machines with a GPU

    value, log = ot.emd2(rows, anchors, costs, numItermax=10_000_000, log=True)
    if log["warning"] is not None:
        raise RuntimeError(f"POT's network simplex did not finish: {log['warning']}")
    return float(value)


def _kron(rows: Array, classes: Array, anchors: Array) -> sparse.csr_array:
    """Kronecker product in the order of the plan's entries (j, k, i)."""
    return sparse.csr_array(sparse.kron(sparse.kron(rows, classes), anchors))


def _options(method: str) -> dict[str, float]:
    options = {"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE}
    return options | ({"ipm_optimality_tolerance": 1e-12} if method == "highs-ipm" else {})
