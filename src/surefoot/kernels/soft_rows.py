"""The hot kernel: soft assignment of rows to labels and anchors, compiled with numba.

Row j, label k and anchor i (of class c) have the value ℓ_jk − λ_k − α d_ji − α κ_kc − β_i. The sum over anchors separates
by class (DESIGN, fact 1): one pass over the N×n distances, the rest costs O(N·K·C).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

# Weights below exp(-36) of the largest are rounding noise in float64.
_CUT = 36.0
_FASTMATH = {"nnan", "ninf", "nsz", "reassoc", "contract", "arcp"}


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FASTMATH)
def soft_rows(
    D, m, alpha, beta, offsets, kappa, U, tau, indptr, idx, val, phi, q, cck, s, g_beta, h_ab, h_lb, small
):  # pragma: no cover (compiled)
    """Softmax of every row of a chunk, with the moments that gradient and Hessian need.

    Inputs: D (B, n), m (B,), beta (n,), offsets (C+1,), kappa (K, C), U (B, K) = ℓ − λ.
    Outputs per row: CSR weights (indptr, idx, val) of anchors, phi (B,), q (B, K), cck (B, K) = Cov(c, e_k),
    s (B, K, C) = P(k | c) − P(k).
    Added to: g_beta (n,) = Σ m a_ji, h_ab (n,) = Σ m Cov(c, e_i), h_lb (K, n) = Σ m Cov(e_k, e_i),
    small = [Σ m φ, Σ m E c, Σ m Var c, Σ m H(P)], with H the entropy.
    """
    B, n = D.shape
    C = offsets.shape[0] - 1
    K = U.shape[1]
    v = np.empty(n)
    S = np.empty(C)
    T1 = np.empty(C)
    T2 = np.empty(C)
    ent = np.empty(C)
    p = np.empty((K, C))
    pc = np.empty(C)
    kbar = np.empty(C)
    inv_tau = 1.0 / tau
    limit = _CUT * tau
    nnz = 0
    indptr[0] = 0
    for j in range(B):
        row = D[j]
        start = nnz
        for c in range(C):
            lo, hi = offsets[c], offsets[c + 1]
            low = alpha * row[lo] + beta[lo]
            for i in range(lo, hi):
                t = alpha * row[i] + beta[i]
                v[i] = t
                low = min(low, t)
            total = 0.0
            t1 = 0.0
            t2 = 0.0
            te = 0.0
            first = nnz
            for i in range(lo, hi):
                t = v[i] - low
                if t < limit:
                    t *= inv_tau
                    e = math.exp(-t)
                    d = row[i]
                    total += e
                    t1 += e * d
                    t2 += e * d * d
                    te += e * t
                    idx[nnz] = i
                    val[nnz] = e
                    nnz += 1
            inv = 1.0 / total
            for r in range(first, nnz):
                val[r] *= inv
            log_total = math.log(total)
            S[c] = low - tau * log_total
            T1[c] = t1 * inv
            T2[c] = t2 * inv
            ent[c] = te * inv + log_total
        top = U[j, 0] - alpha * kappa[0, 0] - S[0]
        for k in range(K):
            for c in range(C):
                t = U[j, k] - alpha * kappa[k, c] - S[c]
                p[k, c] = t
                top = max(top, t)
        total = 0.0
        for k in range(K):
            for c in range(C):
                t = (p[k, c] - top) * inv_tau
                e = math.exp(t) if t > -700.0 else 0.0
                p[k, c] = e
                total += e
        inv = 1.0 / total
        phi[j] = top + tau * math.log(total)
        entropy = 0.0
        mean_c = 0.0
        mean_c2 = 0.0
        for c in range(C):
            pc[c] = 0.0
            kbar[c] = 0.0
        for k in range(K):
            qk = 0.0
            ck = 0.0
            for c in range(C):
                e = p[k, c] * inv
                p[k, c] = e
                kap = kappa[k, c]
                qk += e
                pc[c] += e
                kbar[c] += e * kap
                ck += e * (T1[c] + kap)
                mean_c2 += e * (T2[c] + kap * (2.0 * T1[c] + kap))
                if e > 0.0:
                    entropy += e * (ent[c] - math.log(e))
            q[j, k] = qk
            cck[j, k] = ck
            mean_c += ck
        for k in range(K):
            cck[j, k] -= mean_c * q[j, k]
            for c in range(C):
                s[j, k, c] = p[k, c] / pc[c] - q[j, k] if pc[c] > 1e-300 else 0.0
        mj = m[j]
        small[0] += mj * phi[j]
        small[1] += mj * mean_c
        small[2] += mj * (mean_c2 - mean_c * mean_c)
        small[3] += mj * entropy
        c = 0
        for c2 in range(C):
            kbar[c2] = kbar[c2] / pc[c2] - mean_c if pc[c2] > 1e-300 else 0.0
        for r in range(start, nnz):
            i = idx[r]
            while i >= offsets[c + 1]:
                c += 1
            a = val[r] * pc[c]
            val[r] = a
            w = mj * a
            g_beta[i] += w
            h_ab[i] += w * (row[i] + kbar[c])
            for k in range(K):
                h_lb[k, i] += w * s[j, k, c]
        indptr[j + 1] = nnz


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FASTMATH)
def add_sparse_products(indptr, idx, val, m, classes, s, X, h_bb, h_tb):  # pragma: no cover (compiled)
    """Add Σ m a aᵀ to the lower triangle of h_bb (n, n) and Σ m s_kc a_i x to h_tb (K−1, n, d)."""
    B = indptr.shape[0] - 1
    d = X.shape[1]
    free = h_tb.shape[0]
    for j in range(B):
        for r in range(indptr[j], indptr[j + 1]):
            i = idx[r]
            w = m[j] * val[r]
            for r2 in range(indptr[j], r + 1):
                h_bb[i, idx[r2]] += w * val[r2]
            for k in range(free):
                f = w * s[j, k + 1, classes[i]]
                if f != 0.0:
                    for t in range(d):
                        h_tb[k, i, t] += f * X[j, t]


@njit(cache=True, nogil=True)
def densify(indptr, idx, val, out):  # pragma: no cover (compiled)
    """Write CSR weights into the dense chunk out (B, n), zero where nothing is stored."""
    out[:] = 0.0
    for j in range(indptr.shape[0] - 1):
        for r in range(indptr[j], indptr[j + 1]):
            out[j, idx[r]] = val[r]
