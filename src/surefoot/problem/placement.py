"""Build a robust problem from the arguments of a function, in memory or in blocks.

The storage of the rows must not change the result: an array, a memory map, Parquet files and a Dask collection give the
same certificate. The number of distances decides where the problem is solved. Few rows are read into memory, whatever
their storage. Many rows are processed in blocks, even if they are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.utils import _safe_indexing

from surefoot._errors import CodedWarning, ParameterError, warn_caller
from surefoot._printing import in_words
from surefoot._validation import (
    FloatArray,
    check_more_rows,
    check_n_jobs,
    check_positive_scalar,
    check_same_names,
    is_source,
)
from surefoot.backends.blocks import BlockedProblem
from surefoot.backends.compute import Compute
from surefoot.backends.dask_rows import DaskRows
from surefoot.backends.sources import ArrayRows, RowSource, StackedRows, as_source, sample_rows
from surefoot.costs.metrics import FeatureMetric, Precomputed
from surefoot.priors import LabelPrior, resolve_prior
from surefoot.problem.robust import InMemoryProblem, RobustProblem
from surefoot.problem.rows import (
    COMPARED,
    TARGET,
    UNLABELED,
    LabeledData,
    choose_marginal,
    fingerprints,
    settle_ground_cost,
    unwrap,
    warn_about_unlabeled,
)
from surefoot.solvers.transport import EqualRows

# Problems with at most this many distances, 128 MiB, are solved in memory. Larger problems are faster and take less
# memory in blocks.
MOST_DISTANCES = 1 << 24
# With fewer unlabeled rows than this, a solve takes well under a second, so merging equal rows is not worthwhile.
_FEWEST_MERGED = 1000
# Processor seconds of a solve with two classes: per distance, and for n = 1,000 anchors. The second part grows with
# n^2.5. K classes take (K/2)^1.5 times as long. Fitted to default fits of 3,000 to 10^6 rows with 100 to 2,000 labels.
_PER_DISTANCE, _PER_ANCHORS, _ANCHORS_GROWTH, _CLASSES_GROWTH = 3.3e-7, 10.0, 2.5, 1.5
# A solve that is expected to take longer than this many seconds is announced.
_LONG = 60.0
# The number of solves of this size in one call (see `repeated_solves`).
_SOLVES: ContextVar[int] = ContextVar("_SOLVES", default=1)
# Equal rows are merged only if a random sample of this size contains equal rows.
_TRIED = 4096


@dataclass(frozen=True, eq=False)
class RowPlacement:
    """Unlabeled rows for a solve in memory (`rows`) or over blocks (`source`). At most one of the two is set.

    wrapped : True if the rows came in an `Unlabeled`. name : "X_unlabeled", or "X_target" if these rows alone make up
    the feature marginal.
    """

    rows: Any
    source: RowSource | None
    wrapped: bool = False
    name: str = UNLABELED

    @property
    def in_blocks(self) -> bool:
        return self.source is not None


def place(
    X_unlabeled: Any,
    X: Any,
    n: int,
    d: int,
    *,
    X_target: Any = None,
    memory_only: bool = False,
    blocks_only: bool = False,
) -> RowPlacement:
    """Decide where unlabeled rows, or rows of a target population, are processed, given labeled rows X (n, d).

    memory_only : True if the request is not supported over blocks. Rows stored elsewhere are still placed by their
    number, because too many rows do not fit into memory.
    """
    chosen, name = choose_marginal(X_unlabeled, X_target)
    bare, wrapped = unwrap(chosen)
    if bare is None:
        return RowPlacement(None, None)
    if not _is_elsewhere(bare):
        _check_some(_length(bare), name)
        few = not blocks_only and (memory_only or (n + _length(bare)) * n <= MOST_DISTANCES)
        if few:
            return RowPlacement(bare, None, wrapped, name)
        return RowPlacement(None, _array_source(bare, X, d, name), wrapped, name)
    source = _source_of(bare, X, d, name)
    _check_some(source.n_rows, name)
    if blocks_only or (n + source.n_rows) * n > MOST_DISTANCES:
        return RowPlacement(None, source, wrapped, name)
    return RowPlacement(_named(source.read(0, source.n_rows), source, X), None, wrapped, name)


def _check_some(n_rows: int, name: str) -> None:
    if name == TARGET and n_rows == 0:
        raise ParameterError(
            "X_target", "must have at least one row", "none", "Pass rows of the target population, or omit it."
        )


def needs_memory(metric: Any, tol: float | None = None) -> bool:
    """Return True if the request requires all rows in memory."""
    return isinstance(metric, Precomputed) or (
        tol is not None and check_positive_scalar(tol, "tol") < BlockedProblem.finest
    )


def check_problem(  # noqa: PLR0913 - one keyword per part of the problem
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: Any = None,
    X_target: Any = None,
    sample_weight: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    label_prior: LabelPrior | ArrayLike | str | None = None,
    label_cost: ArrayLike = 1.0,
    compute: Compute | None = None,
    n_jobs: int | None = None,
    tol: float | None = None,
    memory_only: bool = False,
    merge: bool = False,
) -> RobustProblem:
    """Build the robust problem from the arguments of a function, and raise an error for each invalid argument.

    merge : as for `robust_problem`.
    """
    data = LabeledData.check(X, y, sample_weight=sample_weight, classes=classes, metric=metric)
    memory_only = memory_only or needs_memory(data.metric, tol)
    blocks_only = check_compute(compute) is not None
    placed = place(
        X_unlabeled, X, *data.rows.shape, X_target=X_target, memory_only=memory_only, blocks_only=blocks_only
    )
    if placed.rows is not None:
        check_same_names(X, placed.rows, placed.name)
        placed = replace(placed, rows=check_more_rows(placed.rows, placed.name, data.rows.shape[1]))
    placed = replace(placed, wrapped=True)  # cross-validation never splits the arguments of a function
    return robust_problem(data, placed, label_prior, label_cost, compute, n_jobs, merge=merge)


def robust_problem(
    data: LabeledData,
    placed: RowPlacement,
    label_prior: LabelPrior | ArrayLike | str | None,
    label_cost: ArrayLike,
    compute: Compute | None,
    n_jobs: int | None,
    *,
    merge: bool = False,
) -> RobustProblem:
    """Build the robust problem of checked labeled rows and placed unlabeled rows. Warn about two common mistakes.

    merge : merge equal unlabeled rows into one row of the problem if there are many. The result is the same. Only
    `InMemoryProblem.over_all_rows` returns values in the order of the rows passed.
    """
    n_jobs = check_n_jobs(n_jobs)
    data = replace(data, target=placed.name == TARGET)
    known: dict[str, Any] = {"wrapped": placed.wrapped, "name": placed.name}
    if placed.rows is not None:
        warn_about_unlabeled(data.rows, placed.rows, len(placed.rows), **known)
    elif placed.source is not None:
        seen = sample_rows(placed.source, COMPARED, np.random.default_rng(0))[0]
        warn_about_unlabeled(data.rows, seen, placed.source.n_rows, **known)
    equal = _equal_rows(data, placed) if merge and compute is None else None
    if (placed.in_blocks and equal is None) or compute is not None:
        stacked = StackedRows(data.rows, placed.source)
        data, label_cost = settle_ground_cost(data, label_cost, stacked.n_rows, stacked.take)
        how = compute or Compute()
        workers = effective_n_jobs(n_jobs)
        executor = ThreadPoolExecutor(workers) if workers > 1 else None
        return BlockedProblem.from_labeled_set(
            data, data.decision_set(label_prior, label_cost), placed.source, how, executor
        )
    rows = _held_rows(placed)
    whole = data if rows is None else replace(data, unlabeled=rows)
    rest = None if whole.unlabeled is None else ArrayRows(whole.unlabeled)
    stacked = StackedRows(whole.rows, rest)
    whole, label_cost = settle_ground_cost(whole, label_cost, stacked.n_rows, stacked.take)
    if equal is None or rows is None:
        return InMemoryProblem.from_data(whole, label_prior, label_cost, n_jobs)
    prior = resolve_prior(label_prior, other_population=whole.target)
    prior = prior.for_rows(whole.rows, whole.codes, len(whole.classes), None if whole.target else rows)  # sees all rows
    few = replace(whole, unlabeled=rows[equal.first], counts=equal.distinct_weights)
    return InMemoryProblem.from_data(few, prior, label_cost, n_jobs, equal)


@contextmanager
def repeated_solves(n: int) -> Iterator[None]:
    """Announce the time of each solve in this block as the time of n solves, such as cross-validation folds."""
    token = _SOLVES.set(n)
    try:
        yield
    finally:
        _SOLVES.reset(token)


def announce_long_solve(problem: RobustProblem, compute: Compute | None) -> None:
    """Warn before solves that will take more than a minute on processors. State the time and how to reduce it."""
    times, n, K = _SOLVES.get(), len(problem.decision_set.anchor_weights), problem.decision_set.n_classes
    growth = times * (K / 2) ** _CLASSES_GROWTH
    fixed, per_row = growth * _PER_ANCHORS * (n / 1000) ** _ANCHORS_GROWTH, growth * _PER_DISTANCE * n
    seconds = fixed + per_row * problem.n_rows
    if seconds <= _LONG or (compute is not None and compute.device.startswith("cuda")):
        return
    rows = max((_LONG - fixed) / per_row, 0.0)
    fewer = f"a random sample of about {int(float(f'{rows:.1g}')):,} rows" if rows > n else "fewer labeled rows"
    warn_caller(
        CodedWarning(
            "long solve",
            f"{'A solve' if times == 1 else f'{times} solves'} over {problem.n_rows:,} rows, {n:,} labeled rows and "
            f"{K} classes will take about {in_words(seconds)} of processor time.",
            f"Pass {fewer} for a minute, or $compute=Compute('cuda') on a GPU.",
            seconds=seconds,
        )
    )


def _equal_rows(data: LabeledData, placed: RowPlacement) -> EqualRows | None:
    """Return the groups of equal unlabeled rows, or None if there are few, or if the groups still need blocks."""
    rows = _held_rows(placed)
    if rows is None or len(rows) < _FEWEST_MERGED or isinstance(data.metric, Precomputed):
        return None
    if len(rows) > _TRIED:
        tried = rows[np.random.default_rng(0).choice(len(rows), _TRIED, replace=False)]
        if len(np.unique(fingerprints(tried))) == _TRIED:
            return None
    equal = EqualRows.from_table(rows, np.ones(len(rows)))
    if equal is None or (len(data.rows) + len(equal.first)) * len(data.rows) > MOST_DISTANCES:
        return None
    return equal


def _held_rows(placed: RowPlacement) -> FloatArray | None:
    """Return the unlabeled rows if they are in memory, even if they were placed in blocks."""
    if isinstance(placed.source, ArrayRows) and not isinstance(placed.source.array, np.memmap):
        return placed.source.array
    return None if placed.rows is None else np.asarray(placed.rows)


def rows_as_passed(problem: RobustProblem, X: Any, X_unlabeled: Any, X_target: Any = None) -> list[Any] | None:
    """Return the rows of the feature marginal as a classifier expects them: as passed, with column names if known.

    The rows are the labeled and unlabeled rows, or the rows of the target population. If the problem merged equal rows,
    one row of each group is returned. Returns None over blocks.
    """
    if not isinstance(problem, InMemoryProblem):
        return None
    bare = unwrap(X_unlabeled if X_target is None else X_target)[0]
    if bare is None:
        return [X]
    if _is_elsewhere(bare):
        bare = _named(problem.data.everything[len(problem.data.counted_rows) :], bare, X)
    elif problem.merged is not None:
        bare = _safe_indexing(bare, problem.merged.first)
    return [bare] if problem.data.target else [X, bare]


def check_compute(compute: Any) -> Compute | None:
    """Check where to run. With None, the number of distances decides."""
    if compute is None or isinstance(compute, Compute):
        return compute
    raise ParameterError("compute", "must be None or a Compute(...)", repr(compute), 'Pass Compute("cuda").')


def _is_elsewhere(rows: Any) -> bool:
    """Return True if rows are stored outside this process's memory: sources, memory maps, Dask collections."""
    return is_source(rows) or isinstance(rows, np.memmap) or hasattr(rows, "__dask_graph__")


def _source_of(rows: Any, X: Any, n_features: int, name: str) -> RowSource:
    """Return a source for rows stored elsewhere, with the columns of X."""
    source = as_source(DaskRows(rows) if hasattr(rows, "__dask_graph__") else rows, n_features, name)
    check_same_names(X, source, name)
    return source


def _array_source(rows: Any, X: Any, n_features: int, name: str) -> ArrayRows:
    check_same_names(X, rows, name)
    return ArrayRows(np.ascontiguousarray(check_more_rows(rows, name, n_features)), is_checked=True)


def _named(rows: FloatArray, source: Any, X: Any) -> Any:
    """Add column names to rows if X is a pandas data frame and the source has column names."""
    columns = getattr(source, "columns", None)
    if columns is None or type(X).__module__.split(".")[0] != "pandas":
        return rows
    return type(X)(rows, columns=list(columns))


def _length(rows: Any) -> int:
    shape = np.shape(rows)
    return shape[0] if shape else 0
