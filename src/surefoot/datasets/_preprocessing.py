"""The paper's preprocessing: a random draw of rows, then one scale for all features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array


@dataclass(frozen=True)
class Draw:
    """A uniform draw without replacement within each class; no `Draw` means all rows.

    Parameters
    ----------
    n_rows : int or None
        Rows to draw. None, with `balanced`: as many as the smaller class allows.
    balanced : bool
        Half of the rows from each class; otherwise each class keeps its share, to the nearest row. (A draw that
        ignores the classes would move Cover's shares by 0.3 points from seed to seed; the paper's Table 2 has the
        shares of the full data in both cases.)
    """

    n_rows: int | None
    balanced: bool

    def rows(self, target: NDArray[np.int64], rng: np.random.RandomState) -> NDArray[np.intp]:
        """Indices of the rows drawn, in the order of the data."""
        members = [np.flatnonzero(target == label) for label in (0, 1)]
        if self.balanced:
            half = min(map(len, members)) if self.n_rows is None else self.n_rows // 2
            sizes = [half, half]
        else:
            total = len(target) if self.n_rows is None else self.n_rows
            n_positive = round(total * len(members[1]) / len(target))
            sizes = [total - n_positive, n_positive]
        drawn = [rng.choice(rows, size, replace=False) for rows, size in zip(members, sizes, strict=True)]
        return np.sort(np.concatenate(drawn))


def standardize(X: ArrayLike) -> NDArray[np.float64]:
    """Subtract the mean and divide by the standard deviation, per feature; then divide by the largest absolute entry.

    Features without spread become 0.

    Parameters
    ----------
    X : array of shape (N, d)
        Rows.

    Returns
    -------
    array of shape (N, d)
        Entries in [-1, 1].

    Examples
    --------
    >>> standardize([[1.0, 5.0], [3.0, 5.0]])
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    data: NDArray[np.float64] = check_array(X, dtype=np.float64, input_name="X")
    spread = data.std(axis=0)
    varies = (np.ptp(data, axis=0) > 0) & (spread > 0)  # the rounded mean may give a constant column some spread
    scaled = np.where(varies, (data - data.mean(axis=0)) / np.where(varies, spread, 1.0), 0.0)
    return scaled / max(np.abs(scaled).max(), np.finfo(np.float64).tiny)
