"""The commands that choose rows and take labels: `radius`, `query`, `label`, `audit`."""

# ruff: noqa: PLR0913, PLR0917 - an option is an argument of its function

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot._printing import cell_text, count, rounded_up
from surefoot.cli import app as o
from surefoot.cli.app import Call, command
from surefoot.pool.notes import Note
from surefoot.pool.options import read_loss, split_names

if TYPE_CHECKING:
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
    path: Annotated[int, typer.Option("--path", min=0, help="Radii at which to show loss and confidence.")] = 0,
) -> int:
    """Print the minimal radius, the calibrated one, and the distance to a reference."""
    choices = call.settle_pool(pool)
    from surefoot.cli.output import pool_data, say_pool
    from surefoot.pool.options import Clock
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
    pairs = [("minimal", f"{radii.minimal:.4f}: below it no distribution has these rows and class shares")]
    if radii.calibrated is not None:
        pairs.append(("calibrated", _calibrated(radii)))
    if other is not None:
        data["reference"] = {"path": str(other.path), "radius": radii.reference}
        pairs.append(
            ("reference", f"{radii.reference:.4f}: the distance to {other.path.name}, which this radius covers")
        )
    takes = "none" if isinstance(radii.default, Note) else "the calibrated one"
    pairs.append(("fit takes", f"{takes} for a worst case, a small one to learn"))
    output.say("Radius", "bold")
    output.rows(pairs)
    if radii.path:
        if radii.path_sample is not None:
            output.note(f"the path is that of {radii.path_sample} unlabeled rows, drawn at random.")
        output.say("Along the radius, a classifier learned at each", "bold")
        rows = [
            [f"{one.radius:.4f}", f"{one.excess:.4f}", rounded_up(one.risk, 4), f"{one.median_confidence:.3f}"]
            for one in radii.path
        ]
        output.table(["radius", "beyond minimal", "worst loss", "median confidence"], rows, right=(0, 1, 2, 3))
    return output.finish(data)


def _calibrated(radii: Radii) -> str:
    found = radii.calibrated
    if found is None:
        return ""
    how = f"from {found.n_labeled} random labels, level {found.level:g} (measured, not proved)"
    if radii.tied:
        return f"tied to the label shares: {found.excess:.4f} beyond what features and shares need, {how}"
    return f"{radii.minimal + found.excess:.4f} = minimal + {found.excess:.4f}, {how}"


@command("query", o.ColumnOptions, o.ReadingOptions, o.Learning, o.Json)
def query(
    call: Call,
    pool: o.PoolPath,
    label: o.Label = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many rows.")] = 10,
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
) -> int:
    """Ask for labels, one row at a time; each is stored at once, and all are written into the table at the end."""
    goal_loss, choices = read_loss(loss), call.settle_pool(pool, tol=1e-3)
    from surefoot._files import check_writable
    from surefoot.cli.label import LabelAsking, check_labelable, seated
    from surefoot.pool.labeling.terminal import LabelLoop
    from surefoot.pool.store import files_of, store_path
    from surefoot.pool.table import clean, read_content

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
        from surefoot.pool.labeling.terminal import proven_labeling

        with sitting.store.log("proof") as log:
            proving = proven_labeling(
                cleaned, choices, log, target_error=target_error, level=level, random_first=random_first
            )
            return ProofAsking(call.output, sitting, cleaned, proving, path).run()


@command("audit", o.ReadingOptions, o.Json)
def audit(
    call: Call,
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
    sampling: Annotated[
        str, typer.Option("--sampling", help="'uniform', or 'weighted' towards rows the model is unsure of.")
    ] = "uniform",
    name: Annotated[str, typer.Option("--audit", help="Name of the audit; each model needs one of its own.")] = "audit",
    classes: o.Classes = "",
    trust: o.Trust = "",
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the draws.")] = None,
) -> int:
    """Prove how often a finished model errs on a table, by labels of rows drawn at random."""
    from surefoot._files import check_writable
    from surefoot.cli.audit import audit_table
    from surefoot.cli.label import seated
    from surefoot.pool.store import store_path
    from surefoot.pool.stored import Classifier
    from surefoot.pool.table import read_content

    classifier = Classifier.load(model, split_names(trust))
    call.settle(pool, classifier.options(pool))
    call.values["label"] = classifier.label_or(label or call.values["label"])
    check_writable(pool)
    check_writable(store_path(pool))
    content, read = read_content(pool), partial(call.read_labelable, more=classifier.classes)
    options = {"target_error": target, "level": level, "n_labels": labels, "sampling": sampling, "random_state": seed}
    with seated(call.output, read(content), content, read) as sitting:
        return audit_table(call.output, classifier, sitting, name, **options)
