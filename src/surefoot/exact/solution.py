"""Solve a robust problem to a certified gap: the inner problem at fixed losses, or learning a linear model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from joblib import effective_n_jobs

from surefoot._threads import one_blas_thread
from surefoot._types import FloatArray
from surefoot.calibration import RadiusEstimate
from surefoot.certificates.certificate import Certificate, WorstCase
from surefoot.certificates.fresh import LossFunction, Piece, RowBound, fingerprints
from surefoot.dual.bounds import Adversary, meet
from surefoot.dual.models import FixedLosses, Model
from surefoot.exact.search import Search, loss_scale, mean_distance
from surefoot.problem.rows import LabeledData
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal import MinimalRadius, check_radius, solve_minimal_radius
from surefoot.solvers.newton import DEFAULT_OPTIONS, NewtonOptions, PathPoint
from surefoot.solvers.starts import cold_start


@dataclass(frozen=True)
class CertifiedSolution:
    """A solved robust problem with both bounds, recomputed at the returned point; it keeps its problem.

    path : the last point of the path; checkpoint : an early one, smooth enough to start a nearby problem from.
    status : "optimal" (gap ≤ tol), "separable" (no finite θ attains the minimum; the bounds hold), or "stopped"
    (gap > tol).
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

    @classmethod
    def of(cls, search: Search, checkpoint_tau: float) -> CertifiedSolution:
        """The best bounds that a search has found."""
        if search.upper is None or search.lower is None:
            raise RuntimeError("no point was certified: follow a path first")
        (risk, path), (lower, adversary) = search.upper, search.lower
        status = "stopped" if search.gap > search.tol else "separable" if lower.unbounded else "optimal"
        checkpoint = search.checkpoint(checkpoint_tau)
        value = meet(risk, lower.value)
        return cls(search.decision_set, search.model, path, checkpoint, search.minimal, adversary, risk, value, status)

    @property
    def gap(self) -> float:
        return self.risk - self.lower

    @property
    def theta(self) -> FloatArray:
        return self.path.point.theta

    @property
    def found(self) -> Found:
        """What a certificate is made of. A penalty is subtracted from both bounds: they speak of the loss."""
        ds, point = self.decision_set, self.path.point
        penalty = self.model.penalty_value(point.theta)
        piece = Piece.of(ds, self.model.losses(point.theta, slice(None)), point)
        return Found(self.risk - penalty, self.lower - penalty, self.status, (piece,), self.adversary)


@dataclass(frozen=True)
class Found:
    """Bounds on the worst loss of one classifier: dual points behind the upper, an adversary behind the lower."""

    risk: float
    lower: float
    status: str
    pieces: tuple[Piece, ...]
    adversary: Adversary

    @classmethod
    def over_union(cls, parts: list[Found], tol: float) -> Found:
        """The same classifier over a union of decision sets: the largest of each bound."""
        risk = max(part.risk for part in parts)
        worst = max(parts, key=lambda part: part.lower)
        status = "optimal" if risk - worst.lower <= tol else "stopped"
        return cls(risk, worst.lower, status, tuple(part.pieces[0] for part in parts), worst.adversary)

    def certificate(
        self,
        loss: str,
        data: LabeledData,
        ds: DecisionSet,
        minimal: MinimalRadius,
        *,
        estimate: RadiusEstimate | None = None,
        losses_at: LossFunction | None = None,
        largest_loss: float | None = None,
    ) -> Certificate:
        """The certificate over `ds`, or where the radius was estimated, over the sets of the pieces."""
        radius = ds.radius if estimate is None else estimate.radius
        if ds.anchor_rows is None:
            raise ValueError("the decision set must know its anchors' rows: build it with build_decision_set")
        anchors, used = data.rows[ds.anchor_rows], fingerprints(data.everything)
        bound = RowBound(anchors, data.metric, self.pieces, losses_at, largest_loss, used, loss, radius)
        worst = WorstCase(self.adversary.label_proba, ds.row_weights, self.adversary.transport_cost)
        return Certificate(
            self.risk, self.lower, radius, minimal.value, ds.intervals.copy(), loss, self.status, worst, estimate, bound
        )


@contextmanager
def solver_threads(n_jobs: int | None) -> Iterator[ThreadPoolExecutor | None]:
    """One BLAS thread, and an executor for groups of rows when n_jobs asks for more than one thread."""
    workers = effective_n_jobs(n_jobs)
    with one_blas_thread():
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
    options: NewtonOptions = DEFAULT_OPTIONS,
    n_jobs: int | None = 1,
    on_round: Callable[[PathPoint], None] | None = None,
) -> CertifiedSolution:
    """Solve min_θ max_μ E_μ ℓ over the decision set (max_μ alone for fixed losses) to a certified gap ≤ tol."""
    minimal = minimal if minimal is not None else solve_minimal_radius(ds)
    check_radius(ds, minimal)
    with solver_threads(n_jobs) as executor:
        scale = loss_scale(model)
        if isinstance(model, FixedLosses):
            # a linear program ends the path, which need not be followed closely
            options = replace(options, decrease=options.decrease**2)
        search = Search(ds, model, minimal, tol, scale, options, executor, on_round)
        at_minimum = ds.radius < search.open_radius
        if at_minimum:
            search.learn_from_minimal_radius()
        if search.gap > tol:
            dual, cold = search.dual(), cold_start(ds, model, scale, mean_distance(ds))
            quick = warm_start if warm_start is not None else search.quick_start(dual)
            search.follow(dual, cold if quick is None else quick)
            if quick is not None and search.gap > tol:
                search.follow(dual, cold)
            if search.gap > tol and not at_minimum:
                search.learn_from_minimal_radius()
            if search.gap > tol:
                search.finish_by_linear_program()
        return CertifiedSolution.of(search, checkpoint_tau=0.13 * scale)
