"""A primal–dual interior-point method for learning over one decision set, from a point of the smoothed path.

Where groups of anchors share almost no rows, Newton's method on the softmax crawls: the step that would balance them is
right only while weights are what they were. Here the weights are variables of their own, multipliers of the constraints
(`interior_rows` has the problem), and the last digits come in a few steps. Far from the optimum it is the slower one:
the path leads to where it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from surefoot._validation import FloatArray
from surefoot.dual.bounds import soft_plan
from surefoot.dual.models import DualPoint, LinearModel
from surefoot.dual.objective import place_theta_blocks
from surefoot.problem.losses import probabilities
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.interior_rows import Gradient, InteriorProblem, Multipliers, RowSystem, Slacks, Variables

# A step goes this share of the way to the boundary; the ridge grows between these until a factorisation succeeds.
_TO_BOUNDARY = 0.95
_RIDGE, _LARGEST_RIDGE = 1e-12, 1e-6
# A method that does not bring the gap down by this factor in so many steps is given up.
_LEAST_FALL, _PATIENCE = 0.85, 5
# Share of the central plan, whose products with the slacks are equal, in the first one; the rest is the softmax plan.
_CENTRAL = 0.1
# Its gap, in units of that of the softmax plan.
_FIRST_GAP = 3.0


@dataclass(frozen=True, eq=False)
class InteriorState:
    """A point strictly inside; gap : Σ multiplier · slack; unpaid : mass off at the anchors, times its price."""

    at: Variables
    slacks: Slacks
    gap: float = np.inf
    unpaid: float = np.inf

    @property
    def left(self) -> float:
        """The larger of what is still to be gained and to be paid."""
        return max(self.gap, self.unpaid)

    def point(self, problem: InteriorProblem) -> DualPoint:
        at = self.at
        return DualPoint(at.theta, at.alpha, problem.lam(at.up - at.down), at.beta)

    def plan(self, problem: InteriorProblem) -> tuple[FloatArray, FloatArray]:
        """P(label, class of anchor | row) (N, K, C) and P(anchor | row, class) (N, n)."""
        labels, plan = self.at.labels, self.at.plan
        totals = problem.gather(plan)
        return labels / labels.sum(axis=(1, 2), keepdims=True), plan / problem.spread(totals)


class InteriorPoint:
    """The method for one decision set and a linear model over its rows."""

    def __init__(self, ds: DecisionSet, model: LinearModel):
        self.problem = InteriorProblem.from_decision_set(ds, model)

    def start(self, point: DualPoint, tau: float, gap: float) -> InteriorState:
        """From a point of the path: each row at its centre, and mostly the softmax plan.

        gap : what smoothing costs at the point.
        """
        with np.errstate(all="ignore"):  # from a point that is not finite there are no steps
            return self._start(point, tau, gap)

    def _start(self, point: DualPoint, tau: float, gap: float) -> InteriorState:
        from surefoot.kernels.compiled import centre_rows

        problem = self.problem
        ds, model, m = problem.ds, problem.model, problem.ds.row_weights
        mu = _FIRST_GAP * gap / problem.n_constraints
        above = (model.scores(point.theta, slice(None)) + point.lam)[:, :, None] + point.alpha * ds.present_label_cost
        least = np.minimum.reduceat(point.alpha * ds.distances + point.beta, ds.class_offsets[:-1], axis=1)
        u, psi = least - mu, 2.0 * mu - (above + least[:, None, :]).min(axis=(1, 2))
        centre_rows(ds.distances, point.alpha, point.beta, ds.class_offsets, above, mu, u, psi)
        lam = point.lam[problem.free]
        half = problem.per_interval(2.0 * mu, problem.hi - problem.lo)
        up = np.where(problem.is_interval, 0.5 * (np.hypot(lam, half) + lam + half), lam)
        down = np.where(problem.is_interval, up - lam, 0.0)
        prices = [problem.per_interval(mu, one) for one in (up, down)]
        joint, near = soft_plan(ds, ds.distances, model.losses(point.theta, slice(None)), point, tau)
        labels = joint * m[:, None, None]
        plan = problem.spread(labels.sum(axis=1)) * near
        price = float(np.divide(mu, point.alpha))
        at = Variables(point.theta, point.alpha, up, down, point.beta, u, psi, plan, labels, price, *prices)
        slacks = Slacks.at_variables(problem, at)
        plan = _CENTRAL * mu * m[:, None] / slacks.plan + (1.0 - _CENTRAL) * plan
        labels = _CENTRAL * mu * m[:, None, None] / slacks.labels + (1.0 - _CENTRAL) * labels
        return InteriorState(replace(at, plan=plan, labels=labels), slacks)

    def steps(self, state: InteriorState, most: int) -> Iterator[InteriorState]:
        """Points of ever smaller gap; ends where float64 does, or where the gap no longer falls."""
        left = []
        for _ in range(most):
            try:
                with np.errstate(all="ignore"):  # what is not finite ends the method
                    state = self._next(state)
            except (LinAlgError, ArithmeticError):
                return
            left.append(state.gap + state.unpaid)
            yield state
            if len(left) > _PATIENCE and left[-1] > _LEAST_FALL * left[-1 - _PATIENCE]:
                return

    def _next(self, state: InteriorState) -> InteriorState:
        """One predictor–corrector step (Mehrotra); the corrector counts as far as the predictor could go."""
        problem, at, slacks = self.problem, state.at, state.slacks
        system, mu = NewtonSystem(problem, at, slacks), _gap(at, slacks) / problem.n_constraints
        ahead, moved = system.direction(_without_barriers(at))
        primal, dual = _lengths(at, slacks, ahead, moved)
        there = Slacks(slacks.plan + primal * moved.plan, slacks.labels + primal * moved.labels)
        left = _gap(at.moved(ahead, primal, dual), there) / problem.n_constraints
        wanted = mu * max(float(np.clip(left / mu, 0.0, 1.0)) ** 3, 1e-4)  # clipped first: the power could overflow
        step, moved = system.direction(_corrected(problem, state, wanted, primal * dual, ahead, moved))
        primal, dual = _lengths(at, slacks, step, moved, _TO_BOUNDARY)
        at = at.moved(step, primal, dual)
        slacks = Slacks.at_variables(problem, at)
        if not min(slacks.plan.min(), slacks.labels.min()) > 0:
            raise LinAlgError("a slack is lost in rounding")
        off = np.abs(at.plan.sum(axis=0) - problem.ds.anchor_weights).sum()
        gap, unpaid = _gap(at, slacks), at.alpha * float(off) * problem.ds.median_distance
        if not np.isfinite(gap + unpaid):
            raise LinAlgError("a multiplier is not finite")
        return InteriorState(at, slacks, gap, unpaid)


def _gap(at: Variables, slacks: Slacks) -> float:
    """Σ multiplier · slack."""
    rows = np.vdot(at.plan, slacks.plan) + np.vdot(at.labels, slacks.labels)
    return float(rows + at.alpha * at.price + at.up @ at.price_up + at.down @ at.price_down)


def _without_barriers(at: Variables) -> Multipliers:
    """All multipliers zero."""
    zero = np.zeros_like(at.up)
    return Multipliers(np.zeros_like(at.plan), np.zeros_like(at.labels), 0.0, zero, zero)


def _corrected(
    problem: InteriorProblem, state: InteriorState, mu: float, bent: float, step: Variables, moved: Slacks
) -> Multipliers:
    """Products of μ, less a share `bent` of what a step of the predictor would make of second order."""
    at, slacks, m = state.at, state.slacks, problem.ds.row_weights
    return Multipliers(
        (mu * m[:, None] - bent * (moved.plan * step.plan)) / slacks.plan,
        (mu * m[:, None, None] - bent * (moved.labels * step.labels)) / slacks.labels,
        (mu - bent * step.alpha * step.price) / at.alpha,
        problem.per_interval(mu - bent * step.up * step.price_up, at.up),
        problem.per_interval(mu - bent * step.down * step.price_down, at.down),
    )


def _lengths(at: Variables, slacks: Slacks, step: Variables, moved: Slacks, share: float = 1.0) -> tuple[float, float]:
    """The longest steps, at most 1, of variables and of multipliers that go a share of the way to the boundary."""
    intervals = at.price_up > 0
    primal = [(moved.plan, slacks.plan), (moved.labels, slacks.labels), (np.array(step.alpha), at.alpha)]
    primal += [(step.up[intervals], at.up[intervals]), (step.down[intervals], at.down[intervals])]
    dual = [(step.plan, at.plan), (step.labels, at.labels), (np.array(step.price), at.price)]
    dual += [(step.price_up[intervals], at.price_up[intervals]), (step.price_down[intervals], at.price_down[intervals])]
    fastest = [max(float((-change / value).max(initial=share)) for change, value in one) for one in (primal, dual)]
    return share / fastest[0], share / fastest[1]


class NewtonSystem:
    """The linear system of one step: rows in closed form, z by Cholesky, then θ."""

    def __init__(self, problem: InteriorProblem, at: Variables, slacks: Slacks):
        self.problem, self.at, self.rows = problem, at, RowSystem(problem, at, slacks)
        model, m = problem.model, problem.ds.row_weights
        self.proba = probabilities(model.scores(at.theta, slice(None)))
        own, border, weights = self.rows.assemble()
        self.scale_z, self.upper_z = _factor(own)
        right = border * self.scale_z[:, None]
        self.border = solve_triangular(self.upper_z, right, trans=1, overwrite_b=True, check_finite=False)
        k = model.shape[0]
        blocks = model.penalty_hessian()
        for a in range(k):
            for b in range(a, k):
                p, q = self.proba[:, a + 1], self.proba[:, b + 1]
                weight = weights[a + 1, b + 1] + m * p * (float(a == b) - q)
                sign = 1.0 if a == b else -1.0  # of every weight but for rounding: half a product will do
                Y = model.X * np.sqrt(np.maximum(sign * weight, 0.0))[:, None]
                blocks[a, b] += sign * (Y.T @ Y)
        corner = -(self.border.T @ self.border)
        whole = np.zeros_like(corner)
        place_theta_blocks(blocks, whole)
        self.scale, self.upper = _factor(corner + whole)

    def direction(self, to: Multipliers) -> tuple[Variables, Slacks]:
        """The step towards multipliers."""
        model, m, X = self.problem.model, self.problem.ds.row_weights, self.problem.model.X
        gradient = Gradient.at_slacks(self.problem, to)
        z, scores = self.rows.reduced(gradient)
        half = solve_triangular(self.upper_z, self.scale_z * z, trans=1, check_finite=False)
        theta = model.penalty_gradient(self.at.theta) + (m[:, None] * self.proba + scores)[:, 1:].T @ X
        right = theta.ravel() - self.border.T @ half
        step = -self.scale * cho_solve((self.upper, False), self.scale * right, check_finite=False)
        z = -self.scale_z * solve_triangular(self.upper_z, half + self.border @ step, check_finite=False)
        return self.rows.step(gradient, step.reshape(model.shape), z, to)


def _factor(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scale (m,) and Cholesky factor U of the scaled matrix, UᵀU, from its lower triangle, with a ridge as needed."""
    diagonal, ridge = np.maximum(matrix.diagonal(), 0.0), _RIDGE
    if not np.isfinite(matrix).all():
        raise LinAlgError("the system of a step is not finite")
    while ridge <= _LARGEST_RIDGE:
        scale = 1.0 / np.sqrt(diagonal * (1.0 + ridge) + 1e-300)
        scaled = matrix * scale[:, None]
        scaled *= scale
        np.fill_diagonal(scaled, 1.0)
        try:
            # the lower triangle in C order is the upper one in Fortran order: LAPACK then works without a copy
            return scale, cholesky(scaled.T, lower=False, overwrite_a=True, check_finite=False)
        except LinAlgError:
            ridge *= 100.0
    raise LinAlgError("the system of a step is singular to rounding")
