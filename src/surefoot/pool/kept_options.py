"""Options once given are kept in a small file beside the table, so that later commands need not be told again."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot._files import write_bytes
from surefoot.pool.table.beside import settings_path
from surefoot.pool.table.errors import FileError

# Of the file itself; of its columns; of one label column.
OF_FILE = ("delimiter", "encoding", "missing")
OF_COLUMNS = ("drop", "categories", "text", "strict")
OF_LABEL = ("classes", "prior", "radius")
LABEL = "label"
KEPT = (*OF_FILE, LABEL, *OF_COLUMNS, *OF_LABEL)
_HEAD = "# Options of earlier surefoot commands on this table. Edit it, remove it, or pass --forget.\n"


@dataclass(frozen=True)
class KeptOptions:
    """The options of a command: those given, then those kept.

    values : of all options in KEPT that the command has; given : those typed now; kept : those taken from before.
    """

    path: Path
    values: dict[str, Any]
    given: dict[str, Any]
    kept: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)

    @property
    def note(self) -> str | None:
        """Which options were taken from before."""
        return f"kept from {self.path.name}: {as_options(self.kept)} (--forget drops them)." if self.kept else None

    def keep(self) -> str | None:
        """Write the options for later commands; why not, where that cannot be done."""
        now = {**self.kept, **self.given}
        if now == self.before or (not now and not self.path.exists()):
            return None
        lines = [f"{name} = {_toml(now[name])}\n" for name in KEPT if name in now]
        try:
            write_bytes(self.path, (_HEAD + "".join(lines)).encode())
        except (OSError, FileError, UnicodeError) as error:
            return f"the options could not be kept for later commands: {error}"
        return None


def _toml(value: Any) -> str:
    """A text or a truth value; JSON writes them as TOML does, but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def settle(table: Path, values: Mapping[str, Any], given: set[str], *, forget: bool = False) -> KeptOptions:
    """Fill options that were not given from those kept for a table.

    With another label than before, only those of the file itself are taken.
    """
    path = settings_path(table)
    before = read_settings(path)
    usable = {} if forget else dict(before)
    if LABEL in given and LABEL in usable and values[LABEL] != usable[LABEL]:
        usable = {name: value for name, value in usable.items() if name in OF_FILE}
    kept = {name: value for name, value in usable.items() if name in values and name not in given}
    typed = {name: values[name] for name in KEPT if name in given}
    others = {name: value for name, value in usable.items() if name not in values}
    return KeptOptions(path, {**values, **kept}, {**others, **typed}, kept, before)


def read_settings(path: Path) -> dict[str, Any]:
    """The options in a file; none where there is no file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path} must hold options in TOML; {error}. Correct it, or remove it.") from error
    wrong = [
        name
        for name, value in content.items()
        if name not in KEPT or not isinstance(value, bool if name == "strict" else str)
    ]
    if wrong:
        raise FileError(f'{path} must hold options such as drop = "a,b"; {wrong[0]!r} is none. Remove that line.')
    return content


def as_options(values: Mapping[str, Any]) -> str:
    """Options as they would be typed."""
    return " ".join(
        f"--{name}" if value is True else f"--{name} {shlex.quote(str(value))}"
        for name, value in values.items()
        if value is not False
    )
