"""`surefoot serve`, `import` and `export`: the labeling page, and labels to and from other programs."""

from __future__ import annotations

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
from surefoot._files import check_writable
from surefoot._printing import address, count
from surefoot.cli import app as o
from surefoot.cli.app import Call, command, command_line
from surefoot.cli.output import OK, Output
from surefoot.pool.options import split_names
from surefoot.pool.store import Store, clean_name, store_path

if TYPE_CHECKING:
    from surefoot.pool.labeling.label_log import RowRanker
    from surefoot.pool.labeling.service import LabelingService
    from surefoot.pool.options import FitOptions
    from surefoot.pool.table import Pool

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
            from surefoot.pool.labeling.label_log import LABEL

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
    from surefoot.pool.labeling.label_log import write_demo

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
    from surefoot.cli.exchange import import_tasks

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
    from surefoot.cli.exchange import export_store

    call.settle(pool)
    return export_store(call, out, answers, in_place=in_place, predictions=predictions, force=force)
