"""Combine classifiers: average their probabilities, or choose the classifier that predicts best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, has_fit_parameter, validate_data

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_all_labeled, check_positive_integer, encode_labels
from surefoot.priors.clopper_pearson import fold_numbers
from surefoot.problem.rows import Unlabeled, move_unlabeled, unwrap

AVERAGE, BEST = "average", "best"
# The smallest probability in the log loss of the choice: one confident mistake must not outweigh all other rows.
_CLIP = 1e-3


class CombinedClassifier(ClassifierMixin, BaseEstimator):
    """Average the class probabilities of several classifiers, or choose the classifier that predicts best.

    Rule "average" is soft voting: it fits each of `classifiers` to all rows and averages the probabilities. Rule "best"
    fits the classifier with the smallest log loss in cross-validation on the labeled rows. The choice is part of `fit`,
    so `error_bound` repeats it in each fold, and the bound covers the chosen classifier.

    There are two differences from scikit-learn's VotingClassifier and GridSearchCV. Every classifier whose `fit`
    accepts X_unlabeled receives the unlabeled rows. A class may be missing from a fold.

    Parameters
    ----------
    classifiers : sequence of classifiers
        At least one classifier with predict_proba.
    rule : {"average", "best"}, default="average"
        How to combine the classifiers.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from y.
    n_folds : int, default=5
        Number of folds for the rule "best".
    random_state : int or None, default=0
        Seed of the folds.

    Attributes
    ----------
    classifiers_ : list of classifiers
        All fitted classifiers, or with rule="best" only the chosen classifier.
    losses_ : array or None
        Cross-validated log loss of each classifier, None with rule="average".
    classes_ : array of shape (K,)
        Classes in sorted order.

    Examples
    --------
    >>> import surefoot as sf
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> parts = [sf.RobustLogisticRegression(), RandomForestClassifier(random_state=0)]
    >>> clf = sf.CombinedClassifier(parts).fit(X[:40], y[:40], X_unlabeled=X[40:])
    >>> clf.predict_proba(X[40:]).shape
    (529, 2)
    """

    def __init__(
        self,
        classifiers: Sequence[Any],
        rule: str = AVERAGE,
        *,
        classes: ArrayLike | None = None,
        n_folds: int = 5,
        random_state: int | None = 0,
    ) -> None:
        self.classifiers = classifiers
        self.rule = rule
        self.classes = classes
        self.n_folds = n_folds
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, X_unlabeled: Any = None
    ) -> CombinedClassifier:
        """Fit all classifiers, or choose a classifier and fit it.

        Parameters
        ----------
        X : array of shape (n, d)
            Labeled rows, and possibly rows without a label.
        y : array of shape (n,)
            Their labels. -1, None or NaN mark a row without a label, as for `RobustLogisticRegression`.
        sample_weight : array of shape (n,) or None, default=None
            Weight of each labeled row, for the classifiers whose `fit` accepts weights.
        X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
            Rows without a label, for the classifiers whose `fit` accepts them.

        Returns
        -------
        CombinedClassifier
            The estimator itself, fitted.
        """
        candidates = self._checked()
        X, y, sample_weight, X_unlabeled = move_unlabeled(X, y, sample_weight, X_unlabeled, self.classes)
        check_all_labeled(y)
        rows, labels = validate_data(self, X, y, ensure_all_finite=self._finite)
        check_classification_targets(labels)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, rows)
        more = unwrap(X_unlabeled)[0]
        self.classes_ = np.unique(labels) if self.classes is None else encode_labels(labels, self.classes)[0]
        self.losses_ = None
        if self.rule == BEST and len(candidates) > 1:
            self.losses_ = self._losses(candidates, rows, labels, weights, more)
            candidates = [candidates[int(self.losses_.argmin())]]
        self.classifiers_ = [_fitted(one, rows, labels, weights, more) for one in candidates]
        return self

    @property
    def _finite(self) -> bool | str:
        """Return "allow-nan" if every classifier accepts missing values, otherwise True: rows must be finite."""
        return "allow-nan" if get_tags(self).input_tags.allow_nan else True

    def _checked(self) -> list[Any]:
        """Return the classifiers as a list, after checks of all parameters."""
        if self.rule not in (AVERAGE, BEST):
            raise ParameterError("rule", 'must be "average" or "best"', repr(self.rule), "Pass one of these.")
        check_positive_integer(self.n_folds, "n_folds")
        found = list(self.classifiers) if isinstance(self.classifiers, list | tuple) else []
        wrong = [one for one in found if not hasattr(one, "fit") or not hasattr(one, "predict_proba")]
        if wrong or not found:
            got = type(wrong[0]).__name__ if wrong else repr(self.classifiers)
            raise ParameterError(
                "classifiers", "must be a list of classifiers with predict_proba", got, "Pass at least one."
            )
        return found

    def _losses(
        self, candidates: list[Any], X: FloatArray, y: NDArray[Any], weights: FloatArray | None, more: Any
    ) -> FloatArray:
        """Return the cross-validated log loss of each classifier."""
        if weights is not None:
            counted = weights > 0
            X, y, weights = X[counted], y[counted], weights[counted]
        copies = np.unique(np.column_stack([X, np.searchsorted(self.classes_, y)]), axis=0, return_inverse=True)[1]
        folds = fold_numbers(y, max(self.n_folds, 2), self.random_state, copies.ravel())
        own = np.searchsorted(self.classes_, y)
        losses = np.zeros((len(candidates), len(y)))
        for fold in np.unique(folds):
            held, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            rows, some = X[held], None if weights is None else weights[rest]
            everything = None if more is None else np.vstack([np.asarray(more), rows])
            for at, candidate in enumerate(candidates):
                proba = np.zeros((len(held), len(self.classes_)))
                if len(np.unique(y[rest])) > 1:
                    model = _fitted(candidate, X[rest], y[rest], some, everything)
                    proba = proba_over(model, rows, self.classes_)
                losses[at, held] = -np.log(np.maximum(proba[np.arange(len(held)), own[held]], _CLIP))
        found: FloatArray = np.average(losses, axis=1, weights=weights)
        return found

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
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, ensure_all_finite=self._finite)
        mean: FloatArray = np.mean([proba_over(one, rows, self.classes_) for one in self.classifiers_], axis=0)
        return mean

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
        if len(getattr(self, "classifiers_", [])) == 1:  # its prediction may differ from the argmax
            rows = validate_data(self, X, reset=False, ensure_all_finite=self._finite)
            return np.asarray(self.classifiers_[0].predict(rows)).ravel()
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            inner = [get_tags(one).input_tags for one in self.classifiers]
        except (TypeError, AttributeError):  # fit reports parameters that are not classifiers
            return tags
        tags.input_tags.allow_nan = all(one.allow_nan for one in inner)
        return tags


def proba_over(classifier: Any, X: Any, classes: NDArray[Any]) -> FloatArray:
    """Return the probabilities (N, K) of a classifier for `classes`, zero for classes that it does not know."""
    found = np.zeros((len(X), len(classes)))
    found[:, np.searchsorted(classes, classifier.classes_)] = classifier.predict_proba(X)
    return found


def _fitted(classifier: Any, X: Any, y: NDArray[Any], weights: FloatArray | None, more: Any) -> Any:
    """Return a fitted clone. Rows without a label go to classifiers whose fit accepts them."""
    options: dict[str, Any] = {}
    if weights is not None and has_fit_parameter(classifier, "sample_weight"):
        options["sample_weight"] = weights
    if more is not None and has_fit_parameter(classifier, "X_unlabeled"):
        options["X_unlabeled"] = Unlabeled(more)
    return clone(classifier).fit(X, y, **options)


# Maximum rows × trees to evaluate at a time.
_ENTRIES = 1 << 19


class TreeAverage(ClassifierMixin, BaseEstimator):
    """A fitted forest as plain arrays, for model files. NumPy computes the same probabilities.

    A file with these arrays is small, and NumPy checks every index. A forged file cannot make compiled code read
    foreign memory, which is possible with the trees of scikit-learn.

    roots_ : (T,) first node of each tree; feature_, threshold_, left_, right_ : (nodes,) of all trees, where a leaf is
    its own child; shares_ : (nodes, K) class shares; depth_ : depth of the deepest tree.
    """

    @classmethod
    def from_forest(cls, forest: Any) -> TreeAverage:
        """Convert a fitted RandomForestClassifier."""
        found, trees = cls(), [one.tree_ for one in forest.estimators_]
        sizes = [tree.node_count for tree in trees]
        found.roots_ = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        own, first = np.arange(sum(sizes)), np.repeat(found.roots_, sizes)
        left, right = (np.concatenate([getattr(t, f"children_{side}") for t in trees]) for side in ("left", "right"))
        leaf = left < 0
        found.left_, found.right_ = (np.where(leaf, own, child + first) for child in (left, right))
        found.feature_ = np.where(leaf, 0, np.concatenate([tree.feature for tree in trees]))
        found.threshold_ = np.concatenate([tree.threshold for tree in trees])
        found.shares_ = np.concatenate([tree.value[:, 0] for tree in trees])
        found.depth_ = max(tree.max_depth for tree in trees)
        found.classes_, found.n_features_in_ = forest.classes_, forest.n_features_in_
        return found

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the mean (N, K) over the trees."""
        rows = validate_data(self, X, reset=False, dtype=np.float32)
        parts = np.array_split(rows, max(len(rows) * len(self.roots_) // _ENTRIES, 1))
        return np.concatenate([self._mean(part) for part in parts])

    def _mean(self, rows: NDArray[np.float32]) -> FloatArray:
        at, node = np.arange(len(rows))[:, None], np.tile(self.roots_, (len(rows), 1))
        for _ in range(min(self.depth_, len(self.feature_))):
            smaller = rows[at, self.feature_[node]] <= self.threshold_[node]
            node = np.where(smaller, self.left_[node], self.right_[node])
        mean: FloatArray = self.shares_[node].mean(axis=1)
        return mean

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class (N,) of each row."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
