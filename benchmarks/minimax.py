"""Compare the minimax classifier with the linear model: certificates, predictions and time. Writes docs/minimax.md.

    OPENBLAS_NUM_THREADS=1 python benchmarks/minimax.py [--draws 1] [--tables predictions,speed] [--page]

A sample has 800 rows of a dataset of the paper with at most 100 features, of which n = 20, 50 or 100 have labels.
Features have mean 0 and standard deviation 1. Certificates are over the set of the calibrated radius in the learned
metric, with the true label shares. Scores are computed on the rows without labels. Seconds are processor time of the
solver alone, at the same sets. A draw of all tables takes about six minutes. The table of speed uses generated rows
with 20 features and excesses of 10 % of the label cost.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import scale

sys.path.insert(0, str(Path(__file__).resolve().parent))
import prediction
from calibration import Array
from common import ROOT, markdown_table, with_tables
from prediction import Labels

import surefoot as sf
from surefoot import datasets
from surefoot.problem.placement import check_problem

ROWS, SIZES, MOST_FEATURES = 800, (20, 50, 100), 100
PAGE = ROOT / "docs" / "minimax.md"
Scores = dict[tuple[str, int], list[tuple[float, ...]]]


def scores(y: Labels, proba: Array) -> tuple[float, float]:
    """Error rate and log loss."""
    p = np.clip(proba, 1e-6, 1 - 1e-6)
    return float((y != (p > 0.5)).mean()), float(-np.log(np.where(y == 1, p, 1 - p)).mean())


def certified(X: Array, y: Labels, U: Array, truth: Labels, shares: Array) -> dict[str, tuple[float, ...]]:
    """Certified log loss, true error and true log loss of both."""
    found = {}
    given: dict[str, Any] = {"label_prior": shares, "metric": "learned", "label_cost": "median"}
    how = sf.CalibratedRadius(random_state=0)
    for name, model in (
        ("linear", sf.RobustLogisticRegression(how, **given)),
        ("minimax", sf.MinimaxClassifier(how, **given)),
    ):
        clf = model.fit(X, y, X_unlabeled=sf.Unlabeled(U))
        found[name] = (clf.certificate_.risk, *scores(truth, clf.predict_proba(U)[:, 1]))
    return found


def seconds(X: Array, y: Labels, U: Array, shares: Array) -> dict[str, float]:
    """Processor time of the solvers at the same set, to a gap of 1e-4."""
    problem = check_problem(X, y, X_unlabeled=U, label_prior=shares, metric="learned", label_cost="median")
    members = problem.at_excess(0.1 * float(problem.decision_set.label_cost.max()))
    found = {}
    zero_one = problem.any_classifier(1.0 - np.eye(len(shares)))
    for name, objective in (
        ("linear", problem.linear(0.0, True)),
        ("minimax", problem.any_classifier()),
        ("rule", zero_one),
    ):
        start = time.process_time()
        solution = objective.solve(members, tol=1e-4)
        found[name] = time.process_time() - start
        if solution.gap > 1e-4:
            print(f"{name} stopped at a gap of {solution.gap:.1e}", file=sys.stderr)
    return found


def generated(N: int, n: int, K: int) -> dict[str, float]:
    """`seconds` for normal classes around K of the unit vectors."""
    rng = np.random.default_rng(0)
    y = rng.integers(K, size=N)
    X = rng.normal(size=(N, 20)) + 1.5 * np.eye(K, 20)[y]
    return seconds(X[:n], y[:n], X[n:], np.bincount(y, minlength=K) / N)


def speed() -> str:
    """Solvers at increasing sizes, relative to the linear one."""
    generated(500, 20, 2)  # compile
    rows = []
    for N, n, K in ((1000, 50, 2), (10_000, 100, 2), (10_000, 100, 4), (10_000, 500, 2), (100_000, 100, 2)):
        spent = generated(N, n, K)
        names = (("minimax", "log loss, ratio"), ("rule", "zero-one, ratio"))
        ratios = {name: f"{spent[who] / spent['linear']:.2f}" for who, name in names}
        rows.append({"rows": N, "labels": n, "classes": K, "linear, seconds": f"{spent['linear']:.2f}", **ratios})
    return markdown_table(rows)


def predicted(X: Array, y: Labels, U: Array) -> dict[str, Array]:
    linear = prediction.robust(X, y, U).predict_proba(U)[:, 1]
    minimax = sf.MinimaxClassifier().fit(X, y, X_unlabeled=sf.Unlabeled(U)).predict_proba(U)[:, 1]
    logistic = prediction.logistic(X, y, U).predict_proba(U)[:, 1]
    return {"linear": linear, "minimax": minimax, "mixture": 0.5 * (linear + minimax), "logistic": logistic}


def errors(X: Array, y: Labels, U: Array, truth: Labels, shares: Array) -> dict[str, tuple[float, ...]]:
    """Certified and true error rate of both for the log loss, of the rule for the error rate, and of its best class."""
    given: dict[str, Any] = {"label_prior": shares, "metric": "learned", "label_cost": "median"}
    how = sf.CalibratedRadius(random_state=0)
    found, fit = {}, {"X_unlabeled": sf.Unlabeled(U)}
    for name, model in (
        ("linear", sf.RobustLogisticRegression(how, **given)),
        ("minimax", sf.MinimaxClassifier(how, **given)),
    ):
        clf = model.fit(X, y, **fit)
        certified = sf.certify(clf, X, y, radius=how, loss="zero_one", tol=1e-4, **given, **fit).risk
        found[name] = (certified, float((clf.predict(U) != truth).mean()))
    rule = sf.MinimaxClassifier(how, **given, loss="zero_one").fit(X, y, **fit)
    wrong = 1.0 - rule.predict_proba(U)[np.arange(len(U)), truth]
    found["rule"] = (rule.certificate_.risk, float(wrong.mean()))
    found["most probable"] = (rule.deterministic_certificate_.risk, float((rule.predict(U) != truth).mean()))
    return found


def run(draws: int, asked: list[str]) -> tuple[Scores, Scores, Scores, Scores]:
    bounds: Scores = {}
    guesses: Scores = {}
    times: Scores = {}
    wrong: Scores = {}
    prediction.MOST_ROWS = ROWS
    for draw in range(draws):
        for name in datasets.names(paper_only=True):
            X, y = prediction.load(name)
            if X.shape[1] > MOST_FEATURES:
                continue
            for n in SIZES:
                labeled, rest = prediction.drawn(X, y, n, 500 + draw)
                rows = scale(X[np.concatenate([labeled, rest])])
                few, U = rows[:n], rows[n:]
                every = np.append(y[labeled], y[rest])
                shares = np.bincount(every, minlength=2) / len(every)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    if "certificates" in asked:
                        for who, values in certified(few, y[labeled], U, y[rest], shares).items():
                            bounds.setdefault((who, n), []).append(values)
                    if "predictions" in asked:
                        for who, proba in predicted(few, y[labeled], U).items():
                            guesses.setdefault((who, n), []).append(scores(y[rest], proba))
                    if "errors" in asked:
                        for who, values in errors(few, y[labeled], U, y[rest], shares).items():
                            wrong.setdefault((who, n), []).append(values)
                    for who, spent in seconds(few, y[labeled], U, shares).items():
                        times.setdefault((who, n), []).append((spent,))
        print(f"draw {draw} done", file=sys.stderr, flush=True)
    return bounds, guesses, times, wrong


NAMES = {
    "linear": "`RobustLogisticRegression`",
    "minimax": "`MinimaxClassifier`",
    "rule": '`loss="zero_one"`, randomized',
    "most probable": '`loss="zero_one"`, most probable',
    "mixture": "mean of both probabilities",
    "logistic": "`LogisticRegression`",
}


def tables(bounds: Scores, guesses: Scores, times: Scores, wrong: Scores) -> dict[str, str]:
    order = list(NAMES)
    certificate = [
        {
            "classifier": NAMES[who],
            "labels": n,
            "certified log loss": f"{np.mean(found, axis=0)[0]:.3f}",
            "true log loss": f"{np.mean(found, axis=0)[2]:.3f}",
            "true error": f"{100 * np.mean(found, axis=0)[1]:.1f} %",
            "median seconds": f"{np.median(times[who, n]):.2f}",
        }
        for (who, n), found in sorted(bounds.items(), key=lambda item: (item[0][1], item[0][0]))
    ]
    guess = [
        {"classifier": NAMES[who]}
        | {
            f"n = {n}": f"{1 - np.mean(guesses[who, n], axis=0)[0]:.3f} / {np.mean(guesses[who, n], axis=0)[1]:.3f}"
            for n in SIZES
        }
        for who in NAMES
        if (who, SIZES[0]) in guesses
    ]
    error = [
        {
            "classifier": NAMES[who],
            "labels": n,
            "certified error": f"{100 * np.mean(found, axis=0)[0]:.1f} %",
            "true error": f"{100 * np.mean(found, axis=0)[1]:.1f} %",
            "median seconds": f"{np.median(times[who, n]):.2f}" if (who, n) in times else "",
        }
        for (who, n), found in sorted(wrong.items(), key=lambda item: (item[0][1], order.index(item[0][0])))
    ]
    made = {"certificates": certificate, "predictions": guess, "errors": error}
    return {name: markdown_table(rows) for name, rows in made.items() if rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--tables", default="certificates,predictions,errors,speed")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    asked = arguments.tables.split(",")
    found = {} if asked == ["speed"] else tables(*run(arguments.draws, asked))
    if "speed" in asked:
        found["speed"] = speed()
    for name, table in found.items():
        print(f"{name}\n\n{table}\n")
    if arguments.page:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_tables(page, found.get), encoding="utf-8")


if __name__ == "__main__":
    main()
