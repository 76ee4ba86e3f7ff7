"""Where the path of a search may begin, later than at zero, where rows are held in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from surefoot.dual.objective import SmoothedDual
from surefoot.dual.sweep import HeldRows
from surefoot.exact.judge import JointState
from surefoot.exact.search import Search
from surefoot.solvers.joint_objective import JointDual, JointPoint
from surefoot.solvers.newton import PathState, follow
from surefoot.solvers.starts import coarsen, start_from_potentials
from surefoot.solvers.transport import TransportSolution

# The early part of the path runs over few rows down to this τ, in units of the loss.
_COARSE_TAU = 0.02


def quick_start_in_memory(search: Search) -> JointState | None:
    """Follow the early part of the path over few rows, the same for all sets; where those are no fewer, leave it out.

    None where the potentials of the minimal radius say nothing, or the path over few rows failed.
    """
    sweep, model = search.judge.sweep, search.judge.model
    if not isinstance(sweep, HeldRows):
        raise TypeError("a coarse start needs rows in memory")
    with_rows = model.over(sweep)
    coarse = []
    for member in search.members:
        transport = member.minimal.transport
        if not isinstance(transport, TransportSolution) or transport.cost <= 0:
            return None
        rng = np.random.default_rng(0)  # the same for each: the sets must keep the same rows
        found = coarsen(
            replace(member.opened, row_weights=sweep.weights),
            sweep.distances,
            with_rows,
            transport,
            search.scale,
            rng,
            len(search.members),
        )
        if found is None:
            return _from_potentials(search)
        coarse.append(found)
    joint = JointDual([SmoothedDual(one.decision_set, one.model) for one in coarse])
    start = PathState(JointPoint(tuple(one.start.point for one in coarse)), coarse[0].start.tau)
    path = follow(joint, start, 0.0, search.options, search.on_round, _COARSE_TAU * search.scale)
    return None if path.stalled or np.isinf(path.smoothing_gap) else replace(path, smoothing_gap=np.inf)


def _from_potentials(search: Search) -> JointState | None:
    """From the potentials of the minimal radius, where there is one set."""
    if len(search.members) > 1:
        return None
    member = search.members[0]
    transport = member.minimal.transport
    start = start_from_potentials(member.opened, search.judge.model, transport.potentials, transport.cost, search.scale)
    return PathState(JointPoint((start.point,)), start.tau)
