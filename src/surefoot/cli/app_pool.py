"""The commands and their options: those that ask what to label, and take labels."""

# ruff: noqa: PLR0913, PLR0917 - an option is an argument of its function

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli import options as o
from surefoot.cli.app import app
from surefoot.cli.output import Output
from surefoot.pool.choices import names, read_loss


@app.command()
def radius(
    ctx: typer.Context,
    pool: o.PoolPath,
    label: o.Label = None,
    prior: o.Prior = "weak",
    reference: Annotated[
        Path | None, typer.Option("--reference", help="Labeled table, such as last year's, to measure the distance to.")
    ] = None,
    path: Annotated[int, typer.Option("--path", min=0, help="Radii at which to show loss and confidence.")] = 0,
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
    """Print the minimal radius, the calibrated one, and the distance to a reference."""
    output = Output("radius", json)
    found = o.settled(ctx, output, pool)
    choices = o.read_choices({**found.values, "radius": "default"}, seed, jobs)
    o.check_pool(pool, found)
    from surefoot.cli.radius import radius_of

    with output.working("reading the table"):
        table = o.read_pool(pool, found)
        how, known = o.table_format(found.values), found.values["classes"]
        other = None if reference is None else o.read_table_of(reference, o.label_of(found), how, known)
    o.note_waiting(output, table.table)
    o.keep(output, found)
    with o.measured_once():
        return radius_of(output, table, choices, reference=other, n_path=path)


@app.command()
def query(
    ctx: typer.Context,
    pool: o.PoolPath,
    label: o.Label = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many rows.")] = 10,
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    pool_size: Annotated[int, typer.Option("--pool-size", min=0, help="Unlabeled rows to draw; 0 for all.")] = 4000,
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
    """List the rows to label next, with why."""
    output = Output("query", json)
    found = o.settled(ctx, output, pool)
    choices = o.read_choices(found.values, seed, jobs, tol=1e-3)
    o.check_pool(pool, found)
    from surefoot.cli.query import query_pool

    with output.working("reading the table"):
        table = o.read_pool(pool, found)
    o.note_waiting(output, table.table)
    o.keep(output, found)
    with o.measured_once():
        return query_pool(output, table, choices, n=n, most=pool_size)


@app.command()
def label(
    ctx: typer.Context,
    pool: o.PoolPath,
    label: o.Label = None,
    target_risk: Annotated[
        float | None, typer.Option("--target-risk", min=0.0, help="Stop when the certified risk is at most this.")
    ] = None,
    loss: o.Loss = "log_loss",
    target_error: Annotated[
        float | None,
        typer.Option("--target-error", min=0.0, max=1.0, help="Stop when an error this small is proved by audits."),
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Probability with which such a proof holds.")] = 0.9,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the proved model; POOL.skops here.")] = None,
    force: o.Force = False,
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
    """Ask for labels, one row at a time, and write each into the table at once."""
    output = Output("label", json)
    found = o.settled(ctx, output, pool)
    goal_loss, choices = read_loss(loss), o.read_choices(found.values, seed, jobs, tol=1e-3)
    o.check_pool(pool, found)
    from surefoot._files import check_writable, sole_writer
    from surefoot.cli.label import Goal, Session, check_labelable
    from surefoot.pool.labeling.terminal import stored_sitting
    from surefoot.pool.table import clean, read_content
    from surefoot.pool.table.asked import AskedRows
    from surefoot.pool.table.beside import files_of, proof_path, store_path
    from surefoot.pool.table.editing import label_writer

    check_writable(pool)
    with sole_writer(pool), o.measured_once():
        content = read_content(pool)
        how = o.table_format(found.values)
        table = o.read_table_of(pool, o.label_of(found), how, found.values["classes"], content)
        sitting = stored_sitting(table, proving=target_error is not None) if store_path(pool).exists() else None
        table = table if sitting is None else sitting[0]
        check_labelable(table)
        cleaned = clean(table, **o.column_options(found.values))
        for note in cleaned.notes:
            output.note(note)
        if target_error is not None:
            from surefoot._outputs import check_outputs
            from surefoot.cli.fit import fit_outputs
            from surefoot.cli.prove import ProofSession, proven_labeling

            journal, model = proof_path(pool), out or Path(f"{pool.stem}.skops")
            writer, asked = label_writer(table, content), AskedRows(table)
            check_outputs(fit_outputs(model, None), files_of(pool), force=force)
            o.keep(output, found)
            loop = proven_labeling(
                cleaned, choices, journal, target_error=target_error, level=level, random_first=random_first
            )
            return ProofSession(output, cleaned, loop, writer, asked, journal, model).run()
        o.keep(output, found)
        labels, rows = (label_writer(table, content), AskedRows(table)) if sitting is None else sitting[1:]
        goal = Goal(goal_loss, target_risk)
        stored = sitting is not None
        return Session(output, cleaned, choices, goal, labels, rows, random_first, pool_size, stored=stored).run()


@app.command()
def audit(
    ctx: typer.Context,
    pool: o.PoolPath,
    model: Annotated[Path, typer.Option("--model", "-m", help="Model file (.skops), finished.")],
    label: o.Label = None,
    target: Annotated[
        float | None, typer.Option("--target", min=0.0, max=1.0, help="Share of errors to prove; stops when it is.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Probability with which the bound holds.")] = 0.9,
    labels: Annotated[
        int | None, typer.Option("--labels", min=1, help="Labels planned: an exact bound at this number.")
    ] = None,
    picks: Annotated[
        str, typer.Option("--picks", help="'uniform', or 'weighted' towards rows the model is unsure of.")
    ] = "uniform",
    journal: Annotated[
        Path | None, typer.Option("--journal", help="File of the audit; by default POOL.audit.jsonl beside the table.")
    ] = None,
    classes: o.Classes = "",
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    trust: o.Trust = "",
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the draws.")] = None,
    json: o.Json = False,
) -> int:
    """Prove how often a finished model errs on a table, by labels of rows drawn at random."""
    output = Output("audit", json)
    from surefoot._files import check_writable, sole_writer
    from surefoot._outputs import check_outputs
    from surefoot.cli.audit import audit_table, journal_file
    from surefoot.pool.stored import Classifier
    from surefoot.pool.table import read_content, read_labeled_table
    from surefoot.pool.table.beside import audit_path, files_of
    from surefoot.pool.table.editing import label_writer

    path = journal or audit_path(pool)
    others = [file for file in files_of(pool) if file != audit_path(pool)]
    check_outputs([journal_file(path)], [model, *others], force=False)
    classifier = Classifier.load(model, names(trust))
    found = o.settled(ctx, output, pool, classifier.options(pool))
    check_writable(pool)
    with sole_writer(pool):
        content = read_content(pool)
        known = sorted({*names(found.values["classes"]), *classifier.classes})
        how = o.table_format(found.values)
        table = read_labeled_table(pool, classifier.label_or(label), how=how, classes=known, content=content)
        writer = label_writer(table, content)
        options = {"target_error": target, "level": level, "n_labels": labels, "picks": picks, "random_state": seed}
        return audit_table(output, classifier, table, writer, path, **options)
