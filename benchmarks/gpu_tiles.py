"""Time each fused kernel over a grid of tiles, at N rows and n anchors, in float64.

    python benchmarks/gpu_tiles.py [--rows 1000000] [--anchors 1000] [--features 54] [--out FILE.csv]

The data are two classes of equal size on one CUDA device. Enter the fastest tiles in `surefoot.kernels.torch_fused`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton

from surefoot.kernels import torch_fused as fused_rows
from surefoot.kernels.torch_rows import SoftRows

ROW_TILES = [
    (entries, columns, warps)
    for entries, columns, warps in itertools.product((128, 256, 512), (32, 64, 128, 256), (1, 2))
    if columns <= entries
]
COLUMN_TILES = [
    (1, 128, 256, 1), (1, 256, 128, 2), (2, 64, 128, 1), (2, 128, 128, 1), (2, 128, 128, 2), (2, 128, 64, 2),
    (2, 128, 256, 2), (2, 256, 128, 4), (2, 128, 128, 4), (4, 128, 64, 4), (8, 128, 64, 4),
]  # fmt: skip
_SHAPES = [(32, 32, 1), (16, 32, 1), (32, 16, 1), (64, 32, 1), (32, 64, 1), (64, 16, 1), (16, 128, 2), (64, 32, 2)]
DISTANCE_TILES = [(BM, BN, unroll, warps) for BM, BN, warps in _SHAPES for unroll in (2, 6)]


def milliseconds(work: Callable[[], object]) -> float:
    return float(triton.testing.do_bench(work, warmup=30, rep=100, return_mode="median"))


def setting(names: dict[str, int], values: dict[str, int], work: Callable[[], object]) -> float:
    """Time with other tiles."""
    before = dict(names)
    names.update(values)
    try:
        return milliseconds(work)
    finally:
        names.update(before)


def measured(N: int, n: int, d: int) -> Iterator[dict[str, Any]]:
    made = {"dtype": torch.float64, "device": "cuda"}
    X, Z = torch.randn((N, d), **made) / 8, torch.randn((n, d), **made) / 8
    D = torch.empty((N, n), **made)
    part = min(N, (1 << 26) // n)
    for tile in DISTANCE_TILES:
        values = dict(zip(("BM", "BN", "UNROLL", "num_warps"), tile, strict=True))
        ms = setting(fused_rows.DISTANCE_TILE, values, lambda: fused_rows.distances(X[:part], Z, "euclidean", D[:part]))
        yield {"kernel": "distances", "tile": tile, "ms": ms * N / part}
    for start in range(0, N, part):
        fused_rows.distances(X[start : start + part], Z, "euclidean", D[start : start + part])
    columns = ((0, n // 2), (n // 2, n))
    beta = 0.1 * torch.randn(n, **made)
    packed = fused_rows._packed(D, 5.0, 0.01, beta)
    for what, tile in itertools.product(("LEAST", "MOMENTS"), ROW_TILES):
        values = dict(zip(("entries", "columns", "num_warps"), tile, strict=True))
        kind = getattr(fused_rows, what)
        ms = setting(fused_rows.ROW_TILE, values, lambda kind=kind: fused_rows._moments(D, packed, columns, kind))
        yield {"kernel": f"row_moments {what}", "tile": tile, "ms": ms}
    at = fused_rows.FusedRows.from_rows(SoftRows(5.0, 0.01, beta, torch.eye(2, **made), columns))
    m, low = torch.full((N,), 1.0 / N, **made), fused_rows._moments(D, packed, columns, fused_rows.LEAST)[0]
    per_row = (low, torch.rand((2, N), **made), torch.rand((2, N), **made), torch.rand((2, 2, N), **made))
    weights = torch.empty((part, n), **made)
    for tile in COLUMN_TILES:
        values = dict(zip(("BM", "BN", "STEPS", "num_warps"), tile, strict=True))
        sums = {
            "alpha_beta": torch.zeros(n, **made),
            "beta": torch.zeros(n, **made),
            "label_beta": torch.zeros((2, n), **made),
        }
        ms = setting(
            fused_rows.COLUMN_TILE,
            values,
            lambda s=sums: fused_rows._add_column_sums(s, at, D, m, per_row, None),
        )
        yield {"kernel": "column_sums", "tile": tile, "ms": ms}
        few = tuple(one[..., :part].contiguous() for one in per_row)
        ms = setting(
            fused_rows.COLUMN_TILE,
            values,
            lambda s=sums, f=few: fused_rows._add_column_sums(s, at, D[:part], m[:part], f, weights),
        )
        yield {"kernel": "column_sums, weights stored", "tile": tile, "ms": ms * N / part}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--anchors", type=int, default=1000)
    parser.add_argument("--features", type=int, default=54)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines = []
    for line in measured(asked.rows, asked.anchors, asked.features):
        lines.append({**line, "ms": round(line["ms"], 3)})
        print(lines[-1], flush=True)
    if asked.out:
        with asked.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["kernel", "tile", "ms"])
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
