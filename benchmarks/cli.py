"""Time and memory of `surefoot fit` on a large pool: python benchmarks/cli.py [--rows N] [--columns D] [--labels n].

The file is generated. Half of the columns are normal, and some are shifted by class, skewed, or have missing cells.
Three columns have categories. Each command runs in a new process, as for a user.
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
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
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
