"""Clusters of dependent labeled rows. Each cluster stays in one fold or half, and counts as one draw.

If copies of a row are in both halves, a classifier can memorize the label, and one label counts several times.
Therefore rows with equal features form a cluster, or rows of one group that the user names. The bound is the larger of
two bounds: one from all tested rows, and one from a random row of each cluster. It holds if the clusters are
independent draws (copies). With unseen labels, it also holds if the rows are independent draws (features with few
values).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from surefoot._errors import ParameterError, RepeatedRowsWarning, warn_caller
from surefoot._printing import in_percent
from surefoot._validation import FloatArray
from surefoot.bounds.result import ErrorBound
from surefoot.priors import ClopperPearson

# The units that a bound treats as independent draws.
LABELED_ROWS = "the labeled rows"
LABELED_GROUPS = "groups of labeled rows (equal features, or cv_groups; each stays in one fold or half, counted once)"

# (positions of the labels, rows of the pool or None, level, whether each label represents a cluster) -> bound
OneBound = Callable[[NDArray[np.intp], NDArray[np.intp] | None, float, bool], ErrorBound]


@dataclass(frozen=True, eq=False)
class Clusters:
    """The cluster number of each row, in order of appearance: labeled rows first, then the rows of the pool, if known.

    named : whether the user named the clusters. Otherwise rows with equal features form a cluster.
    """

    numbers: NDArray[np.intp]
    n_labeled: int
    named: bool
    random_state: int | None

    @classmethod
    def check(cls, cv_groups: ArrayLike | None, X: Any, U: Any, random_state: int | None) -> Clusters:
        """Return the clusters named by the user, for X or for X and U, or clusters of rows with equal features."""
        n, M = np.shape(X)[0], 0 if U is None else np.shape(U)[0]
        if cv_groups is None:
            return cls(equal_rows(X) if U is None else equal_rows(X, U), n, False, random_state)
        given = np.asarray(cv_groups)
        if given.ndim != 1 or len(given) not in (n, n + M):
            raise ParameterError(
                "cv_groups",
                f"must have {n} entries (rows of X) or {n + M} (rows of X, then of X_unlabeled)",
                f"shape {given.shape}",
                "Pass one entry per row.",
            )
        return cls(_numbered(given.tolist()), n, True, random_state)

    @property
    def of_labeled(self) -> NDArray[np.intp]:
        """The cluster numbers (n,) of the labeled rows."""
        return self.numbers[: self.n_labeled]

    @property
    def n_clusters(self) -> int:
        """Number of clusters of labeled rows."""
        return int(self.of_labeled.max()) + 1

    @property
    def repeat(self) -> bool:
        """Whether two labeled rows share a cluster."""
        return self.n_clusters < self.n_labeled

    def check_several(self, n: int) -> None:
        """Require at least n clusters, so that there are clusters for training and for testing."""
        if self.n_clusters < n:
            what = "cv_groups" if self.named else "rows with different features"
            raise ParameterError(
                "X", f"must contain at least {n} {what} for a bound", self.n_clusters, "Label more different rows."
            )

    def halves(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Split the clusters at random into labeled rows to train on (sorted) and rows to test on."""
        order = np.random.default_rng(self.random_state).permutation(self.n_clusters)
        place = np.argsort(order)[self.of_labeled]
        is_held = place >= (self.n_clusters + 1) // 2
        held = np.argsort(place, kind="stable")
        return np.flatnonzero(~is_held), held[is_held[held]]

    def one_of_each(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return positions in `rows` (labeled) of one random row of each cluster, in the order of the clusters."""
        seed = None if self.random_state is None else [self.random_state, 1]
        order = np.random.default_rng(seed).permutation(len(rows))
        numbers, first = np.unique(self.numbers[rows[order]], return_index=True)
        _, appears = np.unique(self.numbers[rows], return_index=True)
        return order[first][np.argsort(appears)] if len(numbers) < len(rows) else np.arange(len(rows))

    def bound(
        self,
        rows: NDArray[np.intp],
        level: float,
        bound_of: OneBound,
        about: str,
        *,
        groups: NDArray[Any] | None,
        pool: NDArray[np.intp] | None = None,
    ) -> ErrorBound:
        """Compute the bound from the labels of `rows`, or the largest of G group bounds, each at 1 − (1 − level)/G.

        groups : groups of the pool (`rows` come first), or of `rows` only.
        """
        if groups is None:
            return self._larger(rows, np.arange(len(rows)), pool, level, bound_of)
        names = np.unique(groups)
        each = 1.0 - (1.0 - level) / len(names)
        found: dict[Any, ErrorBound] = {}
        for name in names.tolist():
            chosen = np.flatnonzero(groups[: len(rows)] == name)
            one = self._larger(rows, chosen, None if pool is None else pool[groups == name], each, bound_of)
            found[name] = replace(one, about=f"{one.about}, group {name}")
        worst = max(found.values(), key=lambda bound: bound.value)
        total = sum(bound.n_labels for bound in found.values())
        together = f"the bounds of the {len(names)} groups hold simultaneously, each with {in_percent(each)} confidence"
        return replace(
            worst,
            level=level,
            about=about,
            assumptions=(*worst.assumptions, together),
            n_labels=total,
            n_errors=sum(bound.n_errors for bound in found.values()),
            mean_loss=sum(bound.mean_loss * bound.n_labels for bound in found.values()) / max(total, 1),
            groups=found,
        )

    def _larger(
        self,
        rows: NDArray[np.intp],
        labels: NDArray[np.intp],
        pool: NDArray[np.intp] | None,
        level: float,
        bound_of: OneBound,
    ) -> ErrorBound:
        """Return the larger of two bounds: from these labels (positions in `rows`), and from one per cluster."""
        by_row = bound_of(labels, pool, level, False)
        chosen = self.one_of_each(rows[labels])
        if len(chosen) == len(labels):
            return by_row
        by_cluster = bound_of(labels[chosen], pool, level, True)
        return replace(
            by_row,
            value=max(by_row.value, by_cluster.value),
            method=f"{by_row.method}; the larger of the bounds by row and by group",
            assumptions=by_cluster.assumptions,
            n_groups=len(chosen),
            group_errors=by_cluster.n_errors,
        )

    def warn(self) -> None:
        """Warn that equal rows count once. No warning if the user named the clusters."""
        if self.repeat and not self.named:
            n, m = self.n_labeled, self.n_clusters
            warn_caller(
                RepeatedRowsWarning(
                    "equal_rows",
                    f"{n - m} of {n} labeled rows repeat the features of another row. The bound keeps equal rows in "
                    f"one fold or half and counts each of the {m} groups once.",
                    f"Pass cv_groups=range({n}) if the features have few values and the rows are independent draws.",
                    n_rows=n,
                    n_groups=m,
                )
            )


def share_intervals(y: NDArray[Any], classes: ArrayLike, numbers: NDArray[np.intp]) -> FloatArray:
    """Return (K, 2) Clopper–Pearson intervals of the label shares, valid if rows or clusters (n,) are the draws."""
    _, first = np.unique(numbers, return_index=True)
    prior = ClopperPearson()
    found = [prior.intervals([np.sum(some == name) for name in np.asarray(classes)]) for some in (y, y[first])]
    return np.column_stack([np.minimum(*found)[:, 0], np.maximum(*found)[:, 1]])


def equal_rows(*parts: Any) -> NDArray[np.intp]:
    """Number the rows (N,) of arrays, frames, sparse matrices or lists; equal rows get the same number."""
    if not any(hasattr(part, "iloc") or issparse(part) for part in parts):
        arrays = [np.asarray(part) for part in parts]
        if all(array.dtype.kind in "fiub" for array in arrays):
            rows = np.concatenate(arrays)
            flat = (rows + np.zeros(1, rows.dtype)).reshape(len(rows), int(np.prod(rows.shape[1:])))  # no −0.0
            return _numbered([row.tobytes() for row in flat])
    return _numbered([mark for part in parts for mark in _marks(part)])


def _marks(part: Any) -> list[Any]:
    if issparse(part):
        rows = part.tocsr()
        rows.sum_duplicates()
        return [(row.indices.tobytes(), row.data.tobytes()) for row in rows]
    if hasattr(part, "itertuples"):
        return [repr(row) for row in part.itertuples(index=False, name=None)]
    return [repr(row.tolist() if isinstance(row, np.ndarray) else row) for row in part]


def _numbered(marks: Sequence[Any]) -> NDArray[np.intp]:
    known: dict[Any, int] = {}
    return np.array([known.setdefault(mark, len(known)) for mark in marks], dtype=np.intp)
