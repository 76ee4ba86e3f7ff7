"""Passes over distances on a GPU by the kernels of `triton_rows`, without temporary arrays of that size.

The Hessian is an exception: the anchors' weights (B, n) of a chunk of rows are stored, and cuBLAS multiplies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from surefoot.kernels import triton_rows as kernels
from surefoot.kernels.torch_rows import SoftRows, add_theta_sums

# Tile sizes that were fastest on an H200 (benchmarks/gpu_tiles.py): entries of a tile, its columns, and warps.
ROW_TILE = {"entries": 128, "columns": 64, "num_warps": 1}
COLUMN_TILE = {"BM": 2, "BN": 128, "STEPS": 256, "num_warps": 2}
DISTANCE_TILE = {"BM": 32, "BN": 32, "UNROLL": 6, "num_warps": 1}
JOINT_TILE = {"BM": 256, "num_warps": 4}
# Parts of the columns in which the lower triangle of the Hessian is computed, because torch has no symmetric product.
_PARTS = 4


@dataclass(frozen=True)
class FusedRows:
    """A dual point and a smoothing on a device, in the layout of the kernels; kappa (K, C) is float64."""

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
    """(B, C) the smallest α d + β over the anchors of each class."""
    return _moments(D, _packed(D, alpha, 1.0, beta), columns, kernels.LEAST)[0].T


def class_totals(D: Tensor, alpha: float, beta: Tensor, tau: float, columns: Sequence[tuple[int, int]]) -> Tensor:
    """(B, C) log Σ exp(−(α d + β) / τ) over the anchors of each class."""
    low, total = _moments(D, _packed(D, alpha, tau, beta), columns, kernels.TOTALS)
    return (torch.log(total) - low / tau).T


def class_repaired(
    D: Tensor, alpha: float, beta: Tensor, tau: float, plan: Tensor, columns: Sequence[tuple[int, int]]
) -> tuple[Tensor, ...]:
    """Totals (B, C) of each class, and four means under its softmax with plan (3, n), all (B, C).

    The means are E keep, E[keep d], Σ within d and Σ across d.
    """
    found = _moments(D, _packed(D, alpha, tau, beta), columns, kernels.REPAIRED, plan)
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
    """Add the sums of `torch_rows.add_row_sums`. D and the point have their own precision; the rest is float64."""
    B, K, C = len(D), gain.shape[1], len(at.columns)
    moments = _moments(D, at.packed, at.columns, kernels.MOMENTS)
    made: Any = {"dtype": torch.float64, "device": D.device}
    factor, kbar, soft = torch.empty((3, C, B), **made)
    spread = torch.empty((K, C, B), **made)
    q, label_cost = torch.empty((2, K, B), **made)
    programs = _tiles_of(B, JOINT_TILE["BM"])
    partial = torch.empty((programs, 4 + 2 * K + K * K), **made)
    kernels.joint_rows[(programs,)](
        moments, gain.contiguous(), m, at.kappa, at.scalars, soft, factor, kbar, spread, q, label_cost, partial,
        B, K, C, **JOINT_TILE,
    )  # fmt: skip
    small, label, cost, pairs = partial.sum(dim=0).split([4, K, K, K * K])
    sums["small"] += small
    sums["label"] += label
    sums["label_cost"] += cost
    sums["label_label"] += pairs.view(K, K)
    weights = torch.empty_like(D) if second_order else None
    _add_column_sums(sums, at, D, m, (moments[0], factor, kbar, spread), weights)
    if X is not None:
        add_theta_sums(sums, X, m, q.T, torch.exp(-losses), label_cost.T, at.tau, second_order=second_order)
    if weights is not None:
        _add_products(sums, at, weights, X, torch.sqrt(m), spread)


def distances(rows: Tensor, anchors: Tensor, how: str, out: Tensor) -> None:
    """Distances (B, n) of rows (B, d) to anchors (n, d), by differences, into `out`, in its precision."""
    (B, d), n = rows.shape, len(anchors)
    grid = (_tiles_of(B, DISTANCE_TILE["BM"]), _tiles_of(n, DISTANCE_TILE["BN"]))
    kind = {"euclidean": kernels.EUCLIDEAN, "manhattan": kernels.MANHATTAN, "chebyshev": kernels.CHEBYSHEV}[how]
    kernels.distances[grid](rows.T.contiguous(), anchors.T.contiguous(), out, B, n, d, HOW=kind, **DISTANCE_TILE)


def _packed(D: Tensor, alpha: float, tau: float, beta: Tensor) -> Tensor:
    """[α, 1/τ, β…] in the precision of the distances."""
    return torch.cat([torch.tensor([alpha, 1.0 / tau], dtype=D.dtype, device=D.device), beta.to(D.dtype)])


def _moments(
    D: Tensor, packed: Tensor, columns: Sequence[tuple[int, int]], what: Any, plan: Tensor | None = None
) -> Tensor:
    """Moments (·, C, B) from `row_moments`."""
    (B, n), C = D.shape, len(columns)
    found = D.new_empty(({0: 1, 1: 2, 2: 5, 3: 6}[what.value], C, B))
    BN = min(ROW_TILE["columns"], _power_of_two(max(hi - lo for lo, hi in columns)))
    BM = ROW_TILE["entries"] // BN
    kernels.row_moments[(_tiles_of(B, BM), C)](
        D, packed, packed if plan is None else plan, found, _offsets(tuple(columns), D.device), B, n, C,
        WHAT=what, BM=BM, BN=BN, num_warps=ROW_TILE["num_warps"],
    )  # fmt: skip
    return found


def _add_column_sums(
    sums: dict[str, Tensor],
    at: FusedRows,
    D: Tensor,
    m: Tensor,
    per_row: tuple[Tensor, Tensor, Tensor, Tensor],
    weights: Tensor | None,
) -> None:
    """Add the sums over rows for each anchor. Store the anchors' weights, times √m, if an array for them is passed."""
    (B, n), (low, factor, kbar, spread) = D.shape, per_row
    tiles = _column_tiles(at.columns, COLUMN_TILE["BN"], D.device)
    programs = _tiles_of(B, COLUMN_TILE["BM"] * COLUMN_TILE["STEPS"])
    for k in range(1, max(2, len(spread))):
        first = k == 1
        partial = torch.empty((programs, 3 if first else 1, n), dtype=torch.float64, device=D.device)
        of_label = spread[min(k, len(spread) - 1)]
        kernels.column_sums[(programs, len(tiles))](
            D, at.packed, low, factor, kbar, of_label, m, D if weights is None else weights, partial, tiles, B, n,
            STORE=first and weights is not None, ALL=first, **COLUMN_TILE,
        )  # fmt: skip
        found = partial.sum(dim=0)
        if first:
            sums["alpha_beta"] += found[0]
            sums["beta"] += found[1]
        if k < len(spread):
            sums["label_beta"][k] += found[-1]
            sums["label_beta"][0] -= found[-1]


def _add_products(
    sums: dict[str, Tensor], at: FusedRows, weights: Tensor, X: Tensor | None, root: Tensor, spread: Tensor
) -> None:
    """Add Σ m s a x and Σ m a aᵀ (at least its lower triangle), from √m a (B, n)."""
    if X is not None:
        for k in range(len(sums["theta_beta"])):
            for c, (lo, hi) in enumerate(at.columns):
                right = (X * (root * spread[k + 1, c])[:, None]).to(weights.dtype)
                sums["theta_beta"][k, lo:hi] += (weights[:, lo:hi].T @ right).double()
    n = weights.shape[1]
    edges = [n * part // _PARTS for part in range(_PARTS + 1)]
    for lo, hi in pairwise(edges):
        sums["beta_beta"][lo:hi, :hi] += weights[:, lo:hi].T @ weights[:, :hi]


def _tiles_of(length: int, size: int) -> int:
    return -(-length // size)


def _power_of_two(least: int) -> int:
    return 1 << max(4, (least - 1).bit_length())


@lru_cache(maxsize=64)
def _offsets(columns: tuple[tuple[int, int], ...], device: torch.device) -> Tensor:
    return torch.tensor([columns[0][0], *(hi for _, hi in columns)], dtype=torch.int32, device=device)


@lru_cache(maxsize=64)
def _column_tiles(columns: tuple[tuple[int, int], ...], size: int, device: torch.device) -> Tensor:
    """(T, 3) first anchor, stop and class of each tile. A tile never spans two classes."""
    tiles = [(start, min(start + size, hi), c) for c, (lo, hi) in enumerate(columns) for start in range(lo, hi, size)]
    return torch.tensor(tiles, dtype=torch.int32, device=device)
