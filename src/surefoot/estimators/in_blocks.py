"""Fits of the robust linear classifier over rows in blocks: glue between the estimator and `surefoot.blocks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._types import FloatArray
from surefoot._validation import check_n_jobs, check_positive_integer, check_positive_scalar, check_unit_scalar
from surefoot.blocks.learning import Learned, learn
from surefoot.blocks.newton import Newton
from surefoot.blocks.problem import BlockProblem, block_problem
from surefoot.blocks.sources import RowSource, sample_rows
from surefoot.calibration import Calibrated
from surefoot.costs import resolve_metric
from surefoot.dual.design import StandardizedRows
from surefoot.estimators.base import check_labeled
from surefoot.exact.solution import solver_threads
from surefoot.problem.rows import LabeledData
from surefoot.radius import as_robust_as_possible
from surefoot.solvers.minimal import solve_minimal_radius
from surefoot.solvers.newton import NewtonOptions, PathPoint

# radius="auto" looks at the confidence over a sample of so many rows.
_AUTO_ROWS = 10_000


def fit_in_blocks(
    estimator: Any,
    radius: float | str | Calibrated,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    source: RowSource | None,
    on_round: Callable[[PathPoint], None],
) -> Learned:
    """Fit a `RobustLogisticRegression` to labeled rows and a source of others; sets classes_ and the feature names."""
    how = estimator.solver if isinstance(estimator.solver, Newton) else Newton()
    if not isinstance(estimator.solver, Newton) and estimator.solver != "newton":
        raise ValueError(
            f'rows in blocks need solver="newton" or Newton(...); got {estimator.solver!r}. Pass one of these, or rows '
            "in memory."
        )
    tol, l2 = check_positive_scalar(estimator.tol, "tol"), check_positive_scalar(estimator.l2, "l2", allow_zero=True)
    confidence = check_unit_scalar(estimator.confidence, "confidence")
    options = NewtonOptions(max_steps=check_positive_integer(estimator.max_iter, "max_iter"))
    rows, codes, weights = check_labeled(estimator, X, y, sample_weight, estimator.classes)
    data = LabeledData(rows, codes, weights, None, estimator.classes_, resolve_metric(estimator.metric))
    ds = data.decision_set(estimator.label_prior, estimator.label_cost)
    with solver_threads(check_n_jobs(estimator.n_jobs)) as executor:
        problem = block_problem(data, ds, source, options=options, make_sweep=how.sweep_maker(None, executor))
        return learn(
            problem,
            radius,
            l2=l2,
            fit_intercept=estimator.fit_intercept,
            tol=tol,
            auto_excess=lambda: auto_excess(problem, l2, estimator.fit_intercept, confidence),
            on_round=on_round,
        )


def auto_excess(problem: BlockProblem, l2: float, fit_intercept: bool, confidence: float) -> float:
    """The excess radius that the as-robust-as-possible rule finds on a sample of rows."""
    data = problem.data
    rows: FloatArray = data.rows[:0]
    if problem.source is not None:
        rows = sample_rows(problem.source, _AUTO_ROWS, np.random.default_rng(0))[0]
    ds = replace(data, unlabeled=rows).decision_set(None, problem.decision_set.label_cost)
    ds = replace(ds, intervals=problem.decision_set.intervals)
    minimal = solve_minimal_radius(ds)
    design = StandardizedRows.of(np.vstack([data.rows, rows]), ds.row_weights, len(data.classes), l2, fit_intercept)
    search = as_robust_as_possible(ds, design.model, minimal, confidence=confidence, tol=1e-3)
    return search.radius - minimal.value
