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
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from surefoot._difference import difference_estimate, fold_numbers
from surefoot._errors import ParameterError
from surefoot._types import FloatArray
from surefoot.bounds._arguments import Arguments, known_classes
from surefoot.bounds.clusters import LABELED_GROUPS, LABELED_ROWS
from surefoot.bounds.mean_bounds import bounded_upper, clopper_pearson_upper, rule_in_words
from surefoot.bounds.observed_losses import ObservedLosses, believed_error, fit_clone, observe
from surefoot.bounds.result import MEASURED, ErrorBound
from surefoot.losses import ZERO_ONE

_DRAWN = "{rows} are independent draws from the population: not chosen, not of another one"
_RECIPE = "the classifier is trained on all of them, by the recipe of the one given (a clone is refitted in each fold)"
_ABOUT = "the classifier trained on all labels, on the population that they come from"


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """Losses at labels by clones that did not see them; beliefs at labels (n,) and their mean over unlabeled rows."""

    seen: ObservedLosses
    n_folds: int
    belief: FloatArray | None
    mean_belief: float


def crossfit_bound(asked: Arguments, control_variate: bool, n_folds: int) -> ErrorBound:
    """The bound from the losses of clones that did not see the labels."""
    if control_variate:
        _check_control_variate(asked)
    fitted = _cross_fit(asked, control_variate, n_folds)

    def bound_of(labels: NDArray[np.intp], _pool: Any, level: float, by_cluster: bool) -> ErrorBound:
        some = fitted.seen.at(labels)
        value, how = _upper(fitted, some, labels, level)
        return ErrorBound(
            value=value,
            kind=MEASURED,
            method=f"crossfit: {fitted.n_folds} folds, {how}",
            about=_ABOUT,
            level=level,
            loss=some.name,
            assumptions=(_DRAWN.format(rows=LABELED_GROUPS if by_cluster else LABELED_ROWS), _RECIPE),
            **some.counts,
        )

    n = len(asked.y)
    groups = None if asked.groups is None else asked.groups[:n]
    return asked.clusters.bound(np.arange(n), asked.level, bound_of, _ABOUT, groups=groups)


def _cross_fit(asked: Arguments, control_variate: bool, n_folds: int) -> CrossFitted:
    """Judge every row by a clone trained on the other folds, which hold none of its cluster."""
    X, y, U = asked.X, asked.y, asked.X_unlabeled
    takes_rows = U is not None and has_fit_parameter(asked.classifier, "X_unlabeled")
    classes = known_classes(asked.classifier, y, asked.classes)
    asked.clusters.check_several(2)
    folds = fold_numbers(y, n_folds, asked.random_state, asked.clusters.of_labeled)
    parts, beliefs, means, order = [], np.zeros(len(y)), 0.0, []
    for fold in np.unique(folds):
        held, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        rows = _safe_indexing(X, held)
        # the held-out rows without their labels, so that the feature marginal is that of the final fit
        more = np.vstack([np.asarray(U), np.asarray(rows)]) if takes_rows else None
        model = fit_clone(asked.classifier, _safe_indexing(X, rest), y[rest], more)
        if model is None:
            model = DummyClassifier(strategy="most_frequent").fit(_safe_indexing(X, rest), y[rest])
        parts.append(observe(model, rows, y[held], classes, asked.loss, asked.clip))
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
    return CrossFitted(joined, int(folds.max()) + 1, beliefs if control_variate else None, means)


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


def _check_control_variate(asked: Arguments) -> None:
    if asked.X_unlabeled is None:
        raise ParameterError(
            "control_variate", "needs X_unlabeled", "None", "Pass unlabeled rows, or control_variate=False."
        )
    if asked.groups is not None:
        raise ParameterError("control_variate", "and groups do not go together", None, "Pass one of them.")
    if not (isinstance(asked.loss, str) and asked.loss == ZERO_ONE):
        raise ParameterError(
            "control_variate", "is for the zero-one loss", f"loss={asked.loss!r}", "Pass loss='zero_one'."
        )
