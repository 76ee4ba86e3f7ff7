"""The program `surefoot`: declaration of commands, help, and the steps that all commands on tables share."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from surefoot._errors import FileError
from surefoot._printing import count, in_words
from surefoot._version import __version__
from surefoot.cli.output import Output
from surefoot.pool.options import (
    CLASSIFIERS,
    KEPT,
    FitOptions,
    KeptOptions,
    read_classifier,
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


# Columns are read one by one. From this number on, the command announces the time.
_MANY_COLUMNS, _SECONDS_PER_COLUMN = 30_000, 2.1e-3

# Options that several commands share, and their completion.


def _columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the column names of the table for shell completion. After a comma, complete the next name."""
    # while the value of an option is incomplete, earlier words are in ctx.args
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


PoolPath = Annotated[
    Path, typer.Argument(help="Table (.csv, .tsv, .xlsx, .parquet). Rows with an empty label are unlabeled.")
]
ModelPath = Annotated[Path, typer.Argument(help="Model file (.skops).")]
Label = Annotated[str | None, typer.Option("--label", "-l", help="Name of the label column.", autocompletion=_columns)]
Classes = Annotated[str, typer.Option("--classes", help="All classes, separated by commas, if some have no label yet.")]
Predictions = Annotated[
    str | None,
    typer.Option("--predictions", help="Column with a predicted class per row.", autocompletion=_columns),
]
Score = Annotated[
    str | None,
    typer.Option(
        "--score", help="Column with a score per prediction. Larger means more certain.", autocompletion=_columns
    ),
]
Radius = Annotated[
    str,
    typer.Option(
        "--radius",
        "-r",
        help="Radius of the worst case: 'calibrated' (estimated from the labels), 'auto' (a rule of thumb) or a "
        "number. The default is calibrated.",
        show_default=False,
    ),
]
Prior = Annotated[
    str,
    typer.Option(
        "--prior",
        "-p",
        help="Class probabilities such as '0.3,0.7' in sorted order, 'weak' (estimated from the labels) or 'none'.",
    ),
]
Classifier = Annotated[
    str,
    typer.Option(
        "--classifier",
        help="'robust', 'minimax', 'logistic', 'forest', 'boosting', 'blend' (of robust and forest), 'auto' (the best "
        "of these in cross-validation), or MODULE:OBJECT for a scikit-learn classifier. The default is robust.",
        show_default=False,
        autocompletion=lambda incomplete: [name for name in CLASSIFIERS if name.startswith(incomplete)],
    ),
]
Loss = Annotated[str, typer.Option("--loss", help="'log_loss', or 'zero_one' for the error rate.")]
Target = Annotated[
    float | None, typer.Option("--target-risk", min=0.0, help="Exit with code 3 if the worst-case risk is above this.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that surefoot did not write.")]
Trust = Annotated[
    str,
    typer.Option("--trust", help="Types to trust in the model file, separated by commas, or 'size' for a large file."),
]
PoolSize = Annotated[
    int, typer.Option("--pool-size", min=0, help="Number of unlabeled rows for training, or 0 for all.")
]
CvGroups = Annotated[
    str | None,
    typer.Option(
        "--cv-groups",
        help="Column that groups dependent rows, such as a customer. A group stays in one fold and counts once.",
        autocompletion=_columns,
    ),
]
Evidence = Annotated[
    Path | None,
    typer.Option("--evidence", help="File (.json) for the claims and their proofs. See surefoot verify."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of all random choices.")]


class ColumnOptions:
    """Types of the columns."""

    classes: Classes = ""
    drop: Annotated[
        str, typer.Option("--drop", help="Columns to ignore, separated by commas.", autocompletion=_columns)
    ] = ""
    categories: Annotated[
        str,
        typer.Option("--categories", help="Columns to treat as categories.", autocompletion=_columns),
    ] = ""
    text: Annotated[str, typer.Option("--text", help="Columns to treat as free text.", autocompletion=_columns)] = ""
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at useless and mixed columns instead of ignoring them.")
    ] = False


class ReadingOptions:
    """Format of a table."""

    missing: Annotated[str, typer.Option("--missing", help="Texts that mean a missing value, such as '?'.")] = ""
    delimiter: Annotated[
        str | None, typer.Option("--delimiter", help="Separator of cells: ',', ';', '|' or 'tab'.")
    ] = None
    encoding: Annotated[str, typer.Option("--encoding", help="Encoding of text files. Default: recognized.")] = "auto"


class Learning:
    """Options for training."""

    forget: Annotated[bool, typer.Option("--forget", help="Forget the options stored for this table.")] = False
    seed: Seed = 0
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Number of threads, or -1 for one per core.")] = -1


class Json:
    """The option for JSON output."""

    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False


# Sections of a command's help, by the names of its parameters. All others are advanced options.
_SECTIONS = {
    "Input": "label predictions score classes drop categories text missing delimiter encoding reference guidelines",
    "Model": "model classifier radius prior loss worst_case target target_error target_risk max_error level labels "
    "sampling n",
    "Output": "out report no_report full_report evidence answers in_place verbose json force",
}
# Sections of the program's help, by the names of its commands.
_COMMANDS = {
    "Train and predict": "fit predict score",
    "Label": "serve label query finish import export",
    "Prove": "audit certify radius verify",
}


class _Command(TyperCommand):
    """A command whose help lists its options in sections."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{name: [] for name in _SECTIONS}}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                kind = (
                    "Arguments" if param.param_type_name == "argument" else _section(_SECTIONS, param.name, "Advanced")
                )
                sections.setdefault(kind, []).append(record)
        _write(formatter, sections)


class _Program(TyperGroup):
    """The program, whose help lists its commands in sections, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in _COMMANDS}
        for name in self.list_commands(ctx):
            help_text = inspect.cleandoc(getattr(self.get_command(ctx, name), "help", None) or "")
            sections.setdefault(_section(_COMMANDS, name, "The paper"), []).append((name, help_text))
        _write(formatter, sections)


def _section(sections: dict[str, str], name: str | None, other: str) -> str:
    return next((section for section, names in sections.items() if name in names.split()), other)


def _write(formatter: Any, sections: dict[str, list[tuple[str, str]]]) -> None:
    for name, records in sections.items():
        if records:
            with formatter.section(name):
                formatter.write_dl(records)


app = typer.Typer(
    name="surefoot",
    cls=_Program,
    help="Train a classifier from a few labels and many unlabeled rows, and prove how often it is wrong.\n\n"
    "In every table, rows with an empty label are unlabeled.",
    epilog="Exit codes: 0 success, 1 internal error or refuted evidence, 2 invalid file or option, 3 target not "
    "reached, 130 interrupted.",
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run before every command; there is nothing to do."""


def command(name: str, *groups: type, **defaults: Any) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add a command to the program. The function takes a `Call` and its own options; the call has the shared options.

    groups : classes whose attributes are shared options; defaults : values that replace their defaults.
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
        return app.command(name, cls=_Command)(run)

    return add


def command_line() -> str:
    """Return the command line as the user typed it."""
    return shlex.join(["surefoot", *sys.argv[1:]])


class Call:
    """One run of a command: its output, and its table and options once `settle` was called."""

    path: Path
    found: KeptOptions

    def __init__(self, ctx: typer.Context, output: Output) -> None:
        self.ctx, self.output = ctx, output

    def settle(self, table: Path, defaults: dict[str, Any] | None = None) -> None:
        """Combine the options given with those stored for the table and with `defaults` from a model file."""
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
        """The options that are stored for tables, with the values of this command."""
        return self.found.values

    @property
    def label(self) -> str:
        """The label column, which must be known."""
        label = self.values.get("label")
        if not label:
            raise TableError("Missing option '--label'. Pass the name of the label column.")
        return str(label)

    @property
    def form(self) -> Format:
        """The format of the table."""
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
        """Combine the options for a pool and check its header before loading anything."""
        self.settle(pool)
        choices = self.choices(**more)
        self.check_pool()
        return choices

    def choices(self, **more: Any) -> FitOptions:
        """Return the options of a fit."""
        options = {"radius": "default", "classifier": "default", **self.values}
        seed, jobs = self.ctx.params["seed"], self.ctx.params["jobs"] or 1
        return FitOptions(
            radius=read_radius(options["radius"]),
            prior=read_prior(options["prior"]),
            classifier=read_classifier(options["classifier"]),
            seed=seed,
            n_jobs=jobs,
            **more,
        )

    def check_pool(self) -> None:
        """Check the header of the table before loading anything."""
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
        """Store the options of a table, and note stored labels that the table lacks."""
        from surefoot.pool.store_labels import waiting_labels

        waiting = waiting_labels(table)
        if waiting:
            export = f"surefoot export {shlex.quote(str(table.path))} --label {shlex.quote(table.label)} --in-place"
            are, them = ("is", "it") if waiting == 1 else ("are", "them")
            self.output.note(
                f"{count(waiting, 'stored label')} {are} not in the table. To write {them} there: {export}", always=True
            )
        self.keep()
        self.share_distances()

    def share_distances(self) -> None:
        """Cache distances that the command needs several times."""
        from surefoot.problem.distances import shared_geometry

        self.ctx.with_resource(shared_geometry())

    def keep(self) -> None:
        """Store the options for later commands."""
        trouble = self.found.keep()
        if trouble:
            self.output.note(trouble)

    def read_table(self, path: Path, label: str) -> Table:
        """Read a table with labels in the format of the options."""
        from surefoot.pool.table import read_labeled_table

        return read_labeled_table(path, label, how=self.form, classes=split_names(self.values["classes"]) or None)

    def read_predictions(self, content: bytes, column: str, score: str | None) -> GivenPredictions:
        """Read the predictions in the table from the content of its file."""
        from surefoot.pool.stored import GivenPredictions
        from surefoot.pool.table.reading import read_table

        cells, named = read_table(self.path, self.form, content=content), split_names(self.values["classes"])
        return GivenPredictions.from_cells(cells, self.label, column, score, named)

    def read_labelable(self, content: bytes, more: Iterable[str] = ()) -> Table:
        """Read the table from the content of its file, with the classes of table, options, store and `more`."""
        from surefoot.pool.store_labels import stored_classes
        from surefoot.pool.table import read_labeled_table
        from surefoot.pool.table.pool import read_labels
        from surefoot.pool.table.reading import read_table

        named = split_names(str(self.values["classes"]))
        known = [*named, *stored_classes(self.path), *more]
        if known and not named:  # and the classes in the table
            labels = read_labels(read_table(self.path, self.form, content=content)[self.label])
            known += [value for value in labels if value is not None]
        classes = sorted(set(known)) or None
        return read_labeled_table(self.path, self.label, how=self.form, classes=classes, content=content)
