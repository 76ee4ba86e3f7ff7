"""Rows that repeat or belong together: kept in one fold or half, counted once; coverage by simulation."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist
from scipy.stats import binom
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.tree import DecisionTreeClassifier

import surefoot as sf
from surefoot.bounds.betting import clopper_pearson_upper
from surefoot.bounds.clusters import Clusters, equal_rows
from surefoot.priors.clopper_pearson import cross_fitted_shares


class Memory(ClassifierMixin, BaseEstimator):
    """The label of the nearest row: what was seen is answered from memory."""

    def fit(self, X: NDArray[np.float64], y: NDArray[Any]) -> Memory:
        self.rows_, self.labels_, self.classes_ = X, y, np.unique(y)
        return self

    def predict(self, X: NDArray[np.float64]) -> NDArray[Any]:
        return self.labels_[cdist(X, self.rows_).argmin(axis=1)]

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return (self.predict(X)[:, None] == self.classes_).astype(float)


MEMORY = Memory()
UNSEEN = ["holdout", "anytime"]


def coin_flips(g: np.random.Generator, n: int, d: int = 30) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Labels that have nothing to do with the features: every classifier errs on half of the population."""
    return g.normal(size=(n, d)), g.integers(0, 2, n)


def copied(
    g: np.random.Generator, X: NDArray[np.float64], y: NDArray[np.intp], most: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Each row 1 to `most` times, in random order; positive ones more often."""
    times = g.integers(1, most + 1, len(y)) * (1 + y)
    order = g.permutation(int(times.sum()))
    return np.repeat(X, times, 0)[order], np.repeat(y, times)[order]


class TestCopiesCountOnce:
    X, y = coin_flips(np.random.default_rng(0), 40)
    A, b = np.repeat(X, 6, 0), np.repeat(y, 6)

    @pytest.mark.parametrize("method", ["crossfit", *UNSEEN])
    @pytest.mark.parametrize("loss", ["zero_one", "log_loss"])
    def test_equal_copies_change_nothing(self, method: str, loss: str) -> None:
        once = sf.error_bound(MEMORY, self.X, self.y, method=method, loss=loss)
        with pytest.warns(sf.RepeatedRowsWarning):
            found = sf.error_bound(MEMORY, self.A, self.b, method=method, loss=loss)
        assert found.value == pytest.approx(once.value, rel=1e-12)
        assert (found.n_groups, once.n_groups) == (once.n_labels, None)

    def test_rows_named_as_independent_draws_are_taken_at_their_word(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = sf.error_bound(MEMORY, self.A, self.b, cv_groups=range(240))
        assert found.value < 0.02
        assert found.n_groups is None

    def test_a_finished_classifier(self) -> None:
        clf = Memory().fit(-self.X, self.y)
        errors = int(np.sum(clf.predict(self.X) != self.y))
        with pytest.warns(sf.RepeatedRowsWarning):
            found = sf.error_bound(clf, self.A, self.b, method="holdout")
        assert found.value == clopper_pearson_upper(errors, 40, 0.9)

    def test_of_a_pool_the_copies_of_rows_trained_on_leave(self) -> None:
        U = np.random.default_rng(1).normal(size=(100, 30))
        with pytest.warns(sf.RepeatedRowsWarning):
            found = sf.error_bound(MEMORY, self.A, self.b, X_unlabeled=np.vstack([U, self.X]), method="holdout")
        once = sf.error_bound(MEMORY, self.X, self.y, X_unlabeled=U, method="holdout")
        assert found.value == once.value
        assert "240 rows" in found.about  # 20 groups of 6 + 1 rows, and 100 others

    def test_the_larger_of_both_ways_of_counting(self) -> None:
        X = np.array([[0.0]] * 30 + [[float(k)] for k in range(1, 31)])
        clf = DecisionTreeClassifier().fit([[0.0], [40.0]], [0, 1])  # 0 below 20
        y = np.concatenate([np.ones(30, dtype=int), clf.predict(X[30:])])  # it errs on the rows that repeat
        with pytest.warns(sf.RepeatedRowsWarning):
            often = sf.error_bound(clf, X, y, method="holdout")
        with pytest.warns(sf.RepeatedRowsWarning):
            seldom = sf.error_bound(clf, X, np.where(X[:, 0] == 0, 0, 1 - clf.predict(X)), method="holdout")
        assert often.value == clopper_pearson_upper(30, 60, 0.9)  # by row
        assert seldom.value == clopper_pearson_upper(30, 31, 0.9)  # by group

    def test_all_rows_equal(self) -> None:
        for method in ("crossfit", "holdout"):
            with pytest.raises(ValueError, match="got 1"), pytest.warns(sf.RepeatedRowsWarning):
                sf.error_bound(MEMORY, np.ones((9, 2)), np.arange(9) % 2, method=method)

    def test_groups_are_bounded_with_their_copies_once(self) -> None:
        groups = np.repeat(np.where(self.X[:, 0] > 0, "a", "b"), 6)
        once = sf.error_bound(MEMORY, self.X, self.y, groups=groups[::6])
        with pytest.warns(sf.RepeatedRowsWarning):
            found = sf.error_bound(MEMORY, self.A, self.b, groups=groups)
        assert found.groups is not None
        assert once.groups is not None
        assert {k: one.value for k, one in found.groups.items()} == {k: one.value for k, one in once.groups.items()}

    def test_the_menu_passes_groups_on(self) -> None:
        customers = np.repeat(np.arange(40), 6)
        moved = self.A + np.random.default_rng(2).normal(scale=1e-6, size=self.A.shape)  # near-copies are no copies
        found = sf.error_bounds(MEMORY, moved, self.b, cv_groups=customers)
        assert found["crossfit"].n_groups == 40
        assert found["holdout"].value > 0.5
        assert sf.error_bound(MEMORY, moved, self.b).value < 0.1

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="cv_groups"):
            sf.error_bound(MEMORY, self.X, self.y, cv_groups=[1, 2, 3])
        with pytest.raises(ValueError, match="cv_groups"):
            sf.error_bound(MEMORY, self.X, self.y, X_unlabeled=self.X, method="holdout", cv_groups=range(40))
        with pytest.raises(ValueError, match="cv_groups"):
            sf.error_bound(Memory().fit(self.X, self.y), self.X, self.y, method="transport", cv_groups=range(40))

    def test_intervals_of_label_shares_in_a_transport_bound(self) -> None:
        clf = Memory().fit(self.X, self.y)
        once = sf.error_bound(
            clf,
            self.X,
            self.y,
            method="transport",
            radius=8.0,
            certify_options={"metric": "euclidean", "label_cost": 1.0},
        ).certificate
        found = sf.error_bound(
            clf,
            self.A,
            self.b,
            method="transport",
            radius=8.0,
            certify_options={"metric": "euclidean", "label_cost": 1.0},
        ).certificate
        assert once is not None
        assert found is not None
        np.testing.assert_allclose(found.label_intervals, once.label_intervals)


class TestEqualRows:
    rows = np.array([[0.0, 1.0], [2.0, 3.0], [-0.0, 1.0], [np.nan, 1.0], [np.nan, 1.0]])
    expected = (0, 1, 0, 2, 2)

    def test_of_every_kind_of_table(self) -> None:
        frame = pd.DataFrame(self.rows + 0.0, columns=["a", "b"])
        for table in (self.rows, (self.rows + 0.0).tolist(), frame, csr_matrix(self.rows + 0.0)):
            assert tuple(equal_rows(table)) == self.expected
        texts = pd.DataFrame({"a": ["x", "y", "x"], "b": [1, 1, 1]})
        assert tuple(equal_rows(texts)) == (0, 1, 0)
        assert tuple(equal_rows(["one", "two", "one"])) == (0, 1, 0)
        assert tuple(equal_rows(texts.to_numpy())) == (0, 1, 0)
        assert tuple(equal_rows(np.array([[2**53], [2**53 + 1]]))) == (0, 1)
        assert tuple(equal_rows(np.zeros((3, 0)))) == (0, 0, 0)

    def test_halves_and_representatives(self) -> None:
        g = np.random.default_rng(3)
        X = g.integers(0, 12, size=(60, 1)).astype(float)
        clusters = Clusters.check(None, X, None, 5)
        train, held = clusters.halves()
        assert sorted([*train, *held]) == list(range(60))
        assert not set(X[train, 0]) & set(X[held, 0])
        one = clusters.one_of_each(held)
        assert sorted(X[held[one], 0]) == sorted(set(X[held, 0]))
        _, first = np.unique(X[held, 0], return_index=True)
        np.testing.assert_array_equal(X[held[one], 0], X[held[np.sort(first)], 0])  # in the order of appearance


def test_the_assisted_prior_keeps_equal_rows_in_one_fold() -> None:
    g = np.random.default_rng(4)
    X, y = coin_flips(g, 30, 8)
    A, b = np.repeat(X, 5, 0), np.repeat(y, 5)
    guesses, _ = cross_fitted_shares(A, b, 2, g.normal(size=(50, 8)), 10, 0)
    for k in range(0, 150, 5):  # a copy that taught the model would be told apart from the others
        np.testing.assert_allclose(guesses[k : k + 5], np.tile(guesses[k], (5, 1)))
    assert np.corrcoef(guesses[:, 1], b)[0, 1] < 0.3


def test_an_audit_counts_known_labels_as_they_are() -> None:
    """Copies of rows trained on are rows of the pool like others: the bound on the pool holds all the same."""
    g, missed, runs = np.random.default_rng(5), 0, 60
    for run in range(runs):
        X, y = coin_flips(g, 30, 3)
        A, b = np.repeat(X, 4, 0), np.repeat(y, 4)  # a pool of copies
        known = g.permutation(120)[:40]
        labels = np.full(120, None, dtype=object)
        labels[known] = b[known]
        clf = Memory().fit(A[known], b[known])
        audit = sf.Audit(clf, A, labels, random_state=run).run(lambda row, b=b: int(b[row]), max_labels=25)
        missed += audit.anytime_bound().value < np.mean(clf.predict(A) != b)
    assert missed <= binom.ppf(0.999, runs, 0.1)


@pytest.mark.parametrize("runs", [60, pytest.param(1000, marks=pytest.mark.slow)])
class TestCoverage:
    """How often a bound at level 0.9 lies below the true error; few more than one in ten, by the binomial law."""

    @pytest.mark.parametrize("method", ["crossfit", "holdout", "anytime"])
    def test_copies(self, method: str, runs: int) -> None:
        """The truth is 0.5, whatever is trained on what."""
        g, missed = np.random.default_rng(6), 0
        for _ in range(runs):
            A, b = copied(g, *coin_flips(g, int(g.integers(15, 50)), 4), 5)
            with pytest.warns(sf.RepeatedRowsWarning):
                missed += sf.error_bound(MEMORY, A, b, method=method, random_state=None).value < 0.5
        assert missed <= binom.ppf(0.999, runs, 0.1)

    @pytest.mark.parametrize("method", UNSEEN)
    def test_independent_rows_with_few_values(self, method: str, runs: int) -> None:
        """A finished classifier that errs on frequent rows, which repeat without being copies."""
        g, missed = np.random.default_rng(7), 0
        clf = DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])
        for _ in range(runs):
            X = np.where(g.random(60) < 0.4, 0.0, 1.0 + g.integers(0, 200, 60))[:, None]
            y = np.where(X[:, 0] == 0, g.integers(0, 2, 60), 1)  # it errs on half of the 0.4 where x = 0
            with pytest.warns(sf.RepeatedRowsWarning):
                missed += sf.error_bound(clf, X, y, method=method).value < 0.2
        assert missed <= binom.ppf(0.999, runs, 0.1)

    @pytest.mark.parametrize("method", ["crossfit", "holdout"])
    def test_customers(self, method: str, runs: int) -> None:
        """Rows of a customer are alike, not equal, and share a label: a coin flip for each new customer."""
        g, missed = np.random.default_rng(8), 0
        for _ in range(runs):
            m = int(g.integers(15, 40))
            customer = np.repeat(np.arange(m), g.integers(1, 6, m))
            X, y = coin_flips(g, m, 4)
            A = X[customer] + g.normal(scale=0.01, size=(len(customer), 4))
            found = sf.error_bound(MEMORY, A, y[customer], method=method, cv_groups=customer, random_state=None)
            missed += found.value < 0.5
        assert missed <= binom.ppf(0.999, runs, 0.1)
