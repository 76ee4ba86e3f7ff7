"""`PickedLabelsWarning`: the test keeps its level on random labels, sees picked ones, and warns where labels matter."""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import surefoot as sf
from refusals import warns
from surefoot.pool.notes import Code
from surefoot.pool.table import clean, read_labeled_table
from surefoot.pool.training import LabeledTable, about_sample
from surefoot.problem.rows import PICKED_AT, permutation_p_value, sample_p_value


def pool(N: int = 400, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a heavy tail, a category and a constant, and labels."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(N, d - 3)), np.exp(rng.normal(size=N)), rng.integers(2, size=N), np.ones(N)])
    return X, (X[:, 0] + rng.normal(size=N) > 0).astype(int)


def picked(X: np.ndarray, n: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """The rows with the largest values of the first feature, and all others."""
    order = np.argsort(-X[:, 0])
    return order[:n], order[n:]


def test_the_p_value_is_that_of_all_choices() -> None:
    """Against the energy distances of all choices of 4 of 11 rows, computed from the definition."""
    rng = np.random.default_rng(3)
    X, U = rng.normal(size=(4, 2)) + 1.5, rng.normal(size=(7, 2))
    rows = np.vstack([X, U])
    distances = cdist(*(2 * [(rows - rows.mean(axis=0)) / rows.std(axis=0)]))

    def energy(chosen: tuple[int, ...]) -> float:
        others = np.setdiff1d(np.arange(11), chosen)
        within = [distances[np.ix_(part, part)].mean() for part in (chosen, others)]
        return float(2 * distances[np.ix_(chosen, others)].mean() - sum(within))

    all_choices = np.array([energy(chosen) for chosen in combinations(range(11), 4)])
    exact = np.mean(all_choices >= energy((0, 1, 2, 3)) - 1e-9)
    assert 0.02 < exact < 0.5
    found = [permutation_p_value(X, U, np.random.default_rng(seed)) for seed in range(10)]
    assert np.mean(found) == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4000))


def alarms(draws: int) -> float:
    X, _ = pool()
    rng, found = np.random.default_rng(1), []
    for _ in range(draws):
        order = rng.permutation(len(X))
        found.append(sample_p_value(X[order[:30]], X[order[30:]]))
    return float(np.mean(np.array(found) <= PICKED_AT))


def test_random_labels_seldom_warn() -> None:
    assert alarms(150) <= 0.06


@pytest.mark.slow
def test_random_labels_warn_in_two_percent_of_samples() -> None:
    assert 0.005 <= alarms(1000) <= PICKED_AT + 3 * np.sqrt(PICKED_AT / 1000)


CALLS = {
    "crossfit": lambda X, y, U: sf.error_bound(GaussianNB(), X, y, X_unlabeled=U),
    "holdout": lambda X, y, U: sf.error_bound(GaussianNB(), X, y, X_unlabeled=U, method="holdout"),
    "calibrate_radius": lambda X, y, U: sf.calibrate_radius(X, y, X_unlabeled=U),
    "certify": lambda X, y, U: sf.certify(GaussianNB().fit(X, y), X, y, X_unlabeled=U, radius="calibrated", tol=0.01),
    "fit": lambda X, y, U: sf.RobustLogisticRegression("calibrated", tol=0.01).fit(X, y, X_unlabeled=U),
    "minimax": lambda X, y, U: sf.MinimaxClassifier("calibrated", tol=0.01).fit(X, y, X_unlabeled=U),
    "blocks": lambda X, y, U: sf.calibrate_radius(X, y, X_unlabeled=U, compute=sf.Compute()),
}


@pytest.mark.parametrize("name", CALLS)
def test_picked_labels_warn_where_a_bound_or_a_radius_is_estimated(name: str) -> None:
    X, y = pool()
    few, rest = picked(X)
    with warns("picked_labels", sf.PickedLabelsWarning, n_labels=50):
        CALLS[name](X[few], y[few], X[rest])


def quiet(call: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", sf.PickedLabelsWarning)
        call()


@pytest.mark.parametrize("name", CALLS)
def test_random_labels_do_not_warn(name: str) -> None:
    X, y = pool(seed=2)
    quiet(lambda: CALLS[name](X[:50], y[:50], X[50:]))


def test_nothing_is_said_where_labels_need_not_be_random() -> None:
    X, y = pool()
    few, rest = picked(X)
    A, b, U = X[few], y[few], X[rest]
    clf = GaussianNB().fit(A, b)
    for call in (
        lambda: sf.RobustLogisticRegression(tol=0.01).fit(A, b, X_unlabeled=U),
        lambda: sf.certify(clf, A, b, X_unlabeled=U, radius=5.0, loss="zero_one"),
        lambda: sf.calibrate_radius(A, b, X_target=U),
        lambda: sf.error_bound(clf, A, b, X_target=U),
        lambda: sf.error_bound(clf, A, b),
        lambda: sf.error_bound(clf, A, b, X_unlabeled=U, cv_groups=np.arange(50) // 2),
        lambda: sf.calibrate_radius(A, b, X_unlabeled=U, sample_weight=np.linspace(1, 2, 50)),
    ):
        quiet(call)


def test_rows_that_cannot_be_compared_are_not_tested() -> None:
    X, _ = pool()
    few, rest = picked(X)
    texts = pd.DataFrame({"a": X[:, 0].astype(str), "b": X[:, 1]})
    assert sample_p_value(texts.iloc[few], texts.iloc[rest]) is None
    assert sample_p_value(X[few][:9], X[rest]) is None
    gap = X.copy()
    gap[few[0], 1] = np.nan
    assert sample_p_value(gap[few], gap[rest]) is None
    numbers = pd.DataFrame(X)
    assert sample_p_value(numbers.iloc[few], numbers.iloc[rest]) == sample_p_value(X[few], X[rest]) <= PICKED_AT


def test_rows_that_repeat_are_compared_as_often_as_they_occur() -> None:
    """2,000 unlabeled rows on four points are one row each in a fit; the labels are a sample of the 2,000."""
    rng = np.random.default_rng(0)
    points, shares = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [0.7, 0.1, 0.1, 0.1]
    rows = points[rng.choice(4, 2060, p=shares)]
    y = np.arange(60) % 2

    def fit(X: np.ndarray) -> None:
        sf.RobustLogisticRegression("calibrated", tol=0.01).fit(X, y, X_unlabeled=rows[60:])

    quiet(lambda: fit(rows[:60]))
    with warns("picked_labels", sf.PickedLabelsWarning):
        fit(points[np.arange(60) % 4])  # as often as they occur among different rows


def test_a_table_says_so_in_one_note(tmp_path: Any) -> None:
    X, y = pool(N=300)
    few, _ = picked(X)
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"]).assign(label=None)
    notes = []
    for chosen in (few, np.random.default_rng(2).permutation(300)[:50]):
        path = tmp_path / "pool.csv"
        labeled = frame.copy()
        labeled.loc[chosen, "label"] = np.where(y[chosen] == 1, "yes", "no")
        labeled.to_csv(path, index=False)
        table = clean(read_labeled_table(path, "label"))
        notes.append(about_sample(LabeledTable.from_pool(table, np.zeros(300, dtype=bool))))
        known = LabeledTable.from_pool(table, np.isin(np.arange(300), chosen[:45]))  # five random labels are too few
        assert about_sample(known) == []
    (note,), none = notes
    assert none == []
    assert note.code is Code.UNLIKE_SAMPLE
    assert note.parameters["n_labels"] == 50
    assert note.parameters["p_value"] <= PICKED_AT


def test_the_bound_itself_stays_what_it_was() -> None:
    X, y = pool()
    few, rest = picked(X)
    with warns("picked_labels", sf.PickedLabelsWarning):
        found = sf.error_bound(LogisticRegression(), X[few], y[few], X_unlabeled=X[rest])
    assert found.value == sf.error_bound(LogisticRegression(), X[few], y[few]).value
