"""Active-learning rows of the benchmark: exact robust scores against the paper's Algorithm 2 and scikit-activeml."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import ROOT, Array, LearningProblem, Row, learning_problem, markdown_table, timed, write_csv

import surefoot.active as al
from surefoot.active.flexibility import LabelFlexibility
from surefoot.active.impact import logistic_impact
from surefoot.paper.algorithms import PAPER_STEPS, algorithm2_score
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.minimal_radius import solve_minimal_radius

# First step sizes of Algorithm 2, which the paper does not name.
LEARNING_RATES = (1.0, 3e-1, 1e-1, 3e-2, 1e-2)


def run_algorithm2(ds: DecisionSet, row: int, impact: Array, *, learning_rate: float, steps: int = 50_000) -> float:
    """The score that the paper's Algorithm 2 returns for one candidate: a lower bound of the exact score."""
    return algorithm2_score(ds, row, impact, replace(PAPER_STEPS, learning_rate=learning_rate, n_steps=steps))


def best_rate(ds: DecisionSet, row: int, impact: Array, steps: int) -> tuple[float, float]:
    """The rate with the largest score, and that score: not part of any timing."""
    scores = {rate: run_algorithm2(ds, row, impact, learning_rate=rate, steps=steps) for rate in LEARNING_RATES}
    rate = max(scores, key=scores.__getitem__)
    return rate, scores[rate]


def build(problem: LearningProblem, margin: float) -> DecisionSet:
    """The decision set at the minimal radius plus the margin, with its distances: given to both sides."""
    ds = build_decision_set(
        problem.X, problem.codes, 2, X_unlabeled=problem.X_unlabeled, label_prior=problem.label_probabilities
    )
    return ds.with_radius(solve_minimal_radius(ds).value + margin)


def score(ds: DecisionSet, n: int, margin: float, impact: Array) -> Array:
    """Ours, the transport problem included: the scores of all unlabeled rows."""
    rows = np.arange(n, len(ds.row_weights))
    return LabelFlexibility(ds, rows, np.arange(ds.n_classes), margin).least_expectation(impact)


def score_rows(N: int, n: int, steps: int, repeat: int) -> list[Row]:
    """All rows exactly, at three margins, against one candidate of Algorithm 2."""
    problem = learning_problem(N, n)
    clf = LogisticRegression(C=500.0, max_iter=1000).fit(problem.X, problem.codes)
    impact = logistic_impact(clf, problem.X_unlabeled)
    table: list[Row] = []
    for share in (0.0, al.DEFAULT_MARGIN, 1.0):
        margin = share / N
        ds = build(problem, margin)
        score(ds, n, margin, impact)  # compile
        ours = timed(partial(score, ds, n, margin, impact), repeat)
        candidate = n + int(np.argmax(ours.result))
        f = impact[candidate - n]
        rate, reached = best_rate(ds, candidate, f, steps)
        other = timed(partial(run_algorithm2, ds, candidate, f, learning_rate=rate, steps=steps), 1)
        above = float(np.mean(ours.result > impact.min(axis=1) * (1 + 1e-9)))
        table.append(
            {
                "work": f"robust scores of all {N - n} rows, N={N}, n={n}, margin {share:g} κ/N",
                "ours_seconds": ours.median,
                "reference": f"Algorithm 2, one candidate, {steps} steps of batch 100, rate {rate:g}",
                "reference_seconds": other.median,
                "ratio": other.median / ours.median,
                "gap": float(ours.result[candidate - n]) - reached,
                "note": f"gap: our exact score less the reference's; {above:.1%} of scores above the least impact; "
                f"{problem.note}",
            }
        )
    return table


def query_rows(N: int, n: int, n_candidates: int, repeat: int) -> list[Row]:
    """One query over all unlabeled rows against scikit-activeml's expected error reduction over few candidates."""
    from skactiveml.classifier import SklearnClassifier
    from skactiveml.pool import MonteCarloEER

    problem = learning_problem(N, n)
    X = np.vstack([problem.X, problem.X_unlabeled])
    y = np.concatenate([problem.codes.astype(float), np.full(len(problem.X_unlabeled), np.nan)])
    clf = LogisticRegression(C=500.0, max_iter=1000)
    wrapped = SklearnClassifier(clf, classes=[0, 1], random_state=0)
    candidates = np.random.default_rng(0).choice(np.arange(n, N), n_candidates, replace=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reduction = MonteCarloEER(method="misclassification_loss", random_state=0)
        other = timed(partial(reduction.query, X, y, clf=wrapped, candidates=candidates), 1)
    strategies: dict[str, Any] = {
        "DR (strong)": al.RobustModelChange(label_prior=problem.label_probabilities, random_state=0),
        "DR (weak)": al.RobustModelChange(random_state=0),
        "Min MC": al.MinModelChange(random_state=0),
    }
    table: list[Row] = []
    for name, strategy in strategies.items():
        strategy.query(X, y, clf)
        ours = timed(partial(strategy.query, X, y, clf), repeat)
        table.append(
            {
                "work": f"query over {N - n} rows, n={n}: {name}",
                "ours_seconds": ours.median,
                "reference": f"scikit-activeml's expected error reduction, {n_candidates} candidates",
                "reference_seconds": other.median,
                "ratio": other.median / ours.median,
                "note": f"fit of the classifier and distances included; {problem.note}",
            }
        )
    return table


def many_class_rows(N: int, n: int, n_classes: tuple[int, ...]) -> list[Row]:
    """More classes than two: all rows exactly, on synthetic clusters."""
    table: list[Row] = []
    for K in n_classes:
        rng = np.random.default_rng(K)
        codes: NDArray[np.intp] = rng.permutation(np.arange(N) % K)
        X = rng.normal(size=(K, 10))[codes] + rng.normal(size=(N, 10))
        ds = build_decision_set(X[:n], codes[:n], K, X_unlabeled=X[n:], label_prior=np.full(K, 1 / K))
        impact = rng.random((N - n, K))
        score(ds, n, 0.3 / N, impact)
        ours = timed(partial(score, ds, n, 0.3 / N, impact), 1)
        above = float(np.mean(ours.result > impact.min(axis=1) * (1 + 1e-9)))
        table.append(
            {
                "work": f"robust scores of all {N - n} rows, N={N}, n={n}, {K} classes, margin 0.3 κ/N",
                "ours_seconds": ours.median,
                "note": f"{above:.1%} of scores above the least impact; synthetic clusters",
            }
        )
    return table


def rows(quick: bool = False) -> list[Row]:
    """All rows; `quick` shrinks the problems to a smoke test."""
    with threadpool_limits(1, user_api="blas"):
        if quick:
            return [*score_rows(500, 20, 500, 1), *query_rows(500, 20, 10, 1), *many_class_rows(500, 20, (3,))]
        table = [*score_rows(10_000, 100, 50_000, 3), *query_rows(10_000, 100, 100, 3)]
        return [*table, *many_class_rows(10_000, 100, (3, 10))]


if __name__ == "__main__":
    found = rows(quick="--quick" in sys.argv)
    if "--quick" not in sys.argv:
        write_csv(ROOT / "benchmarks" / "results-active.csv", found)
    print(markdown_table(found))
