"""Curves over the radius: a model learned at each radius, and a fixed classifier judged at each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, log_loss

from surefoot._callbacks import FitProgress
from surefoot._errors import see, warn_caller
from surefoot._printing import PrintedTable
from surefoot._types import FloatArray
from surefoot._validation import check_finite_array, check_positive_integer, check_positive_scalar
from surefoot.blocks.newton import Newton
from surefoot.blocks.placement import check_problem
from surefoot.certify import ClassifierLoss, known_classes
from surefoot.costs import FeatureMetric
from surefoot.dual.adversary import meet
from surefoot.estimators.ball import WassersteinLogisticRegression, ball_risk_of
from surefoot.estimators.fit_problem import FitProblem
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.exact.judge import JointState
from surefoot.exact.solution import Solution
from surefoot.losses import LOG_LOSS, probabilities
from surefoot.priors import LabelPrior
from surefoot.radius import weighted_median
from surefoot.unlabeled import Unlabeled

if TYPE_CHECKING:
    from surefoot.plots import RadiusPathDisplay


@dataclass(frozen=True, eq=False, repr=False)
class RadiusPath(PrintedTable):
    """What is learned at each of m radii.

    Attributes
    ----------
    radii : array of shape (m,)
        Radii, increasing.
    minimal_radius : float
        The smallest radius at which the decision set is not empty; 0 for the ball alone.
    risk : array of shape (m,)
        Upper bounds of the certificates.
    lower : array of shape (m,)
        Lower bounds of the certificates.
    likelihood : array of shape (m,)
        Certified likelihoods, exp(−risk).
    median_confidence : array of shape (m,)
        Median over all rows of the largest class probability.
    max_confidence : array of shape (m,)
        Largest over all rows of the largest class probability.
    coef : array of shape (m, 1, d), or (m, K, d) for K ≥ 3 classes
        Coefficients.
    intercept : array of shape (m, 1), or (m, K)
        Intercepts.
    status : list of m str
        How the solver ended.
    test_score : array of shape (m,) or None
        Accuracy on the test rows, where there are some.
    test_likelihood : array of shape (m,) or None
        Likelihood exp(−log loss) on the test rows, where there are some.
    """

    radii: FloatArray
    minimal_radius: float
    risk: FloatArray
    lower: FloatArray
    median_confidence: FloatArray
    max_confidence: FloatArray
    coef: FloatArray
    intercept: FloatArray
    status: list[str]
    test_score: FloatArray | None = None
    test_likelihood: FloatArray | None = None

    @property
    def likelihood(self) -> FloatArray:
        """Certified likelihoods (m,), exp(−risk)."""
        return np.exp(-self.risk)

    def __len__(self) -> int:
        return len(self.radii)

    def plot(self, *, ax: Any = None) -> RadiusPathDisplay:
        """Draw certified likelihood and confidence along the radius.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        plots.RadiusPathDisplay
            The display, drawn.
        """
        from surefoot.plots import RadiusPathDisplay

        return RadiusPathDisplay.from_path(self, ax=ax)

    def to_frame(self) -> Any:
        """The path as a table.

        Returns
        -------
        pandas.DataFrame
            One row per radius, coefficients left out.
        """
        import pandas as pd

        return pd.DataFrame(self._columns())

    def _columns(self) -> dict[str, Any]:
        names = ["risk", "lower", "likelihood", "median_confidence", "max_confidence", "status"]
        names += [name for name in ("test_score", "test_likelihood") if getattr(self, name) is not None]
        return {"radius": self.radii} | {name: getattr(self, name) for name in names}


def radius_path(
    estimator: RobustLogisticRegression | WassersteinLogisticRegression,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None = None,
    radii: ArrayLike | None = None,
    n_radii: int = 16,
    sample_weight: ArrayLike | None = None,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
) -> RadiusPath:
    """Learn along a grid of radii, with as few solves as the tolerance takes, each started from the nearest one.

    Parameters
    ----------
    estimator : RobustLogisticRegression or WassersteinLogisticRegression
        Its parameters are used, but for the radius; it is not changed.
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        Unlabeled rows; none for the ball alone.
    radii : array of shape (m,) or None, default=None
        Radii, increasing. By default n_radii of them: the minimal radius plus κ·10^−3 … κ, evenly on a log scale. A
        label is flipped at the cost κ, so that at an excess of κ the adversary may choose all labels.
    n_radii : int, default=16
        How many radii, where none are given.
    sample_weight : array of shape (n,) or None, default=None
        How many times each labeled row counts; by default once.
    X_test : array of shape (T, d) or None, default=None
        Rows on which each model is scored.
    y_test : array of shape (T,) or None, default=None
        Their labels.

    Returns
    -------
    RadiusPath
        Each entry equals a single fit at its radius, to the tolerance of the estimator; without a penalty the risk
        never falls along the path.

    Examples
    --------
    >>> import surefoot as sf
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.5], [0.9]]
    >>> path = sf.radius_path(sf.RobustLogisticRegression(), X, y, X_unlabeled=U, radii=[0.3, 0.6])
    >>> bool(path.risk[0] < path.risk[1])
    True
    """
    if not isinstance(estimator, RobustLogisticRegression | WassersteinLogisticRegression):
        raise ValueError(
            "estimator must be a RobustLogisticRegression or a WassersteinLogisticRegression; got "
            f"{type(estimator).__name__}. Pass one of these, or use worst_case_curve for a fixed classifier."
        )
    model = clone(estimator)
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be given together; got one of them. Pass both, or neither.")
    if isinstance(model, WassersteinLogisticRegression):
        if X_unlabeled is not None:
            raise ValueError("the ball alone takes no unlabeled rows; got X_unlabeled. Leave it out.")
        minimal = 0.0
        # without label flips the spread of the features is the only scale there is
        scale = float(model.label_cost) if np.isfinite(model.label_cost) else _spread(X)
        steps = _ball_steps(model, X, y, sample_weight, _grid(radii, n_radii, 0.0, scale or 1.0))
        labeled = np.asarray(X, dtype=np.float64)
        rows: Iterable[FloatArray] = [labeled]
        weights = np.ones(len(labeled)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    else:
        model.radius = 0.0  # radii are numbers, and the ground cost and penalty those of fits at numbers
        problem = FitProblem.of(model, X, y, sample_weight, X_unlabeled, FitProgress(model))
        minimal = problem.problem.minimal.value
        grid = _grid(radii, n_radii, minimal, float(problem.problem.decision_set.label_cost.max()))
        steps = _robust_steps(problem, grid)
        _warn_about_gap(max(step.risk - step.lower for step in steps), problem.settings.tol)
        rows, weights = problem.problem.row_blocks, problem.problem.row_weights
    return _as_path(model, steps, minimal, rows, weights, X_test, y_test)


@dataclass(frozen=True)
class _Step:
    """The model at one radius of a path, and both bounds there."""

    radius: float
    coef: FloatArray
    intercept: FloatArray
    risk: float
    lower: float
    status: str


def _robust_steps(problem: FitProblem, grid: FloatArray) -> list[_Step]:
    tol = problem.settings.tol
    steps = []
    for radius, bound in zip(grid, bound_along(grid, problem.at, tol), strict=True):
        best = bound.solution
        coef, intercept = problem.game.coefficients(best.theta)
        penalty = best.model.penalty_value(best.theta)
        status = best.status if bound.upper - bound.lower <= tol else "stopped"
        steps.append(_Step(radius, coef, intercept, bound.upper - penalty, bound.lower - penalty, status))
    return steps


def _ball_steps(
    model: WassersteinLogisticRegression,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    grid: FloatArray,
) -> list[_Step]:
    steps = []
    for radius in grid:
        found = model.set_params(radius=float(radius)).fit(X, y, sample_weight=sample_weight).certificate_
        steps.append(_Step(radius, model.coef_, model.intercept_, found.risk, found.lower, found.status))
    return steps


@dataclass(frozen=True)
class _Bound:
    """Bounds of the worst case at one radius; the upper one is that of `solution`, solved at this radius or another."""

    upper: float
    lower: float
    solution: Solution


def bound_along(grid: FloatArray, solve: Callable[..., Solution], tol: float) -> list[_Bound]:
    """Bounds at each radius of an increasing grid to a gap of tol, by as few solves as that takes.

    The worst case is concave in the radius: a dual point solved for at one radius bounds it from above at all others,
    by a line of slope α, and between two radii it lies above the chord of their lower bounds. So a radius is only
    solved for where line and chord are more than tol apart: the ends first, then halves of what is left, each started
    from the nearest solution.
    """
    solved: dict[int, Solution] = {}

    def at(i: int) -> _Bound:
        best = min(solved.values(), key=lambda s: s.risk + s.point.alpha * (grid[i] - s.decision_set.radius))
        upper = best.risk + best.point.alpha * (grid[i] - best.decision_set.radius)
        known = sorted(solved)
        lower = float(np.interp(grid[i], grid[known], [solved[k].lower for k in known]))
        return _Bound(upper, meet(upper, lower), best)

    def settle(i: int) -> None:
        nearest = min(solved, key=lambda k: abs(k - i), default=None)
        solved[i] = solve(float(grid[i]), warm_start=None if nearest is None else solved[nearest].checkpoint)

    def between(a: int, b: int) -> None:
        if b - a < 2 or all(at(i).upper - at(i).lower <= tol for i in range(a + 1, b)):
            return
        middle = (a + b) // 2
        settle(middle)
        between(a, middle)
        between(middle, b)

    settle(0)
    if len(grid) > 1:
        settle(len(grid) - 1)
        between(0, len(grid) - 1)
    return [at(i) for i in range(len(grid))]


def _spread(X: ArrayLike) -> float:
    """Standard deviation of the rows about their mean."""
    return float(np.linalg.norm(np.asarray(X, dtype=np.float64).std(axis=0)))


def _warn_about_gap(gap: float, tol: float) -> None:
    if gap > tol:
        warn_caller(
            f"the certified gap is {gap:.2e} at its largest, above tol={tol:.2e}; both bounds hold all the same. Raise "
            "max_iter or tol, or leave out radii close to the minimal one." + see("gap"),
            ConvergenceWarning,
        )


def _grid(radii: ArrayLike | None, n_radii: int, minimal: float, kappa: float) -> FloatArray:
    if radii is None:
        return minimal + kappa * np.geomspace(1e-3, 1.0, check_positive_integer(n_radii, "n_radii"))
    grid = np.atleast_1d(check_finite_array(radii, "radii"))
    if grid.ndim != 1 or len(grid) == 0 or (grid < 0).any() or (np.diff(grid) <= 0).any():
        raise ValueError(
            f"radii must be non-negative and increasing; got {np.array2string(grid, threshold=8)}. Pass "
            "np.sort(radii), each radius once."
        )
    return grid


def _as_path(
    model: RobustLogisticRegression | WassersteinLogisticRegression,
    steps: list[_Step],
    minimal: float,
    rows: Iterable[FloatArray],
    weights: FloatArray,
    X_test: ArrayLike | None,
    y_test: ArrayLike | None,
) -> RadiusPath:
    median, largest, score, likelihood = [], [], [], []
    for step in steps:
        top = np.concatenate([probabilities(part @ step.coef.T + step.intercept).max(axis=1) for part in rows])
        median.append(weighted_median(top, weights))
        largest.append(float(top[weights > 0].max()))
        if X_test is not None:
            model.coef_, model.intercept_ = step.coef, step.intercept
            score.append(accuracy_score(y_test, model.predict(X_test)))
            likelihood.append(np.exp(-log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)))
    return RadiusPath(
        radii=np.array([step.radius for step in steps]),
        minimal_radius=minimal,
        risk=np.array([step.risk for step in steps]),
        lower=np.array([step.lower for step in steps]),
        median_confidence=np.array(median),
        max_confidence=np.array(largest),
        coef=np.array([step.coef for step in steps]),
        intercept=np.array([step.intercept for step in steps]),
        status=[step.status for step in steps],
        test_score=np.array(score) if X_test is not None else None,
        test_likelihood=np.array(likelihood) if X_test is not None else None,
    )


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
    grid = _grid(radii, 1, 0.0, 1.0)
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
    _warn_about_gap(max(bound.upper - bound.lower for bound in bounds), tol)
    risk, lower = np.array([[bound.upper, bound.lower] for bound in bounds]).T
    return WorstCaseCurve(grid, risk, lower, problem.minimal.value, judged.name, False)
