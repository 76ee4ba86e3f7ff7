"""Rows on a torch device, and their distances: kept as far as memory goes, else computed where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.blocks.sweep import Anchors
from surefoot.costs import Chebyshev, Euclidean, FeatureMetric, Mahalanobis, Manhattan, Weighted
from surefoot.dual.torch_arrays import TorchArrays
from surefoot.problem.rows import fingerprint_factors
from surefoot.problem.sets import row_chunks

# The metrics that a device computes by itself: the name that kernels know them by, and the power of torch.
_ON_DEVICE: dict[type[FeatureMetric], tuple[str, float]] = {
    Euclidean: ("euclidean", 2.0),
    Mahalanobis: ("euclidean", 2.0),
    Weighted: ("euclidean", 2.0),
    Manhattan: ("manhattan", 1.0),
    Chebyshev: ("chebyshev", float("inf")),
}


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Rows (N, d), weights (N,) and losses (N, K), or None, on a device.

    Distances of the first rows are kept, in each precision that is asked for, as far as `keep_bytes` goes.
    """

    rows: Tensor
    weights: Tensor
    losses: Tensor | None
    anchors: Anchors
    keep_bytes: int
    kept: dict[torch.dtype, Tensor] = field(default_factory=dict)

    @property
    def fused(self) -> Any:
        """Kernels for these rows, or None."""
        return TorchArrays.fused(self.rows)

    def chunks(self, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
        """Rows with their distances (B, n): all that are kept at once where kernels make no matrix beside them."""
        kept = self._kept(dtype)
        whole = len(kept) if self.fused is not None else self._chunk
        for start in range(0, len(kept), max(1, whole)):
            rows = slice(start, min(start + whole, len(kept)))
            yield rows, kept[rows]
        for rest in row_chunks(len(self.rows) - len(kept), len(self.anchors.rows), TorchArrays.entries):
            rows = slice(rest.start + len(kept), rest.stop + len(kept))
            yield rows, self._measured(rows, dtype)

    def fingerprints(self) -> NDArray[np.uint64]:
        """(N,) those of `problem.rows.fingerprints`: integers of 64 bits wrap around with and without a sign."""
        factors = torch.from_numpy(fingerprint_factors(self.rows.shape[1]).view(np.int64)).to(self.rows.device)
        found = [np.empty(0, np.uint64)]
        for part in row_chunks(len(self.rows), self.rows.shape[1], TorchArrays.entries):
            bits = (self.rows[part] + 0.0).view(torch.int64)  # −0.0 becomes 0.0
            mixed = (bits ^ _shifted(bits, 31)) * factors
            found.append((mixed ^ _shifted(mixed, 29)).sum(dim=1).cpu().numpy().view(np.uint64))
        return np.concatenate(found)

    @property
    def _chunk(self) -> int:
        return max(1, TorchArrays.entries // len(self.anchors.rows))

    def _kept(self, dtype: torch.dtype) -> Tensor:
        """(B, n) distances of the first rows, as many as there is memory for."""
        if dtype not in self.kept:
            n = len(self.anchors.rows)
            left = self.keep_bytes - sum(part.nbytes for part in self.kept.values())
            count = min(len(self.rows), max(0, left) // (n * dtype.itemsize))
            found = torch.empty((count, n), dtype=dtype, device=self.rows.device)
            for rows in row_chunks(count, n, TorchArrays.entries):
                self._measured(rows, dtype, found[rows])
            self.kept[dtype] = found
        return self.kept[dtype]

    def _measured(self, rows: slice, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
        """Distances (B, n), computed in float64."""
        metric, part = self.anchors.metric, self.rows[rows]
        if out is None:
            out = torch.empty((len(part), len(self.anchors.rows)), dtype=dtype, device=part.device)
        if type(metric) not in _ON_DEVICE:
            out.copy_(torch.from_numpy(metric.distances(part.cpu().numpy(), self.anchors.rows)))
            return out
        left, right = _in_space(metric, part), _in_space(metric, self._anchors_there())
        name, power = _ON_DEVICE[type(metric)]
        if self.fused is not None:
            self.fused.distances(left, right, name, out)
        else:
            # by differences, not by a matrix product: near rows keep their digits, equal rows are at distance zero
            out.copy_(torch.cdist(left, right, p=power, compute_mode="donot_use_mm_for_euclid_dist"))
        return out

    def _anchors_there(self) -> Tensor:
        return torch.as_tensor(self.anchors.rows, dtype=torch.float64, device=self.rows.device)


def _shifted(bits: Tensor, places: int) -> Tensor:
    """To the right, zeros moving in: the sign does not."""
    return (bits >> places) & ((1 << (64 - places)) - 1)


def _in_space(metric: FeatureMetric, rows: Tensor) -> Tensor:
    """Rows in the coordinates in which the metric is one that a device knows."""
    if isinstance(metric, Mahalanobis):
        factor = torch.as_tensor(np.linalg.cholesky(metric.inverse_covariance), device=rows.device)
        return rows @ factor
    if isinstance(metric, Weighted):
        weighted = rows * torch.as_tensor(metric.weights.copy(), device=rows.device)
        if metric.directions is None:
            return weighted
        return torch.hstack([weighted, rows @ torch.as_tensor(metric.directions.copy(), device=rows.device)])
    return rows
