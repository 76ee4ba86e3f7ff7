"""Sums over blocks in torch, on a GPU or on the CPU: the same passes on one device.

The solver's sums may be in float32. Both bounds are always evaluated in float64, from distances computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot._validation import FloatArray
from surefoot.backends.block_rows import Anchors, BlockStore
from surefoot.backends.sources import RowSource, block_edges, rows_per_block
from surefoot.costs.metrics import Chebyshev, Euclidean, FeatureMetric, Mahalanobis, Manhattan, WeightedMetric
from surefoot.dual.adversary import Adversary
from surefoot.dual.block import Block, DualProblem
from surefoot.dual.bounds import AnchorRepair, LogisticSums, SoftLabels
from surefoot.dual.models import Coordinates, DualPoint, FeatureBlock, LinearModel, RowTotals
from surefoot.dual.row_sums import RowSums
from surefoot.kernels.torch_arrays import TorchArrays
from surefoot.kernels.torch_rows import SoftRows, add_row_sums
from surefoot.problem.distances import row_chunks
from surefoot.problem.rows import fingerprint_factors

# Rows on a torch device. Their distances are kept if they fit into memory, and computed on demand otherwise.

# The metrics that a device can compute: their name in the kernels, and the power in torch.
_ON_DEVICE: dict[type[FeatureMetric], tuple[str, float]] = {
    Euclidean: ("euclidean", 2.0),
    Mahalanobis: ("euclidean", 2.0),
    WeightedMetric: ("euclidean", 2.0),
    Manhattan: ("manhattan", 1.0),
    Chebyshev: ("chebyshev", float("inf")),
}


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Rows (N, d), weights (N,) and losses (N, K), or None, on a device.

    The distances of the first rows are kept in each requested precision, up to `keep_bytes` in all. `narrow` : True if
    passes in float32 are frequent, so that their distances are kept first.
    """

    rows: Tensor
    weights: Tensor
    losses: Tensor | None
    anchors: Anchors
    keep_bytes: int
    narrow: bool = False
    kept: dict[torch.dtype, Tensor] = field(default_factory=dict)

    @property
    def fused(self) -> Any:
        """The kernels for these rows, or None."""
        return TorchArrays.fused(self.rows)

    def chunks(self, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
        """Yield rows with distances (B, n). If kernels allocate no temporary matrix, all kept rows are one chunk."""
        kept = self._kept(dtype)
        whole = len(kept) if self.fused is not None else self._chunk
        for start in range(0, len(kept), max(1, whole)):
            rows = slice(start, min(start + whole, len(kept)))
            yield rows, kept[rows]
        entries = TorchArrays.entries * 8 // dtype.itemsize  # the same number of bytes in each precision
        for rest in row_chunks(len(self.rows) - len(kept), len(self.anchors.rows), entries):
            rows = slice(rest.start + len(kept), rest.stop + len(kept))
            yield rows, self._measured(rows, dtype)

    def fingerprints(self) -> NDArray[np.uint64]:
        """Return the fingerprints (N,) of `problem.rows.fingerprints`. Signed 64-bit integers wrap around, too."""
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
        """Return the distances (B, n) of the first rows that fit into memory."""
        if dtype not in self.kept:
            N, n = len(self.rows), len(self.anchors.rows)
            taken = sum(part.nbytes for part in self.kept.values())
            if self.narrow and dtype == torch.float64 and torch.float32 not in self.kept:
                taken += 4 * N * n
            count = min(N, max(0, self.keep_bytes - taken) // (n * dtype.itemsize))
            found = torch.empty((count, n), dtype=dtype, device=self.rows.device)
            for rows in row_chunks(count, n, TorchArrays.entries):
                self._measured(rows, dtype, found[rows])
            self.kept[dtype] = found
        return self.kept[dtype]

    def _measured(self, rows: slice, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
        """Compute distances (B, n) by fused kernels in this precision, or else in float64."""
        metric = self.anchors.metric
        if out is None:
            shape = rows.stop - rows.start, len(self.anchors.rows)
            out = torch.empty(shape, dtype=dtype, device=self.rows.device)
        if type(metric) not in _ON_DEVICE:
            out.copy_(torch.from_numpy(metric.distances(self.rows[rows].cpu().numpy(), self.anchors.rows)))
            return out
        name, power = _ON_DEVICE[type(metric)]
        if self.fused is None:
            left, right = _in_space(metric, self.rows[rows]), _in_space(metric, self._anchors_there())
            # by differences, not by a matrix product: near rows keep their digits, equal rows have distance zero
            out.copy_(torch.cdist(left, right, p=power, compute_mode="donot_use_mm_for_euclid_dist"))
        elif dtype == torch.float64:
            left, right = _in_space(metric, self.rows[rows]), _in_space(metric, self._anchors_there())
            self.fused.distances(left.T.contiguous(), right.T, name, out)
        else:
            left, right = self._narrow_columns
            self.fused.distances(left[:, rows], right, name, out)
        return out

    @cached_property
    def _narrow_columns(self) -> tuple[Tensor, Tensor]:
        """Columns (d, N) of the rows and (d, n) of the anchors in float32, around the mean of the anchors."""
        anchors = _in_space(self.anchors.metric, self._anchors_there())
        middle, rows = anchors.mean(dim=0), self.rows
        found = torch.empty((anchors.shape[1], len(rows)), dtype=torch.float32, device=rows.device)
        for part in row_chunks(len(rows), found.shape[0], TorchArrays.entries):
            found[:, part] = (_in_space(self.anchors.metric, rows[part]) - middle).T
        return found, (anchors - middle).T.float()

    def _anchors_there(self) -> Tensor:
        return torch.as_tensor(self.anchors.rows, dtype=torch.float64, device=self.rows.device)


def _shifted(bits: Tensor, places: int) -> Tensor:
    """Shift bits to the right, and fill with zeros instead of the sign."""
    return (bits >> places) & ((1 << (64 - places)) - 1)


def _in_space(metric: FeatureMetric, rows: Tensor) -> Tensor:
    """Return rows in coordinates in which the device can compute the metric."""
    if isinstance(metric, Mahalanobis):
        factor = torch.as_tensor(np.linalg.cholesky(metric.inverse_covariance), device=rows.device)
        return rows @ factor
    if isinstance(metric, WeightedMetric):
        weighted = rows * torch.as_tensor(metric.weights.copy(), device=rows.device)
        if metric.directions is None:
            return weighted
        return torch.hstack([weighted, rows @ torch.as_tensor(metric.directions.copy(), device=rows.device)])
    return rows


# Sums that stay on the device: the blocks of the Hessian, which is assembled and factored there.
_STAYING = ("beta_beta", "theta_alpha", "theta_label", "theta_theta", "theta_beta")


@dataclass(frozen=True, eq=False)
class TorchRows(BlockStore):
    """All rows on one device; dtype : the precision of the solver's sums."""

    held: DeviceRows
    dtype: torch.dtype = torch.float64
    design: Tensor | None = None

    @classmethod
    def from_source(
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
    ) -> TorchRows:
        """Build the sums over all rows of a source. The first rows have these weights, each other row weight `unit`."""
        send = TorchArrays(device).send
        all_weights = np.concatenate([weights, np.full(source.n_rows - len(weights), unit)])
        sent = None if losses is None else send(losses)
        narrow = dtype == torch.float32
        return cls(DeviceRows(_sent(source, device), send(all_weights), sent, anchors, keep_bytes, narrow), dtype)

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.held.rows)

    @property
    def is_narrow(self) -> bool:
        return self.dtype == torch.float32

    def in_coordinates(self, coordinates: Coordinates) -> TorchRows:
        return replace(self, design=coordinates.design(self.held.rows))

    def features(self, work: Callable[..., RowTotals], *parameters: Any) -> RowTotals:
        return work(FeatureBlock(self.held.rows, self.held.weights), *parameters)

    def fingerprints(self) -> NDArray[np.uint64]:
        return self.held.fingerprints()

    def blocks(self, problem: DualProblem, dtype: torch.dtype = torch.float64) -> Iterator[Block]:
        """Yield the rows in chunks, with distances in the given precision."""
        for rows, distances in self.held.chunks(dtype):
            parts = partial(_part, self.design, rows), partial(_part, self.held.losses, rows)
            yield Block(problem, distances, self.held.weights[rows], *parts, rows.start)

    def total(self, problem: DualProblem, work: Any, *parameters: Any, **named: Any) -> Any:
        whole = None
        for block in self.blocks(problem):
            part = work(block, *parameters, **named)
            whole = part if whole is None else whole.__iadd__(part)
        return whole

    def gather(self, problem: DualProblem, work: Any, *parameters: Any, **named: Any) -> Any:
        return np.concatenate([work(block, *parameters, **named) for block in self.blocks(problem)])

    def row_sums(
        self, problem: DualProblem, point: DualPoint, tau: float, *, second_order: bool, exact: bool
    ) -> RowSums:
        """Sum by fused kernels on a GPU, or else by torch. Sums are in float32 if requested and `exact` is False."""
        dtype = torch.float64 if exact else self.dtype
        ds, xp, fused = problem.decision_set, TorchArrays(self.held.rows.device), self.held.fused
        zeros = RowSums.zeros(ds.n_classes, len(ds.anchor_weights), problem.model.shape, second_order)
        sums = {name: xp.zeros(part.shape) for name, part in vars(zeros).items()}
        responds = problem.model.responds
        response = problem.model.response(tau) if responds else None
        constants: Any = SoftRows.from_decision_set(ds, point, tau, cast("str", xp.device), dtype, response)
        add: Any = add_row_sums
        fused = None if responds else fused
        if fused is not None:
            constants, add = fused.FusedRows.from_rows(constants), fused.add_row_sums
        lam = xp.send(point.lam)
        columns = len(ds.anchor_weights) if second_order or fused is None else 4 * ds.present_label_cost.size
        entries = xp.entries if fused is None else 4 * xp.entries  # weights of kept distances take half the bytes
        for block in self.blocks(problem, dtype):
            whole = slice(0, len(block.weights))
            losses = block.model.losses(point.theta, whole)
            losses = xp.send(losses) if responds else losses
            for rows in row_chunks(len(losses), columns, entries):
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

    def anchor_repair(self, problem: DualProblem, point: DualPoint, tau: float) -> AnchorRepair:
        """Return the repair from the sums of the solver, which contain the mass that the plan moves to each anchor."""
        mass = self.row_sums(problem, point, tau, second_order=False, exact=True).beta
        return AnchorRepair.from_mass(problem.decision_set, mass)

    def _logistic(self, problem: DualProblem, adversary: Adversary) -> LogisticSums:
        """Compute labels (N, K) once, because they are much smaller than the distances."""
        if not isinstance(problem.model, LinearModel):
            raise TypeError("soft labels require a model that is learned")
        q = torch.cat([adversary.labels_on(block) for block in self.blocks(problem)])
        kept = self.held.weights > 0
        model = problem.model.over(self)  # type: ignore[arg-type]
        if bool(kept.all()):
            return SoftLabels(model, self.held.weights, q)
        return SoftLabels(replace(model, X=model.X[kept]), self.held.weights[kept], q[kept])

    def factorized(self, matrix: Any, *, tame: bool = False) -> Callable[[FloatArray], FloatArray]:
        """Factor on the device, which may already hold the matrix."""
        send = TorchArrays(self.held.rows.device).send
        factor, failed = torch.linalg.cholesky_ex(send(matrix))
        if int(failed) > 0:
            raise np.linalg.LinAlgError("not positive definite")
        return lambda right: cast("FloatArray", torch.cholesky_solve(send(right)[:, None], factor)[:, 0].cpu().numpy())


def _sent(source: RowSource, device: str) -> Tensor:
    """Send the rows (N, d) of a source to a device, block by block."""
    rows = torch.empty((source.n_rows, source.n_features), dtype=torch.float64, device=device)
    for start, stop in block_edges(source.n_rows, rows_per_block(source.n_rows)):
        part = source.read(start, stop)
        # torch requires a writable array
        rows[start:stop] = torch.from_numpy(part if part.flags.writeable else part.copy())
    return rows


def _part(whole: Tensor | None, rows: slice) -> Tensor:
    if whole is None:
        raise ValueError("these rows have no design matrix, or no losses: call in_coordinates first, or pass losses")
    return whole[rows]


def _fetched(sums: dict[str, Tensor]) -> RowSums:
    """Return small sums as arrays, by one transfer. Large sums stay on the device."""
    names = [name for name in sums if name not in _STAYING]
    flat = torch.cat([sums[name].flatten() for name in names]).cpu().numpy()
    ends = np.cumsum([sums[name].numel() for name in names])
    small = {
        name: part.reshape(tuple(sums[name].shape)) for name, part in zip(names, np.split(flat, ends[:-1]), strict=True)
    }
    return RowSums(**small, **{name: cast("FloatArray", sums[name]) for name in _STAYING})
