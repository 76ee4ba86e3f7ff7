"""Time and memory of `surefoot fit`: python benchmarks/cli.py [--rows N] [--columns D] [--labels n].

The file is generated. Half of the columns are normal, and some are shifted by class, skewed, or have missing cells.
Three columns have categories. Each command runs in a new process, as for a user.

--tables times `fit` on tables of several sizes and numbers of classes instead, imports and report included.
--tolerances compares predictions of the cross-validation at several gaps of its fits, on the smaller of these tables.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def make_pool(path: Path, n_rows: int, n_columns: int, n_labels: int, seed: int) -> None:
    import pandas as pd

    rng = np.random.default_rng(seed)
    churn = rng.random(n_rows) < 0.3
    numbers = rng.normal(size=(n_rows, n_columns - 3))
    numbers[:, :5] += 1.2 * churn[:, None]
    numbers[:, 5:8] = np.exp(0.5 * numbers[:, 5:8])
    numbers[:, 8:10][rng.random((n_rows, 2)) < 0.05] = np.nan
    frame = pd.DataFrame(numbers.round(4), columns=[f"x{i}" for i in range(n_columns - 3)])
    frame["plan"] = rng.choice(["basic", "plus", "max"], n_rows)
    frame["region"] = rng.choice([f"r{i}" for i in range(12)], n_rows)
    frame["device"] = np.where(churn, rng.choice(["phone", "web"], n_rows), rng.choice(["web", "tv"], n_rows))
    labels = np.full(n_rows, None, dtype=object)
    shown = rng.choice(n_rows, n_labels, replace=False)
    labels[shown] = np.where(churn[shown], "yes", "no")
    frame["churn"] = labels
    frame.to_csv(path, index=False)


# Rows, columns, classes and labels of generated tables.
SIZES = [(500, 8, 2, 60), (2000, 15, 3, 150), (4000, 25, 5, 300), (10_000, 56, 7, 400), (50_000, 30, 2, 200)]
SIZES += [(189, 500, 7, 120)]
TOLERANCES = (1e-3, 1e-2, 3e-2)


def make_table(path: Path, n_rows: int, n_columns: int, n_classes: int, n_labels: int, seed: int) -> None:
    """Normal columns, five of them shifted by class, and two columns with categories."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    codes = rng.choice(n_classes, n_rows)
    centers = 1.2 * rng.normal(size=(n_classes, n_columns)) * (np.arange(n_columns) < 5)
    numbers = rng.normal(size=(n_rows, n_columns)) + centers[codes]
    frame = pd.DataFrame(numbers.round(4), columns=[f"x{i}" for i in range(n_columns)])
    frame["plan"] = rng.choice(["basic", "plus", "max"], n_rows)
    frame["region"] = rng.choice([f"r{i}" for i in range(12)], n_rows)
    labels = np.full(n_rows, None, dtype=object)
    shown = rng.choice(n_rows, n_labels, replace=False)
    labels[shown] = [f"k{code}" for code in codes[shown]]
    frame["churn"] = labels
    frame.to_csv(path, index=False)


def time_tables(folder: Path, seed: int) -> None:
    """Seconds of `fit` by size, with its bound on the error rate."""
    print("rows × columns × classes, labels         time        CPU   bound")
    for n_rows, n_columns, n_classes, n_labels in SIZES:
        path = folder / f"t{n_rows}.csv"
        make_table(path, n_rows, n_columns, n_classes, n_labels, seed)
        fit = [sys.executable, "-m", "surefoot.cli", "fit", str(path), "--label", "churn", "--json"]
        seconds, spent, _, printed = measured([*fit, "--out", str(folder / "model.skops"), "--force"])
        found = [bound["value"] for bound in json.loads(printed)["bounds"]]
        size = f"{n_rows} × {n_columns} × {n_classes}, {n_labels}"
        print(f"{size:<36}{seconds:7.1f} s {spent:8.1f} s   {found[0] if found else float('nan'):.3f}", flush=True)


def compare_tolerances(folder: Path, seed: int) -> None:
    """How many predictions of the cross-validation change with the gap of its fits."""
    import surefoot as sf
    from surefoot.pool.model import sampled
    from surefoot.pool.table import clean, read_labeled_table
    from surefoot.pool.training import LabeledTable, learned_metric

    class ToTheGap(sf.RobustLogisticRegression):
        """Fits of the cross-validation stop at `tol`, whatever it is."""

        _tol_of_folds = 0.0

    for n_rows, n_columns, n_classes, n_labels in SIZES[:3]:
        path = folder / "t.csv"
        make_table(path, n_rows, n_columns, n_classes, n_labels, seed)
        pool = clean(read_labeled_table(path, "churn"))
        start = LabeledTable.from_pool(pool, np.zeros(len(pool.rows), dtype=bool))
        rest = sf.Unlabeled(sampled(start, 1000, 0).rest)
        first: np.ndarray | None = None
        for tol in TOLERANCES:
            clf = ToTheGap(metric=learned_metric(pool), classes=start.classes, tol=tol)
            began = time.process_time()
            found = sf.error_bound(clf, start.rows, start.y, X_unlabeled=rest, classes=start.classes, n_jobs=-1)
            spent, predicted = time.process_time() - began, np.asarray(found.predicted)
            first = predicted if first is None else first
            changed = int((predicted != first).sum())
            print(f"{n_rows} rows, gap {tol:g}: {spent:.1f} s of CPU, {changed} of {n_labels} predictions change")


def measured(arguments: list[str]) -> tuple[float, float, float, str]:
    """Seconds, processor seconds, peak memory in GiB, and standard output of one command."""
    program = (
        "import json, resource, subprocess, sys, time\n"
        "start = time.perf_counter()\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True, check=False)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "spent = [time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20]\n"
        "print(json.dumps([*spent, done.returncode, done.stdout]))"
    )
    result = subprocess.run([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    seconds, spent, peak, code, printed = json.loads(result.stdout)
    if code:
        raise SystemExit(f"{' '.join(arguments)} ended with {code}: {printed}")
    return seconds, spent, peak, printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tables", action="store_true", help="time fit on tables of several sizes")
    parser.add_argument("--tolerances", action="store_true", help="compare gaps of the fits of the cross-validation")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.tables or asked.tolerances:
            (time_tables if asked.tables else compare_tolerances)(Path(folder), asked.seed)
            return
        pool = Path(folder) / "pool.csv"
        start = time.perf_counter()
        make_pool(pool, asked.rows, asked.columns, asked.labels, asked.seed)
        print(f"pool: {pool.stat().st_size / 2**20:.0f} MiB, made in {time.perf_counter() - start:.1f} s")
        command = [sys.executable, "-m", "surefoot.cli"]
        model = str(Path(folder) / "model.skops")
        for name, arguments in {
            "fit, no report": ["fit", str(pool), "--label", "churn", "--out", model, "--no-report", "--json"],
            "fit": ["fit", str(pool), "--label", "churn", "--out", model, "--json"],
            "predict": ["predict", model, str(pool), "--out", str(Path(folder) / "new.csv"), "--json"],
        }.items():
            seconds, spent, peak, printed = measured([*command, *arguments])
            risk = json.loads(printed).get("certificate", {}).get("risk")
            print(f"{name:<16}{seconds:8.1f} s {spent:8.1f} s of CPU {peak:8.2f} GiB   risk {risk}", flush=True)


if __name__ == "__main__":
    main()
