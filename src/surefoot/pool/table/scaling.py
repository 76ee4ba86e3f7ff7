"""Scales of columns of numbers, so that a few large values do not set the distances between all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from surefoot._types import FloatArray

PLAIN, RARE, TAILS, RANKS = "plain", "rare", "tails", "ranks"
# No value may be farther than this from the mean, in standard deviations, or the column is transformed.
FARTHEST = 10.0
# A column in which one value has this share holds rare counts: how often others occur must not set its scale.
_COMMON = 0.9
# Ranks are kept as so many quantiles.
_QUANTILES = 1000


class TailScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale each column by the first rule that keeps all its values within ten standard deviations of the mean.

    plain: mean 0, standard deviation 1.
    rare: where one value fills 90 % of the cells or more and plain does not do: the distance to that value on a log
    scale, with its sign, divided by its largest, so that the column weighs as much as one of 0 and 1.
    tails: asinh((x − median) / spread), which is linear near the median and logarithmic far from it, then as plain.
    ranks: the share of values below, then as plain.

    Attributes
    ----------
    rules_ : list of str, the rule of each column.
    """

    def fit(self, X: ArrayLike, y: Any = None) -> TailScaler:
        """Choose the rule of each column of X (N, d)."""
        rows = validate_data(self, X, dtype=np.float64)
        self.rules_: list[str] = []
        n_columns = rows.shape[1]
        self.center_, self.spread_ = np.zeros(n_columns), np.ones(n_columns)
        self.mean_, self.scale_ = np.zeros(n_columns), np.ones(n_columns)
        self.quantiles_: list[FloatArray] = []
        for at, column in enumerate(rows.T):
            self._fit_column(at, column)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """(N, d)."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        found = np.empty_like(rows)
        for at, rule in enumerate(self.rules_):
            found[:, at] = (self._bent(at, rule, rows[:, at]) - self.mean_[at]) / self.scale_[at]
        return found

    def _fit_column(self, at: int, column: FloatArray) -> None:
        self.quantiles_.append(np.empty(0))
        if _farthest(column) <= FARTHEST:
            self._settle(at, PLAIN, column)
            return
        values, counts = np.unique(column, return_counts=True)
        common = float(values[counts.argmax()])
        if counts.max() >= _COMMON * len(column):
            self.center_[at], self.spread_[at] = common, np.median(np.abs(column - common)[column != common])
            bent = self._bent(at, RARE, column)
            self.rules_.append(RARE)
            self.scale_[at] = np.abs(bent).max()
            return
        low, middle, high = np.quantile(column, [0.25, 0.5, 0.75])
        self.center_[at] = middle
        self.spread_[at] = (high - low) / 1.349 or np.median(np.abs(column - middle)[column != middle])
        if _farthest(self._bent(at, TAILS, column)) <= FARTHEST:
            self._settle(at, TAILS, column)
            return
        self.quantiles_[at] = np.quantile(column, np.linspace(0, 1, min(_QUANTILES, len(column))))
        self._settle(at, RANKS, column)

    def _settle(self, at: int, rule: str, column: FloatArray) -> None:
        bent = self._bent(at, rule, column)
        self.rules_.append(rule)
        self.mean_[at], self.scale_[at] = bent.mean(), _spread(bent) or 1.0

    def _bent(self, at: int, rule: str, column: FloatArray) -> FloatArray:
        """A column on the scale of its rule."""
        if rule == PLAIN:
            return column
        if rule == RANKS:
            grid = np.linspace(0, 1, len(self.quantiles_[at]))
            # equal quantiles: the middle of the ranks that they share
            up = np.interp(column, self.quantiles_[at], grid)
            down = 1 - np.interp(-column, -self.quantiles_[at][::-1], grid)
            return (up + down) / 2
        moved = (column - self.center_[at]) / self.spread_[at]
        return np.sign(moved) * np.log1p(np.abs(moved)) if rule == RARE else np.arcsinh(moved)


def _spread(column: FloatArray) -> float:
    """Standard deviation; 0 where it is rounding alone."""
    spread = float(column.std())
    return spread if spread > 10 * np.finfo(np.float64).eps * np.abs(column).max(initial=0.0) else 0.0


def _farthest(column: FloatArray) -> float:
    """The largest distance from the mean, in standard deviations."""
    spread = _spread(column)
    return float(np.abs(column - column.mean()).max() / spread) if spread else 0.0
