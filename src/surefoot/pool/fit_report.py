"""The contents of the report of a fit to a table."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.pool.appraisal import Appraisal
from surefoot.pool.notes import Code, Note
from surefoot.pool.summary.gather import build_report
from surefoot.pool.table import Pool
from surefoot.pool.table.cleaning import scale_rules

_INDICATOR = "missingindicator_"
_RULES = {
    "rare": "one value fills most cells: the distance to it on a log scale, at most 1",
    "tails": "far values drawn in (asinh around the median)",
    "ranks": "ranks in place of values",
}


@dataclass(frozen=True)
class Writing:
    """What a fit writes: the model, its report, the options to keep with the model, the command that runs."""

    model: Path
    report: Path | None
    options: dict[str, Any]
    seed: int
    command: str | None = None


def next_command(appraisal: Appraisal, writing: Writing) -> str:
    """The command to run next: predict with a model that may be used, else label more rows."""
    table = appraisal.model.start.pool.table
    if not appraisal.may_use:
        return shlex.join(["surefoot", "label", str(table.path), "--label", table.label])
    out = f"{table.path.stem}-predicted{table.path.suffix}"
    return shlex.join(["surefoot", "predict", str(writing.model), str(table.path), "--out", out])


def report_of(judged: Appraisal, notes: list[str], writing: Writing, say: Any) -> Any:
    """The contents of the report of a fit."""
    trained = judged.model
    start = trained.start
    pool = start.pool
    sample = trained.sample if judged.worst is None else judged.worst.sample
    rest = np.flatnonzero(~pool.labeled) if sample is None else np.flatnonzero(~pool.labeled)[sample]
    order = np.concatenate([np.flatnonzero(pool.labeled), rest])
    row_names = pool.row_names
    if sample is not None:
        notes = [*notes, f"This page looks at {len(rest)} of the {len(start.rest)} unlabeled rows, drawn at random."]
    return build_report(
        trained.clf,
        start.rows,
        start.y,
        pool.rows[rest],
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
        worst=judged.worst,
        bound=judged.crossfit,
        missing=judged.missing,
        command=writing.command,
        next_command=next_command(judged, writing),
        n_pool=len(start.rest),
        seed=writing.seed,
        progress=lambda step, _share: say(f"report: {step}"),
    )


def _is_told_by_cleaning(note: str) -> bool:
    return isinstance(note, Note) and note.code in (Code.LEFT_OUT, Code.FREE_TEXT)


def _feature_name(name: Any) -> str:
    """A feature as a person calls it: scikit-learn names the column of 0 and 1 for missing cells by its class."""
    text = str(name)
    return f"{text.removeprefix(_INDICATOR)} is missing" if text.startswith(_INDICATOR) else text


def cleaning_notes(pool: Pool) -> list[str]:
    """What the cleaning did, a sentence each."""
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
        parts = "days, and sine and cosine of weekday, month and hour where these vary"
        notes.append(f"Dates and times are {parts}: {', '.join(columns.dates)}.")
    if gaps:
        notes.append(f"Missing numbers are the median, with an indicator column: {', '.join(gaps)}.")
    if columns.categories:
        notes.append(f"Categories are one column each, 0 or 1: {', '.join(columns.categories)}.")
    if columns.texts:
        notes.append(f"Texts are their words (TF-IDF) in up to 50 leading directions: {', '.join(columns.texts)}.")
    notes += [f"Left out: {name}, which {why}." for name, why in columns.useless.items()]
    if columns.asked_out:
        notes.append(f"Left out as asked: {', '.join(columns.asked_out)}.")
    return [*notes, "All features are divided by the largest absolute entry."]
