"""Time each fused kernel over a grid of tiles, at N rows and n anchors, in both precisions.

    python benchmarks/gpu_tiles.py [--rows 1000000] [--anchors 1000] [--features 54] [--out FILE.csv]

The data are two classes of equal size on one CUDA device. Enter the fastest tiles in `surefoot.kernels.torch_fused`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Callable, Iterator
from functools import partial
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
    (4, 128, 128, 2), (4, 256, 128, 4), (8, 64, 64, 2),
]  # fmt: skip
_SHAPES = [
    (32, 32, 1), (16, 32, 1), (32, 16, 1), (64, 32, 1), (32, 64, 1), (64, 16, 1), (16, 128, 2), (64, 32, 2),
    (64, 64, 2), (64, 64, 4), (32, 128, 2), (128, 64, 4),
]  # fmt: skip
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


def measured(N: int, n: int, d: int, dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    made = {"dtype": dtype, "device": "cuda"}
    wide = {"dtype": torch.float64, "device": "cuda"}
    X, Z = torch.randn((d, N), **made) / 8, torch.randn((d, n), **made) / 8
    D = torch.empty((N, n), **made)
    part = min(N, (1 << 26) // n)

    def times(kernel: str, tiles: Any, grid: Any, names: tuple[str, ...], work: Any, share: float) -> Any:
        for tile in grid:
            ms = setting(tiles[dtype], dict(zip(names, tile, strict=True)), work)
            yield {"kernel": kernel, "precision": str(dtype)[6:], "tile": tile, "ms": ms * share}

    names = ("BM", "BN", "UNROLL", "num_warps")
    work = partial(fused_rows.distances, X[:, :part], Z, "euclidean", D[:part])
    yield from times("distances", fused_rows.DISTANCE_TILE, DISTANCE_TILES, names, work, N / part)
    for start in range(0, N, part):
        rows = slice(start, start + part)
        fused_rows.distances(X[:, rows], Z, "euclidean", D[rows])
    columns = ((0, n // 2), (n // 2, n))
    beta = 0.1 * torch.randn(n, **made)
    packed, names = fused_rows._packed(D, 5.0, 0.01, beta), ("entries", "columns", "num_warps")
    for what in ("LEAST", "MOMENTS"):
        work = partial(fused_rows._moments, D, packed, columns, getattr(fused_rows, what))
        yield from times(f"row_moments {what}", fused_rows.ROW_TILE, ROW_TILES, names, work, 1.0)
    at = fused_rows.FusedRows.from_rows(SoftRows(5.0, 0.01, beta, torch.eye(2, **wide), columns))
    m, low = torch.full((N,), 1.0 / N, **wide), fused_rows._moments(D, packed, columns, fused_rows.LEAST)[0]
    per_row = (low, torch.rand((2, N), **wide), torch.rand((2, N), **wide), torch.rand((2, 2, N), **wide))
    few = tuple(one[..., :part].contiguous() for one in per_row)
    sums = {"alpha_beta": (n,), "beta": (n,), "label_beta": (2, n)}
    found = {name: torch.zeros(shape, **wide) for name, shape in sums.items()}
    halves, names = fused_rows.HalfWeights.empty(D[:part], m[:part], 2), ("BM", "BN", "STEPS", "num_warps")
    work = partial(fused_rows._add_column_sums, found, at, D, m, per_row, None)
    yield from times("column_sums", fused_rows.COLUMN_TILE, COLUMN_TILES, names, work, 1.0)
    work = partial(fused_rows._add_column_sums, found, at, D[:part], m[:part], few, halves)
    yield from times("column_sums, weights stored", fused_rows.COLUMN_TILE, COLUMN_TILES, names, work, N / part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--anchors", type=int, default=1000)
    parser.add_argument("--features", type=int, default=54)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines = []
    size = asked.rows, asked.anchors, asked.features
    for line in itertools.chain(measured(*size, torch.float64), measured(*size, torch.float32)):
        lines.append({**line, "ms": round(line["ms"], 3)})
        print(lines[-1], flush=True)
    if asked.out:
        with asked.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["kernel", "precision", "tile", "ms"])
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
