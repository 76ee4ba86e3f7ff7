"""Checks of the data behind a fit: rows far from all labels, repeated rows, and columns that reveal the label.

Each check describes its purpose, even if it finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, mannwhitneyu
from sklearn.neighbors import NearestNeighbors

from surefoot._printing import percent, rounded_up
from surefoot._validation import FloatArray
from surefoot.pool.model import ModelWithRows, Names
from surefoot.pool.notes import about_answers
from surefoot.pool.report_contents import Confidence, Finding, Guarantee, LabelShare
from surefoot.problem.rows import fingerprints

# Most rows listed with a finding.
_LISTED = 5
# Warn of far rows if their share is more than this many times the share expected by chance.
_TIMES_CHANCE = 3.0
# Rows closer than this share of a typical distance are near-duplicates.
_NEAR = 0.01
# Most rows in the search for near-duplicates, which compares all pairs.
_SEARCHED = 4000
# A class with fewer labels than this gets a caution.
_FEW_LABELS = 5
# A column is suspect from this area under the ROC curve, or this share of correctly predicted rows.
SUSPECT = 0.99
# Fewest labeled rows in the class, and fewest in all other classes.
FEWEST = 5
# Expected number of suspects by chance, over all columns and classes, must be below this.
_BY_CHANCE = 0.01
# A text column with more distinct values than this share of the labeled rows identifies rows, not groups.
_MOST_VALUES = 0.5


def answer_findings(confidence: Confidence, shares: tuple[LabelShare, ...]) -> Iterator[Finding]:
    """Check the predictions: one class for all rows, shares that contradict the labels, and classes with few labels."""
    texts = about_answers(
        {one.name: one.share for one in confidence.classes}, [(share.low, share.high) for share in shares]
    )
    if texts:
        yield Finding(
            "answers",
            True,
            "Look at its predictions",
            " ".join(text[0].upper() + text[1:] for text in texts),
        )
    few = [share for share in shares if share.n_labeled < _FEW_LABELS]
    if few:
        yield Finding(
            "few-labels",
            True,
            "Some classes have very few labels",
            f"These classes have fewer than {_FEW_LABELS} labeled rows. Label more rows of each class if you can.",
            tuple((share.name, f"{share.n_labeled} labeled") for share in few[:_LISTED]),
            len(few),
        )


def worst_case_findings(guarantee: Guarantee) -> Iterator[Finding]:
    """Check the worst case: a radius without guarantee, an uninformative bound, or a solver that stopped early."""
    if not guarantee.guaranteed:
        yield Finding(
            "no-guarantee",
            True,
            "The worst case is no guarantee",
            f"Its radius was {guarantee.radius_name}. The true distribution may lie outside the decision set, and "
            "the worst case then does not cover it. Use a calibrated or a known radius.",
        )
    if not guarantee.beats_guessing:
        yield Finding(
            "guessing",
            True,
            "The bound is no better than guessing",
            f"Equal probabilities for all classes have a loss of {guarantee.guessing:.3f}, and the bound is "
            f"{rounded_up(guarantee.risk, 3)}. The model may be good, but these labels and this radius do not "
            "prove it. Label more rows, or use a smaller radius if you can justify it.",
        )
    if guarantee.minimal:
        yield Finding(
            "minimal-radius",
            True,
            "The radius is the smallest possible",
            "At this radius the worst case cannot change any label, so the true distribution is very likely outside "
            "the decision set. Label more rows, or use a calibrated radius.",
        )
    if guarantee.status == "stopped":
        yield Finding(
            "status",
            True,
            "The solver stopped early",
            "Both bounds remain valid, but a better model may exist. Raise max_iter, or the tolerance tol.",
        )


def far_rows(fitted: ModelWithRows, names: Names) -> Finding:
    """Find unlabeled rows farther from all labeled rows than any labeled row is from its nearest labeled neighbor.

    If the labeled rows are a random sample of the pool, an unlabeled row is far with probability at most 1/(n+1). It
    must be the most isolated of n+1 exchangeable rows.
    """
    between = fitted.metric.distances(fitted.X, fitted.X)
    np.fill_diagonal(between, np.inf)
    limit = float(between.min(axis=1).max())
    _, distance = fitted.nearest
    far = np.flatnonzero(distance > limit)
    share, chance = len(far) / len(fitted.U), 1.0 / (len(fitted.X) + 1)
    caution = share > _TIMES_CHANCE * chance
    first = far[np.argsort(-distance[far], kind="stable")][:_LISTED]
    counted = (
        f"{len(far):,} of {len(fitted.U):,} unlabeled rows ({percent(share, 1)}) are far from all labeled rows: "
        f"farther than any labeled row is from its nearest labeled neighbor. By chance, about {percent(chance, 1)} are."
    )
    advice = (
        "The model extrapolates to these rows. Label a few of them."
        if caution
        else "Labels of random rows give about this share."
    )
    items = tuple(
        (names.row(len(fitted.X) + int(j)), f"{distance[j] / limit:.1f} times that distance" if limit > 0 else "apart")
        for j in first
    )
    title = "Unlabeled rows far from all labeled rows" if caution else "Few rows are far from all labeled rows"
    return Finding("far", caution, title, f"{counted} {advice}", items if caution else (), len(far))


def repeated_rows(fitted: ModelWithRows, names: Names, seed: int) -> list[Finding]:
    """Find equal labeled rows with different labels, exact copies among all rows, and near-copies in a sample."""
    rows = np.vstack([fitted.X, fitted.U])
    marks = fingerprints(rows)
    found = [_contradictions(fitted, names, marks[: len(fitted.X)])]
    _, inverse, counts = np.unique(marks, return_inverse=True, return_counts=True)
    n_groups, n_copies = int((counts > 1).sum()), int((counts[counts > 1] - 1).sum())
    first = [np.flatnonzero(inverse == group) for group in np.argsort(-counts, kind="stable")[:_LISTED]]
    items = tuple(
        (names.row(int(group[0])), f"{len(group):,} times, next as {names.row(int(group[1]))}")
        for group in first
        if len(group) > 1
    )
    near, searched = _near_copies(rows, inverse, seed)
    verb = "repeat" if n_copies > 1 else "repeats"
    exact = f"{n_copies:,} of {len(rows):,} rows {verb}" if n_copies else f"None of {len(rows):,} rows repeats"
    alike = f"{near:,} more are" if near > 1 else "one more is" if near else "none is"
    text = (
        f"{exact} another row exactly. Among {searched:,} distinct rows compared in pairs, {alike} "
        f"nearly equal to another row (closer than {percent(_NEAR)} of a typical distance)."
    )
    share = n_copies / len(rows)
    caution = share > 0.01 or near > 0.01 * searched
    advice = (
        " Copies count several times in every average. Remove accidental copies. Copies are natural if the features "
        "have few values."
        if caution
        else ""
    )
    title = "Repeated rows" if caution else "Few rows repeat"
    return [*[f for f in found if f.caution], Finding("repeats", caution, title, text + advice, items, n_groups)]


def _contradictions(fitted: ModelWithRows, names: Names, marks: NDArray[np.uint64]) -> Finding:
    order = np.argsort(marks, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(marks[order])) + 1)
    disagree = [group for group in groups if len(np.unique(fitted.codes[group])) > 1]
    items = tuple(
        (", ".join(names.row(int(i)) for i in group[:4]), ", ".join(names.classes[fitted.codes[i]] for i in group[:4]))
        for group in disagree[:_LISTED]
    )
    return Finding(
        "contradictions",
        bool(disagree),
        "Equal rows with different labels",
        "Some labeled rows have equal features and different labels. Check these labels, or add a column that "
        "distinguishes the rows.",
        items,
        len(disagree),
    )


def _near_copies(rows: FloatArray, groups: NDArray[np.intp], seed: int) -> tuple[int, int]:
    """Return the number of rows in a sample that have a near-copy but no exact copy, and the sample size."""
    _, first = np.unique(groups, return_index=True)  # one row per group of exact copies
    if len(first) > _SEARCHED:
        first = np.random.default_rng(seed).choice(first, _SEARCHED, replace=False)
    sample = rows[np.sort(first)]
    if len(sample) < 3:
        return 0, len(sample)
    typical = float(np.median(np.linalg.norm(sample - sample[::-1], axis=1)))
    nearest = NearestNeighbors(n_neighbors=2).fit(sample).kneighbors(sample)[0][:, 1]
    return int((nearest < _NEAR * typical).sum()), len(sample)


@dataclass(frozen=True)
class Suspect:
    """A column that separates a class from all other classes. score : 0.5 to 1; chance : the p-value."""

    column: str
    score: float
    chance: float
    text: str


def leakage_suspects(fitted: ModelWithRows, names: Names) -> Finding:
    """Find columns that alone separate a class from the rest, beyond chance."""
    raw = None if names.raw is None else names.raw.iloc[: len(fitted.X)]
    suspects = suspect_columns(fitted.X, fitted.codes, names.features, names.classes, raw)
    looked = (
        f"Looked for single columns that separate a class from the rest on the labeled rows (area under the ROC curve "
        f"of at least {SUSPECT}; 0.5 is chance, 1 is perfect; classes of at least {FEWEST} labeled rows)."
    )
    if not suspects:
        return Finding("leakage", False, "No column reveals the label", looked)
    text = (
        f"{looked} A single column that predicts the label almost perfectly often copies the label, or is known only "
        "after it. The model then looks better than it is in use. Keep the column if it is known when the model is "
        f"used. By chance, fewer than {_BY_CHANCE} columns would be listed here."
    )
    items = tuple((s.column, s.text) for s in suspects[:12])
    return Finding("leakage", True, "Columns that may reveal the label", text, items, len(suspects))


def suspect_columns(
    X: FloatArray, codes: NDArray[np.intp], features: Sequence[str], classes: Sequence[str], raw: Any
) -> list[Suspect]:
    """Find columns that alone separate a class from the rest, most suspect first.

    X : labeled rows (n, d), with classes (n,); raw : their cells as a data frame, or None.
    """
    tests = [*_numbers(X, codes, features, classes), *([] if raw is None else _texts(codes, len(classes), raw))]
    found = {s.column: s for s in sorted(tests, key=lambda s: s.score) if s.chance * len(tests) < _BY_CHANCE}
    return sorted((s for s in found.values() if s.score >= SUSPECT), key=lambda s: -s.score)


def _numbers(
    X: FloatArray, codes: NDArray[np.intp], features: Sequence[str], classes: Sequence[str]
) -> Iterator[Suspect]:
    """Test each feature against each class, one versus the rest. The area under the ROC curve is U / (n₁ n₀)."""
    for code in _testable(codes, len(classes)):
        inside, outside = X[codes == code], X[codes != code]
        u = mannwhitneyu(inside, outside, axis=0, method="asymptotic")
        area = np.asarray(u.statistic) / (len(inside) * len(outside))
        area, chance = np.maximum(area, 1.0 - area), _chance(np.asarray(u.pvalue))
        for i, column in enumerate(features):
            if area[i] >= SUSPECT and _names_class(X[:, i], codes, code):
                text = f"it has one value for {classes[code]} and another value for all other classes"
            else:
                text = f"separates {classes[code]} from the rest: area {area[i]:.3f}"
            yield Suspect(column, float(area[i]), float(chance[i]), text)


def _texts(codes: NDArray[np.intp], K: int, raw: Any) -> Iterator[Suspect]:
    """Test each text column by leave-one-out: predict the most frequent label of rows with an equal value."""
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
        yield Suspect(str(column), right, chance, f"its value alone tells the label of {percent(right)} of the rows")


def _testable(codes: NDArray[np.intp], n_classes: int) -> Iterator[int]:
    """Yield classes with enough labeled rows inside and outside. For two classes, testing one is enough."""
    counts = np.bincount(codes, minlength=n_classes)
    for code in range(n_classes if n_classes > 2 else 1):
        if min(counts[code], len(codes) - counts[code]) >= FEWEST:
            yield code


def _names_class(column: FloatArray, codes: NDArray[np.intp], code: int) -> bool:
    inside, outside = column[codes == code], column[codes != code]
    return bool(np.ptp(inside) == 0 and np.ptp(outside) == 0 and inside[0] != outside[0])


def _chance(pvalues: NDArray[Any]) -> FloatArray:
    """Return p-values with NaN replaced by 1. Constant columns have no p-value."""
    return np.where(np.isnan(pvalues), 1.0, pvalues).astype(np.float64)
