"""`surefoot fit`: clean, learn, say what can be said of the model, write it and its report."""

from __future__ import annotations

import shlex
import sys
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from surefoot._outputs import OutputFile
from surefoot._printing import count, rounded_up
from surefoot.calibration import Calibrated
from surefoot.cli.appraisal import Appraisal, judge
from surefoot.cli.choices import AUTO, CALIBRATED, Choices
from surefoot.cli.clock import Clock
from surefoot.cli.learn_pool import Start
from surefoot.cli.model import TrainedModel, answers, train
from surefoot.cli.output import NOT_REACHED, OK, Output
from surefoot.cli.rows import names_of_rows, shown_cells
from surefoot.cli.taught import TAUGHT, taught_by
from surefoot.cli.words import bounds_data, certificate_data, say_judged, worst_data
from surefoot.costs import Euclidean
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.losses import LOG_LOSS, ZERO_ONE
from surefoot.model_file import ModelFile, is_model_file, save_model, without_pool
from surefoot.report import build_report, is_report, write_report
from surefoot.report.answers import USE, about_answers, how_to_use
from surefoot.tabular import Pool
from surefoot.tabular.asked import picked_rows
from surefoot.tabular.cleaning import scale_rules
from surefoot.tabular.columns import AS_ASKED

_INDICATOR = "missingindicator_"


@dataclass(frozen=True)
class Writing:
    """What a fit writes: the model, its report, and the options to keep with the model."""

    model: Path
    report: Path | None
    options: dict[str, Any]
    seed: int


def fit_outputs(out: Path, report: Path | None) -> list[OutputFile]:
    """The files that a fit writes."""
    model = OutputFile(out, "model", "--out", is_model_file)
    return [model] if report is None else [model, OutputFile(report, "report", "--report", is_report)]


def fit_pool(
    output: Output,
    pool: Pool,
    choices: Choices,
    writing: Writing,
    *,
    target_risk: float | None,
    error: bool,
    seconds: float | None = None,
) -> int:
    """Fit a model to a pool and write it."""
    say_pool(output, pool)
    with output.working("learning") as say:
        clock = Clock(seconds, say)
        trained = train(Start.of(pool, picked_rows(pool.table)), choices, clock)
        judged = judge(trained, choices, clock, worst=error)
    for note in trained.notes:
        output.note(note)
    shares = answers(trained.clf, trained.start)
    say_judged(output, judged, pool.classes, shares)
    summary = summary_of(trained, judged, shares)
    for note in about_answers(shares, trained.certificate.label_intervals.tolist()):
        output.note(note)
    steps = [*pool.cleaner.steps, ("classify", without_pool(trained.clf))]
    stored = ModelFile(
        Pipeline(steps),
        pool.table.label,
        pool.classes,
        {**summary, TAUGHT: taught_by(pool)},
        reading=pool.columns.stored(),
        options=writing.options,
    )
    save_model(writing.model, stored)
    written = {"model": str(writing.model)}
    if writing.report is not None:
        with output.working("writing the report") as say:
            write_report(writing.report, report_of(trained, judged, output.notes, writing, say))
        written["report"] = str(writing.report)
    output.say("Written", "bold")
    following = next_command(trained, judged, writing, shares)
    output.rows([*written.items(), ("next", following)])
    risk = risk_of(trained, judged)
    reached = target_risk is None or risk <= target_risk
    if not reached:
        word = "certified" if judged.worst is not None and judged.worst.promise else "worst-case"
        output.note(f"the {word} log loss {rounded_up(risk, 4)} is above the target {target_risk:g}.")
    data = {**pool_data(pool), **summary, **written, "next": following, "seconds": round(clock.passed, 2)}
    return output.finish(data, OK if reached else NOT_REACHED)


def risk_of(trained: TrainedModel, judged: Appraisal) -> float:
    """The worst log loss: at the radius of the promise, or of training where there is none."""
    promised = None if judged.worst is None else judged.worst.risk(LOG_LOSS)
    return float(trained.certificate.risk if promised is None else promised)


def summary_of(trained: TrainedModel, judged: Appraisal, shares: dict[str, float]) -> dict[str, Any]:
    """What is said of the model, as stored with it and printed with --json."""
    classes = trained.start.pool.classes
    training = {
        **certificate_data(trained.certificate, classes, promise=False, tied=False),
        "radius_from": str(trained.clf.radius) if isinstance(trained.clf.radius, str) else "training",
    }
    return {
        "bounds": bounds_data(judged),
        "missing": list(judged.missing),
        "accuracy": None if judged.accuracy is None else {"cross_validated": judged.accuracy},
        "answers": shares,
        "certificate": training if judged.worst is None else worst_data(judged.worst, classes),
        "training": training,
        "complete": trained.complete,
    }


def next_command(trained: TrainedModel, judged: Appraisal, writing: Writing, shares: dict[str, float]) -> str:
    """What to do with the model: let it answer if something can be said of it, else label more rows."""
    pool = trained.start.pool
    path = pool.table.path
    most = max(int((pool.labels == name).sum()) for name in pool.classes) / int(pool.labeled.sum())
    use = how_to_use(None if judged.crossfit is None else judged.crossfit.value, max(shares.values()), most)
    if use != USE:
        return shlex.join(["surefoot", "label", str(path), "--label", pool.table.label])
    return shlex.join(
        ["surefoot", "predict", str(writing.model), str(path), "--out", f"{path.stem}-predicted{path.suffix}"]
    )


def say_pool(output: Output, pool: Pool) -> None:
    """What was read."""
    shown = ", ".join(f"{name}: {(pool.labels == name).sum()}" for name in pool.classes)
    labeled = int(pool.labeled.sum())
    output.say(f"{pool.table.path.name}: {count(len(pool.rows), 'row')}", "bold")
    pairs = [
        ("labeled", f"{labeled} ({shown})"),
        ("unlabeled", str(len(pool.rows) - labeled)),
        ("columns", f"{pool.columns.counts}; {count(pool.rows.shape[1], 'feature')} in all"),
    ]
    asked = [name for name, why in pool.columns.left_out.items() if why == AS_ASKED]
    if asked:
        pairs.append(("left out", f"{', '.join(asked)}, as asked"))
    output.rows(pairs)
    for note in pool.notes:
        output.note(note)


def pool_data(pool: Pool) -> dict[str, Any]:
    """The same for a program."""
    return {
        "rows": len(pool.rows),
        "labeled": int(pool.labeled.sum()),
        "label": pool.table.label,
        "classes": {name: int((pool.labels == name).sum()) for name in pool.classes},
        "columns": {**pool.columns.stored(), "left_out": pool.columns.left_out},
        "features": pool.rows.shape[1],
    }


def report_of(trained: TrainedModel, judged: Appraisal, notes: list[str], writing: Writing, say: Any) -> Any:
    """The contents of the report of a fit."""
    start = trained.start
    pool = start.pool
    sample = trained.sample if judged.worst is None else judged.worst.sample
    rest = np.flatnonzero(~pool.labeled) if sample is None else np.flatnonzero(~pool.labeled)[sample]
    order = np.concatenate([np.flatnonzero(pool.labeled), rest])
    row_names = names_of_rows(pool)
    if sample is not None:
        notes = [*notes, f"This page looks at {len(rest)} of the {len(start.rest)} unlabeled rows, drawn at random."]
    return build_report(
        reported(trained, judged),
        start.rows,
        start.y,
        pool.rows[rest],
        feature_names=[_feature_name(name) for name in pool.cleaner.get_feature_names_out()],
        class_names=pool.classes,
        row_labels=[row_names[row] for row in order],
        raw_rows=shown_cells(pool).iloc[order],
        title=f"{pool.table.label} in {pool.table.path.name}",
        label_name=pool.table.label,
        source=pool.table.path.name,
        created=datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
        notes=[
            *cleaning_notes(pool),
            *[note[0].upper() + note[1:] for note in notes if not note.startswith(("left out: ", "read by its"))],
        ],
        error=None if judged.worst is None else judged.worst.risk(ZERO_ONE),
        bound=judged.crossfit,
        missing=judged.missing,
        command=command_line(),
        next_command=next_command(trained, judged, writing, answers(trained.clf, start)),
        n_pool=len(start.rest),
        seed=writing.seed,
        progress=lambda step, _share: say(f"report: {step}"),
    )


def _feature_name(name: Any) -> str:
    """A feature as a person calls it: scikit-learn names the column of 0 and 1 for missing cells by its class."""
    text = str(name)
    return f"{text.removeprefix(_INDICATOR)} is missing" if text.startswith(_INDICATOR) else text


def reported(trained: TrainedModel, judged: Appraisal) -> RobustLogisticRegression:
    """The classifier as the report knows it: its certificate is that of the worst case that is printed."""
    worst = None if judged.worst is None else judged.worst.certificates.get(LOG_LOSS)
    if judged.worst is None or worst is None:
        return trained.clf
    shown = copy(trained.clf)
    shown.certificate_, shown.worst_case_, shown.radius_ = worst, worst.worst_case, worst.radius
    shown.metric_, shown.label_cost_ = Euclidean(), 1.0
    shown.metric, shown.label_cost, shown.l2 = "euclidean", 1.0, None
    shown.radius = Calibrated() if judged.worst.kind == CALIBRATED else worst.radius if judged.worst.promise else AUTO
    return shown


def command_line() -> str:
    """The command that runs, as it was typed."""
    return shlex.join(["surefoot", *sys.argv[1:]])


_RULES = {
    "rare": "one value fills most cells: the distance to it on a log scale, at most 1",
    "tails": "far values drawn in (asinh around the median)",
    "ranks": "ranks in place of values",
}


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
    notes += [f"Left out: {name}, which {why}." for name, why in columns.left_out.items() if why != AS_ASKED]
    asked = [name for name, why in columns.left_out.items() if why == AS_ASKED]
    if asked:
        notes.append(f"Left out as asked: {', '.join(asked)}.")
    return [*notes, "All features are divided by the largest absolute entry."]
