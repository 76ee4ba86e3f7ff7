"""What the adversary can force at one row, exactly: a small linear program with cuts, compiled with numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from surefoot.kernels.reroute import reroute
from surefoot.kernels.simplex import append_row, minimise, restore

_TOLERANCE = 1e-10
_ROUNDS = 500
_CUTS = 16


@njit(cache=True, nogil=True, error_model="numpy")
def worst_labels(D, rows, plan, graph, entries, head, f, first, program, shape, kappa, dust, values, ok):
    """values[s] = min f[s]·q over the label probabilities q (K,) that the adversary can force at row rows[s].

    plan = (ptr, anchors, amounts): the optimal plan by rows; graph = (slots, beta, raw, via), entries and head: its
    residual graph. program = (table, basis): the linear program of the labels at a feasible basis, without what drawing
    from other classes costs; its first K·C variables are G_kc, the mass of label k drawn from class c, variable `theta`
    is that cost; shape = (K, C, theta). first (R, C): a first bound, cost ≥ first[s]·a. Costs in the program are in
    units of kappa; below dust they are 0. ok[s] tells success.
    """  # pragma: no cover (compiled)
    K, C, theta = shape
    slots, beta, raw, via = graph
    ptr, anchors, amounts = plan
    table, basis0 = program
    n, m0, q0 = slots.shape[0], table.shape[0], table.shape[1] - 1
    slopes = np.empty((256, C))
    hold, a = np.empty(n), np.empty(C)
    for s in range(rows.shape[0]):
        j, size = rows[s], _CUTS
        T = np.zeros((m0 + size, q0 + size + 1))
        T[:m0, :q0], T[:m0, -1] = table[:, :-1], table[:, -1]
        basis = np.empty(m0 + size, np.int64)
        basis[:m0] = basis0
        z = np.zeros(T.shape[1])
        for k in range(K):
            z[k * C : (k + 1) * C] = f[s, k]
        for i in range(m0):
            z -= z[basis0[i]] * T[i]
        ok[s] = minimise(T, z, basis, m0, q0)
        known = np.empty((size, C))
        slopes[0], found, cuts, converged = first[s], 1, 0, False
        for _ in range(_ROUNDS):
            for e in range(found):
                for c in range(C):
                    slopes[e, c] = slopes[e, c] / kappa if abs(slopes[e, c]) > dust else 0.0
                fresh = True
                for g in range(cuts):
                    fresh = fresh and np.abs(known[g] - slopes[e]).max() > 1e-12
                if not fresh:
                    continue
                if cuts == size:
                    T, z, basis, known, size = _grow(T, z, basis, known, m0, q0, size)
                known[cuts] = slopes[e]
                row = T[m0 + cuts]
                row[:] = 0.0
                for k in range(K):
                    row[k * C : (k + 1) * C] = slopes[e]
                row[theta], row[q0 + cuts] = -1.0, 1.0
                append_row(T, basis, m0 + cuts, q0 + cuts)
                cuts += 1
            ok[s] = ok[s] and restore(T, z, basis, m0 + cuts, q0 + cuts)
            if not ok[s]:
                break
            a[:] = 0.0
            cost = 0.0
            for i in range(m0 + cuts):
                if basis[i] < K * C:
                    a[basis[i] % C] += T[i, -1]
                elif basis[i] == theta:
                    cost = T[i, -1]
            for c in range(C):
                a[c] = a[c] if a[c] > _TOLERANCE else 0.0
            a /= a.sum()
            hold[:] = 0.0
            for e in range(ptr[j], ptr[j + 1]):
                hold[anchors[e]] = amounts[e]
            mine = (entries[0].copy(), entries[1].copy(), entries[2].copy(), entries[3].copy())
            exact, found = reroute(D, j, slots, hold, a, beta.copy(), raw, via, mine, head.copy(), slopes)
            if exact / kappa <= cost + _TOLERANCE:
                converged = True
                break
        ok[s] = ok[s] and converged
        values[s] = -z[-1]


@njit(cache=True, nogil=True, error_model="numpy")
def _grow(T, z, basis, known, m0, q0, size):  # pragma: no cover (compiled)
    """Twice the room for cuts."""
    more = np.zeros((m0 + 2 * size, q0 + 2 * size + 1))
    more[: m0 + size, : q0 + size], more[: m0 + size, -1] = T[:, :-1], T[:, -1]
    more_z = np.zeros(more.shape[1])
    more_z[: q0 + size], more_z[-1] = z[:-1], z[-1]
    more_basis = np.empty(m0 + 2 * size, np.int64)
    more_basis[: m0 + size] = basis
    more_known = np.empty((2 * size, known.shape[1]))
    more_known[:size] = known
    return more, more_z, more_basis, more_known, 2 * size
