"""`certify`: laws, classifiers of every make, and what it refuses. Agreement with HiGHS is in tests/reference."""

from __future__ import annotations

import pickle
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import surefoot as sf
from generators import fitted, just_above, sample
from refusals import Refused, refuses, warns

TOL = 1e-6
few = settings(max_examples=15, deadline=None, derandomize=True)


class Drawn(ClassifierMixin, BaseEstimator):
    """A classifier drawn at random, as smooth or as steep as `scale` makes it."""

    def __init__(self, seed: int, classes: Any, scale: float = 2.0) -> None:
        self.seed, self.classes, self.scale = seed, classes, scale
        self.classes_ = np.asarray(classes)

    def predict_proba(self, X: Any) -> np.ndarray:
        rows, rng = np.asarray(X, dtype=float), np.random.default_rng(self.seed)
        K = len(self.classes_)
        return softmax(self.scale * (rows @ rng.normal(size=(rows.shape[1], K)) + rng.normal(size=K)), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Keywords of certify but for the radius; the true labels of all rows under `truth`."""
    K, d = draw(st.sampled_from([2, 3])), draw(st.integers(1, 3))
    n, M, seed = draw(st.integers(K, 9)), draw(st.integers(1, 25)), draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    truth = np.append(np.arange(n) % K, rng.integers(K, size=M))
    rows = 0.6 * rng.normal(size=(n + M, d)) + np.eye(K, d)[truth]
    p = np.bincount(truth, minlength=K) / len(truth)
    prior = draw(st.sampled_from([p, np.column_stack([0.7 * p, np.minimum(1.3 * p, 1.0)]), None]))
    return {
        "classifier": Drawn(seed, np.arange(K)), "rows": rows, "truth": truth, "n": n,
        "keywords": {"label_prior": prior, "label_cost": draw(st.sampled_from([0.3, 1.0]))},
        "loss": draw(st.sampled_from(["log_loss", "zero_one"])),
    }  # fmt: skip


def minimal(problem: dict[str, Any]) -> float:
    rows, n = problem["rows"], problem["n"]
    return sf.minimal_radius(rows[:n], problem["truth"][:n], X_unlabeled=rows[n:], **problem["keywords"])


def certified(problem: dict[str, Any], radius: float, **other: Any) -> sf.Certificate:
    rows, n = problem["rows"], problem["n"]
    keywords = problem["keywords"] | {"loss": problem["loss"], "radius": radius} | other
    return sf.certify(problem["classifier"], rows[:n], problem["truth"][:n], X_unlabeled=rows[n:], **keywords)


def true_risk(classifier: Any, rows: np.ndarray, truth: np.ndarray, loss: str) -> float:
    if loss == "zero_one":
        return float(np.mean(classifier.predict(rows) != truth))
    column = np.searchsorted(classifier.classes_, truth)
    return float(-np.log(np.maximum(classifier.predict_proba(rows)[np.arange(len(rows)), column], 1e-12)).mean())


class TestLaws:
    @few
    @given(problems(), st.floats(0.01, 0.3), st.floats(0.05, 0.5))
    def test_risk_grows_with_the_radius_and_is_concave_in_it(
        self, problem: dict[str, Any], excess: float, step: float
    ) -> None:
        at = minimal(problem) + excess
        near, middle, far = (certified(problem, at + move) for move in (0.0, 0.5 * step, step))
        assert near.lower <= middle.risk
        assert middle.lower <= far.risk
        assert middle.risk >= 0.5 * (near.lower + far.lower) - 1e-12
        assert max(near.gap, middle.gap, far.gap) <= TOL

    @few
    @given(problems(), st.floats(1.0, 1.5))
    def test_true_risk_is_within_the_certificate_at_the_distance_to_the_truth(
        self, problem: dict[str, Any], margin: float
    ) -> None:
        rows, truth, n = problem["rows"], problem["truth"], problem["n"]
        distance = sf.transport_distance(
            rows[:n], truth[:n], rows, truth, label_cost=problem["keywords"]["label_cost"]
        )  # fmt: skip
        certificate = certified(problem, margin * distance)
        assert true_risk(problem["classifier"], rows, truth, problem["loss"]) <= certificate.risk + 1e-9
        # the truth is not all that the set holds: a radius below the minimal one would be refused
        assert certificate.minimal_radius <= distance * (1 + 1e-9)

    @few
    @given(problems(), st.floats(0.01, 0.5), st.integers(0, 1000))
    def test_risk_is_unchanged_by_permuting_rows(self, problem: dict[str, Any], excess: float, seed: int) -> None:
        rng, n, N = np.random.default_rng(seed), problem["n"], len(problem["rows"])
        order = np.concatenate([rng.permutation(n), n + rng.permutation(N - n)])
        moved = problem | {"rows": problem["rows"][order], "truth": problem["truth"][order]}
        radius = minimal(problem) + excess
        here, there = certified(problem, radius), certified(moved, radius)
        assert there.risk == pytest.approx(here.risk, abs=2 * TOL)
        assert there.lower == pytest.approx(here.lower, abs=2 * TOL)

    @few
    @given(problems(), st.floats(0.01, 0.3), st.floats(0.0, 0.9))
    def test_a_wider_prior_only_raises_the_risk(self, problem: dict[str, Any], excess: float, share: float) -> None:
        p = np.bincount(problem["truth"]) / len(problem["truth"])
        wide, narrow = (
            np.column_stack([(1 - w) * p, np.minimum((1 + w) * p, 1.0)]) for w in (0.3, 0.3 * share)
        )  # fmt: skip
        problem["keywords"]["label_prior"] = narrow
        radius = minimal(problem) + excess
        assert certified(problem, radius).lower <= certified(problem, radius, label_prior=wide).risk

    @few
    @given(problems(), st.floats(0.01, 0.3))
    def test_losses_given_as_a_matrix_are_the_classifiers_own(self, problem: dict[str, Any], excess: float) -> None:
        classifier, K = problem["classifier"], len(problem["classifier"].classes_)
        if problem["loss"] == "zero_one":
            losses = (classifier.predict(problem["rows"])[:, None] != np.arange(K)).astype(float)
        else:
            losses = -np.log(classifier.predict_proba(problem["rows"]))
        radius = minimal(problem) + excess
        by_name = certified(problem, radius)
        by_matrix = certified(problem | {"classifier": None}, radius, losses=losses, loss="regret", classes=range(K))
        assert by_matrix.risk == pytest.approx(by_name.risk, abs=1e-9)
        assert (by_matrix.loss, by_name.loss) == ("regret", problem["loss"])

    @pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
    @pytest.mark.parametrize("load", [load_breast_cancer, load_iris])
    def test_real_data_at_the_distance_to_the_truth(self, load: Any, loss: str) -> None:
        X, y = load(return_X_y=True)
        X = StandardScaler().fit_transform(X)
        order, n = np.random.default_rng(3).permutation(len(X)), 30
        X, y = X[order], y[order]
        radius = sf.transport_distance(X[:n], y[:n], X, y)
        for model in (KNeighborsClassifier(5), RandomForestClassifier(30, random_state=0)):
            model.fit(X[:n], y[:n])
            certificate = sf.certify(
                model, X[:n], y[:n], X_unlabeled=X[n:], radius=radius, label_prior=np.bincount(y) / len(y), loss=loss
            )
            truth = true_risk(model, X, y, loss)
            assert 0 < truth <= certificate.risk
            assert certificate.gap <= TOL
            largest = 1.0 if loss == "zero_one" else -np.log(1e-12)
            assert certificate.risk < 0.9 * largest  # it says something


class TestClassifiers:
    @pytest.mark.parametrize("K", [2, 3])
    def test_our_own_model_gets_the_certificate_of_its_fit(self, K: int) -> None:
        clf, X, y, U = fitted(K=K, tol=1e-7)
        for radius in (clf.radius_, clf.radius_ + 0.1):
            certificate = sf.certify(clf, X, y, X_unlabeled=U, radius=radius)
            ours = clone(clf).set_params(radius=radius).fit(X, y, X_unlabeled=U).certificate_
            same = abs(certificate.risk - clf.certificate_.risk) <= 1e-6
            assert same == (radius == clf.radius_)
            assert certificate.risk >= ours.lower - 1e-9  # no classifier beats the one that was learned
            np.testing.assert_array_equal(certificate.label_intervals, ours.label_intervals)
            assert certificate.minimal_radius == pytest.approx(ours.minimal_radius, rel=1e-12)

    def test_zero_one_judges_predict_not_the_largest_probability(self) -> None:
        X, y, U = sample(seed=2)
        rows = np.vstack([X, U])
        plain = LogisticRegression().fit(X, y)
        shifted = FixedThresholdClassifier(plain, threshold=0.1, response_method="predict_proba").fit(X, y)
        assert (plain.predict(rows) != shifted.predict(rows)).any()
        np.testing.assert_array_equal(shifted.predict_proba(rows), plain.predict_proba(rows))
        keywords: dict[str, Any] = {"X_unlabeled": U, "radius": just_above(X, y, U)}
        a, b = (sf.certify(clf, X, y, loss="zero_one", **keywords) for clf in (plain, shifted))
        by_hand = 1.0 - np.eye(2)[shifted.predict(rows)]
        assert b.risk == pytest.approx(
            sf.certify(None, X, y, losses=by_hand, classes=[0, 1], **keywords).risk, abs=1e-9
        )
        assert abs(a.risk - b.risk) > 1e-2
        c, d = (sf.certify(clf, X, y, loss="log_loss", **keywords) for clf in (plain, shifted))
        assert c.risk == pytest.approx(d.risk, abs=1e-9)

    def test_predict_alone_is_enough_for_zero_one_and_costs(self) -> None:
        X, y, U = sample(seed=3, K=3)
        clf = Perceptron(random_state=0).fit(X, y)
        assert not hasattr(clf, "predict_proba")
        keywords: dict[str, Any] = {"X_unlabeled": U, "radius": just_above(X, y, U)}
        errors = sf.certify(clf, X, y, loss="zero_one", **keywords)
        costs = sf.certify(clf, X, y, loss=5.0 * (1.0 - np.eye(3)), **keywords)
        assert costs.risk == pytest.approx(5.0 * errors.risk, abs=5e-6)
        assert costs.loss == "cost"
        with refuses("classifier", "Perceptron"):
            sf.certify(clf, X, y, **keywords)

    def test_a_cost_is_read_truth_by_prediction(self) -> None:
        X, y, U = sample(seed=3)
        rows, keywords = np.vstack([X, U]), {"X_unlabeled": U, "radius": just_above(X, y, U), "classes": [0, 1]}
        clf = KNeighborsClassifier(3).fit(X, y)
        cost = np.array([[0.0, 1.0], [9.0, 0.0]])  # to miss class 1 is the dear mistake
        losses = np.array([[0.0, 9.0] if label == 0 else [1.0, 0.0] for label in clf.predict(rows)])
        by_hand = sf.certify(None, X, y, losses=losses, **keywords).risk
        assert sf.certify(clf, X, y, loss=cost, **keywords).risk == pytest.approx(by_hand, abs=1e-9)
        assert abs(sf.certify(clf, X, y, loss=cost.T, **keywords).risk - by_hand) > 0.1

    @pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
    def test_pipelines_and_frames_see_the_rows_as_they_are(self, frame: Any) -> None:
        X, y, U = sample(seed=4)
        X_frame, U_frame = frame(dict(zip("ab", X.T, strict=True))), frame(dict(zip("ab", U.T, strict=True)))
        bare, framed = (make_pipeline(StandardScaler(), KNeighborsClassifier(3)).fit(rows, y) for rows in (X, X_frame))
        keywords: dict[str, Any] = {"radius": just_above(X, y, U)}
        expected = sf.certify(bare, X, y, X_unlabeled=U, **keywords)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no word of lost feature names
            found = sf.certify(framed, X_frame, y, X_unlabeled=U_frame, **keywords)
            wrapped = sf.certify(framed, X_frame, y, X_unlabeled=sf.Unlabeled(U_frame), **keywords)
            fresh = found.on_fresh_rows(U_frame[:10])
        assert found.risk == wrapped.risk == expected.risk
        assert fresh.mean == expected.on_fresh_rows(U[:10]).mean
        with refuses("X_unlabeled", "['b', 'a']"):
            sf.certify(framed, X_frame, y, X_unlabeled=U_frame[["b", "a"]], **keywords)

    def test_every_form_of_unlabeled_rows(self) -> None:
        X, y, U = sample(seed=4)
        clf = KNeighborsClassifier(3).fit(X, y)
        forms = [U, U.tolist(), sf.Unlabeled(U), (U,)]
        assert len({sf.certify(clf, X, y, X_unlabeled=form, radius=2.0).risk for form in forms}) == 1
        none, empty = (sf.certify(clf, X.tolist(), y.tolist(), X_unlabeled=form, radius=0.1) for form in (None, U[:0]))
        assert none.risk == empty.risk
        assert none.minimal_radius == 0.0
        assert none.worst_case is not None
        assert none.worst_case.label_proba.shape == (len(X), 2)

    @pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
    def test_string_labels(self, loss: str) -> None:
        X, y, U = sample(seed=5, K=3)
        names = np.array(["ant", "bee", "cat"])
        radius = just_above(X, y, U)
        prior = np.array([0.2, 0.3, 0.5])  # not symmetric: the order of classes counts
        results = [
            sf.certify(KNeighborsClassifier(3).fit(X, labels), X, labels, X_unlabeled=U, radius=radius + 0.3, loss=loss,
                       label_prior=prior)
            for labels in (y, names[y], names[y].astype(object))
        ]  # fmt: skip
        assert results[0].risk == results[1].risk == results[2].risk

    @pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
    def test_columns_of_predict_proba_follow_the_classifiers_own_order(self, loss: str) -> None:
        X, y, U = sample(seed=5, K=3)
        straight = Drawn(1, np.arange(3))

        class Reordered(Drawn):
            def predict_proba(self, X: Any) -> np.ndarray:
                return straight.predict_proba(X)[:, [2, 0, 1]]

        other = Reordered(1, [2, 0, 1])
        np.testing.assert_array_equal(other.predict(U), straight.predict(U))
        a, b = (sf.certify(clf, X, y, X_unlabeled=U, radius=2.0, loss=loss) for clf in (straight, other))
        assert a.risk == b.risk

    @pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
    def test_a_class_the_classifier_does_not_know_is_never_predicted(self, loss: str) -> None:
        X, y, U = sample(seed=6)
        rows, clf = np.vstack([X, U]), KNeighborsClassifier(3).fit(X, y)
        keywords: dict[str, Any] = {"X_unlabeled": U, "label_prior": [0.5, 0.4, 0.1], "classes": [2, 0, 1]}
        radius = sf.minimal_radius(X, y, **keywords) + 0.05
        if loss == "log_loss":
            proba = np.column_stack([clf.predict_proba(rows), np.zeros(len(rows))])
            losses = -np.log(np.maximum(proba, 1e-12))
        else:
            losses = 1.0 - np.eye(3)[clf.predict(rows)]
        known = sf.certify(clf, X, y, radius=radius, loss=loss, **keywords)
        by_hand = sf.certify(None, X, y, radius=radius, losses=losses, **keywords)
        assert known.risk == pytest.approx(by_hand.risk, abs=1e-9)
        assert known.risk >= 0.1 * losses[:, 2].min() - 1e-6  # a tenth of the rows cannot be right
        assert known.label_intervals.shape == (3, 2)
        assert known.worst_case is not None
        np.testing.assert_allclose(known.worst_case.label_probabilities, [0.5, 0.4, 0.1], atol=1e-9)

    def test_classes_default_to_those_of_the_classifier(self) -> None:
        X, y, U = sample(seed=6, K=3)
        clf, two = Drawn(0, [0, 1, 2]), y < 2
        # the labeled rows show two classes, the classifier knows three
        certificate = sf.certify(clf, X[two], y[two], X_unlabeled=U, radius=2.5, loss="zero_one")
        assert certificate.label_intervals.shape == (3, 2)
        assert certificate.label_intervals[2, 0] == 0.0

    def test_clip_bounds_the_log_loss(self) -> None:
        X, y, U = sample(seed=6)
        clf = KNeighborsClassifier(1).fit(X, y)  # probabilities 0 and 1 only
        keywords: dict[str, Any] = {"X_unlabeled": U, "radius": just_above(X, y, U)}
        errors = sf.certify(clf, X, y, loss="zero_one", **keywords).risk
        for clip in (1e-12, 1e-3):
            risk = sf.certify(clf, X, y, clip=clip, **keywords).risk
            assert risk == pytest.approx(-np.log(clip) * errors, rel=1e-6)


class TestRows:
    @pytest.mark.parametrize(("K", "loss"), [(2, "log_loss"), (3, "zero_one")])
    def test_sample_weight_is_repetition(self, K: int, loss: str) -> None:
        X, y, U = sample(seed=7, K=K)
        weights = np.array([0, 1, 2, 1, 3, 1, 1, 2, 1, 1, 0, 1])
        clf = KNeighborsClassifier(3).fit(X, y)
        X_long, y_long = np.repeat(X, weights, axis=0), np.repeat(y, weights)
        keywords: dict[str, Any] = {"X_unlabeled": U, "radius": just_above(X_long, y_long, U, 0.1), "loss": loss}
        weighted = sf.certify(clf, X, y, sample_weight=weights, **keywords)
        repeated = sf.certify(clf, X_long, y_long, **keywords)
        assert weighted.risk == pytest.approx(repeated.risk, abs=2 * TOL)
        assert weighted.minimal_radius == pytest.approx(repeated.minimal_radius, rel=1e-9)
        np.testing.assert_allclose(weighted.label_intervals, repeated.label_intervals, rtol=1e-9)
        keywords["radius"] += 1.0
        unweighted = sf.certify(clf, X, y, **keywords)
        assert abs(unweighted.label_intervals - weighted.label_intervals).max() > 0.01

    @pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
    def test_result_does_not_depend_on_threads(self, loss: str) -> None:
        X, y, U = sample(n=10, M=400, d=3, K=3)  # several groups of rows
        clf, radius = RandomForestClassifier(10, random_state=0).fit(X, y), just_above(X, y, U)
        one, two = (
            sf.certify(clf, X, y, X_unlabeled=U, radius=radius, loss=loss, n_jobs=n_jobs) for n_jobs in (1, 2)
        )  # fmt: skip
        assert (one.risk, one.lower) == (two.risk, two.lower)
        np.testing.assert_array_equal(one.worst_case.label_proba, two.worst_case.label_proba)

    def test_metrics_and_precomputed_distances(self) -> None:
        X, y, U = sample(seed=8)
        clf = KNeighborsClassifier(3).fit(X, y)
        distances = np.abs(np.vstack([X, U])[:, None, :] - X).sum(axis=2)
        metrics = ["manhattan", sf.costs.Precomputed(distances), lambda a, b: float(np.abs(a - b).sum())]
        radius = just_above(X, y, U, metric="manhattan")
        risks = [sf.certify(clf, X, y, X_unlabeled=U, radius=radius, metric=metric).risk for metric in metrics]
        assert risks[1:] == pytest.approx([risks[0]] * 2, abs=2 * TOL)
        assert sf.certify(clf, X, y, X_unlabeled=U, radius=radius).risk > risks[0] + 1e-2  # Euclidean is cheaper

    def test_arguments_are_left_as_they_were(self) -> None:
        X, y, U = sample(seed=8)
        clf = KNeighborsClassifier(3).fit(X, y)
        arrays = (X, y, U, np.ones(len(X)), np.ones((2, 2)))
        before = [array.copy() for array in arrays]
        sf.certify(clf, X, y, X_unlabeled=U, radius=2.0, sample_weight=arrays[3], loss=arrays[4])
        assert all((a == b).all() for a, b in zip(arrays, before, strict=True))


class TestResult:
    def test_reads_as_a_sentence(self) -> None:
        X, y, U = sample(seed=1)
        clf, radius = RandomForestClassifier(10, random_state=0).fit(X, y), just_above(X, y, U)
        errors = sf.certify(clf, X, y, X_unlabeled=U, radius=radius, loss="zero_one")
        assert errors.statement == (
            "over every distribution in this set, the error rate of this classifier is at most "
            f"{100 * errors.risk:.1f} %"
        )
        nats = sf.certify(clf, X, y, X_unlabeled=U, radius=radius)
        said = re.search(r"expected log_loss of this classifier is at most ([0-9.]+)$", nats.statement)
        assert said is not None
        assert nats.risk <= float(said[1]) <= nats.risk + 1e-4  # rounded up
        assert "likelihood" in repr(nats)
        assert "likelihood" not in repr(errors)
        assert "zero_one" in repr(errors)
        assert nats.estimate is None
        copy = pickle.loads(pickle.dumps(errors))
        assert repr(copy) == repr(errors)
        np.testing.assert_array_equal(copy.worst_case.label_proba, errors.worst_case.label_proba)

    def test_a_gap_above_tol_is_announced_where_certify_was_called(self) -> None:
        X, y, U = sample(seed=1)
        clf = KNeighborsClassifier(3).fit(X, y)
        with warns("gap", ConvergenceWarning, tol=1e-18) as record:
            certificate = sf.certify(clf, X, y, X_unlabeled=U, radius=just_above(X, y, U), tol=1e-18)
        assert record[0].filename == __file__
        assert certificate.status == "stopped"
        assert 1e-18 < certificate.gap < 1e-9

    def test_a_coarse_tolerance_stops_early_and_holds(self) -> None:
        X, y, U = sample(seed=1, n=30, M=300)
        clf = Drawn(3, [0, 1])
        exact, coarse = (
            sf.certify(clf, X, y, X_unlabeled=U, radius=just_above(X, y, U), tol=tol) for tol in (1e-9, 0.02)
        )  # fmt: skip
        assert coarse.lower <= exact.risk
        assert coarse.risk >= exact.lower
        assert exact.gap <= 1e-9


def bad(**given: Any) -> Any:
    X, y, U = sample(seed=1)
    keywords = {"classifier": KNeighborsClassifier(3).fit(X, y), "X": X, "y": y, "X_unlabeled": U, "radius": 2.0}
    return sf.certify(**keywords | given)


class Broken(Drawn):
    """A classifier whose predictions are those of its first argument."""

    def __init__(self, proba: Any = None, predicted: Any = 0) -> None:
        self.proba, self.predicted, self.classes_ = proba, predicted, np.array([0, 1])

    def predict_proba(self, X: Any) -> Any:
        return np.tile(self.proba, (len(X), 1))

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.predicted)


def test_the_input_that_is_spoiled_below_is_good() -> None:
    assert 0 < bad().risk < 28


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"radius": -0.5}, ("radius", 0, -0.5)),
        ({"radius": np.nan}, ("radius", 0)),
        ({"radius": np.inf}, ("radius", 0)),
        ({"radius": None}, ("radius", '"calibrated"')),
        ({"radius": "auto"}, ("radius", 0, '"calibrated"', "'auto'")),
        ({"radius": "calibrate"}, ("radius", 0, '"calibrated"', "'calibrate'")),
        ({"loss": "hinge"}, ("loss", "'log_loss'", "'zero_one'", "'hinge'")),
        ({"loss": np.ones((3, 3))}, ("loss", "(2, 2)", "(3, 3)")),
        ({"loss": np.ones((2, 3))}, ("loss", "(2, 2)", "(2, 3)")),
        ({"loss": [0.0, 1.0]}, ("loss", 2, "(2,)")),
        ({"loss": [[0.0, np.nan], [1.0, 0.0]]}, ("loss", "(0, 1)")),
        ({"losses": np.zeros((12, 2))}, ("losses", "(53, 2)", "(12, 2)")),
        ({"losses": np.zeros((53, 3))}, ("losses", "(53, 2)", "(53, 3)")),
        ({"losses": np.zeros(53)}, ("losses", 2, "(53,)")),
        ({"losses": np.full((53, 2), np.inf)}, ("losses", "(0, 0)")),
        ({"classifier": object()}, ("classifier", '"log_loss"')),
        ({"classifier": None}, ("classifier", "NoneType")),
        ({"classifier": object(), "loss": "zero_one"}, "classifier"),
        ({"classifier": Broken([0.5, 0.2, 0.3])}, ("predict_proba", 2, "(12, 3)")),
        ({"classifier": Broken([0.5, 0.2])}, ("proba", 1, 0.7)),
        ({"classifier": Broken([0.5, np.nan])}, ("proba", "(0, 1)")),
        ({"classifier": Broken(predicted=7), "loss": "zero_one"}, ("classifier", "[0, 1]", "[7]")),
        ({"classes": [0, 2]}, ("classes", "[1]")),
        ({"y": np.arange(12) % 3}, ("y", "[2]")),
        ({"clip": 0.0}, ("clip", 0, 1, 0.0)),
        ({"clip": 1.5}, ("clip", 0, 1, 1.5)),
        ({"tol": 0.0}, ("tol", 0, 0.0)),
        ({"n_jobs": 0}, ("n_jobs", 0)),
        ({"label_prior": "clopper"}, ("label_prior", "'clopper'")),
        ({"label_cost": -1.0}, ("label_cost", 0, -1.0)),
        ({"metric": "euclid"}, ("metric", "'euclidean'", "'euclid'")),
        ({"sample_weight": np.ones(11)}, ("sample_weight", "(11,)", "(12,)")),
        ({"X_unlabeled": np.ones((4, 3))}, ("X_unlabeled", 2, 3)),
        ({"X": np.full((12, 2), np.nan)}, re.compile(r"X.*contains NaN")),
        ({"X_unlabeled": np.full((5, 2), np.nan)}, re.compile(r"X_unlabeled.*contains NaN")),
        ({"y": np.zeros(11, dtype=int)}, re.compile(r"inconsistent numbers of samples: \[12, 11\]")),
    ],
)  # fmt: skip
def test_bad_input(given: dict[str, Any], match: Refused) -> None:
    with refuses(match):
        bad(**given)


def test_a_label_that_the_classifier_does_not_know_is_told_the_way_out() -> None:
    with refuses("y") as caught:
        bad(y=np.arange(12) % 3)
    assert "classes=None" not in str(caught.value)
    assert bad(y=np.arange(12) % 3, classes=[0, 1, 2]).label_intervals.shape == (3, 2)


def test_a_radius_below_the_minimal_one() -> None:
    X, y, U = sample(seed=1)
    minimal_radius = just_above(X, y, U, 0.0)
    with pytest.raises(sf.InfeasibleRadiusError) as caught:
        bad(radius=0.9 * minimal_radius)
    assert caught.value.radius == 0.9 * minimal_radius
    assert caught.value.minimal_radius == pytest.approx(minimal_radius, rel=1e-12)
    assert bad(radius=minimal_radius).minimal_radius == pytest.approx(minimal_radius, rel=1e-12)


def test_a_program_in_which_nothing_is_left_to_choose() -> None:
    # each row has one triple near enough: the linear program over them has no variables
    losses = [[3.0, 0.5], [1.0, 2.0], [0.0, 4.0]]
    found = sf.certify(
        None, [[0.0]], [1], X_unlabeled=[[0.0], [1e-6]], classes=[0, 1], label_prior=[1.0, 0.0], losses=losses,
        radius=1 + 1e-6 / 3 + 1e-8,
    )  # fmt: skip
    assert found.risk == pytest.approx(4 / 3, abs=1e-6)
    assert found.lower == pytest.approx(4 / 3, abs=1e-6)


class TestTexts:
    """A pipeline that takes texts: distances are those between what its first steps make of them."""

    @staticmethod
    def rows() -> tuple[Any, Any, Any]:
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"word": rng.choice(["a", "b", "c"], 60), "x": rng.normal(size=60)})
        y = np.where((frame["word"] == "a") | (frame["x"] > 1), "yes", "no")
        return frame[:20], y[:20], frame[20:]

    def test_the_pipelines_own_steps_measure(self) -> None:
        from sklearn.compose import make_column_transformer
        from sklearn.preprocessing import OneHotEncoder

        X, y, U = self.rows()
        encode = make_column_transformer((OneHotEncoder(), ["word"]), remainder="passthrough")
        model = make_pipeline(encode, LogisticRegression()).fit(X, y)
        found = sf.certify(model, X, y, X_unlabeled=U, radius=1.0, loss="zero_one")
        first, second = encode.transform(X), encode.transform(U)
        expected = sf.certify(model[-1], first, y, X_unlabeled=second, radius=1.0, loss="zero_one")
        assert found.risk == pytest.approx(expected.risk, abs=1e-6)
        given = sf.certify(model, X, y, X_unlabeled=U, X_metric=np.vstack([first, second]), radius=1.0, loss="zero_one")
        assert given.risk == pytest.approx(expected.risk, abs=1e-6)
        with refuses("X_metric", 60, 20):
            sf.certify(model, X, y, X_unlabeled=U, X_metric=first, radius=1.0)

    @pytest.mark.parametrize("form", [pd.Series, list, np.array], ids=["series", "list", "array"])
    def test_a_column_of_texts_alone(self, form: Any) -> None:
        rng = np.random.default_rng(1)
        texts = [" ".join(rng.choice(["late", "parcel", "refund", "screen", "login"], 6)) for _ in range(60)]
        y = np.array(["money" if text.count("refund") else "other" for text in texts[:20]])
        model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts[:20], y)
        X, U = form(texts[:20]), form(texts[20:])
        found = sf.certify(model, X, y, X_unlabeled=U, radius=1.0, loss="zero_one")
        first, second = (model[0].transform(part).toarray() for part in (texts[:20], texts[20:]))
        expected = sf.certify(model[-1], first, y, X_unlabeled=second, radius=1.0, loss="zero_one")
        assert found.risk == pytest.approx(expected.risk, abs=1e-6)

    def test_texts_without_steps_name_the_way_out(self) -> None:
        X, y, U = self.rows()
        with refuses("X"):
            sf.certify(object(), X, y, X_unlabeled=U, radius=1.0)

    def test_a_missing_radius_names_calibrated(self) -> None:
        with refuses("radius", '"calibrated"'):
            sf.certify(None, [[0.0], [1.0]], [0, 1])


class TestLimit:
    COST = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]])

    @pytest.mark.parametrize("loss", ["log_loss", "zero_one", "cost"])
    @pytest.mark.parametrize("prior", ["clopper-pearson", [0.3, 0.3, 0.4]])
    def test_no_classifier_is_certified_below_it(self, loss: str, prior: Any) -> None:
        X, y, U = sample(n=24, K=3)
        given: dict[str, Any] = {"X_unlabeled": U, "label_prior": prior}
        given["radius"] = sf.minimal_radius(X, y, **given) + 0.1
        minimax = sf.MinimaxClassifier(given["radius"], prior).fit(X, y, X_unlabeled=U)
        linear = sf.RobustLogisticRegression(given["radius"], prior).fit(X, y, X_unlabeled=U)
        judged: Any = self.COST if loss == "cost" else loss
        found = [sf.certify(one, X, y, loss=judged, limit=True, **given) for one in (minimax, linear)]
        assert found[0].limit == found[1].limit > 0.05
        assert all(one.limit <= one.risk + 1e-6 for one in found)
        if loss == "log_loss":  # the minimax classifier attains it
            assert found[0].limit >= found[0].risk - 2e-4
        assert "limit" in repr(found[0])
        assert sf.certify(linear, X, y, loss=judged, **given).limit is None

    def test_over_a_union_it_is_the_largest(self) -> None:
        X, y, U = sample(n=24)
        clf = sf.RobustLogisticRegression(1.5).fit(X, y, X_unlabeled=U)
        found = sf.certify(clf, X, y, X_unlabeled=U, radius=sf.CalibratedRadius(random_state=0), limit=True)
        assert 0 < found.limit <= found.risk

    def test_given_losses_say_nothing_of_other_classifiers(self) -> None:
        X, y, U = sample(n=24)
        with refuses("limit"):
            sf.certify(None, X, y, X_unlabeled=U, radius=9.0, losses=np.ones((len(X) + len(U), 2)), limit=True)
