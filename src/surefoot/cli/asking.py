"""Rows put to a person in a terminal, one at a time: why a row is asked for, and the answer."""

from __future__ import annotations

import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.text import Text

from surefoot._printing import cell_text, count, visible
from surefoot.cli.output import Output
from surefoot.pool.labeling.terminal import Sitting, sitting_at
from surefoot.pool.table import Table

_MOST_COLUMNS = 40
SKIP, UNDO, QUIT = "skip", "undo", "quit"
COMMANDS = (SKIP, UNDO, QUIT)


class Asking(ABC):
    """Asks for labels of rows until there is nothing to ask for, or the user has had enough.

    loop : takes each label before the store does, and says which rows prove something; None where none has to.
    """

    commands: Sequence[str] = (SKIP, QUIT)
    skipped = "Row {} is skipped."
    quit = False
    answered = 0

    def __init__(self, output: Output, sitting: Sitting, classes: list[str], loop: Any = None) -> None:
        self.output, self.sitting, self.table, self.classes = output, sitting, sitting.table, classes
        self.loop = loop

    @abstractmethod
    def _begin(self) -> None:
        """Say what the labels are for."""

    @abstractmethod
    def _next(self) -> tuple[int, str] | None:
        """The row to ask for, and why; None to end."""

    @abstractmethod
    def _say_state(self) -> None:
        """Say where the labels have led to."""

    @abstractmethod
    def _end(self) -> int:
        """Say how it ended, and give the exit code."""

    def run(self) -> int:
        """Ask, store each answer, and write the table in the end."""
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
        """Store an answer, for the loop and as a label at once."""
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
        """The cells of a row."""
        cells = self.table.cells
        names = [name for name in cells.columns if name != self.table.label]
        self.say("")
        self.say(f"Row {row + 1}", "bold")
        heads = [visible(name) for name in names[:_MOST_COLUMNS]]
        width = max(map(len, heads))
        for name, head in zip(names, heads, strict=False):
            self.say(f"  {head:<{width}}  {cell_text(cells[name].iloc[row])}")
        if len(names) > _MOST_COLUMNS:
            self.say(f"  and {len(names) - _MOST_COLUMNS} more columns")
        if why:
            self.say(f"  Why: {why}", "dim")

    def _answer(self) -> str:
        """A class, with "=" before it, or one of the commands."""
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
                self.say(f"{typed!r} is no class: type one of {known}, or {others}. --classes adds a class.")

    @property
    def _console(self) -> Any:
        """Standard output; standard error where that must hold one JSON object alone."""
        return self.output.err if self.output.json else self.output.out


@contextmanager
def seated(output: Output, table: Table, content: bytes, read: Callable[[bytes], Table]) -> Iterator[Sitting]:
    """A sitting at a table that SIGTERM ends as Ctrl-C does: with all labels in the table."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with sitting_at(table, content, read) as sitting:
            waiting = sitting.n_waiting  # an earlier command was killed
            if waiting:
                are, them = ("is", "it") if waiting == 1 else ("are", "them")
                output.note(
                    f"{count(waiting, 'label')} of the store {are} not in {table.path.name} yet; this command writes "
                    f"{them} there when it ends."
                )
            yield sitting
    finally:
        signal.signal(signal.SIGTERM, before)


def answer_keys(classes: list[str], commands: Sequence[str] = COMMANDS) -> dict[str, str]:
    """What may be typed: classes ("=" before them), their numbers unless classes are numbers, and commands."""
    keys: dict[str, str] = {}
    for word in commands:
        keys[word] = keys[word[0]] = word
    if not any(name.replace(".", "", 1).lstrip("-").isdigit() for name in classes):
        keys |= {str(number): f"={name}" for number, name in enumerate(classes, start=1)}
    folded = [name.casefold() for name in classes]
    keys |= {name.casefold(): f"={name}" for name in classes if folded.count(name.casefold()) == 1}
    return keys | {name: f"={name}" for name in classes}


def _choice(name: str, keys: list[str]) -> str:
    """A class or a command with the key that is quickest to type."""
    short = min(keys, key=len)
    return name if short == name or short == name.casefold() else f"[{short}] {name}"
