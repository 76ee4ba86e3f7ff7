"""Coverage and size of every bound on the error rate, on the paper's 14 datasets.

    OPENBLAS_NUM_THREADS=1 python benchmarks/bounds.py --out DIR [--datasets a,b] [--sizes 20,50] [--draws 100]
        [--transport-draws 20] [--audit-draws 20] [--shift-draws 20] [--picked-draws 20] [--jobs 2]

DIR gets one record per sample, and a second run continues after the last one. `--table` prints the tables, and `--page`
writes those of which DIR has records to the pages. `--results FILE` writes a line per cell, and keeps the lines of
cells that DIR has not. `--figure FILE` plots the cross-fitted bound, and `--sizes-figure FILE` the number of labels of
an audit.

- `labels`: a logistic regression trained on n random labels, its true error rate over the dataset, and the bounds from
  these labels: cross-fitted, with a control variate, held out (for the classifier trained on half), and anytime. Also
  the intervals of the label probabilities, plain and assisted.
- `transport`: the certified error rate at the calibrated radius, on at most 1,500 rows, with label probabilities known,
  assisted, and by Clopper–Pearson, in the learned metric and in the Euclidean one.
- `audit`: a classifier trained on 100 labels, audited on up to 3,000 further rows with uniform and weighted sampling.
- `shift`: labels sampled ∝ exp(v) and target rows ∝ exp(−v), where v is the leading direction. Cover Type goes from one
  wilderness area to another. Bank goes from its first calls to its last, without the calendar columns. Wine goes from
  red to white, if winequality-red.csv is next to the white file.
- `picked`: labels drawn from 800 rows of a dataset with weights, as in picked.py, and bounds for these 800 rows.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bounds_tables import (
    AUDIT_SIZES,
    LABEL_BOUNDS,
    PICKED_SIZE,
    SHIFT_SIZE,
    TRANSPORT_BOUNDS,
    all_cells,
    audit_table,
    bound_table,
    draw_bounds,
    draw_sizes,
    interval_table,
    picked_table,
    shift_table,
)
from calibration import _BESIDE, LEVEL, Array, Record, drawn, load, merged, read, trained
from common import ROOT, markdown_table, with_tables, write_csv
from picked import DRAWS as PICKED
from picked import MOST_FEATURES, ROWS, ranks

import surefoot as sf
from surefoot import datasets
from surefoot.datasets._catalogue import BANK as BANK_FILES
from surefoot.datasets._catalogue import WINE as WINE_FILES
from surefoot.datasets._download import locate
from surefoot.priors import AssistedPrior, ClopperPearson, HypergeometricPrior

PAGES = [ROOT / "docs" / name for name in ("bounds.md", "calibration.md", "research-notes.md")]
Labels = NDArray[np.intp]
Rows = NDArray[np.intp]
HOME = None if "SUREFOOT_DATA" in os.environ or not _BESIDE.exists() else _BESIDE
# A certificate speaks of the rows given: so many of a dataset at the most.
MOST_ROWS = 1500
EUCLIDEAN = {"metric": "euclidean", "label_cost": 1.0}
# Of the wines whose quality is not 6, the red ones: 961 of 3661 in the files of the archive.
RED_SHARE = 961 / 3661
SHIFTED = ("abalone", "isolet", "letter-c-e", "magic", "spambase", "wine")
# the wilderness areas of Cover Type are its columns 10 to 13
WILDERNESS = {"covtype-2-3": (2, 3), "covtype-5-6": (0, 2)}
BANK, RED = "bank-months", "wine-red-white"
SHIFT_NAMES = (*SHIFTED, *WILDERNESS, BANK, RED)
# The file of Bank is ordered by date: the first and the last share of its rows.
FIRST_CALLS, LAST_CALLS = 0.5, 0.1


def recipe(y: Labels) -> LogisticRegression | DummyClassifier:
    return DummyClassifier() if len(np.unique(y)) == 1 else LogisticRegression(C=100.0, max_iter=2000)


def fresh_draw(N: int, n: int, draw: int) -> NDArray[np.intp]:
    """Rows of another sample than `drawn`. The folds and the assisted intervals were chosen on these."""
    return np.random.default_rng([draw, n, 4]).permutation(N)[:n]


def labels_record(X: Array, y: Labels, n: int, draw: int) -> Record:
    labeled = fresh_draw(len(X), n, draw)
    rest = np.setdiff1d(np.arange(len(X)), labeled)
    Xl, yl, U = X[labeled], y[labeled], X[rest]
    clf = recipe(yl)
    found: Record = {"true_error": float(np.mean(trained(X, y, labeled).predict(X) != y))}
    common = {"level": LEVEL, "classes": [0, 1]}
    found["crossfit"] = sf.error_bound(clf, Xl, yl, X_unlabeled=U, **common).value
    found["control_variate"] = sf.error_bound(clf, Xl, yl, X_unlabeled=U, control_variate=True, **common).value
    half, held = np.array_split(labeled, 2)
    other = trained(X, y, half)
    found["half_error"] = float(np.mean(other.predict(X) != y))
    for method in ("holdout", "anytime"):
        found[method] = sf.error_bound(other, X[held], y[held], method=method, **common).value
    # the same labels judge the rows of the dataset that the half did not train on
    found["half_rest_error"] = float(np.mean(other.predict(np.delete(X, half, axis=0)) != np.delete(y, half)))
    found["holdout_pool"] = sf.error_bound(other, X[held], y[held], X_unlabeled=U, method="holdout", **common).value
    share, counts = y.mean(), np.bincount(yl, minlength=2)
    intervals = {
        "clopper_pearson": ClopperPearson().intervals(counts)[1],
        "hypergeometric": HypergeometricPrior(len(X)).intervals(counts)[1],
        "assisted": AssistedPrior().for_rows(Xl, yl, 2, U).intervals(counts)[1],
    }
    for name, (lo, hi) in intervals.items():
        found |= {f"{name}_holds": bool(lo <= share <= hi), f"{name}_width": float(hi - lo)}
    return found


def transport_record(X: Array, y: Labels, n: int, draw: int) -> Record:
    rows = np.random.default_rng([draw, n, 5]).permutation(len(X))[:MOST_ROWS]
    X, y = X[rows], y[rows]
    labeled = drawn(len(X), n, draw)
    rest = np.setdiff1d(np.arange(len(X)), labeled)
    model = trained(X, y, labeled)
    known = np.bincount(y, minlength=2) / len(y)
    found: Record = {"true_error": float(np.mean(model.predict(X) != y))}
    weak, most = {"label_prior": "clopper-pearson"}, {"label_prior": known}
    options = {"known": most, "assisted": {"label_prior": "assisted"}, "clopper_pearson": weak}
    options |= {"euclidean_known": most | EUCLIDEAN, "euclidean_clopper_pearson": weak | EUCLIDEAN}
    for name, option in options.items():
        bound = sf.error_bound(
            model, X[labeled], y[labeled], X_unlabeled=X[rest], method="transport", level=LEVEL, classes=[0, 1],
            certify_options=option | {"tol": 1e-4},
        )  # fmt: skip
        found[name] = bound.value
    return found


def audit_record(X: Array, y: Labels, n: int, draw: int) -> Record:
    """Bounds after each of AUDIT_SIZES labels; n, the labels trained on."""
    order = np.random.default_rng([draw, n, 1]).permutation(len(X))
    clf, pool = trained(X, y, order[:n]), order[n : n + 3000]
    found: Record = {"true_error": float(np.mean(clf.predict(X[pool]) != y[pool]))}
    for picks in ("uniform", "weighted"):
        audit = sf.Audit(clf, X[pool], level=LEVEL, sampling=picks, classes=[0, 1], random_state=draw)
        for size in AUDIT_SIZES:
            audit.run(lambda row: int(y[pool[row]]), max_labels=size)
            found[f"{picks}_{size}"] = audit.anytime_bound().value
            if picks == "uniform":
                found[f"exact_{size}"] = audit.bound().value
    return found


def tilted(X: Array, n: int, draw: int) -> tuple[Rows, Rows]:
    """Labeled rows sampled ∝ exp(v), and target rows ∝ exp(−v) by the standardized first principal component v."""
    rng = np.random.default_rng([draw, n, 2])
    centred = X - X.mean(axis=0)
    v = centred @ np.linalg.svd(centred[:2000], full_matrices=False)[2][0]
    v = np.clip(v / v.std(), -3, 3)
    source = rng.choice(len(X), n, replace=False, p=np.exp(v) / np.exp(v).sum())
    weights = np.exp(-v)
    weights[source] = 0.0
    return source, rng.choice(len(X), min(2000, len(X) // 2), replace=False, p=weights / weights.sum())


def between(own: Rows, other: Rows, n: int, draw: int) -> tuple[Rows, Rows]:
    """Labeled rows from one part of the rows, target rows from another."""
    rng = np.random.default_rng([draw, n, 3])
    return rng.choice(own, n, replace=False), rng.choice(other, min(2000, len(other)), replace=False)


def scaled(X: Array) -> Array:
    """As `datasets.load` does: mean 0, standard deviation 1, then divided by the largest absolute entry."""
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return X / np.abs(X).max()


def load_shifted(name: str) -> tuple[Array, Labels]:
    """The rows of a shift: all rows of Bank in the order of time, and the red wines first."""
    if name == BANK:
        cells = pd.read_csv(locate(BANK_FILES, HOME)[0], sep=";")
        features = pd.get_dummies(cells.drop(columns=["y", "month", "day"])).to_numpy(dtype=np.float64)
        return scaled(features), (cells["y"] == "yes").to_numpy(dtype=np.intp)
    if name == RED:
        white = Path(locate(WINE_FILES, HOME)[0])
        cells = pd.concat([pd.read_csv(white.with_name("winequality-red.csv"), sep=";"), pd.read_csv(white, sep=";")])
        cells = cells[cells["quality"] != 6]
        return scaled(cells.drop(columns="quality").to_numpy(float)), (cells["quality"] > 6).to_numpy(np.intp)
    return load(name)


def split_rows(X: Array, n: int, draw: int, name: str) -> tuple[Rows, Rows]:
    """Labeled rows and target rows of a shift."""
    if name in WILDERNESS:
        own, other = (np.flatnonzero(X[:, 10 + area] > X[:, 10 + area].min()) for area in WILDERNESS[name])
        return between(own, other, n, draw)
    if name in (BANK, RED):
        first, last = (FIRST_CALLS, LAST_CALLS) if name == BANK else (RED_SHARE, 1 - RED_SHARE)
        rows = np.arange(len(X))
        return between(rows[: int(first * len(X))], rows[len(X) - int(last * len(X)) :], n, draw)
    return tilted(X, n, draw)


def shift_record(X: Array, y: Labels, n: int, draw: int, name: str) -> Record:
    source, target = split_rows(X, n, draw, name)
    model = trained(X, y, source)
    known = np.bincount(y[target], minlength=2) / len(target)
    common = {"level": LEVEL, "classes": [0, 1]}
    half, held = np.array_split(source, 2)
    other = trained(X, y, half)
    seen = sf.shift(X[source], y[source], X[target])
    found: Record = {
        "true_error": float(np.mean(model.predict(X[target]) != y[target])),
        "half_error": float(np.mean(other.predict(X[target]) != y[target])),
        "crossfit": sf.error_bound(recipe(y[source]), X[source], y[source], **common).value,
        "holdout": sf.error_bound(other, X[held], y[held], method="holdout", **common).value,
        "minimal_radius": seen.minimal_radius,
        "p_value": seen.p_value,
    }
    options = {
        "transport_known": {"label_prior": known},
        "transport": {},
        "transport_source": {"label_prior": "clopper-pearson"},
        "euclidean_known": {"label_prior": known} | EUCLIDEAN,
        "euclidean": EUCLIDEAN,
    }
    for option_name, option in options.items():
        found[option_name] = sf.error_bound(
            model, X[source], y[source], X_target=X[target], certify_options=option | {"tol": 1e-4}, **common
        ).value
    return found


def picked_record(X: Array, y: Labels, n: int, draw: int, name: str) -> Record:
    """Labels drawn as picked.DRAWS says under a name. True errors are those on all 800 rows."""
    rng = np.random.default_rng([draw, n, 8])
    chosen = rng.permutation(len(X))[:ROWS]
    X, y = X[chosen], y[chosen]
    rank, strength, _ = PICKED[name]
    weights = np.exp(strength * ranks(X, y)[rank])
    labeled = rng.choice(len(X), n, replace=False, p=weights / weights.sum())
    rest = np.setdiff1d(np.arange(len(X)), labeled)
    model = trained(X, y, labeled)
    common = {"level": LEVEL, "classes": [0, 1]}
    half, held = np.array_split(labeled, 2)
    other = trained(X, y, half)
    found: Record = {
        "true_error": float(np.mean(model.predict(X) != y)),
        "half_error": float(np.mean(other.predict(X) != y)),
        "crossfit": sf.error_bound(recipe(y[labeled]), X[labeled], y[labeled], **common).value,
        "holdout": sf.error_bound(other, X[held], y[held], method="holdout", **common).value,
    }
    options = {
        "transport": {},
        "transport_free": {"label_prior": None},
        "transport_known": {"label_prior": np.bincount(y, minlength=2) / len(y)},
        "euclidean_free": {"label_prior": None} | EUCLIDEAN,
    }
    for option_name, option in options.items():
        found[option_name] = sf.error_bound(
            model, X[labeled], y[labeled], X_unlabeled=X[rest], method="transport",
            certify_options=option | {"tol": 1e-4}, **common,
        ).value  # fmt: skip
    return found


STUDIES: dict[str, Callable[..., Record]] = {
    "labels": labels_record,
    "transport": transport_record,
    "audit": audit_record,
    "shift": shift_record,
    "picked": picked_record,
}


def run_cell(study: str, name: str, n: int, draws: int, out: Path) -> None:
    """Run the missing samples, and write one line of the file for each."""
    path = out / f"{study}-{name}-{n}.csv"
    done = {int(row["draw"]) for row in read(path)}
    missing = [draw for draw in range(draws) if draw not in done]
    if not missing:
        return
    try:
        X, y = load_shifted(name) if study == "shift" else load(name.partition(".")[0])
    except FileNotFoundError as error:
        print(f"{study} {name}: absent, {error}", flush=True)
        return
    for draw in missing:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a bound holds whatever the gap
            extra = {"shift": {"name": name}, "picked": {"name": name.partition(".")[2]}}.get(study, {})
            record = {"draw": draw} | STUDIES[study](X, y, n, draw, **extra)
        new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(record))
            if new:
                writer.writeheader()
            writer.writerow(record)
    print(f"{study} {name} n={n}: {len(missing)} draws", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", default=",".join(datasets.names(paper_only=True)))
    parser.add_argument("--sizes", default="20,50,100,200")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--transport-draws", type=int, default=20)
    parser.add_argument("--audit-draws", type=int, default=20)
    parser.add_argument("--shift-draws", type=int, default=20)
    parser.add_argument("--picked-draws", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--shifts", default=",".join(SHIFT_NAMES))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--sizes-figure", type=Path)
    asked = parser.parse_args()
    names, sizes = asked.datasets.split(","), [int(n) for n in asked.sizes.split(",")]
    shifted = [name for name in asked.shifts.split(",") if name]
    few = [name for name in names if load(name)[0].shape[1] <= MOST_FEATURES] if asked.picked_draws else []
    if not (asked.table or asked.page):
        asked.out.mkdir(parents=True, exist_ok=True)
        todo = [("labels", name, n, asked.draws) for n in sizes for name in names]
        todo += [("audit", name, 100, asked.audit_draws) for name in names]
        todo += [("transport", name, n, asked.transport_draws) for n in sizes for name in names]
        todo += [("shift", name, SHIFT_SIZE, asked.shift_draws) for name in shifted]
        todo += [("picked", f"{name}.{kind}", PICKED_SIZE, asked.picked_draws) for name in few for kind in PICKED]
        Parallel(n_jobs=asked.jobs)(delayed(run_cell)(*cell, asked.out) for cell in todo if cell[3])
    tables = {
        "labels": bound_table(asked.out, "labels", LABEL_BOUNDS, names, sizes),
        "transport": bound_table(asked.out, "transport", TRANSPORT_BOUNDS, names, sizes),
        "label-shares": interval_table(asked.out, names, sizes),
        "audit": audit_table(asked.out, names),
        "shift": shift_table(asked.out, shifted),
        "picked": picked_table(asked.out, names, list(PICKED)),
    }
    tables = {title: table for title, table in tables.items() if any(len(line) > 1 for line in table)}
    for title, table in tables.items():
        print(f"\n{title}\n\n{markdown_table(table)}")
    if asked.page:
        for page in PAGES:
            made = with_tables(
                page.read_text(encoding="utf-8"),
                lambda title: markdown_table(tables[title]) if title in tables else None,
            )
            page.write_text(made, encoding="utf-8")
    if asked.results is not None:
        lines = all_cells(asked.out, names, sizes, shifted, list(PICKED))
        write_csv(asked.results, merged(asked.results, lines, ("study", "dataset", "n")))
    if asked.figure is not None:
        draw_bounds(asked.out, names, sizes, asked.figure)
    if asked.sizes_figure is not None:
        draw_sizes(asked.sizes_figure)


if __name__ == "__main__":
    main()
