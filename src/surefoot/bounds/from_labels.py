"""The four bounds on the error rate: cross-fitted, held out, anytime, and by the transport certificate."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
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
from surefoot.problem.placement import repeated_solves
from surefoot.problem.rows import fingerprints

# The cross-fitted bound: the cross-validation errors plus one, for the classifier trained on all labels.

_DRAWN = "{rows} are a random sample of this population: nobody chose them, and they come from no other population"
_RECIPE = "the classifier is trained on all labels with the same settings (a clone is refitted in each fold)"
_ABOUT = "the classifier trained on all labels, on the population they were sampled from"


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """Losses at labels by clones that did not see them; beliefs at labels (n,) and their mean over unlabeled rows."""

    seen: ObservedLosses
    n_folds: int
    belief: FloatArray | None
    mean_belief: float


def crossfit_bound(asked: Arguments, control_variate: bool, n_folds: int, n_jobs: int | None) -> ErrorBound:
    """Bound the loss of the final classifier by the losses of clones that did not see the labels."""
    if control_variate:
        _check_control_variate(asked)
    fitted = _cross_fit(asked, control_variate, n_folds, n_jobs)

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
    found = asked.clusters.bound(np.arange(n), asked.level, bound_of, _ABOUT, groups=groups)
    return replace(found, predicted=fitted.seen.predicted)


def _cross_fit(asked: Arguments, control_variate: bool, n_folds: int, n_jobs: int | None) -> CrossFitted:
    """Test every row on a clone trained without its fold. No cluster is split between folds."""
    X, y, U = asked.X, asked.y, asked.X_unlabeled
    takes_rows = U is not None and has_fit_parameter(asked.classifier, "X_unlabeled")
    classes = known_classes(asked.classifier, y, asked.classes)
    asked.clusters.check_several(2)
    folds = fold_numbers(y, n_folds, asked.random_state, asked.clusters.of_labeled)
    recipe = _for_folds(asked.classifier)

    def test(held: NDArray[np.intp], rest: NDArray[np.intp]) -> tuple[ObservedLosses, FloatArray | float, float]:
        rows = _safe_indexing(X, held)
        # pass the held-out rows without labels, so that the feature marginal equals the marginal of the final fit
        more = np.vstack([np.asarray(U), np.asarray(rows)]) if takes_rows else None
        with repeated_solves(n_folds):
            model = fit_clone(recipe, _safe_indexing(X, rest), y[rest], more)
        if model is None:
            model = DummyClassifier(strategy="most_frequent").fit(_safe_indexing(X, rest), y[rest])
        seen = observe(model, rows, y[held], classes, asked.loss, asked.clip)
        if not control_variate:
            return seen, 0.0, 0.0
        return seen, expected_error(model, rows), float(expected_error(model, U).mean())

    held_out = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
    work = (delayed(test)(held, np.setdiff1d(np.arange(len(y)), held)) for held in held_out)
    with warnings.catch_warnings():  # threads restore the filters in any order
        parts, beliefs_of, means = zip(*Parallel(n_jobs, backend="threading")(work), strict=True)
    beliefs = np.zeros(len(y))
    for held, belief in zip(held_out, beliefs_of, strict=True):
        beliefs[held] = belief
    mean = sum(mean * len(held) / len(y) for mean, held in zip(means, held_out, strict=True))
    back = np.argsort(np.concatenate(held_out))
    joined = replace(
        parts[0],
        values=np.concatenate([part.values for part in parts])[back],
        predicted=np.concatenate([part.predicted for part in parts])[back],
        wrong=np.concatenate([part.wrong for part in parts])[back],
    )
    return CrossFitted(joined, int(folds.max()) + 1, beliefs if control_variate else None, float(mean))


def _for_folds(classifier: Any) -> Any:
    """Return an unfitted copy for the folds. Surefoot solvers, also nested ones, stop at a gap that suits the folds."""
    recipe = clone(classifier)
    parts = [recipe, *recipe.get_params().values()]
    for part in [*parts, *(one for inner in parts if isinstance(inner, list | tuple) for one in inner)]:
        least = getattr(part, "_tol_of_folds", None)
        if least is not None and isinstance(part.tol, numbers.Real):
            part.tol = max(float(part.tol), least)
    return recipe


def _upper(fitted: CrossFitted, some: ObservedLosses, chosen: NDArray[np.intp], level: float) -> tuple[float, str]:
    if some.name != ZERO_ONE:
        values = some.values.copy()
        values[values.argmin()] = some.high  # add one row with the largest loss
        how = f"smallest loss replaced by the largest, {rule_in_words(some.n, pool=False, anytime=False)}"
        return bounded_upper(values, some.low, some.high, level), how
    if fitted.belief is None:
        return clopper_pearson_upper(some.n_errors + 1, some.n, level), "errors plus one, Clopper-Pearson"
    share, n = difference_estimate(some.wrong.astype(np.float64), fitted.belief[chosen], fitted.mean_belief)
    return clopper_pearson_upper(share * n + 1, n, level), "errors plus one, control variate, Clopper-Pearson"


def _check_control_variate(asked: Arguments) -> None:
    if asked.X_unlabeled is None:
        raise ParameterError(
            "control_variate", "requires X_unlabeled", "None", "Pass unlabeled rows, or control_variate=False."
        )
    if asked.groups is not None:
        raise ParameterError("control_variate", "cannot be combined with groups", None, "Pass one of the two.")
    if not (isinstance(asked.loss, str) and asked.loss == ZERO_ONE):
        raise ParameterError(
            "control_variate", "requires the zero-one loss", f"loss={asked.loss!r}", "Pass loss='zero_one'."
        )


# Bounds from labels that the classifier has not seen: at a fixed number of labels, or at all numbers simultaneously.

_UNSEEN = "the classifier was finished before anyone looked at these labels, and was not trained on them"
_FIXED = "the number of labels was fixed in advance"
_POOL = "{rows} were sampled uniformly, without replacement, from the rows given"
_POPULATION = "{rows} are a random sample of the population"


def unseen_bound(asked: Arguments, X_train: ArrayLike | None, *, anytime: bool) -> ErrorBound:
    """Bound the mean loss from labels that the classifier has not seen, in the order in which they were sampled."""
    classifier, n, groups, clusters = asked.classifier, len(asked.y), asked.groups, asked.clusters
    left = None if asked.X_unlabeled is None else np.arange(n + len(asked.X_unlabeled))
    if left is not None:
        for name, given in (("groups", groups), ("cv_groups", clusters.numbers)):
            if given is not None and len(given) != len(left):
                raise ParameterError(
                    name,
                    f"must have {len(left)} entries (rows of X, then of X_unlabeled) to bound the error on these rows",
                    len(given),
                    "Pass one entry per row, or omit X_unlabeled.",
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
                "must contain two classes in the half used for training",
                f"only {np.unique(asked.y[train]).tolist()}",
                "Label more rows, or pass a fitted classifier and labels that it has not seen.",
            )
        classifier = fitted
        who, other = f"the classifier trained on {len(train)} of the labels", classifier
        if left is not None:
            left = _without(clusters, train, chosen)
        if groups is not None:
            groups = groups[chosen if left is None else left]
    # if half of the labels lack a class, the classifier never predicts it, which counts as errors
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
    return "the population these labels were sampled from" if N is None else f"the {N} rows given"


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
    """Reject rows that the classifier was trained on, if X_train or the classifier's own certificate lists them."""
    own = getattr(getattr(classifier, "certificate_", None), "row_bound", None)
    trained = X_train if X_train is not None else getattr(own, "anchors", None)
    if trained is None:
        return
    rows = check_more_rows(X, "X", np.shape(X)[1])
    reused = int(np.isin(fingerprints(rows), fingerprints(check_more_rows(trained, "X_train", rows.shape[1]))).sum())
    if reused:
        raise ParameterError(
            "X",
            "must contain no row that the classifier was trained on",
            f"{reused} training rows among {len(rows)}",
            'Remove them, pass an unfitted classifier (it is trained on half of the labels), or method="crossfit".',
        )


def _without(clusters: Clusters, train: NDArray[np.intp], judged: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the rows of the pool without the training rows. The tested rows come first and are a uniform sample.

    If labeled rows repeat, each cluster with a training row is removed completely, labeled or not.
    """
    others = np.arange(clusters.n_labeled, len(clusters.numbers))
    if clusters.repeat:
        others = others[~np.isin(clusters.numbers[others], clusters.numbers[train])]
    return np.concatenate([judged, others])


_ANY_ROWS = "the labeled rows need not be a random sample, and the classifier may have been trained on them"
_FROM_LABELS = ("auto", "clopper-pearson", "hypergeometric", "assisted")


def transport_bound(
    asked: Arguments,
    radius: float | str | CalibratedRadius | None,
    certify_options: Mapping[str, Any] | None,
    *,
    X_target: Any = None,
) -> ErrorBound:
    """Call `certify` at the given radius, or at a radius estimated from the labels at this confidence level."""
    if not is_fitted(asked.classifier):
        raise ParameterError(
            "classifier", "must be fitted for the transport bound", "an unfitted classifier", "Fit it first."
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
        about=f"this classifier, on the {where}",
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
    """Return the largest group bound. All group bounds use one decision set, so they hold simultaneously."""
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
        return f"the true distribution lies within transport distance {certificate.radius:.4g} of the labeled rows"
    return f"the radius, {certificate.estimate.meaning}"


def _label_shares(label_prior: Any, other_population: bool) -> str:
    """State the assumption about the label shares."""
    if isinstance(resolve_prior(label_prior, other_population=other_population), NoPrior):
        return "no assumption about the label shares" + (" of X_target" if other_population else "")
    if not other_population:
        return "the label shares lie in the intervals of label_prior, which have a confidence level of their own"
    if isinstance(label_prior, str) and label_prior in _FROM_LABELS:
        return (
            "the label shares of X_target lie in intervals computed from the labels of the other population, as "
            "requested by label_prior; under a real shift this is often false (docs/bounds.md)"
        )
    return "the label shares of X_target lie in the intervals passed as label_prior"
