"""`surefoot reproduce` and `surefoot demo`."""

from __future__ import annotations

from pathlib import Path

from surefoot import demo
from surefoot._outputs import check_outputs
from surefoot.cli.output import Output
from surefoot.pool.table import FileError


def reproduce_experiment(
    output: Output,
    name: str,
    datasets: list[str] | None,
    trials: int | None,
    quick: bool,
    jobs: int,
    out: Path | None,
    seed: int,
    *,
    device: str,
    force: bool,
) -> int:
    """Run an experiment and say where its tables and figures are."""
    from surefoot.paper import reproduce

    with output.warnings():
        done = reproduce(
            name,
            datasets=datasets,
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
            [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in table.values[:40]],
        )
        if len(table) > 40:
            output.say(f"  and {len(table) - 40} more rows in {done.out / title}.csv", "dim")
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


def run_demo(output: Output, out: Path, seed: int, *, force: bool) -> int:
    """The same as scripts/demo."""
    if out.suffix.lower() not in demo.FORMATS:
        raise FileError(
            f"the figure must end in one of {', '.join(demo.FORMATS)}; got {out}. Pass such a name as --out."
        )
    check_outputs([demo.figure_file(out)], [], force=force)
    with output.working("fitting"):
        shown = demo.Demonstration.of(seed)
    output.say(shown.report)
    with output.working("drawing"):
        shown.draw(out)
    output.say(f"\nFigure: {out}")
    return output.finish({**shown.data, "figure": str(out)})
