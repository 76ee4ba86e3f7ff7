"""A certificate that was solved over some of the rows, evaluated at all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from surefoot._types import FloatArray
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.fresh import RowBound
from surefoot.problem.sets import row_chunks

# Far above what float64 loses in a mean of N bounded numbers.
_ROUNDING = 1e-9


def risk_over_rows(
    found: Certificate, rows: Sequence[FloatArray], weights: FloatArray, losses: FloatArray, shift: float
) -> float:
    """An upper bound over all rows, from a certificate over some of them.

    Every dual point bounds the worst case from above. So the one that was found over a sample holds for all rows, too;
    it is slightly larger than the best one.

    Parameters
    ----------
    found : Certificate, over the sample.
    rows : arrays (n, d) and (M, d), the labeled rows and the others.
    weights : array of shape (n + M,), of all rows.
    losses : array of shape (n + M, K), of the classifier at all rows.
    shift : float, by which the radius over all rows is larger than that over the sample.
    """
    bound = row_bound(found)
    sets = [
        replace(one, decision_set=one.decision_set.with_radius(one.decision_set.radius + shift)) for one in bound.sets
    ]
    totals = np.zeros(len(sets))
    for at, part in chunks(rows, len(bound.anchors)):
        distances = bound.metric.distances(part, bound.anchors)
        totals += [weights[at] @ one.values(distances, losses[at]) for one in sets]
    return float(totals.max()) + _ROUNDING


def chunks(rows: Sequence[FloatArray], n_columns: int) -> Iterator[tuple[slice, FloatArray]]:
    """Rows of several arrays in chunks: where they are among all rows, and the rows."""
    start = 0
    for array in rows:
        for part in row_chunks(len(array), n_columns, entries=1 << 21):
            yield slice(start + part.start, start + part.stop), array[part]
        start += len(array)


def row_bound(certificate: Certificate) -> RowBound:
    """The dual point of a certificate."""
    if certificate.row_bound is None:
        raise RuntimeError("a certificate of the decision set knows its dual point; this one does not")
    return certificate.row_bound
