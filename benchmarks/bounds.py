"""Coverage and size of every bound on the error, on the paper's 14 datasets.

`OPENBLAS_NUM_THREADS=1 python benchmarks/bounds.py --out DIR [--datasets a,b] [--sizes 20,50] [--draws 100]
[--transport-draws 20] [--audit-draws 20] [--shift-draws 20] [--jobs 2]` keeps one record per draw in DIR and goes on
where it stopped; `--table` prints the tables of docs/bounds.md from what is there.

`labels`: n random labels, a logistic regression trained on all of them, its true error over the dataset, and the bounds
that these labels give: cross-fitted, with a control variate, held out (for the classifier trained on half), anytime.
Beside them the intervals of the label shares, plain and assisted. `transport`: the certified error at the calibrated
radius, with label shares known, assisted and by Clopper–Pearson. `audit`: a classifier trained on 100 labels, audited
on up to 3,000 other rows with uniform and with weighted picks. `shift`: labels drawn ∝ exp(v), rows to judge ∝ exp(−v),
v the leading direction; and Cover Type from one wilderness area to another.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parent))
from calibration import LEVEL, Array, Record, columns, drawn, load, read, trained
from common import markdown_table

import surefoot as sf
from surefoot import datasets
from surefoot.priors import Assisted, ClopperPearson, FinitePool

Labels = NDArray[np.intp]
AUDIT_SIZES = (20, 50, 100, 200, 400)
SHIFT_SIZE = 60
SHIFTED = ("abalone", "isolet", "letter-c-e", "magic", "spambase", "wine")
# the wilderness areas of Cover Type are its columns 10 to 13
WILDERNESS = {"covtype-2-3": (2, 3), "covtype-5-6": (0, 2)}


def recipe(y: Labels) -> LogisticRegression | DummyClassifier:
    return DummyClassifier() if len(np.unique(y)) == 1 else LogisticRegression(C=100.0, max_iter=2000)


def fresh_draw(N: int, n: int, draw: int) -> NDArray[np.intp]:
    """Other rows than those of `drawn`: on these the folds and the assisted intervals were settled."""
    return np.random.default_rng([draw, n, 4]).permutation(N)[:n]


def labels_record(X: Array, y: Labels, n: int, draw: int) -> Record:
    labeled = fresh_draw(len(X), n, draw)
    rest = np.setdiff1d(np.arange(len(X)), labeled)
    Xl, yl, U = X[labeled], y[labeled], X[rest]
    clf = recipe(yl)
    found: Record = {"true_error": float(np.mean(trained(X, y, labeled).predict(X) != y))}
    common = {"level": LEVEL, "classes": [0, 1]}
    found["crossfit"] = sf.error_bound(clf, Xl, yl, **common).value
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
        "hypergeometric": FinitePool(len(X)).intervals(counts)[1],
        "assisted": Assisted().for_rows(Xl, yl, 2, U).intervals(counts)[1],
    }
    for name, (lo, hi) in intervals.items():
        found |= {f"{name}_holds": bool(lo <= share <= hi), f"{name}_width": float(hi - lo)}
    return found


def transport_record(X: Array, y: Labels, n: int, draw: int) -> Record:
    labeled = drawn(len(X), n, draw)
    rest = np.setdiff1d(np.arange(len(X)), labeled)
    model = trained(X, y, labeled)
    known = np.bincount(y, minlength=2) / len(y)
    found: Record = {"true_error": float(np.mean(model.predict(X) != y))}
    for name, prior in (("known", known), ("assisted", "assisted"), ("clopper_pearson", "clopper-pearson")):
        options = {"label_prior": prior, "tol": 1e-4}
        bound = sf.error_bound(
            model, X[labeled], y[labeled], X_unlabeled=X[rest], method="transport", level=LEVEL, classes=[0, 1],
            certify_options=options,
        )  # fmt: skip
        found[name] = bound.value
    return found


def audit_record(X: Array, y: Labels, n: int, draw: int) -> Record:
    """Bounds after each of AUDIT_SIZES labels; n, the labels trained on."""
    order = np.random.default_rng([draw, n, 1]).permutation(len(X))
    clf, pool = trained(X, y, order[:n]), order[n : n + 3000]
    found: Record = {"true_error": float(np.mean(clf.predict(X[pool]) != y[pool]))}
    for picks in ("uniform", "weighted"):
        audit = sf.Audit(clf, X[pool], level=LEVEL, picks=picks, classes=[0, 1], random_state=draw)
        for size in AUDIT_SIZES:
            audit.run(lambda row: int(y[pool[row]]), max_labels=size)
            found[f"{picks}_{size}"] = audit.anytime_bound().value
            if picks == "uniform":
                found[f"exact_{size}"] = audit.bound().value
    return found


def tilted(X: Array, y: Labels, n: int, draw: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Labeled rows drawn ∝ exp(v), target rows ∝ exp(−v), v the first principal component, standardised."""
    rng = np.random.default_rng([draw, n, 2])
    centred = X - X.mean(axis=0)
    v = centred @ np.linalg.svd(centred[:2000], full_matrices=False)[2][0]
    v = np.clip(v / v.std(), -3, 3)
    source = rng.choice(len(X), n, replace=False, p=np.exp(v) / np.exp(v).sum())
    weights = np.exp(-v)
    weights[source] = 0.0
    return source, rng.choice(len(X), min(2000, len(X) // 2), replace=False, p=weights / weights.sum())


def areas(X: Array, n: int, draw: int, pair: tuple[int, int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Labeled rows of one wilderness area, target rows of another."""
    rng = np.random.default_rng([draw, n, 3])
    own, other = (np.flatnonzero(X[:, 10 + area] > X[:, 10 + area].min()) for area in pair)
    return rng.choice(own, n, replace=False), rng.choice(other, min(2000, len(other)), replace=False)


def shift_record(X: Array, y: Labels, n: int, draw: int, name: str) -> Record:
    pair = WILDERNESS.get(name)
    source, target = tilted(X, y, n, draw) if pair is None else areas(X, n, draw, pair)
    model = trained(X, y, source)
    known = np.bincount(y[target], minlength=2) / len(target)
    common = {"level": LEVEL, "classes": [0, 1]}
    half, held = np.array_split(source, 2)
    other = trained(X, y, half)
    found: Record = {
        "true_error": float(np.mean(model.predict(X[target]) != y[target])),
        "half_error": float(np.mean(other.predict(X[target]) != y[target])),
        "crossfit": sf.error_bound(recipe(y[source]), X[source], y[source], **common).value,
        "holdout": sf.error_bound(other, X[held], y[held], method="holdout", **common).value,
    }
    for prior_name, prior in (("transport_known", known), ("transport", "clopper-pearson")):
        found[prior_name] = sf.error_bound(
            model, X[source], y[source], X_unlabeled=X[target], method="transport",
            certify_options={"label_prior": prior, "tol": 1e-4}, **common,
        ).value  # fmt: skip
    return found


STUDIES: dict[str, Callable[..., Record]] = {
    "labels": labels_record,
    "transport": transport_record,
    "audit": audit_record,
    "shift": shift_record,
}


def run_cell(study: str, name: str, n: int, draws: int, out: Path) -> None:
    """Do the draws that are missing, one line of the file each."""
    path = out / f"{study}-{name}-{n}.csv"
    done = {int(row["draw"]) for row in read(path)}
    missing = [draw for draw in range(draws) if draw not in done]
    if not missing:
        return
    X, y = load(name)
    for draw in missing:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a bound holds whatever the gap
            extra = {"name": name} if study == "shift" else {}
            record = {"draw": draw} | STUDIES[study](X, y, n, draw, **extra)
        new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(record))
            if new:
                writer.writeheader()
            writer.writerow(record)
    print(f"{study} {name} n={n}: {len(missing)} draws", flush=True)


# the bound, the error that it bounds, and how the table calls it
LABEL_BOUNDS = {
    "crossfit": ("true_error", "cross-fitted"),
    "control_variate": ("true_error", "with control variate"),
    "holdout": ("half_error", "held-out half, population"),
    "holdout_pool": ("half_rest_error", "held-out half, pool"),
    "anytime": ("half_error", "held-out half, anytime"),
}
TRANSPORT_BOUNDS = {
    "known": ("true_error", "shares known"),
    "assisted": ("true_error", "shares assisted"),
    "clopper_pearson": ("true_error", "shares by Clopper-Pearson"),
}
SHIFT_BOUNDS = {
    "crossfit": ("true_error", "cross-fitted"),
    "holdout": ("half_error", "held-out half"),
    "transport_known": ("true_error", "transport, shares known"),
    "transport": ("true_error", "transport"),
}
INTERVALS = ("clopper_pearson", "hypergeometric", "assisted")


def cells(out: Path, study: str, names: list[str], n: int) -> dict[str, dict[str, Array]]:
    found = {name: columns(out, study, name, n) for name in names}
    return {name: cell for name, cell in found.items() if cell is not None}


def bound_table(
    out: Path, study: str, bounds: dict[str, tuple[str, str]], names: list[str], sizes: list[int]
) -> list[Record]:
    """Mean bound; in brackets coverage, on average over datasets and in the least cell."""
    table: list[Record] = []
    at = {n: cells(out, study, names, n) for n in sizes}
    first: Record = {"": "true error"}
    for n in sizes:
        if at[n]:
            first[f"n = {n}"] = f"{np.mean([cell['true_error'].mean() for cell in at[n].values()]):.3f}"
    table.append(first)
    for key, (error, text) in bounds.items():
        line: Record = {"": text}
        for n in sizes:
            if at[n]:
                held = [float(np.mean(cell[key] >= cell[error] - 1e-12)) for cell in at[n].values()]
                size = np.mean([cell[key].mean() for cell in at[n].values()])
                line[f"n = {n}"] = f"{size:.3f} ({np.mean(held):.2f}, {min(held):.2f})"
        table.append(line)
    return table


def interval_table(out: Path, names: list[str], sizes: list[int]) -> list[Record]:
    """Mean width of the intervals of a label share; in brackets their coverage, on average and in the least cell."""
    table: list[Record] = []
    for key in INTERVALS:
        line: Record = {"": key.replace("_", "-")}
        for n in sizes:
            found = cells(out, "labels", names, n).values()
            if found:
                held = [cell[f"{key}_holds"].mean() for cell in found]
                width = np.mean([cell[f"{key}_width"].mean() for cell in found])
                line[f"n = {n}"] = f"{width:.3f} ({np.mean(held):.2f}, {min(held):.2f})"
        table.append(line)
    return table


def audit_table(out: Path, names: list[str]) -> list[Record]:
    found = cells(out, "audit", names, 100)
    table: list[Record] = []
    for kind in ("exact", "uniform", "weighted"):
        line: Record = {"": {"exact": "exact, at a planned number", "uniform": "anytime, uniform picks"}.get(
            kind, "anytime, weighted picks")}  # fmt: skip
        for size in AUDIT_SIZES:
            values = [cell[f"{kind}_{size}"].mean() for cell in found.values()]
            line[f"{size} labels"] = f"{np.mean(values):.3f}" if values else ""
        table.append(line)
    if found:
        error = np.mean([cell["true_error"].mean() for cell in found.values()])
        table.insert(0, {"": f"true error {error:.3f}"})
    return table


def shift_table(out: Path, names: list[str]) -> list[Record]:
    """True error, and each mean bound with its coverage in brackets; covtype from one wilderness area to another."""
    table: list[Record] = []
    for name, cell in cells(out, "shift", names, SHIFT_SIZE).items():
        line: Record = {"dataset": name, "true error": f"{cell['true_error'].mean():.3f}"}
        for key, (error, text) in SHIFT_BOUNDS.items():
            line[text] = f"{cell[key].mean():.3f} ({np.mean(cell[key] >= cell[error] - 1e-12):.2f})"
        table.append(line)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", default=",".join(datasets.paper_names()))
    parser.add_argument("--sizes", default="20,50,100,200")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--transport-draws", type=int, default=20)
    parser.add_argument("--audit-draws", type=int, default=20)
    parser.add_argument("--shift-draws", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    names, sizes = asked.datasets.split(","), [int(n) for n in asked.sizes.split(",")]
    shifted = [name for name in names if name in (*SHIFTED, *WILDERNESS)]
    if not asked.table:
        asked.out.mkdir(parents=True, exist_ok=True)
        todo = [("labels", name, n, asked.draws) for n in sizes for name in names]
        todo += [("audit", name, 100, asked.audit_draws) for name in names]
        todo += [("transport", name, n, asked.transport_draws) for n in sizes for name in names]
        todo += [("shift", name, SHIFT_SIZE, asked.shift_draws) for name in shifted]
        Parallel(n_jobs=asked.jobs)(delayed(run_cell)(*cell, asked.out) for cell in todo if cell[3])
    print("\nlabels\n\n" + markdown_table(bound_table(asked.out, "labels", LABEL_BOUNDS, names, sizes)))
    print("\ntransport\n\n" + markdown_table(bound_table(asked.out, "transport", TRANSPORT_BOUNDS, names, sizes)))
    print("\nlabel shares\n\n" + markdown_table(interval_table(asked.out, names, sizes)))
    print("\naudit\n\n" + markdown_table(audit_table(asked.out, names)))
    print("\nshift\n\n" + markdown_table(shift_table(asked.out, shifted)))


if __name__ == "__main__":
    main()
