"""The functions of `NumpyArrays` for tensors on one device, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from subprocess import SubprocessError
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from surefoot._errors import CodedWarning, warn_caller
from surefoot._validation import FloatArray
from surefoot.kernels.torch_rows import tall_product
from surefoot.problem.sets import DecisionSet

# The kernels support torch 2.8 and later, and GPUs from the A100 on.
_LEAST_TRITON, _LEAST_CAPABILITY = (3, 4), (8, 0)


@dataclass(frozen=True)
class TorchArrays:
    """Array functions for tensors on a device."""

    device: Any

    entries = 1 << 26
    exp = staticmethod(torch.exp)
    log = staticmethod(torch.log)
    multiply = staticmethod(torch.mul)
    entr = staticmethod(torch.special.entr)

    @staticmethod
    def log_loss(scores: Tensor) -> Tensor:
        return -torch.log_softmax(scores, dim=1)

    @staticmethod
    def probabilities(scores: Tensor) -> Tensor:
        return torch.softmax(scores, dim=1)

    @staticmethod
    def fused(distances: Tensor) -> Any:
        return fused_rows(distances.device) if distances.is_cuda else None

    def send(self, array: Any) -> Tensor:
        if isinstance(array, Tensor):
            return array.to(self.device, torch.float64)
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
    def symmetric_product(lower: Tensor, vector: FloatArray) -> FloatArray:
        right = torch.as_tensor(vector, device=lower.device)
        return cast("FloatArray", (lower.tril() @ right + lower.tril(-1).T @ right).cpu().numpy())

    @staticmethod
    def scaled(lower: Tensor, scale: Tensor) -> Tensor:
        return (lower * scale[:, None]).mul_(scale)

    @staticmethod
    def copy(array: Tensor) -> Tensor:
        return array.clone()

    tall_product = staticmethod(tall_product)

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


@cache
def fused_rows(device: torch.device) -> Any:
    """Return the kernels of `torch_fused` on a GPU, or None if Triton (part of torch for CUDA) does not support it."""
    if find_spec("triton") is None or torch.version.cuda is None:
        return None
    import triton

    too_old = tuple(int(part) for part in triton.__version__.split(".")[:2]) < _LEAST_TRITON
    if too_old or torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
        return None
    from surefoot.kernels import torch_fused as kernels

    one = torch.zeros((1, 1), dtype=torch.float64, device=device)
    try:
        kernels.distances(one, one, "euclidean", one.clone())
    except (RuntimeError, OSError, SubprocessError) as error:  # Triton needs a C compiler and Python's headers
        warn_caller(
            CodedWarning(
                "no_compiler",
                f"Triton cannot compile here, so passes over the rows take about ten times longer: {error}.",
                "Install a C compiler and the headers of Python.",
            )
        )
        return None
    return kernels
