"""Predict from labels that are not a random sample: the default model with and without label intervals.

    OPENBLAS_NUM_THREADS=1 python benchmarks/picked.py [--out benchmarks/results-picked.csv] [--draws 2] [--alarms 20]

A sample has 800 rows of a table. The tables are the datasets of the paper with at most 150 features, datasets of
scikit-learn, and the messy tables as cleaned, restricted to their two most frequent classes. Labeled rows are drawn
without replacement with weights exp(strength · rank), where the rank, from 0 to 1, is that along the first principal
component, that of its distance from the middle, or that along the feature with the largest correlation with the label.
All methods are scored on the other rows. The file gets a line per sample and method, and a second run continues after
the last one. Prints the table of docs/prediction.md.

`--alarms` counts instead how often the test of `PickedLabelsWarning` warns, on all 14 datasets (docs/bounds.md).
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import sklearn.datasets
from sklearn.preprocessing import scale

sys.path.insert(0, str(Path(__file__).resolve().parent))
import prediction
from calibration import Array, read
from common import Row, markdown_table
from messy_tables import TABLES, Messy
from prediction import Labels

import surefoot as sf
from surefoot import datasets
from surefoot.pool.table import clean, read_labeled_table
from surefoot.problem.rows import PICKED_AT, sample_p_value

ROWS, MOST_FEATURES = 800, 150
FIELDS = ("table", "draw", "kind", "n", "method", "accuracy", "log_loss")
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


def tables() -> dict[str, Callable[[], tuple[Array, Labels]]]:
    """Rows and codes of two classes, by table."""
    found: dict[str, Callable[[], tuple[Array, Labels]]] = {}
    for name in datasets.names(paper_only=True):
        found[name] = partial(prediction.load, name)
    for name, kinds in (("breast_cancer", (0, 1)), ("wine", (0, 1)), ("iris", (1, 2))):
        found[f"{name}-{kinds[0]}-{kinds[1]}"] = partial(from_sklearn, name, kinds)
    for one, other in ((3, 8), (4, 9), (1, 7)):
        found[f"digits-{one}-{other}"] = partial(from_sklearn, "digits", (one, other))
    return found | {name: partial(from_messy, table) for name, table in TABLES.items()}


def from_sklearn(name: str, kinds: tuple[int, int]) -> tuple[Array, Labels]:
    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    kept = np.isin(y, kinds)
    return X[kept], (y[kept] == kinds[1]).astype(np.intp)


def from_messy(table: Messy) -> tuple[Array, Labels]:
    """At most 2,000 rows of the two most frequent classes, cleaned as `surefoot fit` does."""
    whole = table.frame()
    kinds = whole[table.label].value_counts().index[:2]
    whole = whole[whole[table.label].isin(kinds)].sample(frac=1.0, random_state=0)[:2000]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        whole.to_csv(path, index=False)
        found = clean(read_labeled_table(path, table.label))
    return found.rows, (whole[table.label] == kinds[1]).to_numpy(dtype=np.intp)


def run(out: Path, draws: int, only: list[str]) -> None:
    done = {(line["table"], int(line["draw"])) for line in read(out)}
    for draw in range(301, 301 + draws):
        for name, load in tables().items():
            if (name, draw) in done or (only and name not in only):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                X, y = load()
                lines = [] if X.shape[1] > MOST_FEATURES else one_table(name, X, y, draw)
            new = not out.exists()
            with out.open("a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerows(lines)
            print(f"{name} {draw}", file=sys.stderr, flush=True)


def one_table(name: str, X: Array, y: Labels, draw: int) -> list[Row]:
    """A line per way to draw labels and method."""
    rng, lines = np.random.default_rng(draw), []
    chosen = rng.permutation(len(X))[:ROWS]
    rows, truth = scale(X[chosen]), y[chosen]
    by = ranks(rows, truth)
    for kind, (rank, strength, sizes) in DRAWS.items():
        weights = np.exp(strength * by[rank])
        for n in sizes:
            if 2 * n > len(rows):
                continue
            labeled = rng.choice(len(rows), n, replace=False, p=weights / weights.sum())
            while len(np.unique(truth[labeled])) < 2:
                labeled = rng.choice(len(rows), n, replace=False, p=weights / weights.sum())
            rest = np.setdiff1d(np.arange(len(rows)), labeled)
            for who, proba in predictions(rows[labeled], truth[labeled], rows[rest]).items():
                p = np.clip(proba, 1e-6, 1 - 1e-6)
                loss = -np.log(np.where(truth[rest] == 1, p, 1 - p)).mean()
                right = (truth[rest] == (p > 0.5)).mean()
                values = (name, draw, kind, n, who, f"{right:.5f}", f"{loss:.5f}")
                lines.append(dict(zip(FIELDS, values, strict=True)))
    return lines


def table(lines: list[dict[str, str]]) -> str:
    """Means over tables of accuracy / log loss."""
    found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    names: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        cell = line["kind"], line["n"]
        scores = float(line["accuracy"]), float(line["log_loss"])
        found.setdefault(cell, {}).setdefault(line["method"], []).append(scores)
        names.setdefault(cell, set()).add(line["table"])
    rows = []
    for (kind, n), by_method in found.items():
        row = {"labels drawn by": kind, "n": n, "tables": str(len(names[kind, n]))}
        for who, scores_of in by_method.items():
            accuracy, loss = np.mean(scores_of, axis=0)
            row[who] = f"{accuracy:.3f} / {loss:.3f}"
        rows.append(row)
    return markdown_table(rows)


def alarms(draws: int) -> str:
    """How often the sample test warns, and the median of its processor seconds."""
    found: dict[tuple[str, int], list[float]] = {}
    seconds: list[float] = []
    for draw in range(draws):
        for name in datasets.names(paper_only=True):
            X, y = prediction.load(name)
            rng = np.random.default_rng([draw, 9])
            chosen = rng.permutation(len(X))[:ROWS]
            rows, by = X[chosen], ranks(X[chosen], y[chosen])
            for kind, (rank, strength, sizes) in DRAWS.items():
                weights = np.exp(strength * by[rank])
                for n in sizes:
                    labeled = rng.choice(len(rows), n, replace=False, p=weights / weights.sum())
                    began = time.process_time()
                    p_value = sample_p_value(rows[labeled], np.delete(rows, labeled, axis=0))
                    seconds.append(time.process_time() - began)
                    found.setdefault((kind, n), []).append(1.0 if p_value is None else p_value)
    lines = [
        {
            "labels drawn by": kind,
            "n": str(n),
            "samples": str(len(p)),
            "warned": f"{np.mean(np.array(p) <= PICKED_AT):.3f}",
        }
        for (kind, n), p in found.items()
    ]
    return f"{markdown_table(lines)}\n\nmedian of {np.median(seconds):.4f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results-picked.csv"))
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--only", default="", help="names of tables, separated by commas")
    parser.add_argument("--alarms", type=int, default=0)
    asked = parser.parse_args()
    if asked.alarms:
        print(alarms(asked.alarms))
    else:
        run(asked.out, asked.draws, [name for name in asked.only.split(",") if name])
        print(table(read(asked.out)))


if __name__ == "__main__":
    main()
