"""A linear program in exact rational arithmetic: the simplex method with Bland's rule on fractions.

Slow and without tolerances, so it can judge solvers that have them. For small problems only.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Row = list[Fraction]


class InfeasibleError(ValueError):
    """No point satisfies the constraints."""


def minimize(
    cost: Sequence[object],
    *,
    equal: Sequence[tuple[Sequence[object], object]] = (),
    at_most: Sequence[tuple[Sequence[object], object]] = (),
) -> tuple[Fraction, Row]:
    """Min cost · x over x ≥ 0 with row · x = right side for `equal`, and ≤ for `at_most`: the value, and x.

    Numbers are taken as they are: a float is the binary fraction that it stands for.
    """
    n, slacks = len(cost), len(at_most)
    rows: list[Row] = []
    for i, (row, right) in enumerate([*at_most, *equal]):
        line = _fractions(row) + [Fraction(int(i == j)) for j in range(slacks)] + [_fraction(right)]
        rows.append([-value for value in line] if line[-1] < 0 else line)
    width = n + slacks
    # phase one: artificial variables, one per row, are driven to zero
    tableau = [row[:-1] + [Fraction(int(i == j)) for j in range(len(rows))] + row[-1:] for i, row in enumerate(rows)]
    basis = [width + i for i in range(len(rows))]
    value = _simplex(tableau, basis, [Fraction(0)] * width + [Fraction(1)] * len(rows))
    if value != 0:
        raise InfeasibleError(f"the constraints are violated by {float(value)} at least")
    _drive_out(tableau, basis, width)
    tableau = [row[:width] + row[-1:] for row in tableau]
    value = _simplex(tableau, basis, _fractions(cost) + [Fraction(0)] * slacks)
    x = [Fraction(0)] * width
    for row, column in zip(tableau, basis, strict=True):
        x[column] = row[-1]
    return value, x[:n]


def _fraction(value: object) -> Fraction:
    return value if isinstance(value, Fraction) else Fraction(float(value))  # type: ignore[arg-type]


def _fractions(values: Sequence[object]) -> Row:
    return [_fraction(value) for value in values]


def _drive_out(tableau: list[Row], basis: list[int], width: int) -> None:
    """Artificial variables leave the basis; a row that has nothing else repeats others and is dropped."""
    for i in reversed(range(len(tableau))):
        if basis[i] >= width:
            column = next((j for j in range(width) if tableau[i][j] != 0), None)
            if column is None:
                del tableau[i], basis[i]
            else:
                _pivot(tableau, basis, i, column)


def _simplex(tableau: list[Row], basis: list[int], cost: Row) -> Fraction:
    """Improve a basic solution in place until it is optimal; its value."""
    while True:
        reduced = list(cost)
        for row, column in zip(tableau, basis, strict=True):
            if cost[column]:
                reduced = [old - cost[column] * entry for old, entry in zip(reduced, row[:-1], strict=True)]
        entering = next((j for j, value in enumerate(reduced) if value < 0), None)
        if entering is None:
            return sum((cost[j] * row[-1] for row, j in zip(tableau, basis, strict=True)), Fraction(0))
        ratios = [(row[-1] / row[entering], basis[i], i) for i, row in enumerate(tableau) if row[entering] > 0]
        if not ratios:
            raise ValueError("the linear program is unbounded")
        _pivot(tableau, basis, min(ratios)[2], entering)


def _pivot(tableau: list[Row], basis: list[int], i: int, column: int) -> None:
    by = tableau[i][column]
    tableau[i] = [value / by for value in tableau[i]]
    for k, row in enumerate(tableau):
        if k != i and row[column] != 0:
            factor = row[column]
            tableau[k] = [value - factor * pivot for value, pivot in zip(row, tableau[i], strict=True)]
    basis[i] = column
