"""The labeling loop: answers, rounds, certificates, the stopping rule."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import surefoot as sf
import surefoot.active as al
from refusals import Refused, refuses, warns
from surefoot.active.loop import Round
from surefoot.certificates.certificate import Certificate


def pool(n: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scaled rows, labels with missing ones, all labels."""
    X, truth = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(X))
    X, truth = X[order], truth[order]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = truth.astype(float)
    y[n:] = np.nan
    return X / np.abs(X).max(), y, truth


def falling(clf: object, X: np.ndarray, y: np.ndarray, X_unlabeled: object) -> Certificate:
    """A certificate whose risk is known: 1 / (number of labels)."""
    assert len(X) == len(y)
    assert len(X) + len(X_unlabeled[0]) == 569  # type: ignore[index]
    return Certificate(
        risk=1 / len(y), lower=0.0, radius=1.0, minimal_radius=0.5, label_intervals=np.array([[0, 1], [0, 1]]),
        loss="log_loss", status="optimal",
    )  # fmt: skip


def test_rows_are_suggested_labeled_corrected_and_skipped() -> None:
    X, y, truth = pool()
    learner = al.ActiveLearner(LogisticRegression(), X, y, strategy=al.MinModelChange(random_state=0))
    first = learner.suggest(3)
    assert np.isnan(y[first]).all()
    learner.label(first[0], truth[first[0]])
    learner.label(first[1:], truth[first[1:]])
    assert learner.n_labels == 13
    assert not set(learner.suggest(5).tolist()) & set(first.tolist())
    learner.skip(learner.suggest(2))
    assert len(learner.open_rows) == 569 - 13 - 2
    wrong, before = first[0], learner.model.coef_.copy()
    learner.label(wrong, 1 - truth[wrong])
    learner.fit()
    assert learner.labels[int(wrong)] == 1 - truth[wrong]
    assert learner.n_labels == 13
    assert not np.allclose(learner.model.coef_, before)
    skipped = np.setdiff1d(np.arange(569), [*learner.labels, *learner.open_rows])
    learner.label(skipped[0], truth[skipped[0]])  # told after all
    assert learner.n_labels == 14
    assert len(learner.open_rows) == 569 - 15
    learner.skip(skipped[0])  # a label is not lost by skipping
    assert learner.labels[int(skipped[0])] == truth[skipped[0]]
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(learner.y)), np.sort(list(learner.labels)))


def test_the_model_is_that_of_all_answers() -> None:
    X, y, truth = pool()
    learner = al.ActiveLearner(LogisticRegression(), X, y, strategy=al.RandomSampling(random_state=0))
    learner.run(lambda rows, _: truth[rows], batch_size=4, max_labels=30)
    rows = np.sort(list(learner.labels))
    expected = LogisticRegression().fit(X[rows], truth[rows])
    np.testing.assert_allclose(learner.model.coef_, expected.coef_, rtol=1e-6)
    assert [r.n_labels for r in learner.rounds] == [10, 14, 18, 22, 26, 30]
    assert all(r.risk is None for r in learner.rounds)
    assert "30 labels" in repr(learner)


def test_it_stops_when_the_certified_risk_reaches_the_target() -> None:
    X, y, truth = pool()
    seen: list[Round] = []
    learner = al.ActiveLearner(
        LogisticRegression(), X, y, strategy=al.RandomSampling(random_state=0), target_risk=1 / 15, certify=falling
    )
    assert not learner.done
    learner.run(lambda rows, _: truth[rows], on_round=seen.append)
    assert learner.n_labels == 15
    assert learner.done
    assert learner.suggest().size == 0
    assert learner.certificate.risk == 1 / 15
    assert [r.n_labels for r in seen] == list(range(10, 16))
    assert [r.risk for r in seen] == [1 / n for n in range(10, 16)]
    assert str(seen[-1]).startswith("15 labels, certified risk 0.06667")


def test_a_robust_classifier_brings_its_own_certificate() -> None:
    X, y, truth = pool(30)
    X, y, truth = X[:200], y[:200], truth[:200]
    p = np.bincount(truth) / 200
    radius = sf.transport_distance(X[:30], truth[:30], X, truth)
    clf = sf.RobustLogisticRegression(radius=radius, label_prior=p, tol=1e-3)
    learner = al.ActiveLearner(clf, X, y, strategy=al.RobustModelChange(label_prior=p, random_state=0), target_risk=0.9)
    assert learner.fit().risk == learner.model.certificate_.risk
    # all rows of the pool are in P_X, so that the certificate bounds the loss on them
    expected = sf.RobustLogisticRegression(radius=radius, label_prior=p, tol=1e-3)
    expected.fit(X[:30], truth[:30], X_unlabeled=X[30:])
    assert learner.certificate.risk == pytest.approx(expected.certificate_.risk, abs=2e-3)
    assert learner.done == (learner.certificate.risk <= 0.9)


def test_any_classifier_can_be_certified() -> None:
    X, y, truth = pool(20)
    X, y, truth = X[:150], y[:150], truth[:150]
    p = np.bincount(truth) / 150
    certify = partial(sf.certify, radius=sf.transport_distance(X[:20], truth[:20], X, truth), label_prior=p)
    learner = al.ActiveLearner(LogisticRegression(), X, y, certify=certify)
    learner.fit()
    loss = -np.log(learner.model.predict_proba(X)[np.arange(150), truth]).mean()
    assert learner.certificate.risk >= loss  # the truth lies within the radius


class TestNearestCertifier:
    """The set holds the truth once the excess covers the rows unlike their nearest labeled row."""

    @pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
    def test_it_bounds_the_loss_on_the_pool(self, loss: str) -> None:
        X, y, truth = pool(20)
        X, y, truth = X[:200], y[:200], truth[:200]
        p = np.bincount(truth) / 200
        learner = al.ActiveLearner(LogisticRegression(C=10.0), X, y, strategy=al.MaxModelChange(random_state=0))
        learner.run(lambda rows, _: truth[rows], batch_size=5, max_labels=40)
        rows = np.sort(list(learner.labels))
        rest = np.delete(X, rows, axis=0)
        nearest = cdist(X, X[rows]).argmin(axis=1)
        unlike = float(np.mean(truth[rows][nearest] != truth))
        assert 0 < unlike < 0.3
        certifier = al.NearestCertifier(unlike, label_prior=p, loss=loss)
        found = certifier(learner.model, X[rows], truth[rows], X_unlabeled=rest)
        proba = learner.model.predict_proba(X)
        true_log, true_error = -np.log(proba[np.arange(200), truth]).mean(), np.mean(proba.argmax(axis=1) != truth)
        assert found.risk >= (true_log if loss == "log_loss" else true_error) - 1e-6
        # the centre: labeled rows by how many rows they are nearest to
        weights = np.bincount(nearest, minlength=len(rows))
        distance = sf.transport_distance(X[rows], truth[rows], X, truth, sample_weight=weights)
        assert distance <= found.radius + 1e-9
        free = al.NearestCertifier(0.1)(learner.model, X[rows], truth[rows], X_unlabeled=rest)
        assert free.minimal_radius == pytest.approx(cdist(X, X[rows]).min(axis=1).mean(), abs=1e-7)

    def test_it_certifies_less_risk_than_equal_weights_where_rows_were_picked(self) -> None:
        X, y, truth = pool(20)
        p = np.bincount(truth) / len(truth)
        picked = al.ActiveLearner(LogisticRegression(C=10.0), X, y, strategy=al.MinModelChange(random_state=0))
        picked.run(lambda rows, _: truth[rows], batch_size=10, max_labels=60)
        rows = np.sort(list(picked.labels))
        rest = np.delete(X, rows, axis=0)
        nearest = al.NearestCertifier(0.003, label_prior=p)(picked.model, X[rows], truth[rows], X_unlabeled=rest)
        radius = sf.minimal_radius(X[rows], truth[rows], X_unlabeled=rest, label_prior=p) + 0.003
        plain = sf.certify(picked.model, X[rows], truth[rows], X_unlabeled=rest, radius=radius, label_prior=p, tol=1e-4)
        assert nearest.risk < 0.8 * plain.risk

    def test_a_negative_excess_is_refused(self) -> None:
        X, y, _ = pool(20)
        learner = al.ActiveLearner(LogisticRegression(), X, y, certify=al.NearestCertifier(-0.1))
        with refuses("excess", 0):
            learner.fit()


def test_text_labels_and_classes() -> None:
    X, _, truth = pool()
    names = np.array(["benign", "malignant"], dtype=object)[truth]
    learner = al.ActiveLearner(LogisticRegression(), X, strategy=al.MinModelChange(random_state=0), classes=names)
    learner.label(np.arange(10), names[:10])
    learner.run(lambda rows, _: names[rows], max_labels=14)
    assert learner.n_labels == 14
    assert learner.model.classes_.tolist() == ["benign", "malignant"]
    assert learner.y[500] is None or isinstance(learner.y[500], str)
    with refuses("label", "['benign', 'malignant']", "'other'"):
        learner.label(500, "other")


def test_it_can_start_without_labels() -> None:
    X, _, truth = pool()
    learner = al.ActiveLearner(LogisticRegression(), X, strategy=al.MinModelChange(random_state=0))
    with warns("few_classes"):
        learner.run(lambda rows, _: truth[rows], batch_size=2, max_labels=12)
    assert learner.n_labels == 12
    assert learner.model is not None


def test_an_oracle_may_decline() -> None:
    X, y, truth = pool()
    learner = al.ActiveLearner(LogisticRegression(), X, y, strategy=al.RandomSampling(random_state=0))
    learner.run(lambda rows, _: [None if row % 2 else int(truth[row]) for row in rows], batch_size=3, max_labels=20)
    assert learner.n_labels == 20
    assert all(row % 2 == 0 for row in list(learner.labels)[10:])
    assert len(learner.open_rows) < 569 - 20


def test_it_ends_when_no_row_is_left() -> None:
    X, y, truth = pool()
    learner = al.ActiveLearner(LogisticRegression(), X[:14], y[:14], strategy=al.RandomSampling(random_state=0))
    learner.run(lambda rows, _: truth[rows], batch_size=3)
    assert learner.n_labels == 14
    assert learner.done
    assert learner.suggest(2).size == 0


def test_a_function_as_strategy() -> None:
    X, y, _ = pool()

    def farthest(estimator: LogisticRegression, rows: np.ndarray) -> np.ndarray:
        return np.argsort(-np.abs(estimator.decision_function(rows)))

    learner = al.ActiveLearner(LogisticRegression(), X, y, strategy=farthest)
    rows = learner.suggest(2)
    scores = np.abs(learner.model.decision_function(X[10:]))
    assert rows.tolist() == (10 + np.argsort(-scores)[:2]).tolist()
    with refuses("strategy", 0):
        al.ActiveLearner(LogisticRegression(), X, strategy=farthest).suggest()


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        ([1, 2], [0], ("labels", "1 for 2 rows")),
        (600, 0, ("candidates", 0, 568, 600)),
        ([3, 3], [0, 1], "candidates"),
        (3, np.nan, ("label", "nan")),
        (3, None, ("label", "None")),
    ],
)
def test_bad_answers_are_refused_whole(rows: object, labels: object, message: Refused) -> None:
    X, y, _ = pool()
    learner = al.ActiveLearner(LogisticRegression(), X, y)
    with refuses(message):
        learner.label(rows, labels)  # type: ignore[arg-type]
    assert learner.n_labels == 10


def test_bad_arguments_are_refused() -> None:
    X, y, _ = pool()
    with refuses("y", "shape (5,)"):
        al.ActiveLearner(LogisticRegression(), X, y[:5])
    with refuses("target_risk", 0):
        al.ActiveLearner(LogisticRegression(), X, y, target_risk=0.0)
    with refuses("target_risk", "LogisticRegression"):
        al.ActiveLearner(LogisticRegression(), X, y, target_risk=0.3).suggest()
    with refuses("target_risk", '"predictive"'):
        al.ActiveLearner(sf.RobustLogisticRegression(), X, y, target_risk=0.3).suggest()
    with pytest.raises(ValueError, match="NaN"):
        al.ActiveLearner(LogisticRegression(), np.where(X[3, 3] == X, np.nan, X), y)


def test_cross_validation_counts_the_errors_of_classifiers_that_did_not_see_the_label() -> None:
    """A classifier that memorizes is right at every label it has seen, and guesses at the others."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
    learner = al.ActiveLearner(KNeighborsClassifier(1), X, y.astype(float), classes=[0, 1])
    learner.fit()
    assert (learner.model.predict(X) == y).all()
    folds = np.random.default_rng(0).permutation(60) % 5
    errors = sum(
        int((KNeighborsClassifier(1).fit(X[folds != k], y[folds != k]).predict(X[folds == k]) != y[folds == k]).sum())
        for k in range(5)
    )
    assert learner.cross_validate(np.arange(60)) == errors > 15
    assert learner.cross_validate(np.empty(0, dtype=int)) == 0


def test_cross_validation_with_one_class_predicts_it() -> None:
    X = np.arange(8.0)[:, None]
    learner = al.ActiveLearner(LogisticRegression(), X, [0, 0, 0, 0, 1, None, None, None], classes=[0, 1])
    assert learner.cross_validate([4]) == 1  # the other labels are all 0
    assert learner.cross_validate([0, 1]) <= 2
