"""Where paths start: cold, from potentials, or on a coarse problem over few rows whose minimal radius is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from surefoot._validation import FloatArray
from surefoot.dual.models import DualPoint, Model
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.newton import MANY_ANCHORS, PathPoint
from surefoot.solvers.transport import TransportSolution

_ROWS = 2000
_FEWEST_PER_ANCHOR, _MOST_PER_ANCHOR = 3, 60
# Of many anchors two rows each are enough.
_FEWEST_OF_MANY = 2
_LARGEST_SHARE = 0.4


@dataclass(frozen=True)
class CoarseProblem:
    """A decision set over some of the rows, its model, and where to start on it."""

    decision_set: DecisionSet
    model: Model
    start: PathPoint


def coarsen(
    ds: DecisionSet,
    distances: FloatArray,
    model: Model,
    transport: TransportSolution,
    scale: float,
    rng: np.random.Generator,
    n_sets: int = 1,
) -> CoarseProblem | None:
    """Keep a few rows of each anchor of an optimal plan, with weights that leave every anchor's mass as it was.

    The kept part of the plan still has zero reduced cost under the potentials, so it is optimal between the kept rows
    and the anchors: the coarse minimal radius is its cost, and the excess over it can be kept exactly. None where too
    few rows would be saved. `scale` is the size of the losses. The more sets there are, the fewer rows are kept.
    """
    N, n = distances.shape
    fewest = _FEWEST_OF_MANY if n >= MANY_ANCHORS else _FEWEST_PER_ANCHOR
    per_anchor = int(np.clip(min(_ROWS / n_sets**0.5, _LARGEST_SHARE * N) / n, fewest, _MOST_PER_ANCHOR))
    if per_anchor * n > _LARGEST_SHARE * N or transport.cost <= 0:
        return None
    entries = transport.plan.tocoo()
    order = rng.permutation(len(entries.data))
    order = order[np.argsort(entries.col[order], kind="stable")]
    anchor = entries.col[order]
    rank = np.arange(len(order)) - np.searchsorted(anchor, anchor)
    kept = order[rank < per_anchor]
    row, col, mass = entries.row[kept], entries.col[kept], entries.data[kept]
    mass = mass * (ds.anchor_weights / np.bincount(col, weights=mass, minlength=n))[col]
    cost = float(mass @ distances[row, col])
    rows, inverse = np.unique(row, return_inverse=True)
    coarse = replace(
        ds,
        distances=np.ascontiguousarray(distances[rows]),
        row_weights=cast("FloatArray", np.bincount(inverse, weights=mass)),
        radius=ds.radius - transport.cost + cost,
    )
    return CoarseProblem(
        coarse, model.restricted(rows), start_from_potentials(ds, model, transport.potentials, transport.cost, scale)
    )


def cold_start(ds: DecisionSet, model: Model, scale: float, distance: float) -> PathPoint:
    """Where every path can begin: θ = 0, potentials zero, τ as large as the losses, `distance` a typical one."""
    labels, anchors = np.zeros(ds.n_classes), np.zeros(len(ds.anchor_weights))
    return PathPoint(DualPoint(np.zeros(model.shape), scale / distance, labels, anchors), tau=scale)


def start_from_potentials(
    ds: DecisionSet, model: Model, potentials: FloatArray, cost: float, scale: float
) -> PathPoint:
    """Potentials (n,) of the minimal radius at a smoothing τ of a twentieth of `scale`, the size of the losses.

    They are scaled so that τ blurs over a twentieth of `cost`, which is that of the transport and not zero.
    """
    tau = 0.05 * scale
    alpha = 20.0 * tau / cost
    centred = potentials - ds.anchor_weights @ potentials
    return PathPoint(DualPoint(np.zeros(model.shape), alpha, np.zeros(ds.n_classes), alpha * centred), tau)
