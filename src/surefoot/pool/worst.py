"""The worst case of a classifier over a decision set, and the radii of decision sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from surefoot._validation import FloatArray
from surefoot.certificates.calibration import CalibratedRadius, RadiusEstimate
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.radius import calibrate_radius, minimal_radius, transport_distance
from surefoot.costs.metrics import Euclidean
from surefoot.estimators.curves import radius_curve
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.pool.model import Stated, drawn, sampled
from surefoot.pool.notes import Code, Note
from surefoot.pool.options import AUTO, CALIBRATED, DEFAULT, NUMBER, Clock, FitOptions
from surefoot.pool.report_certified import SampledProblem
from surefoot.pool.store_labels import picked_rows
from surefoot.pool.table import Pool, Table, TableError, clean_with
from surefoot.pool.table.pool import as_targets
from surefoot.pool.training import (
    FEWEST_FOR_CALIBRATION,
    MOST_CLASSES,
    LabeledTable,
    estimate_radius,
    ground_cost,
    prior_from_options,
    prior_of_worst_case,
)
from surefoot.problem.losses import LOG_LOSS, ZERO_ONE
from surefoot.problem.placement import check_problem
from surefoot.problem.robust import RobustProblem
from surefoot.problem.rows import Unlabeled
from surefoot.solvers.search.best_bounds import SetAtRadius

# Optimality gap of a worst case. Its bounds are printed to a tenth of a percent.
_TOL = 5e-4
# Largest number of distances times sets to solve over all rows, and fewest rows in a sample. Bounds cover all rows.
_ENTRIES, _FEWEST_ROWS = 1_000_000, 250
# Fewest labels for calibration, and most unlabeled rows for a path.
_FEWEST, _MOST_ROWS = 4, 4000


@dataclass(frozen=True, eq=False)
class PoolWorstCase:
    """The worst case of a classifier over a set of distributions.

    certificates : by loss; kind : the rule for the radius.
    constant, constant_error : the best constant prediction over the same set, and its worst-case error rate.
    sample : positions of the unlabeled rows in the solved problem, None for all. The bounds always cover all rows. With
        a sample, `lower` covers only the sample.
    prior : of the label shares, as the parameter of an estimator.
    start, losses, row_weights : the certified rows, labeled rows first, with their losses (N, K) and weights.
    """

    start: LabeledTable
    losses: Mapping[str, FloatArray]
    row_weights: FloatArray
    certificates: dict[str, Certificate]
    kind: str
    constant: str
    constant_error: float
    prior: Any
    sample: NDArray[np.intp] | None = None

    @property
    def guaranteed(self) -> bool:
        """Return True if the radius was calibrated or given. A rule of thumb need not cover the true distribution."""
        return self.kind in (CALIBRATED, NUMBER)

    @property
    def first(self) -> Certificate:
        return next(iter(self.certificates.values()))

    @property
    def tied(self) -> bool:
        """Return True if the radius grows with the change of label shares."""
        return self.kind == CALIBRATED and bool(np.any(np.diff(self.first.label_intervals) > 0))

    @property
    def stated(self) -> Stated | None:
        """The certificate of the log loss with its decision set, or None."""
        found = self.certificates.get(LOG_LOSS)
        if found is None:
            return None
        rule: float | str | CalibratedRadius = found.radius if self.guaranteed else AUTO
        how = CalibratedRadius() if self.kind == CALIBRATED else rule
        return Stated(
            found, found.metric or Euclidean(), found.label_cost, how, "auto", self.prior, found.label_intervals
        )

    def risk(self, loss: str) -> float | None:
        return self.certificates[loss].risk if loss in self.certificates else None

    def data(self, classes: list[str]) -> dict[str, Any]:
        """Return the certificate as plain data, with the error rate and that of a constant prediction."""
        certificate, sampled = self.certificates.get(LOG_LOSS, self.first), self.sample is not None
        data = certificate_data(certificate, classes, guaranteed=self.guaranteed, tied=self.tied, sampled=sampled)
        error = self.risk(ZERO_ONE)
        if error is not None:
            data["error"] = error
        more = {"constant_answer": self.constant, "constant_error": self.constant_error, "radius_from": self.kind}
        return {**data, **more}


def worst_case(
    start: LabeledTable,
    choices: FitOptions,
    losses: Mapping[str, FloatArray],
    *,
    auto: float | None = None,
) -> PoolWorstCase | Note:
    """Compute the worst case of a classifier from its losses at all rows, labeled rows first.

    If all labels are random, a calibrated radius uses the metric learned from the labels, as in the coverage benchmark.
    Other radii are Euclidean distances between cleaned rows, with a label cost of 1. `auto` is the radius by the rule
    of thumb, or None. If there is no worst case, the result is a note with the reason.
    """
    kind = radius_kind(choices, start, auto)
    if isinstance(kind, Note):
        return kind
    prior = prior_of_worst_case(choices.prior, start)
    whole = _problem(start, choices, start.rest, prior, start.weights, ground_cost(kind, start))
    estimate = estimate_radius(whole, start, choices) if kind == CALIBRATED else None
    tied = estimate is not None and bool(np.any(np.diff(whole.decision_set.intervals) > 0))
    n_sets = 2 ** len(start.pool.classes) - 2 if tied else 1
    sample = drawn(len(start.rest), max(_ENTRIES // (len(start.y) * n_sets), _FEWEST_ROWS), choices.seed)
    problem = whole if sample is None else _part(whole, start, choices, sample)
    sampled = SampledProblem(problem, sample, (start.rows, start.rest), whole.row_weights, whole.minimal.value)
    if estimate is not None:
        members = problem.tied(estimate.excess)
    else:
        members = problem.at_radius((float(choices.radius) if kind == NUMBER else float(auto or 0.0)) - sampled.shift)
    found = {
        name: replace(sampled.certify(name, values, members, _TOL, estimate), guaranteed=kind != AUTO)
        for name, values in losses.items()
    }
    best, share = worst_constant_error(members)
    prior = prior_from_options(choices.prior, start)
    return PoolWorstCase(start, losses, whole.row_weights, found, kind, start.pool.classes[best], share, prior, sample)


def _problem(
    start: LabeledTable,
    choices: FitOptions,
    rest: FloatArray,
    prior: Any,
    weights: FloatArray | None,
    cost: tuple[Any, Any],
) -> RobustProblem:
    return check_problem(
        start.rows,
        start.y,
        X_unlabeled=Unlabeled(rest),
        sample_weight=weights,
        classes=start.classes,
        label_prior=prior,
        label_cost=cost[0],
        metric=cost[1],
        n_jobs=choices.n_jobs,
        memory_only=True,
    )


def _part(whole: RobustProblem, start: LabeledTable, choices: FitOptions, sample: NDArray[np.intp]) -> RobustProblem:
    """Return the problem over a sample of unlabeled rows. Smaller weights keep the labeled rows' share of all rows."""
    shares = whole.row_weights
    weights = shares[: len(start.y)] / shares[-1] * (len(sample) / len(start.rest))
    known = whole.decision_set.label_cost, whole.data.metric
    return _problem(start, choices, start.rest[sample], whole.decision_set.intervals, weights, known)


def radius_kind(choices: FitOptions, start: LabeledTable, auto: float | None) -> str | Note:
    """Return the rule for the radius, or a note with the reason why there is no radius."""
    if not isinstance(choices.radius, str):
        return NUMBER
    if choices.radius == AUTO:
        if auto is None:
            raise TableError(
                "--radius auto requires --classifier robust, and a model trained so. Pass --radius calibrated, or a "
                "number such as that of surefoot radius --reference."
            )
        return AUTO
    n_classes = len(start.pool.classes)
    if choices.radius == DEFAULT and start.n_random < FEWEST_FOR_CALIBRATION:
        return Note(Code.WORST_FEW, n_random=start.n_random, needed=FEWEST_FOR_CALIBRATION)
    if choices.radius == DEFAULT and n_classes > MOST_CLASSES and not isinstance(choices.prior, tuple):
        return Note(Code.WORST_CLASSES, n_classes=n_classes, most=MOST_CLASSES)
    return CALIBRATED


def worst_constant_error(members: Sequence[SetAtRadius]) -> tuple[int, float]:
    """Return the constant prediction with the lowest worst-case error rate over a union of sets, and this rate.

    Over one set, the smallest share of a class k is a linear program in the changed labels. Their cost is at most the
    part of the radius that remains after moving the features.
    """
    shares = np.min([_smallest_shares(member) for member in members], axis=0)
    best = int(shares.argmax())
    return best, float(1.0 - shares[best])


def _smallest_shares(member: SetAtRadius) -> FloatArray:
    """Return (K,) the smallest share that each class can have in a set."""
    ds = member.decision_set
    K, before = ds.n_classes, ds.label_frequencies
    budget = max(ds.radius - member.minimal.feature_part, member.minimal.label_part)
    into = np.kron(np.eye(K), np.ones(K))  # entry (k, c) of the changed shares, row by row: what becomes k
    out_of = np.kron(np.ones(K), np.eye(K))
    found = [
        linprog(
            into[k],
            A_ub=np.vstack([into, -into, ds.label_cost.ravel()]),
            b_ub=np.concatenate([ds.intervals[:, 1], -ds.intervals[:, 0], [budget + 1e-12]]),
            A_eq=out_of,
            b_eq=before,
        )
        for k in range(K)
    ]
    return np.array([one.fun if one.status == 0 else ds.intervals[k, 0] for k, one in enumerate(found)])


def certificate_data(
    certificate: Certificate, classes: list[str], *, guaranteed: bool, tied: bool, sampled: bool = False
) -> dict[str, Any]:
    """Return the numbers and texts of a certificate. A set tied to label shares has an excess instead of one radius."""
    estimate = certificate.estimate
    radius = {"tied_excess": None if estimate is None else estimate.excess} if tied else {"radius": certificate.radius}
    data: dict[str, Any] = {
        "guaranteed": guaranteed,
        "loss": certificate.loss,
        "risk": certificate.risk,
        "lower": None if sampled else certificate.lower,
        "gap": None if sampled else certificate.gap,
        "status": certificate.status,
        **radius,
        "minimal_radius": certificate.minimal_radius,
        "label_intervals": {
            name: [float(low), float(high)]
            for name, (low, high) in zip(classes, certificate.label_intervals, strict=True)
        },
    }
    if certificate.loss == LOG_LOSS:
        data["likelihood"] = certificate.likelihood
    if certificate.limit is not None:
        data["limit"] = certificate.limit
    if estimate is not None:
        data["calibration"] = {
            "level": estimate.level,
            "excess": estimate.excess,
            "splits": len(estimate.splits),
            "labels": estimate.n_labeled,
            "learned_metric": estimate.learned_metric,
        }
    return {name: float(value) if isinstance(value, np.floating) else value for name, value in data.items()}


@dataclass(frozen=True, eq=False)
class Radii:
    """Radii estimated from a pool, its labels and a reference table, in Euclidean distances between cleaned rows.

    calibrated : None with too few random labels. With label intervals it is `tied` to the label shares and is not one
        radius.
    path : a classifier trained at each radius: radius, excess, risk (worst-case loss), median_confidence.
    reference : distance to a labeled reference table, None without one.
    default : the rule for the radius of the worst case in `fit`, or why there is none; learned : whether this radius is
        in a learned metric.
    path_sample : number of unlabeled rows used for the path if they were sampled, else None.
    """

    minimal: float
    calibrated: RadiusEstimate | None
    tied: bool
    reference: float | None
    default: str | Note
    learned: bool
    path: tuple[Any, ...]
    path_sample: int | None

    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"minimal": self.minimal}
        found = self.calibrated
        if found is not None and self.tied:
            data["calibrated"] = {"tied_excess": found.excess, "level": found.level}
        elif found is not None:
            radius = self.minimal + found.excess
            data["calibrated"] = {"radius": radius, "excess": found.excess, "level": found.level}
        data["default"] = None if isinstance(self.default, Note) else self.default
        if self.path:
            data["path"] = [row._asdict() for row in self.path]
        return data


def radii_of(pool: Pool, choices: FitOptions, clock: Clock, *, reference: Table | None, n_path: int) -> Radii:
    """Estimate the radii of a pool. n_path : number of radii in the path, 0 for no path."""
    start = LabeledTable.from_pool(pool, picked_rows(pool.table))
    prior = prior_from_options(choices.prior, start)
    clock.say("solving the transport problem")
    least = minimal_radius(start.rows, start.y, X_unlabeled=start.rest, label_prior=prior, classes=start.classes)
    calibrated = None
    if start.n_random >= _FEWEST:
        clock.say("estimating the radius")
        calibrated = calibrate_radius(
            start.rows[start.random],
            start.y[start.random],
            label_prior=None,
            label_cost=1.0,
            metric="euclidean",
            classes=start.classes,
            level=CalibratedRadius().level,
            random_state=choices.seed,
        )
    some = sampled(start, _MOST_ROWS, choices.seed)
    path: tuple[Any, ...] = ()
    if n_path:
        clock.say("following the radius")
        path = _path(some, prior, choices, n_path)
    return Radii(
        least,
        calibrated,
        not isinstance(choices.prior, tuple),
        None if reference is None else _distance(start, reference),
        radius_kind(choices, start, None),
        start.all_random,
        path,
        None if some is start or not n_path else len(some.rest),
    )


def _distance(start: LabeledTable, reference: Table) -> float:
    """Return W_c from the labeled rows to a labeled reference table, cleaned like the pool."""
    other = clean_with(reference, start.pool.cleaner, start.pool.columns)
    if not other.labeled.any():
        raise TableError(f"{reference.path} must hold labels; the column {reference.label!r} is empty. Fill it.")
    rows = other.rows[other.labeled]
    if set(other.classes) - set(start.pool.classes):
        unknown = sorted(set(other.classes) - set(start.pool.classes))[0]
        raise TableError(
            f"{reference.path} must hold classes of the pool; {unknown!r} is none. Name it with --classes, or correct "
            "it."
        )
    return transport_distance(start.rows, start.y, rows, as_targets(other.labels[other.labeled], start.pool.classes))


def _path(start: LabeledTable, prior: Any, choices: FitOptions, n_path: int) -> tuple[Any, ...]:
    """Return the worst-case loss and the confidence along the radius."""
    clf = RobustLogisticRegression(AUTO, prior, 1.0, "euclidean", 1e-3, start.classes, n_jobs=choices.n_jobs)
    path = radius_curve(clf, start.rows, start.y, X_unlabeled=start.rest, n_radii=n_path)
    rows = path.to_frame().assign(excess=path.radii - path.minimal_radius)
    return tuple(rows[["radius", "excess", "risk", "median_confidence"]].itertuples(index=False, name="PathRow"))
