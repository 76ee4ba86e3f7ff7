"""The nearest anchors of each row, and the nearest rows of each anchor, compiled with numba."""

from __future__ import annotations

from surefoot.kernels.compiled import compiled


@compiled()
def nearest_anchors(D, potentials, anchors, values):  # pragma: no cover (compiled)
    """Of each row of D (B, n) the anchors (B, k) of least d_ji + b_i, and these values (B, k), in rising order."""
    B, n = D.shape
    k = anchors.shape[1]
    for j in range(B):
        count = 0
        for i in range(n):
            value = D[j, i] + potentials[i]
            if count < k or value < values[j, k - 1]:
                place = min(count, k - 1)
                while place > 0 and values[j, place - 1] > value:
                    values[j, place] = values[j, place - 1]
                    anchors[j, place] = anchors[j, place - 1]
                    place -= 1
                values[j, place] = value
                anchors[j, place] = i
                count = min(count + 1, k)


@compiled()
def nearest_rows(D, start, rows, values):  # pragma: no cover (compiled)
    """Put the rows of D (B, n), of which the first is row `start`, among the nearest (n, k) of each anchor so far.

    values : their distances (n, k) in rising order, infinite where there are fewer.
    """
    B, n = D.shape
    k = rows.shape[1]
    for j in range(B):
        for i in range(n):
            value = D[j, i]
            if value < values[i, k - 1]:
                place = k - 1
                while place > 0 and values[i, place - 1] > value:
                    values[i, place] = values[i, place - 1]
                    rows[i, place] = rows[i, place - 1]
                    place -= 1
                values[i, place] = value
                rows[i, place] = start + j
