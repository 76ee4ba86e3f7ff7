"""The command line program `surefoot`, for users with a table and without Python."""

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
_START = """\
surefoot trains a classifier from a few labels and many unlabeled rows,
and proves how often it is wrong. Three commands to start with:

  surefoot serve --demo                    try the labeling page in the browser
  surefoot fit pool.csv --label churn      train a model, bound its error rate
  surefoot serve pool.csv --label churn    label until the error rate is proved

pool.csv is your table and churn its label column, filled in for a few rows.
surefoot --help lists all commands."""


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"surefoot: the command line requires {', '.join(missing)}. Run: pip install 'surefoot[cli]'\n"
        )
        return 1
    return _run_app(sys.argv[1:] if argv is None else list(argv))


def main() -> None:
    """Run the console script."""
    sys.exit(run())


def _run_app(argv: list[str]) -> int:
    """Run a command. Invalid input gives a message and exit code 2. Only an internal error shows its location."""
    import typer

    import surefoot.cli.app_model
    import surefoot.cli.app_pool  # noqa: F401 - each adds its commands to the app
    from surefoot.cli.app import app
    from surefoot.cli.output import INTERRUPTED, OK, Output

    name = next((word for word in argv if not word.startswith("-")), "surefoot")
    output = Output(name, "--json" in argv)
    try:
        if not argv and "_SUREFOOT_COMPLETE" not in os.environ:
            output.say(_START)
            return OK
        code: Any = app(args=argv, standalone_mode=False, prog_name="surefoot")
        if code == INTERRUPTED:  # the code that typer returns for an interrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else OK
    except (KeyboardInterrupt, typer.Abort):
        return output.fail("interrupted. Everything written before is complete.", INTERRUPTED)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except BrokenPipeError:
        # the reader of the output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:  # noqa: BLE001 - print a message instead of a stack trace
        return _failed(output, name, error)


def _failed(output: Output, name: str, error: Exception) -> int:
    """Print the message of an error and return the exit code."""
    import typer

    from surefoot.cli.output import FAILED, MISTAKE, sentence

    # The class of all usage errors. Depending on its version, typer has its own class or uses click's.
    usage: Any = typer.BadParameter.__mro__[1]

    if isinstance(error, MemoryError):
        return output.fail("not enough memory for this table. Pass fewer rows or columns.", MISTAKE)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return output.fail(f"{where}{error.strerror or error}. Check the path and the free disk space.", MISTAKE)
    if isinstance(error, ImportError | ValueError) and raised_by_surefoot(error):
        missing = isinstance(error, ImportError)  # an extra is not installed, and the message names it
        return output.fail(sentence(error), FAILED if missing else MISTAKE)
    if isinstance(error, usage):
        return output.fail(f"{error.format_message()} Try: surefoot {name} --help", MISTAKE)
    if os.environ.get("SUREFOOT_DEBUG"):
        raise error
    last = traceback.extract_tb(error.__traceback__)[-1]
    return output.fail(
        f"internal error: {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno}). "
        "Report it with the output of SUREFOOT_DEBUG=1.",
        FAILED,
    )


def raised_by_surefoot(error: BaseException) -> bool:
    """Return True if surefoot raised the error. An error raised by another package is an internal error."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).is_relative_to(Path(__file__).parents[1])
