"""What the adversary can force at one row, exactly: a small linear program with cuts, compiled with numba."""

from __future__ import annotations

import numpy as np

from surefoot.kernels.compiled import compiled
from surefoot.kernels.reroute import reroute
from surefoot.kernels.simplex import append_row, eliminate, minimise, restore

_TOLERANCE = 1e-10
_ROUNDING = 1e-8
_ROUNDS = 500
_CUTS = 16
_BOUNDS = 256


@compiled()
def _tableau(table, basis0, f, C, room):  # pragma: no cover (compiled)
    """The program of the labels with room for cuts, and its reduced costs for the objective Σ_k f_k Σ_c G_kc."""
    m, q = table.shape[0], table.shape[1] - 1
    T, basis, z = np.zeros((m + room, q + room + 1)), np.empty(m + room, np.int64), np.zeros(q + room + 1)
    for i in range(m):
        basis[i] = basis0[i]
        for v in range(q):
            T[i, v] = table[i, v]
        T[i, -1] = table[i, q]
    for k in range(f.shape[0]):
        for c in range(C):
            z[k * C + c] = f[k]
    for i in range(m):
        eliminate(z, T[i], basis[i])
    return T, z, basis


@compiled()
def _is_new(known, cuts, slope):  # pragma: no cover (compiled)
    """Whether a bound differs from all cuts made so far."""
    for g in range(cuts):
        far = 0.0
        for c in range(slope.shape[0]):
            far = max(far, abs(known[g, c] - slope[c]))
        if far <= 1e-12:
            return False
    return True


@compiled()
def _add_cuts(T, basis, m, q, known, cuts, slopes, found, shape, kappa, dust):  # pragma: no cover (compiled)
    """Add the cuts θ ≥ slope·a, a_c = Σ_k G_kc, for bounds that are new; their number after that."""
    K, C, theta = shape
    for e in range(found):
        slope = slopes[e]
        for c in range(C):
            slope[c] = slope[c] / kappa if abs(slope[c]) > dust else 0.0
        if cuts == known.shape[0] or not _is_new(known, cuts, slope):
            continue
        row = T[m + cuts]
        for v in range(row.shape[0]):
            row[v] = 0.0
        for c in range(C):
            known[cuts, c] = slope[c]
            for k in range(K):
                row[k * C + c] = slope[c]
        row[theta], row[q + cuts] = -1.0, 1.0
        append_row(T, basis, m + cuts, q + cuts)
        cuts += 1
    return cuts


@compiled()
def _composition(T, basis, m, shape, a):  # pragma: no cover (compiled)
    """Write the shares a (C,) of the classes at the current basis; its cost θ."""
    K, C, theta = shape
    cost, total = 0.0, 0.0
    for c in range(C):
        a[c] = 0.0
    for i in range(m):
        if basis[i] < K * C:
            a[basis[i] % C] += T[i, -1]
        elif basis[i] == theta:
            cost = T[i, -1]
    for c in range(C):
        a[c] = a[c] if a[c] > _TOLERANCE else 0.0
        total += a[c]
    for c in range(C):
        a[c] /= total
    return cost


@compiled()
def _one_row(D, j, plan, graph, entries, head, f, first, program, shape, kappa, dust, room):  # pragma: no cover
    """The least f·q over the label probabilities q that the adversary can force at row j; NaN for too little room."""
    slots, beta, raw, via = graph
    ptr, anchors, amounts = plan
    table, basis0 = program
    C, m, q = shape[1], table.shape[0], table.shape[1] - 1
    T, z, basis = _tableau(table, basis0, f, C, room)
    known, slopes, a, hold = np.empty((room, C)), np.empty((_BOUNDS, C)), np.empty(C), np.empty(slots.shape[0])
    if not minimise(T, z, basis, m, q):
        return np.nan
    for c in range(C):
        slopes[0, c] = first[c]
    found, cuts, violation = 1, 0, np.inf
    for _ in range(_ROUNDS):
        before = cuts
        cuts = _add_cuts(T, basis, m, q, known, cuts, slopes, found, shape, kappa, dust)
        if cuts == before:  # the true cost is a cut already: what is left is rounding, or the room is used up
            return -z[-1] if violation <= _ROUNDING else np.nan
        if not restore(T, z, basis, m + cuts, q + cuts):
            return np.nan
        cost = _composition(T, basis, m + cuts, shape, a)
        for v in range(hold.shape[0]):
            hold[v] = 0.0
        for e in range(ptr[j], ptr[j + 1]):
            hold[anchors[e]] = amounts[e]
        mine = (entries[0].copy(), entries[1].copy(), entries[2].copy(), entries[3].copy())
        exact, found = reroute(D, j, slots, hold, a, beta.copy(), raw, via, mine, head.copy(), slopes)
        violation = exact / kappa - cost
        if violation <= _TOLERANCE:
            return -z[-1]
    return np.nan


@compiled()
def worst_labels(D, rows, plan, graph, entries, head, f, first, program, shape, kappa, dust, values):
    """values[s] = min f[s]·q over the label probabilities q (K,) that the adversary can force at row rows[s].

    plan = (ptr, anchors, amounts): the optimal plan by rows; graph = (slots, beta, raw, via), entries and head: its
    residual graph. program = (table, basis): the linear program of the labels at a feasible basis, without what drawing
    from other classes costs; its first K·C variables are G_kc, the mass of label k drawn from class c, variable `theta`
    is that cost; shape = (K, C, theta). first (R, C): a first bound, cost ≥ first[s]·a. Costs in the program are in
    units of kappa; below dust they are 0. NaN where the program did not end.
    """  # pragma: no cover (compiled)
    for s in range(rows.shape[0]):
        room = _CUTS
        while True:
            values[s] = _one_row(
                D, rows[s], plan, graph, entries, head, f[s], first[s], program, shape, kappa, dust, room
            )  # fmt: skip
            if not np.isnan(values[s]) or room > 32 * _CUTS:
                break
            room *= 4
