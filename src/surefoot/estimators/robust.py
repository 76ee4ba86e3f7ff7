"""The robust linear classifier, a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from surefoot._validation import FitProgress, with_callbacks
from surefoot.backends.compute import Compute
from surefoot.certificates.calibration import CalibratedRadius, resolve_radius
from surefoot.certificates.groups import GroupFunction
from surefoot.costs.metrics import FeatureMetric
from surefoot.estimators.base import LinearClassifier
from surefoot.estimators.fit_problem import FitProblem
from surefoot.priors import LabelPrior


class RobustLogisticRegression(LinearClassifier):
    """Learn the linear classifier with the smallest worst expected log loss over a decision set.

        min_θ  max_μ  E_μ[ℓ_θ(x, y)]

    The maximum is over all distributions μ that satisfy three conditions. The feature marginal is the empirical
    distribution of all rows, labeled and unlabeled. The label probabilities lie in given intervals. The transport
    distance to the labeled rows is at most the radius, with ground cost d(x, x') + κ·1[y ≠ y'] (paper, eq.
    worst-case-dual).

    Parameters
    ----------
    radius : float, "predictive", "auto", "calibrated" or CalibratedRadius, default="predictive"
        Radius of the decision set. "predictive": slightly more than the minimal radius, which predicts well
        (docs/prediction.md) but guarantees nothing about the true distribution. "auto": the largest radius at which the
        median confidence over all rows is at least `confidence` (the paper's as-robust-as-possible rule), to 5 % of its
        excess over the minimal radius. "calibrated": estimated from half-splits of the labeled rows, see
        `calibrate_radius`.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, with classes in sorted order: 95 % intervals from y ("clopper-pearson"), exact values (K,),
        intervals (K, 2), or None for no constraint. "hypergeometric" and "assisted" are described in `surefoot.priors`.
        "auto": "clopper-pearson", or None in two cases: with radius="predictive", because intervals from y assume that
        labels are a random sample (docs/prediction.md), and if X_target is passed to fit, because y contains no
        information about the label probabilities of X_target.
    label_cost : float, "auto", "median" or array of shape (K, K), default="auto"
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k. "median": the median distance between rows. "auto": "median" with radius="predictive" or "calibrated",
        otherwise 1.
    metric : str, FeatureMetric or callable, default="auto"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", "learned" (learned from the labels, see
        `surefoot.costs.LearnedMetric`), an object of `surefoot.costs`, or a function. "auto": "learned" with
        radius="predictive" or "calibrated", otherwise "euclidean", because a numeric radius is in the units of the
        features.
    tol : float, default=1e-4
        Certified gap to reach, absolute, in units of the loss. A larger final gap raises a ConvergenceWarning.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from y.
    l2 : float or "auto", default="auto"
        Weight of the penalty ½‖θ‖² added to the worst expected loss. The intercept is not penalized. "auto": with
        radius="predictive" the penalty of scikit-learn's LogisticRegression, 1/n on standardized features (or on
        features in the `unit` of a `costs.LearnedMetric`), otherwise no penalty.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    confidence : float, default=0.7
        Threshold for radius="auto".
    max_iter : int, default=600
        Maximum number of Newton steps per solve.
    n_jobs : int or None, default=None
        Number of threads over groups of rows. The result does not depend on it.
    compute : Compute or None, default=None
        Where sums over blocks of rows run (for example on a GPU), and how much memory they may use. None: in memory up
        to 2^24 distances, in blocks beyond.

    Attributes
    ----------
    coef_ : array of shape (1, d), or (K, d) for K ≥ 3 classes
        Coefficients in the units of the features passed.
    intercept_ : array of shape (1,), or (K,)
        Intercepts, zero if `fit_intercept=False`.
    certificate_ : Certificate
        Upper and lower bound on the worst expected loss over the decision set of the fit, defined by `radius_`,
        `metric_` and `label_cost_`. With radius="predictive" or "auto" it guarantees nothing about the true
        distribution (`certificate_.guaranteed` is False). Call `certify` with a radius that covers the true
        distribution for a guarantee.
    worst_case_ : WorstCase
        The distribution that attains the lower bound.
    radius_ : float
        Radius of the decision set.
    metric_ : FeatureMetric
        The metric of the fit. A learned metric includes its learned parameters, so it can measure any rows.
    label_cost_ : float or array of shape (K, K)
        The label cost of the fit.
    l2_ : float
        The penalty of the fit. With l2="auto" it applies to the features described under `l2`.
    classes_ : array of shape (K,)
        Classes in sorted order.
    n_iter_ : int
        Number of Newton steps of the last solve.

    Examples
    --------
    >>> import surefoot as sf
    >>> clf = sf.RobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5])
    >>> clf.fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9], [1.1]]).certificate_.status
    'optimal'
    """

    # Certified gap of the fits of a cross-validation. At this gap no prediction changes on generated tables
    # (python benchmarks/cli.py --tolerances).
    _tol_of_folds: ClassVar[float] = 1e-2

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
        groups: ArrayLike | GroupFunction | None = None,
    ) -> RobustLogisticRegression:
        """Fit the classifier to labeled and unlabeled rows.

        Parameters
        ----------
        X : array of shape (n, d)
            Labeled rows, and possibly rows without a label.
        y : array of shape (n,)
            Their labels, of two or more classes. -1, None or NaN mark a row without a label, which then counts like a
            row of X_unlabeled. -1 is a class if `classes` contains -1, or if all labels are -1 and 1.
        sample_weight : array of shape (n,) or None, default=None
            Weight of each labeled row, both among the labeled rows and in the feature marginal. Each unlabeled row has
            weight 1 in the feature marginal.
        X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
            Unlabeled rows, bare or in an `Unlabeled`. Memory maps, `ParquetRows`, Dask arrays and Dask dataframes are
            accepted. More than 2^24 distances are computed in blocks, and only one block needs to fit in memory (see
            `Compute`).
        X_target : array of shape (M, d), Unlabeled or None, default=None
            Rows of another population, in any form that X_unlabeled accepts. They replace X and X_unlabeled as the
            feature marginal (for example labels from last year, rows from this year).
        groups : array of shape (N,), function(rows) -> array, or None, default=None
            Group of each row of the feature marginal, as for `certify`: rows of X first, then rows of X_unlabeled, or
            rows of X_target alone. The classifier then minimizes the largest worst expected loss E[ℓ | group] over the
            groups. `certificate_.groups` has a certificate for each group, and `certificate_.risk` is the largest group
            bound. All rows must be in memory.

        Returns
        -------
        RobustLogisticRegression
            The estimator itself, fitted.
        """
        progress = FitProgress(self)
        asked = resolve_radius(self.radius, auto=True)
        problem = FitProblem.from_arguments(
            self, X, y, sample_weight, X_unlabeled, progress, X_target=X_target, groups=groups, compute=self.compute,
            merge=True,
        )  # fmt: skip
        problem.solve(asked).store(self)
        problem.warn_about(self.certificate_)
        progress.done()
        return self
