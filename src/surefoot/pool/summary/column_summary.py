"""A short summary of each column of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot._printing import cell_text, percent
from surefoot.pool.model_with_rows import LONGEST_CELL, ModelWithRows, Names
from surefoot.pool.summary.contents import Column, Data

# Columns listed, and values of a text column.
_MOST_COLUMNS, _MOST_VALUES = 100, 3


def data_summary(fitted: ModelWithRows, names: Names, notes: Sequence[str]) -> Data:
    """Counts of rows, and the columns: those of the file where it was given, else those of X."""
    if names.raw is None:
        described = [
            _numeric(name, np.concatenate([fitted.X[:, i], fitted.U[:, i]]), 0.0)
            for i, name in enumerate(names.features[:_MOST_COLUMNS])
        ]
        n_columns = len(names.features)
    else:
        n_columns = names.raw.shape[1]
        described = [_column(names.raw, i) for i in range(min(n_columns, _MOST_COLUMNS))]
    return Data(
        len(fitted.X),
        len(fitted.U),
        fitted.X.shape[1],
        n_columns,
        tuple(described),
        tuple(str(note) for note in notes),
    )


def _column(frame: Any, i: int) -> Column:
    column, name = frame.iloc[:, i], str(frame.columns[i])
    present = column.dropna()
    missing = 1.0 - len(present) / len(column)
    if column.dtype.kind in "iuf":
        return _numeric(name, present.to_numpy(dtype=np.float64), missing)
    counts = present.astype(str).value_counts()
    kind = {"b": "yes/no", "M": "time", "m": "duration"}.get(column.dtype.kind, "text")
    if len(counts) > 0.5 * len(present):
        example = cell_text(present.iloc[0], LONGEST_CELL)
        return Column(name, kind, missing, len(counts), f"mostly different, such as {example}")
    most = counts[:_MOST_VALUES].items()
    shown = [f"{cell_text(value, LONGEST_CELL)} ({percent(count / len(present))})" for value, count in most]
    more = ["…"] if len(counts) > _MOST_VALUES else []
    return Column(name, kind, missing, len(counts), ", ".join([*shown, *more]))


def _numeric(name: str, values: Any, missing: float) -> Column:
    if len(values) == 0:
        return Column(name, "number", missing, 0, cell_text(None))
    low, median, high = np.quantile(values, [0.0, 0.5, 1.0])
    return Column(name, "number", missing, len(np.unique(values)), f"{low:.4g} to {high:.4g}, median {median:.4g}")
