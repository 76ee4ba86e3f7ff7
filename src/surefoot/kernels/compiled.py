"""How kernels are compiled: by numba without the interpreter, and kept on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit

from surefoot._errors import CodedWarning, warn_caller


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function by numba; its code is kept for other processes where a folder can be written.

    Neither the package's folder nor the user's may be writable, in containers and services: numba then refuses to
    compile, and the function is compiled without.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        keywords = {"nogil": True, "error_model": "numpy", **options}
        try:
            return njit(cache=True, **keywords)(function)
        except RuntimeError:  # any other reason to refuse fails again
            without = njit(**keywords)(function)
            _warn_once()
            return without

    return decorate


@cache
def _warn_once() -> None:
    """One warning per process, not one per kernel."""
    warn_caller(
        CodedWarning(
            "no_cache",
            "compiled code cannot be kept, as no folder for it can be written: each process compiles again, for some "
            "seconds.",
            "Set the environment variable NUMBA_CACHE_DIR to a folder that can.",
        )
    )
