"""What linear classifiers share: prediction, checks of labeled rows, warnings about a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from surefoot._errors import see, warn_caller
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
    """Prediction with coef_ and intercept_: one row of coefficients for two classes, K rows for K ≥ 3."""

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Scores of the classes, before they become probabilities.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows, with the features of the fit.

        Returns
        -------
        array of shape (N,), or (N, K) for K ≥ 3 classes
            Scores of the second of two classes, or of each class.
        """
        check_is_fitted(self)
        rows: FloatArray = validate_data(self, X, reset=False, dtype=np.float64)
        scores = rows @ self.coef_.T + self.intercept_
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows, with the features of the fit.

        Returns
        -------
        array of shape (N,)
            Classes.
        """
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probability of each class at each row.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows, with the features of the fit.

        Returns
        -------
        array of shape (N, K)
            Probabilities, with columns in the order of `classes_`.
        """
        return probabilities(self.decision_function(X))

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Logarithm of the probability of each class at each row, without underflow.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows, with the features of the fit.

        Returns
        -------
        array of shape (N, K)
            Logarithms, with columns in the order of `classes_`.
        """
        return -log_loss_matrix(self.decision_function(X))


def check_labeled(
    estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, classes: ArrayLike | None
) -> tuple[FloatArray, NDArray[np.intp], FloatArray]:
    """Labeled rows, class codes and weights; sets classes_ and the feature names."""
    check_all_labeled(y)
    rows, labels = validate_data(estimator, X, y, dtype=np.float64)
    check_classification_targets(labels)
    estimator.classes_, codes = encode_labels(labels, classes)
    return rows, codes, check_weights(sample_weight, "sample_weight", len(rows))


def warn_about(status: str, gap: float, tol: float) -> None:
    """Say so where a fit did not reach its tolerance, or has no finite optimum."""
    warn_about_gap(gap, tol, "Raise $max_iter or $tol, or $radius where it is close to the minimal one.")
    if status == "separable":
        warn_caller(
            SeparableWarning(
                "separable",
                "the worst case is linearly separable: no finite coefficients attain the minimum, so they grow as tol "
                "shrinks. The certificate holds for the coefficients returned.",
                "Set $l2 > 0 or raise $radius for a finite optimum." + see("separable"),
            )
        )
