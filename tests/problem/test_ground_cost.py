"""Metrics learned from labels, label costs in units of the data, and the default model that rests on both."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist
from sklearn.linear_model import LogisticRegression

import surefoot as sf
from generators import sample
from refusals import Refused, refuses
from surefoot.certificates.calibration import CalibratedRadius, excess_between
from surefoot.costs import LearnedMetric, Precomputed, WeightedMetric
from surefoot.estimators import fit_problem as predictive
from surefoot.estimators.fit_problem import answers_alike, beats_a_constant, predicted_shares, within
from surefoot.problem.placement import check_problem


def noisy(seed: int = 0, n: int = 24, M: int = 60, K: int = 2) -> tuple[np.ndarray, ...]:
    """The first K features tell the classes apart, three more are noise; units of all sizes, and one is constant."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(n) % K, rng.integers(K, size=M))
    X = np.column_stack([rng.normal(size=(n + M, K)) + 2.5 * np.eye(K)[y], rng.normal(size=(n + M, 3))])
    X = np.column_stack([X * np.logspace(-2, 3, X.shape[1]), np.full(n + M, 7.0)])
    return X[:n], y[:n], X[n:]


class TestWeighted:
    def test_is_the_euclidean_distance_of_weighted_features_and_directions(self) -> None:
        rng = np.random.default_rng(0)
        X, Z, V = (rng.normal(size=shape) for shape in [(5, 3), (4, 3), (3, 2)])
        w = np.array([2.0, 0.0, 0.5])
        L = np.linalg.cholesky(np.diag(w**2) + V @ V.T)
        np.testing.assert_allclose(WeightedMetric(w, V).distances(X, Z), cdist(X @ L, Z @ L), rtol=1e-12)
        np.testing.assert_allclose(WeightedMetric(w).distances(X, Z), cdist(X * w, Z * w), rtol=1e-12)

    @pytest.mark.parametrize(
        ("weights", "directions", "match"),
        [
            ([1.0, -1.0], None, ("weights", 0)),
            ([], None, ("weights", 0)),
            ([1.0, np.nan], None, ("weights", "nan at index 1")),
            ([1.0, 1.0], [[1.0]], ("directions", 2, 1)),
        ],
    )
    def test_refuses(self, weights: Any, directions: Any, match: Refused) -> None:
        with refuses(match):
            WeightedMetric(weights, directions)

    def test_refuses_other_features(self) -> None:
        with refuses("rows", 2, 3):
            WeightedMetric([1.0, 1.0]).distances(np.zeros((1, 3)), np.zeros((1, 2)))


class TestLearned:
    @pytest.mark.parametrize("K", [2, 3, 4])
    def test_features_that_tell_classes_apart_count_most(self, K: int) -> None:
        X, y, U = noisy(K=K, n=40)
        metric = LearnedMetric().learn(X, y, X_unlabeled=U)
        spread = np.vstack([X, U]).std(axis=0)
        per_deviation = metric.weights * spread
        assert per_deviation[:K].min() > per_deviation[K:].max()
        assert metric.weights[-1] == 0  # a constant feature

    def test_weights_are_coefficients_of_scikit_learn(self) -> None:
        X, y, U = noisy()
        everything = np.vstack([X, U])[:, :-1]
        S = (X[:, :-1] - everything.mean(axis=0)) / everything.std(axis=0)
        coef = np.abs(LogisticRegression(C=0.3, tol=1e-8, max_iter=5000).fit(S, y).coef_[0])
        expected = coef / np.sqrt((coef**2).sum() / X.shape[1]) / everything.std(axis=0)
        found = LearnedMetric(C=0.3, shrinkage=0.0, direction=0.0).learn(X, y, X_unlabeled=U).weights
        np.testing.assert_allclose(found[:-1], expected, rtol=1e-4)

    def test_a_unit_stands_in_place_of_the_spread(self) -> None:
        X, y, U = noisy()
        coef = np.abs(LogisticRegression(C=0.3, tol=1e-8, max_iter=50_000).fit(X[:, :3] / 0.5, y).coef_[0])
        found = LearnedMetric(direction=0.0, unit=0.5).learn(X[:, :3], y, X_unlabeled=U[:, :3]).weights
        np.testing.assert_allclose(found, coef / np.sqrt((coef**2).mean()) / 0.5, rtol=1e-3)
        assert LearnedMetric(unit=0.5).learn(X, y, X_unlabeled=U).weights[-1] == 0  # a constant feature
        with refuses("unit", 0.0):
            LearnedMetric(unit=0.0)

    def test_much_shrinkage_is_the_euclidean_distance_of_standardised_features(self) -> None:
        X, y, U = noisy()
        found = LearnedMetric(shrinkage=1e9).learn(X, y, X_unlabeled=U).weights * np.vstack([X, U]).std(axis=0)
        np.testing.assert_allclose(found[:-1], found[0], rtol=1e-6)

    def test_one_class_alone_makes_all_features_count_alike(self) -> None:
        X, y, U = noisy()
        clf = sf.RobustLogisticRegression(classes=[0, 1]).fit(X[y == 0], y[y == 0], X_unlabeled=U)
        spread = np.vstack([X[y == 0], U]).std(axis=0)
        np.testing.assert_allclose(clf.metric_.weights[:-1] * spread[:-1], 1.0, rtol=1e-9)

    def test_copies_are_weights(self) -> None:
        X, y, U = noisy()
        counts = 1 + np.arange(len(X)) % 3
        weighted = sf.RobustLogisticRegression().fit(X, y, sample_weight=counts, X_unlabeled=U)
        copied = sf.RobustLogisticRegression().fit(np.repeat(X, counts, axis=0), np.repeat(y, counts), X_unlabeled=U)
        np.testing.assert_allclose(weighted.metric_.weights, copied.metric_.weights, rtol=1e-6)
        assert weighted.label_cost_ == pytest.approx(copied.label_cost_, rel=1e-6)
        assert weighted.certificate_.risk == pytest.approx(copied.certificate_.risk, abs=2e-4)

    def test_cannot_measure_before_it_has_learned(self) -> None:
        with refuses("metric"):
            sf.transport_distance([[0.0]], [0], [[1.0]], [0], metric="learned")

    @pytest.mark.parametrize("bad", [{"C": 0.0}, {"shrinkage": -1.0}, {"direction": np.nan}])
    def test_refuses(self, bad: dict[str, float]) -> None:
        with refuses(*bad):
            LearnedMetric(**bad)


class TestMedian:
    def test_is_the_median_distance_between_rows(self) -> None:
        X, y, U = sample()
        clf = sf.RobustLogisticRegression(1e3, None, "median").fit(X, y, X_unlabeled=U)
        distances = np.sort(pdist(np.vstack([X, U])))
        assert distances[(len(distances) - 1) // 2] <= clf.label_cost_ <= distances[len(distances) // 2]

    def test_of_precomputed_distances(self) -> None:
        X, y, U = sample()
        matrix = cdist(np.vstack([X, U]), X)
        clf = sf.RobustLogisticRegression(1e3, None, "median", Precomputed(matrix)).fit(X, y, X_unlabeled=U)
        assert clf.label_cost_ == pytest.approx(np.median(matrix[matrix > 0]), rel=0.02)

    def test_where_all_rows_are_one(self) -> None:
        clf = sf.RobustLogisticRegression().fit([[1.0], [1.0]], [0, 1], X_unlabeled=[[1.0]] * 4)
        assert clf.label_cost_ == 1.0
        np.testing.assert_allclose(clf.predict_proba([[1.0]]), 0.5, atol=1e-3)

    @pytest.mark.parametrize("bad", ["mean", "1"])
    def test_refuses_other_words(self, bad: str) -> None:
        with refuses("label_cost"):
            sf.minimal_radius([[0.0], [1.0]], [0, 1], label_cost=bad)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 3), st.lists(st.floats(-6, 6), min_size=6, max_size=6), st.sampled_from([2, 3]))
def test_the_unit_of_a_feature_does_not_matter(seed: int, exponents: list[float], K: int) -> None:
    X, y, U = noisy(seed, n=15, M=30, K=K)
    unit = np.append(10.0 ** np.array(exponents), 1.0)[: X.shape[1]]
    plain = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U)
    scaled = sf.RobustLogisticRegression().fit(X * unit, y, X_unlabeled=U * unit)
    assert scaled.label_cost_ == pytest.approx(plain.label_cost_, rel=1e-5)
    assert scaled.radius_ == pytest.approx(plain.radius_, rel=1e-5)
    assert scaled.certificate_.risk == pytest.approx(plain.certificate_.risk, abs=1e-4)
    np.testing.assert_allclose(scaled.predict_proba(U * unit), plain.predict_proba(U), atol=2e-2)
    np.testing.assert_array_equal(scaled.predict(X * unit), plain.predict(X))


COST: dict[str, Any] = {"metric": "learned", "label_cost": "median"}


class TestEverywhere:
    def test_a_fit_and_its_certificate_agree(self) -> None:
        X, y, U = noisy()
        shares = np.bincount(y) / len(y)  # where they are known, labels count as they are
        clf = sf.RobustLogisticRegression(label_prior=shares).fit(X, y, X_unlabeled=U)
        rows: dict[str, Any] = {"X_unlabeled": U, "label_prior": shares}
        again = sf.certify(clf, X, y, radius=clf.radius_, **rows, **COST)
        known = sf.certify(clf, X, y, radius=clf.radius_, **rows, metric=clf.metric_, label_cost=clf.label_cost_)
        assert again.risk == pytest.approx(clf.certificate_.risk, abs=2e-4)
        assert again.risk == pytest.approx(known.risk, abs=1e-6)
        assert sf.minimal_radius(X, y, **rows, **COST) == pytest.approx(clf.certificate_.minimal_radius, rel=1e-9)

    def test_in_blocks(self, tmp_path: Any) -> None:
        X, y, U = noisy(n=24, M=300)
        np.save(tmp_path / "rows.npy", U)
        stored = np.load(tmp_path / "rows.npy", mmap_mode="r")
        held = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U)
        blocks = sf.RobustLogisticRegression(compute=sf.Compute()).fit(X, y, X_unlabeled=stored)
        np.testing.assert_allclose(blocks.metric_.weights, held.metric_.weights, rtol=1e-9)
        assert blocks.label_cost_ == pytest.approx(held.label_cost_, rel=1e-9)
        assert blocks.certificate_.risk == pytest.approx(held.certificate_.risk, abs=3e-4)

    def test_halves_learn_the_metric_anew(self) -> None:
        X, y, U = noisy(n=16)
        how = CalibratedRadius(n_splits=4)
        found = sf.calibrate_radius(X, y, X_unlabeled=U, n_splits=4, **COST)
        clf = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U)
        everything, rng, expected = np.vstack([X, U]), np.random.default_rng(how.random_state), []
        for split in range(4):
            A, B = np.array_split(rng.permutation(len(X)), 2)
            labels, row, shift = y.copy(), rng.choice(np.arange(len(X))), rng.integers(1, 2)
            if split % 2:
                labels[row] = (labels[row] + shift) % 2
            metric = LearnedMetric().from_codes(X[A], labels[A], np.ones(len(A)), everything.std(axis=0))
            kappa = np.median(pdist(metric.transform(everything)))
            cost = kappa * (1.0 - np.eye(2))
            excess = excess_between(A, B, metric.distances(X, X), labels, np.ones(len(X)), cost)
            expected.append(excess * clf.label_cost_ / kappa)
        np.testing.assert_allclose(found.splits, expected, rtol=2e-2, atol=1e-3)

    def test_active_learning(self) -> None:
        X, y, U = noisy()
        clf = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U)
        impact = np.random.default_rng(0).uniform(size=(len(U), 2))
        scores = sf.active.robust_model_change(impact, X, y, X_unlabeled=U, label_prior="clopper-pearson", **COST)
        assert (impact.min(axis=1) - 1e-9 <= scores).all()
        assert (scores <= impact.max(axis=1) + 1e-9).all()
        certificate = sf.active.NearestCertifier(0.1, **COST)(clf, X, y, X_unlabeled=U)
        assert certificate.gap <= 1e-3


class TestPredictive:
    def test_other_radii_keep_the_ground_cost_of_the_paper(self) -> None:
        X, y, U = sample()
        for radius in ("auto", 5.0):
            clf = sf.RobustLogisticRegression(radius).fit(X, y, X_unlabeled=U)
            named = sf.RobustLogisticRegression(radius, label_cost=1.0, metric="euclidean", l2=0.0)
            assert clf.certificate_.risk == named.fit(X, y, X_unlabeled=U).certificate_.risk
            assert (clf.label_cost_, clf.metric_) == (1.0, sf.costs.Euclidean())

    @pytest.mark.parametrize("compute", [None, sf.Compute()])
    @pytest.mark.parametrize("K", [2, 3])
    def test_features_as_given(self, K: int, compute: Any) -> None:
        rng = np.random.default_rng(K)
        X = rng.normal(size=(230, 4)) * [1.0, 0.3, 0.05, 1.0]
        y = (np.arange(230) % K)[:30]
        X[:, 0] += 2.0 * (np.arange(230) % K)
        how = {"compute": compute, "tol": 1e-6, "label_prior": np.full(K, 1 / K)}
        clf = sf.RobustLogisticRegression(metric=LearnedMetric(unit=1.0), **how).fit(X[:30], y, X_unlabeled=X[30:])
        smaller = sf.RobustLogisticRegression(metric=LearnedMetric(unit=0.1), **how).fit(
            X[:30] / 10, y, X_unlabeled=X[30:] / 10
        )
        np.testing.assert_allclose(smaller.coef_, 10 * clf.coef_, atol=1e-2)
        # the penalty is that of scikit-learn's C = 1, whatever the spread of a feature
        named = sf.RobustLogisticRegression(metric=LearnedMetric(unit=1.0), l2=1 / 30, **how).fit(
            X[:30], y, X_unlabeled=X[30:]
        )
        np.testing.assert_allclose(named.coef_, clf.coef_, atol=1e-3)
        standardised = sf.RobustLogisticRegression(**how).fit(X[:30], y, X_unlabeled=X[30:])
        faint = np.abs(clf.coef_[:, 2]) * 0.05
        assert (faint < np.abs(standardised.coef_[:, 2]) * 0.05).all()

    def test_never_a_constant_where_labels_say_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y, U = noisy(n=30)
        monkeypatch.setattr(predictive, "EXCESS", 2.0)
        clf = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U)
        assert clf.score(X, y) > 0.8
        shuffled = np.random.default_rng(1).permutation(y)
        constant = sf.RobustLogisticRegression().fit(X, shuffled, X_unlabeled=U)
        assert not beats_a_constant(X, shuffled, np.ones(len(X)))
        assert np.ptp(constant.predict_proba(U), axis=0).max() < 0.02

    def test_labels_count_in_the_shares_that_they_predict(self) -> None:
        X, y, U = noisy(n=60, M=400)
        keep = np.append(np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:10])  # 30 and 10 of each, where all are even
        X, y = X[keep], y[keep]
        problem = check_problem(X, y, X_unlabeled=U, label_prior="clopper-pearson", **COST)
        shares = predicted_shares(problem, None)
        assert shares.sum() == pytest.approx(1.0)
        assert abs(shares[1] - 0.5) < abs(y.mean() - 0.5) / 2
        low, high = problem.decision_set.intervals.T
        assert ((low <= shares) & (shares <= high)).all()
        moved = problem.with_label_shares(shares).decision_set
        np.testing.assert_allclose(moved.label_frequencies, shares)
        np.testing.assert_allclose(moved.row_weights, problem.decision_set.row_weights)
        known = check_problem(X, y, X_unlabeled=U, label_prior=[0.5, 0.5], **COST)
        np.testing.assert_allclose(predicted_shares(known, None), [0.5, 0.5])

    @given(st.integers(0, 100), st.integers(2, 5))
    def test_within(self, seed: int, K: int) -> None:
        rng = np.random.default_rng(seed)
        shares, inside = rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(K))
        intervals = np.column_stack([inside * rng.uniform(size=K), inside + (1 - inside) * rng.uniform(size=K)])
        found = within(shares, intervals)
        assert found.sum() == pytest.approx(1.0)
        assert (intervals[:, 0] - 1e-12 <= found).all()
        assert (found <= intervals[:, 1] + 1e-12).all()
        np.testing.assert_allclose(within(inside, intervals), inside, atol=1e-9)
        # of all shares in the intervals the nearest: no small exchange between two classes comes nearer
        for a, b in permutations(range(K), 2):
            step = min(1e-4, found[a] - intervals[a, 0], intervals[b, 1] - found[b])
            if step > 0:
                other = found + step * (np.eye(K)[b] - np.eye(K)[a])
                assert ((other - shares) ** 2).sum() >= ((found - shares) ** 2).sum() - 1e-9

    def test_answers_alike(self) -> None:
        two = np.array([[0.0], [1.0]])
        assert not answers_alike(two, np.array([[1.0]]), np.array([-0.5]))
        assert answers_alike(two, np.array([[1.0]]), np.array([0.5]))  # one class
        assert answers_alike(two, np.array([[1e-3]]), np.array([-5e-4]))  # hardly another probability
        assert not answers_alike(two, np.eye(3)[:, :1], np.array([0.0, 0.5, 0.0]))

    @pytest.mark.parametrize("compute", [None, sf.Compute()])
    def test_for_another_population(self, compute: Any) -> None:
        X, y, U = noisy(n=40, M=30)  # fewer rows to judge than labels
        clf = sf.RobustLogisticRegression(compute=compute, tol=1e-3).fit(X, y, X_target=U)
        assert len(clf.worst_case_.row_weights) == len(U)
        spread = np.vstack([X, U]).std(axis=0)
        expected = LearnedMetric().from_codes(X, y, np.ones(len(X)), spread).weights
        np.testing.assert_allclose(clf.metric_.weights[:-1], expected[:-1], rtol=1e-6)

    def test_learns_what_logistic_regression_learns_and_more(self) -> None:
        X, y, U = noisy(n=40, M=200)
        clf = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U)
        assert clf.certificate_.gap <= 1e-4
        assert clf.radius_ > clf.certificate_.minimal_radius
        assert clf.score(X, y) > 0.85
