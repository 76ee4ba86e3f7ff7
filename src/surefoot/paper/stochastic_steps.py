"""Steps of the paper's Algorithm 1, compiled with numba: subgradients on a batch of rows, SGD or Adam, projection.

The variables stand in one flat vector in the order θ (K−1, p), β (n,), α, λ̄ (K,), λ (K,): those that are projected on
[0, ∞) are the last 2K + 1.
"""

from __future__ import annotations

import math

import numpy as np

from surefoot.kernels.compiled import compiled

# Adam's constants, as in the paper's appendix.
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
_FAST = {"nnan", "ninf", "nsz", "contract", "arcp", "reassoc"}


@compiled(fastmath=_FAST)
def batch_subgradient(problem, rows, m, x, g, v):  # pragma: no cover (compiled)
    """Write a subgradient of the dual at x, on rows (B,) of weights m (B,), into g; return the dual's value on them.

    problem = (D, X, L, penalty, offsets, kappa, w, lo, hi, radius): D (N, n) distances, anchors by class; kappa (K, C)
    and offsets (C+1,) of the classes that anchors carry; w (n,) anchor weights; lo, hi (K,) label intervals. Losses are
    those of the scores X θᵀ, X (N, p), or where X has no columns the matrix L (N, K). penalty (p,) is the diagonal of
    R. v (n,) is scratch. Among equal maxima the first counts.
    """
    D, X, L, penalty, offsets, kappa, w, lo, hi, radius = problem
    B, n = rows.shape[0], D.shape[1]
    K, C = kappa.shape
    p = X.shape[1]
    free = K - 1 if p > 0 else 0
    at_beta = free * p
    at_alpha = at_beta + n
    at_hi, at_lo = at_alpha + 1, at_alpha + 1 + K
    alpha = x[at_alpha]
    beta = x[at_beta:at_alpha]
    g_beta = g[at_beta:at_alpha]
    g[:at_beta] = 0.0
    value = alpha * radius
    for i in range(n):
        g_beta[i] = w[i]
        value += w[i] * beta[i]
    for k in range(K):
        g[at_hi + k] = hi[k]
        g[at_lo + k] = -lo[k]
        value += x[at_hi + k] * hi[k] - x[at_lo + k] * lo[k]
    least = np.empty(C)
    scores = np.zeros(K)
    losses = np.empty(K)
    moved, total = 0.0, 0.0
    for b in range(B):
        j, share = rows[b], m[b]
        d = D[j]
        for c in range(C):
            start, stop = offsets[c], offsets[c + 1]
            dc, bc, vc = d[start:stop], beta[start:stop], v[start:stop]
            for i in range(stop - start):
                vc[i] = alpha * dc[i] + bc[i]
            low = vc[0]  # as stored: it is looked for below
            for i in range(1, stop - start):
                low = min(low, vc[i])
            least[c] = low
        if p > 0:
            row = X[j]
            top = 0.0
            for k in range(1, K):
                t = 0.0
                theta = x[(k - 1) * p : k * p]
                for s in range(p):
                    t += theta[s] * row[s]
                scores[k] = t
                top = max(top, t)
            t = 0.0
            for k in range(K):
                t += math.exp(scores[k] - top)
            top += math.log(t)
            for k in range(K):
                losses[k] = top - scores[k]
        else:
            for k in range(K):
                losses[k] = L[j, k]
        best, label, slot = -np.inf, 0, 0
        for k in range(K):
            own = losses[k] - x[at_hi + k] + x[at_lo + k]
            for c in range(C):
                t = own - alpha * kappa[k, c] - least[c]
                if t > best:
                    best, label, slot = t, k, c
        anchor = offsets[slot]
        while v[anchor] > least[slot]:
            anchor += 1
        total += share * best
        moved += share * (d[anchor] + kappa[label, slot])
        g_beta[anchor] -= share
        g[at_hi + label] -= share
        g[at_lo + label] += share
        if p > 0:
            row = X[j]
            for k in range(1, K):
                t = share * (math.exp(-losses[k]) - (1.0 if k == label else 0.0))
                slope = g[(k - 1) * p : k * p]
                for s in range(p):
                    slope[s] += t * row[s]
    g[at_alpha] = radius - moved
    for s in range(p):
        # with K ≥ 3 classes the penalty is that of the coefficients centred over classes
        mean = 0.0
        for k in range(free):
            mean += x[k * p + s]
        mean *= 1.0 / K if K > 2 else 0.0
        for k in range(free):
            t = penalty[s] * (x[k * p + s] - mean)
            g[k * p + s] += t
            value += 0.5 * t * x[k * p + s]
    return value + total


@compiled()
def stochastic_steps(problem, drawn, rates, first_step, adam, x, first, second):  # pragma: no cover (compiled)
    """One step per line of drawn (S, B), of sizes rates (S,); x, and Adam's moments first and second, change in place.

    first_step counts the steps taken before. Everything else is as in `batch_subgradient`.
    """
    g = np.empty(x.shape[0])
    v = np.empty(problem[0].shape[1])
    m = np.full(drawn.shape[1], 1.0 / drawn.shape[1])
    projected = x.shape[0] - 2 * problem[5].shape[0] - 1
    for s in range(drawn.shape[0]):
        batch_subgradient(problem, drawn[s], m, x, g, v)
        if adam:
            step = first_step + s + 1
            unbias = math.sqrt(1.0 - BETA2**step)
            rate = rates[s] / (1.0 - BETA1**step) * unbias
            small = EPSILON * unbias
            for i in range(x.shape[0]):
                first[i] = BETA1 * first[i] + (1.0 - BETA1) * g[i]
                second[i] = BETA2 * second[i] + (1.0 - BETA2) * g[i] * g[i]
                x[i] -= rate * first[i] / (math.sqrt(second[i]) + small)
        else:
            for i in range(x.shape[0]):
                x[i] -= rates[s] * g[i]
        for i in range(projected, x.shape[0]):
            x[i] = max(x[i], 0.0)
