"""Predict from labels that are not a random sample: the default model with and without label intervals.

    OPENBLAS_NUM_THREADS=1 python benchmarks/picked.py [--draws 2]

A sample has 800 rows of a dataset of the paper with at most 100 features. Labeled rows are drawn without replacement
with weights exp(strength · rank), where the rank, from 0 to 1, is that along the first principal component, that of
its distance from the middle, or that along the feature with the largest correlation with the label. All methods are
scored on the other rows. Prints the table of docs/prediction.md. A draw takes about a minute.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.preprocessing import scale

sys.path.insert(0, str(Path(__file__).resolve().parent))
import prediction
from calibration import Array
from common import markdown_table
from prediction import Labels

import surefoot as sf
from surefoot import datasets

ROWS, MOST_FEATURES = 800, 100
# name of the draw : which rank, its strength, and numbers of labels
DRAWS = {
    "random": ("component", 0.0, (20, 50, 100)),
    "first component, 1.5": ("component", 1.5, (50,)),
    "first component, 3": ("component", 3.0, (50,)),
    "its ends, 2": ("ends", 2.0, (50,)),
    "best feature, 2": ("feature", 2.0, (50,)),
}


def ranks(X: Array, y: Labels) -> dict[str, Array]:
    """Ranks in [0, 1) of standardized rows."""
    component = _rank(X @ np.linalg.svd(X, full_matrices=False)[2][0])
    varying = [k for k in range(X.shape[1]) if X[:, k].std() > 0]
    best = max(varying, key=lambda k: abs(np.corrcoef(X[:, k], y)[0, 1]))
    return {"component": component, "ends": 2 * abs(component - 0.5), "feature": _rank(X[:, best])}


def _rank(values: Array) -> Array:
    return np.asarray(values.argsort().argsort() / len(values))


def predictions(X: Array, y: Labels, U: Array) -> dict[str, Array]:
    rows = sf.Unlabeled(U)
    return {
        "default": sf.RobustLogisticRegression().fit(X, y, X_unlabeled=rows).predict_proba(U)[:, 1],
        "with intervals from y": sf.RobustLogisticRegression(label_prior="clopper-pearson")
        .fit(X, y, X_unlabeled=rows)
        .predict_proba(U)[:, 1],
        "LogisticRegression": prediction.logistic(X, y, U).predict_proba(U)[:, 1],
    }


def run(draws: int) -> dict[tuple[str, int, str], list[tuple[float, float]]]:
    found: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for draw in range(301, 301 + draws):
        for name in datasets.names(paper_only=True):
            X, y = prediction.load(name)
            if X.shape[1] > MOST_FEATURES:
                continue
            rng = np.random.default_rng(draw)
            chosen = rng.permutation(len(X))[:ROWS]
            rows, truth = scale(X[chosen]), y[chosen]
            by = ranks(rows, truth)
            for kind, (rank, strength, sizes) in DRAWS.items():
                weights = np.exp(strength * by[rank])
                for n in sizes:
                    labeled = rng.choice(len(rows), n, replace=False, p=weights / weights.sum())
                    while len(np.unique(truth[labeled])) < 2:
                        labeled = rng.choice(len(rows), n, replace=False, p=weights / weights.sum())
                    rest = np.setdiff1d(np.arange(len(rows)), labeled)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        made = predictions(rows[labeled], truth[labeled], rows[rest])
                    for who, proba in made.items():
                        p = np.clip(proba, 1e-6, 1 - 1e-6)
                        right = float((truth[rest] == (p > 0.5)).mean())
                        loss = float(-np.log(np.where(truth[rest] == 1, p, 1 - p)).mean())
                        found.setdefault((kind, n, who), []).append((right, loss))
        print(f"draw {draw} done", file=sys.stderr, flush=True)
    return found


def table(found: dict[tuple[str, int, str], list[tuple[float, float]]]) -> str:
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for (kind, n, who), scores in found.items():
        accuracy, loss = np.mean(scores, axis=0)
        rows.setdefault((kind, n), {"labels drawn by": kind, "n": str(n)})[who] = f"{accuracy:.3f} / {loss:.3f}"
    return markdown_table(list(rows.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2)
    print(table(run(parser.parse_args().draws)))


if __name__ == "__main__":
    main()
