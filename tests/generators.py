"""Small problems for tests: samples, pools, tables, and what is known of them."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import surefoot as sf
from reference.label_flexibility import worst_impact_reference
from surefoot._validation import FloatArray
from surefoot.active.flexibility import LabelFlexibility, replace_excess
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.minimal_radius import solve_minimal_radius


def sample(seed: int = 0, n: int = 12, M: int = 41, d: int = 2, K: int = 2) -> tuple[np.ndarray, ...]:
    """Overlapping classes: labeled rows that show all K classes, and unlabeled rows."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(n) % K, rng.integers(K, size=M))
    X = rng.normal(size=(n + M, d)) + 1.5 * np.eye(K, d)[y]
    return X[:n], y[:n], X[n:]


def just_above(X: np.ndarray, y: np.ndarray, U: np.ndarray | None, excess: float = 0.05, **keywords: Any) -> float:
    return sf.minimal_radius(X, y, X_unlabeled=U, label_prior="clopper-pearson", **keywords) + excess


def fitted(seed: int = 0, K: int = 2, excess: float = 0.05, **keywords: Any) -> tuple[Any, ...]:
    X, y, U = sample(seed, K=K)
    clf = sf.RobustLogisticRegression(radius=just_above(X, y, U, excess), **keywords).fit(X, y, X_unlabeled=U)
    return clf, X, y, U


def adversary_loss(clf: Any, rows: np.ndarray) -> float:
    """E_q ℓ of the fitted classifier under its own worst case."""
    worst = clf.worst_case_
    return float(-worst.row_weights @ (worst.label_proba * clf.predict_log_proba(rows)).sum(axis=1))


def transport_by_pot(
    worst: sf.WorstCase, distances: np.ndarray, codes: np.ndarray, label_cost: np.ndarray, weights: np.ndarray
) -> float:
    """W_c of the worst case to the labeled rows: plain transport between (N·K) and n points."""
    (N, K), n = worst.label_proba.shape, len(codes)
    cost = (distances[:, None, :] + label_cost[None, :, codes]).reshape(N * K, n)
    mass = (worst.row_weights[:, None] * worst.label_proba).ravel()
    import ot  # absent on some machines with a GPU

    return float(ot.emd2(mass / mass.sum(), weights / weights.sum(), cost, numItermax=1_000_000))


@dataclass(frozen=True)
class FlexibilityProblem:
    """Labeled rows, unlabeled rows, and the keywords of `label_flexibility`."""

    X: FloatArray
    y: NDArray[np.intp]
    U: FloatArray
    K: int
    keywords: dict[str, object]

    @property
    def decision_set(self) -> DecisionSet:
        return build_decision_set(self.X, self.y, self.K, X_unlabeled=self.U, **self.keywords)  # type: ignore[arg-type]

    @property
    def kappa(self) -> float:
        """The largest label cost."""
        return float(self.decision_set.label_cost.max())

    @property
    def unit(self) -> float:
        """Mass of one unlabeled row."""
        return float(self.decision_set.row_weights[-1])

    def flexibility(self, excess: float) -> LabelFlexibility:
        """At a radius of the minimal one plus excess."""
        rows = len(self.X) + np.arange(len(self.U))
        found = LabelFlexibility(self.decision_set, rows, np.arange(self.K), 0.0)
        return replace_excess(found, "minimal", excess, has_prior=True)

    def reference(self, row: int, impact: FloatArray, excess: float) -> float:
        """The linear program's score of an unlabeled row, at the same radius but for rounding."""
        ds = self.decision_set
        radius = solve_minimal_radius(ds).value + excess + 1e-11  # at the minimal radius HiGHS may find the set empty
        return worst_impact_reference(
            impact, len(self.X) + row, ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost,
            ds.intervals, radius,
        )  # fmt: skip


def draw_flexibility(
    seed: int,
    K: int,
    prior: str,
    *,
    N: int = 60,
    cost: str = "scalar",
    weighted: bool = False,
    grid: bool = False,
    missing: bool = False,
) -> FlexibilityProblem:
    """A random problem with N rows in all.

    prior: "strong" (exact, away from the frequencies), "frequencies", "weak" (intervals), "clopper-pearson", "none" or
    "zero" (a class that cannot occur). grid: rows on a grid, so that plans and distances tie; missing: the last class
    has no labeled row.
    """
    rng = np.random.default_rng([seed, K])
    n = int(rng.integers(K, 13))
    shown = K - 1 if missing else K
    y = rng.permutation(np.concatenate([np.arange(shown), rng.integers(0, shown, n - shown)]))
    rows = rng.integers(0, 4, size=(N, 2)).astype(float) if grid else rng.normal(size=(N, 2))
    rows[:n] += 0 if grid else 0.7 * y[:, None]
    p = rng.dirichlet(np.full(K, 3.0))
    zero = np.where(np.arange(K) == rng.integers(K), 0.0, p)
    priors = {
        "strong": p,
        "frequencies": np.bincount(y, minlength=K) / n,
        "weak": np.column_stack([0.9 * p, np.minimum(1.1 * p, 1.0)]),
        "none": None,
        "zero": zero / zero.sum(),
    }
    matrix = rng.uniform(0.2, 2.0, size=(K, K)) * (1 - np.eye(K))
    keywords: dict[str, object] = {
        "label_prior": priors.get(prior, prior),
        "label_cost": matrix if cost == "matrix" else float(rng.uniform(0.2, 2.0)),
        "sample_weight": rng.uniform(0.2, 3.0, size=n) if weighted else None,
    }
    return FlexibilityProblem(rows[:n], y, rows[n:], K, keywords)


SMALL_BLOCKS = sf.Compute(block_rows=256)


@dataclass(frozen=True)
class BlockPool:
    X: NDArray[np.float64]
    y: NDArray[np.intp]
    U: NDArray[np.float64]

    @classmethod
    def draw(cls, K: int = 2, n: int = 20, M: int = 900, d: int = 3, seed: int = 0) -> BlockPool:
        rng = np.random.default_rng(seed)
        y = np.concatenate([np.arange(K), rng.integers(0, K, n + M - K)])
        X = rng.normal(size=(n + M, d))
        X[:, 0] += 1.5 * y
        X /= np.abs(X).max()
        return cls(X[:n], y[:n], X[n:])

    def memmap(self, folder: Path) -> np.memmap[Any, Any]:
        np.save(folder / "rows.npy", self.U)
        return np.load(folder / "rows.npy", mmap_mode="r")  # type: ignore[no-any-return]

    def parquet(self, folder: Path, files: int = 2, group: int = 170) -> sf.ParquetRows:
        import pyarrow as pa
        import pyarrow.parquet as pq

        (folder / "parts").mkdir()
        for at, part in enumerate(np.array_split(self.U, files)):
            table = pa.table({f"x{t}": part[:, t] for t in range(part.shape[1])})
            pq.write_table(table, folder / "parts" / f"{at}.parquet", row_group_size=group)
        return sf.ParquetRows(folder / "parts")

    def fit(self, U: Any, compute: Any = SMALL_BLOCKS, **settings: Any) -> sf.RobustLogisticRegression:
        radius = settings.pop("radius") if "radius" in settings else self.radius
        clf = sf.RobustLogisticRegression(radius, compute=compute, **settings)
        return clf.fit(self.X, self.y, X_unlabeled=U)

    @property
    def radius(self) -> float:
        return sf.minimal_radius(self.X, self.y, X_unlabeled=self.U) + 0.02


@dataclass(frozen=True, eq=False)
class Told:
    """A classifier given by its predictions (N,) and beliefs to be wrong (N,); a row's number is its feature."""

    predictions: NDArray[np.intp]
    beliefs: NDArray[np.float64]

    @property
    def classes_(self) -> NDArray[np.intp]:
        return np.array([0, 1])

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.intp]:
        return self.predictions[np.asarray(X)[:, 0].astype(int)]

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = np.asarray(X)[:, 0].astype(int)
        ones = np.where(self.predictions[rows] == 1, 1 - self.beliefs[rows], self.beliefs[rows])
        return np.column_stack([1 - ones, ones])


def numbered(N: int) -> NDArray[np.float64]:
    """Rows whose feature is their number."""
    return np.arange(N, dtype=float)[:, None]


def told(
    truth: NDArray[np.intp], rate: float, rng: np.random.Generator, right: list[int] | None = None
) -> tuple[Told, float]:
    """A classifier that errs on about `rate` of the rows, most where it is unsure, and its true error.

    It is right at the rows `right`: those it was trained on.
    """
    N = len(truth)
    beliefs = rng.beta(0.3, 1.5, size=N) / 2
    wrong = rng.random(N) < np.clip(beliefs * rate / beliefs.mean(), 0, 1)
    wrong[right or []] = False
    return Told(np.where(wrong, 1 - truth, truth), beliefs), float(wrong.mean())


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


class TrueAnswers(io.StringIO):
    """Someone who knows every label and answers the row that was asked for last, up to a number of answers."""

    def __init__(self, capsys: pytest.CaptureFixture[str], most: int, truth: list[str]) -> None:
        super().__init__()
        self.capsys, self.left, self.truth = capsys, most, truth
        self.shown, self.asked = "", []

    def readline(self, *_: Any) -> str:  # type: ignore[override]
        printed = self.capsys.readouterr()
        self.shown += printed.out + printed.err
        row = int(re.findall(r"^Row (\d+)$", self.shown, re.MULTILINE)[-1]) - 1
        if self.left == 0:
            return "quit\n"
        self.left -= 1
        self.asked.append(row)
        return f"{self.truth[row]}\n"


def write_answers(n: int = 150, seed: int = 0) -> tuple[list[str], pd.DataFrame]:
    """Write llm.csv: texts, the answers of a language model with its confidence, and an empty column; the truth."""
    rng = np.random.default_rng(seed)
    words = ["late", "broken", "great", "polite", "refund"]
    truth = np.where(rng.random(n) < 0.4, "complaint", "praise")
    confidence = rng.uniform(0.5, 1.0, n).round(3)
    wrong = rng.random(n) < 0.6 * (1 - confidence)
    frame = pd.DataFrame({
        "text": [" ".join(rng.choice(words, 30)) + "\nthe end" for _ in range(n)],
        "llm_label": np.where(wrong, np.where(truth == "praise", "complaint", "praise"), truth),
        "confidence": confidence,
        "truth": None,
    })  # fmt: skip
    frame.to_csv("llm.csv", index=False)
    return truth.tolist(), frame
