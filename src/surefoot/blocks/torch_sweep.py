"""Sums over blocks by torch, on a GPU or on the CPU: the same passes, on one device.

The solver's sums may be in float32; both bounds are always evaluated in float64, from distances computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot._types import FloatArray
from surefoot.blocks.sources import RowSource, block_edges, rows_per_block
from surefoot.blocks.sweep import Anchors, BlockSweep
from surefoot.blocks.torch_held import DeviceRows
from surefoot.dual.adversary import Adversary
from surefoot.dual.block import Block, RowlessProblem
from surefoot.dual.bounds import AnchorRepair
from surefoot.dual.design import Coordinates, FeatureBlock
from surefoot.dual.models import LinearModel
from surefoot.dual.point import DualPoint
from surefoot.dual.row_sums import RowSums
from surefoot.dual.smallest_loss import LogisticSums, RowTotals, SoftLabels
from surefoot.dual.torch_arrays import TorchArrays
from surefoot.kernels.torch_rows import SoftRows, add_row_sums
from surefoot.problem.sets import row_chunks

# Sums that stay on the device: the blocks of the Hessian, which is put together and factored there.
_STAYING = ("beta_beta", "theta_alpha", "theta_label", "theta_theta", "theta_beta")


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
        send = TorchArrays(device).send
        all_weights = np.concatenate([weights, np.full(source.n_rows - len(weights), unit)])
        sent = None if losses is None else send(losses)
        return cls(DeviceRows(_sent(source, device), send(all_weights), sent, anchors, keep_bytes), dtype)

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.held.rows)

    def in_coordinates(self, coordinates: Coordinates) -> TorchSweep:
        return replace(self, design=coordinates.design(self.held.rows))

    def features(self, work: Callable[..., RowTotals], *parameters: Any) -> RowTotals:
        return work(FeatureBlock(self.held.rows, self.held.weights), *parameters)

    def fingerprints(self) -> NDArray[np.uint64]:
        return self.held.fingerprints()

    def blocks(self, problem: RowlessProblem, dtype: torch.dtype = torch.float64) -> Iterator[Block]:
        """The rows in chunks, with distances in a precision."""
        for rows, distances in self.held.chunks(dtype):
            parts = partial(_part, self.design, rows), partial(_part, self.held.losses, rows)
            yield Block(problem, distances, self.held.weights[rows], *parts, rows.start)

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
        """By fused kernels on a GPU, else by torch; in float32 where that was asked for and `exact` allows it."""
        dtype = torch.float64 if exact else self.dtype
        ds, xp, fused = problem.decision_set, TorchArrays(self.held.rows.device), self.held.fused
        zeros = RowSums.zeros(ds.n_classes, len(ds.anchor_weights), problem.model.shape, second_order)
        sums = {name: xp.zeros(part.shape) for name, part in vars(zeros).items()}
        constants: Any = SoftRows.of(ds, point, tau, cast("str", xp.device), dtype)
        add: Any = add_row_sums
        if fused is not None:
            constants, add = fused.FusedRows.of(constants), fused.add_row_sums
        lam = xp.send(point.lam)
        columns = len(ds.anchor_weights) if second_order or fused is None else 4 * ds.present_label_cost.size
        for block in self.blocks(problem, dtype):
            losses = block.model.losses(point.theta, slice(None))
            for rows in row_chunks(len(losses), columns, xp.entries):
                add(
                    sums,
                    constants,
                    cast("Tensor", block.distances)[rows],
                    block.weights[rows],
                    losses[rows] - lam,
                    block.design[rows] if problem.model.learns else None,
                    losses[rows],
                    second_order=second_order,
                )
        return _fetched(sums)

    def anchor_repair(self, problem: RowlessProblem, point: DualPoint, tau: float) -> AnchorRepair:
        """From the sums of the solver: they have what the plan brings to each anchor."""
        mass = self.row_sums(problem, point, tau, second_order=False, exact=True).beta
        return AnchorRepair.of(problem.decision_set, mass)

    def _logistic(self, problem: RowlessProblem, adversary: Adversary) -> LogisticSums:
        """Labels (N, K) are found once: they take far less room than distances."""
        if not isinstance(problem.model, LinearModel):
            raise TypeError("soft labels are for a model that is learned")
        q = torch.cat([adversary.at(block) for block in self.blocks(problem)])
        kept = self.held.weights > 0
        model = problem.model.over(self)  # type: ignore[arg-type]
        if bool(kept.all()):
            return SoftLabels(model, self.held.weights, q)
        return SoftLabels(replace(model, X=model.X[kept]), self.held.weights[kept], q[kept])

    def factorized(self, matrix: Any, *, tame: bool = False) -> Callable[[FloatArray], FloatArray]:
        """On the device, where the matrix may be already."""
        send = TorchArrays(self.held.rows.device).send
        factor, failed = torch.linalg.cholesky_ex(send(matrix))
        if int(failed) > 0:
            raise np.linalg.LinAlgError("not positive definite")
        return lambda right: cast("FloatArray", torch.cholesky_solve(send(right)[:, None], factor)[:, 0].cpu().numpy())


def _sent(source: RowSource, device: str) -> Tensor:
    """(N, d) the rows of a source, sent block by block."""
    rows = torch.empty((source.n_rows, source.n_features), dtype=torch.float64, device=device)
    for start, stop in block_edges(source.n_rows, rows_per_block(source.n_rows)):
        part = source.read(start, stop)
        rows[start:stop] = torch.from_numpy(part if part.flags.writeable else part.copy())  # torch asks for the former
    return rows


def _part(whole: Tensor | None, rows: slice) -> Tensor:
    if whole is None:
        raise ValueError("these rows have no design matrix, or no losses: standardise the sweep first, or pass losses")
    return whole[rows]


def _fetched(sums: dict[str, Tensor]) -> RowSums:
    """Small sums as arrays, by one transfer; large ones stay."""
    names = [name for name in sums if name not in _STAYING]
    flat = torch.cat([sums[name].flatten() for name in names]).cpu().numpy()
    ends = np.cumsum([sums[name].numel() for name in names])
    small = {
        name: part.reshape(tuple(sums[name].shape)) for name, part in zip(names, np.split(flat, ends[:-1]), strict=True)
    }
    return RowSums(**small, **{name: cast("FloatArray", sums[name]) for name in _STAYING})
