"""The adversary's problem at one row as a plain linear program: all N·K·n variables, one HiGHS solve per row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reference.inner import Array, PlanProgram


def worst_impact_reference(
    impact: Array,
    row: int,
    distances: Array,
    row_weights: Array,
    anchor_weights: Array,
    anchor_labels: NDArray[np.intp],
    label_cost: Array,
    intervals: Array | None,
    radius: float,
    *,
    method: str = "highs-ds",
) -> float:
    """inf_μ E^μ[f(x_j, Y) | x_j] over the decision set (paper, eq. distributionally-robust-active-learning).

    impact (K,) are the values f(x_j, k) at row j = row.
    """
    program = PlanProgram.build(distances, row_weights, anchor_weights, anchor_labels, label_cost, intervals)
    objective = np.zeros(program.shape)
    objective[row] = impact[:, None]
    plan = program.within(radius).minimise(objective.ravel(), method)
    return float(plan[row].sum(axis=1) @ impact / row_weights[row])
