"""Learning at the distance to the truth: the ball, and unlabeled rows with either prior; behind figures 5 and 6."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.stats import entropy

from surefoot.blocks.compute import Compute
from surefoot.blocks.problem import BlockProblem
from surefoot.blocks.sources import ArrayRows
from surefoot.costs import Euclidean
from surefoot.exact.judge import Member
from surefoot.exact.problem import HeldProblem, RobustProblem
from surefoot.paper.intervals import median_table
from surefoot.paper.panels import BLUE, GREEN, ORANGE, PAPER, band, panels
from surefoot.paper.protocol import Figures, Row, Settings, Tables, Task, grid_of_tasks
from surefoot.paper.samples import LABEL_COST, Sample, rounded
from surefoot.priors import ClopperPearson, tighten
from surefoot.problem.rows import LabeledData
from surefoot.solvers.minimal import solve_minimal_radius
from surefoot.solvers.transport import solve_transport

# Certified gap, in units of the risk: a bound is at most this factor exp(1e-3) from the best one.
GAP = 1e-3
METHODS = ("ball", "strong", "weak")
_LABELS = {"ball": "ball alone", "strong": "unlabeled rows, strong prior", "weak": "unlabeled rows, weak prior"}
_STYLES = {"ball": (GREEN, ":"), "strong": (BLUE, "-"), "weak": (ORANGE, "--")}


@dataclass(frozen=True)
class AtTrueRadius:
    """Bound and confidence at ε = W_c(P, P̂_l) for growing labeled samples.

    The transport plan of the features is shared by both priors, and ε by all three methods.
    """

    name: str
    title: str
    quantity: str  # the column that the figure shows
    ylabel: str
    study: str = "figure5-6"
    datasets: tuple[str, ...] = PAPER
    trials: int = 40
    quick_datasets: tuple[str, ...] = ("breast-cancer",)
    quick_trials: int = 3
    sizes: ClassVar[tuple[int, ...]] = (20, 50, 100, 200, 500, 1000)
    quick_sizes: ClassVar[tuple[int, ...]] = (20, 40, 80)

    def tasks(self, settings: Settings) -> list[Task]:
        return grid_of_tasks(settings, [str(n) for n in (self.quick_sizes if settings.quick else self.sizes)])

    def run(self, task: Task, settings: Settings) -> list[Row]:
        sample = Sample.draw(task, settings, int(task.variant))
        return at_true_radius(sample, settings.device)

    def summarize(self, rows: Any, settings: Settings) -> Tables:
        by = ["dataset", "method", "n_labeled"]
        columns = ["bound", "median_confidence", "likelihood", "spread", "radius", "excess", "prior_alone"]
        ranks = [settings.datasets, METHODS]
        order = [
            rows[column].map({name: i for i, name in enumerate(rank)}) for column, rank in zip(by, ranks, strict=False)
        ]
        rows = rows.iloc[np.lexsort([rows["n_labeled"], order[1], order[0]])]
        table = median_table(rows, by, columns)
        plain = [f"{column}_{end}" for column in columns[3:] for end in ("low", "high")]
        return {self.study: table.drop(columns=plain)}

    def draw(self, summary: Tables, settings: Settings) -> Figures:
        return panels(self.name, summary[self.study], self._panel)

    def _panel(self, ax: Any, table: Any) -> None:
        for method in METHODS:
            part = table[table["method"] == method]
            colour, style = _STYLES[method]
            band(ax, part, part["n_labeled"], self.quantity, color=colour, label=_LABELS[method], style=style)
        ax.set_xscale("log")
        sizes = sorted(set(table["n_labeled"]))
        ax.set_xticks(sizes, [str(n) for n in sizes])
        ax.minorticks_off()
        ax.set(xlabel="number of labeled rows $N_l$", ylabel=self.ylabel, ylim=(0.47, 1.02))


def at_true_radius(sample: Sample, device: str = "cpu") -> list[Row]:
    """One row per method: its bound, and how its classifier fares on P."""
    problem, radius = _problem(sample, device)
    # what the strong prior alone gives: the likelihood of the classifier that knows p and nothing else
    known = rounded(np.exp(-entropy(sample.label_probabilities)))
    shared = {"n_labeled": sample.n, "radius": rounded(radius), "prior_alone": known}
    ball = sample.ball(radius)
    found = [
        {
            **shared,
            "method": "ball",
            "excess": rounded(radius),
            "bound": rounded(np.exp(-ball.risk)),
            "gap": rounded(ball.gap),
            "status": ball.status,
            **sample.judged(ball.coef, ball.intercept),
        }
    ]
    game = problem.linear(0.0, True)
    strong = problem.decision_set
    weak = ClopperPearson().intervals(np.bincount(problem.data.codes, minlength=2))
    sets = {"strong": strong, "weak": replace(strong, intervals=tighten(weak))}
    for method, decision_set in sets.items():
        smallest = solve_minimal_radius(decision_set, problem.minimal.transport)
        # P lies in the set, even where a device knows the minimal radius from above only
        reach = max(radius, smallest.value)
        solved = game.solve([Member(decision_set.with_radius(reach), smallest)], tol=GAP)
        coef, intercept = game.coefficients(solved.theta)
        found.append(
            {
                **shared,
                "method": method,
                "excess": rounded(radius - smallest.value),
                "bound": rounded(np.exp(-solved.risk)),
                "gap": rounded(solved.gap),
                "status": solved.status,
                **sample.judged(coef[0], float(intercept[0])),
            }
        )
    return found


def _problem(sample: Sample, device: str) -> tuple[RobustProblem, float]:
    """The problem with the strong prior, and ε = W_c(P, P̂_l)."""
    X, y = sample.labeled
    data = LabeledData.check(X, y, sample_weight=None, classes=[0, 1], metric=Euclidean())
    if device != "cpu":
        alone = data.decision_set(sample.label_probabilities, LABEL_COST)
        return BlockProblem.of(data, alone, ArrayRows(sample.unlabeled), Compute(device)), sample.distance()
    problem = HeldProblem.of(replace(data, unlabeled=sample.unlabeled), sample.label_probabilities, LABEL_COST)
    ds = problem.decision_set
    cost = ds.distances + LABEL_COST * (sample.y[:, None] != ds.anchor_labels)
    return problem, solve_transport(cost, ds.row_weights, ds.anchor_weights).cost
