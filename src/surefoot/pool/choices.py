"""What a user asked of a fit: plain values, so that a mistake among them is told before anything is loaded."""

from __future__ import annotations

import csv
from dataclasses import dataclass

from surefoot.pool.table.errors import TableError

DEFAULT, CALIBRATED, AUTO, NUMBER = "default", "calibrated", "auto", "number"
WEAK, NONE = "weak", "none"
LOSSES = {"log_loss": "log_loss", "zero_one": "zero_one", "log": "log_loss", "error": "zero_one"}


@dataclass(frozen=True)
class Choices:
    """What a user asked of a fit.

    radius : "default", "calibrated", "auto" or a number; prior : "weak", "none" or probabilities (K,).
    learn_rows : unlabeled rows to learn from, 0 for all; None by size.
    """

    radius: str | float = DEFAULT
    prior: str | tuple[float, ...] = WEAK
    seed: int = 0
    n_jobs: int | None = None
    tol: float = 1e-4
    learn_rows: int | None = None


def names(text: str) -> list[str]:
    """Names with commas between; one that holds a comma stands in quotes, as in a table."""
    try:
        split = next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error:  # a line end
        split = text.split(",")
    return [name.strip() for name in split if name.strip()]


def read_radius(text: str) -> str | float:
    """The radius option."""
    if text in (DEFAULT, CALIBRATED, AUTO):
        return text
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise TableError(f"--radius must be 'calibrated', 'auto' or a number at least 0; got {text!r}. Pass one.")
    return value


def read_prior(text: str) -> str | tuple[float, ...]:
    """The prior option."""
    if text in (WEAK, NONE):
        return text
    try:
        shares = tuple(float(part) for part in names(text))
    except ValueError as error:
        raise TableError(
            f"--prior must be 'weak', 'none' or one probability per class, such as 0.3,0.7; got {text!r}. Pass one."
        ) from error
    if any(not 0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise TableError(
            f"the probabilities in --prior must lie in [0, 1] and sum to 1; got {text}, which sum to {sum(shares):g}. "
            "Pass such ones."
        )
    return shares


def read_loss(text: str) -> str:
    """The loss option, by the names that --json prints; 'log' and 'error' are short for them."""
    if text not in LOSSES:
        raise TableError(f"--loss must be 'log_loss' or 'zero_one' (wrong answers); got {text!r}. Pass one of these.")
    return LOSSES[text]
