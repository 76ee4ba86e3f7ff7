"""Raw files of the UCI archive: how they are found in a folder, unpacked, and checked.

What is hashed is a canonical form of the content, not the file: copies of one UCI file differ in ways that carry no
data (see `canonical_text` and `canonical_isolet`). The encoders read the canonical form too, so that what was
checked is what is used.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.datasets._unlzw import unlzw

UCI = "https://archive.ics.uci.edu"
ISOLET_COLUMNS = 618  # 617 features and the class


class DatasetNotFoundError(FileNotFoundError):
    """A raw file is in none of the folders searched, and could not or should not be downloaded."""


class DatasetCorruptError(OSError):
    """A raw file is there, but damaged or not the file expected."""


def canonical_text(content: bytes) -> bytes:
    r"""Lines that end in one "\n", fields separated by one blank where they are by white space, no empty lines.

    Copies differ in their line ends (UCI's spambase.data has "\r\n", its HTRU_2.csv "\r") and, of ann-*.data and
    yeast.data, in runs of blanks and tabs. For UCI's own copy of the other files this changes nothing: the sha256 is
    that of the file itself.
    """
    lines = (b" ".join(line.split()) for line in content.splitlines())
    return b"".join(line + b"\n" for line in lines if line)


def canonical_isolet(content: bytes) -> bytes:
    """Rows of 617 features in units of 0.0001 and the class, as little-endian int16, in the order of their bytes.

    Each value is a multiple of 0.0001. Copies differ in the order of rows and may differ in how numbers are written.
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
        """The canonical content, or an error that names the origin."""
        if hashlib.sha256(content).hexdigest() == self.sha256:
            return content  # canonical already: the common case, and the quick one for Cover's 75 MB
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
        """The content of this file inside `content`, read from the path or address `origin`."""
        try:
            found = _unpack(content, origin, self.name)
        except _UNPACK_ERRORS as error:
            raise DatasetCorruptError(f"{origin} cannot be unpacked: {error}.") from error
        if found is None:
            raise DatasetCorruptError(f"{origin} holds no file {self.name}.")
        return found

    def read(self, path: Path) -> bytes:
        """The canonical content of a local copy, checked."""
        try:
            return self.check(self.unpack(path.read_bytes(), path.as_posix()), path)
        except DatasetCorruptError as error:
            raise DatasetCorruptError(
                f"{error} Delete it, so that it is looked for elsewhere or downloaded, or put an intact copy there."
            ) from error


@dataclass(frozen=True)
class Archive:
    """A dataset of the UCI archive: its number and name in addresses, our folder for it, the files we need of it."""

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
        """The first path that exists, for each file.

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
    """The content of the file `wanted` inside `content`, a file called `name`; None if it is not there.

    Understands gzip, compress (.Z) and zip, also a zip inside a zip (UCI has bank.zip in bank+marketing.zip), whatever
    the folders inside.
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
