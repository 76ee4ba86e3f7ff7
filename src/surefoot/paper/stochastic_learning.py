"""The paper's Algorithm 1 as an estimator, with a certificate from the exact solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from numpy.typing import ArrayLike

from surefoot._callbacks import FitProgress, with_callbacks
from surefoot._convergence import warn_about_gap
from surefoot._errors import ParameterError
from surefoot.calibration import PREDICTIVE, Calibrated, resolve_radius
from surefoot.certificates.certificate import Certificate
from surefoot.costs import FeatureMetric
from surefoot.dual.adversary import meet
from surefoot.dual.design import Coordinates
from surefoot.estimators.base import LinearClassifier
from surefoot.estimators.fit_problem import FitProblem, FitSettings
from surefoot.exact.judge import JointState, Member
from surefoot.exact.problem import HeldProblem, RobustProblem
from surefoot.exact.solution import Solution
from surefoot.paper.stochastic_gradient import StochasticGradient, check_steps, run_algorithm1
from surefoot.priors import LabelPrior
from surefoot.solvers.minimal import check_radius


class StochasticRobustLogisticRegression(LinearClassifier):
    """Learn by Algorithm 1: the same problem as `RobustLogisticRegression`, solved by stochastic subgradients.

    The features are taken as given, so scale them first. The coefficients of the last step get a certificate from the
    exact solver, which makes this fit slower than that of `RobustLogisticRegression`.

    Parameters
    ----------
    radius : float, "auto", "calibrated" or Calibrated, default="auto"
        Radius of the decision set. "auto": the paper's as-robust-as-possible rule. "calibrated": estimated from
        half-splits of the labeled rows; Algorithm 1 then requires exact label probabilities.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, as in `RobustLogisticRegression`.
    label_cost : float, "median" or array of shape (K, K), default=1.0
        Cost κ of a change of label, or a matrix: [k, c] is the cost of turning label c of a labeled row into k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    tol : float, default=1e-4
        Certified gap above which a ConvergenceWarning is given; the steps do not depend on it.
    classes : array of shape (K,) or None, default=None
        All classes, where the labels may miss some.
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
        Classes, in sorted order.
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
        radius: float | str | Calibrated = "auto",
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
                'must be a number at least 0, "auto", "calibrated" or Calibrated(...)',
                repr(radius),
                "Pass one of these, or use RobustLogisticRegression.",
            )
        rows = StochasticFit.of(self, X, y, sample_weight, X_unlabeled, progress, X_target=X_target, memory_only=True)
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
        if not isinstance(problem, HeldProblem):
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
        self, members: list[Member], *, warm_start: JointState | None = None, tol: float | None = None
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
            checkpoint=None,
            n_steps=int(found.steps[-1]),
        )

    def warn_about(self, found: Certificate) -> None:
        fix = (
            "Scale the features, raise n_steps, try other learning rates, raise $tol, or use RobustLogisticRegression."
        )
        warn_about_gap(found.gap, self.settings.tol, fix)
