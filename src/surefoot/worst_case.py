"""Solve a robust problem to a certified gap: the inner problem at fixed losses, or learning a linear model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from joblib import effective_n_jobs
from scipy.optimize import linprog
from threadpoolctl import threadpool_limits

from surefoot._errors import InfeasibleRadiusError
from surefoot._validation import FloatArray
from surefoot.bounds import FEASIBILITY, Adversary, dual_value, feasible_adversary, lower_bound, soft_adversary
from surefoot.certificate import Certificate
from surefoot.dual import DualPoint, FixedLosses, Model, SmoothedDual
from surefoot.sets import DecisionSet
from surefoot.solvers.newton import NewtonOptions, PathPoint, StallError, centre, follow_path
from surefoot.solvers.transport import TransportSolution, solve_transport

# Radii are compared with the minimal one to this relative accuracy: that of the transport solver itself.
_RADIUS_ACCURACY = 1e-9


@dataclass(frozen=True)
class MinimalRadius:
    """ε_min = W_d(P_X, P̂_X) + cheapest relabeling of p̂ into the intervals, and the adversary that attains it."""

    value: float
    feature_part: float
    label_part: float
    adversary: Adversary
    transport: TransportSolution


def solve_minimal_radius(ds: DecisionSet, transport: TransportSolution | None = None) -> MinimalRadius:
    """The closed form (DESIGN, fact 2): features and labels are moved independently of each other."""
    if transport is None:
        transport = solve_transport(ds.distances, ds.row_weights, ds.anchor_weights)
    relabel, label_part = _cheapest_relabeling(ds)
    by_class = np.zeros((len(ds.row_weights), ds.n_classes))
    entries = transport.plan.tocoo()
    np.add.at(by_class, (entries.row, ds.anchor_labels[entries.col]), entries.data)
    total = by_class.sum(axis=1, keepdims=True)
    frequencies = ds.label_frequencies
    by_class = np.where(total > 0, by_class / np.where(total > 0, total, 1.0), frequencies)
    value = transport.cost + label_part
    return MinimalRadius(value, transport.cost, label_part, Adversary(by_class @ relabel.T, value), transport)


def _cheapest_relabeling(ds: DecisionSet) -> tuple[FloatArray, float]:
    """(K, K) matrix [k, c] = share of label c turned into k, and its cost; an LP in K² variables."""
    p, K = ds.label_frequencies, ds.n_classes
    lo, hi = ds.intervals.T
    if np.all(p >= lo) and np.all(p <= hi):
        return np.eye(K), 0.0
    to_label = np.kron(np.eye(K), np.ones(K))  # variables flow[k, c], k-major
    from_label = np.kron(np.ones(K), np.eye(K))
    solved = linprog(
        ds.label_cost.ravel(),
        A_ub=np.vstack([to_label, -to_label]),
        b_ub=np.concatenate([hi, -lo]) + 1e-15,
        A_eq=from_label,
        b_eq=p,
        method="highs-ds",
    )
    if solved.status != 0:
        raise RuntimeError(f"the relabeling problem failed: {solved.message}")
    flow = np.maximum(solved.x.reshape(K, K), 0.0)
    flow = _exact_label_flow(flow, p, lo, hi)
    share = np.where(p > 0, flow / np.where(p > 0, p, 1.0), np.eye(K))
    return share, float((flow * ds.label_cost).sum())


def _exact_label_flow(flow: FloatArray, p: FloatArray, lo: FloatArray, hi: FloatArray) -> FloatArray:
    """Remove the LP's tolerance from a flow [k, c]: its column sums become p, its row sums clipped targets."""
    target = np.clip(flow.sum(axis=1), lo, hi)
    target += (p.sum() - target.sum()) * (np.where(p.sum() > target.sum(), hi - target, target - lo) + 1e-300) / (
        np.where(p.sum() > target.sum(), hi - target, target - lo) + 1e-300
    ).sum()
    for _ in range(3):
        flow = flow * (target / np.where(flow.sum(axis=1) > 0, flow.sum(axis=1), 1.0))[:, None]
        flow = flow * (p / np.where(flow.sum(axis=0) > 0, flow.sum(axis=0), 1.0))
    return flow


@dataclass(frozen=True)
class CertifiedSolution:
    """A solved robust problem with both bounds, recomputed at the returned point; it keeps its problem.

    path : the last point of the path; checkpoint : an early one, smooth enough to start a nearby problem from.
    status : "optimal" (gap ≤ tol), "separable" (no finite θ attains the minimum; the bounds hold), or "stopped" (gap > tol).
    """

    decision_set: DecisionSet
    model: Model
    path: PathPoint
    checkpoint: PathPoint
    minimal_radius: MinimalRadius
    adversary: Adversary
    risk: float
    lower: float
    status: str

    @property
    def gap(self) -> float:
        return self.risk - self.lower

    @property
    def theta(self) -> FloatArray:
        return self.path.point.theta

    def certificate(self, loss: str) -> Certificate:
        """The certificate of the classifier at θ. A penalty is subtracted from both bounds: they speak of the loss."""
        ds, penalty = self.decision_set, self.model.penalty_value(self.theta)
        return Certificate(
            self.risk - penalty,
            self.lower - penalty,
            ds.radius,
            self.minimal_radius.value,
            ds.intervals.copy(),
            loss,
            self.status,
        )


def check_radius(ds: DecisionSet, minimal: MinimalRadius) -> None:
    """Refuse an empty decision set before any iteration."""
    if ds.radius < minimal.value * (1.0 - _RADIUS_ACCURACY):
        raise InfeasibleRadiusError(ds.radius, minimal.value)


@contextmanager
def solver_threads(n_jobs: int | None) -> Iterator[ThreadPoolExecutor | None]:
    """One BLAS thread, and an executor for groups of rows when n_jobs asks for more than one thread."""
    workers = effective_n_jobs(n_jobs)
    with threadpool_limits(limits=1, user_api="blas"):
        if workers <= 1:
            yield None
        else:
            with ThreadPoolExecutor(workers) as executor:
                yield executor


def solve_certified(
    ds: DecisionSet,
    model: Model,
    *,
    tol: float = 1e-4,
    warm_start: PathPoint | None = None,
    minimal: MinimalRadius | None = None,
    options: NewtonOptions = NewtonOptions(),
    n_jobs: int | None = 1,
    on_round: Callable[[PathPoint], None] | None = None,
) -> CertifiedSolution:
    """Solve min_θ max_μ E_μ ℓ over the decision set (max_μ alone for fixed losses) to a certified gap ≤ tol."""
    minimal = minimal if minimal is not None else solve_minimal_radius(ds)
    check_radius(ds, minimal)
    cold = _cold_start(ds, model)
    with solver_threads(n_jobs) as executor:
        # the adversary of the smoothed problem needs room to move, and at the minimal radius itself there is none
        inner = ds.with_radius(max(ds.radius, minimal.value * (1.0 + 0.4 * FEASIBILITY)))
        run = _Run(SmoothedDual(inner, model, executor=executor), ds, minimal, tol, options, on_round, 0.13 * cold.tau)
        solution = run.solve(cold if warm_start is None else warm_start)
        if warm_start is not None and solution.gap > tol:
            again = run.solve(cold)
            solution = again if again.gap < solution.gap else solution
        return solution


@dataclass
class _Run:
    """One solve: follow the path, certify, and go on with a smaller τ until the certified gap is within tol."""

    dual: SmoothedDual
    decision_set: DecisionSet
    minimal: MinimalRadius
    tol: float
    options: NewtonOptions
    on_round: Callable[[PathPoint], None] | None
    checkpoint_tau: float
    checkpoint: PathPoint | None = None

    def solve(self, path: PathPoint) -> CertifiedSolution:
        best: CertifiedSolution | None = None
        target = 0.5 * self.tol
        while True:
            path = follow_path(self.dual, path, target, self.options, self._round)
            path = _polish(self.dual, path, self.tol, self.options)
            solution = self._certify(path)
            best = solution if best is None or solution.gap < best.gap else best
            ended = path.stalled or path.steps >= self.options.max_steps or path.tau <= self.options.smallest_tau
            if best.gap <= self.tol or ended:
                return best
            target = 0.3 * min(target, path.smoothing_gap)
            path = replace(path, tau=0.5 * path.tau)

    def _round(self, state: PathPoint) -> None:
        if self.checkpoint is None and state.tau <= self.checkpoint_tau:
            self.checkpoint = state
        if self.on_round is not None:
            self.on_round(state)

    def _certify(self, path: PathPoint) -> CertifiedSolution:
        ds, model = self.decision_set, self.dual.model
        wanted = soft_adversary(ds, model, path.point, path.tau)
        adversary = feasible_adversary(ds, wanted, self.minimal.adversary)
        lower = lower_bound(ds, model, adversary, path.point.theta)
        risk = dual_value(ds, model, path.point)
        status = "separable" if lower.unbounded else "optimal" if risk - lower.value <= self.tol else "stopped"
        checkpoint = replace(self.checkpoint or path, steps=0, smoothing_gap=np.inf, stalled=False)
        return CertifiedSolution(
            ds, model, path, checkpoint, self.minimal, adversary, risk, min(lower.value, risk), status
        )


def _cold_start(ds: DecisionSet, model: Model) -> PathPoint:
    K, n = ds.n_classes, len(ds.anchor_weights)
    scale = 1.0
    if isinstance(model, FixedLosses):
        scale = max(float(np.ptp(model.matrix)), 1e-12)
    mean = float(ds.row_weights @ ds.distances @ ds.anchor_weights) + float(ds.label_cost.mean())
    return PathPoint(DualPoint(np.zeros(model.shape), scale / mean, np.zeros(K), np.zeros(n)), tau=scale)


def _polish(dual: SmoothedDual, path: PathPoint, tol: float, options: NewtonOptions) -> PathPoint:
    """Centre to rounding, so that the plan's marginals are right to far below tol."""
    try:
        point, _, used = centre(dual, path.point, path.tau, replace(options, round_steps=30), target=1e-9 * tol * path.tau)
    except StallError:
        return path
    return replace(path, point=point, steps=path.steps + used)

