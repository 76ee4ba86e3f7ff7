"""Shared by the linear classifiers: prediction, checks of labeled rows, and warnings about a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from surefoot._errors import DOCUMENTATION, see, warn_caller
from surefoot._validation import (
    CallbackSupportMixin,
    FloatArray,
    SeparableWarning,
    check_all_labeled,
    check_weights,
    encode_labels,
    warn_about_gap,
)
from surefoot.problem.losses import log_loss_matrix, probabilities


class LinearClassifier(ClassifierMixin, CallbackSupportMixin, BaseEstimator):
    """Predict from coef_ and intercept_: one row of coefficients for two classes, K rows for K ≥ 3."""

    # where the question mark in a notebook leads; other classes, such as a user's own, have no page
    _doc_link_module = "surefoot"
    _doc_link_template = f"{DOCUMENTATION}/api/generated/surefoot.{{estimator_name}}.html"

    def _html_repr(self) -> str:
        """The diagram of scikit-learn, and below it the certificate of the fit."""
        certificate = getattr(self, "certificate_", None)
        return str(estimator_html_repr(self)) + ("" if certificate is None else certificate._repr_html_())

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Compute the score of each class, before conversion to probabilities.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows with the same features as in `fit`.

        Returns
        -------
        array of shape (N,), or (N, K) for K ≥ 3 classes
            Score of the second class for two classes, otherwise of each class.
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


def check_labeled(
    estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, classes: ArrayLike | None
) -> tuple[FloatArray, NDArray[np.intp], FloatArray]:
    """Return labeled rows, class codes and weights. Sets classes_ and the feature names of the estimator."""
    check_all_labeled(y)
    rows, labels = validate_data(estimator, X, y, dtype=np.float64)
    check_classification_targets(labels)
    estimator.classes_, codes = encode_labels(labels, classes)
    return rows, codes, check_weights(sample_weight, "sample_weight", len(rows))


def warn_about(status: str, gap: float, tol: float) -> None:
    """Warn if a fit did not reach its tolerance or has no finite optimum."""
    warn_about_gap(gap, tol, "Raise $max_iter or $tol, or raise $radius if it is close to the minimal radius.")
    if status == "separable":
        warn_caller(
            SeparableWarning(
                "separable",
                "the worst case is linearly separable, so no finite coefficients attain the minimum: they grow as tol "
                "shrinks. The certificate holds for the coefficients returned.",
                "Set $l2 > 0 or raise $radius for a finite optimum." + see("separable"),
            )
        )
