"""What a command says: words for a person, or one JSON object for a program; progress and notes on standard error."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from surefoot._printing import visible
from surefoot.cli.sentences import sentence

_UNSEEN_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
OK, FAILED, MISTAKE, NOT_REACHED, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass
class Output:
    """Where a command's words go. With `json` nothing but one object reaches standard output."""

    command: str
    json: bool
    notes: list[str] = field(default_factory=list)
    out: Console = field(default_factory=lambda: Console(highlight=False, emoji=False, markup=False))
    err: Console = field(default_factory=lambda: Console(stderr=True, highlight=False, emoji=False, markup=False))

    def say(self, text: str = "", style: str | None = None) -> None:
        """A paragraph for a person."""
        if not self.json:
            self.out.print(Text(visible(text, lines=True), style=style or ""))

    def rows(self, pairs: list[tuple[str, str]]) -> None:
        """Aligned names and texts."""
        if not self.json:
            grid = RichTable.grid(padding=(0, 2))
            grid.add_column(style="bold", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, text in pairs:
                grid.add_row(Text(visible(name)), Text(visible(text)))
            self.out.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def table(self, heads: list[str], rows: list[list[str]], right: tuple[int, ...] = ()) -> None:
        """A table with a head."""
        if not self.json:
            grid = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
            for at, head in enumerate(heads):
                grid.add_column(Text(visible(head)), justify="right" if at in right else "left", overflow="fold")
            for row in rows:
                grid.add_row(*[Text(visible(cell)) for cell in row])
            self.out.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def note(self, *texts: str) -> None:
        """Things to know, each once: on standard error, and in the object under "notes"."""
        for text in texts:
            if text not in self.notes:
                self.notes.append(text)
                if not self.json:
                    self.err.print(Text("note: ", style="yellow") + Text(visible(text, lines=True)))

    def finish(self, data: dict[str, Any], code: int = OK) -> int:
        """Print the object, if one was asked for, and give the exit code."""
        if self.json:
            whole = {"command": self.command, "exit_code": code, **data, "notes": self.notes}
            text = json.dumps(plain(whole), ensure_ascii=False, allow_nan=False)
            # what is left of control characters stands in texts, where JSON reads the same written out
            sys.stdout.write(_UNSEEN_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
        return code

    def fail(self, message: str, code: int) -> int:
        """Say what went wrong."""
        if self.json:
            return self.finish({"error": message}, code)
        self.err.print(Text("error: ", style="bold red") + Text(visible(message, lines=True)))
        return code

    @contextmanager
    def working(self, what: str) -> Iterator[Callable[[str], None]]:
        """A line on standard error while long work is done, where that is a terminal; takes what is done now."""
        with self.err.status(Text(what), spinner="line") as status, self.warnings():
            yield lambda text: status.update(Text(text))

    @contextmanager
    def warnings(self) -> Iterator[None]:
        """Turn warnings of the library into notes."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            if issubclass(warning.category, UserWarning):
                self.note(sentence(warning.message))


def plain(value: Any) -> Any:
    """Numbers, texts, lists and dictionaries: numpy's types and infinities do not fit into JSON."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def percent(share: float) -> str:
    """A share from 0 to 1, as a person writes it."""
    digits = 0 if share in (0.0, 1.0) else 1
    return f"{100 * share:.{digits}f}%"
