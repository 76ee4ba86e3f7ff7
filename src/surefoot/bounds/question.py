"""What is asked of a bound: the classifier, the labels that judge it, the rows, the level and the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from surefoot._validation import is_source
from surefoot.bounds.finite import check_level
from surefoot.bounds.groups import check_groups
from surefoot.unlabeled import unwrap

_FEWEST_LABELS = 2


@dataclass(frozen=True, eq=False)
class Question:
    """Checked arguments of `error_bound`."""

    classifier: Any
    X: Any
    y: NDArray[Any]
    X_unlabeled: Any
    level: float
    loss: str | ArrayLike
    groups: NDArray[Any] | None
    classes: ArrayLike | None
    clip: float
    random_state: int | None

    @property
    def pool_size(self) -> int | None:
        """Rows of the pool, labeled ones included; None where there is no pool."""
        return None if self.X_unlabeled is None else len(self.y) + len(self.X_unlabeled)

    @property
    def labeled_groups(self) -> NDArray[Any] | None:
        return None if self.groups is None else self.groups[: len(self.y)]


def check_question(
    classifier: Any,
    X: Any,
    y: Any,
    X_unlabeled: Any,
    level: float,
    loss: str | ArrayLike,
    groups: Any,
    classes: ArrayLike | None,
    clip: float,
    random_state: int | None,
    *,
    in_memory: bool = True,
) -> Question:
    """Arguments of `error_bound`, each refused with the rule that it breaks.

    in_memory : whether unlabeled rows and groups are looked at here; those of a certificate are by `certify`.
    """
    if not callable(getattr(classifier, "predict", None)):
        raise ValueError(
            f"classifier must have predict; got {type(classifier).__name__}. Pass a scikit-learn classifier, or an "
            "object with predict."
        )
    labels = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
    check_consistent_length(X, labels)
    if len(labels) < _FEWEST_LABELS:
        raise ValueError(f"a bound needs at least {_FEWEST_LABELS} labels; got {len(labels)}. Label more rows.")
    at = check_level(level)
    if not in_memory:
        return Question(classifier, X, labels, X_unlabeled, at, loss, None, classes, clip, random_state)
    U = None if X_unlabeled is None else unwrap(X_unlabeled)[0]
    if is_source(U) or hasattr(U, "__dask_graph__"):
        raise ValueError(
            f"X_unlabeled must be rows in memory for this method; got {type(U).__name__}. Read them, or pass "
            'method="transport".'
        )
    if U is not None and np.shape(U)[1:] != np.shape(X)[1:]:
        raise ValueError(
            f"X_unlabeled must have the columns of X, {np.shape(X)[1:]}; got {np.shape(U)[1:]}. Pass the same columns."
        )
    n, M = len(labels), None if U is None else len(U)
    # groups may always be given for the labeled rows alone where no pool is bounded
    checked = check_groups(groups, n, M if groups is not None and np.shape(groups) != (n,) else None)
    return Question(classifier, X, labels, U, at, loss, checked, classes, clip, random_state)
