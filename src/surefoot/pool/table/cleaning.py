"""Cleaning as an ordinary scikit-learn pipeline: it is fitted to all rows of a pool and stored with the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted, validate_data

from surefoot.pool.table.columns import SHOWN_CATEGORIES, Columns
from surefoot.pool.table.dates import STORED, DateParts
from surefoot.pool.table.scaling import TailScaler
from surefoot.pool.table.texts import TextParts

MISSING = "(missing)"


class LargestEntryScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Divide all features by one number, the largest absolute entry, so that distances are in units of that.

    Attributes
    ----------
    scale_ : float, 1 where all entries are 0.
    """

    def fit(self, X: ArrayLike, y: Any = None) -> LargestEntryScaler:
        """Find the largest absolute entry of X (N, d)."""
        rows = validate_data(self, X, dtype=np.float64)
        self.scale_ = float(np.abs(rows).max()) or 1.0
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """X (N, d) over the largest entry of the rows of the fit."""
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False) / self.scale_


def make_cleaner(columns: Columns, frame: Any) -> Pipeline:
    """An unfitted pipeline from the used columns of a table, as `Columns.read` gives them, to numbers.

    Numbers: median where missing, then as `TailScaler` has it; dates: as `DateParts` has it; and for each column of
    these with missing cells, 1 where they are. Categories: one column each, 0 or 1, missing a category of its own.
    Texts: as `TextParts` has it. Then all is divided by the largest absolute entry, as in the paper's experiments, so
    that distances are comparable with the cost of another label.
    """
    gaps = [name for name in [*columns.numbers, *columns.dates] if frame[name].isna().any()]
    number = make_pipeline(SimpleImputer(strategy="median"), TailScaler())
    category = make_pipeline(
        SimpleImputer(strategy="constant", fill_value=MISSING),
        OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=SHOWN_CATEGORIES, sparse_output=False, dtype=np.float64
        ),
    )
    parts: list[tuple[str, Any, Any]] = [
        ("numbers", number, list(columns.numbers)),
        ("dates", DateParts(), list(columns.dates)),
        ("missing", MissingIndicator(features="all"), gaps),
        ("categories", category, list(columns.categories)),
        *[(f"text {at}", TextParts(), name) for at, name in enumerate(columns.texts, start=1)],
    ]
    features = ColumnTransformer([part for part in parts if part[2]], verbose_feature_names_out=False)
    return Pipeline([("features", features), ("scale", LargestEntryScaler())])


def columns_of(cleaner: Pipeline) -> Columns:
    """Which columns a pipeline that begins with a cleaner takes; how they are written it does not know."""
    chosen = {name: names for name, _, names in cleaner.named_steps["features"].transformers}
    return Columns(
        list(chosen.get("numbers", [])),
        list(chosen.get("categories", [])),
        dict.fromkeys(chosen.get("dates", []), STORED),
        [names for name, names in chosen.items() if name.startswith("text ")],
    )


def scale_rules(cleaner: Pipeline, columns: Columns) -> dict[str, str]:
    """The rule of `TailScaler` for each column of numbers."""
    fitted = cleaner.named_steps["features"].named_transformers_
    return dict(zip(columns.numbers, fitted["numbers"][-1].rules_, strict=True)) if columns.numbers else {}
