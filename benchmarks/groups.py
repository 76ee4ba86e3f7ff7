"""Compare learning for the worst of several groups of rows with group DRO on the labeled rows alone.

    OPENBLAS_NUM_THREADS=1 python benchmarks/groups.py [--draws 5] [--datasets abalone,bank,covtype-2-3]

Three datasets of the paper have a natural group, which is one of their columns: Abalone (sex), Bank (marital status)
and Covertype 2 against 3 (wilderness area). A sample has 800 random rows, of which n = 50 or 100 have labels. Features
have mean 0 and standard deviation 1. Group DRO minimizes the largest mean log loss of the labeled rows of a group, with
the ridge penalty of scikit-learn's LogisticRegression. Scores are computed on all rows of the sample, per group. The
certificate of the largest group is over the set of the calibrated radius in the learned metric, with the true label
shares. A draw takes about a minute.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

sys.path.insert(0, str(Path(__file__).resolve().parent))
from calibration import Array
from common import markdown_table

import surefoot as sf
from surefoot import datasets

ROWS, SIZES = 800, (50, 100)
GROUPS = {"abalone": "sex=", "bank": "marital=", "covtype-2-3": "wilderness_area_"}
Labels = NDArray[np.intp]


class GroupDRO:
    """Group DRO for a linear classifier: min over θ of max over groups of the mean log loss of labeled rows."""

    def fit(self, X: Array, y: Labels, groups: Labels) -> GroupDRO:
        theta, intercept, largest = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable()
        losses = cp.logistic(cp.multiply(1.0 - 2.0 * y, X @ theta + intercept))
        above = [largest >= cp.sum(losses[groups == g]) / np.sum(groups == g) for g in np.unique(groups)]
        cp.Problem(cp.Minimize(largest + 0.5 / len(X) * cp.sum_squares(theta)), above).solve(solver=cp.CLARABEL)
        self.coef, self.intercept, self.classes_ = theta.value, float(intercept.value), np.arange(2)
        return self

    def predict_proba(self, X: Array) -> Array:
        p = 1.0 / (1.0 + np.exp(-(X @ self.coef + self.intercept)))
        return np.column_stack([1.0 - p, p])


def learners(shares: Array, how: sf.CalibratedRadius) -> dict[str, Callable[..., Any]]:
    """A fitted classifier from labeled rows, labels, unlabeled rows and the group of every row."""
    calibrated: dict[str, Any] = {"label_prior": shares, "metric": "learned", "label_cost": "median"}

    def robust(radius: Any, grouped: bool, **given: Any) -> Callable[..., Any]:
        def fit(X: Array, y: Labels, U: Array, groups: Labels) -> Any:
            clf = sf.RobustLogisticRegression(radius, **given)
            return clf.fit(X, y, X_unlabeled=sf.Unlabeled(U), groups=groups if grouped else None)

        return fit

    return {
        "`LogisticRegression`": lambda X, y, _U, _groups: LogisticRegression().fit(X, y),
        "group DRO, labeled rows only": lambda X, y, _U, groups: GroupDRO().fit(X, y, groups[: len(X)]),
        "default": robust("predictive", False),
        "default, `groups=`": robust("predictive", True),
        "calibrated": robust(how, False, **calibrated),
        "calibrated, `groups=`": robust(how, True, **calibrated),
    }


def one_draw(X: Array, y: Labels, groups: Labels, n: int, draw: int) -> dict[str, tuple[float, ...]]:
    """Per learner: largest certified, largest true log loss and error of a group, error of all rows, seconds."""
    rng = np.random.default_rng([n, draw])
    rows = rng.permutation(len(X))[:ROWS]
    while len(np.unique(y[rows[:n]])) < 2:
        rows = rng.permutation(len(X))[:ROWS]
    every, truth, group = scale(X[rows]), y[rows], groups[rows]
    few, labels, U = every[:n], truth[:n], every[n:]
    shares, how = np.bincount(truth, minlength=2) / ROWS, sf.CalibratedRadius(random_state=0)
    found = {}
    for name, fit in learners(shares, how).items():
        start = time.process_time()
        clf = fit(few, labels, U, group)
        spent = time.process_time() - start
        certificate = sf.certify(
            clf, few, labels, X_unlabeled=sf.Unlabeled(U), radius=how, label_prior=shares, metric="learned",
            label_cost="median", groups=group, tol=1e-4,
        )  # fmt: skip
        p = np.clip(clf.predict_proba(every)[:, 1], 1e-6, 1 - 1e-6)
        losses, errors = -np.log(np.where(truth == 1, p, 1 - p)), (p > 0.5) != truth
        of_groups = [(losses[group == g].mean(), errors[group == g].mean()) for g in np.unique(group)]
        log_loss, error = np.max(of_groups, axis=0)
        certified = max(one.risk for one in certificate.groups.values())
        found[name] = (certified, log_loss, error, float(errors.mean()), spent)
    return found


def run(names: list[str], draws: int) -> str:
    scores: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for name in names:
        column, data = GROUPS[name], datasets.load(name)
        members = [at for at, feature in enumerate(data.feature_names) if feature.startswith(column)]
        X, y = np.asarray(data.data), np.asarray(data.target).astype(np.intp)
        groups = X[:, members].argmax(axis=1)
        for n in SIZES:
            for draw in range(draws):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for who, values in one_draw(X, y, groups, n, draw).items():
                        scores.setdefault((who, n), []).append(values)
            print(f"{name}, n = {n} done", file=sys.stderr, flush=True)
    table = []
    for (who, n), values in sorted(scores.items(), key=lambda item: item[0][1]):
        certified, log_loss, error, all_rows, _ = np.mean(values, axis=0)
        table.append(
            {
                "classifier": who,
                "labels": n,
                "certified, worst group": f"{certified:.3f}",
                "log loss, worst group": f"{log_loss:.3f}",
                "error, worst group": f"{100 * error:.1f} %",
                "error, all rows": f"{100 * all_rows:.1f} %",
                "median seconds": f"{np.median([one[-1] for one in values]):.2f}",
            }
        )
    return markdown_table(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--datasets", default=",".join(GROUPS))
    arguments = parser.parse_args()
    print(run(arguments.datasets.split(","), arguments.draws))


if __name__ == "__main__":
    main()
