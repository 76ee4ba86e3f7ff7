"""Rows of the benchmark for fixed losses: certify a random forest, against one transport problem and against HiGHS."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import ot
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from common import ROOT, Array, LearningProblem, Row, learning_problem, markdown_table, timed, write_csv

import surefoot as sf
from reference.inner import inner_reference
from surefoot.dual.models import FixedLosses
from surefoot.problem.losses import loss_matrix_from_proba
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.minimal_radius import solve_minimal_radius
from surefoot.solvers.search.solution import Solution, solve_certified

_TOL = 1e-6


def build(problem: LearningProblem, prior: object, excess: float) -> DecisionSet:
    ds = build_decision_set(problem.X, problem.codes, 2, X_unlabeled=problem.X_unlabeled, label_prior=prior)
    return ds.with_radius(solve_minimal_radius(ds).value + excess)


def solve(ds: DecisionSet, losses: Array, n_jobs: int = 1) -> Solution:
    """Everything that `certify` does after the distances: minimal radius, worst case, and both bounds."""
    return solve_certified(ds, FixedLosses(losses), tol=_TOL, minimal=solve_minimal_radius(ds), n_jobs=n_jobs)


def emd(ds: DecisionSet) -> Array:
    return ot.emd(ds.row_weights, ds.anchor_weights, ds.distances, numItermax=10_000_000)


def highs(ds: DecisionSet, losses: Array) -> float:
    return inner_reference(
        losses, ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals,
        ds.radius, method="highs-ipm",
    )["value"]  # fmt: skip


def settings(problem: LearningProblem) -> list[tuple[str, DecisionSet]]:
    """The true excess with known label probabilities, and the same excess with Clopper–Pearson intervals."""
    strong = build_decision_set(
        problem.X, problem.codes, 2, X_unlabeled=problem.X_unlabeled, label_prior=problem.label_probabilities
    )
    excess = problem.radius - solve_minimal_radius(strong).value
    weak = build(problem, "clopper-pearson", excess)
    return [("strong prior", strong.with_radius(problem.radius)), ("weak prior", weak)]


def speed_rows(N: int, n: int, repeat: int, against_highs: bool) -> list[Row]:
    problem = learning_problem(N, n)
    forest = RandomForestClassifier(random_state=0).fit(problem.X, problem.codes)
    proba = forest.predict_proba(np.vstack([problem.X, problem.X_unlabeled]))
    table: list[Row] = []
    for prior, ds in settings(problem):
        for loss in ("log_loss", "zero_one"):
            losses = loss_matrix_from_proba(proba, loss)
            solve(ds, losses)  # compile
            if against_highs and prior == "weak prior":
                continue  # one prior is enough of a wait
            other = timed(partial(highs, ds, losses), 1) if against_highs else timed(partial(emd, ds), repeat)
            ours = timed(partial(solve, ds, losses), repeat)
            apart = f", {abs(ours.result.risk - other.result):.1e} from ours" if against_highs else ""
            table.append(
                {
                    "work": f"certify a forest, {loss}, {prior}, N={N}, n={n}",
                    "ours_seconds": ours.median,
                    "reference": f"HiGHS interior point{apart}"
                    if against_highs
                    else "one ot.emd on the same distances",
                    "reference_seconds": other.median,
                    "ratio": other.median / ours.median,
                    "gap": ours.result.gap,
                    "note": problem.note,
                }
            )
    return table


def path_rows(N: int, n: int, repeat: int) -> list[Row]:
    """A path of 16 radii against single fits."""
    problem = learning_problem(N, n)
    data = {"X_unlabeled": problem.X_unlabeled}
    clf = sf.RobustLogisticRegression(radius=problem.radius, label_prior=problem.label_probabilities)
    clf.fit(problem.X, problem.codes, **data)  # compile
    path = timed(partial(sf.radius_curve, clf, problem.X, problem.codes, **data), repeat)

    def singles() -> None:
        warnings.simplefilter("ignore", ConvergenceWarning)  # separable at small radii, in both
        for radius in path.result.radii:
            sf.RobustLogisticRegression(radius=radius, label_prior=problem.label_probabilities).fit(
                problem.X, problem.codes, **data
            )

    other = timed(singles, 1)
    m = len(path.result.radii)
    return [
        {
            "work": f"radius path, {m} radii, N={N}, n={n}",
            "ours_seconds": path.median,
            "reference": f"{m} single fits",
            "reference_seconds": other.median,
            "ratio": other.median / path.median,
            "gap": float(np.max(path.result.risk - path.result.lower)),
            "note": f"as cheap as {m * path.median / other.median:.1f} single fits; {problem.note}",
        }
    ]


def rows(quick: bool = False) -> list[Row]:
    """All rows; `quick` shrinks the problems to a smoke test."""
    with threadpool_limits(1, user_api="blas"):
        if quick:
            return [*speed_rows(500, 20, 1, False), *speed_rows(200, 20, 1, True), *path_rows(300, 20, 1)]
        table = [*speed_rows(10_000, 100, 5, False), *speed_rows(2000, 100, 5, True)]
        return [*table, *path_rows(10_000, 100, 1)]


if __name__ == "__main__":
    found = rows(quick="--quick" in sys.argv)
    if "--quick" not in sys.argv:
        write_csv(ROOT / "benchmarks" / "results-certify.csv", found)
    print(markdown_table(found))
