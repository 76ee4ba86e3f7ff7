"""Polishing: centre a point of the path until its plans need next to no repair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from surefoot._types import FloatArray
from surefoot.dual.objective import SmoothedDual
from surefoot.dual.point import DualPoint
from surefoot.exact.judge import JointState
from surefoot.solvers.direction import StallError
from surefoot.solvers.joint_objective import JointDual, JointEvaluation, JointPoint
from surefoot.solvers.newton import NewtonOptions, centre_objective

_MOST_STEPS = 30


def polish(
    joint: JointDual, path: JointState, options: NewtonOptions, *, tol: float, scale: float, typical: float
) -> tuple[JointState, bool]:
    """Centre until what is left to repair in the plans' marginals costs the lower bound far less than tol.

    Also returned: whether it ran out of steps.
    """
    allowed = max(0.05 * tol, 0.3 * (tol - path.smoothing_gap))

    def centred(point: JointPoint, here: JointEvaluation, decrement: float) -> bool:
        parts = zip(joint.duals, point.parts, here.parts, strict=True)
        repairs = np.array([_repair_costs(dual, part, local.gradient, scale, typical) for dual, part, local in parts])
        model = 10.0 * np.square(here.gradient[: point.theta.size]).sum() / scale
        return max(0.5 * decrement, *(here.weights @ repairs), model) <= allowed

    try:
        point, _, used = centre_objective(
            joint, path.point, path.tau, replace(options, round_steps=_MOST_STEPS), centred=centred
        )
    except StallError:
        return path, False
    return replace(path, point=point, steps=path.steps + used), used >= _MOST_STEPS


def _repair_costs(
    dual: SmoothedDual, point: DualPoint, gradient: FloatArray, scale: float, typical: float
) -> tuple[float, float]:
    """About what it costs the adversary to make its anchor marginal, and its label probabilities, exact."""
    ds, at = dual.set, dual.layout
    price = point.alpha if at.alpha_free else scale / typical
    off, label_cost = gradient[at.beta], float(ds.label_cost.max())
    across = np.abs(np.add.reduceat(off, ds.class_offsets[:-1])).sum()
    anchors = price * (np.abs(off).sum() * typical + across * label_cost)
    return float(anchors), float(np.abs(gradient[at.lam]).sum() * (price * label_cost + 4.0 * scale))
