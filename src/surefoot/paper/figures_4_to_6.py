"""Figures 4 to 6: learning with unlabeled rows, over the radius and at the distance to the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.stats import entropy

from surefoot._validation import FloatArray
from surefoot.backends.blocks import BlockedProblem
from surefoot.backends.compute import Compute
from surefoot.backends.sources import ArrayRows
from surefoot.certificates.radius import minimal_radius
from surefoot.costs.metrics import Euclidean
from surefoot.estimators.curves import radius_curve
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.paper.protocol import Figures, Row, Settings, Tables, Task, grid_of_tasks
from surefoot.paper.samples import (
    BLUE,
    CONSTANT,
    GREEN,
    GREY,
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
from surefoot.priors import ClopperPearson
from surefoot.priors.clopper_pearson import tighten
from surefoot.problem.robust import InMemoryProblem, RobustProblem
from surefoot.problem.rows import LabeledData
from surefoot.solvers.minimal_radius import solve_minimal_radius
from surefoot.solvers.search.best_bounds import SetAtRadius
from surefoot.solvers.transport import solve_transport

# Learning at the distance to the truth: the ball, and unlabeled rows with either prior; behind figures 5 and 6.

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
        solved = game.solve([SetAtRadius(decision_set.with_radius(reach), smallest)], tol=GAP)
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
        return BlockedProblem.from_labeled_set(
            data, alone, ArrayRows(sample.unlabeled), Compute(device)
        ), sample.distance()
    problem = InMemoryProblem.from_data(
        replace(data, unlabeled=sample.unlabeled), sample.label_probabilities, LABEL_COST
    )
    ds = problem.decision_set
    cost = ds.distances + LABEL_COST * (sample.y[:, None] != ds.anchor_labels)
    return problem, solve_transport(cost, ds.row_weights, ds.anchor_weights).cost


# Figure 4: learning with unlabeled rows, over the radius beyond the minimal one; 100 labels, the strong prior.

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


FIGURE4 = OverExcessRadius()


# Figure 5: the certified likelihood at the distance to the truth, against the number of labels.


class BoundsByLabels(AtTrueRadius):
    """The bounds, and the paper's three observations on them."""

    def summarize(self, rows: Any, settings: Settings) -> Tables:
        found = super().summarize(rows, settings)
        cells = per_dataset(found[self.study], _bound_cells)
        guarantee = _guarantee(rows)
        return found | {
            "figure5-observations": cells,
            "figure5-guarantee": guarantee,
            "figure5-claims": self.claims(cells),
        }

    def claims(self, cells: Any) -> Any:
        """The paper's three observations, counted."""
        by = cells.set_index("dataset")
        return counted(
            {
                "1a. the ball's bound is vacuous (below 0.505) at every N_l": by["ball_vacuous_at"] == by["all_sizes"],
                "1b. the ball's classifier is trivial (median confidence below 0.505) at every N_l": (
                    by["ball_trivial_at"] == by["all_sizes"]
                ),
                "1c. the ball's classifier is constant (its probabilities differ by less than 0.01) at every N_l": (
                    by["ball_constant_at"] == by["all_sizes"]
                ),
                "2a. an N_l at which the ball's bound is vacuous and both of ours are not": by["both_not_vacuous_at"]
                != "",
                "2b. an N_l at which the ball's bound is vacuous and ours with the strong prior is not": (
                    by["strong_not_vacuous_at"] != ""
                ),
                "2c. an N_l at which the ball's bound is vacuous and ours with the weak prior is not": (
                    by["weak_not_vacuous_at"] != ""
                ),
                "2d. an N_l at which the ball's bound is vacuous and ours with the strong prior is 0.005 or more above "
                "what the label probabilities alone give": by["strong_beats_prior_at"] != "",
                "2e. an N_l at which the ball's classifier is constant and both of ours are not": (
                    by["both_not_constant_at"] != ""
                ),
                "2f. an N_l at which both of our bounds are 0.005 or more above the ball's": by["both_above_ball_at"]
                != "",
                "3a. the strong prior's bound is at least the weak one's at every N_l, up to the gap of 0.001": (
                    by["strong_below_weak_at"] == ""
                ),
                "3b. the strong prior's bound is above 0.505 at no larger N_l than the weak one's, and above 0.6 too": (
                    by["strong_first"]
                ),
            }
        )


def _bound_cells(table: Any) -> Row:
    """N_l at which each claim holds, as words: N_l separated by blanks."""
    bound = table.pivot_table(index="n_labeled", columns="method", values="bound")
    confidence = table.pivot_table(index="n_labeled", columns="method", values="median_confidence")
    spread = table.pivot_table(index="n_labeled", columns="method", values="spread")
    vacuous, trivial, constant = bound < VACUOUS, confidence < VACUOUS, spread < CONSTANT
    prior_alone = table["prior_alone"].iloc[0]

    def at(mask: Any) -> str:
        return " ".join(str(n) for n in bound.index[mask])

    def first(method: str, level: float) -> float:
        reached = bound.index[bound[method] >= level]
        return float(reached.min()) if len(reached) else float("inf")

    strong_first = all(first("strong", level) <= first("weak", level) for level in (VACUOUS, 0.6))
    return {
        "all_sizes": at(bound["ball"] > 0),
        "ball_vacuous_at": at(vacuous["ball"]),
        "ball_trivial_at": at(trivial["ball"]),
        "ball_constant_at": at(constant["ball"]),
        "both_not_vacuous_at": at(vacuous["ball"] & ~vacuous["strong"] & ~vacuous["weak"]),
        "strong_not_vacuous_at": at(vacuous["ball"] & ~vacuous["strong"]),
        "weak_not_vacuous_at": at(vacuous["ball"] & ~vacuous["weak"]),
        "strong_beats_prior_at": at(vacuous["ball"] & (bound["strong"] >= prior_alone + 0.005)),
        "both_above_ball_at": at(bound[["strong", "weak"]].min(axis=1) >= bound["ball"] + 0.005),
        "both_not_constant_at": at(constant["ball"] & ~constant["strong"] & ~constant["weak"]),
        "strong_below_weak_at": at(bound["strong"] < bound["weak"] * 0.999),
        "strong_first": strong_first,
        "prior_alone": prior_alone,
    }


def _guarantee(rows: Any) -> Any:
    """How often the bound held on P itself, by method, and how far the certified gap was closed."""
    rows = rows.assign(kept=rows["bound"] <= rows["likelihood"] + 1e-6)
    grouped = rows.groupby("method", sort=False)
    return grouped.agg(fits=("kept", "size"), bound_holds=("kept", "sum"), largest_gap=("gap", "max")).reset_index()


FIGURE5 = BoundsByLabels("figure5", "Figures 5 and 6, at the distance to the truth", "bound", "certified likelihood")


# The paper's threshold of the as-robust-as-possible rule.
THRESHOLD = 0.7


class ConfidencesByLabels(AtTrueRadius):
    """The confidences, compared with the paper. The trials are the same as for figure 5."""

    def summarize(self, rows: Any, settings: Settings) -> Tables:
        found = super().summarize(rows, settings)
        cells = per_dataset(found[self.study], _cells)
        return found | {"figure6-observations": cells, "figure6-claims": self.claims(cells)}

    def claims(self, cells: Any) -> Any:
        """The caption's claim, and that of section 5.1 on the threshold of 0.7."""
        by = cells.set_index("dataset")
        return counted(
            {
                "an N_l at which the ball's median confidence is below 0.505 and both of ours are not": (
                    by["only_ours_at"] != ""
                ),
                "the median confidence of the strong prior is 0.7 or more at N_l = 100 or some smaller one": (
                    by["strong_confident_from"] <= 100
                ),
                "the same at some N_l up to 1000": by["strong_confident_from"] <= 1000,
                "the median confidence of the weak prior is 0.7 or more at some N_l up to 1000": (
                    by["weak_confident_from"] <= 1000
                ),
            }
        )


def _cells(table: Any) -> Row:
    confidence = table.pivot_table(index="n_labeled", columns="method", values="median_confidence")
    trivial = confidence < VACUOUS
    only_ours = trivial["ball"] & ~trivial["strong"] & ~trivial["weak"]

    def first(method: str) -> float:
        reached = confidence.index[confidence[method] >= THRESHOLD]
        return float(reached.min()) if len(reached) else float("nan")

    return {
        "only_ours_at": " ".join(str(n) for n in confidence.index[only_ours]),
        "strong_confident_from": first("strong"),
        "weak_confident_from": first("weak"),
        "ball_confident_from": first("ball"),
    }


FIGURE6 = ConfidencesByLabels(
    "figure6", "Figures 5 and 6, at the distance to the truth", "median_confidence", "median confidence"
)
