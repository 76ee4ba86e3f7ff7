"""All that the pages of one pool need: the desk, the cards, the learner, and who may come in."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from surefoot.pool.labeling.desk import Desk
from surefoot.pool.labeling.learning import Neighbours
from surefoot.pool.store import hashed
from surefoot.serve.cards import Cards
from surefoot.serve.worker import Fitter


@dataclass(frozen=True, eq=False)
class AppState:
    """One pool that is being labeled.

    content : the bytes of the pool's file; labels are written into a copy of them.
    guidelines : HTML of the guidelines, or None.
    invitations_only : whether everyone needs a link, also before the first is made.
    form_token : of the form that asks for a name, where there is no session yet.
    robot : whether a robot that knows the truth can be switched on, as in the demonstration.
    """

    desk: Desk
    cards: Cards
    fitter: Fitter
    neighbours: Neighbours
    content: bytes
    guidelines: str | None = None
    invitations_only: bool = False
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    robot: object | None = None

    @property
    def by_invitation(self) -> bool:
        """Whether people need a link of their own: always on a server, and wherever somebody was invited."""
        return self.invitations_only or self.desk.store.has_invitations()


def write_token(secret: str) -> str:
    """What a page must send with every answer: it follows from the session, whose cookie no script can read."""
    return hashed(f"write:{secret}")[:32]
