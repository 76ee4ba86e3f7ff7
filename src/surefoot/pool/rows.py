"""How rows of a pool are called and shown: by number and identifier, with cells as they stand in the file."""

from __future__ import annotations

from typing import Any

from surefoot.pool.table import Pool
from surefoot.pool.table.cells import as_text
from surefoot.pool.table.kinds import ROW_NUMBER


def identifier_of(pool: Pool) -> str | None:
    """The column that names the rows, if the table has one."""
    columns = [name for name, why in pool.columns.left_out.items() if "names the rows" in why or "numbers the" in why]
    return next((name for name in columns if not ROW_NUMBER.search(name)), None)


def names_of_rows(pool: Pool) -> list[str]:
    """Row numbers, and what an identifying column of the table calls the rows."""
    name = identifier_of(pool)
    if name is None:
        return [f"row {row + 1}" for row in range(len(pool.rows))]
    cells = pool.table.cells[name].map(as_text, na_action="ignore")
    return [f"row {row + 1} ({name} {cell})" for row, cell in enumerate(cells)]


def shown_cells(pool: Pool) -> Any:
    """The used columns as they stand in the file, numbers as numbers."""
    shown = pool.values.copy()
    for name in pool.columns.dates:
        shown[name] = pool.table.cells[name].map(str, na_action="ignore")
    return shown
