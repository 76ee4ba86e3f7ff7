"""Files that are either written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from surefoot.tabular.errors import FileError


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside `path` to write to; on success it takes the place of `path`, on any error it is removed.

    The bytes are on the disk before the name is: a full disk, a crash or a kill leaves the old file as it was. A
    symbolic link is followed, and the permissions of an existing file are kept.
    """
    check_writable(path)
    target = Path(path).resolve()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error
    part = Path(name)
    try:
        os.close(handle)
        yield part
        _sync(part)
        part.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else _default_mode())
        part.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace the content of a file, or create it, in one step."""
    with whole_file(path) as part, part.open("wb") as file:
        file.write(content)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written, before any long work is done."""
    target = Path(path).resolve()
    if target.is_dir():
        raise FileError(f"{path} must be a file to write; it is a folder. Pass the name of a file in it.")
    if not target.parent.is_dir():
        raise FileError(f"{path} must lie in a folder that exists; {target.parent} does not. Make the folder first.")
    if not os.access(target.parent, os.W_OK):
        raise FileError(f"{path} must lie in a folder that you may write to; {target.parent} is not. Pass another.")


def _cannot_write(path: str | os.PathLike[str], error: OSError) -> FileError:
    reason = error.strerror or str(error)
    return FileError(
        f"{path} could not be written: {reason}. Nothing was changed; make room or pass another path, and try again."
    )


def _default_mode() -> int:
    """Permissions of a new file, as the user's mask has them."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
