"""Files that survive a kill and a full disk, locks for one writer, and checks before a command overwrites a file."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from surefoot._errors import FileError, LockedError

# Files that survive a kill and a full disk: written whole or not at all, logs of lines, and a lock for one writer.

try:
    import fcntl
except ImportError:  # not on Windows: there neither locks are taken nor left files removed
    fcntl = None  # type: ignore[assignment]

AnyPath = str | os.PathLike[str]

_TEMPORARY = ".surefoot-tmp"
# A name may have 255 bytes on most systems; the temporary one must fit, too.
_NAME_BYTES = 180


@contextmanager
def whole_file(path: AnyPath) -> Iterator[Path]:
    """A path beside `path` to write to; on success it takes the place of `path`, on any error it is removed.

    The bytes are on the disk before the name is: a full disk, a crash or a kill leaves the old file as it was. A
    symbolic link is followed, and the permissions and the owner of an existing file are kept. What a killed process
    left beside the file is removed.
    """
    check_writable(path)
    target = Path(path).resolve()
    try:
        _remove_stale(target)
        handle, part = _temporary(target)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        _make_alike(part, target)
        part.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        part.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def write_bytes(path: AnyPath, content: bytes) -> None:
    """Replace the content of a file, or create it, in one step."""
    with whole_file(path) as part:
        part.write_bytes(content)


def check_writable(path: AnyPath) -> None:
    """Refuse a path that cannot be written, before any long work is done."""
    target = Path(path)
    if target.is_dir():
        raise FileError(f"{path} must be a file to write; it is a folder. Pass the name of a file in it.")
    if target.exists() and not target.is_file():
        raise FileError(f"{path} must be a plain file; it is a device, a pipe or a socket. Pass another name.")
    target = target.resolve()
    if not target.parent.is_dir():
        raise FileError(f"the folder {target.parent} does not exist. Create the folder first.")
    if not os.access(target.parent, os.W_OK):
        raise FileError(f"the folder {target.parent} is read-only. Pass another folder.")
    if target.exists() and not os.access(target, os.W_OK):
        raise FileError(f"{path} is read-only. Pass another name.")


def cannot_write(path: AnyPath, error: OSError) -> FileError:
    """What went wrong with a file that was to be written whole."""
    reason = error.strerror or str(error)
    return FileError(
        f"{path} could not be written: {reason}. Nothing was changed; make room or pass another path, and try again."
    )


class LineLog:
    """An append-only file of lines, each on the disk before `append` returns.

    A process that is killed, or a disk that is full, leaves at most one torn line at the end, which was not
    acknowledged: `lines` does not give it, and the next `append` puts its line in its place.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = Path(path)

    def lines(self) -> list[bytes]:
        """All whole lines; the file is not changed, so that it can be read while another process writes."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        return content.split(b"\n")[:-1]

    def append(self, line: bytes) -> None:
        """Write a line, without its end, and wait until the disk has it; on an OSError the log is as before."""
        is_new = not self.path.exists()
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            whole = _whole_bytes(file)
            if whole < os.fstat(file).st_size:
                os.ftruncate(file, whole)
            try:
                written, wanted = os.write(file, line + b"\n"), len(line) + 1
                if written < wanted:
                    raise OSError(f"only {written} of {wanted} bytes were written to {self.path}: is the disk full?")
                os.fsync(file)
            except BaseException:
                with contextlib.suppress(OSError):  # the next append cuts it off
                    os.ftruncate(file, whole)
                raise
        finally:
            os.close(file)
        if is_new:
            sync_folder(self.path.parent)


def append_event(log: LineLog, event: dict[str, Any]) -> None:
    """Append a line of JSON."""
    log.append(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode())


def read_events(log: LineLog) -> list[dict[str, Any]]:
    """The lines of a log, each of which must be a JSON object."""
    events = []
    for number, line in enumerate(log.lines(), start=1):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            raise FileError(
                f"each line of a journal must be a JSON object; got {line[:60]!r} in line {number} of {log.path}. "
                "Remove the line, or restore the file."
            )
        events.append(event)
    return events


def hold_file(path: AnyPath) -> int:
    """Open a file, created if there is none, so that no one else can hold it; its descriptor, closed to let it go.

    The system lets it go when the process ends, however it ends.
    """
    is_new = not Path(path).exists()
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_new:
                sync_folder(Path(path).resolve().parent)
        except BaseException:
            os.close(file)
            raise
    except BlockingIOError as error:
        raise LockedError(
            f"{path} can have one writer at a time, and another one, in this process or another, has it open. Close "
            "that one, or pass another path."
        ) from error
    except OSError as error:
        raise cannot_write(path, error) from error
    return file


def sync_folder(folder: Path) -> None:
    """A new name is safe only when its folder is."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _whole_bytes(file: int) -> int:
    """How many bytes of an open log are whole lines."""
    end = os.fstat(file).st_size
    while end:
        start = max(end - 65536, 0)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _temporary(target: Path) -> tuple[int | None, Path]:
    """A new file beside a file. It is locked while its maker lives: one that is not locked was left by a kill."""
    while True:
        part = target.with_name(f"{_temporary_prefix(target)}{secrets.token_hex(6)}{_TEMPORARY}")
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if fcntl is None:
            os.close(handle)
            return None, part
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(handle, part):
            return handle, part
        os.close(handle)  # another process took it for a left one, between the two lines above


def _remove_stale(target: Path) -> None:
    """Remove what killed processes left beside a file."""
    if fcntl is None:
        return
    prefix = _temporary_prefix(target)
    for entry in os.scandir(target.parent):
        if entry.name.startswith(prefix) and entry.name.endswith(_TEMPORARY) and entry.is_file(follow_symlinks=False):
            with contextlib.suppress(OSError):  # in use, gone by now, or another user's
                handle = os.open(entry.path, os.O_RDWR)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    Path(entry.path).unlink()
                finally:
                    os.close(handle)


def _temporary_prefix(target: Path) -> str:
    return "." + os.fsdecode(os.fsencode(target.name)[:_NAME_BYTES]) + "."


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _make_alike(part: Path, target: Path) -> None:
    """Give a new file the owner and the permissions of the file it replaces, or default permissions."""
    if not target.exists():
        part.chmod(_default_mode())
        return
    old = target.stat()
    if os.name == "posix" and (old.st_uid, old.st_gid) != (part.stat().st_uid, part.stat().st_gid):
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.chown(part, old.st_uid, old.st_gid)
    part.chmod(stat.S_IMODE(old.st_mode))


def _default_mode() -> int:
    """Permissions of a new file, as the user's mask has them: it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask


@dataclass(frozen=True)
class OutputFile:
    """An output file.

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
                f"{out.path} exists and is not a {out.what} written by surefoot. Pass another name "
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
