"""The commands and their options."""

# ruff: noqa: PLR0913, PLR0917 - an option is an argument of its function

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from surefoot._version import __version__
from surefoot.cli import options as o
from surefoot.cli.output import Output

app = typer.Typer(
    name="surefoot",
    help="Few labels, many unlabeled rows: a classifier with a certified worst case, and the rows to label next.\n\n"
    "In every table, rows with an empty label are the unlabeled ones.",
    epilog="Exit codes: 0 done, 1 a fault of surefoot, 2 a mistake in files or options, 3 the target risk was not "
    "reached, 130 interrupted.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Loss(StrEnum):
    """Which loss is certified."""

    LOG = "log"
    ERROR = "error"


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"surefoot {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Nothing to do before a command."""


@app.command()
def fit(
    pool: o.PoolPath,
    label: o.Label,
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Model file; by default POOL.skops here.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Report; by default beside the model.")] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report.")] = False,
    no_error: Annotated[bool, typer.Option("--no-error", help="Do not bound the share of errors.")] = False,
    force: o.Force = False,
    target_risk: o.Target = None,
    classes: o.Classes = "",
    drop: o.Drop = "",
    categories: o.Categories = "",
    drop_useless: o.DropUseless = False,
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    seed: o.Seed = 0,
    jobs: o.Jobs = -1,
    json: o.Json = False,
) -> int:
    """Clean a pool, fit a certified classifier, write the model and a report."""
    from surefoot._files import check_writable
    from surefoot._outputs import check_outputs
    from surefoot.cli.fit import fit_outputs, fit_pool
    from surefoot.tabular import check_learnable
    from surefoot.tabular.asked import asked_path

    output = Output("fit", json)
    choices = o.read_choices(radius, prior, seed, jobs)
    model = out or Path(f"{pool.stem}.skops")
    check_writable(model)  # a folder has no suffix to change
    page = None if no_report else report or model.with_suffix(".html")
    check_outputs(fit_outputs(model, page), [pool, asked_path(pool)], force=force)
    columns = {"drop": o.names(drop), "categories": o.names(categories), "drop_useless": drop_useless}
    with output.working("reading the table"):
        found = o.read_pool(
            pool, label, o.table_format(delimiter, encoding, missing), classes, check=check_learnable, **columns
        )
    return fit_pool(output, found, choices, out=model, report=page, target_risk=target_risk, error=not no_error)


@app.command()
def predict(
    model: o.ModelPath,
    table: Annotated[Path, typer.Argument(help="Table with the columns that the model was fitted to.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Table to write: all columns, and the predictions.")
    ] = None,
    force: o.Force = False,
    trust: o.Trust = "",
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    json: o.Json = False,
) -> int:
    """Predict the label of each row of a new table."""
    from surefoot._outputs import check_outputs
    from surefoot.cli.use import Classifier, predict_table, predictions_file
    from surefoot.model_file import load_model
    from surefoot.tabular.asked import asked_path

    output = Output("predict", json)
    if out is not None:
        check_outputs([predictions_file(out)], [model, table, asked_path(table)], force=force)
    classifier = Classifier(load_model(model, trust=o.names(trust)), model)
    return predict_table(output, classifier, table, o.table_format(delimiter, encoding, missing), out)


@app.command()
def certify(
    model: o.ModelPath,
    pool: o.PoolPath,
    label: Annotated[str | None, typer.Option("--label", "-l", help="Label column; known for our own models.")] = None,
    loss: Annotated[Loss, typer.Option("--loss", help="'log' or 'error', the share of wrong answers.")] = Loss.ERROR,
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    target_risk: o.Target = None,
    classes: o.Classes = "",
    drop: o.Drop = "",
    categories: o.Categories = "",
    drop_useless: o.DropUseless = False,
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    trust: o.Trust = "",
    seed: o.Seed = 0,
    jobs: o.Jobs = -1,
    json: o.Json = False,
) -> int:
    """Certify the worst case of any classifier stored with skops."""
    from surefoot.cli.use import LOSSES, Classifier, certify_table
    from surefoot.model_file import load_model
    from surefoot.tabular import FileError, check_learnable

    output = Output("certify", json)
    choices = o.read_choices(radius, prior, seed, jobs)
    classifier = Classifier(load_model(model, trust=o.names(trust)), model)
    name = label or (None if classifier.stored is None else classifier.stored.label)
    if name is None:
        raise FileError(f"{model} does not say which column holds the labels. Pass --label.")
    found = o.read_table_of(pool, name, o.table_format(delimiter, encoding, missing), classes)
    check_learnable(found)
    return certify_table(
        output,
        classifier,
        found,
        choices,
        loss=LOSSES[loss.value],
        target_risk=target_risk,
        drop=o.names(drop),
        categories=o.names(categories),
        drop_useless=drop_useless,
    )


@app.command()
def radius(
    pool: o.PoolPath,
    label: o.Label,
    prior: o.Prior = "weak",
    reference: Annotated[
        Path | None, typer.Option("--reference", help="Labeled table, such as last year's, to measure the distance to.")
    ] = None,
    path: Annotated[int, typer.Option("--path", min=0, help="Radii at which to show loss and confidence.")] = 0,
    classes: o.Classes = "",
    drop: o.Drop = "",
    categories: o.Categories = "",
    drop_useless: o.DropUseless = False,
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    seed: o.Seed = 0,
    jobs: o.Jobs = -1,
    json: o.Json = False,
) -> int:
    """Print the minimal radius, the calibrated one, and the distance to a reference."""
    from surefoot.cli.radius import radius_of
    from surefoot.tabular import check_learnable

    output = Output("radius", json)
    how = o.table_format(delimiter, encoding, missing)
    choices = o.read_choices("default", prior, seed, jobs)
    columns = {"drop": o.names(drop), "categories": o.names(categories), "drop_useless": drop_useless}
    with output.working("reading the table"):
        found = o.read_pool(pool, label, how, classes, check=check_learnable, **columns)
        other = None if reference is None else o.read_table_of(reference, label, how, classes)
    return radius_of(output, found, choices, reference=other, n_path=path)


@app.command()
def query(
    pool: o.PoolPath,
    label: o.Label,
    n: Annotated[int, typer.Option("-n", min=1, help="How many rows.")] = 10,
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    pool_size: Annotated[int, typer.Option("--pool-size", min=0, help="Unlabeled rows to draw; 0 for all.")] = 4000,
    classes: o.Classes = "",
    drop: o.Drop = "",
    categories: o.Categories = "",
    drop_useless: o.DropUseless = False,
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    seed: o.Seed = 0,
    jobs: o.Jobs = -1,
    json: o.Json = False,
) -> int:
    """List the rows to label next, with why."""
    from surefoot.cli.query import query_pool
    from surefoot.tabular import check_learnable

    output = Output("query", json)
    choices = o.read_choices(radius, prior, seed, jobs, tol=1e-3)
    columns = {"drop": o.names(drop), "categories": o.names(categories), "drop_useless": drop_useless}
    with output.working("reading the table"):
        found = o.read_pool(
            pool, label, o.table_format(delimiter, encoding, missing), classes, check=check_learnable, **columns
        )
    return query_pool(output, found, choices, n=n, most=pool_size)


@app.command()
def label(
    pool: o.PoolPath,
    label: o.Label,
    target_risk: Annotated[
        float | None, typer.Option("--target-risk", min=0.0, help="Stop when the certified risk is at most this.")
    ] = None,
    loss: Annotated[Loss, typer.Option("--loss", help="Risk shown: 'log', or 'error' for wrong answers.")] = Loss.LOG,
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    random_first: Annotated[
        int, typer.Option("--random-first", min=0, help="Random labels before rows are picked; estimates rest on them.")
    ] = 20,
    pool_size: Annotated[
        int, typer.Option("--pool-size", min=0, help="Unlabeled rows to draw for speed; 0 for all.")
    ] = 2000,
    classes: o.Classes = "",
    drop: o.Drop = "",
    categories: o.Categories = "",
    drop_useless: o.DropUseless = False,
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    seed: o.Seed = 0,
    jobs: o.Jobs = -1,
    json: o.Json = False,
) -> int:
    """Ask for labels, one row at a time, and write each into the table at once."""
    from surefoot._files import check_writable, sole_writer
    from surefoot.cli.label import Goal, Session, check_labelable
    from surefoot.tabular import clean, read_content
    from surefoot.tabular.asked import AskedRows
    from surefoot.tabular.editing import label_writer

    output = Output("label", json)
    how = o.table_format(delimiter, encoding, missing)
    choices = o.read_choices(radius, prior, seed, jobs, tol=1e-3)
    check_writable(pool)
    with sole_writer(pool):
        content = read_content(pool)
        table = o.read_table_of(pool, label, how, classes, content)
        check_labelable(table)
        found = clean(table, drop=o.names(drop), categories=o.names(categories), drop_useless=drop_useless)
        for note in found.notes:
            output.note(note)
        writer, asked = label_writer(table, content), AskedRows(table)
        goal = Goal(loss.value, target_risk)
        return Session(output, found, choices, goal, writer, asked, random_first, pool_size).run()


def _experiments() -> list[str]:
    from surefoot.experiments import names

    return names()


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="Figure or table of the paper: figure1 to figure6, table1, table2.", autocompletion=_experiments
        ),
    ],
    datasets: Annotated[
        str, typer.Option("--datasets", help="Names, with commas between; the paper's by default.")
    ] = "",
    trials: Annotated[int | None, typer.Option("--trials", min=1, help="As many as in the paper by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small run, to see that it works.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes; -1 for one per core.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write to.")] = None,
    force: o.Force = False,
    seed: o.Seed = 0,
    json: o.Json = False,
) -> int:
    """Run an experiment of the paper again; a stopped run goes on where it was."""
    from surefoot.cli.paper import reproduce_experiment

    return reproduce_experiment(
        Output("reproduce", json), name, o.names(datasets) or None, trials, quick, jobs, out, seed, force=force
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Figure to write (.png, .pdf, .svg).")] = Path(
        "surefoot-demo.png"
    ),
    force: o.Force = False,
    seed: o.Seed = 0,
    json: o.Json = False,
) -> int:
    """Certify a classifier learned from 20 labels of the Wisconsin breast cancer data."""
    from surefoot.cli.paper import run_demo

    return run_demo(Output("demo", json), out, seed, force=force)
