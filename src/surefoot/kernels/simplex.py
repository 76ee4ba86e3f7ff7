"""A small dense simplex method for linear programs that grow by rows, compiled with numba.

min z·x  s.t.  T x = t,  x ≥ 0, as a tableau T (m, q+1): rows in terms of a basis, right-hand sides in the last column,
and reduced costs z (q+1,), less the value in the last place. Rows beyond m are free for more.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_PIVOT = 1e-9
_COST = 1e-11
_BELOW_ZERO = 1e-10
_STEPS = 5000
_GREEDY_STEPS = 100


@njit(cache=True, nogil=True, error_model="numpy")
def pivot(T, z, basis, m, r, s):  # pragma: no cover (compiled)
    """Let variable s enter the basis in row r."""
    T[r] /= T[r, s]
    for i in range(m):
        f = T[i, s]
        if i != r and f != 0.0:
            T[i] -= f * T[r]
            T[i, s] = 0.0
    f = z[s]
    z -= f * T[r]
    z[s] = 0.0
    basis[r] = s


@njit(cache=True, nogil=True, error_model="numpy")
def minimise(T, z, basis, m, q):  # pragma: no cover (compiled)
    """Primal simplex over the first q variables, from a feasible basis. False if it does not end."""
    for step in range(_STEPS):
        s, least = -1, -_COST
        for v in range(q):
            if z[v] < least:
                s, least = v, z[v]
                if step > _GREEDY_STEPS:  # the first will do: Bland's rule has no cycles
                    break
        if s < 0:
            return True
        r, ratio = -1, np.inf
        for i in range(m):
            if T[i, s] > _PIVOT:
                t = max(T[i, -1], 0.0) / T[i, s]
                if t < ratio or (t == ratio and basis[i] < basis[r]):
                    r, ratio = i, t
        if r < 0:
            return False
        pivot(T, z, basis, m, r, s)
    return False


@njit(cache=True, nogil=True, error_model="numpy")
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
        s, ratio = -1, np.inf
        for v in range(q):
            if T[r, v] < -_PIVOT:
                t = max(z[v], 0.0) / -T[r, v]
                if t < ratio:
                    s, ratio = v, t
        if s < 0:
            return False
        pivot(T, z, basis, m, r, s)
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def append_row(T, basis, m, slack):  # pragma: no cover (compiled)
    """Make row m, as written in terms of all variables, a row of the tableau, its slack variable basic."""
    for i in range(m):
        f = T[m, basis[i]]
        if f != 0.0:
            T[m] -= f * T[i]
            T[m, basis[i]] = 0.0
    basis[m] = slack
