"""Compare the inner problem with both interior-point methods of HiGHS: IPX, and the newer HiPO.

    pip install highspy-extras
    OPENBLAS_NUM_THREADS=1 python benchmarks/hipo.py [--rows 2000] [--anchors 100]

HiGHS solves the linear program of `tests/reference/inner.py`, with crossover as in `benchmarks/certify.py`, and
without.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import highspy
import numpy as np
from certify import build, solve
from common import Array, Row, learning_problem, markdown_table, timed
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from reference.inner import PlanProgram
from surefoot.problem.losses import loss_matrix_from_proba
from surefoot.problem.sets import DecisionSet


def program(ds: DecisionSet, losses: Array) -> highspy.HighsLp:
    """The supremum of Σ π ℓ over the plans of a decision set, as input for HiGHS."""
    plans = PlanProgram.build(
        ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals
    ).within(ds.radius)
    matrix = sparse.vstack([plans.equalities, plans.inequalities]).tocsc()
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = matrix.shape
    lp.col_cost_ = -np.repeat(losses.ravel(), ds.distances.shape[1])
    lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.full(lp.num_col_, highspy.kHighsInf)
    below = np.full(len(plans.at_most), -highspy.kHighsInf)
    lp.row_lower_ = np.concatenate([plans.equal_to, below])
    lp.row_upper_ = np.concatenate([plans.equal_to, plans.at_most])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    return lp


def optimum(lp: highspy.HighsLp, n_rows: int, solver: str, crossover: str) -> float:
    highs = highspy.Highs()
    options = {"output_flag": False, "solver": solver, "run_crossover": crossover, "threads": 1}
    for name, value in options.items():
        highs.setOptionValue(name, value)
    highs.passModel(lp)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"{solver}: {highs.modelStatusToString(highs.getModelStatus())}")
    return -highs.getInfo().objective_function_value / n_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--anchors", type=int, default=100)
    asked = parser.parse_args()
    problem = learning_problem(asked.rows, asked.anchors)
    forest = RandomForestClassifier(random_state=0).fit(problem.X, problem.codes)
    proba = forest.predict_proba(np.vstack([problem.X, problem.X_unlabeled]))
    ds, table = build(problem, problem.label_probabilities, 0.01), list[Row]()
    with threadpool_limits(1, user_api="blas"):
        for loss in ("log_loss", "zero_one"):
            losses = loss_matrix_from_proba(proba, loss)
            solve(ds, losses)  # compile
            ours, lp = timed(partial(solve, ds, losses), 3), program(ds, losses)
            for solver in ("ipx", "hipo"):
                for crossover in ("on", "off"):
                    other = timed(partial(optimum, lp, asked.rows, solver, crossover), 1)
                    row: Row = {"loss": loss, "solver": solver, "crossover": crossover, "ours_seconds": ours.median}
                    row |= {"its_seconds": other.median, "ratio": other.median / ours.median}
                    table.append(row | {"apart": f"{abs(ours.result.risk - other.result):.1e}"})
                    print(markdown_table(table[-1:]), flush=True)
    print(markdown_table(table))


if __name__ == "__main__":
    main()
