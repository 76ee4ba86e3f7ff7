"""A fixed classifier judged at each radius."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._printing import PrintedTable
from surefoot._types import FloatArray
from surefoot._validation import check_positive_scalar
from surefoot.blocks.newton import Newton
from surefoot.blocks.placement import check_problem
from surefoot.certify import ClassifierLoss, known_classes
from surefoot.costs import FeatureMetric
from surefoot.estimators.ball import ball_risk_of
from surefoot.exact.judge import JointState
from surefoot.exact.solution import Solution
from surefoot.losses import LOG_LOSS
from surefoot.path.along import bound_along, grid_of, warn_about_gap
from surefoot.priors import LabelPrior
from surefoot.unlabeled import Unlabeled


@dataclass(frozen=True, eq=False, repr=False)
class WorstCaseCurve(PrintedTable):
    """Worst expected loss of one classifier at m radii.

    Attributes
    ----------
    radii : array of shape (m,)
        Radii, increasing.
    risk : array of shape (m,)
        Upper bounds on the worst expected loss.
    lower : array of shape (m,)
        Lower bounds; for the ball alone the value is exact, and they equal `risk`.
    likelihood : array of shape (m,)
        Certified likelihoods, exp(−risk).
    minimal_radius : float
        The smallest radius at which the decision set is not empty; 0 for the ball alone.
    loss : str
        Name of the loss.
    ball : bool
        Whether the features were free to move.
    """

    radii: FloatArray
    risk: FloatArray
    lower: FloatArray
    minimal_radius: float
    loss: str
    ball: bool

    @property
    def likelihood(self) -> FloatArray:
        """Certified likelihoods (m,), exp(−risk)."""
        return np.exp(-self.risk)

    def _columns(self) -> dict[str, Any]:
        likelihood = {"likelihood": self.likelihood} if self.loss == LOG_LOSS else {}
        return {"radius": self.radii, "risk": self.risk, "lower": self.lower} | likelihood


def worst_case_curve(  # noqa: PLR0913 - one keyword per part of the problem
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    radii: ArrayLike,
    ball: bool = False,
    X_unlabeled: ArrayLike | Unlabeled | None = None,
    label_prior: LabelPrior | ArrayLike | str | None = "clopper-pearson",
    loss: str | ArrayLike = LOG_LOSS,
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    losses: ArrayLike | None = None,
    clip: float = 1e-12,
    tol: float = 1e-6,
    n_jobs: int | None = None,
    solver: Newton | None = None,
) -> WorstCaseCurve:
    """Worst expected loss of a fixed classifier as the radius grows, beyond the one it was trained with.

    Parameters
    ----------
    classifier : fitted classifier, or None with `losses`
        With `predict_proba` for the log loss, with `predict` for the other losses.
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    radii : array of shape (m,)
        Radii, increasing, the first at least the minimal radius.
    ball : bool, default=False
        The Wasserstein ball alone: features may move anywhere and nothing is known of the labels. Only for the log loss
        of a linear classifier of two classes (`coef_`, `intercept_`), where it is exact; `X_unlabeled` and
        `label_prior` then play no part.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        Unlabeled rows. Together with those of `X` they make up the feature marginal P_X.
    label_prior : "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="clopper-pearson"
        Label probabilities: 95 % intervals from y, exact, intervals, or unconstrained. Classes in sorted order.
    loss : "log_loss", "zero_one" or array of shape (K, K), default="log_loss"
        Loss to bound; a matrix has the loss of predicting class c where the truth is k at [k, c]. See `certify`.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of a change of label, or a matrix: [k, c] is the cost of turning label c of a labeled row into k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    classes : array of shape (K,) or None, default=None
        All classes; by default those of the classifier.
    sample_weight : array of shape (n,) or None, default=None
        How many times each labeled row counts; by default once.
    losses : array of shape (N, K) or None, default=None
        Your own losses in place of `loss`, rows of X first: the loss at row j if its label were k.
    clip : float, default=1e-12
        Smallest probability in the log loss.
    tol : float, default=1e-6
        Certified gap to reach at every radius.
    n_jobs : int or None, default=None
        Threads over groups of rows; None means one, -1 one per core.
    solver : Newton or None, default=None
        Where sums over blocks of rows run (a GPU, say), and how much memory they may keep. None: in memory up to 2^24
        distances, beyond in blocks.

    Returns
    -------
    WorstCaseCurve
        Both bounds at every radius.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.9]]
    >>> clf = LogisticRegression().fit(X, y)
    >>> curve = worst_case_curve(clf, X, y, radii=[0.3, 0.6], X_unlabeled=U)
    >>> bool(curve.risk[0] < curve.risk[1])
    True
    """
    grid = grid_of(radii, 1, 0.0, 1.0)
    tol = check_positive_scalar(tol, "tol")
    if ball:
        if not isinstance(loss, str) or loss != LOG_LOSS or losses is not None:
            raise ValueError(f"the ball alone is solved for loss={LOG_LOSS!r}; got another. Pass ball=False.")
        risk = ball_risk_of(classifier, X, y, grid, sample_weight=sample_weight, label_cost=label_cost, metric=metric)
        return WorstCaseCurve(grid, risk, risk.copy(), 0.0, LOG_LOSS, True)
    problem = check_problem(
        X,
        y,
        X_unlabeled=X_unlabeled,
        sample_weight=sample_weight,
        classes=known_classes(classifier, y, classes),
        metric=metric,
        label_prior=label_prior,
        label_cost=label_cost,
        solver=solver,
        n_jobs=n_jobs,
        tol=tol,
        memory_only=losses is not None,
    )
    judged = ClassifierLoss.of(classifier, problem.data.classes, loss, clip, own=losses is not None)
    game = judged.game(problem, X, X_unlabeled, losses)

    def solve(radius: float, *, warm_start: JointState | None) -> Solution:
        return game.solve(problem.at(radius), tol=tol, warm_start=warm_start)

    bounds = bound_along(grid, solve, tol)
    warn_about_gap(max(bound.upper - bound.lower for bound in bounds), tol)
    risk, lower = np.array([[bound.upper, bound.lower] for bound in bounds]).T
    return WorstCaseCurve(grid, risk, lower, problem.minimal.value, judged.name, False)
