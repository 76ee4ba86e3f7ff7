"""A small dense simplex method for linear programs that grow by rows, compiled with numba.

min z·x  s.t.  T x = t,  x ≥ 0, as a tableau T (m, q+1): rows in terms of a basis, right-hand sides in the last column,
and reduced costs z (q+1,), less the value in the last place. Rows beyond m are free for more.
"""

from __future__ import annotations

import numpy as np

from surefoot.kernels.compiled import compiled

_PIVOT = 1e-9
_TIE = 1e-12
_COST = 1e-11
_BELOW_ZERO = 1e-11
_ROUNDING = 1e-8
_STEPS = 5000
_GREEDY_STEPS = 100


@compiled()
def eliminate(target, row, s):  # pragma: no cover (compiled)
    """Subtract the multiple of a row, whose entry s is 1, that clears entry s of the target."""
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
    """Primal simplex over the first q variables, from a feasible basis. False if it does not end."""
    for step in range(_STEPS):
        s, least = -1, -_COST
        for v in range(q):
            if z[v] < least:
                s, least = v, z[v]
                if step > _GREEDY_STEPS:  # the first will do, should the steepest ones go in circles
                    break
        if s < 0:
            return True
        ratio = np.inf
        for i in range(m):
            if T[i, s] > _PIVOT:
                ratio = min(ratio, max(T[i, -1], 0.0) / T[i, s])
        r, largest = -1, 0.0
        for i in range(m):  # of the rows that tie, the largest pivot loses the least digits
            if T[i, s] > _PIVOT and max(T[i, -1], 0.0) / T[i, s] <= ratio + _TIE and T[i, s] > largest:
                r, largest = i, T[i, s]
        if r < 0:
            return False
        pivot(T, z, basis, m, r, s)
    return False


@compiled()
def restore(T, z, basis, m, q):  # pragma: no cover (compiled)
    """Dual simplex over the first q variables: right-hand sides become non-negative, reduced costs stay so.

    False if it does not end, or if nothing is feasible.
    """
    for step in range(_STEPS):
        r, least = -1, -_BELOW_ZERO
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
            T[r, -1] = 0.0  # nothing can raise it, and so little is missing that it is rounding
        else:
            pivot(T, z, basis, m, r, s)
    return False


@compiled()
def append_row(T, basis, m, slack):  # pragma: no cover (compiled)
    """Make row m, as written in terms of all variables, a row of the tableau, its slack variable basic."""
    for i in range(m):
        eliminate(T[m], T[i], basis[i])
    basis[m] = slack
