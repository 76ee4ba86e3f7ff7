"""scikit-learn's convention: rows of X whose label is -1, None or NaN have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import surefoot as sf
from generators import sample
from refusals import refuses

ESTIMATORS = [
    sf.RobustLogisticRegression(tol=1e-3),
    sf.MinimaxClassifier(tol=1e-3),
    sf.paper.StochasticRobustLogisticRegression(radius=2.0, steps=sf.paper.StochasticGradient(n_steps=300)),
]


@pytest.mark.parametrize("clf", ESTIMATORS, ids=lambda clf: type(clf).__name__)
@pytest.mark.parametrize("mark", [-1, None, np.nan])
def test_rows_without_a_label_are_unlabeled_rows(clf: Any, mark: Any) -> None:
    X, y, U = sample(1)
    order = np.random.default_rng(0).permutation(len(X) + len(U))
    rows = np.vstack([X, U])[order]
    labels = np.array([*y.tolist(), *[mark] * len(U)], dtype=object if mark is None else None)[order]
    kept = np.sort(np.flatnonzero(order < len(X)))
    X, y, U = rows[kept], np.vstack([y]).ravel()[order[kept]], rows[order >= len(X)]
    one = clf.fit(X, y, X_unlabeled=sf.Unlabeled(U)).predict_proba(U)
    np.testing.assert_array_equal(clf.fit(rows, labels).predict_proba(U), one)
    np.testing.assert_array_equal(clf.classes_, [0, 1])


def test_further_rows_and_weights() -> None:
    X, y, U = sample(2)
    clf, weights = sf.RobustLogisticRegression(tol=1e-3), np.arange(1.0, len(X) + 1)
    one = clf.fit(X, y, weights, X_unlabeled=sf.Unlabeled(U)).coef_
    rows, labels = np.vstack([U[:5], X]), np.append(np.full(5, -1), y)
    other = clf.fit(rows, labels, np.append(np.full(5, 99.0), weights), X_unlabeled=sf.Unlabeled(U[5:])).coef_
    np.testing.assert_array_equal(one, other)


def test_minus_one_as_a_class() -> None:
    """Labels -1 and 1 are a common coding of two classes; beside others, -1 is one only if `classes` says so."""
    X, y, U = sample(3)
    clf = sf.RobustLogisticRegression(tol=1e-3)
    assert clf.fit(X, 2 * y - 1).classes_.tolist() == [-1, 1]
    assert clf.fit(np.vstack([X, U]), np.append(2 * y - 1, np.full(len(U), np.nan))).classes_.tolist() == [-1, 1]
    three = sf.RobustLogisticRegression(tol=1e-3, classes=[-1, 0, 1]).fit(X, np.where(np.arange(len(y)) % 3, y, -1))
    assert three.certificate_.worst_case is not None
    assert len(three.certificate_.label_intervals) == 3
    marked = np.where(y == 1, 1, -1)
    with refuses("y"):  # classes without -1: one class is left, and no class 0 is seen
        sf.RobustLogisticRegression(classes=[1]).fit(X, marked)


def test_data_frames_keep_their_names() -> None:
    X, y, U = sample(4)
    frame = pd.DataFrame(np.vstack([X, U]), columns=[f"c{i}" for i in range(X.shape[1])])
    labels = pd.Series([*["no" if one == 0 else "yes" for one in y], *[None] * len(U)])
    clf = sf.RobustLogisticRegression(tol=1e-3).fit(frame, labels)
    assert clf.classes_.tolist() == ["no", "yes"]
    assert clf.feature_names_in_.tolist() == list(frame.columns)
    assert len(clf.worst_case_.row_weights) == len(frame)


def test_a_pipeline_scales_them_without_routing() -> None:
    X, y, U = sample(5)
    rows, labels = 100 + 30 * np.vstack([X, U]), np.append(y, np.full(len(U), -1))
    pipe = make_pipeline(StandardScaler(), sf.RobustLogisticRegression(tol=1e-3)).fit(rows, labels)
    scaled = StandardScaler().fit(rows).transform(rows)
    by_hand = sf.RobustLogisticRegression(tol=1e-3).fit(scaled[: len(X)], y, X_unlabeled=scaled[len(X) :])
    np.testing.assert_allclose(pipe[-1].coef_, by_hand.coef_, rtol=1e-9)


class TestFolds:
    def test_only_labeled_rows_are_scored_each_once(self) -> None:
        y = np.array([0, -1, 1, 0, 1, -1, 0, 1, -1, 1, 0])
        folds = sf.labeled_folds(y, 3, random_state=0)
        assert sorted(np.concatenate([test for _, test in folds]).tolist()) == np.flatnonzero(y >= 0).tolist()
        for train, test in folds:
            assert sorted([*train, *test]) == list(range(len(y)))
            assert set(np.flatnonzero(y < 0)) <= set(train)

    def test_scores_are_those_of_a_loop(self) -> None:
        X, y, U = sample(6)
        rows, labels = np.vstack([X, U]), np.append(y, np.full(len(U), -1))
        pipe = make_pipeline(StandardScaler(), sf.RobustLogisticRegression(tol=1e-3))
        folds = sf.labeled_folds(labels, 3, random_state=0)
        scores = cross_val_score(pipe, rows, labels, cv=folds)
        for score, (train, test) in zip(scores, folds, strict=True):
            scaler = StandardScaler().fit(rows[train])
            some = train[labels[train] >= 0]
            clf = sf.RobustLogisticRegression(tol=1e-3).fit(
                scaler.transform(rows[some]), labels[some], X_unlabeled=scaler.transform(rows[train[labels[train] < 0]])
            )
            assert score == clf.score(scaler.transform(rows[test]), labels[test])

    def test_a_search(self) -> None:
        X, y, U = sample(6)
        rows, labels = np.vstack([X, U]), np.append(y, np.full(len(U), -1))
        grid = {"l2": [1e-3, 1.0]}
        search = GridSearchCV(sf.RobustLogisticRegression(tol=1e-3), grid, cv=sf.labeled_folds(labels, 2)).fit(
            rows, labels
        )
        assert search.best_estimator_.classes_.tolist() == [0, 1]

    @pytest.mark.parametrize("n_folds", [1, 5, 0, 2.5])
    def test_refusals(self, n_folds: Any) -> None:
        with refuses("n_folds"):
            sf.labeled_folds([0, 1, 0, 1, -1], n_folds)


def test_refusals() -> None:
    X, _, _ = sample(0)
    with refuses("y"):
        sf.RobustLogisticRegression().fit(X, np.full(len(X), np.nan))
    with refuses("y"):  # no unlabeled rows in the ball alone
        sf.WassersteinLogisticRegression().fit(X, [None] * len(X))
    with refuses("y"):  # scikit-learn's classifiers take no missing labels either
        sf.CombinedClassifier([LogisticRegression()]).fit(X, np.full(len(X), np.nan))
