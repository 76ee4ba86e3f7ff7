"""What `NumpyArrays` has, for tensors of one device, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from surefoot._types import FloatArray
from surefoot.problem.sets import DecisionSet


@dataclass(frozen=True)
class TorchArrays:
    """Tensors of a device."""

    device: Any

    entries = 1 << 26
    exp = staticmethod(torch.exp)
    log = staticmethod(torch.log)
    entr = staticmethod(torch.special.entr)

    @staticmethod
    def log_loss(scores: Tensor) -> Tensor:
        return -torch.log_softmax(scores, dim=1)

    @staticmethod
    def probabilities(scores: Tensor) -> Tensor:
        return torch.softmax(scores, dim=1)

    def send(self, array: Any) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), dtype=torch.float64, device=self.device)

    @staticmethod
    def fetch(array: Any) -> FloatArray:
        return cast("FloatArray", array.cpu().numpy()) if isinstance(array, Tensor) else np.asarray(array)

    def zeros(self, shape: tuple[int, ...]) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    @staticmethod
    def largest(array: Tensor, axis: int | tuple[int, ...]) -> Tensor:
        return array.amax(dim=axis)

    @staticmethod
    def hstack(left: Tensor, right: Tensor) -> Tensor:
        return torch.hstack([left, right])

    @staticmethod
    def softmax(array: Tensor) -> Tensor:
        return torch.softmax(array, dim=1)

    @staticmethod
    def log_total(array: Tensor) -> Tensor:
        return torch.logsumexp(array, dim=(1, 2), keepdim=True)

    @staticmethod
    def sum_by_class(array: Tensor, ds: DecisionSet) -> Tensor:
        return torch.stack([array[:, lo:hi].sum(dim=1) for lo, hi in pairwise(ds.class_offsets)], dim=1)

    @staticmethod
    def least_by_class(array: Tensor, ds: DecisionSet) -> Tensor:
        return torch.stack([array[:, lo:hi].amin(dim=1) for lo, hi in pairwise(ds.class_offsets)], dim=1)

    @staticmethod
    def largest_by_class(array: Tensor, ds: DecisionSet) -> Tensor:
        return torch.stack([array[:, lo:hi].amax(dim=1) for lo, hi in pairwise(ds.class_offsets)], dim=1)

    def slots(self, ds: DecisionSet) -> Tensor:
        return torch.as_tensor(ds.anchor_slots, device=self.device)
