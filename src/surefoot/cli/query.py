"""`surefoot query`: the rows to label next, with why."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from surefoot._printing import cell_text, count
from surefoot.cli.output import Output
from surefoot.pool.choices import Choices
from surefoot.pool.clock import Clock
from surefoot.pool.learn_pool import Start
from surefoot.pool.model import train
from surefoot.pool.next_rows import candidates, working_rows
from surefoot.pool.rows import identifier_of, shown_cells
from surefoot.pool.table import Pool
from surefoot.pool.table.asked import picked_rows

# Columns of a row that are shown beside the reason, and characters of a cell.
_SHOWN, _LONGEST_CELL = 4, 60


def query_pool(output: Output, pool: Pool, choices: Choices, *, n: int, most: int) -> int:
    """Print the rows whose labels would say most."""
    for note in pool.notes:
        output.note(note)
    keep = working_rows(pool, most, choices.seed)
    if len(keep) < len(pool.rows):
        output.note(f"{most} of the unlabeled rows were drawn at random to choose from; --pool-size 0 takes all.")
    with output.working("learning") as say:
        fit = train(Start.of(pool.subset(keep), picked_rows(pool.table)[keep]), choices, Clock(None, say))
        chosen = candidates(fit, n, choices.seed)
    for note in fit.notes:
        output.note(note)
    rows = keep[np.flatnonzero(~fit.start.pool.labeled)]
    listed = [(int(rows[c.position]), c) for c in chosen]
    output.say(f"Rows of {pool.table.path.name} to label next", "bold")
    cells, named = shown_cells(pool), identifier_of(pool)
    names = pool.columns.used[:_SHOWN]
    marks = [] if named is None else [named]
    output.table(
        ["row", *marks, "why", *names],
        [
            [str(row + 1), *_texts(pool.table.cells, marks, row), c.reason, *_texts(cells, names, row)]
            for row, c in listed
        ],
        right=(0,),
    )
    left = len(pool.columns.used) - _SHOWN
    if left > 0:
        output.say(f"  {count(left, 'more column')} not shown.", "dim")
    data = {
        "rows": [
            {
                "row": row + 1,
                "name": None if named is None else cell_text(pool.table.cells[named].iloc[row]),
                "score": c.score,
                "why": c.reason,
                "probabilities": dict(zip(pool.classes, c.proba, strict=True)),
                "nearest_label": c.nearest_label,
                "nearest_distance": c.nearest_distance,
                "cells": {name: _value(cells[name].iloc[row]) for name in pool.columns.used},
            }
            for row, c in listed
        ],
        "next": next_line(pool),
    }
    output.say(f"Next: {next_line(pool)}")
    return output.finish(data)


def next_line(pool: Pool) -> str:
    """The command that asks for these labels."""
    table = pool.table
    return f"surefoot label {shlex.quote(str(table.path))} --label {shlex.quote(table.label)}"


def _texts(cells: Any, names: list[str], row: int) -> list[str]:
    return [cell_text(cells[name].iloc[row], _LONGEST_CELL) for name in names]


def _value(value: Any) -> Any:
    return None if value != value else value  # noqa: PLR0124 - NaN
