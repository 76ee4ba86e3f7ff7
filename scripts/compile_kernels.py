"""Compile the kernels into their cache, by small problems: two processes of tests would compile each of them twice."""

from __future__ import annotations

import warnings

import numpy as np

import surefoot as sf
from surefoot.active import robust_model_change
from surefoot.paper import StochasticGradient, StochasticRobustLogisticRegression, algorithm2


def main() -> None:
    """A fit of every solver, a certificate, and robust scores by both ways."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    y = np.arange(40) % 3
    X, U = rng.normal(size=(40, 3)) + y[:, None], rng.normal(size=(120, 3)) + 1.0
    steps = StochasticGradient(n_steps=200)
    for K in (2, 3):
        few, labels = X[y < K], y[y < K]
        clf = sf.RobustLogisticRegression().fit(few, labels, X_unlabeled=U)
        sf.RobustLogisticRegression(radius=5.0, compute=sf.Compute()).fit(few, labels, X_unlabeled=U)
        StochasticRobustLogisticRegression(radius=5.0, steps=steps).fit(few, labels, X_unlabeled=U)
        sf.certify(clf, few, labels, X_unlabeled=U, radius="calibrated", loss="zero_one")
        impact = rng.random((len(U), K))
        for margin in (0.0, 0.3 / 160):
            robust_model_change(impact, few, labels, X_unlabeled=U, margin=margin, label_prior=np.full(K, 1 / K))
        algorithm2(impact[:1], few, labels, X_unlabeled=U, candidates=[0], steps=steps)


if __name__ == "__main__":
    main()
