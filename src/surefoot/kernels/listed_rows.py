"""The hot kernel over short lists: soft assignment of rows to labels and to the few anchors near them, by numba.

The same sums as `soft_rows`, where each row and class lists the anchors that can have a weight at all.
"""

from __future__ import annotations

import math

import numpy as np

from surefoot.kernels.compiled import compiled
from surefoot.kernels.soft_rows import FAST, NEGLIGIBLE, exp_negative, join_labels


@compiled(fastmath=FAST, inline="always")
def _cheapest_label(alpha, kappa, U, j, c):  # pragma: no cover (compiled)
    """min_k α κ_kc − U_jk: what the anchors of a class cost row j beyond α d + β."""
    least = alpha * kappa[0, c] - U[j, 0]
    for k in range(1, kappa.shape[0]):
        least = min(least, alpha * kappa[k, c] - U[j, k])
    return least


@compiled(fastmath=FAST)
def count_near(D, alpha, beta, offsets, kappa, U, margin, limits, counts):  # pragma: no cover (compiled)
    """Limits (B, C) up to which α d + β is near, and counts (B, C) of the anchors up to them.

    Near is what lies within margin of the best pair of label and anchor of the row, and the best anchor of each class.
    """
    B, n = D.shape
    C = kappa.shape[1]
    edges = offsets.astype(np.uint64)
    v = np.empty(n)
    for j in range(B):
        row, best = D[j], 0.0
        for c in range(C):
            low = alpha * row[edges[c]] + beta[edges[c]]
            for i in range(edges[c], edges[c + 1]):
                t = alpha * row[i] + beta[i]
                v[i] = t
                low = min(low, t)
            limits[j, c] = low
            low += _cheapest_label(alpha, kappa, U, j, c)
            best = low if c == 0 else min(best, low)
        for c in range(C):
            limit = max(limits[j, c], best + margin - _cheapest_label(alpha, kappa, U, j, c))
            limits[j, c] = limit
            count = 0
            for i in range(edges[c], edges[c + 1]):
                count += v[i] <= limit
            counts[j, c] = count


@compiled(fastmath=FAST)
def list_near(D, alpha, beta, offsets, limits, starts, anchors, distances):  # pragma: no cover (compiled)
    """The lists themselves: anchors and distances, at starts (B·C+1,)."""
    B = D.shape[0]
    C = offsets.shape[0] - 1
    for j in range(B):
        for c in range(C):
            lo, limit = offsets[c], limits[j, c]
            rc, bc = D[j, lo : offsets[c + 1]], beta[lo : offsets[c + 1]]
            at, stop = starts[j * C + c], starts[j * C + c + 1]
            for i in range(len(rc)):
                if alpha * rc[i] + bc[i] <= limit and at < stop:
                    anchors[at] = lo + i
                    distances[at] = rc[i]
                    at += 1


@compiled(fastmath=FAST)
def soft_listed(
    starts, anchors, distances, beyond, gap, loose, fails, m, alpha, beta, kappa, U, tau, a, phi, q, cck, s, g_beta,
    h_ab, h_lb, small, second
):  # fmt: skip # pragma: no cover (compiled)
    """`soft_rows` over lists: starts (B·C+1,) into anchors and distances (L,); a (L,) the weights, in their order.

    beyond (B, C) : a bound from below of α d + β over the anchors left out. Where these may come within `gap` of the
    best pair of a row, it fails (B,), and unless `loose` its weight m is set to zero.
    """
    B, K = U.shape
    C = kappa.shape[1]
    first = starts[0]
    v, scratch = np.empty(len(a)), np.empty(len(a))
    soft, norm, at_class = np.empty((4, C)), np.empty(C), np.empty((3, C))
    cost, pair_scratch, flat = np.empty(K * C), np.empty(K * C), np.empty(K * C)
    pair_bits = pair_scratch.view(np.int64)
    inv_tau = 1.0 / tau
    lows = np.empty(B * C)
    for j in range(B):
        best, others = 0.0, 0.0
        for c in range(C):
            r = j * C + c
            lo, hi = starts[r], starts[r + 1]
            idx, rc, vc = anchors[lo:hi], distances[lo:hi], v[lo - first : hi - first]
            low = alpha * rc[0] + beta[idx[0]]
            for i in range(hi - lo):
                t = alpha * rc[i] + beta[idx[i]]
                vc[i] = t
                low = min(low, t)
            lows[r] = low
            for i in range(hi - lo):
                vc[i] -= low
            extra = _cheapest_label(alpha, kappa, U, j, c)
            best = low + extra if c == 0 else min(best, low + extra)
            others = beyond[j, c] + extra if c == 0 else min(others, beyond[j, c] + extra)
        if others < best + gap:
            fails[j] = True
            if not loose:
                m[j] = 0.0
    exp_negative(v, 0.0, inv_tau, a, scratch, scratch.view(np.int64))
    for j in range(B):
        for c in range(C):
            r = j * C + c
            lo, hi = starts[r], starts[r + 1]
            rc, vc, ac = distances[lo:hi], v[lo - first : hi - first], a[lo - first : hi - first]
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
                tv += e * vc[i]
            inv = 1.0 / total
            log_total = math.log(total)
            norm[c] = inv
            soft[0, c] = lows[r] - tau * log_total
            soft[1, c] = t1 * inv
            soft[2, c] = t2 * inv
            soft[3, c] = tv * inv * inv_tau + log_total
        phi[j], mean_c, variance, entropy = join_labels(
            j, soft, alpha, kappa, U, tau, cost, pair_scratch, pair_bits, flat, q, cck, s, at_class, second
        )
        mj = m[j]
        small[0] += mj * phi[j]
        small[1] += mj * mean_c
        small[2] += mj * variance
        small[3] += mj * entropy
        for c in range(C):
            lo, hi = starts[j * C + c], starts[j * C + c + 1]
            idx, rc, ac = anchors[lo:hi], distances[lo:hi], a[lo - first : hi - first]
            f = at_class[0, c] * norm[c]
            if not second:
                f *= mj
                for i in range(hi - lo):
                    g_beta[idx[i]] += ac[i] * f
                continue
            kb = at_class[1, c] * at_class[2, c] - mean_c
            for i in range(hi - lo):
                w = ac[i] * f
                ac[i] = w
                w *= mj
                g_beta[idx[i]] += w
                h_ab[idx[i]] += w * (rc[i] + kb)
                for k in range(1, K):
                    h_lb[k, idx[i]] += w * s[j, k, c]


@compiled(fastmath=FAST)
def add_listed_products(starts, anchors, a, m, s, X, h_bb, h_tb):  # pragma: no cover (compiled)
    """Add Σ m a aᵀ to the lower triangle of h_bb (n, n) and Σ m s_kc a_i x to h_tb (K−1, n, d)."""
    B, C = s.shape[0], s.shape[2]
    free, first = h_tb.shape[0], starts[0]
    longest = 0
    for j in range(B):
        longest = max(longest, starts[(j + 1) * C] - starts[j * C])
    idx, weight = np.empty(longest, np.uint32), np.empty(longest)
    for j in range(B):
        count, x = 0, X[j]
        for c in range(C):
            lo, hi = starts[j * C + c], starts[j * C + c + 1]
            ac, own = a[lo - first : hi - first], anchors[lo:hi]
            for i in range(hi - lo):
                if ac[i] > NEGLIGIBLE:
                    idx[count] = own[i]
                    weight[count] = ac[i]
                    count += 1
                    for k in range(free):
                        f = m[j] * ac[i] * s[j, k + 1, c]
                        if f != 0.0:
                            row = h_tb[k, own[i]]
                            for t in range(len(x)):
                                row[t] += f * x[t]
        for r in range(count):
            w = m[j] * weight[r]
            row = h_bb[idx[r]]
            for r2 in range(r + 1):
                row[idx[r2]] += w * weight[r2]
