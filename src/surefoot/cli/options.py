"""Options that several commands share, how their texts are read, and what completes them."""

from __future__ import annotations

import shlex
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot._printing import count
from surefoot.cli.output import Output
from surefoot.pool.choices import Choices, names, read_prior, read_radius
from surefoot.pool.kept_options import KEPT, KeptOptions, settle
from surefoot.pool.table.errors import FileError, TableError
from surefoot.pool.table.reading import SUFFIXES, Format, check_label, read_names

if TYPE_CHECKING:
    from surefoot.pool.table import Pool, Table


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
TablePath = Annotated[Path, typer.Argument(help="Table with the columns that the model was fitted to.")]
ModelPath = Annotated[Path, typer.Argument(help="Model file (.skops).")]
Label = Annotated[str | None, typer.Option("--label", "-l", help="Name of the label column.", autocompletion=_columns)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Threads; -1 for one per core.")]
Drop = Annotated[
    str, typer.Option("--drop", help="Columns to leave out, with commas between.", autocompletion=_columns)
]
Categories = Annotated[
    str, typer.Option("--categories", help="Columns of names, also if they look otherwise.", autocompletion=_columns)
]
Text = Annotated[str, typer.Option("--text", help="Columns of free text, read by words.", autocompletion=_columns)]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse useless and mixed columns instead of leaving them out.")]
DropUseless = Annotated[bool, typer.Option("--drop-useless", hidden=True, help="The default now; --strict refuses.")]
Missing = Annotated[str, typer.Option("--missing", help="Texts that mean missing, such as '?'.")]
Delimiter = Annotated[str | None, typer.Option("--delimiter", help="Between cells: ',', ';', '|' or 'tab'.")]
Encoding = Annotated[str, typer.Option("--encoding", help="Of text files.")]
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
Forget = Annotated[bool, typer.Option("--forget", help="Forget the options kept for this table.")]
Trust = Annotated[str, typer.Option("--trust", help="Types in a model file to trust, or 'size'; commas between.")]
LearnRows = Annotated[
    int | None, typer.Option("--learn-rows", min=0, help="Unlabeled rows to learn from, 0 for all; by default by size.")
]
Time = Annotated[
    float | None, typer.Option("--time", min=1.0, help="Seconds for the whole fit; what is left out is said.")
]


def measured_once() -> AbstractContextManager[None]:
    """Distances that a command needs several times are measured once."""
    from surefoot.problem.geometry import shared_geometry

    return shared_geometry()


def table_format(values: dict[str, Any]) -> Format:
    """How tables are written."""
    return Format(values.get("delimiter"), values.get("encoding") or "utf-8", tuple(names(values.get("missing") or "")))


def settled(ctx: typer.Context, output: Output, table: Path, defaults: dict[str, Any] | None = None) -> KeptOptions:
    """The options of a command on a table, with those kept for it; `defaults` are those of a model file."""
    given = {name for name in ctx.params if name in KEPT and _is_typed(ctx, name)}
    values = {name: value for name, value in ctx.params.items() if name in KEPT}
    taken = {name: value for name, value in (defaults or {}).items() if name in values and name not in given}
    found = settle(table, {**values, **taken}, given, forget=bool(ctx.params.get("forget")))
    if found.note:
        output.note(found.note)
    return found


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def keep(output: Output, found: KeptOptions) -> None:
    """Keep the options of a command whose table could be read."""
    trouble = found.keep()
    if trouble:
        output.note(trouble)


def check_pool(path: Path, found: KeptOptions) -> None:
    """What can be told wrong of a table by its header, before anything is loaded."""
    check_label(path, label_of(found), table_format(found.values))


def label_of(found: KeptOptions) -> str:
    """The label column, which must be known."""
    label = found.values.get("label")
    if not label:
        raise TableError("Missing option '--label': pass the name of the column that holds the labels.")
    return str(label)


def read_choices(values: dict[str, Any], seed: int, jobs: int, **more: Any) -> Choices:
    """What was asked of a fit."""
    return Choices(
        radius=read_radius(values["radius"]), prior=read_prior(values["prior"]), seed=seed, n_jobs=jobs or 1, **more
    )


def note_waiting(output: Output, table: Table) -> None:
    """Say that labels of the labeling page are not in the table yet, so that they are not learned from."""
    from surefoot.pool.table.beside import store_path

    if store_path(table.path).exists():
        from surefoot.pool.store_labels import waiting_labels

        try:
            waiting = waiting_labels(table)
        except FileError as error:  # a folder that may only be read, say: the table can be used all the same
            output.note(f"whether the labeling page has labels that the table lacks could not be told: {error}")
            return
        if waiting:
            path = shlex.quote(str(table.path))
            output.note(
                f"{count(waiting, 'label')} of the labeling page {'is' if waiting == 1 else 'are'} not in the table: "
                f"surefoot export {path} --label {shlex.quote(table.label)} --in-place writes "
                f"{'it' if waiting == 1 else 'them'} there."
            )


def column_options(values: dict[str, Any]) -> dict[str, Any]:
    """Options of `sort_columns`."""
    return {
        "drop": names(values["drop"]),
        "categories": names(values["categories"]),
        "texts": names(values["text"]),
        "strict": bool(values["strict"]),
    }


def read_pool(path: Path, found: KeptOptions) -> Pool:
    """Read, check and clean a pool."""
    from surefoot.pool.table import check_learnable, clean

    table = read_table_of(path, label_of(found), table_format(found.values), found.values["classes"])
    check_learnable(table)
    return clean(table, **column_options(found.values))


def read_table_of(path: Path, label: str, how: Format, classes: str, content: bytes | None = None) -> Table:
    """Read a table with labels; `content` is that of its file, where it was read before."""
    from surefoot.pool.table import read_labeled_table

    return read_labeled_table(path, label, how=how, classes=names(classes) or None, content=content)
