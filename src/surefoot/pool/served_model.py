"""The learner of the labeling page. It trains like `surefoot fit`, ranks like `surefoot query`, and adds a bound."""

from __future__ import annotations

import shlex
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._validation import FloatArray
from surefoot.bounds.result import ErrorBound
from surefoot.estimators.base import LinearClassifier
from surefoot.pool.appraisal import Appraisal, appraise, cross_fitted
from surefoot.pool.label_log import Job, Ranking, RowRanker
from surefoot.pool.model import TrainedModel, drawn, train
from surefoot.pool.model_file import model_file_of, save_model, typical_cells
from surefoot.pool.next_rows import candidates
from surefoot.pool.notes import Code, Note
from surefoot.pool.options import Clock, FitOptions
from surefoot.pool.report_contents import ColumnEffect, Report
from surefoot.pool.report_gather import build_report
from surefoot.pool.schedule import ColumnAudit
from surefoot.pool.stored import column_effects
from surefoot.pool.table import Pool, Table
from surefoot.pool.table.cleaning import scale_rules
from surefoot.pool.table.reading import is_workbook
from surefoot.pool.training import LabeledTable
from surefoot.problem.distances import shared_geometry


@dataclass(frozen=True, eq=False)
class ServedTable:
    """A table to serve.

    content : bytes of its file; read : function that reads the table from changed bytes of its file.
    pool, learner : the cleaned table, and its learner, which runs in its own process; None without training.
    audit : the audit of predictions in the table, or None; predictions : (N,) class indices or -1.
    scores : (N,) scores of the predictions, or None.
    """

    table: Table
    content: bytes
    read: Callable[[bytes], Table]
    pool: Pool | None = None
    learner: RowRanker | None = None
    audit: ColumnAudit | None = None
    predictions: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    scores: FloatArray | None = None


# The contents of the report of a fit to a table.

_INDICATOR = "missingindicator_"
_RULES = {
    "rare": "one value fills most cells: the distance to it on a log scale, at most 1",
    "tails": "far values drawn in (asinh around the median)",
    "ranks": "ranks in place of values",
}


@dataclass(frozen=True)
class Writing:
    """Output of a fit: paths of the model and the report, options to store with the model, seed, and the command."""

    model: Path
    report: Path | None
    options: dict[str, Any]
    seed: int
    command: str | None = None


def next_command(appraisal: Appraisal, writing: Writing) -> str:
    """Return the command to run next: predict if the model is useful, otherwise label more rows."""
    table = appraisal.model.start.pool.table
    if not appraisal.is_useful:
        return shlex.join(["surefoot", "label", str(table.path), "--label", table.label])
    out = f"{table.path.stem}-predicted{'.csv' if is_workbook(table.path) else table.path.suffix}"
    return shlex.join(["surefoot", "predict", str(writing.model), str(table.path), "--out", out])


def report_of(judged: Appraisal, notes: list[str], writing: Writing, say: Any, *, curves: bool = False) -> Report:
    """Gather the contents of the report of a fit. curves : compute the worst case along the radius, if there is one."""
    trained = judged.model
    start = trained.start
    pool = start.pool
    sample = trained.sample if judged.worst is None else judged.worst.sample
    order = np.concatenate([np.flatnonzero(pool.labeled), np.flatnonzero(~pool.labeled)])
    row_names = pool.row_names
    if sample is not None:
        parts = "rows to label next" if judged.worst is None else "the worst case and rows to label next"
        notes = [*notes, f"For {parts}, {len(sample)} of the {len(start.rest)} unlabeled rows were sampled at random."]
    return build_report(
        trained.clf,
        start.rows,
        start.y,
        start.rest,
        feature_names=[_feature_name(name) for name in pool.cleaner.get_feature_names_out()],
        class_names=pool.classes,
        row_labels=[row_names[row] for row in order],
        raw_rows=pool.shown_cells.iloc[order],
        title=f"{pool.table.label} in {pool.table.path.name}",
        label_name=pool.table.label,
        source=pool.table.path.name,
        created=datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
        notes=[
            *cleaning_notes(pool),
            *[note[0].upper() + note[1:] for note in notes if not _is_told_by_cleaning(note)],
        ],
        stated=trained.stated,
        worst=judged.worst,
        sample=sample,
        with_worst_case=judged.worst is not None,
        curves=curves,
        bound=judged.crossfit,
        missing=judged.missing,
        max_error=judged.max_error,
        effects=[] if isinstance(trained.clf, LinearClassifier) else effects_of(trained, writing.seed),
        command=writing.command,
        next_command=next_command(judged, writing),
        seed=writing.seed,
        progress=lambda step, _share: say(f"report: {step}"),
    )


# Rows whose predictions are explained, most columns to try, and most columns to show.
_EXPLAINED_ROWS, _MOST_TRIED, _MOST_SHOWN = 200, 100, 12


def effects_of(trained: TrainedModel, seed: int) -> list[ColumnEffect]:
    """Return the columns with the largest effect on predictions; empty if the table has too many columns."""
    pool, clf = trained.start.pool, trained.clf
    if len(pool.columns.used) > _MOST_TRIED:
        return []
    rows = np.flatnonzero(~pool.labeled)
    sample = drawn(len(rows), _EXPLAINED_ROWS, seed)
    frame = pool.values.iloc[rows if sample is None else rows[sample]]
    best = clf.predict_proba(pool.cleaner.transform(frame)).argmax(axis=1)

    def score(some: Any) -> FloatArray:
        proba = np.asarray(clf.predict_proba(pool.cleaner.transform(some)))
        return proba[np.arange(len(proba)), best]

    changes = np.abs(column_effects(score, frame, typical_cells(pool.values))).mean(axis=0)
    order = np.argsort(-changes, kind="stable")[:_MOST_SHOWN]
    return [ColumnEffect(str(frame.columns[at]), float(changes[at])) for at in order if changes[at] > 0]


def _is_told_by_cleaning(note: str) -> bool:
    return isinstance(note, Note) and note.code in (Code.LEFT_OUT, Code.FREE_TEXT)


def _feature_name(name: Any) -> str:
    """Return a readable name of a feature. scikit-learn names indicators of missing cells after its class."""
    text = str(name)
    return f"{text.removeprefix(_INDICATOR)} is missing" if text.startswith(_INDICATOR) else text


def cleaning_notes(pool: Pool) -> list[str]:
    """Describe the steps of the cleaning, one sentence each."""
    columns = pool.columns
    gaps = [name for name in [*columns.numbers, *columns.dates] if pool.values[name].isna().any()]
    notes = []
    if columns.numbers:
        notes.append("Columns of numbers have mean 0 and standard deviation 1.")
        rules = scale_rules(pool.cleaner, columns)
        for rule, words in _RULES.items():
            named = [name for name in columns.numbers if rules[name] == rule]
            if named:
                notes.append(f"Heavy tails, {words}: {', '.join(named)}.")
    if columns.dates:
        parts = "days, and sine and cosine of weekday, month and hour if they vary"
        notes.append(f"Dates and times become {parts}: {', '.join(columns.dates)}.")
    if gaps:
        notes.append(f"Missing numbers become the median, with an indicator column: {', '.join(gaps)}.")
    many = columns.many_categories(pool.values)
    few = [name for name in columns.categories if name not in many]
    if few:
        notes.append(f"Categories become one column of 0 and 1 each: {', '.join(few)}.")
    for kind, names in {"Columns of many categories": many, "Texts": columns.texts}.items():
        if names:
            notes.append(f"{kind} become TF-IDF of n-grams of letters, in up to 20 directions: {', '.join(names)}.")
    notes += [f"Ignored: {name} ({why})." for name, why in columns.useless.items()]
    if columns.asked_out:
        notes.append(f"Ignored by --drop: {', '.join(columns.asked_out)}.")
    return [*notes, "All features are divided by the largest absolute entry."]


# Number of rows in a ranking: enough for several annotators until the next ranking.
_RANKED = 100
# The cross-fitted bound is computed again after the number of random labels has grown by this factor.
_GROWN = 1.2


class PoolLearner:
    """Train on a pool with the labels of a job, and rank its unlabeled rows.

    most : size of the fixed random sample of rows used in training, 0 for all rows. All labeled rows are used as well.
    options : options of the command, stored with the model; command : as typed, for the foot of the report.
    """

    def __init__(
        self,
        pool: Pool,
        choices: FitOptions,
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
        """Train, rank unlabeled rows and predict all rows; None if the labels show one class or no row is open."""
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
        """Return the page that `surefoot fit` writes, for these labels."""
        pool, keep, picked = self._labeled(job)
        with shared_geometry(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trained = self._train(pool, keep, picked)
            judged = appraise(trained, self._choices, Clock())
            writing = Writing(Path("model.skops"), None, self._options, self._choices.seed, self._command)
            report = report_of(judged, list(judged.missing), writing, lambda _: None)
        return _bytes_of(lambda path: self._write_report(path, report))

    def _labeled(self, job: Job) -> tuple[Pool, NDArray[np.intp], NDArray[np.bool_]]:
        """Return the pool with the labels of a job, the rows to use, and (N,) True for picked rows."""
        labels = np.full(len(self._pool.rows), None, dtype=object)
        for row, label in job.labels.items():
            labels[row] = label
        picked = np.zeros(len(labels), dtype=bool)
        picked[sorted(job.picked)] = True
        pool = replace(self._pool, labels=labels)
        return pool, np.union1d(self._sample, sorted(job.labels)).astype(np.intp), picked

    def _train(self, pool: Pool, keep: NDArray[np.intp], picked: NDArray[np.bool_]) -> TrainedModel:
        """Train with equal weights, even for picked rows. Audits test the model, so training needs no guarantee."""
        start = LabeledTable.from_pool(pool.subset(keep), picked[keep])
        return train(replace(start, nearest=False), self._choices, Clock())

    def _measure(self, trained: TrainedModel) -> ErrorBound | None:
        """Return the cross-fitted bound on the random labels, None if too few are new. It takes ten fits."""
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
    """Return the bytes that a function writes to a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write(path)
        return path.read_bytes()
