"""Where the rows of an interior-point method begin: each at the centre that its constraints leave it."""

from __future__ import annotations

import numpy as np

from surefoot.kernels.compiled import compiled

_MOST_STEPS = 40
_CENTRED = 1e-3
_TO_BOUNDARY = 0.9


@compiled(fastmath=False)
def centre_rows(distances, alpha, beta, offsets, above, mu, u, psi):  # pragma: no cover (compiled)
    """Minimise ψ_j − μ Σ_i log(α d_ji + β_i − u_jc(i)) − μ Σ_kc log(ψ_j + above_jkc + u_jc) over u_j (C,) and ψ_j.

    distances (N, n), anchors grouped by class at offsets (C+1,); above (N, K, C). u (N, C) and psi (N,) hold a point
    inside, and are moved to the minimiser by damped Newton steps. Their Hessian is an arrow: each u_jc meets ψ_j only.
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
