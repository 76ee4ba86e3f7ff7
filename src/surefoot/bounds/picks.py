"""Which row to audit next: uniform draws without replacement, or draws weighted towards rows the model is unsure of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot._types import FloatArray
from surefoot._validation import check_unit_scalar

UNIFORM, WEIGHTED, AUTO = "uniform", "weighted", "auto"
# Weighted picks win from about this many labels on, and lose below 100 (docs/bounds.md).
WEIGHTED_FROM = 200
LEAST_UNIFORM_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Picks:
    """Draws one row after the other from those left; the same seed and history give the same row.

    Parameters
    ----------
    seed : tuple of int
    belief : array of shape (N,) or None
        The classifier's own probability of being wrong at each row; None draws uniformly. Else row i is drawn with
        probability uniform_share / r + (1 − uniform_share) s_i / Σ s, over the r rows left, s the standard deviation
        of an error that has this probability.
    uniform_share : float
    """

    seed: tuple[int, ...]
    belief: FloatArray | None
    uniform_share: float = 1.0

    def probabilities(self, left: NDArray[np.intp]) -> FloatArray:
        """(r,) of the rows left (r,)."""
        uniform = np.full(len(left), 1.0 / len(left))
        if self.belief is None:
            return uniform
        p = self.belief[left]
        spread = np.sqrt(p * (1.0 - p))
        total = float(spread.sum())
        if total <= 0:
            return uniform
        mixed: FloatArray = self.uniform_share * uniform + (1.0 - self.uniform_share) * spread / total
        return mixed / mixed.sum()

    def draw(self, left: NDArray[np.intp], step: int) -> tuple[int, FloatArray]:
        """Position of the next row among those left, and the probabilities (r,) that it was drawn with."""
        probabilities = self.probabilities(left)
        point = np.random.default_rng([*self.seed, step]).random()
        position = int(np.searchsorted(np.cumsum(probabilities), point, side="right"))
        return min(position, len(left) - 1), probabilities


def check_uniform_share(value: float) -> float:
    """A share η in [0.2, 1]: every row keeps a chance, so that no weight 1/(N q) exceeds 5."""
    share = check_unit_scalar(value, "uniform_share")
    if share < LEAST_UNIFORM_SHARE:
        raise ValueError(f"uniform_share must be at least {LEAST_UNIFORM_SHARE}; got {value!r}. Pass 0.6, say.")
    return share


def resolve_picks(picks: str, n_labels: int | None, *, planned: bool, has_belief: bool) -> str:
    """How rows are picked, uniform or weighted: "auto" decides by the planned number of labels alone."""
    if picks not in (UNIFORM, WEIGHTED, AUTO):
        raise ValueError(f"picks must be 'uniform', 'weighted' or 'auto'; got {picks!r}. Pass one of these.")
    if picks == AUTO:
        many = n_labels is not None and n_labels >= WEIGHTED_FROM
        return WEIGHTED if many and has_belief and not planned else UNIFORM
    if picks == WEIGHTED and planned:
        raise ValueError(
            "the exact bound at a planned number of labels needs picks='uniform'; got 'weighted'. Pass it."
        )
    return picks
