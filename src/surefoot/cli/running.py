"""Running a command: exit codes, and what happens to errors."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import typer

from surefoot.cli.app import app
from surefoot.cli.output import FAILED, INTERRUPTED, MISTAKE, OK, Output
from surefoot.problem.geometry import shared_geometry

# The class of all mistakes in options: typer has its own, or click's, depending on its version.
_USAGE: Any = typer.BadParameter.__mro__[1]


def run_app(argv: list[str]) -> int:  # noqa: PLR0911 - one return for each way to end
    """Run a command. A user's mistake is a message and exit code 2; only a fault of ours shows where it happened."""
    name = next((word for word in argv if not word.startswith("-")), "surefoot")
    output = Output(name, "--json" in argv)
    try:
        with shared_geometry():  # what a command measures it measures once
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
    except MemoryError:
        return output.fail("there is not enough memory for this table. Pass fewer rows or columns.", MISTAKE)
    except ValueError as error:
        if raised_by_surefoot(error):
            return output.fail(str(error), MISTAKE)
        return _fault(output, error)
    except Exception as error:  # noqa: BLE001 - the last resort: a message instead of a stack trace
        if isinstance(error, _USAGE):
            return output.fail(f"{error.format_message()} Try: surefoot {name} --help", MISTAKE)
        return _fault(output, error)


def raised_by_surefoot(error: BaseException) -> bool:
    """Whether our own code refused something; an error out of another package is a fault of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and f"{os.sep}surefoot{os.sep}" in frames[-1].filename


def _fault(output: Output, error: Exception) -> int:
    if os.environ.get("SUREFOOT_DEBUG"):
        raise error
    where = traceback.extract_tb(error.__traceback__)[-1]
    return output.fail(
        f"this is a fault of surefoot: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno}). "
        "Please report it, with what SUREFOOT_DEBUG=1 prints.",
        FAILED,
    )
