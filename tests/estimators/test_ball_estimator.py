from __future__ import annotations

import pickle
from typing import Any, cast

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import surefoot as sf
from generators import sample
from refusals import refuses, warns


class TestBall:
    METRICS = ("euclidean", "manhattan", "chebyshev")

    @pytest.mark.parametrize("radius", [0.0, 0.02, 0.2, 0.7])
    @pytest.mark.parametrize("metric", METRICS)
    def test_worst_case_of_the_fit_is_its_certificate(self, metric: str, radius: float) -> None:
        X, y, _ = sample(n=40)
        clf = sf.WassersteinLogisticRegression(radius=radius, metric=metric).fit(X, y)
        certificate = clf.certificate_
        assert abs(clf.worst_case_risk(clf.radius_) - certificate.risk) <= 1e-9
        assert certificate.gap <= 1e-8
        risks = clf.worst_case_risk(np.linspace(0.0, 2.0, 21))
        assert risks[0] == pytest.approx(-np.mean(clf.predict_log_proba(X)[np.arange(40), y]), abs=1e-12)
        steps = np.diff(risks)
        assert (steps >= -1e-12).all()  # grows with the radius
        assert (np.diff(steps) <= 1e-12).all()  # and is concave in it

    @pytest.mark.parametrize(("metric", "order"), [("euclidean", 2), ("manhattan", np.inf), ("chebyshev", 1)])
    def test_without_label_flips_the_radius_weighs_the_dual_norm(self, metric: str, order: float) -> None:
        X, y, _ = sample(n=40)
        clf = sf.WassersteinLogisticRegression(radius=0.1, metric=metric, label_cost=np.inf).fit(X, y)
        plain = -np.mean(clf.predict_log_proba(X)[np.arange(40), y])
        assert clf.certificate_.risk == pytest.approx(plain + 0.1 * np.linalg.norm(clf.coef_[0], order), abs=1e-9)

    def test_mahalanobis_is_euclidean_after_a_linear_map(self) -> None:
        X, y, U = sample(n=40)
        root = np.array([[2.0, 0.0], [0.7, 0.5]])
        plain = sf.WassersteinLogisticRegression(label_cost=5.0).fit(X @ root, y)
        ours = clone(plain).set_params(metric=sf.costs.Mahalanobis(root @ root.T)).fit(X, y)
        assert abs(ours.certificate_.risk - plain.certificate_.risk) <= 2e-8
        np.testing.assert_allclose(ours.predict_proba(U), plain.predict_proba(U @ root), atol=1e-3)
        assert abs(ours.worst_case_risk(0.1) - ours.certificate_.risk) <= 1e-9
        euclidean = clone(plain).fit(X, y)
        assert abs(euclidean.certificate_.risk - ours.certificate_.risk) > 1e-3

    def test_sample_weight_is_repetition(self) -> None:
        X, y, _ = sample()
        weights = np.arange(12) % 4
        weighted = sf.WassersteinLogisticRegression().fit(X, y, sample_weight=weights)
        repeated = sf.WassersteinLogisticRegression().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
        assert abs(weighted.certificate_.risk - repeated.certificate_.risk) <= 2e-8
        assert abs(weighted.worst_case_risk(0.3) - repeated.worst_case_risk(0.3)) <= 1e-4

    def test_more_than_two_classes_are_refused(self) -> None:
        X, y, _ = sample(K=3)
        with refuses("y", 3):
            sf.WassersteinLogisticRegression().fit(X, y)

    def test_metrics_without_a_dual_norm_are_refused(self) -> None:
        X, y, _ = sample()
        with refuses("metric"):
            sf.WassersteinLogisticRegression(metric=cast("Any", lambda a, b: abs(a - b).max())).fit(X, y)

    def test_stopping_early_warns_with_the_gap(self) -> None:
        X, y, _ = sample(n=40)
        clf = sf.WassersteinLogisticRegression(max_iter=1)
        with warns("gap", ConvergenceWarning) as record:
            clf.fit(X, y)
        assert f"{clf.certificate_.gap:.2e}" in str(record[0].message)
        assert clf.certificate_.status == "stopped"

    def test_pickling_round_trip(self) -> None:
        X, y, U = sample()
        clf = sf.WassersteinLogisticRegression().fit(X, y)
        copy = pickle.loads(pickle.dumps(clf))
        np.testing.assert_array_equal(copy.predict_proba(U), clf.predict_proba(U))
        np.testing.assert_array_equal(copy.worst_case_risk([0.0, 0.3]), clf.worst_case_risk([0.0, 0.3]))
        assert repr(copy.certificate_) == repr(clf.certificate_)

    def test_worst_case_risk_is_that_of_the_fit(self) -> None:
        X, y, _ = sample(n=40)
        clf = sf.WassersteinLogisticRegression(radius=0.1, label_cost=2.0).fit(X, y)
        radii = [0.0, 0.1, 0.5, 1.0]
        before = clf.worst_case_risk(radii)
        clf.set_params(label_cost=0.5, metric="manhattan", radius=3.0)
        X += 1.0  # the user's array is not the fit's
        np.testing.assert_array_equal(clf.worst_case_risk(radii), before)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).worst_case_risk(radii), before)
        X -= 1.0
        assert abs(clf.fit(X, y).worst_case_risk(radii) - before).max() > 1e-2

    @pytest.mark.parametrize(
        ("bad", "named"), [(-0.1, (0, -0.1)), (np.nan, ("nan at index 1",)), ("a", ("[0.1, 'a']",))]
    )
    def test_bad_radii_are_refused(self, bad: Any, named: tuple[Any, ...]) -> None:
        X, y, _ = sample()
        with refuses("radii", *named):
            sf.WassersteinLogisticRegression().fit(X, y).worst_case_risk([0.1, bad])
