"""Compare robust training with a general conic solver (cvxpy and Clarabel), at sizes that it can solve.

    OPENBLAS_NUM_THREADS=1 python benchmarks/peers.py [--rows 100,300,1000] --out benchmarks/results-peers.csv

Two Gaussian classes, n = 20 anchors, 5 features, Clopper–Pearson intervals, an excess radius of 0.02. Surefoot solves
to a gap of 1e-4, Clarabel to a tolerance of 1e-6. Other comparisons are in benchmarks/run.py (Algorithm 1), certify.py
(HiGHS, POT) and active.py (scikit-activeml).
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import surefoot as sf
from reference.learning import learn_reference
from surefoot.problem.sets import build_decision_set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", default="100,300,1000")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    lines = []
    for N in (int(part) for part in asked.rows.split(",")):
        rng = np.random.default_rng(0)
        y = rng.integers(0, 2, N)
        X = rng.normal(size=(N, 5))
        X[:, 0] += 1.5 * (2 * y - 1)
        X /= np.abs(X).max()
        n = 20
        radius = sf.minimal_radius(X[:n], y[:n], X_unlabeled=X[n:]) + 0.02
        clf = sf.RobustLogisticRegression(radius=radius)
        clf.fit(X[:n], y[:n], X_unlabeled=X[n:])  # compiles
        start = time.perf_counter()
        found = clf.fit(X[:n], y[:n], X_unlabeled=X[n:]).certificate_
        ours = time.perf_counter() - start
        ds = build_decision_set(X[:n], y[:n], 2, X_unlabeled=X[n:], radius=radius, label_prior="clopper-pearson")
        start = time.perf_counter()
        reference = learn_reference(
            ds.distances,
            ds.row_weights,
            ds.anchor_weights,
            ds.anchor_labels,
            ds.label_cost,
            ds.intervals,
            ds.radius,
            X,
            n_classes=2,
            tolerance=1e-6,
        )
        theirs = time.perf_counter() - start
        line = {
            "N": N,
            "n": n,
            "ours_seconds": round(ours, 4),
            "cvxpy_clarabel_seconds": round(theirs, 3),
            "ratio": round(theirs / ours, 1),
            "difference": f"{found.risk - reference['value']:.1e}",
        }
        lines.append(line)
        print(line, flush=True)
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
