"""The stages of a search: what each is called, and what it brought."""

from __future__ import annotations

from dataclasses import dataclass

# The stages of a search, in order; a vertex or an interior point may end a path. Ordinarily there is one path.
AT_MINIMUM, WARM, QUICK, COLD = "minimal radius", "warm start", "path", "path from zero"
PROGRAM, VERTEX, INSIDE = "linear program", "vertex", "interior point"


@dataclass(frozen=True)
class Stage:
    """A stage of a search: its name, the certified gap after it, and whether it moved a bound."""

    name: str
    gap: float
    improved: bool
