"""Coverage of the calibrated radius on the paper's 14 datasets.

    OPENBLAS_NUM_THREADS=1 python benchmarks/calibration.py --out DIR [--datasets a,b] [--sizes 20,50] [--draws 100]
        [--active-draws 20] [--learned-draws 20] [--jobs 2]

DIR gets one record per sample, and a second run continues after the last one. `--table` prints the tables, `--page`
writes those of the learned metric to docs/calibration.md, and `--results FILE` replaces their lines in that file.

A sample has n random labels of a dataset. The true distribution is the whole dataset with its labels. It is covered if
its excess, W_c(P, P̂_l) − W_d − κ TV, is at most the estimate. `learned` measures this in the learned metric and in the
Euclidean one, `coverage` in the Euclidean one with all rows of the dataset. The sizes of certificates at this radius
are measured by bounds.py.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import ot
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import ROOT, markdown_table, with_tables, write_csv

import surefoot as sf
from surefoot import datasets
from surefoot.certificates.calibration import CalibratedRadius, estimate_excess
from surefoot.problem.placement import check_problem

Array = NDArray[np.float64]
Labels = NDArray[np.intp]
Record = dict[str, object]
LEVEL = 0.9
PAGE = ROOT / "docs" / "calibration.md"
_MOST_ROWS = 1500
# Distances are rounded: a true excess of 0 may come out as 1e-17.
_ROUNDING = 1e-9
_BESIDE = ROOT.parent / "shared" / "datasets"


def load(name: str) -> tuple[Array, NDArray[np.intp]]:
    home = None if "SUREFOOT_DATA" in os.environ or not _BESIDE.exists() else _BESIDE
    X, y = datasets.load(name, return_X_y=True, data_home=home)
    return X, y.astype(np.intp)


def drawn(N: int, n: int, draw: int) -> NDArray[np.intp]:
    return np.random.default_rng([draw, n]).permutation(N)[:n]


def true_excess(X: Array, y: NDArray[np.intp], labeled: NDArray[np.intp]) -> float:
    """W_c(P, P̂_l) − W_d(P_X, P̂_X) − TV(p, p̂), κ = 1, by POT on the full cost matrices."""
    N, n = len(X), len(labeled)
    rows, anchors = np.full(N, 1 / N), np.full(n, 1 / n)
    distances = cdist(X, X[labeled])
    flips = y[:, None] != y[labeled]
    both = ot.emd2(rows, anchors, distances + flips, numItermax=10_000_000)
    plain = ot.emd2(rows, anchors, distances, numItermax=10_000_000)
    return float(both - plain - abs(y.mean() - y[labeled].mean()))


def estimated(X: Array, y: NDArray[np.intp], labeled: NDArray[np.intp]) -> tuple[float, float]:
    """The estimate, and for comparison the plain quantile over the splits in which no label was replaced."""
    distances = cdist(X[labeled], X[labeled])
    how = CalibratedRadius(LEVEL)
    splits = estimate_excess(distances, y[labeled], np.ones(len(labeled)), 1.0 - np.eye(2), how)
    return float(np.quantile(splits, 0.5 * (1 + LEVEL))), float(np.quantile(splits[::2], LEVEL))


def coverage_record(X: Array, y: NDArray[np.intp], n: int, draw: int) -> Record:
    labeled = drawn(len(X), n, draw)
    estimate, plain = estimated(X, y, labeled)
    return {"truth": true_excess(X, y, labeled), "estimate": estimate, "plain": plain}


def trained(X: Array, y: NDArray[np.intp], rows: NDArray[np.intp]) -> LogisticRegression | DummyClassifier:
    one_class = len(np.unique(y[rows])) == 1
    return (DummyClassifier() if one_class else LogisticRegression(C=100.0, max_iter=2000)).fit(X[rows], y[rows])


def active_record(X: Array, y: NDArray[np.intp], n: int, draw: int) -> Record:
    """Ten random labels, then the rows of least confidence of a logistic regression, ten at a time."""
    labeled = drawn(len(X), n, draw)[:10]
    while len(labeled) < n:
        model = trained(X, y, labeled)
        certainty = model.predict_proba(X).max(axis=1)
        certainty[labeled] = np.inf
        labeled = np.append(labeled, np.argsort(certainty, kind="stable")[:10])
    return {"truth": true_excess(X, y, labeled), "estimate": estimated(X, y, labeled)[0]}


def learned_record(X: Array, y: Labels, n: int, draw: int) -> Record:
    """As coverage, in the metric learned from the same labels and in the Euclidean one; at most 1,500 rows are all.

    All excesses are in units of the label cost. plain : the estimate where halves do not learn the metric anew;
    rarest : labels of the rarer class.
    """
    pool = np.random.default_rng([draw, n, 7]).permutation(len(X))[:_MOST_ROWS]
    rows, labels = X[pool], y[pool]
    common = {"X_unlabeled": rows[n:], "label_prior": None, "classes": [0, 1]}
    problem = check_problem(rows[:n], labels[:n], metric="learned", label_cost="median", **common)
    metric, kappa = problem.data.metric, float(problem.decision_set.label_cost.max())
    found: Record = {"rarest": int(np.bincount(labels[:n], minlength=2).min())}
    for name, how in (
        ("estimate", {}),
        ("plain", {"metric": metric, "label_cost": kappa}),
        ("euclidean", {"metric": "euclidean", "label_cost": 1.0}),
    ):
        unit = kappa if name != "euclidean" else 1.0
        found[name] = sf.calibrate_radius(rows[:n], labels[:n], level=LEVEL, **common, **how).excess / unit
    found["truth"] = excess_of(metric.distances(rows, rows[:n]) / kappa, labels, n)
    return found | {"euclidean_truth": excess_of(cdist(rows, rows[:n]), labels, n)}


def excess_of(distances: Array, labels: Labels, n: int) -> float:
    """W_c − W_d − TV between all rows and the first n of them, with label cost 1, by POT."""
    all_rows, anchors = np.full(len(labels), 1 / len(labels)), np.full(n, 1 / n)
    flips = labels[:, None] != labels[:n]
    both, features = (
        ot.emd2(all_rows, anchors, cost, numItermax=10_000_000) for cost in (distances + flips, distances)
    )
    return float(both - features - abs(labels.mean() - labels[:n].mean()))


STUDIES: dict[str, Callable[[Array, NDArray[np.intp], int, int], Record]] = {
    "coverage": coverage_record,
    "active": active_record,
    "learned": learned_record,
}


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        # a line cut short by a kill has empty fields: that draw is done again
        return [row for row in csv.DictReader(file) if all(value not in (None, "") for value in row.values())]


def run_cell(study: str, name: str, n: int, draws: int, out: Path) -> None:
    """Run the missing samples, and write one line of the file for each."""
    path = out / f"{study}-{name}-{n}.csv"
    done = {int(row["draw"]) for row in read(path)}
    missing = [draw for draw in range(draws) if draw not in done]
    if not missing:
        return
    X, y = load(name)
    for draw in missing:
        record = {"draw": draw} | STUDIES[study](X, y, n, draw)
        new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(record))
            if new:
                writer.writeheader()
            writer.writerow(record)
    print(f"{study} {name} n={n}: {len(missing)} draws", flush=True)


def columns(out: Path, study: str, name: str, n: int) -> dict[str, Array] | None:
    rows = read(out / f"{study}-{name}-{n}.csv")
    if not rows:
        return None
    as_number = {"True": 1.0, "False": 0.0}
    return {key: np.array([float(as_number.get(row[key], row[key])) for row in rows]) for key in rows[0]}


def coverage_table(out: Path, names: list[str], sizes: list[int], study: str) -> list[Record]:
    """Fraction of covered samples, in brackets with the plain quantile, and the mean over datasets."""
    table: list[Record] = [{"dataset": name} for name in names] + [{"dataset": "**mean**"}]
    for n in sizes:
        shares = []
        for line, name in zip(table, names, strict=False):
            found = columns(out, study, name, n)
            if found is not None:
                kinds = [key for key in ("estimate", "plain") if key in found]
                shares.append([np.mean(found[key] >= found["truth"] - _ROUNDING) for key in kinds])
                line[f"n = {n}"] = _bracketed(shares[-1])
        if shares:
            table[-1][f"n = {n}"] = f"**{_bracketed(np.mean(shares, axis=0))}**"
    return table


def _bracketed(shares: Iterable[float]) -> str:
    first, *rest = (f"{share:.2f}" for share in shares)
    return first + "".join(f" ({share})" for share in rest)


LEARNED = {
    "estimate": ("truth", "learned metric"),
    "plain": ("truth", "learned metric, not learned again in each split"),
    "euclidean": ("euclidean_truth", "Euclidean metric"),
}


def learned_table(out: Path, names: list[str], sizes: list[int]) -> list[Record]:
    """Coverage of each estimate on average over the datasets and in the least one."""
    table: list[Record] = []
    for key, (truth, text) in LEARNED.items():
        line: Record = {"estimate": text}
        for n in sizes:
            cells = [found for name in names if (found := columns(out, "learned", name, n)) is not None]
            held = [float(np.mean(found[key] >= found[truth] - _ROUNDING)) for found in cells]
            if held:
                line[f"n = {n}"] = f"{np.mean(held):.2f}, {min(held):.2f}"
        table.append(line)
    return table


def learned_lines(out: Path, names: list[str], sizes: list[int]) -> list[Record]:
    """A line per dataset, number of labels and estimate: how often it covered the truth."""
    return [
        {"study": "learned metric", "dataset": name, "n": n, "quantity": text, "draws": len(found["draw"]),
         "value": f"{np.mean(found[key] >= found[truth] - _ROUNDING):.2f}"}
        for name in names
        for n in sizes
        if (found := columns(out, "learned", name, n)) is not None
        for key, (truth, text) in LEARNED.items()
    ]  # fmt: skip


def merged(path: Path, lines: list[Record], key: tuple[str, ...]) -> list[Record]:
    """The new lines, after the lines of the file whose key is not among them."""
    new = {tuple(str(line[name]) for name in key) for line in lines}
    known = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [
        {name: value for name, value in line.items() if value != ""}
        for line in csv.DictReader(line for line in known if not line.startswith("#"))
        if tuple(line[name] for name in key) not in new
    ]
    return [*kept, *lines]


def excess_table(out: Path, names: list[str], sizes: list[int]) -> list[Record]:
    """Median estimate and, in brackets, median true excess."""
    table: list[Record] = []
    for name in names:
        line: Record = {"dataset": name}
        for n in sizes:
            found = columns(out, "coverage", name, n)
            if found is not None:
                line[f"n = {n}"] = f"{np.median(found['estimate']):.4f} ({np.median(found['truth']):.4f})"
        table.append(line)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", default=",".join(datasets.names(paper_only=True)))
    parser.add_argument("--sizes", default="20,50,100,200")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--active-draws", type=int, default=20)
    parser.add_argument("--learned-draws", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--results", type=Path)
    asked = parser.parse_args()
    names, sizes = asked.datasets.split(","), [int(n) for n in asked.sizes.split(",")]
    if not (asked.table or asked.page):
        asked.out.mkdir(parents=True, exist_ok=True)
        cells = [("coverage", name, n, asked.draws) for n in sizes for name in names]
        cells += [("active", name, 50, asked.active_draws) for name in names]
        cells += [("learned", name, n, asked.learned_draws) for n in sizes for name in names]
        Parallel(n_jobs=asked.jobs)(delayed(run_cell)(*cell, asked.out) for cell in cells if cell[3])
    for study, at in (("coverage", sizes), ("active", [50]), ("learned", sizes)):
        print(f"\n{study}\n\n" + markdown_table(coverage_table(asked.out, names, at, study)))
    print("\nexcess\n\n" + markdown_table(excess_table(asked.out, names, sizes)))
    learned = learned_table(asked.out, names, sizes)
    print("\nlearned metric\n\n" + markdown_table(learned))
    if asked.page:
        made = with_tables(
            PAGE.read_text(encoding="utf-8"), lambda name: markdown_table(learned) if name == "learned" else None
        )
        PAGE.write_text(made, encoding="utf-8")
    if asked.results is not None:
        lines = merged(asked.results, learned_lines(asked.out, names, sizes), ("study", "dataset", "n"))
        write_csv(asked.results, lines)


if __name__ == "__main__":
    main()
