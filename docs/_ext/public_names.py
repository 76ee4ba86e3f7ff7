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
    "surefoot.nn",
    "surefoot.paper",
    "surefoot.plots",
    "surefoot.priors",
]
# From modules whose other names only the package itself uses.
PUBLIC_NAMES = [
    "surefoot.report.build_report",
    "surefoot.report.write_report",
]
# What public functions return: read, not constructed, so not exported; documented all the same.
RESULTS = [
    "surefoot.active.flexibility.LabelFlexibility",
    "surefoot.active.loop.Round",
    "surefoot.active.proof_state.ProofState",
    "surefoot.active.proof_state.Question",
    "surefoot.active.simulation.Simulation",
    "surefoot.bounds.population.Shift",
    "surefoot.bounds.result.ErrorBounds",
    "surefoot.bounds.size.AuditSize",
    "surefoot.estimators.curves.RadiusCurve",
    "surefoot.certificates.verify.Verification",
    "surefoot.paper.runner.Reproduction",
]


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
        found.setdefault(module_name, {})[key] = named(name)
    return found


def public_objects() -> dict[str, Any]:
    """The same and the classes of results, by the name under which they are defined."""
    found = {defined_name(value): value for names in names_by_module().values() for value in names.values()}
    return found | {name: named(name) for name in RESULTS}


def named(name: str) -> Any:
    """Return the object of a dotted name."""
    module, _, key = name.rpartition(".")
    return getattr(importlib.import_module(module), key)


def defined_name(value: Any) -> str:
    """Module and name of a definition."""
    return f"{value.__module__}.{value.__qualname__}"
