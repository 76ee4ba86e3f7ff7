"""A primal–dual interior-point method for learning over one decision set. It starts from a point of the smoothed path.

If groups of anchors share almost no rows, Newton's method on the softmax is very slow. The step that balances the
groups is right only while the weights do not change. Here the weights are separate variables, the multipliers of the
constraints, and a few steps give the last digits. Far from the optimum this method is slower, so it starts from a point
of the path. It solves:

    min  Σ_j m_j log Σ_k exp x_jᵀθ_k + ½ θᵀRθ + αε + Σ_i w_i β_i + Σ_k (λ̄_k p_hi − λ_k p_lo) + Σ_j m_j ψ_j
    s.t. α d_ji + β_i − u_jc(i) ≥ 0                                  multiplier π_ji: the plan
         ψ_j + x_jᵀθ_k + λ̄_k − λ_k + u_jc + α κ_kc ≥ 0               q_jkc: its labels and classes
         α, λ̄_k, λ_k ≥ 0

This is the robust problem with each maximum written as linear constraints: ψ_j + log Σ exp is Φ_j. The rows (u_j, ψ_j)
are coupled through the global variables only. Within a row, u_jc is coupled to ψ_j only, so each row is eliminated in
closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from surefoot._validation import FloatArray
from surefoot.dual.bounds import soft_plan
from surefoot.dual.models import DualPoint, LinearModel
from surefoot.dual.objective import free_label_multipliers, place_theta_blocks
from surefoot.problem.losses import probabilities
from surefoot.problem.sets import DecisionSet


@dataclass(frozen=True, eq=False)
class InteriorProblem:
    """A decision set and a linear model over its rows. `free` (L,) lists the classes that have a multiplier.

    An exact probability has one multiplier of either sign, stored in `up`. An interval has two multipliers, `up` and
    `down`.
    """

    ds: DecisionSet
    model: LinearModel
    free: Any
    lo: FloatArray
    hi: FloatArray

    @classmethod
    def from_decision_set(cls, ds: DecisionSet, model: LinearModel) -> InteriorProblem:
        free = free_label_multipliers(ds.intervals)
        return cls(ds, model, free, *ds.intervals[free].T)

    @property
    def is_interval(self) -> Any:
        """(L,) True for the free classes with an interval."""
        return self.hi > self.lo

    @property
    def n_constraints(self) -> int:
        """The number of constraints. A constraint on a row counts with the row's weight."""
        return len(self.ds.anchor_weights) + self.ds.present_label_cost.size + 1 + 2 * int(self.is_interval.sum())

    def spread(self, table: FloatArray) -> FloatArray:
        """Return the table (N, n) with the entry of each row and class (N, C) at every anchor of the class."""
        return np.repeat(table, np.diff(self.ds.class_offsets), axis=1)

    def gather(self, table: FloatArray) -> FloatArray:
        """Return the sums (N, C) over the anchors of each class."""
        return np.add.reduceat(table, self.ds.class_offsets[:-1], axis=1)

    def lam(self, free: FloatArray) -> FloatArray:
        """Return the net multipliers (K,) of all classes."""
        lam = np.zeros(self.ds.n_classes)
        lam[self.free] = free
        return lam

    def per_interval(self, above: FloatArray | float, below: FloatArray) -> FloatArray:
        """Return a quotient (L,) for classes with an interval, and 0 for all other classes."""
        return np.divide(above, below, out=np.zeros(len(self.free)), where=self.is_interval)


@dataclass(frozen=True)
class Variables:
    """Variables and multipliers at a point, or their changes in a step.

    theta (K−1, p); up, down (L,); beta (n,); u (N, C), psi (N,). The multipliers are plan (N, n), labels (N, K, C) and
    the prices.
    """

    theta: FloatArray
    alpha: float
    up: FloatArray
    down: FloatArray
    beta: FloatArray
    u: FloatArray
    psi: FloatArray
    plan: FloatArray
    labels: FloatArray
    price: float
    price_up: FloatArray
    price_down: FloatArray

    def moved(self, step: Variables, primal: float, dual: float) -> Variables:
        """Add a step, with separate lengths for variables and multipliers."""
        values = {}
        for one in fields(self):
            size = dual if one.name in ("plan", "labels") or one.name.startswith("price") else primal
            values[one.name] = getattr(self, one.name) + size * getattr(step, one.name)
        return Variables(**values)


@dataclass(frozen=True, eq=False)
class Slacks:
    """Slacks of the constraints on rows and anchors (N, n), and on rows and labels (N, K, C)."""

    plan: FloatArray
    labels: FloatArray

    @classmethod
    def at_variables(cls, problem: InteriorProblem, at: Variables) -> Slacks:
        """Compute slacks at variables, or of a step: the constraints are linear without a constant."""
        ds = problem.ds
        plan = at.alpha * ds.distances
        plan += at.beta
        plan -= problem.spread(at.u)
        scores = problem.model.scores(at.theta, slice(None)) + problem.lam(at.up - at.down)
        above = scores[:, :, None] + at.alpha * ds.present_label_cost
        return cls(plan, above + at.psi[:, None, None] + at.u[:, None, :])


@dataclass(frozen=True)
class Multipliers:
    """Targets of the multipliers: (wanted product − second-order term) / slack."""

    plan: FloatArray
    labels: FloatArray
    price: float
    up: FloatArray
    down: FloatArray


@dataclass(frozen=True)
class Gradient:
    """Derivatives of the Lagrangian in u (N, C), ψ (N,), α, λ̄ and λ (L,), β (n,), and in the scores (N, K)."""

    u: FloatArray
    psi: FloatArray
    alpha: float
    up: FloatArray
    down: FloatArray
    beta: FloatArray
    scores: FloatArray

    @classmethod
    def at_slacks(cls, problem: InteriorProblem, to: Multipliers) -> Gradient:
        ds, by_class = problem.ds, to.labels.sum(axis=1)
        alpha = ds.radius - float(np.vdot(to.plan, ds.distances)) - to.price
        return cls(
            problem.gather(to.plan) - by_class,
            ds.row_weights - by_class.sum(axis=1),
            alpha - float((to.labels.sum(axis=0) * ds.present_label_cost).sum()),
            problem.hi - to.up,
            -problem.lo - to.down,
            ds.anchor_weights - to.plan.sum(axis=0),
            -to.labels.sum(axis=2),
        )


class RowSystem:
    """Second derivatives at a point, after the rows are eliminated.

    The remaining columns are z = (α, λ (L,), β (n,)) and the scores η_k = x_jᵀ dθ_k of each row.
    """

    def __init__(self, problem: InteriorProblem, at: Variables, slacks: Slacks):
        ds = problem.ds
        self.problem, self.at, self.slacks = problem, at, slacks
        self.W, self.V = at.plan / slacks.plan, at.labels / slacks.labels
        own, weighted = problem.gather(self.W), self.W * ds.distances
        by_class, costs = self.V.sum(axis=1), self.V * ds.present_label_cost
        self.diagonal = own + by_class  # of u
        self.ratio = by_class / self.diagonal
        self.corner = (self.ratio * own).sum(axis=1)  # of ψ, after u is eliminated, without cancellation
        # coupling of α and each η_k with u and ψ, and with each other
        self.u_alpha, self.u_scores = costs.sum(axis=1) - problem.gather(weighted), self.V.transpose(1, 0, 2)
        self.psi_alpha, self.psi_scores = costs.sum(axis=(1, 2)), self.V.sum(axis=2)
        self.alpha_beta = weighted.sum(axis=0)
        self.alpha_alpha = float(np.vdot(weighted, ds.distances) + (costs * ds.present_label_cost).sum())
        self.alpha_scores = costs.sum(axis=2)
        self.curve_up = problem.per_interval(at.price_up, at.up)
        self.curve_down = problem.per_interval(at.price_down, at.down)
        self.curve = self.curve_up + self.curve_down

    def solve_rows(self, u: FloatArray, psi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Apply the inverse of the rows' own block to (N, C) and (N,)."""
        moved = (psi - (self.ratio * u).sum(axis=1)) / self.corner
        return u / self.diagonal - self.ratio * moved[:, None], moved

    def assemble(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the block of z (m, m), lower triangle valid, of z and θ (m, q), and row weights in θ (K, K, N)."""
        problem, X, W, free = self.problem, self.problem.model.X, self.W, self.problem.free
        K, L, n = problem.ds.n_classes, len(free), len(self.at.beta)
        own, border = np.zeros((1 + L + n, 1 + L + n)), np.zeros((1 + L + n, K - 1, X.shape[1]))
        alpha_u, alpha_psi = self.solve_rows(self.u_alpha, self.psi_alpha)
        own[0, 0] = self.alpha_alpha + self.at.price / self.at.alpha
        own[0, 0] -= float(np.vdot(self.u_alpha, alpha_u) + self.psi_alpha @ alpha_psi)
        own[1 + L :, 0] = self.alpha_beta + (W * problem.spread(alpha_u)).sum(axis=0)
        own[1 + L :, 1 + L :] = self._anchors()
        scores = np.zeros((K, K, len(X)))
        for k in range(K):
            u, psi = self.solve_rows(self.u_scores[k], self.psi_scores[:, k])
            for other in range(K):
                scores[k, other] = -(self.u_scores[other] * u).sum(axis=1) - self.psi_scores[:, other] * psi
            scores[k, k] += self.psi_scores[:, k]
            alpha = self.alpha_scores[:, k] - (self.u_alpha * u).sum(axis=1) - self.psi_alpha * psi
            touched = W * problem.spread(u)
            if k > 0:
                border[0, k - 1] = alpha @ X
                border[1 + L :, k - 1] = touched.T @ X
            for at in np.flatnonzero(free == k):
                own[1 + at, 0] = alpha.sum()
                own[1 + L :, 1 + at] = touched.sum(axis=0)
                own[1 + at, 1 : 1 + L] = scores[k, free].sum(axis=1)
                border[1 + at] = scores[k, 1:] @ X
        curvature = problem.per_interval(self.curve_up * self.curve_down, self.curve)
        own[np.arange(1, 1 + L), np.arange(1, 1 + L)] += curvature
        return own, border.reshape(len(border), -1), scores

    def _anchors(self) -> FloatArray:
        """Return the block (n, n) of β: Σ_j diag W_j − W_jᵀ (1/diagonal + ratio ratioᵀ / corner) W_j."""
        problem, W = self.problem, self.W
        joint = W * problem.spread(self.ratio / np.sqrt(self.corner)[:, None])
        block = -(joint.T @ joint)
        inside = W * problem.spread(1.0 / np.sqrt(self.diagonal))
        for lo, hi in problem.ds.class_columns:
            block[lo:hi, lo:hi] -= inside[:, lo:hi].T @ inside[:, lo:hi]
        block[np.diag_indices(len(block))] += W.sum(axis=0)
        # the shift (β + 1, u + 1, ψ − 1) changes nothing, so the step in this direction is set to zero
        return np.asarray(block + block.diagonal().mean() / len(block))

    def reduced(self, g: Gradient) -> tuple[FloatArray, FloatArray]:
        """Eliminate rows and parts of λ from a gradient: return it in z (m,), and in the scores of each row (N, K)."""
        problem = self.problem
        u, psi = self.solve_rows(g.u, g.psi)
        scores = g.scores - np.einsum("knc,nc->nk", self.u_scores, u) - self.psi_scores * psi[:, None]
        alpha = g.alpha - float(np.vdot(self.u_alpha, u) + self.psi_alpha @ psi)
        split = problem.per_interval(g.up * self.curve_down - g.down * self.curve_up, self.curve)
        lam = np.where(problem.is_interval, split, g.up) + scores.sum(axis=0)[problem.free]
        beta = g.beta + (self.W * problem.spread(u)).sum(axis=0)
        return np.concatenate([[alpha], lam, beta]), scores

    def step(self, g: Gradient, theta: FloatArray, z: FloatArray, to: Multipliers) -> tuple[Variables, Slacks]:
        """Return the step of all variables, multipliers and slacks, from the step of θ and z."""
        problem, at, L = self.problem, self.at, len(self.problem.free)
        alpha, lam, beta = float(z[0]), z[1 : 1 + L], z[1 + L :]
        eta = problem.model.scores(theta, slice(None)) + problem.lam(lam)
        u = g.u + self.u_alpha * alpha - problem.gather(self.W * beta) + np.einsum("knc,nk->nc", self.u_scores, eta)
        psi = g.psi + self.psi_alpha * alpha + (self.psi_scores * eta).sum(axis=1)
        u, psi = self.solve_rows(u, psi)
        split = problem.per_interval(self.curve_down * lam - g.up - g.down, self.curve)
        up = np.where(problem.is_interval, split, lam)
        down = np.where(problem.is_interval, up - lam, 0.0)
        found = Variables(theta, alpha, up, down, beta, -u, -psi, at.plan, at.labels, 0.0, up, down)
        moved = Slacks.at_variables(problem, found)
        found = replace(
            found,
            plan=to.plan - at.plan - self.W * moved.plan,
            labels=to.labels - at.labels - self.V * moved.labels,
            price=to.price - at.price - at.price / at.alpha * alpha,
            price_up=to.up - at.price_up - self.curve_up * up,
            price_down=to.down - at.price_down - self.curve_down * down,
        )
        return found, moved


# The method: predictor and corrector steps until the gap stops falling.


# A step covers at most this share of the distance to the boundary. The ridge grows from the second value to the third
# until a factorisation succeeds.
_TO_BOUNDARY = 0.95
_RIDGE, _LARGEST_RIDGE = 1e-12, 1e-6
# The method stops if the gap does not fall by this factor within this many steps.
_LEAST_FALL, _PATIENCE = 0.85, 5
# The first plan contains this share of the central plan, whose products with the slacks are equal. The remainder is the
# softmax plan.
_CENTRAL = 0.1
# Gap of the central plan, in units of the gap of the softmax plan.
_FIRST_GAP = 3.0


@dataclass(frozen=True, eq=False)
class InteriorState:
    """A strictly interior point. gap : Σ multiplier · slack; unpaid : mass error at the anchors, times its price."""

    at: Variables
    slacks: Slacks
    gap: float = np.inf
    unpaid: float = np.inf

    @property
    def left(self) -> float:
        """The larger of the gap and the unpaid mass."""
        return max(self.gap, self.unpaid)

    def point(self, problem: InteriorProblem) -> DualPoint:
        at = self.at
        return DualPoint(at.theta, at.alpha, problem.lam(at.up - at.down), at.beta)

    def plan(self, problem: InteriorProblem) -> tuple[FloatArray, FloatArray]:
        """Return P(label, class of anchor | row) (N, K, C) and P(anchor | row, class) (N, n)."""
        labels, plan = self.at.labels, self.at.plan
        totals = problem.gather(plan)
        return labels / labels.sum(axis=(1, 2), keepdims=True), plan / problem.spread(totals)


class InteriorPoint:
    """The method for one decision set and a linear model over its rows."""

    def __init__(self, ds: DecisionSet, model: LinearModel):
        self.problem = InteriorProblem.from_decision_set(ds, model)

    def start(self, point: DualPoint, tau: float, gap: float) -> InteriorState:
        """Start from a point of the path. Each row starts at its centre, and most of the plan is the softmax plan.

        gap : the smoothing gap at the point.
        """
        with np.errstate(all="ignore"):  # a point that is not finite allows no steps
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
        """Yield points of decreasing gap. Stop at the precision of float64, or if the gap stops falling."""
        left = []
        for _ in range(most):
            try:
                with np.errstate(all="ignore"):  # values that are not finite end the method
                    state = self._next(state)
            except (LinAlgError, ArithmeticError):
                return
            left.append(state.gap + state.unpaid)
            yield state
            if len(left) > _PATIENCE and left[-1] > _LEAST_FALL * left[-1 - _PATIENCE]:
                return

    def _next(self, state: InteriorState) -> InteriorState:
        """Return the state after one predictor-corrector step."""
        problem, at, slacks = self.problem, state.at, state.slacks
        system, mu = NewtonSystem(problem, at, slacks), _gap(at, slacks) / problem.n_constraints
        ahead, moved = system.direction(_without_barriers(at))
        primal, dual = _lengths(at, slacks, ahead, moved)
        there = Slacks(slacks.plan + primal * moved.plan, slacks.labels + primal * moved.labels)
        left = _gap(at.moved(ahead, primal, dual), there) / problem.n_constraints
        # clipped first, because the power could overflow
        wanted = mu * max(float(np.clip(left / mu, 0.0, 1.0)) ** 3, 1e-4)
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
    """Return Σ multiplier · slack."""
    rows = np.vdot(at.plan, slacks.plan) + np.vdot(at.labels, slacks.labels)
    return float(rows + at.alpha * at.price + at.up @ at.price_up + at.down @ at.price_down)


def _without_barriers(at: Variables) -> Multipliers:
    """Return multipliers that are all zero."""
    zero = np.zeros_like(at.up)
    return Multipliers(np.zeros_like(at.plan), np.zeros_like(at.labels), 0.0, zero, zero)


def _corrected(
    problem: InteriorProblem, state: InteriorState, mu: float, bent: float, step: Variables, moved: Slacks
) -> Multipliers:
    """Return (μ − a share `bent` of the predictor's second-order term) / slack for each product."""
    at, slacks, m = state.at, state.slacks, problem.ds.row_weights
    return Multipliers(
        (mu * m[:, None] - bent * (moved.plan * step.plan)) / slacks.plan,
        (mu * m[:, None, None] - bent * (moved.labels * step.labels)) / slacks.labels,
        (mu - bent * step.alpha * step.price) / at.alpha,
        problem.per_interval(mu - bent * step.up * step.price_up, at.up),
        problem.per_interval(mu - bent * step.down * step.price_down, at.down),
    )


def _lengths(at: Variables, slacks: Slacks, step: Variables, moved: Slacks, share: float = 1.0) -> tuple[float, float]:
    """Return the longest steps ≤ 1 of variables and multipliers within a share of the distance to the boundary."""
    intervals = at.price_up > 0
    primal = [(moved.plan, slacks.plan), (moved.labels, slacks.labels), (np.array(step.alpha), at.alpha)]
    primal += [(step.up[intervals], at.up[intervals]), (step.down[intervals], at.down[intervals])]
    dual = [(step.plan, at.plan), (step.labels, at.labels), (np.array(step.price), at.price)]
    dual += [(step.price_up[intervals], at.price_up[intervals]), (step.price_down[intervals], at.price_down[intervals])]
    fastest = [max(float((-change / value).max(initial=share)) for change, value in one) for one in (primal, dual)]
    return share / fastest[0], share / fastest[1]


class NewtonSystem:
    """The linear system of one step: eliminate the rows, then z by Cholesky, then solve for θ."""

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
                sign = 1.0 if a == b else -1.0  # all weights have this sign up to rounding, so half a product suffices
                Y = model.X * np.sqrt(np.maximum(sign * weight, 0.0))[:, None]
                blocks[a, b] += sign * (Y.T @ Y)
        corner = -(self.border.T @ self.border)
        whole = np.zeros_like(corner)
        place_theta_blocks(blocks, whole)
        self.scale, self.upper = _factor(corner + whole)

    def direction(self, to: Multipliers) -> tuple[Variables, Slacks]:
        """Return the step towards the target multipliers."""
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
    """Return the scale (m,) and the Cholesky factor U of the scaled matrix, UᵀU, with a ridge if necessary."""
    diagonal, ridge = np.maximum(matrix.diagonal(), 0.0), _RIDGE
    if not np.isfinite(matrix).all():
        raise LinAlgError("the system of a step is not finite")
    while ridge <= _LARGEST_RIDGE:
        scale = 1.0 / np.sqrt(diagonal * (1.0 + ridge) + 1e-300)
        scaled = matrix * scale[:, None]
        scaled *= scale
        np.fill_diagonal(scaled, 1.0)
        try:
            # the lower triangle in C order is the upper triangle in Fortran order, so LAPACK makes no copy
            return scale, cholesky(scaled.T, lower=False, overwrite_a=True, check_finite=False)
        except LinAlgError:
            ridge *= 100.0
    raise LinAlgError("the system of a step is singular to rounding")
