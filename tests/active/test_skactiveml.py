"""Our strategies in scikit-activeml's loops, and its strategies in ours."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import surefoot.active as al
from refusals import warns
from surefoot.active.base import QueryStrategy

pytest.importorskip("skactiveml", reason="scikit-activeml is not installed")
from skactiveml.base import SingleAnnotatorPoolQueryStrategy
from skactiveml.classifier import SklearnClassifier
from skactiveml.pool import RandomSampling as TheirRandomSampling
from skactiveml.pool import SubSamplingWrapper, UncertaintySampling
from skactiveml.utils import MISSING_LABEL, unlabeled_indices

OURS = [
    al.RandomSampling(random_state=0),
    al.ExpectedModelChange(random_state=0),
    al.MinModelChange(random_state=0),
    al.MaxModelChange(random_state=0),
    al.RobustModelChange(label_prior=[0.37, 0.63], random_state=0),
    al.RobustModelChange(random_state=0),
]


def pool() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, truth = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.full(len(X), MISSING_LABEL)
    y[:8] = truth[15:23]
    X[:8] = X[15:23]
    return X, y, np.append(truth[15:23], truth[8:])


def classifier() -> SklearnClassifier:
    return SklearnClassifier(LogisticRegression(), classes=[0, 1], random_state=0)


@pytest.mark.parametrize("strategy", OURS, ids=lambda s: type(s).__name__)
def test_ours_in_their_loop(strategy: QueryStrategy) -> None:
    # the loop of scikit-activeml's own tutorial
    X, y, truth = pool()
    clf = classifier()
    clf.fit(X, y)
    for _ in range(4):
        indices, utilities = strategy.query(X=X, y=y, clf=clf, batch_size=2, return_utilities=True)
        assert utilities.shape == (2, len(X))
        assert set(indices.tolist()) <= set(unlabeled_indices(y).tolist())
        y[indices] = truth[indices]
        clf.fit(X, y)
    assert np.sum(~np.isnan(y)) == 16


@pytest.mark.parametrize("strategy", OURS, ids=lambda s: type(s).__name__)
def test_ours_do_not_care_who_wraps_the_classifier(strategy: QueryStrategy) -> None:
    X, y, _ = pool()
    theirs = strategy.query(X, y, classifier(), batch_size=3, return_utilities=True)
    plain = strategy.query(X, y, LogisticRegression(), batch_size=3, return_utilities=True)
    np.testing.assert_array_equal(theirs[0], plain[0])
    np.testing.assert_allclose(theirs[1], plain[1], rtol=1e-9)


def test_ours_in_their_wrapper() -> None:
    SingleAnnotatorPoolQueryStrategy.register(al.MinModelChange)  # the one line that docs/active-learning.md shows
    X, y, _ = pool()
    wrapped = SubSamplingWrapper(al.MinModelChange(random_state=0), max_candidates=0.1, random_state=0)
    indices, utilities = wrapped.query(X, y, clf=classifier(), fit_clf=True, batch_size=2, return_utilities=True)
    assert np.isnan(y[indices]).all()
    assert np.sum(utilities[0] > -np.inf) == np.ceil(0.1 * np.isnan(y).sum())


def test_a_single_class_in_their_wrapper() -> None:
    X, y, truth = pool()
    y[truth == 1] = np.nan
    with warns("few_classes", n_classes=1):
        indices = al.MinModelChange(random_state=0).query(X, y, classifier())
    assert np.isnan(y[indices]).all()


@pytest.mark.parametrize("strategy", [UncertaintySampling(random_state=0), TheirRandomSampling(random_state=0)])
def test_theirs_in_our_loop(strategy: SingleAnnotatorPoolQueryStrategy) -> None:
    X, y, truth = pool()
    learner = al.ActiveLearner(classifier(), X, y, strategy=strategy)
    learner.skip([100, 101])
    learner.run(lambda rows, _: truth[rows], batch_size=3, max_labels=20)
    assert learner.n_labels == 20
    assert not {100, 101} & set(learner.labels)
    assert [r.n_labels for r in learner.rounds] == [8, 11, 14, 17, 20]
    assert learner.model.score(X, truth) > 0.8
    candidates = np.setdiff1d(np.arange(8, len(X)), [100, 101])
    keywords = {"clf": classifier()} if isinstance(strategy, UncertaintySampling) else {}
    expected = strategy.query(X, y, candidates=candidates, batch_size=3, **keywords)
    assert list(learner.labels)[8:11] == expected.tolist()


def test_theirs_in_our_simulation() -> None:
    X, _, truth = pool()
    found = al.simulate(
        UncertaintySampling(), classifier(), X, truth, n_initial=10, n_labels=16, batch_size=2, n_trials=2
    )
    assert found.scores.shape == (2, 4)
    assert found.n_labels.tolist() == [10, 12, 14, 16]
