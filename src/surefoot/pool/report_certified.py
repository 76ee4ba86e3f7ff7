"""Numbers of the report that require a solver: error bound, sampling term, curve over the radius, worst case."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from surefoot._validation import FitProgress, FloatArray
from surefoot.certificates.calibration import PREDICTIVE, CalibratedRadius, RadiusEstimate
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.certification import ClassifierLoss, certify_over
from surefoot.certificates.fresh import FreshCertificate, RowBound
from surefoot.certificates.radius import weighted_median
from surefoot.estimators.curves import bound_along
from surefoot.estimators.fit_problem import FitProblem
from surefoot.pool.model import ModelWithRows, drawn
from surefoot.pool.report_contents import BoundsBar, RadiusChart
from surefoot.problem.distances import row_chunks
from surefoot.problem.losses import ZERO_ONE, log_loss_matrix, loss_matrix_from_proba, probabilities
from surefoot.problem.placement import check_problem
from surefoot.problem.robust import Objective, RobustProblem
from surefoot.problem.rows import Unlabeled
from surefoot.problem.sets import label_cost_matrix
from surefoot.solvers.search.best_bounds import JointState, SetAtRadius
from surefoot.solvers.search.solution import Solution

# For repeated solves: about this many distances in total, and at least and at most this many rows.
ERROR_ENTRIES, CURVE_ENTRIES, _FEWEST, _MOST = 1_600_000, 200_000, 300, 4000
# Optimality gap for a printed number and for a drawn number.
_TOL, _DRAWN = 1e-3, 2e-3
# Optimality gap for the limit of all classifiers.
_LIMIT_TOL = 1e-4
# Number of radii on the curve in addition to the chosen one.
_N_RADII = 5
# Confidence level of the sampling term if no rows were held out.
_LEVEL = 0.95
# Far above the rounding error of a mean of N bounded numbers in float64.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class SampledProblem:
    """A problem over the labeled rows and a sample of the unlabeled rows. The solution is evaluated on all rows.

    Every dual point gives an upper bound on the worst case. A dual point found on a sample is therefore valid for all
    rows. Its bound is slightly larger than the best one.

    problem : over the labeled and the sampled rows; sample : positions among the unlabeled rows, None for all rows.
    rows : all labeled rows (n, d) and all unlabeled rows (M, d); weights : (n + M,) of all rows.
    minimal : the minimal radius over all rows.
    """

    problem: RobustProblem
    sample: NDArray[np.intp] | None
    rows: tuple[FloatArray, FloatArray]
    weights: FloatArray
    minimal: float

    @property
    def shift(self) -> float:
        """Radius over all rows minus radius over the sample. They differ in the cost of moving features."""
        return self.minimal - self.problem.minimal.value

    def certify(
        self,
        loss: str,
        losses: FloatArray,
        members: list[SetAtRadius],
        tol: float,
        estimate: RadiusEstimate | None = None,
    ) -> Certificate:
        """Certify losses (n + M, K) at all rows over sets of the sampled problem. The risk is valid for all rows."""
        n = len(self.rows[0])
        some = losses if self.sample is None else losses[np.concatenate([np.arange(n), n + self.sample])]
        found = certify_over(self.problem.fixed(some), ClassifierLoss(loss, None, None), members, tol, estimate)
        risk = found.risk if self.sample is None else self._at_all_rows(found, losses)
        return replace(
            found,
            limit=self._limit(loss, members),
            risk=min(risk, 1.0) if loss == ZERO_ONE else risk,
            radius=found.radius + self.shift if estimate is None else estimate.radius,
            minimal_radius=self.minimal,
        )

    def _limit(self, loss: str, members: list[SetAtRadius]) -> float | None:
        """Return the loss below which no classifier can be certified; None for a sample, which gives no lower bound."""
        if self.sample is not None:
            return None
        K = self.problem.decision_set.n_classes
        return self.problem.limit(members, tol=_LIMIT_TOL, costs=1.0 - np.eye(K) if loss == ZERO_ONE else None)

    def _at_all_rows(self, found: Certificate, losses: FloatArray) -> float:
        bound = row_bound(found)
        sets = [
            replace(one, decision_set=one.decision_set.with_radius(one.decision_set.radius + self.shift))
            for one in bound.sets
        ]
        totals = np.zeros(len(sets))
        for at, part in chunks(self.rows, len(bound.anchors)):
            distances = bound.metric.distances(part, bound.anchors)
            totals += [self.weights[at] @ one.values(distances, losses[at]) for one in sets]
        return float(totals.max()) + _ROUNDING


def chunks(rows: Sequence[FloatArray], n_columns: int) -> Iterator[tuple[slice, FloatArray]]:
    """Yield slices of the positions among all rows, each with its rows, over several arrays."""
    start = 0
    for array in rows:
        for part in row_chunks(len(array), n_columns, entries=1 << 21):
            yield slice(start + part.start, start + part.stop), array[part]
        start += len(array)


def row_bound(certificate: Certificate) -> RowBound:
    """Return the dual point of a certificate."""
    if certificate.row_bound is None:
        raise RuntimeError("a certificate of the decision set knows its dual point; this one does not")
    return certificate.row_bound


@dataclass(frozen=True, eq=False)
class SampledRows:
    """The rows of a fit, with a random sample of its unlabeled rows.

    Labeled rows get smaller weights, so that their share of P_X is unchanged. Label intervals come from the fit.
    """

    fitted: ModelWithRows
    sample: NDArray[np.intp] | None
    weights: FloatArray

    @classmethod
    def from_fit(cls, fitted: ModelWithRows, seed: int, entries: int = ERROR_ENTRIES) -> SampledRows:
        n, M = len(fitted.X), len(fitted.U)
        sample = drawn(M, int(np.clip(entries // (n * n_sets(fitted)), _FEWEST, _MOST)), seed)
        size = M if sample is None else len(sample)
        return cls(fitted, sample, fitted.row_weights[:n] / fitted.row_weights[-1] * (size / M))

    @property
    def rows(self) -> FloatArray:
        return self.fitted.U if self.sample is None else self.fitted.U[self.sample]

    @property
    def n_rows(self) -> int:
        return len(self.fitted.X) + len(self.rows)


def is_tied(fitted: ModelWithRows) -> bool:
    """Return True if the decision set is a union over label shifts: a calibrated radius and label intervals."""
    low, high = fitted.certificate.label_intervals.T
    return isinstance(fitted.stated.radius, CalibratedRadius) and bool(np.any(low < high))


def n_sets(fitted: ModelWithRows) -> int:
    """Return the number of decision sets in the union."""
    return 2**fitted.n_classes - 2 if is_tied(fitted) else 1


def worst_error_bound(fitted: ModelWithRows, sampled: SampledRows) -> float:
    """Bound the error rate from above, over the decision set of the fit and all of its rows.

    The problem is solved on the sampled rows, then evaluated at all rows, with the radius of the fit.
    """
    clf, certificate = fitted.clf, fitted.certificate
    problem = check_problem(
        fitted.X,
        fitted.y,
        X_unlabeled=Unlabeled(sampled.rows),
        sample_weight=sampled.weights,
        label_prior=certificate.label_intervals,
        label_cost=fitted.stated.label_cost,
        metric=fitted.metric,
        classes=clf.classes_,
        memory_only=True,
    )
    problem = _in_shares(fitted, problem)
    estimate = certificate.estimate
    if isinstance(fitted.stated.radius, CalibratedRadius) and estimate is not None:
        members = problem.tied(estimate.excess)
    else:
        members = problem.at_excess(max(certificate.radius - certificate.minimal_radius, 0.0))
    whole = SampledProblem(
        problem,
        sampled.sample,
        (fitted.X, fitted.U),
        fitted.row_weights,
        certificate.minimal_radius,
    )
    with _quiet_convergence():
        return whole.certify(ZERO_ONE, loss_matrix_from_proba(fitted.proba, ZERO_ONE), members, _TOL).risk


def _in_shares(fitted: ModelWithRows, problem: RobustProblem) -> RobustProblem:
    """Return the problem with the label shares of the fit, which radius="predictive" takes from its predictions."""
    if fitted.stated.radius != PREDICTIVE:
        return problem
    return problem.with_label_shares(row_bound(fitted.certificate).sets[0].decision_set.label_frequencies)


def bounds_of(fitted: ModelWithRows, fresh: FreshCertificate | None) -> BoundsBar:
    """Return the certificate as a bar. Without fresh rows, the rows of the fit give the sampling term."""
    certificate, n = fitted.certificate, len(fitted.X)
    weights = fitted.row_weights[:n]
    losses = fitted.losses(fitted.X)
    training = float(np.average(losses[np.arange(n), fitted.codes], weights=weights))
    if fresh is None:
        rough, N = _rough_sampling(fitted), len(fitted.row_weights)
        # near the minimal radius the dual values vary without bound between rows, so an average is meaningless
        mean, error = (certificate.risk, rough) if rough < np.log(fitted.n_classes) else (None, None)
        return BoundsBar(
            training, certificate.lower, certificate.risk, mean, error, _LEVEL, N, False, certificate.limit
        )
    enough = bool(np.isfinite(fresh.sampling_error))
    return BoundsBar(
        training,
        certificate.lower,
        certificate.risk,
        fresh.mean if enough else None,
        fresh.sampling_error if enough else None,
        fresh.level,
        fresh.n_rows,
        fresh.guarantee,
        certificate.limit,
    )


def _rough_sampling(fitted: ModelWithRows) -> float:
    """Return z·σ/√N of the dual value over the rows of the fit. This is the size of a sampling error, not a bound.

    The dual point was fitted to the same rows, so no confidence level can be guaranteed.
    """
    bound = row_bound(fitted.certificate)
    first, second = np.zeros(len(bound.sets)), np.zeros(len(bound.sets))
    for at, rows in chunks((fitted.X, fitted.U), len(bound.anchors)):
        distances = fitted.metric.distances(rows, bound.anchors)
        losses = fitted.losses(rows)
        values = np.array([one.values(distances, losses) for one in bound.sets])
        first += values @ fitted.row_weights[at]
        second += np.square(values) @ fitted.row_weights[at]
    spread = np.sqrt(np.maximum(second - np.square(first), 0.0))[first.argmax()]
    return float(norm.ppf(_LEVEL) * spread / np.sqrt(len(fitted.row_weights)))


def radius_chart(fitted: ModelWithRows, sampled: SampledRows) -> tuple[RadiusChart, FloatArray]:
    """Compute the certified loss of this model, and of a model trained at each radius, over the sampled rows.

    Also return the coefficients of the model trained at the radius nearest to the chosen one.
    """
    certificate = fitted.certificate
    kappa = float(label_cost_matrix(fitted.stated.label_cost, fitted.n_classes).max())
    chosen = max(certificate.radius - certificate.minimal_radius, 0.0)
    grid = _grid(chosen, kappa)
    model = clone(fitted.clf).set_params(
        label_prior=certificate.label_intervals,
        label_cost=fitted.stated.label_cost,
        metric=fitted.metric,
        radius=fitted.stated.radius,
        l2=fitted.stated.l2,
        tol=_DRAWN,
        classes=fitted.clf.classes_,
    )
    problem = FitProblem.from_arguments(
        model, fitted.X, fitted.y, sampled.weights, Unlabeled(sampled.rows), FitProgress(model)
    )
    problem = FitProblem.over(_in_shares(fitted, problem.problem), problem.settings, problem.progress)
    rows = np.vstack([fitted.X, sampled.rows])
    fixed = problem.problem.fixed(log_loss_matrix(fitted.clf.decision_function(rows)))
    with _quiet_convergence():
        this = _judge(problem.problem, fixed, grid, tied=is_tied(fitted))
        learned = [_learn(problem, rows, _members(problem.problem, e, tied=is_tied(fitted))) for e in grid.tolist()]
    curve = RadiusChart(
        tuple(grid.tolist()),
        tuple(this.tolist()),
        tuple(risk for risk, _, _ in learned),
        tuple(confidence for _, confidence, _ in learned),
        chosen,
        sampled.n_rows,
        len(fitted.X) + len(fitted.U),
    )
    return curve, learned[int(np.abs(grid - chosen).argmin())][2]


def _grid(chosen: float, kappa: float) -> FloatArray:
    """Return radii beyond the minimal one, evenly spaced on a log scale, with the chosen one unless it is about 0."""
    low, high = 1e-3 * kappa, 0.2 * kappa
    if chosen > 1e-5 * kappa:
        low, high = min(low, chosen / 2), max(high, 2 * chosen)
        grid = np.geomspace(low, high, _N_RADII)
        # a point right next to the chosen one would cost a solve and add no information
        return np.unique([*grid[np.abs(np.log(grid / chosen)) > 0.2], chosen])
    return np.geomspace(low, high, _N_RADII)


def _members(problem: RobustProblem, excess: float, *, tied: bool) -> list[SetAtRadius]:
    return problem.tied(excess) if tied else problem.at_excess(excess)


def _judge(problem: RobustProblem, fixed: Objective, grid: FloatArray, *, tied: bool) -> FloatArray:
    """Return (m,) certified losses of a fixed model: the maximum over the sets, each solved at its feasible radii."""
    found = np.full(len(grid), -np.inf)
    for member in _members(problem, float(grid[-1]), tied=tied):
        radii = member.decision_set.radius - grid[-1] + grid
        open_at = radii >= member.minimal.value

        def solve(radius: float, *, warm_start: JointState | None, member: SetAtRadius = member) -> Solution:
            at = SetAtRadius(member.decision_set.with_radius(radius), member.minimal)
            return fixed.solve([at], tol=_DRAWN, warm_start=warm_start)

        along = bound_along(radii[open_at], solve, 2 * _DRAWN)
        found[open_at] = np.maximum(found[open_at], [bound.upper for bound in along])
    return found


def _learn(problem: FitProblem, rows: FloatArray, members: list[SetAtRadius]) -> tuple[float, float, FloatArray]:
    """Return the certified loss of the best model for these sets, its median confidence, and its coefficients."""
    found = problem.against(members)
    coef, intercept = problem.game.coefficients(found.theta)
    top = probabilities(rows @ coef.T + intercept).max(axis=1)
    confidence = weighted_median(top, problem.problem.row_weights)
    return found.risk - found.model.penalty_value(found.theta), confidence, coef


@contextmanager
def _quiet_convergence() -> Iterator[None]:
    """Silence convergence warnings: a bound is valid at any gap, and its tightness matters little here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def rule_name(fitted: ModelWithRows) -> str:
    """Return how the radius was set: "predictive", "auto", "calibrated" or "number"."""
    rule = fitted.stated.radius
    if isinstance(rule, CalibratedRadius):
        return "calibrated"
    return rule if isinstance(rule, str) else "number"
