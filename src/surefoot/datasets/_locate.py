"""Where raw files are: in a folder of the user's, in the user's cache, or, in the end, in the UCI archive."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from surefoot.datasets import _download
from surefoot.datasets._raw_files import Archive, DatasetCorruptError, DatasetNotFoundError

ENVIRONMENT_VARIABLE = "SUREFOOT_DATA"


def locate(
    archive: Archive, data_home: str | os.PathLike[str] | None = None, *, download_if_missing: bool = True
) -> tuple[Path, ...]:
    """Paths of the files of an archive, in its order.

    Searched are `data_home`, the folder named by SUREFOOT_DATA, and the user's cache. What is nowhere is downloaded,
    into `data_home` where it is given and the user's cache otherwise; never into the folder of SUREFOOT_DATA.
    """
    given = [data_home, os.environ.get(ENVIRONMENT_VARIABLE)]
    homes = [*(Path(folder).expanduser() for folder in given if folder), user_cache()]
    target = homes[0] if data_home else homes[-1]
    paths = archive.find(homes)
    if None in paths and download_if_missing:
        try:
            _download.download(archive, target)
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
    """Our folder in the user's cache, where the platform has it."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "surefoot" / "datasets"


def _not_found(archive: Archive, homes: list[Path], target: Path, reason: str) -> DatasetNotFoundError:
    names = " and ".join(file.name for file in archive.files)
    searched = ", ".join(str(home) for home in homes)
    variable = "" if os.environ.get(ENVIRONMENT_VARIABLE) else f" ({ENVIRONMENT_VARIABLE} is not set)"
    return DatasetNotFoundError(f"{names}: not found below {searched}{variable}. {reason} {_advice(archive, target)}")


def _advice(archive: Archive, target: Path) -> str:
    return (
        f"Either fetch {archive.url()} by hand and put it, packed as it is, into {target / archive.folder}, or set "
        f"{ENVIRONMENT_VARIABLE} to a folder that has {archive.folder}/{archive.files[0].name} (or .gz)."
    )
