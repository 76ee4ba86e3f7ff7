"""One BLAS thread while any solver runs, in whichever thread of the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController


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
    """BLAS at one thread, until the last of all that asked for it has left."""
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
