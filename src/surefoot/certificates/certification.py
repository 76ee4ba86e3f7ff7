"""Certificates for any classifier: the worst expected loss of a fixed classifier over a decision set.

The problem depends on a classifier only through its losses ℓ_jk, the loss at row j if its label were k. Therefore a
forest, a network or a hand-written rule gets the same kind of certificate as the classifiers of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_finite_array, check_positive_scalar, warn_about_gap
from surefoot.backends.compute import Compute
from surefoot.certificates.calibration import CalibratedRadius, RadiusEstimate, resolve_radius
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.groups import GroupFunction, RowGroups, rows_to_measure
from surefoot.costs.metrics import FeatureMetric
from surefoot.priors import LabelPrior
from surefoot.problem.losses import LOG_LOSS, ZERO_ONE, loss_matrix_from_proba
from surefoot.problem.placement import announce_long_solve, check_problem, rows_as_passed
from surefoot.problem.robust import Objective, RobustProblem
from surefoot.problem.rows import Unlabeled, choose_ground_cost
from surefoot.solvers.search.best_bounds import SetAtRadius

# The certified gap of `limit`, the bound over all classifiers.
_LIMIT_TOL = 1e-4
# The smallest gap requested for a group, however small its share.
_FINEST_OF_GROUP = 1e-9


def certify(  # noqa: PLR0913 - one keyword per part of the problem
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None = None,
    X_target: ArrayLike | Unlabeled | None = None,
    X_metric: ArrayLike | None = None,
    radius: float | str | CalibratedRadius | None = None,
    label_prior: LabelPrior | ArrayLike | str | None = "auto",
    loss: str | ArrayLike = LOG_LOSS,
    label_cost: ArrayLike | str = "auto",
    metric: FeatureMetric | str | Callable[..., float] = "auto",
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    losses: ArrayLike | None = None,
    groups: ArrayLike | GroupFunction | None = None,
    limit: bool = False,
    clip: float = 1e-12,
    tol: float | None = None,
    n_jobs: int | None = None,
    compute: Compute | None = None,
) -> Certificate:
    """Bound the worst expected loss of a fitted classifier over a decision set, from above and from below.

    The worst case is max_μ E_μ ℓ(x, y) over all distributions μ in the decision set. A distribution μ is in the set if
    it has three properties. Its feature marginal is the empirical distribution of all rows passed, or of X_target alone
    if X_target is passed. Its label probabilities lie in the intervals of label_prior. Its distance to the labeled
    rows, W_c(μ, labeled rows), is at most the radius.

    Parameters
    ----------
    classifier : fitted classifier, or None with `losses`
        The log loss requires `predict_proba`, and other losses require `predict`. The classifier receives the rows as
        passed.
    X : array of shape (n, d)
        Labeled rows. They need not be i.i.d., and they need not be the training rows of the classifier.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        Unlabeled rows. Memory maps, `ParquetRows`, Dask arrays and Dask dataframes are accepted. More than 2^24
        distances are computed in blocks.
    X_target : array of shape (M, d), Unlabeled or None, default=None
        Rows of another population, in any form that X_unlabeled accepts. They replace X and X_unlabeled as the feature
        marginal (for example labels from last year, rows from this year).
    X_metric : array of shape (N, d) or None, default=None
        Numbers used to measure distances, if the rows contain text or have no common scale. The rows of X come first,
        then X_unlabeled, then X_target. None: the rows themselves. If they contain text and the classifier is a
        pipeline, the output of all its steps except the last.
    radius : float, "calibrated" or CalibratedRadius
        Radius of the set. "calibrated" estimates it from the labels, see `calibrate_radius`.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, with classes in sorted order: 95 % intervals from y ("clopper-pearson"), exact values (K,),
        intervals (K, 2), or None for no constraint. "auto": "clopper-pearson", or None with X_target, because y
        contains no information about the label probabilities of X_target.
    loss : "log_loss", "zero_one" or array of shape (K, K), default="log_loss"
        "log_loss": −log(max(p, clip)). "zero_one": 1 if `predict` is wrong. Matrix: entry [k, c] is the loss of
        predicting class c when the true class is k.
    label_cost : float, "auto", "median" or array of shape (K, K), default="auto"
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k. "median": the median distance between rows. "auto": "median" if the radius is estimated from the labels,
        otherwise 1.
    metric : str, FeatureMetric or callable, default="auto"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", "learned" (learned from the labels, see
        `surefoot.costs.LearnedMetric`), an object of `surefoot.costs`, or a function. "auto": "learned" if the radius
        is estimated from the labels, otherwise "euclidean", because a numeric radius is in the units of the features.
    classes : array of shape (K,) or None, default=None
        All classes. None: the classes of the classifier. The classifier never predicts a class that it does not know.
    sample_weight : array of shape (n,) or None, default=None
        Number of times each labeled row counts. None: once each.
    losses : array of shape (N, K) or None, default=None
        Your own losses instead of `loss`: entry [j, k] is the loss at row j if its label were k. Rows of X come first.
    groups : array of shape (N,), function(rows) -> array, or None, default=None
        Group of each row of the feature marginal, rows of X first (or the rows of X_target alone). For rows in blocks,
        pass a function. The certificate then contains a certificate for each group, E[ℓ | group] over the same set, and
        names the worst group.
    limit : bool, default=False
        Whether to also compute `Certificate.limit`. No classifier, not even a randomized one, can be certified below
        this loss over the same set (docs/minimax.md). This solves one more problem for each set of a union.
    clip : float, default=1e-12
        Smallest probability in the log loss. No loss exceeds −log(clip).
    tol : float or None, default=None
        Certified gap to reach, absolute, in units of the loss. Rescale it if your losses are far from 1. A larger final
        gap raises a ConvergenceWarning. None: 1e-6 in memory, 1e-5 for rows in blocks. The defaults are smaller than
        in learning because the worst case of fixed losses is cheap to compute. With a smaller tol, rows that are
        already in memory stay there.
    n_jobs : int or None, default=None
        Number of threads over groups of rows.
    compute : Compute or None
        Where sums over blocks of rows run (for example on a GPU), and how much memory they may use. None: in memory up
        to 2^24 distances, in blocks beyond.

    Returns
    -------
    Certificate
        `risk` and `lower` bound the worst expected loss of this classifier. `worst_case` is the distribution that
        attains `lower`. `on_fresh_rows` evaluates the bound on new rows.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.9]]
    >>> knn = KNeighborsClassifier(1).fit(X, y)
    >>> c = certify(knn, X, y, X_unlabeled=U, radius=0.2, label_prior=[0.5, 0.5], loss="zero_one")
    >>> round(c.risk, 6)
    0.1875
    """
    asked = resolve_radius(_check_given(radius))
    label_cost, metric = choose_ground_cost(label_cost, metric, from_data=isinstance(asked, CalibratedRadius))
    measured = rows_to_measure(classifier, X, X_unlabeled, X_target, X_metric)
    problem = check_problem(
        measured.X,
        y,
        X_unlabeled=measured.X_unlabeled,
        X_target=measured.X_target,
        sample_weight=sample_weight,
        classes=classes_to_certify(classifier, y, classes),
        metric=metric,
        label_prior=label_prior,
        label_cost=label_cost,
        compute=compute,
        n_jobs=n_jobs,
        tol=tol,
        memory_only=losses is not None,
        merge=losses is None and groups is None and not measured.transformed,
    )
    judged = ClassifierLoss.from_arguments(classifier, problem.data.classes, loss, clip, own=losses is not None)
    announce_long_solve(problem, compute)
    parts = rows_as_passed(problem, X, X_unlabeled, X_target)
    at_rows, scale = judged.losses_on(problem, parts, losses)
    costs = judged.costs() if limit else None
    if measured.transformed:
        judged = replace(judged, losses=None)  # distances to fresh rows use X as passed, so their losses must be given
    members, estimate = problem.members(asked)
    whole = certify_over(problem.fixed(at_rows, scale), judged, members, tol, estimate)
    if limit:
        whole = replace(whole, limit=problem.limit(members, tol=_LIMIT_TOL, costs=costs))
    if groups is None:
        return whole
    found = RowGroups.from_arguments(groups, problem, parts)
    return replace(whole, groups=certify_groups(problem, found, at_rows, scale, judged, members, tol, estimate))


def certify_groups(
    problem: RobustProblem,
    groups: RowGroups,
    at_rows: Any,
    scale: float | None,
    judged: ClassifierLoss,
    members: list[SetAtRadius],
    tol: float | None,
    estimate: RadiusEstimate | None = None,
) -> dict[Any, Certificate]:
    """Certify E[ℓ | group] of a fixed classifier for each group. `losses_on` returns `at_rows` and `scale`."""
    each = {}
    for name, share in zip(groups.names, groups.shares.tolist(), strict=True):
        game = problem.fixed(groups.within(name, at_rows), scale)
        each[name] = _within_group(certify_over(game, judged, members, tol, estimate, share=share), share)
    return each


def _check_given(radius: float | str | CalibratedRadius | None) -> float | str | CalibratedRadius:
    if radius is None:
        raise ParameterError(
            "radius",
            "must be given",
            "None",
            'Pass "calibrated", which estimates it from randomly sampled labels, or a known number, '
            "such as the transport_distance to last year's labels.",
        )
    return radius


def _within_group(certificate: Certificate, share: float) -> Certificate:
    """Return E[ℓ | G] from E[ℓ 1_G], without row_bound, which covers fresh rows of all groups."""
    return replace(certificate, risk=certificate.risk / share, lower=certificate.lower / share, row_bound=None)


def certify_over(
    game: Objective,
    judged: ClassifierLoss,
    members: list[SetAtRadius],
    tol: float | None,
    estimate: RadiusEstimate | None = None,
    *,
    share: float = 1.0,
) -> Certificate:
    """Certify a fixed classifier over one set or a union of sets. Warn if the gap exceeds the tolerance.

    share : fraction of rows whose losses are not set to 0. The gap to reach is smaller by this factor.
    """
    asked = game.problem.finest if tol is None else check_positive_scalar(tol, "tol")
    tol = max(asked * share, min(asked, _FINEST_OF_GROUP))
    certificate = game.certificate(
        game.worst_over(members, tol=tol),
        judged.name,
        tol=tol,
        estimate=estimate,
        losses_at=judged.losses,
        largest_loss=judged.largest,
    )
    warn_about_gap(certificate.gap, tol, "Raise $tol, or raise $radius if it is close to the minimal radius.")
    return certificate


@dataclass(frozen=True, eq=False)
class ClassifierLosses:
    """Losses (M, K) of a classifier at rows. `matrix` (K, K) holds the cost of each prediction. None: log loss."""

    classifier: Any
    classes: NDArray[Any]
    matrix: FloatArray | None
    clip: float

    def __call__(self, rows: Any) -> FloatArray:
        if self.matrix is None:
            return loss_matrix_from_proba(self._proba(rows), LOG_LOSS, self.clip)
        predicted = np.asarray(self.classifier.predict(rows)).ravel()
        unknown = np.setdiff1d(predicted, self.classes)
        if len(unknown):
            raise ParameterError(
                "classifier",
                f"must predict one of the classes {self.classes.tolist()}",
                unknown.tolist(),
                "Pass classes= with all classes.",
            )
        return np.ascontiguousarray(self.matrix[:, np.searchsorted(self.classes, predicted)].T)

    def _proba(self, rows: Any) -> FloatArray:
        """Return probabilities (M, K), one column per class. A class unknown to the classifier has probability 0."""
        proba = np.asarray(self.classifier.predict_proba(rows), dtype=np.float64)
        own = np.asarray(getattr(self.classifier, "classes_", self.classes))
        if proba.ndim != 2 or proba.shape[1] != len(own):
            raise ParameterError(
                "predict_proba",
                f"must give one column per class, {len(own)}",
                f"shape {proba.shape}",
                "Pass a classifier with predict_proba of shape (N, K).",
            )
        full = np.zeros((len(proba), len(self.classes)))
        full[:, np.searchsorted(self.classes, own)] = proba
        return full


@dataclass(frozen=True, eq=False)
class ClassifierLoss:
    """The bounded loss: its name, the losses of the classifier, and the largest possible loss."""

    name: str
    losses: ClassifierLosses | None
    largest: float | None

    @classmethod
    def from_arguments(
        cls,
        classifier: Any,
        classes: NDArray[Any],
        loss: str | ArrayLike,
        clip: float,
        *,
        own: bool,
    ) -> ClassifierLoss:
        if own:
            name = loss if isinstance(loss, str) and loss not in (LOG_LOSS, ZERO_ONE) else "loss"
            return cls(name, None, None)
        K = len(classes)
        if isinstance(loss, str) and loss == LOG_LOSS:
            _needs(classifier, "predict_proba", 'loss="log_loss"')
            loss_matrix_from_proba(np.full((1, K), 1.0 / K), LOG_LOSS, clip)  # checks clip
            return cls(LOG_LOSS, ClassifierLosses(classifier, classes, None, clip), float(-np.log(clip)))
        if isinstance(loss, str) and loss != ZERO_ONE:
            raise ParameterError(
                "loss",
                f"must be {LOG_LOSS!r}, {ZERO_ONE!r} or a matrix of shape (K, K)",
                repr(loss),
                "Pass one of them, or your own losses=.",
            )
        _needs(classifier, "predict", "this loss")
        matrix = 1.0 - np.eye(K) if isinstance(loss, str) else check_finite_array(loss, "loss", ndim=2)
        if matrix.shape != (K, K):
            raise ParameterError(
                "loss",
                f"must have shape (K, K) = ({K}, {K}), truth by prediction",
                matrix.shape,
                "Pass a (K, K) matrix.",
            )
        name = ZERO_ONE if isinstance(loss, str) else "cost"
        return cls(name, ClassifierLosses(classifier, classes, matrix, clip), float(matrix.max()))

    def costs(self) -> FloatArray | None:
        """Return the loss (K, K) of each prediction, or None for the log loss."""
        if self.losses is None:
            raise ParameterError(
                "limit",
                "must be False if losses are given",
                "True",
                "Pass a classifier, so that the loss of every prediction is known.",
            )
        return self.losses.matrix

    def losses_on(
        self, problem: RobustProblem, parts: list[Any] | None, losses: ArrayLike | None
    ) -> tuple[Any, float | None]:
        """Return losses (N, K) at rows in memory (`parts` as passed) or a function over blocks, and the largest one."""
        if parts is None:
            if self.losses is None:
                raise ParameterError(
                    "losses",
                    "must be None unless rows are in memory",
                    "rows that are read in blocks",
                    "Pass a classifier.",
                )
            return self.losses, float(np.ptp(self.losses(problem.data.rows))) or 1.0
        if self.losses is None:
            return _check_losses(losses, problem), None
        return np.vstack([self.losses(part) for part in parts if len(part)]), None

    def game(self, problem: RobustProblem, X: Any, X_unlabeled: Any, losses: ArrayLike | None) -> Objective:
        """Return the game against the adversary. The classifier gets the rows as passed, or numbers over blocks."""
        return problem.fixed(*self.losses_on(problem, rows_as_passed(problem, X, X_unlabeled), losses))


def _needs(classifier: Any, method: str, what: str) -> None:
    if not callable(getattr(classifier, method, None)):
        raise ParameterError(
            "classifier",
            f"must have {method} for {what}",
            type(classifier).__name__,
            "Pass a fitted classifier, another loss, or your own losses=.",
        )


def classes_to_certify(classifier: Any, y: ArrayLike, classes: ArrayLike | None) -> ArrayLike | None:
    """Return the given classes, or the classes of the classifier. None if neither is known: use the classes of y."""
    own = getattr(classifier, "classes_", None)
    if classes is None:
        if own is not None:
            _check_known(y, own)
        return own
    if own is not None and len(np.setdiff1d(own, np.asarray(classes))):
        missing = np.setdiff1d(own, np.asarray(classes)).tolist()
        raise ParameterError("classes", "must contain every class of the classifier", f"none of {missing}", "Add them.")
    return classes


def _check_known(y: ArrayLike, known: ArrayLike) -> None:
    missing = np.setdiff1d(np.asarray(y), np.asarray(known)).tolist()
    if missing:
        raise ParameterError(
            "y",
            "must hold classes of the classifier",
            f"a classifier of {np.asarray(known).tolist()} without {missing}",
            "Pass classes= with all classes. A class unknown to the classifier is never predicted.",
        )


def _check_losses(losses: ArrayLike | None, problem: RobustProblem) -> FloatArray:
    matrix = check_finite_array(losses, "losses", ndim=2)
    shape = (problem.n_rows, len(problem.data.classes))
    if matrix.shape != shape:
        raise ParameterError(
            "losses",
            f"must have shape (N, K) = {shape}, the rows of X first, then those of X_unlabeled (or "
            "those of X_target alone)",
            matrix.shape,
            "Pass one row per row, one column per class.",
        )
    return matrix
