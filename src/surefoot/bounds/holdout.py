"""Bounds from labels that the classifier has not seen: at a fixed number of labels, and at every number at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing

from surefoot._errors import ParameterError
from surefoot._pool_count import hypergeometric_upper
from surefoot._validation import check_more_rows
from surefoot.bounds._arguments import Arguments, is_fitted, known_classes
from surefoot.bounds.anytime import PoolErrors, population_upper
from surefoot.bounds.clusters import LABELED_GROUPS, LABELED_ROWS, Clusters
from surefoot.bounds.mean_bounds import bounded_upper, clopper_pearson_upper, rule_in_words
from surefoot.bounds.observed_losses import ObservedLosses, fit_clone, observe
from surefoot.bounds.result import THEOREM, ErrorBound
from surefoot.losses import ZERO_ONE
from surefoot.problem.rows import fingerprints

_UNSEEN = "the classifier was finished before these labels were looked at, and did not see them"
_FIXED = "the number of labels was fixed beforehand, not by looking at them"
_POOL = "{rows} were drawn uniformly, without replacement, from the rows given"
_POPULATION = "{rows} are independent draws from the population"


def unseen_bound(asked: Arguments, X_train: ArrayLike | None, *, anytime: bool) -> ErrorBound:
    """Bound from losses at labels that the classifier has not seen, in the order in which they were drawn."""
    classifier, n, groups, clusters = asked.classifier, len(asked.y), asked.groups, asked.clusters
    left = None if asked.X_unlabeled is None else np.arange(n + len(asked.X_unlabeled))
    if left is not None:
        for name, given in (("groups", groups), ("cv_groups", clusters.numbers)):
            if given is not None and len(given) != len(left):
                raise ParameterError(
                    name,
                    f"must be one per row of X, then of X_unlabeled, {len(left)} in all, to bound the error on these "
                    "rows",
                    len(given),
                    "Pass that many, or leave out X_unlabeled.",
                )
    who, other, chosen = "this classifier", None, np.arange(n)
    if is_fitted(classifier):
        _check_unseen(classifier, asked.X, X_train)
    else:
        clusters.check_several(2)
        train, chosen = clusters.halves()
        fitted = fit_clone(classifier, _safe_indexing(asked.X, train), asked.y[train], asked.X_unlabeled)
        if fitted is None:
            raise ParameterError(
                "y",
                "must show two classes in the half to train on",
                f"only {np.unique(asked.y[train]).tolist()}",
                "Label more rows, or pass a fitted classifier and labels that it has not seen.",
            )
        classifier = fitted
        who, other = f"the classifier trained on {len(train)} of the labels", classifier
        if left is not None:
            left = _without(clusters, train, chosen)
        if groups is not None:
            groups = groups[chosen if left is None else left]
    # half of the labels may miss a class: that it is never predicted counts against the classifier
    classes = known_classes(asked.classifier, asked.y, asked.classes)
    seen = observe(classifier, _safe_indexing(asked.X, chosen), asked.y[chosen], classes, asked.loss, asked.clip)

    def bound_of(labels: NDArray[np.intp], pool: NDArray[np.intp] | None, level: float, by_cluster: bool) -> ErrorBound:
        some = seen.at(labels)
        size = None if pool is None else len(np.unique(clusters.numbers[pool])) if by_cluster else len(pool)
        value, how = _upper(some, level, size, anytime)
        drawn = (_POPULATION if size is None else _POOL).format(rows=LABELED_GROUPS if by_cluster else LABELED_ROWS)
        return ErrorBound(
            value=value,
            kind=THEOREM,
            method=f"{'anytime' if anytime else 'holdout'}: {how}",
            about=f"{who}, on {_where(size)}",
            level=level,
            loss=some.name,
            assumptions=(_UNSEEN, drawn) + (() if anytime else (_FIXED,)),
            classifier=other,
            **some.counts,
        )

    about = f"{who}, on {_where(None if left is None else len(left))}"
    return clusters.bound(chosen, asked.level, bound_of, about, groups=groups, pool=left)


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


def _check_unseen(classifier: Any, X: Any, X_train: ArrayLike | None) -> None:
    """Refuse rows that the classifier was trained on, where these are known: from X_train or its own certificate."""
    own = getattr(getattr(classifier, "certificate_", None), "row_bound", None)
    trained = X_train if X_train is not None else getattr(own, "anchors", None)
    if trained is None:
        return
    rows = check_more_rows(X, "X", np.shape(X)[1])
    reused = int(np.isin(fingerprints(rows), fingerprints(check_more_rows(trained, "X_train", rows.shape[1]))).sum())
    if reused:
        raise ParameterError(
            "X",
            "must hold rows that the classifier was not trained on, to judge it",
            f"{reused} of {len(rows)} rows that it was trained on",
            'Leave them out, pass an unfitted classifier (it is trained on half), or method="crossfit".',
        )


def _without(clusters: Clusters, train: NDArray[np.intp], judged: NDArray[np.intp]) -> NDArray[np.intp]:
    """Rows of the pool without those trained on, the judged ones first: of these a uniform sample.

    Where labeled rows repeat, every row that belongs to one trained on leaves, labeled or not.
    """
    others = np.arange(clusters.n_labeled, len(clusters.numbers))
    if clusters.repeat:
        others = others[~np.isin(clusters.numbers[others], clusters.numbers[train])]
    return np.concatenate([judged, others])
