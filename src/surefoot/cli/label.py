"""`surefoot label`, `import` and `export`: labels from a terminal, and to and from other programs."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.text import Text

from surefoot._errors import FileError, InfeasibleRadiusError
from surefoot._files import OutputFile, check_outputs, check_writable, write_bytes
from surefoot._printing import cell_text, count, is_long, long_text, rounded_up, share_at_most, visible
from surefoot.cli.app import Call
from surefoot.cli.output import NOT_REACHED, OK, Output
from surefoot.pool import exchange as label_studio
from surefoot.pool.database import FREEZE
from surefoot.pool.exchange import CSV, PARQUET, answers_file, labeled_file
from surefoot.pool.label_log import LabelLog
from surefoot.pool.options import AUTO, DEFAULT
from surefoot.pool.schedule import unpack
from surefoot.pool.store import MOVED_AUDITS, Store, files_of, store_path
from surefoot.pool.store_labels import labels_to_write, open_store, stored_book, with_labels, write_table
from surefoot.pool.table import Table, TableError, read_content
from surefoot.pool.table.reading import is_parquet
from surefoot.pool.terminal import LabelLoop, Sitting, sitting_at
from surefoot.pool.training import Fit
from surefoot.problem.losses import LOG_LOSS

# Rows shown in a terminal, one at a time, each with the reason and a prompt for the label.

_MOST_COLUMNS = 40
SKIP, UNDO, QUIT = "skip", "undo", "quit"
COMMANDS = (SKIP, UNDO, QUIT)


class Asking(ABC):
    """Asks for labels until no row is left, the goal is reached or the user quits.

    loop : gets each label before the store does, and knows the audited rows; None if there is no loop.
    hidden : columns that would suggest a label. save : writes evidence of what was proved; None without --evidence.
    """

    commands: Sequence[str] = (SKIP, QUIT)
    skipped = "Row {} is skipped."
    hidden: Sequence[str] = ()
    save: Callable[..., list[Path]] | None = None
    quit = False
    answered = 0

    def __init__(self, output: Output, sitting: Sitting, classes: list[str], loop: Any = None) -> None:
        self.output, self.sitting, self.table, self.classes = output, sitting, sitting.table, classes
        self.loop = loop

    @abstractmethod
    def _begin(self) -> None:
        """Print the purpose of the labels."""

    @abstractmethod
    def _next(self) -> tuple[int, str] | None:
        """Return the next row and the reason, or None to end."""

    @abstractmethod
    def _say_state(self) -> None:
        """Print the present state."""

    @abstractmethod
    def _end(self) -> int:
        """Print the result and return the exit code."""

    def _save(self, **proved: Any) -> dict[str, str]:
        """Write evidence if it is wanted, and return its files by kind."""
        saved = [] if self.save is None else self.save(**proved)
        self.output.rows([("written" if k == 0 else "", str(path)) for k, path in enumerate(saved)])
        return {name: str(path) for name, path in zip(("evidence", "arrays"), saved, strict=False)}

    def run(self) -> int:
        """Ask for labels, store each one, and write the table at the end."""
        self._begin()
        while (asked := self._next()) is not None:
            row, why = asked
            self._show(row, why)
            answer = self._answer()
            self.quit = answer == QUIT
            if self.quit:
                break
            self._take(row, answer)
        self.sitting.write_table()
        return self._end()

    def _take(self, row: int, answer: str) -> None:
        """Store a label, for the loop and the table."""
        self.answered += 1
        with self.sitting.store.together():
            if answer == SKIP:
                self.loop.skip(row)
                self.sitting.answer(row, None)
            else:
                self.loop.record(row, answer.removeprefix("="))
                self.sitting.answer(row, answer.removeprefix("="))
        if answer == SKIP:
            self.say(self.skipped.format(row + 1))
        self._say_state()

    def say(self, text: str, style: str = "") -> None:
        self._console.print(Text(visible(text, lines=True), style=style))

    def _show(self, row: int, why: str) -> None:
        """Print the cells of a row, short cells first."""
        cells = self.table.cells
        names = [name for name in cells.columns if name not in (self.table.label, *self.hidden)]
        self.say("")
        self.say(f"Row {row + 1}", "bold")
        shown = {name: cells[name].iloc[row] for name in names[:_MOST_COLUMNS]}
        width = max((len(visible(name)) for name, value in shown.items() if not is_long(value)), default=0)
        for name, value in sorted(shown.items(), key=lambda item: is_long(item[1])):
            if is_long(value):
                self.say(f"  {visible(name)}")
                self._console.print(Padding(Text(long_text(value)), (0, 0, 0, 4), expand=False))
            else:
                self.say(f"  {visible(name):<{width}}  {cell_text(value)}")
        if len(names) > _MOST_COLUMNS:
            self.say(f"  and {len(names) - _MOST_COLUMNS} more columns")
        if why:
            self.say(f"  Why: {why}", "dim")

    def _answer(self) -> str:
        """Return a class, prefixed with "=", or a command."""
        keys = answer_keys(self.classes, self.commands)
        shown = {key: name for key, name in keys.items() if len(key) == 1 or key not in self.commands}
        by_name: dict[str, list[str]] = {}
        for key, name in shown.items():
            by_name.setdefault(name, []).append(key)
        classes = "  ".join(_choice(name, by_name[f"={name}"]) for name in self.classes)
        commands = "  ".join(_choice(name, by_name.get(name, [name])) for name in self.commands)
        while True:
            question = visible(f"{self.table.label}?  {classes}  |  {commands} > ")
            self._console.print(Text(question), end="", soft_wrap=True)
            line = sys.stdin.readline()
            if not line:
                self.say("")
                return QUIT
            typed = line.strip()
            found = keys.get(typed) or keys.get(typed.casefold())
            if found:
                return found
            if typed:
                known = ", ".join(self.classes)
                others = ", ".join(self.commands)
                self.say(f"{typed!r} is not a class. Type one of {known}, or {others}. To add a class, use --classes.")

    @property
    def _console(self) -> Any:
        """Return standard output, or standard error if --json reserves standard output."""
        return self.output.err if self.output.json else self.output.out


@contextmanager
def seated(output: Output, table: Table, content: bytes, read: Callable[[bytes], Table]) -> Iterator[Sitting]:
    """Open a session. SIGTERM ends it like Ctrl-C, with all labels in the table."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with sitting_at(table, content, read) as sitting:
            waiting = sitting.n_waiting  # an earlier command was killed
            if waiting:
                are, them = ("is", "it") if waiting == 1 else ("are", "them")
                output.note(
                    f"{count(waiting, 'label')} {are} stored but not in {table.path.name} yet. This command writes "
                    f"{them} there when it ends."
                )
            yield sitting
    finally:
        signal.signal(signal.SIGTERM, before)


def answer_keys(classes: list[str], commands: Sequence[str] = COMMANDS) -> dict[str, str]:
    """Return the valid inputs: classes (prefixed with "="), their numbers unless classes are numbers, and commands."""
    keys: dict[str, str] = {}
    for word in commands:
        keys[word] = keys[word[0]] = word
    if not any(name.replace(".", "", 1).lstrip("-").isdigit() for name in classes):
        keys |= {str(number): f"={name}" for number, name in enumerate(classes, start=1)}
    folded = [name.casefold() for name in classes]
    keys |= {name.casefold(): f"={name}" for name in classes if folded.count(name.casefold()) == 1}
    return keys | {name: f"={name}" for name in classes}


def _choice(name: str, keys: list[str]) -> str:
    """Return a class or a command with its shortest input."""
    short = min(keys, key=len)
    return name if short == name or short == name.casefold() else f"[{short}] {name}"


class StoreAsking(Asking):
    """One session with the store of a table, in which labels can be undone."""

    commands = COMMANDS

    def __init__(self, output: Output, sitting: Sitting, classes: list[str]) -> None:
        super().__init__(output, sitting, classes)
        self.standing = self.sitting.pending()  # a question that is to be put again

    def _take(self, row: int, answer: str) -> None:
        if answer == UNDO:
            self._undo(row)
        elif answer == SKIP:
            self.sitting.answer(row, None)
            self.say(f"Row {row + 1} is skipped and will not be shown again.")
        else:
            self.sitting.answer(row, answer.removeprefix("="))
            self.answered += 1
            self._say_state()

    def _undo(self, row: int) -> None:
        if not self.sitting.done:
            self.say("There is nothing to undo.")
            self.standing = row
            return
        self.standing = last = self.sitting.done[-1]
        labeled = self.table.labels[last] is not None
        self.sitting.take_back(last)
        if labeled:
            self.answered -= 1
            self._say_state()
        self.say(f"Row {last + 1} is open again.")


class LabelAsking(StoreAsking):
    """One session that trains on the labels and chooses the next rows."""

    def __init__(self, output: Output, learning: LabelLoop) -> None:
        super().__init__(output, learning.sitting, learning.pool.classes)
        self.learning = learning

    def _begin(self) -> None:
        self.say(f"Labeling {self.table.label!r} in {self.table.path.name}; each label is stored at once.", "bold")
        kept = len(self.learning.keep)
        if kept < len(self.learning.pool.rows):
            self.output.note(f"the certificate covers a random sample of {kept} rows (--pool-size 0 uses all rows).")
        self._say_state()

    def _next(self) -> tuple[int, str] | None:
        row, self.standing = self.standing, None
        if self.learning.reached:
            return None
        if row is not None:
            return row, ""
        with self.output.working("choosing a row"):
            chosen = self.learning.choose()
        if chosen is None:
            if not self.sitting.news:
                return None
            self._say_state()
            return self._next()
        row, reason = chosen
        first = self.learning.random_first
        return row, reason or f"sampled at random, {min(self.learning.n_random + 1, first)} of {first}"

    def _say_state(self) -> None:
        loop = self.learning
        labels = count(loop.n_labels, "label")
        try:
            with self.output.working("certifying"):
                loop.refit()
        except InfeasibleRadiusError as error:
            self.say(f"No certificate: --radius {error.radius:g} is below the minimal {error.minimal_radius:.4f}.")
            return
        if loop.fit is None:
            self.say(f"{labels}. The certificate comes {self._when()}.")
            return
        before = ""
        if len(loop.risks) > 1 and loop.loss == LOG_LOSS:
            before = f", {rounded_up(loop.risks[-2], 4)} before"
        target = "" if loop.target is None else f"; target {loop.target:g}"
        self.say(f"{labels}, {self._risk(loop.fit)}{before}{target}.", "bold")
        if len(loop.risks) == 1 and loop.choices.radius == DEFAULT:
            self.output.note(
                "this number belongs to the model with the smallest worst case. surefoot fit trains a model that "
                "predicts better, and its worst case is larger."
            )

    def _when(self) -> str:
        if self.learning.n_random < self.learning.random_first:
            return f"after {self.learning.random_first} random labels"
        return "when two classes are seen" if self.learning.n_seen < 2 else "while rows are unlabeled"

    def _risk(self, fit: Fit) -> str:
        """Describe the risk, which is certified if the radius is calibrated or given."""
        risk = self.learning.risks[-1]
        shown = f"log loss {rounded_up(risk, 4)}"
        if self.learning.loss != LOG_LOSS:
            shown = f"errors {share_at_most(risk)}%"
        return f"certified {shown}" if fit.radius_kind != AUTO else f"worst-case {shown} (no guarantee)"

    def _end(self) -> int:
        loop, path = self.learning, self.table.path
        ended = "quit" if self.quit else "target reached" if loop.reached else "no row left"
        if self.sitting.book.conflicts:
            rows = count(len(self.sitting.book.conflicts), "row")
            self.output.note(f"{rows} with different labels. Settle them in surefoot serve.")
        labels = count(loop.n_labels, "label")
        self.say(f"Done: {ended}. {labels} in {path.name}, {self.answered} of them new.", "bold")
        if not loop.pool.labeled.all():  # else there is nothing to learn about
            self.say(f"Next: surefoot fit {shlex.quote(str(path))} --label {shlex.quote(self.table.label)}")
        data = {
            "path": str(path),
            "ended": ended,
            "answered": self.answered,
            "labeled": loop.n_labels,
            "skipped": len(self.sitting.book.skipped),
            "risk": None if loop.fit is None else loop.risks[-1],
            "risks": loop.risks,
            "loss": loop.loss,
            "target_risk": loop.target,
            "reached": loop.reached,
        }
        return self.output.finish(data, OK if loop.target is None or loop.reached else NOT_REACHED)


def check_labelable(table: Table) -> None:
    """Require at least two classes, none of which reads as an empty cell."""
    if len(table.classes) < 2:
        shown = ", ".join(table.classes)
        seen = f"the labels in {table.label!r} show {shown} only" if shown else f"{table.label!r} is empty"
        raise TableError(
            f"the classes to choose from must be known; {seen}. Pass the classes, for example --classes yes,no."
        )
    empty = [name for name in table.classes if name in table.how.empty and not is_parquet(table.path)]
    if empty:
        raise TableError(
            f"no class may be called {empty[0]!r}, because such a cell counts as empty. Pass another name in --classes."
        )


# Number of refused annotations that are listed.
_NAMED = 5


def import_tasks(call: Call, tasks: Path) -> int:
    """Import annotations of Label Studio into the store."""
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
    for why in refused[:_NAMED]:
        output.note(f"not imported: {why}.")
    if len(refused) > _NAMED:
        output.note(f"not imported: {len(refused) - _NAMED} more.")
    labels, conflicts = len(book.labels), len(book.conflicts)
    output.say(
        f"{count(len(new), 'answer')} imported from {count(len(read), 'task')}; {count(labels, 'label')} in total.",
        "bold",
    )
    if conflicts:
        output.say(f"{count(conflicts, 'row')} with different labels. Settle them in surefoot serve.")
    data = {"answers": len(new), "refused": len(refused), "labels": labels, "conflicts": conflicts}
    return output.finish(data)


def export_store(
    call: Call, out: Path | None, answers: Path | None, *, in_place: bool, predictions: bool, force: bool
) -> int:
    """Write labels and the labeling history. The store is only read, which also works while it is served."""
    pool, output = call.path, call.output
    if not store_path(pool).exists():
        raise FileError(f"{store_path(pool)} does not exist. Label rows with surefoot label first.")
    if out is None and answers is None and not in_place:
        out = pool.with_name(f"{pool.stem}.labeled{pool.suffix}")
    _check_outputs(pool, out, answers, force=force)
    call.check_pool()
    book, table, content = _read_both(call)
    written = {}
    with Store(store_path(pool), {}) as store:
        if book is None:
            raise FileError(
                f"{store_path(pool)} has no labels of {table.label!r}. Pass another "
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
        output.note(f"{count(len(book.conflicts), 'row')} with different labels stay empty. Settle them first.")
    return output.finish({"labels_written": len(book.labels), **written}, OK)


def _read_both(call: Call) -> tuple[LabelLog | None, Table, bytes]:
    """Read the labels of a store and its table consistently, although another process may write into the table."""
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
        codes = unpack(store.frozen(audit).predictions)
        predicted = {row: (table.classes[code], None) for row, code in enumerate(codes.tolist()) if code >= 0}
    made = label_studio.tasks(table, book, store.people(), predicted)
    return json.dumps(made, ensure_ascii=False, indent=1).encode()


def _form(path: Path) -> str:
    form = path.suffix.lower().removeprefix(".")
    if form not in (CSV, PARQUET):
        raise FileError(f"{path} must end in .csv or .parquet (labels also in .json). Pass another name.")
    return form


def _check_outputs(pool: Path, out: Path | None, answers: Path | None, *, force: bool) -> None:
    """Check the output files before any work: no input file, no duplicate, and no existing file."""
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
        raise FileError(f"{there[0]} exists. Pass --force to overwrite it, or another name.")
