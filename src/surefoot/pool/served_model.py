"""What the labeling page learns: the model of `surefoot fit`, the rows of `surefoot query`, a cross-fitted bound."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.bounds.result import ErrorBound
from surefoot.pool.appraisal import appraise, cross_fitted
from surefoot.pool.choices import Choices
from surefoot.pool.clock import Clock
from surefoot.pool.fit_report import Writing, report_of
from surefoot.pool.labeling.learning import Job, Ranking
from surefoot.pool.learn_pool import Start
from surefoot.pool.model import TrainedModel, train
from surefoot.pool.model_file import model_file_of, save_model
from surefoot.pool.next_rows import candidates
from surefoot.pool.notes import Note
from surefoot.pool.summary.contents import Report
from surefoot.pool.table import Pool
from surefoot.problem.geometry import shared_geometry

# Rows that a ranking names: enough for several people until the next is there.
_RANKED = 100
# The cross-fitted bound is measured again when the random labels have grown by this share.
_GROWN = 1.2


class PoolLearner:
    """Fits to a pool with the labels of a job; of its unlabeled rows at most `most` take part (0: all), drawn once.

    options : of the command, stored with the model; command : as it was typed, for the foot of the report.
    """

    def __init__(
        self,
        pool: Pool,
        choices: Choices,
        most: int,
        options: dict[str, Any],
        write_report: Callable[[Path, Report], object],
        command: str,
    ) -> None:
        self._pool, self._choices, self._options = pool, choices, options
        self._write_report, self._command = write_report, command
        N = len(pool.rows)
        chosen = np.random.default_rng(choices.seed).permutation(N)
        self._sample = chosen if not most else chosen[:most]
        self._measured_at = 0

    def rank(self, job: Job) -> Ranking | None:
        """Fit, rank, and predict all rows; None where the labels show one class or leave no row open."""
        began = time.monotonic()
        pool, keep, picked = self._labeled(job)
        if len(set(job.labels.values())) < 2 or pool.labeled[keep].all():
            return None
        with shared_geometry(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trained = self._train(pool, keep, picked)
            chosen = candidates(trained, _RANKED, self._choices.seed)
            measured = self._measure(trained)
        rows = keep[np.flatnonzero(~trained.start.pool.labeled)]
        proba = np.asarray(trained.clf.predict_proba(pool.rows))
        place = {value: k for k, value in enumerate(trained.start.classes.tolist())}
        order = [place[value] for value in trained.clf.classes_.tolist()]
        said = [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
        return Ranking(
            rows=tuple(int(rows[one.position]) for one in chosen),
            predictions=np.array([place[value] for value in np.asarray(trained.clf.predict(pool.rows)).tolist()]),
            proba=proba[:, np.argsort(order)].astype(np.float32),
            n_labels=len(job.labels),
            model=_bytes_of(lambda path: save_model(path, model_file_of(trained, {}, self._options))),
            measured=measured,
            seconds=time.monotonic() - began,
            notes=tuple(dict.fromkeys([*trained.notes, *said])),
        )

    def report(self, job: Job) -> bytes:
        """The page that `surefoot fit` writes, for these labels."""
        pool, keep, picked = self._labeled(job)
        with shared_geometry(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trained = self._train(pool, keep, picked)
            judged = appraise(trained, self._choices, Clock())
            writing = Writing(Path("model.skops"), None, self._options, self._choices.seed, self._command)
            report = report_of(judged, list(judged.missing), writing, lambda _: None)
        return _bytes_of(lambda path: self._write_report(path, report))

    def _labeled(self, job: Job) -> tuple[Pool, NDArray[np.intp], NDArray[np.bool_]]:
        """The pool with the labels of a job, the rows to work with, and which were picked."""
        labels = np.full(len(self._pool.rows), None, dtype=object)
        for row, label in job.labels.items():
            labels[row] = label
        picked = np.zeros(len(labels), dtype=bool)
        picked[sorted(job.picked)] = True
        pool = replace(self._pool, labels=labels)
        return pool, np.union1d(self._sample, sorted(job.labels)).astype(np.intp), picked

    def _train(self, pool: Pool, keep: NDArray[np.intp], picked: NDArray[np.bool_]) -> TrainedModel:
        """With equal weights, picked rows too: audits judge the model, so that it may be whatever predicts best."""
        start = Start.of(pool.subset(keep), picked[keep])
        return train(replace(start, nearest=False), self._choices, Clock())

    def _measure(self, trained: TrainedModel) -> ErrorBound | None:
        """The cross-fitted bound on the random labels; it takes ten fits, so not every time."""
        start = trained.start
        if start.n_random < max(_GROWN * self._measured_at, 1) or len(set(start.y[start.random].tolist())) < 2:
            return None
        only = replace(
            start,
            rows=start.rows[start.random],
            y=start.y[start.random],
            random=start.random[start.random],
            nearest=False,
        )
        found = cross_fitted(replace(trained, start=only), self._choices, Clock())
        if isinstance(found, Note):
            return None
        self._measured_at = start.n_random
        return found


def _bytes_of(write: Callable[[Path], object]) -> bytes:
    """What a function writes to a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write(path)
        return path.read_bytes()
