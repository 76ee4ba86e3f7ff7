"""Classifiers made of others: averages and choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import surefoot as sf
from generators import sample
from refusals import refuses
from surefoot.priors.clopper_pearson import fold_numbers

PAIR = [LogisticRegression(), GaussianNB()]


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [sf.CombinedClassifier(PAIR), sf.CombinedClassifier(PAIR, "best")]
)
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


class TestAverage:
    def test_is_soft_voting(self) -> None:
        X, y, U = sample(3, K=3)
        weights = np.arange(1.0, len(y) + 1)
        vote = VotingClassifier([("a", PAIR[0]), ("b", PAIR[1])], voting="soft").fit(X, y, sample_weight=weights)
        mine = sf.CombinedClassifier(PAIR).fit(X, y, weights)
        np.testing.assert_allclose(mine.predict_proba(U), vote.predict_proba(U), rtol=1e-12)
        np.testing.assert_array_equal(mine.predict(U), vote.predict(U))

    def test_unlabeled_rows_reach_those_who_take_them(self) -> None:
        X, y, U = sample(4)
        parts = [sf.RobustLogisticRegression(tol=1e-3), GaussianNB()]
        mine = sf.CombinedClassifier(parts).fit(X, y, X_unlabeled=sf.Unlabeled(U))
        alone = parts[0].fit(X, y, X_unlabeled=sf.Unlabeled(U)), parts[1].fit(X, y)
        mean = np.mean([one.predict_proba(U) for one in alone], axis=0)
        np.testing.assert_allclose(mine.predict_proba(U), mean, rtol=1e-12)

    def test_a_class_without_labels(self) -> None:
        X, y, U = sample(4)
        robust = sf.RobustLogisticRegression(classes=[0, 1, 2], tol=1e-3)
        mine = sf.CombinedClassifier([robust, GaussianNB()], classes=[0, 1, 2]).fit(X, y, X_unlabeled=sf.Unlabeled(U))
        proba = mine.predict_proba(U)
        assert proba.shape == (len(U), 3)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)

    def test_rows_without_a_label_in_y(self) -> None:
        X, y, U = sample(5)
        robust = sf.RobustLogisticRegression(tol=1e-3)
        parts = sf.CombinedClassifier([robust, GaussianNB()])
        one = parts.fit(X, y, X_unlabeled=sf.Unlabeled(U)).predict_proba(U)
        other = parts.fit(np.vstack([X, U]), np.append(y, np.full(len(U), -1))).predict_proba(U)
        np.testing.assert_array_equal(one, other)

    def test_one_classifier_keeps_its_decisions(self) -> None:
        class Reluctant(GaussianNB):  # type: ignore[misc]
            def predict(self, X: Any) -> Any:
                return np.full(len(X), self.classes_[0])

        X, y, U = sample(5)
        assert set(sf.CombinedClassifier([Reluctant()]).fit(X, y).predict(U)) == {y.min()}


class TestBest:
    def test_has_the_smallest_log_loss_of_scikit_learns_cross_validation(self) -> None:
        X, y, _ = sample(6)
        candidates = [DummyClassifier(), GaussianNB(), LogisticRegression(C=1e-3), LogisticRegression()]
        found = sf.CombinedClassifier(candidates, "best").fit(X, y)
        copies = np.unique(np.column_stack([X, y]), axis=0, return_inverse=True)[1].ravel()
        folds = fold_numbers(y, 5, 0, copies)
        splits = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(5)]
        losses = []
        for one in candidates:
            proba = cross_val_predict(one, X, y, cv=splits, method="predict_proba")
            proba = np.maximum(proba, 1e-3)
            losses.append(-np.log(proba[np.arange(len(y)), y]).mean())
        np.testing.assert_allclose(found.losses_, losses, rtol=1e-9)
        (chosen,) = found.classifiers_
        assert chosen.get_params() == candidates[int(np.argmin(losses))].get_params()

    def test_a_class_with_one_label(self) -> None:
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(21, 2)), np.append(np.arange(20) % 2, 2)
        found = sf.CombinedClassifier([DummyClassifier(), GaussianNB()], "best").fit(X, y)
        assert np.isfinite(found.losses_).all()

    def test_copies_stay_in_one_fold(self) -> None:
        """A nearest neighbor would find the copy of each row in another fold, and seem to know all noise labels."""
        rng = np.random.default_rng(0)
        X, y = np.repeat(rng.normal(size=(30, 2)), 2, axis=0), np.repeat(rng.integers(2, size=30), 2)
        found = sf.CombinedClassifier([KNeighborsClassifier(1), DummyClassifier()], "best").fit(X, y)
        assert isinstance(found.classifiers_[0], DummyClassifier)


class TestBoundOfAChoice:
    def test_a_list_is_chosen_from_within_each_fold(self) -> None:
        X, y, _ = sample(7)
        listed = sf.error_bound(PAIR, X, y)
        assert listed.value == sf.error_bound(sf.CombinedClassifier(PAIR, "best"), X, y).value

    def test_noise(self) -> None:
        """With labels that are noise, the bound of the best of many is about the bound of one: the choice is in it."""
        rng = np.random.default_rng(1)
        X, y = rng.normal(size=(60, 5)), rng.integers(2, size=60)
        many = [KNeighborsClassifier(k) for k in (1, 3, 5)] + [LogisticRegression(C=C) for C in (0.01, 1.0)]
        assert sf.error_bound(many, X, y).value > 0.5


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"classifiers": []}, "classifiers"),
        ({"classifiers": GaussianNB()}, "classifiers"),
        ({"classifiers": ["forest"]}, "classifiers"),
        ({"rule": "worst"}, "rule"),
        ({"n_folds": 0}, "n_folds"),
    ],
)
def test_refusals(options: dict[str, Any], parameter: str) -> None:
    X, y, _ = sample(0)
    with refuses(parameter):
        sf.CombinedClassifier(**{"classifiers": PAIR, **options}).fit(X, y)


def test_log_loss_of_a_blend_is_at_most_the_mean() -> None:
    """−log is convex: averaging probabilities never loses more than the classifiers do on average."""
    X, y, U = sample(8)
    truth = np.random.default_rng(0).integers(2, size=len(U))
    mine = sf.CombinedClassifier(PAIR).fit(X, y)
    alone = [log_loss(truth, one.predict_proba(U), labels=[0, 1]) for one in mine.classifiers_]
    assert log_loss(truth, mine.predict_proba(U), labels=[0, 1]) <= np.mean(alone) + 1e-12
