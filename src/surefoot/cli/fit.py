"""`surefoot fit`: clean, learn, say what can be said of the model, write it and its report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline

from surefoot._outputs import OutputFile
from surefoot._printing import count, rounded_up
from surefoot.cli.output import NOT_REACHED, OK, Output
from surefoot.cli.words import bounds_data, certificate_data, say_judged, worst_data
from surefoot.losses import LOG_LOSS
from surefoot.pool.appraisal import Appraisal, judge
from surefoot.pool.choices import Choices
from surefoot.pool.clock import Clock
from surefoot.pool.fit_report import Writing, next_command, report_of
from surefoot.pool.learn_pool import Start
from surefoot.pool.model import TrainedModel, answers, train
from surefoot.pool.model_file import ModelFile, is_model_file, save_model, without_pool
from surefoot.pool.summary.answers import about_answers
from surefoot.pool.table import Pool
from surefoot.pool.table.asked import picked_rows
from surefoot.pool.table.columns import AS_ASKED
from surefoot.pool.taught import TAUGHT, taught_by
from surefoot.report import is_report, write_report


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


def command_line() -> str:
    """The command that runs, as it was typed."""
    return shlex.join(["surefoot", *sys.argv[1:]])
