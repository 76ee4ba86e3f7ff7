"""Simulations: curves, areas, reproducibility; and the paper's comparison on two of its datasets."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import surefoot as sf
import surefoot.active as al
from refusals import Refused, refuses
from surefoot.active.simulation import area_under, likelihood


def data() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X / np.abs(X).max(), y


CLF = LogisticRegression(C=100.0)


def test_curves_are_those_of_the_rows_picked() -> None:
    X, y = data()
    found = al.simulate(al.MinModelChange(), CLF, X, y, n_initial=10, n_labels=14, n_trials=2)
    assert found.n_labels.tolist() == [10, 11, 12, 13, 14]
    assert found.scores.shape == found.risks.shape == (2, 5)
    assert found.picks.shape == (2, 14)
    for t in range(2):
        assert len(set(found.picks[t].tolist())) == 14
        for s, n in enumerate(found.n_labels):
            rows = np.sort(found.picks[t, :n])
            clf = LogisticRegression(C=100.0).fit(X[rows], y[rows])
            assert found.scores[t, s] == pytest.approx(np.exp(-log_loss(y, clf.predict_proba(X))), rel=1e-4)
    assert np.isnan(found.risks).all()
    assert found.area == pytest.approx(np.trapezoid(found.median) / 4)
    assert found.areas == pytest.approx([np.trapezoid(curve) / 4 for curve in found.scores])
    assert "2 trials, 10 to 14 labels" in repr(found)


def test_the_result_depends_on_the_seed_alone() -> None:
    X, y = data()
    keywords = {"n_initial": 10, "n_labels": 13, "n_trials": 3}
    strategy = al.MinModelChange(max_candidates=20)
    first = al.simulate(strategy, CLF, X, y, **keywords)
    parallel = al.simulate(strategy, CLF, X, y, n_jobs=2, **keywords)
    np.testing.assert_array_equal(first.picks, parallel.picks)
    other = al.simulate(strategy, CLF, X, y, random_state=1, **keywords)
    assert not np.array_equal(first.picks, other.picks)


def test_strategies_start_from_the_same_rows() -> None:
    X, y = data()
    keywords = {"n_initial": 10, "n_labels": 12, "n_trials": 3}
    a = al.simulate(al.RandomSampling(), CLF, X, y, **keywords)
    b = al.simulate(al.MaxModelChange(), CLF, X, y, **keywords)
    np.testing.assert_array_equal(a.picks[:, :10], b.picks[:, :10])
    assert not np.array_equal(a.picks, b.picks)
    assert len({tuple(row) for row in a.picks[:, :10]}) == 3


def test_batches_certificates_and_progress(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = data()
    X, y = X[:60], y[:60]
    clf = sf.RobustLogisticRegression(radius=2.0, label_prior=None, tol=1e-2)
    strategy = al.RobustModelChange(label_prior=np.bincount(y) / 60)
    found = al.simulate(strategy, clf, X, y, n_initial=10, n_labels=14, batch_size=3, n_trials=1, progress=True)
    assert found.n_labels.tolist() == [10, 13, 14]
    assert np.isfinite(found.risks).all()
    assert "trials" in capsys.readouterr().out


def test_a_start_shows_two_classes() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), (np.arange(200) < 10).astype(int)
    found = al.simulate(al.RandomSampling(), CLF, X, y, n_initial=3, n_labels=3, n_trials=20)
    assert all(len(set(y[row])) == 2 for row in found.picks)


def test_an_area_is_an_average() -> None:
    assert area_under([20, 40, 100], [0.5, 0.5, 0.5]) == 0.5
    assert area_under([0, 1, 3], [0.0, 1.0, 1.0]) == pytest.approx(2.5 / 3)
    assert area_under([7], [0.3]) == 0.3


def test_the_likelihood_is_that_of_the_labels() -> None:
    X, y = data()
    clf = LogisticRegression().fit(X, y)
    assert likelihood(clf, X, y) == pytest.approx(np.exp(-log_loss(y, clf.predict_proba(X))), rel=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_labels": 600}, ("n_labels", 569)),
        ({"n_initial": 30, "n_labels": 20}, ("n_labels", 30, 20)),
        ({"n_trials": 0}, ("n_trials", 1)),
        ({"n_initial": 1}, ("n_initial", 2)),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, int], message: Refused) -> None:
    X, y = data()
    with refuses(message):
        al.simulate(al.RandomSampling(), CLF, X, y, **({"n_trials": 1} | change))  # type: ignore[arg-type]


def test_one_class_is_refused() -> None:
    with refuses("y", 2):
        al.simulate(al.RandomSampling(), CLF, np.eye(3), [1, 1, 1], n_initial=2, n_labels=3)
