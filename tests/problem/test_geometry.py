"""Distances and plain transport are computed once per labeling round and once per command."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from surefoot.active import ActiveLearner, NearestCertifier, RobustModelChange
from surefoot.cli import run
from surefoot.costs import Euclidean, WeightedMetric
from surefoot.problem.distances import GeometryStore, shared_geometry
from surefoot.solvers import transport


def digest(array: Any) -> str:
    """Known again by its content: a learned metric measures other rows than the Euclidean one."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


class Counter:
    """How often rows of a pool were measured against labeled ones, and transport between them solved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, least: int) -> None:
        self.measured: list[tuple[int, int, str]] = []
        self.solved: list[tuple[int, int, str]] = []
        distances, simplex = {kind: kind.distances for kind in (Euclidean, WeightedMetric)}, transport._simplex

        def counted_distances(metric: Any, rows: Any, anchors: Any) -> Any:
            if len(rows) >= least:
                self.measured.append((len(rows), len(anchors), digest(rows)))
            return distances[type(metric)](metric, rows, anchors)

        def counted_simplex(matrix: Any, rows: Any, anchors: Any) -> Any:
            if len(rows) >= least:
                self.solved.append((*matrix.shape, digest(matrix)))
            return simplex(matrix, rows, anchors)

        for kind in distances:
            monkeypatch.setattr(kind, "distances", counted_distances)
        monkeypatch.setattr(transport, "_simplex", counted_simplex)


def pool(N: int = 200, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, N)
    return rng.normal(size=(N, 3)) + 1.5 * y[:, None], y


def test_a_labeling_round_measures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = pool()
    first = np.full(len(X), np.nan)
    first[:12] = y[:12]
    clf = sf.RobustLogisticRegression(radius="auto", tol=1e-3)
    # a margin small enough that scores need the transport plan
    learner = ActiveLearner(clf, X, first, strategy=RobustModelChange(margin=1e-5, random_state=0))
    counter = Counter(monkeypatch, least=150)
    rows = learner.suggest(2)
    assert len(counter.measured) == 1
    assert len(counter.solved) == 1
    learner.label(rows, y[rows])
    learner.suggest(2)
    assert len(counter.measured) == 2
    assert len(counter.solved) == 2


def test_the_certifier_measures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = pool()
    clf = sf.RobustLogisticRegression(radius=2.0, tol=1e-2).fit(X[:12], y[:12], X_unlabeled=X[12:])
    counter = Counter(monkeypatch, least=150)
    NearestCertifier(0.05, tol=1e-2)(clf, X[:12], y[:12], X_unlabeled=X[12:])
    assert len(counter.measured) == 1
    assert len(counter.solved) == 1


@pytest.mark.parametrize("report", [False, True])
def test_a_command_line_fit_measures_the_pool_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: bool
) -> None:
    X, y = pool(260)
    with (tmp_path / "pool.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "churn"])
        for at, row in enumerate(X):
            writer.writerow([*row, ("yes" if y[at] else "no") if at < 24 else ""])
    counter = Counter(monkeypatch, least=200)
    out = ["--out", str(tmp_path / "m.skops"), *(["--report", str(tmp_path / "r.html")] if report else [])]
    assert run(["fit", str(tmp_path / "pool.csv"), "--label", "churn", "--worst-case", *out]) == 0
    for found in (counter.measured, counter.solved):
        whole = [one for one in found if one[:2] == (260, 24)]
        assert 1 <= len(whole) <= 2  # for the fit, and after cross-validation for the certificate


def test_nothing_is_kept_outside_of_a_task() -> None:
    X, y = pool(60)
    store = GeometryStore()
    with shared_geometry(store):
        here = sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:])
        assert len(store.kept) == 1
        again = sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:])
        sf.minimal_radius(X[:9], y[:9], X_unlabeled=X[9:])
        sf.minimal_radius(X[:10], y[:10], X_unlabeled=X[10:])
    assert len(store.kept) == 2  # the latest two
    outside = sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:])
    assert here == again == outside


def test_other_rows_another_metric_and_other_weights_are_not_taken_for_the_same() -> None:
    X, y = pool(60)
    moved = X.copy()
    moved[40] += 5.0
    with shared_geometry():
        found = [
            sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:]),
            sf.minimal_radius(X[:8], y[:8], X_unlabeled=moved[8:]),
            sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:], metric="manhattan"),
            sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:], sample_weight=np.arange(1.0, 9.0)),
            sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:], sample_weight=[0, 1, 1, 1, 1, 1, 1, 1]),
        ]
    alone = [
        sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:]),
        sf.minimal_radius(X[:8], y[:8], X_unlabeled=moved[8:]),
        sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:], metric="manhattan"),
        sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:], sample_weight=np.arange(1.0, 9.0)),
        sf.minimal_radius(X[:8], y[:8], X_unlabeled=X[8:], sample_weight=[0, 1, 1, 1, 1, 1, 1, 1]),
    ]
    assert found == alone
    assert len(set(found)) == len(found)
