"""The hot kernel: soft assignment of rows to labels and anchors, over all anchors or over short lists.

`soft_rows` sums over all anchors. `soft_listed` sums over the anchors listed for each row and class. The sums are equal
up to rounding.
"""

from __future__ import annotations

import math

import numpy as np

from surefoot.kernels.compiled import compiled

# The hot kernel: soft assignment of rows to labels and anchors.

# Weights below exp(-36) of the largest weight are rounding errors in float64.
NEGLIGIBLE = math.exp(-36.0)
_ROUND = 6755399441055744.0  # 1.5·2^52: adding it leaves the nearest integer in the low bits of a float64
# Weights within a class are at least exp(-345), so that no product of two is subnormal. Processors take up to 70 times
# as long for subnormal numbers. A class is ignored if its weight is below this after rounding.
_MOST_EXPONENT, _LEAST_CLASS = 345.0, 1e-140
_LOG2_E = math.log2(math.e)
# log(2) as the sum of two numbers, so that its multiples are more exact than float64.
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
FAST = {"nnan", "ninf", "nsz", "contract", "arcp", "reassoc"}
_ORDERED = {"nnan", "ninf", "nsz", "contract"}  # without "reassoc", which would undo the rounding trick


@compiled(fastmath=_ORDERED)
def exp_negative(v, low, inv_tau, out, scratch, bits):  # pragma: no cover (compiled)
    """Set out[i] = exp((low − v[i]) / τ), to 1e-15 relative, at least exp(-345). scratch and bits share memory."""
    n = v.shape[0]
    for i in range(n):
        t = min((v[i] - low) * inv_tau, _MOST_EXPONENT)
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


@compiled(fastmath=FAST, inline="always")
def join_labels(
    j, soft, alpha, kappa, U, tau, cost, scratch, bits, flat, q, cck, s, at_class, second
):  # pragma: no cover (compiled)
    """Join the anchors of each class with the labels of row j, given soft minima and moments within each class.

    soft (4, C): soft minimum, E d, E d², entropy within the class; U (B, K) = ℓ − λ; cost, scratch (shares memory with
    bits), flat (K·C,): work space. Written: q (B, K) and at_class (3, C) = P(c), E κ within the class, 1 / P(c). With
    `second`, the second moments cck (B, K) and s (B, K, C) are also written. Returns φ, E c, Var c, entropy.
    """
    K, C = kappa.shape
    inv_tau = 1.0 / tau
    low = alpha * kappa[0, 0] + soft[0, 0] - U[j, 0]
    i = np.uint64(0)
    for k in range(K):
        for c in range(C):
            t = alpha * kappa[k, c] + soft[0, c] - U[j, k]
            cost[i] = t
            i += np.uint64(1)
            low = min(low, t)
    exp_negative(cost, low, inv_tau, flat, scratch, bits)
    total = 0.0
    entropy = 0.0
    for pair in range(len(flat)):
        total += flat[pair]
        entropy += flat[pair] * (cost[pair] - low)
    inv = 1.0 / total
    log_total = math.log(total)
    entropy = entropy * inv * inv_tau + log_total
    mean_c = 0.0
    mean_c2 = 0.0
    for c in range(C):
        at_class[0, c] = 0.0
        at_class[1, c] = 0.0
    i = np.uint64(0)
    for k in range(K):
        qk = 0.0
        ck = 0.0
        for c in range(C):
            e = flat[i] * inv
            flat[i] = e
            i += np.uint64(1)
            kap = kappa[k, c]
            qk += e
            at_class[0, c] += e
            at_class[1, c] += e * kap
            ck += e * (soft[1, c] + kap)
            mean_c2 += e * (soft[2, c] + kap * (2.0 * soft[1, c] + kap))
            entropy += e * soft[3, c]
        q[j, k] = qk
        cck[j, k] = ck
        mean_c += ck
    for c in range(C):
        at_class[2, c] = 1.0 / at_class[0, c] if at_class[0, c] > _LEAST_CLASS else 0.0
    if second:
        i = np.uint64(0)
        for k in range(K):
            qk = q[j, k]
            cck[j, k] -= mean_c * qk
            for c in range(C):
                s[j, k, c] = flat[i] * at_class[2, c] - qk if at_class[2, c] > 0.0 else 0.0
                i += np.uint64(1)
    return tau * log_total - low, mean_c, mean_c2 - mean_c * mean_c, entropy


@compiled(fastmath=FAST, inline="always")
def respond(j, soft, alpha, kappa, U, tau, response, labels, values, prices, share, cov):  # pragma: no cover (compiled)
    """Add to U (B, K) = −λ in row j the losses for which the softmax over labels equals the best response.

    soft (C,) are the soft minima of the classes. With V = 0 vertices, the response is h ∝ exp(response · a), and the
    losses are −log h. Otherwise the response is the softmax over vertices of the game of the row, labels (V, K) with
    values (V,). prices (K,), share (V,): work space. Written: cov (K, K), τ times the second derivatives of Φ in a.
    """
    K, C = kappa.shape
    V = labels.shape[0]
    inv_tau = 1.0 / tau
    for k in range(K):
        low = alpha * kappa[k, 0] + soft[0]
        for c in range(1, C):
            low = min(low, alpha * kappa[k, c] + soft[c])
        total = 0.0
        for c in range(C):
            total += math.exp(max((low - alpha * kappa[k, c] - soft[c]) * inv_tau, -_MOST_EXPONENT))
        prices[k] = U[j, k] - low + tau * math.log(total)
    if V == 0:
        highest = prices[0]
        for k in range(1, K):
            highest = max(highest, prices[k])
        total = 0.0
        for k in range(K):
            total += math.exp(max(response * (prices[k] - highest), -_MOST_EXPONENT))
        for k in range(K):
            loss = response * (highest - prices[k]) + math.log(total)
            U[j, k] += loss
            prices[k] = math.exp(-loss)
        for k in range(K):
            for other in range(K):
                cov[k, other] = (response - 1.0) * prices[k] * prices[other]
            cov[k, k] += (1.0 - response) * prices[k]
        return
    highest = 0.0
    for v in range(V):
        value = values[v]
        for k in range(K):
            value += labels[v, k] * prices[k]
        share[v] = value
        highest = value if v == 0 else max(highest, value)
    total = 0.0
    for v in range(V):
        share[v] = math.exp(max((share[v] - highest) * inv_tau, -_MOST_EXPONENT))
        total += share[v]
    value = highest + tau * math.log(total)
    inv = 1.0 / total
    for k in range(K):
        q = 0.0
        for v in range(V):
            q += share[v] * labels[v, k]
        U[j, k] += value + tau * math.log(q * inv) - prices[k]
        prices[k] = q * inv
    for k in range(K):
        for other in range(k + 1):
            both = 0.0
            for v in range(V):
                both += share[v] * (labels[v, k] - prices[k]) * (labels[v, other] - prices[other])
            cov[k, other] = both * inv
            cov[other, k] = both * inv


@compiled(fastmath=FAST, inline="always")
def respond_moments(j, q, cck, s, cov, mj, pairs, shift, moved, moved_cost, h_ll):  # pragma: no cover (compiled)
    """Replace the second moments of row j by the moments of the best response, which changes with the point.

    The means given each label have covariance cov (K, K) over labels, instead of diag q − q qᵀ. moved (K, C),
    moved_cost (K,): work space. Written: pairs (B, C, C), the factors of a aᵀ by class, and shift (C,), the decrease of
    E c of each class. Added to: h_ll (K, K) = Σ m cov. Returns the decrease of Var c.
    """
    K, C = s.shape[1], s.shape[2]
    variance = 0.0
    for c in range(C):
        shift[c] = 0.0
        for other in range(C):
            pairs[j, c, other] = 1.0
    for k in range(K):
        moved_cost[k] = 0.0
        for c in range(C):
            moved[k, c] = 0.0
        for other in range(K):
            h_ll[k, other] += mj * cov[k, other]
            if q[j, other] > _LEAST_CLASS:
                per = cov[k, other] / q[j, other]
                moved_cost[k] += per * cck[j, other]
                for c in range(C):
                    moved[k, c] += per * s[j, other, c]
    for k in range(K):
        if q[j, k] > _LEAST_CLASS:
            per = 1.0 / q[j, k]
            less = per * (cck[j, k] - moved_cost[k])
            variance += less * cck[j, k]
            for c in range(C):
                shift[c] += less * s[j, k, c]
                for other in range(C):
                    pairs[j, c, other] += per * s[j, k, c] * (s[j, k, other] - moved[k, other])
    for k in range(K):
        cck[j, k] = moved_cost[k]
        for c in range(C):
            s[j, k, c] = moved[k, c]
    return variance


@compiled(fastmath=FAST)
def soft_rows(
    D, m, alpha, beta, offsets, kappa, U, tau, response, labels, values, least, A, phi, q, cck, s, pairs, g_beta, h_ab,
    h_lb, h_ll, small, second
):  # fmt: skip # pragma: no cover (compiled)
    """Compute the softmax of each row of a chunk, with the moments of the gradient and, with `second`, of the Hessian.

    Inputs: D (B, n), m (B,), beta (n,), offsets (C+1,), kappa (K, C), U (B, K) = ℓ − λ. response: 0 for given losses.
    If response is positive, the best response is added to U = −λ (see `respond`, also for labels and values), and the
    moments are the moments of the response (with pairs (B, C, C), the factors of a aᵀ by class).
    Outputs per row: A (B, n) weights a of anchors, 0 where √m a is below `least`, phi (B,), q (B, K),
    cck (B, K) = Cov(c, e_k), s (B, K, C) = P(k | c) − P(k).
    Added to: g_beta (n,) = Σ m a_ji, h_ab (n,) = Σ m Cov(c, e_i), h_lb (K, n) = Σ m Cov(e_k, e_i), for a response h_ll
    (K, K) = Σ m Cov(e_k, e_l), small = [Σ m φ, Σ m E c, Σ m Var c, Σ m H(P)], with H the entropy.
    The second moments cck, s, h_ab and h_lb are computed with `second` only. Returns the number of weights that are not
    negligible.
    """
    B, n = D.shape
    K, C = kappa.shape
    # LLVM vectorises loops over indices that are known to be non-negative
    edges = offsets.astype(np.uint64)
    v, scratch = np.empty(n), np.empty(n)
    bits = scratch.view(np.int64)
    soft, norm, at_class = np.empty((4, C)), np.empty(C), np.empty((3, C))
    scores, shift, share = np.empty(K), np.zeros(C), np.empty(labels.shape[0])
    cov, moved, moved_cost = np.empty((K, K)), np.empty((K, C)), np.empty(K)
    cost, pair_scratch, flat = np.empty(K * C), np.empty(K * C), np.empty(K * C)
    pair_bits = pair_scratch.view(np.int64)
    inv_tau = 1.0 / tau
    stored = 0
    for j in range(B):
        row, a = D[j], A[j]
        for c in range(C):
            lo, hi = edges[c], edges[c + 1]
            low = alpha * row[lo] + beta[lo]
            for i in range(lo, hi):
                t = alpha * row[i] + beta[i]
                v[i] = t
                low = min(low, t)
            soft[0, c] = low
            for i in range(lo, hi):
                v[i] -= low
        exp_negative(v, 0.0, inv_tau, a, scratch, bits)
        for c in range(C):
            total = 0.0
            t1 = 0.0
            t2 = 0.0
            tv = 0.0
            for i in range(edges[c], edges[c + 1]):
                e = a[i]
                d = row[i]
                total += e
                t1 += e * d
                t2 += e * d * d
                tv += e * v[i]
            inv = 1.0 / total
            log_total = math.log(total)
            norm[c] = inv
            soft[0, c] -= tau * log_total
            soft[1, c] = t1 * inv
            soft[2, c] = t2 * inv
            soft[3, c] = tv * inv * inv_tau + log_total
        if response > 0.0:
            respond(j, soft[0], alpha, kappa, U, tau, response, labels, values, scores, share, cov)
        phi[j], mean_c, variance, entropy = join_labels(
            j, soft, alpha, kappa, U, tau, cost, pair_scratch, pair_bits, flat, q, cck, s, at_class, second
        )
        if second and response > 0.0:
            variance -= respond_moments(j, q, cck, s, cov, m[j], pairs, shift, moved, moved_cost, h_ll)
        mj = m[j]
        small[0] += mj * phi[j]
        small[1] += mj * mean_c
        small[2] += mj * variance
        small[3] += mj * entropy
        for c in range(C):
            f = at_class[0, c] * norm[c]
            if not second:
                f *= mj
                for i in range(edges[c], edges[c + 1]):
                    g_beta[i] += a[i] * f
                continue
            kb = at_class[1, c] * at_class[2, c] - mean_c - shift[c]
            lowest = least / math.sqrt(mj) if mj > 0.0 else 1.0
            count = 0
            for i in range(edges[c], edges[c + 1]):
                w = a[i] * f
                a[i] = w if w >= lowest else 0.0
                count += w > NEGLIGIBLE
                w *= mj
                g_beta[i] += w
                h_ab[i] += w * (row[i] + kb)
            stored += count
            for k in range(1, K):
                f = mj * s[j, k, c]
                for i in range(edges[c], edges[c + 1]):
                    h_lb[k, i] += f * a[i]
    return stored


@compiled(fastmath=FAST)
def add_sparse_products(A, m, slots, s, pairs, X, h_bb, h_tb):  # pragma: no cover (compiled)
    """Add Σ m a aᵀ to the lower triangle of h_bb (n, n) and Σ m s_kc a_i x to h_tb (K−1, n, d), skipping zeros.

    pairs : (B, C, C) factors of a aᵀ by class, or without rows if they are 1.
    """
    paired = pairs.shape[0] > 0
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
            if paired:
                for r2 in range(r + 1):
                    h_bb[i, idx[r2]] += w * A[j, idx[r2]] * pairs[j, slots[i], slots[idx[r2]]]
                continue
            for r2 in range(r + 1):
                h_bb[i, idx[r2]] += w * A[j, idx[r2]]
            for k in range(free):
                f = w * s[j, k + 1, slots[i]]
                if f != 0.0:
                    for t in range(d):
                        h_tb[k, i, t] += f * X[j, t]


@compiled(fastmath=FAST, inline="always")
def _cheapest_label(alpha, kappa, u, c):  # pragma: no cover (compiled)
    """Return min_k α κ_kc − u_k, the cost of the anchors of a class for a row, minus α d + β."""
    least = alpha * kappa[0, c] - u[0]
    for k in range(1, kappa.shape[0]):
        least = min(least, alpha * kappa[k, c] - u[k])
    return least


@compiled(fastmath=FAST)
def count_near(D, alpha, beta, offsets, kappa, U, margin, limits, counts):  # pragma: no cover (compiled)
    """Find the limits (B, C) up to which α d + β is near, and the number (B, C) of anchors up to each limit.

    An anchor is near if it is within `margin` of the row's best pair of label and anchor. The best anchor of each class
    is always near.
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
            low += _cheapest_label(alpha, kappa, U[j], c)
            best = low if c == 0 else min(best, low)
        for c in range(C):
            limit = max(limits[j, c], best + margin - _cheapest_label(alpha, kappa, U[j], c))
            limits[j, c] = limit
            count = 0
            for i in range(edges[c], edges[c + 1]):
                count += v[i] <= limit
            counts[j, c] = count


@compiled(fastmath=FAST)
def list_near(D, alpha, beta, offsets, limits, starts, anchors, distances):  # pragma: no cover (compiled)
    """Fill the lists of near anchors: anchors and distances, at starts (B·C+1,)."""
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
    starts, anchors, distances, beyond, gap, loose, fails, m, alpha, beta, kappa, U, tau, response, labels, values, a,
    phi, q, cck, s, pairs, g_beta, h_ab, h_lb, h_ll, small, second
):  # fmt: skip # pragma: no cover (compiled)
    """Compute `soft_rows` over lists: starts (B·C+1,) into anchors and distances (L,); a (L,) : weights in list order.

    beyond (B, C) : a lower bound on α d + β over the unlisted anchors. A row fails, in failed (B,), if an unlisted
    anchor may come within `gap` of the row's best pair. The row's weight m is then set to zero, unless `loose`.
    """
    B, K = U.shape
    C = kappa.shape[1]
    first = starts[0]
    v, scratch = np.empty(len(a)), np.empty(len(a))
    soft, norm, at_class = np.empty((4, C)), np.empty(C), np.empty((3, C))
    scores, shift, share = np.empty(K), np.zeros(C), np.empty(labels.shape[0])
    cov, moved, moved_cost = np.empty((K, K)), np.empty((K, C)), np.empty(K)
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
        if response > 0.0:  # every label has a weight, so an anchor is near if it is near for any label
            for k in range(K):
                scores[k] = alpha * kappa[k, 0] + lows[j * C]
                for c in range(1, C):
                    scores[k] = min(scores[k], alpha * kappa[k, c] + lows[j * C + c])
        else:
            for k in range(K):
                scores[k] = U[j, k]
        for c in range(C):
            low, extra = lows[j * C + c], _cheapest_label(alpha, kappa, scores, c)
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
        if response > 0.0:
            respond(j, soft[0], alpha, kappa, U, tau, response, labels, values, scores, share, cov)
        phi[j], mean_c, variance, entropy = join_labels(
            j, soft, alpha, kappa, U, tau, cost, pair_scratch, pair_bits, flat, q, cck, s, at_class, second
        )
        if second and response > 0.0:
            variance -= respond_moments(j, q, cck, s, cov, m[j], pairs, shift, moved, moved_cost, h_ll)
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
            kb = at_class[1, c] * at_class[2, c] - mean_c - shift[c]
            for i in range(hi - lo):
                w = ac[i] * f
                ac[i] = w
                w *= mj
                g_beta[idx[i]] += w
                h_ab[idx[i]] += w * (rc[i] + kb)
                for k in range(1, K):
                    h_lb[k, idx[i]] += w * s[j, k, c]


@compiled(fastmath=FAST)
def add_listed_products(starts, anchors, a, m, s, pairs, X, h_bb, h_tb):  # pragma: no cover (compiled)
    """Add Σ m a aᵀ to the lower triangle of h_bb (n, n) and Σ m s_kc a_i x to h_tb (K−1, n, d).

    pairs : (B, C, C) factors of a aᵀ by class, or without rows if they are 1.
    """
    B, C = s.shape[0], s.shape[2]
    free, first = h_tb.shape[0], starts[0]
    longest = 0
    for j in range(B):
        longest = max(longest, starts[(j + 1) * C] - starts[j * C])
    idx, weight, slot = np.empty(longest, np.uint32), np.empty(longest), np.empty(longest, np.uint32)
    paired = pairs.shape[0] > 0
    for j in range(B):
        count, x = 0, X[j]
        for c in range(C):
            lo, hi = starts[j * C + c], starts[j * C + c + 1]
            ac, own = a[lo - first : hi - first], anchors[lo:hi]
            for i in range(hi - lo):
                if ac[i] > NEGLIGIBLE:
                    idx[count] = own[i]
                    weight[count] = ac[i]
                    slot[count] = c
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
            if paired:
                for r2 in range(r + 1):
                    row[idx[r2]] += w * weight[r2] * pairs[j, slot[r], slot[r2]]
                continue
            for r2 in range(r + 1):
                row[idx[r2]] += w * weight[r2]
