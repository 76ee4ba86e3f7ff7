"""Readings of the open choices in the paper's Table 1, and the tables of docs/reproduction/table1.md.

python -m surefoot.paper.table1_readings docs/reproduction
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from surefoot._validation import FloatArray
from surefoot.datasets import _encoded
from surefoot.datasets._catalogue import DATASETS, standardize
from surefoot.datasets._download import locate
from surefoot.paper.protocol import Figures, Row, Settings, Tables, Task, grid_of_tasks
from surefoot.paper.runner import run_experiment
from surefoot.paper.samples import load_rows, rounded, titles
from surefoot.paper.table1_trial import METHODS, Reading, run_trial
from surefoot.paper.tables import OBSERVATIONS, TITLES, areas_under, first_rows
from surefoot.paper.tables import PRINTED_AREAS as PRINTED

# What the paper's Table 1 leaves open, settled by the whole table: each reading beside the one that was chosen.

_METHODS = tuple(method for method in METHODS if method != "dr_strong")
SETTLED = "settled"
SCALED_FIRST = "features scaled over all rows of the two classes, then rows drawn"
DR_FEATURE_NORM = "DR: norm without the constant (printed)"
DR_ALL = "DR: all candidates"
OTHER_CANDIDATES = "DR: 100 other candidates each time"
READINGS: dict[str, Reading] = {
    SETTLED: Reading(),
    "penalty 0.001": Reading(penalty=1e-3),
    "penalty 0.00025": Reading(penalty=2.5e-4),
    "penalty 0.001, norms with the constant throughout": Reading(
        penalty=1e-3, emc_norm="x and 1", min_max_norm="x and 1"
    ),
    "mean of losses, penalty 0.001 (printed)": Reading(penalty=1e-3, losses="mean"),
    "intercept not penalised": Reading(intercept="free"),
    "no intercept (printed)": Reading(intercept="none", robust_norm="x"),
    "EMC, Min, Max: norm with the constant": Reading(emc_norm="x and 1", min_max_norm="x and 1"),
    "Min, Max: no norm (printed)": Reading(min_max_norm="none"),
    DR_FEATURE_NORM: Reading(robust_norm="x"),
    "DR: no norm": Reading(robust_norm="none"),
    "EMC, Min, Max: 100 candidates": Reading(max_candidates=100),
    DR_ALL: Reading(robust_candidates=None),
    OTHER_CANDIDATES: Reading(),
    SCALED_FIRST: Reading(),
}
SOLVERS: dict[str, Reading] = {
    "fits by scikit-learn's liblinear": Reading(solver="liblinear"),
    "fits by scikit-learn's lbfgs": Reading(solver="lbfgs", intercept="free"),
}
_ALL = READINGS | SOLVERS


@lru_cache(maxsize=16)
def rows_scaled_first(name: str, seed: int) -> tuple[FloatArray, NDArray[np.intp]]:
    """Like `load_rows`, but scale the features over all rows of the two classes before sampling."""
    dataset = DATASETS[name]
    if dataset.draw is None:
        return load_rows(name, seed)
    paths = locate(dataset.archive, None, download_if_missing=True)
    table = _encoded(name, paths, tuple((path.stat().st_size, path.stat().st_mtime_ns) for path in paths))
    drawn = dataset.draw.rows(table.target, check_random_state(seed))
    return standardize(table.data)[drawn], table.target[drawn].astype(np.intp)


def changed_methods(dataset: str, variant: str) -> tuple[str, ...]:
    """Return the methods whose curves a reading changes. All other methods have the curves of the settled reading."""
    reading, settled = _ALL[variant], _ALL[SETTLED]
    if variant == SCALED_FIRST:
        return _METHODS if DATASETS[dataset].draw is not None else ()
    if variant == OTHER_CANDIDATES:
        return ("dr_weak",)
    fit = ("penalty", "losses", "intercept", "solver")
    if variant == SETTLED or any(getattr(reading, name) != getattr(settled, name) for name in fit):
        return _METHODS
    heuristics = _METHODS[1:]
    return tuple(m for m in heuristics if (reading.norm(m), reading.most(m)) != (settled.norm(m), settled.most(m)))


@dataclass
class Readings:
    """Table 1 with each of the readings; all see the same first rows and seeds in a trial."""

    name: str = "table1-readings"
    title: str = "Table 1, readings of the paper"
    study: str = "table1-readings"
    datasets: tuple[str, ...] = tuple(name for name in PRINTED if name != "bank-leaky")
    trials: int = 10
    quick_datasets: tuple[str, ...] = ("breast-cancer",)
    quick_trials: int = 2
    readings: tuple[str, ...] = tuple(READINGS)

    def tasks(self, settings: Settings) -> list[Task]:
        return grid_of_tasks(settings, variants=self.readings)

    def run(self, task: Task, settings: Settings) -> list[Row]:
        load = rows_scaled_first if task.variant == SCALED_FIRST else load_rows
        X, y = load(task.dataset, settings.seed)
        rng = task.rng(settings.seed)
        first = first_rows(y, rng)
        seed = int(rng.integers(2**31)) + (task.variant == OTHER_CANDIDATES)
        methods = changed_methods(task.dataset, task.variant)
        if not methods:
            return []
        reading, last = _ALL[task.variant], 30 if settings.quick else 100
        found = run_trial(X, y, first, [seed] * len(methods), reading, methods, last)
        return [
            {"method": method, "likelihood": [rounded(value) for value in found.scores[m]]}
            for m, method in enumerate(methods)
        ]

    def summarize(self, rows: Any, settings: Settings) -> Tables:
        """Cells, and for each reading how many are within 2.5 of the paper's, and how far they are on average."""
        import pandas as pd

        cells = []
        parts = dict(iter(rows.groupby(["variant", "dataset", "method"], sort=False)))
        for variant, dataset, method in product(self.readings, settings.datasets, _METHODS):
            changed = method in changed_methods(dataset, variant)
            part = parts[(variant if changed else SETTLED, dataset, method)]
            printed = PRINTED[dataset][METHODS.index(method)] if dataset in PRINTED else np.nan
            area = float(areas_under(np.array(part["likelihood"].tolist())))
            line = {"reading": variant, "dataset": dataset, "method": method, "area": area}
            cells.append(line | {"paper": printed, "difference": area - printed})
        table = pd.DataFrame(cells)
        lines = [{"reading": name, **_counts(part)} for name, part in table.groupby("reading", sort=False)]
        return {f"{self.name}-cells": table, self.name: pd.DataFrame(lines)}

    def draw(self, summary: Tables, settings: Settings) -> Figures:
        """Nothing: it is a table."""
        return {}


def _counts(part: Any) -> Row:
    """Cells within 2.5 points, in all and by method, and the mean absolute difference."""
    away = part["difference"].abs()
    by_method = {method: int((away[part["method"] == method] <= 2.5).sum()) for method in _METHODS}
    return {"within_2.5": int((away <= 2.5).sum()), "of": len(part), "mean_absolute": away.mean(), **by_method}


STUDY = Readings()


def write_table1_page(arguments: Sequence[str] | None = None) -> None:
    """Run all readings, or go on with a run that was stopped."""
    parser = argparse.ArgumentParser(description=STUDY.title)
    parser.add_argument("out", type=Path)
    parser.add_argument("--trials", type=int, default=STUDY.trials)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--datasets", nargs="+", default=STUDY.datasets, choices=STUDY.datasets)
    parser.add_argument(
        "--scaling", action="store_true", help="the settled reading and the one that scales first alone"
    )
    parser.add_argument(
        "--solvers", action="store_true", help="the settled reading, its fits by scikit-learn's solvers"
    )
    asked = parser.parse_args(arguments)
    chosen = (SETTLED, SCALED_FIRST) if asked.scaling else (SETTLED, *SOLVERS) if asked.solvers else tuple(READINGS)
    experiment = Readings(readings=chosen)
    settings = Settings(tuple(asked.datasets), asked.trials, seed=asked.seed)
    run_experiment(experiment, settings, out=asked.out, jobs=asked.jobs)


if __name__ == "__main__":
    write_table1_page()


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
