"""All that the pages of one pool need: the desk, the cards, the learner, and who may come in."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from surefoot.pool.labeling.desk import Desk
from surefoot.pool.labeling.learning import Neighbours
from surefoot.pool.labeling.store import hashed
from surefoot.serve.cards import Cards
from surefoot.serve.worker import Fitter


@dataclass(frozen=True, eq=False)
class Room:
    """One pool that is being labeled.

    guidelines : HTML of the guidelines, or None; by_invitation : whether a token is needed to come in.
    form_token : of the form that asks for a name, where there is no session yet.
    robot : whether a robot that knows the truth can be switched on, as in the demonstration.
    """

    desk: Desk
    cards: Cards
    fitter: Fitter
    neighbours: Neighbours
    guidelines: str | None = None
    by_invitation: bool = False
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    robot: object | None = None

    @property
    def title(self) -> str:
        return self.cards.table.label

    @property
    def file(self) -> str:
        return self.cards.table.path.name


def write_token(secret: str) -> str:
    """What a page must send with every answer: it follows from the session, whose cookie no script can read."""
    return hashed(f"write:{secret}")[:32]
