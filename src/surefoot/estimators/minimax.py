"""The minimax classifier: the best of all classifiers against a decision set, from distances alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from surefoot._validation import (
    FitProgress,
    FloatArray,
    check_n_jobs,
    check_positive_integer,
    check_positive_scalar,
    check_unit_scalar,
    with_callbacks,
)
from surefoot.backends.compute import Compute
from surefoot.certificates.calibration import AUTO, PREDICTIVE, CalibratedRadius, RadiusEstimate, resolve_radius
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.certification import ClassifierLoss
from surefoot.certificates.fresh import LossFunction
from surefoot.costs.metrics import FeatureMetric, Precomputed
from surefoot.dual.bounds import label_prices
from surefoot.dual.models import AnyClassifier, DualPoint
from surefoot.estimators.base import CertifiedClassifier, is_precomputed, problem_of_fit, warn_about
from surefoot.estimators.fit_problem import (
    AUTO_ROWS,
    AUTO_TOL,
    as_robust_as_possible,
    label_prior_of,
    predicted_shares,
)
from surefoot.priors import LabelPrior
from surefoot.problem.distances import row_chunks
from surefoot.problem.losses import LOG_LOSS, ZERO_ONE
from surefoot.problem.robust import InMemoryProblem, RobustProblem
from surefoot.problem.rows import choose_ground_cost
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.newton import NewtonOptions
from surefoot.solvers.search.best_bounds import SetAtRadius
from surefoot.solvers.search.solution import Solution

# radius="predictive": excess in units of the label cost.
EXCESS = 0.05
# Names of the loss of the optimum and of the loss of its most probable prediction. "" is a matrix.
_NAMES = {
    LOG_LOSS: (LOG_LOSS, ZERO_ONE),
    ZERO_ONE: ("randomized_error", ZERO_ONE),
    "": ("randomized_cost", "cost"),
}
# No effect here, because the log loss of the optimum is not clipped.
_CLIP = 1e-12


class MinimaxClassifier(CertifiedClassifier):
    """Learn the classifier with the smallest worst expected loss over a decision set, among all classifiers.

        min_h  max_μ  E_μ[ℓ(h(x), y)]

    The maximum is over the decision set of `RobustLogisticRegression`. The minimum is over all functions h from rows to
    class probabilities, not only over linear functions. The optimum has a closed form up to n + K + 1 numbers. For the
    log loss it is h(k | x) ∝ exp(a_k(x)), where a_k(x) = max_i(−α c((x, k), z_i) − β_i) − λ_k compares x with the
    labeled rows z_i. The optimum depends on the rows only through distances, so any metric works. No classifier has a
    smaller certified loss over the same set (docs/minimax.md).

    Parameters
    ----------
    radius : float, "predictive", "auto", "calibrated" or CalibratedRadius, default="predictive"
        Radius of the decision set. "predictive": the minimal radius plus 5 % of the label cost, which predicts well but
        guarantees nothing about the true distribution. "auto": the largest radius at which the median confidence over
        all rows is at least `confidence`, as for `RobustLogisticRegression`. "calibrated": estimated from half-splits
        of the labeled rows, see `calibrate_radius`. With label intervals, a calibrated radius gives a union of sets.
        The classifier is then learned over the smallest single set that contains the union, and certified over the
        union.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, as for `RobustLogisticRegression`.
    label_cost : float, "auto", "median" or array of shape (K, K), default="auto"
        Cost κ of changing a label, as for `RobustLogisticRegression`. "auto": 1 if the radius is a number, otherwise
        "median".
    metric : str, FeatureMetric or callable, default="auto"
        Distance d between rows, as for `RobustLogisticRegression`. "auto": "euclidean" if the radius is a number,
        otherwise "learned". "precomputed": X (n, n) holds the distances between labeled rows. X_unlabeled (M, n),
        X_target (M, n) and the rows passed to `predict` hold the distances to the labeled rows.
    tol : float, default=1e-4
        Certified gap to reach, absolute, in units of the loss. A larger final gap raises a ConvergenceWarning.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from y.
    loss : "log_loss", "zero_one" or array of shape (K, K), default="log_loss"
        The loss to minimize. Entry [k, c] of a matrix is the loss of predicting class c when the true class is k. With
        "zero_one" or a matrix, the optimum is a randomized rule that predicts c with probability h(c | x). `predict`
        returns the most probable prediction, see `deterministic_certificate_`. "zero_one" allows at most 10 classes, a
        matrix at most 6.
    confidence : float, default=0.7
        Threshold for radius="auto".
    max_iter : int, default=600
        Maximum number of Newton steps per solve.
    n_jobs : int or None, default=None
        Number of threads over groups of rows. The result does not depend on it.
    compute : Compute or None, default=None
        Where sums over blocks of rows run, as for `RobustLogisticRegression`.

    Attributes
    ----------
    certificate_ : Certificate
        Upper and lower bound on the worst expected loss over the decision set. They cover the probabilities for the log
        loss, and the randomized rule for other losses. `limit` is a lower bound for every classifier.
    deterministic_certificate_ : Certificate or None
        The certificate of `predict` over the same set, for "zero_one" or a matrix; None for the log loss.
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
        loss: str | ArrayLike = LOG_LOSS,
        confidence: float = 0.7,
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
        self.loss = loss
        self.confidence = confidence
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
            Labeled rows, and possibly rows without a label. With metric="precomputed", the distances (n, n) between
            labeled rows.
        y : array of shape (n,)
            Their labels, of two or more classes. -1, None or NaN mark a row without a label, which then counts like a
            row of X_unlabeled. -1 is a class if `classes` contains -1, or if all labels are -1 and 1.
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
        tol, max_iter = check_positive_scalar(self.tol, "tol"), check_positive_integer(self.max_iter, "max_iter")
        from_data = not isinstance(asked, float)
        label_cost, metric = choose_ground_cost(self.label_cost, self.metric, from_data=from_data)
        problem = problem_of_fit(
            self, X, y, sample_weight, X_unlabeled, X_target, label_prior=label_prior_of(self), label_cost=label_cost,
            metric=metric, tol=tol, n_jobs=check_n_jobs(self.n_jobs), compute=self.compute, merge=True,
        )  # fmt: skip
        costs = ClassifierLoss.from_arguments(self, problem.data.classes, self.loss, _CLIP, own=False).costs()
        confidence, options = check_unit_scalar(self.confidence, "confidence"), NewtonOptions(max_steps=max_iter)
        guaranteed = asked not in (PREDICTIVE, AUTO)
        if asked == PREDICTIVE:
            if not isinstance(problem.data.metric, Precomputed):
                problem = problem.with_label_shares(predicted_shares(problem))
            asked = problem.minimal.value + EXCESS * float(problem.decision_set.label_cost.max())
        elif asked == AUTO:
            asked = problem.minimal.value + _auto_excess(problem, costs, confidence, tol, options, progress)
        members, estimate = problem.members(asked)
        learned = members if estimate is None else problem.containing(estimate.excess)
        objective = problem.any_classifier(costs)
        solution = objective.solve(learned, tol=tol, options=options, on_round=progress.round)
        self._response = _Response.from_solution(problem, solution)
        of_rule, of_prediction = _NAMES[self.loss if isinstance(self.loss, str) else ""]
        if len(members) == 1:
            certificate = objective.certificate(
                [solution], of_rule, tol=tol, estimate=estimate, losses_at=self._response.losses,
                largest_loss=None if costs is None else float(costs.max()),
            )  # fmt: skip
            certificate = replace(certificate, limit=solution.lower)
        else:
            certificate = _certified(problem, members, self._response.losses, of_rule, tol, estimate)
            certificate = replace(certificate, limit=problem.limit(members, tol=tol, costs=costs))
        self.certificate_ = certificate = replace(certificate, guaranteed=guaranteed)
        self.deterministic_certificate_ = None
        if costs is not None:
            found = _certified(problem, members, self._response.losses_of_best, of_prediction, tol, estimate)
            self.deterministic_certificate_ = replace(found, limit=certificate.limit, guaranteed=guaranteed)
        self.worst_case_, self.radius_ = certificate.worst_case, certificate.radius
        self.metric_, self.label_cost_ = certificate.metric, certificate.label_cost
        self.n_iter_ = max(1, solution.n_steps)
        warn_about(certificate.status, certificate.gap, tol)
        progress.done()
        return self

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Predict the logarithm of each class probability, −inf for a probability of zero.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows with the same features as in `fit`. With metric="precomputed", their distances (N, n) to the labeled
            rows.

        Returns
        -------
        array of shape (N, K)
            Log probabilities, with columns in the order of `classes_`.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        if self._response.model.game is None:
            return -self._response.losses(rows)
        with np.errstate(divide="ignore"):
            return np.log(self._response.rule(rows))

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Predict the probability of each class at each row.

        With the log loss, the result contains the probabilities of the label. Otherwise it contains the probabilities
        with which the randomized rule predicts each class.

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


def _auto_excess(
    problem: RobustProblem,
    costs: FloatArray | None,
    confidence: float,
    tol: float,
    options: NewtonOptions,
    progress: FitProgress,
) -> float:
    """Return the excess radius of the as-robust-as-possible rule. For rows in blocks, use a sample."""
    if not isinstance(problem, InMemoryProblem):
        sample = problem.sample(AUTO_ROWS, 0)
        return _auto_excess(sample, costs, confidence, max(tol, AUTO_TOL), options, progress)
    objective = problem.any_classifier(costs)
    solve = partial(objective.solve, options=options, on_round=progress.round)
    found = as_robust_as_possible(problem, objective.model, confidence, tol, solve)
    return max(found.decision_set.radius - problem.minimal.value, 0.0)


def _certified(
    problem: RobustProblem,
    members: list[SetAtRadius],
    losses_at: LossFunction,
    name: str,
    tol: float,
    estimate: RadiusEstimate | None,
) -> Certificate:
    """Certify fixed losses, a function of rows, over one set or a union of sets."""
    held = isinstance(problem, InMemoryProblem)
    losses = np.vstack([losses_at(part) for part in problem.row_blocks]) if held else losses_at
    judged = problem.fixed(losses, scale=1.0)
    solutions = judged.worst_over(members, tol=tol)
    return judged.certificate(solutions, name, tol=tol, estimate=estimate, losses_at=losses_at)


@dataclass(frozen=True, eq=False)
class _Response:
    """The best response to a dual point, at any rows (M, d).

    anchors : (n, d) labeled rows in the order of the decision set (without rows); columns : positions (n,) of the
    anchors among the labeled rows if distances are precomputed, otherwise None.
    """

    model: AnyClassifier
    decision_set: DecisionSet
    point: DualPoint
    anchors: FloatArray
    metric: FeatureMetric
    columns: NDArray[np.intp] | None

    @classmethod
    def from_solution(cls, problem: RobustProblem, solution: Solution) -> _Response:
        ds = solution.decision_set
        bare = replace(ds, distances=np.empty((0, len(ds.anchor_weights))), row_weights=np.empty(0))
        metric, model = problem.data.metric, solution.model
        if not isinstance(model, AnyClassifier):
            raise TypeError("a best response requires the model of all classifiers")
        columns = ds.anchor_rows if isinstance(metric, Precomputed) else None
        return cls(model, bare, solution.point, problem.anchors, metric, columns)

    def losses(self, rows: Any) -> FloatArray:
        """Return losses (M, K) of the optimum: log losses, or expected losses of the randomized rule."""
        return self._at(rows, lambda prices: self.model.response_losses(prices, 0.0))

    def rule(self, rows: Any) -> FloatArray:
        """Return the probabilities (M, K) of the predictions."""
        return self._at(rows, self.model.rule)

    def losses_of_best(self, rows: Any) -> FloatArray:
        """Return losses (M, K) of the most probable prediction."""
        if self.model.game is None:
            raise TypeError("the log loss is that of probabilities, not of a prediction")
        return np.ascontiguousarray(self.model.game.costs[:, self.rule(rows).argmax(axis=1)].T)

    def _at(self, rows: Any, of_prices: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Evaluate a function of the prices (B, K) in chunks of rows."""
        rows = np.asarray(rows, dtype=np.float64)
        found = [np.empty((0, self.decision_set.n_classes))]
        for part in row_chunks(len(rows), len(self.anchors)):
            some = rows[part]
            distances = self.metric.distances(some, self.anchors) if self.columns is None else some[:, self.columns]
            found.append(of_prices(label_prices(self.decision_set, distances, self.point)))
        return np.concatenate(found)
