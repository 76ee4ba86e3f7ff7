"""The minimax classifier: the best of all classifiers against a decision set, from distances alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from surefoot._errors import ParameterError
from surefoot._validation import (
    FitProgress,
    FloatArray,
    check_n_jobs,
    check_positive_integer,
    check_positive_scalar,
    with_callbacks,
)
from surefoot.backends.compute import Compute
from surefoot.certificates.calibration import AUTO, PREDICTIVE, CalibratedRadius, resolve_radius
from surefoot.certificates.certificate import Certificate
from surefoot.costs.metrics import FeatureMetric, Precomputed
from surefoot.dual.bounds import best_response
from surefoot.dual.models import DualPoint
from surefoot.estimators.base import CertifiedClassifier, is_precomputed, problem_of_fit, warn_about
from surefoot.estimators.fit_problem import ground_cost_of, label_prior_of, predicted_shares
from surefoot.priors import LabelPrior
from surefoot.problem.distances import row_chunks
from surefoot.problem.losses import LOG_LOSS
from surefoot.problem.robust import InMemoryProblem, RobustProblem
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.newton import NewtonOptions
from surefoot.solvers.search.solution import Solution

# radius="predictive": excess in units of the label cost.
EXCESS = 0.05


class MinimaxClassifier(CertifiedClassifier):
    """Learn the classifier with the smallest worst expected log loss over a decision set, among all classifiers.

        min_h  max_μ  E_μ[−log h(y | x)]

    The maximum is over the decision set of `RobustLogisticRegression`. The minimum is over all functions h from rows to
    class probabilities, not only over linear ones. The optimum is known in closed form up to n + K + 1 numbers:
    h(k | x) ∝ exp(a_k(x)), where a_k(x) = max_i(−α c((x, k), z_i) − β_i) − λ_k compares x with the labeled rows z_i.
    Only distances enter, so any metric works. No classifier has a smaller certified log loss over the same set
    (docs/minimax.md).

    Parameters
    ----------
    radius : float, "predictive", "calibrated" or CalibratedRadius, default="predictive"
        Radius of the decision set. "predictive": the minimal radius plus 5 % of the label cost, which predicts well but
        guarantees nothing about the true distribution. "calibrated": estimated from half-splits of the labeled rows,
        see `calibrate_radius`. If the label probabilities are intervals, the classifier is learned over the smallest
        single set that contains the union of sets of the calibrated radius, and certified over the union.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, as for `RobustLogisticRegression`.
    label_cost : float, "auto", "median" or array of shape (K, K), default="auto"
        Cost κ of changing a label, as for `RobustLogisticRegression`. "auto": 1 if the radius is a number, otherwise
        "median".
    metric : str, FeatureMetric or callable, default="auto"
        Distance d between rows, as for `RobustLogisticRegression`. "auto": "euclidean" if the radius is a number,
        otherwise "learned". "precomputed": X (n, n) holds the distances between labeled rows, X_unlabeled (M, n) and
        X_target (M, n) those to the labeled rows, and so do the rows passed to `predict`.
    tol : float, default=1e-4
        Certified gap to reach, absolute, in units of the loss. A larger final gap raises a ConvergenceWarning.
    classes : array of shape (K,) or None, default=None
        All classes, if the labels may miss some.
    max_iter : int, default=600
        Maximum number of Newton steps.
    n_jobs : int or None, default=None
        Number of threads over groups of rows. The result does not depend on it.
    compute : Compute or None, default=None
        Where sums over blocks of rows run, as for `RobustLogisticRegression`.

    Attributes
    ----------
    certificate_ : Certificate
        Upper and lower bound on the worst expected log loss of this classifier over the decision set. Its `limit` is a
        lower bound for every classifier.
    worst_case_ : WorstCase
        The distribution that attains the lower bound.
    radius_ : float
        Radius of the decision set.
    metric_ : FeatureMetric
        The metric of the fit.
    label_cost_ : float or array of shape (K, K)
        The label cost of the fit.
    classes_ : array of shape (K,)
        Classes in sorted order.
    n_iter_ : int
        Number of Newton steps.

    Examples
    --------
    >>> import surefoot as sf
    >>> clf = sf.MinimaxClassifier(radius=0.5, label_prior=[0.5, 0.5])
    >>> clf.fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9], [1.1]]).predict([[0.2], [3.0]])
    array([0, 1])
    """

    def __init__(
        self,
        radius: float | str | CalibratedRadius = "predictive",
        label_prior: LabelPrior | ArrayLike | str | None = "auto",
        label_cost: ArrayLike | str = "auto",
        metric: FeatureMetric | str | Callable[..., float] = "auto",
        tol: float = 1e-4,
        classes: ArrayLike | None = None,
        *,
        max_iter: int = 600,
        n_jobs: int | None = None,
        compute: Compute | None = None,
    ) -> None:
        self.radius = radius
        self.label_prior = label_prior
        self.label_cost = label_cost
        self.metric = metric
        self.tol = tol
        self.classes = classes
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.compute = compute

    @with_callbacks
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_unlabeled: Any = None,
        X_target: Any = None,
    ) -> MinimaxClassifier:
        """Fit the classifier to labeled and unlabeled rows.

        Parameters
        ----------
        X : array of shape (n, d)
            Labeled rows, or with metric="precomputed" the distances (n, n) between them.
        y : array of shape (n,)
            Their labels, of two or more classes.
        sample_weight : array of shape (n,) or None, default=None
            Weight of each labeled row, both among the labeled rows and in the feature marginal. Each unlabeled row has
            weight 1 in the feature marginal.
        X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
            Unlabeled rows, in any form that `RobustLogisticRegression` accepts.
        X_target : array of shape (M, d), Unlabeled or None, default=None
            Rows of another population, which replace X and X_unlabeled as the feature marginal.

        Returns
        -------
        MinimaxClassifier
            The estimator itself, fitted.
        """
        progress = FitProgress(self)
        asked = resolve_radius(self.radius, auto=True)
        if asked == AUTO:
            raise ParameterError(
                "radius", 'must be a number, "predictive" or "calibrated"', '"auto"', "Pass one of these."
            )
        tol, max_iter = check_positive_scalar(self.tol, "tol"), check_positive_integer(self.max_iter, "max_iter")
        label_cost, metric = ground_cost_of(self, from_data=not isinstance(asked, float))
        problem = problem_of_fit(
            self, X, y, sample_weight, X_unlabeled, X_target, label_prior=label_prior_of(self), label_cost=label_cost,
            metric=metric, tol=tol, n_jobs=check_n_jobs(self.n_jobs), compute=self.compute, merge=True,
        )  # fmt: skip
        options = NewtonOptions(max_steps=max_iter)
        if asked == PREDICTIVE:
            if not isinstance(problem.data.metric, Precomputed):
                problem = problem.with_label_shares(predicted_shares(problem))
            asked = problem.minimal.value + EXCESS * float(problem.decision_set.label_cost.max())
            certificate, solution = _certified(problem, asked, tol, options, progress)
            certificate = replace(certificate, guaranteed=False)
        else:
            certificate, solution = _certified(problem, asked, tol, options, progress)
        self._response = _Response.from_solution(problem, solution)
        self.certificate_, self.worst_case_ = certificate, certificate.worst_case
        self.radius_, self.n_iter_ = certificate.radius, max(1, solution.n_steps)
        self.metric_, self.label_cost_ = certificate.metric, certificate.label_cost
        warn_about(certificate.status, certificate.gap, tol)
        progress.done()
        return self

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Predict the logarithm of each class probability.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows with the same features as in `fit`, or with metric="precomputed" their distances (N, n) to the labeled
            rows.

        Returns
        -------
        array of shape (N, K)
            Log probabilities, with columns in the order of `classes_`.
        """
        check_is_fitted(self)
        return -self._response(validate_data(self, X, reset=False, dtype=np.float64))

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Predict the probability of each class at each row.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows as for `predict_log_proba`.

        Returns
        -------
        array of shape (N, K)
            Probabilities, with columns in the order of `classes_`.
        """
        proba: FloatArray = np.exp(self.predict_log_proba(X))
        return proba / proba.sum(axis=1, keepdims=True)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows as for `predict_log_proba`.

        Returns
        -------
        array of shape (N,)
            Predicted classes.
        """
        best = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[best]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_precomputed(self.metric)
        return tags


def _certified(
    problem: RobustProblem,
    radius: float | str | CalibratedRadius,
    tol: float,
    options: NewtonOptions,
    progress: FitProgress,
) -> tuple[Certificate, Solution]:
    """Learn over one set, and return the certificate. With a union of sets, learn over one set that contains it."""
    objective = problem.any_classifier()
    members, estimate = problem.members(radius)
    learned = members if estimate is None else problem.containing(estimate.excess)
    solution = objective.solve(learned, tol=tol, options=options, on_round=progress.round)
    response = _Response.from_solution(problem, solution)
    if len(members) == 1:
        certificate = objective.certificate([solution], LOG_LOSS, tol=tol, estimate=estimate, losses_at=response)
        return replace(certificate, limit=solution.lower), solution
    held = isinstance(problem, InMemoryProblem)
    losses = np.vstack([response(part) for part in problem.row_blocks]) if held else response
    judged = problem.fixed(losses, scale=1.0)
    solutions = judged.worst_over(members, tol=tol)
    certificate = judged.certificate(solutions, LOG_LOSS, tol=tol, estimate=estimate, losses_at=response)
    return replace(certificate, limit=problem.limit(members, tol=tol)), solution


@dataclass(frozen=True, eq=False)
class _Response:
    """Log losses (M, K) of the best response to a dual point, at any rows.

    anchors : (n, d) labeled rows in the order of the decision set (without rows); columns : positions (n,) of the
    anchors among the labeled rows if distances are precomputed, otherwise None.
    """

    decision_set: DecisionSet
    point: DualPoint
    anchors: FloatArray
    metric: FeatureMetric
    columns: NDArray[np.intp] | None

    @classmethod
    def from_solution(cls, problem: RobustProblem, solution: Solution) -> _Response:
        ds = solution.decision_set
        bare = replace(ds, distances=np.empty((0, len(ds.anchor_weights))), row_weights=np.empty(0))
        metric = problem.data.metric
        columns = ds.anchor_rows if isinstance(metric, Precomputed) else None
        return cls(bare, solution.point, problem.anchors, metric, columns)

    def __call__(self, rows: Any) -> FloatArray:
        rows = np.asarray(rows, dtype=np.float64)
        found = [np.empty((0, self.decision_set.n_classes))]
        for part in row_chunks(len(rows), len(self.anchors)):
            some = rows[part]
            distances = self.metric.distances(some, self.anchors) if self.columns is None else some[:, self.columns]
            found.append(best_response(self.decision_set, distances, self.point))
        return np.concatenate(found)
