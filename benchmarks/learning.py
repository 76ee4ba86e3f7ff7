"""Rows of the benchmark for training: the exact solver against the paper's Algorithm 1, and its memory."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parent))
from algorithm1 import best_learning_rate, dual_value, run_algorithm1
from common import LearningProblem, Row, learning_problem, peak_memory, timed

from surefoot.dual.models import DualPoint, FeatureBlock, LinearModel, standardize
from surefoot.dual.row_sums import WeightedRows
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.minimal_radius import MinimalRadius, solve_minimal_radius
from surefoot.solvers.search.solution import Solution, solve_certified

_TOL = 1e-4


def build(problem: LearningProblem) -> tuple[DecisionSet, LinearModel]:
    """The decision set with its distances, and the design matrix: given to both sides."""
    ds = build_decision_set(
        problem.X,
        problem.codes,
        2,
        X_unlabeled=problem.X_unlabeled,
        label_prior=problem.label_probabilities,
        radius=problem.radius,
    )
    rows = np.vstack([problem.X, problem.X_unlabeled])
    return ds, standardize(FeatureBlock(rows, ds.row_weights), 0.0, True).model(rows, 2, 0.0)


def solve(ds: DecisionSet, model: LinearModel, n_jobs: int) -> Solution:
    """Ours: minimal radius, path, certificate."""
    return solve_certified(ds, model, tol=_TOL, minimal=solve_minimal_radius(ds), n_jobs=n_jobs)


def speed_rows(N: int, n: int, steps: int, repeat: int) -> list[Row]:
    """Ours with one and two threads, each against Algorithm 1 as printed and with our class-by-class max."""
    problem = learning_problem(N, n)
    ds, model = build(problem)
    rows = np.vstack([problem.X, problem.X_unlabeled])
    plain = np.hstack([rows, np.ones((N, 1))])  # the paper's features: no further scaling
    solve(ds, model, 1)  # compile
    rate, _ = best_learning_rate(ds, plain, steps=steps)
    printed = timed(partial(run_algorithm1, ds, plain, learning_rate=rate, steps=steps), 1)
    separate = timed(partial(run_algorithm1, ds, plain, learning_rate=rate, steps=steps, separate=True), 1)
    reached = dual_value(ds, plain, *printed.result)
    table: list[Row] = []
    for n_jobs in (1, 2):
        ours = timed(partial(solve, ds, model, n_jobs), repeat)
        solution = ours.result
        for name, other in (("as printed", printed), ("with our max by class", separate)):
            table.append(
                {
                    "work": f"learn, N={N}, n={n}, d={problem.X.shape[1]}, {n_jobs} thread{'s' * (n_jobs > 1)}",
                    "ours_seconds": ours.median,
                    "reference": f"Algorithm 1 {name}, {steps} Adam steps, rate {rate:g}",
                    "reference_seconds": other.median,
                    "ratio": other.median / ours.median,
                    "gap": solution.gap,
                    "note": f"reference ends {reached - solution.lower:.1e} above our lower bound; {problem.note}",
                }
            )
    return table


def subnormal_rows(N: int, n: int) -> list[Row]:
    """Second-order sums at a τ where a third of the weights have subnormal products in float32, against one without."""
    rng = np.random.default_rng(0)
    D = rng.uniform(size=(N, n))
    D[:, 0] = 0.0
    labels = np.sort(rng.integers(2, size=n))
    weights = np.full(n, 1.0 / n)
    ds = DecisionSet(D, np.full(N, 1.0 / N), weights, labels, 1.0 - np.eye(2), np.tile([0.0, 1.0], (2, 1)), 1.0)
    rows = WeightedRows(ds, D, ds.row_weights, LinearModel(np.ones((N, 1)), np.zeros(1), 2), rough=True)
    point = DualPoint(np.zeros((1, 1)), 1.0, np.zeros(2), np.zeros(n))
    rows.sums(point, 0.05, second_order=True)  # compile
    few, none = (timed(partial(rows.sums, point, tau, second_order=True), 5).median for tau in (0.01, 0.05))
    return [
        {
            "work": f"sums with subnormal weights, N={N}, n={n}",
            "ours_seconds": few,
            "reference": "the same sums without",
            "reference_seconds": none,
            "ratio": none / few,
            "note": "about 1 unless subnormal numbers reach a product",
        }
    ]


def _prepare(N: int, n: int) -> tuple[LearningProblem, MinimalRadius]:
    problem = learning_problem(N, n)
    ds, model = build(learning_problem(400, 20))
    solve(ds, model, 1)  # compile
    return problem, solve_minimal_radius(build(problem)[0])


def _fit(prepared: tuple[LearningProblem, MinimalRadius]) -> None:
    solve(*build(prepared[0]), 1)


def _fit_with_radius_known(prepared: tuple[LearningProblem, MinimalRadius]) -> None:
    problem, minimal = prepared
    solve_certified(*build(problem), tol=_TOL, minimal=minimal)


def memory_rows(N: int, n: int) -> list[Row]:
    """Peak memory of a fit, distances included, against the distances alone; with and without POT's simplex."""
    table: list[Row] = []
    for name, work in (("a fit", _fit), ("a fit, minimal radius known", _fit_with_radius_known)):
        peak = peak_memory(work, partial(_prepare, N, n))
        table.append(
            {
                "work": f"memory of {name}, N={N}, n={n}",
                "ours_bytes": peak,
                "reference": "the N by n distances in float64",
                "reference_bytes": 8 * N * n,
                "ratio": peak / (8 * N * n),
                "note": "peak growth of a fresh process, design matrix included",
            }
        )
    return table


def rows(quick: bool = False) -> list[Row]:
    """All rows; `quick` shrinks the problems to a smoke test."""
    with threadpool_limits(1, user_api="blas"):
        if quick:
            return [*speed_rows(500, 20, 500, 1), *subnormal_rows(1000, 300), *memory_rows(2000, 50)]
        table = [*speed_rows(10_000, 100, 40_000, 3), *speed_rows(10_000, 1000, 40_000, 3)]
        table += subnormal_rows(10_000, 1000)
        return [*table, *memory_rows(10_000, 100), *memory_rows(10_000, 1000)]


if __name__ == "__main__":
    for row in rows(quick="--quick" in sys.argv):
        print(row)
