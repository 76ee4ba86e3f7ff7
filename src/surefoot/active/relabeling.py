"""The label side of the adversary's budget: what a row's labels cost while all other rows make up for them.

Let F_kc be the mass of class c that ends up with label k, over all rows. Labels cost Σ κ_kc F_kc, with column sums p̂
and row sums in the label intervals. A row that draws G_kc from class c and gives it label k needs F ≥ G, and nothing
more: the others can share out F − G as they like. All masses here are in units of one row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from surefoot._types import FloatArray
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal import cheapest_relabeling

# Masses are in units of one row: less than this is rounding.
DUST = 1e-11
# An entry that holds a unit, up to rounding, does not run out while one row is moved.
FULL = 1.0 - 1e-9


@dataclass(frozen=True, eq=False)
class Relabeling:
    """The cheapest relabeling F* of all mass, and its residual graph over labels and classes.

    Attributes
    ----------
    flow : (K, C), F*: labels that can occur by classes that some anchor has.
    label_cost : (K, C); lower, upper : (K,) label intervals; supply : (C,) mass of each class.
    labels : (K,) codes of the labels that can occur: those of which the prior allows any.
    """

    flow: FloatArray
    label_cost: FloatArray
    lower: FloatArray
    upper: FloatArray
    supply: FloatArray
    labels: NDArray[np.intp]

    @classmethod
    def of(cls, ds: DecisionSet, unit: float) -> Relabeling:
        """The relabeling of a decision set, in units of a row's mass."""
        labels = np.flatnonzero(ds.intervals[:, 1] > 0)
        share = cheapest_relabeling(ds).share[np.ix_(labels, ds.present)]
        supply = ds.label_frequencies[ds.present] / unit
        flow = share * supply
        flow[flow < DUST] = 0.0
        lower, upper = ds.intervals[labels].T / unit
        return cls(flow, ds.label_cost[np.ix_(labels, ds.present)], lower, upper, supply, labels)

    def distances(self, room: float = DUST) -> FloatArray:
        """Least costs (K+C, K+C) from node to node, labels first, over residual arcs with more than `room` left.

        Turning some of class c into label k costs κ_kc and is always possible; taking it back gains κ_kc, as far as
        F*_kc goes. Labels trade mass with each other within their intervals.
        """
        K, C = self.flow.shape
        totals = self.flow.sum(axis=1)
        arcs = np.full((K + C + 1, K + C + 1), np.inf)
        np.fill_diagonal(arcs, 0.0)
        arcs[K:-1, :K] = self.label_cost.T
        arcs[:K, K:-1] = np.where(self.flow > room, -self.label_cost, np.inf)
        arcs[:K, -1] = np.where(self.upper - totals > room, 0.0, np.inf)
        arcs[-1, :K] = np.where(totals - self.lower > room, 0.0, np.inf)
        for node in range(K + C + 1):
            arcs = np.minimum(arcs, arcs[:, node, None] + arcs[node])
        return arcs

    def forced(self) -> FloatArray:
        """(K, C) cost of a unit of class c with label k, as long as no residual arc runs out: ∞ where one would."""
        K = len(self.labels)
        back = self.distances(FULL)[:K, K:-1]
        return np.maximum(self.label_cost + back, 0.0)

    def prices(self, root: int) -> tuple[FloatArray, FloatArray]:
        """Reduced costs (K, C) ≥ 0 and label prices (K,), largest for the class `root`.

        For every feasible F, Σ κF ≥ Σ κF* + Σ_kc reduced_kc F_kc + Σ_k (price_k⁺ (upper_k − p_k) + price_k⁻ (p_k −
        lower_k)), p_k = Σ_c F_kc; equality holds at F*.
        """
        K = len(self.labels)
        to_root = self.distances()[:, K + root]
        reduced = np.maximum(self.label_cost + to_root[:K, None] - to_root[None, K:-1], 0.0)
        reduced[reduced < 1e-12 * self.label_cost.max()] = 0.0
        trade = to_root[-1] if np.isfinite(to_root[-1]) else 0.0
        price = to_root[:K] - trade
        price[np.abs(price) < 1e-12 * self.label_cost.max()] = 0.0
        return reduced, price


@dataclass(frozen=True, eq=False)
class LabelProgram:
    """The linear program over G and H = F − G of one row, before what drawing from other classes costs.

    Σ_k (G+H)_kc = supply_c,  Σ G = 1,  lower_k ≤ Σ_c (G+H)_kc ≤ upper_k,  θ + cost of relabeling ≤ budget

    table (m, q+1), basis (m,): a simplex tableau at a feasible basis. Variables: G (K·C), H (K·C), θ, slacks.
    """

    table: FloatArray
    basis: NDArray[np.int64]

    @classmethod
    def of(cls, labels: Relabeling, budget: float) -> LabelProgram:
        """Phase one of the simplex method, done once for all rows."""
        from surefoot.kernels.simplex import minimise, pivot

        A, b = _constraints(labels, budget)
        m, q = A.shape
        T = np.hstack([A, np.eye(m), b[:, None]])
        z = -np.concatenate([A.sum(axis=0), np.zeros(m), [b.sum()]])
        basis = q + np.arange(m)
        if not minimise(T, z, basis, m, q) or abs(z[-1]) > 1e-9 * b.max():
            raise RuntimeError(f"the label program has no feasible basis: {abs(z[-1]):.1e} is left of {b.max():.1e}")
        for r in np.flatnonzero(basis >= q):  # artificial variables at zero
            s = int(np.abs(T[r, :q]).argmax())
            if abs(T[r, s]) > 1e-9:
                pivot(T, z, basis, m, r, s)
        # what is still artificial stands for a row that repeats others; the rest is computed afresh, free of rounding
        basic = basis[basis < q]
        rows = _independent_rows(A[:, basic])
        table = np.linalg.solve(A[np.ix_(rows, basic)], np.hstack([A[rows], b[rows, None]]))
        table[:, basic] = np.eye(len(basic))
        table[:, -1] = np.where(np.abs(table[:, -1]) < DUST, 0.0, table[:, -1])
        return cls(table, basic)


def _independent_rows(A: FloatArray) -> NDArray[np.intp]:
    """As many rows of A (m, k), of rank k, as it has columns, independent of each other."""
    _, _, order = qr(A.T, pivoting=True, mode="economic")
    return np.sort(order[: A.shape[1]])


def _constraints(labels: Relabeling, budget: float) -> tuple[FloatArray, FloatArray]:
    """A (m, q) and b (m,) of A x = b, x ≥ 0."""
    K, C = labels.flow.shape
    kappa = labels.label_cost.max()
    reduced, price = (part / kappa for part in labels.prices(0))
    wide = np.flatnonzero(labels.upper - labels.lower > DUST)
    theta, n_wide = 2 * K * C, len(wide)
    q = theta + 1 + 2 * n_wide + 1
    by_label, by_class = np.kron(np.eye(K), np.ones(C)), np.kron(np.ones(K), np.eye(C))
    A = np.zeros((C + 1 + K + n_wide + 1, q))
    A[:C, :theta] = np.hstack([by_class, by_class])
    A[C, : K * C] = 1.0
    A[C + 1 : C + 1 + K, :theta] = np.hstack([by_label, by_label])
    slack, surplus = theta + 1 + np.arange(n_wide), theta + 1 + n_wide + np.arange(n_wide)
    A[C + 1 + wide, slack] = 1.0
    A[C + 1 + K + np.arange(n_wide), slack] = 1.0
    A[C + 1 + K + np.arange(n_wide), surplus] = 1.0
    A[-1, :theta] = np.tile(reduced.ravel(), 2)
    A[-1, slack], A[-1, surplus] = np.maximum(price[wide], 0.0), np.maximum(-price[wide], 0.0)
    A[-1, [theta, q - 1]] = 1.0
    b = np.concatenate([labels.supply, [1.0], labels.upper, (labels.upper - labels.lower)[wide], [budget / kappa]])
    return A, b
