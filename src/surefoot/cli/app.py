"""The commands and their options: those that make, use and judge a model."""

# ruff: noqa: PLR0913, PLR0917 - an option is an argument of its function

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot._version import __version__
from surefoot.cli import options as o
from surefoot.cli.output import Output
from surefoot.pool.choices import names, read_loss

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
    ctx: typer.Context,
    pool: o.PoolPath,
    label: o.Label = None,
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Model file; by default POOL.skops here.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Report; by default beside the model.")] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report.")] = False,
    no_error: Annotated[bool, typer.Option("--no-error", help="Do not bound the share of errors.")] = False,
    time: o.Time = None,
    learn_rows: o.LearnRows = None,
    force: o.Force = False,
    target_risk: o.Target = None,
    classes: o.Classes = "",
    drop: o.Drop = "",
    categories: o.Categories = "",
    text: o.Text = "",
    strict: o.Strict = False,
    drop_useless: o.DropUseless = False,
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    forget: o.Forget = False,
    seed: o.Seed = 0,
    jobs: o.Jobs = -1,
    json: o.Json = False,
) -> int:
    """Learn a model, say how far it can be trusted, write a report."""
    from surefoot._files import check_writable

    output = Output("fit", json)
    found = o.settled(ctx, output, pool)
    choices = o.read_choices(found.values, seed, jobs, learn_rows=learn_rows)
    model = out or Path(f"{pool.stem}.skops")
    check_writable(model)  # a folder has no suffix to change
    page = None if no_report else report or model.with_suffix(".html")
    o.check_pool(pool, found)
    from surefoot._outputs import check_outputs
    from surefoot.cli.fit import command_line, fit_outputs, fit_pool
    from surefoot.pool.fit_report import Writing
    from surefoot.pool.table.beside import files_of

    check_outputs(fit_outputs(model, page), files_of(pool), force=force)
    with output.working("reading the table"):
        table = o.read_pool(pool, found)
    o.note_waiting(output, table.table)
    o.keep(output, found)
    writing = Writing(model, page, {**found.values, "suffix": pool.suffix}, seed, command_line())
    with o.measured_once():
        return fit_pool(output, table, choices, writing, target_risk=target_risk, error=not no_error, seconds=time)


@app.command()
def predict(
    ctx: typer.Context,
    model: o.ModelPath,
    table: o.TablePath,
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
    from surefoot.cli.predict import predict_table, predictions_file
    from surefoot.pool.stored import Classifier
    from surefoot.pool.table.beside import files_of

    output = Output("predict", json)
    if out is not None:
        check_outputs([predictions_file(out)], [model, *files_of(table)], force=force)
    classifier = Classifier.load(model, names(trust))
    found = o.settled(ctx, output, table, classifier.options(table))
    return predict_table(output, classifier, table, o.table_format(found.values), out)


@app.command()
def score(
    ctx: typer.Context,
    model: o.ModelPath,
    table: Annotated[Path, typer.Argument(help="Table with the true labels.")],
    label: Annotated[
        str | None,
        typer.Option("--label", "-l", help="Column of the true labels; known for our own models."),
    ] = None,
    trust: o.Trust = "",
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    json: o.Json = False,
) -> int:
    """Compare a model, and what was said of it, with true labels."""
    from surefoot.cli.score import score_table
    from surefoot.pool.stored import Classifier

    output = Output("score", json)
    classifier = Classifier.load(model, names(trust))
    found = o.settled(ctx, output, table, classifier.options(table))
    return score_table(output, classifier, table, classifier.label_or(label), o.table_format(found.values))


@app.command()
def certify(
    ctx: typer.Context,
    model: o.ModelPath,
    pool: o.PoolPath,
    label: Annotated[str | None, typer.Option("--label", "-l", help="Label column; known for our own models.")] = None,
    loss: o.Loss = "zero_one",
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    target_risk: o.Target = None,
    classes: o.Classes = "",
    drop: o.Drop = "",
    categories: o.Categories = "",
    text: o.Text = "",
    strict: o.Strict = False,
    drop_useless: o.DropUseless = False,
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    forget: o.Forget = False,
    trust: o.Trust = "",
    seed: o.Seed = 0,
    jobs: o.Jobs = -1,
    json: o.Json = False,
) -> int:
    """Bound the errors of any classifier stored with skops."""
    output = Output("certify", json)
    kind = read_loss(loss)
    from surefoot.cli.certify import certify_table
    from surefoot.pool.stored import Classifier
    from surefoot.pool.table import check_learnable

    classifier = Classifier.load(model, names(trust))
    found = o.settled(ctx, output, pool, classifier.options(pool))
    choices = o.read_choices(found.values, seed, jobs)
    name = classifier.label_or(found.values["label"])
    table = o.read_table_of(pool, name, o.table_format(found.values), found.values["classes"])
    check_learnable(table)
    o.keep(output, found)
    with o.measured_once():
        return certify_table(
            output,
            classifier,
            table,
            choices,
            loss=kind,
            target_risk=target_risk,
            **o.column_options(found.values),
        )
