"""Figure 4: learning with unlabeled rows, over the radius beyond the minimal one; 100 labels, the strong prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot._types import FloatArray
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.paper.intervals import median_table
from surefoot.paper.observations import counted, per_dataset
from surefoot.paper.panels import BLUE, GREY, ORANGE, PAPER, band, panels
from surefoot.paper.protocol import Figures, Row, Settings, Tables, Task, grid_of_tasks
from surefoot.paper.samples import CONSTANT, LABEL_COST, Sample, rounded
from surefoot.path import radius_curve
from surefoot.radius import minimal_radius

_LABELED = 100
# Certified gap of every point of the path, in units of the risk.
_GAP = 1e-3


@dataclass(frozen=True)
class OverExcessRadius:
    """Likelihood on P and confidences at ε = ε₀ + Δ, ε₀ the minimal radius."""

    name: str = "figure4"
    title: str = "Figure 4, with unlabeled rows beyond the minimal radius"
    study: str = "figure4"
    datasets: tuple[str, ...] = PAPER
    trials: int = 100
    quick_datasets: tuple[str, ...] = ("breast-cancer",)
    quick_trials: int = 3

    def excesses(self, settings: Settings) -> FloatArray:
        """Excess radii Δ: 10⁻⁴ to 10, as in the paper."""
        return np.logspace(-4, 1, 6 if settings.quick else 16)

    def tasks(self, settings: Settings) -> list[Task]:
        return grid_of_tasks(settings)

    def run(self, task: Task, settings: Settings) -> list[Row]:
        sample = Sample.draw(task, settings, _LABELED)
        X, y = sample.labeled
        shared: dict[str, Any] = {
            "label_prior": sample.label_probabilities,
            "label_cost": LABEL_COST,
            "metric": "euclidean",
            "classes": [0, 1],
        }
        minimal = minimal_radius(X, y, X_unlabeled=sample.unlabeled, **shared)
        excesses = self.excesses(settings)
        learner = RobustLogisticRegression(tol=_GAP, l2=0.0, n_jobs=1, **shared)
        path = radius_curve(learner, X, y, X_unlabeled=sample.unlabeled, radii=minimal + excesses)
        frame, coef, intercept = path.to_frame(), np.asarray(path.coef), np.asarray(path.intercept)
        return [
            {
                "excess": rounded(excess),
                "minimal_radius": rounded(minimal),
                "bound": rounded(path.likelihood[i]),
                "gap": rounded(path.risk[i] - path.lower[i]),
                "status": frame["status"][i],
            }
            | sample.judged(coef[i, 0], float(intercept[i, 0]))
            for i, excess in enumerate(excesses)
        ]

    def summarize(self, rows: Any, settings: Settings) -> Tables:
        columns = ["likelihood", "median_confidence", "max_confidence", "spread", "bound"]
        table = median_table(rows, ["dataset", "excess"], columns)
        drops = per_dataset(table, _drop)
        return {self.name: table, f"{self.name}-drops": drops, f"{self.name}-claims": self.claims(drops)}

    def claims(self, drops: Any) -> Any:
        """The paper's claims on this figure."""
        by = drops.set_index("dataset")
        return counted(
            {
                "no bias-variance tradeoff: no Δ has a median likelihood more than 0.01 above that at Δ = 0.0001": (
                    by["best_likelihood"] <= by["likelihood_at_smallest"] + 0.01
                ),
                "performance is flat (within 0.01 of its value at Δ = 0.0001) out to Δ = 0.001": (
                    by["flat_to"] >= 0.999e-3
                ),
                "the median likelihood rises by more than 0.001 nowhere as Δ grows": (by["largest_rise"] <= 0.001),
                "the classifier is constant (its probabilities differ by less than 0.01) from some Δ ≤ 0.1 on": (
                    by["constant_from"] <= 0.1 + 1e-9
                ),
            }
        )

    def draw(self, summary: Tables, settings: Settings) -> Figures:
        return panels(self.name, summary[self.name], _panel)


def _drop(table: Any) -> Row:
    first = table["likelihood"].iloc[0]
    best = table.loc[table["likelihood"].idxmax()]
    leaves = (table["likelihood"] - first).abs() > 0.01
    flat = table["excess"][: leaves.argmax()] if leaves.any() else table["excess"]
    confident = table.loc[table["median_confidence"] >= 0.7, "excess"]
    constant = table.loc[table["spread"] < CONSTANT, "excess"]
    return {
        "likelihood_at_smallest": first,
        "best_likelihood": best["likelihood"],
        "best_excess": best["excess"],
        "flat_to": flat.max(),
        "confidence_at_smallest": table["median_confidence"].iloc[0],
        "confident_to": confident.max() if len(confident) else float("nan"),
        "constant_from": constant.min() if len(constant) else float("nan"),
        "likelihood_when_constant": table["likelihood"].iloc[-1],
        "largest_rise": table["likelihood"].diff().max(),
    }


def _panel(ax: Any, table: Any) -> None:
    x = np.log10(table["excess"])
    band(ax, table, x, "likelihood", color=BLUE, label="likelihood")
    band(ax, table, x, "median_confidence", color=ORANGE, label="median confidence", style="--")
    band(ax, table, x, "max_confidence", color=GREY, label="maximum confidence", style=":")
    ax.set(xlabel="log$_{10}$ of the excess radius Δ", ylabel="likelihood, confidence", ylim=(0.0, 1.03))


EXPERIMENT = OverExcessRadius()
