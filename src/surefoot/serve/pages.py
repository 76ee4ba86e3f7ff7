"""Responses to the script of the page: rows as cards, the progress, and whether a label is saved."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import ceil
from typing import Any, Generic, TypeVar

from surefoot._printing import render
from surefoot._version import __version__
from surefoot.pool import database as e
from surefoot.pool.database import Event, NotSavedError
from surefoot.pool.label_log import CONFLICT, LabelLog, RowState
from surefoot.pool.service import Answer, agreement_in, status
from surefoot.pool.store import Person
from surefoot.serve.state import AppState

# The pages, each a template and what it shows, and the keys that give labels.

COMMANDS = {"u": "undo", "f": "flag", "n": "note", "g": "guidelines", "?": "keys", " ": "skip"}
_PAGE = 25
_STATES = {"": "all", "labeled": "labeled", "conflict": "conflicts", "flagged": "flagged", "skipped": "skipped"}
_PURPOSES = {
    e.LEARN: "learning",
    e.RANDOM: "learning, at random",
    e.AUDIT: "audit",
    e.GIVEN: "in the table",
    e.IMPORTED: "imported",
    e.SECOND: "second opinion",
}


def class_keys(classes: list[str]) -> dict[str, list[str]]:
    """Return the keys of each class: digits in order, and first letters if they are free. The page shows the first key.

    Classes that are digits themselves have that digit.
    """
    own = {name: name for name in classes if len(name) == 1 and name.isdigit()}
    keys: dict[str, list[str]] = {}
    for place, name in enumerate(classes, start=1):
        digit = own.get(name) if own else (str(place) if place <= 9 else None)
        keys[name] = [digit] if digit is not None else []
    letters = [name[:1].casefold() for name in classes]
    for name, letter in zip(classes, letters, strict=True):
        if letter.isalpha() and letter.isascii() and letters.count(letter) == 1 and letter not in COMMANDS:
            keys[name].append(letter)
    return keys


def html_page(template: str, person: Person | None = None, token: str = "", **values: Any) -> str:
    """Render a page for an annotator, or None; token : sent with each write."""
    name = None if person is None else person.name
    return render("surefoot.serve", template, person=name, token=token, version=__version__, **values)


def onward_page(address: str, words: str = "") -> str:
    """A page that leads on to one of ours; words : its heading."""
    return html_page("onward.html", address=address, words=words)


def hello_page(state: AppState, names: Iterable[str], problem: str = "") -> str:
    """Render the sign-in page; names : known annotators; problem : an error about the given name."""
    return html_page(
        "hello.html",
        label=state.cards.table.label,
        names=list(names),
        problem=problem,
        by_invitation=state.by_invitation,
        form_token=state.form_token,
    )


def label_page(state: AppState, person: Person, token: str) -> str:
    """Render the labeling page, which its script fills."""
    return html_page(
        "label.html",
        person,
        token,
        label=state.cards.table.label,
        file=state.cards.table.path.name,
        keys=class_keys(state.desk.book.classes),
        guidelines=state.guidelines,
        robot=state.robot is not None,
    )


def finish_page(state: AppState, person: Person, token: str) -> str:
    """Render the page with the proof and the downloads."""
    desk = state.desk
    has_model = desk.turns.column is None and (desk.ranking is not None or desk.turns.n_audits > 0)
    now, report = status(desk), state.fitter.report_state
    return html_page(
        "finish.html", person, token, file=state.cards.table.path.name, now=now, has_model=has_model, report=report
    )


def why_html(state: AppState, pick: Event) -> str:
    """Return the reason for a row. For an audited row, the page does not get the prediction."""
    desk = state.desk
    leanings: list[tuple[str, float]] = []
    near: list[tuple[int, str, str]] = []
    if pick.purpose not in (e.AUDIT, e.SECOND):
        if desk.ranking is not None:
            leanings = [*desk.ranking.leanings(pick.row, desk.book.classes, 2), ("", 0.0)][:2]
        found = state.neighbours.nearest_labeled(pick.row, desk.book.labels)
        near = [(one.row + 1, one.label, state.cards.summary(one.row)) for one in found]
    column = None if desk.turns.column is None else desk.turns.column.columns[0]
    return render("surefoot.serve", "why.html", purpose=pick.purpose, column=column, leanings=leanings, near=near)


@dataclass(frozen=True)
class Query:
    """The part of the history that is shown."""

    text: str = ""
    person: int | None = None
    state: str = ""
    page: int = 1

    @classmethod
    def from_request(cls, given: Mapping[str, str]) -> Query:
        person, page = given.get("person", ""), given.get("page", "1")
        return cls(
            given.get("q", "").strip()[:200],
            int(person) if person.isdecimal() and len(person) < 9 else None,
            given.get("state", "") if given.get("state", "") in _STATES else "",
            max(int(page), 1) if page.isdecimal() and len(page) < 9 else 1,
        )


def history_page(state: AppState, person: Person, token: str, query: Query) -> str:
    """Render all labels with annotator and time, to search, filter and edit."""
    people = {one.id: one.name for one in state.desk.store.people()}
    rows = _found(state, query)
    n_pages = max(ceil(len(rows) / _PAGE), 1)
    page = min(query.page, n_pages)
    with state.desk.lock:
        book = state.desk.book
        return html_page(
            "history.html",
            person,
            token,
            query=query,
            people=people,
            states=_STATES,
            classes=book.classes,
            entries=[_entry(state, row, people, person) for row in rows[(page - 1) * _PAGE : page * _PAGE]],
            n_rows=len(rows),
            page=page,
            n_pages=n_pages,
            agreement=agreement_in(book),
            n_conflicts=len(book.conflicts),
        )


def _found(state: AppState, query: Query) -> list[int]:
    """Return the rows that match a query, latest label first."""
    words = query.text.casefold()
    with state.desk.lock:
        found = _asked_for(state.desk.book, query)
        said = {row: _words_of(state.desk.book.rows[row]) for row in found} if words else {}
    if not words:
        return found
    return [row for row in found if words in said[row] or words == str(row + 1) or words in state.cards.text(row)]


def _asked_for(book: LabelLog, query: Query) -> list[int]:
    found = []
    for row, state in book.rows.items():
        if not (state.answers or state.flags or state.notes):
            continue
        if query.person is not None and query.person not in state.answers:
            continue
        if query.state == "flagged" and not state.flags:
            continue
        if query.state not in ("", "flagged") and state.state != query.state:
            continue
        found.append(row)
    return sorted(found, key=lambda row: -_latest(book.rows[row]))


def _latest(state: RowState) -> int:
    return max([event.id for event in (*state.answers.values(), *state.flags.values(), *state.notes)], default=0)


def _words_of(state: RowState) -> str:
    return " ".join(str(event.value or "") for event in (*state.answers.values(), *state.notes)).casefold()


def _entry(state: AppState, row: int, people: dict[int, str], person: Person) -> dict[str, Any]:
    """Return the data of a row; `contested` if a conflict is settled here, otherwise the annotator changes a label."""
    found = state.desk.book.row(row)
    mine = found.answers.get(person.id)
    chosen = found.settled or mine
    answers = [
        (
            event.value if event.kind == e.LABEL else None,
            people.get(event.person, "nobody"),
            datetime.fromtimestamp(event.time).astimezone(),
        )
        for event in found.answers.values()
    ]
    return {
        "row": row,
        "purpose": _PURPOSES.get(found.purpose or "", ""),
        "conflict": found.state == CONFLICT,
        "contested": found.state == CONFLICT or found.settled is not None,
        "flagged": bool(found.flags),
        "settled": None if found.settled is None else found.settled.value,
        "summary": state.cards.summary(row, 220),
        "card": state.cards.html(row),
        "answers": answers,
        "notes": [(str(note.value), people.get(note.person, "")) for note in found.notes],
        "chosen": None if chosen is None else chosen.value,
        "answered": mine is not None,
        "skipped": mine is not None and mine.kind == e.SKIP,
    }


Asked = TypeVar("Asked")
Given = TypeVar("Given")

_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Replies:
    """Responses to the script of one page."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    def answers(self, asked: list[tuple[Person, dict[str, Any]]]) -> Iterator[bytes | Exception]:
        """Save the waiting labels in one step, then respond to each. All responses contain the same progress."""
        found = self._state.desk.answer_all([_answer_of(person, data) for person, data in asked])
        self._state.fitter.wake()
        now = self.status()
        for (person, data), one in zip(asked, found, strict=True):
            yield one if isinstance(one, Exception) else self._taken(person, data, now)

    def _taken(self, person: Person, data: dict[str, Any], now: bytes) -> bytes:
        try:
            return self.rows(person, data, now)
        except NotSavedError as error:  # the answer is on the disk, though no row could be handed out after it
            self._state.desk.problem = str(error)
            return b'{"saved":true,"rows":[],"standing":' + self.status() + b"}"

    def rows(self, person: Person, data: dict[str, Any], now: bytes | None = None, **more: Any) -> bytes:
        """Return the rows to show, as cards if the page does not have them, and the progress."""
        have = data.get("have")
        known = have if isinstance(have, list) else []
        picks = self._state.desk.rows_for(person, beyond=bool(data.get("beyond")))
        cards = [{"row": pick.row} if pick.row in known else self._card(pick) for pick in picks]
        head = _json({"saved": True, **more, "rows": cards}).encode()
        return head[:-1] + b',"standing":' + (now or self.status()) + b"}"

    def status(self) -> bytes:
        """Return the progress and the state of the fit."""
        desk, fitter = self._state.desk, self._state.fitter
        if desk.catch_up():
            fitter.wake()
        now, since = status(desk), fitter.since
        now["fit"]["running"] = None if since is None else round(time.monotonic() - since, 1)
        now["problem"] = now["problem"] or fitter.problem
        return _json({**now, "report": fitter.report_state}).encode()

    def _card(self, pick: Event) -> dict[str, Any]:
        with self._state.desk.lock:
            state = self._state.desk.book.row(pick.row)
            why = why_html(self._state, pick)
            flagged, notes = bool(state.flags), [str(note.value) for note in state.notes]
        html = self._state.cards.html(pick.row)
        return {"row": pick.row, "html": html, "why": why, "purpose": pick.purpose, "flagged": flagged, "notes": notes}


def _answer_of(person: Person, data: dict[str, Any]) -> Answer:
    return Answer(person, data.get("row", -1), data.get("label", ""), key_of(data))


def key_of(data: dict[str, Any]) -> str | None:
    """Return the key of a request, which makes a repeated request count once."""
    key = data.get("key")
    return key if isinstance(key, str) else None


class BatchQueue(Generic[Asked, Given]):
    """Takes requests of one event loop in the order in which they come; one thread does all that wait together.

    One wait for the disk then serves them all. What `work` gives for each is handed on at once; an error is raised.
    """

    def __init__(self, work: Callable[[list[Asked]], Iterable[Given | Exception]]) -> None:
        self._work = work
        self._waiting: list[tuple[Asked, asyncio.Future[Given]]] = []
        self._working: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="surefoot-answers")

    async def ask(self, asked: Asked) -> Given:
        """The result of a request."""
        loop = asyncio.get_running_loop()
        given: asyncio.Future[Given] = loop.create_future()
        self._waiting.append((asked, given))
        if self._working is None:
            self._working = loop.create_task(self._work_off(loop))
        return await given

    async def _work_off(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await loop.run_in_executor(self._thread, self._do, batch, loop)
        finally:
            self._working = None

    def _do(self, batch: list[tuple[Asked, asyncio.Future[Given]]], loop: asyncio.AbstractEventLoop) -> None:
        waiting = iter(batch)
        try:
            for one in self._work([asked for asked, _ in batch]):
                loop.call_soon_threadsafe(_give, next(waiting)[1], one)
        except Exception as error:  # noqa: BLE001 - told to those who asked
            for _, given in waiting:
                loop.call_soon_threadsafe(_give, given, error)


def _give(given: asyncio.Future[Given], what: Given | Exception) -> None:
    if given.done():  # the client may have disconnected
        return
    if isinstance(what, Exception):
        given.set_exception(what)
    else:
        given.set_result(what)
