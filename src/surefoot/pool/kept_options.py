"""Options once given are kept in the store of the table, so that later commands need not be told again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot._errors import FileError
from surefoot.pool.store import Store, store_path

# Of the file itself; of its columns; of one label column.
OF_FILE = ("delimiter", "encoding", "missing")
OF_COLUMNS = ("drop", "categories", "text", "strict")
OF_LABEL = ("classes", "prior", "radius")
LABEL = "label"
KEPT = (*OF_FILE, LABEL, *OF_COLUMNS, *OF_LABEL)


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
        if now == self.before:
            return None
        try:
            with Store(self.path, {}) as store:
                store.keep_options(now)
        except FileError as error:
            return f"the options could not be kept for later commands: {error}"
        return None


def settle(table: Path, values: Mapping[str, Any], given: set[str], *, forget: bool = False) -> KeptOptions:
    """Fill options that were not given from those kept for a table.

    With another label than before, only those of the file itself are taken.
    """
    path = store_path(table)
    before = read_options(path)
    usable = {} if forget else dict(before)
    if LABEL in given and LABEL in usable and values[LABEL] != usable[LABEL]:
        usable = {name: value for name, value in usable.items() if name in OF_FILE}
    kept = {name: value for name, value in usable.items() if name in values and name not in given}
    typed = {name: values[name] for name in KEPT if name in given}
    others = {name: value for name, value in usable.items() if name not in values}
    return KeptOptions(path, {**values, **kept}, {**others, **typed}, kept, before)


def read_options(path: Path) -> dict[str, Any]:
    """The options in a store; none where there is no store."""
    if not path.exists():
        return {}
    with Store(path) as store:
        found = store.options()
    for name, value in found.items():
        if name not in KEPT or not isinstance(value, bool if name == "strict" else str):
            raise FileError(
                f"{path} must hold options of surefoot; {name!r} is {value!r}. Restore it, or move it away."
            )
    return {name: found[name] for name in KEPT if name in found}


def as_options(values: Mapping[str, Any]) -> str:
    """Options as they would be typed."""
    return " ".join(
        f"--{name}" if value is True else f"--{name} {shlex.quote(str(value))}"
        for name, value in values.items()
        if value is not False
    )
