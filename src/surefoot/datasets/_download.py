"""Downloads from the UCI archive: all of it or nothing, and nothing unchecked."""

from __future__ import annotations

import gzip
import http.client
import io
import logging
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from surefoot._errors import FileError
from surefoot._files import write_bytes
from surefoot._version import __version__
from surefoot.datasets._raw_files import UCI, Archive

_logger = logging.getLogger(__name__)

# Tests put a local server and short times here.
_BASE_URL = UCI
_STALL = 30.0  # seconds without a byte, or to connect
_LIMIT = 900.0  # seconds for one attempt in all
_PAUSES = (1.0, 3.0)  # seconds before the second and the third attempt

_CHUNK = 1 << 16
# timeout, too many requests, and faults of the server: these may pass
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


def download(archive: Archive, home: Path) -> None:
    """Fetch an archive, check each of its files and write them into its folder below `home`, compressed.

    Raises an OSError: DatasetCorruptError where a file is not the one expected, urllib's and http's errors (see
    `fetch`), or an error in writing. Files are written only after all are checked, each in one step.
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
    """The zip file at an address. Attempts that fail for a reason that may pass are repeated after a pause.

    Raises an OSError: urllib.error.HTTPError or URLError, TimeoutError, or a ConnectionError for an incomplete answer.
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
    except http.client.HTTPException as error:  # a chunked answer was cut off, or it is no HTTP
        raise ConnectionError(f"the answer broke off after {received.tell()} bytes ({error!r})") from error
    if total is not None and received.tell() != total:
        raise ConnectionError(f"the answer broke off after {received.tell()} of {total} bytes")
    if not zipfile.is_zipfile(received):
        raise ConnectionError(f"the answer, {len(received.getvalue())} bytes, is not a complete zip file")
    return received.getvalue()


def _receive(url: str, buffer: io.BytesIO) -> int | None:
    """Write the answer of the server into a buffer; the length that it announced, if any."""
    request = urllib.request.Request(url, headers={"User-Agent": f"surefoot/{__version__}"})
    deadline = time.monotonic() + _LIMIT
    with urllib.request.urlopen(request, timeout=_STALL) as response:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdigit() else None
        with _progress(url, total) as advance:
            while chunk := response.read1(_CHUNK):  # what has come, so that a slow server is noticed
                buffer.write(chunk)
                advance(len(chunk))
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the download took more than {_LIMIT:g} seconds")
    return total


@contextmanager
def _progress(url: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of bytes that came; it moves a bar on a terminal, if rich is installed."""
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
    """Write a file in one step; an error is an OSError, as all of `download` are."""
    try:
        write_bytes(path, content)
    except FileError as error:
        raise OSError(str(error)) from error
