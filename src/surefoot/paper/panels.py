"""Figures made of one panel per dataset, laid out as in the paper: six datasets in the text, eight in its appendix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from surefoot.datasets import names, paper_names
from surefoot.datasets._catalogue import DATASETS

# Okabe and Ito's colours, told apart by readers who do not see all hues
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"

MAIN = ("letter-c-e", "letter-u-v", "wine", "mushroom", "covtype-2-3", "covtype-5-6")
APPENDIX = tuple(name for name in paper_names() if name not in MAIN)
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
