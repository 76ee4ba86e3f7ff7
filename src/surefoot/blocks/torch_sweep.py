"""Sums over blocks by torch, on a GPU or on the CPU: the same passes, on one device.

The solver's sums may be in float32; both bounds are always evaluated in float64, from distances computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot._types import FloatArray
from surefoot.blocks.sources import RowSource
from surefoot.blocks.sweep import Anchors, BlockSweep
from surefoot.costs import Chebyshev, Euclidean, FeatureMetric, Mahalanobis, Manhattan
from surefoot.dual.block import Block, RowlessProblem
from surefoot.dual.design import Coordinates, FeatureBlock
from surefoot.dual.point import DualPoint
from surefoot.dual.row_sums import RowSums
from surefoot.dual.smallest_loss import RowTotals
from surefoot.dual.torch_arrays import TorchArrays
from surefoot.kernels.torch_rows import SoftRows, add_row_sums
from surefoot.problem.rows import fingerprints

_POWERS = {Euclidean: 2.0, Mahalanobis: 2.0, Manhattan: 1.0, Chebyshev: float("inf")}


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Rows (N, d), weights (N,) and losses (N, K), or None, on a device.

    Distances are kept, in each precision that is asked for, as far as `keep_bytes` goes.
    """

    rows: Tensor
    weights: Tensor
    losses: Tensor | None
    anchors: Anchors
    keep_bytes: int
    kept: dict[tuple[int, torch.dtype], Tensor] = field(default_factory=dict)

    def chunks(self) -> Iterator[slice]:
        size = max(1, TorchArrays.entries // len(self.anchors.rows))
        for start in range(0, len(self.rows), size):
            yield slice(start, min(start + size, len(self.rows)))

    def distances(self, rows: slice, dtype: torch.dtype) -> Tensor:
        """(B, n), from the device's memory where they are kept in this precision."""
        key = (rows.start, dtype)
        if key not in self.kept:
            found = device_distances(self.anchors.metric, self.rows[rows], self.anchors.rows).to(dtype)
            if sum(part.nbytes for part in self.kept.values()) + found.nbytes > self.keep_bytes:
                return found
            self.kept[key] = found
        return self.kept[key]


@dataclass(frozen=True, eq=False)
class TorchSweep(BlockSweep):
    """All rows on one device; dtype : of the solver's sums."""

    held: DeviceRows
    dtype: torch.dtype = torch.float64
    design: Tensor | None = None

    @classmethod
    def of(
        cls,
        source: RowSource,
        weights: FloatArray,
        unit: float,
        anchors: Anchors,
        *,
        device: str = "cuda",
        dtype: torch.dtype = torch.float64,
        losses: FloatArray | None = None,
        keep_bytes: int = 0,
    ) -> TorchSweep:
        """All rows of a source: the first have these weights, all others count `unit`."""
        rows, send = source.read(0, source.n_rows), TorchArrays(device).send
        all_weights = np.concatenate([weights, np.full(len(rows) - len(weights), unit)])
        sent = None if losses is None else send(losses)
        return cls(DeviceRows(send(rows), send(all_weights), sent, anchors, keep_bytes), dtype)

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.held.rows)

    def in_coordinates(self, coordinates: Coordinates) -> TorchSweep:
        return replace(self, design=coordinates.design(self.held.rows))

    def features(self, work: Callable[..., RowTotals], *parameters: Any) -> RowTotals:
        return work(FeatureBlock(self.held.rows, self.held.weights), *parameters)

    def fingerprints(self) -> NDArray[np.uint64]:
        return fingerprints(self.held.rows.cpu().numpy())

    def blocks(self, problem: RowlessProblem, dtype: torch.dtype = torch.float64) -> Iterator[Block]:
        """The rows in chunks, with distances in a precision."""
        held = self.held
        for rows in held.chunks():
            parts = partial(_part, self.design, rows), partial(_part, held.losses, rows)
            yield Block(problem, held.distances(rows, dtype), held.weights[rows], *parts, rows.start)

    def total(self, problem: RowlessProblem, work: Any, *parameters: Any, **named: Any) -> Any:
        whole = None
        for block in self.blocks(problem):
            part = work(block, *parameters, **named)
            whole = part if whole is None else whole.__iadd__(part)
        return whole

    def gather(self, problem: RowlessProblem, work: Any, *parameters: Any, **named: Any) -> Any:
        return np.concatenate([work(block, *parameters, **named) for block in self.blocks(problem)])

    def row_sums(
        self, problem: RowlessProblem, point: DualPoint, tau: float, *, second_order: bool, exact: bool
    ) -> RowSums:
        """By the kernels of torch, in float32 where that was asked for and `exact` does not forbid it."""
        dtype = torch.float64 if exact else self.dtype
        ds, xp = problem.decision_set, TorchArrays(self.held.rows.device)
        zeros = RowSums.zeros(ds.n_classes, len(ds.anchor_weights), problem.model.shape, second_order)
        sums = {name: xp.send(part) for name, part in vars(zeros).items()}
        constants = SoftRows.of(ds, point, tau, cast("str", xp.device), dtype)
        for block in self.blocks(problem, dtype):
            losses = block.model.losses(point.theta, slice(None))
            add_row_sums(
                sums,
                constants,
                cast("Tensor", block.distances),
                block.weights,
                (losses - xp.send(point.lam)).to(dtype),
                block.design if problem.model.learns else None,
                losses,
                second_order=second_order,
            )
        return RowSums(**{name: part.cpu().numpy() for name, part in sums.items()})

    def solve_positive(self, matrix: FloatArray, right: FloatArray) -> FloatArray:
        """On the device."""
        send = TorchArrays(self.held.rows.device).send
        factor, failed = torch.linalg.cholesky_ex(send(matrix))
        if int(failed) > 0:
            raise np.linalg.LinAlgError("not positive definite")
        found = torch.cholesky_solve(send(right)[:, None], factor)
        return cast("FloatArray", found[:, 0].cpu().numpy())


def _part(whole: Tensor | None, rows: slice) -> Tensor:
    if whole is None:
        raise ValueError("these rows have no design matrix, or no losses: standardise the sweep first, or pass losses")
    return whole[rows]


def device_distances(metric: FeatureMetric, rows: Tensor, anchors: FloatArray) -> Tensor:
    """(B, n) distances in float64, computed on the device for the metrics that torch knows."""
    right = torch.as_tensor(anchors, dtype=rows.dtype, device=rows.device)
    power = _POWERS.get(type(metric))
    if power is None:
        return torch.as_tensor(metric.distances(rows.cpu().numpy(), anchors), device=rows.device)
    if isinstance(metric, Mahalanobis):
        factor = torch.as_tensor(np.linalg.cholesky(metric.inverse_covariance), device=rows.device)
        rows, right = rows @ factor, right @ factor
    # by differences, not by a matrix product: near rows keep their digits, equal rows are at distance zero
    return torch.cdist(rows, right, p=power, compute_mode="donot_use_mm_for_euclid_dist")
