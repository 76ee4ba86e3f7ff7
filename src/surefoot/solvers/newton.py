"""Exact solver: damped Newton on the smoothed dual. The smoothing τ falls until the gap reaches its target.

`follow` and `centre_objective` are the method itself. They use only the interface `SmoothObjective`. `follow_path` and
`centre` run the method on the dual of one decision set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.dual.models import DualPoint
from surefoot.dual.objective import BARRIER, Evaluation, SmoothedDual
from surefoot.dual.row_sums import MANY_ANCHORS
from surefoot.solvers.direction import Direction, Here, StallError, newton_direction

# The first ridge of a damped step, on a scaled diagonal of ones.
_FIRST_DAMPING = 1e-4
# While rounds take one step, τ falls by up to this power of `decrease` in a round. If a round then takes this many
# steps, it is abandoned, and τ falls by `decrease` alone.
_FASTEST, _LONG = 3, 12
# A point counts as centred if its decrement, with second derivatives from the previous step, is at most this share of
# the allowed decrement.
_SAFE = 0.5
# A Sinkhorn update moves an anchor if the logarithm of its mass is off by at least this much. The second value applies
# if there are many anchors.
_OFF, _OFF_OF_MANY = 0.3, 0.1
# A mass below this share of the anchor's weight is a rounding error.
_SMALLEST_MASS = 1e-14


@dataclass(frozen=True)
class NewtonOptions:
    """How fast τ falls, and when a round ends.

    `decrease` is the factor on τ between rounds. A round ends once the Newton decrement is below the share `centering`
    of the smoothing cost. `max_steps` bounds the Newton steps of the whole path. `smallest_tau` ends the path at the
    precision of float64. `smallest_ridge` is the ridge of an undamped step, on a scaled diagonal of ones.
    """

    decrease: float = 0.5
    centering: float = 0.1
    max_steps: int = 600
    round_steps: int = 80
    smallest_tau: float = 1e-12
    smallest_ridge: float = 1e-11


DEFAULT_OPTIONS = NewtonOptions()


Point = TypeVar("Point")


@dataclass(frozen=True)
class PathState(Generic[Point]):
    """A point on the path and its smoothing, for warm starts and for the certificate."""

    point: Point
    tau: float
    steps: int = 0
    smoothing_gap: float = np.inf
    stalled: bool = False


PathPoint = PathState[DualPoint]


class SmoothObjective(Protocol[Point, Here]):
    """The interface between a smooth convex function F_τ and Newton's method."""

    @property
    def positive(self) -> NDArray[np.intp]:
        """The coordinates of the packed point that must remain positive."""

    @property
    def rounding(self) -> float:
        """The rounding error of a value of size 1. No step is rejected for a smaller increase."""

    def pack(self, point: Point) -> FloatArray: ...
    def unpack(self, vector: FloatArray, template: Point) -> Point: ...
    def evaluate(self, point: Point, tau: float, *, second_order: bool, limit: float = np.inf) -> Here:
        """Evaluate F_τ. If F_τ is above `limit`, return it or any smaller function that is also above `limit`."""

    def balance(self, point: Point, here: Here, tau: float) -> tuple[Point, Here]:
        """Move cheaply away from a point where Newton's model fails. Return the point with its second derivatives."""

    def direction(self, here: Here, ridge: float) -> Direction[Here]:
        """Compute Newton's direction, with at least the given ridge."""

    def smoothing_gap(self, point: Point, here: Here, tau: float) -> float:
        """Return the gap that τ causes at a minimiser of F_τ."""

    def smoothing_cost(self, here: Here, tau: float) -> float:
        """Return the part of the gap due to entropy and barriers. Points are centred to a share of this part."""


@dataclass(frozen=True)
class OneSet:
    """The smoothed dual of one decision set as an objective of Newton's method.

    apart : True for one of several sets if their curvature in θ is computed together.
    """

    dual: SmoothedDual
    apart: bool = False

    @property
    def positive(self) -> NDArray[np.intp]:
        alpha = self.dual.layout.alpha
        return np.arange(alpha.start, alpha.stop)

    @property
    def rounding(self) -> float:
        return self.dual.rounding

    def pack(self, point: DualPoint) -> FloatArray:
        return self.dual.layout.pack(point)

    def unpack(self, vector: FloatArray, template: DualPoint) -> DualPoint:
        return self.dual.layout.unpack(vector, template)

    def evaluate(self, point: DualPoint, tau: float, *, second_order: bool, limit: float = np.inf) -> Evaluation:
        if second_order and self.apart:
            return self.dual.evaluate_apart(point, tau)
        return self.dual.evaluate(point, tau, second_order=second_order, limit=limit)

    def balance(self, point: DualPoint, here: Evaluation, tau: float) -> tuple[DualPoint, Evaluation]:
        """Apply Sinkhorn updates of β if an anchor's mass is off by a large factor, where Newton's model fails."""
        weights = self.dual.set.anchor_weights
        least = _OFF if len(weights) < MANY_ANCHORS else _OFF_OF_MANY
        for _ in range(6):
            # a mass below the rounding error is unknown. A step shorter than the exact one still lowers F; a longer
            # step may raise F
            ratio = np.log(np.maximum(1.0 - here.gradient[self.dual.layout.beta] / weights, _SMALLEST_MASS))
            if np.abs(ratio).max() < 1.0:
                break
            beta = point.beta + tau * np.where(np.abs(ratio) > least, ratio, 0.0)
            point = replace(point, beta=beta)
            here = self.evaluate(point, tau, second_order=False)
        if here.hessian is None:
            here = self.evaluate(point, tau, second_order=True)
        return point, here

    def direction(self, here: Evaluation, ridge: float) -> Direction[Evaluation]:
        return newton_direction(here, ridge, self.dual.ray, self.dual.layout.alpha, self.dual.factorized)

    def smoothing_gap(self, point: DualPoint, here: Evaluation, tau: float) -> float:
        """Return the entropy and barrier terms between F_τ and its own plan, and the effect of the widened radius."""
        widened = self.dual.radius(tau) - self.dual.set.radius
        return self.smoothing_cost(here, tau) + 2.0 * point.alpha * widened

    def smoothing_cost(self, here: Evaluation, tau: float) -> float:
        return tau * (here.entropy + BARRIER * self.dual.barrier_count)


def follow_path(
    dual: SmoothedDual,
    start: PathPoint,
    target_gap: float,
    options: NewtonOptions = DEFAULT_OPTIONS,
    on_round: Callable[[PathPoint], None] | None = None,
    final_tau: float = 0.0,
    finished: Callable[[PathPoint], bool] | None = None,
) -> PathPoint:
    """`follow` for one decision set."""
    return follow(OneSet(dual), start, target_gap, options, on_round, final_tau, finished)


def follow(
    objective: SmoothObjective[Point, Here],
    start: PathState[Point],
    target_gap: float,
    options: NewtonOptions = DEFAULT_OPTIONS,
    on_round: Callable[[PathState[Point]], None] | None = None,
    final_tau: float = 0.0,
    finished: Callable[[PathState[Point]], bool] | None = None,
) -> PathState[Point]:
    """Reduce τ, and centre at each value, until the smoothing gap is at most target_gap or τ is at most final_tau.

    `finished` is called after each round and may end the path earlier.
    """
    state, tau, power, used = start, start.tau, 1, 2
    # with α fixed, θ may diverge along directions of vanishing curvature, so the path is then followed step by step
    fixed = len(objective.positive) == 0
    older: PathState[Point] | None = None
    while state.steps < options.max_steps and tau >= options.smallest_tau:
        guess = state.point if fixed and state.smoothing_gap > 1e-4 else _predict(objective, state, older, tau)
        try:
            expected = 0 if fixed else used
            bold = tau < 0.9 * options.decrease * state.tau
            most = min(_LONG, options.round_steps) if bold else options.round_steps
            within = replace(options, round_steps=most)
            point, here, used = centre_objective(objective, guess, tau, within, expected=expected)
        except StallError:
            return replace(state, stalled=True)
        if bold and used >= most:
            tau, power, state = options.decrease * state.tau, 1, replace(state, steps=state.steps + used)
            continue
        older = state if np.isfinite(state.smoothing_gap) and state.tau > tau else None
        state = PathState(point, tau, state.steps + used, objective.smoothing_gap(point, here, tau))
        if on_round is not None:
            on_round(state)
        if state.smoothing_gap <= target_gap or tau <= final_tau or (finished is not None and finished(state)):
            break
        # τ takes values on a fixed grid for every gap, so the last τ, and the result, do not depend on rounding
        widened = state.smoothing_gap > 2.0 * objective.smoothing_cost(
            here, tau
        )  # α grows as τ falls, so the path must be followed
        power = 1 if fixed or widened or used > 3 else min(power + 1, _FASTEST) if used <= 1 else power
        tau *= np.sqrt(options.decrease) if used > 12 else _fall(state, power, target_gap, final_tau, options)
    return state


def _fall(state: PathState[Point], power: int, target_gap: float, final_tau: float, options: NewtonOptions) -> float:
    """Return the factor on τ: a power of `decrease`, no smaller than the power at which the path is likely to end."""
    for smaller in range(1, power):
        factor = float(options.decrease**smaller)
        if factor * state.smoothing_gap <= target_gap or factor * state.tau <= final_tau:
            return factor
    return float(options.decrease**power)


def _predict(
    objective: SmoothObjective[Point, Here], state: PathState[Point], older: PathState[Point] | None, tau: float
) -> Point:
    """Predict along the secant in τ, if this lowers F_τ. The path is linear in τ only near τ = 0."""
    if older is None or state.smoothing_gap > 1e-1:
        return state.point
    now, before = objective.pack(state.point), objective.pack(older.point)
    moved = now + (now - before) * ((tau - state.tau) / (state.tau - older.tau))
    positive = objective.positive
    moved[positive] = np.maximum(moved[positive], 0.2 * now[positive])
    guess = objective.unpack(moved, state.point)
    here = objective.evaluate(state.point, tau, second_order=False)
    there = objective.evaluate(guess, tau, second_order=False, limit=here.value)
    return guess if there.value < here.value else state.point


def centre(
    dual: SmoothedDual,
    start: DualPoint,
    tau: float,
    options: NewtonOptions,
    *,
    centred: Callable[[DualPoint, Evaluation, float], bool] | None = None,
) -> tuple[DualPoint, Evaluation, int]:
    """`centre_objective` for one decision set."""
    return centre_objective(OneSet(dual), start, tau, options, centred=centred)


def centre_objective(
    objective: SmoothObjective[Point, Here],
    start: Point,
    tau: float,
    options: NewtonOptions,
    *,
    centred: Callable[[Point, Here, float], bool] | None = None,
    expected: int = 0,
) -> tuple[Point, Here, int]:
    """Take damped Newton steps at fixed τ until the point is centred.

    By default, a point is centred if half the decrement is at most a share of the smoothing cost. `centred` is an
    alternative test, given the point, its evaluation and its decrement. If `expected` is not 0, from that step on a
    point is first tested with the second derivatives of the previous step. If the test succeeds, the point's own second
    derivatives are never computed, and the returned evaluation has none.
    """
    smallest = options.smallest_ridge
    point, ridge, eager = start, smallest, True
    here = objective.evaluate(point, tau, second_order=True)
    for step in range(options.round_steps):
        point, here = objective.balance(point, here, tau)
        move = _Move.along_newton(objective, point, here, ridge)
        if centred is None:
            near = 0.5 * move.decrement <= options.centering * objective.smoothing_cost(here, tau)
        else:
            near = centred(point, here, move.decrement)
        if near:
            if ridge == smallest:
                return point, here, step
            ridge = smallest  # a damped direction does not prove that the point is centred
            continue
        patient = centred is None and 0 < expected <= step + 1
        point, here, move, trials = _line_search(objective, point, here, move, tau, eager and not patient)
        eager = trials == 0
        if patient and move.ridge == smallest:
            allowed = options.centering * objective.smoothing_cost(here, tau)
            if 0.5 * move.newton.decrement_at(here) <= _SAFE * allowed:
                return point, here, step + 1
        ridge = max(0.1 * move.ridge, smallest) if eager else move.ridge
    return point, here, options.round_steps


@dataclass(frozen=True)
class _Move(Generic[Here]):
    """Newton's direction, and the largest step along it that keeps α positive."""

    newton: Direction[Here]
    largest: float

    @property
    def direction(self) -> FloatArray:
        return self.newton.step

    @property
    def decrement(self) -> float:
        return self.newton.decrement

    @property
    def ridge(self) -> float:
        return self.newton.ridge

    @classmethod
    def along_newton(
        cls, objective: SmoothObjective[Point, Here], point: Point, here: Here, ridge: float
    ) -> _Move[Here]:
        newton = objective.direction(here, ridge)
        while newton.decrement > max(1.0, abs(here.value)) and newton.ridge < _FIRST_DAMPING:
            newton = objective.direction(here, 100.0 * newton.ridge)  # F cannot fall this much, so H is nearly singular
        change = newton.step[objective.positive]
        falling = change < 0
        limits = -0.9 * objective.pack(point)[objective.positive][falling] / change[falling]
        return cls(newton, float(min(1.0, limits.min(initial=1.0))))


def _line_search(
    objective: SmoothObjective[Point, Here], point: Point, here: Here, move: _Move[Here], tau: float, eager: bool
) -> tuple[Point, Here, _Move[Here], int]:
    """Backtrack by cubic interpolation. After two failures, every second one also damps the direction.

    The damping is that of Levenberg and Marquardt. If the search is `eager`, the first trial also computes its Hessian,
    because it will most likely be accepted. Later trials compute no Hessian.
    """
    vector, size = objective.pack(point), move.largest
    noise = objective.rounding * max(1.0, abs(here.value))
    for trial in range(30):
        candidate = objective.unpack(vector + size * move.direction, point)
        most = here.value - 1e-4 * size * move.decrement + noise
        there = objective.evaluate(candidate, tau, second_order=eager and trial == 0, limit=most)
        if np.isfinite(there.value) and there.value <= most:
            return candidate, there, move, trial
        if trial >= 2 and trial % 2 == 0:
            move = _Move.along_newton(objective, point, here, max(10 * move.ridge, _FIRST_DAMPING))
            size = move.largest
        elif np.isfinite(there.value):
            size = _cubic_step(here.value, -move.decrement, there.value, float(there.gradient @ move.direction), size)
        else:
            size *= 0.3
    raise StallError("the line search found no decrease")


def _cubic_step(f0: float, g0: float, f1: float, g1: float, size: float) -> float:
    """Return the minimiser of the cubic with values f0, f1 and slopes g0, g1 at 0 and size, in [0.05, 0.8]·size."""
    d1 = g0 + g1 - 3.0 * (f1 - f0) / size
    radicand = d1 * d1 - g0 * g1
    if radicand < 0:
        return 0.5 * size
    d2 = np.sqrt(radicand)
    step = size - size * (g1 + d2 - d1) / (g1 - g0 + 2.0 * d2)
    return float(np.clip(step, 0.05 * size, 0.8 * size)) if np.isfinite(step) else 0.5 * size
