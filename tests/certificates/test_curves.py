"""Curves over the radius: each point against a fit, or a certificate, made at that radius alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.neighbors import KNeighborsClassifier

import surefoot as sf
from generators import just_above, sample
from refusals import Refused, refuses
from surefoot.problem import robust as problem_module

TEST = sample(seed=91, n=3, M=200)[2]
ROOT = np.array([[2.0, 0.0], [0.7, 0.5]])
MAHALANOBIS = sf.costs.Mahalanobis(ROOT @ ROOT.T)


# a checkpoint where the radius does not bind has α = 0, outside of the barrier's domain
def labels_of(rows: np.ndarray, K: int) -> np.ndarray:
    return np.digitize(rows[:, 0] + 0.3 * np.sin(9 * rows[:, 1]), [0.2, 0.9][: K - 1])


@cache
def path_and_fits(K: int, l2: float, tol: float) -> tuple[Any, ...]:
    X, y, U = sample(seed=1, K=K)
    base = sf.RobustLogisticRegression(l2=l2, tol=tol)
    radii = just_above(X, y, U, 0.0) + np.array([1e-3, 0.01, 0.05, 0.2, 1.0])
    y_test = labels_of(TEST, K)
    path = sf.radius_curve(base, X, y, X_unlabeled=U, radii=radii, X_test=TEST, y_test=y_test)
    fits = [clone(base).set_params(radius=radius).fit(X, y, X_unlabeled=U) for radius in radii]
    assert not hasattr(base, "coef_")
    return path, fits, np.vstack([X, U]), y_test


@pytest.mark.parametrize("tol", [1e-6, 1e-3])
@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize("K", [2, 3])
class TestRadiusPath:
    def test_bounds_are_those_of_single_fits(self, K: int, l2: float, tol: float) -> None:
        path, fits, _, _ = path_and_fits(K, l2, tol)
        np.testing.assert_array_equal(path.radii, [clf.radius_ for clf in fits])
        assert path.minimal_radius == fits[0].certificate_.minimal_radius
        assert path.status == ["optimal"] * 5
        penalties = [0.5 * l2 * np.sum(c**2) for c in path.coef]
        for i, clf in enumerate(fits):
            # both bound the same penalised optimum
            penalty = 0.5 * l2 * np.sum(clf.coef_**2)
            assert clf.certificate_.lower + penalty <= path.risk[i] + penalties[i] + 1e-12
            assert path.lower[i] + penalties[i] <= clf.certificate_.risk + penalty + 1e-12
        assert (path.risk - path.lower <= tol).all()
        assert (path.risk >= path.lower).all()
        np.testing.assert_allclose(path.risk, [clf.certificate_.risk for clf in fits], atol=max(20 * l2, 1) * tol)
        np.testing.assert_allclose(path.likelihood, np.exp(-path.risk), rtol=1e-15)

    def test_risk_never_falls_along_the_path(self, K: int, l2: float, tol: float) -> None:
        path = path_and_fits(K, l2, tol)[0]
        penalised = path.risk + [0.5 * l2 * np.sum(c**2) for c in path.coef]
        assert (np.diff(penalised) >= 0).all()
        assert penalised[-1] > penalised[0] + 0.01
        if l2 == 0:
            assert (np.diff(path.risk) >= 0).all()

    def test_each_bound_is_that_of_its_own_coefficients(self, K: int, l2: float, tol: float) -> None:
        path, fits, rows, _ = path_and_fits(K, l2, tol)
        X, y, U = sample(seed=1, K=K)
        assert path.coef.shape == (5, 1 if K == 2 else K, 2)
        assert path.intercept.shape == (5, 1 if K == 2 else K)
        model = clone(fits[0]).fit(X, y, X_unlabeled=U)
        for i in (0, 2, 3):
            model.coef_, model.intercept_ = path.coef[i], path.intercept[i]
            judged = sf.certify(model, X, y, X_unlabeled=U, radius=path.radii[i])
            assert judged.lower <= path.risk[i] + 1e-9
            assert judged.risk >= path.risk[i] - 2 * tol
            confidence = model.predict_proba(rows).max(axis=1)
            assert path.max_confidence[i] == pytest.approx(confidence.max(), abs=1e-12)
            assert path.median_confidence[i] == pytest.approx(np.median(confidence), abs=1e-12)  # 53 rows

    def test_models_are_those_of_single_fits(self, K: int, l2: float, tol: float) -> None:
        path, fits, rows, y_test = path_and_fits(K, l2, tol)
        allowed = 1e-3 if tol < 1e-4 else 0.1
        for i, clf in enumerate(fits):
            confidence = clf.predict_proba(rows).max(axis=1)
            assert path.max_confidence[i] == pytest.approx(confidence.max(), abs=allowed)
            assert path.median_confidence[i] == pytest.approx(np.median(confidence), abs=allowed)
            top = np.sort(clf.predict_proba(TEST), axis=1)
            undecided = np.mean(top[:, -1] - top[:, -2] < 2 * allowed)  # rows whose class hangs on less than is allowed
            score = accuracy_score(y_test, clf.predict(TEST))
            assert path.test_score[i] == pytest.approx(score, abs=allowed + 0.01 + undecided)
            expected = np.exp(-log_loss(y_test, clf.predict_proba(TEST), labels=clf.classes_))
            assert path.test_likelihood[i] == pytest.approx(expected, abs=allowed)
        assert np.ptp(path.test_likelihood) > 0.01


class TestGrid:
    def test_default(self) -> None:
        X, y, U = sample(seed=1)
        path = sf.radius_curve(sf.RobustLogisticRegression(label_cost=2.0), X, y, X_unlabeled=U, n_radii=4)
        minimal = just_above(X, y, U, 0.0, label_cost=2.0)
        np.testing.assert_allclose(path.radii, minimal + 2.0 * np.array([1e-3, 1e-2, 1e-1, 1.0]), rtol=1e-9)
        assert len(path) == 4
        assert path.test_score is None
        # at an excess of κ the adversary may choose all labels: nothing is learned
        assert path.risk[-1] == pytest.approx(np.log(2), abs=1e-3)
        assert len(sf.radius_curve(sf.RobustLogisticRegression(tol=1e-2), X, y, X_unlabeled=U)) == 16

    def test_where_line_and_chord_meet_nothing_is_solved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y, U = sample(seed=1)
        solved: list[float] = []
        original = problem_module.solve

        def counted(sweep: Any, model: Any, members: Any, **keywords: Any) -> Any:
            solved.append(members[0].decision_set.radius)
            return original(sweep, model, members, **keywords)

        monkeypatch.setattr(problem_module, "solve", counted)
        radii = just_above(X, y, U, 0.0) + np.geomspace(1e-3, 1.0, 33)
        path = sf.radius_curve(sf.RobustLogisticRegression(tol=2e-3), X, y, X_unlabeled=U, radii=radii)
        assert len(solved) == len(set(solved))
        assert len(solved) < 20
        assert (path.risk - path.lower <= 2e-3).all()

    def test_a_single_radius_and_the_minimal_one(self) -> None:
        X, y, U = sample(seed=1)
        base, minimal = sf.RobustLogisticRegression(), just_above(X, y, U, 0.0)
        for radii in ([minimal], minimal, [minimal, minimal + 0.1]):
            path = sf.radius_curve(base, X, y, X_unlabeled=U, radii=radii)
            fit = clone(base).set_params(radius=minimal).fit(X, y, X_unlabeled=U)
            assert path.risk[0] == pytest.approx(fit.certificate_.risk, abs=2e-4)

    def test_frames_weights_and_a_table(self) -> None:
        X, y, U = sample(seed=2)
        weights = np.array([0, 1, 2, 1, 3, 1, 1, 2, 1, 1, 0, 1])
        X[0] = 50.0  # a row of no weight: its confidence is nobody's
        frames = [pd.DataFrame(rows, columns=["a", "b"]) for rows in (X, U, TEST)]
        radius = just_above(X, y, U, 0.1, sample_weight=weights)
        base = sf.RobustLogisticRegression(tol=1e-6)
        path = sf.radius_curve(
            base, frames[0], y, X_unlabeled=sf.Unlabeled(frames[1]), radii=[radius, radius + 0.2],
            sample_weight=weights, X_test=frames[2], y_test=labels_of(TEST, 2),
        )  # fmt: skip
        fit = clone(base).set_params(radius=radius).fit(X, y, sample_weight=weights, X_unlabeled=U)
        assert path.risk[0] == pytest.approx(fit.certificate_.risk, abs=2e-6)
        kept = np.vstack([X[weights > 0], U])
        assert path.max_confidence[0] == pytest.approx(fit.predict_proba(kept).max(), abs=1e-3)
        repeated = np.vstack([np.repeat(X, weights, axis=0), U])
        confidence = np.sort(fit.predict_proba(repeated).max(axis=1))
        assert path.median_confidence[0] == pytest.approx(confidence[(len(confidence) - 1) // 2], abs=1e-3)
        table = path.to_frame()
        assert table.columns.tolist() == [
            "radius", "risk", "lower", "likelihood", "median_confidence", "max_confidence", "status", "test_score",
            "test_likelihood",
        ]  # fmt: skip
        np.testing.assert_array_equal(table["risk"], path.risk)
        assert "test_score" not in sf.radius_curve(base, X, y, radii=[1.0], sample_weight=weights).to_frame()


class TestBallPath:
    def test_each_point_is_a_single_fit(self) -> None:
        X, y, _ = sample(seed=1, n=40)
        base = sf.WassersteinLogisticRegression(label_cost=2.0)
        radii, y_test = [0.0, 0.02, 0.1, 0.5], labels_of(TEST, 2)
        path = sf.radius_curve(base, X, y, radii=radii, X_test=TEST, y_test=y_test)
        fits = [clone(base).set_params(radius=radius).fit(X, y) for radius in radii]
        np.testing.assert_array_equal(path.risk, [clf.certificate_.risk for clf in fits])
        np.testing.assert_array_equal(path.coef, [clf.coef_ for clf in fits])
        assert path.test_score.tolist() == [clf.score(TEST, y_test) for clf in fits]
        assert path.minimal_radius == 0.0
        assert (np.diff(path.risk) > 0).all()
        assert not hasattr(base, "coef_")
        default = sf.radius_curve(base, X, y, n_radii=3)
        np.testing.assert_allclose(default.radii, 2.0 * np.array([1e-3, 10**-1.5, 1.0]))

    def test_without_label_flips_there_is_a_default_grid_too(self) -> None:
        X, y, _ = sample(seed=1, n=40)
        path = sf.radius_curve(sf.WassersteinLogisticRegression(label_cost=np.inf), X, y, n_radii=3)
        assert np.isfinite(path.radii).all()

    def test_takes_no_unlabeled_rows(self) -> None:
        X, y, U = sample()
        with refuses("X_unlabeled"):
            sf.radius_curve(sf.WassersteinLogisticRegression(), X, y, X_unlabeled=U)


class TestWorstCaseCurve:
    @pytest.mark.parametrize(
        ("K", "loss"),
        [(2, "log_loss"), (2, "zero_one"), (3, "log_loss"), (3, "zero_one")],
    )
    def test_each_point_is_a_certificate(self, K: int, loss: str) -> None:
        X, y, U = sample(seed=2, K=K)
        clf = RandomForestClassifier(10, random_state=0).fit(X, y)
        minimal = just_above(X, y, U, 0.0)
        radii = minimal + np.linspace(0.01, 0.6, 13)
        curve = sf.radius_curve(clf, X, y, X_unlabeled=U, radii=radii, loss=loss)
        assert (curve.loss, curve.ball, curve.minimal_radius) == (loss, False, pytest.approx(minimal, rel=1e-12))
        for i in range(0, 13, 3):
            single = sf.certify(clf, X, y, X_unlabeled=U, radius=radii[i], loss=loss)
            assert curve.risk[i] == pytest.approx(single.risk, abs=2e-6)
            assert curve.lower[i] == pytest.approx(single.lower, abs=2e-6)
        assert (curve.risk - curve.lower <= 1e-6).all()
        steps = np.diff(curve.risk)
        assert (steps >= 0).all()
        assert steps[0] > 1e-3
        assert (np.diff(steps) <= 1e-12).all()  # concave
        np.testing.assert_allclose(curve.likelihood, np.exp(-curve.risk), rtol=1e-15)

    def test_radii_beyond_the_largest_that_binds(self) -> None:
        X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.9], [0.5], [0.4]]
        losses = np.random.default_rng(0).normal(size=(6, 2))
        radii = [2.0, 5.0]
        keywords: dict[str, Any] = {"X_unlabeled": U, "losses": losses, "label_prior": [0.5, 0.5], "classes": [0, 1]}
        curve = sf.radius_curve(None, X, y, radii=radii, **keywords)
        singles = [sf.certify(None, X, y, radius=radius, **keywords).risk for radius in radii]
        np.testing.assert_allclose(curve.risk, singles, atol=2e-6)
        # half of the mass on each label, wherever that hurts most
        gain = np.sort(losses[:, 1] - losses[:, 0])[3:].sum() / 6
        assert curve.risk[-1] == pytest.approx(losses[:, 0].mean() + gain, abs=1e-6)

    @settings(max_examples=10, deadline=None, derandomize=True)
    @given(st.integers(0, 1000), st.sampled_from([2, 3]), st.floats(0.02, 1.0))
    def test_own_losses_weights_and_priors(self, seed: int, K: int, span: float) -> None:
        X, y, U = sample(seed, n=9, M=20, K=K)
        rng = np.random.default_rng(seed)
        keywords: dict[str, Any] = {
            "X_unlabeled": U, "label_prior": np.full(K, 1 / K), "label_cost": 0.6, "metric": "manhattan",
            "sample_weight": rng.uniform(0.5, 2.0, size=9), "classes": range(K),
        }  # fmt: skip
        losses = rng.normal(size=(29, K))
        radii = sf.minimal_radius(X, y, **keywords) + span * np.array([0.1, 0.4, 0.7, 1.0])
        curve = sf.radius_curve(None, X, y, radii=radii, losses=losses, **keywords)
        singles = [sf.certify(None, X, y, radius=radius, losses=losses, **keywords).risk for radius in radii]
        np.testing.assert_allclose(curve.risk, singles, atol=2e-6)
        assert (np.diff(curve.risk) >= 0).all()

    def test_a_radius_below_the_minimal_one(self) -> None:
        X, y, U = sample(seed=2)
        minimal = just_above(X, y, U, 0.0)
        clf, base = KNeighborsClassifier(3).fit(X, y), sf.RobustLogisticRegression()
        for call in (
            lambda: sf.radius_curve(clf, X, y, X_unlabeled=U, radii=[0.9 * minimal, 2.0]),
            lambda: sf.radius_curve(base, X, y, X_unlabeled=U, radii=[0.9 * minimal, 2.0]),
        ):
            with pytest.raises(sf.InfeasibleRadiusError) as caught:
                call()
            assert caught.value.radius == 0.9 * minimal


def ball_by_line_search(scores: np.ndarray, y: np.ndarray, norm: float, radius: float, kappa: float) -> float:
    """min over λ ≥ ‖θ‖_* of ελ + mean[log(1 + e^−z) + (z − λκ)_+], z = ±score."""
    z = np.where(y == 1, scores, -scores)

    def value(lam: float) -> float:
        return float(radius * lam + np.mean(np.logaddexp(0, -z) + np.maximum(z - lam * kappa, 0)))

    found = minimize_scalar(value, bounds=(norm, norm + np.abs(z).max() / kappa + 1), method="bounded",
                            options={"xatol": 1e-10})  # fmt: skip
    return min(found.fun, value(norm))


class TestBallCurve:
    RADII = np.array([0.0, 0.01, 0.1, 0.3, 1.0, 5.0])

    @pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev", MAHALANOBIS], ids=str)
    def test_of_our_own_model(self, metric: Any) -> None:
        X, y, _ = sample(seed=3, n=40)
        weights = np.linspace(0.5, 2.0, 40)
        clf = sf.WassersteinLogisticRegression(0.1, label_cost=0.7, metric=metric).fit(X, y, sample_weight=weights)
        curve = sf.radius_curve(
            clf, X, y, radii=self.RADII, ball=True, label_cost=0.7, metric=metric, sample_weight=weights, refit=False
        )  # fmt: skip
        np.testing.assert_allclose(curve.risk, clf.worst_case_risk(self.RADII), atol=1e-9)
        np.testing.assert_array_equal(curve.risk, curve.lower)
        assert (curve.ball, curve.minimal_radius, curve.loss) == (True, 0.0, "log_loss")
        assert curve.risk[2] >= clf.certificate_.lower - 1e-9
        assert sf.radius_curve(
            clf, X, y, radii=[0.1], ball=True, label_cost=0.7, metric=metric, sample_weight=weights, refit=False
        ).risk == pytest.approx(clf.certificate_.risk, abs=1e-8)  # fmt: skip

    @pytest.mark.parametrize(
        ("metric", "dual_norm"),
        [
            ("euclidean", np.linalg.norm),
            ("manhattan", lambda theta: np.abs(theta).max()),
            ("chebyshev", lambda theta: np.abs(theta).sum()),
            (MAHALANOBIS, lambda theta: np.linalg.norm(np.linalg.solve(ROOT, theta))),
        ],
        ids=["euclidean", "manhattan", "chebyshev", "mahalanobis"],
    )
    @pytest.mark.parametrize("kappa", [0.3, 2.0])
    def test_of_a_plain_logistic_regression(self, kappa: float, metric: Any, dual_norm: Any) -> None:
        X, y, _ = sample(seed=4, n=40)
        names = np.array(["no", "yes"])[y]
        clf = LogisticRegression(C=10.0).fit(X, names)
        curve = sf.radius_curve(clf, X, names, radii=self.RADII, ball=True, label_cost=kappa, metric=metric)
        scores, norm = clf.decision_function(X), float(dual_norm(clf.coef_[0]))
        expected = [ball_by_line_search(scores, y, norm, radius, kappa) for radius in self.RADII]
        np.testing.assert_allclose(curve.risk, expected, atol=1e-7)
        assert curve.risk[0] == pytest.approx(log_loss(names, clf.predict_proba(X)), abs=1e-9)
        assert (np.diff(curve.risk) >= 0).all()

    def test_mahalanobis_is_euclidean_after_the_map(self) -> None:
        X, y, _ = sample(seed=5, n=40)
        clf = LogisticRegression().fit(X, y)
        mapped = clone(clf).fit(X @ ROOT, y)
        mapped.coef_, mapped.intercept_ = np.linalg.solve(ROOT, clf.coef_.T).T, clf.intercept_
        np.testing.assert_allclose(mapped.decision_function(X @ ROOT), clf.decision_function(X), atol=1e-12)
        ours = sf.radius_curve(clf, X, y, radii=self.RADII, ball=True, metric=MAHALANOBIS).risk
        euclidean = sf.radius_curve(mapped, X @ ROOT, y, radii=self.RADII, ball=True).risk
        np.testing.assert_allclose(ours, euclidean, atol=1e-12)
        assert abs(ours - sf.radius_curve(clf, X, y, radii=self.RADII, ball=True).risk).max() > 1e-3

    def test_the_full_set_is_inside_the_ball(self) -> None:
        X, y, U = sample(seed=5)
        clf, radii = LogisticRegression().fit(X, y), just_above(X, y, U, 0.0) + np.array([0.05, 0.5])
        full, ball = (
            sf.radius_curve(clf, X, y, X_unlabeled=U, radii=radii, label_prior=None, ball=b) for b in (False, True)
        )
        assert (full.lower <= ball.risk).all()
        assert (full.risk < ball.risk - 1e-2).all()

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            ({"loss": "zero_one"}, ("loss", "'log_loss'")),
            ({"losses": np.zeros((40, 2))}, ("loss", "'log_loss'")),
            (
                {"classifier": KNeighborsClassifier(1)},
                ("classifier", "KNeighborsClassifier"),
            ),
            ({"label_cost": 1 - np.eye(2)}, ("label_cost", 0)),
            ({"metric": lambda a, b: 1.0}, "metric"),
            ({"sample_weight": -np.ones(40)}, ("sample_weight", -1.0)),
        ],
    )
    def test_refused(self, given: dict[str, Any], match: Refused) -> None:
        X, y, _ = sample(seed=5, n=40)
        keywords = {"classifier": LogisticRegression()} | given
        keywords["classifier"] = keywords["classifier"].fit(X, y)
        with refuses(match):
            sf.radius_curve(X=X, y=y, radii=[0.1], ball=True, **keywords)


@pytest.mark.parametrize(
    ("radii", "match"),
    [
        ([2.0, 1.5], ("radii", "[2.  1.5]")),
        ([2.0, 2.0], ("radii", "[2. 2.]")),
        ([-1.0, 2.0], ("radii", "[-1.  2.]")),
        ([], ("radii", "[]")),
        ([[1.0, 2.0]], ("radii", "[[1. 2.]")),
        ([1.0, np.nan], ("radii", 1)),
        ([1.0, np.inf], ("radii", 1)),
        ("auto", ("radii", "'auto'")),
    ],
)
def test_bad_radii(radii: Any, match: Refused) -> None:
    X, y, U = sample()
    clf = LogisticRegression().fit(X, y)
    for call in (
        lambda: sf.radius_curve(sf.RobustLogisticRegression(), X, y, X_unlabeled=U, radii=radii),
        lambda: sf.radius_curve(sf.WassersteinLogisticRegression(), X, y, radii=radii),
        lambda: sf.radius_curve(clf, X, y, X_unlabeled=U, radii=radii),
        lambda: sf.radius_curve(clf, X, y, radii=radii, ball=True),
    ):
        with refuses(match):
            call()


def test_bad_paths() -> None:
    X, y, U = sample()
    base = sf.RobustLogisticRegression()
    with refuses("n_radii", 1, 0):
        sf.radius_curve(base, X, y, X_unlabeled=U, n_radii=0)
    with refuses("X_test", "y_test"):
        sf.radius_curve(base, X, y, X_unlabeled=U, radii=[2.0], X_test=U)
    with refuses("tol", 0, -1.0):
        sf.radius_curve(clone(base).set_params(tol=-1.0), X, y, X_unlabeled=U, radii=[2.0])


@pytest.mark.parametrize(("given", "match"), [({"tol": -1.0}, ("tol", 0, -1.0)), ({"tol": "a"}, ("tol", "'a'"))])
def test_bad_curves(given: dict[str, Any], match: Refused) -> None:
    X, y, U = sample()
    with refuses(match):
        sf.radius_curve(LogisticRegression().fit(X, y), X, y, X_unlabeled=U, radii=[2.0], **given)


def test_estimators_of_another_kind_are_refused() -> None:
    X, y, _ = sample()
    with pytest.raises(ValueError, match="RobustLogisticRegression"):
        sf.radius_curve(LogisticRegression(), X, y, radii=[2.0], refit=True)


def test_settings_of_a_learned_curve_are_those_of_the_estimator() -> None:
    X, y, U = sample()
    clf = sf.RobustLogisticRegression()
    for options in ({"tol": 1e-3}, {"ball": True}):
        with pytest.raises(ValueError, match="refit=False"):
            sf.radius_curve(clf, X, y, X_unlabeled=U, radii=[2.0], **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="X_test"):
        sf.radius_curve(clf, X, y, X_unlabeled=U, radii=[2.0], refit=False, X_test=U, y_test=y)


def test_a_curve_of_a_fixed_classifier_has_the_default_radii_and_a_plot() -> None:
    X, y, U = sample()
    clf = KNeighborsClassifier(3).fit(X, y)
    curve = sf.radius_curve(clf, X, y, X_unlabeled=U, n_radii=4)
    excess = np.array(curve.radii) - sf.minimal_radius(X, y, X_unlabeled=U)
    np.testing.assert_allclose(excess, np.geomspace(1e-3, 1.0, 4), rtol=1e-6)
    assert set(curve.plot().lines_) == {"certified likelihood"}
    assert list(curve.to_frame()) == ["radius", "risk", "lower", "likelihood"]
    ball = sf.radius_curve(LogisticRegression().fit(X, y), X, y, ball=True, n_radii=3, label_cost=np.inf)
    assert ball.radii[-1] == pytest.approx(np.linalg.norm(np.std(X, axis=0)))


def test_stopping_early_warns() -> None:
    X, y, U = sample()
    with pytest.warns(UserWarning, match="gap"):
        sf.radius_curve(sf.RobustLogisticRegression(max_iter=2), X, y, X_unlabeled=U, radii=[1.0, 2.0])


class TestShown:
    def test_a_path_shows_itself(self) -> None:
        X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.5], [0.9]]
        path = sf.radius_curve(sf.RobustLogisticRegression(), X, y, X_unlabeled=U, n_radii=16)
        lines = repr(path).splitlines()
        assert lines[0] == "RadiusCurve, 16 radii"
        assert lines[1].split() == [
            "radius",
            "risk",
            "lower",
            "likelihood",
            "median",
            "confidence",
            "max",
            "confidence",
            "status",
        ]
        assert len(lines) == 2 + 12 + 1
        assert f"{path.radii[-1]:.4g}" in lines[-1]
        assert path._repr_html_().count("<tr>") == 1 + 12 + 1
        assert path.plot().ax_.lines

    def test_a_curve_shows_itself(self) -> None:
        X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.5], [0.9]]
        clf = sf.RobustLogisticRegression(radius=0.5).fit(X, y, X_unlabeled=U)
        curve = sf.radius_curve(clf, X, y, X_unlabeled=U, radii=[0.4, 0.5], loss="zero_one", refit=False)
        assert "likelihood" not in repr(curve)
        assert curve._repr_html_().count("<tr>") == 3
