"""Questions put to a person in a terminal: a row, why it is asked for, and the answer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from surefoot._printing import cell_text, visible
from surefoot.cli.output import Output
from surefoot.pool.table import Table

_MOST_COLUMNS = 40
SKIP, UNDO, QUIT = "skip", "undo", "quit"
COMMANDS = (SKIP, UNDO, QUIT)


@dataclass
class Questions:
    """Asks for the labels of rows of a table: one of the classes, or a command."""

    output: Output
    table: Table
    classes: list[str]
    commands: Sequence[str] = COMMANDS

    def say(self, text: str, style: str = "") -> None:
        self._console.print(Text(visible(text, lines=True), style=style))

    def show(self, row: int, why: str) -> None:
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

    def answer(self) -> str:
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
