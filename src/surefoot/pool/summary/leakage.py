"""Columns that give the label away: a single one that separates the classes nearly perfectly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, mannwhitneyu

from surefoot._printing import percent
from surefoot._types import FloatArray
from surefoot.pool.model_with_rows import ModelWithRows, Names
from surefoot.pool.summary.contents import Finding

# Area under the ROC curve, or share of rows told right, from which a column is suspect.
SUSPECT = 0.99
# Labeled rows that a class must have, and that must be outside of it.
FEWEST = 5
# Suspects that chance would produce, over all columns and classes, must be fewer than this.
_BY_CHANCE = 0.01
# A text column with more values than this share of the labeled rows names rows, not groups.
_MOST_VALUES = 0.5


@dataclass(frozen=True)
class Suspect:
    """A column that separates class `code` from the others; score from 0.5 to 1; `chance` its p-value."""

    column: str
    code: int
    score: float
    chance: float
    text: str


def leakage_suspects(fitted: ModelWithRows, names: Names) -> Finding:
    """Columns that alone separate a class from the rest, where chance does not explain it."""
    raw = names.raw is not None
    tests = list(_numbers(fitted, names)) + (list(_texts(fitted, names)) if raw else [])
    found = {s.column: s for s in sorted(tests, key=lambda s: s.score) if s.chance * len(tests) < _BY_CHANCE}
    suspects = sorted((s for s in found.values() if s.score >= SUSPECT), key=lambda s: -s.score)
    looked = (
        f"Looked for single columns that separate a class from the rest on the labeled rows (area under the ROC curve "
        f"of at least {SUSPECT}; 0.5 is chance, 1 is perfect; classes of at least {FEWEST} labeled rows)."
    )
    if not suspects:
        return Finding("leakage", False, "No column gives the label away", looked)
    text = (
        f"{looked} One column that tells the label almost by itself is often the label in disguise, or something that "
        "is only known after it. Such a column makes the model look better than it will be in use. If it is known "
        f"when the model is used, keep it. By chance one would expect fewer than {_BY_CHANCE} such columns."
    )
    items = tuple((s.column, s.text) for s in suspects[:12])
    return Finding("leakage", True, "Columns that may give the label away", text, items, len(suspects))


def _numbers(fitted: ModelWithRows, names: Names) -> Iterator[Suspect]:
    """Each feature against each class, one against the rest; the area is that of U / (n₁ n₀)."""
    X, codes = fitted.X, fitted.codes
    for code in _testable(codes, fitted.n_classes):
        inside, outside = X[codes == code], X[codes != code]
        u = mannwhitneyu(inside, outside, axis=0, method="asymptotic")
        area = np.asarray(u.statistic) / (len(inside) * len(outside))
        area, chance = np.maximum(area, 1.0 - area), _chance(np.asarray(u.pvalue))
        for i, column in enumerate(names.features):
            if area[i] >= SUSPECT and _names_class(X[:, i], codes, code):
                text = f"it has one value where the label is {names.classes[code]}, and another one everywhere else"
            else:
                text = f"separates {names.classes[code]} from the rest: area {area[i]:.3f}"
            yield Suspect(column, code, float(area[i]), float(chance[i]), text)


def _texts(fitted: ModelWithRows, names: Names) -> Iterator[Suspect]:
    """Each text column of the file: how often the commonest label of a row's value, without that row, is right."""
    codes, K = fitted.codes, fitted.n_classes
    raw = names.raw.iloc[: len(fitted.X)]
    for i, column in enumerate(raw.columns):
        if raw.dtypes.iloc[i].kind in "iufbMm":
            continue
        _, values = np.unique([str(value) for value in raw.iloc[:, i]], return_inverse=True)
        n_values = int(values.max()) + 1
        if not 2 <= n_values <= _MOST_VALUES * len(codes) or not list(_testable(codes, K)):
            continue
        table = np.zeros((n_values, K))
        np.add.at(table, (values, codes), 1.0)
        without = table[values]
        without[np.arange(len(codes)), codes] -= 1.0
        right = float(np.mean(without.argmax(axis=1) == codes))
        chance = float(chi2_contingency(table[:, table.any(axis=0)]).pvalue)
        yield Suspect(
            str(column), -1, right, chance, f"its value alone tells the label of {percent(right)} of the rows"
        )


def _testable(codes: NDArray[np.intp], n_classes: int) -> Iterator[int]:
    """Classes with enough labeled rows in and out; of two classes one says it all."""
    counts = np.bincount(codes, minlength=n_classes)
    for code in range(n_classes if n_classes > 2 else 1):
        if min(counts[code], len(codes) - counts[code]) >= FEWEST:
            yield code


def _names_class(column: FloatArray, codes: NDArray[np.intp], code: int) -> bool:
    inside, outside = column[codes == code], column[codes != code]
    return bool(np.ptp(inside) == 0 and np.ptp(outside) == 0 and inside[0] != outside[0])


def _chance(pvalues: NDArray[Any]) -> FloatArray:
    """p-values, 1 for constant columns, which have none."""
    return np.where(np.isnan(pvalues), 1.0, pvalues).astype(np.float64)
