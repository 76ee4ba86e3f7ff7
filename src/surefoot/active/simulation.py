"""Simulated active learning with known labels: learning curves over random starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone

from surefoot._errors import ParameterError
from surefoot._machine import one_blas_thread
from surefoot._validation import FloatArray, check_labeled_rows, check_n_jobs, check_positive_integer
from surefoot.active.loop import ActiveLearner

Scoring = Callable[[Any, FloatArray, NDArray[Any]], float]


@dataclass(frozen=True, eq=False)
class Simulation:
    """Hold the learning curves of one strategy: T trials, S steps.

    Attributes
    ----------
    n_labels : array of shape (S,)
        Number of labels at each step.
    scores : array of shape (T, S)
        Score of the classifier at each step of each trial.
    risks : array of shape (T, S)
        Certified risk, NaN without a certificate.
    picks : array of shape (T, n_labels[-1])
        Rows in labeling order. The first n_labels[0] rows are sampled at random.
    median : array of shape (S,)
        Median of the scores over trials.
    area : float
        Area under the median curve, divided by its length.
    areas : array of shape (T,)
        Area under the curve of each trial, divided by its length.
    """

    n_labels: NDArray[np.intp]
    scores: FloatArray
    risks: FloatArray
    picks: NDArray[np.intp]

    @property
    def median(self) -> FloatArray:
        """Median (S,) of the scores over trials."""
        return np.median(self.scores, axis=0)

    @property
    def area(self) -> float:
        """Area under the median curve, divided by its length. Table 1 of the paper shows 100 times this value."""
        return area_under(self.n_labels, self.median)

    @property
    def areas(self) -> FloatArray:
        """Area (T,) under the curve of each trial, divided by its length."""
        return np.array([area_under(self.n_labels, curve) for curve in self.scores])

    def __repr__(self) -> str:
        first, last = self.n_labels[[0, -1]]
        return f"Simulation({len(self.scores)} trials, {first} to {last} labels, area {self.area:.4f})"


def likelihood(clf: Any, X: FloatArray, y: NDArray[Any]) -> float:
    """Compute exp(−mean log loss) over all rows, the score of the paper's experiments."""
    columns = np.searchsorted(clf.classes_, y)
    proba = clf.predict_proba(X)[np.arange(len(y)), columns]
    return float(np.exp(np.log(np.maximum(proba, 1e-300)).mean()))


def simulate(
    strategy: Any,
    clf: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_initial: int = 20,
    n_labels: int = 100,
    batch_size: int = 1,
    n_trials: int = 20,
    scoring: Scoring = likelihood,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Simulation:
    """Run `ActiveLearner` on rows with known labels, from random starts.

    Each trial samples n_initial rows uniformly, and repeats the sampling until the rows contain at least two classes.
    The strategy then adds labels up to n_labels. The first rows depend only on random_state and the trial, so all
    strategies start from the same rows.

    Parameters
    ----------
    strategy : a strategy of this package or of scikit-activeml, or a function(estimator, X_pool) -> indices
        The strategy to evaluate. If it has a random_state, each trial uses a different value.
    clf : classifier
        Cloned and fitted to the labeled rows, see `ActiveLearner`.
    X : array of shape (N, d)
        The pool.
    y : array of shape (N,)
        Labels of all rows.
    n_initial : int, default=20
        Number of labels at the start.
    n_labels : int, default=100
        Number of labels at the end.
    batch_size : int, default=1
        Number of labels per step.
    n_trials : int, default=20
        Number of random starts.
    scoring : function(clf, X, y) -> float
        Called on all rows after each fit. The default is the likelihood.
    random_state : int, default=0
        Seed of the starts and of the strategies. It is fixed by default so that all strategies start from the same
        labels.
    n_jobs : int or None, default=None
        Number of parallel trials. The result does not depend on n_jobs.
    progress : bool, default=False
        Whether to show a progress bar. Requires the package rich.

    Returns
    -------
    Simulation
        Scores, certified risks and labeled rows of all trials.
    """
    rows, labels = check_labeled_rows(X, y)
    counts = [check_positive_integer(v, n) for v, n in ((n_initial, "n_initial"), (n_labels, "n_labels"))]
    if not counts[0] <= counts[1] <= len(rows):
        raise ParameterError(
            "n_labels",
            f"must be from n_initial to {len(rows)}, the number of rows",
            f"n_initial={n_initial}, n_labels={n_labels}",
            "Lower n_initial or n_labels.",
        )
    if len(np.unique(labels)) < 2:
        raise ParameterError("y", "must show at least 2 classes", np.unique(labels).tolist(), "Pass all labels.")
    steps = range(check_positive_integer(n_trials, "n_trials"))
    work = (
        delayed(_trial)(strategy, clf, rows, labels, counts[0], counts[1], batch_size, scoring, random_state, trial)
        for trial in steps
    )
    done = Parallel(n_jobs=check_n_jobs(n_jobs), return_as="generator")(work)
    trials = list(_shown(done, len(steps)) if progress else done)
    n_seen, scores, risks, picks = (np.array(part) for part in zip(*trials, strict=True))
    return Simulation(n_seen[0], scores, risks, picks)


def area_under(n_labels: ArrayLike, curve: ArrayLike) -> float:
    """Compute the trapezoidal area under a curve, divided by its length. For a single point, return its value."""
    x, values = np.asarray(n_labels, dtype=float), np.asarray(curve, dtype=float)
    return float(np.trapezoid(values, x) / np.ptp(x)) if len(x) > 1 else float(values[0])


def _trial(
    strategy: Any,
    clf: Any,
    X: FloatArray,
    y: NDArray[Any],
    n_initial: int,
    n_labels: int,
    batch_size: int,
    scoring: Scoring,
    random_state: int,
    trial: int,
) -> tuple[list[int], list[float], list[float], list[int]]:
    rng = np.random.default_rng([random_state, trial])
    first = rng.choice(len(X), n_initial, replace=False)
    while len(np.unique(y[first])) < 2:
        if n_initial < 2:
            raise ParameterError("n_initial", "must be at least 2, to show two classes", "1", "Pass 2 or more.")
        first = rng.choice(len(X), n_initial, replace=False)
    if isinstance(strategy, BaseEstimator) and "random_state" in strategy.get_params():
        strategy = clone(strategy).set_params(random_state=int(rng.integers(2**31)))
    learner = ActiveLearner(clf, X, strategy=strategy, classes=np.unique(y))
    learner.label(first, y[first])
    seen, scores, risks = [], [], []
    with one_blas_thread():
        while True:
            current = learner.fit()
            seen.append(learner.n_labels)
            scores.append(scoring(learner.model, X, y))
            risks.append(np.nan if current is None or current.risk is None else current.risk)
            if learner.n_labels >= n_labels:
                return seen, scores, risks, list(learner.labels)
            rows = learner.suggest(min(batch_size, n_labels - learner.n_labels))
            learner.label(rows, y[rows])


def _shown(trials: Iterable[Any], total: int) -> Iterable[Any]:
    try:
        from rich.progress import track
    except ImportError as error:
        raise ImportError(
            "progress=True requires the package rich: pip install rich, or pass progress=False"
        ) from error
    return track(trials, total=total, description="trials")
