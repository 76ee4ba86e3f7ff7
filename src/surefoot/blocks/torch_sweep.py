"""Sums over blocks by torch, on a GPU or on the CPU: the same passes as `Block`, on one device.

The solver's sums may be in float32; both bounds are always evaluated in float64, from distances computed in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from surefoot._types import FloatArray
from surefoot.blocks.block import Block, BlockAdversary, Coordinates, Header
from surefoot.blocks.sources import RowSource
from surefoot.costs import Chebyshev, Euclidean, FeatureMetric, Mahalanobis, Manhattan
from surefoot.dual.bounds import AnchorRepair
from surefoot.dual.objective import DualPoint, RowSums
from surefoot.dual.smallest_loss import Tally
from surefoot.kernels.torch_rows import SoftRows, add_row_sums, exact_rows, soft_plan

_POWERS = {Euclidean: 2.0, Mahalanobis: 2.0, Manhattan: 1.0, Chebyshev: float("inf")}
_CHUNK_ENTRIES = 1 << 26


@dataclass(eq=False)
class TorchSweep:
    """All rows on one device.

    rows : (N, d); weights : (N,); losses : (N, K) or None; dtype : of the solver's sums. Distances are kept on the
    device, in each precision that is asked for, as far as `keep_bytes` goes.
    """

    rows: FloatArray
    weights: FloatArray
    device: str = "cuda"
    dtype: torch.dtype = torch.float64
    losses: FloatArray | None = None
    keep_bytes: int = 0
    _kept: dict[tuple[int, torch.dtype], Tensor] = field(default_factory=dict)
    _kept_bytes: int = 0
    _designs: dict[int, tuple[Coordinates, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._X = self._send(self.rows)
        self._m = self._send(self.weights)
        self._losses = None if self.losses is None else self._send(self.losses)

    @classmethod
    def of(cls, source: RowSource, weights: FloatArray, unit: float, **settings: Any) -> TorchSweep:
        """All rows of a source: the first have these weights, all others count `unit`."""
        rows = source.read(0, source.n_rows)
        return cls(rows, np.concatenate([weights, np.full(len(rows) - len(weights), unit)]), **settings)

    def solve_positive(self, matrix: FloatArray, right: FloatArray) -> FloatArray:
        """Solution x of matrix · x = right by Cholesky, as in `SmoothedDual`: on the device."""
        factor, failed = torch.linalg.cholesky_ex(self._send(matrix))
        if int(failed) > 0:
            raise np.linalg.LinAlgError("not positive definite")
        found = torch.cholesky_solve(self._send(right)[:, None], factor)
        return cast("FloatArray", found[:, 0].cpu().numpy())

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    def raw(self, name: str, *parameters: Any) -> Any:
        return getattr(self, f"_{name}")(*parameters)

    def _sizes(self) -> Tally:
        largest = self._X.abs().amax(dim=0).tolist()
        return Tally((np.array([float(self._m.sum())]),), tuple(largest))

    def _means(self, size: FloatArray) -> Tally:
        return Tally(((self._m @ (self._X / self._send(size))).cpu().numpy(),))

    def _second_moments(self, size: FloatArray, mean: FloatArray) -> Tally:
        unit = self._X / self._send(size) - self._send(mean)
        return Tally(((unit.T @ (self._m[:, None] * unit)).cpu().numpy(),))

    def total(self, header: Header, name: str, *parameters: Any) -> Any:
        return getattr(self, f"_{name}")(header, *parameters)

    def gather(self, header: Header, name: str, *parameters: Any) -> Any:
        if name == "label_proba":
            return self._labels(header, *parameters).cpu().numpy()
        return getattr(Block(header, self.rows, self.weights), name)(*parameters)

    def _send(self, array: Any, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), dtype=dtype, device=self.device)

    def _chunks(self, n: int) -> Iterator[slice]:
        size = max(1, _CHUNK_ENTRIES // n)
        for start in range(0, self.n_rows, size):
            yield slice(start, min(start + size, self.n_rows))

    def _distances(self, header: Header, rows: slice, dtype: torch.dtype) -> Tensor:
        """(B, n), from the device's memory where they are kept in this precision."""
        key = (rows.start, dtype)
        if key not in self._kept:
            found = device_distances(header.metric, self._X[rows], header.anchors).to(dtype)
            if self._kept_bytes + found.nbytes > self.keep_bytes:
                return found
            self._kept[key] = found
            self._kept_bytes += found.nbytes
        return self._kept[key]

    def _design(self, header: Header) -> Tensor | None:
        """(N, p) in float64."""
        coordinates = header.coordinates
        if coordinates is None:
            return None
        if id(coordinates) not in self._designs:
            unit = (self._X - self._send(coordinates.mean)) / self._send(coordinates.scale)
            if coordinates.basis is not None:
                unit = unit @ self._send(coordinates.basis)
            if coordinates.fit_intercept:
                unit = torch.hstack([unit, torch.ones_like(unit[:, :1])])
            self._designs[id(coordinates)] = (coordinates, unit)
        return self._designs[id(coordinates)][1]

    def _loss_rows(self, header: Header, theta: FloatArray, rows: slice) -> Tensor:
        """(B, K) losses in float64."""
        X = self._design(header)
        if X is None:
            K = header.decision_set.n_classes
            size = rows.stop - rows.start
            fixed = self._losses is not None and K > 1
            return self._losses[rows] if fixed and self._losses is not None else self._X.new_zeros((size, K))
        return -torch.log_softmax(_scores(X[rows], self._send(theta)), dim=1)

    def _row_sums(self, header: Header, point: DualPoint, tau: float, alpha_free: bool, second_order: bool) -> RowSums:
        return self._sums_in(self.dtype, header, point, tau, second_order)

    def _exact_row_sums(
        self, header: Header, point: DualPoint, tau: float, alpha_free: bool, second_order: bool
    ) -> RowSums:
        return self._sums_in(torch.float64, header, point, tau, second_order)

    def _sums_in(self, dtype: torch.dtype, header: Header, point: DualPoint, tau: float, second_order: bool) -> RowSums:
        ds, X = header.decision_set, self._design(header)
        parts = {
            name: self._send(zeros)
            for name, zeros in vars(
                RowSums.zeros(ds.n_classes, len(ds.anchor_weights), header.model.shape, second_order)
            ).items()
        }
        constants = SoftRows.of(ds, point, tau, self.device, dtype)
        for rows in self._chunks(len(ds.anchor_weights)):
            losses = self._loss_rows(header, point.theta, rows)
            gain = (losses - self._send(point.lam)).to(dtype)
            add_row_sums(
                parts,
                constants,
                self._distances(header, rows, dtype),
                self._m[rows],
                gain,
                None if X is None else X[rows],
                losses,
                second_order=second_order,
            )
        return RowSums(**{name: part.cpu().numpy() for name, part in parts.items()})

    def _dual_rows(self, header: Header, point: DualPoint) -> Tally:
        ds, total, low = header.decision_set, 0.0, -np.inf
        beta = point.beta - ds.anchor_weights @ point.beta
        for rows in self._chunks(len(ds.anchor_weights)):
            D = self._distances(header, rows, torch.float64)
            gain = self._loss_rows(header, point.theta, rows) - self._send(point.lam)
            values = exact_rows(D, gain, point.alpha, self._send(beta), ds)
            total += float(self._m[rows] @ values)
            low = max(low, float(-values.min()))
        return Tally((np.array([total]),), (low,))

    def _plans(self, header: Header, point: DualPoint, tau: float) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        ds = header.decision_set
        for rows in self._chunks(len(ds.anchor_weights)):
            D = self._distances(header, rows, torch.float64)
            gain = self._loss_rows(header, point.theta, rows) - self._send(point.lam)
            yield rows, D, *soft_plan(D, gain, point.alpha, self._send(point.beta), tau, ds)

    def _mass(self, header: Header, point: DualPoint, tau: float) -> Tally:
        slots = torch.as_tensor(header.decision_set.anchor_slots, device=self.device)
        mass = self._X.new_zeros(len(header.anchors))
        for rows, _, joint, share in self._plans(header, point, tau):
            mass += self._m[rows] @ (joint.sum(dim=1)[:, slots] * share)
        return Tally((mass.cpu().numpy(),))

    def _plan(self, header: Header, point: DualPoint, tau: float, repair: AnchorRepair) -> Tally:
        ds = header.decision_set
        keep, within, across, stay = (
            self._send(part) for part in (repair.keep, repair.within, repair.across, repair.stay)
        )
        label_cost = self._send(ds.present_label_cost)
        outside = self._send(ds.label_cost[:, ds.anchor_labels] @ repair.across)
        cost, labels = 0.0, self._X.new_zeros(ds.n_classes)
        for rows, D, joint, share in self._plans(header, point, tau):
            held = share * keep
            kept, kept_distance = _by_class(held, ds), _by_class(held * D, ds)
            free = joint * (1.0 - kept)[:, None, :]
            inside = joint * (kept_distance[:, None, :] + kept[:, None, :] * label_cost)
            inside += free * stay * (_by_class(D * within, ds)[:, None, :] + label_cost)
            leaving = (free * (1.0 - stay)).sum(dim=2)
            moved = leaving.sum(dim=1) * (D @ across) + leaving @ outside
            cost += float(self._m[rows] @ (inside.sum(dim=(1, 2)) + moved))
            labels += self._m[rows] @ joint.sum(dim=2)
        return Tally((np.array([cost]), labels.cpu().numpy()))

    def _labels(self, header: Header, adversary: BlockAdversary) -> Tensor:
        """(N, K) μ(y=k | x)."""
        ds, nearest = header.decision_set, adversary.nearest
        q = self._X.new_zeros((self.n_rows, ds.n_classes))
        if adversary.away < 1:
            for rows, _, joint, _ in self._plans(header, adversary.point, adversary.tau):
                q[rows] = joint.sum(dim=2)
            q = q if adversary.change is None else q @ self._send(adversary.change)
        if adversary.away > 0:
            q *= 1.0 - adversary.away
            potentials, keep = self._send(nearest.potentials), self._send(nearest.repair.keep)
            classes, relabel = self._send(nearest.classes), self._send(nearest.relabel)
            missing = self._send(nearest.repair.within @ nearest.classes)
            for rows in self._chunks(len(header.anchors)):
                D = self._distances(header, rows, torch.float64)
                held = torch.softmax((D + potentials) / -nearest.tau, dim=1) * keep
                share = held @ classes + (1.0 - held.sum(dim=1))[:, None] * missing
                q[rows] += adversary.away * (share @ relabel.T)
        return q

    def _expected_loss(self, header: Header, adversary: BlockAdversary) -> Tally:
        losses = self._loss_rows(header, np.zeros((0, 0)), slice(0, self.n_rows))
        return Tally((np.array([float(self._m @ (self._labels(header, adversary) * losses).sum(dim=1))]),))

    def _logistic(self, header: Header, name: str, adversary: BlockAdversary, *at: FloatArray) -> Tally:
        X = self._design(header)
        if X is None:
            raise ValueError("logistic sums need a linear model")
        kept = self._m > 0
        labels = _TorchLabels(X[kept], self._m[kept], self._labels(header, adversary)[kept])
        return cast("Tally", getattr(labels, name)(*(self._send(part) for part in at)))


@dataclass(frozen=True)
class _TorchLabels:
    """The sums of `lower_bound.SoftLabels`."""

    X: Tensor
    m: Tensor
    q: Tensor

    def _losses(self, scores: Tensor) -> list[Tensor]:
        loss = -(self.q * torch.log_softmax(scores, dim=1)).sum(dim=1)
        slope = scores.max(dim=1).values - (self.q * scores).sum(dim=1)
        return [self.m @ loss, self.m @ slope]

    def start(self, theta: Tensor) -> Tally:
        scores = _scores(self.X, theta)
        entropy = self.m @ torch.special.entr(self.q.clamp(min=0.0)).sum(dim=1)
        values = _numbers(entropy, *self._losses(scores))
        return Tally((values, *self.local(theta).sums), (float(scores.abs().max()),))

    def local(self, theta: Tensor) -> Tally:
        s = torch.softmax(_scores(self.X, theta), dim=1)
        free, p = theta.shape
        H = self.X.new_zeros((free * p, free * p))
        for a in range(free):
            for b in range(free):
                weight = self.m * (s[:, a + 1] * (float(a == b) - s[:, b + 1]))
                H[a * p : (a + 1) * p, b * p : (b + 1) * p] = self.X.T @ (self.X * weight[:, None])
        gradient = (self.m[:, None] * (s - self.q))[:, 1:].T @ self.X
        return Tally((gradient.cpu().numpy(), H.cpu().numpy()))

    def moved(self, theta: Tensor, step: Tensor) -> Tally:
        s = torch.softmax(_scores(self.X, theta), dim=1)
        eta = _scores(self.X, step)
        change = eta - (s * eta).sum(dim=1, keepdim=True)
        s = s * (1.0 + change)
        residual = (self.m[:, None] * (s - self.q))[:, 1:].T @ self.X
        entropy = self.m @ torch.special.entr(s.clamp(min=0.0)).sum(dim=1)
        scores = _scores(self.X, theta + step)
        largest = (float(change.abs().max()), float(-change.min()), float(scores.abs().max()))
        return Tally((residual.cpu().numpy(), _numbers(entropy, *self._losses(scores))), largest)


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


def _scores(X: Tensor, theta: Tensor) -> Tensor:
    free = X @ theta.T
    return torch.hstack([torch.zeros_like(free[:, :1]), free])


def _by_class(weights: Tensor, ds: Any) -> Tensor:
    """(B, C) sums of columns by class."""
    return torch.stack([weights[:, lo:hi].sum(dim=1) for lo, hi in pairwise(ds.class_offsets)], dim=1)


def _numbers(*values: Tensor) -> FloatArray:
    return np.array([float(value) for value in values])
