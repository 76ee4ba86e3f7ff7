"""The ball alone over its radius, as a share of the distance to the truth: behind figures 1 and 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot._types import FloatArray
from surefoot.paper.intervals import median_table
from surefoot.paper.observations import counted, per_dataset
from surefoot.paper.panels import BLUE, ORANGE, band, panels
from surefoot.paper.protocol import Figures, Row, Settings, Tables, Task, grid_of_tasks
from surefoot.paper.samples import CONSTANT, VACUOUS, Sample, rounded


@dataclass(frozen=True)
class BallOverRadius:
    """Likelihood on P and the largest confidence of the ball's classifier at shares of W_c(P, P̂_l).

    Parameters
    ----------
    n_labeled : int
        The size of each labeled sample.
    """

    name: str
    title: str
    n_labeled: int
    datasets: tuple[str, ...]
    trials: int = 100
    quick_datasets: tuple[str, ...] = ("breast-cancer",)
    quick_trials: int = 7

    @property
    def study(self) -> str:
        return self.name

    def shares(self, settings: Settings) -> FloatArray:
        """Radii as shares of the distance to the truth: 0.01 % to 100 %, as in the paper on a log scale."""
        return np.logspace(-4, 0, 7 if settings.quick else 17)

    def tasks(self, settings: Settings) -> list[Task]:
        return grid_of_tasks(settings)

    def run(self, task: Task, settings: Settings) -> list[Row]:
        sample = Sample.draw(task, settings, self.n_labeled)
        distance = sample.distance()
        found = []
        for share in self.shares(settings):
            learned = sample.ball(float(share * distance))
            judged = sample.judged(learned.coef, learned.intercept)
            found.append({"share": rounded(share), "radius": rounded(share * distance)} | judged)
        return found

    def summarize(self, rows: Any, settings: Settings) -> Tables:
        table = median_table(rows, ["dataset", "share"], ["likelihood", "max_confidence", "spread", "radius"])
        peaks = per_dataset(table, _peak)
        return {self.name: table, f"{self.name}-peaks": peaks, f"{self.name}-claims": self.claims(peaks)}

    def claims(self, peaks: Any) -> Any:
        """The paper's claims on this figure."""
        by = peaks.set_index("dataset")
        ends = by[["likelihood_at_smallest", "likelihood_at_distance"]].max(axis=1)
        return counted(
            {
                "the likelihood has an inverted U shape: it peaks between the ends, 0.005 or more above both": (
                    by["peak_likelihood"] >= ends + 0.005
                ),
                "the peak is at 10 % of the distance to the truth or less": by["peak_share"] <= 0.1,
                "the confidence is gone (its maximum is below 0.505) at the distance to the truth": (
                    by["confidence_at_distance"] < VACUOUS
                ),
                "the confidence is gone at half of that distance or less": by["gone_from"] <= 0.5,
                "the classifier is constant (its probabilities differ by less than 0.01) at that distance": (
                    by["constant_from"] <= 1.0
                ),
                "the classifier is constant at half of that distance or less": by["constant_from"] <= 0.5,
            }
        )

    def draw(self, summary: Tables, settings: Settings) -> Figures:
        return panels(self.name, summary[self.name], _panel)


def _peak(table: Any) -> Row:
    best = table.loc[table["likelihood"].idxmax()]
    return {
        "distance": table["radius"].iloc[-1],
        "peak_share": best["share"],
        "peak_likelihood": best["likelihood"],
        "likelihood_at_smallest": table["likelihood"].iloc[0],
        "likelihood_at_distance": table["likelihood"].iloc[-1],
        "confidence_at_peak": best["max_confidence"],
        "confidence_at_distance": table["max_confidence"].iloc[-1],
        "gone_from": _from_where(table, "max_confidence", VACUOUS),
        "constant_from": _from_where(table, "spread", CONSTANT),
    }


def _from_where(table: Any, column: str, level: float) -> float:
    """The smallest share from which on a median stays below a level; NaN, an empty cell, where it ends above."""
    above = table.loc[table[column] >= level, "share"]
    below = table.loc[table["share"] > above.max(), "share"] if len(above) else table["share"]
    return float(below.min()) if len(below) else float("nan")


def _panel(ax: Any, table: Any) -> None:
    x = np.log10(100.0 * table["share"])
    band(ax, table, x, "likelihood", color=BLUE, label="likelihood")
    band(ax, table, x, "max_confidence", color=ORANGE, label="maximum confidence", style="--")
    ax.set(xlabel="log$_{10}$ of ε in % of the distance to P", ylabel="likelihood, confidence", ylim=(0.0, 1.03))
