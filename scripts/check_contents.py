"""What a wheel and an sdist hold: nothing that should not be published, nothing missing, and less than 1 MB each.

Usage: python scripts/check_contents.py dist
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

MOST_BYTES = 1_000_000
# What a distribution may hold, and what it must; a star stands for any part of a path.
WHEEL = [
    "surefoot/*.py",
    "surefoot/*.css",
    "surefoot/*.html",
    "surefoot/*.js",
    "surefoot/certificates/evidence.schema.json",
    "surefoot/*.svg",
    "surefoot/*.pyi",
    "surefoot/py.typed",
]
WHEEL += ["surefoot-*.dist-info/*"]
IN_WHEEL = [
    "surefoot/__init__.py",
    "surefoot/__init__.pyi",
    "surefoot/py.typed",
    "surefoot/report/templates/report.html",
]
IN_WHEEL += ["surefoot/certificates/evidence.schema.json"]
IN_WHEEL += ["surefoot/report/templates/sections/short.html", "surefoot/report/templates/style.css"]
IN_WHEEL += ["surefoot/serve/templates/label.html", "surefoot/serve/static/label.js"]
IN_WHEEL += [f"surefoot-*.dist-info/{name}" for name in ("METADATA", "entry_points.txt", "licenses/LICENSE")]
FILES = ["README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "PKG-INFO"]
SDIST = [*(f"src/{pattern}" for pattern in WHEEL), *FILES, ".gitignore"]
IN_SDIST = [*FILES, *(f"src/{pattern}" for pattern in IN_WHEEL if "dist-info" not in pattern)]


def faults(path: Path) -> list[str]:
    """What is wrong with one distribution."""
    is_wheel = path.suffix == ".whl"
    names, allowed, needed = (in_wheel(path), WHEEL, IN_WHEEL) if is_wheel else (in_sdist(path), SDIST, IN_SDIST)
    found = [f"{name} is not meant to be there" for name in names if not any(fnmatch(name, p) for p in allowed)]
    found += [f"{pattern} is missing" for pattern in needed if not any(fnmatch(name, pattern) for name in names)]
    if path.stat().st_size > MOST_BYTES:
        found.append(f"{path.stat().st_size:,} bytes, more than {MOST_BYTES:,}")
    return found


def in_wheel(path: Path) -> list[str]:
    """Files of a wheel."""
    with zipfile.ZipFile(path) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


def in_sdist(path: Path) -> list[str]:
    """Files of an sdist, without its own folder."""
    with tarfile.open(path) as archive:
        return [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]


def main() -> int:
    """Print what is wrong, and sizes; the exit status says whether anything is."""
    paths = [path for path in sorted(Path(sys.argv[1]).iterdir()) if path.name.endswith((".whl", ".tar.gz"))]
    wrong = [] if len(paths) == 2 else [f"expected a wheel and an sdist, found {[path.name for path in paths]}"]
    for path in paths:
        n_files = len(in_wheel(path) if path.suffix == ".whl" else in_sdist(path))
        print(f"{path.name}: {n_files} files, {path.stat().st_size / 1e3:.0f} kB")
        wrong += [f"{path.name}: {fault}" for fault in faults(path)]
    print("\n".join(wrong) if wrong else "contents are as they should be")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
