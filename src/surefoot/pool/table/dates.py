"""Dates and times: how a column writes them, as days since 1970, and as parts that a linear model can use."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from surefoot.pool.table.scaling import TailScaler

STORED = "stored"  # Parquet knows that a column holds dates
ISO = "ISO8601"
_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_DAYS = (
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%m-%d-%Y",
    "%d-%m-%Y",
    "%m/%d/%y",
    "%d/%m/%y",
    "%d.%m.%y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%b %d %Y",
    "%b %d, %Y",
    "%d %B %Y",
    "%B %d, %Y",
    "%b %Y",
    "%B %Y",
    "%a %b %d %Y",
    "%a, %d %b %Y",
)
_ISO_LIKE = re.compile(r"^\d{4}-\d{2}(-\d{2}([T ]\d{2}(:?\d{2}(:?\d{2}([.,]\d+)?)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?)?$")
_HAS_DIGITS = re.compile(r"\d.*[-/.: ,]|[-/.: ,].*\d")
_PLAIN_NUMBER = re.compile(r"^[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?$")
FORMATS = (*[day + time for day, time in product(_DAYS, _TIMES)], *[time.strip() for time in _TIMES if time])
# This share of the filled cells must be dates, and so many different cells are looked at to find out.
_SHARE, _LOOKED_AT = 0.9, 200
_DAY = 86_400.0
# Parts that come round again: how long a round is, and so many different values it takes to be worth two columns.
_CYCLES = {"weekday": 7.0, "month": 12.0, "hour": 24.0}
_FEWEST_VALUES = 3


def date_format(column: Any) -> tuple[str, str | None] | None:
    """The format of a column of dates, and another one that would read it as well; None if it holds none."""
    if column.dtype.kind == "M" or getattr(column.dtype, "tz", None) is not None:
        return STORED, None
    if column.dtype.kind in "iufbmc":
        return _compact(column)
    cells = column.dropna().map(str).str.strip()
    sample = cells.drop_duplicates().iloc[:_LOOKED_AT]
    if not len(sample) or sample.str.contains(_HAS_DIGITS).mean() < _SHARE or sample.str.len().median() > 40:
        return None
    if sample.str.match(_ISO_LIKE).mean() >= _SHARE:
        return ISO, None
    # no format reads a number without two marks between its parts
    numbers = float(sample.str.match(_PLAIN_NUMBER).mean())
    shares = {how: _share_read(sample, how) if numbers <= 1.0 - _SHARE else 0.0 for how in FORMATS}
    best = max(shares, key=lambda how: shares[how])
    if shares[best] < _SHARE or _share_read(cells, best) < _SHARE:
        return None
    twin = _swapped(best)
    return best, twin if twin != best and twin in shares and _share_read(cells, twin) == _share_read(
        cells, best
    ) else None


def _share_read(cells: Any, how: str) -> float:
    return float(np.isfinite(as_days(cells, how)).mean())


def _swapped(how: str) -> str:
    """The same format with day and month in each other's place."""
    return how.replace("%m", "%?").replace("%d", "%m").replace("%?", "%d")


def _compact(column: Any) -> tuple[str, str | None] | None:
    """Whole numbers such as 20240131, all of them dates."""
    values = column.dropna()
    if column.dtype.kind not in "iuf" or not len(values) or not values.between(19000101, 21001231).all():
        return None
    return ("%Y%m%d", None) if np.isfinite(as_days(values, "%Y%m%d")).all() else None


def as_days(column: Any, how: str) -> NDArray[np.float64]:
    """Days since 1970, NaN where there is no date; a time without a day is that part of a day."""
    import pandas as pd

    if how == STORED:
        moments = pd.to_datetime(column, errors="coerce", utc=True)
    elif how == "%Y%m%d":
        texts = pd.to_numeric(column, errors="coerce").astype("Int64").astype("string")
        moments = pd.to_datetime(texts, errors="coerce", format=how, utc=True)
    else:
        texts = column.map(lambda cell: str(cell).strip(), na_action="ignore")
        moments = pd.to_datetime(texts, errors="coerce", format=how, utc=True)
    seconds = (moments - pd.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64)
    days = seconds / _DAY
    return days % 1.0 if how.startswith(("%H", "%I")) else days


class DateParts(TransformerMixin, BaseEstimator):
    """Columns of dates, in days, as numbers: days, and sine and cosine of weekday, month and hour.

    A part is left out of a column where it hardly varies: where all dates are of one day, of one or two months, or all
    at midnight. Days are scaled by `TailScaler`; a missing date is the median one, and 0 in the parts.

    Attributes
    ----------
    parts_ : list of lists of str, the parts of each column.
    middle_ : array of shape (d,), the median date of each column; days_ : TailScaler.
    """

    def fit(self, X: ArrayLike, y: Any = None) -> DateParts:
        """Choose the parts of each column of X (N, d)."""
        days = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        self.parts_: list[list[str]] = []
        self.middle_ = np.zeros(days.shape[1])
        for at, column in enumerate(days.T):
            known = column[np.isfinite(column)]
            parts = ["days"] if len(np.unique(np.floor(known))) > 1 else []
            parts += [name for name in _CYCLES if len(np.unique(np.floor(_position(known, name)))) >= _FEWEST_VALUES]
            self.parts_.append(parts or ["days"])
            if len(known):
                self.middle_[at] = np.median(known)
        self.days_ = TailScaler().fit(np.where(np.isfinite(days), days, self.middle_))
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """(N, number of parts)."""
        check_is_fitted(self)
        days = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        scaled = self.days_.transform(np.where(np.isfinite(days), days, self.middle_))
        found = []
        for at, column in enumerate(days.T):
            for part in self.parts_[at]:
                if part == "days":
                    found.append(scaled[:, at])
                else:
                    angle = 2 * np.pi * _position(column, part) / _CYCLES[part]
                    found += [np.sin(angle), np.cos(angle)]
        return np.nan_to_num(np.column_stack(found), nan=0.0)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names such as day, day_weekday_sin."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", input_features)
        names = [f"x{at}" for at in range(self.n_features_in_)] if names is None else names
        found = []
        for name, parts in zip(names, self.parts_, strict=True):
            found += [
                text
                for part in parts
                for text in ([str(name)] if part == "days" else [f"{name}_{part}_sin", f"{name}_{part}_cos"])
            ]
        return np.array(found, dtype=object)


def _position(days: NDArray[np.float64], part: str) -> NDArray[np.float64]:
    """Where in its round a day is: weekday from Monday, month of the year, hour of the day."""
    if part == "hour":
        return (days % 1.0) * 24.0
    if part == "weekday":
        return np.floor(days + 3.0) % 7.0  # 1970 began on a Thursday
    known = np.isfinite(days)
    months = np.full(days.shape, np.nan)
    months[known] = np.floor(days[known]).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
    return months
