"""The minimax classifier: laws, bounds by other code, every kind of rows, and bad input.

tests/reference compares its optimum with that of a convex program.
"""

from __future__ import annotations

import pickle
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from scipy.special import entr
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import surefoot as sf
from generators import just_above, sample, transport_by_pot
from refusals import refuses
from surefoot.backends.blocks import BlockedProblem
from surefoot.backends.sources import ArrayRows
from surefoot.certificates.calibration import largest_label_change
from surefoot.dual.block import DualProblem
from surefoot.dual.models import AnyClassifier, DualPoint
from surefoot.dual.objective import SmoothedDual
from surefoot.dual.row_store import InMemoryRows
from surefoot.dual.shortlist import ShortlistKeeper
from surefoot.problem.losses import CostGame
from surefoot.problem.placement import check_problem
from surefoot.problem.rows import LabeledData
from surefoot.problem.sets import build_decision_set


@parametrize_with_checks([sf.MinimaxClassifier()])  # type: ignore[untyped-decorator]
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def minimax(seed: int = 0, K: int = 2, excess: float = 0.05, **keywords: Any) -> tuple[Any, ...]:
    X, y, U = sample(seed, K=K)
    return sf.MinimaxClassifier(just_above(X, y, U, excess), **keywords).fit(X, y, X_unlabeled=U), X, y, U


class TestBounds:
    @pytest.mark.parametrize("K", [2, 3])
    def test_the_lower_bound_is_the_entropy_of_a_distribution_in_the_set(self, K: int) -> None:
        clf, X, y, U = minimax(K=K)
        worst, certificate = clf.worst_case_, clf.certificate_
        entropy = float(worst.row_weights @ entr(worst.label_proba).sum(axis=1))
        assert entropy == pytest.approx(certificate.lower, abs=1e-12)
        rows = np.vstack([X, U])
        cost = transport_by_pot(worst, cdist(rows, X), y, 1.0 - np.eye(K), np.full(len(X), 1.0 / len(X)))
        assert cost <= clf.radius_ + 1e-9
        shares = worst.row_weights @ worst.label_proba
        assert (shares >= certificate.label_intervals[:, 0] - 1e-9).all()
        assert (shares <= certificate.label_intervals[:, 1] + 1e-9).all()
        assert 0 <= certificate.gap <= clf.tol
        assert certificate.limit == certificate.lower

    @pytest.mark.parametrize("K", [2, 3])
    def test_the_upper_bound_is_the_worst_case_of_its_predictions(self, K: int) -> None:
        clf, X, y, U = minimax(K=K)
        found = sf.certify(clf, X, y, X_unlabeled=U, radius=clf.radius_)
        assert clf.certificate_.lower <= found.risk <= clf.certificate_.risk + 1e-6
        assert found.lower >= clf.certificate_.lower - 1e-9
        np.testing.assert_allclose(clf.predict_proba(np.vstack([X, U])), clf.worst_case_.label_proba, atol=0.02)

    @pytest.mark.parametrize("K", [2, 3])
    @pytest.mark.parametrize("excess", [0.0, 0.01, 0.1, 1.0])
    def test_it_is_never_above_the_linear_classifier(self, K: int, excess: float) -> None:
        clf, X, y, U = minimax(K=K, excess=excess + 1e-4)
        linear = sf.RobustLogisticRegression(clf.radius_).fit(X, y, X_unlabeled=U)
        assert clf.certificate_.risk <= linear.certificate_.risk + clf.tol
        assert clf.certificate_.risk <= np.log(K) + clf.tol

    def test_it_grows_with_the_radius_and_with_the_intervals(self) -> None:
        fits = [minimax(excess=excess)[0].certificate_ for excess in (0.01, 0.05, 0.2, 0.5)]
        assert all(one.lower <= other.risk for one, other in pairwise(fits))
        assert fits[0].risk < fits[2].lower
        free = minimax(excess=0.05, label_prior=None)[0]
        assert free.certificate_.risk >= fits[1].lower

    def test_at_the_minimal_radius(self) -> None:
        X, y, U = sample()
        radius = sf.minimal_radius(X, y, X_unlabeled=U, label_prior="clopper-pearson")
        clf = sf.MinimaxClassifier(radius, tol=1e-3).fit(X, y, X_unlabeled=U)
        assert clf.certificate_.gap <= 1e-3

    def test_fresh_rows_and_evidence(self, tmp_path: Path) -> None:
        clf, X, y, U = minimax()
        fresh = np.random.default_rng(1).normal(size=(300, 2))
        assert clf.certificate_.on_fresh_rows(fresh).risk > clf.certificate_.on_fresh_rows(fresh).mean
        again = clf.certificate_.on_fresh_rows(np.vstack([X, U]), assume_fresh=True)
        assert again.mean == pytest.approx(clf.certificate_.risk, abs=1e-9)
        clf.certificate_.save(tmp_path / "proof.json", X, y, X_unlabeled=U)
        assert sf.verify(tmp_path / "proof.json", X, y, X_unlabeled=U, classifier=clf).ok


def costs_of(K: int, loss: str) -> Any:
    """Zero-one costs, costs of classes in order, and costs without any structure."""
    drawn = np.random.default_rng(K).uniform(-1.0, 3.0, size=(K, K))
    return {"zero_one": 1.0 - np.eye(K), "ordered": np.abs(np.subtract.outer(np.arange(K), np.arange(K))) + 0.0}.get(
        loss, drawn
    )


LOSSES = ["zero_one", "ordered", "any"]


class TestCosts:
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("K", [2, 3])
    def test_the_lower_bound_is_the_bayes_risk_of_a_distribution_in_the_set(self, K: int, loss: str) -> None:
        costs = costs_of(K, loss)
        clf, X, y, U = minimax(K=K, loss=loss if loss == "zero_one" else costs)
        worst, certificate = clf.worst_case_, clf.certificate_
        risk = float(worst.row_weights @ (worst.label_proba @ costs).min(axis=1))
        assert risk == pytest.approx(certificate.lower, abs=1e-12)
        cost = transport_by_pot(worst, cdist(np.vstack([X, U]), X), y, 1.0 - np.eye(K), np.full(len(X), 1.0 / len(X)))
        assert cost <= clf.radius_ + 1e-9
        assert 0 <= certificate.gap <= clf.tol
        assert certificate.limit == certificate.lower

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("K", [2, 3])
    def test_certify_finds_the_same_worst_cases(self, K: int, loss: str) -> None:
        costs = costs_of(K, loss)
        asked = loss if loss == "zero_one" else costs
        clf, X, y, U = minimax(K=K, loss=asked)
        rows = np.vstack([X, U])
        h = clf.predict_proba(rows)
        np.testing.assert_allclose(h.sum(axis=1), 1.0)
        randomized = sf.certify(None, X, y, X_unlabeled=U, radius=clf.radius_, losses=h @ costs.T)
        assert clf.certificate_.lower - 1e-9 <= randomized.risk <= clf.certificate_.risk + 1e-6
        found = sf.certify(clf, X, y, X_unlabeled=U, radius=clf.radius_, loss=asked, limit=True)
        ours = clf.deterministic_certificate_
        assert ours.risk == pytest.approx(found.risk, abs=2e-4)
        assert ours.loss == found.loss
        assert found.limit == pytest.approx(clf.certificate_.limit, abs=1e-4)
        assert ours.risk >= clf.certificate_.lower - 1e-6

    @pytest.mark.parametrize("K", [2, 3])
    @pytest.mark.parametrize("excess", [1e-4, 0.02, 0.3])
    def test_it_is_never_above_another_classifier(self, K: int, excess: float) -> None:
        clf, X, y, U = minimax(K=K, excess=excess, loss="zero_one")
        for other in (sf.RobustLogisticRegression(clf.radius_), sf.MinimaxClassifier(clf.radius_)):
            fitted = other.fit(X, y, X_unlabeled=U)
            rival = sf.certify(fitted, X, y, X_unlabeled=U, radius=clf.radius_, loss="zero_one")
            assert clf.certificate_.risk <= rival.risk + clf.tol
        assert clf.certificate_.risk <= 1 - 1 / K + clf.tol

    def test_it_grows_with_the_radius(self) -> None:
        fits = [minimax(excess=excess, loss="zero_one")[0].certificate_ for excess in (0.01, 0.05, 0.2)]
        assert all(one.lower <= other.risk for one, other in pairwise(fits))
        assert fits[0].risk < fits[2].lower

    @pytest.mark.parametrize("K", [2, 3, 4, 5])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_the_game_of_a_row_is_a_linear_program(self, K: int, loss: str) -> None:
        costs, rng = costs_of(K, loss), np.random.default_rng(0)
        game = CostGame.from_costs(costs)
        prices = np.round(rng.normal(size=(12, K)) * rng.choice([0.2, 1.0, 3.0], size=(12, 1)), 1)  # with ties
        h = game.rule(prices)
        bounds, total = [(0, None)] * K + [(None, None)], np.append(np.ones(K), 0.0)
        for row, rule, value in zip(prices, h, (prices @ game.labels.T + game.values).max(axis=1), strict=True):
            A = np.column_stack([costs, -np.ones(K)])
            found = linprog(np.append(np.zeros(K), 1.0), A, -row, total[None], [1.0], bounds)
            assert value == pytest.approx(found.fun, abs=1e-8)
            assert (costs @ rule + row).max() == pytest.approx(found.fun, abs=1e-8)

    def test_fresh_rows_and_evidence(self, tmp_path: Path) -> None:
        clf, X, y, U = minimax(loss="zero_one")
        for certificate in (clf.certificate_, clf.deterministic_certificate_):
            again = certificate.on_fresh_rows(np.vstack([X, U]), assume_fresh=True)
            assert again.mean == pytest.approx(certificate.risk, abs=1e-9)
            certificate.save(tmp_path / "proof.json", X, y, X_unlabeled=U)
            assert sf.verify(tmp_path / "proof.json", X, y, X_unlabeled=U, classifier=clf).ok

    def test_over_a_union_of_sets(self) -> None:
        X, y, U = sample(n=30)
        clf = sf.MinimaxClassifier(HALVES, metric="euclidean", label_cost=1.0, loss="zero_one")
        clf.fit(X, y, X_unlabeled=U)
        given: dict[str, Any] = {"metric": "euclidean", "label_cost": 1.0}
        found = sf.certify(clf, X, y, X_unlabeled=U, radius=HALVES, loss="zero_one", limit=True, **given)
        assert clf.deterministic_certificate_.risk == pytest.approx(found.risk, abs=2e-4)
        assert clf.certificate_.limit == pytest.approx(found.limit, abs=2e-4)
        assert clf.certificate_.limit <= clf.certificate_.risk <= clf.deterministic_certificate_.risk + 1e-3

    def test_over_blocks_and_with_equal_costs(self) -> None:
        X, y, U = sample(n=20, M=300, K=3)
        radius = just_above(X, y, U)
        held = sf.MinimaxClassifier(radius, loss="zero_one").fit(X, y, X_unlabeled=U)
        how = sf.Compute(block_rows=64)
        blocked = sf.MinimaxClassifier(radius, loss="zero_one", compute=how).fit(X, y, X_unlabeled=U)
        assert blocked.certificate_.risk == pytest.approx(held.certificate_.risk, abs=1e-4)
        assert blocked.deterministic_certificate_.risk == pytest.approx(held.deterministic_certificate_.risk, abs=0.02)
        level = sf.MinimaxClassifier(radius, loss=np.full((3, 3), 2.0)).fit(X, y, X_unlabeled=U)
        assert level.certificate_.risk == pytest.approx(2.0, abs=1e-4)

    def test_many_classes(self) -> None:
        rng = np.random.default_rng(0)
        X, y, U = rng.normal(size=(24, 2)), np.arange(24) % 12, rng.normal(size=(10, 2))
        with refuses("loss", 10, 12):
            sf.MinimaxClassifier(9.0, loss="zero_one").fit(X, y)
        with refuses("loss", 6, 12):
            sf.MinimaxClassifier(9.0, loss=costs_of(12, "ordered")).fit(X, y)
        clf = sf.MinimaxClassifier(9.0).fit(X, y, X_unlabeled=U)
        found = sf.certify(clf, X, y, X_unlabeled=U, radius=9.0, loss="zero_one", limit=True)
        assert 0.5 < found.limit <= found.risk

    @pytest.mark.parametrize("loss", ["hinge", [[0, 1]], [[0, 1], [np.nan, 0]]])
    def test_bad_losses(self, loss: Any) -> None:
        X, y, U = sample()
        with refuses("loss"):
            sf.MinimaxClassifier(9.0, loss=loss).fit(X, y, X_unlabeled=U)


HALVES = sf.CalibratedRadius(random_state=0)


class TestCalibrated:
    @pytest.mark.parametrize("K", [2, 3])
    def test_over_a_union_of_sets_it_is_certified_as_certify_does(self, K: int) -> None:
        X, y, U = sample(n=30, K=K)
        clf = sf.MinimaxClassifier(HALVES, metric="euclidean", label_cost=1.0).fit(X, y, X_unlabeled=U)
        found = sf.certify(clf, X, y, X_unlabeled=U, radius=HALVES)
        assert clf.certificate_.risk == pytest.approx(found.risk, abs=2e-4)
        assert clf.certificate_.limit <= found.risk + 1e-4
        assert clf.certificate_.guaranteed
        assert clf.certificate_.risk <= np.log(K) + 1e-3

    def test_with_known_shares_there_is_one_set(self) -> None:
        X, y, U = sample(n=30)
        clf = sf.MinimaxClassifier("calibrated", label_prior=[0.5, 0.5]).fit(X, y, X_unlabeled=U)
        assert clf.certificate_.gap <= clf.tol
        assert clf.certificate_.limit == clf.certificate_.lower
        assert clf.radius_ == clf.certificate_.estimate.radius

    @pytest.mark.parametrize("K", [2, 3, 4])
    def test_largest_change_of_label_probabilities(self, K: int) -> None:
        rng = np.random.default_rng(K)
        for _ in range(5):
            X, y = rng.normal(size=(20, 2)), np.append(np.arange(K), rng.integers(K, size=20 - K))
            p = rng.dirichlet(np.ones(K))
            prior = np.column_stack([np.maximum(p - 0.2, 0), np.minimum(p + 0.1, 1)])
            ds = build_decision_set(X, y, K, label_prior=prior)
            sets = [np.isin(np.arange(K), some) for size in range(1, K) for some in combinations(range(K), size)]
            bounds = [tuple(one) for one in ds.intervals]
            programs = [linprog(-inside.astype(float), A_eq=np.ones((1, K)), b_eq=1, bounds=bounds) for inside in sets]
            most = max(
                -found.fun - ds.label_frequencies[inside].sum() for found, inside in zip(programs, sets, strict=True)
            )
            assert largest_label_change(ds) == pytest.approx(most, abs=1e-9)


class TestAuto:
    @pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
    def test_it_is_as_robust_as_the_confidence_allows(self, loss: str) -> None:
        X, y, U = sample(n=30, M=100)
        rows = np.vstack([X, U])

        def confidence(clf: Any) -> float:
            return float(np.median(clf.predict_proba(rows).max(axis=1)))

        clf = sf.MinimaxClassifier("auto", loss=loss).fit(X, y, X_unlabeled=U)
        assert confidence(clf) >= 0.7 - 1e-3
        assert not clf.certificate_.guaranteed
        excess = clf.radius_ - clf.certificate_.minimal_radius
        given: dict[str, Any] = {"metric": clf.metric_, "label_cost": clf.label_cost_, "loss": loss}
        wider = sf.MinimaxClassifier(clf.radius_ + 0.1 * excess, **given).fit(X, y, X_unlabeled=U)
        assert confidence(wider) < 0.7 + 1e-3

    def test_over_blocks_and_with_precomputed_distances(self) -> None:
        X, y, U = sample(n=30, M=100)
        given: dict[str, Any] = {"metric": "euclidean", "label_cost": 1.0}
        held = sf.MinimaxClassifier("auto", **given).fit(X, y, X_unlabeled=U)
        blocked = sf.MinimaxClassifier("auto", **given, compute=sf.Compute(block_rows=50)).fit(X, y, X_unlabeled=U)
        D = cdist(np.vstack([X, U]), X)
        by_distance = sf.MinimaxClassifier("auto", metric="precomputed", label_cost=1.0)
        by_distance.fit(D[:30], y, X_unlabeled=D[30:])
        assert blocked.radius_ == pytest.approx(held.radius_, rel=0.02)
        assert by_distance.radius_ == pytest.approx(held.radius_, rel=0.02)


class TestRows:
    def test_new_rows_and_rows_of_the_fit_get_the_same_probabilities(self) -> None:
        clf, X, _, U = minimax(K=3)
        p = clf.predict_proba(np.vstack([X, U]))
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        np.testing.assert_array_equal(clf.predict(U), clf.classes_[p[len(X) :].argmax(axis=1)])
        np.testing.assert_allclose(np.exp(clf.predict_log_proba(U)), p[len(X) :], rtol=1e-12)
        copy = pickle.loads(pickle.dumps(clf))
        np.testing.assert_array_equal(copy.predict_proba(U), clf.predict_proba(U))

    def test_precomputed_distances_are_those_of_a_metric(self) -> None:
        X, y, U = sample()
        rows, radius = np.vstack([X, U]), just_above(X, y, U) + 0.3
        D = cdist(rows, X)
        by_metric = sf.MinimaxClassifier(radius).fit(X, y, X_unlabeled=U)
        by_distance = sf.MinimaxClassifier(radius, metric="precomputed").fit(D[: len(X)], y, X_unlabeled=D[len(X) :])
        np.testing.assert_allclose(by_distance.predict_proba(D), by_metric.predict_proba(rows), atol=1e-6)
        for radius_rule in ("predictive", "calibrated"):
            clf = sf.MinimaxClassifier(radius_rule, metric="precomputed").fit(D[: len(X)], y, X_unlabeled=D[len(X) :])
            assert clf.predict(D).shape == (len(rows),)
        target = sf.MinimaxClassifier(radius, metric="precomputed").fit(D[: len(X)], y, X_target=D[len(X) :])
        expected = sf.MinimaxClassifier(radius).fit(X, y, X_target=U)
        assert target.certificate_.risk == pytest.approx(expected.certificate_.risk, abs=1e-6)

    def test_precomputed_distances_are_cut_by_cross_validation(self) -> None:
        X, y, _ = sample(n=30)
        by_distance = sf.MinimaxClassifier(0.3, metric="precomputed", label_prior=None)
        by_metric = sf.MinimaxClassifier(0.3, label_prior=None)
        np.testing.assert_allclose(cross_val_score(by_distance, cdist(X, X), y), cross_val_score(by_metric, X, y))

    def test_a_weight_of_two_is_two_copies(self) -> None:
        X, y, U = sample()
        weights = 1.0 + np.arange(len(X)) % 2
        twice = np.repeat(np.arange(len(X)), weights.astype(int))
        prior = [0.4, 0.6]
        radius = sf.minimal_radius(X, y, X_unlabeled=U, sample_weight=weights, label_prior=prior) + 0.05
        one = sf.MinimaxClassifier(radius, prior).fit(X, y, weights, X_unlabeled=U)
        other = sf.MinimaxClassifier(radius, prior).fit(X[twice], y[twice], X_unlabeled=U)
        assert one.certificate_.risk == pytest.approx(other.certificate_.risk, abs=1e-6)

    def test_names_of_classes_and_a_class_without_labels(self) -> None:
        X, y, U = sample()
        clf = sf.MinimaxClassifier(3.0, classes=["a", "b", "c"]).fit(X, np.array(["a", "b"])[y], X_unlabeled=U)
        assert clf.predict_proba(U).shape == (len(U), 3)
        assert set(clf.predict(U)) <= {"a", "b", "c"}

    def test_a_matrix_of_label_costs_and_a_pipeline(self) -> None:
        X, y, U = sample(K=3)
        cost = [[0, 1, 2], [1, 0, 1], [3, 1, 0]]
        clf = sf.MinimaxClassifier(3.0, label_cost=cost).fit(X, y, X_unlabeled=U)
        assert clf.certificate_.gap <= clf.tol
        pipeline = make_pipeline(StandardScaler(), clone(clf), transform_input=["X_unlabeled"])
        with sf_routing():
            pipeline[-1].set_fit_request(X_unlabeled=True)
            assert pipeline.fit(X, y, X_unlabeled=sf.Unlabeled(U)).predict(U).shape == (len(U),)

    @pytest.mark.parametrize("device", [pytest.param("torch", marks=pytest.mark.slow), "cuda"])
    @pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
    def test_on_a_device(self, device: str, loss: str) -> None:
        torch = pytest.importorskip("torch")
        if device == "cuda" and not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        X, y, U = sample(n=20, M=100, K=3)
        radius = just_above(X, y, U)
        held = sf.MinimaxClassifier(radius, loss=loss).fit(X, y, X_unlabeled=U)
        there = sf.MinimaxClassifier(radius, loss=loss, compute=sf.Compute(device)).fit(X, y, X_unlabeled=U)
        assert there.certificate_.risk == pytest.approx(held.certificate_.risk, abs=1e-4)
        assert there.certificate_.gap <= 1e-4
        if loss == "log_loss":
            np.testing.assert_allclose(there.predict_proba(U), held.predict_proba(U), atol=0.02)

    def test_over_blocks(self) -> None:
        X, y, U = sample(n=20, M=300, K=3)
        radius = just_above(X, y, U)
        held = sf.MinimaxClassifier(radius).fit(X, y, X_unlabeled=U)
        blocked = sf.MinimaxClassifier(radius, compute=sf.Compute(block_rows=64)).fit(X, y, X_unlabeled=U)
        assert blocked.certificate_.risk == pytest.approx(held.certificate_.risk, abs=1e-4)
        assert blocked.certificate_.gap <= 1e-4


def model_of(K: int, loss: str) -> AnyClassifier:
    return AnyClassifier.with_costs(K, None if loss == "log_loss" else costs_of(K, loss))


def sf_routing() -> Any:
    import sklearn

    return sklearn.config_context(enable_metadata_routing=True)


def problem_at(K: int, n: int, M: int, tau: float, loss: str = "log_loss") -> tuple[SmoothedDual, DualPoint]:
    X, y, U = sample(n=n, M=M, K=K)
    problem = check_problem(X, y, X_unlabeled=U, label_prior="clopper-pearson")
    dual = SmoothedDual(problem.at_excess(0.1)[0].decision_set, model_of(K, loss))
    rng = np.random.default_rng(K)
    lam = np.zeros(K)
    lam[dual.layout.lam_free] = 0.2 * rng.normal(size=len(dual.layout.lam_free))
    return dual, DualPoint(np.zeros((0, 0)), 2.0, lam, 0.2 * rng.normal(size=n))


class TestSums:
    @pytest.mark.parametrize("K", [2, 3])
    @pytest.mark.parametrize("tau", [0.5, 0.05])
    @pytest.mark.parametrize("loss", ["log_loss", *LOSSES])
    def test_derivatives_are_those_of_the_value(self, K: int, tau: float, loss: str) -> None:
        dual, point = problem_at(K, 12, 40, tau, loss)
        at, h = dual.layout.pack(point), 1e-5

        def near(step: Any) -> Any:
            return dual.evaluate(dual.layout.unpack(at + step, point), tau, second_order=False)

        here = dual.evaluate(point, tau, second_order=True)
        steps = [(near(h * unit), near(-h * unit)) for unit in np.eye(len(at))]
        gradient = [(up.value - down.value) / (2 * h) for up, down in steps]
        hessian = np.array([(up.gradient - down.gradient) / (2 * h) for up, down in steps])
        np.testing.assert_allclose(here.gradient, gradient, atol=1e-8)
        np.testing.assert_allclose(np.tril(here.hessian), np.tril(hessian), atol=1e-6)

    @pytest.mark.parametrize("K", [2, 3])
    @pytest.mark.parametrize("loss", ["log_loss", "zero_one", "any"])
    def test_short_lists_give_the_same_sums(self, K: int, loss: str) -> None:
        dual, point = problem_at(K, 60, 1500, 0.01, loss)
        point = DualPoint(point.theta, 200.0, point.lam, point.beta)
        rows = InMemoryRows.from_decision_set(dual.set, dual.model)
        problem = DualProblem.from_decision_set(dual.set, dual.model)
        weighted, lists = rows._weighted(problem), ShortlistKeeper()
        for second in (True, False):
            whole = weighted.sums(point, 0.01, second_order=second)
            listed = weighted.kept_sums(lists, point, 0.01, second_order=second)
            assert lists.last is not None
            for name, mine in vars(whole).items():
                lower = np.tril if name == "beta_beta" else np.asarray
                np.testing.assert_allclose(lower(getattr(listed, name)), lower(mine), atol=1e-11, err_msg=name)

    @pytest.mark.parametrize("tau", [0.3, 0.01])
    @pytest.mark.parametrize("loss", ["log_loss", "zero_one", "any"])
    def test_torch_gives_the_same_sums(self, tau: float, loss: str) -> None:
        pytest.importorskip("torch")
        X, y, U = sample(n=20, M=300, K=3)
        data = LabeledData.check(X, y, sample_weight=None, classes=None, metric="euclidean")
        ds = data.decision_set("clopper-pearson", 1.0, 1.0)
        model = model_of(3, loss)
        problem = DualProblem.from_decision_set(ds, model)
        point = DualPoint(np.zeros((0, 0)), 3.0, np.array([0.0, 0.1, -0.2]), 0.1 * np.arange(20.0))
        ours, theirs = (
            BlockedProblem.from_labeled_set(data, ds, ArrayRows(U), how).sweeps[-1]
            for how in (sf.Compute(), sf.Compute("torch"))
        )
        for second in (True, False):
            mine = ours.row_sums(problem, point, tau, second_order=second, exact=True)
            there = theirs.row_sums(problem, point, tau, second_order=second, exact=True)
            if not second:  # second moments are not computed
                assert there.beta == pytest.approx(mine.beta)
                assert there.small[[0, 1, 3]] == pytest.approx(mine.small[[0, 1, 3]])
                continue
            for name, part in vars(mine).items():
                lower = np.tril if name == "beta_beta" else np.asarray
                found = np.asarray(getattr(there, name))
                np.testing.assert_allclose(lower(found), lower(part), atol=1e-10, err_msg=name)
        assert theirs.upper_bound(problem, point) == pytest.approx(ours.upper_bound(problem, point))


class TestBadInput:
    X = cdist(np.arange(6.0)[:, None], np.arange(6.0)[:, None])
    y = np.arange(6) % 2

    def fit(self, X: Any, **given: Any) -> Any:
        return sf.MinimaxClassifier(9.0, metric="precomputed", label_prior=None).fit(X, self.y, **given)

    @pytest.mark.parametrize("radius", ["largest", -1.0, np.nan])
    def test_radius(self, radius: Any) -> None:
        with refuses("radius"):
            sf.MinimaxClassifier(radius).fit(self.X, self.y)

    def test_distances_that_are_not_square(self) -> None:
        with refuses("X"):
            self.fit(self.X[:, :4])

    def test_distances_that_are_not_symmetric(self) -> None:
        with refuses("X"):
            self.fit(self.X + np.triu(self.X))

    def test_similarities(self) -> None:
        with refuses("X"):
            self.fit(1.0 / (1.0 + self.X))

    def test_negative_distances(self) -> None:
        with refuses("X"):
            self.fit(-self.X)
        with refuses("X_unlabeled"):
            self.fit(self.X, X_unlabeled=-self.X[:3])
        with refuses("X_target"):
            self.fit(self.X, X_target=-self.X[:3])

    def test_distances_of_unlabeled_rows_to_other_rows(self) -> None:
        with refuses("X_unlabeled"):
            self.fit(self.X, X_unlabeled=np.ones((3, 5)))

    def test_missing_distances(self) -> None:
        with pytest.raises(ValueError, match="NaN"):
            self.fit(np.where(self.X > 4, np.nan, self.X))

    def test_distances_in_blocks(self) -> None:
        with refuses("metric"):
            sf.MinimaxClassifier(9.0, metric="precomputed", compute=sf.Compute()).fit(self.X, self.y)

    def test_new_rows_of_other_shape(self) -> None:
        clf = self.fit(self.X)
        with pytest.raises(ValueError, match="features"):
            clf.predict(self.X[:, :3])
