"""Measure two choices of `surefoot.active`: the default margin of the robust scores, and how batches avoid repeats.

    python benchmarks/active_choices.py --out benchmarks/results-active-choices.csv [--trials 10] [--datasets wine,...]

Each line compares a choice with a baseline on one dataset. It has the mean difference of the area under the likelihood
curve (20 to 100 labels, in points of 100) over trials that start from the same rows, and its standard error. The
baseline of a margin is Min MC over the same number of candidates, which is DR with any margin from 2κ/N on. The
baseline of batches is the ten best rows. Lines that the file already contains are not run again.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import surefoot.active as al
from surefoot import datasets
from surefoot.active.impact import logistic_impact, min_model_change

MARGINS = (0.01, 0.03, 0.1)  # in units of κ/N
CANDIDATES = 100  # the paper's
BATCH = 10
DATASETS = ("wine", "letter-c-e", "letter-u-v", "abalone", "spambase")


class Line(NamedTuple):
    """One comparison: areas in points, difference to the baseline with its standard error."""

    study: str
    dataset: str
    variant: str
    trials: int
    area: str
    difference: str
    error: str


def top_rows(clf: Any, X: NDArray[np.float64]) -> NDArray[np.intp]:
    """The ten rows of largest Min MC score, repeats or not."""
    return np.argsort(-min_model_change(logistic_impact(clf, X)))[:BATCH]


def areas(strategy: Any, data: Any, trials: int, batch_size: int = 1) -> NDArray[np.float64]:
    clf = LogisticRegression(C=500.0, max_iter=5000)  # the sum of losses plus 0.001‖θ‖²
    run = al.simulate(strategy, clf, data.data, data.target, batch_size=batch_size, n_trials=trials, n_jobs=1)
    return 100.0 * run.areas


def line(study: str, dataset: str, variant: str, found: NDArray[np.float64], base: NDArray[np.float64]) -> Line:
    diff = found - base
    error = diff.std(ddof=1) / np.sqrt(len(diff)) if len(diff) > 1 else np.nan
    return Line(study, dataset, variant, len(diff), f"{found.mean():.2f}", f"{diff.mean():+.2f}", f"{error:.2f}")


def compare(dataset: str, trials: int, done: set[tuple[str, str, str]]) -> Any:
    """Yield the lines of one dataset that are not done."""
    data = datasets.load(dataset)
    prior = np.bincount(np.unique(data.target, return_inverse=True)[1]) / len(data.target)
    base = areas(al.MinModelChange(max_candidates=CANDIDATES), data, trials)
    if ("margin", dataset, "Min MC") not in done:
        yield line("margin", dataset, "Min MC", base, base)
    for units in MARGINS:
        if ("margin", dataset, f"{units} κ/N") not in done:
            robust = al.RobustModelChange(prior, units / len(data.data), max_candidates=CANDIDATES)
            yield line("margin", dataset, f"{units} κ/N", areas(robust, data, trials), base)
    if ("batch", dataset, "spread") not in done:
        top = areas(top_rows, data, trials, BATCH)
        yield line("batch", dataset, "ten best", top, top)
        yield line("batch", dataset, "spread", areas(al.MinModelChange(), data, trials, BATCH), top)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    asked = parser.parse_args()
    done: set[tuple[str, str, str]] = set()
    if asked.out.exists():
        with asked.out.open(encoding="utf-8", newline="") as file:
            done = {(row["study"], row["dataset"], row["variant"]) for row in csv.DictReader(file)}
    with asked.out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if not done:
            writer.writerow(Line._fields)
        for dataset in asked.datasets.split(","):
            for found in compare(dataset, asked.trials, done):
                writer.writerow(found)
                file.flush()
                print(*found)


if __name__ == "__main__":
    main()
