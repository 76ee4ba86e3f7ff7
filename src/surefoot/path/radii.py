"""A model learned at each radius."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.metrics import accuracy_score, log_loss

from surefoot._callbacks import FitProgress
from surefoot._printing import PrintedTable
from surefoot._types import FloatArray
from surefoot.estimators.ball import WassersteinLogisticRegression
from surefoot.estimators.fit_problem import FitProblem
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.losses import probabilities
from surefoot.path.along import bound_along, grid_of, warn_about_gap
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
        steps = _ball_steps(model, X, y, sample_weight, grid_of(radii, n_radii, 0.0, scale or 1.0))
        labeled = np.asarray(X, dtype=np.float64)
        rows: Iterable[FloatArray] = [labeled]
        weights = np.ones(len(labeled)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    else:
        model.radius = 0.0  # radii are numbers, and the ground cost and penalty those of fits at numbers
        problem = FitProblem.of(model, X, y, sample_weight, X_unlabeled, FitProgress(model))
        minimal = problem.problem.minimal.value
        grid = grid_of(radii, n_radii, minimal, float(problem.problem.decision_set.label_cost.max()))
        steps = _robust_steps(problem, grid)
        warn_about_gap(max(step.risk - step.lower for step in steps), problem.settings.tol)
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


def _spread(X: ArrayLike) -> float:
    """Standard deviation of the rows about their mean."""
    return float(np.linalg.norm(np.asarray(X, dtype=np.float64).std(axis=0)))


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
