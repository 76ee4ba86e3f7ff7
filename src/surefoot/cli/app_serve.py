"""`surefoot serve`, `import` and `export`: the labeling page, and labels to and from other programs."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot._errors import FileError, import_extra
from surefoot._files import OutputFile, check_outputs, check_writable, write_bytes
from surefoot._printing import address, count
from surefoot.cli import app as o
from surefoot.cli.app import Call, command, command_line
from surefoot.cli.label import check_labelable
from surefoot.cli.output import OK, Output
from surefoot.pool.database import FREEZE
from surefoot.pool.labeling import exchange as label_studio
from surefoot.pool.labeling.exchange import CSV, PARQUET, answers_file, labeled_file
from surefoot.pool.labeling.label_log import LABEL, LabelLog, write_demo
from surefoot.pool.labeling.schedule import unpack
from surefoot.pool.options import FitOptions, split_names
from surefoot.pool.store import MOVED_AUDITS, Store, clean_name, files_of, store_path
from surefoot.pool.store_labels import labels_to_write, open_store, stored_book, with_labels, write_table
from surefoot.pool.table import Table, read_content

if TYPE_CHECKING:
    from surefoot.pool.labeling.label_log import RowRanker
    from surefoot.pool.labeling.service import LabelingService
    from surefoot.pool.table import Pool


# `surefoot import` and `surefoot export`: labels from and to other programs.

# Refusals that are named one by one.
_SHOWN = 5


def import_tasks(call: Call, tasks: Path) -> int:
    """Take the annotations of Label Studio into the store."""
    try:
        content = tasks.read_bytes()
    except OSError as error:
        raise FileError(f"{tasks} could not be read: {error.strerror or error}. Check the path.") from error
    output = call.output
    call.check_pool()
    check_writable(store_path(call.path))
    raw = read_content(call.path)
    table = call.read_labelable(raw)
    check_labelable(table)
    with open_store(table, raw, call.read_labelable) as store:
        read = label_studio.read_tasks(content, tasks)
        with with_labels(store, table, raw, call.read_labelable) as (book, table, _):
            events, refused = label_studio.answers_of(read, table, book, lambda name: store.person(name).id)
            new = [event for event in events if event.key not in book.keys]
            for event in store.append(new):
                book.apply(event)
    for why in refused[:_SHOWN]:
        output.note(f"not taken: {why}.")
    if len(refused) > _SHOWN:
        output.note(f"not taken: {len(refused) - _SHOWN} more.")
    labels, conflicts = len(book.labels), len(book.conflicts)
    output.say(
        f"{count(len(new), 'answer')} taken from {count(len(read), 'task')}; {count(labels, 'label')} now.", "bold"
    )
    if conflicts:
        output.say(f"{count(conflicts, 'row')} with different answers: surefoot serve shows them to be settled.")
    data = {"answers": len(new), "refused": len(refused), "labels": labels, "conflicts": conflicts}
    return output.finish(data)


def export_store(
    call: Call, out: Path | None, answers: Path | None, *, in_place: bool, predictions: bool, force: bool
) -> int:
    """Write labels and answers; the store is only read, also while it is being served."""
    pool, output = call.path, call.output
    if not store_path(pool).exists():
        raise FileError(f"{store_path(pool)} must be there to be exported; it is not. Label rows with surefoot label.")
    if out is None and answers is None and not in_place:
        out = pool.with_name(f"{pool.stem}.labeled{pool.suffix}")
    _check_outputs(pool, out, answers, force=force)
    call.check_pool()
    book, table, content = _read_both(call)
    written = {}
    with Store(store_path(pool), {}) as store:
        if book is None:
            raise FileError(
                f"{store_path(pool)} must hold labels of {table.label!r} to be exported; it has none. Pass another "
                "--label, or label rows with surefoot label."
            )
        if out is not None:
            write_bytes(out, _labels(store, book, table, content, out, predictions=predictions))
            written["labels"] = str(out)
        if answers is not None:
            write_bytes(answers, answers_file(book, store.people(), _form(answers)))
            written["answers"] = str(answers)
        if in_place:
            check_writable(pool)
            written["changed"] = str(write_table(store, table, content, call.read_labelable))
    output.say("Written", "bold")
    output.rows(list(written.items()))
    if out is not None and out.suffix.lower() == ".json" and not output.json:
        output.say("The labeling interface for a project of Label Studio:")
        output.say(label_studio.config(table))
    if book.conflicts:
        output.note(f"{count(len(book.conflicts), 'row')} with different answers stay empty: settle them first.")
    return output.finish({"labels_written": len(book.labels), **written}, OK)


def _read_both(call: Call) -> tuple[LabelLog | None, Table, bytes]:
    """The labels of a store and its table, of one moment: another process may write into the table between the two."""
    while True:
        content = read_content(call.path)
        table = call.read_labelable(content)
        book = stored_book(table)
        if read_content(call.path) == content:
            return book, table, content


def _labels(store: Store, book: LabelLog, table: Table, content: bytes, out: Path, *, predictions: bool) -> bytes:
    suffix = out.suffix.lower()
    if suffix != ".json":
        return labeled_file(table, content, labels_to_write(book, table), suffix)
    predicted = None
    audit = max((event.audit or 0 for event in book.events if event.kind == FREEZE), default=0)
    if predictions and audit > store.about.get(MOVED_AUDITS, 0):
        codes = unpack(store.frozen(audit)[0])
        predicted = {row: (table.classes[code], None) for row, code in enumerate(codes.tolist())}
    made = label_studio.tasks(table, book, store.people(), predicted)
    return json.dumps(made, ensure_ascii=False, indent=1).encode()


def _form(path: Path) -> str:
    form = path.suffix.lower().removeprefix(".")
    if form not in (CSV, PARQUET):
        raise FileError(f"{path} must end in .csv or .parquet (labels also in .json). Pass such a name.")
    return form


def _check_outputs(pool: Path, out: Path | None, answers: Path | None, *, force: bool) -> None:
    """No file that is read, none twice, and none that is there already, before any work is done."""
    outputs = []
    if out is not None:
        if out.resolve() == pool.resolve():
            raise FileError(f"{out} is the pool itself. Pass --in-place to write the labels into it.")
        if out.suffix.lower() not in (".json", pool.suffix.lower()):
            _form(out)
        outputs.append(OutputFile(out, "table of labels", "--out", Path.is_file))
    if answers is not None:
        _form(answers)
        outputs.append(OutputFile(answers, "table of answers", "--answers", Path.is_file))
    check_outputs(outputs, files_of(pool), force=force)
    there = [file.path for file in outputs if file.path.exists()]
    if there and not force:  # an older export, too, may have been corrected by hand
        raise FileError(f"{there[0]} is there already. Pass --force to overwrite it, or another name.")


# ruff: noqa: PLR0913, PLR0917 - an option is an argument of its function


_Share = {"min": 0.0, "max": 1.0}


@command("serve", o.ColumnOptions, o.ReadingOptions, o.Learning, jobs=1)
def serve(
    call: Call,
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
) -> int:
    """Label in the browser, alone or together, until the error is proved to be small enough."""
    with _demo_pool(demo) as made:
        robot = None
        if made is not None:
            pool, robot = made
            guidelines = guidelines or pool.with_name("guidelines.md")
            call.ctx.params.update(label=LABEL, classes=",".join(sorted(set(robot))))
        if pool is None:
            raise typer.BadParameter("pass the table to label, or --demo.")
        call.settle(pool)
        if invite is not None:
            return _invite_to(call.output, pool, invite, host, port)
        import_extra("starlette", "serve", "the labeling page")
        import_extra("uvicorn", "serve", "the labeling page")
        from surefoot.pool.labeling.schedule import Goal, LabelingSettings
        from surefoot.serve import run_site

        for option, value, example in (("--target", target, 0.05), ("--level", level, 0.9)):
            if not 0.0 < value < 1.0:
                raise FileError(f"{option} must lie between 0 and 1; got {value:g}. Pass {example}, say.")
        choices = call.choices(tol=1e-3)
        call.check_pool()
        check_writable(store_path(pool))
        opening = _Opening(call, choices, pool_size, keep=robot is None)
        run_site(
            opening.load, call.read_labelable,
            LabelingSettings(Goal(target, level, choices.seed), random_first, overlap),
            host=host, port=port,
            ready=opening.say_ready, allowed=_host_names(allow_host), guidelines=guidelines, robot=robot,
            browser=not no_open,
        )  # fmt: skip
        return OK


@contextmanager
def _demo_pool(wanted: bool) -> Iterator[tuple[Path, Any] | None]:
    """A pool to try the page on and its true labels (N,), in a folder that is removed at the end."""
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="surefoot-demo-") as folder:
        yield write_demo(Path(folder))


def _invite_to(output: Output, pool: Path, name: str, host: str, port: int) -> int:
    """Print the link with which a person comes in; it works while the page is served, too."""
    name = clean_name(name, "invite")
    with Store(store_path(pool), {}) as store:
        token = store.invite(name)
    output.say(f"{address(host, port)}join/{token}")
    output.note(f"whoever has this link is {name}. A new one ends it. Everyone who labels needs a link now.")
    return OK


def _host_names(text: str) -> tuple[str, ...]:
    """More names of this server."""
    allowed = tuple(split_names(text))
    for name in allowed:
        if re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:.]+\]", name) is None:
            raise FileError(
                f"--allow-host must be a host name without scheme, port or wildcard; got {name!r}. Pass "
                "label.example.org, say."
            )
    return allowed


@dataclass(eq=False)
class _Opening:
    """Reads the table when the server asks for it, and says when the page is there.

    most : unlabeled rows that fits work with; keep : whether the options are kept.
    began, read : when the command began, and when the table was read.
    """

    call: Call
    choices: FitOptions
    most: int
    keep: bool
    began: float = field(default_factory=time.monotonic)
    read: float = 0.0

    def load(self) -> tuple[Pool, bytes, RowRanker]:
        """The table, the bytes of its file, and what learns from it."""
        from surefoot.cli.label import check_labelable
        from surefoot.pool.served_model import PoolLearner
        from surefoot.pool.table import clean, read_content
        from surefoot.report import write_report

        with self.call.output.working("reading the table"):
            content = read_content(self.call.path)
            table = self.call.read_labelable(content)
            check_labelable(table)
            cleaned = clean(table, **self.call.columns)
        self.call.output.note(*cleaned.notes)
        if self.keep:
            self.call.keep()
        self.read = time.monotonic()
        options = self.call.values
        return cleaned, content, PoolLearner(cleaned, self.choices, self.most, options, write_report, command_line())

    def say_ready(self, url: str, desk: LabelingService, by_invitation: bool) -> None:
        """What is served, where, and how long that took."""
        rows, labels = count(desk.book.n_rows, "row"), count(len(desk.book.labels), "label")
        self.call.output.say(f"Labeling {self.call.label!r} in {self.call.path.name}, {rows}, {labels}.", "bold")
        self.call.output.say(f"Open {url}  (Ctrl-C ends it; every answer is on the disk when the page says saved)")
        read, ready = self.read - self.began, time.monotonic() - self.read
        self.call.output.note(f"read in {read:.1f} s, ready {ready:.1f} s later.")
        if by_invitation:
            self.call.output.note("people come in by their links: surefoot serve ... --invite NAME makes one.")


@command("import", o.ReadingOptions, o.Json)
def import_labels(
    call: Call,
    pool: o.PoolPath,
    tasks: Annotated[Path, typer.Argument(help="JSON that Label Studio exported.")],
    label: o.Label = None,
    classes: o.Classes = "",
) -> int:
    """Take answers from Label Studio into the store of a pool; the same file may be imported again."""
    call.settle(pool)
    return import_tasks(call, tasks)


@command("export", o.ReadingOptions, o.Json)
def export_labels(
    call: Call,
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
) -> int:
    """Write the labels of a pool's store: into a new table, into the table itself, or for Label Studio."""
    call.settle(pool)
    return export_store(call, out, answers, in_place=in_place, predictions=predictions, force=force)
