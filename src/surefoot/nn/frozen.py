"""Networks held fixed: what a certificate speaks of must not change when training goes on."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from surefoot._errors import ParameterError
from surefoot._types import FloatArray
from surefoot._validation import check_finite_array
from surefoot.costs import Euclidean, FeatureMetric
from surefoot.losses import probabilities

_BATCH = 4096


@dataclass(frozen=True, eq=False)
class Embedded(FeatureMetric):
    """Distance between the embeddings of x and x'.

    A network is copied, so that training it further does not change the metric; a function must not change either.

    Parameters
    ----------
    embedding : torch.nn.Module or callable
        Maps rows (N, d) to (N, e): tensors of float32 to tensors, or arrays to arrays.
    metric : FeatureMetric, default=Euclidean()
        Between embedded rows.

    Examples
    --------
    >>> Embedded(lambda rows: 2.0 * rows).distances([[1.0]], [[0.0]])
    array([[2.]])
    """

    embedding: Any
    metric: FeatureMetric = field(default_factory=Euclidean)

    def __post_init__(self) -> None:
        if not callable(self.embedding):
            raise ParameterError(
                "embedding", "must be a torch module or a function of rows", repr(self.embedding), "Pass one of these."
            )
        if isinstance(self.embedding, nn.Module):
            object.__setattr__(self, "embedding", frozen_copy(self.embedding))

    def transform(self, rows: ArrayLike) -> FloatArray:
        """Embed rows.

        Parameters
        ----------
        rows : array of shape (N, d)
            Rows.

        Returns
        -------
        array of shape (N, e)
            Embedded rows.
        """
        X = check_finite_array(rows, "rows", ndim=2)
        found = run_module(self.embedding, X) if isinstance(self.embedding, nn.Module) else self.embedding(X)
        embedded = check_finite_array(found, "the result of embedding", ndim=2)
        if len(embedded) != len(X):
            raise ParameterError(
                "embedding", f"must give a row per row, {len(X)}", len(embedded), "Return an array of shape (N, e)."
            )
        return embedded

    def distances(self, rows: ArrayLike, anchors: ArrayLike) -> FloatArray:
        return self.metric.distances(self.transform(rows), self.transform(anchors))


@dataclass(frozen=True, eq=False)
class FrozenNet:
    """A network's probabilities, as a fitted classifier: `certify` and fresh certificates call it."""

    module: nn.Module
    classes_: NDArray[Any]

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        return probabilities(run_module(self.module, np.asarray(X, dtype=np.float64)))


def frozen_copy(module: nn.Module) -> nn.Module:
    """A copy on the CPU, in evaluation mode, that takes no gradients."""
    bare = getattr(module, "_orig_mod", module)  # of torch.compile
    return copy.deepcopy(bare).cpu().eval().requires_grad_(False)


def run_module(module: nn.Module, rows: FloatArray) -> FloatArray:
    """Outputs of a module on the CPU for rows (N, d), in float64, a batch at a time."""
    outputs = []
    with torch.no_grad():
        for start in range(0, max(len(rows), 1), _BATCH):
            batch = torch.from_numpy(rows[start : start + _BATCH].astype(np.float32))
            outputs.append(module(batch).double().numpy())
    return np.concatenate(outputs)
