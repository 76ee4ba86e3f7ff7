"""The program `surefoot`: how a command is declared, and what all commands on tables do."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from surefoot._errors import FileError
from surefoot._printing import count, in_words
from surefoot._version import __version__
from surefoot.cli.output import Output
from surefoot.pool.options import (
    KEPT,
    FitOptions,
    KeptOptions,
    read_prior,
    read_radius,
    settle,
    split_names,
)
from surefoot.pool.table.cells import TableError
from surefoot.pool.table.reading import SUFFIXES, Format, check_label_column, read_names

if TYPE_CHECKING:
    from surefoot.pool.stored import GivenPredictions
    from surefoot.pool.table import Pool, Table


# Columns are read one by one. This many or more take long enough that the command says so.
_MANY_COLUMNS, _SECONDS_PER_COLUMN = 30_000, 1.2e-3

# Options that several commands share, and what completes them.


def _columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """The columns of the table that was named, for the shell to offer; after a comma the next one."""
    # an option that still lacks its value leaves what was typed before it unread
    typed = [word for word in ctx.args if Path(word).suffix.lower() in SUFFIXES]
    table = next((one for one in (ctx.params.get("pool"), ctx.params.get("table"), *typed) if one), None)
    if table is None:
        return []
    try:
        known = read_names(Path(table), Format(ctx.params.get("delimiter"), ctx.params.get("encoding") or "auto"))
    except (FileError, TableError):
        return []
    head, comma, last = incomplete.rpartition(",")
    return [f"{head}{comma}{name}" for name in known if name.startswith(last)]


PoolPath = Annotated[Path, typer.Argument(help="Table (.csv, .tsv, .parquet); rows with an empty label are unlabeled.")]
ModelPath = Annotated[Path, typer.Argument(help="Model file (.skops).")]
Label = Annotated[str | None, typer.Option("--label", "-l", help="Name of the label column.", autocompletion=_columns)]
Classes = Annotated[str, typer.Option("--classes", help="All classes, where the labels may miss some.")]
Predictions = Annotated[
    str | None,
    typer.Option("--predictions", help="Column that holds a predicted class per row.", autocompletion=_columns),
]
Score = Annotated[
    str | None,
    typer.Option("--score", help="Column of numbers: how sure each prediction is.", autocompletion=_columns),
]
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
Evidence = Annotated[
    Path | None,
    typer.Option("--evidence", help="File (.json) with the claims and their proofs, for surefoot verify."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]


class ColumnOptions:
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


class ReadingOptions:
    """How a table is written."""

    missing: Annotated[str, typer.Option("--missing", help="Texts that mean missing, such as '?'.")] = ""
    delimiter: Annotated[str | None, typer.Option("--delimiter", help="Between cells: ',', ';', '|' or 'tab'.")] = None
    encoding: Annotated[str, typer.Option("--encoding", help="Of text files; recognized by default.")] = "auto"


class Learning:
    """How to learn from a table."""

    forget: Annotated[bool, typer.Option("--forget", help="Forget the options kept for this table.")] = False
    seed: Seed = 0
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Threads; -1 for one per core.")] = -1


class Json:
    """One object for a program in place of words."""

    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False


app = typer.Typer(
    name="surefoot",
    help="Few labels, many unlabeled rows: a classifier with a certified worst case, and the rows to label next.\n\n"
    "In every table, rows with an empty label are the unlabeled ones.",
    epilog="Exit codes: 0 done, 1 a fault of surefoot or evidence that does not hold, 2 a mistake in files or options, "
    "3 the target risk was not reached, 130 interrupted.",
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


def command(name: str, *groups: type, **defaults: Any) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add a command to the program, which takes a `Call` and its own options; those of the groups are in the call.

    groups : classes whose attributes are options; defaults : in place of theirs.
    """

    def add(function: Callable[..., int]) -> Callable[..., int]:
        own = dict(list(inspect.signature(function, eval_str=True).parameters.items())[1:])
        shared = {
            option: inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            for group in groups
            for option, hint in get_type_hints(group, include_extras=True).items()
            for default in [defaults.get(option, getattr(group, option))]
        }

        @wraps(function)
        def run(ctx: typer.Context, **values: Any) -> int:
            return function(Call(ctx, Output(name, bool(values.get("json")))), **{one: values[one] for one in own})

        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        signature = inspect.Signature([context, *own.values(), *shared.values()])
        run.__signature__ = signature  # type: ignore[attr-defined]  # typer reads the options from it
        return app.command(name)(run)

    return add


def command_line() -> str:
    """The command that runs, as it was typed."""
    return shlex.join(["surefoot", *sys.argv[1:]])


class Call:
    """One run of a command: where its words go, and, once they are settled, its table and the options for it."""

    path: Path
    found: KeptOptions

    def __init__(self, ctx: typer.Context, output: Output) -> None:
        self.ctx, self.output = ctx, output

    def settle(self, table: Path, defaults: dict[str, Any] | None = None) -> None:
        """Take the options for a table, with those kept for it; `defaults` are those of a model file."""
        params = self.ctx.params
        given = {name for name in params if name in KEPT and self._is_typed(name)}
        values = {name: value for name, value in params.items() if name in KEPT}
        taken = {name: value for name, value in (defaults or {}).items() if name in values and name not in given}
        self.path = table
        self.found = settle(table, {**values, **taken}, given, forget=bool(params.get("forget")))
        if self.found.note:
            self.output.note(self.found.note)

    def _is_typed(self, name: str) -> bool:
        source = self.ctx.get_parameter_source(name)
        return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")

    @property
    def values(self) -> dict[str, Any]:
        """The options that are kept for tables, as this command uses them."""
        return self.found.values

    @property
    def label(self) -> str:
        """The label column, which must be known."""
        label = self.values.get("label")
        if not label:
            raise TableError("Missing option '--label': pass the name of the column that holds the labels.")
        return str(label)

    @property
    def form(self) -> Format:
        """How tables are written."""
        missing = tuple(split_names(self.values.get("missing") or ""))
        return Format(self.values.get("delimiter"), self.values.get("encoding") or "auto", missing)

    @property
    def columns(self) -> dict[str, Any]:
        """Options of `sort_columns`."""
        return {
            "drop": split_names(self.values["drop"]),
            "categories": split_names(self.values["categories"]),
            "texts": split_names(self.values["text"]),
            "strict": bool(self.values["strict"]),
        }

    def settle_pool(self, pool: Path, **more: Any) -> FitOptions:
        """Take the options for a pool, and refuse what its header shows to be wrong, before anything is loaded."""
        self.settle(pool)
        choices = self.choices(**more)
        self.check_pool()
        return choices

    def choices(self, **more: Any) -> FitOptions:
        """What was asked of a fit."""
        options = {"radius": "default", **self.values}
        seed, jobs = self.ctx.params["seed"], self.ctx.params["jobs"] or 1
        return FitOptions(
            radius=read_radius(options["radius"]), prior=read_prior(options["prior"]), seed=seed, n_jobs=jobs, **more
        )

    def check_pool(self) -> None:
        """What can be told wrong of a table by its header, before anything is loaded."""
        check_label_column(self.path, self.label, self.form)

    def read_pool(self) -> Pool:
        """Read, check and clean the table."""
        from surefoot.pool.table import check_learnable, clean

        with self.output.working("reading the table"):
            table = self.read_table(self.path, self.label)
            check_learnable(table)
            n_columns = len(table.cells.columns)
            if n_columns > _MANY_COLUMNS:
                self.output.announce(
                    f"{table.path.name} has {n_columns} columns: this takes about "
                    f"{in_words(n_columns * _SECONDS_PER_COLUMN)}. To be faster, leave columns out with --drop, or "
                    "save those that matter as a table of their own."
                )
            pool = clean(table, **self.columns)
        self.take_up(table)
        return pool

    def take_up(self, table: Table) -> None:
        """Keep the options of a table that could be read, and say which answers of its store are not in it yet."""
        from surefoot.pool.store_labels import waiting_labels

        waiting = waiting_labels(table)
        if waiting:
            export = f"surefoot export {shlex.quote(str(table.path))} --label {shlex.quote(table.label)} --in-place"
            are, them = ("is", "it") if waiting == 1 else ("are", "them")
            self.output.note(
                f"{count(waiting, 'label')} of the store {are} not in the table: {export} writes {them} there."
            )
        self.keep()
        self.share_distances()

    def share_distances(self) -> None:
        """Measure distances that the command needs several times once, until it ends."""
        from surefoot.problem.distances import shared_geometry

        self.ctx.with_resource(shared_geometry())

    def keep(self) -> None:
        """Keep the options for later commands."""
        trouble = self.found.keep()
        if trouble:
            self.output.note(trouble)

    def read_table(self, path: Path, label: str) -> Table:
        """Read a table with labels, written as the options say."""
        from surefoot.pool.table import read_labeled_table

        return read_labeled_table(path, label, how=self.form, classes=split_names(self.values["classes"]) or None)

    def read_predictions(self, content: bytes, column: str, score: str | None) -> GivenPredictions:
        """Read the predictions that the table holds, from its file's content."""
        from surefoot.pool.stored import GivenPredictions
        from surefoot.pool.table.reading import read_table

        cells, named = read_table(self.path, self.form, content=content), split_names(self.values["classes"])
        return GivenPredictions.from_cells(cells, self.label, column, score, named)

    def read_labelable(self, content: bytes, more: Iterable[str] = ()) -> Table:
        """Read the table from its file's content, with all classes that it, the options, its store and `more` know."""
        from surefoot.pool.store_labels import stored_classes
        from surefoot.pool.table import read_labeled_table
        from surefoot.pool.table.pool import read_labels
        from surefoot.pool.table.reading import read_table

        named = split_names(str(self.values["classes"]))
        known = [*named, *stored_classes(self.path), *more]
        if known and not named:  # and those that the table shows
            labels = read_labels(read_table(self.path, self.form, content=content)[self.label])
            known += [value for value in labels if value is not None]
        classes = sorted(set(known)) or None
        return read_labeled_table(self.path, self.label, how=self.form, classes=classes, content=content)
