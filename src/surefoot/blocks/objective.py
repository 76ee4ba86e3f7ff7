"""The smoothed dual over blocks."""

from __future__ import annotations

from typing import Any, cast

from surefoot._types import FloatArray
from surefoot.blocks.block import Header
from surefoot.blocks.sweep import Sweep
from surefoot.dual.objective import DualPoint, RowSums, SmoothedDual


class BlockDual(SmoothedDual):
    """The smoothed dual of a header's problem, its rows summed up by a sweep.

    `exact` asks for sums in float64 of a sweep that may otherwise take them in float32.
    """

    def __init__(self, sweep: Sweep, header: Header, *, exact: bool = False, **keywords: Any):
        super().__init__(header.decision_set, header.model, **keywords)
        self._sweep, self._header = sweep, header
        self._name = "exact_row_sums" if exact else "row_sums"

    def solve_positive(self, matrix: FloatArray, right: FloatArray) -> FloatArray:
        """By the sweep, where it is on a device that is faster at it."""
        solve = getattr(self._sweep, "solve_positive", None)
        return super().solve_positive(matrix, right) if solve is None else cast("FloatArray", solve(matrix, right))

    def row_sums(self, point: DualPoint, tau: float, *, second_order: bool) -> RowSums:
        """Σ over all blocks."""
        alpha_free = self.layout.alpha_free
        return cast("RowSums", self._sweep.total(self._header, self._name, point, tau, alpha_free, second_order))
