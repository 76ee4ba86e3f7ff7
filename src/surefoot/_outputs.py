"""What a command may write: nothing that it reads, no file twice, and no file that is not its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from surefoot._errors import FileError
from surefoot._files import check_writable


@dataclass(frozen=True)
class OutputFile:
    """A file that is to be written.

    what : in words, such as "model"; option : the one that names it.
    is_own : whether an existing file was written for the same purpose, so that a newer one may take its place.
    """

    path: Path
    what: str
    option: str
    is_own: Callable[[Path], bool]


def check_outputs(outputs: Sequence[OutputFile], inputs: Sequence[Path], *, force: bool) -> None:
    """Refuse outputs that would destroy something, before any work is done; `force` allows foreign files only."""
    for out in outputs:
        check_writable(out.path)
        read = next((path for path in inputs if _same(path, out.path)), None)
        if read is not None:
            raise FileError(
                f"the {out.what} must not overwrite a file that is read; {out.path} is {read}. Pass another name as "
                f"{out.option}."
            )
    for first, second in combinations(outputs, 2):
        if _same(first.path, second.path):
            raise FileError(
                f"the {first.what} and the {second.what} must be two files; both would be {second.path}. Pass another "
                f"name as {second.option}."
            )
    for out in outputs:
        if out.path.exists() and not force and not _is_own(out):
            raise FileError(
                f"{out.path} exists and is no {out.what} that surefoot wrote: it is left as it is. Pass another name "
                f"as {out.option}, or --force to overwrite it."
            )


def _same(first: Path, second: Path) -> bool:
    """Whether two paths are one file, whatever links lead there."""
    if first.exists() and second.exists():
        return first.samefile(second)
    return first.resolve() == second.resolve()


def _is_own(out: OutputFile) -> bool:
    try:
        return out.is_own(out.path)
    except (OSError, ValueError):  # it cannot be read, or is of another kind
        return False


def is_report(path: Path) -> bool:
    """Whether a file is a report of surefoot, by what its head says.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    bool
        True for a page that `write_report` wrote.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder) / "page.html"
    ...     _ = page.write_text("<html></html>")
    ...     is_report(page)
    False
    """
    with path.open("rb") as file:
        return b'<meta name="generator" content="surefoot">' in file.read(4096)
