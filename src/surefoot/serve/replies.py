"""What the script of the page gets: rows as cards, where we stand, and whether its answer is on the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from surefoot.pool.labeling.book import Pick
from surefoot.pool.labeling.desk import Answer, AnswerError
from surefoot.pool.labeling.store import NotSavedError, Person
from surefoot.serve.pages import why_html
from surefoot.serve.room import Room
from surefoot.serve.standing import standing

OK, BAD, FULL = 200, 400, 507
# Status and JSON of a reply.
Reply = tuple[int, bytes]

_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Replies:
    """Replies of one room."""

    def __init__(self, room: Room) -> None:
        self._room = room

    def answers(self, asked: list[tuple[Person, dict[str, Any]]]) -> Iterator[Reply]:
        """Take answers that wait for each other, then say what became of each; where we stand is said alike to all."""
        found = self._room.desk.answer_all([_answer_of(person, data) for person, data in asked])
        self._room.fitter.wake()
        now = self.standing()
        for (person, data), one in zip(asked, found, strict=True):
            yield refusal(one) if isinstance(one, Exception) else self._tried(person, data, now)

    def _tried(self, person: Person, data: dict[str, Any], now: bytes) -> Reply:
        try:
            return OK, self.state(person, data, now)
        except NotSavedError as error:  # the answer is on the disk, though no row could be handed out after it
            self._room.desk.problem = str(error)
            return OK, b'{"saved":true,"rows":[],"standing":' + self.standing() + b"}"

    def state(self, person: Person, data: dict[str, Any], now: bytes | None = None, **more: Any) -> bytes:
        """The rows to show, as cards where the page has them not yet, and where we stand."""
        have = data.get("have")
        known = have if isinstance(have, list) else []
        picks = self._room.desk.rows_for(person, beyond=bool(data.get("beyond")))
        cards = [{"row": pick.row} if pick.row in known else self._card(pick) for pick in picks]
        head = _json({"saved": True, **more, "rows": cards}).encode()
        return head[:-1] + b',"standing":' + (now or self.standing()) + b"}"

    def standing(self) -> bytes:
        """Where we stand."""
        desk = self._room.desk
        return _json(standing(desk, self._room.fitter, desk.store.people())).encode()

    def _card(self, pick: Pick) -> dict[str, Any]:
        with self._room.desk.lock:
            state = self._room.desk.book.row(pick.row)
            why = why_html(self._room, pick)
            flagged, notes = bool(state.flags), [str(note.value) for note in state.notes]
        html = self._room.cards.html(pick.row)
        return {"row": pick.row, "html": html, "why": why, "purpose": pick.purpose, "flagged": flagged, "notes": notes}


def refusal(error: Exception) -> Reply:
    """Why something was not saved."""
    if not isinstance(error, AnswerError | NotSavedError):
        raise error
    message = {"saved": False, "message": str(error)}
    return (BAD if isinstance(error, AnswerError) else FULL), _json(message).encode()


def _answer_of(person: Person, data: dict[str, Any]) -> Answer:
    key = data.get("key")
    return Answer(person, data.get("row", -1), data.get("label"), key if isinstance(key, str) else None)
