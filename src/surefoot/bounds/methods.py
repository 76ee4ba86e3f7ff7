"""`error_bound` and `error_bounds`: bound the error rate of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import clone

from surefoot._errors import ParameterError
from surefoot._validation import check_positive_integer
from surefoot.bounds._arguments import Arguments, is_fitted
from surefoot.bounds.from_labels import crossfit_bound, transport_bound, unseen_bound
from surefoot.bounds.result import ErrorBound, ErrorBounds
from surefoot.certificates.calibration import CalibratedRadius
from surefoot.certificates.groups import GroupFunction
from surefoot.problem.losses import ZERO_ONE
from surefoot.problem.rows import Unlabeled

CROSSFIT, HOLDOUT, TRANSPORT, ANYTIME = "crossfit", "holdout", "transport", "anytime"
METHODS = (CROSSFIT, HOLDOUT, TRANSPORT, ANYTIME)
_ANOTHER = "the labels are of another population than the rows of X_target"


def error_bound(  # noqa: PLR0913 - one keyword per part of the question
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None = None,
    X_target: ArrayLike | Unlabeled | None = None,
    method: str | None = None,
    level: float = 0.9,
    loss: str | ArrayLike = ZERO_ONE,
    groups: ArrayLike | GroupFunction | None = None,
    classes: ArrayLike | None = None,
    X_train: ArrayLike | None = None,
    control_variate: bool = False,
    n_folds: int = 10,
    radius: float | str | CalibratedRadius | None = None,
    certify_options: Mapping[str, Any] | None = None,
    clip: float = 1e-3,
    cv_groups: ArrayLike | None = None,
    random_state: int | None = 0,
) -> ErrorBound:
    """Upper bound on the mean loss of a classifier, with its kind of guarantee.

    Which method fits follows from what one has, not from the values: the smallest of several bounds at one level does
    not hold at that level. docs/bounds.md has the table to decide by.

    Parameters
    ----------
    classifier : classifier
        "crossfit": any scikit-learn classifier, fitted or not; the bound is for it when trained on all of X, y.
        "holdout", "anytime": a fitted classifier that has not seen X, y; or an unfitted one, of which a clone is
        trained on a random half of the labels and judged by the other (it is the bound's `classifier`).
        "transport": a fitted classifier.
    X : array of shape (n, d)
        Labeled rows; for "anytime" in the order in which they were drawn.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        "holdout", "anytime": the bound is then on X and X_unlabeled together, from which the rows of X must have been
        drawn uniformly; without them, on the population. "transport": as in `certify`. "crossfit": passed to a fit
        that takes X_unlabeled, and used by control_variate.
    X_target : array of shape (M, d), Unlabeled or None, default=None
        "transport": the rows to judge, of another population than the labels, as in `certify`. The other methods speak
        of the labels' own population, and are refused.
    method : {"crossfit", "holdout", "transport", "anytime"} or None, default=None
        Which bound. None: "crossfit", and "transport" with X_target.
    level : float in (0, 1), default=0.9
        Probability with which the bound is meant to hold.
    loss : {"zero_one", "log_loss"} or array of shape (K, K), default="zero_one"
        The log loss is clipped: −log(max(p, clip)). A matrix: entry [k, c] is the loss of predicting class c where the
        truth is k.
    groups : array of shape (n,) or (n + M,), or None, default=None
        Of the rows of X, or also of X_unlabeled. A bound per group, all of which hold together; the value is the
        largest. "transport": one per row of the feature marginal, or a function of rows, as in `certify`.
    classes : array of shape (K,) or None, default=None
        All classes, where the labels show one that the classifier does not know.
    X_train : array of shape (m, d) or None, default=None
        "holdout", "anytime": the rows that the classifier was trained on, so that rows of X among them are refused.
    control_variate : bool, default=False
        "crossfit", zero-one loss: let the believed errors on X_unlabeled help; needs predict_proba.
    n_folds : int, default=10
        "crossfit": folds of the labeled rows.
    radius : float, "calibrated", CalibratedRadius or None, default=None
        "transport": as in `certify`; None estimates it from the labels at this level.
    certify_options : dict or None, default=None
        "transport": more arguments of `certify`, such as label_prior.
    clip : float, default=1e-3
        Smallest probability in the log loss, so that no loss exceeds −log(clip). Larger than in `certify`: a bound from
        a sample grows with the largest loss.
    cv_groups : array of shape (n,) or (n + M,), or None, default=None
        Which rows belong together, of one customer or document, say: they stay in one fold or half, and count as one
        draw. Of the rows of X; for a bound on a pool also of X_unlabeled. None: rows with equal features belong
        together. Pass range(n) where equal rows are independent draws, as with features of few values.
    random_state : int or None, default=0
        Seed of the folds, and of the half that is held out. A fixed one, so that the same data give the same bound.

    Returns
    -------
    ErrorBound
        The bound, what it speaks of, what it assumes and what kind of guarantee it is.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> found = error_bound(DecisionTreeClassifier(random_state=0), X[:100], y[:100])
    >>> found.kind, found.n_labels
    ('measured', 100)
    """
    method = (CROSSFIT if X_target is None else TRANSPORT) if method is None else method
    if method not in METHODS:
        raise ParameterError("method", f"must be one of {', '.join(METHODS)}", repr(method), "Pass one of these.")
    if X_target is not None and method != TRANSPORT:
        raise ParameterError(
            "X_target",
            f"must not be given for method={method!r}: labels of one population say nothing of another",
            "X_target",
            'Pass method="transport", or labels of rows of X_target.',
        )
    if cv_groups is not None and method == TRANSPORT:
        raise ParameterError(
            "cv_groups", "must be None, since they are for folds and halves", 'method="transport"', "Omit cv_groups."
        )
    in_memory = method != TRANSPORT
    asked = Arguments(
        classifier, X, y, X_unlabeled, level, loss, groups, classes, clip, cv_groups, random_state, in_memory
    )
    if method == TRANSPORT:
        return transport_bound(asked, radius, certify_options, X_target=X_target)
    asked.clusters.warn()
    if method == CROSSFIT:
        return crossfit_bound(asked, control_variate, check_positive_integer(n_folds, "n_folds"))
    return unseen_bound(asked, X_train, anytime=method == ANYTIME)


def error_bounds(
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None = None,
    X_target: ArrayLike | Unlabeled | None = None,
    X_holdout: ArrayLike | None = None,
    y_holdout: ArrayLike | None = None,
    random_labels: bool = True,
    level: float = 0.9,
    loss: str | ArrayLike = ZERO_ONE,
    groups: ArrayLike | None = None,
    radius: float | str | CalibratedRadius | None = None,
    **options: Any,
) -> ErrorBounds:
    """Every bound that applies to a classifier trained on X, y, as a table.

    Parameters
    ----------
    classifier : classifier
        Fitted to X, y, or not fitted.
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        Unlabeled rows, for "crossfit" and "transport".
    X_target : array of shape (M, d), Unlabeled or None, default=None
        The rows to judge, of another population than the labels: these leave the transport bound alone.
    X_holdout : array of shape (m, d) or None, default=None
        Rows that the classifier has not seen: they judge this very classifier. Without them "holdout" speaks of a clone
        trained on half of X, y.
    y_holdout : array of shape (m,) or None, default=None
        Their labels.
    random_labels : bool, default=True
        Whether the rows of X were drawn at random. Chosen rows leave the transport bound alone, at a radius given.
    level : float in (0, 1), default=0.9
        Probability with which each bound is meant to hold.
    loss : {"zero_one", "log_loss"} or array of shape (K, K), default="zero_one"
        A matrix: entry [k, c] is the loss of predicting class c where the truth is k.
    groups : array of shape (n,) or None, default=None
        Groups of the rows of X, for the cross-fitted bound; with X_target those of its rows, for the transport bound.
    radius : float, "calibrated", CalibratedRadius or None, default=None
        Radius of the transport bound; None estimates it from the labels at this level.
    **options : dict
        More arguments of `error_bound`; cv_groups (n,) is for the bounds that train on some of the rows.

    Returns
    -------
    ErrorBounds
        The bounds by method, which of them to read, and why the others are left out.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> found = error_bounds(DecisionTreeClassifier(random_state=0), X[:100], y[:100])
    >>> list(found.bounds), found.advice
    (['crossfit', 'holdout'], 'crossfit')
    """
    cv_groups = options.pop("cv_groups", None)
    common: dict[str, Any] = {"level": level, "loss": loss, **options}
    if X_target is not None:
        common |= {"radius": radius, "groups": groups}
        found = error_bound(classifier, X, y, X_target=X_target, method=TRANSPORT, **common)
        return ErrorBounds({TRANSPORT: found}, TRANSPORT, dict.fromkeys((CROSSFIT, HOLDOUT, ANYTIME), _ANOTHER))
    if (X_holdout is None) != (y_holdout is None):
        raise ParameterError("X_holdout", "and y_holdout must be given together", "only one", "Pass both, or none.")
    fitted = is_fitted(classifier)
    bounds: dict[str, ErrorBound] = {}
    left_out: dict[str, str] = {}
    if random_labels:
        sample = {"X_unlabeled": X_unlabeled, "groups": groups, "cv_groups": cv_groups}
        bounds[CROSSFIT] = error_bound(classifier, X, y, **sample, **common)
    else:
        left_out[CROSSFIT] = "the labeled rows were chosen, so they are no sample of anything"
    if X_holdout is not None and y_holdout is not None:
        if not fitted:
            raise ParameterError(
                "classifier",
                "must be fitted where labels are held out",
                "one that is not fitted",
                "Fit it to X, y, or leave X_holdout out.",
            )
        for method in (HOLDOUT, ANYTIME):
            bounds[method] = error_bound(classifier, X_holdout, y_holdout, method=method, X_train=X, **common)
    elif random_labels and hasattr(classifier, "fit"):
        bounds[HOLDOUT] = error_bound(clone(classifier), X, y, method=HOLDOUT, cv_groups=cv_groups, **common)
        left_out[ANYTIME] = "it needs labels that the classifier has not seen: X_holdout, y_holdout, or an Audit"
    else:
        left_out[HOLDOUT] = left_out[ANYTIME] = "they need random labels that the classifier has not seen: X_holdout"
    if not fitted:
        left_out[TRANSPORT] = "it needs a fitted classifier"
    elif not random_labels and not isinstance(radius, int | float):
        left_out[TRANSPORT] = "a radius cannot be estimated from rows that were chosen: pass a number as radius"
    else:
        common |= {"X_unlabeled": X_unlabeled, "radius": radius}
        bounds[TRANSPORT] = error_bound(classifier, X, y, method=TRANSPORT, **common)
    advice = HOLDOUT if X_holdout is not None else CROSSFIT if random_labels else TRANSPORT
    return ErrorBounds(bounds, advice, left_out)
