"""`surefoot serve`: from a table to a page that is being served."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._errors import import_extra
from surefoot._files import check_writable, sole_writer
from surefoot._printing import count
from surefoot.cli import options as o
from surefoot.cli.label import check_labelable
from surefoot.cli.output import OK, Output
from surefoot.pool.choices import Choices, names
from surefoot.pool.kept_options import KeptOptions
from surefoot.pool.labeling.desk import Settings
from surefoot.pool.labeling.open_store import open_desk, open_store, stored_classes
from surefoot.pool.labeling.proof import Goal
from surefoot.pool.table import FileError, Table, clean, read_content
from surefoot.pool.table.beside import store_path
from surefoot.serve.demo import LABEL, write_demo


@dataclass(frozen=True, eq=False)
class Serving:
    """How the page is served.

    keep : whether options are kept beside the table; robot : the truth (N,), for the demonstration.
    """

    target: float
    level: float
    host: str
    port: int
    overlap: float
    guidelines: Path | None
    allowed: tuple[str, ...]
    random_first: int
    pool_size: int
    browser: bool
    robot: Any = None
    keep: bool = True


@dataclass(frozen=True, eq=False)
class Demo:
    """A pool to try the page on."""

    path: Path
    label: str
    classes: str
    truth: Any
    guidelines: Path


@contextmanager
def demo_pool(wanted: bool) -> Iterator[Demo | None]:
    """A pool in a folder that is removed at the end."""
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="surefoot-demo-") as folder:
        path, truth = write_demo(Path(folder))
        yield Demo(path, LABEL, ",".join(np.unique(truth)), truth, Path(folder) / "guidelines.md")


def read_table(pool: Path, found: KeptOptions, content: bytes | None = None) -> Table:
    """A table with all classes that it, the options or its store know."""
    named = names(str(found.values["classes"]))
    known = [*named, *(name for name in stored_classes(pool) if name not in named)]
    how = o.table_format(found.values)
    if not known:
        return o.read_table_of(pool, o.label_of(found), how, "", content)
    from surefoot.pool.table import read_labeled_table
    from surefoot.pool.table.pool import read_labels
    from surefoot.pool.table.reading import read_table as read_cells

    if not named:  # the store's classes, and those that the table shows
        labels = read_labels(read_cells(pool, how, content=content)[o.label_of(found)])
        known += sorted({label for label in labels if label is not None} - set(known))
    return read_labeled_table(pool, o.label_of(found), how=how, classes=known, content=content)


def invite_to(output: Output, pool: Path, found: KeptOptions, name: str, host: str, port: int) -> int:
    """Print the link with which a person comes in; it works while the page is served, too."""
    from surefoot.pool.labeling.store import Store, check_name
    from surefoot.serve.server import address

    name = " ".join(name.split())
    try:
        check_name(name)
    except ValueError as error:
        raise FileError(f"--invite {name!r}: {error}") from error
    if store_path(pool).exists():
        store = Store(store_path(pool))
    else:
        o.check_pool(pool, found)
        table = read_table(pool, found)
        check_labelable(table)
        store = open_store(table)
    token = store.invite(name)
    store.close()
    output.say(f"{address(host, port)}join/{token}")
    output.note(f"whoever has this link is {name}. A new one ends it.")
    return OK


def serve_pool(output: Output, pool: Path, found: KeptOptions, choices: Choices, serving: Serving) -> int:
    """Serve until the process is told to end."""
    import_extra("starlette", "serve", "the labeling page")
    import_extra("uvicorn", "serve", "the labeling page")
    from surefoot.serve import server

    began = time.monotonic()
    for option, value, example in (("--target", serving.target, 0.05), ("--level", serving.level, 0.9)):
        if not 0.0 < value < 1.0:
            raise FileError(f"{option} must lie between 0 and 1; got {value:g}. Pass {example}, say.")
    o.check_pool(pool, found)
    check_writable(store_path(pool))
    server.bind(serving.host, serving.port).close()  # told before anything is read
    guidelines = None if serving.guidelines is None else read_guidelines(serving.guidelines)
    with sole_writer(pool):
        with output.working("reading the table"):
            table = read_table(pool, found, read_content(pool))
            check_labelable(table)
            cleaned = clean(table, **o.column_options(found.values))
        for note in cleaned.notes:
            output.note(note)
        if serving.keep:
            o.keep(output, found)
        read = time.monotonic()
        room = make_room(cleaned, choices, serving, found.values, guidelines)
        sock = server.bind(serving.host, serving.port)

        def ready(url: str) -> None:
            labels = count(len(room.desk.book.labels), "label")
            output.say(
                f"Labeling {table.label!r} in {table.path.name}, {count(len(table.labels), 'row')}, {labels}.", "bold"
            )
            output.say(f"Open {url}  (Ctrl-C ends it; every answer is on the disk when the page says saved)")
            output.note(f"read in {read - began:.1f} s, ready {time.monotonic() - read:.1f} s later.")
            if room.by_invitation:
                output.note("people come in by their links: surefoot serve ... --invite NAME makes one.")

        server.run(room, sock, serving.host, allowed=serving.allowed, ready=ready, browser=serving.browser)
    return OK


def make_room(pool: Any, choices: Choices, serving: Serving, options: dict[str, Any], guidelines: str | None) -> Any:
    """The room of a pool; its worker process is started first, while there are no threads."""
    from surefoot.cli.fit import command_line
    from surefoot.pool.labeling.learning import Neighbours
    from surefoot.pool.served_model import PoolLearner
    from surefoot.report import render_report
    from surefoot.serve.cards import Cards
    from surefoot.serve.room import Room
    from surefoot.serve.server import is_local
    from surefoot.serve.worker import Fitter, Process

    worker = Process(PoolLearner(pool, choices, serving.pool_size, options, render_report, command_line()))
    worker.start()
    goal = Goal(serving.target, serving.level, choices.seed)
    desk = open_desk(pool.table, Settings(goal, serving.random_first, serving.overlap))
    return Room(
        desk,
        Cards(pool.table, pool.values[pool.columns.numbers]),
        Fitter(worker, desk.wanted, desk.take_ranking, desk.freeze_if_due),
        Neighbours(pool.rows),
        guidelines,
        by_invitation=not is_local(serving.host),
        robot=serving.robot,
    )


def read_guidelines(path: Path) -> str:
    """A Markdown file as HTML; HTML in it is shown, not used, and pictures are left out."""
    markdown = import_extra("markdown_it", "serve", "showing guidelines")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise FileError(f"{path} must be a Markdown file in UTF-8; it could not be read: {error}. Check it.") from error
    return str(markdown.MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(text))
