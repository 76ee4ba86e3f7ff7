"""Functions that the experiments share: samples of a dataset, medians with intervals, claims, panels per dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_finite_array, check_unit_scalar
from surefoot.certificates.radius import transport_distance
from surefoot.datasets import load, names
from surefoot.datasets._catalogue import DATASETS
from surefoot.paper.protocol import Row, Settings, Task
from surefoot.problem.losses import log_loss_matrix, probabilities
from surefoot.solvers.ball import BallSolution, solve_ball

# The median of a sample with an interval for the true median, from order statistics alone.


@lru_cache(maxsize=64)
def median_ranks(n: int, level: float = 0.95) -> tuple[int, int]:
    """Ranks (low, high), from 0, of the order statistics of n values that hold the true median at this level.

    Of n independent values the number below the true median is binomial(n, ½), whatever their distribution. The pair is
    symmetric, and the innermost one of at least the level; with fewer than 6 values none reaches 95 %, and the extremes
    are returned.
    """
    tail = int(binom.ppf((1.0 - level) / 2.0, n, 0.5))
    low = max(tail - 1, 0)  # P(fewer than `tail` values lie below the median) ≤ (1 − level)/2
    return low, n - 1 - low


def median_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """Median of a sample (n,), and the ends of the interval of its median.

    Examples
    --------
    >>> median_interval(range(1, 21))
    (10.5, 6.0, 15.0)
    """
    ordered = np.sort(check_finite_array(values, "values", ndim=1))
    if not len(ordered):
        raise ParameterError("values", "must not be empty", "none", "Pass the results of at least one trial.")
    low, high = median_ranks(len(ordered), check_unit_scalar(level, "level"))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


def median_table(rows: Any, by: list[str], columns: list[str]) -> Any:
    """A data frame of `rows` grouped by columns `by`: trials, and for each column its median, _low and _high."""
    import pandas as pd

    table = []
    for key, group in rows.groupby(by, sort=False):
        line = dict(zip(by, key, strict=True)) | {"trials": len(group)}
        for column in columns:
            line[column], line[f"{column}_low"], line[f"{column}_high"] = median_interval(group[column].to_numpy())
        table.append(line)
    return pd.DataFrame(table)


# The paper's claims, counted on our results.


def counted(claims: Mapping[str, Any]) -> Any:
    """Return a data frame with one line per claim: the number of datasets on which it holds, and the exceptions.

    Parameters
    ----------
    claims : by the text of the claim, a series of bool indexed by dataset.
    """
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "claim": text,
                "holds": int(series.sum()),
                "of": len(series),
                "fails_on": " ".join(str(dataset) for dataset in series.index[~series.astype(bool)]),
            }
            for text, series in claims.items()
        ]
    )


def per_dataset(table: Any, function: Any) -> Any:
    """A data frame with one line per dataset, in the order of the table, made by a function from its part to a dict."""
    import pandas as pd

    return pd.DataFrame(
        [{"dataset": dataset} | function(part) for dataset, part in table.groupby("dataset", sort=False)]
    )


# What the experiments share: a dataset, a labeled sample of it, and a linear classifier judged on all rows.

LABEL_COST = 1.0  # κ of the paper's experiments
_BALL_GAP = 1e-6
# Bounds and confidences below this print as 0.50: the bound is vacuous, the classifier indifferent.
VACUOUS = 0.505
# A classifier whose probabilities differ by less than this over all rows says the same of all of them.
CONSTANT = 0.01


@lru_cache(maxsize=16)  # the paper's 14 datasets take about 160 MB together
def load_rows(name: str, seed: int) -> tuple[FloatArray, NDArray[np.intp]]:
    """Rows (N, d) and labels (N,), 0 or 1, of a dataset; the seed draws the rows of Bank, Cover, Magic and Pulsar."""
    X, y = load(name, random_state=seed, return_X_y=True)
    X.flags.writeable = False
    return X, y.astype(np.intp)


@dataclass(frozen=True, eq=False)
class Sample:
    """A dataset in random order, X (N, d) and y (N,), of which the first n rows are the labeled ones.

    The whole dataset is the true distribution P, as in the paper: classifiers are judged on all of its rows.
    """

    X: FloatArray
    y: NDArray[np.intp]
    n: int

    @classmethod
    def draw(cls, task: Task, settings: Settings, n: int) -> Sample:
        """Label n rows, uniformly without replacement; samples of different size of one trial are nested."""
        X, y = load_rows(task.dataset, settings.seed)
        order = task.rng(settings.seed).permutation(len(X))
        return cls(X[order], y[order], min(n, len(X)))

    @property
    def labeled(self) -> tuple[FloatArray, NDArray[np.intp]]:
        return self.X[: self.n], self.y[: self.n]

    @property
    def unlabeled(self) -> FloatArray:
        return self.X[self.n :]

    @property
    def label_probabilities(self) -> FloatArray:
        """(2,) of P: the strong prior."""
        return np.bincount(self.y, minlength=2) / len(self.y)

    def distance(self) -> float:
        """W_c from the labeled sample to P."""
        return transport_distance(*self.labeled, self.X, self.y, label_cost=LABEL_COST)

    def ball(self, radius: float, warm_start: BallSolution | None = None) -> BallSolution:
        """The classifier of the ball alone; one class among the labels is enough."""
        X, y = self.labeled
        return solve_ball(X, 2.0 * y - 1.0, radius=radius, label_cost=LABEL_COST, tol=_BALL_GAP, warm_start=warm_start)

    def judged(self, coef: FloatArray, intercept: float) -> Row:
        """Likelihood exp(−mean log loss), confidences and spread of a linear classifier, coef (d,), over P.

        The spread is the spread of its probabilities of one class, zero for constant predictions.
        """
        scores = self.X @ coef + intercept
        proba = probabilities(scores)
        top = proba.max(axis=1)
        losses = log_loss_matrix(scores)[np.arange(len(self.y)), self.y]
        return {
            "likelihood": rounded(np.exp(-losses.mean())),
            "median_confidence": rounded(np.median(top)),
            "max_confidence": rounded(top.max()),
            "spread": rounded(np.ptp(proba[:, 1])),
        }


def rounded(value: float) -> float:
    """Seven digits, more than any of the results has."""
    return float(f"{float(value):.7g}")


# Okabe and Ito's colours, told apart by readers who do not see all hues
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"

MAIN = ("letter-c-e", "letter-u-v", "wine", "mushroom", "covtype-2-3", "covtype-5-6")
APPENDIX = tuple(name for name in names(paper_only=True) if name not in MAIN)
PAPER = MAIN + APPENDIX


def titles(datasets: Sequence[str]) -> list[str]:
    """The paper's names of datasets."""
    return [DATASETS[name].title if name in names() else name for name in datasets]


def panels(name: str, table: Any, draw_panel: Callable[[Any, Any], None], legend: bool = True) -> dict[str, Any]:
    """Figures `name` of the paper's main datasets and `name-appendix` of the others; all in one if none is a main one.

    `draw_panel(ax, table of one dataset)` draws a panel; the handles of the first one make the legend.
    """
    asked = list(dict.fromkeys(table["dataset"]))
    main = [dataset for dataset in asked if dataset in MAIN]
    rest = [dataset for dataset in asked if dataset not in MAIN]
    parts = {name: main, f"{name}-appendix": rest} if main else {name: rest}
    return {part: _figure(table, shown, draw_panel, legend) for part, shown in parts.items() if shown}


def _figure(table: Any, datasets: list[str], draw_panel: Callable[[Any, Any], None], legend: bool) -> Any:
    from matplotlib.figure import Figure

    columns = min(len(datasets), 4 if len(datasets) > 6 else 3 if len(datasets) > 4 else 2)
    lines = -(-len(datasets) // columns)
    figure = Figure(figsize=(max(3.1 * columns, 4.6), 2.5 * lines + 0.5), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for ax, dataset, title in zip(axes.flat, datasets, titles(datasets), strict=False):
        draw_panel(ax, table[table["dataset"] == dataset])
        ax.set_title(title, fontsize="medium")
    for ax in axes.flat[len(datasets) :]:
        ax.set_visible(False)
    for row, line in enumerate(axes):
        for column, ax in enumerate(line):
            # shared labels stand at the left and below the last panel of each column
            ax.set_ylabel(ax.get_ylabel() if column == 0 else "")
            below = (row + 1) * columns + column < len(datasets)
            ax.set_xlabel("" if below else ax.get_xlabel())
            ax.tick_params(labelbottom=not below)
    if legend:
        handles, labels = axes[0, 0].get_legend_handles_labels()
        # side by side where there is room, about 10 letters to the inch
        ncols = len(labels) if sum(len(label) + 8 for label in labels) < 10.0 * figure.get_figwidth() else 1
        figure.legend(handles, labels, loc="outside upper center", ncols=ncols, frameon=False)
    return figure


def band(ax: Any, table: Any, x: Any, column: str, *, color: str, label: str, style: str = "-") -> None:
    """A line through the medians, and the interval of the median as a band."""
    ax.plot(x, table[column], style, color=color, label=label, linewidth=1.8)
    ax.fill_between(x, table[f"{column}_low"], table[f"{column}_high"], color=color, alpha=0.22, linewidth=0)
