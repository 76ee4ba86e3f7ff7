"""Measure how many rows annotators label until a table is finished with at most 5 % wrong labels.

    OPENBLAS_NUM_THREADS=1 python benchmarks/finish.py [--out benchmarks/results-finish.csv] [--draws 100]

Each dataset is a table of up to 3,000 rows. A logistic regression learns from `learn` labels, and `sample` random rows
judge it (`Audit.finish`, at a number of labels that was fixed beforehand). A line has the rows that annotators label in
all, as a share of the table, how often at most 5 % of the labels were wrong, and beside them the error rate that the
same labels prove for the model alone. The labels to learn from are random rows, or those at which the classes of the
model are closest (`margin`, ten at a time from 20 on). Lines that the file already contains are not run
again. At the end the tables of docs/finish.md are written from the file.

    OPENBLAS_NUM_THREADS=1 python benchmarks/finish.py --rounds [--draws 20]

Compare one round with two, both with 90 % confidence in all and the default sizes of the sample. In the second round
a model learns from all labels, is frozen again and judged by a new sample. The rounds share the confidence as the
audits of `ProvenLabeling` do. A second round begins if the first one leaves more rows than a new sample has: at once,
or after half of these rows are labeled.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import ROOT, markdown_table, with_tables

import surefoot as sf
from surefoot import datasets
from surefoot.bounds.engine import level_of
from surefoot.pool.finishing import sample_size

RESULTS, PAGE = ROOT / "benchmarks" / "results-finish.csv", ROOT / "docs" / "finish.md"

MAX_ERROR, LEVEL, ROWS = 0.05, 0.9, 3000
# Labels to learn from, and of the sample.
PLANS = ((60, 60), (100, 60), (100, 100), (100, 150))
RANDOM, MARGIN = "random", "margin"


class Line(NamedTuple):
    """One plan on one dataset: means over the draws. `labeled` is a share of the rows."""

    dataset: str
    rows: int
    learning: str
    learn: int
    sample: int
    draws: int
    labeled: str
    median: str
    held: str
    plain_bound: str
    wrong: str


def table(name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Up to 3,000 rows of a dataset, always the same."""
    data = datasets.load(name)
    keep = np.random.default_rng(0).permutation(len(data.data))[:ROWS]
    return np.asarray(data.data, dtype=np.float64)[keep], np.asarray(data.target)[keep]


def model() -> Any:
    return LogisticRegression(C=500.0, max_iter=5000)  # the sum of losses plus 0.001‖θ‖²


def labels_to_learn(X: NDArray[np.float64], y: NDArray[Any], n: int, how: str, seed: int) -> NDArray[np.intp]:
    """Rows whose labels teach the model; two classes are among them."""
    order = np.random.default_rng(seed).permutation(len(y))
    first = 20 if how == MARGIN else n
    while len(np.unique(y[order[:first]])) < 2:
        first += 1
    chosen = order[:first].tolist()
    while len(chosen) < n:
        proba = np.sort(model().fit(X[chosen], y[chosen]).predict_proba(X), axis=1)
        margin = proba[:, -1] - proba[:, -2]
        margin[chosen] = np.inf
        chosen += np.argsort(margin, kind="stable")[: min(10, n - len(chosen))].tolist()
    return np.array(chosen)


def finish(
    X: NDArray[np.float64], y: NDArray[Any], plan: tuple[int, int], how: str, seed: int, max_error: float = MAX_ERROR
) -> tuple[float, ...]:
    """Share of the rows that annotators label, share of wrong labels, and the bound on the model alone."""
    rows = labels_to_learn(X, y, plan[0], how, seed)
    known = np.full(len(y), None, dtype=object)
    known[rows] = y[rows]
    clf = model().fit(X[rows], y[rows])
    audit = sf.Audit(clf, X, known, n_labels=plan[1], classes=np.unique(y), level=LEVEL, random_state=seed)
    found = audit.run(lambda row: y[row]).finish(max_error)
    wrong = (clf.predict(X[found.model_rows]) != y[found.model_rows]).sum() if found.n_model else 0
    return (len(y) - found.n_model) / len(y), wrong / len(y), audit.bound().value


def in_rounds(
    X: NDArray[np.float64], y: NDArray[Any], seed: int, *, rounds: int, extra: float = 0.0
) -> tuple[float, float]:
    """Share of the rows that annotators label, and of wrong labels, where the model may be frozen again.

    extra : share of the rows that a round leaves which are labeled before the next round, the least sure ones first.
    """
    labeled = labels_to_learn(X, y, 100, RANDOM, seed)
    for number in range(1, rounds + 1):
        level = LEVEL if rounds == 1 else level_of(LEVEL, number)
        clf = model().fit(X[labeled], y[labeled])
        known = np.full(len(y), None, dtype=object)
        known[labeled] = y[labeled]
        size = sample_size(len(y), len(labeled), MAX_ERROR, level)
        audit = sf.Audit(clf, X, known, n_labels=size, classes=np.unique(y), level=level, random_state=seed + number)
        found = audit.run(lambda row: y[row]).finish(MAX_ERROR)
        after = sample_size(len(y), len(labeled) + size, MAX_ERROR, level_of(LEVEL, number + 1))
        if number == rounds or len(found.rows) <= after:
            wrong = (clf.predict(X[found.model_rows]) != y[found.model_rows]).sum() if found.n_model else 0
            return (len(y) - found.n_model) / len(y), wrong / len(y)
        labeled = np.concatenate([labeled, list(audit.labels), found.rows[: int(extra * len(found.rows))]])
    raise RuntimeError("a round is the last one")


def compare_rounds(names: list[str], draws: int) -> None:
    """Print the rows that annotators label in one round, in two, and in two after a half of the rows left."""
    plans = ({"rounds": 1}, {"rounds": 2}, {"rounds": 2, "extra": 0.5})
    means = []
    for name in names:
        X, y = table(name)
        runs = [np.array([in_rounds(X, y, seed, **plan) for seed in range(draws)]) for plan in plans]
        means.append([found[:, 0].mean() for found in runs])
        held = [f"{(found[:, 1] <= MAX_ERROR + 1e-9).mean():.0%}" for found in runs]
        print(name, *[f"{share:.1%}" for share in means[-1]], "held", *held, flush=True)
    print("mean", *[f"{share:.1%}" for share in np.mean(means, axis=0)])


def lines(name: str, draws: int, done: set[tuple[str, ...]]) -> Any:
    X, y = table(name)
    for how in (RANDOM, MARGIN):
        for learn, sample in PLANS:
            if (name, how, str(learn), str(sample), str(draws)) in done:
                continue
            runs = np.array([finish(X, y, (learn, sample), how, seed) for seed in range(draws)])
            labeled, wrong, bound = runs.T
            yield Line(
                name, len(y), how, learn, sample, draws,
                f"{labeled.mean():.3f}", f"{np.median(labeled):.3f}", f"{(wrong <= MAX_ERROR + 1e-9).mean():.2f}",
                f"{bound.mean():.3f}", f"{wrong.mean():.4f}",
            )  # fmt: skip


def make_table(name: str) -> str:
    """A table of docs/finish.md, from the file of results."""
    with RESULTS.open(newline="") as file:
        found = list(csv.DictReader(file))
    if name == "finish-plans":
        return markdown_table([_mean(found, learn, sample) for learn, sample in PLANS])
    chosen = [one for one in found if (one["learn"], one["sample"]) == ("100", "100")]
    at = {(one["dataset"], one["learning"]): one for one in chosen}
    rows = []
    for dataset in dict.fromkeys(one["dataset"] for one in chosen):
        row = {"dataset": dataset, "rows": at[dataset, RANDOM]["rows"]}
        for how in (RANDOM, MARGIN):
            one = at[dataset, how]
            row |= {f"labeled, {how}": f"{float(one['labeled']):.0%}", f"held, {how}": f"{float(one['held']):.0%}"}
        rows.append(row | {"proved for the model alone": f"{float(at[dataset, RANDOM]['plain_bound']):.1%}"})
    return markdown_table(rows)


def _mean(found: list[dict[str, str]], learn: int, sample: int) -> dict[str, str]:
    """Means over the datasets of one plan."""
    row = {"labels to learn from": str(learn), "sample": str(sample)}
    for how in (RANDOM, MARGIN):
        plan = [
            one for one in found if (one["learning"], one["learn"], one["sample"]) == (how, str(learn), str(sample))
        ]
        for column, text in (("labeled", "labeled"), ("held", "held")):
            row[f"{text}, {how}"] = f"{np.mean([float(one[column]) for one in plan]):.0%}"
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--rounds", action="store_true")
    parser.add_argument("--datasets", default=",".join(datasets.names(paper_only=True)))
    chosen = parser.parse_args()
    if chosen.rounds:
        compare_rounds(chosen.datasets.split(","), chosen.draws)
        return
    done = set()
    if chosen.out.exists():
        with chosen.out.open(newline="") as file:
            found = list(csv.DictReader(file))
        done = {(one["dataset"], one["learning"], one["learn"], one["sample"], one["draws"]) for one in found}
    new = not done
    with chosen.out.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(Line._fields)
        for name in chosen.datasets.split(","):
            for line in lines(name, chosen.draws, done):
                writer.writerow(line)
                file.flush()
                print(*line)
    if chosen.out.resolve() == RESULTS:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), make_table), encoding="utf-8")


if __name__ == "__main__":
    main()
