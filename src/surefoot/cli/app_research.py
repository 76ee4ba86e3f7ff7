"""The commands and their options: the paper's experiments and the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli import options as o
from surefoot.cli.app import app
from surefoot.cli.output import Output
from surefoot.pool.choices import names


def _experiments() -> list[str]:
    from surefoot.paper import names

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
    device: Annotated[
        str, typer.Option("--device", help="Where the fits of figures 5 and 6 run: cpu, or a torch device like cuda.")
    ] = "cpu",
    force: o.Force = False,
    seed: o.Seed = 0,
    json: o.Json = False,
) -> int:
    """Run an experiment of the paper again; a stopped run goes on where it was."""
    from surefoot.cli.paper import reproduce_experiment

    return reproduce_experiment(
        Output("reproduce", json),
        name,
        names(datasets) or None,
        trials,
        quick,
        jobs,
        out,
        seed,
        device=device,
        force=force,
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
