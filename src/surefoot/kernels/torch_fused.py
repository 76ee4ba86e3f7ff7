"""Passes over distances on a GPU in Triton: the sums of `torch_rows`, without temporary arrays as large as distances.

The first part contains the kernels. Each kernel reads the distances at most once from the device's memory.
`row_moments` computes moments per row and class, `joint_rows` per row over labels and classes, and `column_sums` per
anchor. Python floats reach a kernel in float32. Therefore α, 1/τ and β are passed in one array, `at` = [α, 1/τ, β…].
Arrays over rows are stored class by class, (C, B), so that neighbouring threads read neighbouring numbers.

The second part launches the kernels. The Hessian is computed differently. The anchors' weights (B, n) of a chunk of
rows are stored, and cuBLAS multiplies them. Tensor cores multiply 16-bit numbers about ten times as fast as float64.
Each weight is stored as the sum of two 16-bit numbers, so the products have relative errors of about 1e-7. For plain
transport in float32, one number is enough, with an error of 3e-4: the diagonal of the Hessian is corrected so that its
rows sum to zero, like the rows of the exact Hessian, and the Hessian is positive semidefinite. With α, λ or θ no such
correction is known, and a single number makes the Hessian indefinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from surefoot.kernels.torch_rows import SoftRows, add_theta_sums

# The quantities that `row_moments` computes in addition to the smallest value of each class.
LEAST = tl.constexpr(0)
TOTALS = tl.constexpr(1)
MOMENTS = tl.constexpr(2)
REPAIRED = tl.constexpr(3)
# exp(-800) is zero in float64. Larger exponents would only produce 0 · ∞.
_FAR = tl.constexpr(800.0)


@triton.jit
def _prices(base, at, cols, stop, inside):
    """Return the distances of a tile, and α d + β, which is infinite outside the class."""
    valid = cols < stop
    beta = tl.load(at + 2 + cols, mask=valid, other=float("inf"))
    d = tl.load(base + cols[None, :], mask=inside[:, None] & valid[None, :], other=0.0)
    return d, tl.load(at) * d + beta[None, :]


@triton.jit(do_not_specialize=["n_rows", "n", "n_classes"])
def row_moments(
    D, at, plan, out, offsets, n_rows, n, n_classes, WHAT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Compute moments of each row and class, with v = α d + β and e = exp((least v − v) / τ).

    out (·, C, B): least v; Σ e; then with MOMENTS Σ e d, Σ e d², Σ e (v − least) / τ; with REPAIRED, and plan (3, n)
    with rows keep, within, across: Σ e keep, Σ e d keep, Σ d within, Σ d across.
    """
    c = tl.program_id(1)
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    inside, wide = rows < n_rows, n_rows.to(tl.int64)
    first, stop = tl.load(offsets + c), tl.load(offsets + c + 1)
    rate = tl.load(at + 1)
    base = D + rows[:, None] * n
    least = tl.full([BM, BN], float("inf"), D.dtype.element_ty)
    for start in range(first, stop, BN):
        _, v = _prices(base, at, start + tl.arange(0, BN), stop, inside)
        least = tl.minimum(least, v)
    low = tl.min(least, axis=1)
    place, step = out + c * wide + rows, n_classes * wide
    tl.store(place, low, mask=inside)
    if WHAT != LEAST:
        zero = tl.zeros([BM, BN], D.dtype.element_ty)
        total, t1, t2, t3, t4 = zero, zero, zero, zero, zero
        for start in range(first, stop, BN):
            cols = start + tl.arange(0, BN)
            valid = cols < stop
            d, v = _prices(base, at, cols, stop, inside)
            excess = tl.minimum((v - low[:, None]) * rate, _FAR)
            e = tl.exp(-excess)
            total += e
            if WHAT == MOMENTS:
                moved = e * d
                t1 += moved
                t2 += moved * d
                t3 += e * excess
            if WHAT == REPAIRED:
                held = e * tl.load(plan + cols, mask=valid, other=0.0)[None, :]
                t1 += held
                t2 += held * d
                t3 += d * tl.load(plan + n + cols, mask=valid, other=0.0)[None, :]
                t4 += d * tl.load(plan + 2 * n + cols, mask=valid, other=0.0)[None, :]
        tl.store(place + step, tl.sum(total, axis=1), mask=inside)
        if WHAT >= MOMENTS:
            tl.store(place + 2 * step, tl.sum(t1, axis=1), mask=inside)
            tl.store(place + 3 * step, tl.sum(t2, axis=1), mask=inside)
            tl.store(place + 4 * step, tl.sum(t3, axis=1), mask=inside)
        if WHAT == REPAIRED:
            tl.store(place + 5 * step, tl.sum(t4, axis=1), mask=inside)


@triton.jit
def _share(gain, kappa, soft, k, c, rows, inside, wide, n_labels, n_classes, alpha, rate, top):
    """Return the logarithm of the unnormalised probability of label k and class c of each row."""
    value = tl.load(gain + rows * n_labels + k, mask=inside, other=0.0)
    value -= alpha * tl.load(kappa + k * n_classes + c)
    value -= tl.load(soft + c * wide + rows, mask=inside, other=0.0)
    return (value - top) * rate


@triton.jit
def _log_totals(moments, gain, kappa, soft, rows, inside, wide, n_labels, n_classes, alpha, rate, BM: tl.constexpr):
    """Fill soft (C, B). Return, for each row, the largest value over labels and classes, and the log of the sum."""
    top = tl.full([BM], float("-inf"), tl.float64)
    for c in range(n_classes):
        place = moments + c * wide + rows
        low = tl.load(place, mask=inside, other=0.0).to(tl.float64)
        total = tl.load(place + n_classes * wide, mask=inside, other=1.0).to(tl.float64)
        at_c = low - tl.log(total) / rate
        tl.store(soft + c * wide + rows, at_c, mask=inside)
        for k in range(n_labels):
            value = tl.load(gain + rows * n_labels + k, mask=inside, other=0.0)
            value -= alpha * tl.load(kappa + k * n_classes + c)
            top = tl.maximum(top, value - at_c)
    tl.debug_barrier()
    total = tl.zeros([BM], tl.float64)
    for k in range(n_labels):
        for c in range(n_classes):
            log_p = _share(gain, kappa, soft, k, c, rows, inside, wide, n_labels, n_classes, alpha, rate, top)
            total += tl.exp(log_p)
    return top, tl.log(total)


@triton.jit
def _labels(
    moments, gain, kappa, soft, q, label_cost, rows, inside, wide, n_labels, n_classes, alpha, rate, top, log_all,
    BM: tl.constexpr,
):  # fmt: skip
    """Fill q and E[c e_k] (K, B). Return E c, E c² and the entropy of the plan for each row."""
    step = n_classes * wide
    mean = tl.zeros([BM], tl.float64)
    second = tl.zeros([BM], tl.float64)
    entropy = tl.zeros([BM], tl.float64)
    for k in range(n_labels):
        q_k = tl.zeros([BM], tl.float64)
        cost_k = tl.zeros([BM], tl.float64)
        for c in range(n_classes):
            log_p = _share(gain, kappa, soft, k, c, rows, inside, wide, n_labels, n_classes, alpha, rate, top) - log_all
            p = tl.exp(log_p)
            kap = tl.load(kappa + k * n_classes + c)
            place = moments + c * wide + rows
            total = tl.load(place + step, mask=inside, other=1.0).to(tl.float64)
            t1 = tl.load(place + 2 * step, mask=inside, other=0.0).to(tl.float64) / total
            t2 = tl.load(place + 3 * step, mask=inside, other=0.0).to(tl.float64) / total
            t3 = tl.load(place + 4 * step, mask=inside, other=0.0).to(tl.float64) / total
            q_k += p
            cost_k += p * (t1 + kap)
            second += p * (t2 + kap * (2.0 * t1 + kap))
            entropy += p * (t3 + tl.log(total) - tl.maximum(log_p, -_FAR))
        mean += cost_k
        tl.store(q + k * wide + rows, q_k, mask=inside)
        tl.store(label_cost + k * wide + rows, cost_k, mask=inside)
    tl.debug_barrier()
    return mean, second, entropy


@triton.jit
def _classes(
    moments, gain, kappa, soft, q, factor, kbar, spread, rows, inside, wide, n_labels, n_classes, alpha, rate, top,
    log_all, mean, BM: tl.constexpr,
):  # fmt: skip
    """Fill factor and kbar (C, B), and spread (K, C, B)."""
    for c in range(n_classes):
        share = tl.zeros([BM], tl.float64)
        cost = tl.zeros([BM], tl.float64)
        for k in range(n_labels):
            log_p = _share(gain, kappa, soft, k, c, rows, inside, wide, n_labels, n_classes, alpha, rate, top) - log_all
            p = tl.exp(log_p)
            share += p
            cost += p * tl.load(kappa + k * n_classes + c)
        some = share > 1e-300
        over = 1.0 / tl.where(some, share, 1.0)
        place = c * wide + rows
        total = tl.load(moments + n_classes * wide + place, mask=inside, other=1.0).to(tl.float64)
        tl.store(factor + place, share / total, mask=inside)
        tl.store(kbar + place, tl.where(some, cost * over - mean, 0.0), mask=inside)
        for k in range(n_labels):
            log_p = _share(gain, kappa, soft, k, c, rows, inside, wide, n_labels, n_classes, alpha, rate, top) - log_all
            q_k = tl.load(q + k * wide + rows, mask=inside, other=0.0)
            there = spread + (k * n_classes + c) * wide + rows
            tl.store(there, tl.where(some, tl.exp(log_p) * over - q_k, 0.0), mask=inside)


@triton.jit(do_not_specialize=["n_rows", "n_labels", "n_classes"])
def joint_rows(
    moments, gain, weights, kappa, scalars, soft, factor, kbar, spread, q, label_cost, partial, n_rows, n_labels,
    n_classes, BM: tl.constexpr,
):  # fmt: skip
    """Compute the joint distribution of label and class of each row from the moments of each class, in float64.

    moments (5, C, B) of `row_moments`; gain (B, K) = ℓ − λ; kappa (K, C); scalars [α, 1/τ].
    Out: soft (C, B) = −τ log Σ exp(−v/τ); factor (C, B) = P(c) / Σ e; kbar (C, B) = E[κ | c] − E c; spread (K, C, B) =
    P(k | c) − P(k); q (K, B); label_cost (K, B) = Cov(c, e_k). Each program also writes the partial sums over its rows
    of m φ, m E c, m Var c, m entropy, then (K,) m q, (K,) m label_cost, (K, K) −m q qᵀ.
    """
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    inside = rows < n_rows
    alpha, rate = tl.load(scalars), tl.load(scalars + 1)
    m = tl.load(weights + rows, mask=inside, other=0.0)
    wide = n_rows.to(tl.int64)
    top, log_all = _log_totals(
        moments, gain, kappa, soft, rows, inside, wide, n_labels, n_classes, alpha, rate, BM
    )  # fmt: skip
    mean, second, entropy = _labels(
        moments, gain, kappa, soft, q, label_cost, rows, inside, wide, n_labels, n_classes, alpha, rate, top, log_all,
        BM,
    )  # fmt: skip
    _classes(
        moments, gain, kappa, soft, q, factor, kbar, spread, rows, inside, wide, n_labels, n_classes, alpha, rate, top,
        log_all, mean, BM,
    )  # fmt: skip
    mine = partial + tl.program_id(0).to(tl.int64) * (4 + 2 * n_labels + n_labels * n_labels)
    tl.store(mine, tl.sum(m * (top + log_all / rate)))
    tl.store(mine + 1, tl.sum(m * mean))
    tl.store(mine + 2, tl.sum(m * (second - mean * mean)))
    tl.store(mine + 3, tl.sum(m * entropy))
    for k in range(n_labels):
        place = k * wide + rows
        q_k = tl.load(q + place, mask=inside, other=0.0)
        cost_k = tl.load(label_cost + place, mask=inside, other=0.0) - mean * q_k
        tl.store(label_cost + place, cost_k, mask=inside)
        tl.store(mine + 4 + k, tl.sum(m * q_k))
        tl.store(mine + 4 + n_labels + k, tl.sum(m * cost_k))
        for other in range(n_labels):
            q_l = tl.load(q + other * wide + rows, mask=inside, other=0.0)
            tl.store(mine + 4 + 2 * n_labels + k * n_labels + other, -tl.sum(m * q_k * q_l))


@triton.jit(do_not_specialize=["n_rows", "n", "width"])
def column_sums(
    D, at, low, factor, kbar, spread, weights, unit, A, width, partial, tiles, n_rows, n, STORE: tl.constexpr,
    TWO: tl.constexpr, ALL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Sum the anchors' weights a = e · factor over rows. Each program sums BM · STEPS rows of a tile of anchors.

    tiles (T, 3) : first anchor, stop and class; low, factor, kbar (C, B); spread (C, B) of one label.
    partial (P, 3, n) : Σ m a (d + kbar), Σ m a, Σ m a spread; without ALL (P, 1, n), only the last.
    A (1 or 2, B, width) : with STORE, unit · √m a as one 16-bit number, or with TWO as the sum of two. Each program
    sums in the precision of D.
    """
    tile = tiles + 3 * tl.program_id(1)
    first, stop, c = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2).to(tl.int64)
    cols = first + tl.arange(0, BN)
    valid = cols < stop
    alpha, rate = tl.load(at), tl.load(at + 1)
    beta = tl.load(at + 2 + cols, mask=valid, other=float("inf"))
    number = D.dtype.element_ty
    labels = tl.zeros([BM, BN], number)
    mass, cost = labels, labels
    begin = tl.program_id(0).to(tl.int64) * (BM * STEPS)
    for at_step in range(STEPS):
        rows = begin + at_step * BM + tl.arange(0, BM)
        inside = rows < n_rows
        place = c * n_rows + rows
        least = tl.load(low + place, mask=inside, other=float("-inf"))
        share = tl.load(factor + place, mask=inside, other=0.0)
        m = tl.load(weights + rows, mask=inside, other=0.0)
        scale = (share * m).to(number)
        cells = rows[:, None] * n + cols[None, :]
        d = tl.load(D + cells, mask=inside[:, None] & valid[None, :], other=0.0)
        e = tl.exp(-tl.minimum((alpha * d + beta[None, :] - least[:, None]) * rate, _FAR))
        if STORE:
            root = e * (share * tl.sqrt(m) * tl.load(unit)).to(number)[:, None]
            high = root.to(tl.float16)
            there = A + rows[:, None] * width + cols[None, :]
            tl.store(there, high, mask=inside[:, None] & valid[None, :])
            if TWO:
                rest = (root - high.to(number)).to(tl.float16)
                tl.store(there + n_rows.to(tl.int64) * width, rest, mask=inside[:, None] & valid[None, :])
        w = e * scale[:, None]
        labels += w * tl.load(spread + place, mask=inside, other=0.0).to(number)[:, None]
        if ALL:
            mass += w
            cost += w * (d + tl.load(kbar + place, mask=inside, other=0.0).to(number)[:, None])
    block = partial + tl.program_id(0).to(tl.int64) * n * (3 if ALL else 1)
    if ALL:
        tl.store(block + cols, tl.sum(cost, axis=0), mask=valid)
        tl.store(block + n + cols, tl.sum(mass, axis=0), mask=valid)
        tl.store(block + 2 * n + cols, tl.sum(labels, axis=0), mask=valid)
    else:
        tl.store(block + cols, tl.sum(labels, axis=0), mask=valid)


@triton.jit(do_not_specialize=["n_rows", "n_features", "n_classes"])
def halved_features(
    X, size, root, unit, spread, out, n_rows, n_features, n_classes, BM: tl.constexpr, BP: tl.constexpr
):  # fmt: skip
    """Fill out (2, B, C, BP) with unit · root · spread[c] · x / size as the sum of two 16-bit numbers.

    The array is 0 beyond the features.
    """
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BP)
    inside, valid, wide = rows < n_rows, cols < n_features, n_rows.to(tl.int64)
    both = inside[:, None] & valid[None, :]
    x = tl.load(X + rows[:, None] * n_features + cols[None, :], mask=both, other=0.0)
    x = x / tl.load(size + cols, mask=valid, other=1.0)[None, :]
    scale = tl.load(root + rows, mask=inside, other=0.0) * tl.load(unit)
    for c in range(n_classes):
        value = x * (scale * tl.load(spread + c * wide + rows, mask=inside, other=0.0))[:, None]
        high = value.to(tl.float16)
        there = out + (rows * n_classes + c)[:, None] * BP + cols[None, :]
        tl.store(there, high, mask=inside[:, None])
        tl.store(there + wide * n_classes * BP, (value - high.to(tl.float64)).to(tl.float16), mask=inside[:, None])


# The ways to combine feature differences into a distance.
EUCLIDEAN = tl.constexpr(0)
MANHATTAN = tl.constexpr(1)
CHEBYSHEV = tl.constexpr(2)


@triton.jit(do_not_specialize=["n_rows", "step", "n", "n_features"])
def feature_distances(
    X, Z, out, n_rows, step, n, n_features, HOW: tl.constexpr, UNROLL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Compute distances (B, n), by differences, of rows X (d, B) and anchors Z (d, n), both stored by feature.

    step : the number of entries between the features of a row. Sums are in the precision of X.
    """
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inside, valid = rows < n_rows, cols < n
    wide = step.to(tl.int64)
    found = tl.zeros([BM, BN], X.dtype.element_ty)
    for t in tl.range(0, n_features, loop_unroll_factor=UNROLL):
        x = tl.load(X + t * wide + rows, mask=inside, other=0.0)
        z = tl.load(Z + t * n + cols, mask=valid, other=0.0)
        apart = x[:, None] - z[None, :]
        if HOW == EUCLIDEAN:
            found += apart * apart
        elif HOW == MANHATTAN:
            found += tl.abs(apart)
        else:
            found = tl.maximum(found, tl.abs(apart))
    if HOW == EUCLIDEAN:
        found = tl.sqrt(found)
    tl.store(
        out + rows[:, None] * n + cols[None, :], found.to(out.dtype.element_ty), mask=inside[:, None] & valid[None, :]
    )


# The tile sizes that were fastest on an H200, by the precision of the distances (benchmarks/gpu_tiles.py): the entries
# of a tile, its columns, and warps.
ROW_TILE = {
    torch.float64: {"entries": 128, "columns": 64, "num_warps": 1},
    torch.float32: {"entries": 128, "columns": 64, "num_warps": 1},
}
COLUMN_TILE = {
    torch.float64: {"BM": 2, "BN": 128, "STEPS": 256, "num_warps": 2},
    torch.float32: {"BM": 1, "BN": 256, "STEPS": 128, "num_warps": 2},
}
DISTANCE_TILE = {
    torch.float64: {"BM": 32, "BN": 32, "UNROLL": 6, "num_warps": 1},
    torch.float32: {"BM": 32, "BN": 32, "UNROLL": 6, "num_warps": 1},
}
JOINT_TILE = {"BM": 256, "num_warps": 4}
# Tensor cores sum the products of this many rows in float32. The sums of groups are added in float64.
_GROUP_ROWS = 16384


@dataclass(frozen=True)
class FusedRows:
    """A dual point and a smoothing on a device, in the layout of the kernels. kappa (K, C) is float64."""

    packed: Tensor
    scalars: Tensor
    kappa: Tensor
    columns: tuple[tuple[int, int], ...]
    tau: float

    @classmethod
    def from_rows(cls, at: SoftRows) -> FusedRows:
        scalars = torch.tensor([at.alpha, 1.0 / at.tau], dtype=torch.float64, device=at.beta.device)
        packed = torch.cat([scalars.to(at.beta.dtype), at.beta])
        return cls(packed, scalars, at.kappa.double(), at.columns, at.tau)


def class_least(D: Tensor, alpha: float, beta: Tensor, columns: Sequence[tuple[int, int]]) -> Tensor:
    """Return the smallest α d + β (B, C) over the anchors of each class."""
    return _moments(D, _packed(D, alpha, 1.0, beta), columns, LEAST)[0].T


def class_totals(D: Tensor, alpha: float, beta: Tensor, tau: float, columns: Sequence[tuple[int, int]]) -> Tensor:
    """Return log Σ exp(−(α d + β) / τ) (B, C) over the anchors of each class."""
    low, total = _moments(D, _packed(D, alpha, tau, beta), columns, TOTALS)
    return (torch.log(total) - low / tau).T


def class_repaired(
    D: Tensor, alpha: float, beta: Tensor, tau: float, plan: Tensor, columns: Sequence[tuple[int, int]]
) -> tuple[Tensor, ...]:
    """Return totals (B, C) of each class, and four means under its softmax with plan (3, n), all (B, C).

    The means are E keep, E[keep d], Σ within d and Σ across d.
    """
    found = _moments(D, _packed(D, alpha, tau, beta), columns, REPAIRED, plan)
    low, total, kept, kept_distance, moved, across = (part.T for part in found)
    return torch.log(total) - low / tau, kept / total, kept_distance / total, moved, across


def add_row_sums(
    sums: dict[str, Tensor],
    at: FusedRows,
    D: Tensor,
    m: Tensor,
    gain: Tensor,
    X: Tensor | None,
    losses: Tensor,
    *,
    second_order: bool,
) -> None:
    """Add the sums of `torch_rows.add_row_sums`. D and the point have their own precision. The rest is float64."""
    B, K, C = len(D), gain.shape[1], len(at.columns)
    moments = _moments(D, at.packed, at.columns, MOMENTS)
    made: Any = {"dtype": torch.float64, "device": D.device}
    factor, kbar, soft = torch.empty((3, C, B), **made)
    spread = torch.empty((K, C, B), **made)
    q, label_cost = torch.empty((2, K, B), **made)
    programs = _tiles_of(B, JOINT_TILE["BM"])
    partial = torch.empty((programs, 4 + 2 * K + K * K), **made)
    joint_rows[(programs,)](
        moments, gain.contiguous(), m, at.kappa, at.scalars, soft, factor, kbar, spread, q, label_cost, partial,
        B, K, C, **JOINT_TILE,
    )  # fmt: skip
    small, label, cost, pairs = partial.sum(dim=0).split([4, K, K, K * K])
    sums["small"] += small
    sums["label"] += label
    sums["label_cost"] += cost
    sums["label_label"] += pairs.view(K, K)
    plain = X is None and K == 1 and D.dtype == torch.float32
    halves = HalfWeights.empty(D, m, 1 if plain else 2) if second_order else None
    before = sums["beta"].clone()
    _add_column_sums(sums, at, D, m, (moments[0], factor, kbar, spread), halves)
    if X is not None:
        add_theta_sums(sums, X, m, q.T, torch.exp(-losses), label_cost.T, at.tau, second_order=second_order)
    if halves is not None:
        _add_products(sums, at, halves, X, torch.sqrt(m), spread, sums["beta"] - before)


def distances(columns: Tensor, anchors: Tensor, how: str, out: Tensor) -> None:
    """Write the distances (B, n) of rows, given by columns (d, B), to anchors (d, n) into `out`, by differences."""
    (d, B), n = columns.shape, anchors.shape[1]
    tile = DISTANCE_TILE[columns.dtype]
    grid = (_tiles_of(B, tile["BM"]), _tiles_of(n, tile["BN"]))
    kind = {"euclidean": EUCLIDEAN, "manhattan": MANHATTAN, "chebyshev": CHEBYSHEV}[how]
    feature_distances[grid](columns, anchors.contiguous(), out, B, columns.stride(0), n, d, HOW=kind, **tile)


def _packed(D: Tensor, alpha: float, tau: float, beta: Tensor) -> Tensor:
    """Return [α, 1/τ, β…] in the precision of the distances."""
    return torch.cat([torch.tensor([alpha, 1.0 / tau], dtype=D.dtype, device=D.device), beta.to(D.dtype)])


def _moments(
    D: Tensor, packed: Tensor, columns: Sequence[tuple[int, int]], what: Any, plan: Tensor | None = None
) -> Tensor:
    """Return the moments (·, C, B) from `row_moments`."""
    (B, n), C = D.shape, len(columns)
    found = D.new_empty(({0: 1, 1: 2, 2: 5, 3: 6}[what.value], C, B))
    tile = ROW_TILE[D.dtype]
    BN = min(tile["columns"], _power_of_two(max(hi - lo for lo, hi in columns)))
    BM = tile["entries"] // BN
    row_moments[(_tiles_of(B, BM), C)](
        D, packed, packed if plan is None else plan, found, _offsets(tuple(columns), D.device), B, n, C,
        WHAT=what, BM=BM, BN=BN, num_warps=tile["num_warps"],
    )  # fmt: skip
    return found


def _add_column_sums(
    sums: dict[str, Tensor],
    at: FusedRows,
    D: Tensor,
    m: Tensor,
    per_row: tuple[Tensor, Tensor, Tensor, Tensor],
    halves: HalfWeights | None,
) -> None:
    """Add the sums over rows for each anchor. Store the anchors' weights, times √m, if an array for them is passed."""
    (B, n), (low, factor, kbar, spread) = D.shape, per_row
    tile = COLUMN_TILE[D.dtype]
    tiles = _column_tiles(at.columns, tile["BN"], D.device)
    programs = _tiles_of(B, tile["BM"] * tile["STEPS"])
    for k in range(1, max(2, len(spread))):
        first = k == 1
        partial = torch.empty((programs, 3 if first else 1, n), dtype=torch.float64, device=D.device)
        of_label = spread[min(k, len(spread) - 1)]
        column_sums[(programs, len(tiles))](
            D, at.packed, low, factor, kbar, of_label, m, m if halves is None else halves.unit,
            D if halves is None else halves.parts, 0 if halves is None else halves.parts.shape[2], partial, tiles, B, n,
            STORE=first and halves is not None, TWO=halves is not None and len(halves.parts) > 1, ALL=first, **tile,
        )  # fmt: skip
        found = partial.sum(dim=0)
        if first:
            sums["alpha_beta"] += found[0]
            sums["beta"] += found[1]
        if k < len(spread):
            sums["label_beta"][k] += found[-1]
            sums["label_beta"][0] -= found[-1]


@dataclass(frozen=True)
class HalfWeights:
    """The anchors' weights √m a of B rows as sums of one or two 16-bit numbers, in parts (·, B, width), width ≥ n.

    unit : (), the factor on the stored weights, which are at most 1.
    """

    parts: Tensor
    n: int
    unit: Tensor

    @classmethod
    def empty(cls, D: Tensor, m: Tensor, parts: int) -> HalfWeights:
        B, n = D.shape
        width = -(-n // 8) * 8  # tensor cores need aligned rows
        unit = torch.rsqrt(m.max().clamp(min=1e-300))
        return cls(torch.empty((parts, B, width), dtype=torch.float16, device=D.device), n, unit)

    def gram(self) -> Tensor:
        """Return Σ m a aᵀ (n, n) in float64. Only the lower triangle is valid."""
        found = torch.zeros((self.n, self.n), dtype=torch.float64, device=self.parts.device)
        high, rest = self.parts[0], self.parts[-1]
        bands = max(1, self.n // 1024)  # multiply only the columns of a band up to the diagonal
        edges = [self.n * band // bands // 8 * 8 for band in range(bands)] + [self.n]
        for lo, hi in pairwise(edges):
            found[lo:hi, :hi] += _half_product(high[:, lo:hi], high[:, :hi])
            if len(self.parts) == 1:
                continue
            mixed = _half_product(high[:, lo:hi], rest[:, :hi])
            found[lo:hi, :hi] += mixed
            found[lo:hi, lo:hi] += mixed[:, lo:].T
            if lo:
                found[lo:hi, :lo] += _half_product(rest[:, lo:hi], high[:, :lo])
        return found / self.unit**2

    def times(self, X: Tensor, root: Tensor, spread: Tensor) -> Tensor:
        """Return Σ m a s_c xᵀ (n, C, p) in float64, for features X (B, p), root √m (B,) and spread s (C, B)."""
        (B, p), C, padded = X.shape, len(spread), _power_of_two(X.shape[1])
        size = X.abs().amax(dim=0).clamp(min=1e-300)
        unit = 1.0 / (root * spread.abs()).max().clamp(min=1e-300)
        right = torch.empty((2, B, C, padded), dtype=torch.float16, device=X.device)
        halved_features[(_tiles_of(B, 16),)](
            X.contiguous(), size, root, unit, spread, right, B, p, C, BM=16, BP=padded
        )  # fmt: skip
        high, (first, second) = self.parts[0, :, : self.n], right.flatten(2)
        found = _half_product(high, first)
        if len(self.parts) > 1:
            found += _half_product(high, second) + _half_product(self.parts[1, :, : self.n], first)
        return found.unflatten(1, (C, padded))[..., :p] * (size / (self.unit * unit))


def _half_product(left: Tensor, right: Tensor) -> Tensor:
    """Return leftᵀ · right of tall 16-bit matrices (B, a), (B, b): float32 within groups of rows, float64 across."""
    if not left.is_cuda:
        return left.double().T @ right.double()
    groups = len(left) // _GROUP_ROWS
    cut = groups * _GROUP_ROWS
    found = torch.mm(left[cut:].T, right[cut:], out_dtype=torch.float32).double()
    if groups:
        lefts, rights = (one[:cut].unflatten(0, (groups, _GROUP_ROWS)) for one in (left, right))
        found += torch.bmm(lefts.transpose(1, 2), rights, out_dtype=torch.float32).sum(dim=0, dtype=torch.float64)
    return found


def _add_products(
    sums: dict[str, Tensor],
    at: FusedRows,
    halves: HalfWeights,
    X: Tensor | None,
    root: Tensor,
    spread: Tensor,
    mass: Tensor,
) -> None:
    """Add Σ m s a x and Σ m a aᵀ from √m a. mass (n,) : Σ m a over the given rows."""
    if X is not None:
        for k in range(len(sums["theta_beta"])):
            found = halves.times(X, root, spread[k + 1])
            for c, (lo, hi) in enumerate(at.columns):
                sums["theta_beta"][k, lo:hi] += found[lo:hi, c]
    gram = halves.gram()
    if len(halves.parts) == 1:  # the weights of a row sum to 1, so row i of the exact product sums to Σ m a_i
        gram = gram.tril()
        gram.diagonal().add_(mass - gram.sum(dim=1) - gram.sum(dim=0) + gram.diagonal())
    sums["beta_beta"] += gram


def _tiles_of(length: int, size: int) -> int:
    return -(-length // size)


def _power_of_two(least: int) -> int:
    return 1 << max(4, (least - 1).bit_length())


@lru_cache(maxsize=64)
def _offsets(columns: tuple[tuple[int, int], ...], device: torch.device) -> Tensor:
    return torch.tensor([columns[0][0], *(hi for _, hi in columns)], dtype=torch.int32, device=device)


@lru_cache(maxsize=64)
def _column_tiles(columns: tuple[tuple[int, int], ...], size: int, device: torch.device) -> Tensor:
    """Return first anchor, stop and class of each tile, (T, 3). A tile never spans two classes."""
    tiles = [(start, min(start + size, hi), c) for c, (lo, hi) in enumerate(columns) for start in range(lo, hi, size)]
    return torch.tensor(tiles, dtype=torch.int32, device=device)
