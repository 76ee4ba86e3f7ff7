"""`surefoot serve`, `import` and `export`: the labeling page, and labels to and from other programs."""

# ruff: noqa: PLR0913, PLR0917 - an option is an argument of its function

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli import options as o
from surefoot.cli.app import app
from surefoot.cli.output import Output
from surefoot.pool.choices import names

_Share = {"min": 0.0, "max": 1.0}


@app.command("serve")
def serve(
    ctx: typer.Context,
    pool: Annotated[
        Path | None, typer.Argument(help="Table (.csv, .tsv, .parquet); rows with an empty label are unlabeled.")
    ] = None,
    label: o.Label = None,
    target: Annotated[
        float, typer.Option("--target", "--target-error", **_Share, help="Share of wrong answers to prove.")
    ] = 0.05,
    level: Annotated[float, typer.Option("--level", **_Share, help="How sure the proof is to be.")] = 0.9,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this machine's need a link.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8765,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    invite: Annotated[str | None, typer.Option("--invite", help="Print a link for this person, and stop.")] = None,
    overlap: Annotated[float, typer.Option("--overlap", **_Share, help="Share of rows that two people label.")] = 0.0,
    guidelines: Annotated[Path | None, typer.Option("--guidelines", help="Markdown file that the page shows.")] = None,
    allow_host: Annotated[str, typer.Option("--allow-host", help="More names of this server, commas between.")] = "",
    demo: Annotated[
        bool, typer.Option("--demo", help="Try it on data of scikit-learn, with a robot that labels.")
    ] = False,
    radius: o.Radius = "default",
    prior: o.Prior = "weak",
    random_first: Annotated[
        int, typer.Option("--random-first", min=2, help="Random labels before rows are picked; estimates rest on them.")
    ] = 20,
    pool_size: Annotated[
        int, typer.Option("--pool-size", min=0, help="Unlabeled rows that fits work with; 0 for all.")
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
    jobs: o.Jobs = 1,
) -> int:
    """Label in the browser, alone or together, until the error is proved to be small enough."""
    from surefoot.cli.serve_pool import Serving, demo_pool, invite_to, serve_pool

    output = Output("serve", json=False)
    robot = None
    with demo_pool(demo) as made:
        if made is not None:
            pool, label, classes, robot = made.path, made.label, made.classes, made.truth
            guidelines = guidelines or made.guidelines
            ctx.params.update(pool=pool, label=label, classes=classes)
        if pool is None:
            raise typer.BadParameter("pass the table to label, or --demo.")
        found = o.settled(ctx, output, pool)
        if invite is not None:
            return invite_to(output, pool, found, invite, host, port)
        serving = Serving(
            target, level, host, port, overlap, guidelines, tuple(names(allow_host)), random_first, pool_size,
            browser=not no_open, robot=robot, keep=made is None,
        )  # fmt: skip
        return serve_pool(output, pool, found, o.read_choices(found.values, seed, jobs, tol=1e-3), serving)


@app.command("import")
def import_labels(
    ctx: typer.Context,
    pool: o.PoolPath,
    tasks: Annotated[Path, typer.Argument(help="JSON that Label Studio exported.")],
    label: o.Label = None,
    classes: o.Classes = "",
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    json: o.Json = False,
) -> int:
    """Take answers from Label Studio into the store of a pool; the same file may be imported again."""
    from surefoot.cli.exchange import import_tasks

    output = Output("import", json)
    return import_tasks(output, pool, tasks, o.settled(ctx, output, pool))


@app.command("export")
def export_labels(
    ctx: typer.Context,
    pool: o.PoolPath,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Labels: .csv or .parquet; .json for Label Studio's tasks.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option("--answers", help="All answers, one per line: .csv or .parquet.")
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Write the labels into the table itself.")] = False,
    predictions: Annotated[
        bool, typer.Option("--predictions", help="With Label Studio's tasks: what the last frozen model predicts.")
    ] = False,
    force: o.Force = False,
    label: o.Label = None,
    classes: o.Classes = "",
    missing: o.Missing = "",
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = "utf-8",
    json: o.Json = False,
) -> int:
    """Write the labels of a pool's store: into a new table, into the table itself, or for Label Studio."""
    from surefoot.cli.exchange import ExportRequest, export_store

    output = Output("export", json)
    wanted = ExportRequest(out, answers, in_place, predictions, force)
    return export_store(output, pool, o.settled(ctx, output, pool), wanted)
