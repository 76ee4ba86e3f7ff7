"""Running a command: exit codes, and what happens to errors."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import typer

import surefoot.cli.app_model
import surefoot.cli.app_pool
import surefoot.cli.app_serve  # noqa: F401 - each adds its commands to the app
from surefoot.cli.app import app
from surefoot.cli.output import FAILED, INTERRUPTED, MISTAKE, OK, Output, sentence

# The class of all mistakes in options: typer has its own, or click's, depending on its version.
_USAGE: Any = typer.BadParameter.__mro__[1]


def run_app(argv: list[str]) -> int:
    """Run a command. A user's mistake is a message and exit code 2; only a fault of ours shows where it happened."""
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
    if isinstance(error, MemoryError):
        return output.fail("there is not enough memory for this table. Pass fewer rows or columns.", MISTAKE)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return output.fail(f"{where}{error.strerror or error}. Check the path and the room on the disk.", MISTAKE)
    if isinstance(error, ImportError | ValueError) and raised_by_surefoot(error):
        missing = isinstance(error, ImportError)  # an extra is not installed, and the message names it
        return output.fail(sentence(error), FAILED if missing else MISTAKE)
    if isinstance(error, _USAGE):
        return output.fail(f"{error.format_message()} Try: surefoot {name} --help", MISTAKE)
    return _fault(output, error)


def raised_by_surefoot(error: BaseException) -> bool:
    """Whether our own code refused something; an error out of another package is a fault of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).is_relative_to(Path(__file__).parents[1])


def _fault(output: Output, error: Exception) -> int:
    if os.environ.get("SUREFOOT_DEBUG"):
        raise error
    where = traceback.extract_tb(error.__traceback__)[-1]
    return output.fail(
        f"this is a fault of surefoot: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno}). "
        "Please report it, with what SUREFOOT_DEBUG=1 prints.",
        FAILED,
    )
