"""Cost against the number of rows N and of anchors n: one fit of the exact solver in blocks, to a gap of 1e-4.

    python benchmarks/scaling.py --out benchmarks/results-scaling.csv [--rows 10000,100000,...] [--anchors 20,100,...]

Two Gaussian classes, 20 features, Clopper–Pearson intervals, an excess radius of 0.01. The rows lie in a .npy file and
are mapped into memory. Each fit is a process of its own; memory is the peak of what it holds beyond its state before the
fit, the file's own pages not counted (RssAnon). Rows that the CSV has are not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FEATURES = 20
FIELDS = ["sweep", "N", "n", "threads", "seconds", "peak_MB", "gap", "minimal_radius_seconds"]

FIT = """
import json, sys, threading, time
import numpy as np
import surefoot as sf

path, n, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
U = np.load(path, mmap_mode="r")
rng = np.random.default_rng(1)
y = rng.integers(0, 2, n)
X = rng.normal(size=(n, U.shape[1]))
X[:, :2] += 1.5 * (2 * y - 1)[:, None]
X /= 6.5

def held():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1e3

def fit(rows, radius):
    return sf.RobustLogisticRegression(radius=radius, n_jobs=threads).fit(X, y, X_unlabeled=rows)

fit(U[:5000], 5.0)  # compiles
start, before, peak, done = time.perf_counter(), held(), [0.0], threading.Event()

def watch():
    while not done.wait(0.05):
        peak[0] = max(peak[0], held())

thread = threading.Thread(target=watch)
thread.start()
least = sf.minimal_radius(X, y, X_unlabeled=U)
middle = time.perf_counter()
found = fit(U, least + 0.01).certificate_
seconds = time.perf_counter() - middle
done.set()
thread.join()
print(json.dumps({"seconds": round(seconds, 2), "peak_MB": round(peak[0] - before, 1), "gap": f"{found.gap:.2e}",
                  "minimal_radius_seconds": round(middle - start, 2)}))
"""


def make_rows(path: Path, N: int) -> None:
    """Rows in a .npy file, written in parts."""
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(N, FEATURES))
    rng = np.random.default_rng(0)
    for start in range(0, N, 1 << 18):
        part = rows[start : start + (1 << 18)]
        y = rng.integers(0, 2, len(part))
        values = rng.normal(size=part.shape)
        values[:, :2] += 1.5 * (2 * y - 1)[:, None]
        part[:] = values / 6.5
    rows.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", default="10000,100000,1000000,10000000")
    parser.add_argument("--anchors", default="20,100,500,1000")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    work = [("N", int(N), 100) for N in asked.rows.split(",") if N]
    work += [("n", 10_000, int(n)) for n in asked.anchors.split(",") if n]
    done = set()
    if asked.out.exists():
        with asked.out.open(encoding="utf-8", newline="") as file:
            done = {
                (line["sweep"], int(line["N"]), int(line["n"]), int(line["threads"])) for line in csv.DictReader(file)
            }
    with asked.out.open("a", encoding="utf-8", newline="") as file, tempfile.TemporaryDirectory() as folder:
        writer = csv.DictWriter(file, FIELDS)
        if not done:
            writer.writeheader()
        for sweep, N, n in work:
            if (sweep, N, n, asked.threads) in done:
                continue
            path = Path(folder) / f"{N}.npy"
            if not path.exists():
                make_rows(path, N)
            command = [sys.executable, "-c", FIT, str(path), str(n), str(asked.threads)]
            found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            writer.writerow({"sweep": sweep, "N": N, "n": n, "threads": asked.threads} | found)
            file.flush()
            print(sweep, N, n, found, flush=True)


if __name__ == "__main__":
    main()
