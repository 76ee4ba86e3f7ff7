"""The tables of docs/reproduction/table1.md, from the summaries beside it.

python -m surefoot.paper.table1.page docs/reproduction
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from surefoot.paper.panels import titles
from surefoot.paper.table1.compare import OBSERVATIONS
from surefoot.paper.table1.experiment import TITLES
from surefoot.paper.table1.readings import DR_ALL, DR_FEATURE_NORM, OTHER_CANDIDATES, SETTLED
from surefoot.paper.table1.trial import METHODS

_FAR = 2.5


def page_tables(folder: Path) -> dict[str, str]:
    """Markdown tables by name, from the CSV files of a folder."""
    import pandas as pd

    read = {path.stem: pd.read_csv(path, keep_default_na=False) for path in folder.glob("table1*.csv")}
    names = dict(zip(_datasets(read), titles(_datasets(read)), strict=True))
    names |= {name: f"{title}, {_BANKS[name]}" for name, title in names.items() if name in _BANKS}
    return {
        "cells": _cells(read["table1"], names),
        "acceptance": _plain(read["table1-acceptance"], ["criterion", "count", "of", "needed"]),
        "observations": _plain(
            read["table1-claims"].replace(names),
            ["observation", "paper", "ours", "of", "ours_only", "paper_only", "also_on"],
        ),
        "contrasts": _contrasts(read["table1-contrasts"], names),
        "robust": _robust(read["table1"]),
        "parts": _parts(read["table1-readings-cells"], names),
        "scaling": _scaling(read["table1-scaling"], names),
        "readings": _plain(
            read["table1-readings"].round({"mean_absolute": 2}),
            ["reading", "within_2.5", "of", "mean_absolute", "random", "emc", "min_mc", "max_mc", "dr_weak"],
        ),
    }


_BANKS = {"bank": "honest", "bank-leaky": "with the label"}


def _datasets(read: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(read["table1"]["dataset"]))


def _cells(table: Any, names: dict[str, str]) -> str:
    """Ours and the paper's in each cell; differences beyond 2.5 points are bold."""
    lines = []
    for dataset, part in table.groupby("dataset", sort=False):
        cells = [names[dataset]]
        for row in part.set_index("method").loc[list(METHODS)].itertuples():
            ours = f"{float(row.area):.1f}"
            if row.paper == "":
                cells.append(ours)
                continue
            text = f"{ours} / {float(row.paper):.1f}"
            cells.append(f"**{text}**" if abs(float(row.difference)) > _FAR else text)
        lines.append(cells)
    return markdown(["ours / paper", *TITLES.values()], lines)


def _contrasts(table: Any, names: dict[str, str]) -> str:
    """The differences behind observations 1 to 3, with 95 % intervals; bold where ours has not the paper's sign."""
    shown = [contrast for contrast, _ in OBSERVATIONS.values()][:3]
    lines = []
    for dataset, part in table.groupby("dataset", sort=False):
        by = part.set_index("contrast")
        cells = [names[dataset]]
        for contrast in shown:
            ours, low, high = (float(by.loc[contrast, column]) for column in ("ours", "low", "high"))
            paper = by.loc[contrast, "paper"]
            text = f"{ours:+.1f} ({low:+.1f} to {high:+.1f})"
            if paper != "":
                text += f" / {float(paper):+.1f}"
                text = f"**{text}**" if (ours > 0) != (float(paper) > 0) else text
            cells.append(text)
        lines.append(cells)
    return markdown(["ours (95 % interval) / paper", *shown], lines)


def _scaling(table: Any, names: dict[str, str]) -> str:
    """Areas with features scaled after and before the draw of rows, and the paper's."""
    lines = []
    for dataset, part in table.groupby("dataset", sort=False):
        columns = list(dict.fromkeys(part["method"]))
        for reading, cells in part.groupby("reading", sort=False):
            which = "after the draw" if reading == SETTLED else "before the draw"
            lines.append([names[dataset], which, *(f"{float(area):.1f}" for area in cells["area"])])
        lines.append([names[dataset], "paper", *(f"{float(paper):.1f}" for paper in cells["paper"])])
    return markdown(["dataset", "features scaled", *(TITLES[method] for method in columns)], lines)


def _parts(table: Any, names: dict[str, str]) -> str:
    """From DR to Min MC by its two differences, one at a time; and DR with other candidates."""
    areas = table.set_index(["dataset", "reading", "method"])["area"]
    columns = {
        "DR": (SETTLED, "dr_weak"),
        "DR, 100 other candidates": (OTHER_CANDIDATES, "dr_weak"),
        "DR, all candidates": (DR_ALL, "dr_weak"),
        "DR, norm without the constant": (DR_FEATURE_NORM, "dr_weak"),
        "both: Min MC": (SETTLED, "min_mc"),
    }
    lines = [
        [names[dataset], *(f"{float(areas[(dataset, *cell)]):.1f}" for cell in columns.values())]
        for dataset in dict.fromkeys(table["dataset"])
    ]
    return markdown(["10 trials", *columns], lines)


def _robust(table: Any) -> str:
    """In how many queries a robust score was above the least impact."""
    part = table[table["method"].isin(["dr_strong", "dr_weak"])]
    counts = part.groupby("method", sort=False)[["queries", "queries_above_least"]].sum().reset_index()
    counts["method"] = [TITLES[method] for method in counts["method"]]
    return _plain(counts, ["method", "queries", "queries_above_least"])


def _plain(table: Any, columns: list[str]) -> str:
    return markdown([name.replace("_", " ") for name in columns], table[columns].astype(str).values.tolist())


def markdown(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    first = list(head)
    rows = [first, ["---"] * len(first), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    for table in page_tables(Path(sys.argv[1])).values():
        sys.stdout.write(table + "\n\n")
