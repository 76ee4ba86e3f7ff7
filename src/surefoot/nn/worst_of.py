"""The largest of several dual objectives, for a union of decision sets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from surefoot._errors import ParameterError
from surefoot.nn.dual_loss import DualLoss


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
