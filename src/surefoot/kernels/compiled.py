"""The compiler of kernels, the kernels for nearest pairs, and the kernel that starts the interior-point method."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from surefoot._errors import CodedWarning, warn_caller

# Numba compiles the kernels. They run without the interpreter lock, and are cached on disk where possible.


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function by numba, and cache the machine code on disk if a folder is writable.

    In containers and services, both the package's folder and the user's folder may be read-only. numba then refuses to
    compile with a cache, so the function is compiled without one.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        keywords = {"nogil": True, "error_model": "numpy", **options}
        try:
            return njit(cache=True, **keywords)(function)
        except RuntimeError:  # an error with any other cause is raised again below
            without = njit(**keywords)(function)
            _warn_once()
            return without

    return decorate


@cache
def _warn_once() -> None:
    """Warn once per process instead of once per kernel."""
    warn_caller(
        CodedWarning(
            "no_cache",
            "compiled code cannot be cached, because no folder for it is writable. Each process compiles again, which "
            "takes some seconds.",
            "Set the environment variable NUMBA_CACHE_DIR to a writable folder.",
        )
    )


# The nearest anchors of each row, and the nearest rows of each anchor.


@compiled()
def nearest_anchors(D, potentials, anchors, values):  # pragma: no cover (compiled)
    """Find, for each row of D (B, n), the anchors (B, k) of smallest d_ji + b_i, and these values, ascending."""
    B, n = D.shape
    k = anchors.shape[1]
    for j in range(B):
        count = 0
        for i in range(n):
            value = D[j, i] + potentials[i]
            if count < k or value < values[j, k - 1]:
                place = min(count, k - 1)
                while place > 0 and values[j, place - 1] > value:
                    values[j, place] = values[j, place - 1]
                    anchors[j, place] = anchors[j, place - 1]
                    place -= 1
                values[j, place] = value
                anchors[j, place] = i
                count = min(count + 1, k)


@compiled()
def nearest_rows(D, start, rows, values):  # pragma: no cover (compiled)
    """Merge the rows of D (B, n), numbered from `start`, into the nearest rows (n, k) already found for each anchor.

    values : (n, k) distances of the nearest rows, ascending. Entries are infinite until an anchor has k rows.
    """
    B, n = D.shape
    k = rows.shape[1]
    for j in range(B):
        for i in range(n):
            value = D[j, i]
            if value < values[i, k - 1]:
                place = k - 1
                while place > 0 and values[i, place - 1] > value:
                    values[i, place] = values[i, place - 1]
                    rows[i, place] = rows[i, place - 1]
                    place -= 1
                values[i, place] = value
                rows[i, place] = start + j


# Newton steps per row, the decrement at which a row is centred, and the fraction of the way to the boundary per step.
_MOST_STEPS, _CENTRED, _TO_BOUNDARY = 40, 1e-3, 0.9


@compiled(fastmath=False)
def centre_rows(distances, alpha, beta, offsets, above, mu, u, psi):  # pragma: no cover (compiled)
    """Minimise ψ_j − μ Σ_i log(α d_ji + β_i − u_jc(i)) − μ Σ_kc log(ψ_j + above_jkc + u_jc) over u_j (C,) and ψ_j.

    distances (N, n), with anchors grouped by class at offsets (C+1,); above (N, K, C). u (N, C) and psi (N,) hold an
    interior point. Damped Newton steps move this point to the minimiser. The Hessian is an arrow matrix, because each
    u_jc is coupled to ψ_j only.
    """
    N, K, C = above.shape
    weight, both, slope, step = np.empty(C), np.empty(C), np.empty(C), np.empty(C)
    for j in range(N):
        for _ in range(_MOST_STEPS):
            slope_psi = 1.0
            corner = 0.0
            toward = 1.0
            for c in range(C):
                first, second = 0.0, 0.0
                for i in range(offsets[c], offsets[c + 1]):
                    inverse = 1.0 / (alpha * distances[j, i] + beta[i] - u[j, c])
                    first += inverse
                    second += inverse * inverse
                own, own_second = 0.0, 0.0
                for k in range(K):
                    inverse = 1.0 / (psi[j] + above[j, k, c] + u[j, c])
                    own += inverse
                    own_second += inverse * inverse
                slope[c] = mu * (first - own)
                slope_psi -= mu * own
                weight[c] = mu * (second + own_second)
                both[c] = own_second / (second + own_second)
                corner += mu * own_second * (second / (second + own_second))
            moved = slope_psi
            for c in range(C):
                moved -= both[c] * slope[c]
            moved /= -corner
            decrement = -moved * slope_psi
            for c in range(C):
                step[c] = -slope[c] / weight[c] - both[c] * moved
                decrement -= step[c] * slope[c]
            for c in range(C):
                for i in range(offsets[c], offsets[c + 1]):
                    toward = max(toward, step[c] / (alpha * distances[j, i] + beta[i] - u[j, c]) / _TO_BOUNDARY)
                for k in range(K):
                    room = psi[j] + above[j, k, c] + u[j, c]
                    toward = max(toward, -(moved + step[c]) / room / _TO_BOUNDARY)
            for c in range(C):
                u[j, c] += step[c] / toward
            psi[j] += moved / toward
            if decrement <= _CENTRED * mu:
                break
