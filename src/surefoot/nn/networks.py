"""Frozen networks and the metric of their embeddings, and the largest of several dual objectives."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_finite_array
from surefoot.costs import Euclidean, FeatureMetric
from surefoot.nn.dual_loss import DualLoss
from surefoot.problem.losses import probabilities

# Networks held fixed: what a certificate speaks of must not change when training goes on.

_BATCH = 4096


@dataclass(frozen=True, eq=False)
class EmbeddingMetric(FeatureMetric):
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
    >>> EmbeddingMetric(lambda rows: 2.0 * rows).distances([[1.0]], [[0.0]])
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


class WorstOf(nn.Module):
    """The largest of several dual objectives: a union of decision sets, as a calibrated radius with intervals makes.

    The network follows the largest one; the dual variables of every set follow their own.

    Parameters
    ----------
    losses : sequence of DualLoss
        One per decision set.

    Examples
    --------
    >>> parts = [
    ...     DualLoss.from_labeled([[0.0], [1.0]], [0, 1], radius=radius, label_prior=[0.5, 0.5])
    ...     for radius in (0.1, 0.3)
    ... ]
    >>> rows, logits = torch.tensor([[0.0], [1.0]]), torch.zeros(2, 2)
    >>> bool(torch.isclose(WorstOf(parts)(rows, logits), max(part(rows, logits) for part in parts)))
    True
    """

    def __init__(self, losses: Sequence[DualLoss]) -> None:
        super().__init__()
        if not losses:
            raise ParameterError("losses", "must hold at least one DualLoss", "none", "Pass a list of them.")
        self.parts = nn.ModuleList(losses)

    @property
    def losses(self) -> list[DualLoss]:
        """The objectives, one per decision set."""
        return [part for part in self.parts if isinstance(part, DualLoss)]

    def forward(self, features: Tensor, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        """The largest objective on a batch.

        Parameters
        ----------
        features : Tensor of shape (B, e), or (B, n)
            Rows in the space of the anchors; with metric="precomputed" their distances to the anchors.
        logits : Tensor of shape (B, K), or (B,) for two classes
            The network's outputs at these rows.
        weights : Tensor of shape (B,) or None, default=None
            Weights of the rows, where they count differently; they are divided by their sum.

        Returns
        -------
        Tensor
            A scalar: its value is that of the largest objective, and every set's dual variables get their own gradient.
        """
        if len(self.parts) == 1:
            return self.parts[0](features, logits, weights)
        values = torch.stack([part(features, logits, weights) for part in self.parts])
        alone = torch.stack([part(features, logits.detach(), weights) for part in self.parts])
        worst = torch.zeros_like(values).scatter(0, values.argmax(dim=0, keepdim=True), 1.0)
        others = ((1.0 - worst) * alone).sum()
        return (worst * values).sum() + others - others.detach()

    def project_(self) -> WorstOf:
        """Put every α back on [0, ∞), in place: after every step of the optimiser.

        Returns
        -------
        WorstOf
            The loss itself.
        """
        for part in self.losses:
            part.project_()
        return self
