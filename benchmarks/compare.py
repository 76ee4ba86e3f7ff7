"""Compare the speed of two versions of surefoot in one run.

    python benchmarks/compare.py BEFORE/src AFTER/src [--quick] [--only NAME ...]

Each line is timed in fresh processes that alternate between the two source trees and use public names only. The
smallest time counts, because other work on the machine only adds time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, sys, time, warnings
import numpy as np
import surefoot as sf
from sklearn.ensemble import RandomForestClassifier
warnings.simplefilter("ignore")
name, quick = sys.argv[1], sys.argv[2] == "1"
N, n, d = (1500, 30, 10) if quick else (10_000, 1000 if "n=1000" in name else 100, 54)
rng = np.random.default_rng(0)
y = rng.integers(0, 2, N)
X = rng.normal(size=(N, d))
X[:, :4] += 0.8 * (2 * y - 1)[:, None]
X /= np.abs(X).max()
L, U, labels = X[:n], X[n:], y[:n]
prior = [1 - y.mean(), y.mean()]
least = sf.minimal_radius(L, labels, X_unlabeled=U, label_prior=prior)
forest = RandomForestClassifier(50, random_state=0).fit(L, labels)

def learn():
    sf.RobustLogisticRegression(least + 0.01, prior).fit(L, labels, X_unlabeled=U)

def certify(loss):
    sf.certify(forest, L, labels, X_unlabeled=U, radius=least + 0.01, label_prior=prior, loss=loss)

def scores():
    impact = np.random.default_rng(1).random((len(U), 2))
    sf.active.robust_model_change(impact, L, labels, X_unlabeled=U, margin=0.1 / N, label_prior=prior)

def path():
    sf.radius_curve(sf.RobustLogisticRegression(label_prior=prior), L, labels, X_unlabeled=U, n_radii=8)

def blocks():
    M = 50_000 if quick else 1_000_000
    rows = np.random.default_rng(2).normal(size=(M, 20)) / 6.5
    clf = sf.RobustLogisticRegression(2.0, None, compute=sf.Compute(), n_jobs=2)
    clf.fit(rows[:100], np.arange(100) % 2, X_unlabeled=rows)

work = {"learn": learn, "learn n=1000": learn, "certify log_loss": lambda: certify("log_loss"),
        "certify zero_one": lambda: certify("zero_one"), "scores": scores, "path": path, "blocks 1e6": blocks}[name]
small = np.random.default_rng(3).normal(size=(300, 3))
sf.RobustLogisticRegression(1.0).fit(small[:20], np.arange(20) % 2, X_unlabeled=small)  # compile
times = []
for _ in range(1 if name in ("learn n=1000", "blocks 1e6", "path") else 3):
    start = time.perf_counter()
    work()
    times.append(time.perf_counter() - start)
print(json.dumps(min(times)))
"""
NAMES = ("learn", "certify log_loss", "certify zero_one", "scores", "path", "learn n=1000", "blocks 1e6")


def seconds(source: Path, name: str, quick: bool) -> float:
    """The work of one line with the version at `source`."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, name, str(int(quick))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout))


def main() -> None:
    """Print a Markdown table of both versions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--quick", action="store_true", help="small problems: a smoke test of the benchmark itself")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=NAMES)
    arguments = parser.parse_args()
    print("| work | before | after | after / before |\n|---|---|---|---|", flush=True)
    for name in arguments.only:
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(arguments.repeat):
            for found, source in zip(times, (arguments.before, arguments.after), strict=True):
                found.append(seconds(source, name, arguments.quick))
        before, after = (min(found) for found in times)
        print(f"| {name} | {before:.2f} s | {after:.2f} s | {after / before:.2f} |", flush=True)


if __name__ == "__main__":
    main()
