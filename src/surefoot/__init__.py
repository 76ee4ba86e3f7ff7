"""surefoot: few labels, many unlabeled rows, a classifier with a certified worst case.

Public names are those of `surefoot._public`, loaded when the first of them is used: the command line prints its help
and a user's mistakes without waiting for numerical packages.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from surefoot._version import __version__ as __version__

if TYPE_CHECKING:
    from surefoot._public import *  # noqa: F403
    from surefoot._public import __all__ as __all__

_PUBLIC = "surefoot._public"


class _Package(ModuleType):
    """`surefoot.certify` is the function: its module of the same name, once imported, must not take its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "certify" and isinstance(value, ModuleType):
            value = value.certify
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    public = import_module(_PUBLIC)
    if name == "__all__" or name in public.__all__:
        return getattr(public, name)
    if name in globals():  # a room that the public names have opened
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module(_PUBLIC).__all__})
