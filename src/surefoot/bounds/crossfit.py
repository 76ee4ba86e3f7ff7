"""The cross-fitted bound: errors of cross-validation plus one, for the classifier trained on all labels.

Each row is judged by a clone that was trained without its fold. One more error than seen is counted, as in the rule of
succession, and the Clopper–Pearson bound at n taken. The folds share their training rows and none is the classifier
trained on all labels, so this is no theorem; its coverage on 14 datasets is in docs/bounds.md. Without the one more it
falls short of its level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from surefoot._difference import difference_estimate, fold_numbers
from surefoot._types import FloatArray
from surefoot.bounds.bounded import bounded_upper, rule_in_words
from surefoot.bounds.finite import clopper_pearson_upper
from surefoot.bounds.groups import by_group
from surefoot.bounds.observed_losses import ObservedLosses, believed_error, observe
from surefoot.bounds.result import MEASURED, ErrorBound
from surefoot.losses import ZERO_ONE
from surefoot.unlabeled import Unlabeled, unwrap

_ASSUMPTIONS = (
    "the labeled rows are independent draws from the population: not chosen, not of another one",
    "the classifier is trained on all of them, by the recipe of the one given (a clone is refitted in each fold)",
)
_ABOUT = "the classifier trained on all labels, on the population that they come from"


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """Losses at labels by clones that did not see them; beliefs at labels (n,) and their mean over unlabeled rows."""

    seen: ObservedLosses
    belief: FloatArray | None
    mean_belief: float


def cross_fit(
    classifier: Any,
    X: Any,
    y: NDArray[Any],
    classes: NDArray[Any],
    loss: str | ArrayLike,
    clip: float,
    *,
    X_unlabeled: Any = None,
    n_folds: int = 10,
    random_state: int | None = 0,
    control_variate: bool = False,
) -> CrossFitted:
    """Judge every row by a clone trained on the other folds."""
    U = None if X_unlabeled is None else unwrap(X_unlabeled)[0]
    folds, parts, beliefs, means = fold_numbers(y, n_folds, random_state), [], np.zeros(len(y)), 0.0
    order = []
    for fold in np.unique(folds):
        held, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        model = _trained(classifier, _safe_indexing(X, rest), y[rest], _safe_indexing(X, held), U)
        rows = _safe_indexing(X, held)
        parts.append(observe(model, rows, y[held], classes, loss, clip))
        order.append(held)
        if control_variate:
            beliefs[held] = believed_error(model, rows)
            means += float(believed_error(model, U).mean()) * len(held) / len(y)
    back = np.argsort(np.concatenate(order))
    joined = replace(
        parts[0],
        values=np.concatenate([part.values for part in parts])[back],
        wrong=np.concatenate([part.wrong for part in parts])[back],
    )
    return CrossFitted(joined, beliefs if control_variate else None, means)


def _trained(classifier: Any, X: Any, y: NDArray[Any], X_held: Any, U: Any) -> Any:
    """A clone fitted without a fold; where that leaves one class, and the classifier needs two, that class always."""
    keywords = {}
    if has_fit_parameter(classifier, "X_unlabeled") and U is not None:
        # the held-out rows without their labels, so that the feature marginal is that of the final fit
        keywords["X_unlabeled"] = Unlabeled(np.vstack([np.asarray(U), np.asarray(X_held)]))
    try:
        return clone(classifier).fit(X, y, **keywords)
    except ValueError:
        if len(np.unique(y)) > 1:
            raise
        return DummyClassifier(strategy="most_frequent").fit(X, y)


def crossfit_bound(fitted: CrossFitted, level: float, groups: NDArray[Any] | None, n_folds: int) -> ErrorBound:
    """The bound from cross-fitted losses; by group, where groups (n,) are given."""

    def one(chosen: NDArray[np.intp], _size: int | None, at: float, name: str) -> ErrorBound:
        some = fitted.seen.at(chosen)
        value, how = _upper(fitted, some, chosen, at)
        return ErrorBound(
            value=value,
            kind=MEASURED,
            method=f"crossfit: {min(n_folds, fitted.seen.n)} folds, {how}",
            about=_ABOUT + name,
            level=at,
            loss=some.name,
            assumptions=_ASSUMPTIONS,
            n_labels=some.n,
            n_errors=some.n_errors,
            mean_loss=some.mean,
        )

    if groups is None:
        return one(np.arange(fitted.seen.n), None, level, "")
    return by_group(groups, fitted.seen.n, level, one, about=_ABOUT, pool=False)


def _upper(fitted: CrossFitted, some: ObservedLosses, chosen: NDArray[np.intp], level: float) -> tuple[float, str]:
    if some.name != ZERO_ONE:
        values = some.values.copy()
        values[values.argmin()] = some.high  # one more row at the largest loss
        how = f"the least loss replaced by the largest, {rule_in_words(some.n, pool=False, anytime=False)}"
        return bounded_upper(values, some.low, some.high, level), how
    if fitted.belief is None:
        return clopper_pearson_upper(some.n_errors + 1, some.n, level), "errors plus one, Clopper-Pearson"
    share, n = difference_estimate(some.wrong.astype(np.float64), fitted.belief[chosen], fitted.mean_belief)
    return clopper_pearson_upper(share * n + 1, n, level), "errors plus one, control variate, Clopper-Pearson"
