"""Small samples, fits of them, and quantities of a fit recomputed by other means; shared by the tests of estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import ot

import surefoot as sf


def sample(seed: int = 0, n: int = 12, M: int = 41, d: int = 2, K: int = 2) -> tuple[np.ndarray, ...]:
    """Overlapping classes: labeled rows that show all K classes, and unlabeled rows."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(n) % K, rng.integers(K, size=M))
    X = rng.normal(size=(n + M, d)) + 1.5 * np.eye(K, d)[y]
    return X[:n], y[:n], X[n:]


def just_above(X: np.ndarray, y: np.ndarray, U: np.ndarray | None, excess: float = 0.05, **keywords: Any) -> float:
    return sf.minimal_radius(X, y, X_unlabeled=U, label_prior="clopper-pearson", **keywords) + excess


def fitted(seed: int = 0, K: int = 2, excess: float = 0.05, **keywords: Any) -> tuple[Any, ...]:
    X, y, U = sample(seed, K=K)
    clf = sf.RobustLogisticRegression(radius=just_above(X, y, U, excess), **keywords).fit(X, y, X_unlabeled=U)
    return clf, X, y, U


def adversary_loss(clf: Any, rows: np.ndarray) -> float:
    """E_q ℓ of the fitted classifier under its own worst case."""
    worst = clf.worst_case_
    return float(-worst.row_weights @ (worst.label_proba * clf.predict_log_proba(rows)).sum(axis=1))


def transport_by_pot(
    worst: sf.WorstCase, distances: np.ndarray, codes: np.ndarray, label_cost: np.ndarray, weights: np.ndarray
) -> float:
    """W_c of the worst case to the labeled rows: plain transport between (N·K) and n points."""
    (N, K), n = worst.label_proba.shape, len(codes)
    cost = (distances[:, None, :] + label_cost[None, :, codes]).reshape(N * K, n)
    mass = (worst.row_weights[:, None] * worst.label_proba).ravel()
    return float(ot.emd2(mass / mass.sum(), weights / weights.sum(), cost, numItermax=1_000_000))
