"""The command `surefoot`: for a person with a table and no wish to write Python."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

_NEEDED = ("pandas", "pyarrow", "rich", "skops", "typer")


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"surefoot: the command line needs {', '.join(missing)}. Install it: pip install 'surefoot[cli]'\n"
        )
        return 1
    from surefoot.cli.running import run_app

    return run_app(sys.argv[1:] if argv is None else list(argv))


def main() -> None:
    """The console script."""
    sys.exit(run())
