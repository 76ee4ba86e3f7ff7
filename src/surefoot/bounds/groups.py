"""One bound per group, all of which hold together, and the worst of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.bounds.result import ErrorBound

# labels of the group (indices), rows of the group in the pool or None, its level, its name -> its bound
OneGroup = Callable[[NDArray[np.intp], int | None, float, str], ErrorBound]


def check_groups(groups: ArrayLike | None, n: int, M: int | None) -> NDArray[Any] | None:
    """Groups of the rows of X, then of X_unlabeled, one each; for X alone where there is no pool."""
    if groups is None:
        return None
    if callable(groups):
        raise ValueError(
            "groups must be an array for this method; got a function of rows, which is for method='transport'. Pass "
            "its values at the rows."
        )
    given = np.asarray(groups)
    wanted = n if M is None else n + M
    if given.ndim != 1 or len(given) != wanted:
        rows = "row of X" if M is None else "row of X, then one per row of X_unlabeled"
        raise ValueError(f"groups must be one per {rows}, {wanted} in all; got shape {given.shape}. Pass that many.")
    empty = np.setdiff1d(given, given[:n]).tolist()
    if empty:
        raise ValueError(
            f"every group must have a labeled row to judge it; got none in {empty}. Label some of their rows, or merge "
            "them with other groups."
        )
    return given


def by_group(groups: NDArray[Any], n: int, level: float, one_group: OneGroup, *, about: str, pool: bool) -> ErrorBound:
    """The largest of the groups' bounds, each at 1 − (1 − level)/G so that all G hold together."""
    names = np.unique(groups)
    each = 1.0 - (1.0 - level) / len(names)
    found: dict[Any, ErrorBound] = {}
    for name in names.tolist():
        chosen = np.flatnonzero(groups[:n] == name)
        size = int(np.sum(groups == name)) if pool else None
        found[name] = one_group(chosen, size, each, f", group {name}")
    worst = max(found.values(), key=lambda bound: bound.value)
    total = sum(bound.n_labels for bound in found.values())
    return replace(
        worst,
        level=level,
        about=about,
        assumptions=(*worst.assumptions, f"each of {len(names)} groups is bounded at level {each:.4g}: all together"),
        n_labels=total,
        n_errors=sum(bound.n_errors for bound in found.values()),
        mean_loss=sum(bound.mean_loss * bound.n_labels for bound in found.values()) / max(total, 1),
        groups=found,
    )
