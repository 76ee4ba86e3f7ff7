"""`error_bound` and `error_bounds`: bound the error rate of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import column_or_1d

from surefoot._errors import ParameterError
from surefoot._validation import check_n_jobs, check_positive_integer
from surefoot.bounds._arguments import Arguments, check_level, is_fitted
from surefoot.bounds.betting import clopper_pearson_upper
from surefoot.bounds.from_labels import crossfit_bound, transport_bound, unseen_bound
from surefoot.bounds.result import ErrorBound, ErrorBounds
from surefoot.certificates.calibration import CalibratedRadius
from surefoot.certificates.groups import GroupFunction
from surefoot.estimators.combined import BEST, CombinedClassifier
from surefoot.priors.clopper_pearson import hypergeometric_upper
from surefoot.problem.losses import ZERO_ONE
from surefoot.problem.rows import Unlabeled, warn_if_picked

CROSSFIT, HOLDOUT, TRANSPORT, ANYTIME = "crossfit", "holdout", "transport", "anytime"
METHODS = (CROSSFIT, HOLDOUT, TRANSPORT, ANYTIME)
_ANOTHER = "the labels come from another population than the rows of X_target"


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
    n_jobs: int | None = None,
) -> ErrorBound:
    """Bound the error rate, or the mean loss, of a classifier.

    Choose the method by the data that you have, not by the values of the bounds. The smallest of several bounds at one
    confidence level does not hold at that level. docs/bounds.md has a table of methods.

    Parameters
    ----------
    classifier : classifier, or list of classifiers
        "crossfit": any scikit-learn classifier, fitted or not. The bound covers this classifier trained on all of X, y.
        A list of candidates means `CombinedClassifier(candidates, rule="best")`, which chooses one candidate by
        cross-validation within each fold. The bound then also covers the choice.
        "holdout", "anytime": a fitted classifier that has not seen X, y. If it is unfitted, a clone is trained on a
        random half of the labels and tested on the second half. The bound's `classifier` is this clone.
        "transport": a fitted classifier.
    X : array of shape (n, d)
        Labeled rows. For "anytime", pass them in the order in which they were sampled.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        "holdout", "anytime": the bound covers the rows of X and X_unlabeled together, and X must be a uniform sample of
        all these rows. Without X_unlabeled, the bound covers the population. "transport": as in `certify`.
        "crossfit": passed to the classifier if its fit accepts X_unlabeled, and used by control_variate.
    X_target : array of shape (M, d), Unlabeled or None, default=None
        "transport": rows of another population that the bound covers, as in `certify`. All other methods cover only the
        population of the labels, and raise an error.
    method : {"crossfit", "holdout", "transport", "anytime"} or None, default=None
        Method of the bound. None: "crossfit", or "transport" with X_target.
    level : float in (0, 1), default=0.9
        Confidence level.
    loss : {"zero_one", "log_loss"} or array of shape (K, K), default="zero_one"
        The log loss is clipped: −log(max(p, clip)). A matrix: entry [k, c] is the loss of predicting class c if the
        true class is k.
    groups : array of shape (n,) or (n + M,), or None, default=None
        Groups of the rows of X, or of X and X_unlabeled. Each group gets a bound. All bounds hold simultaneously, and
        the value is the largest bound. "transport": one entry per row of the feature marginal, or a function of rows,
        as in `certify`.
    classes : array of shape (K,) or None, default=None
        All classes, if the labels contain a class that the classifier does not know.
    X_train : array of shape (m, d) or None, default=None
        "holdout", "anytime": the training rows of the classifier. Rows of X among them raise an error.
    control_variate : bool, default=False
        "crossfit", zero-one loss: use the classifier's own error probabilities on X_unlabeled to reduce variance.
        Requires predict_proba.
    n_folds : int, default=10
        "crossfit": number of folds.
    radius : float, "calibrated", CalibratedRadius or None, default=None
        "transport": as in `certify`. None estimates the radius from the labels at this confidence level.
    certify_options : dict or None, default=None
        "transport": further arguments of `certify`, such as label_prior.
    clip : float, default=1e-3
        Smallest probability in the log loss, so that no loss exceeds −log(clip). It is larger than in `certify`
        because a bound from a sample grows with the largest loss.
    cv_groups : array of shape (n,) or (n + M,), or None, default=None
        Groups of dependent rows, such as rows of one customer or document. A group stays in one fold or half, and
        counts once. Pass one entry per row of X; for a bound on a pool, also per row of X_unlabeled. None: rows with
        equal features form a group. Pass range(n) if equal rows are independent, as with features that take few values.
    random_state : int or None, default=0
        Seed of the folds and of the held-out half. The fixed default gives the same bound for the same data.
    n_jobs : int or None, default=None
        "crossfit": number of folds to fit at the same time, in threads. None means 1, and -1 one per core. The result
        does not depend on n_jobs.

    Returns
    -------
    ErrorBound
        The bound with its statement, assumptions and kind of guarantee.

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
            f"must be None for method={method!r}, which covers the population of the labels only",
            "X_target",
            'Pass method="transport", or label rows of X_target.',
        )
    if cv_groups is not None and method == TRANSPORT:
        raise ParameterError(
            "cv_groups", "must be None for the transport bound", 'method="transport"', "Omit cv_groups."
        )
    if isinstance(classifier, list | tuple):
        classifier = CombinedClassifier(classifier, BEST)
    in_memory = method != TRANSPORT
    asked = Arguments(
        classifier, X, y, X_unlabeled, level, loss, groups, classes, clip, cv_groups, random_state, in_memory
    )
    if method == TRANSPORT:
        return transport_bound(asked, radius, certify_options, X_target=X_target)
    asked.clusters.warn()
    if not asked.clusters.named:
        warn_if_picked(asked.X, asked.X_unlabeled)
    if method == CROSSFIT:
        return crossfit_bound(asked, control_variate, check_positive_integer(n_folds, "n_folds"), check_n_jobs(n_jobs))
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
    """Compute every bound that applies to a classifier trained on X, y.

    Parameters
    ----------
    classifier : classifier
        Fitted on X, y, or unfitted.
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        Unlabeled rows, for "crossfit" and "transport".
    X_target : array of shape (M, d), Unlabeled or None, default=None
        Rows of another population that the bound covers. Only the transport bound is available for them.
    X_holdout : array of shape (m, d) or None, default=None
        Rows that the classifier has not seen, used to test it. Without X_holdout, "holdout" covers a clone trained on
        half of X, y.
    y_holdout : array of shape (m,) or None, default=None
        Their labels.
    random_labels : bool, default=True
        Whether the rows of X were sampled at random. If not, only the transport bound at a given radius is available.
    level : float in (0, 1), default=0.9
        Confidence level of each bound.
    loss : {"zero_one", "log_loss"} or array of shape (K, K), default="zero_one"
        A matrix: entry [k, c] is the loss of predicting class c if the true class is k.
    groups : array of shape (n,) or None, default=None
        Groups of the rows of X, for the cross-fitted bound. With X_target, groups of its rows for the transport bound.
    radius : float, "calibrated", CalibratedRadius or None, default=None
        Radius of the transport bound. None estimates it from the labels at this confidence level.
    **options : dict
        Further arguments of `error_bound`. cv_groups (n,) applies to the bounds that train on part of the rows.

    Returns
    -------
    ErrorBounds
        The bounds by method, the method to read, and the reasons why methods are not available.

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
        raise ParameterError("X_holdout", "and y_holdout must be given together", "only one", "Pass both or neither.")
    fitted = is_fitted(classifier)
    bounds: dict[str, ErrorBound] = {}
    left_out: dict[str, str] = {}
    if random_labels:
        sample = {"X_unlabeled": X_unlabeled, "groups": groups, "cv_groups": cv_groups}
        bounds[CROSSFIT] = error_bound(classifier, X, y, **sample, **common)
    else:
        left_out[CROSSFIT] = "the labeled rows are not a random sample"
    if X_holdout is not None and y_holdout is not None:
        if not fitted:
            raise ParameterError(
                "classifier",
                "must be fitted if X_holdout is given",
                "an unfitted classifier",
                "Fit it on X, y, or omit X_holdout.",
            )
        for method in (HOLDOUT, ANYTIME):
            bounds[method] = error_bound(classifier, X_holdout, y_holdout, method=method, X_train=X, **common)
    elif random_labels and hasattr(classifier, "fit"):
        bounds[HOLDOUT] = error_bound(clone(classifier), X, y, method=HOLDOUT, cv_groups=cv_groups, **common)
        left_out[ANYTIME] = "requires labels that the classifier has not seen (pass X_holdout, or run an Audit)"
    else:
        left_out[HOLDOUT] = left_out[ANYTIME] = "requires random labels that the classifier has not seen: X_holdout"
    if not fitted:
        left_out[TRANSPORT] = "requires a fitted classifier"
    elif not random_labels and not isinstance(radius, int | float):
        left_out[TRANSPORT] = "requires a numeric radius, since no radius can be estimated from chosen rows"
    else:
        common |= {"X_unlabeled": X_unlabeled, "radius": radius}
        bounds[TRANSPORT] = error_bound(classifier, X, y, method=TRANSPORT, **common)
    advice = HOLDOUT if X_holdout is not None else CROSSFIT if random_labels else TRANSPORT
    return ErrorBounds(bounds, advice, left_out)


def error_rate_bound(
    y_true: ArrayLike, y_pred: ArrayLike, *, level: float = 0.9, pool_size: int | None = None
) -> float:
    """Bound the error rate of fixed predictions from labels not used in training, as a scikit-learn metric.

    `make_scorer(error_rate_bound, greater_is_better=False)` makes a scorer. The bound assumes that the labels are a
    random sample, that the classifier was not trained on them, and that you test one classifier. The smallest of
    several bounds, as in a search over parameters, does not hold at this confidence level.

    Parameters
    ----------
    y_true : array of shape (n,)
        Labels.
    y_pred : array of shape (n,)
        Predictions.
    level : float, default=0.9
        Confidence level.
    pool_size : int or None, default=None
        Number of rows that the labeled rows were sampled from without replacement. The bound then covers these rows.
        None: the bound covers the population.

    Returns
    -------
    float
        One-sided Clopper-Pearson bound, or hypergeometric bound with pool_size.

    Examples
    --------
    >>> round(error_rate_bound([0, 1, 1, 0] * 10, [0, 1, 1, 1] + [0, 1, 1, 0] * 9), 4)
    0.0938
    """
    known, given = column_or_1d(y_true), column_or_1d(y_pred)
    if len(known) != len(given) or not len(known):
        raise ParameterError(
            "y_pred", f"must have one prediction per label, {len(known)}, at least one", len(given), "Pass that many."
        )
    level, n, errors = check_level(level), len(known), int((known != given).sum())
    if pool_size is None:
        return clopper_pearson_upper(errors, n, level)
    N = check_positive_integer(pool_size, "pool_size")
    if n > N:
        raise ParameterError(
            "pool_size", f"must be at least the number of labels, {n}", N, "Count all rows of the pool."
        )
    return hypergeometric_upper(errors, n, N, level) / N
