"""Checks of the data behind a fit: rows far from all labels, repeated rows, and columns that give the label away.

Each check says what it looked for, also where it found nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from surefoot._printing import percent, rounded_up
from surefoot._types import FloatArray
from surefoot.pool.model_with_rows import ModelWithRows, Names
from surefoot.pool.summary.answers import about_answers
from surefoot.pool.summary.contents import RADIUS_NAMES, Confidence, Finding, Promise
from surefoot.problem.rows import fingerprints

# Rows listed with a finding.
_LISTED = 5
# Far rows are worth a warning from this many times the share that chance allows.
_TIMES_CHANCE = 3.0
# Rows closer than this share of a typical distance are near-duplicates.
_NEAR = 0.01
# Rows among which near-duplicates are searched: every pair of them is compared.
_SEARCHED = 4000
# A class with fewer labels than this is said to have few.
_FEW_LABELS = 5


def answer_findings(promise: Promise, confidence: Confidence) -> list[Finding]:
    """One class for all rows, shares that the labels speak against; and a radius that promises nothing."""
    found = []
    if not promise.is_promise:
        found.append(
            Finding(
                "no-promise",
                True,
                "The worst case is not a promise",
                f"Its radius was {RADIUS_NAMES[promise.radius_kind]}. The truth may lie outside, and the numbers of "
                "the worst case then say nothing of it. A calibrated radius, or one that you know, makes one of them.",
            )
        )
    shares = {one.name: one.share for one in confidence.classes}
    texts = about_answers(shares, [(share.low, share.high) for share in promise.shares])
    if texts:
        found.append(
            Finding(
                "answers",
                True,
                "Look at its answers",
                " ".join(text[0].upper() + text[1:] for text in texts),
            )
        )
    return found


def fit_findings(promise: Promise) -> list[Finding]:
    """What the certificate shows: how the solver ended, whether the bound says anything, classes with few labels."""
    found = []
    if not promise.beats_guessing:
        found.append(
            Finding(
                "guessing",
                True,
                f"The {'promise' if promise.is_promise else 'bound'} is no better than guessing",
                f"Equal probabilities for all classes have a loss of {promise.guessing:.3f}; the bound is "
                f"{rounded_up(promise.risk, 3)}. The model may still be good, but these labels and this radius do not "
                "prove it. Label more rows, or lower the radius if you have grounds to.",
            )
        )
    if promise.minimal:
        found.append(
            Finding(
                "minimal-radius",
                True,
                "The radius is the smallest possible",
                "It leaves the worst case nothing to spend on labels, so the truth is very likely farther away. "
                "Label more rows, or try a calibrated radius.",
            )
        )
    if promise.status == "stopped":
        found.append(
            Finding(
                "status",
                True,
                "The solver stopped early",
                "Both bounds hold all the same. A better model may exist: raise max_iter, or the tolerance tol.",
            )
        )
    few = [share for share in promise.shares if share.n_labeled < _FEW_LABELS]
    if few:
        found.append(
            Finding(
                "few-labels",
                True,
                "Some classes have very few labels",
                f"Fewer than {_FEW_LABELS} labeled rows say little about a class. Label more rows of it if you can.",
                tuple((share.name, f"{share.n_labeled} labeled") for share in few[:_LISTED]),
                len(few),
            )
        )
    return found


def far_rows(fitted: ModelWithRows, names: Names) -> Finding:
    """Unlabeled rows farther from every labeled row than any labeled row is from its nearest other one.

    If the labeled rows were drawn at random from the pool, an unlabeled row is so with probability at most 1/(n+1):
    among n+1 exchangeable rows it would have to be the one farthest from the others.
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
        f"{len(far):,} of {len(fitted.U):,} unlabeled rows ({percent(share, 1)}) are farther from every labeled row "
        f"than any labeled row is from its nearest other one. Chance alone allows about {percent(chance, 1)}."
    )
    advice = (
        "Nothing labeled resembles these rows, so the model extrapolates there. Label some of them."
        if caution
        else "That is no more than to be expected of labels picked at random."
    )
    items = tuple(
        (names.row(len(fitted.X) + int(j)), f"{distance[j] / limit:.1f} times that distance" if limit > 0 else "apart")
        for j in first
    )
    title = "Unlabeled rows far from every labeled one" if caution else "Few rows are far from every labeled one"
    return Finding("far", caution, title, f"{counted} {advice}", items if caution else (), len(far))


def repeated_rows(fitted: ModelWithRows, names: Names, seed: int) -> list[Finding]:
    """Labeled rows that coincide but disagree; exact copies among all rows; near-copies in a sample."""
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
        f"{exact} another row exactly. Among {searched:,} different rows that were compared pair by pair, {alike} "
        f"nearly the same as another (closer than {percent(_NEAR)} of a typical distance)."
    )
    share = n_copies / len(rows)
    caution = share > 0.01 or near > 0.01 * searched
    advice = (
        " Copies count several times in every average. If they are accidents, remove them; if the features have few "
        "values, they are natural."
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
        "Some labeled rows agree in every feature but not in their label. Check these labels, or add the column that "
        "tells the rows apart.",
        items,
        len(disagree),
    )


def _near_copies(rows: FloatArray, groups: NDArray[np.intp], seed: int) -> tuple[int, int]:
    """How many rows of a sample have a near-copy in it that is no exact copy, and the size of the sample."""
    _, first = np.unique(groups, return_index=True)  # one row per group of exact copies
    if len(first) > _SEARCHED:
        first = np.random.default_rng(seed).choice(first, _SEARCHED, replace=False)
    sample = rows[np.sort(first)]
    if len(sample) < 3:
        return 0, len(sample)
    typical = float(np.median(np.linalg.norm(sample - sample[::-1], axis=1)))
    nearest = NearestNeighbors(n_neighbors=2).fit(sample).kneighbors(sample)[0][:, 1]
    return int((nearest < _NEAR * typical).sum()), len(sample)
