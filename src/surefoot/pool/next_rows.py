"""Choose the rows to label next, and give a reason for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from surefoot._printing import cell_text, percent
from surefoot._validation import FloatArray, check_positive_integer
from surefoot.active import PAPER_MARGIN, RobustModelChange
from surefoot.active.impact import label_surprise
from surefoot.pool.model import ModelWithRows, TrainedModel, train
from surefoot.pool.notes import Note
from surefoot.pool.options import Clock, FitOptions
from surefoot.pool.report_contents import Candidate
from surefoot.pool.store_labels import picked_rows
from surefoot.pool.table import Pool
from surefoot.pool.training import Fit, LabeledTable
from surefoot.problem.sets import label_cost_matrix

# Up to this number of distances, use the narrow default margin of the strategy. Above it, use the margin of the paper.
_NARROW = 1_000_000
# The model is undecided if the probabilities of its top two classes differ by less than this.
_UNDECIDED = 0.2
# A row is far if it is farther from the labeled rows than this share of the unlabeled rows.
_FAR = 0.9
# Share of rows to cluster, the fewest per requested row, and the most in total.
_USEFUL, _PER_ROW, _MOST_CLUSTERED = 0.2, 5, 2000


def choose(fitted: ModelWithRows, names: tuple[str, ...], n: int, seed: int) -> tuple[Candidate, ...]:
    """Choose different unlabeled rows whose labels change the model much, whichever label they get; most useful first.

    For n = 1, return the row with the highest score. For larger n, cluster the rows with high scores, and return the
    best row near the center of each cluster. These are typical rows of different kinds. The scores are those of
    `RobustModelChange` with the model's own prior, label cost and metric.
    """
    size = min(check_positive_integer(n, "n"), len(fitted.U))
    rows = np.vstack([fitted.X, fitted.U])
    marked = np.concatenate([fitted.y.astype(object), np.full(len(fitted.U), None)])
    best, utilities = _strategy(fitted, seed).query(
        rows, marked, fitted.clf, fit_clf=False, batch_size=1, return_utilities=True
    )
    scores = utilities[0]
    chosen = best if size == 1 else len(fitted.X) + spread_out(fitted.U, scores[len(fitted.X) :], size, seed)
    index, distance = fitted.nearest
    ranks = np.sort(distance)
    found = []
    for row in chosen:
        j = int(row) - len(fitted.X)
        farther = float(np.searchsorted(ranks, distance[j]) / len(ranks))
        proba = fitted.proba[row]
        nearest_label = names[fitted.codes[index[j]]]
        found.append(
            Candidate(
                j,
                float(scores[row]),
                tuple(proba.tolist()),
                float(distance[j]),
                nearest_label,
                farther,
                reason_of(proba.tolist(), names, farther, nearest_label),
            )
        )
    return tuple(found)


def spread_out(rows: FloatArray, scores: FloatArray, size: int, seed: int) -> NDArray[np.intp]:
    """Return positions of rows with high scores, one near the center of each cluster, best first.

    The rows with the highest scores alone would be similar outliers.
    """
    most = int(np.clip(len(rows) * _USEFUL, min(_PER_ROW * size, len(rows)), _MOST_CLUSTERED))
    useful = np.argsort(-scores, kind="stable")[:most]
    if len(useful) <= size:
        return useful
    n_clusters = min(size, len(np.unique(rows[useful], axis=0)))
    clusters = KMeans(n_clusters, n_init=2, random_state=seed).fit(rows[useful])
    away = np.linalg.norm(rows[useful] - clusters.cluster_centers_[clusters.labels_], axis=1)
    chosen: list[int] = []
    for one in range(n_clusters):
        members = np.flatnonzero(clusters.labels_ == one)
        if len(members):
            inner = members[away[members] <= np.median(away[members])]
            chosen.append(int(inner[scores[useful[inner]].argmax()]))
    left = [at for at in range(len(useful)) if at not in set(chosen)]  # if rows are equal, there are fewer clusters
    order = np.array([*chosen, *left[: size - len(chosen)]])
    return useful[order[np.argsort(-scores[useful[order]], kind="stable")]]


def _strategy(fitted: ModelWithRows, seed: int) -> RobustModelChange:
    clf = fitted.clf
    n, N = len(fitted.X), len(fitted.X) + len(fitted.U)
    kappa = float(label_cost_matrix(fitted.stated.label_cost, fitted.n_classes).max())
    # with a margin of at least 2κ/N the adversary may set any label at any row, so no transport problem is solved
    margin = None if n * N <= _NARROW else kappa * max(PAPER_MARGIN, 2.0 / N)
    return RobustModelChange(
        impact=impact_of,
        label_prior=fitted.stated.prior,
        margin=margin,
        label_cost=fitted.stated.label_cost,
        metric=fitted.metric,
        classes=clf.classes_,
        missing_label=None,
        random_state=seed,
    )


def impact_of(clf: Any, X: FloatArray) -> FloatArray:
    """Return (N, K) how much each possible label of a row would change the model, given its probabilities.

    This is the norm of the gradient of the log loss of a linear model with these probabilities. It is exact for a
    linear model. For other models it measures how surprising the label is.
    """
    return label_surprise(clf.predict_proba(X)) * np.sqrt(1.0 + np.square(X).sum(axis=1))[:, None]


def reason_of(proba: Sequence[float], names: tuple[str, ...], farther_than: float, nearest_label: str) -> str:
    """Explain why a row is worth labeling, from the model's probabilities and the distance to the labeled rows."""
    order = np.argsort(np.negative(proba), kind="stable")
    first, second = int(order[0]), int(order[1])
    if proba[first] - proba[second] < _UNDECIDED:
        decided = (
            f"The model is undecided between {names[first]} ({percent(proba[first])}) and {names[second]} "
            f"({percent(proba[second])})."
        )
    else:
        decided = (
            f"The model leans to {names[first]} ({percent(proba[first])}), but its label would still move the model."
        )
    if farther_than >= _FAR:
        share = percent(min(int(100 * farther_than), 99) / 100)
        return f"{decided} It is farther from every labeled row than {share} of the unlabeled rows."
    return f"{decided} The labeled row nearest to it is {nearest_label}."


def working_rows(pool: Pool, most: int, seed: int) -> NDArray[np.intp]:
    """Return all labeled rows and at most `most` unlabeled rows, sampled at random (0 for all)."""
    labeled, others = np.flatnonzero(pool.labeled), np.flatnonzero(~pool.labeled)
    if most and len(others) > most:
        others = np.random.default_rng(seed).choice(others, most, replace=False)
    return np.sort(np.concatenate([labeled, others]))


def candidates(fit: Fit | TrainedModel, n: int, seed: int) -> tuple[Candidate, ...]:
    """Choose unlabeled rows used in training, best first. Positions count the unlabeled rows."""
    start, sample = fit.start, fit.sample if isinstance(fit, TrainedModel) else None
    fitted = ModelWithRows.check(fit.clf, start.rows, start.y, start.rest, fit.stated).at_rows(sample)
    chosen = choose(fitted, tuple(start.pool.classes), min(n, len(fitted.U)), seed)
    return chosen if sample is None else tuple(replace(one, position=int(sample[one.position])) for one in chosen)


@dataclass(frozen=True, eq=False)
class RankedRows:
    """The rows of a table to label next, best first.

    rows : pairs of row number in the table (from 0) and candidate.
    identifier : the column that names the rows, or None.
    n_considered : number of unlabeled rows in the search, None for all; notes : notes of training.
    """

    pool: Pool
    rows: list[tuple[int, Candidate]]
    identifier: str | None
    n_considered: int | None
    notes: list[Note]

    def data(self) -> list[dict[str, Any]]:
        cells = self.pool.shown_cells
        return [
            {
                "row": row + 1,
                "name": None
                if self.identifier is None
                else cell_text(self.pool.table.cells[self.identifier].iloc[row]),
                "score": one.score,
                "why": one.reason,
                "probabilities": dict(zip(self.pool.classes, one.proba, strict=True)),
                "nearest_label": one.nearest_label,
                "nearest_distance": one.nearest_distance,
                "cells": {name: _plain(cells[name].iloc[row]) for name in self.pool.columns.used},
            }
            for row, one in self.rows
        ]


def rank(pool: Pool, choices: FitOptions, clock: Clock, *, n: int, most: int) -> RankedRows:
    """Train a model. Find the n rows whose labels would change it most, among `most` unlabeled rows (0 for all)."""
    keep = working_rows(pool, most, choices.seed)
    trained = train(LabeledTable.from_pool(pool.subset(keep), picked_rows(pool.table)[keep]), choices, clock)
    rows = keep[np.flatnonzero(~trained.start.pool.labeled)]
    chosen = [(int(rows[one.position]), one) for one in candidates(trained, n, choices.seed)]
    return RankedRows(pool, chosen, pool.identifier, None if len(keep) == len(pool.rows) else most, trained.notes)


def _plain(value: Any) -> Any:
    return None if value != value else value  # noqa: PLR0124 - NaN
