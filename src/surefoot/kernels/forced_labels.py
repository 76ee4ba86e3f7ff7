"""Compute exact worst-case labels of one row by a small linear program with cuts, compiled with numba."""

from __future__ import annotations

import numpy as np

from surefoot.kernels.compiled import compiled

# Re-optimise a transport plan after fixing the mass that one row draws from each class.

# The unit of mass is one row. Smaller masses are rounding errors.
DUST = 1e-11
# The search for a plan gives up after this many shortest paths.
_MOST_PATHS = 10_000


@compiled()
def residual_costs(D, first, rows, anchors, beta, dust, cost, via):  # pragma: no cover (compiled)
    """Lower cost (n, n) to the least cost of moving a row r from u to v, over entries (r, u). via (n, n) is r + first.

    Costs are reduced, d_rv + β_v − d_ru − β_u. They are non-negative, because β proves that the plan is optimal. Costs
    below dust are set to 0.
    """
    n = D.shape[1]
    for e in range(rows.shape[0]):
        r, u = rows[e], anchors[e]
        base = D[r, u] + beta[u]
        for v in range(n):
            t = D[r, v] + beta[v] - base
            if t < cost[u, v]:
                t = t if t > dust else 0.0
                cost[u, v] = t
                via[u, v] = first + r


@compiled()
def all_pairs(cost):  # pragma: no cover (compiled)
    """Return the shortest distances (n, n) between all nodes, over arcs of non-negative cost (n, n)."""
    n = cost.shape[0]
    dist = cost.copy()
    for u in range(n):
        dist[u, u] = 0.0
    for k in range(n):
        through = dist[k].copy()
        for u in range(n):
            first = dist[u, k]
            if first < np.inf:
                row = dist[u]
                for v in range(n):
                    row[v] = min(row[v], first + through[v])
    return dist


@compiled()
def _receive(entries, head, r, v, amount):  # pragma: no cover (compiled)
    """Add an amount to row r at anchor v. Entries are (row, amount, next, count), one list per anchor, from head."""
    rows, caps, following, count = entries
    e = head[v]
    while e >= 0:
        if rows[e] == r:
            caps[e] += amount
            return entries
        e = following[e]
    e = count[0]
    if e == rows.shape[0]:
        size = 2 * e + 16
        more_rows, more_caps, more_following = np.empty(size, np.int64), np.empty(size), np.empty(size, np.int64)
        for i in range(e):
            more_rows[i], more_caps[i], more_following[i] = rows[i], caps[i], following[i]
        rows, caps, following = more_rows, more_caps, more_following
    rows[e], caps[e], following[e] = r, amount, head[v]
    head[v] = e
    count[0] = e + 1
    return rows, caps, following, count


@compiled()
def _shortest_path(D, j, slots, source, hold, surplus, beta, raw, via, entries, head, label, best, parent, arc, mover):
    """Run Dijkstra from class `source` of row j to an anchor of a class that j must give up; −1 if there is none.

    label (n,): cost to an anchor, final if best (n,) is −∞; label + β are the reduced costs. The last step to v comes
    from parent[v] and moves row mover[v], by entry arc[v]. arc −1 is a full entry, −2 is row j within a class.
    """
    n = slots.shape[0]
    rows, caps, following, _count = entries
    own = D[j]
    for v in range(n):
        parent[v] = -1
        best[v] = own[v] if slots[v] == source else np.inf
    while True:
        u, least = -1, np.inf
        for v in range(n):
            if best[v] > -np.inf and best[v] + beta[v] < least:
                u, least = v, best[v] + beta[v]
        if u < 0:
            return -1
        here = best[u]
        label[u] = here
        best[u] = -np.inf  # the label of this anchor is final
        given_up = hold[u] > 0.0 and slots[u] != source
        if given_up and surplus[slots[u]] > DUST:
            return u
        for v in range(n):
            t = here + raw[u, v]
            if t < best[v]:
                best[v], parent[v], arc[v], mover[v] = t, u, -1, via[u, v]
        e = head[u]
        while e >= 0:
            if caps[e] > DUST and rows[e] != j:
                row = D[rows[e]]
                base = here - row[u]
                for v in range(n):
                    t = base + row[v]
                    if t < best[v]:
                        best[v], parent[v], arc[v], mover[v] = t, u, e, rows[e]
            e = following[e]
        if given_up:
            base = here - own[u]
            for v in range(n):
                t = base + own[v]
                if slots[v] == slots[u] and t < best[v]:
                    best[v], parent[v], arc[v], mover[v] = t, u, -2, j


@compiled()
def _bottleneck(hold, entries, end, amount, parent, arc, mover):  # pragma: no cover (compiled)
    """Bound an amount by the capacity of the path to `end`. Two steps that move the same row become one."""
    v = end
    while parent[v] >= 0:
        u = parent[v]
        while parent[u] >= 0 and mover[u] == mover[v]:
            parent[v], arc[v] = parent[u], arc[u]
            u = parent[v]
        if arc[v] >= 0:
            amount = min(amount, entries[1][arc[v]])
        elif arc[v] == -2:
            amount = min(amount, hold[u])
        v = u
    return amount


@compiled()
def _augment(hold, entries, head, end, amount, parent, arc, mover):  # pragma: no cover (compiled)
    """Send an amount along the path. Row j gives it up at `end` and receives it at the start of the path."""
    hold[end] = _taken(hold[end], amount)
    v = end
    while parent[v] >= 0:
        u = parent[v]
        if arc[v] == -2:
            hold[u] = _taken(hold[u], amount)
            hold[v] += amount
        else:
            if arc[v] >= 0:
                entries[1][arc[v]] = _taken(entries[1][arc[v]], amount)
            entries = _receive(entries, head, mover[v], v, amount)
        v = u
    hold[v] += amount
    return entries


@compiled()
def _taken(held, amount):  # pragma: no cover (compiled)
    """Subtract an amount, and set remainders that are rounding errors to 0."""
    left = held - amount
    return left if left > DUST else 0.0


@compiled()
def reroute(D, j, slots, hold, target, beta, raw, via, entries, head, slopes):  # pragma: no cover (compiled)
    """Return the least cost w(a) of plans in which row j draws target (C,) = a from the classes, less the optimal cost.

    hold (n,): the mass that j draws from each anchor in the optimal plan, sum 1; beta (n,): its potentials; raw, via
    (n, n): cost and row of each arc of full entries; entries, head: the remaining entries. hold, beta, entries and head
    are changed.
    slopes (m, C): the lower bounds w(a) ≥ slopes·a that are found, valid for all a. Each bound is exact at the
    composition that produced it. The last one is exact at the target.
    Returns the cost and the number of bounds (bounds beyond m are dropped, except the last). The cost is ∞ if the
    anchors of a class do not hold enough mass, or if the search for paths does not end.
    """
    n, C = slots.shape[0], target.shape[0]
    label, best, have, surplus = np.empty(n), np.empty(n), np.zeros(C), np.empty(C)
    parent, arc, mover = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for v in range(n):
        have[slots[v]] += hold[v]
    total, found, paths = 0.0, 0, 0
    for source in range(C):
        while target[source] - have[source] > DUST:
            for c in range(C):
                surplus[c] = have[c] - target[c]
            end = _shortest_path(
                D, j, slots, source, hold, surplus, beta, raw, via, entries, head, label, best, parent, arc, mover
            )  # fmt: skip
            paths += 1
            if end < 0 or paths > _MOST_PATHS:
                return np.inf, found
            reach = label[end] + beta[end]
            for v in range(n):
                beta[v] = -label[v] if best[v] == -np.inf else beta[v] - reach
            m = min(found, slopes.shape[0] - 1)
            found = m + 1
            for c in range(C):
                slopes[m, c] = np.inf
            for v in range(n):
                slopes[m, slots[v]] = min(slopes[m, slots[v]], D[j, v] + beta[v])
            constant = total
            for c in range(C):
                constant -= have[c] * slopes[m, c]
            for c in range(C):
                slopes[m, c] += constant  # Σ_c a_c = 1, so a constant can be added to every slope
            amount = min(target[source] - have[source], surplus[slots[end]], hold[end])
            amount = _bottleneck(hold, entries, end, amount, parent, arc, mover)
            entries = _augment(hold, entries, head, end, amount, parent, arc, mover)
            total += amount * (label[end] - D[j, end])
            have[source] += amount
            have[slots[end]] -= amount
    return total, found


# A small dense simplex method for linear programs that gain rows.

# Smaller pivots are rounding errors. Ratios this close are ties. Costs and values above -1e-11 count as non-negative.
_PIVOT, _TIE, _NEGATIVE = 1e-9, 1e-12, 1e-11
# A program is infeasible if a constraint is violated by more than this and no pivot can restore it. If no new cut is
# found, a cost is exact within the same number.
_ROUNDING = 1e-8
# The method gives up after this many pivots. After the second number, it takes the first candidate instead of the
# steepest one, which prevents cycles.
_STEPS, _GREEDY_STEPS = 5000, 100


@compiled()
def eliminate(target, row, s):  # pragma: no cover (compiled)
    """Clear entry s of the target by subtracting a multiple of a row with entry s equal to 1."""
    f = target[s]
    if f != 0.0:
        for v in range(target.shape[0]):
            target[v] -= f * row[v]
        target[s] = 0.0


@compiled()
def pivot(T, z, basis, m, r, s):  # pragma: no cover (compiled)
    """Let variable s enter the basis in row r."""
    row, scale = T[r], 1.0 / T[r, s]
    for v in range(row.shape[0]):
        row[v] *= scale
    row[s] = 1.0
    for i in range(m):
        if i != r:
            eliminate(T[i], row, s)
    eliminate(z, row, s)
    basis[r] = s


@compiled()
def minimise(T, z, basis, m, q):  # pragma: no cover (compiled)
    """Run the primal simplex over the first q variables from a feasible basis. Return False if it does not end."""
    for step in range(_STEPS):
        s, least = -1, -_NEGATIVE
        for v in range(q):
            if z[v] < least:
                s, least = v, z[v]
                if step > _GREEDY_STEPS:  # taking the first candidate prevents cycles
                    break
        if s < 0:
            return True
        ratio = np.inf
        for i in range(m):
            if T[i, s] > _PIVOT:
                ratio = min(ratio, max(T[i, -1], 0.0) / T[i, s])
        r, largest = -1, 0.0
        for i in range(m):  # among tied rows, the largest pivot loses the fewest digits
            if T[i, s] > _PIVOT and max(T[i, -1], 0.0) / T[i, s] <= ratio + _TIE and T[i, s] > largest:
                r, largest = i, T[i, s]
        if r < 0:
            return False
        pivot(T, z, basis, m, r, s)
    return False


@compiled()
def restore(T, z, basis, m, q):  # pragma: no cover (compiled)
    """Run the dual simplex over the first q variables. It makes right-hand sides and keeps reduced costs non-negative.

    Returns False if it does not end, or if the program is infeasible.
    """
    for step in range(_STEPS):
        r, least = -1, -_NEGATIVE
        for i in range(m):
            if T[i, -1] < least:
                r, least = i, T[i, -1]
                if step > _GREEDY_STEPS:
                    break
        if r < 0:
            return True
        ratio = np.inf
        for v in range(q):
            if T[r, v] < -_PIVOT:
                ratio = min(ratio, max(z[v], 0.0) / -T[r, v])
        s, largest = -1, 0.0
        for v in range(q):
            if T[r, v] < -_PIVOT and max(z[v], 0.0) / -T[r, v] <= ratio + _TIE and -T[r, v] > largest:
                s, largest = v, -T[r, v]
        if s < 0:
            if least < -_ROUNDING:
                return False
            T[r, -1] = 0.0  # no pivot can raise it, and the violation is a rounding error
        else:
            pivot(T, z, basis, m, r, s)
    return False


@compiled()
def append_row(T, basis, m, slack):  # pragma: no cover (compiled)
    """Add row m, written in all variables, to the tableau, with its slack variable in the basis."""
    for i in range(m):
        eliminate(T[m], T[i], basis[i])
    basis[m] = slack


# The accuracy of the cost.
_TOLERANCE = 1e-10
# The most rounds of cuts, the initial room for cuts, and the most bounds found per round.
_ROUNDS, _CUTS, _BOUNDS = 500, 16, 256


@compiled()
def _tableau(table, basis0, f, C, room):  # pragma: no cover (compiled)
    """Return the program of the labels with room for cuts, and its reduced costs for the objective Σ_k f_k Σ_c G_kc."""
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
    """Return True if a bound differs from all known cuts."""
    for g in range(cuts):
        far = 0.0
        for c in range(slope.shape[0]):
            far = max(far, abs(known[g, c] - slope[c]))
        if far <= 1e-12:
            return False
    return True


@compiled()
def _add_cuts(T, basis, m, q, known, cuts, slopes, found, shape, kappa, dust):  # pragma: no cover (compiled)
    """Add the cuts θ ≥ slope·a, a_c = Σ_k G_kc, for new bounds. Return the number of cuts."""
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
    """Write the mass a (C,) drawn from each class at the current basis. Return its cost θ."""
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
    """Return the least f·q over label probabilities q that the adversary can force at row j; NaN without room."""
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
        if cuts == before:  # no new cut: the difference is a rounding error, or there is no room left
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
    """Set values[s] = min f[s]·q over the label probabilities q (K,) that the adversary can force at row rows[s].

    plan = (ptr, anchors, amounts): the optimal plan by rows. graph = (slots, beta, raw, via), entries and head: its
    residual graph. program = (table, basis): the linear program of the labels at a feasible basis, without the cost of
    drawing from other classes. Its first K·C variables are G_kc, the mass of label k drawn from class c. Variable
    `theta` is the cost of drawing from other classes. shape = (K, C, theta).
    first (R, C) : a first bound, cost ≥ first[s]·a. Costs in the program are in units of kappa. Costs below dust are 0.
    The value is NaN if the program did not end.
    """
    for s in range(rows.shape[0]):
        room = _CUTS
        while True:
            values[s] = _one_row(
                D, rows[s], plan, graph, entries, head, f[s], first[s], program, shape, kappa, dust, room
            )  # fmt: skip
            if not np.isnan(values[s]) or room > 32 * _CUTS:
                break
            room *= 4
