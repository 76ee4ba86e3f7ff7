"""`radius_curve` and its result: fit a model at each radius, or evaluate a fixed classifier, with few solves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.metrics import accuracy_score, log_loss

from surefoot._errors import ParameterError
from surefoot._printing import PrintedTable
from surefoot._validation import (
    FitProgress,
    FloatArray,
    check_finite_array,
    check_positive_integer,
    check_positive_scalar,
    warn_about_gap,
)
from surefoot.backends.compute import Compute
from surefoot.certificates.certification import ClassifierLoss, classes_to_certify
from surefoot.certificates.radius import weighted_median
from surefoot.costs.metrics import FeatureMetric
from surefoot.dual.adversary import meet
from surefoot.estimators.ball import WassersteinLogisticRegression, ball_risk_of
from surefoot.estimators.fit_problem import FitProblem
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.priors import LabelPrior
from surefoot.problem.losses import LOG_LOSS, probabilities
from surefoot.problem.placement import check_problem
from surefoot.problem.rows import Unlabeled
from surefoot.solvers.search.best_bounds import JointState
from surefoot.solvers.search.solution import Solution

if TYPE_CHECKING:
    from surefoot.plots import RadiusCurveDisplay

# The worst case as a function of the radius: `radius_curve`.

_OF_MODELS = ("median_confidence", "max_confidence", "status", "test_score", "test_likelihood")


@dataclass(frozen=True, eq=False, repr=False)
class RadiusCurve(PrintedTable):
    """Hold both bounds on the worst expected loss at m radii, for a fixed classifier or a model learned at each radius.

    Attributes
    ----------
    radii : array of shape (m,)
        Increasing radii.
    risk : array of shape (m,)
        Upper bounds on the worst expected loss.
    lower : array of shape (m,)
        Lower bounds. For a fixed classifier over a Wasserstein ball, they equal `risk`.
    likelihood : array of shape (m,)
        Certified likelihoods, exp(−risk).
    minimal_radius : float
        The smallest radius at which the decision set is not empty; 0 for a Wasserstein ball.
    loss : str
        Name of the loss.
    ball : bool
        Whether the set is a Wasserstein ball, in which features may move anywhere.
    median_confidence : array of shape (m,) or None
        Median over all rows of the largest class probability. This and the following fields are None for a fixed
        classifier.
    max_confidence : array of shape (m,) or None
        Maximum over all rows of the largest class probability.
    coef : array of shape (m, 1, d), or (m, K, d) for K ≥ 3 classes, or None
        Coefficients of the learned models.
    intercept : array of shape (m, 1), or (m, K), or None
        Intercepts of the learned models.
    status : list of m str, or None
        How the solver ended.
    test_score : array of shape (m,) or None
        Accuracy on the test rows; None without test rows.
    test_likelihood : array of shape (m,) or None
        Likelihood exp(−log loss) on the test rows; None without test rows.
    """

    radii: FloatArray
    minimal_radius: float
    risk: FloatArray
    lower: FloatArray
    loss: str = LOG_LOSS
    ball: bool = False
    median_confidence: FloatArray | None = None
    max_confidence: FloatArray | None = None
    coef: FloatArray | None = None
    intercept: FloatArray | None = None
    status: list[str] | None = None
    test_score: FloatArray | None = None
    test_likelihood: FloatArray | None = None

    @property
    def likelihood(self) -> FloatArray:
        """Certified likelihoods (m,), exp(−risk)."""
        return np.exp(-self.risk)

    def __len__(self) -> int:
        return len(self.radii)

    def plot(self, *, ax: Any = None) -> RadiusCurveDisplay:
        """Plot certified likelihood and confidence against the radius.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to plot on. None creates a new figure.

        Returns
        -------
        plots.RadiusCurveDisplay
            The plotted display.
        """
        from surefoot.plots import RadiusCurveDisplay

        return RadiusCurveDisplay.from_curve(self, ax=ax)

    def to_frame(self) -> Any:
        """Return the curve as a table.

        Returns
        -------
        pandas.DataFrame
            One row per radius, without coefficients.
        """
        import pandas as pd

        return pd.DataFrame(self._columns())

    def _columns(self) -> dict[str, Any]:
        names = ["risk", "lower", *(["likelihood"] if self.loss == LOG_LOSS else [])]
        names += [name for name in _OF_MODELS if getattr(self, name) is not None]
        return {"radius": self.radii} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class RadiusBound:
    """Bounds on the worst case at one radius. The upper bound is from `solution`, solved at this or another radius."""

    upper: float
    lower: float
    solution: Solution


def bound_along(grid: FloatArray, solve: Callable[..., Solution], tol: float) -> list[RadiusBound]:
    """Bound the worst case at each radius of an increasing grid to a gap of tol, with as few solves as possible.

    The worst case is concave in the radius. Therefore a dual point solved at one radius bounds the worst case from
    above at all other radii, by a line of slope α. Between two radii, the worst case lies above the chord of their
    lower bounds. A radius is only solved if line and chord differ by more than tol. The ends are solved first, then
    repeatedly the middle of the remaining radii. Each solve starts from the nearest solution.
    """
    solved: dict[int, Solution] = {}

    def at(i: int) -> RadiusBound:
        best = min(solved.values(), key=lambda s: s.risk + s.point.alpha * (grid[i] - s.decision_set.radius))
        upper = best.risk + best.point.alpha * (grid[i] - best.decision_set.radius)
        known = sorted(solved)
        lower = float(np.interp(grid[i], grid[known], [solved[k].lower for k in known]))
        return RadiusBound(upper, meet(upper, lower), best)

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


def grid_of(radii: ArrayLike | None, n_radii: int, minimal: float, kappa: float) -> FloatArray:
    """Validate the radii, or return `minimal` plus n_radii values from 1/1000 of the label cost to the full cost."""
    if radii is None:
        return minimal + kappa * np.geomspace(1e-3, 1.0, check_positive_integer(n_radii, "n_radii"))
    grid = np.atleast_1d(check_finite_array(radii, "radii"))
    if grid.ndim != 1 or len(grid) == 0 or (grid < 0).any() or (np.diff(grid) <= 0).any():
        raise ParameterError(
            "radii",
            "must be non-negative and increasing",
            np.array2string(grid, threshold=8),
            "Pass np.sort(radii), each radius once.",
        )
    return grid


def ball_scale(label_cost: Any, X: ArrayLike) -> float:
    """Return the label cost. If labels cannot change, return the spread of the features, the only scale of the ball."""
    if np.isfinite(label_cost):
        return float(label_cost)
    return float(np.linalg.norm(np.asarray(X, dtype=np.float64).std(axis=0))) or 1.0


def warn_about_largest_gap(gaps: Iterable[float], tol: float) -> None:
    """Warn if a curve did not reach its tolerance everywhere."""
    warn_about_gap(max(gaps), tol, "Raise $max_iter or $tol, or omit $radii close to the minimal radius.")


# Fit a model at each radius.


def learned_curve(
    estimator: RobustLogisticRegression | WassersteinLogisticRegression,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None,
    radii: ArrayLike | None,
    n_radii: int,
    sample_weight: ArrayLike | None,
    X_test: ArrayLike | None,
    y_test: ArrayLike | None,
) -> RadiusCurve:
    """Fit a model at each radius, with as few solves as the tolerance allows.

    Each solve starts from the nearest solution. Each entry equals a single fit at its radius, to the tolerance of the
    estimator.
    """
    if not isinstance(estimator, RobustLogisticRegression | WassersteinLogisticRegression):
        raise ParameterError(
            "classifier",
            "must be a RobustLogisticRegression or a WassersteinLogisticRegression if refit=True",
            type(estimator).__name__,
            "Pass one of these two, or refit=False.",
        )
    model = clone(estimator)
    if (X_test is None) != (y_test is None):
        raise ParameterError("X_test", "and y_test must be given together", "one of them", "Pass both, or neither.")
    if isinstance(model, WassersteinLogisticRegression):
        if X_unlabeled is not None:
            raise ParameterError(
                "X_unlabeled", "must be None for the ball, which uses no unlabeled rows", "rows", "Omit X_unlabeled."
            )
        minimal = 0.0
        steps = _ball_steps(model, X, y, sample_weight, grid_of(radii, n_radii, 0.0, ball_scale(model.label_cost, X)))
        labeled = np.asarray(X, dtype=np.float64)
        rows: Iterable[FloatArray] = [labeled]
        weights = np.ones(len(labeled)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    else:
        model.radius = 0.0  # all radii are numbers, so use the ground cost and penalty of a numeric radius
        problem = FitProblem.from_arguments(
            model, X, y, sample_weight, X_unlabeled, FitProgress(model), compute=model.compute, merge=True
        )
        minimal = problem.problem.minimal.value
        grid = grid_of(radii, n_radii, minimal, float(problem.problem.decision_set.label_cost.max()))
        steps = _robust_steps(problem, grid)
        warn_about_largest_gap((step.risk - step.lower for step in steps), problem.settings.tol)
        rows, weights = problem.problem.row_blocks, problem.problem.row_weights
    return _as_path(model, steps, minimal, rows, weights, X_test, y_test)


@dataclass(frozen=True)
class _Step:
    """The model at one radius of a curve, and both bounds at this radius."""

    radius: float
    coef: FloatArray
    intercept: FloatArray
    risk: float
    lower: float
    status: str


def _robust_steps(problem: FitProblem, grid: FloatArray) -> list[_Step]:
    tol = problem.settings.tol
    steps = []
    for radius, bound in zip(grid, bound_along(grid, problem.at_radius, tol), strict=True):
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


def _as_path(
    model: RobustLogisticRegression | WassersteinLogisticRegression,
    steps: list[_Step],
    minimal: float,
    rows: Iterable[FloatArray],
    weights: FloatArray,
    X_test: ArrayLike | None,
    y_test: ArrayLike | None,
) -> RadiusCurve:
    median, largest, score, likelihood = [], [], [], []
    for step in steps:
        top = np.concatenate([probabilities(part @ step.coef.T + step.intercept).max(axis=1) for part in rows])
        median.append(weighted_median(top, weights))
        largest.append(float(top[weights > 0].max()))
        if X_test is not None:
            model.coef_, model.intercept_ = step.coef, step.intercept
            score.append(accuracy_score(y_test, model.predict(X_test)))
            likelihood.append(np.exp(-log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)))
    return RadiusCurve(
        radii=np.array([step.radius for step in steps]),
        minimal_radius=minimal,
        risk=np.array([step.risk for step in steps]),
        lower=np.array([step.lower for step in steps]),
        ball=isinstance(model, WassersteinLogisticRegression),
        median_confidence=np.array(median),
        max_confidence=np.array(largest),
        coef=np.array([step.coef for step in steps]),
        intercept=np.array([step.intercept for step in steps]),
        status=[step.status for step in steps],
        test_score=np.array(score) if X_test is not None else None,
        test_likelihood=np.array(likelihood) if X_test is not None else None,
    )


# Evaluate a fixed classifier at each radius.


def judged_curve(  # noqa: PLR0913 - one keyword per part of the problem
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None,
    radii: ArrayLike | None,
    n_radii: int,
    sample_weight: ArrayLike | None,
    ball: bool,
    label_prior: LabelPrior | ArrayLike | str | None = "auto",
    loss: str | ArrayLike = LOG_LOSS,
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classes: ArrayLike | None = None,
    losses: ArrayLike | None = None,
    clip: float = 1e-12,
    tol: float = 1e-6,
    n_jobs: int | None = None,
    compute: Compute | None = None,
) -> RadiusCurve:
    """Bound the worst expected loss of a fixed classifier at each radius, to a gap of tol, as `certify` does."""
    radii = None if radii is None else grid_of(radii, n_radii, 0.0, 1.0)
    tol = check_positive_scalar(tol, "tol")
    if ball:
        if not isinstance(loss, str) or loss != LOG_LOSS or losses is not None:
            raise ParameterError("loss", f"must be {LOG_LOSS!r} if ball=True", "another", "Pass ball=False.")
        grid = grid_of(radii, n_radii, 0.0, 1.0 if radii is not None else ball_scale(label_cost, X))
        risk = ball_risk_of(classifier, X, y, grid, sample_weight=sample_weight, label_cost=label_cost, metric=metric)
        return RadiusCurve(grid, 0.0, risk, risk.copy(), ball=True)
    problem = check_problem(
        X,
        y,
        X_unlabeled=X_unlabeled,
        sample_weight=sample_weight,
        classes=classes_to_certify(classifier, y, classes),
        metric=metric,
        label_prior=label_prior,
        label_cost=label_cost,
        compute=compute,
        n_jobs=n_jobs,
        tol=tol,
        memory_only=losses is not None,
        merge=losses is None,
    )
    judged = ClassifierLoss.from_arguments(classifier, problem.data.classes, loss, clip, own=losses is not None)
    game = judged.game(problem, X, X_unlabeled, losses)
    grid = grid_of(radii, n_radii, problem.minimal.value, float(problem.decision_set.label_cost.max()))

    def solve(radius: float, *, warm_start: JointState | None) -> Solution:
        return game.solve(problem.at_radius(radius), tol=tol, warm_start=warm_start)

    bounds = bound_along(grid, solve, tol)
    warn_about_largest_gap((bound.upper - bound.lower for bound in bounds), tol)
    risk, lower = np.array([[bound.upper, bound.lower] for bound in bounds]).T
    return RadiusCurve(grid, problem.minimal.value, risk, lower, judged.name)


def radius_curve(
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None = None,
    radii: ArrayLike | None = None,
    n_radii: int = 16,
    refit: bool | None = None,
    sample_weight: ArrayLike | None = None,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    ball: bool = False,
    **certify_options: Any,
) -> RadiusCurve:
    """Bound the worst expected loss as a function of the radius.

    Either a model is learned at each radius, or a fixed classifier is evaluated at each radius. The worst case is
    concave in the radius, so solving at a few radii is enough. Each solve starts from the nearest solution.

    Parameters
    ----------
    classifier : RobustLogisticRegression, WassersteinLogisticRegression or fitted classifier, or None with `losses`
        The model to learn, or a fitted classifier to evaluate. A model is learned with all its parameters except the
        radius. The object is not changed.
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        Unlabeled rows. Must be None to learn over the ball.
    radii : array of shape (m,) or None, default=None
        Increasing radii. By default n_radii values: the minimal radius plus κ·10^−3 … κ, evenly spaced on a log scale.
        Changing a label costs κ, so at an excess of κ the adversary may choose all labels.
    n_radii : int, default=16
        Number of radii if `radii` is None.
    refit : bool or None, default=None
        True learns a model at each radius. False evaluates the fitted classifier. None learns a
        RobustLogisticRegression or WassersteinLogisticRegression, and evaluates any other classifier.
    sample_weight : array of shape (n,) or None, default=None
        Number of times each labeled row counts. None: once each.
    X_test : array of shape (T, d) or None, default=None
        Test rows to score each learned model on.
    y_test : array of shape (T,) or None, default=None
        Their labels.
    ball : bool, default=False
        Whether to evaluate over the Wasserstein ball. There, features may move anywhere, with no assumption about the
        labels of unlabeled rows. This is exact, but requires the log loss and a linear classifier of two classes
        (`coef_`, `intercept_`). `X_unlabeled` and `label_prior` are ignored.
    **certify_options : Any
        Used when evaluating: `label_prior`, `loss`, `label_cost`, `metric`, `classes`, `losses`, `clip`, `n_jobs` and
        `compute` of `certify`, and `tol`, the gap to reach at every radius, 1e-6 by default.

    Returns
    -------
    RadiusCurve
        Radii, both bounds and likelihoods, and for learned models also coefficients and confidence. Each entry equals a
        single fit or certificate at its radius, to the tolerance. Without a penalty, the risk never decreases.

    Examples
    --------
    >>> import surefoot as sf
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.5], [0.9]]
    >>> learned = sf.radius_curve(sf.RobustLogisticRegression(), X, y, X_unlabeled=U, radii=[0.3, 0.6])
    >>> fitted = sf.RobustLogisticRegression(radius=0.3).fit(X, y, X_unlabeled=U)
    >>> judged = sf.radius_curve(fitted, X, y, X_unlabeled=U, radii=[0.3, 0.6], refit=False)
    >>> bool(learned.risk[1] <= judged.risk[1])
    True
    """
    if refit is None:
        refit = isinstance(classifier, RobustLogisticRegression | WassersteinLogisticRegression)
    grid: dict[str, Any] = {"radii": radii, "n_radii": n_radii, "sample_weight": sample_weight}
    if not refit:
        if X_test is not None or y_test is not None:
            raise ParameterError(
                "X_test", "must be None with refit=False: it scores learned models only", "rows", "Omit X_test."
            )
        return judged_curve(classifier, X, y, X_unlabeled=X_unlabeled, ball=ball, **grid, **certify_options)
    if ball or certify_options:
        options = [*certify_options, *(["ball"] if ball else [])]
        raise ParameterError(
            "refit",
            f"uses the settings of the {type(classifier).__name__} and accepts no others",
            ", ".join(options),
            "Set them on the classifier, or pass refit=False to evaluate it as it is.",
        )
    return learned_curve(classifier, X, y, X_unlabeled=X_unlabeled, X_test=X_test, y_test=y_test, **grid)
