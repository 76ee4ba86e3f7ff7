"""Bounds from labels that the classifier has not seen: at a fixed number of labels, and at every number at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from surefoot._pool_count import hypergeometric_upper
from surefoot._validation import check_more_rows
from surefoot.bounds.anytime import PoolErrors, population_upper
from surefoot.bounds.bounded import bounded_upper, rule_in_words
from surefoot.bounds.finite import clopper_pearson_upper
from surefoot.bounds.groups import by_group
from surefoot.bounds.observed_losses import ObservedLosses
from surefoot.bounds.result import THEOREM, ErrorBound
from surefoot.losses import ZERO_ONE
from surefoot.problem.rows import fingerprints

_UNSEEN = "the classifier was finished before these labels were looked at, and did not see them"
_FIXED = "the number of labels was fixed beforehand, not by looking at them"
_POOL = "the labeled rows were drawn uniformly, without replacement, from the rows given"
_POPULATION = "the labeled rows are independent draws from the population"


def unseen_bound(
    seen: ObservedLosses,
    level: float,
    *,
    N: int | None,
    groups: NDArray[Any] | None,
    anytime: bool,
    who: str = "this classifier",
    classifier: Any | None = None,
) -> ErrorBound:
    """Bound from losses at labels that the classifier has not seen, in the order in which they were drawn.

    N : rows of the pool, labeled ones included, or None for the population.
    """

    def one(chosen: NDArray[np.intp], size: int | None, at: float, name: str) -> ErrorBound:
        some = seen.at(chosen)
        value, how = _upper(some, at, size, anytime)
        assumptions = (_UNSEEN, _POPULATION if size is None else _POOL) + (() if anytime else (_FIXED,))
        return ErrorBound(
            value=value,
            kind=THEOREM,
            method=f"{'anytime' if anytime else 'holdout'}: {how}",
            about=f"{who}, on {_where(size)}{name}",
            level=at,
            loss=some.name,
            assumptions=assumptions,
            n_labels=some.n,
            n_errors=some.n_errors,
            mean_loss=some.mean,
            classifier=classifier,
        )

    if groups is None:
        return one(np.arange(seen.n), N, level, "")
    return by_group(groups, seen.n, level, one, about=f"{who}, on {_where(N)}", pool=N is not None)


def _where(N: int | None) -> str:
    return "the population that its labels come from" if N is None else f"the {N} rows given"


def _upper(seen: ObservedLosses, level: float, N: int | None, anytime: bool) -> tuple[float, str]:
    if seen.name != ZERO_ONE:
        value = bounded_upper(seen.values, seen.low, seen.high, level, N=N, anytime=anytime)
        return value, rule_in_words(seen.n, pool=N is not None, anytime=anytime)
    if N is None:
        if anytime:
            return float(population_upper(seen.wrong, level)[-1]), "one-sided mixture of likelihood ratios"
        return clopper_pearson_upper(seen.n_errors, seen.n, level), "Clopper-Pearson, one-sided"
    if not anytime:
        return hypergeometric_upper(seen.n_errors, seen.n, N, level) / N, "exact hypergeometric, one-sided"
    pool = PoolErrors(N, level)
    for wrong in seen.wrong:
        pool.add(bool(wrong))
    return pool.upper / N, "one-sided prior-posterior ratio, draws without replacement"


def split(n: int, random_state: int | None) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Random halves of n rows: to train on, and to judge by."""
    train, held = np.array_split(np.random.default_rng(random_state).permutation(n), 2)
    return np.sort(train), held


def fit_clone(classifier: Any, X: Any, y: NDArray[Any], **keywords: Any) -> Any:
    """A fitted clone; one class only is refused with the fix."""
    try:
        return clone(classifier).fit(X, y, **keywords)
    except ValueError as error:
        if len(np.unique(y)) > 1:
            raise
        raise ValueError(
            f"half of the labels must show two classes to train on; got only {np.unique(y).tolist()}. Label more "
            "rows, or pass a fitted classifier and labels that it has not seen."
        ) from error


def check_unseen(classifier: Any, X: Any, X_train: ArrayLike | None) -> None:
    """Refuse rows that the classifier was trained on, where these are known: from X_train or its own certificate."""
    own = getattr(getattr(classifier, "certificate_", None), "row_bound", None)
    trained = X_train if X_train is not None else getattr(own, "anchors", None)
    if trained is None:
        return
    rows = check_more_rows(X, "X", np.shape(X)[1])
    reused = int(np.isin(fingerprints(rows), fingerprints(check_more_rows(trained, "X_train", rows.shape[1]))).sum())
    if reused:
        raise ValueError(
            f"the labels that judge a classifier must be of rows that it was not trained on; {reused} of {len(rows)} "
            'rows of X were. Leave them out, pass an unfitted classifier (it is trained on half), or method="crossfit".'
        )
