"""The paper's Algorithms 1 and 2 as an estimator and a query strategy.

Algorithm 1 minimises the dual of the robust problem by stochastic steps; its certificate comes from the exact solver.
Algorithm 2 gives the robust score of a candidate x*,

    inf_μ E^μ[f(x*, Y) | x*] =
        −inf over α, λ̄, λ ≥ 0, β of  αε + Σ_i w_i β_i + Σ_k (λ̄_k p_hi_k − λ_k p_lo_k) + E_{P_X} Ψ(x)

where Ψ is Φ with the losses −1[x = x*] f(x, y) / φ̂(x) (paper, eq. active-dual). It is the reference for the exact
scores of `robust_model_change`, which need no such iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._validation import FitProgress, FloatArray, warn_about_gap, with_callbacks
from surefoot.active.flexibility import check_impact, label_flexibility
from surefoot.active.strategies import Impact, RobustModelChange
from surefoot.certificates.calibration import PREDICTIVE, CalibratedRadius, resolve_radius
from surefoot.certificates.certificate import Certificate
from surefoot.costs.metrics import FeatureMetric
from surefoot.dual.adversary import meet
from surefoot.dual.bounds import dual_value
from surefoot.dual.models import Coordinates, FixedLosses
from surefoot.estimators.base import LinearClassifier
from surefoot.estimators.fit_problem import FitProblem, FitSettings
from surefoot.paper.stochastic_gradient import StochasticGradient, check_steps, run_algorithm1
from surefoot.priors import LabelPrior
from surefoot.problem.robust import InMemoryProblem, RobustProblem
from surefoot.problem.rows import Unlabeled
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal_radius import check_radius
from surefoot.solvers.search.best_bounds import JointState, SetAtRadius
from surefoot.solvers.search.solution import Solution

# The paper's Algorithm 1 as an estimator, with a certificate from the exact solver.


class StochasticRobustLogisticRegression(LinearClassifier):
    """Learn by Algorithm 1: the same problem as `RobustLogisticRegression`, solved by stochastic subgradients.

    The features are taken as given, so scale them first. The coefficients of the last step get a certificate from the
    exact solver, which makes this fit slower than that of `RobustLogisticRegression`.

    Parameters
    ----------
    radius : float, "auto", "calibrated" or CalibratedRadius, default="auto"
        Radius of the decision set. "auto": the paper's as-robust-as-possible rule. "calibrated": estimated from
        half-splits of the labeled rows; Algorithm 1 then requires exact label probabilities.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, as in `RobustLogisticRegression`.
    label_cost : float, "median" or array of shape (K, K), default=1.0
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    tol : float, default=1e-4
        Certified gap above which a ConvergenceWarning is given; the steps do not depend on it.
    classes : array of shape (K,) or None, default=None
        All classes, if the labels may miss some.
    l2 : float, default=0.0
        Weight of ½‖θ‖², added to the worst expected loss; the intercept is free.
    fit_intercept : bool, default=True
        Whether the scores have an intercept.
    confidence : float, default=0.7
        Threshold of radius="auto".
    max_iter : int, default=600
        Bound on the Newton steps of the certificate.
    n_jobs : int or None, default=None
        Threads over groups of rows in the certificate.
    steps : StochasticGradient or None, default=None
        Step settings; None is `StochasticGradient()`.

    Attributes
    ----------
    coef_ : array of shape (1, d), or (K, d) for K ≥ 3 classes
        Coefficients of the features as they are given.
    intercept_ : array of shape (1,), or (K,)
        Intercepts, zero without `fit_intercept`.
    certificate_ : Certificate
        Both bounds of the learning problem: the worst case of these coefficients from above, the exact solver's
        adversary from below.
    worst_case_ : WorstCase
        The distribution behind the lower bound.
    radius_ : float
        Radius of the decision set.
    metric_ : FeatureMetric
        The metric of the fit.
    label_cost_ : float or array of shape (K, K)
        The label cost of the fit.
    l2_ : float
        The penalty of the fit.
    classes_ : array of shape (K,)
        Classes in sorted order.
    n_iter_ : int
        Stochastic steps.

    Examples
    --------
    >>> from surefoot import paper
    >>> clf = paper.StochasticRobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5], tol=0.01)
    >>> clf.fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9], [1.1]]).certificate_.status
    'optimal'
    """

    def __init__(
        self,
        radius: float | str | CalibratedRadius = "auto",
        label_prior: LabelPrior | ArrayLike | str | None = "auto",
        label_cost: ArrayLike | str = 1.0,
        metric: FeatureMetric | str | Callable[..., float] = "euclidean",
        tol: float = 1e-4,
        classes: ArrayLike | None = None,
        *,
        l2: float = 0.0,
        fit_intercept: bool = True,
        confidence: float = 0.7,
        max_iter: int = 600,
        n_jobs: int | None = None,
        steps: StochasticGradient | None = None,
    ) -> None:
        self.radius = radius
        self.label_prior = label_prior
        self.label_cost = label_cost
        self.metric = metric
        self.tol = tol
        self.classes = classes
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.confidence = confidence
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.steps = steps

    @with_callbacks
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_unlabeled: Any = None,
        X_target: Any = None,
    ) -> StochasticRobustLogisticRegression:
        """Learn from labeled and unlabeled rows.

        Parameters
        ----------
        X : array of shape (n, d)
            Labeled rows.
        y : array of shape (n,)
            Their labels, of two or more classes.
        sample_weight : array of shape (n,) or None, default=None
            How many times each labeled row counts, among the labeled rows and in the feature marginal.
        X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
            Unlabeled rows.
        X_target : array of shape (M, d), Unlabeled or None, default=None
            Rows of another population: they alone are the feature marginal then.

        Returns
        -------
        StochasticRobustLogisticRegression
            The estimator itself, fitted.
        """
        progress = FitProgress(self)
        steps = check_steps(self.steps)
        radius = resolve_radius(self.radius, auto=True)
        if radius == PREDICTIVE:
            raise ParameterError(
                "radius",
                'must be a number at least 0, "auto", "calibrated" or CalibratedRadius(...)',
                repr(radius),
                "Pass one of these, or use RobustLogisticRegression.",
            )
        rows = StochasticFit.from_arguments(
            self, X, y, sample_weight, X_unlabeled, progress, X_target=X_target, memory_only=True
        )
        problem = replace(rows, steps=steps)
        problem.solve(radius).store(self)
        problem.warn_about(self.certificate_)
        progress.done()
        return self


@dataclass(frozen=True, eq=False)
class StochasticFit(FitProblem):
    """A fit by Algorithm 1 on the features as given."""

    steps: StochasticGradient = field(default_factory=StochasticGradient)

    @classmethod
    def over(cls, problem: RobustProblem, settings: FitSettings, progress: FitProgress) -> Self:
        if not isinstance(problem, InMemoryProblem):
            raise ParameterError(
                "X_unlabeled",
                "must be an array for Algorithm 1",
                "rows outside of memory",
                "Read them first, or use RobustLogisticRegression.",
            )
        rows = problem.data.everything
        as_given = Coordinates.as_given(rows.shape[1], settings.fit_intercept)
        model = as_given.model(rows, problem.decision_set.n_classes, settings.l2 or 0.0)
        return cls(settings, problem, problem.play(model, as_given), progress, settings.l2 or 0.0)

    def against(
        self, members: list[SetAtRadius], *, warm_start: JointState | None = None, tol: float | None = None
    ) -> Solution:
        """Both bounds of the learning problem at the coefficients that Algorithm 1 ends with.

        Upper: their own worst case, by the inner problem. Lower: the exact solver's adversary, against whom no
        coefficients do better. So the gap is what Algorithm 1 leaves to be gained.
        """
        asked, problem, model = self.settings, self.problem, self.linear_model
        tol = tol or asked.tol
        if len(members) > 1:
            raise ParameterError(
                "radius",
                "must make one decision set for Algorithm 1; a calibrated radius with label intervals makes several",
                f"a union of {len(members)}",
                "Pass exact label probabilities as $label_prior, or a number as $radius.",
            )
        ds = members[0].decision_set
        check_radius(ds, members[0].minimal)
        found = run_algorithm1(ds, model, self.steps, on_block=lambda steps, _value: self.progress.round(steps))
        theta = found.point.theta
        inner = problem.fixed(model.losses(theta, slice(None))).solve(members, tol=0.1 * tol, options=asked.options)
        exact = problem.linear(asked.l2 or 0.0, asked.fit_intercept).solve(
            members, tol=0.5 * tol, options=asked.options
        )
        risk = inner.risk + model.penalty_value(theta)
        status = "stopped" if risk - exact.lower > tol else "separable" if exact.status == "separable" else "optimal"
        part = replace(inner.parts[0], point=replace(inner.point, theta=theta), adversary=exact.adversary, risk=risk)
        return replace(
            exact,
            model=model,
            parts=(part,),
            risk=risk,
            lower=meet(risk, exact.lower),
            status=status,
            checkpoints=(),
            n_steps=int(found.steps[-1]),
        )

    def warn_about(self, found: Certificate) -> None:
        fix = (
            "Scale the features, raise n_steps, try other learning rates, raise $tol, or use RobustLogisticRegression."
        )
        warn_about_gap(found.gap, self.settings.tol, fix)


# The settings of the paper's appendix.
PAPER_STEPS = StochasticGradient(n_steps=50_000, decay=10.0, decay_every=5_000)
# The first step size, which the paper does not name, as a share of the losses' size, the spread of f(x*, ·)/φ̂(x*):
# that is how far the multipliers have to travel. Measured on random problems: with N = 40 rows it ends within a
# hundredth of the exact score, with more rows farther below, since x* itself is drawn but every N/100 steps.
_RATE = 0.03


def algorithm2(
    impact: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled,
    radius: float | Literal["ends", "minimal"] = "ends",
    margin: float | None = None,
    label_prior: LabelPrior | ArrayLike | str | None = "auto",
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classes: ArrayLike | None = None,
    candidates: ArrayLike | None = None,
    steps: StochasticGradient | None = None,
) -> FloatArray:
    """Scores ĝ of the paper's Algorithm 2, each a lower bound of `robust_model_change`.

    Of several runs with other step sizes or seeds the largest score is the nearest, since none can exceed the exact
    one. φ̂(x*) is the mass of the row in P_X.

    Parameters
    ----------
    impact : array of shape (M, K)
        Impacts f(x_j, k) of the rows of X_unlabeled, or of its `candidates`; classes in sorted order.
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d) or Unlabeled
        Unlabeled rows: those looked at.
    radius : float, "ends" or "minimal", default="ends"
        Radius of the decision set, or the rule for it: see `label_flexibility`.
    margin : float or None, default=None
        Added to the radius that a rule finds. None means 0.1·κ/N, see `label_flexibility`.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, with classes in sorted order: 95 % intervals from y ("clopper-pearson"), exact values (K,),
        intervals (K, 2), or None for no constraint.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    classes : array of shape (K,) or None, default=None
        All classes, if the labels may miss some.
    candidates : array of shape (m,) or None, default=None
        Indices of the rows of X_unlabeled to consider. None considers all.
    steps : StochasticGradient or None, default=None
        Step settings. None: Adam with batches of 100, 50,000 steps a candidate, the step size cut by 10 every 5,000. A
        learning_rate of None is 0.03 (max_k f(x*, k) − min_k f(x*, k)) / φ̂(x*), for each candidate.

    Returns
    -------
    array of shape (M,)
        A score per candidate.

    Examples
    --------
    >>> f = [[2.0, 1.0], [1.0, 2.0]]
    >>> algorithm2(f, [[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.3]], label_prior=[0.5, 0.5]).round(2)
    array([1.75, 1.75])
    """
    steps = PAPER_STEPS if steps is None else check_steps(steps)
    found = label_flexibility(
        X,
        y,
        X_unlabeled=X_unlabeled,
        radius=radius,
        margin=margin,
        label_prior=label_prior,
        label_cost=label_cost,
        metric=metric,
        classes=classes,
        candidates=candidates,
    )
    f = check_impact(impact, len(found.rows), len(found.classes))
    ds = found.decision_set.with_radius(found.radius)
    if found.features is not None:  # its stochastic steps draw any row at any time: all distances are held
        ds = replace(ds, distances=found.features.distances.distances_at(np.arange(len(ds.row_weights))))
    return np.array([algorithm2_score(ds, int(row), f[at], steps) for at, row in enumerate(found.rows)])


def algorithm2_score(ds: DecisionSet, row: int, impact: FloatArray, steps: StochasticGradient = PAPER_STEPS) -> float:
    """ĝ of one candidate: `row` counts all rows of the decision set, impact (K,) = f(x*, ·)."""
    if steps.learning_rate is None:
        spread = float(np.ptp(impact)) or 1.0  # where all labels have the same impact any step will do
        steps = replace(steps, learning_rate=_RATE * spread / float(ds.row_weights[row]))
    matrix = np.zeros((len(ds.row_weights), ds.n_classes))
    matrix[row] = -impact / ds.row_weights[row]
    losses = FixedLosses(matrix)
    return -dual_value(ds, losses, run_algorithm1(ds, losses, steps).point)


class StochasticModelChange(RobustModelChange):
    """DR as printed: the candidate with the largest score of Algorithm 2, one run of stochastic steps per candidate.

    `active.RobustModelChange` computes the exact scores, without these runs.

    Parameters
    ----------
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities: 95 % intervals from y, exact, intervals, or unconstrained.
    margin : float or None, default=None
        Added to the radius of a rule; None is 0.1·κ/N, see `active.label_flexibility`.
    radius : float, "ends" or "minimal", default="ends"
        Radius of the decision set, or the rule for it: see `active.label_flexibility`.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows.
    impact : "gradient" or function(clf, X) -> array (N, K), default="gradient"
        Impacts f(x_j, k) of labels.
    classes : array of shape (K,) or None, default=None
        All classes, if the classifier and the labels lack some.
    max_candidates : int or None, default=100
        Score a random subset of the candidates of this size, as the paper does; None scores all.
    missing_label : NaN, None or a label, default=NaN
        Marks a row without a label.
    random_state : int, RandomState or None, default=None
        Seed for sampling candidates and breaking ties.
    steps : StochasticGradient or None, default=None
        Step settings, see `algorithm2`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [0.45], [0.1]], [0, 1, np.nan, np.nan]
    >>> steps = StochasticGradient(n_steps=1000)
    >>> StochasticModelChange(label_prior=[0.5, 0.5], steps=steps).query(X, y, LogisticRegression())
    array([2])
    """

    def __init__(
        self,
        label_prior: LabelPrior | ArrayLike | str | None = "auto",
        margin: float | None = None,
        *,
        radius: float | Literal["ends", "minimal"] = "ends",
        label_cost: ArrayLike = 1.0,
        metric: FeatureMetric | str | Callable[..., float] = "euclidean",
        impact: Impact = "gradient",
        classes: ArrayLike | None = None,
        max_candidates: int | None = 100,
        missing_label: Any = np.nan,
        random_state: Any = None,
        steps: StochasticGradient | None = None,
    ) -> None:
        super().__init__(
            label_prior,
            margin,
            radius=radius,
            label_cost=label_cost,
            metric=metric,
            impact=impact,
            classes=classes,
            max_candidates=max_candidates,
            missing_label=missing_label,
            random_state=random_state,
        )
        self.steps = steps

    def _scores(self, *arguments: Any, **keywords: Any) -> FloatArray:
        return algorithm2(*arguments, **keywords, steps=self.steps)
