"""Small fits with known features, and the arguments of their reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import surefoot as sf
from surefoot.report import Report, build_report

SECTIONS = [
    "short",
    "warnings",
    "guarantee",
    "weights",
    "certificate",
    "radius",
    "confidence",
    "adversary",
    "next",
    "data",
]
HOSTILE = '<script>window.hacked = 1</script><img src="http://outside.invalid/x.png" onerror="window.hacked = 2">'


@dataclass(frozen=True)
class Case:
    """A fit, the rows it was made from, and the arguments of its report."""

    clf: sf.RobustLogisticRegression
    X: np.ndarray
    y: np.ndarray
    U: np.ndarray
    arguments: dict[str, Any]

    def report(self, **changes: Any) -> Report:
        return build_report(self.clf, self.X, self.y, self.U, **(self.arguments | changes))


def make_case(n_classes: int, n: int, M: int, *, seed: int = 0, **parameters: Any) -> Case:
    """Gaussian classes on a circle, d = 4; the file they came from has a text column and hostile names."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n + M)
    codes[: 3 * n_classes] = np.tile(np.arange(n_classes), 3)
    angle = 2 * np.pi * codes / n_classes
    rows = rng.normal(size=(n + M, 4)) + 1.6 * np.column_stack([np.cos(angle), np.sin(angle), 0 * angle, 0 * angle])
    rows /= np.abs(rows).max()
    labels = np.array([f"c{k}" for k in range(n_classes)])[codes]
    clf = sf.RobustLogisticRegression(**parameters).fit(rows[:n], labels[:n], X_unlabeled=rows[n:])
    raw = pd.DataFrame(rows, columns=["a", "b", HOSTILE, "d"])
    raw["town"] = rng.choice(["north & south", "<b>east</b>", "west"], size=n + M)
    raw["label"] = labels
    arguments = {
        "feature_names": ["a", "b", HOSTILE, "d"],
        "class_names": [*[f"class {k}" for k in range(n_classes - 1)], f"'{HOSTILE}"],
        "row_labels": [f"row {i + 2}" for i in range(n + M - 1)] + [HOSTILE],
        "raw_rows": raw,
        "label_name": "label",
        "source": "pool & more.csv",
        "notes": ["3 missing values of <a> replaced"],
        "n_query": 4,
    }
    return Case(clf, rows[:n], labels[:n], rows[n:], arguments)
