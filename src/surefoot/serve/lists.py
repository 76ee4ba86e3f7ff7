"""History, conflicts and the last page: who answered what, how far people agree, and the files to take along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from surefoot.pool.labeling import events as e
from surefoot.pool.labeling.agreement import agreement
from surefoot.pool.labeling.book import CONFLICT, Book, RowState
from surefoot.pool.labeling.store import Person
from surefoot.serve.html import Html, el, percent, void
from surefoot.serve.pages import _hidden, document, foot
from surefoot.serve.room import Room
from surefoot.serve.standing import standing

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


@dataclass(frozen=True)
class Query:
    """What of the history is shown."""

    text: str = ""
    person: int | None = None
    state: str = ""
    page: int = 1

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Query:
        person, page = given.get("person", ""), given.get("page", "1")
        return cls(
            given.get("q", "").strip()[:200],
            int(person) if person.isdecimal() and len(person) < 9 else None,
            given.get("state", "") if given.get("state", "") in _STATES else "",
            max(int(page), 1) if page.isdecimal() and len(page) < 9 else 1,
        )


def history_page(room: Room, person: Person, token: str, query: Query) -> str:
    """Every answer with who and when, to search, filter and edit."""
    people = {one.id: one.name for one in room.desk.store.people()}
    rows = _found(room, query)
    with room.desk.lock:
        pages = max(ceil(len(rows) / _PAGE), 1)
        shown = rows[(min(query.page, pages) - 1) * _PAGE : min(query.page, pages) * _PAGE]
        entries = [_entry(room, row, people, person, token) for row in shown]
    count = el("p", f"{len(rows)} row{'s' * (len(rows) != 1)}", class_="quiet")
    listed = el("ol", *entries, class_="entries") if entries else el("p", "Nothing here yet.", class_="quiet")
    main = el(
        "main",
        el("h1", "History"),
        _agreement(room),
        _filters(query, people),
        count,
        listed,
        _pager(query, pages),
        foot(),
        id="main",
        class_="wide",
        tabindex=-1,
    )
    return document("History", main, script="lists.js", token=token, person=person, at="/history")


def _found(room: Room, query: Query) -> list[int]:
    """Rows that a query asks for, the latest answer first. Cells are searched while answers go on."""
    words = query.text.casefold()
    with room.desk.lock:
        found = _asked_for(room.desk.book, query)
        said = {row: _words_of(room.desk.book.rows[row]) for row in found} if words else {}
    if not words:
        return found
    return [row for row in found if words in said[row] or words == str(row + 1) or words in room.cards.text(row)]


def _asked_for(book: Book, query: Query) -> list[int]:
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


def _entry(room: Room, row: int, people: dict[int, str], person: Person, token: str) -> Html:
    state = room.desk.book.row(row)
    marks = []
    if state.state == CONFLICT:
        marks.append(el("span", "conflict", class_="chip warn"))
    if state.flags:
        marks.append(el("span", "flagged", class_="chip"))
    if state.settled is not None:
        marks.append(el("span", f"settled: {state.settled.value}", class_="chip good"))
    purpose = el("span", _PURPOSES.get(state.purpose or "", ""), class_="quiet")
    head = el("div", el("b", f"Row {row + 1}"), purpose, *marks, class_="entry-head")
    said = [
        el(
            "li",
            el("b", str(event.value) if event.kind == e.LABEL else "skipped", class_="said"),
            el("span", f"{people.get(event.person, 'nobody')}, ", _time(event.time), class_="quiet"),
        )
        for event in state.answers.values()
    ]
    notes = [
        el("li", f"“{note.value}” ", el("span", people.get(note.person, ""), class_="quiet")) for note in state.notes
    ]
    changing = el("div", _edit(room, row, state, person, token), *_clear_flag(row, state, token), class_="changing")
    return el(
        "li",
        head,
        el("p", room.cards.summary(row, 220), class_="row-text"),
        el("details", el("summary", "The whole row"), room.cards.html(row), class_="whole"),
        el("ul", *notes, class_="notes") if notes else Html(""),
        el("div", el("ul", *said, class_="answers-given"), changing, class_="entry-foot"),
        class_="entry",
        id=f"row-{row + 1}",
    )


def _edit(room: Room, row: int, state: RowState, person: Person, token: str) -> Html:
    """A form that settles a conflict, or changes one's own answer."""
    conflict = state.state == CONFLICT or state.settled is not None
    mine = state.answers.get(person.id)
    chosen = state.settled.value if state.settled is not None else (mine.value if mine is not None else None)
    options = [
        el("option", name, value=name, selected="" if name == chosen else None) for name in room.desk.book.classes
    ]
    if not conflict:
        skipped = mine is not None and mine.kind == e.SKIP
        options.append(el("option", "skip: cannot be told", value="", selected="" if skipped else None))
    action, text = ("/settle", "Settle") if conflict else ("/edit", "Change" if mine is not None else "Add my answer")
    return el(
        "form",
        _hidden("token", token),
        _hidden("row", row),
        el("label", f"Label of row {row + 1}", for_=f"edit-{row}", class_="unseen"),
        el("select", *options, id=f"edit-{row}", name="label"),
        el("button", text, type="submit", class_="primary" if conflict else "plain"),
        method="post",
        action=action,
        class_="inline",
    )


def _clear_flag(row: int, state: RowState, token: str) -> list[Html]:
    if not state.flags:
        return []
    button = el("button", "Clear the flag", type="submit", class_="plain")
    return [
        el(
            "form",
            _hidden("token", token),
            _hidden("row", row),
            button,
            method="post",
            action="/unflag",
            class_="inline",
        )
    ]


def _agreement(room: Room) -> Html:
    with room.desk.lock:
        book = room.desk.book
        answers = [
            {who: str(event.value) for who, event in state.answers.items() if event.kind == e.LABEL}
            for state in book.rows.values()
            if len(state.answers) > 1
        ]
        open_conflicts = len(book.conflicts)
    found = agreement(answers, room.desk.book.classes)
    if found.share is None:
        words = "No row has answers of two people yet, so there is no agreement to measure."
        return el("p", words, " Start with ", el("code", "--overlap 0.1"), " to ask for them.", class_="quiet")
    kappa = "not defined (all answers are one class)" if found.kappa is None else f"{found.kappa:.2f}"
    return el(
        "dl",
        el("div", el("dt", "labeled by two or more"), el("dd", str(found.n_rows))),
        el("div", el("dt", "agreement"), el("dd", percent(found.share))),
        el("div", el("dt", f"{found.name}'s κ"), el("dd", kappa)),
        el("div", el("dt", "open conflicts"), el("dd", el("a", str(open_conflicts), href="/history?state=conflict"))),
        class_="figures flat",
    )


def _filters(query: Query, people: dict[int, str]) -> Html:
    chosen = [el("option", "anyone", value="")]
    chosen += [el("option", n, value=i, selected="" if i == query.person else None) for i, n in people.items()]
    states = [el("option", n, value=v, selected="" if v == query.state else None) for v, n in _STATES.items()]
    return el(
        "form",
        el(
            "label",
            "Search",
            void("input", type="search", name="q", value=query.text, placeholder="cells, labels, notes"),
        ),
        el("label", "Who", el("select", *chosen, name="person")),
        el("label", "Show", el("select", *states, name="state")),
        el("button", "Filter", type="submit", class_="plain"),
        method="get",
        action="/history",
        class_="filters",
        role="search",
    )


def _pager(query: Query, pages: int) -> Html:
    if pages == 1:
        return Html("")
    base = f"/history?q={_quoted(query.text)}&person={query.person or ''}&state={query.state}&page="
    here = min(query.page, pages)
    links = []
    if here > 1:
        links.append(el("a", "Newer", href=f"{base}{here - 1}", rel="prev"))
    links.append(el("span", f"page {here} of {pages}", class_="quiet"))
    if here < pages:
        links.append(el("a", "Older", href=f"{base}{here + 1}", rel="next"))
    return el("nav", *links, class_="pager", aria_label="Pages of the history")


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text)


def _time(when: float) -> Html:
    moment = datetime.fromtimestamp(when).astimezone()
    return el("time", f"{moment:%Y-%m-%d %H:%M}", datetime=moment.isoformat(timespec="seconds"))


def finish_page(room: Room, person: Person, token: str) -> str:
    """What is proved, and the files."""
    now = standing(room.desk, room.fitter, room.desk.store.people())
    has_model = room.desk.ranking is not None or room.desk.turns.n_audits > 0
    proved = room.desk.turns.phase == "proved"
    which = "the model that was proved" if proved else "the model as it is now; nothing is proved of it"
    left = room.desk.book.n_rows - len(room.desk.book.labels)
    files = [
        _file("/download/labels.csv", "Labels, CSV", "the pool with the labels that stand"),
        _file("/download/labels.parquet", "Labels, Parquet", "the same for programs"),
        _file("/download/answers.csv", "Answers, CSV", "one line per answer: person, time, purpose, pick probability"),
        _file("/download/answers.parquet", "Answers, Parquet", "the same for programs"),
        _file("/download/label-studio.json", "Label Studio", "tasks with annotations"),
        *([_file("/download/model.skops", "Model", which)] if has_model else []),
    ]
    report = el(
        "form",
        _hidden("token", token),
        el("button", "Make the report", type="submit", class_="plain"),
        el("span", "a page on the model as it is now; takes a while", class_="quiet", role="status"),
        method="post",
        action="/report",
        class_="report",
        id="report",
        data_state=now["report"],
    )
    main = el(
        "main",
        el("h1", "Finish"),
        el("p", str(now["headline"]), class_="headline", data_phase=now["phase"]),
        el("p", str(now["sentence"])),
        el(
            "p",
            f"{now['labels']} of {now['rows']} rows have a label, {left} have none; "
            f"{now['conflicts']} conflicts are open. The file {room.file} itself is changed by "
            "surefoot export only.",
            class_="quiet",
        ),
        el("ul", *files, class_="files"),
        report,
        foot(),
        id="main",
        class_="wide",
        tabindex=-1,
    )
    return document("Finish", main, script="lists.js", token=token, person=person, at="/finish")


def _file(href: str, name: str, what: str) -> Html:
    return el("li", el("a", name, href=href, download=""), el("span", what, class_="quiet"))


__all__ = ["Query", "finish_page", "history_page"]
