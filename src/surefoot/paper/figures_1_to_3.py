"""Figures 1 to 3: the ball alone over its radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot._validation import FloatArray
from surefoot.paper.protocol import Figures, Row, Settings, Tables, Task, grid_of_tasks
from surefoot.paper.samples import (
    BLUE,
    CONSTANT,
    LABEL_COST,
    ORANGE,
    PAPER,
    VACUOUS,
    Sample,
    band,
    counted,
    median_table,
    panels,
    per_dataset,
    rounded,
)
from surefoot.solvers.ball import ball_worst_case

# The ball alone over its radius, as a share of the distance to the truth: behind figures 1 and 2.


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
        return panels(self.name, summary[self.name], _draw_panel)


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
    """Return the smallest share from which on a median stays below a level; NaN (an empty cell) if it ends above."""
    above = table.loc[table[column] >= level, "share"]
    below = table.loc[table["share"] > above.max(), "share"] if len(above) else table["share"]
    return float(below.min()) if len(below) else float("nan")


def _draw_panel(ax: Any, table: Any) -> None:
    x = np.log10(100.0 * table["share"])
    band(ax, table, x, "likelihood", color=BLUE, label="likelihood")
    band(ax, table, x, "max_confidence", color=ORANGE, label="maximum confidence", style="--")
    ax.set(xlabel="log$_{10}$ of ε in % of the distance to P", ylabel="likelihood, confidence", ylim=(0.0, 1.03))


# Figure 1: the ball alone on Wisconsin breast cancer, 20 labels: no confidence long before the true distance.

FIGURE1 = BallOverRadius("figure1", "Figure 1, the ball alone on breast cancer", 20, ("breast-cancer",))


# Figure 2: the ball alone, likelihood and largest confidence over the radius, 100 labels.

FIGURE2 = BallOverRadius("figure2", "Figure 2, the ball alone over its radius", 100, PAPER)


_LABELED = 100


@dataclass(frozen=True)
class BeyondTheBall:
    """exp(−worst case) over ε (training) and Δ (excess at test time), exact at every pair."""

    name: str = "figure3"
    title: str = "Figure 3, the ball alone beyond its radius"
    study: str = "figure3"
    datasets: tuple[str, ...] = PAPER
    trials: int = 100
    quick_datasets: tuple[str, ...] = ("breast-cancer",)
    quick_trials: int = 5

    def grid(self, settings: Settings) -> FloatArray:
        """Radii ε, and excesses Δ alike: 10⁻³ to 1, as in the paper."""
        return np.logspace(-3, 0, 7 if settings.quick else 16)

    def tasks(self, settings: Settings) -> list[Task]:
        return grid_of_tasks(settings)

    def run(self, task: Task, settings: Settings) -> list[Row]:
        """One row per ε: the guarantee there, and a list of the worst likelihoods over Δ."""
        sample = Sample.draw(task, settings, _LABELED)
        X, y = sample.labeled
        grid, found = self.grid(settings), []
        for epsilon in grid:
            learned = sample.ball(float(epsilon))
            risk = ball_worst_case(
                X,
                2.0 * y - 1.0,
                learned.coef,
                learned.intercept,
                weights=np.full(len(y), 1.0 / len(y)),
                radii=epsilon + grid,
                label_cost=LABEL_COST,
                norm="l2",
            )
            found.append(
                {
                    "epsilon": rounded(epsilon),
                    "guarantee": rounded(np.exp(-learned.risk)),
                    "likelihoods": [rounded(value) for value in np.exp(-risk)],
                }
            )
        return found

    def summarize(self, rows: Any, settings: Settings) -> Tables:
        import pandas as pd

        deltas = [rounded(value) for value in self.grid(settings)]
        lines = []
        for (dataset, epsilon), group in rows.groupby(["dataset", "epsilon"], sort=False):
            medians = np.median(np.array(group["likelihoods"].to_list()), axis=0)
            fixed = {"dataset": dataset, "epsilon": epsilon, "trials": len(group)}
            fixed["guarantee"] = group["guarantee"].median()
            lines += [fixed | {"delta": delta, "likelihood": m} for delta, m in zip(deltas, medians, strict=True)]
        table = pd.DataFrame(lines)
        reach = per_dataset(table, _reach)
        return {self.name: table, f"{self.name}-reach": reach, f"{self.name}-claims": self.claims(reach)}

    def claims(self, reach: Any) -> Any:
        """The paper's claims on this figure."""
        by = reach.set_index("dataset")
        return counted(
            {
                "every ε with a guarantee of 0.505 or more is below 0.5 at some excess Δ ≤ 0.1": (
                    by["largest_delta_needed"] <= 0.1 + 1e-9
                ),
                "every ε with a guarantee of 0.505 or more is below 0.5 at some excess Δ ≤ 1": (
                    by["largest_delta_needed"] <= 1.0
                ),
            }
        )

    def draw(self, summary: Tables, settings: Settings) -> Figures:
        drawn = panels(self.name, summary[self.name], _panel, legend=False)
        for figure in drawn.values():
            shown = [ax for ax in figure.axes if ax.get_visible()]
            figure.colorbar(shown[0].collections[0], ax=figure.axes, label="worst-case likelihood", shrink=0.8)
        return drawn


def _reach(table: Any) -> Row:
    """Of the ε whose guarantee is not vacuous: where their worst case falls below ½."""
    grid = table.pivot_table(index="epsilon", columns="delta", values="likelihood")
    informative = table.groupby("epsilon")["guarantee"].first() >= VACUOUS
    # the first Δ below ½, infinite where there is none; a guarantee of exactly ½ is a trivial classifier's
    lost = grid[informative] < 0.5 - 1e-6
    needed = lost.idxmax(axis=1).where(lost.any(axis=1), np.inf).astype(float)
    return {
        "radii_with_guarantee": int(informative.sum()),
        "largest_such_radius": float(informative.index[informative].max()),
        "smallest_delta_needed": needed.min(),
        "median_delta_needed": needed.median(),
        "largest_delta_needed": needed.max(),
        "lost_at_double": int((needed <= needed.index * (1.0 + 1e-6)).sum()),
    }


def _panel(ax: Any, table: Any) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    # the paper's: blue 0, green ½, yellow 1
    colours = LinearSegmentedColormap.from_list("likelihood", ["#20409a", "#2a9d5c", "#ffe338"])
    grid = table.pivot_table(index="epsilon", columns="delta", values="likelihood")
    x, y = np.log10(grid.columns.to_numpy(float)), np.log10(grid.index.to_numpy(float))
    ax.pcolormesh(x, y, grid.to_numpy(), cmap=colours, vmin=0.0, vmax=1.0, shading="nearest", rasterized=True)
    level = 0.499  # just below ½, which a trivial classifier has exactly
    if grid.to_numpy().min() < level < grid.to_numpy().max():
        ax.contour(x, y, grid.to_numpy(), levels=[level], colors="white", linewidths=0.8)
    ax.set(xlabel="log$_{10}$ Δ", ylabel="log$_{10}$ ε")


FIGURE3 = BeyondTheBall()
