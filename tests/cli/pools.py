"""Small pools, and what a command gave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        """The one JSON object that standard output holds."""
        return json.loads(self.out)

    @property
    def message(self) -> str:
        return " ".join((self.err or self.out).split())


def make_pool(n_rows: int = 120, n_labels: int = 30, seed: int = 0) -> pd.DataFrame:
    """Two classes, well apart: two numbers, one with gaps, and a category."""
    rng = np.random.default_rng(seed)
    churn = rng.random(n_rows) < 0.4
    frame = pd.DataFrame(
        {
            "age": (40 + 12 * churn + rng.normal(0, 3, n_rows)).round(2),
            "income": (3 - 2 * churn + rng.normal(0, 0.5, n_rows)).round(3),
            "plan": np.where(churn, "basic", rng.choice(["plus", "max"], n_rows)),
        }
    )
    frame.loc[rng.choice(n_rows, 5, replace=False), "income"] = np.nan
    labels = np.where(churn, "yes", "no").astype(object)
    labels[rng.permutation(n_rows)[n_labels:]] = None
    frame["churn"] = labels
    return frame
