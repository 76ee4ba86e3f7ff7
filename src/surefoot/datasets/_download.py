"""Find raw files in a folder of the user, in the user's cache, or in the UCI archive, in this order."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import logging
import os
import sys
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot._errors import FileError
from surefoot._files import write_bytes
from surefoot._version import __version__

# Decoder of the Unix `compress` format (.Z). The UCI archive stores Isolet in this format, and Python has no decoder.

_MAGIC = b"\x1f\x9d"
_FIRST_WIDTH = 9
_CLEAR = 256


def unlzw(content: bytes) -> bytes:
    """Decompress `content`, a complete .Z file. Raise ValueError if it is invalid."""
    if len(content) < 3 or content[:2] != _MAGIC:
        raise ValueError("a .Z file must begin with the bytes 1f 9d and a byte of flags")
    max_width, clears = content[2] & 0x1F, bool(content[2] & 0x80)
    if not 10 <= max_width <= 16 or content[2] & 0x60:  # with 9 bits, programs write unreadable files
        raise ValueError(f"a .Z file must have codes of at most 10 to 16 bits; its flags are {content[2]:#04x}")
    root = [bytes([byte]) for byte in range(256)] + [b""] * clears  # code 256 is not an entry if it clears the table
    table, previous, output = root.copy(), b"", []
    width, position = _FIRST_WIDTH, 3
    while position < len(content):
        group = content[position : position + width]
        position += width
        bits = int.from_bytes(group, "little")
        for _ in range(len(group) * 8 // width):  # fewer than 8 codes at the end of the file
            code = bits & ((1 << width) - 1)
            bits >>= width
            if clears and code == _CLEAR:
                table, previous, width = root.copy(), b"", _FIRST_WIDTH
                break
            if code < len(table):
                entry = table[code]
            elif code == len(table) and previous:  # the entry that this code creates
                entry = previous + previous[:1]
            else:
                raise ValueError(f"a .Z file must use codes after it has made them; got {code}, {len(table)} are made")
            output.append(entry)
            if previous and len(table) < 1 << max_width:
                table.append(previous + entry[:1])
            previous = entry
            if len(table) == 1 << width and width < max_width:
                width += 1
                break
    return b"".join(output)


# Find raw files of the UCI archive in a folder, unpack them, and check them.

UCI = "https://archive.ics.uci.edu"
ISOLET_COLUMNS = 618  # 617 features and the class


class DatasetCorruptError(OSError):
    """Raised if a raw file is damaged or is not the expected file."""


def canonical_text(content: bytes) -> bytes:
    r"""Normalize lines: one "\n" at the end, single blanks between fields separated by whitespace, no empty lines.

    Copies differ in their line ends (UCI's spambase.data has "\r\n", its HTRU_2.csv "\r"). Copies of ann-*.data and
    yeast.data also differ in runs of blanks and tabs. UCI's own copies of all other files do not change, so their
    sha256 equals the sha256 of the file.
    """
    lines = (b" ".join(line.split()) for line in content.splitlines())
    return b"".join(line + b"\n" for line in lines if line)


def canonical_isolet(content: bytes) -> bytes:
    """Return rows of 617 features in units of 0.0001 and the class, as little-endian int16, sorted by their bytes.

    Each value is a multiple of 0.0001. Copies differ in the order of rows and may differ in the format of numbers.
    """
    numbers = np.loadtxt(io.BytesIO(content), delimiter=",", ndmin=2)
    if numbers.shape[1] != ISOLET_COLUMNS:
        raise ValueError(f"rows must have {ISOLET_COLUMNS} columns; got {numbers.shape[1]}")
    numbers[:, :-1] *= 10_000
    units = np.round(numbers)
    if not (np.abs(numbers - units).max() < 1e-6 and np.abs(units).max() < 2**15):  # also false for NaN
        raise ValueError("values must be multiples of 0.0001 and classes integers")
    return b"".join(sorted(row.tobytes() for row in units.astype("<i2")))


@dataclass(frozen=True)
class RawFile:
    """A raw file: its name, and the sha256 of its canonical content."""

    name: str
    sha256: str
    canonical: Callable[[bytes], bytes] = canonical_text

    def check(self, content: bytes, origin: object) -> bytes:
        """Return the canonical content, or raise an error that names the origin."""
        if hashlib.sha256(content).hexdigest() == self.sha256:
            return content  # already canonical: the common case, and fast for Cover's 75 MB
        try:
            canonical = self.canonical(content)
        except ValueError as error:
            raise DatasetCorruptError(f"{origin} is not the {self.name} expected: {error}.") from error
        found = hashlib.sha256(canonical).hexdigest()
        if found != self.sha256:
            raise DatasetCorruptError(
                f"{origin} is not the {self.name} expected: the sha256 of its content (in canonical form) is {found}, "
                f"not {self.sha256}."
            )
        return canonical

    def unpack(self, content: bytes, origin: str) -> bytes:
        """Return the content of this file inside `content`, which was read from the path or address `origin`."""
        try:
            found = _unpack(content, origin, self.name)
        except _UNPACK_ERRORS as error:
            raise DatasetCorruptError(f"{origin} cannot be unpacked: {error}.") from error
        if found is None:
            raise DatasetCorruptError(f"{origin} holds no file {self.name}.")
        return found

    def read(self, path: Path) -> bytes:
        """Return the checked canonical content of a local copy."""
        try:
            return self.check(self.unpack(path.read_bytes(), path.as_posix()), path)
        except DatasetCorruptError as error:
            raise DatasetCorruptError(
                f"{error} Delete it, so that it is looked for elsewhere or downloaded, or put an intact copy there."
            ) from error


@dataclass(frozen=True)
class Archive:
    """A dataset of the UCI archive: its number and name in addresses, its local folder, and its required files."""

    number: int
    slug: str
    folder: str
    files: tuple[RawFile, ...]

    @property
    def page(self) -> str:
        return f"{UCI}/dataset/{self.number}/{self.slug}"

    @property
    def zip_name(self) -> str:
        return f"{self.slug}.zip"

    def url(self, base: str = UCI) -> str:
        return f"{base}/static/public/{self.number}/{self.zip_name}"

    def find(self, homes: Sequence[Path]) -> list[Path | None]:
        """Return the first existing path of each file.

        A file may lie in its folder or above it, packed or not, or inside the zip file of the archive.
        """
        folders = [folder for home in homes for folder in (home / self.folder, home)]
        return [
            next((path for folder in folders for path in self._candidates(folder, file) if path.is_file()), None)
            for file in self.files
        ]

    def _candidates(self, folder: Path, file: RawFile) -> Iterator[Path]:
        yield from (folder / f"{file.name}{suffix}" for suffix in ("", ".gz", ".Z"))
        yield folder / self.zip_name


_UNPACK_ERRORS = (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError, ValueError)


def _unpack(content: bytes, name: str, wanted: str) -> bytes | None:
    """Return the content of the file `wanted` inside `content`, a file called `name`, or None if it is missing.

    Supports gzip, compress (.Z) and zip, also a zip inside a zip (UCI has bank.zip in bank+marketing.zip), with any
    folders inside.
    """
    base = name.rpartition("/")[2]
    if base == wanted:
        return content
    if base == f"{wanted}.gz":
        return gzip.decompress(content)
    if base == f"{wanted}.Z":
        return unlzw(content)
    if base.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                if member.endswith((".zip", wanted, f"{wanted}.gz", f"{wanted}.Z")):
                    found = _unpack(archive.read(member), member, wanted)
                    if found is not None:
                        return found
    return None


# Downloads from the UCI archive are complete and checked, or nothing is written.

_logger = logging.getLogger(__name__)

# Tests replace these by a local server and short times.
_BASE_URL = UCI
_STALL = 30.0  # seconds without a byte, or to connect
_LIMIT = 900.0  # total seconds for one attempt
_PAUSES = (1.0, 3.0)  # seconds before the second and the third attempt

_CHUNK = 1 << 16
# timeout, too many requests, and server errors, which may be temporary
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


def download(archive: Archive, home: Path) -> None:
    """Fetch an archive, check all its files, and write them compressed into its folder below `home`.

    Raises an OSError: DatasetCorruptError if a file is not the expected file, errors of urllib and http (see `fetch`),
    or an error in writing. Files are written only after all files are checked, each in one step.
    """
    url = archive.url(_BASE_URL)
    content = fetch(url)
    files = [(file, file.unpack(content, url)) for file in archive.files]
    for file, raw in files:
        file.check(raw, f"{file.name} in {url}")
    folder = home / archive.folder
    folder.mkdir(parents=True, exist_ok=True)
    for file, raw in files:
        _write(folder / f"{file.name}.gz", gzip.compress(raw, compresslevel=6, mtime=0))


def fetch(url: str) -> bytes:
    """Fetch the zip file at an address. Repeat attempts after temporary errors, with a pause.

    Raises an OSError: urllib.error.HTTPError or URLError, TimeoutError, or ConnectionError for an incomplete response.
    """
    for pause in _PAUSES:
        try:
            return _attempt(url)
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in _PASSING:
                raise
            _logger.warning("%s: %s. Next attempt in %g seconds.", url, error, pause)
        time.sleep(pause)
    return _attempt(url)


def _attempt(url: str) -> bytes:
    _logger.info("Downloading %s", url)
    received = io.BytesIO()
    try:
        total = _receive(url, received)
    except http.client.HTTPException as error:  # a chunked response was cut off, or is not HTTP
        raise ConnectionError(f"the answer broke off after {received.tell()} bytes ({error!r})") from error
    if total is not None and received.tell() != total:
        raise ConnectionError(f"the answer broke off after {received.tell()} of {total} bytes")
    if not zipfile.is_zipfile(received):
        raise ConnectionError(f"the answer, {len(received.getvalue())} bytes, is not a complete zip file")
    return received.getvalue()


def _receive(url: str, buffer: io.BytesIO) -> int | None:
    """Write the server's response into a buffer. Return the announced length, if any."""
    request = urllib.request.Request(url, headers={"User-Agent": f"surefoot/{__version__}"})
    deadline = time.monotonic() + _LIMIT
    with urllib.request.urlopen(request, timeout=_STALL) as response:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdigit() else None
        with _progress(url, total) as advance:
            while chunk := response.read1(_CHUNK):  # read only available bytes, so that a slow server is noticed
                buffer.write(chunk)
                advance(len(chunk))
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the download took more than {_LIMIT:g} seconds")
    return total


@contextmanager
def _progress(url: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of bytes received. It updates a progress bar if rich is installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda _: None
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    hidden = not (console.is_terminal or console.is_jupyter)
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(url.rpartition("/")[2], total=total)
        yield lambda n_bytes: progress.advance(task, n_bytes)


def _write(path: Path, content: bytes) -> None:
    """Write a file in one step. Raise an OSError for any error, like `download`."""
    try:
        write_bytes(path, content)
    except FileError as error:
        raise OSError(str(error)) from error


ENVIRONMENT_VARIABLE = "SUREFOOT_DATA"


def locate(
    archive: Archive, data_home: str | os.PathLike[str] | None = None, *, download_if_missing: bool = True
) -> tuple[Path, ...]:
    """Return the paths of the files of an archive, in its order.

    The search covers `data_home`, the folder named by SUREFOOT_DATA, and the user's cache. Missing files are downloaded
    into `data_home` if given, otherwise into the user's cache. They are never downloaded into the folder of
    SUREFOOT_DATA.
    """
    given = [data_home, os.environ.get(ENVIRONMENT_VARIABLE)]
    homes = [*(Path(folder).expanduser() for folder in given if folder), user_cache()]
    target = homes[0] if data_home else homes[-1]
    paths = archive.find(homes)
    if None in paths and download_if_missing:
        try:
            download(archive, target)
        except DatasetCorruptError as error:
            raise DatasetCorruptError(f"{error} {_advice(archive, target)}") from error
        except OSError as error:
            raise _not_found(archive, homes, target, f"Downloading {archive.url()} failed: {error}.") from error
        paths = archive.find(homes)
    found = tuple(path for path in paths if path is not None)
    if len(found) < len(paths):
        raise _not_found(archive, homes, target, "Nothing was downloaded, for download_if_missing is False.")
    return found


def user_cache() -> Path:
    """Return the folder of this package in the platform's user cache."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "surefoot" / "datasets"


def _not_found(archive: Archive, homes: list[Path], target: Path, reason: str) -> FileNotFoundError:
    names = " and ".join(file.name for file in archive.files)
    searched = ", ".join(str(home) for home in homes)
    variable = "" if os.environ.get(ENVIRONMENT_VARIABLE) else f" ({ENVIRONMENT_VARIABLE} is not set)"
    return FileNotFoundError(f"{names}: not found below {searched}{variable}. {reason} {_advice(archive, target)}")


def _advice(archive: Archive, target: Path) -> str:
    return (
        f"Either fetch {archive.url()} by hand and put it, packed as it is, into {target / archive.folder}, or set "
        f"{ENVIRONMENT_VARIABLE} to a folder that has {archive.folder}/{archive.files[0].name} (or .gz)."
    )
