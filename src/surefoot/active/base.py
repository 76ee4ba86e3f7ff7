"""Shared by all query strategies: read a pool, sample candidates, select batches and break ties."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import has_fit_parameter

from surefoot._errors import CodedWarning, ParameterError, warn_caller
from surefoot._validation import FloatArray, check_labeled_rows, check_more_rows, check_positive_integer
from surefoot.active.flexibility import check_candidates
from surefoot.active.impact import seen_by_last_step
from surefoot.problem.rows import Unlabeled

# A pool of partly labeled rows: the validated arguments of a query, and the fitted classifier.


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """Rows X (N, d), labels y (N,) with missing values, and the candidates of a query.

    candidates : (m,) indices of rows of X, or None if the candidates are separate rows, `extra` (m, d).
    """

    X: FloatArray
    y: NDArray[Any]
    labeled: NDArray[np.bool_]
    candidates: NDArray[np.intp] | None
    extra: FloatArray | None = None

    @classmethod
    def from_arguments(
        cls, X: ArrayLike, y: ArrayLike, candidates: ArrayLike | None, missing_label: Any
    ) -> CandidatePool:
        """Validate rows, labels and candidates. By default every unlabeled row is a candidate."""
        rows = check_array(X, dtype=np.float64, input_name="X")
        labels = column_or_1d(check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y"))
        check_consistent_length(rows, labels)
        labeled = ~is_missing(labels, missing_label)
        if labels.dtype.kind == "f" and not np.isfinite(labels[labeled]).all():
            raise ParameterError(
                "y",
                f"must hold labels, or {missing_label!r} for missing labels",
                "NaN or infinity",
                "Pass missing_label=numpy.nan, or correct them.",
            )
        if candidates is not None and np.ndim(candidates) == 2:
            extra = check_array(candidates, dtype=np.float64, input_name="candidates")
            if extra.shape[1] != rows.shape[1]:
                raise ParameterError(
                    "candidates",
                    f"must have {rows.shape[1]} features, the number in X",
                    extra.shape[1],
                    "Pass the same columns, or indices of rows of X.",
                )
            return cls(rows, labels, labeled, None, extra)
        chosen = np.flatnonzero(~labeled) if candidates is None else check_candidates(candidates, len(rows), "X")
        if labeled[chosen].any():
            raise ParameterError(
                "candidates",
                "must be unlabeled rows",
                f"row {chosen[labeled[chosen]][0]}, which has a label",
                "Omit labeled rows.",
            )
        return cls(rows, labels, labeled, chosen)

    @property
    def size(self) -> int:
        """Number of rows that a query's indices refer to."""
        return len(self.X) if self.extra is None else len(self.extra)

    @property
    def positions(self) -> NDArray[np.intp]:
        """Positions (m,) of the candidates among the rows that a query's indices refer to."""
        return np.arange(self.size) if self.candidates is None else self.candidates

    @property
    def labels(self) -> NDArray[Any]:
        """Known labels (n,), with their own dtype."""
        return np.array(self.y[self.labeled].tolist())

    def rows(self, positions: NDArray[np.intp]) -> FloatArray:
        return (self.X if self.extra is None else self.extra)[positions]


def is_missing(y: NDArray[Any], missing_label: Any) -> NDArray[np.bool_]:
    """Return a mask of missing labels: NaN and None if `missing_label` is NaN or None, otherwise labels equal to it."""
    if missing_label is not None and missing_label == missing_label:  # noqa: PLR0124 - not NaN
        return np.array([value == missing_label for value in y.tolist()], dtype=bool)
    if y.dtype.kind == "f":
        return np.isnan(y)
    if y.dtype.kind != "O":
        return np.zeros(len(y), dtype=bool)
    return np.array([value is None or value != value for value in y], dtype=bool)  # noqa: PLR0124 - NaN


def classes_so_far(classes: ArrayLike | None, clf: Any) -> NDArray[Any] | None:
    """Return the given classes, or the classes of the classifier, or None if unknown."""
    for given in (classes, getattr(clf, "classes", None), getattr(clf, "classes_", None)):
        if given is not None:
            return np.unique(np.asarray(given))
    return None


def fit_to(clf: Any, pool: CandidatePool, sample_weight: ArrayLike | None) -> Any | None:
    """Return a fitted clone of clf, or None with a warning if the labels contain too few classes.

    A classifier that accepts X_unlabeled receives the unlabeled rows. A scikit-activeml classifier receives all rows.
    """
    model = clone(clf)
    n_seen = len(np.unique(pool.labels)) if pool.labeled.any() else 0
    weights = None if sample_weight is None else np.asarray(sample_weight)
    of_activeml = hasattr(clf, "missing_label")  # with too few classes, it would only count labels
    if n_seen == 0 or (n_seen == 1 and of_activeml):
        _warn_unfit(n_seen)
        return None
    if of_activeml:
        return model.fit(pool.X, pool.y) if weights is None else model.fit(pool.X, pool.y, weights)
    keywords: dict[str, Any] = {} if weights is None else {"sample_weight": weights[pool.labeled]}
    if has_fit_parameter(clf, "X_unlabeled"):
        keywords["X_unlabeled"] = Unlabeled(pool.X[~pool.labeled])
    try:
        return model.fit(pool.X[pool.labeled], pool.labels, **keywords)
    except ValueError:
        if n_seen > 1:
            raise
        _warn_unfit(n_seen)
        return None


def _warn_unfit(n_seen: int) -> None:
    warn_caller(
        CodedWarning(
            "few_classes",
            f"the labels show {n_seen} class{'es' * (n_seen != 1)}, too few to fit the classifier. Rows are sampled at "
            "random until a second class is seen.",
            n_classes=n_seen,
        )
    )


class QueryStrategy(BaseEstimator):
    """Score the unlabeled rows of a pool and select the rows to label next.

    The random state breaks ties. With an integer, the same labels always give the same selection, and the random
    numbers change whenever the number of labels changes.
    """

    missing_label: Any
    random_state: Any
    max_candidates: int | None

    @abstractmethod
    def _utilities(self, model: Any, pool: CandidatePool, positions: NDArray[np.intp]) -> FloatArray:
        """Compute the (m,) scores of the rows at these positions."""

    def query(
        self,
        X: ArrayLike,
        y: ArrayLike,
        clf: Any = None,
        fit_clf: bool = True,
        sample_weight: ArrayLike | None = None,
        candidates: ArrayLike | None = None,
        batch_size: int = 1,
        return_utilities: bool = False,
    ) -> Any:
        """Select the rows to label next, with the interface of scikit-activeml.

        Parameters
        ----------
        X : array of shape (N, d)
            All rows.
        y : array of shape (N,)
            Their labels. Missing labels are NaN or None, or equal to `missing_label`.
        clf : classifier or None, default=None
            Classifier, fitted to the labeled rows unless fit_clf is False. RandomSampling does not need one.
        fit_clf : bool, default=True
            Whether to fit clf. Pass False if it is already fitted.
        sample_weight : array of shape (N,) or None, default=None
            Passed to the fit.
        candidates : array of shape (m,), array of shape (m, d), or None, default=None
            Indices of the rows to choose from, or the rows themselves (not necessarily rows of X). None: all unlabeled
            rows.
        batch_size : int, default=1
            Number of rows to select. The rows are selected one after another. docs/active-learning.md explains how
            earlier rows affect later rows.
        return_utilities : bool, default=False
            Whether to also return the scores.

        Returns
        -------
        indices : array of shape (batch_size,)
            Indices into X, or into `candidates` if you passed rows.
        utilities : array of shape (batch_size, N), or (batch_size, m)
            Scores before each selection, NaN for rows that are not considered. Only with return_utilities.
        """
        pool = CandidatePool.from_arguments(X, y, candidates, self.missing_label)
        model = self._model(clf, pool, fit_clf, sample_weight)
        indices, utilities = self._choose(model, pool, batch_size)
        return (indices, utilities) if return_utilities else indices

    def __call__(
        self,
        estimator: Any,
        X_pool: ArrayLike,
        *,
        batch_size: int = 1,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
    ) -> NDArray[np.intp]:
        """Select indices (batch_size,) into X_pool with a fitted estimator (plain interface).

        RobustModelChange also needs the labeled rows X (n, d) and y (n,): `functools.partial(strategy, X=X, y=y)`.
        """
        if X is None or y is None:
            pool = CandidatePool.from_arguments(X_pool, np.full(len(np.asarray(X_pool)), np.nan), None, np.nan)
        else:
            rows, labels = check_labeled_rows(X, y)
            more = check_more_rows(X_pool, "X_pool", rows.shape[1])
            marked = np.concatenate([labels.astype(object), np.full(len(more), None)])
            pool = CandidatePool.from_arguments(np.vstack([rows, more]), marked, None, None)
        model = self._model(estimator, pool, False, None)
        return self._choose(model, pool, batch_size)[0] - int(pool.labeled.sum())

    def _model(self, clf: Any, pool: CandidatePool, fit_clf: bool, sample_weight: ArrayLike | None) -> Any | None:
        """Return the fitted classifier, or None if rows can only be sampled at random."""
        if clf is None:
            raise ParameterError(
                "clf",
                f"must be a classifier for {type(self).__name__}",
                None,
                "Pass for example clf=LogisticRegression().",
            )
        return fit_to(clf, pool, sample_weight) if fit_clf else clf

    def _choose(self, model: Any | None, pool: CandidatePool, batch_size: int) -> tuple[NDArray[np.intp], FloatArray]:
        """Return the selected indices (b,) and the utilities (b, N) before each selection."""
        size = check_positive_integer(batch_size, "batch_size")
        positions = pool.positions
        if size > len(positions):
            statement = f"batch_size={size} exceeds the {len(positions)} candidates. All of them are selected."
            warn_caller(CodedWarning("few_candidates", statement, batch_size=size, n_candidates=len(positions)))
            size = len(positions)
        rng = _random_state(self.random_state, int(pool.labeled.sum()))
        if self.max_candidates is not None:
            most = max(check_positive_integer(self.max_candidates, "max_candidates"), size)
            positions = np.sort(rng.choice(positions, min(most, len(positions)), replace=False))
        scores = np.zeros(len(positions)) if model is None else self._utilities(model, pool, positions)
        spread = None if model is None or size < 2 else Spread(as_seen(model, pool.rows(positions)))
        chosen, utilities = np.empty(size, dtype=np.intp), np.full((size, pool.size), np.nan)
        is_open = np.ones(len(positions), dtype=bool)
        for step in range(size):
            now = scores if spread is None else spread.damped(scores)
            utilities[step, positions[is_open]] = now[is_open]
            pick = int(rng.choice(np.flatnonzero(is_open & (now == now[is_open].max()))))
            chosen[step], is_open[pick] = positions[pick], False
            if spread is not None:
                spread.add(pick)
        return chosen, utilities


class Spread:
    """The distance from each row (m, p) to the selected rows, which keeps a batch diverse.

    Each score is multiplied by min(1, r / median r), where r is the distance to the nearest selected row. Copies of a
    selected row score zero. Rows at or beyond the median distance keep their full score.
    """

    def __init__(self, rows: FloatArray) -> None:
        self._rows = rows
        self._nearest = np.full(len(rows), np.inf)

    @property
    def factors(self) -> FloatArray:
        """Return (m,) factors from 0 to 1."""
        typical = float(np.median(self._nearest))
        if typical == 0:  # most rows are copies of selected rows
            return (self._nearest > 0).astype(np.float64)
        return np.ones(len(self._nearest)) if typical == np.inf else np.minimum(self._nearest / typical, 1.0)

    def damped(self, scores: FloatArray) -> FloatArray:
        """Multiply scores (m,) by their factors. Negative scores are first shifted by their minimum."""
        least = min(float(scores.min()), 0.0)
        return least + (scores - least) * self.factors

    def add(self, pick: int) -> None:
        """Add the selected row `pick`."""
        self._nearest = np.minimum(self._nearest, np.linalg.norm(self._rows - self._rows[pick], axis=1))


def as_seen(model: Any, rows: FloatArray) -> FloatArray:
    """Return rows (m, p) as the last step of a linear model receives them. For other models, return them unchanged."""
    seen, last = seen_by_last_step(model, rows) if hasattr(model, "predict_proba") else (rows, None)
    return seen if hasattr(last, "coef_") else rows


def _random_state(seed: Any, n_labels: int) -> np.random.RandomState:
    """Return random numbers that depend on an integer seed and the number of labels, so that a loop never repeats."""
    if isinstance(seed, int | np.integer):
        return np.random.RandomState(np.random.MT19937(np.random.SeedSequence([int(seed), n_labels])))
    return check_random_state(seed)
