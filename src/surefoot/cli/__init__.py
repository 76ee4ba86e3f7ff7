"""The command `surefoot`: for a person with a table and no wish to write Python."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surefoot.cli.output import Output

_NEEDED = ("pandas", "pyarrow", "rich", "skops", "typer")


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"surefoot: the command line needs {', '.join(missing)}. Install it: pip install 'surefoot[cli]'\n"
        )
        return 1
    return _run_app(sys.argv[1:] if argv is None else list(argv))


def main() -> None:
    """The console script."""
    sys.exit(run())


def _run_app(argv: list[str]) -> int:
    """Run a command. A user's mistake is a message and exit code 2; only a fault of ours shows where it happened."""
    import typer

    import surefoot.cli.app_model
    import surefoot.cli.app_pool  # noqa: F401 - each adds its commands to the app
    from surefoot.cli.app import app
    from surefoot.cli.output import INTERRUPTED, OK, Output

    name = next((word for word in argv if not word.startswith("-")), "surefoot")
    output = Output(name, "--json" in argv)
    try:
        code: Any = app(args=argv or ["--help"], standalone_mode=False, prog_name="surefoot")
        if code == INTERRUPTED:  # typer turns an interrupt into this
            raise KeyboardInterrupt
        return code if isinstance(code, int) else OK
    except (KeyboardInterrupt, typer.Abort):
        return output.fail("interrupted; all that was written before is whole.", INTERRUPTED)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except BrokenPipeError:
        # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:  # noqa: BLE001 - the last resort: a message instead of a stack trace
        return _failed(output, name, error)


def _failed(output: Output, name: str, error: Exception) -> int:
    """What a command says of an error, and its exit code."""
    import typer

    from surefoot.cli.output import FAILED, MISTAKE, sentence

    # The class of all mistakes in options: typer has its own, or click's, depending on its version.
    usage: Any = typer.BadParameter.__mro__[1]

    if isinstance(error, MemoryError):
        return output.fail("there is not enough memory for this table. Pass fewer rows or columns.", MISTAKE)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return output.fail(f"{where}{error.strerror or error}. Check the path and the room on the disk.", MISTAKE)
    if isinstance(error, ImportError | ValueError) and raised_by_surefoot(error):
        missing = isinstance(error, ImportError)  # an extra is not installed, and the message names it
        return output.fail(sentence(error), FAILED if missing else MISTAKE)
    if isinstance(error, usage):
        return output.fail(f"{error.format_message()} Try: surefoot {name} --help", MISTAKE)
    if os.environ.get("SUREFOOT_DEBUG"):
        raise error
    last = traceback.extract_tb(error.__traceback__)[-1]
    return output.fail(
        f"this is a fault of surefoot: {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno}). "
        "Please report it, with what SUREFOOT_DEBUG=1 prints.",
        FAILED,
    )


def raised_by_surefoot(error: BaseException) -> bool:
    """Whether our own code refused something; an error out of another package is a fault of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).is_relative_to(Path(__file__).parents[1])
