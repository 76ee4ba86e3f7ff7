"""Figure 3: the worst case of the ball's classifier beyond the radius that it was trained with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot._types import FloatArray
from surefoot.paper.observations import counted, per_dataset
from surefoot.paper.panels import PAPER, panels
from surefoot.paper.protocol import Figures, Row, Settings, Tables, Task, grid_of_tasks
from surefoot.paper.samples import LABEL_COST, VACUOUS, Sample, rounded
from surefoot.solvers.ball.solver import ball_worst_case

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
    promising = table.groupby("epsilon")["guarantee"].first() >= VACUOUS
    # the first Δ below ½, infinite where there is none; a guarantee of exactly ½ is a trivial classifier's
    lost = grid[promising] < 0.5 - 1e-6
    needed = lost.idxmax(axis=1).where(lost.any(axis=1), np.inf).astype(float)
    return {
        "radii_with_guarantee": int(promising.sum()),
        "largest_such_radius": float(promising.index[promising].max()),
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


EXPERIMENT = BeyondTheBall()
