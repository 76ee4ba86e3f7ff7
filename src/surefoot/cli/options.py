"""Options that several commands share, and what completes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.pool.table.errors import FileError, TableError
from surefoot.pool.table.reading import SUFFIXES, Format, read_names


def _columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """The columns of the table that was named, for the shell to offer; after a comma the next one."""
    # an option that still lacks its value leaves what was typed before it unread
    typed = [word for word in ctx.args if Path(word).suffix.lower() in SUFFIXES]
    table = next((one for one in (ctx.params.get("pool"), ctx.params.get("table"), *typed) if one), None)
    if table is None:
        return []
    try:
        known = read_names(Path(table), Format(ctx.params.get("delimiter"), ctx.params.get("encoding") or "utf-8"))
    except (FileError, TableError):
        return []
    head, comma, last = incomplete.rpartition(",")
    return [f"{head}{comma}{name}" for name in known if name.startswith(last)]


PoolPath = Annotated[Path, typer.Argument(help="Table (.csv, .tsv, .parquet); rows with an empty label are unlabeled.")]
ModelPath = Annotated[Path, typer.Argument(help="Model file (.skops).")]
Label = Annotated[str | None, typer.Option("--label", "-l", help="Name of the label column.", autocompletion=_columns)]
Classes = Annotated[str, typer.Option("--classes", help="All classes, where the labels may miss some.")]
Radius = Annotated[
    str,
    typer.Option(
        "--radius",
        "-r",
        help="Of the worst case: 'calibrated' (estimated from the labels), 'auto' (rule of thumb) or a number.",
    ),
]
Prior = Annotated[
    str,
    typer.Option(
        "--prior", "-p", help="Class probabilities '0.3,0.7' in sorted order, 'weak' (from labels) or 'none'."
    ),
]
Loss = Annotated[str, typer.Option("--loss", help="'log_loss', or 'zero_one' for the share of wrong answers.")]
Target = Annotated[float | None, typer.Option("--target-risk", min=0.0, help="Exit code 3 if the risk is above this.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite also files that surefoot did not write.")]
Trust = Annotated[str, typer.Option("--trust", help="Types in a model file to trust, or 'size'; commas between.")]
CvGroups = Annotated[
    str | None,
    typer.Option(
        "--cv-groups",
        help="Column of customers or documents, say: their rows share a fold and count once in the bound on errors.",
        autocompletion=_columns,
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]


class Columns:
    """What the columns of a table are."""

    classes: Classes = ""
    drop: Annotated[
        str, typer.Option("--drop", help="Columns to leave out, with commas between.", autocompletion=_columns)
    ] = ""
    categories: Annotated[
        str,
        typer.Option("--categories", help="Columns of names, also if they look otherwise.", autocompletion=_columns),
    ] = ""
    text: Annotated[
        str, typer.Option("--text", help="Columns of free text, read by words.", autocompletion=_columns)
    ] = ""
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse useless and mixed columns instead of leaving them out.")
    ] = False
    drop_useless: Annotated[
        bool, typer.Option("--drop-useless", hidden=True, help="The default now; --strict refuses.")
    ] = False


class Reading:
    """How a table is written."""

    missing: Annotated[str, typer.Option("--missing", help="Texts that mean missing, such as '?'.")] = ""
    delimiter: Annotated[str | None, typer.Option("--delimiter", help="Between cells: ',', ';', '|' or 'tab'.")] = None
    encoding: Annotated[str, typer.Option("--encoding", help="Of text files.")] = "utf-8"


class Learning:
    """How to learn from a table."""

    forget: Annotated[bool, typer.Option("--forget", help="Forget the options kept for this table.")] = False
    seed: Seed = 0
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Threads; -1 for one per core.")] = -1


class Json:
    """One object for a program in place of words."""

    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False
