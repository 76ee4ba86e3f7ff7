"""Run every default fit and certificate on many problems: seconds, gap, status, and exceptions.

    OPENBLAS_NUM_THREADS=1 python benchmarks/defaults.py --out benchmarks/results-defaults.csv [--seconds 240]

The problems are the paper's 14 datasets (2,000 random rows, n of them labeled), a seeded grid of random shapes, and
some problems that were once slow ("hard": many features and classes, equal rows, 200,000 rows on 216 points). Every
call in `ASKED` runs on every problem. Lines that the file already contains are not run again. `--seconds` ends a run
after that time, and the next run continues it. `--only` selects problems by a word in their names. `--draws` and
`--shapes` set their number, and `--every 8` takes every eighth of them. `seconds` is processor time on one thread,
which excludes other programs. A call that exceeds `--limit` is ended, and its line contains "timeout". `--summary`
prints the table of the file.
"""

from __future__ import annotations

import argparse
import csv
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from common import Array, Row, markdown_table
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import surefoot as sf
from surefoot import datasets

FIELDS = ["problem", "family", "N", "n", "d", "K", "asked", "seconds", "wall_seconds", "gap", "status", "stages"]
FIELDS += ["exception"]
FAMILIES = ("gaussian", "heavy tails", "one-hot", "duplicated", "noise", "separable")
LABELED, DRAWS, SHAPES, ROWS = (20, 50, 100), 5, 200, 2000


@dataclass(frozen=True)
class Problem:
    """Labeled rows, unlabeled rows, and the name that identifies the lines of the file."""

    name: str
    family: str
    X: Array
    y: Any
    U: Array


def fitted(**parameters: Any) -> Callable[[Problem], Any]:
    """The certificate of a fit with these parameters."""

    def ask(problem: Problem) -> Any:
        clf = sf.RobustLogisticRegression(**parameters)
        return clf.fit(problem.X, problem.y, X_unlabeled=problem.U).certificate_

    return ask


def certified(problem: Problem) -> Any:
    """The certificate of a plain logistic regression at the calibrated radius."""
    clf = make_pipeline(StandardScaler(), LogisticRegression()).fit(problem.X, problem.y)
    return sf.certify(clf, problem.X, problem.y, X_unlabeled=problem.U, radius="calibrated")


ASKED: dict[str, Callable[[Problem], Any]] = {
    "fit, defaults": fitted(),
    "fit, radius auto": fitted(radius="auto"),
    "fit, radius calibrated": fitted(radius="calibrated"),
    "certify, radius calibrated": certified,
}


def of_dataset(name: str, n: int, seed: int) -> Problem:
    """Random rows of a dataset with n labels. If they show one class, the last one shows another."""
    data = datasets.load(name)
    rows = np.random.default_rng(seed).permutation(len(data.target))[:ROWS]
    if len(np.unique(data.target[rows[:n]])) == 1:
        other = np.flatnonzero(data.target[rows] != data.target[rows[0]])[0]
        rows[[n - 1, other]] = rows[[other, n - 1]]
    X, y = data.data[rows], data.target[rows]
    return Problem(f"{name} n={n} draw {seed}", "dataset", X[:n], y[:n], X[n:])


def of_shape(seed: int) -> Problem:
    """A random shape and family; labels of all K classes are among the labeled rows."""
    rng = np.random.default_rng([16, seed])
    family = FAMILIES[seed % len(FAMILIES)]
    N, n = (int(np.exp(rng.uniform(np.log(low), np.log(high)))) for low, high in ((100, 3000), (5, 100)))
    d, K = int(np.exp(rng.uniform(np.log(2), np.log(300)))), int(rng.integers(2, 6))
    n, N = max(n, K), max(N, 2 * n)
    y = np.concatenate([rng.permutation(K), rng.choice(K, size=N - K, p=rng.dirichlet(np.full(K, 5.0)))])
    centres = rng.normal(size=(K, d)) * 2.0 / np.sqrt(d)
    if family == "gaussian":
        X = centres[y] + rng.normal(size=(N, d))
    elif family == "heavy tails":
        X = centres[y] + rng.standard_t(1.5, size=(N, d))
    elif family == "one-hot":
        values = rng.integers(0, 4, size=(N, max(1, d // 4))) ^ (y[:, None] * (rng.random((N, max(1, d // 4))) < 0.3))
        X = (values[:, :, None] % 4 == np.arange(4)).reshape(N, -1).astype(float)
    elif family == "duplicated":
        few = rng.normal(size=(max(5, N // 20), d))
        X = few[rng.integers(len(few), size=N)]
        y = np.where(rng.random(N) < 0.8, (X @ centres.T).argmax(axis=1), y)
        y[:K] = np.arange(K)
    elif family == "noise":
        X = rng.normal(size=(N, d))
    else:
        X = 6.0 * np.sqrt(d) * centres[y] + rng.normal(size=(N, d))
    return Problem(f"shape {seed}", family, X[:n], y[:n], X[n:])


def of_hard_case(name: str) -> Problem:
    """Problems that took minutes.

    Thirteen equal rows of four classes; 300 features, five classes, 3,000 rows; 200,000 rows on a grid of 216 points.
    """
    rng = np.random.default_rng(7)
    if name == "grid":
        X = rng.integers(6, size=(200_000, 3)).astype(float)
        y = (X[:50].sum(axis=1) + rng.normal(size=50) > 7.5).astype(int)
        return Problem(f"hard: {name}", "hard", X[:50], y, X[50:])
    if name == "equal rows":
        return Problem(f"hard: {name}", "hard", np.zeros((13, 2)), np.arange(13) % 4, np.zeros((7, 2)))
    y = np.concatenate([np.arange(5), rng.integers(5, size=2995)])
    X = rng.normal(size=(5, 300))[y] * 0.15 + rng.normal(size=(3000, 300))
    return Problem(f"hard: {name}", "hard", X[:60], y[:60], X[60:])


def problems(draws: range, shapes: range) -> Iterator[tuple[str, Callable[[], Problem]]]:
    """Names of all problems, and how to make each."""
    for seed in draws:
        for name in datasets.names(paper_only=True):
            for n in LABELED:
                yield f"{name} n={n} draw {seed}", lambda name=name, n=n, seed=seed: of_dataset(name, n, seed)
    for seed in shapes:
        yield f"shape {seed}", lambda seed=seed: of_shape(seed)
    for name in ("equal rows", "wide, five classes", "grid"):
        yield f"hard: {name}", lambda name=name: of_hard_case(name)


class TooLongError(Exception):
    """A call took longer than the limit."""


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TooLongError


def measure(problem: Problem, asked: str, limit: float) -> Row:
    """One line of the file."""
    line: Row = {"problem": problem.name, "family": problem.family, "N": len(problem.X) + len(problem.U)}
    line |= {"n": len(problem.X), "d": problem.X.shape[1], "K": len(np.unique(problem.y)), "asked": asked}
    begun, busy = time.perf_counter(), time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ASKED[asked](problem)
        line |= {"gap": f"{found.gap:.2e}", "status": found.status, "stages": "; ".join(found.stages)}
    except TooLongError:
        line["status"] = "timeout"
    except Exception as error:  # noqa: BLE001 - the benchmark counts all of them
        where = traceback.extract_tb(error.__traceback__)[-1]
        line |= {"status": "exception", "exception": f"{type(error).__name__}: {error} ({where.name})"}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    line["seconds"] = f"{time.process_time() - busy:.3f}"
    return line | {"wall_seconds": f"{time.perf_counter() - begun:.3f}"}


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summary(lines: list[dict[str, str]]) -> str:
    """Quantiles of the seconds by call, for each kind of problem, and how the calls ended."""
    rows, kinds = [], {"dataset": "datasets", "hard": "hard"}
    for asked in ASKED:
        for kind in ("datasets", "shapes", "hard"):
            here = [one for one in lines if kinds.get(one["family"], "shapes") == kind]
            mine = [one for one in here if one["asked"] == asked]
            if mine:
                seconds = np.array([float(one["seconds"]) for one in mine])
                median, late = np.quantile(seconds, [0.5, 0.95])
                row: Row = {"call": asked, "problems": kind, "calls": len(mine), "median": f"{median:.2f}"}
                row |= {"95 %": f"{late:.2f}", "worst": f"{seconds.max():.1f}"}
                for status in ("stopped", "timeout", "exception"):
                    row[status] = sum(one["status"] == status for one in mine)
                rows.append(row)
    return markdown_table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=np.inf)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--asked", default="")
    parser.add_argument("--draws", type=int, nargs=2, default=(0, DRAWS), metavar=("FIRST", "END"))
    parser.add_argument("--shapes", type=int, nargs=2, default=(0, SHAPES), metavar=("FIRST", "END"))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--summary", action="store_true")
    asked = parser.parse_args()
    begun, lines = time.monotonic(), read(asked.out)
    if asked.summary:
        print(summary(lines))
        return
    done = {(line["problem"], line["asked"]) for line in lines}
    signal.signal(signal.SIGVTALRM, _too_long)
    fitted(radius="auto")(of_shape(0))  # compiles, and loads what is loaded once
    with asked.out.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=FIELDS, restval="", lineterminator="\n")
        if not lines:
            writer.writeheader()
        for name, make in islice(problems(range(*asked.draws), range(*asked.shapes)), 0, None, asked.every):
            todo = [one for one in ASKED if (name, one) not in done and asked.asked in one]
            if not todo or asked.only not in name:
                continue
            problem = make()
            for one in todo:
                writer.writerow(measure(problem, one, asked.limit))
                file.flush()
            if time.monotonic() - begun > asked.seconds:
                break


if __name__ == "__main__":
    main()
