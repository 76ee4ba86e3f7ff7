"""Finish a table: the model labels its surest rows, and annotators label the rest, so that few labels are wrong."""

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
# The first words of the file beside a finished table.
STATEMENT = "surefoot finish:"
# Errors among the rows of the model that the sample allows by default.
_ALLOWED = 2


@dataclass(frozen=True)
class StoredGoal:
    """What an audit is for, as its event in the store says. columns : of the table, hidden from annotators."""

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
        """Return the goal as the store keeps it."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class FinishGoal(StoredGoal):
    """How a table is finished with an audit.

    max_error : share of wrong labels in the finished table. planned, level, seed : of an audit that was begun to finish
    the table, with the size of its sample fixed beforehand. None: an audit of the page, with its anytime bound.
    columns : of the table that hold the predictions and their scores, which annotators must not see.
    """

    max_error: float
    planned: int | None = None
    level: float | None = None
    seed: int | None = None
    columns: tuple[str, ...] = ()


class Finishing:
    """Who labels which row of a table, given the labels in its log.

    audit : judges the frozen predictions by the labels of the log; scores : (N,) of the predictions, larger is surer.
    """

    def __init__(self, audit: AuditEngine, scores: FloatArray, goal: FinishGoal, book: LabelLog) -> None:
        self.audit, self.scores, self.goal, self._book = audit, scores, goal, book
        self._planned: tuple[Any, FinishPlan] | None = None

    @property
    def sample_size(self) -> int | None:
        """Rows of the sample where their number was fixed beforehand."""
        return None if self.audit.plan is None else min(self.audit.plan, self.audit.n_drawable)

    @property
    def n_sampled(self) -> int:
        """Rows of the sample that have a label, in whatever order they came."""
        size = self.sample_size or 0
        return size - len(self.audit.open_draws(size, size)[0])

    @property
    def is_sampled(self) -> bool:
        """Whether the labels of the sample are there, so that it is known which rows are left for annotators."""
        n = 1 if self.sample_size is None else self.sample_size
        return self.audit.proved or self.audit.n_labels >= min(n, self.audit.n_drawable)

    def plan(self) -> FinishPlan | None:
        """Return the rows that annotators must still label and those of the model; None while the sample lacks labels.

        Rows that annotators have labeled since are in neither. Rows that they skipped get no label at all.
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
        """Return the rows to ask for next: the next `most` rows of the sample, or all that the plan leaves."""
        plan = self.plan()
        if plan is not None:
            return [int(row) for row in plan.rows]
        drawn, _ = self.audit.open_draws(most, self.audit.n_drawable if self.audit.plan is None else self.audit.plan)
        return [draw.row for draw in drawn]

    @property
    def n_left(self) -> int | None:
        """Rows that annotators must still label; None while the sample is labeled."""
        plan = self.plan()
        return 0 if plan is None and self.is_sampled else None if plan is None else len(plan.rows)

    @property
    def is_finished(self) -> bool:
        """Whether no row is left for annotators."""
        return self.n_left == 0

    def labels(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """(N,) labels of the table and who gave them, None where nobody did."""
        plan = self.plan()
        predicted = {} if plan is None else {int(row): self.audit.predictions[row] for row in plan.model_rows}
        return labels_and_authors(self._book.labels, predicted, self._book.n_rows)


def labels_and_authors(
    given: Mapping[int, str], predicted: Mapping[int, str], n_rows: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(N,) labels and who gave them: where both did, the annotator counts."""
    labels, authors = np.full(n_rows, None, dtype=object), np.full(n_rows, None, dtype=object)
    for author, found in ((MODEL, predicted), (PERSON, given)):
        for row, label in found.items():
            labels[row], authors[row] = label, author
    return labels, authors


def sample_size(n_rows: int, n_known: int, max_error: float, level: float) -> int:
    """Rows of the sample by default: the fewest with which two of the model's rows in it may be wrong.

    A smaller sample leaves more rows to annotators, and a larger one costs more than it saves (benchmarks/finish.py).
    """
    most_wrong, n_open = int(np.floor(check_max_error(max_error) * n_rows + 1e-9)), n_rows - n_known
    return max(min(least_planned(_ALLOWED, most_wrong + _ALLOWED + 1, n_open, check_level(level)), n_open), 1)


def expected_labels(chances: FloatArray, n_rows: int, n_sample: int) -> int:
    """Estimate how many of the open rows annotators label, the sample included.

    chances : of the open rows, largest probability first, that the prediction is right. The model labels the rows up
    to the third wrong one of the sample, which comes where about 2.67 rows for each sampled one are expected wrong.
    """
    n_open = len(chances)
    if not n_open:
        return 0
    wrong = np.cumsum(1.0 - chances)
    n_model = int(np.searchsorted(wrong, (_ALLOWED + 2 / 3) * n_open / max(n_sample, 1), side="right"))
    return n_sample + round((n_open - n_model) * (1.0 - n_sample / n_open))


def check_unfinished(table: Table) -> None:
    """Refuse a table that has the column which says who labeled a row."""
    if LABELED_BY in table.cells.columns:
        raise TableError(
            f"{table.path} must not have the column {LABELED_BY!r}, which the finished table gets. Rename it, or pass "
            "the table as it was before."
        )


def is_finished_table(path: Path) -> bool:
    """Whether a table names the author of each label in its last column."""
    return read_names(path)[-1:] == [LABELED_BY]


def statement_path(table: Path) -> Path:
    """Return the path of the text file that states the guarantee of a finished table."""
    return table.with_suffix(".txt")


def is_statement(path: Path) -> bool:
    """Whether a text file is of that kind."""
    with path.open("rb") as file:
        return file.read(len(STATEMENT)) == STATEMENT.encode()


def finished_table(table: Table, labels: NDArray[Any], authors: NDArray[Any]) -> Any:
    """Return all cells, the label column filled, and a last column that names the author of each label."""
    import pandas as pd

    column = table.cells[table.label]
    known = np.array([label is not None for label in labels])
    if column.dtype.kind in "iuf":  # of a Parquet file
        filled = pd.Series(np.nan, index=table.cells.index)
        filled[known] = as_targets(labels[known], table.classes)
        filled = filled.astype(column.dtype if known.all() else "float64")
    else:
        filled = pd.Series(labels, index=table.cells.index, dtype="str")
    return table.cells.assign(
        **{table.label: filled, LABELED_BY: pd.Series(authors, index=table.cells.index, dtype="str")}
    )
