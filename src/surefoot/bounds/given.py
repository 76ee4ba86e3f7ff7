"""Labels and seeds as they are given, in the form that a journal holds."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def check_label(value: Any, classes: list[Any] | None) -> Any:
    """A plain number or text, as the journal can hold it, and a class that the classifier knows."""
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, str | bool | int | float) or plain != plain:  # noqa: PLR0124 - NaN
        raise ValueError(f"a label must be a number or a text; got {value!r}. A row without one can be skipped.")
    if classes is not None and plain not in classes:
        raise ValueError(
            f"a label must be a class that the classifier knows, {classes}; got {plain!r}. Correct it, or pass "
            "classes= with all classes: one that it does not know is never predicted."
        )
    return plain


def known_labels(y: ArrayLike | None, N: int, classes: list[Any] | None) -> dict[int, Any]:
    """Labels known from the start, by row."""
    if y is None:
        return {}
    given = np.asarray(y)
    if given.shape != (N,):
        raise ValueError(
            f"y must have one label per row, missing ones NaN or None; got shape {given.shape}. Pass that."
        )
    values = enumerate(given.tolist())
    return {row: check_label(v, classes) for row, v in values if v is not None and v == v}  # noqa: PLR0124 - NaN


def check_seed(random_state: int | None) -> int:
    """The seed given, or a fresh one."""
    if random_state is None:
        return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
    if not isinstance(random_state, numbers.Integral) or random_state < 0:
        raise ValueError(f"random_state must be an integer >= 0 or None; got {random_state!r}. Pass 0, say.")
    return int(random_state)
