"""Measure how many labels prove an error rate, and how many finish a table, beside the best fixed plan in hindsight.

    OPENBLAS_NUM_THREADS=1 python benchmarks/proof.py [--out benchmarks/results-proof.csv] [--draws 10]
    OPENBLAS_NUM_THREADS=1 python benchmarks/proof.py --demo [--draws 10]
    OPENBLAS_NUM_THREADS=1 python benchmarks/proof.py --page [--draws 10]

Each dataset is a table of up to 3,000 rows, and targets are 5 % and 10 %. "demo" is the table of the demonstration.
`proved` is the number of labels of `ProvenLabeling` with a logistic regression and random rows; a run stops at `MOST`
labels. `hindsight` is the cheapest of fixed plans, learn from n random labels and audit until proved, chosen by its
mean over the draws; a plan that does not prove the target within `MOST` labels counts as `MOST`. Where no plan does in
half of the draws, `ProvenLabeling` is not run. `finished` is the number of labels that finish the table with the labels
to learn from and the sample that `surefoot finish` takes by default. Medians over the draws. Lines that the file
contains are not run again.

With --demo, robots run `surefoot finish` on the table of `surefoot serve --demo` (569 rows), from no label on. With
--page, robots label at the service behind its page, three rows while a model is trained, until the target is proved.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import ROOT
from finish import RANDOM, finish, labels_to_learn, model, table

import surefoot as sf
import surefoot.active as al
from surefoot import datasets
from surefoot.pool.finishing import sample_size

DEMO = "demo"
LEVEL, TARGETS, MOST = 0.9, (0.05, 0.1), 800
LEARN = (20, 40, 80, 160, 320)


class Line(NamedTuple):
    """One dataset and target: median labels over the draws, "-" where most runs end without a proof."""

    dataset: str
    rows: int
    target: float
    draws: int
    proved: str
    share_proved: str
    hindsight: str
    plan: str
    finished: str
    finish_held: str


def proven(X: NDArray[np.float64], y: NDArray[Any], target: float, seed: int) -> int | None:
    """Labels of `ProvenLabeling`; None if nothing is proved by `MOST`."""
    labeling = al.ProvenLabeling(
        model(), X, target_error=target, level=LEVEL, strategy=al.RandomSampling(random_state=seed),
        classes=np.unique(y), random_state=seed,
    )  # fmt: skip
    while (question := labeling.next()) is not None and len(labeling.labels) < MOST:
        labeling.record(question.row, y[question.row])
    return len(labeling.labels) if labeling.proved else None


def fixed(X: NDArray[np.float64], y: NDArray[Any], target: float, n: int, seed: int) -> int:
    """Labels of a fixed plan: n to learn from, then an audit until proved."""
    rows = labels_to_learn(X, y, n, RANDOM, seed)
    known = np.full(len(y), None, dtype=object)
    known[rows] = y[rows]
    clf = model().fit(X[rows], y[rows])
    audit = sf.Audit(clf, X, known, target_error=target, level=LEVEL, classes=np.unique(y), random_state=seed)
    audit.run(lambda row: y[row], max_labels=MOST - len(rows))
    return len(rows) + audit.n_labels if audit.proved else MOST


def rows_of(name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Rows and labels of a dataset or of the demonstration."""
    if name != DEMO:
        return table(name)
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def measure(name: str, target: float, draws: int) -> Line:
    X, y = rows_of(name)
    plans = {n: [fixed(X, y, target, n, seed) for seed in range(draws)] for n in LEARN}
    best = min(plans, key=lambda n: float(np.mean(plans[n])))
    hindsight = float(np.median(plans[best]))
    found = [proven(X, y, target, seed) if hindsight < MOST else None for seed in range(draws)]
    learn = int(np.clip(len(y) // 10, 20, 100))
    sample = sample_size(len(y), learn, target, LEVEL)
    runs = [finish(X, y, (learn, sample), RANDOM, seed, target) for seed in range(draws)]
    done = np.median([MOST if n is None else n for n in found])
    return Line(
        name, len(y), target, draws,
        f"{done:.0f}" if done < MOST else "-", f"{np.mean([n is not None for n in found]):.2f}",
        f"{hindsight:.0f}" if hindsight < MOST else "-", str(best) if hindsight < MOST else "-",
        f"{np.median([run[0] for run in runs]) * len(y):.0f}",
        f"{np.mean([run[1] <= target + 1e-9 for run in runs]):.2f}",
    )  # fmt: skip


class Robot(io.StringIO):
    """Standard input of someone who knows every label: it answers for the row that was asked for last."""

    def __init__(self, shown: io.StringIO, truth: NDArray[Any]) -> None:
        super().__init__()
        self.shown, self.truth, self.n_labels = shown, truth, 0

    def readline(self, *_: Any) -> str:  # type: ignore[override]
        row = int(re.findall(r"^Row (\d+)$", self.shown.getvalue()[-4000:], re.MULTILINE)[-1]) - 1
        self.n_labels += 1
        return f"{self.truth[row]}\n"


def demo(seed: int, learn: int, max_error: float) -> tuple[int, float]:
    """Labels of a robot that finishes the table of the demonstration, and the share of wrong labels in it."""
    import pandas as pd

    from surefoot.cli import run
    from surefoot.pool.label_log import LABEL, write_demo

    shown, before = io.StringIO(), sys.stdin
    with tempfile.TemporaryDirectory() as folder:
        path, truth = write_demo(Path(folder))
        robot = Robot(shown, truth)
        command = ["finish", path, "--label", LABEL, "--classes", "benign,malignant", "--learn", learn]
        try:
            sys.stdin = robot
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()):
                code = run([str(word) for word in [*command, "--max-error", max_error, "--seed", seed]])
        finally:
            sys.stdin = before
        if code:
            raise RuntimeError(shown.getvalue()[-2000:])
        finished = pd.read_csv(path.with_name("tumours.finished.csv"))
        return robot.n_labels, float((finished[LABEL] != truth).mean())


def page(seed: int, target: float) -> tuple[int, int, bool]:
    """Labels of a robot at the page of the demonstration until the target is proved, audits, and whether it is true."""
    import pandas as pd

    from surefoot.pool.label_log import LABEL, write_demo
    from surefoot.pool.options import FitOptions
    from surefoot.pool.schedule import PROVED, Goal, LabelingSettings, unpack
    from surefoot.pool.served_model import PoolLearner
    from surefoot.pool.service import LabelingService
    from surefoot.pool.store_labels import open_store
    from surefoot.pool.table import Table, clean, read_labeled_table
    from surefoot.pool.table.reading import PLAIN

    with tempfile.TemporaryDirectory() as folder:
        path, truth = write_demo(Path(folder))
        classes = sorted(pd.unique(truth))

        def read(content: bytes | None = None) -> Table:
            return read_labeled_table(path, LABEL, classes=classes, how=PLAIN, content=content)

        found, n_rows = read(), len(truth)
        learner = PoolLearner(clean(found), FitOptions(tol=1e-3, seed=seed), 2000, {}, lambda path, report: None, "")
        with open_store(found, path.read_bytes(), read) as store:
            desk = LabelingService(store, n_rows, classes, LabelingSettings(Goal(target, LEVEL, seed)))
            robot = store.person("robot")
            while desk.turns.phase != PROVED:
                for _ in range(3):
                    if rows := desk.rows_for(robot, beyond=desk.turns.phase != PROVED):
                        desk.answer(robot, rows[0].row, str(truth[rows[0].row]))
                job = desk.wanted()
                if job is not None:
                    desk.take_ranking(learner.rank(job), job)
                desk.freeze_if_due()
            number = desk.turns.n_audits
            wrong = np.mean(np.array(classes)[unpack(store.frozen(number).predictions)] != truth)
            return len(desk.book.labels), number, bool(wrong <= target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results-proof.csv")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--datasets", default=",".join([*datasets.names(paper_only=True), DEMO]))
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--page", action="store_true")
    chosen = parser.parse_args()
    if chosen.page:
        for target in TARGETS:
            proofs = [page(seed, target) for seed in range(chosen.draws)]
            found, audits, true = (list(values) for values in zip(*proofs, strict=True))
            print(f"page, at most {target:.0%}: median {np.median(found):.0f} labels, from {min(found)} to "
                  f"{max(found)}, {np.mean(audits):.1f} audits; true in {np.mean(true):.0%}", flush=True)  # fmt: skip
        return
    if chosen.demo:
        for learn in (40, 56, 80, 100):  # 56: the default, a tenth of the rows
            for target in TARGETS:
                runs = [demo(seed, learn, target) for seed in range(chosen.draws)]
                labels, wrong = (list(values) for values in zip(*runs, strict=True))
                held = np.mean(np.array(wrong) <= target)
                print(f"learn {learn}, at most {target:.0%}: median {np.median(labels):.0f} labels, "
                      f"from {min(labels)} to {max(labels)}; held in {held:.0%}", flush=True)  # fmt: skip
        return
    done = set()
    if chosen.out.exists():
        with chosen.out.open(newline="") as file:
            done = {(one["dataset"], float(one["target"])) for one in csv.DictReader(file)}
    with chosen.out.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(Line._fields)
        for name in chosen.datasets.split(","):
            for target in TARGETS:
                if (name, target) not in done:
                    line = measure(name, target, chosen.draws)
                    writer.writerow(line)
                    file.flush()
                    print(*line, flush=True)


if __name__ == "__main__":
    main()
