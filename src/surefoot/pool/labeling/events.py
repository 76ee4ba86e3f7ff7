"""What happens while a pool is labeled: one kind of record for all of it, never changed once it is written."""

from __future__ import annotations

from dataclasses import dataclass

# Kinds of events. The first five are answers of a person; the rest follow from them or are made by the server.
LABEL, SKIP, UNDO, FLAG, UNFLAG = "label", "skip", "undo", "flag", "unflag"
NOTE, SETTLE = "note", "settle"
PICK, FREEZE, CLOSE, MEASURED = "pick", "freeze", "close", "measured"

# Purposes of a row that is asked for. Those of DRAWN are random samples of what was open.
LEARN, RANDOM, AUDIT, SECOND, GIVEN, IMPORTED = "learn", "random", "audit", "second", "given", "imported"
DRAWN = (RANDOM, AUDIT, GIVEN)

# The row and the person of an event that has none.
NOBODY, NO_ROW = 0, -1


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    kind : one of those above; value : the label, the text of a note, or JSON of what the server found.
    purpose, probability, audit : why a row was asked for, with which chance it was drawn, and for which audit.
    key : made by the page, so that an answer that is sent twice counts once; id and time : given by the store.
    """

    kind: str
    row: int = NO_ROW
    person: int = NOBODY
    value: str | None = None
    purpose: str | None = None
    probability: float | None = None
    audit: int | None = None
    key: str | None = None
    id: int = 0
    time: float = 0.0
