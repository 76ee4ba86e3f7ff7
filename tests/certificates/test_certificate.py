from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import surefoot as sf
from generators import adversary_loss, fitted, sample, transport_by_pot
from refusals import warns
from surefoot._printing import rounded_down, rounded_up


class TestCertificate:
    def test_numbers_are_consistent_and_shown(self) -> None:
        certificate = fitted()[0].certificate_
        assert certificate.gap == certificate.risk - certificate.lower
        assert 0 <= certificate.gap <= 1e-4
        assert certificate.likelihood == pytest.approx(np.exp(-certificate.risk), rel=1e-15)
        assert certificate.radius == pytest.approx(certificate.minimal_radius + 0.05, rel=1e-12)
        assert certificate.loss == "log_loss"
        low, high = certificate.label_intervals[0]
        for text in (repr(certificate), certificate._repr_html_()):
            for number in (certificate.likelihood, certificate.radius):
                assert f"{number:.6g}" in text
            assert rounded_up(certificate.risk, 6) in text
            assert rounded_down(certificate.lower, 6) in text
            assert f"{certificate.gap:.2e}" in text
            assert f"minimal: {certificate.minimal_radius:.6g}" in text
            assert f"[{low:.4g}, {high:.4g}]" in text
            assert "optimal" in text

    def test_draws_itself(self) -> None:
        certificate = fitted()[0].certificate_
        assert certificate.plot().certificate is certificate

    def test_html_is_escaped(self) -> None:
        certificate = sf.Certificate(0.5, 0.25, 1.0, 0.5, np.array([[0.0, 1.0]]), "<script>&", "stopped")
        text = certificate._repr_html_()
        assert "&lt;script&gt;&amp;" in text
        assert "<script>" not in text
        assert "<script>&" in repr(certificate)
        assert "likelihood" not in text  # of the log loss only

    @pytest.mark.parametrize("K", [2, 3])
    def test_stopping_early_warns_with_the_gap_and_keeps_the_bounds(self, K: int) -> None:
        best, X, y, U = fitted(K=K, tol=1e-7)
        clf = clone(best).set_params(max_iter=3)
        with warns("gap", ConvergenceWarning) as record:
            clf.fit(X, y, X_unlabeled=U)
        certificate = clf.certificate_
        assert certificate.status == "stopped"
        assert certificate.gap > 1e-3
        assert f"gap is {certificate.gap:.2e}, above tol=1.00e-07" in str(record[0].message)
        assert certificate.lower <= best.certificate_.risk
        assert certificate.risk >= best.certificate_.lower

    def test_warnings_point_at_the_line_that_called_fit(self) -> None:
        X, y, U = sample()
        with pytest.warns(ConvergenceWarning) as record:
            sf.RobustLogisticRegression(radius=1.5, max_iter=2).fit(X, y, X_unlabeled=U)
        assert record[0].filename == __file__
        with pytest.warns(sf.UnlabeledRowsWarning) as record:
            sf.RobustLogisticRegression(radius=1.5).fit(X, y, X_unlabeled=U[: len(X)])
        assert record[0].filename == __file__


PRIORS: dict[str, Any] = {
    "none": lambda K: None,
    "clopper-pearson": lambda K: "clopper-pearson",
    "exact": lambda K: np.arange(1.0, K + 1) / np.arange(1, K + 1).sum(),
    "intervals": lambda K: np.column_stack([np.full(K, 0.05), np.linspace(0.45, 0.9, K)]),
}


@cache
def solved(K: int, prior: str, excess: float) -> tuple[Any, ...]:
    """A fit at the minimal radius + excess; whether it converged is a question of its own."""
    X, y, U = sample(seed=K, M=30, K=K)
    label_prior = PRIORS[prior](K)
    radius = sf.minimal_radius(X, y, X_unlabeled=U, label_prior=label_prior) + excess
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return sf.RobustLogisticRegression(radius=radius, label_prior=label_prior).fit(X, y, X_unlabeled=U), X, y, U


@pytest.mark.parametrize("excess", [0.0, 1e-6, 1e-5, 1e-3, 0.05, 1.0])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
class TestNearTheMinimalRadius:
    def test_worst_case_is_feasible_and_forces_the_lower_bound(self, K: int, prior: str, excess: float) -> None:
        clf, X, y, U = solved(K, prior, excess)
        TestWorstCase.check(clf, X, y, U, cdist(np.vstack([X, U]), X), 1.0 - np.eye(K))

    def test_the_gap_is_reached(self, K: int, prior: str, excess: float) -> None:
        certificate = solved(K, prior, excess)[0].certificate_
        assert certificate.gap <= 1e-4
        assert certificate.status == "optimal"


class TestWorstCase:
    @pytest.mark.parametrize("metric", ["manhattan", "chebyshev"])
    def test_with_other_costs_weights_and_a_penalty(self, metric: str) -> None:
        X, y, U = sample(seed=7, K=3)
        label_cost = np.array([[0.0, 0.5, 2.0], [1.0, 0.0, 0.3], [0.2, 0.7, 0.0]])
        weights = np.linspace(0.2, 3.0, len(X))
        keywords: dict[str, Any] = {"label_prior": [0.5, 0.2, 0.3], "label_cost": label_cost, "metric": metric}
        radius = sf.minimal_radius(X, y, X_unlabeled=U, sample_weight=weights, **keywords) + 0.1
        clf = sf.RobustLogisticRegression(radius=radius, l2=0.01, **keywords)
        clf.fit(X, y, sample_weight=weights, X_unlabeled=U)
        distances = cdist(np.vstack([X, U]), X, {"manhattan": "cityblock"}.get(metric, metric))
        self.check(clf, X, y, U, distances, label_cost, weights)

    @staticmethod
    def check(
        clf: Any,
        X: np.ndarray,
        y: np.ndarray,
        U: np.ndarray,
        distances: np.ndarray,
        label_cost: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> None:
        weights = np.ones(len(X)) if weights is None else weights
        rows, worst, certificate = np.vstack([X, U]), clf.worst_case_, clf.certificate_
        assert worst.label_proba.min() >= 0
        np.testing.assert_allclose(worst.label_proba.sum(axis=1), 1.0, rtol=1e-12)
        marginal = np.append(weights, np.ones(len(U)))
        np.testing.assert_allclose(worst.row_weights, marginal / marginal.sum(), rtol=1e-12)
        low, high = certificate.label_intervals.T
        assert (worst.label_probabilities >= low - 1e-10).all()
        assert (worst.label_probabilities <= high + 1e-10).all()
        distance = transport_by_pot(worst, distances, y, label_cost, weights)
        assert distance <= clf.radius_ * (1 + 1e-6)
        assert distance <= worst.transport_cost + 1e-9
        assert distance >= certificate.minimal_radius - 1e-9
        loss = adversary_loss(clf, rows)
        assert loss >= certificate.lower - 1e-9
        assert (
            loss <= certificate.risk + 1e-4
        )  # at the minimal radius it may exceed the radius by 1e-6 of it, at a price α


@pytest.mark.parametrize(
    ("radius", "guaranteed"), [("predictive", False), ("auto", False), (0.5, True), ("calibrated", True)]
)
def test_a_rule_of_thumb_is_headed_by_what_it_is(radius: float | str, guaranteed: bool) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)) / 4, np.arange(30) % 2
    U = rng.normal(size=(40, 2)) / 4
    found = sf.RobustLogisticRegression(radius=radius).fit(X, y, X_unlabeled=U).certificate_
    assert found.guaranteed is guaranteed
    head = repr(found).splitlines()[0]
    assert (head == "Certificate") is guaranteed
    if not guaranteed:
        assert head.endswith("no guarantee: the true distribution may lie outside this set)")
        assert "no guarantee" in found._repr_html_()


def test_a_certificate_names_the_ground_cost_of_its_set() -> None:
    X, y, U = sample()
    clf = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U)
    assert (clf.certificate_.metric, clf.certificate_.label_cost) == (clf.metric_, clf.label_cost_)
    assert f"Weighted metric, label cost {clf.label_cost_:.4g}" in repr(clf.certificate_)
    kappa = np.array([[0.0, 1.0], [2.0, 0.0]])
    found = sf.certify(clf, X, y, X_unlabeled=U, radius=2.0, label_cost=kappa, metric="manhattan")
    np.testing.assert_array_equal(found.label_cost, kappa)
    assert found.metric == sf.costs.Manhattan()
    assert "Manhattan metric, a matrix of label costs" in repr(found)
    ball = sf.WassersteinLogisticRegression(label_cost=0.5, metric="chebyshev").fit(X, y).certificate_
    assert (ball.metric, ball.label_cost) == (sf.costs.Chebyshev(), 0.5)


def test_what_auto_stands_for_is_told() -> None:
    X, y, U = sample()
    predictive = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U)
    assert predictive.l2_ == pytest.approx(2.0 / len(X))  # scikit-learn's C = 0.5 on standardised features
    assert not predictive.certificate_.guaranteed
    given = sf.RobustLogisticRegression(5.0).fit(X, y, X_unlabeled=U)
    assert (given.l2_, given.label_cost_, given.metric_) == (0.0, 1.0, sf.costs.Euclidean())
    assert given.certificate_.guaranteed
