"""`surefoot fit`: clean, learn, certify, write the model and its report."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from surefoot._outputs import OutputFile
from surefoot.cli.learn_pool import Choices, Fit, Start, learn
from surefoot.cli.output import NOT_REACHED, OK, Output, count
from surefoot.cli.words import certificate_data, say_fit
from surefoot.model_file import ModelFile, is_model_file, save_model, without_pool
from surefoot.report import build_report, is_report, write_report
from surefoot.tabular import Pool
from surefoot.tabular.asked import picked_rows
from surefoot.tabular.cleaning import MISSING


def fit_outputs(out: Path, report: Path | None) -> list[OutputFile]:
    """The files that a fit writes."""
    model = OutputFile(out, "model", "--out", is_model_file)
    return [model] if report is None else [model, OutputFile(report, "report", "--report", is_report)]


def fit_pool(
    output: Output,
    pool: Pool,
    choices: Choices,
    *,
    out: Path,
    report: Path | None,
    target_risk: float | None,
    error: bool,
) -> int:
    """Fit a model to a pool and write it."""
    say_pool(output, pool)
    with output.working("finding the radius"):
        start = Start.of(pool, picked_rows(pool.table))
        fit = learn(start, choices, error=error)
    for note in fit.notes:
        output.note(note)
    say_fit(output, fit)
    summary = certificate_data(fit.certificate, pool.classes, error=fit.error, radius_kind=fit.radius_kind)
    steps = [*pool.cleaner.steps, ("classify", without_pool(fit.clf))]
    save_model(out, ModelFile(Pipeline(steps), pool.table.label, pool.classes, summary))
    written = {"model": str(out)}
    if report is not None:
        with output.working("writing the report") as say:
            content = report_of(fit, output.notes, choices.seed, say)
            write_report(report, content)
        written["report"] = str(report)
    output.say("Written", "bold")
    output.rows(list(written.items()))
    reached = target_risk is None or fit.certificate.risk <= target_risk
    if not reached:
        output.note(f"the certified risk {fit.certificate.risk:.4f} is above the target {target_risk:g}.")
    data = {**pool_data(pool), "certificate": summary, **written}
    return output.finish(data, OK if reached else NOT_REACHED)


def say_pool(output: Output, pool: Pool) -> None:
    """What was read."""
    shown = ", ".join(f"{name} {(pool.labels == name).sum()}" for name in pool.classes)
    labeled = int(pool.labeled.sum())
    numbers, names = len(pool.columns.numbers), len(pool.columns.categories)
    output.say(f"{pool.table.path.name}: {count(len(pool.rows), 'row')}", "bold")
    pairs = [
        ("labeled", f"{labeled} ({shown})"),
        ("unlabeled", str(len(pool.rows) - labeled)),
        (
            "columns",
            f"{numbers} of numbers, {names} of categories; {count(pool.rows.shape[1], 'feature')} in all",
        ),
    ]
    if pool.columns.left_out:
        pairs.append(("left out", ", ".join(pool.columns.left_out)))
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
        "columns": {
            "numbers": pool.columns.numbers,
            "categories": pool.columns.categories,
            "left_out": pool.columns.left_out,
        },
        "features": pool.rows.shape[1],
    }


def report_of(fit: Fit, notes: list[str], seed: int, say: Any) -> Any:
    """The contents of the report of a fit."""
    start = fit.start
    pool = start.pool
    order = np.concatenate([np.flatnonzero(pool.labeled), np.flatnonzero(~pool.labeled)])
    return build_report(
        fit.clf,
        start.rows,
        start.y,
        start.rest,
        feature_names=[str(name) for name in pool.cleaner.get_feature_names_out()],
        class_names=pool.classes,
        row_labels=[f"row {row + 1}" for row in order],
        raw_rows=pool.values.iloc[order].fillna(dict.fromkeys(pool.columns.categories, MISSING)),
        title=f"{pool.table.label} in {pool.table.path.name}",
        label_name=pool.table.label,
        source=pool.table.path.name,
        created=datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
        notes=[*cleaning_notes(pool), *notes],
        error=fit.error,
        seed=seed,
        progress=lambda step, _share: say(f"report: {step}"),
    )


def cleaning_notes(pool: Pool) -> list[str]:
    """What the cleaning did, a sentence each."""
    gaps = [name for name in pool.columns.numbers if pool.values[name].isna().any()]
    notes = []
    if pool.columns.numbers:
        notes.append("Columns of numbers have mean 0 and standard deviation 1.")
    if gaps:
        notes.append(f"Missing numbers are the median, with an indicator column: {', '.join(gaps)}.")
    if pool.columns.categories:
        notes.append(f"Categories are one column each, 0 or 1: {', '.join(pool.columns.categories)}.")
    notes += [f"Left out: {name}, which {why}." for name, why in pool.columns.left_out.items() if why != "as asked"]
    asked = [name for name, why in pool.columns.left_out.items() if why == "as asked"]
    if asked:
        notes.append(f"Left out as asked: {', '.join(asked)}.")
    return [*notes, "All features are divided by the largest absolute entry."]
