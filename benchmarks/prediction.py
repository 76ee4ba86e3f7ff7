"""Compare the predictions of the default model with other learners, on the paper's 14 datasets.

    OPENBLAS_NUM_THREADS=1 python benchmarks/prediction.py --out DIR [--datasets a,b] [--sizes 20,50,100] [--draws 20]
        [--paper-draws 5] [--methods default,forest] [--seconds 240]

DIR gets one record per sample and method, and a second run continues after the last one. `--seconds` limits a run.
`--table` prints the tables, `--page` writes them to docs/prediction.md and docs/research-notes.md, `--picture` draws
the figure, and `--results FILE` writes a line per cell. Seconds are processor time on one thread, which excludes other
programs.

A sample has at most 2,500 random rows of a dataset and n labels of at least two classes. Scores are computed on the
remaining rows. Every method gets all rows, with mean 0 and standard deviation 1 per feature. The paper's rule gets the
paper's scale. If a class has fewer than five labels, LogisticRegressionCV has one fold per label of this class. With a
single label it becomes LogisticRegression.
"""

from __future__ import annotations

import argparse
import csv
import functools
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from sklearn.preprocessing import scale
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

sys.path.insert(0, str(Path(__file__).resolve().parent))
from calibration import Array
from calibration import load as load_anew
from common import ROOT, markdown_table, with_tables, write_csv

import surefoot as sf
from surefoot import datasets

Labels = NDArray[np.intp]
MOST_ROWS = 2500
SCORES = ("accuracy", "log_loss", "brier", "seconds")
PAGES = [ROOT / "docs" / name for name in ("prediction.md", "research-notes.md")]
PICTURE = ROOT / "docs" / "images" / "prediction.png"


load = functools.cache(load_anew)


def robust(X: Array, y: Labels, U: Array) -> Any:
    return sf.RobustLogisticRegression().fit(X, y, X_unlabeled=sf.Unlabeled(U))


def paper(X: Array, y: Labels, U: Array) -> Any:
    clf = sf.RobustLogisticRegression(radius="auto", label_cost=1.0, metric="euclidean")
    return clf.fit(X, y, X_unlabeled=sf.Unlabeled(U))


def logistic(X: Array, y: Labels, _U: Array) -> Any:
    return LogisticRegression(max_iter=1000).fit(X, y)


def logistic_cv(X: Array, y: Labels, U: Array) -> Any:
    folds = min(5, int(np.bincount(y).min()))
    if folds < 2:
        return logistic(X, y, U)
    return LogisticRegressionCV(cv=folds, scoring="neg_log_loss", max_iter=1000).fit(X, y)


def self_training(X: Array, y: Labels, U: Array) -> Any:
    return SelfTrainingClassifier(LogisticRegression(max_iter=1000)).fit(*_semi(X, y, U))


def label_spreading(X: Array, y: Labels, U: Array) -> Any:
    return LabelSpreading(kernel="knn", n_neighbors=7, max_iter=100).fit(*_semi(X, y, U))


def forest(X: Array, y: Labels, _U: Array) -> Any:
    return RandomForestClassifier(n_estimators=200, random_state=0).fit(X, y)


def _semi(X: Array, y: Labels, U: Array) -> tuple[Array, Labels]:
    return np.vstack([X, U]), np.append(y, np.full(len(U), -1))


METHODS: dict[str, tuple[str, Callable[[Array, Labels, Array], Any]]] = {
    "default": ("surefoot, default", robust),
    "logistic": ("LogisticRegression", logistic),
    "logistic_cv": ("LogisticRegressionCV", logistic_cv),
    "self_training": ("SelfTrainingClassifier", self_training),
    "label_spreading": ("LabelSpreading, 7 neighbours", label_spreading),
    "forest": ("random forest", forest),
    "paper": ("surefoot, the paper's rule", paper),
}


def learned_distances(X: Array, y: Labels, U: Array) -> Array:
    """(N, n) of the default's metric, in units of their median."""
    found = sf.costs.LearnedMetric().learn(X, y, X_unlabeled=U).distances(np.vstack([X, U]), X)
    return found / np.median(found)


def learned_manhattan(X: Array, y: Labels, U: Array) -> Array:
    weights = sf.costs.LearnedMetric().learn(X, y, X_unlabeled=U).weights
    return cdist(np.vstack([X, U]) * weights, X * weights, "cityblock")


def leaves_apart(X: Array, y: Labels, U: Array) -> Array:
    """(N, n) fraction of the trees of a forest in which two rows are in different leaves."""
    grown = forest(X, y, U)
    leaves = grown.apply(np.vstack([X, U]))
    return np.column_stack([(leaves != row).mean(axis=1) for row in leaves[: len(X)]])


def both(X: Array, y: Labels, U: Array) -> Array:
    apart = leaves_apart(X, y, U)
    return learned_distances(X, y, U) + apart / np.median(apart)


# The default with other distances, run where --methods names them: how the table calls them, and (N, n) of them.
TRIED: dict[str, tuple[str, Callable[[Array, Labels, Array], Array]]] = {
    "euclidean": ("Euclidean, standardised features", lambda X, _y, U: cdist(np.vstack([X, U]), X)),
    "manhattan": ("learned weights, Manhattan", learned_manhattan),
    "root": ("root of the learned distance", lambda X, y, U: np.sqrt(learned_distances(X, y, U))),
    "saturated": ("1 − exp(−learned distance / median)", lambda X, y, U: -np.expm1(-learned_distances(X, y, U))),
    "proximity": ("share of a forest's trees that part two rows", leaves_apart),
    "hybrid": ("that and the learned distance, each over its median", both),
}


def fitted(method: str, X: Array, y: Labels, U: Array) -> Any:
    """The classifier of a method, or the default with one of the tried metrics."""
    if method in METHODS:
        return METHODS[method][1](X, y, U)
    metric = sf.costs.Precomputed(TRIED[method][1](X, y, U))
    return sf.RobustLogisticRegression(metric=metric).fit(X, y, X_unlabeled=sf.Unlabeled(U))


def drawn(X: Array, y: Labels, n: int, draw: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Labeled rows of both classes, and further rows, at most MOST_ROWS in total."""
    rng = np.random.default_rng([draw, n, 17])
    while True:
        order = rng.permutation(len(X))[:MOST_ROWS]
        if len(np.unique(y[order[:n]])) == 2:
            return order[:n], order[n:]


def record(X: Array, y: Labels, n: int, draw: int, method: str) -> dict[str, float]:
    labeled, rest = drawn(X, y, n, draw)
    rows = X[np.concatenate([labeled, rest])]
    rows = rows if method == "paper" else scale(rows)
    few, U = rows[:n], rows[n:]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fitted(method, few, y[labeled], U)
        seconds = time.process_time() - start
        proba = model.predict_proba(U)[:, 1]
    if not np.isfinite(proba).all():  # LabelSpreading knows no answer for rows that no label reaches
        proba = np.where(np.isfinite(proba), proba, y[labeled].mean())
    truth, proba = y[rest], np.clip(proba, 1e-6, 1 - 1e-6)
    return {
        "accuracy": accuracy_score(truth, proba > 0.5),
        "log_loss": log_loss(truth, proba, labels=[0, 1]),
        "brier": brier_score_loss(truth, proba),
        "seconds": seconds,
    }


def read(path: Path) -> dict[int, dict[str, float]]:
    """Records by draw."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {int(row["draw"]): {key: float(row[key]) for key in SCORES} for row in csv.DictReader(file)}


def run(out: Path, names: list[str], sizes: list[int], methods: dict[str, int], seconds: float) -> bool:
    """Make the missing records until the time is over. True if none is missing."""
    end = time.monotonic() + seconds
    out.mkdir(parents=True, exist_ok=True)
    for draw in range(max(methods.values())):
        for n in sizes:
            for name in names:
                todo = [m for m, most in methods.items() if draw < most and draw not in read(_file(out, m, name, n))]
                if not todo:
                    continue
                X, y = load(name)
                for method in todo:
                    if time.monotonic() > end:
                        return False
                    _append(_file(out, method, name, n), {"draw": draw} | record(X, y, n, draw, method))
    return True


def _file(out: Path, method: str, name: str, n: int) -> Path:
    return out / f"{method}-{name}-{n}.csv"


def _append(path: Path, row: dict[str, Any]) -> None:
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["draw", *SCORES], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def means(out: Path, method: str, names: list[str], n: int, score: str) -> Array:
    """(datasets,) mean over the samples common to all methods, or of the paper's rule. NaN if there are none."""
    found = []
    for name in names:
        draws = common_draws(out, name, n) & set(read(_file(out, method, name, n)))
        scores = [one[score] for draw, one in read(_file(out, method, name, n)).items() if draw in draws]
        found.append(np.mean(scores) if scores else np.nan)
    return np.array(found)


def common_draws(out: Path, name: str, n: int) -> set[int]:
    """Samples that every method except the paper's rule has seen. These are compared."""
    return set.intersection(*(set(read(_file(out, method, name, n))) for method in METHODS if method != "paper"))


def summary_table(out: Path, names: list[str], sizes: list[int]) -> list[dict[str, Any]]:
    """Mean over datasets: accuracy / log loss / Brier score; then the median seconds of a fit."""
    table = []
    for method, (title, _) in METHODS.items():
        line: dict[str, Any] = {"": title}
        for n in sizes:
            values = [means(out, method, names, n, score) for score in SCORES[:3]]
            if np.isfinite(values[0]).all():
                accuracy, loss, brier = (one.mean() for one in values)
                line[f"n = {n}"] = f"{accuracy:.3f} / {loss:.3f} / {brier:.3f}"
        timed = [one["seconds"] for name in names for n in sizes for one in read(_file(out, method, name, n)).values()]
        if timed:
            line["seconds"] = f"{np.median(timed):.2f}"
        seen = [set(read(_file(out, method, name, n))) & common_draws(out, name, n) for name in names for n in sizes]
        table.append(line | {"draws": _span([len(draws) for draws in seen])})
    return table


def _span(counts: list[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def dataset_table(out: Path, names: list[str], sizes: list[int], score: str) -> list[dict[str, Any]]:
    """The default against LogisticRegressionCV on each dataset."""
    table: list[dict[str, Any]] = [{"dataset": name} for name in names]
    for n in sizes:
        ours, theirs = (means(out, method, names, n, score) for method in ("default", "logistic_cv"))
        for line, a, b in zip(table, ours, theirs, strict=True):
            line[f"n = {n}"] = f"{a:.3f} ({b:.3f})"
    return table


def targets(out: Path, names: list[str], sizes: list[int]) -> list[dict[str, Any]]:
    """Differences to LogisticRegressionCV, and on how many datasets the default has the better log loss."""
    table = []
    for n in sizes:
        accuracy, loss = (
            means(out, "default", names, n, s) - means(out, "logistic_cv", names, n, s)
            for s in ("accuracy", "log_loss")
        )
        table.append(
            {
                "labels": n,
                "accuracy, points": f"{100 * accuracy.mean():+.2f}",
                "log loss": f"{loss.mean():+.4f}",
                "better log loss on": f"{int((loss < 0).sum())} of {len(names)}",
            }
        )
    return table


def tried_table(out: Path, names: list[str], sizes: list[int]) -> list[dict[str, Any]]:
    """Each tried metric minus the default, on their common samples: mean over datasets ± its standard error."""
    table = []
    for method, (title, _) in TRIED.items():
        line: dict[str, Any] = {"metric": title}
        for n in sizes:
            gains: dict[str, list[float]] = {"accuracy": [], "log_loss": []}
            for name in names:
                ours, other = (read(_file(out, m, name, n)) for m in ("default", method))
                for score, found in gains.items():
                    differences = [other[draw][score] - ours[draw][score] for draw in other.keys() & ours.keys()]
                    found.extend([float(np.mean(differences))] if differences else [])
            if len(gains["accuracy"]) == len(names):
                points, losses = (np.array(found) for found in gains.values())
                error = [float(found.std(ddof=1) / np.sqrt(len(found))) for found in (points, losses)]
                line[f"n = {n}"] = (
                    f"{100 * points.mean():+.2f} ± {100 * error[0]:.2f} / {losses.mean():+.4f} ± {error[1]:.4f}"
                )
        draws = [len(read(_file(out, method, name, n))) for name in names for n in sizes]
        table.append(line | {"draws": _span(draws)})
    return table


def all_cells(out: Path, names: list[str], sizes: list[int]) -> list[dict[str, Any]]:
    """One line per method, dataset and number of labels: draws, and the mean of each score; the median of seconds."""
    lines = []
    for method in (*METHODS, *TRIED):
        for name in names:
            for n in sizes:
                found = list(read(_file(out, method, name, n)).values())
                if found:
                    line: dict[str, Any] = {"method": method, "dataset": name, "n": n, "draws": len(found)}
                    line |= {s: round(float(np.mean([one[s] for one in found])), 5) for s in SCORES[:3]}
                    lines.append(line | {"seconds": round(float(np.median([one["seconds"] for one in found])), 3)})
    return lines


def draw_picture(out: Path, names: list[str], sizes: list[int]) -> None:
    """Log loss and accuracy over the number of labels, one line per method."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for ax, score, title in zip(axes, ("accuracy", "log_loss"), ("accuracy", "log loss"), strict=True):
        for at, (method, (label, _)) in enumerate(METHODS.items()):
            values = [means(out, method, names, n, score).mean() for n in sizes]
            if not np.isfinite(values).all():
                continue
            ours = method == "default"
            ax.plot(
                sizes, values, marker="o", label=label, color=f"C{at}", lw=3 if ours else 1.5, zorder=3 if ours else 2
            )
        ax.set(xscale="log", xlabel="labels", title=f"{title}, mean over {len(names)} datasets")
        ax.set_xticks(sizes, [str(n) for n in sizes])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[1].set_ylim(top=min(0.6, axes[1].get_ylim()[1]))  # what is worse lies above
    axes[0].legend(fontsize="small")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", default=",".join(datasets.names(paper_only=True)))
    parser.add_argument("--sizes", default="20,50,100")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--paper-draws", type=int, default=5)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seconds", type=float, default=np.inf)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--picture", action="store_true")
    parser.add_argument("--results", type=Path)
    asked = parser.parse_args()
    names, sizes = asked.datasets.split(","), [int(n) for n in asked.sizes.split(",")]
    methods = {
        m: min(asked.paper_draws, asked.draws) if m == "paper" else asked.draws for m in asked.methods.split(",")
    }
    only_show = asked.table or asked.page or asked.picture or asked.results is not None
    if not only_show and not run(asked.out, names, sizes, methods, asked.seconds):
        print("not finished: run the same command again")
        return
    tables = {
        "methods": summary_table(asked.out, names, sizes),
        "difference": targets(asked.out, names, sizes),
        "log-loss": dataset_table(asked.out, names, sizes, "log_loss"),
        "accuracy": dataset_table(asked.out, names, sizes, "accuracy"),
        "tried": tried_table(asked.out, names, sizes),
    }
    for title, table in tables.items():
        print(f"\n{title}\n\n{markdown_table(table)}")
    if asked.page:
        for page in PAGES:
            made = with_tables(page.read_text(encoding="utf-8"), lambda title: markdown_table(tables[title]))
            page.write_text(made, encoding="utf-8")
    if asked.results is not None:
        write_csv(asked.results, all_cells(asked.out, names, sizes))
    if asked.picture:
        draw_picture(asked.out, names, sizes)


if __name__ == "__main__":
    main()
