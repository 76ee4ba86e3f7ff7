"""The public interface, in one place: what users type, and the API reference lists, and has a checked docstring."""

from __future__ import annotations

import importlib
from typing import Any

# Modules whose names users type: those of __all__, or all that are defined there and do not begin with an underscore.
PUBLIC_MODULES = [
    "surefoot",
    "surefoot.active",
    "surefoot.costs",
    "surefoot.datasets",
    "surefoot.paper",
    "surefoot.nn",
    "surefoot.plots",
    "surefoot.priors",
    "surefoot.report",
]
# From modules whose other names only the package itself uses.
PUBLIC_NAMES = ["surefoot.distributed.local_client"]


def names_by_module() -> dict[str, dict[str, Any]]:
    """Functions and classes that users call, by the module and the name by which they reach them.

    A name of two public modules is listed in the first.
    """
    found: dict[str, dict[str, Any]] = {}
    seen = set()
    for name in PUBLIC_MODULES:
        module = importlib.import_module(name)
        listed = getattr(module, "__all__", None) or [
            key for key, value in vars(module).items() if getattr(value, "__module__", None) == name and key[0] != "_"
        ]
        callables = {key: getattr(module, key) for key in listed if callable(getattr(module, key))}
        found[name] = {key: value for key, value in callables.items() if defined_name(value) not in seen}
        seen |= {defined_name(value) for value in callables.values()}
    for name in PUBLIC_NAMES:
        module_name, _, key = name.rpartition(".")
        found.setdefault(module_name, {})[key] = getattr(importlib.import_module(module_name), key)
    return found


def public_objects() -> dict[str, Any]:
    """The same, by the name under which they are defined."""
    return {defined_name(value): value for names in names_by_module().values() for value in names.values()}


def defined_name(value: Any) -> str:
    """Module and name of a definition."""
    return f"{value.__module__}.{value.__qualname__}"
