"""Raw UCI files: the certificate at the true radius bounds the true risk, and the ball's is vacuous."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import log_loss

import surefoot as sf

Find = Callable[[str], Path]


def wine(find: Find) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    table = np.loadtxt(find("winequality/winequality-white.csv"), delimiter=";", skiprows=1)
    table = table[table[:, -1] != 6]
    return table[:, :-1], (table[:, -1] >= 7).astype(np.intp)


def magic(find: Find) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    with gzip.open(find("magic/magic04.data.gz"), "rt", encoding="ascii") as file:
        cells = [line.strip().split(",") for line in file if line.strip()]
    X, y = np.array([row[:-1] for row in cells], dtype=float), np.array([row[-1].strip() == "g" for row in cells])
    rng = np.random.default_rng(0)
    kept = np.concatenate([np.flatnonzero(~y), rng.choice(np.flatnonzero(y), size=(~y).sum(), replace=False)])
    return X[kept], y[kept].astype(np.intp)


def scaled(X: NDArray[np.float64]) -> NDArray[np.float64]:
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X / np.abs(X).max()


@pytest.mark.parametrize(
    ("load", "shape"), [(wine, (2700, 11)), pytest.param(magic, (13376, 10), marks=pytest.mark.slow)]
)
def test_the_certificate_at_the_true_radius_bounds_the_true_risk(
    load: Callable[[Find], tuple[NDArray[np.float64], NDArray[np.intp]]],
    shape: tuple[int, int],
    dataset_path: Find,
) -> None:
    X, y = load(dataset_path)
    assert X.shape == shape
    X = scaled(X)
    order = np.random.default_rng(1).permutation(len(X))
    X, y, n = X[order], y[order], 100
    radius = sf.transport_distance(X[:n], y[:n], X, y)
    clf = sf.RobustLogisticRegression(radius=radius, label_prior=np.bincount(y) / len(y))
    clf.fit(X[:n], y[:n], X_unlabeled=X[n:])
    ball = sf.WassersteinLogisticRegression(radius=radius).fit(X[:n], y[:n])
    assert clf.certificate_.status == "optimal"
    assert clf.certificate_.gap <= 1e-4
    assert log_loss(y, clf.predict_proba(X)) <= clf.certificate_.risk
    assert clf.certificate_.risk < ball.certificate_.risk - 1e-3
    assert ball.certificate_.risk == pytest.approx(np.log(2), abs=1e-8)
