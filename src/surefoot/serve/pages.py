"""The pages, made on the server; every text of the pool is escaped by `el`."""

from __future__ import annotations

from collections.abc import Iterable

from surefoot._version import __version__
from surefoot.pool.labeling import events as e
from surefoot.pool.labeling.book import Pick
from surefoot.pool.labeling.learning import leanings
from surefoot.pool.labeling.store import Person
from surefoot.serve.html import Html, el, join, percent, void
from surefoot.serve.keys import class_keys
from surefoot.serve.room import Room

_ICON = "/static/icon.svg"
# Classes from which on buttons are small, and letters of a name that may not fit on one.
_MANY, _LONG_NAME = 4, 20
_LINES = (("theorem", "theorem"), ("measured", "measured"), ("target", "target"))
_NAV = (("/", "Label"), ("/history", "History"), ("/finish", "Finish"))


def document(
    title: str,
    *body: Html,
    script: str | None = None,
    token: str = "",
    person: Person | None = None,
    at: str = "",
    onward: str | None = None,
) -> str:
    """A whole page; `onward` : the address that follows it at once."""
    head = [
        void("meta", charset="utf-8"),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        void("meta", name="write-token", content=token),
        el("title", f"{title} · surefoot"),
        void("link", rel="icon", href=_ICON, type="image/svg+xml"),
        void("link", rel="stylesheet", href="/static/style.css"),
    ]
    if onward is not None:
        head.append(void("meta", http_equiv="refresh", content=f"0; url={onward}"))
    if script is not None:
        head.append(el("script", src=f"/static/{script}", type="module"))
    skip = el("a", "Skip to the content", class_="skip", href="#main")
    page = el("html", el("head", *head), el("body", skip, _top(person, at, token), *body), lang="en")
    return f"<!doctype html>\n{page}"


def _top(person: Person | None, at: str, token: str) -> Html:
    brand = el("span", el("span", "◆", class_="mark", aria_hidden="true"), " surefoot", class_="brand")
    if person is None:
        return el("header", brand, class_="top")
    links = [el("a", name, href=href, aria_current="page" if href == at else None) for href, name in _NAV]
    leave = el(
        "form",
        _hidden("token", token),
        el("span", person.name, class_="who"),
        el("button", "Leave", class_="plain", type="submit"),
        method="post",
        action="/leave",
        class_="leave",
    )
    return el("header", brand, el("nav", *links, aria_label="Pages"), leave, class_="top")


def _hidden(name: str, value: object) -> Html:
    return void("input", type="hidden", name=name, value=value)


def onward_page(address: str, words: str = "") -> str:
    """A page that leads on to one of ours."""
    link = el("p", el("a", "Start labeling", href=address))
    main = el("main", el("h1", words or "One moment."), link, id="main", class_="narrow")
    return document("Welcome", main, onward=address)


def hello_page(room: Room, names: Iterable[str], problem: str = "") -> str:
    """The page that asks for a name."""
    people = list(names)
    fields = [
        el("label", "Your name", for_="name"),
        void(
            "input",
            id="name",
            name="name",
            maxlength=60,
            required="",
            autocomplete="name",
            autofocus="",
            list="people" if people else None,
            spellcheck="false",
        ),
        el("datalist", *[el("option", value=name) for name in people], id="people"),
        _hidden("token", room.form_token),
        el("button", "Start labeling", type="submit", class_="primary"),
    ]
    asked = el("form", *fields, method="post", action="/hello", class_="stack")
    words = el("p", "Your name stands beside your answers. It is kept on this machine only.")
    if room.by_invitation:
        asked, words = (
            Html(""),
            el("p", "You need a link of your own to come in. Ask whoever runs this server for one."),
        )
    said = el("p", problem, class_="problem", role="alert") if problem else Html("")
    main = el("main", el("h1", "Label ", el("em", room.title)), words, said, asked, id="main", class_="narrow")
    return document("Welcome", main)


def label_page(room: Room, person: Person, token: str) -> str:
    """The page on which rows are labeled; its script fills it."""
    card = el(
        "section",
        el(
            "div",
            el("p", "Fetching a row…", class_="quiet"),
            id="card",
            class_="card",
            tabindex=0,
            role="group",
            aria_label="Row to label",
        ),
        el("p", id="why", class_="why"),
        el("p", id="marks", class_="marks"),
        class_="work",
        aria_label="Row",
    )
    main = el(
        "main",
        el("h1", "Label ", el("em", room.title), el("span", f" in {room.file}", class_="quiet"), class_="compact"),
        el("div", card, _answers(room), class_="left"),
        _standing_panel(room),
        id="main",
        class_="desk",
        tabindex=-1,
    )
    live = el("p", id="live", class_="unseen", role="status", aria_live="polite")
    dialogs = [_keys_dialog(room), _note_dialog(), _guidelines_dialog(room)]
    return document(room.title, main, live, *dialogs, script="label.js", token=token, person=person, at="/")


def _answers(room: Room) -> Html:
    keys = class_keys(room.desk.book.classes)
    buttons = [
        el(
            "button",
            el("span", name, class_="name"),
            *[el("kbd", key) for key in keys[name]],
            type="button",
            class_="answer",
            data_label=name,
            title=name if len(name) > _LONG_NAME else None,
            data_keys=" ".join(keys[name]),
            aria_keyshortcuts=" ".join(keys[name]) or None,
        )
        for name in room.desk.book.classes
    ]
    kind = "answers many" if len(buttons) > _MANY else "answers"
    saved = el("span", id="saved", class_="saved", role="status")
    commands = [
        _command("skip", "Skip", "Space"),
        _command("undo", "Undo", "U"),
        _command("flag", "Flag", "F"),
        _command("note", "Note", "N"),
        *([_command("guidelines", "Guidelines", "G")] if room.guidelines is not None else []),
        _command("keys", "Keys", "?"),
    ]
    return el(
        "section",
        el("p", id="trouble", class_="problem", role="alert", hidden=""),
        el("div", *buttons, class_=kind, role="group", aria_label=f"Label of this row: {room.title}"),
        el("div", el("div", *commands, class_="commands"), saved, class_="below"),
        class_="controls",
        aria_label="Answers",
    )


def _command(name: str, text: str, key: str) -> Html:
    return el(
        "button",
        text,
        el("kbd", key),
        type="button",
        class_="plain",
        id=f"do-{name}",
        data_do=name,
        aria_keyshortcuts=key,
    )


def _standing_panel(room: Room) -> Html:
    chart = el(
        "figure",
        el("figcaption", "Bound on the error, by labels"),
        el("div", id="chart", class_="chart"),
        el("ul", *[_legend(*one) for one in _LINES], class_="legend"),
    )
    robot = Html("")
    if room.robot is not None:
        robot = el("button", "Let the robot label", type="button", id="robot", class_="robot", aria_pressed="false")
    inner = [
        el(
            "div",
            el("p", id="headline", class_="headline"),
            el("p", id="sentence", class_="sentence"),
            class_="verdict",
        ),
        robot,
        el(
            "dl",
            _figure("labels", "labels"),
            _figure("bound", "bound"),
            _figure("target", "target"),
            _figure("needed", "needed"),
            class_="figures",
        ),
        el(
            "div", chart, el("div", el("h3", "Labels by class"), el("div", id="counts", class_="counts")), class_="more"
        ),
        el("p", id="fit", class_="quiet"),
    ]
    return el(
        "aside", el("h2", "Where we stand"), *inner, class_="standing", id="standing", aria_label="Where we stand"
    )


def _legend(kind: str, words: str) -> Html:
    line = el("line", class_=kind, x1=0, x2=22, y1=4, y2=4)
    return el("li", el("svg", line, viewBox="0 0 22 8", aria_hidden="true"), words)


def _figure(key: str, name: str) -> Html:
    return el("div", el("dt", name), el("dd", el("b", "\N{EN DASH}", id=key), el("span", id=f"{key}-more")))


def _keys_dialog(room: Room) -> Html:
    keys = class_keys(room.desk.book.classes)
    rows = [(keys[name] or ["click"], f"label {name}") for name in room.desk.book.classes]
    rows += [
        (["Space"], "skip: the label cannot be told"),
        (["U", "Backspace"], "undo the last answer"),
        (["F"], "flag for discussion"),
        (["N"], "add a note"),
        *([(["G"], "guidelines")] if room.guidelines is not None else []),
        (["?"], "these keys"),
    ]
    listed = [el("div", el("dt", *[el("kbd", key) for key in named]), el("dd", what)) for named, what in rows]
    return _dialog("keys", "Keys", el("dl", *listed, class_="keys"))


def _note_dialog() -> Html:
    form = el(
        "form",
        el("label", "What should others know about this row?", for_="note-text"),
        el("textarea", id="note-text", maxlength=2000, rows=4, autofocus=""),
        el("button", "Save the note", type="submit", class_="primary"),
        id="note-form",
        class_="stack",
    )
    return _dialog("note", "Note", form)


def _guidelines_dialog(room: Room) -> Html:
    if room.guidelines is None:
        return Html("")
    return _dialog("guidelines", "Guidelines", el("div", Html(room.guidelines), class_="prose"))


def _dialog(name: str, title: str, content: Html) -> Html:
    close = el("button", "Close", type="button", class_="plain", data_close=name)
    head = el("div", el("h2", title, id=f"{name}-title"), close, class_="dialog-head")
    return el("dialog", head, content, id=f"dialog-{name}", aria_labelledby=f"{name}-title")


def why_html(room: Room, pick: Pick) -> Html:
    """Why a row is asked for. Nothing that the model believes is said of a row that judges it."""
    if pick.purpose == e.AUDIT:
        words = (
            "drawn at random to judge the frozen model. What the model believes is hidden, so that it cannot lead you."
        )
        return join([el("b", "For the audit: "), words])
    if pick.purpose == e.SECOND:
        return join([el("b", "A second opinion: "), "someone else has labeled it; you are not told how."])
    desk = room.desk
    parts: list[Html | str] = [
        el("b", "To learn from: "),
        "drawn at random. " if pick.purpose == e.RANDOM else "its label would change the model most. ",
    ]
    if desk.ranking is not None:
        first, second = (*leanings(desk.ranking.proba[pick.row], desk.book.classes), ("", 0.0))[:2]
        parts.append(f"The model leans to {first[0]} ({percent(first[1])}), then {second[0]} ({percent(second[1])}). ")
    near = room.neighbours.of(pick.row, desk.book.labels)
    if near:
        parts.append("Nearest labeled rows: ")
        shown = [el("span", f"row {one.row + 1}: {one.label}", title=room.cards.summary(one.row)) for one in near]
        parts += [*[part for one in shown for part in (one, ", ")][:-1], "."]
    return join(parts)


def foot() -> Html:
    """At the end of pages that are read, not worked on."""
    return el("footer", el("p", f"surefoot {__version__}. This page loads nothing from the network.", class_="quiet"))
