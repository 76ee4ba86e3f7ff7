"""The hot kernel: soft assignment of rows to labels and anchors, compiled with numba.

Row j, label k and anchor i (of class c) have the value ℓ_jk − λ_k − α d_ji − α κ_kc − β_i. The sum over anchors
separates by class (docs/solver.md): one pass over the N×n distances, the rest costs O(N·K·C). Loops over anchors are
written so that LLVM turns them into SIMD code; a scalar exp would cost three times the whole kernel.
"""

from __future__ import annotations

import math

import numpy as np

from surefoot.kernels.compiled import compiled

# Weights below exp(-36) of the largest are rounding noise in float64.
NEGLIGIBLE = math.exp(-36.0)
_ROUND = 6755399441055744.0  # 1.5·2^52: adding it leaves the nearest integer in the low bits of a float64
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_FAST = {"nnan", "ninf", "nsz", "contract", "arcp", "reassoc"}
_ORDERED = {"nnan", "ninf", "nsz", "contract"}  # reassociation would undo the rounding trick


@compiled(fastmath=_ORDERED)
def exp_negative(v, low, inv_tau, out, scratch, bits):  # pragma: no cover (compiled)
    """out[i] = exp((low − v[i]) / τ), to 1e-15 relative; scratch and bits share their memory."""
    n = v.shape[0]
    for i in range(n):
        t = min((v[i] - low) * inv_tau, 700.0)
        k = _ROUND - t * _LOG2_E
        scratch[i] = k
        k -= _ROUND
        r = -t - k * _LN2_HIGH - k * _LN2_LOW
        # Taylor to degree 12 on |r| ≤ ln(2)/2
        p = 1 / 39916800.0 + r * (1 / 479001600.0)
        p = 1 / 40320.0 + r * (1 / 362880.0 + r * (1 / 3628800.0 + r * p))
        p = 1 / 120.0 + r * (1 / 720.0 + r * (1 / 5040.0 + r * p))
        out[i] = 1.0 + r * (1.0 + r * (0.5 + r * (1 / 6.0 + r * (1 / 24.0 + r * p))))
    for i in range(n):
        bits[i] = (bits[i] + 1023) << 52
    for i in range(n):
        out[i] *= scratch[i]


@compiled(fastmath=_FAST)
def soft_rows(
    D, m, alpha, beta, offsets, kappa, U, tau, A, phi, q, cck, s, g_beta, h_ab, h_lb, small
):  # pragma: no cover (compiled)
    """Softmax of every row of a chunk, with the moments that gradient and Hessian need.

    Inputs: D (B, n), m (B,), beta (n,), offsets (C+1,), kappa (K, C), U (B, K) = ℓ − λ.
    Outputs per row: A (B, n) weights of anchors, phi (B,), q (B, K), cck (B, K) = Cov(c, e_k),
    s (B, K, C) = P(k | c) − P(k).
    Added to: g_beta (n,) = Σ m a_ji, h_ab (n,) = Σ m Cov(c, e_i), h_lb (K, n) = Σ m Cov(e_k, e_i),
    small = [Σ m φ, Σ m E c, Σ m Var c, Σ m H(P)], with H the entropy.
    Returns the number of weights that are not negligible.
    """
    B, n = D.shape
    C = offsets.shape[0] - 1
    K = U.shape[1]
    v = np.empty(n)
    scratch = np.empty(n)
    bits = scratch.view(np.int64)
    S = np.empty(C)
    T1 = np.empty(C)
    T2 = np.empty(C)
    ent = np.empty(C)
    norm = np.empty(C)
    pairs = K * C
    cost = np.empty(pairs)
    flat = np.empty(pairs)
    p = flat.reshape(K, C)
    pair_scratch = np.empty(pairs)
    pair_bits = pair_scratch.view(np.int64)
    pc = np.empty(C)
    kbar = np.empty(C)
    inv_tau = 1.0 / tau
    stored = 0
    for j in range(B):
        row = D[j]
        a = A[j]
        for c in range(C):
            # slices that start at zero: indices known to be non-negative are what lets LLVM vectorise
            lo, hi = offsets[c], offsets[c + 1]
            rc, bc, vc, ac = row[lo:hi], beta[lo:hi], v[lo:hi], a[lo:hi]
            low = alpha * rc[0] + bc[0]
            for i in range(hi - lo):
                t = alpha * rc[i] + bc[i]
                vc[i] = t
                low = min(low, t)
            exp_negative(vc, low, inv_tau, ac, scratch[lo:hi], bits[lo:hi])
            total = 0.0
            t1 = 0.0
            t2 = 0.0
            tv = 0.0
            for i in range(hi - lo):
                e = ac[i]
                d = rc[i]
                total += e
                t1 += e * d
                t2 += e * d * d
                tv += e * (vc[i] - low)
            inv = 1.0 / total
            log_total = math.log(total)
            norm[c] = inv
            S[c] = low - tau * log_total
            T1[c] = t1 * inv
            T2[c] = t2 * inv
            ent[c] = tv * inv * inv_tau + log_total
        low = alpha * kappa[0, 0] + S[0] - U[j, 0]
        for k in range(K):
            for c in range(C):
                t = alpha * kappa[k, c] + S[c] - U[j, k]
                cost[k * C + c] = t
                low = min(low, t)
        exp_negative(cost, low, inv_tau, flat, pair_scratch, pair_bits)
        total = 0.0
        entropy = 0.0
        for i in range(pairs):
            total += flat[i]
            entropy += flat[i] * (cost[i] - low)
        inv = 1.0 / total
        log_total = math.log(total)
        phi[j] = tau * log_total - low
        entropy = entropy * inv * inv_tau + log_total
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
                entropy += e * ent[c]
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
        for c in range(C):
            lo, hi = offsets[c], offsets[c + 1]
            rc, ac, gc, hc = row[lo:hi], a[lo:hi], g_beta[lo:hi], h_ab[lo:hi]
            kb = kbar[c] / pc[c] - mean_c if pc[c] > 1e-300 else 0.0
            f = pc[c] * norm[c]
            count = 0
            for i in range(hi - lo):
                w = ac[i] * f
                ac[i] = w
                count += w > NEGLIGIBLE
                w *= mj
                gc[i] += w
                hc[i] += w * (rc[i] + kb)
            stored += count
            for k in range(1, K):
                lc = h_lb[k, lo:hi]
                f = mj * s[j, k, c]
                for i in range(hi - lo):
                    lc[i] += f * ac[i]
    return stored


@compiled(fastmath=_FAST)
def add_sparse_products(A, m, slots, s, X, h_bb, h_tb):  # pragma: no cover (compiled)
    """Add Σ m a aᵀ to the lower triangle of h_bb (n, n) and Σ m s_kc a_i x to h_tb (K−1, n, d), skipping zeros."""
    B, n = A.shape
    d = X.shape[1]
    free = h_tb.shape[0]
    idx = np.empty(n, np.int64)
    for j in range(B):
        count = 0
        for i in range(n):
            if A[j, i] > NEGLIGIBLE:
                idx[count] = i
                count += 1
        for r in range(count):
            i = idx[r]
            w = m[j] * A[j, i]
            for r2 in range(r + 1):
                h_bb[i, idx[r2]] += w * A[j, idx[r2]]
            for k in range(free):
                f = w * s[j, k + 1, slots[i]]
                if f != 0.0:
                    for t in range(d):
                        h_tb[k, i, t] += f * X[j, t]
