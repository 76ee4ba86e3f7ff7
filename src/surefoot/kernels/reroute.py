"""Re-optimise a transport plan after one row is told from which classes to draw its mass, compiled with numba.

An optimal plan leaves a residual graph over the n anchors: the arc u → v moves some row's mass from anchor u to v, at a
cost of d_rv − d_ru. Telling row j to draw from another class is a flow of at most one unit (the mass of a row) through
this graph, found by successive shortest paths. Entries of the plan that hold a unit or more never run out: for each arc
only the cheapest of them counts. Entries that hold less, of rows that the plan splits, are kept one by one with what
they hold.
"""

from __future__ import annotations

import numpy as np

from surefoot.kernels.compiled import compiled

# Masses are in units of one row: less than this is rounding.
DUST = 1e-11
_MOST_PATHS = 10_000


@compiled()
def residual_costs(D, first, rows, anchors, beta, dust, cost, via):  # pragma: no cover (compiled)
    """Lower cost (n, n) to min over entries (r, u) of the cost of moving r from u to v; via (n, n) is that row + first.

    Costs are reduced, d_rv + β_v − d_ru − β_u: non-negative, since β proves the plan optimal. Below dust they are 0.
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
    """Shortest distances (n, n) between all nodes, over arcs of non-negative cost (n, n)."""
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
    """Row r gets an amount at anchor v. Entries are (row, amount, next, count), one list per anchor, from head."""
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
    """Dijkstra from class `source` of row j to an anchor of a class that j is to give up; −1 if there is none.

    label (n,): cost to an anchor, final where best (n,) is −∞; label + β are the reduced costs. The last step to v
    comes from parent[v] and moves row mover[v], by entry arc[v]; arc −1 is a full entry, −2 row j within a class.
    """  # pragma: no cover (compiled)
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
        best[u] = -np.inf  # no arc improves it any more
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
    """At most how much of an amount the path to `end` carries; steps that move the same row twice become one."""
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
    """Send an amount along the path: row j gives it up at `end` and takes it where the path begins."""
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
    """What is left, rounding cleared away."""
    left = held - amount
    return left if left > DUST else 0.0


@compiled()
def reroute(D, j, slots, hold, target, beta, raw, via, entries, head, slopes):  # pragma: no cover (compiled)
    """Least cost w(a) of a plan in which row j draws target (C,) = a from the classes, beyond the optimal plan's.

    hold (n,): what j draws from each anchor in the optimal plan, sum 1; beta (n,): its potentials; raw, via (n, n):
    cost and row of each arc of full entries; entries, head: the others. hold, beta, entries and head are changed.
    slopes (m, C): lower bounds w(a) ≥ slopes·a met on the way, valid for all a; each is exact where it was met, the
    last one at the target.
    Returns the cost and the number of bounds (those beyond m are dropped, except the last). The cost is ∞ where the
    anchors of a class do not hold enough, or where the paths do not end.
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
                slopes[m, c] += constant  # Σ_c a_c = 1: a constant is a slope
            amount = min(target[source] - have[source], surplus[slots[end]], hold[end])
            amount = _bottleneck(hold, entries, end, amount, parent, arc, mover)
            entries = _augment(hold, entries, head, end, amount, parent, arc, mover)
            total += amount * (label[end] - D[j, end])
            have[source] += amount
            have[slots[end]] -= amount
    return total, found
