"""Clean tables with a scikit-learn pipeline that is fitted to all rows of a pool and stored with the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted, validate_data

from surefoot._validation import FloatArray
from surefoot.pool.table.columns import Columns

MISSING = "(missing)"
PLAIN, RARE, TAILS, RANKS = "plain", "rare", "tails", "ranks"
# A column is transformed if a value is farther from the mean than this number of standard deviations.
FARTHEST = 10.0
# A column with a value of at least this share contains rare counts. Their frequency must not determine its scale.
_COMMON = 0.9
# Number of quantiles that represent ranks.
_QUANTILES = 1000
# Periodic date parts with their periods, and the fewest distinct values that justify two columns.
_CYCLES = {"weekday": 7.0, "month": 12.0, "hour": 24.0}
_FEWEST_VALUES = 3
# Most n-grams, by frequency. A direction is named after this many n-grams, from this many with the largest weights.
_MOST_GRAMS, _GRAMS_NAMED, _GRAMS_LOOKED_AT = 10_000, 3, 50


class LargestEntryScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Divide all features by the largest absolute entry, so that distances are in this unit.

    scale_ : float, 1 if all entries are 0.
    """

    def fit(self, X: ArrayLike, y: Any = None) -> LargestEntryScaler:
        """Find the largest absolute entry of X (N, d)."""
        rows = validate_data(self, X, dtype=np.float64)
        self.scale_ = float(np.abs(rows).max()) or 1.0
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Divide X (N, d) by the largest entry in the fitted rows."""
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False) / self.scale_


def make_cleaner(columns: Columns, frame: Any) -> Pipeline:
    """Return an unfitted pipeline from the used columns of a table, as `Columns.read` returns them, to numbers.

    Numbers: missing values become the median, then `TailScaler`. Dates: `DateParts`. Each column of numbers or dates
    with missing cells gets an indicator column. Categories: one column of 0 and 1 each; missing is a category. Texts,
    and columns of many categories: `TextParts`. Finally, all features are divided by the largest absolute entry, as in
    the paper's experiments. Distances are then comparable with the cost of changing a label.
    """
    gaps = [name for name in [*columns.numbers, *columns.dates] if frame[name].isna().any()]
    many = columns.many_categories(frame)
    number = make_pipeline(SimpleImputer(strategy="median"), TailScaler())
    category = make_pipeline(
        SimpleImputer(strategy="constant", fill_value=MISSING),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float64),
    )
    parts: list[tuple[str, Any, Any]] = [
        ("numbers", number, list(columns.numbers)),
        ("dates", DateParts(), list(columns.dates)),
        ("missing", MissingIndicator(features="all"), gaps),
        ("categories", category, [name for name in columns.categories if name not in many]),
        *[(f"text {at}", TextParts(), name) for at, name in enumerate([*many, *columns.texts], start=1)],
    ]
    features = ColumnTransformer([part for part in parts if part[2]], verbose_feature_names_out=False)
    return Pipeline([("features", features), ("scale", LargestEntryScaler())])


def scale_rules(cleaner: Pipeline, columns: Columns) -> dict[str, str]:
    """Return the rule of `TailScaler` for each numeric column."""
    fitted = cleaner.named_steps["features"].named_transformers_
    return dict(zip(columns.numbers, fitted["numbers"][-1].rules_, strict=True)) if columns.numbers else {}


class TailScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale each column by the first rule that keeps all its values within ten standard deviations of the mean.

    plain: mean 0, standard deviation 1.
    rare: if one value fills at least 90 % of the cells and plain fails. The signed distance to this value on a log
    scale, divided by its largest absolute value, so that the column has the same weight as a column of 0 and 1.
    tails: asinh((x − median) / spread), which is linear near the median and logarithmic far from it, then as plain.
    ranks: the share of values below, then as plain.

    rules_ : list of str, the rule of each column.
    """

    def fit(self, X: ArrayLike, y: Any = None) -> TailScaler:
        """Choose the rule of each column of X (N, d)."""
        rows = validate_data(self, X, dtype=np.float64)
        self.rules_: list[str] = []
        n_columns = rows.shape[1]
        self.center_, self.spread_ = np.zeros(n_columns), np.ones(n_columns)
        self.mean_, self.scale_ = np.zeros(n_columns), np.ones(n_columns)
        self.quantiles_: list[FloatArray] = [np.empty(0)] * n_columns  # one array, stored once in a model file
        for at, column in enumerate(rows.T):
            self._fit_column(at, column)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scale X (N, d)."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        found = np.empty_like(rows)
        for at, rule in enumerate(self.rules_):
            found[:, at] = (self._bent(at, rule, rows[:, at]) - self.mean_[at]) / self.scale_[at]
        return found

    def _fit_column(self, at: int, column: FloatArray) -> None:
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
        if rule == PLAIN:
            return column
        if rule == RANKS:
            grid = np.linspace(0, 1, len(self.quantiles_[at]))
            # equal quantiles get the mean of their ranks
            up = np.interp(column, self.quantiles_[at], grid)
            down = 1 - np.interp(-column, -self.quantiles_[at][::-1], grid)
            return (up + down) / 2
        moved = (column - self.center_[at]) / self.spread_[at]
        return np.sign(moved) * np.log1p(np.abs(moved)) if rule == RARE else np.arcsinh(moved)


def _spread(column: FloatArray) -> float:
    """Return the standard deviation, or 0 if it is only rounding error."""
    spread = float(column.std())
    return spread if spread > 10 * np.finfo(np.float64).eps * np.abs(column).max(initial=0.0) else 0.0


def _farthest(column: FloatArray) -> float:
    """Return the largest distance from the mean, in standard deviations."""
    spread = _spread(column)
    return float(np.abs(column - column.mean()).max() / spread) if spread else 0.0


class DateParts(TransformerMixin, BaseEstimator):
    """Encode columns of dates, given in days, as days and as sine and cosine of weekday, month and hour.

    A part of a column is omitted if it hardly varies, for example if all dates are on one day, in one or two months, or
    at midnight. `TailScaler` scales the days. For a missing date, the days are the median and all cyclic parts are 0.

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
        """Return (N, number of columns) features."""
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
        """Return names such as day and day_weekday_sin."""
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
    """Return the position of a day in its period: weekday from Monday, month of the year, hour of the day."""
    if part == "hour":
        return (days % 1.0) * 24.0
    if part == "weekday":
        return np.floor(days + 3.0) % 7.0  # 1970 began on a Thursday
    known = np.isfinite(days)
    months = np.full(days.shape, np.nan)
    months[known] = np.floor(days[known]).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
    return months


class TextParts(TransformerMixin, BaseEstimator):
    """Encode a column of texts, or of many categories, by TF-IDF of n-grams and a truncated SVD.

    The n-grams have three and four letters within words, as in skrub's `StringEncoder`, so that names with a common
    part are close. They are counted over distinct texts. Each text has its number of rows as weight. The directions
    have mean 0 and one common scale. Their variances add up to 1, the maximum for the columns of 0 and 1 of a category,
    or to twice the variance of the n-grams that they keep, whichever is more. Few names with common parts then weigh
    more than texts without common parts.

    Parameters
    ----------
    n_components : int, maximum number of directions; fewer n-grams or texts give fewer directions.

    grams_ : str, the n-grams, one per line; idf_ : array (m,), their weights; directions_ : array (k, m);
    mean_ : array (k,); scale_ : float.
    """

    def __init__(self, n_components: int = 20) -> None:
        self.n_components = n_components

    def fit(self, X: ArrayLike, y: Any = None) -> TextParts:
        """Find n-grams and directions of the texts X (N,), NaN for missing texts."""
        texts, _, counts = _different(X)
        grams = _vectorizer(max_features=_MOST_GRAMS)
        weights = grams.fit_transform(texts)
        # one text, because writing a list into a model file is slow
        self.grams_, self.idf_ = "\n".join(grams.get_feature_names_out()), grams.idf_
        most = min(self.n_components, *weights.shape)
        svd = TruncatedSVD(most, random_state=0).fit(weights.multiply(np.sqrt(counts)[:, None]).tocsr())
        self.directions_ = svd.components_.astype(np.float32)
        found = weights @ self.directions_.T
        self.mean_ = np.average(found, axis=0, weights=counts)
        kept = float(np.average((found - self.mean_) ** 2, axis=0, weights=counts).sum())
        self.scale_ = np.sqrt(kept / max(1.0, 2.0 * kept)) if kept > 0.0 else 1.0
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return (N, k) coordinates in the directions."""
        check_is_fitted(self)
        texts, rows, _ = _different(X)
        grams = _vectorizer(vocabulary=self.grams_.split("\n"))
        grams.idf_ = self.idf_
        found = (grams.transform(texts) @ self.directions_.T - self.mean_) / self.scale_
        return found[rows]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return names such as "note 1: late, parc, refu", from different n-grams with large weights in a direction."""
        check_is_fitted(self)
        name = "text" if input_features is None or not len(input_features) else str(input_features[0])
        grams = np.array([gram.strip() for gram in self.grams_.split("\n")], dtype=object)
        found = []
        for at, weights in enumerate(self.directions_, start=1):
            best: list[str] = []
            for gram in grams[np.argsort(-np.abs(weights), kind="stable")[:_GRAMS_LOOKED_AT]]:
                if len(best) < _GRAMS_NAMED and not any(_share_letters(gram, other) for other in best):
                    best.append(gram)
            found.append(f"{name} {at}: {', '.join(best)}")
        return np.array(found, dtype=object)


def _vectorizer(**options: Any) -> TfidfVectorizer:
    """Return a vectorizer for lowercase n-grams within words. No n-gram contains a line end."""
    return TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), **options)


def _different(X: ArrayLike) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.intp]]:
    """Return the distinct texts of a column, their index for each row, and their counts. Missing texts are empty."""
    texts = np.array([cell if isinstance(cell, str) else "" for cell in np.asarray(X, dtype=object).ravel()], object)
    return np.unique(texts, return_inverse=True, return_counts=True)


def _share_letters(one: str, other: str) -> bool:
    return any(one[at : at + 2] in other for at in range(len(one) - 1))
