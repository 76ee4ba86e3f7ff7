"""The four bounds on the error rate: cross-fitted, held out, anytime, and by the transport certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_more_rows
from surefoot.bounds._arguments import (
    Arguments,
    ObservedLosses,
    expected_error,
    fit_clone,
    is_fitted,
    known_classes,
    observe,
)
from surefoot.bounds.betting import PoolErrors, bounded_upper, clopper_pearson_upper, population_upper, rule_in_words
from surefoot.bounds.clusters import LABELED_GROUPS, LABELED_ROWS, Clusters, share_intervals
from surefoot.bounds.result import CONDITIONAL, MEASURED, THEOREM, ErrorBound
from surefoot.certificates.calibration import CalibratedRadius
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.certification import certify
from surefoot.priors import AUTO, NoPrior, resolve_prior
from surefoot.priors.clopper_pearson import difference_estimate, fold_numbers, hypergeometric_upper
from surefoot.problem.losses import ZERO_ONE
from surefoot.problem.rows import fingerprints

# The cross-fitted bound: errors of cross-validation plus one, for the classifier trained on all labels.

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
        some = fitted.seen.at_rows(labels)
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
            beliefs[held] = expected_error(model, rows)
            means += float(expected_error(model, U).mean()) * len(held) / len(y)
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


# Bounds from labels that the classifier has not seen: at a fixed number of labels, and at every number at once.

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
        some = seen.at_rows(labels)
        size = None if pool is None else len(np.unique(clusters.numbers[pool])) if by_cluster else len(pool)
        value, how = _upper_held_out(some, level, size, anytime)
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


def _upper_held_out(seen: ObservedLosses, level: float, N: int | None, anytime: bool) -> tuple[float, str]:
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


_ANY_ROWS = "the rows need not be random draws, nor unseen by the classifier"
_FROM_LABELS = ("auto", "clopper-pearson", "hypergeometric", "assisted")


def transport_bound(
    asked: Arguments,
    radius: float | str | CalibratedRadius | None,
    certify_options: Mapping[str, Any] | None,
    *,
    X_target: Any = None,
) -> ErrorBound:
    """`certify` at a radius given, or estimated from the labels at the level asked for."""
    if not is_fitted(asked.classifier):
        raise ParameterError(
            "classifier", "must be fitted for the transport bound", "one that is not fitted", "Fit it first."
        )
    classes = known_classes(asked.classifier, asked.y, asked.classes)
    ask = CalibratedRadius(asked.level) if radius is None or radius == "calibrated" else radius
    options = dict(certify_options or {})
    if asked.clusters.repeat and X_target is None and options.get("label_prior", AUTO) in (AUTO, "clopper-pearson"):
        options["label_prior"] = share_intervals(asked.y, classes, asked.clusters.numbers)
    certificate = certify(
        asked.classifier,
        asked.X,
        asked.y,
        X_unlabeled=asked.X_unlabeled,
        X_target=X_target,
        radius=ask,
        loss=asked.loss,
        classes=classes,
        clip=asked.clip,
        groups=asked.groups,
        **options,
    )
    other = X_target is not None
    worst = certificate.worst_case
    number = "" if worst is None else f"{len(worst.row_weights)} "
    where = f"{number}rows of X_target" if other else f"{number}rows given"
    seen = observe(asked.classifier, asked.X, asked.y, classes, asked.loss, asked.clip)
    whole = ErrorBound(
        value=float(certificate.risk),
        kind=CONDITIONAL,
        method=f"transport: worst case over a set of radius {certificate.radius:.4g}",
        about=f"this classifier, on the {where}, whatever their labels within the set",
        level=asked.level,
        loss=certificate.loss,
        assumptions=(_within(certificate), _label_shares(options.get("label_prior", AUTO), other), _ANY_ROWS),
        **seen.counts,
        certificate=certificate,
    )
    return whole if certificate.groups is None else _by_group(whole, certificate, seen, asked, other)


def _by_group(
    whole: ErrorBound,
    certificate: Certificate,
    seen: ObservedLosses,
    asked: Arguments,
    other: bool,
) -> ErrorBound:
    """The largest of the groups' bounds: all are over one set, so they hold together without a share of the level."""
    groups = asked.groups(asked.X) if callable(asked.groups) else asked.groups
    labeled = np.full(seen.n, None) if other else np.asarray(groups)[: seen.n]
    found = {}
    for name, one in (certificate.groups or {}).items():
        some = seen.at_rows(labeled == name)
        found[name] = replace(
            whole,
            value=float(one.risk),
            about=f"{whole.about}, group {name}",
            **some.counts,
            certificate=one,
        )
    return replace(whole, value=max(bound.value for bound in found.values()), groups=found)


def _within(certificate: Certificate) -> str:
    if certificate.estimate is None:
        return f"the truth lies within transport distance {certificate.radius:.4g} of the labeled rows"
    return f"the radius, {certificate.estimate.meaning}"


def _label_shares(label_prior: Any, other_population: bool) -> str:
    """What is assumed of the label shares, in words."""
    if isinstance(resolve_prior(label_prior, other_population=other_population), NoPrior):
        return "nothing is assumed of the label shares" + (" of X_target" if other_population else "")
    if not other_population:
        return "the label shares lie in the intervals of label_prior, whose own level adds to that of the radius"
    if isinstance(label_prior, str) and label_prior in _FROM_LABELS:
        return (
            "the label shares of X_target lie in intervals from the labels of the other population, as label_prior "
            "was told to assume; under a real shift that may well be false (docs/bounds.md)"
        )
    return "the label shares of X_target lie in the intervals given as label_prior"
