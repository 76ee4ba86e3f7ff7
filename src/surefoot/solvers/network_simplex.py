"""POT's network simplex, without the array libraries that POT looks for.

`import ot` imports torch, JAX, TensorFlow and CuPy where they are installed: seconds, for arrays that are never used
here. Its environment variables say no to that, but for the whole process. So a copy of POT is imported under them for
this package alone, and a user who imports ot gets POT as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ExtensionFileLoader
from threading import Lock
from typing import Any

_BACKENDS = ("PYTORCH", "JAX", "TENSORFLOW", "CUPY")
_lock = Lock()


def network_simplex() -> Callable[..., Any]:
    """`ot.emd`, from POT itself where it has been imported."""
    with _lock:
        return _emd()


@cache
def _emd() -> Callable[..., Any]:
    if "ot" in sys.modules:
        import ot

        return ot.emd
    with _without_backends():
        import ot

        emd = ot.emd
    for name in [name for name in sys.modules if name == "ot" or name.startswith("ot.")]:
        # compiled modules cannot be loaded twice: another import shares them
        if not isinstance(getattr(sys.modules[name].__spec__, "loader", None), ExtensionFileLoader):
            del sys.modules[name]
    return emd


@contextmanager
def _without_backends() -> Iterator[None]:
    names = [f"POT_BACKEND_DISABLE_{backend}" for backend in _BACKENDS]
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
