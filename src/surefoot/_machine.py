"""What memory is there, and an error that says what to do where a problem needs more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

# One BLAS thread while any solver runs, in whichever thread of the process.


class _Guard:
    """How many solvers run, for a BLAS with one limit per process: the first sets it, the last restores what it was.

    If each kept what it met, one that began under the limit of another would restore that limit, for good.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.blas: ThreadpoolController | None = None
        self.limits: Any = None

    def enter(self, blas: ThreadpoolController) -> None:
        with self.lock:
            if self.users == 0:
                _let_any_thread_set(blas)
                self.blas, self.limits = blas, blas.limit(limits=1)
                _let_any_thread_set(blas)
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0 and self.blas is not None:
                _let_any_thread_set(self.blas)
                self.limits.restore_original_limits()
                _let_any_thread_set(self.blas)
                self.blas = self.limits = None


_GUARD = _Guard()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread until the last user of the limit ends."""
    shared, own = _libraries()
    _GUARD.enter(shared)
    try:
        with own.limit(limits=1):
            yield
    finally:
        _GUARD.leave()


@cache
def _libraries() -> tuple[ThreadpoolController, ThreadpoolController]:
    """The BLAS libraries with one limit per process, and those with one for each thread (by OpenMP).

    Those of NumPy and SciPy: looking for them takes milliseconds, and both are loaded before any solver.
    """
    blas = ThreadpoolController().select(user_api="blas")
    own = [one.filepath for one in blas.lib_controllers if getattr(one, "threading_layer", None) == "openmp"]
    shared = [one.filepath for one in blas.lib_controllers if one.filepath not in own]
    return blas.select(filepath=shared), blas.select(filepath=own)


def _let_any_thread_set(blas: ThreadpoolController) -> None:
    """From version 3.7, threadpoolctl heeds one thread only, and the last user need not be the first one."""
    for library in blas.lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)


# Smaller matrices are allocated without a look at what is there.
_SMALL = 1 << 26
_CGROUP_LIMITS = (
    ("memory.max", "memory.current"),  # version 2
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),  # version 1
)


def check_fits(n_rows: int, n_columns: int, what: str, fix: str) -> None:
    """Refuse a float64 matrix that cannot be held; `what` it holds, and what to do instead, end in the message."""
    needed = 8 * n_rows * n_columns
    if needed <= _SMALL:
        return
    available = available_memory()
    if available is not None and needed > available:
        raise MemoryError(
            f"{what} must fit into memory; got {n_rows} x {n_columns} of them, {needed / 2**30:.3g} GiB, where "
            f"{available / 2**30:.3g} GiB are available. {fix}"
        )


def available_memory() -> int | None:
    """Bytes that this process may still use: the least of the machine's, its cgroup's and its own limit.

    None where nothing is known.
    """
    known = [_of_machine(Path("/proc/meminfo")), _of_cgroup(Path("/sys/fs/cgroup")), _of_process()]
    return min((value for value in known if value is not None), default=None)


def _of_machine(meminfo: Path) -> int | None:
    """Return MemAvailable of Linux, or the free pages of other systems."""
    for line in _text(meminfo).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return 1024 * int(rest.split()[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on this system
        return None


def _of_cgroup(root: Path) -> int | None:
    """Return the memory that a container may still use. Its page cache counts as used."""
    for limit, usage in _CGROUP_LIMITS:
        most, used = _text(root / limit).strip(), _text(root / usage).strip()
        if most.isdigit() and used.isdigit():
            cached = _cached(_text((root / limit).parent / "memory.stat"))
            return max(int(most) - int(used) + cached, 0)
    return None


def _cached(statistics: str) -> int:
    """Bytes of inactive files in a cgroup's memory.stat."""
    lines = dict(line.split(maxsplit=1) for line in statistics.splitlines() if line.count(" ") == 1)
    return int(lines.get("total_inactive_file", lines.get("inactive_file", "0")))


def _of_process() -> int | None:
    """RLIMIT_AS less the address space in use."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _text(Path("/proc/self/statm")).split()
    if most == resource.RLIM_INFINITY or not pages:
        return None
    return max(most - int(pages[0]) * resource.getpagesize(), 0)


def _text(path: Path) -> str:
    """Return the text of a file, empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
