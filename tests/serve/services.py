"""Small desks for tests: a pool of numbered rows, a hidden truth, and a learner that needs no fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from surefoot.bounds.result import ErrorBound
from surefoot.pool.label_log import Job, Ranking
from surefoot.pool.schedule import Goal, LabelingSettings
from surefoot.pool.service import LabelingService
from surefoot.pool.store import Store
from surefoot.pool.store_labels import open_store
from surefoot.pool.table import Table, read_labeled_table

CLASSES = ["no", "yes"]


def store_of(table: Table) -> Store:
    """The store of a table, as a command opens it."""

    def read(content: bytes) -> Table:
        classes = table.classes or None
        return read_labeled_table(table.path, table.label, how=table.how, classes=classes, content=content)

    return open_store(table, table.path.read_bytes(), read)


def make_store(folder: Path, n_rows: int = 200) -> Store:
    about = {"label": "churn", "classes": CLASSES, "rows": n_rows, "fingerprint": "x"}
    return Store(folder / "pool.csv.surefoot.db", about)


def make_desk(folder: Path, n_rows: int = 200, **settings: object) -> LabelingService:
    values = {"goal": Goal(0.1, 0.9, 0), "random_first": 4, "pause": 0.0, **settings}
    return LabelingService(make_store(folder, n_rows), n_rows, CLASSES, LabelingSettings(**values))


def truth(n_rows: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 2, n_rows)


class Knowing:
    """A learner that knows the truth but for a share of rows; cross-validation finds a share of errors."""

    errors: float | None = None

    def __init__(self, n_rows: int, wrong: float, errors: float | None = None) -> None:
        self.truth, self.errors = truth(n_rows), errors
        self.predictions = np.where(np.random.default_rng(2).random(n_rows) < wrong, 1 - self.truth, self.truth)

    def rank(self, job: Job) -> Ranking | None:
        rows = tuple(row for row in range(len(self.truth)) if row not in job.labels)
        proba = np.full((len(self.truth), 2), 0.3, dtype=np.float32)
        proba[np.arange(len(self.truth)), self.predictions] = 0.7
        measured = None
        if self.errors is not None:
            n = len(job.labels)
            measured = ErrorBound(0.5, "measured", "", "", 0.9, "zero_one", (), n, round(self.errors * n), self.errors)
        return Ranking(rows, self.predictions, proba, len(job.labels), model=b"model", measured=measured)

    def report(self, job: Job) -> bytes:
        return b"<!doctype html><title>report</title>"
