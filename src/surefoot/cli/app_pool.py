"""Commands that choose rows and take labels: `radius`, `query`, `label`, `audit`, `serve`, `import`, `export`."""

from __future__ import annotations

import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot._errors import FileError, import_extra
from surefoot._files import check_outputs, check_writable
from surefoot._printing import address, cell_text, count, percent, rounded_up
from surefoot.cli import app as o
from surefoot.cli.app import Call, command, command_line
from surefoot.cli.output import OK, Output
from surefoot.pool.notes import Note
from surefoot.pool.options import read_loss, split_names
from surefoot.pool.store import LABEL_STUDIO, Store, clean_name, files_of, store_path

if TYPE_CHECKING:
    from surefoot.pool.finishing import FinishGoal
    from surefoot.pool.label_log import RowRanker
    from surefoot.pool.options import FitOptions
    from surefoot.pool.schedule import ColumnAudit
    from surefoot.pool.served_model import ServedTable
    from surefoot.pool.service import LabelingService
    from surefoot.pool.table import Pool, Table
    from surefoot.pool.terminal import FinishLoop, FrozenPredictions, Sitting
    from surefoot.pool.worst import Radii

# Columns of a row that are shown beside the reason, and characters of a cell.
_SHOWN, _LONGEST_CELL = 4, 60


@command("radius", o.ColumnOptions, o.ReadingOptions, o.Learning, o.Json)
def radius(
    call: Call,
    pool: o.PoolPath,
    label: o.Label = None,
    prior: o.Prior = "weak",
    reference: Annotated[
        Path | None, typer.Option("--reference", help="Labeled table, such as last year's, to measure the distance to.")
    ] = None,
    path: Annotated[int, typer.Option("--path", min=0, help="Number of radii to show with loss and confidence.")] = 0,
) -> int:
    """Print the minimal and the calibrated radius, and the distance to a reference."""
    choices = call.settle_pool(pool)
    from surefoot.cli.output import pool_data, say_pool
    from surefoot.pool.options import CALIBRATED, Clock
    from surefoot.pool.worst import radii_of

    output = call.output
    other = None if reference is None else call.read_table(reference, call.label)
    table = call.read_pool()
    say_pool(output, table)
    with output.working("solving the transport problem") as say:
        radii = radii_of(table, choices, Clock(None, say), reference=other, n_path=path)
    data = {**pool_data(table), **radii.data()}
    if isinstance(radii.default, Note):
        output.note(radii.default)
    pairs = [("minimal", f"{radii.minimal:.4f} (the decision set is empty below it)")]
    if radii.calibrated is not None:
        pairs.append(("calibrated", _calibrated(radii)))
    if other is not None:
        data["reference"] = {"path": str(other.path), "radius": radii.reference}
        pairs.append(("reference", f"{radii.reference:.4f} (the distance to {other.path.name})"))
    takes = "no radius" if isinstance(radii.default, Note) else "the calibrated radius"
    if radii.learned and radii.default == CALIBRATED:
        takes = "a radius calibrated in its learned metric"
    pairs.append(("fit uses", f"{takes} for a worst case, and a small radius to train"))
    output.say("Radius, in Euclidean distances between cleaned rows", "bold")
    output.rows(pairs)
    if radii.path:
        if radii.path_sample is not None:
            output.note(f"the curve was computed on a random sample of {radii.path_sample} unlabeled rows.")
        output.say("One classifier trained at each radius", "bold")
        rows = [
            [f"{one.radius:.4f}", f"{one.excess:.4f}", rounded_up(one.risk, 4), f"{one.median_confidence:.3f}"]
            for one in radii.path
        ]
        output.table(["radius", "above minimal", "worst loss", "median confidence"], rows, right=(0, 1, 2, 3))
    return output.finish(data)


def _calibrated(radii: Radii) -> str:
    found = radii.calibrated
    if found is None:
        return ""
    how = f"from {found.n_labeled} random labels, with {percent(found.level)} confidence (measured, not proved)"
    if radii.tied:
        return f"{found.excess:.4f} above the minimal radius, which depends on the label shares, {how}"
    return f"{radii.minimal + found.excess:.4f} = minimal + {found.excess:.4f}, {how}"


@command("query", o.ColumnOptions, o.ReadingOptions, o.Learning, o.Json)
def query(
    call: Call,
    pool: o.PoolPath,
    label: o.Label = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many rows.")] = 10,
    classifier: o.Classifier = "default",
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    pool_size: Annotated[int, typer.Option("--pool-size", min=0, help="Unlabeled rows to draw; 0 for all.")] = 4000,
) -> int:
    """List the rows to label next, with why."""
    choices = call.settle_pool(pool, tol=1e-3)
    from surefoot.pool.next_rows import rank
    from surefoot.pool.options import Clock

    output, table = call.output, call.read_pool()
    output.note(*table.notes)
    with output.working("learning") as say:
        ranked = rank(table, choices, Clock(None, say), n=n, most=pool_size)
    if ranked.n_considered is not None:
        output.note(f"{pool_size} of the unlabeled rows were drawn at random to choose from; --pool-size 0 takes all.")
    output.note(*ranked.notes)
    output.say(f"Rows of {table.table.path.name} to label next", "bold")
    shown, cells = table.columns.used[:_SHOWN], table.shown_cells
    marks = [] if ranked.identifier is None else [ranked.identifier]
    output.table(
        ["row", *marks, "why", *shown],
        [
            [str(row + 1), *_texts(table.table.cells, marks, row), one.reason, *_texts(cells, shown, row)]
            for row, one in ranked.rows
        ],
        right=(0,),
    )
    left = len(table.columns.used) - _SHOWN
    if left > 0:
        output.say(f"  {count(left, 'more column')} not shown.", "dim")
    following = f"surefoot label {shlex.quote(str(table.table.path))} --label {shlex.quote(table.table.label)}"
    output.say(f"Next: {following}")
    return output.finish({"rows": ranked.data(), "next": following})


def _texts(cells: Any, names: list[str], row: int) -> list[str]:
    return [cell_text(cells[name].iloc[row], _LONGEST_CELL) for name in names]


@command("label", o.ColumnOptions, o.ReadingOptions, o.Learning, o.Json)
def label(
    call: Call,
    pool: o.PoolPath,
    label: o.Label = None,
    target_risk: Annotated[
        float | None, typer.Option("--target-risk", min=0.0, help="Stop when the certified risk is at most this.")
    ] = None,
    loss: o.Loss = "log_loss",
    target_error: Annotated[
        float | None,
        typer.Option("--target-error", min=0.0, max=1.0, help="Stop when audits prove this error rate."),
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Confidence level of the proof.")] = 0.9,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Model file. The default is POOL.skops.")] = None,
    force: o.Force = False,
    classifier: o.Classifier = "default",
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    random_first: Annotated[
        int, typer.Option("--random-first", min=0, help="Number of random labels before active learning.")
    ] = 20,
    pool_size: o.PoolSize = 2000,
) -> int:
    """Label rows in the terminal. The table is updated at the end."""
    goal_loss, choices = read_loss(loss), call.settle_pool(pool, tol=1e-3)
    from surefoot.cli.label import LabelAsking, check_labelable, seated
    from surefoot.pool.store import files_of, store_path
    from surefoot.pool.table import clean, read_content
    from surefoot.pool.terminal import LabelLoop

    check_writable(pool)
    check_writable(store_path(pool))
    content = read_content(pool)
    table = call.read_labelable(content)
    check_labelable(table)
    cleaned = clean(table, **call.columns)
    call.output.note(*cleaned.notes)
    path = out or Path(f"{pool.stem}.skops")
    if target_error is not None:
        from surefoot._files import OutputFile, check_outputs
        from surefoot.pool.model_file import is_model_file

        check_outputs([OutputFile(path, "model", "--out", is_model_file)], files_of(pool), force=force)
    with seated(call.output, table, content, call.read_labelable) as sitting:
        cleaned = replace(cleaned, table=sitting.table, labels=sitting.table.labels)
        call.keep()
        call.share_distances()
        if target_error is None:
            loop = LabelLoop(cleaned, choices, sitting, goal_loss, target_risk, random_first, pool_size)
            return LabelAsking(call.output, loop).run()
        from surefoot.cli.audit import ProofAsking
        from surefoot.pool.terminal import proven_labeling

        with sitting.store.log("proof") as log:
            proving = proven_labeling(
                cleaned, choices, log, target_error=target_error, level=level, random_first=random_first
            )
            return ProofAsking(call.output, sitting, cleaned, proving, path).run()


def _metric_option(name: str) -> Any:
    words = f"{name} to prove instead of an error rate, with --labels; of --positive, or the mean over the classes."
    return typer.Option(f"--target-{name.lower()}", min=0.0, max=1.0, help=words[0].upper() + words[1:])


_MetricRecall = Annotated[float | None, _metric_option("recall")]
_MetricPrecision = Annotated[float | None, _metric_option("precision")]
_MetricF1 = Annotated[float | None, _metric_option("F1")]


_Positive = Annotated[str | None, typer.Option("--positive", help="Class of --target-recall and the like.")]
_PlannedLabels = Annotated[
    int | None, typer.Option("--labels", min=1, help="Planned number of labels, for the exact bound.")
]


def _metric_goal(recall: float | None, precision: float | None, f1: float | None) -> dict[str, float]:
    """Return the metrics that have a target."""
    metrics = {"recall": recall, "precision": precision, "f1": f1}
    return {metric: value for metric, value in metrics.items() if value is not None}


def _check_metric(goal: dict[str, float], positive: str | None, labels: int | None) -> None:
    """Refuse options that do not go together."""
    if len(goal) > 1:
        raise typer.BadParameter("--target-recall, --target-precision and --target-f1 exclude each other. Pass one.")
    if goal and labels is None:
        raise typer.BadParameter(f"--target-{next(iter(goal))} requires --labels, planned beforehand. Pass it.")
    if positive is not None and not goal:
        raise typer.BadParameter("--positive is a class for --target-recall, --target-precision or --target-f1.")


@command("audit", o.ReadingOptions, o.Json)
def audit(
    call: Call,
    pool: o.PoolPath,
    model: Annotated[Path | None, typer.Option("--model", "-m", help="Finished model (.skops) to audit.")] = None,
    predictions: o.Predictions = None,
    score: o.Score = None,
    compare: Annotated[
        str,
        typer.Option("--compare", help="More columns of predictions to compare on the same sample, commas between."),
    ] = "",
    label: o.Label = None,
    target: Annotated[
        float | None,
        typer.Option("--target", "--target-error", min=0.0, max=1.0, help="Error rate to prove."),
    ] = None,
    target_recall: _MetricRecall = None,
    target_precision: _MetricPrecision = None,
    target_f1: _MetricF1 = None,
    positive: _Positive = None,
    level: Annotated[float, typer.Option("--level", help="Confidence level of the bound.")] = 0.9,
    labels: _PlannedLabels = None,
    sampling: Annotated[
        str, typer.Option("--sampling", help="'uniform', or 'weighted' towards rows with uncertain predictions.")
    ] = "uniform",
    name: Annotated[
        str | None, typer.Option("--audit", help="Name of the audit. Default: 'audit' or the --predictions column.")
    ] = None,
    classes: o.Classes = "",
    trust: o.Trust = "",
    evidence: o.Evidence = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the sample.")] = None,
) -> int:
    """Prove the error rate of a model or of predictions, with labels of random rows."""
    from surefoot.cli.audit import audit_table
    from surefoot.cli.label import check_labelable, seated
    from surefoot.pool.evidence import evidence_files, save_audit
    from surefoot.pool.stored import Classifier, GivenPredictions
    from surefoot.pool.table import read_content

    if (model is None) == (predictions is None):
        raise typer.BadParameter("Pass either a model file as --model or a column as --predictions.")
    if score is not None and predictions is None:
        raise typer.BadParameter("--score requires --predictions. Pass --predictions, or omit --score.")
    goal = _metric_goal(target_recall, target_precision, target_f1)
    if compare and (predictions is None or goal or sampling != "uniform"):
        raise typer.BadParameter("--compare requires --predictions, and an error rate with uniform sampling.")
    _check_metric(goal, positive, labels)
    subject: Classifier | GivenPredictions
    if model is not None:
        subject = Classifier.load(model, split_names(trust))
        call.settle(pool, subject.options(pool))
        call.values["label"] = subject.label_or(label or call.values["label"])
    else:
        call.settle(pool)
    call.check_pool()
    check_writable(pool)
    check_writable(store_path(pool))
    if evidence is not None:
        check_outputs(evidence_files(evidence), [*([] if model is None else [model]), *files_of(pool)], force=False)
    content = read_content(pool)
    if predictions is not None:
        subject = call.read_predictions(content, predictions, score)
    others = [call.read_predictions(content, column, None) for column in split_names(compare)]
    read = partial(call.read_labelable, more=[name for one in (subject, *others) for name in one.classes])
    table = read(content)
    check_labelable(table)
    if goal and evidence is not None:
        raise typer.BadParameter("--evidence holds a bound on the error rate. Omit it, or omit the other target.")
    options: dict[str, Any] = {"target": goal or None, "positive": positive}
    options |= {"target_error": target, "level": level, "n_labels": labels, "sampling": sampling, "random_state": seed}
    with seated(call.output, table, content, read) as sitting:
        call.keep()
        save = None if evidence is None else partial(save_audit, evidence, table=table, how=call.form, subject=subject)
        return audit_table(call.output, subject, sitting, name or predictions or "audit", save, others, **options)


@command("finish", o.ColumnOptions, o.ReadingOptions, o.Learning, o.Json)
def finish(
    call: Call,
    pool: o.PoolPath,
    label: o.Label = None,
    max_error: Annotated[
        float | None, typer.Option("--max-error", help="Share of wrong labels in the finished table. Default: 0.05.")
    ] = None,
    level: Annotated[float | None, typer.Option("--level", help="Confidence level. Default: 0.9.")] = None,
    model: Annotated[
        Path | None, typer.Option("--model", "-m", help="Model (.skops) that labels rows. The default is a new model.")
    ] = None,
    predictions: o.Predictions = None,
    score: o.Score = None,
    learn: Annotated[
        int | None,
        typer.Option("--learn", min=2, help="Labels to learn from. Default: a tenth of the rows, from 20 to 100."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="Number of random rows that test the predictions.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Finished table. Default: POOL.finished.*.")] = None,
    evidence: o.Evidence = None,
    force: o.Force = False,
    classifier: o.Classifier = "default",
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    pool_size: o.PoolSize = 2000,
    trust: o.Trust = "",
) -> int:
    """Finish a table: you label some rows, and the model labels the rest."""
    from surefoot._files import OutputFile, check_outputs
    from surefoot.cli.audit import FinishAsking
    from surefoot.cli.label import check_labelable, seated
    from surefoot.pool.evidence import evidence_files, save_finish
    from surefoot.pool.finishing import check_unfinished, is_finished_table, is_statement, statement_path
    from surefoot.pool.store import files_of
    from surefoot.pool.stored import Classifier
    from surefoot.pool.table import clean, read_content
    from surefoot.pool.terminal import FinishLoop, given_predictions, learned_predictions, model_predictions

    if model is not None and predictions is not None:
        raise typer.BadParameter("--model and --predictions cannot be combined. Pass one of the two.")
    if score is not None and predictions is None:
        raise typer.BadParameter("--score requires --predictions. Pass --predictions, or omit --score.")
    stored = None if model is None else Classifier.load(model, split_names(trust))
    call.settle(pool, None if stored is None else stored.options(pool))
    if stored is not None:
        call.values["label"] = stored.label_or(label or call.values["label"])
    choices = call.choices(tol=1e-3)
    call.check_pool()
    check_writable(pool)
    check_writable(store_path(pool))
    path = out or pool.with_name(f"{pool.stem}.finished{pool.suffix}")
    outputs = [
        OutputFile(path, "finished table", "--out", is_finished_table),
        OutputFile(statement_path(path), "statement", "--out", is_statement),
        *([] if evidence is None else evidence_files(evidence)),
    ]
    check_outputs(outputs, [*files_of(pool), *([] if model is None else [model])], force=force)
    content = read_content(pool)
    given = None if predictions is None else call.read_predictions(content, predictions, score)
    read = partial(call.read_labelable, more=given.classes if given else stored.classes if stored else ())
    table = read(content)
    check_labelable(table)
    check_unfinished(table)
    predict: Callable[[Sitting], FrozenPredictions]
    n_learn = 0
    if given is not None:
        predict = partial(given_predictions, given)
    elif stored is not None:
        predict = partial(model_predictions, stored)
    else:
        cleaned = clean(table, **call.columns)
        call.output.note(*cleaned.notes)
        predict = partial(learned_predictions, cleaned, choices, pool_size)
        n_learn = learn or min(max(len(table.labels) // 10, 20), 100)
    asked = _FinishOptions(max_error, level, sample, tuple(given.columns) if given else None)
    with seated(call.output, table, content, read) as sitting:
        call.keep()
        call.share_distances()
        loop = FinishLoop(sitting, asked.goal(choices.seed), predict, n_learn, choices.seed)
        asked.check_begun(loop)
        subject = given or stored
        save = None if evidence is None else partial(save_finish, evidence, table=table, how=call.form, subject=subject)
        return FinishAsking(call.output, sitting, loop, path, save).run()


@dataclass(frozen=True)
class _FinishOptions:
    """Return the goal of a finished table, or None."""

    max_error: float | None
    level: float | None
    sample: int | None
    columns: tuple[str, ...] | None

    def goal(self, seed: int) -> FinishGoal:
        """How to finish a table that is not begun."""
        from surefoot.bounds._arguments import check_level
        from surefoot.bounds.finish import check_max_error
        from surefoot.pool.finishing import FinishGoal

        share = check_max_error(0.05 if self.max_error is None else self.max_error)
        level = check_level(0.9 if self.level is None else self.level)
        return FinishGoal(share, self.sample, level, seed, self.columns or ())

    def check_begun(self, loop: FinishLoop) -> None:
        """Refuse options that differ from those with which the table was begun to be finished."""
        goal = loop.goal
        pairs = (
            ("--max-error", self.max_error, goal.max_error), ("--level", self.level, goal.level),
            ("--sample", self.sample, goal.planned), ("--predictions", self.columns, goal.columns),
        )  # fmt: skip
        for option, asked, begun in pairs:
            if loop.finishing is not None and asked is not None and asked != begun:
                shown = [", ".join(x) or "none" if isinstance(x, tuple) else f"{x:g}" for x in (begun, asked)]
                raise FileError(
                    f"{option} must be {shown[0]}, as when you began to finish this table; got {shown[1]}. "
                    "Leave the option out, or run surefoot export and move the store away."
                )


# ruff: noqa: PLR0913, PLR0917 - an option is an argument of its function


_Share = {"min": 0.0, "max": 1.0}


@command("serve", o.ColumnOptions, o.ReadingOptions, o.Learning, jobs=1)
def serve(
    call: Call,
    pool: Annotated[
        Path | None, typer.Argument(help="Table (.csv, .tsv, .xlsx, .parquet); rows with an empty label are unlabeled.")
    ] = None,
    label: o.Label = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            "--target-error",
            **_Share,
            help="Error rate to prove. Default: the last one of this table, or 0.05; with --audit, none.",
        ),
    ] = None,
    level: Annotated[float, typer.Option("--level", **_Share, help="Confidence level of the proof.")] = 0.9,
    audit: Annotated[
        str | None, typer.Option("--audit", help="Column with predictions to audit, without training a model.")
    ] = None,
    score: Annotated[
        str | None, typer.Option("--score", help="Column with scores of --audit, hidden from annotators.")
    ] = None,
    labels: _PlannedLabels = None,
    target_recall: _MetricRecall = None,
    target_precision: _MetricPrecision = None,
    target_f1: _MetricF1 = None,
    positive: _Positive = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Other machines require an invitation link.")
    ] = ("127.0.0.1"),
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on, or 0 for a free port.")
    ] = 8765,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    invite: Annotated[str | None, typer.Option("--invite", help="Print an invitation link for this annotator.")] = None,
    overlap: Annotated[float, typer.Option("--overlap", **_Share, help="Share of rows with two annotators.")] = 0.0,
    guidelines: Annotated[Path | None, typer.Option("--guidelines", help="Markdown file that the page shows.")] = None,
    allow_host: Annotated[str, typer.Option("--allow-host", help="Names of this server, separated by commas.")] = "",
    label_studio: Annotated[
        bool, typer.Option("--label-studio", help="Be a machine learning backend of Label Studio as well.")
    ] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Try the page on sample data, with simulated labels.")] = False,
    classifier: o.Classifier = "default",
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    random_first: Annotated[
        int, typer.Option("--random-first", min=2, help="Number of random labels before active learning.")
    ] = 20,
    pool_size: o.PoolSize = 2000,
) -> int:
    """Label in the browser, alone or in a team, until the error rate is proved."""
    with _demo_pool(demo) as made:
        robot = None
        if made is not None:
            from surefoot.pool.label_log import LABEL

            pool, robot = made
            guidelines = guidelines or pool.with_name("guidelines.md")
            call.ctx.params.update(label=LABEL, classes=",".join(sorted(set(robot))))
        if pool is None:
            raise typer.BadParameter("Pass the table to label, or --demo.")
        goal = _metric_goal(target_recall, target_precision, target_f1)
        _check_metric(goal, positive, labels)
        if audit is None and (goal or labels is not None or score is not None):
            raise typer.BadParameter("--labels, --score and --target-recall and the like require --audit COLUMN.")
        if audit is not None and (demo or (goal and target is not None)):
            what = "--demo" if demo else f"--target and --target-{next(iter(goal))}"
            raise typer.BadParameter(f"{what} cannot be combined{' with --audit' if demo else ''}. Omit one.")
        call.settle(pool)
        if invite is not None:
            return _invite_to(call.output, pool, invite, host, port)
        import_extra("starlette", "serve", "the labeling page")
        import_extra("uvicorn", "serve", "the labeling page")
        from surefoot.pool.schedule import ColumnAudit, Goal, LabelingSettings
        from surefoot.serve import run_site

        for option, value, example in (("--target", target, 0.05), ("--level", level, 0.9)):
            if value is not None and not 0.0 < value < 1.0:
                raise FileError(f"{option} must lie between 0 and 1, got {value:g}. Pass a value such as {example}.")
        choices = call.choices(tol=1e-3)
        call.check_pool()
        check_writable(store_path(pool))
        opening = _Opening(call, choices, pool_size, keep=robot is None, label_studio=label_studio)
        if audit is not None:
            columns = (audit,) if score is None else (audit, score)
            metric, value = next(iter(goal.items()), (None, target))
            opening.audit = ColumnAudit(columns, level, choices.seed, value, labels, metric, positive)
        run_site(
            opening.load,
            LabelingSettings(Goal(level=level, seed=choices.seed), random_first, overlap),
            host=host, port=port,
            ready=opening.say_ready, allowed=_host_names(allow_host), guidelines=guidelines, robot=robot,
            browser=not no_open, target=target, label_studio=label_studio,
        )  # fmt: skip
        return OK


@contextmanager
def _demo_pool(wanted: bool) -> Iterator[tuple[Path, Any] | None]:
    """Write a sample pool to a temporary folder. Yields its path and its true labels (N,)."""
    if not wanted:
        yield None
        return
    from surefoot.pool.label_log import write_demo

    with tempfile.TemporaryDirectory(prefix="surefoot-demo-") as folder:
        yield write_demo(Path(folder))


def _invite_to(output: Output, pool: Path, name: str, host: str, port: int) -> int:
    """Print an invitation link. This also works while the page is served."""
    name = clean_name(name, "invite")
    with Store(store_path(pool), {}) as store:
        token = store.invite(name)
    if name == LABEL_STUDIO:
        output.say(f"{address(host, port)}label-studio/{token}")
        output.note("this is the address of the machine learning backend for Label Studio. It replaces the one before.")
        return OK
    output.say(f"{address(host, port)}join/{token}")
    output.note(f"anyone with this link labels as {name}. A new link replaces it. All annotators now require a link.")
    return OK


def _host_names(text: str) -> tuple[str, ...]:
    """Return the additional names of this server."""
    allowed = tuple(split_names(text))
    for name in allowed:
        if re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:.]+\]", name) is None:
            raise FileError(
                f"--allow-host must be a host name without scheme, port or wildcard, got {name!r}. Pass a name such "
                "as label.example.org."
            )
    return allowed


@dataclass(eq=False)
class _Opening:
    """Reads the table when the server requests it, and announces the page.

    most : number of unlabeled rows for training; keep : whether to store the options; label_studio : whether one is
    served; audit : of predictions that the
    table holds, if there is one.
    began, read : times when the command began, and when the table was read.
    """

    call: Call
    choices: FitOptions
    most: int
    keep: bool
    label_studio: bool = False
    audit: ColumnAudit | None = None
    began: float = field(default_factory=time.monotonic)
    read: float = 0.0

    def load(self) -> ServedTable:
        """Return the table with its learner, or with the audit of its predictions."""
        from surefoot.cli.label import check_labelable
        from surefoot.pool.served_model import ServedTable
        from surefoot.pool.table import read_content

        with self.call.output.working("reading the table"):
            content = read_content(self.call.path)
            read: Callable[[bytes], Table] = self.call.read_labelable
            given = None
            if self.audit is not None:
                column, *scores = self.audit.columns
                given = self.call.read_predictions(content, column, scores[0] if scores else None)
                read = partial(self.call.read_labelable, more=given.classes)
            table = read(content)
            check_labelable(table)
            pool = None if given is not None else self._cleaned(table)
        if self.keep:
            self.call.keep()
        self.read = time.monotonic()
        if given is None:
            return ServedTable(table, content, read, pool, None if pool is None else self._learner(pool))
        if given.n_empty:
            self.call.output.note(f"{count(given.n_empty, 'row')} without a prediction, which count as misclassified.")
        codes = given.codes(table.classes)
        return ServedTable(table, content, read, audit=self.audit, predictions=codes, scores=given.scores)

    def _cleaned(self, table: Table) -> Pool:
        from surefoot.pool.table import clean

        cleaned = clean(table, **self.call.columns)
        self.call.output.note(*cleaned.notes)
        return cleaned

    def _learner(self, pool: Pool) -> RowRanker:
        from surefoot.pool.served_model import PoolLearner
        from surefoot.report import write_report

        return PoolLearner(pool, self.choices, self.most, self.call.values, write_report, command_line())

    def say_ready(self, url: str, desk: LabelingService, by_invitation: bool) -> None:
        """Print the address of the page and the time to start."""
        rows, labels = count(desk.book.n_rows, "row"), count(len(desk.book.labels), "label")
        self.call.output.say(f"Labeling {self.call.label!r} in {self.call.path.name}, {rows}, {labels}.", "bold")
        self.call.output.say(f"Open {url}  (Ctrl-C stops the server; labels are saved at once)")
        read, ready = self.read - self.began, time.monotonic() - self.read
        self.call.output.note(f"read in {read:.1f} s, ready {ready:.1f} s later.")
        if self.label_studio and desk.store.knows_label_studio():
            again = f'--invite "{LABEL_STUDIO}"'
            self.call.output.note(f"Label Studio connects with its address as before. For a new one: {again}")
        elif self.label_studio:
            self.call.output.say(f"Label Studio: {url}label-studio/{desk.store.invite(LABEL_STUDIO)}")
            self.call.output.note("shown once. Add it to a project of Label Studio as a model. It holds a token.")
        if by_invitation:
            self.call.output.note("access is by invitation link. To create one: surefoot serve ... --invite NAME")


@command("import", o.ReadingOptions, o.Json)
def import_labels(
    call: Call,
    pool: o.PoolPath,
    tasks: Annotated[Path, typer.Argument(help="JSON file exported from Label Studio.")],
    label: o.Label = None,
    classes: o.Classes = "",
) -> int:
    """Import labels from Label Studio. The same file may be imported again."""
    from surefoot.cli.label import import_tasks

    call.settle(pool)
    return import_tasks(call, tasks)


@command("export", o.ReadingOptions, o.Json)
def export_labels(
    call: Call,
    pool: o.PoolPath,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Labels (.csv, .parquet), or Label Studio tasks (.json)."),
    ] = None,
    answers: Annotated[
        Path | None, typer.Option("--answers", help="File for all labels given, one per line (.csv, .parquet).")
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Write the labels into the table itself.")] = False,
    predictions: Annotated[
        bool, typer.Option("--predictions", help="Add predictions of the last frozen model to Label Studio tasks.")
    ] = False,
    force: o.Force = False,
    label: o.Label = None,
    classes: o.Classes = "",
) -> int:
    """Write the stored labels to a file, into the table, or for Label Studio."""
    from surefoot.cli.label import export_store

    call.settle(pool)
    return export_store(call, out, answers, in_place=in_place, predictions=predictions, force=force)
