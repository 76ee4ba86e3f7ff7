"""The commands that need no table: the paper's experiments and the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli import options as o
from surefoot.cli.app import Call, command
from surefoot.pool.choices import names
from surefoot.pool.table.errors import FileError

# Rows of a table of results that are shown.
_SHOWN = 40


def _experiments() -> list[str]:
    from surefoot.paper import names

    return names()


@command("reproduce", o.Json)
def reproduce(
    call: Call,
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
    device: Annotated[
        str, typer.Option("--device", help="Where the fits of figures 5 and 6 run: cpu, or a torch device like cuda.")
    ] = "cpu",
    force: o.Force = False,
    seed: o.Seed = 0,
) -> int:
    """Run an experiment of the paper again; a stopped run goes on where it was."""
    from surefoot.paper import reproduce

    output = call.output
    with output.warnings():
        done = reproduce(
            name,
            datasets=names(datasets) or None,
            trials=trials,
            quick=quick,
            jobs=jobs,
            out=out,
            seed=seed,
            device=device,
            progress=True,
            force=force,
        )
    for title, table in done.tables.items():
        output.say(title, "bold")
        output.table(
            [str(column) for column in table.columns],
            [
                [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row]
                for row in table.values[:_SHOWN]
            ],
        )
        if len(table) > _SHOWN:
            output.say(f"  and {len(table) - _SHOWN} more rows in {done.out / title}.csv", "dim")
    output.rows([("written", str(done.out)), *[("figure", str(path)) for path in done.figures]])
    data = {
        "name": done.name,
        "out": str(done.out),
        "datasets": list(done.settings.datasets),
        "trials": done.settings.trials,
        "tables": {title: str(done.out / f"{title}.csv") for title in done.tables},
        "figures": [str(path) for path in done.figures],
    }
    return output.finish(data)


@command("demo", o.Json)
def demo(
    call: Call,
    out: Annotated[Path, typer.Option("--out", "-o", help="Figure to write (.png, .pdf, .svg).")] = Path(
        "surefoot-demo.png"
    ),
    force: o.Force = False,
    seed: o.Seed = 0,
) -> int:
    """Certify a classifier learned from 20 labels of the Wisconsin breast cancer data."""
    from surefoot import demo
    from surefoot._outputs import check_outputs

    if out.suffix.lower() not in demo.FORMATS:
        raise FileError(
            f"the figure must end in one of {', '.join(demo.FORMATS)}; got {out}. Pass such a name as --out."
        )
    check_outputs([demo.figure_file(out)], [], force=force)
    with call.output.working("fitting"):
        shown = demo.Demonstration.of(seed)
    call.output.say(shown.report)
    with call.output.working("drawing"):
        shown.draw(out)
    call.output.say(f"\nFigure: {out}")
    return call.output.finish({**shown.data, "figure": str(out)})
