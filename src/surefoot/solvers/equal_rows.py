"""Rows at equal distances from all anchors, as one: on a grid of few points the network simplex goes round in ties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from surefoot._types import FloatArray
from surefoot.problem.rows import fingerprints
from surefoot.problem.sets import row_chunks

# It pays where there are so many times fewer distinct rows.
_FEWER = 2


@dataclass(frozen=True, eq=False)
class EqualRows:
    """Rows (N,) with their weights by the distinct row (D,) that each is equal to.

    member_of : (N,) which of the distinct rows; first : (D,) the first row of each.
    """

    weights: FloatArray
    member_of: NDArray[np.intp]
    first: NDArray[np.intp]

    @classmethod
    def of(cls, distances: FloatArray, weights: FloatArray) -> EqualRows | None:
        """None where too few rows are equal."""
        parts = list(row_chunks(*distances.shape))
        marks = np.concatenate([fingerprints(distances[part]) for part in parts])
        _, first, member_of = np.unique(marks, return_index=True, return_inverse=True)
        if _FEWER * len(first) > len(marks):
            return None
        if any((distances[part] != distances[first[member_of[part]]]).any() for part in parts):
            return None  # two rows have the same fingerprint by chance
        return cls(weights, member_of, first)

    @property
    def distinct_weights(self) -> FloatArray:
        """(D,) sums over equal rows."""
        return np.asarray(np.bincount(self.member_of, self.weights, len(self.first)), dtype=np.float64)

    def spread(self, plan: csr_array) -> csr_array:
        """The plan (N, n) of all rows from that of the distinct ones (D, n).

        Equal rows fill the anchors of theirs one after the other, so that few of them are split.
        """
        entries = np.diff(plan.indptr)
        alone = np.flatnonzero((entries[self.member_of] == 1) & (self.weights > 0))
        at, to = [alone], [plan.indices[plan.indptr[self.member_of[alone]]]]
        mass = [self.weights[alone]]
        order = np.argsort(self.member_of, kind="stable")
        ends = np.cumsum(np.bincount(self.member_of, minlength=len(self.first)))
        for d in np.flatnonzero(entries > 1):
            rows, cells = order[ends[d - 1] if d else 0 : ends[d]], slice(plan.indptr[d], plan.indptr[d + 1])
            row, cell, size = _north_west(self.weights[rows], plan.data[cells])
            at.append(rows[row])
            to.append(plan.indices[cells][cell])
            mass.append(size)
        shape = (len(self.member_of), plan.shape[1])
        return csr_array((np.concatenate(mass), (np.concatenate(at), np.concatenate(to))), shape=shape)


def _north_west(rows: FloatArray, columns: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
    """Row, column and mass of the entries of a plan with these marginals: rows fill the columns in turn."""
    below, right = np.cumsum(rows), np.cumsum(columns)
    right *= below[-1] / right[-1]
    right[-1] = below[-1]
    cuts = np.union1d(below, right)
    sizes = np.diff(cuts, prepend=0.0)
    cuts, sizes = cuts[sizes > 0], sizes[sizes > 0]
    middle = cuts - 0.5 * sizes
    return np.searchsorted(below, middle), np.searchsorted(right, middle), sizes
