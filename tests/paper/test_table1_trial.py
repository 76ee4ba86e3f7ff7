"""The trials of Table 1 against the library: same picks and likelihoods as `simulate` with the public strategies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import surefoot.active as al
from surefoot.active.impact import logistic_impact
from surefoot.datasets._catalogue import standardize
from surefoot.paper.table1_trial import METHODS, LogisticFits, Reading, RobustSets, impact_norms, run_trial

READING = Reading(penalty=5e-3)
CLF = LogisticRegression(C=100.0, solver="liblinear", tol=1e-13, max_iter=10_000)


def data(n_features: int = 30) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    if n_features > X.shape[1]:  # more features than labels: fitted in the span of the labeled rows
        X = np.hstack([X, np.random.default_rng(0).normal(size=(len(X), n_features - X.shape[1]))])
    return standardize(X)[::2], y[::2]


def impact(norm: str, clf: Any, X: np.ndarray) -> np.ndarray:
    return logistic_impact(clf, X, feature_norm=False) * impact_norms(X, norm)[:, None]


def public_strategies(reading: Reading, intervals: Any, strong: np.ndarray) -> dict[str, Any]:
    """The strategies of surefoot.active that a reading stands for."""
    robust = partial(
        al.RobustModelChange,
        margin=reading.margin,
        impact=partial(impact, reading.robust_norm),
        max_candidates=reading.robust_candidates,
    )
    few = {"max_candidates": reading.max_candidates}
    return {
        "random": al.RandomSampling(),
        "emc": al.ExpectedModelChange(partial(impact, reading.emc_norm), **few),
        "min_mc": al.MinModelChange(partial(impact, reading.min_max_norm), **few),
        "max_mc": al.MaxModelChange(partial(impact, reading.min_max_norm), **few),
        "dr_strong": robust(label_prior=strong),
        "dr_weak": robust(label_prior=intervals),
    }


@pytest.mark.parametrize(
    ("reading", "n_features"),
    [
        (READING, 30),
        # a margin that leaves the adversary short of some labels
        (replace(READING, margin=2e-5, robust_candidates=None), 150),
        (
            replace(
                READING, margin=2e-5, robust_norm="none", emc_norm="x and 1", min_max_norm="none", max_candidates=30
            ),
            30,
        ),
    ],
    ids=["settled", "small margin", "other norms"],
)
def test_picks_and_likelihoods_are_those_of_simulate(reading: Reading, n_features: int) -> None:
    X, y = data(n_features)
    first_labels, last = 12, 20
    rng = np.random.default_rng([0, 0])  # as in `simulate`: the first rows, then the strategy's seed
    first = rng.choice(len(X), first_labels, replace=False)
    seed = int(rng.integers(2**31))
    found = run_trial(X, y, first, [seed] * len(METHODS), reading, METHODS, last)
    intervals = RobustSets(X, y, first, reading.margin).intervals("dr_weak")
    strategies = public_strategies(reading, intervals, np.bincount(y) / len(y))
    for m, method in enumerate(METHODS):
        whole = al.simulate(strategies[method], CLF, X, y, n_initial=first_labels, n_labels=last, n_trials=1)
        assert found.picks[m].tolist() == whole.picks[0].tolist(), method
        np.testing.assert_allclose(found.scores[m], whole.scores[0], rtol=1e-6)
    if reading.margin < 1e-3:
        assert found.not_least[METHODS.index("dr_strong")] > 0  # the exact scores were needed


def optimal_decision(X: np.ndarray, y: np.ndarray, rows: np.ndarray, reading: Reading) -> np.ndarray:
    """Scores of all rows by L-BFGS on the objective as it is written down."""
    signs, d = 2.0 * y[rows] - 1.0, X.shape[1]
    weight = reading.penalty * (len(rows) if reading.losses == "mean" else 1)
    constant = float(reading.intercept != "none")
    counts = np.append(np.ones(d), reading.intercept == "penalised")

    def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
        z = signs * (X[rows] @ v[:-1] + constant * v[-1])
        slope = -signs / (1.0 + np.exp(z))
        gradient = np.append(X[rows].T @ slope, constant * slope.sum()) + 2.0 * weight * counts * v
        return np.logaddexp(0.0, -z).sum() + weight * (counts * v**2).sum(), gradient

    options = {"gtol": 1e-10, "ftol": 1e-16, "maxiter": 10_000, "maxfun": 20_000, "maxcor": 50}
    best = minimize(objective, np.zeros(d + 1), jac=True, method="L-BFGS-B", options=options).x
    return X @ best[:-1] + constant * best[-1]


@pytest.mark.parametrize(("losses", "intercept"), [("sum", "penalised"), ("sum", "free"), ("mean", "none")])
@pytest.mark.parametrize("n_features", [30, 150])
def test_fits_are_optimal(losses: Any, intercept: Any, n_features: int) -> None:
    X, y = data(n_features)
    reading = Reading(penalty=1e-2, losses=losses, intercept=intercept)
    picks = np.random.default_rng(1).permutation(len(X))[:40].reshape(2, 20)
    picks[1, 5] = picks[1, 4]  # a row twice adds no direction
    decision = LogisticFits(X, y, picks, 20, reading).decision()
    for m in range(2):
        np.testing.assert_allclose(decision[m], optimal_decision(X, y, picks[m], reading), atol=1e-5)


@pytest.mark.parametrize(("solver", "intercept"), [("liblinear", "penalised"), ("lbfgs", "free")])
def test_fits_by_scikit_learn_are_near_the_exact_ones(solver: Any, intercept: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    y = (X[:, 0] + 0.5 * rng.normal(size=200) > 0).astype(np.int64)
    picks = np.array([np.arange(40), np.arange(40, 80)])
    exact, theirs = (
        LogisticFits(X, y, picks, 40, Reading(penalty=0.05, intercept=intercept, solver=one)).decision()
        for one in ("newton", solver)
    )
    np.testing.assert_allclose(theirs, exact, atol=2e-2)
    assert not np.array_equal(theirs, exact)


def test_the_paper_s_margin_forces_any_label_from_2000_rows_on() -> None:
    rng = np.random.default_rng(0)
    X = standardize(rng.normal(size=(2000, 3)))
    y = (X[:, 0] + 0.3 * rng.normal(size=2000) > 0).astype(int)
    first = rng.choice(2000, 20, replace=False)
    rest = np.setdiff1d(np.arange(2000), first)
    f = rng.random((len(rest), 2))
    sets = RobustSets(X, y, first, al.PAPER_MARGIN)
    for method in ("dr_strong", "dr_weak"):
        exact = al.label_flexibility(
            X[first], y[first], X_unlabeled=X[rest], margin=al.PAPER_MARGIN, label_prior=sets.intervals(method)
        )
        assert sets.excess(method, first) == pytest.approx(exact.excess, abs=1e-12)
        np.testing.assert_array_equal(exact.least_expectation(f), f.min(axis=1))
    intervals = al.label_flexibility(
        X[first], y[first], X_unlabeled=X[rest], margin=al.PAPER_MARGIN, label_prior=sets.intervals("dr_strong")
    ).intervals
    np.testing.assert_allclose(intervals, np.broadcast_to([0.0, 1.0], intervals.shape), atol=1e-9)


def test_the_robust_strategies_are_min_mc_over_the_same_candidates() -> None:
    rng = np.random.default_rng(3)
    X = standardize(rng.normal(size=(2000, 4)))
    y = (X[:, 0] + 0.3 * rng.normal(size=2000) > 0).astype(int)
    first = rng.choice(2000, 20, replace=False)
    reading = replace(READING, min_max_norm="x and 1", max_candidates=100)
    found = run_trial(X, y, first, [7, 7, 7], reading, ("min_mc", "dr_strong", "dr_weak"), 40)
    assert (found.picks == found.picks[0]).all()
    other = run_trial(X, y, first, [7, 8, 9], reading, ("min_mc", "dr_strong", "dr_weak"), 40)
    assert len({tuple(row) for row in other.picks.tolist()}) == 3  # the candidates alone make the columns differ


@pytest.mark.parametrize("method", ["dr_strong", "dr_weak"])
@pytest.mark.parametrize("margin", [1e-5, 1e-4, 1e-3])
def test_rows_that_are_not_looked_at_could_not_be_picked(method: str, margin: float) -> None:
    X, y = data()
    rng = np.random.default_rng(2)
    for _ in range(5):
        labeled = rng.choice(len(X), 15, replace=False)
        rest = np.setdiff1d(np.arange(len(X)), labeled)
        decision = 3.0 * rng.normal(size=len(rest))
        impact = np.column_stack([1.0 / (1.0 + np.exp(-decision)), 1.0 / (1.0 + np.exp(decision))])
        sets = RobustSets(X, y, labeled, margin)
        found = sets.scores(method, impact.min(axis=1), decision, rest, labeled)
        exact = al.robust_model_change(
            impact, X[np.sort(labeled)], y[np.sort(labeled)], X_unlabeled=X[rest], margin=margin,
            label_prior=sets.intervals(method),
        )  # fmt: skip
        assert found.max() == pytest.approx(exact.max(), rel=1e-9)
        assert np.argmax(found) == np.argmax(exact)
        assert (found <= exact + 1e-12).all()
