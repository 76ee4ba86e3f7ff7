"""Shared by the classifiers: prediction of linear classifiers, the problem built by fit, warnings about a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from surefoot._errors import DOCUMENTATION, ParameterError, see, warn_caller
from surefoot._validation import (
    CallbackSupportMixin,
    FloatArray,
    SeparableWarning,
    check_all_labeled,
    check_positive_integer,
    check_weights,
    encode_labels,
    warn_about_gap,
)
from surefoot.backends.compute import Compute
from surefoot.costs.learned import resolve_metric
from surefoot.costs.metrics import Precomputed
from surefoot.priors.clopper_pearson import fold_numbers
from surefoot.problem.losses import log_loss_matrix, probabilities
from surefoot.problem.placement import (
    RowPlacement,
    announce_long_solve,
    check_compute,
    needs_memory,
    place,
    robust_problem,
)
from surefoot.problem.robust import RobustProblem
from surefoot.problem.rows import TARGET, LabeledData, check_unlabeled, is_unlabeled, move_unlabeled

PRECOMPUTED = "precomputed"
# Precomputed distances between labeled rows may be asymmetric by this fraction of the largest distance.
_ASYMMETRY = 1e-6


class CertifiedClassifier(ClassifierMixin, CallbackSupportMixin, BaseEstimator):
    """A classifier whose fit has a certificate, which notebooks show."""

    # target of the question mark in a notebook; other classes, such as user classes, have no page
    _doc_link_module = "surefoot"
    _doc_link_template = f"{DOCUMENTATION}/api/generated/surefoot.{{estimator_name}}.html"

    def _html_repr(self) -> str:
        """Return the diagram of scikit-learn, followed by the certificate of the fit."""
        certificate = getattr(self, "certificate_", None)
        return str(estimator_html_repr(self)) + ("" if certificate is None else certificate._repr_html_())


class LinearClassifier(CertifiedClassifier):
    """Predict from coef_ and intercept_: one row of coefficients for two classes, K rows for K ≥ 3."""

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Compute the score of each class, before conversion to probabilities.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows with the same features as in `fit`.

        Returns
        -------
        array of shape (N,), or (N, K) for K ≥ 3 classes
            Score of the second class for two classes, otherwise score of each class.
        """
        check_is_fitted(self)
        rows: FloatArray = validate_data(self, X, reset=False, dtype=np.float64)
        scores = rows @ self.coef_.T + self.intercept_
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows with the same features as in `fit`.

        Returns
        -------
        array of shape (N,)
            Predicted classes.
        """
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Predict the probability of each class at each row.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows with the same features as in `fit`.

        Returns
        -------
        array of shape (N, K)
            Probabilities, with columns in the order of `classes_`.
        """
        return probabilities(self.decision_function(X))

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Predict the logarithm of each class probability, without underflow.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows with the same features as in `fit`.

        Returns
        -------
        array of shape (N, K)
            Log probabilities, with columns in the order of `classes_`.
        """
        return -log_loss_matrix(self.decision_function(X))


def labeled_folds(
    y: ArrayLike, n_folds: int = 10, *, classes: ArrayLike | None = None, random_state: int | None = None
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Split rows for cross-validation so that only labeled rows are scored. Pass the result as `cv` to scikit-learn.

    All unlabeled rows are in every training part. Each class is spread evenly over the folds.

    Parameters
    ----------
    y : array of shape (n,)
        Labels. -1, None or NaN mark a row without a label, as for `RobustLogisticRegression.fit`.
    n_folds : int, default=10
        Number of folds.
    classes : array of shape (K,) or None, default=None
        All classes, if -1 is a class.
    random_state : int or None, default=None
        Seed of the folds.

    Returns
    -------
    list of (train, test)
        Positions of rows, for each fold.

    Examples
    --------
    >>> [(train.tolist(), test.tolist()) for train, test in labeled_folds([0, -1, 1, 0, 1], 2, random_state=0)]
    [([0, 1, 2], [3, 4]), ([1, 3, 4], [0, 2])]
    """
    n_folds, labels = check_positive_integer(n_folds, "n_folds"), np.asarray(y).ravel()
    known = np.flatnonzero(~is_unlabeled(labels, classes))
    if not 2 <= n_folds <= len(known):
        raise ParameterError(
            "n_folds",
            f"must be at least 2 and at most the number of labels, {len(known)}",
            n_folds,
            "Label more rows.",
        )
    folds = fold_numbers(labels[known], n_folds, random_state)
    tests = [known[folds == fold] for fold in range(n_folds)]
    return [(np.setdiff1d(np.arange(len(labels)), test), test) for test in tests]


def check_labeled(
    estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, classes: ArrayLike | None
) -> tuple[FloatArray, NDArray[np.intp], FloatArray]:
    """Return labeled rows, class codes and weights. Set classes_ and the feature names of the estimator."""
    check_all_labeled(y)
    rows, labels = validate_data(estimator, X, y, dtype=np.float64)
    check_classification_targets(labels)
    estimator.classes_, codes = encode_labels(labels, classes)
    return rows, codes, check_weights(sample_weight, "sample_weight", len(rows))


def problem_of_fit(  # noqa: PLR0913 - one keyword per part of the problem
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    X_unlabeled: Any,
    X_target: Any,
    *,
    label_prior: Any,
    label_cost: Any,
    metric: Any,
    tol: float,
    n_jobs: int | None,
    compute: Compute | None = None,
    memory_only: bool = False,
    merge: bool = False,
) -> RobustProblem:
    """Build the robust problem from the arguments of fit. Set classes_ and the feature names of the estimator.

    Rows of X without a label count as rows of X_unlabeled.
    metric : "precomputed" if the rows themselves are distances to the labeled rows. merge : as for `robust_problem`.
    """
    if not is_precomputed(metric):
        X, y, sample_weight, X_unlabeled = move_unlabeled(X, y, sample_weight, X_unlabeled, estimator.classes)
    rows, codes, weights = check_labeled(estimator, X, y, sample_weight, estimator.classes)
    measured = is_precomputed(metric)
    data = LabeledData(rows, codes, weights, None, estimator.classes_, resolve_metric("l2" if measured else metric))
    in_blocks = check_compute(compute) is not None
    memory_only = memory_only or (not in_blocks and (measured or needs_memory(data.metric, tol)))
    placed = place(X_unlabeled, X, *rows.shape, X_target=X_target, memory_only=memory_only, blocks_only=in_blocks)
    if placed.rows is not None:
        placed = replace(placed, rows=check_unlabeled(estimator, rows, placed.rows, placed.name))
    if measured:
        data = replace(data, metric=_precomputed(rows, placed, compute))
    problem = robust_problem(data, placed, label_prior, label_cost, compute, n_jobs, merge=merge)
    announce_long_solve(problem, compute)
    return problem


def is_precomputed(metric: Any) -> bool:
    """Return True if rows are passed as distances to the labeled rows."""
    return isinstance(metric, str) and metric == PRECOMPUTED


def _precomputed(rows: FloatArray, placed: RowPlacement, compute: Compute | None) -> Precomputed:
    """Check distances to the labeled rows that are passed as rows, and return their metric."""
    if placed.in_blocks or compute is not None:
        raise ParameterError(
            "metric",
            "must not be precomputed if rows are processed in blocks",
            repr(PRECOMPUTED),
            "Pass distances of fewer unlabeled rows in memory, and $compute=None.",
        )
    _check_between_labeled(rows)
    if placed.rows is None:
        return Precomputed(rows)
    more = np.asarray(placed.rows)
    if more.min(initial=0.0) < 0:
        raise _negative(placed.name, float(more.min()))
    return Precomputed(more if placed.name == TARGET else np.vstack([rows, more]))


def _check_between_labeled(rows: FloatArray) -> None:
    """Check distances between labeled rows."""
    if rows.shape[0] != rows.shape[1]:
        raise ParameterError(
            "X",
            'must have shape (n, n) if $metric="precomputed", one column per labeled row',
            rows.shape,
            "Pass the distances between the labeled rows, in the order of y.",
        )
    if rows.min(initial=0.0) < 0:
        raise _negative("X", float(rows.min()))
    if rows.diagonal().any():
        raise ParameterError(
            "X",
            "must have zeros on its diagonal if it holds distances between labeled rows",
            repr(float(rows.diagonal().max())),
            "Pass distances, not similarities.",
        )
    off = np.abs(rows - rows.T)
    if off.max(initial=0.0) > _ASYMMETRY * rows.max(initial=0.0):
        i, j = np.unravel_index(int(off.argmax()), off.shape)
        raise ParameterError(
            "X",
            "must be symmetric if it holds distances between labeled rows",
            f"{float(rows[i, j])!r} from row {i} to row {j} and {float(rows[j, i])!r} back",
            "Pass (X + X.T) / 2, or check how the distances were computed.",
        )


def _negative(name: str, least: float) -> ParameterError:
    return ParameterError(name, "must hold non-negative distances", repr(least), "Pass distances, not similarities.")


def warn_about(status: str, gap: float, tol: float) -> None:
    """Warn if a fit did not reach its tolerance or has no finite optimum."""
    warn_about_gap(gap, tol, "Raise $max_iter or $tol, or raise $radius if it is close to the minimal radius.")
    if status == "separable":
        warn_caller(
            SeparableWarning(
                "separable",
                "the worst case is linearly separable, so the coefficients have no finite optimum and grow as tol "
                "shrinks. The certificate holds for the coefficients returned.",
                "Set $l2 > 0 or raise $radius for a finite optimum." + see("separable"),
            )
        )
