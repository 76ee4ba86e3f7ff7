"""The calibrated radius: its splits, the set it stands for with label intervals, and what certificates say of it."""

from __future__ import annotations

from copy import copy
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import ks_2samp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.neighbors import KNeighborsClassifier

import surefoot as sf
from generators import adversary_loss, sample, transport_by_pot
from reference.inner import inner_reference
from refusals import Refused, refuses, warns
from surefoot.certificates.calibration import excess_between
from surefoot.certificates.fresh import bernstein_term
from surefoot.problem.placement import check_problem

AWAY = {2: [[0.85, 0.95], [0.05, 0.15]], 3: [[0.65, 0.8], [0.1, 0.3], [0.05, 0.2]]}
# intervals that hold the labeled frequencies, and others that do not
PRIORS: dict[str, Any] = {
    "clopper-pearson": lambda K: "clopper-pearson",
    "none": lambda K: None,
    "away": lambda K: AWAY[K],
}
LOSSES = ["log_loss", "zero_one"]
# references measure distances and labels in these units
EUCLIDEAN: dict[str, Any] = {"metric": "euclidean", "label_cost": 1.0}


def excess_by_pot(cost: np.ndarray, y_a: np.ndarray, y_b: np.ndarray, a: np.ndarray, b: np.ndarray,
                  label_cost: np.ndarray) -> float:  # fmt: skip
    """W_c − W_d − T of two weighted samples; T, the relabeling alone, as transport between all pairs of rows."""
    flips = label_cost[np.ix_(y_a, y_b)]
    parts = [ot.emd2(a / a.sum(), b / b.sum(), np.ascontiguousarray(c)) for c in (cost + flips, cost, flips)]
    return float(parts[0] - parts[1] - parts[2])


class TestExcess:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.integers(4, 16), st.sampled_from([2, 3]), st.booleans(), st.integers(0, 2**31))
    def test_between_two_halves_against_pot(self, n: int, K: int, plain: bool, seed: int) -> None:
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(n, 2)), rng.integers(K, size=n)
        label_cost = (1 - np.eye(K)) * (0.7 if plain else rng.uniform(0.3, 1.0, size=(K, K)))
        weights = np.ones(n) if plain else rng.uniform(0.2, 2.0, size=n)
        A, B = np.array_split(rng.permutation(n), 2)
        distances = cdist(X, X)
        found = excess_between(A, B, distances, y, weights, label_cost)
        expected = excess_by_pot(distances[np.ix_(A, B)], y[A], y[B], weights[A], weights[B], label_cost)
        assert found == pytest.approx(max(expected, 0.0), abs=1e-10)

    def test_labels_that_follow_the_features_leave_none(self) -> None:
        X = np.append(np.linspace(0, 1, 10), np.linspace(50, 51, 10))[:, None]
        y = np.repeat([0, 1], 10)
        A, B = np.arange(0, 20, 2), np.arange(1, 20, 2)
        crossed = y.copy()
        crossed[0] = 1  # a row of A in the other cluster's class
        ones, kappa = np.ones(20), 1 - np.eye(2)
        assert excess_between(A, B, cdist(X, X), y, ones, kappa) == pytest.approx(0.0, abs=1e-12)
        assert excess_between(A, B, cdist(X, X), crossed, ones, kappa) == pytest.approx(0.0, abs=1e-12)  # pure shift
        crossed[18] = 0  # and one back: two labels do not fit, at no change of the frequencies
        assert excess_between(A, B, cdist(X, X), crossed, ones, kappa) == pytest.approx(0.2, abs=1e-12)

    @pytest.mark.parametrize("apart", [0.0, 30.0], ids=["overlapping", "separated"])
    def test_splits_are_halves_and_every_other_one_has_a_label_replaced(self, apart: float) -> None:
        """The splits against a loop over splits of another seed, by POT."""
        X, y, _ = sample(seed=3, n=15, K=3, d=3)
        X = 0.5 * X + apart * np.eye(3)[y]
        rng, distances, kappa = np.random.default_rng(99), cdist(X, X), 1 - np.eye(3)
        others, bare = [], []
        for _ in range(250):
            order, labels, row = rng.permutation(15), y.copy(), rng.integers(15)
            labels[row] = rng.choice([k for k in range(3) if k != y[row]])
            A, B = order[:8], order[8:]
            cost = distances[np.ix_(A, B)]
            others.append(excess_by_pot(cost, labels[A], labels[B], np.ones(8), np.ones(7), kappa))
            bare.append(excess_by_pot(cost, y[A], y[B], np.ones(8), np.ones(7), kappa))
        ours = np.round(sf.calibrate_radius(X, y, n_splits=500, **EUCLIDEAN).splits, 9)
        assert ks_2samp(ours[::2], np.round(bare, 9)).pvalue > 1e-3
        assert ks_2samp(ours[1::2], np.round(others, 9)).pvalue > 1e-3
        if apart:  # the labels follow the features: all excess is that of the replaced label
            assert ours[::2].max() == 0
            assert ours[1::2].mean() > 0.02


class TestEstimate:
    def test_is_the_minimal_radius_plus_a_quantile_of_the_splits(self) -> None:
        X, y, U = sample(seed=1)
        for level, prior in product((0.5, 0.9), ("clopper-pearson", [0.3, 0.7])):
            found = sf.calibrate_radius(X, y, X_unlabeled=U, level=level, label_prior=prior, n_splits=40, **EUCLIDEAN)
            assert found.minimal_radius == sf.minimal_radius(X, y, X_unlabeled=U, label_prior=prior)
            assert found.excess == np.quantile(found.splits, 0.5 * (1 + level))
            assert found.radius == found.minimal_radius + found.excess
            assert (found.level, found.n_labeled, found.splits.shape) == (level, 12, (40,))
            assert found.splits.min() >= 0
            assert np.ptp(found.splits) > 0

    def test_the_same_data_give_the_same_radius(self) -> None:
        X, y, U = sample(seed=1)
        same, again, other = (sf.calibrate_radius(X, y, X_unlabeled=U, random_state=seed) for seed in (0, 0, 1))
        np.testing.assert_array_equal(same.splits, again.splits)
        assert (same.splits != other.splits).any()
        clf = KNeighborsClassifier(3).fit(X, y)
        named, object_ = (
            sf.certify(clf, X, y, X_unlabeled=U, radius=r, loss="zero_one")
            for r in ("calibrated", sf.CalibratedRadius())
        )
        assert named.radius == object_.radius == same.radius
        assert named.risk == object_.risk

    def test_settings_are_heeded(self) -> None:
        X, y, U = sample(seed=1)
        how = sf.CalibratedRadius(level=0.6, n_splits=20, random_state=5)
        certificate = sf.certify(
            KNeighborsClassifier(3).fit(X, y), X, y, X_unlabeled=U, radius=how, label_prior=[0.5, 0.5]
        )  # fmt: skip
        expected = sf.calibrate_radius(
            X, y, X_unlabeled=U, level=0.6, n_splits=20, random_state=5, label_prior=[0.5, 0.5]
        )  # fmt: skip
        assert certificate.radius == expected.radius
        assert expected.excess < sf.calibrate_radius(X, y, X_unlabeled=U, level=0.99).excess

    def test_rows_without_weight_take_no_part(self) -> None:
        X, y, U = sample(seed=2, n=20, K=3)
        kept = np.arange(20) % 4 > 0
        keywords: dict[str, Any] = {"X_unlabeled": U, "label_prior": [0.2, 0.3, 0.5]}
        weighted = sf.calibrate_radius(X, y, sample_weight=2.5 * kept, **keywords)
        left = sf.calibrate_radius(X[kept], y[kept], sample_weight=np.full(15, 2.5), **keywords)
        np.testing.assert_allclose(weighted.splits, left.splits, atol=1e-12)
        assert weighted.radius == pytest.approx(left.radius, rel=1e-12)
        assert weighted.n_labeled == 15
        uneven = sf.calibrate_radius(X, y, sample_weight=kept * np.linspace(0.2, 3.0, 20), **keywords)
        assert abs(uneven.splits - weighted.splits).max() > 1e-3

    @pytest.mark.parametrize("copies", [2, 5, 10])
    def test_copied_rows_say_nothing_new(self, copies: int) -> None:
        X, y, U = sample()
        keywords = {"X_unlabeled": U} | EUCLIDEAN
        base = sf.calibrate_radius(X, y, **keywords)
        with warns("repeated_rows", copies=(copies - 1) * len(X), n_labels=len(X)):
            copied = sf.calibrate_radius(np.repeat(X, copies, axis=0), np.repeat(y, copies), **keywords)
        np.testing.assert_allclose(copied.splits, base.splits, atol=1e-12)
        assert copied.n_labeled == len(X)
        weights = np.full(len(X), float(copies))
        weighted = sf.calibrate_radius(X, y, sample_weight=weights, **keywords)
        assert copied.excess == pytest.approx(weighted.excess, abs=1e-12)

    @pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
    def test_copies_in_both_halves_hide_no_excess(self, metric: str) -> None:
        """Labels that have nothing to do with the features: their halves disagree, however often rows are copied."""
        rng = np.random.default_rng(11)
        X, y, U = rng.normal(size=(14, 3)), np.arange(14) % 2, rng.normal(size=(9, 3))
        found = []
        for A, b in ((X, y), (np.repeat(X, 5, 0), np.repeat(y, 5))):
            d = metric if metric == "euclidean" else sf.costs.Precomputed(cdist(np.vstack([A, U]), A))
            found.append(sf.calibrate_radius(A, b, X_unlabeled=U, metric=d, label_prior=[0.5, 0.5], label_cost=1.0))
        assert found[1].excess == pytest.approx(found[0].excess, rel=1e-9)
        assert found[1].n_labeled == 14

    def test_too_few_different_rows_are_counted(self) -> None:
        X, y = np.repeat([[0.0], [1.0], [2.0]], 7, 0), np.repeat([0, 1, 0], 7)
        with pytest.raises(ValueError, match=r"differ.*got 3 among 21"):
            sf.calibrate_radius(X, y, X_unlabeled=[[0.5]])

    def test_copies_of_one_row_weigh_as_much_as_its_weight(self) -> None:
        X, y, U = sample()
        weights = np.ones(len(X))
        weights[3] = 4.0
        with warns("repeated_rows", copies=3):
            copied = sf.calibrate_radius(
                np.vstack([X, X[[3, 3, 3]]]), np.append(y, y[[3, 3, 3]]), X_unlabeled=U, **EUCLIDEAN
            )
        expected = sf.calibrate_radius(X, y, X_unlabeled=U, sample_weight=weights, **EUCLIDEAN)
        np.testing.assert_allclose(copied.splits, expected.splits, atol=1e-12)

    def test_metric_and_label_cost_are_those_of_the_set(self) -> None:
        X, y, U = sample(seed=2)
        base = sf.calibrate_radius(X, y, X_unlabeled=U, **EUCLIDEAN)
        doubled = sf.calibrate_radius(2 * X, y, X_unlabeled=2 * U, metric="euclidean", label_cost=2.0)
        np.testing.assert_allclose(doubled.splits, 2 * base.splits, atol=1e-10)
        matrix = cdist(np.vstack([X, U]), X, "cityblock")
        a, b = (
            sf.calibrate_radius(X, y, X_unlabeled=U, metric=m, label_cost=1.0)
            for m in ("manhattan", sf.costs.Precomputed(matrix))
        )
        np.testing.assert_allclose(a.splits, b.splits, atol=1e-12)
        assert a.radius > base.radius

    def test_a_class_that_no_label_shows(self) -> None:
        X, y, U = sample(seed=2)
        two, three = (sf.calibrate_radius(X, y, X_unlabeled=U, classes=range(K)) for K in (2, 3))
        assert np.isfinite(three.splits).all()
        assert (two.splits != three.splits).any()  # the replaced label may be the third
        certificate = sf.certify(
            KNeighborsClassifier(3).fit(X, y), X, y, X_unlabeled=U, radius="calibrated", classes=range(3),
            loss="zero_one",
        )  # fmt: skip
        assert certificate.gap <= 1e-6
        assert certificate.estimate is not None
        assert certificate.estimate.excess == three.excess

    def test_text_says_that_it_is_an_estimate(self) -> None:
        X, y, U = sample(seed=1)
        clf = KNeighborsClassifier(3).fit(X, y)
        certificate = sf.certify(
            clf, X, y, X_unlabeled=U, radius=sf.CalibratedRadius(0.8, n_splits=30), loss="zero_one"
        )
        estimate = certificate.estimate
        assert isinstance(estimate, sf.RadiusEstimate)
        for text in (repr(certificate), certificate._repr_html_(), repr(estimate), estimate._repr_html_()):
            assert "estimated at confidence level 0.8 from 30 half-splits of 12 labeled rows" in text
            assert "assumes i.i.d. labels; coverage measured, not proved" in text
            assert f"{estimate.radius:.6g}" in text
        assert f"minimal {estimate.minimal_radius:.6g} + excess {estimate.excess:.6g}" in repr(estimate)
        assert "estimated" not in repr(sf.certify(clf, X, y, X_unlabeled=U, radius=2.0))


@cache
def calibrated(K: int, prior: str, loss: str, seed: int) -> tuple[Any, ...]:
    """A certificate at the calibrated radius, the losses (N, K), and (distances, weights, codes) of its set."""
    X, y, U = sample(seed, n=12, M=24, K=K)
    clf = KNeighborsClassifier(3).fit(X, y)
    certificate = sf.certify(
        clf, X, y, X_unlabeled=U, radius="calibrated", loss=loss, label_prior=PRIORS[prior](K), label_cost=0.8,
        metric="euclidean",
    )  # fmt: skip
    rows = np.vstack([X, U])
    if loss == "zero_one":
        losses = (clf.predict(rows)[:, None] != np.arange(K)).astype(float)
    else:
        losses = -np.log(np.maximum(clf.predict_proba(rows), 1e-12))
    return certificate, losses, cdist(rows, X), y


def granted(excess: float, D: np.ndarray, y: np.ndarray, p: np.ndarray) -> float:
    """W_d + excess + κ TV(p, p̂), κ = 0.8."""
    N, n = D.shape
    frequencies = np.bincount(y, minlength=len(p)) / n
    return float(ot.emd2(np.full(N, 1 / N), np.full(n, 1 / n), D) + excess + 0.8 * np.abs(p - frequencies).sum() / 2)


def worst_at(losses: np.ndarray, D: np.ndarray, y: np.ndarray, p: np.ndarray, radius: float) -> float:
    """Worst expected loss (HiGHS) where the label probabilities are p."""
    (N, n), K = D.shape, len(p)
    exact = np.column_stack([p, p])
    kappa = 0.8 * (1 - np.eye(K))
    return inner_reference(losses, D, np.full(N, 1 / N), np.full(n, 1 / n), y, kappa, exact, radius + 1e-11)["value"]


@pytest.mark.parametrize(("loss", "seed"), [("log_loss", 0), ("zero_one", 1)])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
class TestTiedSet:
    """The set { μ : W_c(μ, P̂_l) ≤ W_d + excess + κ TV(p_μ, p̂) }, not convex: each p_μ has a radius of its own."""

    def test_the_adversary_is_in_it_and_attains_the_bound(self, K: int, prior: str, loss: str, seed: int) -> None:
        certificate, losses, D, y = calibrated(K, prior, loss, seed)
        worst = certificate.worst_case
        p, excess = worst.label_probabilities, certificate.estimate.excess
        assert (p >= certificate.label_intervals[:, 0] - 1e-9).all()
        assert (p <= certificate.label_intervals[:, 1] + 1e-9).all()
        distance = transport_by_pot(worst, D, y, 0.8 * (1 - np.eye(K)), np.ones(len(y)))
        assert distance <= granted(excess, D, y, p) * (1 + 1e-6)
        forced = worst.row_weights @ (worst.label_proba * losses).sum(axis=1)
        assert certificate.lower == pytest.approx(forced, abs=1e-9)
        assert certificate.gap <= 1e-6
        assert certificate.status == "optimal"
        # at these label probabilities no plan does better, so the bound is attained
        p = np.clip(p, 0, 1) / p.sum()
        assert worst_at(losses, D, y, p, granted(excess, D, y, p)) == pytest.approx(certificate.risk, abs=2e-6)

    def test_no_label_probabilities_do_worse(self, K: int, prior: str, loss: str, seed: int) -> None:
        certificate, losses, D, y = calibrated(K, prior, loss, seed)
        lo, hi = certificate.label_intervals.T
        if K == 2:
            grid = [np.array([t, 1 - t]) for t in np.linspace(lo[0], hi[0], 15)]
        else:
            steps = np.linspace(0, 1, 8)
            grid = [lo + (hi - lo) * [a, b, 0] for a, b in product(steps, steps)]
            grid = [np.array([p[0], p[1], 1 - p[0] - p[1]]) for p in grid]
            grid = [p for p in grid if lo[2] - 1e-12 <= p[2] <= hi[2] + 1e-12][::2]
        assert len(grid) >= 8
        found = [
            worst_at(losses, D, y, np.clip(p, 0, 1), granted(certificate.estimate.excess, D, y, p)) for p in grid
        ]  # fmt: skip
        assert max(found) <= certificate.risk + 1e-6
        assert max(found) >= certificate.risk - 0.1 * np.ptp(losses)

    def test_it_pays_for_label_shift_once(self, K: int, prior: str, loss: str, seed: int) -> None:
        certificate, losses, D, y = calibrated(K, prior, loss, seed)
        intervals, frequencies = certificate.label_intervals, np.bincount(y, minlength=K) / len(y)
        # a radius that covers the worst end of the intervals, for the one convex set with all of them
        farthest = max(np.abs(corner - frequencies).sum() / 2 for corner in product(*intervals))
        (N, n), radius = D.shape, granted(certificate.estimate.excess, D, y, frequencies) + 0.8 * farthest
        untied = inner_reference(
            losses, D, np.full(N, 1 / N), np.full(n, 1 / n), y, 0.8 * (1 - np.eye(K)), intervals, radius
        )["value"]  # fmt: skip
        assert certificate.risk <= untied + 1e-6
        if prior != "away":
            assert certificate.risk < untied - 1e-2

    def test_on_fresh_rows_the_worst_of_its_pieces_counts(self, K: int, prior: str, loss: str, seed: int) -> None:
        certificate, *_ = calibrated(K, prior, loss, seed)
        bound, rows = certificate.row_bound, np.random.default_rng(5).normal(size=(200, 2)) + 0.5
        losses = bound.losses_at(rows)
        found = []
        for piece in bound.sets:
            low, high = piece.range(bound.largest_loss)
            values = np.maximum(piece.values(cdist(rows, bound.anchors), losses), low)
            found.append(values.mean() + bernstein_term(values, 0.95, low, high))
        expected = min(max(found), bound.largest_loss)
        assert certificate.on_fresh_rows(rows, method="bernstein").risk == pytest.approx(expected, rel=1e-12)
        assert len(bound.sets) == 2**K - 2 or prior == "away"


def test_an_interval_away_from_the_frequencies_leaves_fewer_pieces() -> None:
    counts = [len(calibrated(K, "away", "log_loss", 0)[0].row_bound.sets) for K in (2, 3)]
    assert counts[0] == 1
    assert 1 <= counts[1] < 6


@pytest.mark.parametrize("prior", PRIORS)
def test_transport_cost_of_the_worst_case_bounds_its_distance(prior: str) -> None:
    certificate, _, D, y = calibrated(2, prior, "log_loss", 0)
    distance = transport_by_pot(certificate.worst_case, D, y, 0.8 * (1 - np.eye(2)), np.ones(len(y)))
    assert distance <= certificate.worst_case.transport_cost * (1 + 1e-9)


class TestExactPrior:
    @pytest.mark.parametrize("label_cost", [0.8, np.array([[0.0, 0.5, 1.0], [0.8, 0.0, 0.4], [0.6, 1.2, 0.0]])])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_the_set_is_the_ordinary_one(self, loss: str, label_cost: Any) -> None:
        X, y, U = sample(seed=4, K=3)
        clf = KNeighborsClassifier(3).fit(X, y)
        keywords: dict[str, Any] = {"X_unlabeled": U, "label_prior": [0.5, 0.2, 0.3], "label_cost": label_cost}
        keywords["metric"] = "euclidean"
        found = sf.certify(clf, X, y, radius="calibrated", loss=loss, **keywords)
        assert found.radius == sf.calibrate_radius(X, y, **keywords).radius
        plain = sf.certify(clf, X, y, radius=found.radius, loss=loss, **keywords)
        assert found.risk == pytest.approx(plain.risk, abs=2e-6)
        assert plain.estimate is None
        assert found.worst_case.transport_cost <= found.radius * (1 + 1e-6)

    @pytest.mark.parametrize("K", [2, 3])
    def test_a_fit_at_the_calibrated_radius_is_a_fit_at_that_number(self, K: int) -> None:
        X, y, U = sample(seed=4, K=K)
        prior = np.array([0.5, 0.3, 0.2])[:K] / sum([0.5, 0.3, 0.2][:K])
        clf = clone(sf.RobustLogisticRegression(radius=sf.CalibratedRadius(0.8), label_prior=prior, tol=1e-6))
        clf.fit(X, y, X_unlabeled=U)
        expected = sf.calibrate_radius(X, y, X_unlabeled=U, level=0.8, label_prior=prior)
        assert clf.radius_ == clf.certificate_.radius == expected.radius
        assert clf.certificate_.estimate is not None
        np.testing.assert_array_equal(clf.certificate_.estimate.splits, expected.splits)
        assert "estimated at confidence level 0.8" in repr(clf.certificate_)
        same = {"metric": clf.metric_, "label_cost": clf.label_cost_}
        plain = clone(clf).set_params(radius=expected.radius, **same).fit(X, y, X_unlabeled=U)
        assert clf.certificate_.risk == pytest.approx(plain.certificate_.risk, abs=2e-6)
        np.testing.assert_allclose(clf.predict_proba(U), plain.predict_proba(U), atol=1e-3)
        assert clf.certificate_.on_fresh_rows(U + 1e-3).guarantee


@cache
def fitted_with_intervals(K: int, prior: str) -> tuple[Any, ...]:
    X, y, U = sample(seed=4, M=30, K=K)
    keywords: dict[str, Any] = {"radius": "calibrated", "label_prior": PRIORS[prior](K)} | EUCLIDEAN
    clf = sf.RobustLogisticRegression(tol=1e-5, **keywords).fit(X, y, X_unlabeled=U)
    return clf, X, y, U, keywords | {"X_unlabeled": U}


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
class TestFitWithIntervals:
    def test_the_certificate_is_that_of_certify(self, K: int, prior: str) -> None:
        clf, X, y, U, keywords = fitted_with_intervals(K, prior)
        judged = sf.certify(clf, X, y, **keywords)
        assert clf.certificate_.gap <= 1e-5
        assert clf.certificate_.risk == pytest.approx(judged.risk, abs=2e-5)
        assert clf.radius_ == judged.radius
        assert len(clf.certificate_.row_bound.sets) == len(judged.row_bound.sets)
        reused = clf.certificate_.on_fresh_rows(np.vstack([X, U]))
        assert reused.mean <= clf.certificate_.risk + 1e-9
        assert not reused.guarantee

    def test_no_other_classifier_does_better(self, K: int, prior: str) -> None:
        clf, X, y, _, keywords = fitted_with_intervals(K, prior)
        other, rng = copy(clf), np.random.default_rng(0)
        for size in (0.03, 0.3):
            other.coef_ = clf.coef_ + size * rng.normal(size=clf.coef_.shape)
            other.intercept_ = clf.intercept_ + size * rng.normal(size=clf.intercept_.shape)
            assert sf.certify(other, X, y, **keywords).risk >= clf.certificate_.lower - 1e-6

    def test_its_mixture_of_adversaries_forces_the_lower_bound(self, K: int, prior: str) -> None:
        clf, X, y, U, _ = fitted_with_intervals(K, prior)
        worst, rows = clf.worst_case_, np.vstack([X, U])
        assert adversary_loss(clf, rows) >= clf.certificate_.lower - 1e-9
        distance = transport_by_pot(worst, cdist(rows, X), y, 1 - np.eye(K), np.ones(len(X)))
        assert distance <= worst.transport_cost * (1 + 1e-9)


class TestRefused:
    X, y, U = sample(seed=1)
    three = np.arange(12) % 3

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            ({"level": 0.0}, ("level", 0, 1, 0.0)),
            ({"level": 1.0}, ("level", 0, 1, 1.0)),
            ({"level": "high"}, ("level", 0, 1, "'high'")),
            ({"n_splits": 0}, ("n_splits", 1, 0)),
            ({"n_splits": 2.5}, ("n_splits", 1, 2.5)),
            (
                {"sample_weight": [1, 1, 1] + 9 * [0]},
                ("radius", 4, 3),
            ),
        ],
    )
    def test_bad_settings(self, given: dict[str, Any], match: Refused) -> None:
        with refuses(match):
            sf.calibrate_radius(self.X, self.y, X_unlabeled=self.U, **given)

    def test_too_few_rows(self) -> None:
        for call in (
            lambda n: sf.calibrate_radius(self.X[:n], self.y[:n], X_unlabeled=self.U),
            lambda n: sf.certify(
                KNeighborsClassifier(1).fit(self.X, self.y), self.X[:n], self.y[:n], radius="calibrated"
            ),
            lambda n: sf.RobustLogisticRegression("calibrated", [0.5, 0.5]).fit(self.X[:n], self.y[:n]),
        ):
            with refuses("radius", 4, 3):
                call(3)
            call(4)

    def test_label_cost_matrix_with_intervals(self) -> None:
        cost = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
        clf = KNeighborsClassifier(1).fit(self.X, self.three)
        keywords: dict[str, Any] = {"X_unlabeled": self.U, "radius": "calibrated", "label_cost": cost}
        keywords["metric"] = "euclidean"
        with refuses("label_cost"):
            sf.certify(clf, self.X, self.three, **keywords)
        # a matrix that is a number in disguise is one, and exact probabilities take any
        same = sf.certify(clf, self.X, self.three, **keywords | {"label_cost": 1.0 - np.eye(3)})
        assert same.risk == sf.certify(clf, self.X, self.three, **keywords | {"label_cost": 1.0}).risk
        assert sf.certify(clf, self.X, self.three, **keywords | {"label_prior": [0.2, 0.3, 0.5]}).gap <= 1e-6

    def test_many_classes_with_intervals(self) -> None:
        y = np.arange(12) % 7
        clf = KNeighborsClassifier(1).fit(self.X, y)
        keywords: dict[str, Any] = {"X_unlabeled": self.U, "radius": "calibrated", "loss": "zero_one"}
        with refuses("radius", 6, 7):
            sf.certify(clf, self.X, y, **keywords)
        assert sf.certify(clf, self.X, y, label_prior=np.full(7, 1 / 7), **keywords).gap <= 1e-6


class TestLearnedMetric:
    """By default a radius is estimated in the metric learned from the labels, with κ the median distance."""

    def test_it_is_the_default_of_all(self) -> None:
        X, y, U = sample(seed=1, n=30)
        clf = KNeighborsClassifier(3).fit(X, y)
        found = sf.certify(clf, X, y, X_unlabeled=U, radius="calibrated", loss="zero_one")
        learned = sf.costs.LearnedMetric().learn(X, y, X_unlabeled=U)
        np.testing.assert_allclose(found.metric.weights, learned.weights, rtol=1e-9)
        named = {"metric": "learned", "label_cost": "median"}
        assert found.radius == sf.calibrate_radius(X, y, X_unlabeled=U, **named).radius
        assert found.estimate.learned_metric
        assert "in a metric learned from the labels" in found.estimate.meaning
        fit = sf.RobustLogisticRegression("calibrated").fit(X, y, X_unlabeled=U)
        assert fit.radius_ == found.radius
        assert fit.label_cost_ == found.label_cost
        plain = sf.certify(clf, X, y, X_unlabeled=U, radius="calibrated", **EUCLIDEAN)
        assert not plain.estimate.learned_metric
        assert sf.certify(clf, X, y, X_unlabeled=U, radius=5.0).metric == sf.costs.Euclidean()

    @pytest.mark.parametrize("K", [2, 3])
    def test_the_units_of_features_do_not_matter(self, K: int) -> None:
        X, y, U = sample(seed=3, n=24, K=K)
        unit, shift = np.array([1e-3, 40.0]), np.array([5.0, -2.0])
        clf = KNeighborsClassifier(3).fit(X, y)
        losses = (clf.predict(np.vstack([X, U]))[:, None] != np.arange(K)).astype(float)
        risks = []
        for scale, move in ((np.ones(2), np.zeros(2)), (unit, shift)):
            certificate = sf.certify(
                None, X * scale + move, y, X_unlabeled=U * scale + move, radius="calibrated", losses=losses
            )
            risks.append((certificate.risk, certificate.radius))
        np.testing.assert_allclose(risks[0], risks[1], rtol=1e-5)

    def test_the_label_cost_of_each_half_is_its_own_median(self) -> None:
        """The splits by another loop: metrics learned from half of the rows, excesses by POT in units of κ."""
        X, y, U = sample(seed=5, n=16, M=40)
        estimate = sf.calibrate_radius(X, y, X_unlabeled=U, n_splits=6)
        rows, rng, found = np.vstack([X, U]), np.random.default_rng(0), []
        learner = sf.costs.LearnedMetric()
        spread = learner.spread(rows, np.ones(len(rows)))

        def median(metric: Any) -> float:
            between = cdist(metric.transform(rows), metric.transform(rows))
            pairs = np.sort(between[np.triu_indices(len(rows), 1)])
            return float(pairs[(len(pairs) - 1) // 2])

        whole = median(learner.learn(X, y, X_unlabeled=U))
        for split in range(6):
            A, B = np.array_split(rng.permutation(16), 2)
            labels, row, shift = y.copy(), rng.choice(16), rng.integers(1, 2)
            if split % 2:
                labels[row] = (labels[row] + shift) % 2
            metric = learner.from_codes(X[A], labels[A], np.ones(len(A)), spread)
            kappa = median(metric) * (1 - np.eye(2))
            cost = metric.distances(X[A], X[B])
            excess = excess_by_pot(cost, labels[A], labels[B], np.ones(len(A)), np.ones(len(B)), kappa)
            found.append(max(excess, 0.0) * whole / kappa.max())
        np.testing.assert_allclose(estimate.splits, found, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_coverage_on_breast_cancer() -> None:
    """The truth lies within the calibrated radius in at least 80 % of 40 draws, and hardly ever within the minimal."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X /= np.abs(X).max()
    prior, covered, at_minimum = np.bincount(y) / len(y), np.zeros(2), np.zeros(2)
    for seed in range(40):
        order = np.random.default_rng(seed).permutation(len(X))
        rows, labels, rest = X[order[:50]], y[order[:50]], X[order[50:]]
        learned = check_problem(rows, labels, X_unlabeled=rest, metric="learned", label_cost="median")
        measured = {"metric": learned.data.metric, "label_cost": float(learned.decision_set.label_cost.max())}
        for at, (options, known) in enumerate(((EUCLIDEAN, EUCLIDEAN), ({}, measured))):
            found = sf.calibrate_radius(rows, labels, X_unlabeled=rest, label_prior=prior, n_splits=25, **options)
            distance = sf.transport_distance(rows, labels, X, y, **known)
            covered[at] += distance <= found.radius
            at_minimum[at] += distance <= found.minimal_radius
    assert (covered >= 32).all()
    assert (at_minimum <= 8).all()
