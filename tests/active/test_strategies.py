"""Contracts that every query strategy keeps, and what each one picks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import surefoot as sf
import surefoot.active as al
from refusals import refuses, warns
from surefoot.active.base import QueryStrategy, Spread
from surefoot.active.impact import expected_model_change, logistic_impact, max_model_change, min_model_change

STRATEGIES = {
    "random": al.RandomSampling(random_state=0),
    "emc": al.ExpectedModelChange(random_state=0),
    "min": al.MinModelChange(random_state=0),
    "max": al.MaxModelChange(random_state=0),
    "strong": al.RobustModelChange(label_prior=[1 / 3, 1 / 3, 1 / 3], random_state=0),
    "weak": al.RobustModelChange(random_state=0),
    "weak, minimal radius": al.RobustModelChange(radius="minimal", random_state=0),
}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
CLF = LogisticRegression()


def iris(n: int = 15) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels with missing ones, and all labels."""
    X, truth = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, truth = X[order], truth[order]
    y = truth.astype(float)
    y[n:] = np.nan
    return X, y, truth


@every_strategy
class TestContract:
    """Shared by all strategies."""

    def test_reproducible(self, strategy: QueryStrategy) -> None:
        X, y, _ = iris()
        first, second = (strategy.query(X, y, CLF, batch_size=3, return_utilities=True) for _ in range(2))
        np.testing.assert_array_equal(first[0], second[0])
        np.testing.assert_array_equal(first[1], second[1])
        np.testing.assert_array_equal(clone(strategy).query(X, y, CLF, batch_size=3), first[0])

    def test_indices_are_unlabeled_rows_without_repeats(self, strategy: QueryStrategy) -> None:
        X, y, _ = iris()
        indices = strategy.query(X, y, CLF, batch_size=40)
        assert indices.dtype.kind == "i"
        assert len(set(indices.tolist())) == 40
        assert np.isnan(y[indices]).all()

    def test_utilities(self, strategy: QueryStrategy) -> None:
        X, y, _ = iris()
        indices, utilities = strategy.query(X, y, CLF, batch_size=3, return_utilities=True)
        assert utilities.shape == (3, 150)
        assert np.isnan(utilities[:, :15]).all()
        for step in range(3):
            assert utilities[step, indices[step]] == np.nanmax(utilities[step])
            gone = np.isnan(utilities[step, 15:])
            assert set(15 + np.flatnonzero(gone)) == set(indices[:step].tolist())
        assert np.all(utilities[1:, 15:] <= utilities[0, 15:] + 1e-12, where=~np.isnan(utilities[1:, 15:]))

    def test_the_first_of_a_batch_is_the_single_choice(self, strategy: QueryStrategy) -> None:
        X, y, _ = iris()
        assert strategy.query(X, y, CLF, batch_size=5)[0] == strategy.query(X, y, CLF)[0]

    def test_a_subset_of_candidates(self, strategy: QueryStrategy) -> None:
        X, y, _ = iris()
        subset = np.array([140, 20, 77, 33])
        indices, utilities = strategy.query(X, y, CLF, candidates=subset, batch_size=2, return_utilities=True)
        assert set(indices.tolist()) <= set(subset.tolist())
        assert np.flatnonzero(~np.isnan(utilities[0])).tolist() == sorted(subset.tolist())
        every = strategy.query(X, y, CLF, return_utilities=True)[1][0]
        np.testing.assert_allclose(utilities[0, subset], every[subset], rtol=1e-9)

    def test_a_batch_larger_than_the_candidates(self, strategy: QueryStrategy) -> None:
        X, y, _ = iris()
        with warns("few_candidates", batch_size=9, n_candidates=3):
            indices = strategy.query(X, y, CLF, candidates=[30, 31, 32], batch_size=9)
        assert sorted(indices.tolist()) == [30, 31, 32]

    def test_labels_of_a_single_class(self, strategy: QueryStrategy) -> None:
        X, _, truth = iris()
        y = np.where((truth == 1) & (np.arange(150) < 60), 1.0, np.nan)
        if isinstance(strategy, al.RandomSampling):
            index = strategy.query(X, y, CLF)[0]
        else:
            with warns("few_classes", n_classes=1):
                index = strategy.query(X, y, CLF)[0]
        assert np.isnan(y[index])

    def test_a_classifier_that_can_learn_from_one_class(self, strategy: QueryStrategy) -> None:
        X, _, truth = iris()
        y = np.where((truth == 1) & (np.arange(150) < 60), 1.0, np.nan)
        able = sf.RobustLogisticRegression(radius=5.0, classes=[0, 1, 2], tol=1e-2)
        assert np.isnan(y[strategy.query(X, y, able)[0]])

    def test_text_labels(self, strategy: QueryStrategy) -> None:
        X, y, truth = iris()
        names = np.array(["setosa", "versicolor", "virginica"], dtype=object)[truth]
        names[np.isnan(y)] = None
        np.testing.assert_array_equal(
            strategy.query(X, names, CLF, batch_size=2), strategy.query(X, y, CLF, batch_size=2)
        )

    def test_another_mark_for_missing_labels(self, strategy: QueryStrategy) -> None:
        X, y, truth = iris()
        marked = np.where(np.isnan(y), -1, truth)
        other = clone(strategy).set_params(missing_label=-1)
        np.testing.assert_array_equal(
            other.query(X, marked, CLF, batch_size=2), strategy.query(X, y, CLF, batch_size=2)
        )

    def test_bad_input_is_refused(self, strategy: QueryStrategy) -> None:
        X, y, _ = iris()
        holed = X.copy()
        holed[80, 0] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            strategy.query(holed, y, CLF)
        with refuses("candidates", 3):
            strategy.query(X, y, CLF, candidates=[3, 40])
        with refuses("candidates", 0, 149):
            strategy.query(X, y, CLF, candidates=[150])
        with refuses("batch_size", 1):
            strategy.query(X, y, CLF, batch_size=0)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            strategy.query(X, y[:-1], CLF)

    def test_a_pool_is_not_changed(self, strategy: QueryStrategy) -> None:
        X, y, _ = iris()
        X_before, y_before = X.copy(), y.copy()
        strategy.query(X, y, CLF, batch_size=2)
        np.testing.assert_array_equal(X, X_before)
        np.testing.assert_array_equal(y, y_before)

    def test_the_plain_form(self, strategy: QueryStrategy) -> None:
        X, y, truth = iris()
        fitted = LogisticRegression().fit(X[:15], truth[:15])
        select = partial(strategy, X=X[:15], y=truth[:15])
        indices = select(fitted, X[15:], batch_size=2)
        np.testing.assert_array_equal(indices + 15, strategy.query(X, y, fitted, fit_clf=False, batch_size=2))
        if not isinstance(strategy, al.RobustModelChange):
            assert strategy(fitted, X[15:]).shape == (1,)

    def test_an_integer_seed_draws_anew_when_labels_are_added(self, strategy: QueryStrategy) -> None:
        _, _, truth = iris()
        flat = np.zeros((150, 2))  # all rows tie
        picks = []
        for n in range(15, 25):
            y = truth.astype(float)
            y[n:] = np.nan
            with np.errstate(all="ignore"):
                picks.append(int(strategy.query(flat, y, LogisticRegression())[0]) - n)
        assert len(set(picks)) > 5

    def test_parameters_are_kept(self, strategy: QueryStrategy) -> None:
        assert clone(strategy).get_params().keys() == strategy.get_params().keys()


def test_each_picks_the_row_of_its_largest_score() -> None:
    X, y, truth = iris()
    clf = LogisticRegression().fit(X[:15], truth[:15])
    impact, proba = logistic_impact(clf, X[15:]), clf.predict_proba(X[15:])
    expected = {
        "emc": expected_model_change(impact, proba),
        "min": min_model_change(impact),
        "max": max_model_change(impact),
        "strong": al.robust_model_change(
            impact, X[:15], truth[:15], X_unlabeled=X[15:], label_prior=[1 / 3, 1 / 3, 1 / 3]
        ),
        "weak": al.robust_model_change(impact, X[:15], truth[:15], X_unlabeled=X[15:]),
    }
    for name, scores in expected.items():
        indices, utilities = STRATEGIES[name].query(X, y, LogisticRegression(), return_utilities=True)
        np.testing.assert_allclose(utilities[0, 15:], scores, rtol=1e-12)
        assert indices[0] == 15 + scores.argmax()


@pytest.mark.parametrize("name", ["emc", "min", "max", "strong"])
def test_max_candidates_draws_a_subset(name: str) -> None:
    X, y, _ = iris()
    strategy = clone(STRATEGIES[name]).set_params(max_candidates=10)
    _, utilities = strategy.query(X, y, CLF, return_utilities=True)
    assert np.sum(~np.isnan(utilities)) == 10
    every = STRATEGIES[name].query(X, y, CLF, return_utilities=True)[1]
    scored = ~np.isnan(utilities[0])
    np.testing.assert_allclose(utilities[0, scored], every[0, scored], rtol=1e-9)
    other = strategy.set_params(random_state=1).query(X, y, CLF, return_utilities=True)[1]
    assert not np.array_equal(np.isnan(utilities), np.isnan(other))


def test_ties_are_broken_by_the_random_state() -> None:
    X, y, _ = iris()
    constant = al.MinModelChange(impact=lambda _clf, rows: np.ones((len(rows), 3)))
    picks = {int(constant.set_params(random_state=seed).query(X, y, CLF)[0]) for seed in range(20)}
    assert len(picks) > 10
    generator = np.random.RandomState(0)
    drawn = [int(constant.set_params(random_state=generator).query(X, y, CLF)[0]) for _ in range(5)]
    assert len(set(drawn)) > 1


def test_an_impact_of_one_s_own() -> None:
    X, y, _ = iris()
    mine = al.MaxModelChange(impact=lambda _clf, rows: np.tile(rows[:, [0]], 3))
    assert mine.query(X, y, CLF)[0] in np.flatnonzero(X[:, 0] == X[15:, 0].max())
    with refuses("impact", "(135, 3)", "(135, 2)"):
        al.MaxModelChange(impact=lambda _clf, rows: rows[:, :2]).query(X, y, CLF)
    with refuses("impact", '"gradient"'):
        al.MaxModelChange(impact="variance").query(X, y, CLF)  # type: ignore[arg-type]


def test_candidates_that_are_rows() -> None:
    X, y, _ = iris()
    indices, utilities = STRATEGIES["min"].query(X, y, CLF, candidates=X[100:110], batch_size=2, return_utilities=True)
    assert utilities.shape == (2, 10)
    by_index = STRATEGIES["min"].query(X, y, CLF, candidates=np.arange(100, 110), batch_size=2)
    np.testing.assert_array_equal(indices + 100, by_index)
    with refuses("candidates", 4, 2):
        STRATEGIES["min"].query(X, y, CLF, candidates=X[100:110, :2])
    with refuses("candidates"):
        STRATEGIES["strong"].query(X, y, CLF, candidates=X[100:110])


def test_a_classifier_is_needed_but_for_random_sampling() -> None:
    X, y, _ = iris()
    assert STRATEGIES["random"].query(X, y).shape == (1,)
    with refuses("clf", "MinModelChange"):
        STRATEGIES["min"].query(X, y)
    with warns("few_classes", n_classes=0):
        STRATEGIES["min"].query(X, np.full(150, np.nan), CLF)
    with refuses("y"):
        STRATEGIES["strong"](LogisticRegression().fit(X, np.arange(150) % 3), X)


def test_robust_scores_use_the_classes_that_the_strategy_names() -> None:
    X, y, truth = iris()
    y[truth == 2] = np.nan
    strategy = al.RobustModelChange(label_prior=[1 / 3, 1 / 3, 1 / 3], classes=[0, 1, 2], random_state=0)
    assert np.isnan(y[strategy.query(X, y, CLF)[0]])
    with refuses("label_prior", 3, 2):
        strategy.set_params(classes=None).query(X, y, CLF)


def test_a_pipeline_and_weights() -> None:
    X, y, _ = iris()
    indices = STRATEGIES["min"].query(X, y, make_pipeline(StandardScaler(), LogisticRegression()), batch_size=3)
    assert len(set(indices.tolist())) == 3
    weights = np.where(np.arange(150) < 8, 1.0, 1e-6)
    weighted = STRATEGIES["min"].query(X, y, CLF, sample_weight=weights, return_utilities=True)[1]
    fitted = LogisticRegression().fit(X[:15], y[:15], sample_weight=weights[:15])
    np.testing.assert_allclose(weighted[0, 15:], logistic_impact(fitted, X[15:]).min(axis=1), rtol=1e-6)


class TestBatches:
    """Rows are chosen one after another, the earlier ones taken into account."""

    def test_repeats_of_a_row_are_not_taken_together(self) -> None:
        X, y, _ = iris()
        best = STRATEGIES["min"].query(X, y, CLF)[0]
        crowded, marked = np.vstack([X, np.repeat(X[[best]], 20, axis=0)]), np.append(y, np.full(20, np.nan))
        batch = STRATEGIES["min"].query(crowded, marked, CLF, batch_size=5)
        same = np.all(crowded[batch] == X[best], axis=1)
        assert same.sum() == 1
        top = np.argsort(-STRATEGIES["min"].query(crowded, marked, CLF, return_utilities=True)[1][0, 15:])[:5]
        assert np.all(crowded[15 + top] == X[best])  # without regard to the earlier ones

    def test_the_factor_is_the_formula(self) -> None:
        Z = np.random.default_rng(1).normal(size=(30, 4))
        spread, picks = Spread(Z), [3, 17, 8]
        np.testing.assert_array_equal(spread.factors, 1.0)
        for step, pick in enumerate(picks):
            spread.add(pick)
            nearest = cdist(Z, Z[picks[: step + 1]]).min(axis=1)
            np.testing.assert_allclose(spread.factors, np.minimum(nearest / np.median(nearest), 1.0), rtol=1e-12)
            assert np.all(spread.factors[picks[: step + 1]] == 0)

    def test_negative_scores_are_damped_downwards(self) -> None:
        spread = Spread(np.arange(4.0)[:, None])
        spread.add(0)
        scores = np.array([-1.0, 3.0, -2.0, 5.0])
        damped = spread.damped(scores)
        assert np.all(damped <= scores)
        np.testing.assert_allclose(damped, [-2.0, -2.0 + 5.0 / 1.5, -2.0, 5.0])

    def test_rows_that_all_agree(self) -> None:
        spread = Spread(np.zeros((3, 2)))
        spread.add(0)
        np.testing.assert_array_equal(spread.factors, 0.0)
        y = np.where(np.arange(30) < 6, np.arange(30) % 2, np.nan)
        batch = al.MinModelChange(random_state=0).query(np.zeros((30, 2)), y, CLF, batch_size=4)
        assert len(set(batch.tolist())) == 4
