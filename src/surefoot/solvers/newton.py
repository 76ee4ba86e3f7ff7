"""Exact solver: damped Newton on the smoothed dual, following the smoothing τ down to a target gap.

The method itself (`follow`, `centre_objective`) knows only a `SmoothObjective`; `follow_path` and `centre` run it on
the dual of one decision set.
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
from surefoot.solvers.direction import Direction, Here, StallError, newton_direction

# The ridge of an undamped step, and the first where steps are damped, on a scaled diagonal of ones.
_SMALLEST_RIDGE, _FIRST_DAMPING = 1e-11, 1e-4
# A decrement above this multiple of the objective is none of the objective's.
_MOST_DECREMENT = 1.0
# τ falls by at most this power of `decrease` in one round, where rounds take one step; a round that then takes so many
# steps is given up, and τ falls by `decrease` alone.
_FASTEST, _LONG = 3, 12
# Second derivatives one step old tell that a point is centred where they find this share of the decrement allowed.
_SAFE = 0.5
# Logarithm of the factor by which an anchor's mass is off where a Sinkhorn update moves it: of many anchors, more move.
_OFF, MANY_ANCHORS, _OFF_OF_MANY = 0.3, 256, 0.1
# Share of an anchor's weight below which the mass that it receives is rounding error.
_SMALLEST_MASS = 1e-14


@dataclass(frozen=True)
class NewtonOptions:
    """How τ falls and when a round ends.

    `decrease` is the factor on τ between rounds, `centering` the share of the smoothing cost below which the Newton
    decrement ends a round, `max_steps` bounds the Newton steps of the whole path, `smallest_tau` ends it where
    float64 does.
    """

    decrease: float = 0.5
    centering: float = 0.1
    max_steps: int = 600
    round_steps: int = 80
    smallest_tau: float = 1e-12


DEFAULT_OPTIONS = NewtonOptions()


Point = TypeVar("Point")


@dataclass(frozen=True)
class PathState(Generic[Point]):
    """A point on the path with its smoothing: what a warm start needs, and what the certificate reads."""

    point: Point
    tau: float
    steps: int = 0
    smoothing_gap: float = np.inf
    stalled: bool = False


PathPoint = PathState[DualPoint]


class SmoothObjective(Protocol[Point, Here]):
    """A smooth convex function F_τ of a point, as Newton's method sees it."""

    @property
    def positive(self) -> NDArray[np.intp]:
        """Coordinates of the packed point that must stay positive."""

    def pack(self, point: Point) -> FloatArray: ...
    def unpack(self, vector: FloatArray, template: Point) -> Point: ...
    def evaluate(self, point: Point, tau: float, *, second_order: bool, limit: float = np.inf) -> Here:
        """F_τ; where it is above `limit`, a smaller function that is above it as well will do."""

    def balance(self, point: Point, here: Here, tau: float) -> tuple[Point, Here]:
        """A cheap move where Newton's model fails, and the second derivatives where it ends."""

    def direction(self, here: Here, ridge: float) -> Direction[Here]:
        """Newton's direction, with at least the ridge given."""

    def smoothing_gap(self, point: Point, here: Here, tau: float) -> float:
        """What τ costs at a minimiser of F_τ."""

    def smoothing_cost(self, here: Here, tau: float) -> float:
        """What τ costs there by entropy and barriers alone: points are centred to a share of it."""


@dataclass(frozen=True)
class OneSet:
    """The smoothed dual of one decision set as an objective of Newton's method.

    apart : as one of several sets, whose curvature of θ is computed for all at once.
    """

    dual: SmoothedDual
    apart: bool = False

    @property
    def positive(self) -> NDArray[np.intp]:
        alpha = self.dual.layout.alpha
        return np.arange(alpha.start, alpha.stop)

    def pack(self, point: DualPoint) -> FloatArray:
        return self.dual.layout.pack(point)

    def unpack(self, vector: FloatArray, template: DualPoint) -> DualPoint:
        return self.dual.layout.unpack(vector, template)

    def evaluate(self, point: DualPoint, tau: float, *, second_order: bool, limit: float = np.inf) -> Evaluation:
        if second_order and self.apart:
            return self.dual.evaluate_apart(point, tau)
        return self.dual.evaluate(point, tau, second_order=second_order, limit=limit)

    def balance(self, point: DualPoint, here: Evaluation, tau: float) -> tuple[DualPoint, Evaluation]:
        """Sinkhorn updates of β where an anchor's mass is off by more than a factor e: Newton's model fails there."""
        weights = self.dual.set.anchor_weights
        least = _OFF if len(weights) < MANY_ANCHORS else _OFF_OF_MANY
        for _ in range(6):
            # a mass below rounding error is unknown: a step shorter than the exact one still lowers F, a longer may not
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
        """Entropy and barrier terms between F_τ and its own plan, and the widened radius."""
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
    """Shrink τ, centring at each, until the gap that smoothing causes is at most target_gap, or τ at most final_tau.

    `finished` may end it earlier: it is asked after each round.
    """
    state, tau, power, used = start, start.tau, 1, 2
    # with α fixed θ may run off along directions whose curvature vanishes: the path is then followed step by step
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
        # τ stays on a grid, whatever the gap: the last τ, and so the result, then does not depend on rounding
        widened = state.smoothing_gap > 2.0 * objective.smoothing_cost(
            here, tau
        )  # α then grows as τ falls, and must be followed
        power = 1 if fixed or widened or used > 3 else min(power + 1, _FASTEST) if used <= 1 else power
        tau *= np.sqrt(options.decrease) if used > 12 else _fall(state, power, target_gap, final_tau, options)
    return state


def _fall(state: PathState[Point], power: int, target_gap: float, final_tau: float, options: NewtonOptions) -> float:
    """The factor on τ: a power of `decrease`, none beyond the one at which the path is likely to end."""
    for smaller in range(1, power):
        factor = float(options.decrease**smaller)
        if factor * state.smoothing_gap <= target_gap or factor * state.tau <= final_tau:
            return factor
    return float(options.decrease**power)


def _predict(
    objective: SmoothObjective[Point, Here], state: PathState[Point], older: PathState[Point] | None, tau: float
) -> Point:
    """Secant predictor along τ, taken only where it lowers F_τ: near τ = 0 the path is linear in τ, far from it not."""
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
    """Damped Newton at fixed τ until the point is centred.

    By default: half the decrement is a share of the smoothing cost. `centred` judges a point, its evaluation and its
    decrement. From step `expected` on, if not 0, a point is first judged by the second derivatives of the step before:
    where those suffice, its own are never computed, and the evaluation returned lacks them.
    """
    point, ridge, eager = start, _SMALLEST_RIDGE, True
    here = objective.evaluate(point, tau, second_order=True)
    for step in range(options.round_steps):
        point, here = objective.balance(point, here, tau)
        move = _Move.along_newton(objective, point, here, ridge)
        if centred is None:
            near = 0.5 * move.decrement <= options.centering * objective.smoothing_cost(here, tau)
        else:
            near = centred(point, here, move.decrement)
        if near:
            if ridge == _SMALLEST_RIDGE:
                return point, here, step
            ridge = _SMALLEST_RIDGE  # a damped direction proves nothing: look again without
            continue
        patient = centred is None and 0 < expected <= step + 1
        point, here, move, trials = _line_search(objective, point, here, move, tau, eager and not patient)
        eager = trials == 0
        if patient and move.ridge == _SMALLEST_RIDGE:
            allowed = options.centering * objective.smoothing_cost(here, tau)
            if 0.5 * move.newton.decrement_at(here) <= _SAFE * allowed:
                return point, here, step + 1
        ridge = max(0.1 * move.ridge, _SMALLEST_RIDGE) if eager else move.ridge
    return point, here, options.round_steps


@dataclass(frozen=True)
class _Move(Generic[Here]):
    """Newton's direction, and the largest step that keeps α positive."""

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
        while newton.decrement > _MOST_DECREMENT * max(1.0, abs(here.value)) and newton.ridge < _FIRST_DAMPING:
            newton = objective.direction(here, 100.0 * newton.ridge)  # F has no such decrease: H is nearly singular
        change = newton.step[objective.positive]
        falling = change < 0
        limits = -0.9 * objective.pack(point)[objective.positive][falling] / change[falling]
        return cls(newton, float(min(1.0, limits.min(initial=1.0))))


def _line_search(
    objective: SmoothObjective[Point, Here], point: Point, here: Here, move: _Move[Here], tau: float, eager: bool
) -> tuple[Point, Here, _Move[Here], int]:
    """Cubic backtracking; every second failure past the first two also damps the direction (Levenberg–Marquardt).

    The first trial carries its Hessian where the search is `eager`: it will most likely be accepted. Later ones do not.
    """
    vector, size = objective.pack(point), move.largest
    noise = 1e-15 * max(1.0, abs(here.value))
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
    """Minimiser of the cubic with values f0, f1 and slopes g0, g1 at 0 and size, kept inside [0.05, 0.8]·size."""
    d1 = g0 + g1 - 3.0 * (f1 - f0) / size
    radicand = d1 * d1 - g0 * g1
    if radicand < 0:
        return 0.5 * size
    d2 = np.sqrt(radicand)
    step = size - size * (g1 + d2 - d1) / (g1 - g0 + 2.0 * d2)
    return float(np.clip(step, 0.05 * size, 0.8 * size)) if np.isfinite(step) else 0.5 * size
