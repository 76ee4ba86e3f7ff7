"""Numbers of the report that take a solver: the error bound, the sampling term, and the curve over the radius."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from surefoot._callbacks import FitProgress
from surefoot._types import FloatArray
from surefoot.blocks.placement import check_problem
from surefoot.calibration import PREDICTIVE, Calibrated
from surefoot.certificates.fresh import FreshCertificate
from surefoot.certify import ClassifierLoss, certify_over
from surefoot.costs import label_cost_matrix
from surefoot.estimators.fit_problem import FitProblem
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.exact.judge import JointState, Member
from surefoot.exact.problem import Game, RobustProblem
from surefoot.exact.solution import Solution
from surefoot.losses import ZERO_ONE, log_loss_matrix, loss_matrix_from_proba, probabilities
from surefoot.path import bound_along
from surefoot.pool.all_rows import chunks, risk_over_rows, row_bound
from surefoot.pool.model_with_rows import ModelWithRows
from surefoot.pool.summary.contents import Bounds, RadiusCurve
from surefoot.radius import weighted_median
from surefoot.unlabeled import Unlabeled

# Rows used where a solver is called again: about this many distances in all, and between these numbers of rows.
ERROR_ENTRIES, CURVE_ENTRIES, _FEWEST, _MOST = 1_600_000, 200_000, 300, 4000
# The gap to reach: of a number that is printed, and of one that is drawn.
_TOL, _DRAWN = 1e-3, 2e-3
# Radii of the curve besides the chosen one.
_N_RADII = 5
# Level of the sampling term where no rows were kept apart.
_LEVEL = 0.95
# Smallest probability in a log loss, as in `certify`.
_CLIP = 1e-12


@dataclass(frozen=True, eq=False)
class SampledProblem:
    """The problem of a fit over a random sample of its unlabeled rows.

    Labeled rows keep their share of P_X by smaller weights; label intervals are those of the fit, not counted again.
    """

    fitted: ModelWithRows
    rows: FloatArray
    weights: FloatArray

    @classmethod
    def of(cls, fitted: ModelWithRows, seed: int, entries: int = ERROR_ENTRIES) -> SampledProblem:
        n, M = len(fitted.X), len(fitted.U)
        most = int(np.clip(entries // (n * n_sets(fitted)), _FEWEST, _MOST))
        chosen = np.arange(M)
        if most < M:
            chosen = np.sort(np.random.default_rng(seed).choice(M, most, replace=False))
        weights = fitted.row_weights[:n] / fitted.row_weights[-1] * (len(chosen) / M)
        return cls(fitted, fitted.U[chosen], weights)

    @property
    def complete(self) -> bool:
        return len(self.rows) == len(self.fitted.U)

    @property
    def n_rows(self) -> int:
        return len(self.fitted.X) + len(self.rows)


def is_tied(fitted: ModelWithRows) -> bool:
    """Whether the decision set is a union over label shifts: a calibrated radius and label intervals."""
    low, high = fitted.certificate.label_intervals.T
    return isinstance(fitted.stated.radius, Calibrated) and bool(np.any(low < high))


def n_sets(fitted: ModelWithRows) -> int:
    """Decision sets in the union."""
    return 2**fitted.n_classes - 2 if is_tied(fitted) else 1


def certified_error(
    clf: RobustLogisticRegression, X: ArrayLike, y: ArrayLike, X_unlabeled: ArrayLike | Unlabeled, *, seed: int = 0
) -> float:
    """Upper bound on the share of wrong answers of a fitted model, over the decision set and the rows of its fit.

    As `certify(..., loss="zero_one")` at the radius of the fit; where rows are many it is solved over a random sample,
    proved over all rows, and slightly larger.

    Parameters
    ----------
    clf : RobustLogisticRegression
        A fitted model.
    X : array of shape (n, d)
        Labeled rows of its fit.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d) or Unlabeled
        Unlabeled rows of its fit, M ≥ 1.
    seed : int, default=0
        Of the sample.

    Returns
    -------
    float
        The bound, at most 1.

    Examples
    --------
    >>> import surefoot as sf
    >>> from surefoot import report
    >>> X, y, U = [[0.0], [0.4], [0.6], [1.0]], [0, 0, 1, 1], [[0.1], [0.5], [0.9]]
    >>> clf = sf.RobustLogisticRegression(radius=0.3, label_prior=[0.5, 0.5]).fit(X, y, X_unlabeled=U)
    >>> 0 < report.certified_error(clf, X, y, U) < 1
    True
    """
    fitted = ModelWithRows.check(clf, X, y, X_unlabeled)
    return error_bound(fitted, SampledProblem.of(fitted, seed))


def error_bound(fitted: ModelWithRows, sampled: SampledProblem) -> float:
    """Upper bound on the share of wrong answers, over the decision set of the fit and all of its rows.

    Solved over the sampled rows; its dual point is then evaluated at all rows, with the radius of the fit. Every dual
    point bounds the worst case from above, so the bound holds for all rows, and is slightly larger than the best one.
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
    )
    problem = _in_shares(fitted, problem)
    rule, least = fitted.stated.radius, problem.minimal.value
    excess = max(certificate.radius - certificate.minimal_radius, 0.0)
    members, estimate = problem.at(least + excess), certificate.estimate
    if isinstance(rule, Calibrated) and estimate is not None:
        members = problem.tied(estimate.excess)
        estimate = replace(estimate, radius=least + estimate.excess, minimal_radius=least)
    judged = ClassifierLoss.of(clf, clf.classes_, ZERO_ONE, _CLIP, own=False)
    with _quiet_convergence():
        game = judged.game(problem, fitted.X, sampled.rows, None)
        found = certify_over(game, judged, members, _TOL, estimate)
    if sampled.complete:
        return min(found.risk, 1.0)
    losses = loss_matrix_from_proba(fitted.proba, ZERO_ONE)
    shift = certificate.minimal_radius - least
    return min(risk_over_rows(found, (fitted.X, fitted.U), fitted.row_weights, losses, shift), 1.0)


def _in_shares(fitted: ModelWithRows, problem: RobustProblem) -> RobustProblem:
    """The problem with labels in the shares of the fit, which radius="predictive" takes from its own predictions."""
    if fitted.stated.radius != PREDICTIVE:
        return problem
    return problem.with_label_shares(row_bound(fitted.certificate).sets[0].decision_set.label_frequencies)


def bounds_of(fitted: ModelWithRows, fresh: FreshCertificate | None) -> Bounds:
    """The certificate as a bar. Without fresh rows the sampling term is that of the unlabeled rows of the fit."""
    certificate, n = fitted.certificate, len(fitted.X)
    weights = fitted.row_weights[:n]
    losses = log_loss_matrix(fitted.clf.decision_function(fitted.X))
    training = float(np.average(losses[np.arange(n), fitted.codes], weights=weights))
    if fresh is None:
        rough, N = _rough_sampling(fitted), len(fitted.row_weights)
        # near the minimal radius the dual value varies without bound from row to row: an average says nothing
        mean, error = (certificate.risk, rough) if rough < np.log(fitted.n_classes) else (None, None)
        return Bounds(training, certificate.lower, certificate.risk, mean, error, _LEVEL, N, False)
    enough = bool(np.isfinite(fresh.sampling_error))
    return Bounds(
        training,
        certificate.lower,
        certificate.risk,
        fresh.mean if enough else None,
        fresh.sampling_error if enough else None,
        fresh.level,
        fresh.n_rows,
        fresh.guarantee,
    )


def _rough_sampling(fitted: ModelWithRows) -> float:
    """z·σ/√N of the dual value over the rows of the fit: the size of a sampling error, not a bound.

    The dual point was fitted to these very rows, so no level can be promised.
    """
    bound = row_bound(fitted.certificate)
    first, second = np.zeros(len(bound.sets)), np.zeros(len(bound.sets))
    for at, rows in chunks((fitted.X, fitted.U), len(bound.anchors)):
        distances = fitted.metric.distances(rows, bound.anchors)
        losses = log_loss_matrix(fitted.clf.decision_function(rows))
        values = np.array([one.values(distances, losses) for one in bound.sets])
        first += values @ fitted.row_weights[at]
        second += np.square(values) @ fitted.row_weights[at]
    spread = np.sqrt(np.maximum(second - np.square(first), 0.0))[first.argmax()]
    return float(norm.ppf(_LEVEL) * spread / np.sqrt(len(fitted.row_weights)))


def radius_curve(fitted: ModelWithRows, sampled: SampledProblem) -> tuple[RadiusCurve, FloatArray]:
    """Certified loss of this model, and of one learned at each radius, over the sampled rows.

    Also the coefficients of the model learned at the radius nearest to the chosen one.
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
    problem = FitProblem.of(model, fitted.X, fitted.y, sampled.weights, Unlabeled(sampled.rows), FitProgress(model))
    problem = FitProblem.over(_in_shares(fitted, problem.problem), problem.settings, problem.progress)
    rows = np.vstack([fitted.X, sampled.rows])
    fixed = problem.problem.fixed(log_loss_matrix(fitted.clf.decision_function(rows)))
    with _quiet_convergence():
        this = _judge(problem.problem, fixed, grid, tied=is_tied(fitted))
        learned = [_learn(problem, rows, _members(problem.problem, e, tied=is_tied(fitted))) for e in grid.tolist()]
    curve = RadiusCurve(
        tuple(grid.tolist()),
        tuple(this.tolist()),
        tuple(risk for risk, _, _ in learned),
        tuple(confidence for _, confidence, _ in learned),
        chosen,
        kappa,
        sampled.n_rows,
        len(fitted.X) + len(fitted.U),
    )
    return curve, learned[int(np.abs(grid - chosen).argmin())][2]


def _grid(chosen: float, kappa: float) -> FloatArray:
    """Radii beyond the minimal one: evenly on a log scale around the chosen one, which is among them unless it is 0."""
    low, high = 1e-3 * kappa, 0.2 * kappa
    if chosen > 1e-5 * kappa:
        low, high = min(low, chosen / 2), max(high, 2 * chosen)
        grid = np.geomspace(low, high, _N_RADII)
        # a point right beside the chosen one would cost a solve and show nothing
        return np.unique([*grid[np.abs(np.log(grid / chosen)) > 0.2], chosen])
    return np.geomspace(low, high, _N_RADII)


def _members(problem: RobustProblem, excess: float, *, tied: bool) -> list[Member]:
    return problem.tied(excess) if tied else problem.at_excess(excess)


def _judge(problem: RobustProblem, fixed: Game, grid: FloatArray, *, tied: bool) -> FloatArray:
    """(m,) certified loss of a fixed model: the largest over the sets, each followed along the radii that it allows."""
    found = np.full(len(grid), -np.inf)
    for member in _members(problem, float(grid[-1]), tied=tied):
        radii = member.decision_set.radius - grid[-1] + grid
        open_at = radii >= member.minimal.value

        def solve(radius: float, *, warm_start: JointState | None, member: Member = member) -> Solution:
            at = Member(member.decision_set.with_radius(radius), member.minimal)
            return fixed.solve([at], tol=_DRAWN, warm_start=warm_start)

        along = bound_along(radii[open_at], solve, 2 * _DRAWN)
        found[open_at] = np.maximum(found[open_at], [bound.upper for bound in along])
    return found


def _learn(problem: FitProblem, rows: FloatArray, members: list[Member]) -> tuple[float, float, FloatArray]:
    """Certified loss of the best model for these sets, its median confidence, and its coefficients."""
    found = problem.against(members)
    coef, intercept = problem.game.coefficients(found.theta)
    top = probabilities(rows @ coef.T + intercept).max(axis=1)
    confidence = weighted_median(top, problem.problem.row_weights)
    return found.risk - found.model.penalty_value(found.theta), confidence, coef


@contextmanager
def _quiet_convergence() -> Iterator[None]:
    """A bound holds at any gap; how tight it is matters little here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def rule_name(fitted: ModelWithRows) -> str:
    """How the radius was set: "predictive", "auto", "calibrated" or "number"."""
    rule = fitted.stated.radius
    if isinstance(rule, Calibrated):
        return "calibrated"
    return rule if isinstance(rule, str) else "number"
