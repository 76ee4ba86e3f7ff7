from __future__ import annotations

import pickle
import time
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.spatial.distance import cdist
from scipy.special import entr
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import surefoot as sf
from generators import adversary_loss, fitted, just_above, sample, transport_by_pot
from refusals import refuses, warns
from surefoot.solvers.search.search import Search


@parametrize_with_checks([sf.RobustLogisticRegression(), sf.WassersteinLogisticRegression()])  # type: ignore[untyped-decorator]
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


class TestFrames:
    @pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
    def test_give_the_same_fit_and_keep_the_names(self, frame: Any) -> None:
        clf, X, y, U = fitted()
        X_frame, U_frame = frame(dict(zip("ab", X.T, strict=True))), frame(dict(zip("ab", U.T, strict=True)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            framed = clone(clf).fit(X_frame, y, X_unlabeled=U_frame)
            probabilities = framed.predict_proba(U_frame)
        assert framed.feature_names_in_.tolist() == ["a", "b"]
        np.testing.assert_allclose(framed.coef_, clf.coef_, rtol=1e-9)
        np.testing.assert_allclose(probabilities, clf.predict_proba(U), rtol=1e-9)

    @pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
    @pytest.mark.parametrize("names", ["ac", "ba"], ids=["another name", "another order"])
    def test_refuse_unlabeled_rows_with_other_columns(self, frame: Any, names: str) -> None:
        X, y, U = sample()
        X_frame, U_frame = frame(dict(zip("ab", X.T, strict=True))), frame(dict(zip(names, U.T, strict=True)))
        with refuses("X_unlabeled"):
            sf.RobustLogisticRegression(radius=2.0).fit(X_frame, y, X_unlabeled=U_frame)
        with refuses("X_unlabeled"):
            sf.RobustLogisticRegression(radius=2.0).fit(X_frame, y, X_unlabeled=sf.Unlabeled(U_frame))


def test_labeled_rows_of_weight_zero_change_nothing_but_have_labels_in_the_worst_case() -> None:
    X, y, U = sample(n=20, M=30, d=3, K=3)
    weights = np.where(np.arange(20) % 4 == 3, 0.0, 1.0 + np.arange(20) % 3)
    kept = weights > 0
    with_zeros = sf.RobustLogisticRegression().fit(X, y, weights, X_unlabeled=U)
    without = sf.RobustLogisticRegression().fit(X[kept], y[kept], weights[kept], X_unlabeled=U)
    np.testing.assert_allclose(with_zeros.predict_proba(U), without.predict_proba(U), rtol=1e-7)
    assert with_zeros.certificate_.gap <= 1e-8
    labels = with_zeros.worst_case_.label_proba
    assert labels.shape == (50, 3)
    np.testing.assert_allclose(labels.sum(axis=1), 1.0)
    np.testing.assert_allclose(labels[np.append(kept, np.ones(30, bool))], without.worst_case_.label_proba, atol=1e-6)


class TestPlumbing:
    @pytest.mark.parametrize("K", [2, 3])
    def test_pickling_round_trip(self, K: int) -> None:
        clf, _, _, U = fitted(K=K)
        copy = pickle.loads(pickle.dumps(clf))
        np.testing.assert_array_equal(copy.predict_proba(U), clf.predict_proba(U))
        np.testing.assert_array_equal(copy.worst_case_.label_proba, clf.worst_case_.label_proba)
        assert repr(copy.certificate_) == repr(clf.certificate_)
        assert (copy.certificate_.risk, copy.certificate_.lower) == (clf.certificate_.risk, clf.certificate_.lower)

    def test_clone_keeps_every_parameter_and_no_fit(self) -> None:
        given: dict[str, Any] = {
            "radius": 0.3,
            "label_prior": sf.priors.ClopperPearson(0.9),
            "label_cost": 2.0,
            "metric": sf.costs.Manhattan(),
            "tol": 1e-3,
            "classes": [0, 1],
            "l2": 0.1,
            "fit_intercept": False,
            "confidence": 0.6,
            "max_iter": 100,
            "n_jobs": 1,
            "compute": None,
        }
        clf = sf.RobustLogisticRegression(**given)
        assert clf.get_params() == given
        X, y, _ = sample()
        copy = clone(clf.set_params(radius=3.0).fit(X, y))
        assert copy.get_params() == {**given, "radius": 3.0}
        assert not hasattr(copy, "coef_")

    def test_result_does_not_depend_on_threads(self) -> None:
        X, y, U = sample(n=10, M=400, d=3, K=3)  # several groups of rows
        one, two = (
            sf.RobustLogisticRegression(radius=just_above(X, y, U), n_jobs=n_jobs).fit(X, y, X_unlabeled=U)
            for n_jobs in (1, 2)
        )
        np.testing.assert_array_equal(one.coef_, two.coef_)
        np.testing.assert_array_equal(one.worst_case_.label_proba, two.worst_case_.label_proba)
        assert (one.certificate_.risk, one.certificate_.lower) == (two.certificate_.risk, two.certificate_.lower)

    @pytest.mark.parametrize("radius", [1.5, "auto"])
    def test_callbacks_hear_of_the_fit_and_of_each_round(self, radius: float | str) -> None:
        pytest.importorskip("sklearn.callback", reason="this scikit-learn has no callbacks")
        events: list[tuple[str, str]] = []

        class Recorder:
            def setup(self, estimator: Any, context: Any) -> None:
                events.append(("setup", context.task_name))

            def teardown(self, estimator: Any, context: Any) -> None:
                events.append(("teardown", context.task_name))

            def on_fit_task_begin(self, estimator: Any, context: Any, **keywords: Any) -> None:
                events.append(("begin", context.task_name))

            def on_fit_task_end(self, estimator: Any, context: Any, **keywords: Any) -> None:
                events.append(("end", context.task_name))

        X, y, U = sample()
        sf.RobustLogisticRegression(radius=radius).set_callbacks(Recorder()).fit(X, y, X_unlabeled=U)
        assert [kind for kind, _ in events[:2]] == ["setup", "begin"]
        assert [kind for kind, _ in events[-2:]] == ["end", "teardown"]
        rounds = [kind for kind, name in events if name == "round"]
        assert len(rounds) >= 4
        assert rounds == ["begin", "end"] * (len(rounds) // 2)

        events.clear()
        sf.WassersteinLogisticRegression().set_callbacks(Recorder()).fit(X, y)
        assert [kind for kind, _ in events] == ["setup", "begin", "end", "teardown"]

    def test_progress_bar(self, capsys: pytest.CaptureFixture[str]) -> None:
        callback = pytest.importorskip("sklearn.callback", reason="this scikit-learn has no callbacks")
        pytest.importorskip("rich")
        X, y, U = sample()
        for clf, rows in [(sf.RobustLogisticRegression(radius=1.5), {"X_unlabeled": U}), (_ball(), {})]:
            clf.set_callbacks(callback.ProgressBar()).fit(X, y, **rows)
            assert type(clf).__name__ in capsys.readouterr().out


def _ball() -> sf.WassersteinLogisticRegression:
    return sf.WassersteinLogisticRegression()


class TestPrediction:
    @pytest.mark.parametrize("K", [2, 3])
    def test_methods_agree(self, K: int) -> None:
        clf, _, _, U = fitted(K=K)
        p = clf.predict_proba(U)
        assert p.shape == (len(U), K)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-14)
        np.testing.assert_array_equal(clf.classes_[p.argmax(axis=1)], clf.predict(U))
        np.testing.assert_allclose(np.exp(clf.predict_log_proba(U)), p, rtol=1e-12)
        assert clf.decision_function(U).shape == ((len(U),) if K == 2 else (len(U), K))
        assert clf.coef_.shape == ((1, 2) if K == 2 else (K, 2))
        assert len(np.unique(clf.predict(U))) == K

    def test_log_proba_survives_where_proba_underflows(self) -> None:
        clf, *_ = fitted()
        far = -1e4 * clf.coef_ / np.linalg.norm(clf.coef_) ** 2
        assert clf.predict_proba(far)[0, 1] == 0.0
        np.testing.assert_allclose(clf.predict_log_proba(far)[0, 1], clf.decision_function(far)[0], rtol=1e-12)

    @pytest.mark.parametrize("K", [2, 3])
    def test_string_labels(self, K: int) -> None:
        clf, X, y, U = fitted(K=K)
        names = np.array(["ant", "bee", "cat"])[:K]
        named = clone(clf).fit(X, names[y], X_unlabeled=U)
        assert named.classes_.tolist() == names.tolist()
        np.testing.assert_array_equal(named.predict(U), names[clf.predict(U)])
        np.testing.assert_array_equal(named.predict_proba(U), clf.predict_proba(U))

    def test_fit_intercept_false(self) -> None:
        clf, *_ = fitted(fit_intercept=False)
        with_intercept, *_ = fitted()
        assert clf.intercept_.tolist() == [0.0]
        np.testing.assert_allclose(clf.predict_proba(np.zeros((1, 2))), [[0.5, 0.5]], rtol=1e-15)
        assert clf.certificate_.lower > with_intercept.certificate_.risk  # fewer classifiers to choose from
        assert abs(with_intercept.intercept_[0]) > 0.1

    @pytest.mark.parametrize("K", [2, 3])
    def test_l2_shrinks_the_coefficients_and_costs_loss(self, K: int) -> None:
        fits = [fitted(K=K, l2=l2)[0] for l2 in (0.0, 0.01, 0.1, 1.0)]
        sizes = [np.linalg.norm(clf.coef_) for clf in fits]
        assert all(a > 1.02 * b for a, b in pairwise(sizes))
        assert all(a.certificate_.lower < b.certificate_.risk for a, b in pairwise(fits))


class TestRows:
    def test_without_unlabeled_rows_the_marginal_is_that_of_x(self) -> None:
        X, y, _ = sample(n=40)
        clf = sf.RobustLogisticRegression(radius=0.1, tol=1e-6).fit(X, y)
        np.testing.assert_allclose(clf.worst_case_.row_weights, np.full(40, 1 / 40), rtol=1e-15)
        assert clf.certificate_.minimal_radius == 0.0
        empty = clone(clf).fit(X, y, X_unlabeled=X[:0])
        np.testing.assert_array_equal(empty.coef_, clf.coef_)
        # the same rows once more leave P_X as it was
        twice = clone(clf).fit(X, y, X_unlabeled=sf.Unlabeled(X))
        assert abs(twice.certificate_.risk - clf.certificate_.risk) <= 2e-6
        np.testing.assert_allclose(twice.coef_, clf.coef_, atol=1e-2)

    def test_radius_zero_is_plain_logistic_regression(self) -> None:
        X, y, _ = sample(n=60, K=3)
        clf = sf.RobustLogisticRegression(radius=0.0, tol=1e-8).fit(X, y)
        plain = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X, y)
        loss = -np.mean(plain.predict_log_proba(X)[np.arange(60), y])
        assert clf.certificate_.status == "optimal"
        assert clf.certificate_.lower - 1e-8 <= loss <= clf.certificate_.risk + 1e-8
        np.testing.assert_allclose(clf.predict_proba(X), plain.predict_proba(X), atol=1e-3)

    @pytest.mark.parametrize("K", [2, 3])
    def test_sample_weight_is_repetition(self, K: int) -> None:
        X, y, U = sample(K=K)
        weights = np.array([0, 1, 2, 1, 3, 1, 1, 2, 1, 1, 0, 1])
        X_long, y_long = np.repeat(X, weights, axis=0), np.repeat(y, weights)
        clf = sf.RobustLogisticRegression(radius=just_above(X_long, y_long, U), tol=1e-7)
        weighted = clone(clf).fit(X, y, sample_weight=weights, X_unlabeled=U)
        repeated = clone(clf).fit(X_long, y_long, X_unlabeled=U)
        for name in ("minimal_radius", "label_intervals"):
            a, b = getattr(weighted.certificate_, name), getattr(repeated.certificate_, name)
            np.testing.assert_allclose(a, b, rtol=1e-9)
        assert abs(weighted.certificate_.risk - repeated.certificate_.risk) <= 2e-7
        np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-3)
        total = weights.sum() + len(U)
        np.testing.assert_allclose(weighted.worst_case_.row_weights, np.append(weights, np.ones(len(U))) / total)
        unweighted = clone(clf).set_params(radius=3.0).fit(X, y, X_unlabeled=U)
        assert abs(unweighted.certificate_.label_intervals - weighted.certificate_.label_intervals).max() > 0.01

    def test_a_class_that_no_label_shows(self) -> None:
        X, y, U = sample(K=2)
        clf = sf.RobustLogisticRegression(radius=just_above(X, y, U, classes=[0, 1, 2]), classes=[2, 0, 1])
        clf.fit(X, y, X_unlabeled=U)
        rows, worst = np.vstack([X, U]), clf.worst_case_
        assert clf.classes_.tolist() == [0, 1, 2]
        assert clf.predict_proba(U).shape == (len(U), 3)
        assert clf.certificate_.status == "optimal"
        assert worst.label_probabilities[2] > 0.01  # the adversary does use it
        distance = transport_by_pot(worst, cdist(rows, X), y, 1.0 - np.eye(3), np.ones(len(X)))
        assert distance <= clf.radius_ * (1 + 1e-6)
        assert clf.certificate_.lower - 1e-9 <= adversary_loss(clf, rows) <= clf.certificate_.risk + 1e-9

    def test_one_label_alone_with_the_classes_named(self) -> None:
        clf = sf.RobustLogisticRegression(radius=1.0, classes=["no", "yes"]).fit([[0.0]], ["no"], X_unlabeled=[[1.0]])
        assert clf.predict([[0.0]]).tolist() == ["no"]
        assert clf.certificate_.gap <= 1e-4

    @pytest.mark.parametrize("estimator", [sf.RobustLogisticRegression(radius=3.0), sf.WassersteinLogisticRegression()])
    def test_one_class_alone_is_refused(self, estimator: Any) -> None:
        X, _, _ = sample()
        with refuses("y", 2, 1, "['a']"):
            estimator.fit(X, np.full(len(X), "a"))


class TestRadius:
    def test_infeasible_radius_is_refused_before_any_iteration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y, U = sample(n=20, M=400)
        minimal = sf.minimal_radius(X, y, X_unlabeled=U, label_prior=[0.9, 0.1])

        def fail(*args: Any, **keywords: Any) -> None:
            raise AssertionError("the solver was called")

        monkeypatch.setattr(Search, "run", fail)
        clf = sf.RobustLogisticRegression(radius=0.99 * minimal, label_prior=[0.9, 0.1])
        start = time.perf_counter()
        with pytest.raises(sf.InfeasibleRadiusError) as caught:
            clf.fit(X, y, X_unlabeled=U)
        assert time.perf_counter() - start < 2.0
        assert caught.value.radius == 0.99 * minimal
        assert caught.value.minimal_radius == pytest.approx(minimal, rel=1e-12)
        with pytest.raises(AssertionError, match="the solver was called"):
            clf.set_params(radius=minimal).fit(X, y, X_unlabeled=U)

    @pytest.mark.parametrize("prior", ["clopper-pearson", [0.4, 0.6], None])
    def test_calibrated_is_an_estimate_that_the_certificate_names(self, prior: Any) -> None:
        X, y, U = sample()
        weights = np.linspace(0.5, 2.0, len(X))
        clf = sf.RobustLogisticRegression(radius="calibrated", label_prior=prior)
        clf.fit(X, y, sample_weight=weights, X_unlabeled=U)
        expected = sf.calibrate_radius(X, y, X_unlabeled=U, sample_weight=weights, label_prior=prior)
        assert clf.radius_ == clf.certificate_.radius == expected.radius > clf.certificate_.minimal_radius
        assert clf.certificate_.gap <= 1e-4
        assert "estimated at confidence level 0.9" in repr(clf.certificate_)
        # over the same sets, by the other route
        keywords = {"sample_weight": weights, "X_unlabeled": U, "label_prior": prior, "radius": "calibrated"}
        assert clf.certificate_.risk == pytest.approx(sf.certify(clf, X, y, **keywords).risk, abs=2e-4)

    @pytest.mark.parametrize(("seed", "K"), [(0, 2), (3, 2), (1, 3)])
    def test_auto_is_as_robust_as_possible(self, seed: int, K: int) -> None:
        X, y, U = sample(seed, K=K)
        rows = np.vstack([X, U])  # an odd number, so that the median is one of them
        assert len(rows) % 2 == 1
        clf = sf.RobustLogisticRegression(radius="auto").fit(X, y, X_unlabeled=U)
        minimal = clf.certificate_.minimal_radius
        assert clf.radius_ > minimal
        assert np.median(clf.predict_proba(rows).max(axis=1)) >= 0.7 - 0.01
        larger = clone(clf).set_params(radius=minimal + 1.1 * (clf.radius_ - minimal)).fit(X, y, X_unlabeled=U)
        assert np.median(larger.predict_proba(rows).max(axis=1)) < 0.7

    def test_auto_follows_the_confidence_asked_for(self) -> None:
        X, y, U = sample()
        radii = [
            sf.RobustLogisticRegression("auto", confidence=level).fit(X, y, X_unlabeled=U).radius_
            for level in (0.6, 0.7, 0.8)
        ]
        assert radii[0] > radii[1] > radii[2]

    def test_auto_says_so_when_no_radius_is_confident_enough(self) -> None:
        X, y, U = sample()
        clf = sf.RobustLogisticRegression("auto", confidence=0.9999)
        with warns("low_confidence", confidence=0.9999):
            clf.fit(X, y, X_unlabeled=U)
        assert 1 < clf.radius_ / clf.certificate_.minimal_radius < 1.001

    @pytest.mark.parametrize("K", [2, 3])
    def test_with_a_huge_radius_the_best_answer_is_the_prior(self, K: int) -> None:
        X, y, U = sample(K=K)
        prior = np.array([0.2, 0.5, 0.3])[:K] / sum([0.2, 0.5, 0.3][:K])
        for label_prior, answer in [(prior, prior), (None, np.full(K, 1 / K))]:
            clf = sf.RobustLogisticRegression(radius=1e3, label_prior=label_prior, tol=1e-6)
            clf.fit(X, y, X_unlabeled=U)
            assert clf.certificate_.lower - 1e-9 <= entr(answer).sum() <= clf.certificate_.risk + 1e-9
            np.testing.assert_allclose(clf.predict_proba(U), np.tile(answer, (len(U), 1)), atol=1e-2)


def test_the_predictive_default_has_no_label_intervals() -> None:
    X, y, U = sample(n=20)
    default = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U)
    without = sf.RobustLogisticRegression(label_prior=None).fit(X, y, X_unlabeled=U)
    np.testing.assert_array_equal(default.predict_proba(U), without.predict_proba(U))
    np.testing.assert_array_equal(default.certificate_.label_intervals, [[0.0, 1.0], [0.0, 1.0]])
    given = sf.RobustLogisticRegression(label_prior="clopper-pearson").fit(X, y, X_unlabeled=U)
    assert given.certificate_.label_intervals[0, 0] > 0
    assert sf.RobustLogisticRegression(2.0).fit(X, y, X_unlabeled=U).certificate_.label_intervals[0, 0] > 0
