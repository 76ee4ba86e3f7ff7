"""What all query strategies share: reading a pool, subsampling candidates, batches, ties."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from surefoot._errors import CodedWarning, ParameterError, warn_caller
from surefoot._types import FloatArray
from surefoot._validation import check_labeled_rows, check_more_rows, check_positive_integer
from surefoot.active.candidates import Pool, fit_to
from surefoot.active.impact import seen_by_last_step


class QueryStrategy(BaseEstimator):
    """A rule that scores the unlabeled rows of a pool and picks those to label next.

    Ties are broken by the random state. An integer gives the same answer for the same labels every time, and a new
    stream of random numbers whenever the number of labels changes.
    """

    missing_label: Any
    random_state: Any
    max_candidates: int | None

    @abstractmethod
    def _utilities(self, model: Any, pool: Pool, positions: NDArray[np.intp]) -> FloatArray:
        """(m,) scores of the rows at these positions."""

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
        """Rows to label next, in the form of scikit-activeml.

        Parameters
        ----------
        X : array of shape (N, d)
            All rows.
        y : array of shape (N,)
            Their labels; missing ones are NaN or None, or as `missing_label` says.
        clf : classifier or None, default=None
            Fitted to the labeled rows, unless fit_clf is False. RandomSampling needs none.
        fit_clf : bool, default=True
            Whether to fit clf; pass False for one that is fitted.
        sample_weight : array of shape (N,) or None, default=None
            Passed on to the fit.
        candidates : array of shape (m,), array of shape (m, d), or None, default=None
            Indices of the rows to choose from; or rows, not necessarily among X; or all unlabeled rows.
        batch_size : int, default=1
            Rows are chosen one after another; docs/active-learning.md says how the earlier ones count.
        return_utilities : bool, default=False
            Whether to return the scores as well.

        Returns
        -------
        indices : array of shape (batch_size,)
            Into X, or into the candidates where these are rows.
        utilities : array of shape (batch_size, N), or (batch_size, m)
            Scores before each choice, NaN for rows that are not considered; only with return_utilities.
        """
        pool = Pool.of(X, y, candidates, self.missing_label)
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
        """The plain form: indices (batch_size,) into X_pool, given a fitted estimator.

        RobustModelChange also needs the labeled rows X (n, d) and y (n,): `functools.partial(strategy, X=X, y=y)`.
        """
        if X is None or y is None:
            pool = Pool.of(X_pool, np.full(len(np.asarray(X_pool)), np.nan), None, np.nan)
        else:
            rows, labels = check_labeled_rows(X, y)
            more = check_more_rows(X_pool, "X_pool", rows.shape[1])
            marked = np.concatenate([labels.astype(object), np.full(len(more), None)])
            pool = Pool.of(np.vstack([rows, more]), marked, None, None)
        model = self._model(estimator, pool, False, None)
        return self._choose(model, pool, batch_size)[0] - int(pool.labeled.sum())

    def _model(self, clf: Any, pool: Pool, fit_clf: bool, sample_weight: ArrayLike | None) -> Any | None:
        """The fitted classifier, or None where rows can only be drawn at random."""
        if clf is None:
            raise ParameterError(
                "clf", f"must be a classifier for {type(self).__name__}", None, "Pass clf=LogisticRegression(), say."
            )
        return fit_to(clf, pool, sample_weight) if fit_clf else clf

    def _choose(self, model: Any | None, pool: Pool, batch_size: int) -> tuple[NDArray[np.intp], FloatArray]:
        """Indices (b,) chosen, and the utilities (b, N) before each choice."""
        size = check_positive_integer(batch_size, "batch_size")
        positions = pool.positions
        if size > len(positions):
            statement = f"batch_size={size} exceeds the {len(positions)} candidates: all are chosen."
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
    """How far each row (m, p) is from the rows chosen so far: what keeps a batch from repeating itself.

    A row's score is multiplied by min(1, r / median r), r its distance to the nearest row chosen: repeats of a chosen
    row count nothing, rows farther away than most count fully.
    """

    def __init__(self, rows: FloatArray) -> None:
        self._rows = rows
        self._nearest = np.full(len(rows), np.inf)

    @property
    def factors(self) -> FloatArray:
        """(m,) from 0 to 1."""
        typical = float(np.median(self._nearest))
        if typical == 0:  # most rows repeat those chosen
            return (self._nearest > 0).astype(np.float64)
        return np.ones(len(self._nearest)) if typical == np.inf else np.minimum(self._nearest / typical, 1.0)

    def damped(self, scores: FloatArray) -> FloatArray:
        """Scores (m,) times their factors; negative ones are counted from the least of them."""
        least = min(float(scores.min()), 0.0)
        return least + (scores - least) * self.factors

    def add(self, pick: int) -> None:
        """Row `pick` is chosen."""
        self._nearest = np.minimum(self._nearest, np.linalg.norm(self._rows - self._rows[pick], axis=1))


def as_seen(model: Any, rows: FloatArray) -> FloatArray:
    """(m, p) rows as the last step of a linear model sees them; as they are for any other model."""
    seen, last = seen_by_last_step(model, rows) if hasattr(model, "predict_proba") else (rows, None)
    return seen if hasattr(last, "coef_") else rows


def _random_state(seed: Any, n_labels: int) -> np.random.RandomState:
    """A stream that an integer fixes together with the number of labels, so that a loop does not repeat itself."""
    if isinstance(seed, int | np.integer):
        return np.random.RandomState(np.random.MT19937(np.random.SeedSequence([int(seed), n_labels])))
    return check_random_state(seed)
