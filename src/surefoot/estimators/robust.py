"""The robust linear classifier: a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from surefoot._validation import FitProgress, with_callbacks
from surefoot.backends.compute import Compute
from surefoot.certificates.calibration import CalibratedRadius, resolve_radius
from surefoot.costs import FeatureMetric
from surefoot.estimators.base import LinearClassifier
from surefoot.estimators.fit_problem import FitProblem
from surefoot.priors import LabelPrior


class RobustLogisticRegression(LinearClassifier):
    """Logistic regression that minimises the worst expected log loss over a decision set.

    min_θ  max_μ  E_μ[ℓ_θ(x, y)]

    where μ ranges over all distributions whose feature marginal is that of all rows given, labeled and unlabeled, whose
    label probabilities lie in given intervals, and whose transport distance to the labeled rows is at most the radius,
    with ground cost d(x, x') + κ·1[y ≠ y'] (paper, eq. worst-case-dual).

    Parameters
    ----------
    radius : float, "predictive", "auto", "calibrated" or CalibratedRadius, default="predictive"
        Radius of the decision set. "predictive": the minimal radius and a little more, which predicts well
        (docs/prediction.md); it guarantees nothing about the truth. "auto": the largest at which the median confidence
        over all rows is at least `confidence` (the paper's as-robust-as-possible rule), to 5 % of its excess over the
        minimal radius. "calibrated": estimated from half-splits of the labeled rows, see `calibrate_radius`.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities: 95 % intervals from y, exact, intervals, or unconstrained. Classes in sorted order. Also
        "hypergeometric" and "assisted", see `surefoot.priors`. "auto": "clopper-pearson", and None where fit is given
        X_target, of whose label probabilities y says nothing.
    label_cost : float, "auto", "median" or array of shape (K, K), default="auto"
        Cost κ of a change of label, or a matrix: [k, c] is the cost of turning label c of a labeled row into k.
        "median": the median distance between rows. "auto": "median" with radius="predictive", 1 with any other.
    metric : str, FeatureMetric or callable, default="auto"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", "learned" (from the labels, see
        `surefoot.costs.LearnedMetric`), an object of `surefoot.costs`, or a function. "auto": "learned" with
        radius="predictive", "euclidean" with any other: a radius that is a number has the unit of the features.
    tol : float, default=1e-4
        Certified gap to reach, in units of the loss (absolute); a ConvergenceWarning says so when it is not reached.
    classes : array of shape (K,) or None, default=None
        All classes, where the labels may miss some.
    l2 : float or "auto", default="auto"
        Weight of ½‖θ‖², added to the worst expected loss; the intercept is free. "auto": with radius="predictive" that
        of scikit-learn's LogisticRegression, 1/n on standardised features, or on features in the `unit` of a
        `costs.LearnedMetric`; with any other radius none.
    fit_intercept : bool, default=True
        Whether the scores have an intercept.
    confidence : float, default=0.7
        Threshold of radius="auto".
    max_iter : int, default=600
        Bound on the Newton steps of one solve.
    n_jobs : int or None, default=None
        Threads over groups of rows. The result does not depend on it.
    compute : Compute or None, default=None
        Where sums over blocks of rows run (a GPU, say), and how much memory they may keep. None: in memory up to 2^24
        distances, beyond in blocks.

    Attributes
    ----------
    coef_ : array of shape (1, d), or (K, d) for K ≥ 3 classes
        Coefficients of the features as they are given.
    intercept_ : array of shape (1,), or (K,)
        Intercepts, zero without `fit_intercept`.
    certificate_ : Certificate
        Both bounds on the worst expected loss over the decision set of the fit: the one of `radius_`, `metric_` and
        `label_cost_`. With radius="predictive" or "auto" it says how the fit ended (`certificate_.guaranteed` is
        False), and nothing about the truth: `certify` at a radius that covers the truth does.
    worst_case_ : WorstCase
        The distribution behind the lower bound.
    radius_ : float
        Radius of the decision set.
    metric_ : FeatureMetric
        The metric of the fit, which measures any rows: a learned one with what it learned.
    label_cost_ : float or array of shape (K, K)
        The label cost of the fit.
    l2_ : float
        The penalty of the fit; that of l2="auto" is on the features that `l2` describes.
    classes_ : array of shape (K,)
        Classes, in sorted order.
    n_iter_ : int
        Newton steps of the last solve.

    Examples
    --------
    >>> import surefoot as sf
    >>> clf = sf.RobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5])
    >>> clf.fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9], [1.1]]).certificate_.status
    'optimal'
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
        l2: float | str = "auto",
        fit_intercept: bool = True,
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
        self.l2 = l2
        self.fit_intercept = fit_intercept
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
    ) -> RobustLogisticRegression:
        """Learn from labeled and unlabeled rows.

        Parameters
        ----------
        X : array of shape (n, d)
            Labeled rows.
        y : array of shape (n,)
            Their labels, of two or more classes.
        sample_weight : array of shape (n,) or None, default=None
            How many times each labeled row counts, among the labeled rows and in the feature marginal, where each
            unlabeled row counts once.
        X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
            Unlabeled rows, bare or in an `Unlabeled`; also a memory map, `ParquetRows`, a Dask array or dataframe.
            Wherever the rows lie, more than 2^24 distances are computed in blocks, and no more than a block of them
            need be held (see `Compute`).
        X_target : array of shape (M, d), Unlabeled or None, default=None
            Rows of another population, as X_unlabeled may be: they alone are the feature marginal then, without those
            of X (labels from last year, rows from this year).

        Returns
        -------
        RobustLogisticRegression
            The estimator itself, fitted.
        """
        progress = FitProgress(self)
        asked = resolve_radius(self.radius, auto=True)
        problem = FitProblem.from_arguments(
            self, X, y, sample_weight, X_unlabeled, progress, X_target=X_target, compute=self.compute
        )
        problem.solve(asked).store(self)
        problem.warn_about(self.certificate_)
        progress.done()
        return self
