"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from surefoot.cli.learn_pool import AUTO, CALIBRATED, DEFAULT, NONE, WEAK, Choices
from surefoot.tabular import Format, Pool, Table, TableError, clean, read_labeled_table

PoolPath = Annotated[Path, typer.Argument(help="Table (.csv, .tsv, .parquet); rows with an empty label are unlabeled.")]
ModelPath = Annotated[Path, typer.Argument(help="Model file (.skops).")]
Label = Annotated[str, typer.Option("--label", "-l", help="Name of the label column.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Threads; -1 for one per core.")]
Drop = Annotated[str, typer.Option("--drop", help="Columns to leave out, with commas between.")]
Categories = Annotated[str, typer.Option("--categories", help="Columns of numbers that are names.")]
DropUseless = Annotated[
    bool, typer.Option("--drop-useless", help="Leave out columns that are empty, constant or too diverse.")
]
Missing = Annotated[str, typer.Option("--missing", help="Texts that mean missing, such as '?'.")]
Delimiter = Annotated[str | None, typer.Option("--delimiter", help="Between cells: ',', ';', '|' or 'tab'.")]
Encoding = Annotated[str, typer.Option("--encoding", help="Of text files.")]
Classes = Annotated[str, typer.Option("--classes", help="All classes, where the labels may miss some.")]
Radius = Annotated[
    str,
    typer.Option(
        "--radius",
        "-r",
        help="'calibrated' (estimated from the labels), 'auto' (rule of thumb) or a number; by default the first with "
        "20 or more random labels.",
    ),
]
Prior = Annotated[
    str,
    typer.Option(
        "--prior", "-p", help="Class probabilities '0.3,0.7' in sorted order, 'weak' (from labels) or 'none'."
    ),
]
Target = Annotated[float | None, typer.Option("--target-risk", min=0.0, help="Exit code 3 if the risk is above this.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite also files that surefoot did not write.")]
Trust = Annotated[str, typer.Option("--trust", help="Types in a model file to trust, or 'size'; commas between.")]


def names(text: str) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in text.split(",") if name.strip()]


def table_format(delimiter: str | None, encoding: str, missing: str) -> Format:
    """How tables are written."""
    return Format(delimiter, encoding, tuple(names(missing)))


def read_radius(text: str) -> str | float:
    """The radius option."""
    if text in (DEFAULT, CALIBRATED, AUTO):
        return text
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise TableError(f"--radius must be 'calibrated', 'auto' or a number at least 0; got {text!r}. Pass one.")
    return value


def read_prior(text: str) -> str | tuple[float, ...]:
    """The prior option."""
    if text in (WEAK, NONE):
        return text
    try:
        return tuple(float(part) for part in names(text))
    except ValueError as error:
        raise TableError(
            f"--prior must be 'weak', 'none' or one probability per class, such as 0.3,0.7; got {text!r}. Pass one."
        ) from error


def read_choices(radius: str, prior: str, seed: int, jobs: int, **more: Any) -> Choices:
    """What was asked of a fit."""
    return Choices(radius=read_radius(radius), prior=read_prior(prior), seed=seed, n_jobs=jobs or 1, **more)


def read_pool(
    path: Path,
    label: str,
    how: Format,
    classes: str,
    *,
    check: Any = None,
    **columns: Any,
) -> Pool:
    """Read and clean a pool."""
    table = read_table_of(path, label, how, classes)
    if check is not None:
        check(table)
    return clean(table, **columns)


def read_table_of(path: Path, label: str, how: Format, classes: str, content: bytes | None = None) -> Table:
    """Read a table with labels; `content` is that of its file, where it was read before."""
    return read_labeled_table(path, label, how=how, classes=names(classes) or None, content=content)
