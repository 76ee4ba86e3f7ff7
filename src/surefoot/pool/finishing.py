"""Finish a table with few wrong labels. The model labels the rows with the largest scores, annotators the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import FileError
from surefoot._printing import cut
from surefoot._validation import FloatArray
from surefoot.bounds._arguments import check_level
from surefoot.bounds.engine import AuditEngine
from surefoot.bounds.finish import FinishPlan, check_max_error, plan_finish
from surefoot.bounds.size import least_planned
from surefoot.pool.label_log import LabelLog
from surefoot.pool.table import Table, TableError
from surefoot.pool.table.pool import as_targets
from surefoot.pool.table.reading import read_names

PERSON, MODEL = "person", "model"
LABELED_BY = "labeled_by"
# First words of the text file next to a finished table.
STATEMENT = "surefoot finish:"
# Errors of the model in the sample that the default sample size allows.
_ALLOWED = 2


@dataclass(frozen=True)
class StoredGoal:
    """The purpose of an audit, as stored in its event. columns : columns of the table that annotators must not see."""

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Read the goal that `to_json` wrote."""
        try:
            found = json.loads(str(text))
            return cls(**{**found, "columns": tuple(found.get("columns", ()))})
        except (TypeError, ValueError, AttributeError) as error:
            raise FileError(
                f"the store must say what an audit is for; it says {cut(str(text), 60)!r}. Restore the file."
            ) from error

    def to_json(self) -> str:
        """Return the goal as JSON for the store."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class FinishGoal(StoredGoal):
    """How to finish a table with an audit.

    max_error : largest share of wrong labels in the finished table.
    planned, level, seed : of an audit that began in order to finish the table, with a sample size fixed in advance.
        None for an audit of the page, with its anytime bound.
    columns : columns of the table with the predictions and their scores, which annotators must not see.
    """

    max_error: float
    planned: int | None = None
    level: float | None = None
    seed: int | None = None
    columns: tuple[str, ...] = ()


class Finishing:
    """Decide who labels which row of a table, given the labels in its log.

    audit : judges the frozen predictions by the labels in the log; scores : (N,), larger is more certain.
    """

    def __init__(self, audit: AuditEngine, scores: FloatArray, goal: FinishGoal, book: LabelLog) -> None:
        self.audit, self.scores, self.goal, self._book = audit, scores, goal, book
        self._planned: tuple[Any, FinishPlan] | None = None

    @property
    def sample_size(self) -> int | None:
        """Size of the sample, if it was fixed in advance."""
        return None if self.audit.plan is None else min(self.audit.plan, self.audit.n_drawable)

    @property
    def n_sampled(self) -> int:
        """Number of labeled rows in the sample, in any order."""
        size = self.sample_size or 0
        return size - len(self.audit.open_draws(size, size)[0])

    @property
    def is_sampled(self) -> bool:
        """Return True if the sample is labeled, so that the plan can assign the remaining rows."""
        n = 1 if self.sample_size is None else self.sample_size
        return self.audit.proved or self.audit.n_labels >= min(n, self.audit.n_drawable)

    def plan(self) -> FinishPlan | None:
        """Return the rows left for annotators and the rows of the model; None until the sample is labeled.

        Neither set contains rows that annotators labeled or skipped. Skipped rows get no label at all.
        """
        if not self.is_sampled or not self.audit.n_labels:
            return None
        case = self.audit.outcomes[: self.audit.plan]
        if self._planned is None or self._planned[0] != case:
            self._planned = case, plan_finish(self.audit, self.scores, self.audit.plan, self.goal.max_error)
        plan, done = self._planned[1], [*self._book.labels, *self._book.skipped]
        model_rows = np.setdiff1d(plan.model_rows, done)
        rows = plan.rows[~np.isin(plan.rows, done)]
        return replace(plan, rows=rows, model_rows=model_rows, n_wrong=min(plan.n_wrong, len(model_rows)))

    def rows(self, most: int) -> list[int]:
        """Return the rows to label next: the next `most` rows of the sample, or all remaining rows of the plan."""
        plan = self.plan()
        if plan is not None:
            return [int(row) for row in plan.rows]
        drawn, _ = self.audit.open_draws(most, self.audit.n_drawable if self.audit.plan is None else self.audit.plan)
        return [draw.row for draw in drawn]

    @property
    def n_left(self) -> int | None:
        """Rows that annotators must still label; None while the sample is being labeled."""
        plan = self.plan()
        return 0 if plan is None and self.is_sampled else None if plan is None else len(plan.rows)

    @property
    def is_finished(self) -> bool:
        """Return True if annotators have no row left to label."""
        return self.n_left == 0

    def labels(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (N,) labels of the table and (N,) authors, both None for rows without a label."""
        plan = self.plan()
        predicted = {} if plan is None else {int(row): self.audit.predictions[row] for row in plan.model_rows}
        return labels_and_authors(self._book.labels, predicted, self._book.n_rows)


def labels_and_authors(
    given: Mapping[int, str], predicted: Mapping[int, str], n_rows: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (N,) labels and (N,) authors. Labels of annotators override predictions."""
    labels, authors = np.full(n_rows, None, dtype=object), np.full(n_rows, None, dtype=object)
    for author, found in ((MODEL, predicted), (PERSON, given)):
        for row, label in found.items():
            labels[row], authors[row] = label, author
    return labels, authors


def sample_size(n_rows: int, n_known: int, max_error: float, level: float) -> int:
    """Return the default sample size: the smallest that tolerates two errors of the model in it.

    A smaller sample leaves more rows to annotators, and a larger one costs more than it saves (benchmarks/finish.py).
    """
    most_wrong, n_open = int(np.floor(check_max_error(max_error) * n_rows + 1e-9)), n_rows - n_known
    return max(min(least_planned(_ALLOWED, most_wrong + _ALLOWED + 1, n_open, check_level(level)), n_open), 1)


def expected_labels(chances: FloatArray, n_rows: int, n_sample: int) -> int:
    """Estimate the number of open rows that annotators label, including the sample.

    chances : probability that the prediction is right, for each open row, largest first.

    The model labels rows up to the third wrong prediction in the sample. The estimate expects this error at the row
    before which about 2.67 · n_open / n_sample predictions are wrong.
    """
    n_open = len(chances)
    if not n_open:
        return 0
    wrong = np.cumsum(1.0 - chances)
    n_model = int(np.searchsorted(wrong, (_ALLOWED + 2 / 3) * n_open / max(n_sample, 1), side="right"))
    return n_sample + round((n_open - n_model) * (1.0 - n_sample / n_open))


def check_unfinished(table: Table) -> None:
    """Raise an error if the table already has the column with the author of each label."""
    if LABELED_BY in table.cells.columns:
        raise TableError(
            f"{table.path} must not have the column {LABELED_BY!r}, which the finished table gets. Rename it, or pass "
            "the table as it was before."
        )


def is_finished_table(path: Path) -> bool:
    """Return True if the last column of a table contains the author of each label."""
    return read_names(path)[-1:] == [LABELED_BY]


def statement_path(table: Path) -> Path:
    """Return the path of the text file that states the guarantee of a finished table."""
    return table.with_suffix(".txt")


def is_statement(path: Path) -> bool:
    """Return True if surefoot wrote this text file as the statement of a guarantee."""
    with path.open("rb") as file:
        return file.read(len(STATEMENT)) == STATEMENT.encode()


def finished_table(table: Table, labels: NDArray[Any], authors: NDArray[Any]) -> Any:
    """Return all cells with a filled label column, and a last column with the author of each label."""
    import pandas as pd

    column = table.cells[table.label]
    known = np.array([label is not None for label in labels])
    if column.dtype.kind in "iuf":  # from a Parquet file
        filled = pd.Series(np.nan, index=table.cells.index)
        filled[known] = as_targets(labels[known], table.classes)
        filled = filled.astype(column.dtype if known.all() else "float64")
    else:
        filled = pd.Series(labels, index=table.cells.index, dtype="str")
    return table.cells.assign(
        **{table.label: filled, LABELED_BY: pd.Series(authors, index=table.cells.index, dtype="str")}
    )
